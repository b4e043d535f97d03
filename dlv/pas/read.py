"""Reading matrices: planes pasted segment by segment, chains of deltas undone in place.

Of several matrices, what their chains share is decoded once. The chains form trees. A tree is
walked from its root, each matrix in the place of its base; where it forks, a copy of the base
serves all branches but the largest. One copy is kept at a time, so memory stays at twice the
largest matrix: a fork within such a branch is reached again from the root.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import dumps, matrix_hasher
from dlv.errors import Damaged, StorageError
from dlv.kinds import Piece, Raw
from dlv.pas.chunks import ChunkSource
from dlv.pas.coders.codecs import context_codec_of
from dlv.pas.coders.context import AboveCodec, ContextCodec, ContextRans, Places, places_of
from dlv.pas.coders.contexts import Scales, numbers
from dlv.pas.coders.numbers import ContextNumbers
from dlv.pas.deltas.difference import delta_cutter, stretched
from dlv.pas.deltas.links import (
    Link,
    Lookup,
    PlaneReader,
    chain,
    check_memory,
    is_above,
    is_context,
    links_of,
)
from dlv.pas.deltas.predictors import predictors_of
from dlv.pas.floats import exponents, format_of
from dlv.pas.footer import Encoding
from dlv.pas.layouts.segments import SEGMENT, UNSIGNED, Words, element_bytes, raw_of


class PlaneDecoder:
    """Gives the planes of any segment of a link, and predictions of its words."""

    def __init__(self, link: Link, source: ChunkSource) -> None:
        self._link = link
        self._source = source
        self._codecs: dict[bytes, ContextCodec] = {}
        side = memoryview(link.side(source))
        own = link.layout.side_bytes(link.dtype, link.encoding.shape) if link.count else 0
        last = len(side) - (Scales.nbytes(link.shape) if link.scale is not None else 0)
        if last < own:
            raise Damaged(f"side data of tensor {link.matrix} is too short")
        self.layout_side: Raw = side[:own]
        self._scales = None if link.scale is None else Scales.parse(side[last:], link.shape)
        configs = () if link.delta is None else link.delta.predictor
        self._predictors = predictors_of(configs, side[own:last], link.dtype, link.shape)
        self._readers = [PlaneReader(link, plane, source) for plane in range(len(link.planes))]

    def predicted(self, base: Words, start: int) -> Words:
        """What the words from `start` are expected to be, given those of the base."""
        for predictor in self._predictors:
            base = predictor.apply(base, start)
        return base

    def bounded(self, low: Words, high: Words, start: int) -> tuple[Words, Words]:
        """Bounds of what is predicted from bounds of the base, both in the ordered map."""
        for predictor in self._predictors:
            low, high = predictor.bounds(low, high, start)
        return low, high

    def planes(
        self, start: int, count: int, exponents: NDArray[np.uint16] | None = None
    ) -> list[Raw]:
        """All planes of the words from `start`, which begin a segment."""
        found: list[Raw] = []
        q: NDArray[np.uint8] | None = None
        places: Places | None = None
        for plane, reader in enumerate(self._readers):
            if self._link.uneven(plane):
                found.append(reader.segment(start // SEGMENT))
                continue
            unit = self._link.unit
            piece = reader.piece_at(start * unit)
            above = found[-1] if found else None
            if is_context(piece):
                if q is None:
                    q = self._q(exponents, start)
                codec = self._codec(piece)
                stored = reader.stored(start * unit)[1]
                if isinstance(codec, ContextNumbers):
                    places = places or places_of(q)
                    found.append(codec.decode_sorted(stored, places))
                    continue
                upper = None if above is None else np.frombuffer(above, np.uint8)
                found.append(codec.decode(stored, numbers(q, upper, codec.lo)))
            elif is_above(piece):
                assert above is not None
                found.append(AboveCodec().decode(reader.stored(start)[1], above))
            else:
                found.append(reader.read(start * unit, count * unit))
        return found

    def _q(self, exponents: NDArray[np.uint16] | None, start: int) -> NDArray[np.uint8]:
        if self._scales is None or exponents is None:
            raise Damaged(f"tensor {self._link.matrix} has contexts and no scales")
        return self._scales.q(exponents, start)

    def _codec(self, piece: Piece) -> ContextCodec:
        """The codec of a chunk, with the table it names; a plane's segments mostly share one."""
        key = dumps(piece.codec)
        if key not in self._codecs:
            codec = context_codec_of(piece.codec)
            assert codec is not None
            if isinstance(codec, ContextRans):
                codec = codec.with_table(self._source.object("table", codec.table))
            self._codecs[key] = codec
        return self._codecs[key]


Exponents = NDArray[Any]  # uint8 where that holds them, or else uint16

ALL = 1 << 30


def read_matrix(matrix: str, lookup: Lookup, source: ChunkSource) -> Raw:
    """The little-endian bytes of a matrix, checked against its name."""
    links = links_of(chain(matrix, lookup), source, ALL)
    words = _build(links, 0, links[0].count, source)
    check_hash(links[0], words)
    return raw_of(words)


