"""The links of a chain: a matrix, the base it is a delta against, that one's base, and so on.

A link is one matrix's encoding and pieces, looked at before anything is read: that they cover
the matrix, that shapes and configs agree along the chain.
"""

from __future__ import annotations

import bisect
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property

from dlv.dataclass import dataclass
from dlv.errors import Damaged, StorageError
from dlv.kinds import Piece, Raw
from dlv.pas.chunks import ChunkSource, in_order, join_pieces, piece_of
from dlv.pas.coders.codecs import codec_of, context_codec_of
from dlv.pas.coders.context import AboveCodec
from dlv.pas.coders.contexts import Scales
from dlv.pas.deltas.difference import Delta, base_of, delta_of, overlap_of
from dlv.pas.deltas.predictors import side_length
from dlv.pas.footer import Encoding
from dlv.pas.layouts.registry import layout_of
from dlv.pas.layouts.segments import OPAQUE, SEGMENT, Layout, matrix_bytes, word_shape, words_of
from dlv.pas.layouts.units import Units

MAX_CHAIN = 64
# Exponents of this many matrices further down a chain may be needed at one time.
MAX_HELD = 2

Lookup = Callable[[str], Encoding | None]


def chain(matrix: str, lookup: Lookup) -> list[Encoding]:
    """The encodings of a matrix and of the bases it is a delta against, the last materialised."""
    found: list[Encoding] = []
    seen: set[str] = set()
    name: str | None = matrix
    while name is not None:
        if name in seen:
            raise Damaged(
                f"tensor {matrix} cannot be decoded",
                why=f"it is a delta against itself through {name}",
            )
        if len(found) > MAX_CHAIN:
            raise Damaged(f"tensor {matrix} has a chain of more than {MAX_CHAIN} deltas")
        encoding = lookup(name)
        if encoding is None:
            raise Damaged(
                f"tensor {name} is not stored",
                why=None if name == matrix else f"tensor {matrix} is a delta against it",
                hint="dlv fsck",
            )
        delta_of(encoding.delta)  # an unknown one is named before anything is read
        seen.add(name)
        found.append(encoding)
        name = base_of(encoding.delta)
    return found


@dataclass
class Link:
    """One matrix of a chain, what is stored of it in order, and how many words it has."""

    encoding: Encoding
    layout: Layout
    delta: Delta | None
    count: int  # words
    shape: tuple[int, ...]  # of the words: complex numbers are two
    planes: list[list[Piece]] = field(default_factory=list)
    sides: list[Piece] = field(default_factory=list)
    scale: str | None = None  # the matrix whose exponents are contexts

    @cached_property
    def lengths(self) -> list[int | None]:
        """Of each plane in bytes, as far as they do not depend on what it holds."""
        whole = range(self.encoding.planes)
        return [self.layout.plane_bytes(p, self.dtype, self.encoding.shape) for p in whole]

    @property
    def matrix(self) -> str:
        return self.encoding.matrix

    @property
    def dtype(self) -> str:
        return self.encoding.dtype

    @property
    def word(self) -> int:
        """Bytes per word."""
        return words_of(self.dtype)[0]

    @cached_property
    def unit(self) -> int:
        """Bytes per word in a plane whose length does not depend on what it holds."""
        return self.layout.unit_of(self.dtype) if isinstance(self.layout, Units) else 1

    def plane_label(self, plane: int) -> str:
        return f"plane {plane} of tensor {self.matrix}"

    def uneven(self, plane: int) -> bool:
        """Whether the lengths of this plane's segments depend on their content."""
        return plane in self._uneven

    @cached_property
    def _uneven(self) -> set[int]:
        if self.dtype.startswith(OPAQUE):
            return set()
        return {plane for plane, length in enumerate(self.lengths) if length is None}

    def side(self, source: ChunkSource) -> Raw:
        """All side data; the layout's own part comes first."""
        if not self.sides:
            return b""
        return join_pieces(self.sides, None, source, f"side data of tensor {self.matrix}")


