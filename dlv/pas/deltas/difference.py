"""Deltas: a matrix against a base matrix of the same dtype, `xor` or the integer difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import HASH
from dlv.dataclass import dataclass
from dlv.errors import Damaged, NewerFormat
from dlv.kinds import Raw
from dlv.pas.coders import compiled
from dlv.pas.floats import (
    Format,
    add_difference,
    apply_digits,
    differences,
    format_of,
    signed_words,
)
from dlv.pas.layouts.fixed import (
    CODE_BITS,
    MAG,
    Codes,
    FixedCutter,
    code_of,
    code_planes,
    pack_tail,
    unpack_tail,
)
from dlv.pas.layouts.segments import BLOCK, Layout, Words, join_words, spare, split_words
from dlv.pas.layouts.units import UnitCutter

MAP_TOP = np.uint32(1 << CODE_BITS)
ALL = np.uint32((1 << (CODE_BITS + 1)) - 1)
EIGHTS = np.uint32(0x808080)


def mapped(code: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Codes as integers in the order of their numbers."""
    negative = (code & MAP_TOP) != 0
    return np.bitwise_xor(code, np.where(negative, ALL, MAP_TOP))


def unmapped(order: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The inverse of `mapped`."""
    positive = (order & MAP_TOP) != 0
    return np.bitwise_xor(order, np.where(positive, MAP_TOP, ALL))


class FixedDelta:
    """`xor` or `sub` of 24-bit codes.

    A tail is XORed with the base's where both are of one length, an escaped word with the
    base's where that has no magnitude in its code either.
    """

    def __init__(self, kind: str, cutter: FixedCutter) -> None:
        self._xor = kind == "xor"
        self._cutter = cutter

    def cut(self, words: Words, base: Words, start: int) -> list[Raw]:
        e = self._cutter.exponents_at(start, len(words))
        codes, under = self._cutter.codes(words, e), self._cutter.codes(base, e)
        if codes is None or under is None:
            raise ValueError("a number is not finite, or beyond the exponent of its row")
        if self._xor:
            digits = codes.code ^ under.code
        else:
            digits = ((mapped(codes.code) - mapped(under.code) + EIGHTS) & ALL) ^ EIGHTS
        tail = codes.tail ^ shared_tail(codes.n, under)
        hidden = words.copy()
        hidden[empty(under)] ^= base[empty(under)]
        flagged = self._cutter.flagged(codes.code, e)
        return [*code_planes(digits), pack_tail(codes.n, tail, codes.escaped, flagged, hidden)]

    def paste(self, planes: Sequence[Raw], base: Words, start: int, out: Words) -> None:
        count = len(out)
        if len(planes) != 4 or any(len(plane) != count for plane in planes[:3]):
            raise Damaged(f"{count} words of a fixed layout have other planes")
        cutter = self._cutter
        e = cutter.exponents_at(start, count)
        under = cutter.codes(base, e)
        if under is None:
            raise Damaged("a base does not fit into the row exponents of its delta")
        code = added(code_of(planes[:3]), under.code, xor=self._xor)
        n = cutter.tail_lengths(code, e)
        flagged = cutter.flagged(code, e)
        tail, escaped, words = unpack_tail(planes[3], n, flagged, cutter.unit.form)
        tail ^= shared_tail(n, under)
        hidden = words ^ np.where(empty(under), base, base.dtype.type(0))[escaped]
        out[:] = cutter.joined(code, n, tail, e, escaped, hidden)


def added(digits: NDArray[np.uint32], base: NDArray[np.uint32], *, xor: bool) -> NDArray[np.uint32]:
    """Codes from their differences and the base's codes."""
    if xor:
        return np.bitwise_xor(digits, base)
    return unmapped((mapped(base) + (digits ^ EIGHTS) - EIGHTS) & ALL)


def empty(codes: Codes) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (codes.code & MAG) == 0
    return found


def shared_tail(n: NDArray[np.int32], under: Codes) -> Words:
    """The base's tails where they are as long as the target's, 0 elsewhere."""
    return np.where(n == under.n, under.tail, under.tail.dtype.type(0))


Config = Mapping[str, Any]

# id -> keys of its config.
DELTAS = {
    "xor": frozenset({"id", "base", "overlap"}),
    "sub": frozenset({"id", "base", "overlap", "predictor"}),
}
MAX_PREDICTORS = 16
_DIGIT = 4  # words whose loops save as much time as those of one digit in its context


@dataclass(frozen=True)
class Delta:
    """What a delta's config says."""

    kind: str  # "xor" or "sub"
    base: str  # hash of the base matrix
    overlap: tuple[int, ...] | None  # where shapes differ, their elementwise minimum
    predictor: tuple[Config, ...] = ()

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "id": self.kind,
            "base": self.base,
            "overlap": None if self.overlap is None else list(self.overlap),
        }
        if self.kind == "sub":
            config["predictor"] = [dict(one) for one in self.predictor]
        return config