def read_slice(matrix: str, start: int, count: int, lookup: Lookup, source: ChunkSource) -> Raw:
    """The bytes of `count` elements from `start`; of opaque dtypes, of bytes.

    Only the segments that hold them are read, of each matrix on the chain. Their chunks'
    checksums hold; the matrix's name can only be checked against the whole.
    """
    links = links_of(chain(matrix, lookup), source, ALL)
    target = links[0]
    each = element_bytes(target.dtype) // target.word
    first, last = start * each, (start + count) * each
    if start < 0 or count < 0 or last > target.count:
        raise ValueError(
            f"elements {start} .. {start + count} of a tensor of {target.count // each}"
        )
    if not count:
        return b""
    low = first // SEGMENT * SEGMENT
    high = min(-(-last // SEGMENT) * SEGMENT, target.count)
    return raw_of(_build(links, low, high, source)[first - low : last - low])


def check_hash(link: Link, words: Words) -> None:
    """Damaged unless these are the words that the matrix's name promises."""
    hasher = matrix_hasher(link.dtype, link.encoding.shape)
    hasher.update(raw_of(words))
    if hasher.hexdigest() != link.matrix:
        raise Damaged(
            f"tensor {link.matrix} is corrupt",
            why="its chunks are intact, but do not match its hash",
            hint="dlv fsck",
        )


def _build(links: Sequence[Link], low: int, high: int, source: ChunkSource) -> Words:
    """The words low .. high of the first of a chain, built up from the last."""
    builder = Builder(source)
    spans = ranges(links, low, high)
    for index in reversed(range(len(links))):
        builder.keep = far_scales(links[:index])
        builder.add(links[index], *spans[index])
    return builder.words


def ranges(links: Sequence[Link], low: int, high: int) -> list[tuple[int, int]]:
    """Which words of each link are needed: below one of another shape, all."""
    found = [(low, high)]
    for link, base in itertools.pairwise(links):
        reshaped = link.delta is not None and link.delta.overlap is not None
        found.append((0, base.count) if reshaped else found[-1])
    return found


def far_scales(links: Sequence[Link]) -> set[str]:
    """The matrices whose exponents must be remembered: those that are not the very base."""
    return {
        link.scale
        for link in links
        if link.scale is not None and link.delta is not None and link.scale != link.delta.base
    }


class Builder:
    """One matrix of a chain after the other, each in the place of its base.

    `keep` names the matrices whose exponents later links need and no base gives; set it
    before each link.
    """

    def __init__(self, source: ChunkSource, keep: set[str] | None = None) -> None:
        self._source = source
        self.keep = keep or set()
        self.held: dict[str, Exponents] = {}
        self.link: Link | None = None
        self.words: Words = np.empty(0, np.uint8)

    def add(self, link: Link, start: int, stop: int) -> None:
        """Apply the words start .. stop of the next link to those of its base."""
        try:
            self._add(link, start, stop)
        except MemoryError as error:
            raise StorageError(
                f"tensor {link.matrix} does not fit into memory",
                why=f"it has {link.count * link.word} bytes",
            ) from error

    def _add(self, link: Link, start: int, stop: int) -> None:
        check_memory((stop - start) * link.word, link.matrix)
        base = self.link
        if link.delta is None or base is None:
            self._materialise(link, start, stop)
        else:
            if link.delta.overlap is not None:
                self._stretch(base, link, start, stop)
            self._difference(link, start)
        self.link = link
        self.held = {name: held for name, held in self.held.items() if name in self.keep}
        if link.matrix in self.keep and format_of(link.dtype).exponent:
            self.held[link.matrix] = exponents_of(self.words, link.dtype)

    def _materialise(self, link: Link, start: int, stop: int) -> None:
        decoder = PlaneDecoder(link, self._source)
        cutter = link.layout.cutter(decoder.layout_side, link.dtype, link.encoding.shape)
        words = np.empty(stop - start, UNSIGNED[link.word])
        for at in range(start, stop, SEGMENT):
            count = min(SEGMENT, stop - at)
            place = words[at - start : at - start + count]
            pasted = cutter.paste(decoder.planes(at, count), at, count, place)
            if pasted is not place:
                place[:] = pasted
        self.words = words

    def _difference(self, link: Link, start: int) -> None:
        assert link.delta is not None
        decoder = PlaneDecoder(link, self._source)
        cutter = delta_cutter(
            link.delta.kind, link.layout, decoder.layout_side, link.dtype, link.encoding.shape
        )
        form = format_of(link.dtype)
        held = None if link.scale is None else self.held.get(link.scale)
        for first in range(0, len(self.words), SEGMENT):
            base = self.words[first : first + SEGMENT]
            at = start + first
            scale = None
            if held is not None:
                scale = held[first : first + SEGMENT].astype(np.uint16)
            elif link.scale is not None:
                scale = exponents(base, form)
            planes = decoder.planes(at, len(base), scale)
            cutter.paste(planes, decoder.predicted(base, at), at, base)

    def _stretch(self, base: Link, link: Link, start: int, stop: int) -> None:
        """The base and what is held of others in the shape of the next link."""
        old, new = base.shape, link.shape

        def fitted(words: Words) -> Words:
            out = np.empty(stop - start, words.dtype)
            for at in range(start, stop, SEGMENT):
                count = min(SEGMENT, stop - at)
                out[at - start : at - start + count] = stretched(words, old, new, at, count)
            return out

        self.words = fitted(self.words)
        self.held = {name: fitted(held) for name, held in self.held.items()}


def exponents_of(words: Words, dtype: str) -> Exponents:
    """The exponent of each word, in as few bytes as hold it."""
    form = format_of(dtype)
    found = np.empty(len(words), np.uint8 if form.exponent <= 8 else np.uint16)
    for at in range(0, len(words), SEGMENT):
        found[at : at + SEGMENT] = exponents(words[at : at + SEGMENT], form)
    return found


def families(matrices: Iterable[str], lookup: Lookup) -> list[list[str]]:
    """Those matrices that share a root, together, in the order in which they were named."""
    found: dict[str, list[str]] = {}
    for matrix in dict.fromkeys(matrices):
        found.setdefault(chain(matrix, lookup)[-1].matrix, []).append(matrix)
    return list(found.values())


def read_together(
    matrices: Iterable[str], lookup: Lookup, source: ChunkSource
) -> Iterator[tuple[str, Raw]]:
    """Each of the matrices once, by name, bases before what rests on them.

    The bytes are checked against the name. They hold until the next ones are asked for.
    """
    tree = _Tree(matrices, lookup, source)
    while tree.waiting:
        yield from tree.walk(tree.waiting.popleft())


class _Tree:
    """The links of all chains; each stands upon its base."""

    def __init__(self, matrices: Iterable[str], lookup: Lookup, source: ChunkSource) -> None:
        self._source = source
        self._wanted = dict.fromkeys(matrices)
        self._links: dict[str, Link] = {}
        self._children: dict[str, list[str]] = {}
        self._keep: dict[str, set[str]] = {}  # whose exponents are needed above each matrix
        self.waiting: deque[str] = deque()  # where walks have to start
        chains = sorted((chain(matrix, lookup) for matrix in self._wanted), key=len, reverse=True)
        for encodings in chains:  # the longest first: most others are part of them
            self._load(encodings)
        self._sizes = self._weigh()

    def _load(self, encodings: Sequence[Encoding]) -> None:
        if encodings[0].matrix in self._links:
            return
        links = links_of(encodings, self._source, ALL)
        for link in links:
            if link.matrix in self._links:
                break
            self._links[link.matrix] = link
            self._children.setdefault(link.matrix, [])
            if link.delta is None:
                self.waiting.append(link.matrix)
            else:
                self._children.setdefault(link.delta.base, []).append(link.matrix)

    def _weigh(self) -> dict[str, int]:
        """How many bytes rest on each matrix, with its own."""
        order: list[str] = []
        rest = list(self.waiting)
        while rest:
            order.append(rest.pop())
            rest += self._children[order[-1]]
        sizes: dict[str, int] = {}
        for name in reversed(order):
            link, above = self._links[name], self._children[name]
            sizes[name] = link.count * link.word + sum(sizes[child] for child in above)
            self._keep[name] = far_scales([self._links[child] for child in above]).union(
                *(self._keep[child] for child in above)
            )
        return sizes

    def walk(self, start: str) -> Iterator[tuple[str, Raw]]:
        """From one matrix to what rests on it."""
        builder = Builder(self._source)
        path: list[Link] = []
        delta = self._links[start].delta
        while delta is not None:
            path.append(self._links[delta.base])
            delta = path[-1].delta
        for link in reversed(path):
            self._add(builder, link)
        yield from self._along(builder, start, fork=True)

    def _along(self, builder: Builder, start: str, *, fork: bool) -> Iterator[tuple[str, Raw]]:
        name: str | None = start
        while name is not None:
            link = self._links[name]
            self._add(builder, link)
            if name in self._wanted:
                check_hash(link, builder.words)
                yield name, raw_of(builder.words)
            others = self._by_size(name)
            name = others.pop() if others else None
            # The caller may still hold the last bytes, because branches share memory.
            copy = np.empty_like(builder.words) if fork and others else None
            for other in others:
                if copy is None:
                    self.waiting.append(other)
                    continue
                np.copyto(copy, builder.words)
                branch = Builder(self._source)
                branch.words, branch.link, branch.held = copy, link, {**builder.held}
                yield from self._along(branch, other, fork=False)

    def _by_size(self, name: str) -> list[str]:
        """What rests on a matrix, the largest branch last."""
        return sorted(self._children[name], key=lambda child: self._sizes[child])

    def _add(self, builder: Builder, link: Link) -> None:
        builder.keep = self._keep[link.matrix]
        builder.add(link, 0, link.count)
