"""Logs into `live.db`: what is new in a folder of logs is read, the rest is looked at only.

A run is a folder; its event files follow one another in the order of their names. In a folder
without event files the text logs count, each as a run. Points and how far a file was read are
written in one transaction: a kill neither loses a point nor doubles one.

Event files become part of a version in two ways: a folder that is followed, or files staged.
"""

from __future__ import annotations

import os
import posixpath
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from contextlib import nullcontext
from dataclasses import field
from pathlib import Path

import dlv.curves.text_logs as text_logs
import dlv.events.logs.batches as batches
from dlv.canonical import hash_bytes
from dlv.curves.frozen import Add, freeze
from dlv.curves.restart_views import advice
from dlv.curves.store import LIVE, CurveStore
from dlv.curves.writer import Batch, RunWriter, keep_preview
from dlv.dataclass import dataclass
from dlv.errors import Conflict, DlvError, NotFound, UsageError
from dlv.events.logs.points import Fault
from dlv.events.logs.templates import Templates
from dlv.events.provider.downsample import SAMPLE
from dlv.events.provider.store import SeriesRow
from dlv.metadata import curve_writing, curves
from dlv.metadata.curve_writing import FileRow
from dlv.metadata.metrics import Summary

HEAD = 4096  # bytes by which a file is known again
BATCH = 24 << 20  # bytes of points that are held before they are written
MOST_TEMPLATES = 1 << 13  # shared by runs; more of them would slow down every run
TRANSACTION = 2 << 20  # bytes of short logs that one transaction reads
EVENTS, TEXT = "events", "text"
_UNFINISHED = -1  # the size of a file of which more is on its way

Look = tuple[int, int, int]  # size, mtime, inode
WHAT = "event files, which have `tfevents` in their names, or CSV and JSON lines with a step"
_Reading = batches.Reading | text_logs.Reading


@dataclass
class Scanned:
    """What a look at a folder has brought; `remarks` are (file, what is wrong with it)."""

    experiment: str
    runs: list[str] = field(default_factory=list)
    files: int = 0
    read: int = 0  # files that had something new
    bytes: int = 0
    points: int = 0
    remarks: list[tuple[str, str]] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)  # CSV and JSON lines that tell no steps


