"""MLflow's stores, read without MLflow: what is in them, and the one of files, `mlruns/`.

Links in a folder are never followed: what a store names lies in it, or is left out.
"""

from __future__ import annotations

import math
import os
import re
import stat
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from dlv.adapters import settings as settings_files
from dlv.adapters.source import Source
from dlv.dataclass import dataclass
from dlv.errors import Damaged, DlvError, NotFound, UnsafeInput, UsageError

MOST_POINTS = 4_000_000  # of one run
MOST_ENTRIES = 100_000  # parameters, tags, metrics of one run; runs of one experiment
MOST_TEXT = 1 << 20
MOST_TEXTS = 64 << 20  # of one kind, of one run

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_FLOAT = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:e[+-]?[0-9]{1,4})?")
_WORDS = {"True": True, "False": False, "None": None}
_FOREIGN = re.compile(r"[^A-Za-z0-9._+-]+")


@dataclass(frozen=True)
class Experiment:
    id: str
    name: str
    location: str | None  # where the artifacts of its runs were put


@dataclass(frozen=True)
class LoggedModel:
    """A model of MLflow 3: its files lie beside the runs, not in one of them."""

    id: str
    name: str
    step: int | None
    location: str | None
    params: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Registered:
    """A version in the model registry."""

    name: str
    version: int
    aliases: tuple[str, ...] = ()
    status: str = ""
    stage: str = ""
    tags: dict[str, str] = field(default_factory=dict)  # of the model, then of the version


@dataclass(frozen=True)
class DatasetInput:
    """What a run says of data that it read; the data lie elsewhere."""

    name: str
    digest: str
    source_type: str
    source: str
    context: str


@dataclass
class Run:
    id: str
    name: str
    experiment: Experiment
    status: str
    start: int | None  # milliseconds
    end: int | None
    user: str
    artifacts: str | None  # where they were put
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    models: list[LoggedModel] = field(default_factory=list)
    registered: list[Registered] = field(default_factory=list)
    datasets: list[DatasetInput] = field(default_factory=list)

    @property
    def parent(self) -> str | None:
        return self.tags.get("mlflow.parentRunId")


@dataclass
class Points:
    """A metric in the order in which it was written: parallel columns, times in seconds."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    walls: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, step: int, milliseconds: int, value: float) -> None:
        """Append a point; ValueError for a wrong time, OverflowError for a step over 64 bits."""
        if not -(2**53) < milliseconds < 2**53:
            raise ValueError("the time is out of range")
        self.steps.append(step)
        self.walls.append(milliseconds / 1000)
        self.values.append(value)


class Store(ABC):
    """Reads one store. What cannot be read, or is deleted, is named in `skipped`."""

    def __init__(self, *bases: Path) -> None:
        self.bases = list(bases)  # artifacts may lie below these folders
        self.skipped: list[tuple[str, str]] = []
        self.notes: list[str] = []

    @abstractmethod
    def experiments(self) -> list[Experiment]:
        """Return the experiments that are not deleted."""

    @abstractmethod
    def runs(self, experiment: Experiment) -> Iterator[Run]:
        """Yield the runs that are not deleted, without their metrics."""

    @abstractmethod
    def metrics(self, run: Run) -> dict[str, Points]:
        """Return the metrics of a run by name."""

    @cached_property
    def registered(self) -> dict[str, list[Registered]]:
        """Versions in the model registry, by the run that they are from."""
        versions = self._registered()
        for own in versions.values():
            own.sort(key=lambda known: (known.name, known.version))
        return versions

    @abstractmethod
    def _registered(self) -> dict[str, list[Registered]]: ...

    def _skip_orphans(self, models: dict[str, list[LoggedModel]]) -> None:
        self.skipped += [
            (model.id, "the run that logged this model is not in the store")
            for waiting in models.values()
            for model in waiting
        ]

    def close(self) -> None:  # noqa: B027 (a folder needs no closing)
        """Close what the store holds open."""


def typed(text: str) -> str | int | float | bool | None:
    """A parameter as the value that Python would print so; every other text stays text."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        number = int(text)
        return number if str(number) == text and -(2**63) <= number < 2**64 else text
    if _FLOAT.fullmatch(text):
        real = float(text)
        return real if repr(real) == text else text
    return text


def version_name(text: str) -> str:
    """The nearest text that can be the name of a version; empty if nothing is left."""
    plain = _FOREIGN.sub("-", text).lstrip("._+-").rstrip("-")[:100]
    return f"{plain}-model" if plain in ("HEAD", "latest") else plain