def links_of(
    encodings: Sequence[Encoding], source: ChunkSource, planes: int | Sequence[int]
) -> list[Link]:
    """The links of a chain, checked; only the first `planes` of each need be there."""
    counts = [planes] * len(encodings) if isinstance(planes, int) else planes
    links = [
        link_of(encoding, source, count) for encoding, count in zip(encodings, counts, strict=True)
    ]
    check_chain(links)
    return links


def check_chain(links: Sequence[Link]) -> None:
    """Damaged if a link cannot be a delta against the next."""
    for link, base in itertools.pairwise(links):
        _check_shapes(link, base)
    _check_scales(links)


def check_memory(nbytes: int, matrix: str) -> None:
    """Refuse what this machine cannot hold before the system kills the process for it."""
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return  # not a system that says
    if nbytes > there:
        raise StorageError(
            f"tensor {matrix} does not fit into memory",
            why=f"it has {nbytes} bytes, this machine {there}",
        )


def link_of(encoding: Encoding, source: ChunkSource, planes: int) -> Link:
    """One matrix with its pieces in order; only the first `planes` planes need be there."""
    layout = layout_of(encoding.layout)
    delta = delta_of(encoding.delta)
    if layout.planes(encoding.dtype) != encoding.planes:
        raise Damaged(
            f"tensor {encoding.matrix} declares {encoding.planes} planes",
            why=f"a {encoding.dtype} tensor has {layout.planes(encoding.dtype)}",
        )
    word, per_element = words_of(encoding.dtype)
    nbytes = matrix_bytes(encoding.dtype, encoding.shape)
    if isinstance(layout, Units) and delta is None:
        raise Damaged(f"tensor {encoding.matrix} is stored as a difference from nothing")
    link = Link(encoding, layout, delta, 0, ())
    if nbytes is not None:
        link.count = nbytes // word
        link.shape = word_shape(encoding.shape, per_element)
    pieces = [] if encoding.empty else list(source.chunks(encoding.matrix))
    link.sides = [piece for piece in pieces if piece.kind == "side"]
    for plane in range(min(planes, encoding.planes)):
        own = [piece for piece in pieces if piece.kind == "plane" and piece.plane == plane]
        link.planes.append(_in_order(link, plane, own))
        if nbytes is None:
            link.count = sum(piece.count for piece in own) // link.unit
            link.shape = (link.count,)
    _find_scale(link, pieces)
    _check_side(link)
    return link


