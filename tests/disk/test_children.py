"""dlv.disk.children: no process that dlv has started outlives it, not even one that is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import dlv.disk.children as children
from dlv.training.workers.owners import start_of

HOME = str(Path(children.__file__).parents[2])
SLEEP = [sys.executable, "-c", "import time; time.sleep(120)"]
SECONDS = 20.0  # until a test gives up; what it waits for takes less than one

# Each starts children of one kind, and writes their numbers to the file it is given.
STARTS = {
    "a program": """
import subprocess, sys
from dlv.disk.children import start
process = start(["sleep", "120"])
tell(process.pid)
process.wait()
""",
    "a program that is read": """
import subprocess, sys
from dlv.disk.children import run
run(["sh", "-c", "echo $$ > " + sys.argv[1] + "; exec sleep 120"], stdout=subprocess.PIPE)
""",
    "git": """
import os, sys
from pathlib import Path
from dlv.repository.environment import run_git
folder = Path(sys.argv[1]).parent
(folder / "git").write_text("#!/bin/sh\\necho $$ > " + sys.argv[1] + "\\nexec sleep 120\\n")
(folder / "git").chmod(0o755)
os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
run_git(["status"], folder)
""",
    "the process of a network factory": """
import sys
from pathlib import Path
from dlv.adapters.aten import factory
folder = Path(sys.argv[1]).parent
(folder / "own.py").write_text(
    f"import os, time\\ndef make():\\n    open({sys.argv[1]!r}, 'w').write(str(os.getpid()))\\n"
    "    time.sleep(120)\\n"
)
factory.network_of(f"{folder / 'own.py'}:make", [], folder / "result")
""",
    "a worker": """
import sys, time
from dlv.training.workers.crew import Crew
code = (
    "import os, signal, sys, time; from functools import partial; from dlv.disk import children;"
    "children.end_with_parent(partial(os.killpg, os.getpgrp(), signal.SIGKILL), 0.5);"
    f"open({sys.argv[1]!r}, 'w').write(str(os.getpid())); time.sleep(120)"
)
Crew([sys.executable, "-c", code], 1).fill()
time.sleep(120)
""",
    "a program of the user's own, and what that has started": """
import os, subprocess, sys, time
from dlv.training.trainers import process
code = "import os, subprocess, sys; c = subprocess.Popen(['sleep', '120']);"
code += f"open({sys.argv[1]!r}, 'w').write(str(os.getpid()) + ' ' + str(c.pid)); c.wait()"
subprocess.Popen([sys.executable, "-I", "-S", str(process.GUARD), sys.executable, "-c", code],
                 stdin=subprocess.PIPE, start_new_session=True)
time.sleep(120)
""",
    "what a library has started, in sessions of their own": """
import subprocess, sys, time
from dlv.disk.children import ended_with_this
with ended_with_this():
    code = "sleep 120 & echo $$ $! > " + sys.argv[1] + ".new; sleep 3; mv " + sys.argv[1]
    code += ".new " + sys.argv[1] + "; wait"
    subprocess.Popen(["sh", "-c", code], start_new_session=True)
    time.sleep(120)
""",
    "a pager": """
import io, os, sys
from dlv.terminal.output import Output
class Terminal(io.StringIO):
    encoding = "utf-8"
    def isatty(self): return True
pager = ["sh", "-c", f"echo $$ > {sys.argv[1]}; exec sleep 120"]
out = Output(Terminal(), Terminal(), {**os.environ})
out._pager_command = lambda text: pager
out.page("text")
""",
}
HEAD = "import sys\ndef tell(*n): open(sys.argv[1], 'w').write(' '.join(map(str, n)))\n"


@pytest.fixture
def numbers(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "numbers"
    yield path
    for pid in _read(path):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _read(path: Path) -> list[int]:
    with suppress(OSError, ValueError):
        return [int(word) for word in path.read_text().split()]
    return []


def until(true: Callable[[], object]) -> None:
    ends = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.02)


def ignore() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize("kind", STARTS)
def test_a_child_ends_when_its_parent_is_killed(numbers: Path, kind: str) -> None:
    """Though Ctrl-C was ignored, as nohup and shells without job control do it."""
    parent = subprocess.Popen(
        [sys.executable, "-c", HEAD + STARTS[kind], str(numbers)],
        env={**os.environ, "PYTHONPATH": HOME},
        preexec_fn=ignore,
    )
    try:
        until(lambda: parent.poll() is not None or _read(numbers))
        assert parent.poll() is None
        pids = _read(numbers)
        assert pids
        assert all(start_of(pid) for pid in pids)
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not any(start_of(pid) for pid in pids))


def test_where_the_kernel_does_not_do_it(numbers: Path) -> None:
    """As on macOS: a shell waits for the end of a pipe."""
    code = "import dlv.disk.children as children; children._prctl = None\n" + STARTS["a program"]
    parent = subprocess.Popen(
        [sys.executable, "-c", HEAD + code, str(numbers)],
        env={**os.environ, "PYTHONPATH": HOME},
        preexec_fn=ignore,
    )
    until(lambda: _read(numbers))
    parent.kill()
    parent.wait()
    until(lambda: not any(start_of(pid) for pid in _read(numbers)))


def test_a_child_that_ends_first_takes_its_watch_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_prctl", None)
    process = children.start(["true"])
    watch = process._watch
    assert watch is not None
    assert process.wait() == 0
    assert watch.poll() == 0
    done = children.run(["sh", "-c", "echo out; exit 3"], stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (3, b"out\n")


def test_what_a_library_has_started_stays_where_all_went_well(numbers: Path) -> None:
    with children.ended_with_this():
        process = subprocess.Popen(["sleep", "60"], start_new_session=True)
        time.sleep(0.5)
    assert process.poll() is None
    process.kill()
    process.wait()


def test_a_program_that_takes_too_long_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        children.run(SLEEP, timeout=0.2)


def test_a_factory_may_be_interrupted_where_dlv_ignores_it(tmp_path: Path, numbers: Path) -> None:
    """Its process gets Python's own way with Ctrl-C, whatever it has inherited."""
    (tmp_path / "own.py").write_text(
        "import os, time\n"
        f"def make():\n    open({str(numbers)!r}, 'w').write(str(os.getpid()))\n"
        "    time.sleep(120)\n"
    )
    code = (
        "import sys; from pathlib import Path; from dlv.adapters.aten import factory\n"
        "try: factory.network_of(sys.argv[2] + ':make', [], Path(sys.argv[1] + '.out'))\n"
        "except KeyboardInterrupt: sys.exit(130)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(numbers), str(tmp_path / "own.py")],
        env={**os.environ, "PYTHONPATH": HOME},
        preexec_fn=ignore,
    )
    until(lambda: _read(numbers))
    os.kill(_read(numbers)[0], signal.SIGINT)
    assert parent.wait(SECONDS) == 130


# These tie what they start by means of their own; all others go through `children`.
OWN_WAYS = {
    *("disk/children.py", "disk/warden.py", "training/workers/crew.py"),
    *("training/trainers/guard.py", "training/trainers/process.py"),
}


def test_no_other_module_starts_a_process() -> None:
    calls = re.compile(r"subprocess\.(run|Popen|call|check_\w+)\(|os\.(fork|spawn\w+|popen)\(")
    folder = Path(children.__file__).parents[1]
    found = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if calls.search(path.read_text(encoding="utf-8"))
    }
    assert found == OWN_WAYS