def locate(bases: Sequence[Path], uri: str, owner: str) -> Path:
    """The folder with the artifacts of the run or model `owner`; NotFound if there is none.

    A store that was moved still names its old place: what lies below the store in the same way
    counts first. A store says what it likes: `bases` are the folders that may be read.
    """
    parts = _local_parts(uri)
    if ".." in parts or owner not in parts:
        raise UsageError("their place is not that of a run", why=uri[:200])
    last = len(parts) - 1 - parts[::-1].index(owner)
    for base in bases:
        for start in range(last + 1):
            found = Path(base, *parts[start:])
            if found.is_dir():
                if not _inside(found, base):
                    raise UsageError("a link leads out of the store", why=uri[:200])
                return found
    path = Path(os.sep, *parts)
    if not path.is_dir():
        raise NotFound("they are not there", why=uri[:200])
    if not any(_inside(path, base) for base in bases):
        raise UsageError(
            "they are outside the store, and --artifacts DIR names no folder that they are in",
            why=uri[:200],
        )
    return path


def _local_parts(uri: str) -> list[str]:
    try:
        split = urlsplit(uri)
    except ValueError as error:
        raise UsageError("their place is not an address", why=uri[:200]) from error
    # A single letter is a drive of Windows.
    if len(split.scheme) > 1 and split.scheme not in ("file", "mlflow-artifacts"):
        raise UsageError(f"they are at {split.scheme}://{split.netloc}, which dlv does not fetch")
    path = unquote(split.path) if len(split.scheme) > 1 else uri
    if "\0" in path:
        raise UsageError("their place is not an address", why=repr(uri[:200]))
    return [part for part in re.split(r"[/\\]", path) if part not in ("", ".")]


def _inside(path: Path, base: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(base))


META = "meta.yaml"
MOST_DEPTH = 32
MOST_LINE = 4096
_BLOCK = 1 << 20
_OTHER_FOLDERS = ("tags", "datasets", "traces", "models", "issues", "assessments")
_OF_AN_EXPERIMENT = ("artifact_location", "experiment_id", "lifecycle_stage")
_STATUS = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
_DATASET = ("name", "digest", "source_type", "source")
CONTEXT = "mlflow.data.context"  # the tag of an input that says what the data were for
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_VERSION = re.compile(r"version-([0-9]{1,9})")


def is_store(folder: Path) -> bool:
    """Whether a folder holds experiments as MLflow lays them out."""
    return any(_is_experiment(below) for below in _folders(folder))


def _is_experiment(folder: Path) -> bool:
    """Runs and models have a meta.yaml, too, but with other keys."""
    if not _is_file(folder / META):
        return False
    with Source(str(folder / META)) as file:
        text = bytes(file.read(0, min(file.size, MOST_TEXT)))
    return all(f"\n{key}:".encode() in b"\n" + text for key in _OF_AN_EXPERIMENT)


