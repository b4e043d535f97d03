"""Rows as a network takes them: another shape or order of axes, scaled, normalised."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlv.adapters.data.columns import Column
from dlv.adapters.data.settings import Settings
from dlv.errors import UsageError
from dlv.kinds import Array


def prepared(column: Column, settings: Settings) -> Column:
    """The column with what the settings ask for; untouched where they ask for nothing."""
    asked = (settings.shape, settings.transpose, settings.scale, settings.mean, settings.std)
    return column if asked == (None,) * len(asked) else Prepared(column, settings)


class Prepared:
    """(x * scale - mean) / std in float64, after the new shape and order of axes."""

    def __init__(self, column: Column, settings: Settings) -> None:
        self.name, self.count = column.name, column.count
        self._column = column
        self._settings = settings
        shape = column.shape
        if settings.shape is not None:
            if math.prod(settings.shape) != math.prod(shape):
                raise UsageError(
                    f"data.shape={_text(settings.shape)} does not fit the rows of {column.name}",
                    why=f"they are {_text(shape) or 'single numbers'}",
                )
            shape = settings.shape
        if settings.transpose is not None:
            if sorted(settings.transpose) != list(range(len(shape))):
                raise UsageError(
                    f"data.transpose={_text(settings.transpose)} does not fit {column.name}",
                    why=f"its rows have {len(shape)} axes, {_text(shape)}",
                )
            shape = tuple(shape[axis] for axis in settings.transpose)
        self.shape = shape
        changed = (settings.scale, settings.mean, settings.std) != (None, None, None)
        self.dtype: np.dtype[Any] = np.dtype(np.float64) if changed else column.dtype
        self._mean = self._factors(settings.mean)
        self._std = self._factors(settings.std)

    def _factors(self, given: tuple[float, ...] | None) -> Array | None:
        """One number for all, or one for each channel: the axis that has so many."""
        if given is None or len(given) == 1:
            return None if given is None else np.array(given[0])
        for axis in (0, len(self.shape) - 1):
            if self.shape and self.shape[axis] == len(given):
                sides = [len(given) if place == axis else 1 for place in range(len(self.shape))]
                return np.array(given).reshape(sides)
        raise UsageError(
            f"{len(given)} numbers of data.mean or data.std do not fit rows of {_text(self.shape)}",
            why="one is wanted, or one for each channel",
        )

    def read(self, start: int, stop: int) -> Array:
        rows = self._column.read(start, stop)
        if self._settings.shape is not None:
            rows = rows.reshape((stop - start, *self._settings.shape))
        if self._settings.transpose is not None:
            rows = rows.transpose(0, *(axis + 1 for axis in self._settings.transpose))
        rows = rows.astype(self.dtype, copy=False)
        if self._settings.scale is not None:
            rows = rows * self._settings.scale
        if self._mean is not None:
            rows = rows - self._mean
        return rows if self._std is None else rows / self._std


def _text(sides: tuple[int, ...]) -> str:
    return ",".join(str(side) for side in sides)
