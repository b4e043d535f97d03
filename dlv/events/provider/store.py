"""What whoever answers questions about curves asks of where they are kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple, Protocol


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
