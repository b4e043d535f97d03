"""What MLflow keeps of runs: plain records, its text values as numbers, where artifacts lie.

`mlflow_files` reads `mlruns/` folders into these, `mlflow_database` reads `mlflow.db`.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from dlv.errors import NotFound, UsageError

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
        """OverflowError for a step that is no 64-bit integer."""
        self.steps.append(step)
        self.walls.append(milliseconds / 1000)
        self.values.append(value)


class Store(Protocol):
    """Reads one store. What cannot be read, or is deleted, is named in `skipped`."""

    bases: list[Path]  # artifacts may lie below these folders
    skipped: list[tuple[str, str]]
    notes: list[str]

    def experiments(self) -> list[Experiment]: ...

    def runs(self, experiment: Experiment) -> Iterator[Run]:
        """Those that are not deleted, each with all but its metrics."""
        ...

    def metrics(self, run: Run) -> dict[str, Points]: ...

    def close(self) -> None: ...


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
            "they lie outside the store, and --artifacts DIR names no folder that they are in",
            why=uri[:200],
        )
    return path


def _local_parts(uri: str) -> list[str]:
    try:
        split = urlsplit(uri)
    except ValueError as error:
        raise UsageError("their place is no address", why=uri[:200]) from error
    # A single letter is a drive of Windows.
    if len(split.scheme) > 1 and split.scheme not in ("file", "mlflow-artifacts"):
        raise UsageError(f"they lie at {split.scheme}://{split.netloc}, which dlv does not fetch")
    path = unquote(split.path) if len(split.scheme) > 1 else uri
    if "\0" in path:
        raise UsageError("their place is no address", why=repr(uri[:200]))
    return [part for part in re.split(r"[/\\]", path) if part not in ("", ".")]


def _inside(path: Path, base: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(base))