def _in_order(link: Link, plane: int, pieces: list[Piece]) -> list[Piece]:
    what = link.plane_label(plane)
    if link.uneven(plane):
        segments = -(-link.count // SEGMENT)
        if pieces and len(pieces) != segments:
            raise Damaged(
                f"{what} is not stored whole", why="its segments do not have a piece each"
            )
        # A tail has at most the elements' own bits, and padding.
        most = (link.word + 1) * link.count + 256
        if sum(piece.count for piece in pieces) > most:
            raise Damaged(f"{what} is longer than it can be")
        return in_order(pieces, None, what) if pieces else []
    expected = link.lengths[plane]
    if not expected and not pieces:
        return []  # nothing at all; of opaque bytes only the matrix's name tells
    return in_order(pieces, expected, what)


def _find_scale(link: Link, pieces: Sequence[Piece]) -> None:
    """Contexts are counted along the whole matrix, so all its chunks name one scale."""
    scales: set[str] = set()
    for piece in pieces:
        if piece.kind != "plane" or piece.plane is None:
            continue
        # An unknown codec is named before anything is read.
        context = context_codec_of(piece.codec)
        if context is None and not is_above(piece):
            codec_of(piece.codec)
            continue
        what = f"a chunk of plane {piece.plane} of tensor {link.matrix}"
        size = SEGMENT * link.unit
        last = min(piece.start + size, link.count * link.unit)
        if piece.at != 0 or piece.count != piece.raw:
            raise Damaged(f"{what} has contexts and shares its chunk")
        if piece.start % size or piece.start + piece.count != last or link.uneven(piece.plane):
            raise Damaged(f"{what} has contexts and is not cut at its segments")
        if is_above(piece) and piece.plane == 0:
            raise Damaged(f"{what} has no plane above it")
        if context is not None:
            if getattr(context, "unit", 1) != link.unit:
                raise Damaged(f"{what} holds numbers of another size than its layout says")
            scales.add(context.scale)
    if scales and (len(scales) > 1 or link.delta is None):
        raise Damaged(f"tensor {link.matrix} has contexts that cannot be")
    link.scale = next(iter(scales), None)


def _check_side(link: Link) -> None:
    expected = 0
    if link.count:
        expected = side_length(link.layout, link.delta, link.dtype, link.encoding.shape)
    if link.scale is not None:
        expected += Scales.nbytes(link.shape)
    what = f"side data of tensor {link.matrix}"
    if expected or link.sides:
        link.sides = in_order(link.sides, expected, what)


def _check_shapes(link: Link, base: Link) -> None:
    what = f"tensor {link.matrix} cannot be a delta against tensor {base.matrix}"
    assert link.delta is not None
    if link.dtype != base.dtype:
        raise Damaged(what, why=f"their dtypes are {link.dtype} and {base.dtype}")
    if link.dtype.startswith(OPAQUE) and link.count != base.count:
        raise Damaged(what, why="they are opaque and have different lengths")
    try:
        overlap = overlap_of(link.encoding.shape, base.encoding.shape)
    except ValueError as error:
        raise Damaged(what, why=str(error)) from error
    if overlap != link.delta.overlap:
        raise Damaged(what, why=f"their overlap is not {link.delta.overlap}")


def _check_scales(links: Sequence[Link]) -> None:
    """Each scale is a matrix further down, and few must be remembered at a time."""
    place = {link.matrix: index for index, link in enumerate(links)}
    needed: dict[int, int] = {}  # scale -> the link nearest to the target that needs it
    for index, link in enumerate(links):
        if link.scale is None:
            continue
        at = place.get(link.scale, -1)
        if at <= index:
            raise Damaged(
                f"tensor {link.matrix} takes its contexts from tensor {link.scale}",
                why="which is none of those it is a delta against",
            )
        if at > index + 1:
            needed.setdefault(at, index)
    for index in range(len(links)):
        held = sum(1 for at, first in needed.items() if first <= index < at)
        if held > MAX_HELD:
            raise Damaged(f"tensor {links[0].matrix} has contexts from too many tensors at once")


def is_context(piece: Piece) -> bool:
    """Whether a chunk is decoded with contexts from another matrix's exponents."""
    return "scale" in piece.codec


def is_above(piece: Piece) -> bool:
    """Whether a chunk is decoded with the plane above as contexts."""
    return piece.codec == {"id": AboveCodec.codec_id}


class PlaneReader:
    """One plane of one link, read from its start to its end."""

    def __init__(self, link: Link, plane: int, source: ChunkSource) -> None:
        self._pieces = link.planes[plane]
        self._starts = [piece.start for piece in self._pieces]
        self._source = source
        self._label = link.plane_label(plane)
        self._held: tuple[Piece, Raw] | None = None

    def piece_at(self, start: int) -> Piece:
        """The piece that byte `start` lies in."""
        return self._pieces[bisect.bisect_right(self._starts, start) - 1]

    def read(self, start: int, count: int) -> Raw:
        """`count` bytes from `start`."""
        parts: list[Raw] = []
        while count:
            piece = self.piece_at(start)
            decoded = self._share(piece)
            first = start - piece.start
            size = min(count, piece.count - first)
            whole = first == 0 and size == len(decoded)
            parts.append(decoded if whole else memoryview(decoded)[first : first + size])
            start, count = start + size, count - size
            if first + size == piece.count:
                self._held = None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def segment(self, index: int) -> Raw:
        """The share of a segment, in a plane whose segments have a piece each."""
        if not self._pieces:
            return b""
        return self._decoded(self._pieces[index])

    def stored(self, start: int) -> tuple[Piece, Raw]:
        """The piece that begins at `start` and its bytes as stored."""
        piece = self.piece_at(start)
        return piece, self._source.stored(piece)

    def _share(self, piece: Piece) -> Raw:
        if self._held is None or self._held[0] is not piece:
            self._held = piece, self._decoded(piece)
        return self._held[1]

    def _decoded(self, piece: Piece) -> Raw:
        return piece_of(piece, self._source.read(piece), self._label)
