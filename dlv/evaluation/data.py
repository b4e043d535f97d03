"""The data that a model is tested on: where it is, how it is read, and its rows in batches."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import permutations
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

import dlv.adapters.settings as settings_files
import dlv.repository.revisions as revisions
from dlv.adapters.data.columns import Column
from dlv.adapters.data.sets import Data, Wanted, of_arrays, open_data
from dlv.adapters.data.settings import Settings
from dlv.dataclass import dataclass
from dlv.errors import DlvError, NotFound, UnsafeInput, UsageError, nearest
from dlv.evaluation.engines import ENGINES
from dlv.kinds import Array
from dlv.network.graph import Input
from dlv.network.ops.op import op_of
from dlv.network.program import Program
from dlv.network.sizes import Shape, same, text
from dlv.objects.manifest import FileEntry, Manifest
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository

CODE = "python:"


SUFFIXES = (".npz", ".npy", ".csv", ".tsv")
ROLE = "data"


@dataclass(frozen=True)
class DataSource:
    """`where` as it is opened; `entry`, `arrays`: a stored file or the data itself instead."""

    where: str
    entry: FileEntry | None = None
    arrays: Any = None


def split_words(
    repository: Repository, words: Sequence[str], directory: Path
) -> tuple[list[str], str | None]:
    """The references and DATA: the last word, if it is a file, a folder, `REF:FILE` or code."""
    if not words:
        return ["HEAD"], None
    *references, last = words
    if not references:
        alone = last.startswith(CODE) or (directory / last).exists()
        return (["HEAD"], last) if alone and not _is_version(repository, last) else ([last], None)
    if last.startswith(CODE) or (directory / last).exists():
        return references, last
    if ":" in last and _file(repository, last) is not None:
        return references, last
    if PurePosixPath(last).suffix.lower() in SUFFIXES:
        beside = directory / PurePosixPath(last).parent
        names = [p.name for p in beside.iterdir()] if beside.is_dir() else []
        raise NotFound(
            f"no such file: {last}",
            why="the last argument is neither a file nor a version",
            did_you_mean=nearest(PurePosixPath(last).name, names),
        )
    return list(words), None


def _is_version(repository: Repository, text: str) -> bool:
    try:
        return revisions.resolve(repository.database, text).file is None
    except DlvError:
        return False


def find_data(
    repository: Repository, named: str | None, references: Sequence[str], directory: Path
) -> DataSource:
    """What was named, or else the one data set that was added with the versions."""
    if named is not None:
        if not named.startswith(CODE) and not (directory / named).exists() and ":" in named:
            entry = _file(repository, named)
            if entry is not None:
                return DataSource(named, entry)
        return DataSource(named)
    stored: dict[str, tuple[str, FileEntry]] = {}
    for reference in references:
        version = revisions.resolve(repository.database, reference).version
        for entry in repository.manifest(version.id).files:
            if entry.role == ROLE:
                stored.setdefault(entry.blake3, (f"{version.label}:{entry.path}", entry))
    if len(stored) == 1:
        return DataSource(*next(iter(stored.values())))
    names = [name for name, _ in stored.values()]
    example = f"dlv eval {references[0]} {names[0] if names else 'test.npz'}"
    raise UsageError(
        "no data given, and the versions have " + ("several data sets" if names else "none"),
        why=", ".join(names[:4]) or None,
        hint=example,
    )


def open_source(
    repository: Repository,
    data: DataSource,
    settings: Settings,
    wanted: Sequence[Wanted],
    directory: Path,
) -> Data:
    """The rows; those of a stored file are taken out of the repository for as long as it takes."""
    if data.arrays is not None:
        return of_arrays(data.where, data.arrays, settings, wanted)
    if data.entry is None:
        return open_data(data.where, settings, wanted, directory)
    content = FileStore(repository.files_git).read(data.entry)
    with tempfile.TemporaryDirectory(prefix="dlv-") as folder:
        # Only the ending counts; once it is open, the file may go.
        path = Path(folder, f"data{PurePosixPath(data.entry.path).suffix}")
        path.write_bytes(content)
        del content
        found = open_data(str(path), settings, wanted)
    found.name = data.where
    return found


def _file(repository: Repository, text: str) -> FileEntry | None:
    """The stored file of `REF:FILE`; None where the text is no such reference."""
    try:
        found = revisions.resolve(repository.database, text)
    except DlvError:
        return None
    if found.file is None:
        return None
    manifest: Manifest = repository.manifest(found.version.id)
    for entry in manifest.files:
        if entry.path == found.file:
            return entry
    label = found.version.label
    raise NotFound(
        f"{label} has no file `{found.file}`",
        did_you_mean=[
            f"{label}:{n}" for n in nearest(found.file, [e.path for e in manifest.files])
        ],
        hint=f"dlv show {label}",
    )


# Where data comes from and how it is computed; other keys of a file are a trainer's.
KEYS = ("input_data", "batch_size", "precision", "engine", "top_k", "data")
PRECISIONS = ("float64", "float32")


@dataclass(frozen=True)
class EvalSettings:
    """Settings of an evaluation; None: not set."""

    data: Settings = field(default_factory=Settings)
    input_data: str | None = None
    batch: int | None = None
    precision: str | None = None
    engine: str | None = None
    top_k: int | None = None


def read_settings(path: str | None, settings: Sequence[str]) -> EvalSettings:
    """The settings of a file, changed by `K=V`; later ones win."""
    found: dict[str, Any] = {}
    if path is not None:
        found = {key: value for key, value in settings_files.read(path).items() if key in KEYS}
        if str(found.get("input_data", "")).startswith(CODE):
            raise UnsafeInput(
                f"{path} names code to run",
                why=f"input_data = {found['input_data']}; files can come from others",
                hint=f"if you trust it, give it as DATA: {found['input_data']}",
            )
        data = found.get("data", {})
        if not isinstance(data, Mapping):
            raise UsageError(f"data in {path} is not a table", why=f"it is {data!r}"[:200])
        found["data"] = dict(data)
    for item in settings:
        key, equals, text = item.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"`{item}` is not of the form K=V", hint="--set data.scale=1/255")
        _set(found, key.strip(), value(text.strip()))
    return EvalSettings(
        data=Settings.from_table(found.get("data", {})),
        input_data=_text(found, "input_data"),
        batch=_count(found, "batch_size"),
        precision=_one_of(found, "precision", PRECISIONS),
        engine=_one_of(found, "engine", ENGINES),
        top_k=_count(found, "top_k"),
    )


def value(text: str) -> Any:
    """A value of the command line: JSON, several with commas between them, or a text."""
    for written in (text, *([f"[{text}]"] if "," in text else [])):
        try:
            return json.loads(written)
        except (ValueError, RecursionError):
            continue
    return text.split(",") if "," in text else text


def _set(settings: dict[str, Any], key: str, value: Any) -> None:
    if key.startswith("data."):
        name, _, rest = key.removeprefix("data.").partition(".")
        data = settings.setdefault("data", {})
        if rest:
            table = data.get(name)
            data[name] = {**(table if isinstance(table, dict) else {}), rest: value}
        else:
            data[name] = value
        return
    known = [name for name in KEYS if name != "data"]
    if key not in known:
        raise UsageError(
            f"unknown setting `{key}`",
            why=f"known: {', '.join(known)} and data.*",
            did_you_mean=nearest(key, [*known, "data.shape", "data.labels", "data.scale"]),
        )
    settings[key] = value


def _text(settings: Mapping[str, Any], key: str) -> str | None:
    if key not in settings:
        return None
    if not isinstance(settings[key], str) or not settings[key]:
        raise UsageError(f"{key} is {settings[key]!r}"[:200], why="it must be a string")
    return str(settings[key])


def _count(settings: Mapping[str, Any], key: str) -> int | None:
    value = settings.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 31:
        raise UsageError(f"{key} is {value!r}"[:200], why="it must be a whole number above 0")
    return value


def _one_of(settings: Mapping[str, Any], key: str, allowed: Sequence[str]) -> str | None:
    if key in settings and settings[key] not in allowed:
        raise UsageError(
            f"{key} is {settings[key]!r}"[:200], why=f"it must be one of {', '.join(allowed)}"
        )
    return settings.get(key)


_LABELS = 1 << 16  # labels that are looked at together
# What numpy has no type for is cut to the next wider one.
_FLOATS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}


@dataclass(frozen=True)
class Batch:
    """Neighbouring rows from `start` on; `labels` as the data has them."""

    start: int
    inputs: Mapping[str, Array]
    labels: Array | None

    @property
    def count(self) -> int:
        return len(next(iter(self.inputs.values())))


def wanted_inputs(program: Program) -> list[Wanted]:
    """What must be given for a program."""
    return [
        Wanted(name, tuple(dim if isinstance(dim, int) else None for dim in taken.shape[1:]))
        for name, taken in _inputs(program).items()
    ]


def _inputs(program: Program) -> dict[str, Input]:
    known = {each.name: each for each in program.network.inputs}
    for node in program.network.nodes:
        if op_of(node).placeholder:
            known.setdefault(
                node.name, Input(node.name, tuple(node.attrs["shape"]), node.attrs["dtype"])
            )
    return {name: known[name] for name in program.input_names}


class Rows:
    """Data for one program: shapes are compared at once, rows read when they are asked for.

    Floats are rounded to the dtype of the input, as they would be handed to the network, and
    then widened to float64, in which the network is computed.
    """

    def __init__(self, program: Program, data: Data) -> None:
        self.data = data
        self.count = data.count
        self._columns: list[tuple[Input, Column]] = []
        for name, taken in _inputs(program).items():
            column = data.inputs[name]
            _check_shape(taken, column)
            self._columns.append((taken, column))
        fixed = {each.shape[0] for each, _ in self._columns if each.shape}
        lengths = [length for length in fixed if isinstance(length, int)]
        self._length = lengths[0] if lengths else None
        if self._length and self.count % self._length:
            raise UsageError(
                f"the network takes {self._length} rows at a time, {data.name} has {self.count}",
                why="its input has a fixed length instead of a symbol such as B",
                hint=f"--set data.rows={self.count // self._length * self._length or 1}",
            )

    @property
    def has_labels(self) -> bool:
        return self.data.labels is not None

    def batches(self, size: int) -> Iterator[Batch]:
        """All rows in order; a network with a fixed length of batch gets that length."""
        size = self._length or size
        for start in range(0, self.count, size):
            stop = min(start + size, self.count)
            inputs = {
                taken.name: _fitted(column.read(start, stop), taken, column)
                for taken, column in self._columns
            }
            labels = None if self.data.labels is None else self.data.labels.read(start, stop)
            yield Batch(start, inputs, labels)

    def labels(self) -> Iterator[tuple[int, Array]]:
        """The labels alone: where a stretch starts, and the stretch."""
        if self.data.labels is not None:
            for start in range(0, self.count, _LABELS):
                yield start, self.data.labels.read(start, min(start + _LABELS, self.count))

    def check_classes(self, classes: int) -> None:
        """UsageError unless every label is one of so many classes."""
        column, named = self.data.labels, self.data.classes
        if column is None:
            return
        if named is not None and len(named) != classes:
            raise UsageError(
                f"{self.data.name} has {len(named)} classes, the network {classes}",
                why=f"these are {', '.join(named[:8])}{' ..' if len(named) > 8 else ''}",
                hint="data.classes in a --config file lists them in the network's order",
            )
        for start, labels in self.labels():
            values = np.asarray(labels, np.float64)
            wrong = ~((values >= 0) & (values < classes) & (values == np.floor(values)))
            if wrong.any():
                at = int(np.argmax(wrong))
                raise UsageError(
                    f"row {start + at} of {column.name} has the label {labels[at]}",
                    why=f"the network has {classes} classes, 0 to {classes - 1}",
                    hint="--set data.labels=KEY names other labels, data.labels=false has none",
                )


def _fitted(rows: Array, wanted: Input, column: Column) -> Array:
    """The rows in the kind of number that the input takes."""
    floating = "float" in wanted.dtype
    if floating:
        narrow = rows.astype(_FLOATS.get(wanted.dtype, np.float32), copy=False)
        return narrow.astype(np.float64, copy=False)
    if rows.dtype.kind == "f":
        whole = rows.astype(np.int64)
        if not np.array_equal(whole, rows):
            raise UsageError(
                f"{column.name} has fractions, but the input `{wanted.name}` takes integers",
                why=f"it is of {wanted.dtype}",
            )
        return whole
    return rows.astype(np.bool_ if wanted.dtype == "bool" else np.int64, copy=False)


def _check_shape(wanted: Input, column: Column) -> None:
    """UsageError with both shapes, and how to change the rows where that is easily told."""
    shape, want = column.shape, wanted.shape[1:]
    if not wanted.shape or (len(shape) == len(want) and all(map(same, shape, want))):
        return
    raise UsageError(
        f"examples of {column.name} do not fit the network's input `{wanted.name}`",
        why=f"they are {text(shape)}, the network expects {text(want)}",
        hint=_remedy(shape, want),
    )


def _remedy(shape: Sequence[int], want: Shape) -> str | None:
    """`--set data.transpose` for another order of axes, `data.shape` for as many numbers."""
    if len(shape) == len(want) <= 4 and sorted(map(str, shape)) == sorted(map(str, want)):
        for axes in permutations(range(len(shape))):
            if all(same(shape[axis], dim) for axis, dim in zip(axes, want, strict=True)):
                return f"--set data.transpose={','.join(map(str, axes))} puts the axes in order"
    sides = [dim for dim in want if isinstance(dim, int)]
    if len(sides) == len(want) and np.prod(sides, dtype=object) == np.prod(shape, dtype=object):
        return f"--set data.shape={','.join(map(str, sides))} gives them this shape"
    return None
