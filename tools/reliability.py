"""`make reliability`: the crash harness run for its figures, as a table and as JSON.

python tools/reliability.py [--points N] [--out FILE]: at most N points per command (0: all of
them); exit 1 if anything was lost or broken.
"""

from __future__ import annotations

import argparse
import errno
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.crash import conftest, shim  # noqa: E402
from tests.crash.test_bit_flips import KINDS  # noqa: E402
from tests.crash.test_kill import ARCHIVE, COMMIT, GC, HIDDEN, SECOND  # noqa: E402
from tests.crash.test_powerloss import COMMANDS as CUT  # noqa: E402

KILLS = [(shim.BEFORE, 0), (shim.MIDDLE, 0)]
ERRORS = [
    (way, code)
    for way in (shim.FAIL_FROM, shim.FAIL_ONCE)
    for code in (errno.ENOSPC, errno.EIO, errno.EMFILE)
]
COMMANDS: dict[str, tuple[Sequence[Any], Sequence[str], tuple[str, ...]]] = {
    "commit": ([["add", "."]], COMMIT, ()),
    "archive": (SECOND, ARCHIVE, ()),
    "gc": (HIDDEN, GC, ("eager",)),
    "rm": (SECOND, ("rm", "lenet@1"), ()),
    "undo": (SECOND, ("undo",), ()),
    "tag": (SECOND, ("tag", "best", "lenet@1"), ()),
    "rebuild": (SECOND, ("fsck", "--rebuild"), ()),
}


def run(below: Path, name: str, ways: Sequence[tuple[int, int]], most: int) -> dict[str, Any]:
    """One command killed, or refused, at so many of its calls."""
    before, command, settings = COMMANDS[name]
    return _driven(below, name, before, command, ways=ways, most=most, settings=settings)


def cut(below: Path, name: str, images: int) -> dict[str, Any]:
    """So many images of what a disk may hold after the power was cut during a command."""
    before, command, settings = CUT[name]
    place = f"power {name}"
    return _driven(below, place, before, command, ways=[], images=images, settings=settings)


def _driven(
    below: Path, name: str, before: Sequence[Any], command: Sequence[str], **given: Any
) -> dict[str, Any]:
    prepare = conftest.prepare.__wrapped__(below)  # type: ignore[attr-defined]
    template = prepare(name, *before)
    built = shim.library(below / "shim")
    drive = conftest.drive.__wrapped__(built, below)  # type: ignore[attr-defined]
    results = next(drive)(template, command, **given)
    problems = conftest.bad(results)
    return {
        "points": len(results),
        "reached": sum(r["code"] == -9 or r["failed"] > 0 for r in results),
        "bad": sum(bool(r["problems"]) for r in results),
        "examples": problems[:3],
    }


def tests(words: str) -> dict[str, Any]:
    """Tests of the harness that count by themselves."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        words,
        "-m",
        "not slow",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return {"passed": done.returncode == 0, "said": done.stdout.strip().splitlines()[-1:]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=40)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found: dict[str, Any] = {"kills": {}, "errors": {}, "power": {}, "tests": {}}
    images = given.points or 500
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        below = Path(name)
        for kind, ways in (("kills", KILLS), ("errors", ERRORS), ("power", None)):
            for command in CUT if ways is None else COMMANDS:
                started = time.monotonic()
                if ways is None:
                    row = cut(below, command, images)
                else:
                    row = run(below, command, ways, given.points)
                found[kind][command] = row | {"seconds": round(time.monotonic() - started, 1)}
                line = f"{kind:7} {command:13} {row['points']:6} points {row['bad']:4} bad"
                print(line, flush=True)
                for example in row["examples"]:
                    print(f"        {example}", flush=True)
    files = "tests/crash/test_{}.py"
    for name, words in {
        f"flips, 25 in each of {len(KINDS)} kinds of file": files.format("bit_flips"),
        "gc within a commit": files.format("gc_race"),
        "processes at once": files.format("concurrency"),
        "faults put in on purpose": files.format("harness"),
        "repair from a copy": "tests/test_repair.py",
    }.items():
        found["tests"][name] = row = tests(words)
        print(f"tests   {name}: {'ok' if row['passed'] else row['said']}", flush=True)
    kinds = ("kills", "errors", "power")
    total = {kind: sum(row["points"] for row in found[kind].values()) for kind in kinds}
    bad = sum(row["bad"] for kind in total for row in found[kind].values())
    found["total"] = total | {"bad": bad}
    print(json.dumps(found["total"]))
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(bool(bad) or not all(row["passed"] for row in found["tests"].values()))


if __name__ == "__main__":
    main()
