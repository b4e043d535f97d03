"""`dlv add` on every hostile file: refused with a message, in little memory, nothing done."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dlv.metadata.facts as facts
from dlv.repository.handle import Repository
from tests.hostile import caffe_files, corpus, gguf_files, pickles
from tests.hostile.program import CAUGHT

pytestmark = pytest.mark.hostile

ROOT = Path(__file__).resolve().parents[2]
CODES = {2, 3, 5, 6, 8, 9}
MOST_MEBIBYTES = 512
# No more than bytes to dlv: kept as plain files.
PLAIN = {"invalid-utf8.yaml", "invalid-utf8.jsonl"}
SLOW = ("50mb", "90mb")  # to build; what reads them is tested in test_corpus


def names() -> dict[str, Any]:
    found = {
        name: build for name, build in corpus.CORPUS.items() if not any(s in name for s in SLOW)
    }
    for name, build in pickles.HOSTILE.items():
        found[f"pickle-{re.sub(r'[^A-Za-z0-9]+', '-', name)}.pt"] = build
    return found | gguf_files.HOSTILE | caffe_files.HOSTILE


def run(folder: Path, files: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.program", str(folder)],
        input="\n".join(files),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
def test_add(tmp_path: Path, part: int) -> None:
    """A quarter of the files: what reads them is tested with all of them in test_corpus."""
    folder = tmp_path / "project"
    Repository.init(folder)[0].close()
    files = names()
    models = len(gguf_files.HOSTILE) + len(caffe_files.HOSTILE)
    assert len(files) == len(corpus.CORPUS) + len(pickles.HOSTILE) - 3 + models > 400
    files = dict(list(files.items())[part::4])
    for name, build in files.items():
        (folder / name).write_bytes(build())
    before = {path.name for path in tmp_path.iterdir()} | {path.name for path in folder.iterdir()}
    wrong = []
    for result in run(folder, list(files)):
        said = result["said"]
        if result["name"] in PLAIN:
            assert result["code"] == 0, said
            continue
        if result["code"] not in CODES or not said.startswith("error: "):
            wrong.append(f"{result['name']}: exit {result['code']}: {said[-500:]}")
        if result["mebibytes"] > MOST_MEBIBYTES:
            wrong.append(f"{result['name']}: {result['mebibytes']:.0f} MiB")
        if len(said.splitlines()) > 6 or re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", said):
            wrong.append(f"{result['name']}: said {said!r}")
    assert not wrong, "\n".join(wrong)
    after = {path.name for path in tmp_path.iterdir()} | {path.name for path in folder.iterdir()}
    assert after == before
    with Repository.find(folder) as repository:
        kept = {file.path: file.role for file in facts.staged_files(repository.database)}
        assert kept == dict.fromkeys(PLAIN & files.keys(), "file")
        assert repository.head is None
        assert list(repository.tmp.iterdir()) == []


def test_the_watch_sees(tmp_path: Path) -> None:
    """A good file is staged; a reader that ran or wrote something would be caught."""
    folder = tmp_path / "project"
    Repository.init(folder)[0].close()
    (folder / "good.safetensors").write_bytes(corpus.GOOD)
    assert [result["code"] for result in run(folder, ["good.safetensors"])] == [0]
    for action in (
        "open('outside', 'w')",
        "__import__('os').system('true')",
        "__import__('subprocess').run(['true'])",
        "exec('1')",
        "__import__('socket').socket()",
    ):
        code = "import sys; from tests.hostile import program; import socket, subprocess"
        hook = f"sys.addaudithook(program.watch({str(folder)!r}))"
        done = subprocess.run(
            [sys.executable, "-c", f"{code}; {hook}; {action}"], cwd=ROOT, capture_output=True
        )
        assert done.returncode == CAUGHT, action
    assert not (ROOT / "outside").exists()
