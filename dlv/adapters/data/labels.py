"""Labels as a network's scores are numbered: whole numbers, or texts put in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlv.adapters.data.columns import Column
from dlv.errors import UnsafeInput, UsageError, nearest
from dlv.kinds import Array

_BLOCK = 4096
MOST_CLASSES = 1 << 20


def coded(
    column: Column, count: int, classes: Sequence[str] | None
) -> tuple[Column, tuple[str, ...] | None]:
    """The labels as numbers, and the names of the classes where there are any.

    Texts are numbered as `data.classes` lists them, else in alphabetical order.
    """
    given = tuple(classes) if classes else None
    if column.dtype.kind in "biuf":
        if column.shape == (1,):
            return _Flat(column), given
        return column, given
    if column.dtype.kind not in "US" or column.shape not in ((), (1,)):
        raise UsageError(
            f"{column.name} holds no labels", why=f"{column.dtype} with rows of {column.shape}"
        )
    if given is None:
        seen: set[str] = set()
        for start in range(0, count, _BLOCK):
            seen.update(_texts(column.read(start, min(start + _BLOCK, count))))
            if len(seen) > MOST_CLASSES:
                raise UnsafeInput(f"{column.name} holds too many different labels")
        given = tuple(sorted(seen))
    return _Coded(column, {text: at for at, text in enumerate(given)}), given


def _texts(found: Array) -> list[str]:
    flat = found.reshape(-1).tolist()
    return [t.decode("utf-8", "replace") if isinstance(t, bytes) else str(t) for t in flat]


class _Flat:
    """Labels of shape (rows, 1) as (rows,)."""

    def __init__(self, column: Column) -> None:
        self.name, self.count = column.name, column.count
        self.dtype, self.shape = column.dtype, ()
        self._column = column

    def read(self, start: int, stop: int) -> Array:
        return self._column.read(start, stop).reshape(stop - start)


class _Coded:
    """Texts as the numbers of their classes."""

    def __init__(self, column: Column, numbers: Mapping[str, int]) -> None:
        self.name, self.count = column.name, column.count
        self.dtype: np.dtype[Any] = np.dtype(np.int64)
        self.shape: tuple[int, ...] = ()
        self._column = column
        self._numbers = numbers

    def read(self, start: int, stop: int) -> Array:
        texts = _texts(self._column.read(start, stop))
        try:
            return np.array([self._numbers[text] for text in texts], np.int64)
        except KeyError as error:
            unknown = str(error.args[0])
            raise UsageError(
                f"row {start + texts.index(unknown)} of {self.name} has an unknown label",
                why=f"{unknown[:100]!r} is none of {', '.join(list(self._numbers)[:8])}",
                did_you_mean=nearest(unknown, self._numbers),
                hint="data.classes in a --config file lists them in the network's order",
            ) from None