def scan(
    store: CurveStore,
    directory: Path,
    *,
    experiment: str | None = None,
    strangers: MutableMapping[Path, Look] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Scanned:
    """Read what is new below `directory`; the experiment is called like it unless it is given.

    `strangers`: for whoever looks again and again, files that are no logs, as they were.
    """
    name = text_of(directory.resolve()) if experiment is None else experiment
    found, texts = _walk(directory)
    strangers = {} if strangers is None else strangers
    known = set(curves.files(store.database, name, TEXT))
    strange = _add_texts(found, texts, known, strangers)
    done = read_files(store, name, dict(sorted(found.items())), progress=progress)
    done.strange = strange
    return done


def _add_texts(
    runs: dict[str, list[Path]],
    texts: Mapping[str, list[Path]],
    known: Collection[str],
    strangers: MutableMapping[Path, Look],
) -> list[str]:
    """Text logs as runs of their own; the other ones."""
    strange = []
    for folder, paths in texts.items():
        for path in paths:
            if text_of(path) not in known:
                try:
                    status = os.stat(path)
                except OSError:  # it was there a moment ago
                    continue
                look = (status.st_size, status.st_mtime_ns, status.st_ino)
                if strangers.get(path) == look or not text_logs.tells_steps(path):
                    strangers[path] = look
                    strange.append(text_of(path))
                    continue
            names = text_logs.run_names(folder, path.name)
            runs[next(name for name in names if name not in runs)] = [path]
    return strange


def read_files(
    store: CurveStore,
    experiment: str,
    runs: Mapping[str, list[Path]],
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> Scanned:
    """The runs of an experiment as they are now: run -> its event files in order."""
    done = Scanned(experiment, runs=list(runs))
    with store.alone():
        db = store.database
        with db.atomic():
            key = curve_writing.experiment(db, experiment)
        known = curve_writing.files(db, key)
        for name in known.keys() - runs.keys():
            with db.atomic():
                curve_writing.withdraw(db, curve_writing.run(db, key, name))
        _forget_folders(store)
        templates = Templates()
        changed_runs = []
        for name, paths in runs.items():
            run = _Run(store, key, name, done, progress, known.get(name, {}))
            if run.has_news(paths):
                changed_runs.append(run)
        for runs_together in _by_transaction(changed_runs):
            # A transaction takes as long as a short log. A long log has several of its own.
            with db.atomic() if len(runs_together) > 1 else nullcontext():
                for run in runs_together:
                    if len(templates.all) > MOST_TEMPLATES:
                        templates = Templates()
                    run.catch_up(templates)
    return done


def _by_transaction(runs: Iterable[_Run]) -> Iterator[list[_Run]]:
    """Group short runs so that one transaction reads each group; a long run is alone."""
    group: list[_Run] = []
    size = 0
    for run in runs:
        if group and size + run.size > TRANSACTION:
            yield group
            group, size = [], 0
        group.append(run)
        size += run.size
    if group:
        yield group


def _forget_folders(store: CurveStore) -> None:
    """Experiments whose folder is no more: nobody will look there again."""
    db = store.database
    for key, name in store.experiments():
        if os.path.isabs(name) and not os.path.lexists(name):
            with db.atomic():
                curve_writing.forget(db, key)


def find(directory: Path) -> dict[str, list[Path]]:
    """Run -> event files. The folder itself is the run `.`; links are followed, but not round."""
    return _walk(directory)[0]


def _walk(directory: Path) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """Event files by folder; text logs, by their names, of the folders that have none."""
    if not directory.is_dir():
        if directory.exists():
            raise UsageError(
                f"{directory} is not a folder", hint="name the folder that the logs are in"
            )
        raise NotFound(f"no such directory: {directory}")
    found: dict[str, list[Path]] = {}
    texts: dict[str, list[Path]] = {}
    seen: set[tuple[int, int]] = set()
    waiting = [directory]
    while waiting:
        folder = waiting.pop()
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except PermissionError:
            continue
        here, written = [], []
        for entry in entries:
            if entry.is_dir():
                waiting.append(folder / entry.name)
            elif is_event_file(entry.name) and entry.is_file():
                here.append(folder / entry.name)
            elif text_logs.is_text_log(entry.name) and entry.is_file():
                written.append(folder / entry.name)
        if here or written:
            (found if here else texts)[text_of(folder.relative_to(directory))] = here or written
    return dict(sorted(found.items())), dict(sorted(texts.items()))


def is_event_file(name: str) -> bool:
    """TensorBoard's rule."""
    return "tfevents" in os.path.basename(name)


def text_of(path: Path) -> str:
    """A path as text, whatever bytes are in it."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


class _Run:
    """One run while its files are looked at."""

    def __init__(
        self,
        store: CurveStore,
        experiment_id: int,
        name: str,
        done: Scanned,
        progress: Callable[[int], None],
        known: Mapping[str, FileRow],
    ) -> None:
        self.store = store
        self.db = store.database
        self.experiment_id = experiment_id
        self.name = name
        self.done = done
        self.progress = progress
        self.grown = False
        self.known = known  # files by path, as they were when they were last read
        self.looks: list[tuple[Path, os.stat_result]] = []
        self.files_gone = False
        self.size = 0  # of all its files, in bytes

    def has_news(self, paths: list[Path]) -> bool:
        """Look at the files of the run; return whether any of them must be read."""
        known, looks = self.known, self.looks
        for path in paths:
            self.done.files += 1
            try:
                looks.append((path, os.stat(path)))
            except OSError as error:  # it was there a moment ago
                self.done.remarks.append((text_of(path), error.strerror or "cannot be read"))
        names = {text_of(path) for path, _ in looks}
        self.files_gone = bool(known.keys() - names)
        unchanged = (_unchanged(status, known.get(text_of(path))) for path, status in looks)
        if not self.files_gone and all(unchanged):
            self._remark(known.values())
            return False
        self.size = sum(status.st_size for _, status in looks)
        return True

    def catch_up(self, templates: Templates) -> None:
        """Read what is new in the files that `has_news` looked at."""
        known, looks = self.known, self.looks
        restart = self.files_gone or any(
            _replaced(path, status, known.get(text_of(path))) for path, status in looks
        )
        before: dict[str, int] = {}
        with self.db.atomic():
            self.id = curve_writing.run(self.db, self.experiment_id, self.name)
            if restart:
                curve_writing.withdraw(self.db, self.id)
                self.id = curve_writing.run(self.db, self.experiment_id, self.name)
                known = {}
            else:
                before = {
                    tag: state.n for tag, state in curve_writing.series(self.db, self.id).items()
                }
        for path, status in looks:
            row = known.get(text_of(path))
            if row is None or not _unchanged(status, row):
                row = self._read(path, status, row, templates)
            self._remark([row])
        if self.grown:
            self._keep_previews(before)

    def _remark(self, files: Iterable[FileRow]) -> None:
        """What is damaged is said at every look, not only at that which read it."""
        self.done.remarks += [
            (row.path, row.error) for row in files if row.error and row.status != "open"
        ]

    def _read(
        self, path: Path, status: os.stat_result, row: FileRow | None, templates: Templates
    ) -> FileRow:
        """What is new in one file, batch by batch."""
        events = is_event_file(path.name)
        if row is None:
            row = FileRow(
                *(
                    text_of(path),
                    EVENTS if events else TEXT,
                    _UNFINISHED,
                    status.st_mtime_ns,
                    status.st_ino,
                ),
                *("", 0, "open"),
            )
        start = seen = row.offset
        state = curve_writing.run_state(self.db, self.id)
        found: _Reading = (
            batches.Reading(path, start, state, templates)
            if events
            else text_logs.Reading(path, start, state)
        )
        batch = Batch()
        faults: list[Fault] = []
        try:
            row.head = _head(path)
            for window in found:
                batch.add(window.items, window.metadata, window.faults)
                faults += [fault for fault in window.faults if fault.tag is None]
                self.progress(window.offset - seen)
                seen = window.offset
                if batch.bytes >= BATCH:
                    self._write(batch, row, window.offset, found)
                    batch = Batch()
            row.size, row.mtime_ns, row.inode = status.st_size, status.st_mtime_ns, status.st_ino
            row.status = found.status
            row.error = found.error
        except DlvError as error:
            if isinstance(error, Conflict):
                raise
            row.status, row.error = "damaged", error.message
        self._write(batch, row, found.offset, found)
        self.done.remarks += [(row.path, fault.message) for fault in faults]
        self.done.read += 1
        self.done.bytes += row.offset - start
        return row

    def _write(self, batch: Batch, row: FileRow, offset: int, reading: _Reading) -> None:
        with self.db.atomic():
            if (curve_writing.offset(self.db, self.id, row.path) or 0) != row.offset:
                raise Conflict(f"another process reads {row.path} at the same time")
            RunWriter(self.store, self.id).write(batch)
            curve_writing.set_run_state(self.db, self.id, reading.state, reading.wall)
            row.offset = offset
            curve_writing.put_file(self.db, self.id, row)
        self.done.points += batch.points
        self.grown = self.grown or batch.points > 0

    def _keep_previews(self, before: Mapping[str, int]) -> None:
        """Of series that have become much longer; a few points more would not pay."""
        with self.db.atomic():
            for tag, state in curve_writing.series(self.db, self.id).items():
                n = state.n
                if state.data_class == 1 and n > SAMPLE and n >= 1.1 * before.get(tag, 0):
                    keep_preview(self.store, state.id, n)


def _head(path: Path) -> str:
    """By which a file is known again: how many bytes, and their hash."""
    with open(path, "rb") as file:
        data = file.read(HEAD)
    return f"{len(data)}:{hash_bytes(data)}"


def _unchanged(status: os.stat_result, row: FileRow | None) -> bool:
    look = (status.st_size, status.st_mtime_ns, status.st_ino)
    return row is not None and (row.size, row.mtime_ns, row.inode) == look


def _replaced(path: Path, status: os.stat_result, row: FileRow | None) -> bool:
    """Whether it is another file than the one that was read, or not a longer one."""
    if row is None or _unchanged(status, row):
        return False
    if row.inode != status.st_ino or status.st_size < row.offset or status.st_size == row.size:
        return True
    length = int(row.head.split(":")[0] or 0)
    with open(path, "rb") as file:
        return f"{length}:{hash_bytes(file.read(length))}" != row.head


@dataclass
class EventLogs:
    """Curves that were read, ready to be frozen; `close` when that is done."""

    store: CurveStore
    experiment: int
    remarks: list[str] = field(default_factory=list)
    runs: Mapping[str, str] | None = None  # run -> what it is called in the version; None: all
    folder: tempfile.TemporaryDirectory[str] | None = None

    def series(self) -> list[tuple[str, SeriesRow]]:
        """(run, series); the folder itself is the run without a name."""
        found = self.store.series(self.experiment, runs=self.runs)
        names = {".": ""} if self.runs is None else self.runs
        return [(names.get(row.run, row.run), row) for row in found]

    def freeze(self, row: SeriesRow, run: str, add: Add) -> tuple[str, Summary | None]:
        return freeze(self.store, row, run, add)

    def close(self) -> None:
        self.store.close()
        if self.folder is not None:
            self.folder.cleanup()


def event_logs_of_folder(repository: Path, directory: Path) -> EventLogs:
    """All runs below a folder. What was read of it before, in `.dlv/live.db`, is not read again."""
    store = CurveStore.open(repository / LIVE)
    try:
        done = scan(store, directory)
        if not done.runs:
            raise UsageError(f"no logs below {directory}", why=f"those are {WHAT}")
    except BaseException:
        store.close()
        raise
    return EventLogs(store, _experiment(store, done.experiment), _remarks(store, done))


def event_logs_of_files(files: Mapping[str, Path]) -> EventLogs:
    """Files by their names in the version; a run is a folder, named from where they all are."""
    runs: dict[str, list[Path]] = {}
    top = posixpath.commonpath([posixpath.dirname(name) or "." for name in files]) if files else ""
    for name in sorted(files):
        runs.setdefault(posixpath.relpath(posixpath.dirname(name) or ".", top), []).append(
            files[name]
        )
    folder = tempfile.TemporaryDirectory(prefix="dlv-")
    try:
        store = CurveStore.open(Path(folder.name, LIVE))
        done = read_files(store, "", runs)
    except BaseException:
        folder.cleanup()
        raise
    return EventLogs(store, _experiment(store, ""), _remarks(store, done), folder=folder)


def _experiment(store: CurveStore, name: str) -> int:
    return next(key for key, known in store.experiments() if known == name)


def _remarks(store: CurveStore, done: Scanned) -> list[str]:
    back = advice(store, done.experiment)
    return [f"{path}: {what}" for path, what in done.remarks] + ([back] if back else [])
