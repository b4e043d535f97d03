"""The result of a weight adapter: named tensors read one at a time, and the rest of the file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from dlv.dataclass import dataclass
from dlv.errors import Damaged
from dlv.kinds import Raw

if TYPE_CHECKING:
    from dlv.network.graph import Network

ROLES = ("weight", "buffer", "optimizer", "extra")

PART = 1 << 20

Part = Callable[[int, int], Raw]  # (start, size) -> so many bytes


@dataclass(frozen=True)
class Tensor:
    """One named tensor of a checkpoint; `read` gives its little-endian bytes in C order."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    read: Callable[[], Raw]
    role: str = "weight"
    tied: str | None = None  # name of the earlier tensor whose elements these are
    part: Part | None = None  # None: only whole

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def parts(self) -> Iterator[Raw]:
        """Yield the tensor's bytes, in pieces if the file allows it."""
        if self.part is None or self.nbytes <= PART:
            yield self.read()
            return
        for start in range(0, self.nbytes, PART):
            yield self.part(start, min(PART, self.nbytes - start))

    def content_hash(self) -> str:
        """The name of its content: two tensors have the same one if they hold the same."""
        from dlv.canonical import matrix_hasher

        hasher = matrix_hasher(self.dtype, self.shape)
        for part in self.parts():
            hasher.update(part)
        return hasher.hexdigest()

    def copy_to(self, out: BinaryIO) -> None:
        """Write the tensor's bytes, which must be as many as it declares."""
        done = 0
        for data in self.parts():
            out.write(data)
            done += memoryview(data).nbytes
        if done != self.nbytes:
            raise Damaged(
                f"the tensor {self.name} has a wrong length",
                why=f"{done} bytes instead of {self.nbytes}",
            )


@dataclass(frozen=True)
class Companion:
    """A file beside a model's own in which tensors of it lie; `tensors` are their places there.

    `parts` gives its bytes, to compare with what is built of `skeleton`.
    """

    path: str  # from the model's folder
    nbytes: int
    tensors: tuple[int, ...]
    skeleton: bytes
    parts: Callable[[], Iterator[Raw]]


@dataclass(frozen=True)
class Apart:
    """A model of several files, each of which comes back; `skeleton` is that of its own."""

    skeleton: bytes
    companions: tuple[Companion, ...]


@dataclass
class Checkpoint:
    """A weight file, or a file with a network, taken apart.

    `skeleton` is what is left of the file without its tensors, in the adapter's own form;
    with it and the tensors, `Adapter.restore` writes the file again, byte for byte if
    `exact`. None: the file cannot be built again and `checkout` writes a fresh one.
    """

    format: str
    tensors: list[Tensor]
    skeleton: bytes | None = None
    exact: bool = False
    step: int | None = None
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    close: Callable[[], None] = lambda: None
    network: Network | None = None  # where the file describes one
    constants: list[Tensor] = field(default_factory=list)  # what `network.constants` names
    beside: list[str] = field(default_factory=list)  # paths of other files that are read
    apart: Apart | None = None  # of such a model; `skeleton` is then that of one file of all


class Adapter(Protocol):
    """A module of `dlv.adapters` that reads and writes one weight format."""

    FORMAT: str
    SUFFIX: str

    def open(self, path: str) -> Checkpoint:
        """Check the whole file's structure and return lazily readable tensors."""
        ...

    def restore(self, out: BinaryIO, skeleton: bytes, tensors: Sequence[Tensor]) -> None:
        """Write the file of `skeleton` again; `tensors` in the order `open` gave them."""
        ...

    def save(self, out: BinaryIO, tensors: Sequence[Tensor], metadata: dict[str, str]) -> None:
        """Write a fresh file; UsageError naming the tensor if the format cannot hold a dtype."""
        ...


@dataclass(frozen=True)
class Beside:
    """A file for the tensors of a model that is too large for one: its name, how to open it."""

    name: str
    open: Callable[[], BinaryIO]


class ModelWriter(Protocol):
    """A module of `dlv.adapters` that writes a network with its weights to one file."""

    def save_network(
        self,
        out: BinaryIO,
        network: Network,
        tensors: Sequence[Tensor],
        constants: Sequence[Tensor],
        *,
        metadata: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Write it and say what a reader of the file may wonder about; UsageError naming the
        node that the format cannot hold, before anything is written."""
        ...
