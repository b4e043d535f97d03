"""The `table` layout: a matrix of few distinct words, as what quantised weights are.

One plane of codes; the side data are the words, little-endian, ascending as unsigned integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlv.canonical import hash_bytes, is_hash
from dlv.dataclass import dataclass
from dlv.errors import Damaged
from dlv.kinds import Raw
from dlv.pas.layouts.segments import Cutter, Words, matrix_bytes, words_of

MOST_WORDS = 256
_FIRST = 1 << 10  # words looked at first: in most matrices these are too many already
_BLOCK = 1 << 13  # words looked at at a time from there
# A plane of bytes rarely becomes smaller than this part by entropy coding alone.
_USUAL = 0.6


class Distinct:
    """The distinct words of what is added, until they are more than a table can have."""

    def __init__(self) -> None:
        self._words: Words | None = None
        self._full = False

    def add(self, words: Words) -> bool:
        """Whether a table could still hold them all."""
        start = 0
        while start < len(words) and not self._full:
            block = words[start : start + (_FIRST if self._words is None else _BLOCK)]
            start += len(block)
            if self._words is None:
                self._words = np.unique(block)
            else:
                place = np.searchsorted(self._words, block)
                known = self._words[np.minimum(place, len(self._words) - 1)] == block
                if not known.all():
                    self._words = np.union1d(self._words, block[~known])
            self._full = len(self._words) > MOST_WORDS
        return not self._full

    @property
    def words(self) -> Words | None:
        """In ascending order; None if they are too many."""
        if self._full:
            return None
        return np.empty(0, np.uint8) if self._words is None else self._words


class Table:
    """Codes into at most 256 words, which lie in the side data."""

    layout_id = "table"
    elementwise = True

    def __init__(self, count: int, data: str) -> None:
        self._count = count
        self._data = data

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Table:
        count, data = config["words"], config["data"]
        if type(count) is not int or not 0 < count <= MOST_WORDS or not is_hash(data):
            raise Damaged("a table layout has impossible values", why=str(dict(config))[:200])
        return cls(count, data)

    @classmethod
    def of_words(cls, words: Words) -> Table:
        """The layout of a matrix of just these words, which ascend."""
        return cls(len(words), hash_bytes(words.tobytes()))

    def get_config(self) -> dict[str, Any]:
        return {"id": self.layout_id, "words": self._count, "data": self._data}

    def planes(self, dtype: str) -> int:  # noqa: ARG002
        return 1

    def plane_bytes(self, plane: int, dtype: str, shape: Sequence[int]) -> int | None:  # noqa: ARG002
        width, per_element = words_of(dtype)
        whole = matrix_bytes(dtype, shape)
        return whole // width if whole is not None else math.prod(shape) * per_element

    def side_bytes(self, dtype: str, shape: Sequence[int]) -> int:  # noqa: ARG002
        return self._count * words_of(dtype)[0]

    def side_of(self, raw: Raw, dtype: str, shape: Sequence[int]) -> bytes:  # noqa: ARG002
        found = Distinct()
        width, _ = words_of(dtype)
        words = found.words if found.add(np.frombuffer(raw, f"<u{width}")) else None
        side = b"" if words is None else words.tobytes()
        if words is None or len(words) != self._count or hash_bytes(side) != self._data:
            raise ValueError(f"a tensor of {dtype} has other words than its table")
        return side

    def cutter(self, side: Raw, dtype: str, shape: Sequence[int]) -> Cutter:
        width, _ = words_of(dtype)
        if len(side) != self.side_bytes(dtype, shape) or hash_bytes(side) != self._data:
            raise Damaged("the words of a table are not those that its name promises")
        words = np.frombuffer(side, f"<u{width}")
        if (words[1:] <= words[:-1]).any():
            raise Damaged("the words of a table do not ascend")
        return _TableCutter(words)


class _TableCutter:
    """Words to codes and back; any run of elements is like any other."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def cut(self, words: Words, start: int) -> list[Raw]:  # noqa: ARG002
        codes = np.searchsorted(self._words, words).astype(np.uint8)
        if len(words) and not np.array_equal(self._words[np.minimum(codes, self._top)], words):
            raise ValueError("some words are not in the table")
        return [codes.data]

    @property
    def _top(self) -> np.uint8:
        return np.uint8(len(self._words) - 1)

    def paste(
        self,
        planes: Sequence[Raw],
        start: int,  # noqa: ARG002
        count: int,
        out: Words | None = None,  # noqa: ARG002
    ) -> Words:
        if len(planes) != 1 or len(planes[0]) != count:
            raise Damaged("a table's tensor has one plane, a code for each word")
        codes = np.frombuffer(planes[0], np.uint8)
        if count and codes.max() > self._top:
            raise Damaged("a code points beyond its table")
        return self._words[codes]


class Finder:
    """Looks at a matrix part by part: is it one for a table?"""

    def __init__(self, dtype: str) -> None:
        self._width, _ = words_of(dtype)
        self._distinct = Distinct()
        self._count = 0

    def add(self, raw: Raw) -> None:
        """Some more whole words."""
        if self._width > 1:  # bytes are codes already
            self._count += len(raw) // self._width
            self._distinct.add(np.frombuffer(raw, f"<u{self._width}"))

    def coding(self) -> Coding | None:
        """How to code it, if that is worth it."""
        words = self._distinct.words
        if words is None or not self._count:
            return None
        if self._count + words.nbytes > _USUAL * self._count * self._width:
            return None
        return Coding(Table.of_words(words), words.tobytes())


@dataclass(frozen=True)
class Coding:
    """A table with its words at hand."""

    layout: Table
    side: bytes

    def codes(self, raw: Raw, dtype: str) -> Raw:
        """The codes of a run of words; trusted only because they decode to `raw`."""
        words = np.frombuffer(raw, f"<u{words_of(dtype)[0]}")
        cutter = self.layout.cutter(self.side, dtype, (len(words),))
        planes = cutter.cut(words, 0)
        if not np.array_equal(cutter.paste(planes, 0, len(words)), words):
            raise Damaged("codes did not decode to the same words, so nothing was stored")
        return planes[0]
