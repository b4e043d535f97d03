"""kill -9 while logs are read: no point is lost, none is there twice, and it goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests import event_bytes
from tests.crash import shim
from tests.crash.conftest import ROOT, environment

pytestmark = pytest.mark.crash


def put(folder: Path, run: str, tags: list[str], count: int) -> None:
    path = folder / run / "events.out.tfevents.1.host"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(event_bytes.scalars(tag, [s]) for s in range(count) for tag in tags))


def kills(preload: Path, fast: Path, *modes: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(dir=fast) as name:
        folder = Path(name)
        put(folder / "early", "a", ["loss", "acc"], 20)
        put(folder / "late", "a", ["loss", "acc"], 45)
        put(folder / "late", "b/new", ["loss"], 30)
        (folder / "place").mkdir()
        (folder / "home").mkdir()
        watched = shim.environment(preload, folder / "control", folder / "place")
        shim.Control(folder / "control")
        done = subprocess.run(
            [sys.executable, "-m", "tests.crash.ingest_driver", str(folder), *map(str, modes)],
            cwd=ROOT,
            env=environment(folder / "home") | watched,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    first, *results = [json.loads(line) for line in done.stdout.splitlines()]
    assert first["points"] == 2 * 45 + 30
    assert first["count"] > 10
    return results


def test_ingest(preload: Path, fast: Path) -> None:
    results = kills(preload, fast, shim.BEFORE, shim.MIDDLE)
    assert [result for result in results if result["problems"]] == []
    assert sum(result["code"] is None for result in results) > 0.9 * len(results)
