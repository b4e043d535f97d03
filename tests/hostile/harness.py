"""What all corpora of hostile files share: how they are collected, and how they are attacked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Builder = Callable[[], bytes]
ROOT = Path(__file__).resolve().parents[2]
MOST_MEBIBYTES = 400
# Of processor time. The goal is 2, but a busy machine may need thrice as long for the same work,
# while what grows with the square of a file's length would take minutes.
MOST_SECONDS = 15


class Corpus(dict[str, Builder]):
    """Files by name, each made when it is wanted."""

    def hostile(self, name: str) -> Callable[[Builder], Builder]:
        def register(build: Builder) -> Builder:
            assert name not in self, name
            self[name] = build
            return build

        return register

    def add(self, name: str, data: bytes) -> None:
        self.hostile(name)(lambda: data)


def run(folder: Path, names: list[str]) -> list[dict[str, Any]]:
    """Read the files in one watched process: what each of them ended in."""
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


def attacked(folder: Path, files: dict[str, Builder]) -> dict[str, dict[str, Any]]:
    """`run` of a whole corpus in its own folder, in which nothing is written."""
    for name, build in files.items():
        (folder / name).write_bytes(build())
    found = dict(zip(files, run(folder, list(files)), strict=True))
    assert {path.name for path in folder.iterdir()} == set(files)
    assert not (ROOT / "hacked").exists()
    return found


def ends_well(result: dict[str, Any]) -> None:
    assert result["kind"] in ("damage", "unsafe", "usage", "newer format"), result["text"]
    assert result["mebibytes"] < MOST_MEBIBYTES, result
    assert result["seconds"] < MOST_SECONDS, result
