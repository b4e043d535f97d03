"""Every file of the corpus ends in a typed error, quickly, in little memory, writing nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.corpus import CORPUS, GOOD, STORED

pytestmark = pytest.mark.hostile

ROOT = Path(__file__).resolve().parents[2]
MOST_MEBIBYTES = 400
MOST_SECONDS = 4  # twice the goal: other tests may be running


def run(folder: Path, names: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.attack", *[str(folder / name) for name in names]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(names), done.stderr
    for result in results:
        result["text"] += done.stderr if result["kind"] == "crash" else ""
    return results


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("corpus")
    for name, build in CORPUS.items():
        (folder / name).write_bytes(build())
    found = dict(zip(CORPUS, run(folder, list(CORPUS)), strict=True))
    assert {path.name for path in folder.iterdir()} == set(CORPUS)
    assert not (ROOT / "hacked").exists()
    return found


@pytest.mark.parametrize("name", CORPUS)
def test_ends_well(results: dict[str, dict[str, Any]], name: str) -> None:
    result = results[name]
    assert result["kind"] in ("damage", "unsafe", "usage", "newer format"), result["text"]
    assert result["mebibytes"] < MOST_MEBIBYTES, result
    assert result["seconds"] < MOST_SECONDS, result


def test_the_harness_sees_good_and_bad(tmp_path: Path) -> None:
    """Good files give no error, and the hook ends a process that writes or runs something."""
    (tmp_path / "a.safetensors").write_bytes(GOOD)
    (tmp_path / "a.npz").write_bytes(STORED)
    assert [r["kind"] for r in run(tmp_path, ["a.safetensors", "a.npz"])] == [None, None]
    for action in ("open('hacked', 'w')", "__import__('os').system('true')"):
        code = "import sys; from tests.hostile import attack; sys.addaudithook(attack.watch)"
        done = subprocess.run(
            [sys.executable, "-c", f"{code}; {action}"], cwd=ROOT, capture_output=True
        )
        assert done.returncode == 66
    assert not (ROOT / "hacked").exists()