class FileStore(Store):
    """One `mlruns` folder."""

    def __init__(self, folder: Path) -> None:
        # A tracking server puts the artifacts beside what it knows of the runs.
        super().__init__(folder, folder.parent / "mlartifacts")
        self.folder = folder

    def experiments(self) -> list[Experiment]:
        found = []
        for below in _folders(self.folder):
            if below.name in ("models", ".trash") or not _is_experiment(below):
                continue
            meta = _meta(below)
            if meta.get("lifecycle_stage", "active") != "active":
                continue
            location = _text(meta, "artifact_location", "") or None
            found.append(Experiment(below.name, _text(meta, "name", below.name), location))
        return found

    def runs(self, experiment: Experiment) -> Iterator[Run]:
        models = self._models(experiment)
        for folder in _folders(self.folder / experiment.id):
            if folder.name in _OTHER_FOLDERS or not _is_file(folder / META):
                continue
            try:
                run = self._run(folder, experiment, models)
            except UsageError:
                raise  # PyYAML is not there
            except DlvError as error:
                self.skipped.append((folder.name, _reason(error)))
                continue
            if run is not None:
                yield run
        self._skip_orphans(models)

    def _run(
        self, folder: Path, experiment: Experiment, models: dict[str, list[LoggedModel]]
    ) -> Run | None:
        meta = _meta(folder)
        if not ID.fullmatch(folder.name):
            raise UnsafeInput("this is not the id of a run", why=folder.name[:100])
        own = models.pop(folder.name, [])
        if meta.get("lifecycle_stage", "active") != "active":
            self.skipped.append((folder.name, "it is deleted in MLflow"))
            return None
        status = meta.get("status")
        tags = self._texts(folder / "tags")
        steps = _steps(folder / "outputs")
        run = Run(
            id=folder.name,
            name=tags.get("mlflow.runName") or _text(meta, "run_name", ""),
            experiment=experiment,
            status=_STATUS.get(status, "") if isinstance(status, int) else str(status or ""),
            start=_whole(meta, "start_time"),
            end=_whole(meta, "end_time"),
            user=tags.get("mlflow.user") or _text(meta, "user_id", ""),
            artifacts=_text(meta, "artifact_uri", "") or None,
            params=self._texts(folder / "params"),
            tags=tags,
            registered=self.registered.get(folder.name, []),
            datasets=self._datasets(folder / "inputs", experiment),
        )
        run.models = [
            LoggedModel(model.id, model.name, steps.get(model.id), model.location, model.params)
            for model in own
        ]
        return run

    def _datasets(self, inputs: Path, experiment: Experiment) -> list[DatasetInput]:
        """The data that a run has as inputs, in the order of their names."""
        found = []
        for below in _folders(inputs):
            if not _is_file(below / META):
                continue
            try:
                known = _meta(below)
                key = _text(known, "source_id", "")
                if known.get("source_type") != "DATASET" or not ID.fullmatch(key):
                    continue
                meta, tags = (
                    _meta(self.folder / experiment.id / "datasets" / key),
                    known.get("tags"),
                )
                name, digest, kind, source = (_text(meta, key, "") for key in _DATASET)
            except UsageError:
                raise  # PyYAML is not there
            except DlvError as error:
                self.notes.append(
                    f"a data set of run {inputs.parent.name} is lost: {_reason(error)}"
                )
                continue
            context = tags.get(CONTEXT, "") if isinstance(tags, dict) else ""
            found.append(DatasetInput(name, digest, kind, source, str(context)))
        return sorted(found, key=by_name)

    def _texts(self, folder: Path) -> dict[str, str]:
        """Files by their path below the folder, which is how MLflow keeps keys with slashes."""
        found, size = {}, 0
        for key, path in _files(folder):
            data = bytes(_read(path, MOST_TEXT))
            size += len(data)
            if size > MOST_TEXTS:
                raise UnsafeInput(
                    f"{folder.name} of run {folder.parent.name} is too large",
                    why=f"more than {MOST_TEXTS >> 20} MiB",
                )
            found[key] = data.decode("utf-8", "replace").removesuffix("\n")
        return found

    def metrics(self, run: Run) -> dict[str, Points]:
        found: dict[str, Points] = {}
        left = MOST_POINTS
        for key, path in _files(self.folder / run.experiment.id / run.id / "metrics"):
            with Source(str(path)) as file:
                points = _points(file, f"metrics/{key}", left, self.notes)
            left -= len(points.values)
            if points.values:
                found[key] = points
        return found

    def _models(self, experiment: Experiment) -> dict[str, list[LoggedModel]]:
        """Models of MLflow 3 by the run that logged them, oldest first."""
        found: dict[str, list[tuple[int, LoggedModel]]] = {}
        for folder in _folders(self.folder / experiment.id / "models"):
            if not _is_file(folder / META) or not ID.fullmatch(folder.name):
                continue
            try:
                meta = _meta(folder)
                model = LoggedModel(
                    id=folder.name,
                    name=_text(meta, "name", folder.name),
                    step=None,
                    location=_text(meta, "artifact_location", "") or None,
                    params=self._texts(folder / "params"),
                )
            except DlvError as error:
                self.skipped.append((folder.name, _reason(error)))
                continue
            if meta.get("lifecycle_stage", "active") != "active":
                self.skipped.append((folder.name, "this model is deleted in MLflow"))
                continue
            made = _whole(meta, "creation_timestamp") or 0
            found.setdefault(_text(meta, "source_run_id", ""), []).append((made, model))
        return {
            run: [model for _, model in sorted(made, key=lambda item: (item[0], item[1].id))]
            for run, made in found.items()
        }

    def _registered(self) -> dict[str, list[Registered]]:
        versions: dict[str, list[Registered]] = {}
        for folder in _folders(self.folder / "models"):
            if not _is_file(folder / META):
                continue
            try:
                name = _text(_meta(folder), "name", folder.name)
                aliases, of_model = self._texts(folder / "aliases"), self._texts(folder / "tags")
                for below in _folders(folder):
                    number = _VERSION.fullmatch(below.name)
                    if number is None or not _is_file(below / META):
                        continue
                    meta = _meta(below)
                    named = tuple(sorted(a for a, text in aliases.items() if text == number[1]))
                    made = Registered(
                        *(name, int(number[1]), named),
                        status=_text(meta, "status", ""),
                        stage=stage_of(_text(meta, "current_stage", "")),
                        tags=of_model | self._texts(below / "tags"),
                    )
                    versions.setdefault(_text(meta, "run_id", ""), []).append(made)
            except DlvError as error:
                self.notes.append(f"the registered model {folder.name}: {_reason(error)}")
        return versions


