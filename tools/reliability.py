"""`make reliability`: the crash harness run for its figures, as a table and as JSON.

python tools/reliability.py [--points N] [--crowd 32x50] [--out FILE]: at most N points per command
(0: all of them), so many processes x operations; exit 1 if anything was lost or broken.
"""

from __future__ import annotations

import argparse
import errno
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests import conftest as tests_conftest  # noqa: E402
from tests.crash import conftest, shim, test_concurrency, test_kill_ingest  # noqa: E402
from tests.crash.flips import KINDS as FLIPPED  # noqa: E402
from tests.crash.flips import Flips  # noqa: E402
from tests.crash.test_bit_flips import KINDS  # noqa: E402
from tests.crash.test_powerloss import COMMANDS as CUT  # noqa: E402
from tests.crash.verbs import VERBS  # noqa: E402

KILLS = [(shim.BEFORE, 0), (shim.MIDDLE, 0)]
ERRORS = [
    (way, code)
    for way in (shim.FAIL_FROM, shim.FAIL_ONCE)
    for code in (errno.ENOSPC, errno.EIO, errno.EMFILE)
]
BITS = [(shim.SPOIL, 0)]
FLIPS = {"log": 1500, "catalogue": 1500}
KINDS_OF_ROWS = ("kills", "errors", "bits", "flips", "power", "crowd")


def run(
    below: Path, name: str, ways: Sequence[tuple[int, int]] = (), most: int = 0, images: int = 0
) -> dict[str, Any]:
    """One command killed, refused, or given a wrong bit at so many of its calls; or so many
    images of what a disk may hold after the power was cut during it."""
    verb = VERBS[name]
    prepare = conftest.prepare.__wrapped__(below)  # type: ignore[attr-defined]
    template = prepare(name, *verb.before, release=verb.release)
    drive = conftest.drive.__wrapped__(_shim(below), below)  # type: ignore[attr-defined]
    given = {"images": images} if images else {"most": most}
    results = next(drive)(template, verb.command, ways, settings=verb.settings, **given)
    problems = conftest.bad(results)
    return {
        "points": len(results),
        "reached": sum(r["code"] == -9 or r["failed"] > 0 for r in results),
        "bad": sum(bool(r["problems"]) for r in results),
        "examples": problems[:3],
    }


def ingest(below: Path) -> dict[str, Any]:
    """Logs read into live.db, killed at every call."""
    results = test_kill_ingest.kills(_shim(below), below, shim.BEFORE, shim.MIDDLE)
    wrong = [str(result) for result in results if result["problems"]]
    reached = sum(result["code"] is None for result in results)
    return {"points": len(results), "reached": reached, "bad": len(wrong), "examples": wrong[:3]}


def crowd(below: Path, many: int, turns: int) -> dict[str, Any]:
    """Processes that commit, read, archive, collect, tag, remove and undo at once."""
    folder, home = below / "crowd", below / "crowd-home"
    home.mkdir()
    wrong = []
    try:
        made = test_concurrency.crowd(folder, home, many, turns, "collecting", patience=3600)
        test_concurrency.whole(folder, made, gc=True)
    except AssertionError as error:
        wrong.append(str(error)[:2000])
    return {"points": many * turns, "reached": many, "bad": len(wrong), "examples": wrong}


def flip(flips: Flips, kind: str, many: int) -> dict[str, Any]:
    """So many bits flipped, each in a fresh copy, in which then gc, fsck and a repair run."""
    wrong = list(flips.run(kind, many, seed=2))
    return {"points": many, "reached": many, "bad": len(wrong), "examples": wrong[:3]}


def flips_of(below: Path) -> Flips:
    """The repository that they happen to."""
    commit = tests_conftest.commit_model.__wrapped__()  # type: ignore[attr-defined]
    folders = SimpleNamespace(mktemp=lambda name: below / name)
    (below / "lived").mkdir()
    lived = tests_conftest.lived_once.__wrapped__(folders, commit)  # type: ignore[attr-defined]
    place = below / "flips"
    place.mkdir()
    return Flips(lived, place, commit)


def _shim(below: Path) -> Path:
    return shim.library(below / "shim")


def tests(words: str) -> dict[str, Any]:
    """Tests of the harness that count by themselves."""
    command = [sys.executable, "-m", "pytest", "-q", words, "-m", "not slow"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return {"passed": done.returncode == 0, "said": done.stdout.strip().splitlines()[-1:]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=40)
    parser.add_argument("--crowd", default="8x20", help="processes x operations, as 32x50")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found: dict[str, Any] = {kind: {} for kind in (*KINDS_OF_ROWS, "tests")}
    images = given.points or 500
    many, turns = (int(part) for part in given.crowd.split("x"))

    def row(kind: str, name: str, figures: Callable[[], dict[str, Any]]) -> None:
        started = time.monotonic()
        made = figures()
        found[kind][name] = made | {"seconds": round(time.monotonic() - started, 1)}
        print(f"{kind:7} {name:15} {made['points']:6} points {made['bad']:4} bad", flush=True)
        for example in made["examples"]:
            print(f"        {example}", flush=True)

    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        below = Path(name)
        for verb in VERBS:
            row("kills", verb, partial(run, below, verb, KILLS, given.points))
        row("kills", "ingest", partial(ingest, below))
        for verb in VERBS:
            row("errors", verb, partial(run, below, verb, ERRORS, given.points))
        for verb in VERBS:
            row("bits", verb, partial(run, below, verb, BITS, given.points))
        flips = flips_of(below)
        for kind in FLIPPED:
            # 5,250 in all without a limit: most in what was found to hide something.
            most = FLIPS.get(kind, 250)
            row("flips", kind, partial(flip, flips, kind, min(given.points or most, most)))
        for verb in CUT:
            row("power", verb, partial(run, below, verb, images=images))
        row("crowd", given.crowd, partial(crowd, below, many, turns))
    files = "tests/crash/test_{}.py"
    for name, words in {
        f"flips, 25 in each of {len(KINDS)} kinds of file": files.format("bit_flips"),
        "gc within a commit": files.format("gc_race"),
        "processes at once": files.format("concurrency"),
        "faults put in on purpose": files.format("harness"),
        "repair from a copy": "tests/upkeep/test_repair.py",
        "repositories of all releases": "tests/test_released.py",
        "damage of every kind": "tests/upkeep/test_damage.py",
        "a full disk": files.format("full_disk"),
        "hostile files": "tests/hostile",
    }.items():
        found["tests"][name] = said = tests(words)
        print(f"tests   {name}: {'ok' if said['passed'] else said['said']}", flush=True)
    total = {kind: sum(r["points"] for r in found[kind].values()) for kind in KINDS_OF_ROWS}
    bad = sum(r["bad"] for kind in KINDS_OF_ROWS for r in found[kind].values())
    found["total"] = total | {"bad": bad}
    print(json.dumps(found["total"]))
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(bool(bad) or not all(r["passed"] for r in found["tests"].values()))


if __name__ == "__main__":
    main()
