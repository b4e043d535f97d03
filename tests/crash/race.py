"""A gc in the midst of another command: python -m tests.crash.race, its job on stdin.

The other command stops before its Nth durable call; gc runs in a process of its own and either
waits in vain or does its work; then the command goes on. A JSON line per schedule.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import dlv.cli as cli
import dlv.collect as collect
import dlv.durable as durable
from dlv.metadata import database
from tests.crash.bugs import BUGS
from tests.crash.driver import _child, _look, _works

GC = ("gc", "--grace", "0", "-y", "-q")
BUSY = 5


class Barrier(durable.Failpoints):
    """Lets gc run before the durable call of that number."""

    def __init__(self, at: int, ask: int, answer: int) -> None:
        self.at, self.ask, self.answer = at, ask, answer
        self.count = 0

    def hit(self, name: str) -> None:  # noqa: ARG002
        self.count += 1
        if self.count == self.at:
            os.write(self.ask, b"g")
            os.read(self.answer, 1)


def _call(root: Path, command: list[str], bugs: list[str], out: Path) -> int:
    """dlv in this process, its output in a file."""
    os.chdir(root)
    for number in (1, 2):
        os.dup2(os.open(f"{out}{number}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    collect.PATIENCE = 0.0
    for bug in bugs:
        BUGS[bug]()
    code = cli.run(command)
    sys.stdout.flush()
    return code


def _start(root: Path, command: list[str], bugs: list[str], out: Path, at: int) -> Any:
    ask, answer = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.close(ask[0])
        os.close(answer[1])
        barrier = Barrier(at, ask[1], answer[0])
        durable.failpoints = barrier
        code = _call(root, command, bugs, out)
        os.write(ask[1], b"e")
        os._exit(code)
    os.close(ask[1])
    os.close(answer[0])
    return child, ask[0], answer[1]


def schedule(job: dict[str, Any], root: Path, at: int) -> dict[str, Any]:
    """What was wrong afterwards, if gc came before the call of that number."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(job["template"], root, symlinks=True)
    out = root.parent / "out"
    before = _look(root)
    child, ask, answer = _start(root, job["command"], job["bugs"], out, at)
    gc: int | None = None
    if os.read(ask, 1) == b"g":
        other = os.fork()
        if not other:
            # The other command waits for gc to end.
            database.BUSY_SECONDS = 0.1
            defaults = database.Database.__init__.__kwdefaults__
            assert defaults is not None
            defaults["busy_seconds"] = 0.1
            os._exit(_call(root, list(GC), job["bugs"], root.parent / "gc"))
        gc = os.waitstatus_to_exitcode(os.waitpid(other, 0)[1])
        os.write(answer, b"g")
    os.close(answer)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(ask)
    printed = Path(f"{out}1").read_text()
    problems = [] if gc in (None, 0, BUSY) else [f"gc: exit {gc}: {_said(root.parent / 'gc')}"]
    # Where a fault has let gc in, a command may find that what it relied on is gone.
    allowed = (0, 5, 6) if job["bugs"] else (0,)
    problems += [] if code in allowed else [f"exit {code}: {_said(out)}"]
    problems += _child(root, lambda: after(before, printed if not code else ""))
    return {"at": at, "gc": gc, "code": code, "problems": problems}


def _said(out: Path) -> str:
    return Path(f"{out}2").read_text()[-1000:]


def after(before: dict[str, Any], printed: str) -> list[str]:
    problems = _works("fsck", "--json")
    now = _look(Path.cwd())
    live = {d for d, row in before["versions"].items() if row[2] in ("live", "recovered")}
    acknowledged = set(re.findall(r"\b[0-9a-f]{64}\b", printed))
    problems += [
        f"{digest} is gone" for digest in live | acknowledged if digest not in now["versions"]
    ]
    return problems + _works(*GC) + _works("fsck", "--json")


def main() -> None:
    job = json.load(sys.stdin)
    root = Path(job["below"]) / "work"
    for at in job["at"]:
        result = schedule(job, root, at)
        print(json.dumps(result), flush=True)
        if result["gc"] is None:
            break  # it has no call of that number


if __name__ == "__main__":
    main()
