"""What questions about curves are answered with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.errors import UsageError
from dlv.events.formats.tensors import STRING, strings_of
from dlv.events.provider.store import TensorRow

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
