"""Approximate reading: bounds of every number from the first planes of a matrix and its bases.

`ieee` is bounded in the order-preserving map of words, `fixed` in that of codes; both are
integers, so that nothing is rounded until the very end.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.dataclass import dataclass
from dlv.kinds import Floats, Piece, Raw
from dlv.pas.chunks import ChunkSource
from dlv.pas.deltas.difference import mapped, stretched, unmapped
from dlv.pas.deltas.links import Link, Lookup, chain, is_context, link_of, links_of
from dlv.pas.floats import exponents, float8_numbers, format_of, ordered, unordered, values_of_words
from dlv.pas.footer import Encoding
from dlv.pas.layouts.fixed import EMPTY, Fixed, Halved, Leading, leading_bits
from dlv.pas.layouts.segments import OPAQUE, SEGMENT, UNSIGNED, Ieee, Layout, Words
from dlv.pas.layouts.units import Units
from dlv.pas.read import ALL, Builder, PlaneDecoder, check_hash, exponents_of, far_scales, ranges

WHOLE = 1 << 53  # beyond, float64 does not hold every integer


def numbers_of(words: Words, dtype: str) -> tuple[Floats, Floats]:
    """The numbers, twice: where float64 does not hold them, one not above and one not below."""
    form = format_of(dtype)
    if dtype.startswith("float8"):
        small: Floats = float8_numbers(dtype)[words]
        return small, small
    if form.kind == "float":
        found = values_of_words(words, dtype)
        return found, found
    whole = words.view(f"<i{form.width}") if form.kind == "signed" else words
    found = whole.astype(np.float64)
    if form.width < 8:
        return found, found
    large = np.abs(found) >= WHOLE
    low = np.where(large, np.nextafter(found, -np.inf), found)
    high = np.where(large, np.nextafter(found, np.inf), found)
    return low, high


class Counted:
    """A source that counts the stored bytes that are asked for, each chunk once."""

    def __init__(self, source: ChunkSource) -> None:
        self._source = source
        self._seen: set[tuple[str, int]] = set()
        self.bytes = 0

    def chunks(self, matrix: str) -> Sequence[Piece]:
        return self._source.chunks(matrix)

    def read(self, piece: Piece) -> Raw:
        self._count(piece)
        return self._source.read(piece)

    def stored(self, piece: Piece) -> Raw:
        self._count(piece)
        return self._source.stored(piece)

    def object(self, kind: str, name: str) -> Raw:
        return self._source.object(kind, name)

    def _count(self, piece: Piece) -> None:
        key = piece.pack, piece.offset
        if key not in self._seen:
            self._seen.add(key)
            self.bytes += piece.length


HALF = 1 << 23  # the mapped code of +0
CODES = 1 << 24
QUARTER = 1 << 22  # a magnitude in the upper half


@dataclass(frozen=True)
class Level:
    """What is known of each word, in the matrix's shape (complex numbers: one more axis of 2).

    Every number lies within low .. high. `exact`: all three are the number itself, which may
    then be NaN or infinite.
    """

    centre: Floats
    low: Floats
    high: Floats
    exact: bool
    bytes_read: int


@dataclass(frozen=True)
class Unusable:
    """These planes do not bound every number of the matrix."""

    why: str
    bytes_read: int


def level(
    matrix: str, k: int, lookup: Lookup, source: ChunkSource, span: tuple[int, int] | None = None
) -> Level | Unusable:
    """Bounds from the first `k` planes of a matrix and of all its bases.

    `span`: only of these words, flat; it begins and ends where segments do. Below a base of
    another shape all of it is read. Only the whole can be held against the matrix's name.
    """
    if k < 1:
        raise ValueError("a level has at least one plane")
    counted = Counted(source)
    encodings = chain(matrix, lookup)
    links, needs = _links(encodings, counted, k)
    target = links[0]
    if target.dtype.startswith(OPAQUE):
        return Unusable("its bytes are opaque", 0)
    whole = next((i for i, need in enumerate(needs) if need >= ALL), len(links))
    builder = Builder(counted, far_scales(links))
    spans = ranges(links, *(span or (0, target.count)))
    for link, (start, stop) in reversed([*zip(links, spans, strict=True)][whole:]):
        builder.add(link, start, stop)
    shape = target.shape if span is None else (span[1] - span[0],)
    if whole == 0:
        if span is None:
            check_hash(target, builder.words)
        low, high = (part.reshape(shape) for part in numbers_of(builder.words, target.dtype))
        return Level(low, low, high, True, counted.bytes)
    if why := _mixed(links[:whole], links[whole] if whole < len(links) else None):
        return Unusable(why, 0)
    kind = _Codes if isinstance(target.layout, Fixed) else _Words
    bounds = kind(counted, builder)
    for link, (start, stop) in reversed([*zip(links, spans, strict=True)][:whole]):
        if why := bounds.add(link, start, stop):
            return Unusable(why, counted.bytes)
    return bounds.level(target, shape, counted.bytes)


def needed(matrix: str, k: int, lookup: Lookup, source: ChunkSource) -> list[Piece]:
    """The pieces that `level` reads for that, of all matrices on the chain."""
    links, _ = _links(chain(matrix, lookup), source, k)
    return [piece for link in links for part in (link.sides, *link.planes) for piece in part]


def _links(
    encodings: Sequence[Encoding], source: ChunkSource, k: int
) -> tuple[list[Link], list[int]]:
    """A chain with the planes that must be read of it, and how many these are."""
    links = links_of(encodings, source, k)
    needs = _needs(links, k)
    if any(min(n, each.planes) > k for n, each in zip(needs, encodings, strict=True)):
        links = links_of(encodings, source, needs)
    return links, needs


def _needs(links: Sequence[Link], k: int) -> list[int]:
    """How many planes of each link must be read: contexts need exponents that are certain."""
    needs = [ALL if k >= links[0].encoding.planes else k] * len(links)
    if needs[0] < ALL and isinstance(target := links[0].layout, Fixed):
        # Bases need not have the same bits in as many planes.
        for index, link in enumerate(links[1:], 1):
            if isinstance(link.layout, Fixed):
                needs[index] = link.layout.planes_for(target.depths[k - 1], link.dtype)
    elif needs[0] < ALL:
        needs = [-(-k * links[0].unit // link.unit) for link in links]
    place = {link.matrix: index for index, link in enumerate(links)}
    for index, link in enumerate(links):
        if index and needs[index] >= link.encoding.planes:
            needs[index] = ALL
        if not any(is_context(piece) for planes in link.planes for piece in planes):
            continue
        scale = place[str(link.scale)]
        plain = all(
            below.layout.layout_id == "ieee" and (below.delta is None or below.delta.kind == "xor")
            for below in links[scale:]
        )
        form = format_of(link.dtype)
        least = -(-(1 + form.exponent) // 8) if plain else ALL
        if form.exponent == 0:
            least = 1
        for below in range(scale, len(links)):
            needs[below] = max(needs[below], least)
    for index in range(1, len(links)):
        # Whole means whole all the way down.
        if needs[index - 1] >= ALL or needs[index] >= links[index].encoding.planes:
            for below in range(index, len(links)):
                needs[below] = ALL
    return needs


def _mixed(links: Sequence[Link], known: Link | None) -> str | None:
    """Why bounds do not pass along the chain, if they do not."""
    for link, base in itertools.pairwise([*links, *([known] if known is not None else [])]):
        if base is not known and not _alike(link.layout, base.layout):
            return f"tensor {link.matrix} has another layout than its base"
    if links[-1].delta is None and links[-1].layout.layout_id not in ("ieee", "fixed", "halved"):
        return f"the planes of the layout {links[-1].layout.layout_id!r} are not bounds"
    return None


def _alike(layout: Layout, base: Layout) -> bool:
    """Whether a prefix of the base's words is one of the target's; exponents are looked at later.

    What is XORed with a base of `halved` is in `fixed`.
    """
    if isinstance(layout, Fixed) and isinstance(base, Halved):
        same = (layout.rows, layout.zero_centre) == (base.rows, base.zero_centre)
        return same and not isinstance(layout, Halved)
    words = (Ieee, Units)  # cut at other places, but the same words
    if isinstance(layout, words) and isinstance(base, words):
        return True
    return layout.get_config() == base.get_config()


class _Words:
    """Bounds of words in the order-preserving map, one link after the other."""

    def __init__(self, source: ChunkSource, known: Builder) -> None:
        self._source = source
        self._base = known.link
        self._held = known.held
        self._scales = known.keep
        empty = known.words
        if known.link is not None:
            empty = ordered(known.words, format_of(known.link.dtype))
        self._low = self._high = self._centre = empty

    def add(self, link: Link, start: int, stop: int) -> str | None:
        """Take in words of the next link; why its level is unusable, if it is."""
        form = format_of(link.dtype)
        base = self._base
        if link.delta is None:
            parts = [np.empty(stop - start, form.words) for _ in range(3)]
        elif link.delta.overlap is not None and base is not None:
            self._held = {
                name: stretched(held, base.shape, link.shape, start, stop - start)
                for name, held in self._held.items()
            }
            parts = [self._fitted(part, base, link, start, stop) for part in self._parts()]
        else:
            parts = [part.copy() for part in self._parts()]
        self._low, self._high, self._centre = parts
        decoder = PlaneDecoder(link, self._source)
        for first in range(start, stop, SEGMENT):
            at = slice(first - start, min(first + SEGMENT, stop) - start)
            if why := self._segment(link, decoder, at, first):
                return why
        self._base = link
        if link.matrix in self._scales and form.exponent:
            self._held[link.matrix] = exponents_of(unordered(self._low, form), link.dtype)
        return None

    def _parts(self) -> list[Words]:
        return [self._low, self._high, self._centre]

    def _fitted(self, part: Words, base: Link, link: Link, start: int, stop: int) -> Words:
        form = format_of(link.dtype)
        whole = stretched(unordered(part, form), base.shape, link.shape, start, stop - start)
        return ordered(whole, form)

    def _segment(self, link: Link, decoder: PlaneDecoder, span: slice, first: int) -> str | None:
        form = format_of(link.dtype)
        count = span.stop - span.start
        known = len(link.planes)
        scale: NDArray[np.uint16] | None = None
        if link.scale is not None:
            held = self._held.get(link.scale)
            if held is None:
                scale = exponents(unordered(self._low[span], form), form)
            else:
                scale = held[span].astype(np.uint16)
        planes = decoder.planes(first, count, scale)
        digits = np.zeros(count, form.words)
        unit = link.unit
        for plane, data in enumerate(planes):
            down = form.words.type(8 * (form.width - unit * (1 + plane)))
            digits |= np.frombuffer(data, UNSIGNED[unit]).astype(form.words) << down
        unread = form.words.type((1 << (8 * (form.width - unit * known))) - 1)
        if link.delta is not None and link.delta.kind == "sub":
            return self._difference(link, decoder, span, first, digits, unread)
        if link.delta is not None:
            if ((self._low[span] ^ self._high[span]) & ~unread).any():
                return f"the first planes of the base of tensor {link.matrix} are not certain"
            digits ^= unordered(self._low[span], form) & ~unread
        low = ordered(digits, form) & ~unread
        self._low[span] = low
        self._high[span] = low | unread
        self._centre[span] = low | (unread >> form.words.type(1))
        return None

    def _difference(
        self,
        link: Link,
        decoder: PlaneDecoder,
        span: slice,
        place: int,
        digits: Words,
        unread: Words,
    ) -> str | None:
        form = format_of(link.dtype)
        low, high = decoder.bounded(self._low[span], self._high[span], place)
        centre = unordered(self._centre[span], form)
        centre = ordered(decoder.predicted(centre, place), form)
        centre = np.minimum(np.maximum(centre, low), high)
        most = (1 << 8 * link.unit) - 1
        eights = form.words.type(((1 << form.bits) - 1) // most * ((most + 1) // 2))
        step = (digits ^ eights) - eights
        # Digits not read count from the least to the greatest of theirs: `unread` end to end.
        below = (unread // form.words.type(most)) * form.words.type((most + 1) // 2)
        width = high - low
        if (width > ~unread).any():
            return f"the difference of tensor {link.matrix} may be anything"
        first = low + step - below
        last = first + width + unread
        if (last < first).any():
            return f"the bounds of tensor {link.matrix} pass the end of the numbers"
        self._centre[span] = first + (centre - low) + below
        self._low[span], self._high[span] = first, last
        return None

    def level(self, target: Link, shape: tuple[int, ...], count: int) -> Level | Unusable:
        form = format_of(target.dtype)
        low, _ = numbers_of(unordered(self._low, form), target.dtype)
        _, high = numbers_of(unordered(self._high, form), target.dtype)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            return Unusable("some values may be infinite or NaN", count)
        centre, _ = numbers_of(unordered(self._centre, form), target.dtype)
        return Level(centre.reshape(shape), low.reshape(shape), high.reshape(shape), False, count)


class _Codes:
    """Bounds of codes of `fixed` in their map, one link after the other.

    Codes from low to high mean numbers between low and high + 1 units; the centre is in halves
    of a unit from zero.
    """

    def __init__(self, source: ChunkSource, known: Builder) -> None:
        self._source = source
        self._known = known
        self._base = known.link
        self._low = self._high = self._centre = np.empty(0, np.int64)
        self._rows = np.empty(0, np.int32)
        self._smallest = False  # of the base the row exponents are, and nothing names them

    def add(self, link: Link, start: int, stop: int) -> str | None:
        """Take in words of the next link; why its level is unusable, if it is."""
        assert isinstance(link.layout, Fixed)
        decoder = PlaneDecoder(link, self._source)
        cutter = link.layout.fixed_cutter(decoder.layout_side, link.dtype, link.encoding.shape)
        if link.delta is not None and self._known.link is self._base and self._base is not None:
            e = cutter.exponents_at(start, len(self._known.words))
            codes = cutter.codes(self._known.words, e) if self._base.shape == link.shape else None
            if codes is None:
                return f"the base of tensor {link.matrix} does not fit into its row exponents"
            self._low = self._high = mapped(codes.code).astype(np.int64) - HALF
            self._centre = 2 * self._low + 1
        if link.delta is None:
            parts = [np.empty(stop - start, np.int64) for _ in range(3)]
        elif link.delta.overlap is not None and self._base is not None:
            old, new = self._base.shape, link.shape
            parts = [
                stretched(part, old, new, start, stop - start)
                for part in (self._low, self._high, self._centre)
            ]
        else:
            parts = [self._low.copy(), self._high.copy(), self._centre.copy()]
        self._low, self._high, self._centre = parts
        for first in range(start, stop, SEGMENT):
            at = slice(first - start, min(first + SEGMENT, stop) - start)
            if why := self._segment(link, decoder, at, first):
                return why
        if isinstance(link.layout, Halved) and link.count == stop - start > 0:
            large = (self._low >= QUARTER) | (self._high < -QUARTER)
            exponents = link.layout.row_exponents(decoder.layout_side, link.dtype, link.shape)
            link.layout.check_smallest(large, exponents, link.shape)
        rows = cutter.exponents_at(start, stop - start)
        if link.delta is not None and self._smallest and not np.array_equal(rows, self._rows):
            return f"tensor {link.matrix} has other row exponents than its base"
        self._base, self._rows = link, rows
        self._smallest = isinstance(link.layout, Halved)
        return None

    def _segment(self, link: Link, decoder: PlaneDecoder, span: slice, place: int) -> str | None:
        assert isinstance(link.layout, Fixed)
        count = span.stop - span.start
        known = min(len(link.layout.depths), len(link.planes))
        scale = None
        if link.scale is not None:
            held = self._known.held.get(link.scale)
            known_base = self._known.link
            if held is not None:
                scale = held[span].astype(np.uint16)
            elif known_base is not None and known_base.matrix == link.scale:
                scale = exponents(self._known.words[span], format_of(link.dtype))
            else:
                return f"the contexts of tensor {link.matrix} are not certain"
        digits = link.layout.code(decoder.planes(place, count, scale)[:known], count)
        unread = CODES // (1 << link.layout.depths[known - 1]) - 1
        low, high, centre = self._low[span], self._high[span], self._centre[span]
        if link.delta is not None and link.delta.kind == "sub":
            eights = np.uint32(0x808080)
            step = ((digits ^ eights) - eights).view(np.int32).astype(np.int64)
            below = unread // 255 * 128
            low += step - below
            high += step - below + unread
            centre += 2 * step
            # Within one turn around all codes the code is certain, or else anything.
            turn = (low + HALF) // CODES
            wraps = turn != (high + HALF) // CODES
            for part, size in ((low, CODES), (high, CODES), (centre, 2 * CODES)):
                part -= turn * size
            low[wraps], high[wraps], centre[wraps] = -HALF, HALF - 1, 0
            return None
        if link.delta is not None:
            if (((low + HALF) ^ (high + HALF)) & ~unread).any():
                return f"the first planes of the base of tensor {link.matrix} are not certain"
            digits ^= unmapped((low + HALF).astype(np.uint32)) & np.uint32(~unread & (CODES - 1))
        first = (mapped(digits).astype(np.int64) & ~unread) - HALF
        low[:], high[:] = first, first + unread
        centre[:] = 2 * first + unread + 1
        if link.layout.zero_centre:
            centre[(first == 0) | (first + unread == -1)] = 0
        return None

    def level(
        self,
        target: Link,  # noqa: ARG002
        shape: tuple[int, ...],
        count: int,
    ) -> Level | Unusable:
        rows = self._rows
        rows = np.where(rows == EMPTY, 0, rows)
        scale = rows - 23
        low = np.ldexp(self._low.astype(np.float64), scale)
        high = np.ldexp((self._high + 1).astype(np.float64), scale)
        least, most = 2 * self._low, 2 * (self._high + 1)
        centre = np.ldexp(np.clip(self._centre, least, most).astype(np.float64), scale - 1)
        zero = self._rows == EMPTY
        for part in (low, high, centre):
            part[zero] = 0.0
        return Level(centre.reshape(shape), low.reshape(shape), high.reshape(shape), False, count)


Ints = NDArray[np.signedinteger[Any]]

_BLOCK = 1 << 14  # numbers


def centre(matrix: str, k: int, lookup: Lookup, source: ChunkSource) -> Floats | None:
    """What `level` has for a centre after `k` planes; None where only `level` can tell."""
    encodings = chain(matrix, lookup)
    encoding = encodings[0]
    if len(encodings) > 1 or not 0 < k < encoding.planes:
        return None
    link = link_of(encoding, source, k)
    if not isinstance(link.layout, Fixed) or not link.count:
        return None
    bits = link.layout.depths[k - 1]
    decoder = PlaneDecoder(link, source)
    values = np.empty(link.count)
    for start in range(0, link.count, SEGMENT):
        count = min(SEGMENT, link.count - start)
        leading = link.layout.leading(decoder.planes(start, count)[:k], count)
        # What a step makes stays in the processor's cache, and in memory that was used before.
        for at in range(0, count, _BLOCK):
            some = leading[at : at + _BLOCK]
            middles = _middles(some, bits, link.layout.zero_centre)
            values[start + at : start + at + len(some)] = middles
    return _scaled(values, link.layout, decoder.layout_side, encoding.shape, bits)


def _middles(leading: Leading, bits: int, zero_centre: bool) -> Ints:
    """Of each cell the middle, in halves of one, in numbers no wider than these need."""
    behind = leading_bits(leading)
    sign = 1 << (behind - 1)
    size = (leading & (sign - 1)) >> (behind - bits)
    found: Ints = size.astype(np.int16 if leading.itemsize == 1 else np.int32)
    found <<= 1
    found |= 1
    if zero_centre:
        found[found == 1] = 0
    np.negative(found, out=found, where=leading >= sign)
    return found


def _scaled(
    values: Floats,
    layout: Fixed,
    side: bytes | bytearray | memoryview,
    shape: tuple[int, ...],
    bits: int,
) -> Floats:
    """Each row in its own unit; a row of zeros is zero."""
    exponents = np.frombuffer(side, "<i2").astype(np.int32)
    units = np.ldexp(1.0, np.where(exponents == EMPTY, 0, exponents) - bits)
    units[exponents == EMPTY] = 0.0
    by_row = len(shape) < 2 or layout.rows == "first"
    if isinstance(layout, Halved):
        layout.check_smallest(np.abs(values) > 1 << (bits - 1), exponents, shape)
    found = values.reshape(len(units), -1) if by_row else values.reshape(-1, len(units))
    found *= units[:, None] if by_row else units
    # In a product, zeros of both signs are the same number.
    if not units.all():
        found += 0.0
    return found.reshape(shape)
