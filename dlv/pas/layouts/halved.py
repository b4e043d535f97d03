"""The layout `halved`: `fixed` with its second plane in two halves, so that a level may end there.

Many weights must be known to more than 8 bits and to less than 16. It is for matrices on their own:
their row exponents are the smallest that there can be, so that nothing has to name them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.errors import Damaged
from dlv.kinds import Bytes, Raw
from dlv.pas.layouts.fixed import EMPTY, Fixed, FixedCutter, Leading
from dlv.pas.layouts.segments import Cutter, Words

HALVES = (1, 2)  # the planes of 4 bits


class Halved(Fixed):
    """Planes of 8, 4, 4 and 8 bits of the codes, and the tails."""

    layout_id = "halved"
    depths = (8, 12, 16, 24)

    def __init__(self, rows: str, zero_centre: bool) -> None:
        super().__init__(rows, zero_centre, "")

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Halved:
        rows, centre = config["rows"], config["zero_centre"]
        if rows not in ("first", "last") or type(centre) is not bool:
            raise Damaged("a halved layout has impossible values", why=str(dict(config))[:200])
        return cls(rows, centre)

    def get_config(self) -> dict[str, Any]:
        return {"id": self.layout_id, "rows": self.rows, "zero_centre": self.zero_centre}

    def plane_bytes(self, plane: int, dtype: str, shape: Sequence[int]) -> int | None:
        """Halves are cut where segments begin, as tails are."""
        return None if plane in HALVES else super().plane_bytes(max(plane - 1, 0), dtype, shape)

    def side_of(self, raw: Raw, dtype: str, shape: Sequence[int]) -> bytes:
        return Fixed.of([raw], dtype, shape, rows=self.rows).side_of(raw, dtype, shape)

    def cutter(self, side: Raw, dtype: str, shape: Sequence[int]) -> Cutter:
        return HalvedCutter(self.fixed_cutter(side, dtype, shape))

    def leading(self, planes: Sequence[Raw], count: int) -> Leading:
        return super().leading(_whole(planes, count), count)

    def check_smallest(
        self, large: NDArray[np.bool_], exponents: NDArray[np.int32], shape: Sequence[int]
    ) -> None:
        """Damaged where a smaller exponent would do; `large`: numbers of at least half of 2^E.

        Bounds are told of a matrix and its layout, so these must leave no choice.
        """
        first = len(shape) < 2 or self.rows == "first"
        count = len(exponents)
        found = large.reshape(count, -1).any(1) if first else large.reshape(-1, count).any(0)
        if (found != (exponents != EMPTY)).any():
            raise Damaged("a row exponent of a halved layout is not the smallest")

    def _named(self, side: Raw) -> bool:  # noqa: ARG002
        return True


class HalvedCutter:
    """`halved` at work on one matrix: the planes of `fixed`, the second in halves."""

    def __init__(self, fixed: FixedCutter) -> None:
        self._fixed = fixed

    def cut(self, words: Words, start: int) -> list[Raw]:
        first, second, *others = self._fixed.cut(words, start)
        return [first, *halves(np.frombuffer(second, np.uint8)), *others]

    def paste(self, planes: Sequence[Raw], start: int, count: int) -> Words:
        if len(planes) != 5:
            raise Damaged(f"{count} words of a halved layout have other planes")
        return self._fixed.paste(_whole(planes, count), start, count)


def _whole(planes: Sequence[Raw], count: int) -> list[Raw]:
    """The first planes as `fixed` has them; a half that is not there counts as zeros."""
    first, *rest = planes
    if not rest:
        return [first]
    second = doubled(rest[0], count) << np.uint8(4)
    if len(rest) > 1:
        second |= doubled(rest[1], count)
    return [first, second.data, *rest[2:]]


def halves(numbers: Bytes) -> tuple[bytes, bytes]:
    """The upper and the lower 4 bits of each number, two numbers to a byte."""
    even = np.append(numbers, np.zeros(len(numbers) % 2, np.uint8))
    one, other = even[0::2], even[1::2]
    upper = one & np.uint8(0xF0) | other >> np.uint8(4)
    return upper.tobytes(), (one << np.uint8(4) | other & np.uint8(15)).tobytes()


def doubled(plane: Raw, count: int) -> Bytes:
    """The numbers of 4 bits that lie two to a byte."""
    if len(plane) != (count + 1) // 2:
        raise Damaged(f"{count} halves of a plane do not lie in {len(plane)} bytes")
    held = np.frombuffer(plane, np.uint8)
    found = np.empty(2 * len(held), np.uint8)
    found[0::2] = held >> np.uint8(4)
    found[1::2] = held & np.uint8(15)
    if count % 2 and found[-1]:
        raise Damaged("a plane of halves is not filled up with zeros")
    return found[:count]