class DeltaCutter(Protocol):
    """A delta at work on one matrix: planes of the words from `start` given the base's words."""

    def cut(self, words: Words, base: Words, start: int) -> list[Raw]: ...

    def paste(self, planes: Sequence[Raw], base: Words, start: int, out: Words) -> None:
        """The words into `out`, which may be the base itself."""
        ...


class _Loops(NamedTuple):
    """Compiled: all planes of a difference, and its words again, in one go."""

    cut: Any
    join: Any


class WordDelta:
    """Differences of whole words, cut into bytes as any words are.

    Block by block, so that what lies between words and planes stays in the cache.
    """

    def __init__(self, kind: str, form: Format) -> None:
        self._xor = kind == "xor"
        self._form = form

    def _compiled(self, *words: Words) -> _Loops | None:
        """Where numba is, and these are words that it has loops for."""
        form = self._form
        if self._xor or form.kind != "float" or form.width not in (2, 4):
            return None
        # For others numba would compile all again.
        if not all(each.flags.aligned and each.flags.contiguous for each in words):
            return None
        loops = compiled.loops(len(words[0]) // _DIGIT)
        if loops is None:
            return None
        if form.width == 2:
            return _Loops(loops.cut_half, loops.join_half)
        return _Loops(loops.cut, loops.join)

    def cut(self, words: Words, base: Words, start: int) -> list[Raw]:  # noqa: ARG002
        if len(words) != len(base):  # compiled loops would not notice
            raise ValueError(f"{len(base)} words of a base for {len(words)}")
        out = [np.empty(len(words), np.uint8) for _ in range(self._form.width)]
        if (loops := self._compiled(words, base)) is not None:
            loops.cut(compiled.frozen(words), compiled.frozen(base), *out)
            return [plane.data for plane in out]
        for at in range(0, len(words), BLOCK):
            block, under = words[at : at + BLOCK], base[at : at + BLOCK]
            digits = spare("digits", self._form.words, len(block))
            if self._xor:
                np.bitwise_xor(block, under, out=digits)
            else:
                differences(block, under, self._form, digits)
            split_words(digits, [plane[at : at + BLOCK] for plane in out])
        return [plane.data for plane in out]

    def paste(
        self,
        planes: Sequence[Raw],
        base: Words,
        start: int,  # noqa: ARG002
        out: Words,
    ) -> None:
        if len(planes) != self._form.width or any(len(plane) != len(out) for plane in planes):
            raise Damaged(f"{len(out)} words of {self._form.width} bytes have other planes")
        if len(out) != len(base):
            raise ValueError(f"{len(base)} words of a base for {len(out)}")
        arrays = [np.frombuffer(plane, np.uint8) for plane in planes]
        loops = self._compiled(base)
        for at in range(0, len(out), BLOCK):
            some = [plane[at : at + BLOCK] for plane in arrays]
            under, into = base[at : at + BLOCK], out[at : at + BLOCK]
            digits = spare("digits", self._form.words, len(into))
            if loops is not None:
                loops.join(*map(compiled.frozen, (*some, under)), digits)
                np.copyto(into, digits)
                continue
            join_words(some, digits)
            if self._xor:
                np.bitwise_xor(digits, under, out=into)
            else:
                apply_digits(digits, under, self._form, into)


class UnitDelta:
    """Differences of whole words, cut into numbers of several bytes."""

    def __init__(self, cutter: UnitCutter, form: Format) -> None:
        self._cutter = cutter
        self._form = form

    def cut(self, words: Words, base: Words, start: int) -> list[Raw]:
        digits = signed_words(differences(words, base, self._form), self._form)
        return self._cutter.cut(digits.view(self._form.words), start)

    def paste(self, planes: Sequence[Raw], base: Words, start: int, out: Words) -> None:
        for at in range(0, len(out), BLOCK):
            under, into = base[at : at + BLOCK], out[at : at + BLOCK]
            unit = self._cutter.unit
            some = [memoryview(plane)[at * unit : (at + len(into)) * unit] for plane in planes]
            digits = spare("digits", self._form.words, len(into))
            pasted = self._cutter.paste(some, start + at, len(into), digits)
            if pasted is not digits:
                np.copyto(digits, pasted)
            add_difference(digits, under, self._form, into)


def delta_of(config: Config | None) -> Delta | None:
    """The delta that a config names; None where the matrix is stored as it is."""
    if config is None:
        return None
    kind = config.get("id")
    keys = DELTAS.get(kind) if isinstance(kind, str) else None
    if not isinstance(kind, str) or keys is None or keys != set(config):
        raise NewerFormat(
            f"unknown delta {str(dict(config))[:200]}",
            hint="install the version of dlv that wrote it",
        )
    base, overlap = config["base"], config["overlap"]
    predictor = config.get("predictor", [])
    if not isinstance(base, str) or not HASH.match(base):
        raise _bad("its base is not a hash")
    if overlap is not None and not (
        isinstance(overlap, list) and all(type(size) is int and size >= 0 for size in overlap)
    ):
        raise _bad("its overlap is not a shape")
    if not isinstance(predictor, list) or len(predictor) > MAX_PREDICTORS:
        raise _bad("its predictors are not a short list")
    if not all(isinstance(one, dict) and isinstance(one.get("id"), str) for one in predictor):
        raise _bad("a predictor is not a config with an id")
    return Delta(kind, base, None if overlap is None else tuple(overlap), tuple(predictor))


def base_of(config: Config | None) -> str | None:
    """The base matrix that a delta config names, whether or not its id is known."""
    base = None if config is None else config.get("base")
    return base if isinstance(base, str) else None


def delta_cutter(
    kind: str, layout: Layout, side: Raw, dtype: str, shape: Sequence[int]
) -> DeltaCutter:
    """How a delta of this kind is taken in that layout."""
    cutter = layout.cutter(side, dtype, shape)
    if isinstance(cutter, FixedCutter):
        return FixedDelta(kind, cutter)
    if isinstance(cutter, UnitCutter) and kind == "sub":
        return UnitDelta(cutter, format_of(dtype))
    if layout.layout_id == "ieee":
        return WordDelta(kind, format_of(dtype))
    raise NewerFormat(f"a delta in the layout {layout.layout_id!r} is unknown to this dlv")


def overlap_of(shape: Sequence[int], base: Sequence[int]) -> tuple[int, ...] | None:
    """The overlap of a matrix and its base; None for equal shapes. ValueError: other ranks."""
    if tuple(shape) == tuple(base):
        return None
    if len(shape) != len(base):
        raise ValueError(f"shapes {list(shape)} and {list(base)} have different ranks")
    return tuple(map(min, shape, base))


def stretched(
    base: Words, base_shape: Sequence[int], shape: Sequence[int], start: int, count: int
) -> Words:
    """The words from `start` of a base put into another shape: all zero bits outside of it."""
    out = np.zeros(count, base.dtype)
    if not count or not len(base):
        return out
    rest = np.arange(start, start + count)
    index = np.zeros(count, np.int64)
    inside = np.ones(count, np.bool_)
    stride = 1
    for size, there in zip(reversed(shape), reversed(base_shape), strict=True):
        rest, at = np.divmod(rest, size)
        inside &= at < there
        at *= stride
        index += at
        stride *= there
    out[inside] = base[index[inside]]
    return out


def _bad(why: str) -> Damaged:
    return Damaged("a delta is not valid", why=why)
