"""Reads logs into live.db again and again, each time killed at another call.

`python -m tests.crash.ingest_driver FOLDER` under shim.c: FOLDER holds the same logs at two times,
`early` and `late`. Each run is a fork in a process group of its own, in which a store that knows
the early ones reads the late ones. Prints a JSON line per point: what was wrong afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dlv.curves.ingest as ingest
import dlv.events.logs.batches as batches
from dlv.curves.store import CurveStore
from dlv.metadata import curve_writing
from tests.crash import shim

BATCH = 1500  # bytes: several transactions a file
LENGTH = struct.Struct("<Q")


def read(folder: Path, live: Path) -> str:
    ingest.BATCH = BATCH
    batches.WINDOW = BATCH
    with CurveStore.open(live) as store:
        ingest.scan(store, folder, experiment="x")
    return "read"


def points(live: Path) -> dict[str, list[int]]:
    """Run and tag -> the steps that are there."""
    with CurveStore.open(live) as store:
        found = {}
        for experiment, _ in store.experiments():
            for row in store.series(experiment):
                steps = store.scalars(row.id).steps
                found[f"{row.run} {row.tag}"] = list(struct.unpack(f"<{len(steps) // 8}q", steps))
        return found


def records(live: Path, folder: Path) -> int:
    """How many records lie before the offsets up to which the logs have been read."""
    with CurveStore.open(live) as store:
        total = 0
        for experiment, _ in store.experiments():
            for files in curve_writing.files(store.database, experiment).values():
                for file in files.values():
                    data = (folder / file.path.removeprefix(f"{folder}/")).read_bytes()
                    at = 0
                    while at < file.offset:
                        at += 16 + LENGTH.unpack_from(data, at)[0]
                        total += 1
                    assert at == file.offset, "it was read up to the middle of a record"
        return total


def child(function: Callable[[], Any]) -> Any:
    """What the function returns, from a fork; None if it was killed."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        os.setpgid(0, 0)
        os.close(reader)
        try:
            found = function()
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        said = file.read()
    os.waitpid(process, 0)
    return json.loads(said) if said else None


def main(folder: Path, modes: list[int]) -> None:
    control = shim.Control(Path(os.environ["SHIM_CONTROL"]))
    place = Path(os.environ["SHIM_BELOW"])
    live = place / "live.db"
    logs = folder / "logs"

    def fresh(state: str) -> None:
        # In place: the files stay what they are and grow.
        for path in sorted((folder / state).rglob("*tfevents*")):
            target = logs / path.relative_to(folder / state)
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "r+b" if target.exists() else "wb") as file:
                file.truncate()
                file.write(path.read_bytes())

    def begin() -> None:
        for path in place.glob("live.db*"):
            path.unlink()
        for path in (folder / "begun").glob("live.db*"):
            shutil.copy(path, place)

    fresh("early")
    child(lambda: read(logs, live))
    (folder / "begun").mkdir()
    for path in place.glob("live.db*"):
        shutil.copy(path, folder / "begun")
    fresh("late")
    begin()
    control.set(shim.COUNT)
    child(lambda: read(logs, live))
    control.stop()
    count, expected = control.count, child(lambda: points(live))
    print(json.dumps({"count": count, "points": sum(map(len, expected.values()))}))
    for mode in modes:
        for at in range(1, count + 1):
            begin()
            control.set(mode, at)
            code = child(lambda: read(logs, live))
            control.stop()
            found = child(lambda: [points(live), records(live, logs)])
            problems = []
            if not isinstance(found, list):
                problems.append(found)
            else:
                steps, held = found
                if sum(map(len, steps.values())) != held:
                    problems.append(f"{held} records were read, and the points are {steps}")
                for name, there in steps.items():
                    if there != expected[name][: len(there)]:
                        problems.append(f"{name} is {there}")
            said = child(lambda: [read(logs, live), points(live)])
            if said != ["read", expected]:
                problems.append(f"afterwards: {said}")
            print(json.dumps({"mode": mode, "at": at, "code": code, "problems": problems}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(mode) for mode in sys.argv[2:]])
