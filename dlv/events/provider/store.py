"""Where curves are kept, as the data API reads them, and what it answers with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.errors import UsageError
from dlv.events.formats.summaries import PLUGIN, SESSION, logged_hyperparameters
from dlv.events.formats.tensors import STRING, strings_of


class RunRow(NamedTuple):
    """`version` is the id of a committed version, None of a log that is only being read."""

    id: int
    name: str
    version: str | None
    start_time: float | None


class SeriesRow(NamedTuple):
    """A series in figures, of its live points alone; `last`, `min` and `max` only of scalars.

    `n` 0 leaves `max_step`, `max_wall` and the values None; `min` and `max` are of what is finite.
    `max_length` is that of blob sequences. `error`: why it cannot be listed though it was logged.
    """

    id: int
    run: str
    tag: str
    plugin: str
    data_class: int
    content: bytes
    display_name: str
    description: str
    n: int
    max_step: int | None
    max_wall: float | None
    max_length: int
    last: float | None
    min: float | None
    max: float | None
    error: str | None


class Columns(NamedTuple):
    """Scalars: int64, float64, float64, little-endian, each 8 bytes a point."""

    steps: bytes
    walls: bytes
    values: bytes

    @property
    def n(self) -> int:
        return len(self.steps) // 8


class ChunkRow(NamedTuple):
    """Live points `ordinal` .. `ordinal + n` in figures.

    `step0` and `step1` are the least and the greatest step, `imin` and `imax` the ordinals of the
    first least and the first greatest finite value, None where no value is finite.
    """

    ordinal: int
    n: int
    step0: int
    step1: int
    vmin: float | None
    imin: int | None
    vmax: float | None
    imax: int | None
    nonfinite: int


class TensorRow(NamedTuple):
    step: int
    wall: float
    dtype: str
    shape: tuple[int, ...]
    data: bytes
    legacy: bytes


class BlobRow(NamedTuple):
    """A point of a blob sequence: (blob id, bytes) of each blob."""

    step: int
    wall: float
    blobs: tuple[tuple[int, int], ...]


class Store(Protocol):
    """Curves by experiment, run and tag. Points stand in the order in which they were written.

    An ordinal counts the live points of a series from 0. What is not there: empty, or None.
    """

    def experiments(self) -> Sequence[tuple[int, str]]: ...

    def runs(self, experiment: int) -> Sequence[RunRow]: ...

    def series(
        self,
        experiment: int,
        *,
        plugin: str | None = None,
        data_class: int | None = None,
        runs: Collection[str] | None = None,
        tags: Collection[str] | None = None,
    ) -> Sequence[SeriesRow]: ...

    def scalars(self, series: int, first: int = 0, count: int | None = None) -> Columns: ...

    def scalar_at(self, series: int, ordinals: Sequence[int]) -> Columns: ...

    def scalar_chunks(self, series: int) -> Sequence[ChunkRow]: ...

    def preview(self, series: int) -> Columns | None: ...

    def tensors(
        self, series: int, ordinals: Sequence[int] | None = None
    ) -> Iterator[TensorRow]: ...

    def blob_sequences(
        self, series: int, ordinals: Sequence[int] | None = None
    ) -> Iterator[BlobRow]: ...

    def blob(self, series: int, ordinal: int, index: int) -> Iterator[bytes]: ...

    def hyperparameters(self, experiment: int) -> Sequence[tuple[str, dict[str, Any]]]: ...


class ChosenRuns:
    """Runs with one of the names that `names` gives, and those below them.

    Hyperparameters are those of the runs; where a run has none, those that it logged. So the
    series in which they were logged are not shown: TensorBoard would look at nothing else.
    """

    def __init__(self, store: Store, names: Callable[[], Collection[str]]) -> None:
        self._store = store
        self._names = names

    def runs(self, experiment: int) -> Sequence[RunRow]:
        names = self._names()
        return [row for row in self._store.runs(experiment) if _within(row.name, names)]

    def series(
        self,
        experiment: int,
        *,
        plugin: str | None = None,
        data_class: int | None = None,
        runs: Collection[str] | None = None,
        tags: Collection[str] | None = None,
    ) -> Sequence[SeriesRow]:
        shown = {row.name for row in self.runs(experiment)}
        found = self._store.series(
            experiment,
            plugin=plugin,
            data_class=data_class,
            runs=list(shown if runs is None else shown.intersection(runs)),
            tags=tags,
        )
        return [row for row in found if row.plugin != PLUGIN]

    def hyperparameters(self, experiment: int) -> Sequence[tuple[str, dict[str, Any]]]:
        names = self._names()
        found: dict[str, dict[str, Any]] = {}
        for row in self._store.series(experiment, plugin=PLUGIN, tags=[SESSION]):
            if values := logged_hyperparameters(row.content):
                found[row.run] = dict(values)
        found |= dict(self._store.hyperparameters(experiment))
        return [(run, found[run]) for run in sorted(found) if _within(run, names)]

    # A series is known by a number that only the methods above give away.

    def experiments(self) -> Sequence[tuple[int, str]]:
        return self._store.experiments()

    def scalars(self, series: int, first: int = 0, count: int | None = None) -> Columns:
        return self._store.scalars(series, first, count)

    def scalar_at(self, series: int, ordinals: Sequence[int]) -> Columns:
        return self._store.scalar_at(series, ordinals)

    def scalar_chunks(self, series: int) -> Sequence[ChunkRow]:
        return self._store.scalar_chunks(series)

    def preview(self, series: int) -> Columns | None:
        return self._store.preview(series)

    def tensors(self, series: int, ordinals: Sequence[int] | None = None) -> Iterator[TensorRow]:
        return self._store.tensors(series, ordinals)

    def blob_sequences(
        self, series: int, ordinals: Sequence[int] | None = None
    ) -> Iterator[BlobRow]:
        return self._store.blob_sequences(series, ordinals)

    def blob(self, series: int, ordinal: int, index: int) -> Iterator[bytes]:
        return self._store.blob(series, ordinal, index)


def _within(run: str, names: Collection[str]) -> bool:
    """`lenet@3` and `lenet@3/eval` of `lenet@3`; a name has no slash.

    TensorBoard takes runs for folders in places: one that leads out of its own is not shown.
    """
    name, *below = run.split("/")
    return name in names and ".." not in below


T = TypeVar("T")
ByRun = Mapping[str, Mapping[str, T]]  # run -> tag -> answer; what does not exist is left out


class InvalidArgument(UsageError):
    """A question that cannot be answered as it was put: too much at once, an impossible range."""

    kind = "invalid argument"


class Unreadable(InvalidArgument):
    """A series was asked for of which nothing could be kept."""


class Listed(NamedTuple):
    """A series without its points. `length`: blobs of its longest sequence, None of others.

    `n` 0 leaves `max_step` and `max_wall` None. `error`: why some of its points are not kept.
    """

    run: str
    tag: str
    kind: str  # scalar, tensor or blobs
    n: int
    max_step: int | None
    max_wall: float | None
    length: int | None
    content: bytes
    display_name: str
    description: str
    last: float | None
    error: str | None


class Run(NamedTuple):
    name: str
    version: str | None
    start: float | None


@dataclass(frozen=True, eq=False)
class Points:
    """Scalars by step; those of one step in the order in which they were written."""

    steps: NDArray[np.int64]
    walls: NDArray[np.float64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, places: Any) -> Points:
        return Points(self.steps[places], self.walls[places], self.values[places])


class Scalar(NamedTuple):
    step: int
    wall: float
    value: float


@dataclass(frozen=True, eq=False)
class Tensor:
    """`legacy`: the bytes of an old histogram, of which the array is a summary."""

    step: int
    wall: float
    array: NDArray[Any]
    legacy: bytes = b""


@dataclass(frozen=True)
class BlobReference:
    """Where a blob is to be had: an address, or a key for `read_blob`; never both.

    `index` is its place in the sequence, `size` in bytes.
    """

    key: str | None = None
    url: str | None = None
    index: int = 0
    size: int | None = None

    def __post_init__(self) -> None:
        if (self.key is None) == (self.url is None):
            raise ValueError("a blob has an address or a key")


@dataclass(frozen=True)
class Blobs:
    step: int
    wall: float
    blobs: tuple[BlobReference, ...]


def array_of(row: TensorRow) -> NDArray[Any]:
    """As numpy has it, in an array of its own; texts are bytes in an array of objects."""
    if row.dtype == STRING:
        texts = strings_of(row.data)
        made = np.empty(len(texts), object)
        made[:] = texts
        return made.reshape(row.shape)
    kind = np.dtype(row.dtype)
    return np.frombuffer(row.data, kind.newbyteorder("<")).astype(kind).reshape(row.shape)
