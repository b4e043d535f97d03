"""A program of the user's own as a trainer: started in a folder of its own, watched, stopped.

It finds there `trial.json`, `start.npz` and `checkpoint/`, and reports by lines in `log.jsonl` or
by event files in `events/`. The folder belongs to one slice, so that a program whose worker has
lost the trial is in nobody's way.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

import dlv.disk.durable as durable
import dlv.training.checkpoints as checkpoints
from dlv.canonical import NON_FINITE, hash_bytes
from dlv.dataclass import dataclass
from dlv.errors import DlvError, NotFound, UsageError
from dlv.processors import VARIABLES
from dlv.training.checkpoints import Checkpoint, file_digest
from dlv.training.trainers.interface import FILES, Event, Log, Readers, TrainFunction
from dlv.training.trial_files import START, TRIAL, Trial

MOST_LINE = 1 << 20
_READ = 1 << 20
_STEP = re.compile(r"([0-9]{1,15})(?:\.[A-Za-z0-9.]*)?\Z")


@dataclass(frozen=True)
class Report:
    """`checkpoint`: a file or folder, relative to where the program runs; complete by now."""

    step: int
    metrics: Mapping[str, Any]
    checkpoint: str | None = None


class Lines:
    """The lines of a file that grows: each once, and only when it has ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._rest = b""
        self._number = 0

    def reports(self, *, ended: bool = False) -> Iterator[Report]:  # noqa: ARG002
        """What was written since the last call."""
        for line in self._lines():
            self._number += 1
            if line.strip():
                yield self._report(line)

    def _lines(self) -> Iterator[bytes]:
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            if self._path.stat().st_size < self._at:
                raise UsageError(
                    f"{self._path.name} became shorter", why="lines are appended to it"
                )
            file.seek(self._at)
            while piece := file.read(_READ):
                self._at += len(piece)
                *whole, self._rest = (self._rest + piece).split(b"\n")
                yield from whole
                if len(self._rest) > MOST_LINE:
                    raise UsageError(
                        f"{self._path.name}, line {self._number + 1}, is too long",
                        why=f"the limit is {MOST_LINE} bytes",
                    )

    def _report(self, line: bytes) -> Report:
        where = f"{self._path.name}, line {self._number}"
        try:
            said = json.loads(line)
        except (ValueError, RecursionError) as error:
            shown = line[:80].decode("utf-8", "replace")
            raise UsageError(f"{where}, is not JSON: {shown}", why=str(error)[:200]) from error
        if not isinstance(said, dict) or not isinstance(said.get("metrics"), dict):
            raise UsageError(
                f"{where}, is not a report",
                why="it has no table `metrics`",
                hint='{"step": 20, "metrics": {"loss": 0.5}, "checkpoint": "checkpoint/20.npz"}',
            )
        step, checkpoint = said.get("step"), said.get("checkpoint")
        if isinstance(step, bool) or not isinstance(step, int):
            raise UsageError(f"{where}, has the step {step!r}"[:200], why="a whole number is meant")
        if checkpoint is not None and not isinstance(checkpoint, str):
            raise UsageError(f"{where}, has a checkpoint that is not a path")
        metrics = {
            name: NON_FINITE.get(value, value) if isinstance(value, str) else value
            for name, value in said["metrics"].items()
        }
        return Report(step, metrics, checkpoint)


