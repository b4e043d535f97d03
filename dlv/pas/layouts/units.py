"""The layout `units`: differences cut into numbers of some bytes, the most significant first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlv.errors import Damaged
from dlv.kinds import Raw
from dlv.pas.layouts.segments import UNSIGNED, Cutter, Even, Words, raw_of, words_of


class Units(Even):
    """Signed numbers of `unit` bytes: balanced digits of a difference, of which all are small."""

    layout_id = "units"

    def __init__(self, unit: int) -> None:
        self.unit = unit

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Units:
        unit = config["bytes"]
        if type(unit) is not int or unit not in UNSIGNED:
            raise Damaged("the units of a layout have an impossible size", why=f"{unit!r} bytes")
        return cls(unit)

    def get_config(self) -> dict[str, Any]:
        return {"id": self.layout_id, "bytes": self.unit}

    def unit_of(self, dtype: str) -> int:
        """Bytes per word in each plane: no more than the word has."""
        return min(self.unit, words_of(dtype)[0])

    def planes(self, dtype: str) -> int:
        return words_of(dtype)[0] // self.unit_of(dtype)

    def cutter(self, side: Raw, dtype: str, shape: Sequence[int]) -> Cutter:  # noqa: ARG002
        if len(side):
            raise Damaged(f"a tensor of {dtype} has no side data")
        return UnitCutter(words_of(dtype)[0], self.unit_of(dtype))


class UnitCutter:
    """Differences as unsigned words, modulo the power of two; planes of signed numbers."""

    def __init__(self, width: int, unit: int) -> None:
        self.width = width
        self.unit = unit
        half = 1 << (8 * unit - 1)
        self._halves = UNSIGNED[width].type(sum(half << (8 * at) for at in range(0, width, unit)))

    def cut(self, words: Words, start: int) -> list[Raw]:  # noqa: ARG002
        if self.unit == self.width:
            return [raw_of(words)]
        digits = (words + self._halves) ^ self._halves
        narrow = UNSIGNED[self.unit]
        down = range(8 * (self.width - self.unit), -1, -8 * self.unit)
        return [raw_of((digits >> digits.dtype.type(shift)).astype(narrow)) for shift in down]

    def paste(
        self,
        planes: Sequence[Raw],
        start: int,  # noqa: ARG002
        count: int,
        out: Words | None = None,
    ) -> Words:
        if len(planes) * self.unit != self.width or any(
            len(plane) != count * self.unit for plane in planes
        ):
            raise Damaged(f"{count} words of {self.width} bytes have other planes")
        parts = [np.frombuffer(plane, UNSIGNED[self.unit]) for plane in planes]
        if self.unit == self.width:
            return parts[0]
        wide = UNSIGNED[self.width]
        out = np.empty(count, wide) if out is None else out
        np.copyto(out, parts[0])
        for part in parts[1:]:
            np.left_shift(out, wide.type(8 * self.unit), out=out)
            np.bitwise_or(out, part, out=out)
        # Digits as they are stored, back into one number.
        np.bitwise_xor(out, self._halves, out=out)
        np.subtract(out, self._halves, out=out)
        return out
