"""What examples/enumerate/README.md tells to type does what it says, with fewer steps."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import dlv

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "examples" / "enumerate" / "README.md"


@pytest.mark.slow
def test_the_readme(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, arguments in (("dlv", "-m dlv "), ("python", "")):
        program = tools / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments}"$@"\n')
        program.chmod(0o755)
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    script = "\n".join(["set -e", *blocks])
    assert script.count("steps=300 -P cut=100") == 2
    script = script.replace("steps=300 -P cut=100", "steps=40 -P cut=20")
    script = script.replace("python make.py", f"python {README.parent / 'make.py'}")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DLV_")}
    environment |= {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "variations: 3 networks x 9 configurations = 27 trials, <= 1,080 steps" in done.stderr
    assert "5 versions of tuned committed" in done.stderr
    assert "gelu2" in done.stdout
    with dlv.open(tmp_path / "digits") as repo:
        tuned = [version for version in repo if version.name == "tuned"]
        assert len(tuned) == 5
        for version in tuned:
            assert version.manifest.hyperparameters["steps"] == 40
            assert version.manifest.derivation is not None
            assert version.manifest.derivation["query"].startswith("evaluate m from")
