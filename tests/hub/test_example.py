"""examples/remote.sh: two clones that share a folder, and two that share a bucket."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "remote.sh"


@pytest.mark.parametrize("place", ["folder", "s3"])
def test_two_clones_share_it(
    tmp_path: Path, place: str, s3_environ: dict[str, str], bucket: Callable[[], str]
) -> None:
    url = str(tmp_path / "models") if place == "folder" else f"s3://{bucket()}/models"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DLV_")}
    environ = {**kept, **s3_environ, "TMPDIR": str(tmp_path)}
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    ran = subprocess.run(
        ["sh", str(SCRIPT), url], env=environ, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "lenet@4 is a child of lenet@2" in ran.stdout
    assert ran.stdout.rstrip().splitlines()[-1].startswith("ok\t")
    assert not ran.stderr.count("error")