@dataclass
class Events:
    """Metrics out of event files, at the steps at which a trial logs; a step is complete when
    there are points behind it. Checkpoints are what lies in `checkpoint/`, by their numbers."""

    points: Callable[[], Iterator[Event]]
    folder: Path
    every: int
    begun: int
    steps: int
    _values: dict[int, dict[str, float]] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)
    _done: int = -1

    def reports(self, *, ended: bool = False) -> Iterator[Report]:
        """What is complete by now; `ended`: all of it is, as the program has reached the step."""
        for step, name, value in self.points():
            self._values.setdefault(step, {})[name] = value
        newest = max(self._values, default=-1)
        self._done = max(self._done, self.begun)
        while self._done < self.steps:
            due = min((self._done // self.every + 1) * self.every, self.steps)
            if newest <= due and not ended:
                return
            for step in sorted(step for step in self._values if step <= due):
                self._last.update(self._values.pop(step))
            self._done = due
            if self._last:
                yield Report(due, dict(self._last), self._checkpoint(due))

    def _checkpoint(self, step: int) -> str | None:
        """The entry of `checkpoint/` whose name ends with this number."""
        if not self.folder.is_dir():
            return None
        for path in sorted(self.folder.iterdir()):
            found = _STEP.search(path.name)
            if found and int(found[1]) == step:
                return f"{self.folder.name}/{path.name}"
        return None


GUARD = Path(__file__).parent / "guard.py"
OUTPUT = "output.txt"
STOP = "stop"
# Seconds: how long a program may take to stop when it is asked, and when it is told.
ASKED, TOLD = 30.0, 10.0
_PAUSES = (0.01, 0.2)  # between looks at the log: first, longest
_TAIL = 2000  # characters of the output that go with an error
_RUN = re.compile(r"run-([0-9]+)\Z")
_SCRIPTS = (".py", ".sh", ".jl", ".R", ".js")


class ProgramFailed(DlvError):
    """The user's program ended otherwise than it should; `why` is what it printed last."""

    exit_code = 4
    kind = "trainer"


def trainer(words: Sequence[str], readers: Readers, directory: Path) -> TrainFunction:
    """What runs the program for a slice."""
    line = command(words, directory)

    def train(trial: Trial, steps: int, checkpoint: Checkpoint, log: Log) -> None:
        if checkpoint.step < steps:
            Program(line, readers, trial, steps, checkpoint).run(log)

    return train


def check(words: Sequence[str], directory: Path) -> None:
    """NotFound unless the program is there, and the script that it is given."""
    command(words, directory)
    for word in words[1:]:
        if word.startswith("-"):
            return
        if word.endswith(_SCRIPTS):
            if not (directory / word).is_file():
                raise NotFound(
                    f"no such file: {word}, which config.trainer names",
                    why=f"looked for in {directory.absolute()}",
                )
            return


def version(words: Sequence[str], directory: Path) -> str:
    """The hash of the files that the command names."""
    digests = [file_digest(directory / word) for word in words[1:] if (directory / word).is_file()]
    return hash_bytes(*(digest.encode() for digest in digests))


def command(words: Sequence[str], directory: Path) -> list[str]:
    """The words with absolute paths, as the program is not started where they were written."""
    program = words[0]
    found = shutil.which(str((directory / program).absolute()) if os.sep in program else program)
    if found is None and re.fullmatch(r"python[0-9.]*", program):
        found = sys.executable
    if found is None:
        raise NotFound(
            f"no program {program}, which config.trainer names",
            why="it is neither a path nor on PATH",
        )
    rest = [str((directory / w).absolute()) if (directory / w).is_file() else w for w in words[1:]]
    return [found, *rest]


class Program:
    """One run of it, from a checkpoint to a step."""

    def __init__(
        self, words: Sequence[str], readers: Readers, trial: Trial, steps: int, begun: Checkpoint
    ) -> None:
        self._words = words
        self._trial = trial
        self._steps = steps
        self._begun = begun
        self.folder = trial.folder / f"run-{trial.token}"
        self._kept: list[str] = list(begun.files)
        self._reports: Lines | Events = Lines(self.folder / "log.jsonl")
        self._events = readers.events

    def run(self, log: Log) -> None:
        """Returns when the program has reached the step, or was stopped as `log` wanted."""
        self._prepare()
        with (self._trial.folder / OUTPUT).open("ab") as output:
            started = output.tell()
            program = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARD), *self._words],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # what kills this process must not kill the guard
            )
        assert program.stdin is not None
        try:
            stopped = self._watch(program, log)
        finally:
            program.stdin.close()  # kills it, if it still runs
            program.wait()
            (self.folder / START).unlink(missing_ok=True)
        if not stopped:
            self._look_at(program.returncode, started)

    def _watch(self, program: subprocess.Popen[bytes], log: Log) -> bool:
        """Hand on what it reports until it ends; True: it was stopped before."""
        pause, reached = _PAUSES[0], self._begun.step
        while True:
            code = program.poll()
            seen = False
            for report in self._source().reports(ended=code == 0):
                seen = True
                if report.step <= self._begun.step:
                    continue  # it tells once more where it began
                stop = log(report.step, report.metrics, self._state(report))
                reached = report.step
                if stop:
                    self._stop(program)
                    return True
            if code is not None:
                if code == 0 and reached < self._steps:
                    raise ProgramFailed(
                        f"the program ended at step {reached} of {self._steps}",
                        why="it ended with 0, but its last line in log.jsonl is of that step",
                        hint='one line for each log: {"step": 20, "metrics": {"loss": 0.5}}',
                    )
                return False
            if log_waits(log):
                self._stop(program)
                return True
            pause = _PAUSES[0] if seen else min(pause * 1.5, _PAUSES[1])
            time.sleep(pause)

    def _source(self) -> Lines | Events:
        """Event files count once there are any, and no line was written."""
        events = self.folder / "events"
        lines = isinstance(self._reports, Lines) and not (self.folder / "log.jsonl").exists()
        if lines and self._events is not None and events.is_dir() and any(events.iterdir()):
            self._reports = Events(
                self._events(events),
                self.folder / "checkpoint",
                self._trial.config.log_every,
                self._begun.step,
                self._steps,
            )
        return self._reports

    def _stop(self, program: subprocess.Popen[bytes]) -> None:
        """Ask by a file, then tell by a signal, then kill."""
        (self.folder / STOP).touch()
        with suppress(subprocess.TimeoutExpired):
            program.wait(ASKED)
            return
        program.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            program.wait(TOLD)

    def _prepare(self) -> None:
        """The folder with what the program reads; those of former slices go."""
        needed = {name.partition("/")[0] for name in self._begun.files}
        for path in self._trial.folder.iterdir():
            if _RUN.match(path.name) and path.name not in needed:
                shutil.rmtree(path, ignore_errors=True)
        place = self.folder / "checkpoint"
        shutil.rmtree(self.folder, ignore_errors=True)
        place.mkdir(parents=True)
        (self.folder / "events").mkdir()
        # Copies: what the program does to them must not change what the trial begins with.
        shutil.copyfile(self._trial.folder / START, self.folder / START)
        resumed = None
        for name in self._begun.files:
            resumed = f"checkpoint/{Path(name).name}"
            _copy(self._trial.folder / name, self.folder / resumed)
        (self.folder / TRIAL).write_text(json.dumps(self._document(resumed), indent=1) + "\n")

    def _document(self, resumed: str | None) -> dict[str, Any]:
        trial, config = self._trial, self._trial.config
        where = config.input_data
        return {
            "id": trial.id,
            "network": trial.network.canonical(),
            "tensors": [
                {"name": t.name, "array": t.array, "dtype": t.dtype, "shape": list(t.shape)}
                for t in trial.tensors.values()
            ],
            "config": config.document(),
            "seed": config.seed,
            "log_every": config.log_every,
            "step": self._begun.step,
            "steps": self._steps,
            "checkpoint": resumed,
            "input_data": None if where is None else self._data(where),
            "directory": str(trial.directory.absolute()),
        }

    def _data(self, where: str) -> str:
        path = self._trial.path_of(where)
        code = path.startswith("python:")
        return path if code else str((self._trial.directory / path).absolute())

    def _environment(self) -> dict[str, str]:
        config = self._trial.config
        threads = dict.fromkeys(VARIABLES, str(config["threads"]))
        said: Mapping[str, str] = config.get("env", {})
        return {**os.environ, **threads, **said, "DLV_TRIAL": str(self.folder.absolute())}

    def _state(self, report: Report) -> dict[str, Any] | None:
        if report.checkpoint is None:
            return None
        found = files_of(report, self.folder)
        for name in found:
            self._keep(name)
        return {FILES: found}

    def _keep(self, name: str) -> None:
        """Of the program's own files, those of the last checkpoints."""
        self._kept = [each for each in self._kept if each != name] + [name]
        while len(self._kept) > checkpoints.KEPT + 1:
            path = self._trial.folder / self._kept.pop(0)
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _look_at(self, code: int, started: int) -> None:
        if code == 0:
            return
        with (self._trial.folder / OUTPUT).open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(started, file.tell() - 4 * _TAIL))
            printed = file.read().decode("utf-8", "replace").strip()[-_TAIL:]
        signalled = code - 128 if code > 128 else 0
        said = f"ended with {code}"
        if signalled in set(signal.Signals):
            said = f"was ended by {signal.Signals(signalled).name}"
        raise ProgramFailed(f"the program {said}", why=printed or "no output")


def files_of(report: Report, folder: Path) -> dict[str, str]:
    """The checkpoint of a report as files of the trial: durable, with their hashes.

    `folder` is where the program runs; names are relative to the one above, which is the trial's.
    """
    said = report.checkpoint or "."
    path = folder / said
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(folder)) or real == Path(os.path.realpath(folder)):
        raise UsageError(
            f"the checkpoint {said} is outside the trial's folder", why="write it to checkpoint/"
        )
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise OSError("it is neither a file nor a folder")
        for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if each.is_file():
                durable.sync_path(each)
        durable.fsync_directory(path.parent)
        return {path.relative_to(folder.parent).as_posix(): file_digest(path)}
    except (OSError, DlvError) as error:
        raise UsageError(
            f"the checkpoint {said} of step {report.step} cannot be read",
            why=str(error),
            hint="write it whole, then the line of log.jsonl that names it",
        ) from error


def log_waits(log: Log) -> bool:
    """Whether the trial is to stop though nothing was reported."""
    idle = getattr(log, "idle", None)
    return bool(idle is not None and idle())


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)
