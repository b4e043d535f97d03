"""Reading matrices: planes pasted segment by segment, chains of deltas undone in place."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import matrix_hasher
from dlv.errors import Damaged, StorageError
from dlv.kinds import Raw
from dlv.pas.deltas.difference import delta_cutter, stretched
from dlv.pas.deltas.links import MAX_CHAIN as MAX_CHAIN
from dlv.pas.deltas.links import Link, Lookup, check_memory, links_of
from dlv.pas.deltas.links import chain as chain
from dlv.pas.floats import exponents, format_of
from dlv.pas.layouts.segments import SEGMENT, UNSIGNED, Words, element_bytes, raw_of
from dlv.pas.pieces import ChunkSource
from dlv.pas.pieces import Piece as Piece
from dlv.pas.pieces import join_pieces as join_pieces
from dlv.pas.planes import PlaneDecoder

Exponents = NDArray[Any]  # uint8 where that holds them, or else uint16

ALL = 1 << 30


def read_matrix(matrix: str, lookup: Lookup, source: ChunkSource) -> Raw:
    """The little-endian bytes of a matrix, checked against its name."""
    links = links_of(chain(matrix, lookup), source, ALL)
    words = _built(links, 0, links[0].count, source)
    check_hash(links[0], words)
    return raw_of(words)


def read_scaled(
    matrix: str, lookup: Lookup, source: ChunkSource
) -> tuple[Raw, str, Exponents | None]:
    """A matrix that is to be a base, and what counts for contexts against it.

    That is the nearest matrix on its chain below which there is no `sub`, so that its first
    planes tell its exponents: its name, and the exponents at each word of the base's shape;
    None where it is the base itself.
    """
    links = links_of(chain(matrix, lookup), source, ALL)
    scale = links[-1]
    for link in reversed(links):
        if link.delta is not None and link.delta.kind == "sub":
            break
        scale = link
    if scale is links[0] or not format_of(scale.dtype).exponent:
        return read_matrix(matrix, lookup, source), matrix, None
    builder = Builder(source)
    spans = ranges(links, 0, links[0].count)
    for index in reversed(range(len(links))):
        builder.keep = far_scales(links[:index]) | {scale.matrix}
        builder.add(links[index], *spans[index])
    check_hash(links[0], builder.words)
    return raw_of(builder.words), scale.matrix, builder.held[scale.matrix]


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
            f"elements {start} .. {start + count} of a matrix of {target.count // each}"
        )
    if not count:
        return b""
    low = first // SEGMENT * SEGMENT
    high = min(-(-last // SEGMENT) * SEGMENT, target.count)
    return raw_of(_built(links, low, high, source)[first - low : last - low])


def read_planes(matrix: str, count: int, lookup: Lookup, source: ChunkSource) -> list[Raw]:
    """The first `count` planes of a matrix in its layout (all, if it has fewer).

    Of a matrix stored without a delta only these are read.
    """
    encodings = chain(matrix, lookup)
    if encodings[0].delta is not None:
        raw = read_matrix(matrix, lookup, source)
        target = links_of(encodings, source, ALL)[0]
        side = bytes(target.side(source))[
            : target.layout.side_bytes(target.dtype, target.encoding.shape)
        ]
        cutter = target.layout.cutter(side, target.dtype, target.encoding.shape)
        words = np.frombuffer(raw, UNSIGNED[target.word])
        parts = [cutter.cut(words[at : at + SEGMENT], at) for at in range(0, len(words), SEGMENT)]
        return [
            b"".join(part[plane] for part in parts)
            for plane in range(min(count, target.encoding.planes))
        ]
    target = links_of(encodings, source, count)[0]
    return [
        join_pieces(pieces, None, source, target.what(plane)) if pieces else b""
        for plane, pieces in enumerate(target.planes)
    ]


def check_hash(link: Link, words: Words) -> None:
    """Damaged unless these are the words that the matrix's name promises."""
    hasher = matrix_hasher(link.dtype, link.encoding.shape)
    hasher.update(raw_of(words))
    if hasher.hexdigest() != link.matrix:
        raise Damaged(
            f"matrix {link.matrix} is damaged",
            why="its chunks are whole but do not join to what its name promises",
            hint="dlv fsck",
        )


def _built(links: Sequence[Link], low: int, high: int, source: ChunkSource) -> Words:
    """The words low .. high of the first of a chain, built up from the last."""
    try:
        return _build(links, low, high, source)
    except MemoryError as error:
        raise StorageError(
            f"matrix {links[0].matrix} does not fit into memory",
            why=f"it has {links[0].count * links[0].word} bytes",
        ) from error


def _build(links: Sequence[Link], low: int, high: int, source: ChunkSource) -> Words:
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
        """The words start .. stop of the next link; its base's are there already."""
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
            words[at - start : at - start + count] = cutter.paste(
                decoder.planes(at, count), at, count
            )
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
