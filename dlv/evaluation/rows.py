"""The rows that a model is tested on, as its network takes them, in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from dlv.adapters.data.columns import Column
from dlv.adapters.data.sets import Data, Wanted
from dlv.errors import UsageError
from dlv.kinds import Array
from dlv.network.graph import Input
from dlv.network.program import Program
from dlv.network.sizes import Shape, same, text

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
    return [Wanted(name, _without_batch(taken.shape)) for name, taken in _inputs(program).items()]


def _without_batch(shape: Shape) -> tuple[int | None, ...]:
    return tuple(dim if isinstance(dim, int) else None for dim in shape[1:])


def _inputs(program: Program) -> dict[str, Input]:
    known = {each.name: each for each in program.network.inputs}
    for node in program.network.nodes:
        if node.op == "INPUT":
            known.setdefault(
                node.name, Input(node.name, tuple(node.attrs["shape"]), node.attrs["dtype"])
            )
    return {name: known[name] for name in program.given}


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
                f"{self.data.name} has {len(named)} classes, the network tells {classes} apart",
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
                    why=f"the network tells {classes} classes apart, 0 to {classes - 1}",
                    hint="--set data.labels=KEY names other labels, data.labels=false has none",
                )


def _fitted(rows: Array, taken: Input, column: Column) -> Array:
    """The rows in the kind of number that the input takes."""
    floating = "float" in taken.dtype
    if floating:
        narrow = rows.astype(_FLOATS.get(taken.dtype, np.float32), copy=False)
        return narrow.astype(np.float64, copy=False)
    if rows.dtype.kind == "f":
        whole = rows.astype(np.int64)
        if not np.array_equal(whole, rows):
            raise UsageError(
                f"{column.name} holds fractions, and the input `{taken.name}` takes whole numbers",
                why=f"it is of {taken.dtype}",
            )
        return whole
    return rows.astype(np.bool_ if taken.dtype == "bool" else np.int64, copy=False)


def _check_shape(taken: Input, column: Column) -> None:
    """UsageError with both shapes, and how to change the rows where that is easily told."""
    seen, want = column.shape, taken.shape[1:]
    if not taken.shape or (len(seen) == len(want) and all(map(same, seen, want))):
        return
    raise UsageError(
        f"the rows of {column.name} do not fit the network's input `{taken.name}`",
        why=f"they are {text(seen)}, the network wants {text(want)}",
        hint=_remedy(seen, want),
    )


def _remedy(seen: Sequence[int], want: Shape) -> str | None:
    """`--set data.transpose` for another order of axes, `data.shape` for as many numbers."""
    if len(seen) == len(want) <= 4 and sorted(map(str, seen)) == sorted(map(str, want)):
        for axes in permutations(range(len(seen))):
            if all(same(seen[axis], dim) for axis, dim in zip(axes, want, strict=True)):
                return f"--set data.transpose={','.join(map(str, axes))} puts the axes in order"
    sides = [dim for dim in want if isinstance(dim, int)]
    if len(sides) == len(want) and np.prod(sides, dtype=object) == np.prod(seen, dtype=object):
        return f"--set data.shape={','.join(map(str, sides))} gives them this shape"
    return None