def _reason(error: DlvError) -> str:
    return f"{error.message}: {error.why}" if error.why else error.message


def by_name(data: DatasetInput) -> tuple[str, str, str]:
    return data.name, data.context, data.digest


def stage_of(text: str) -> str:
    """The stage of a registered version; MLflow calls it `None` where there is none."""
    return "" if text == "None" else text


def _steps(folder: Path) -> dict[str, int]:
    """The step at which each model was logged."""
    found = {}
    for below in _folders(folder):
        if _is_file(below / META):
            step = _whole(_meta(below), "step")
            if step is not None:
                found[below.name] = step
    return found


def _points(file: Source, label: str, most: int, notes: list[str]) -> Points:
    """`timestamp value step`, one point a line; old stores have no step, new ones a data set."""
    points = Points()
    waiting = b""
    number = 0
    for offset in range(0, file.size, _BLOCK):
        waiting += file.read(offset, min(_BLOCK, file.size - offset))
        *lines, waiting = waiting.split(b"\n")
        if len(waiting) > MOST_LINE or any(len(line) > MOST_LINE for line in lines):
            raise UnsafeInput(f"{label}, after line {number}, has a line that is too long")
        for line in lines:
            number += 1
            _point(points, line, f"{label}, line {number},")
        if len(points.values) > most:
            raise UnsafeInput(f"the run has more than {MOST_POINTS} points", why=f"in {label}")
    if waiting.strip():
        notes.append(f"{label}: the last line is cut and skipped")
    return points


def _point(points: Points, line: bytes, where: str) -> None:
    cells = line.split()
    if not cells:
        return
    try:
        if len(cells) not in (2, 3, 5):
            raise ValueError(f"{len(cells)} fields")
        step = int(cells[2]) if len(cells) > 2 else 0
        points.add(step, int(cells[0]), float(cells[1]))
    except (ValueError, OverflowError) as error:
        raise Damaged(f"{where} is not a metric", why=str(error)[:200]) from error


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder, by name; links are none."""
    return [path for path, mode in _entries(folder) if stat.S_ISDIR(mode)]


def _entries(folder: Path) -> list[tuple[Path, int]]:
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found.append((Path(entry.path), entry.stat(follow_symlinks=False).st_mode))
                if len(found) > MOST_ENTRIES:
                    raise UnsafeInput(f"{folder} is too large", why=f"over {MOST_ENTRIES} names")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise Damaged(f"cannot read {folder}", why=error.strerror) from error
    return sorted(found)


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _files(folder: Path) -> list[tuple[str, Path]]:
    """Every file below a folder with its path there, in order."""
    found: list[tuple[str, Path]] = []
    waiting = [(folder, "", 0)] if not folder.is_symlink() else []
    while waiting:
        here, prefix, depth = waiting.pop()
        if depth > MOST_DEPTH:
            raise UnsafeInput(f"{folder} is nested too deeply", why=f"over {MOST_DEPTH} folders")
        for path, mode in _entries(here):
            if stat.S_ISDIR(mode):
                waiting.append((path, f"{prefix}{path.name}/", depth + 1))
            elif stat.S_ISREG(mode):
                found.append((prefix + path.name, path))
        if len(found) + len(waiting) > MOST_ENTRIES:
            raise UnsafeInput(f"{folder} is too large", why=f"over {MOST_ENTRIES} names")
    return sorted(found)


def _read(path: Path, most: int) -> bytearray:
    with Source(str(path)) as file:
        if file.size > most:
            raise UnsafeInput(
                f"{path.name} is too large", why=f"{file.size} bytes, the limit is {most}"
            )
        return file.read(0, file.size)


def _meta(folder: Path) -> dict[str, Any]:
    try:
        return settings_files.read(str(folder / META), "yaml")
    except NotFound as error:  # deleted meanwhile
        raise Damaged(f"{folder.name} has lost its {META}") from error


def _text(meta: dict[str, Any], key: str, default: str) -> str:
    value = meta.get(key)
    if isinstance(value, (dict, list)):
        raise Damaged(f"{META}: `{key}` is not a string")
    return default if value is None else str(value)


def _whole(meta: dict[str, Any], key: str) -> int | None:
    value = meta.get(key)
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    if value is None or isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    try:
        number = int(value)
    except ValueError:
        return None
    return number if -(2**63) <= number < 2**63 else None
