"""A gc in the midst of another command: python -m tests.crash.race, its job on stdin.

The other command stops before its Nth durable call (0: it has not begun); gc runs in a process of
its own and waits in vain, or does its work, or stops before its own Mth durable call. Then the
command goes on, to its end or until it waits for gc, and gc after it. A JSON line per schedule.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import sys
from pathlib import Path
from typing import Any

import dlv.cli as cli
import dlv.disk.durable as durable
import dlv.disk.locks as locks
from tests.crash.bugs import BUGS
from tests.crash.driver import _child, _look, _works

GC = ("gc", "--grace", "0", "-y", "-q")
BUSY, UNSAFE = 5, 9
# Seconds: a command that has not ended by then is taken to wait for gc. If it was only slow, gc
# goes on beside it, which is a schedule too.
WAITS = 0.4


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


class Process:
    """A command of dlv that stops before its durable call of a number, 0: before anything."""

    def __init__(
        self, root: Path, command: list[str], bugs: list[str], out: Path, at: int | None
    ) -> None:
        self.out = out
        ask, answer = os.pipe(), os.pipe()
        self._child = os.fork()
        if not self._child:
            os.close(ask[0])
            os.close(answer[1])
            barrier = Barrier(-1 if at is None else at, ask[1], answer[0])
            if at == 0:
                os.write(ask[1], b"g")
                os.read(answer[0], 1)
            durable.failpoints = barrier
            code = _call(root, command, bugs, out)
            os.write(ask[1], b"e")
            os._exit(code)
        os.close(ask[1])
        os.close(answer[0])
        self._ask, self._answer = ask[0], answer[1]
        self.stopped = os.read(self._ask, 1) == b"g"

    def go(self, seconds: float | None = None) -> bool:
        """Let it go on, and wait for its end at most so long; whether that has come."""
        if self.stopped:
            self.stopped = False
            os.write(self._answer, b"g")
        return bool(select.select([self._ask], [], [], seconds)[0])

    def end(self) -> int:
        self.go()
        os.close(self._answer)
        os.close(self._ask)
        return os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])

    def said(self) -> str:
        return Path(f"{self.out}2").read_text()[-1000:]


def _call(root: Path, command: list[str], bugs: list[str], out: Path) -> int:
    """dlv in this process, its output in a file."""
    os.chdir(root)
    for number in (1, 2):
        os.dup2(os.open(f"{out}{number}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    if command[0] == "gc":
        locks.SECONDS = 0.1  # the other command waits for gc to end
    for bug in bugs:
        BUGS[bug]()
    code = cli.run(command)
    sys.stdout.flush()
    return code


def schedule(job: dict[str, Any], root: Path, at: int, gc_at: int | None) -> dict[str, Any]:
    """What was wrong afterwards; `gc` is None if the command has no call of that number."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(job["template"], root, symlinks=True)
    before = _look(root)
    bugs = job["bugs"]
    command = Process(root, job["command"], bugs, root.parent / "out", at)
    gc: int | None = None
    problems: list[str] = []
    within = False
    if command.stopped:
        collector = Process(root, list(GC), bugs, root.parent / "gc", gc_at)
        within = collector.stopped
        command.go(WAITS if within else 0.0)
        gc = collector.end()
        if gc not in (0, BUSY):
            problems.append(f"gc: exit {gc}: {collector.said()}")
    code = command.end()
    # Where a fault has let gc in, a command may find that what it relied on is gone. Where gc
    # is done, it is the last operation, which is not to be undone.
    allowed = {0, 5, 6} if bugs else {0}
    if gc == 0 and job["command"] == ["undo"]:
        allowed = {0, UNSAFE}
    if code not in allowed:
        problems.append(f"exit {code}: {command.said()}")
    printed = "" if code else Path(f"{command.out}1").read_text()
    problems += _child(root, lambda: after(before, printed))
    made = {"at": at, "gc_at": gc_at, "within": within}
    return made | {"gc": gc, "code": code, "problems": problems}


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
        for gc_at in job["gc_at"]:
            result = schedule(job, root, at, gc_at)
            print(json.dumps(result), flush=True)
            if gc_at is not None and not result["within"]:
                break  # gc gave up, or has no call of that number
        if result["gc"] is None:
            break  # the command has no call of that number


if __name__ == "__main__":
    main()
