"""Weights stored in fixed point, so that their first planes say much of every number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from dlv.archiving.bounding.view import View
from dlv.archiving.tryouts import Attempt
from dlv.canonical import hash_bytes
from dlv.kinds import Raw
from dlv.pas.deltas.links import MAX_CHAIN, chain, link_of
from dlv.pas.encode import SMALL, encode_delta, encode_materialised
from dlv.pas.floats import words_in
from dlv.pas.footer import Encoding
from dlv.pas.layouts.fixed import DTYPES, Fixed, Halved
from dlv.pas.layouts.segments import Ieee, Layout
from dlv.pas.level import Level, numbers_of
from dlv.weights.store import MatrixStore

IN_FIXED_POINT = ("fixed", "halved")
SMALLEST = 4096  # bytes of a matrix that is worth it
LESS = 0.97  # part of the bytes that a difference may take, or it is not worth its base
LOOSER = 1.05  # times as far off as on its own a first plane may be, where exponents are shared
BETTER = 0.98  # times as far off a first plane must be where numbers near 0 count as 0
CROWDED = 1.5  # times their own size, what may be read for the smallest matrices
_LONGEST = 8  # links of a chain; each of them is read for every level


def in_fixed_point(view: View, matrix: str) -> bool:
    """Whether the first planes of a matrix are as good as those of `fixed` on its own."""
    *deltas, last = chain(matrix, view.encoding)
    return last.layout["id"] in IN_FIXED_POINT and all(
        link.layout["id"] == "fixed"
        and (link.layout == last.layout or last.layout["id"] != "fixed")
        and link.delta is not None
        and link.delta["id"] == "xor"
        for link in deltas
    )


def fix(view: View, matrix: str, rows: str, bases: Iterable[str], folder: Path) -> bool:
    """Encode a matrix in fixed point, on its own or against one of the bases; whether it was.

    Not where it is so already, where it would gain nothing, and where numbers are not finite.
    """
    encoding = view.encoding(matrix)
    if encoding is None or encoding.dtype not in DTYPES or (encoding.nbytes or 0) < SMALLEST:
        return False
    if encoding.layout["id"] not in ("ieee", *IN_FIXED_POINT) or in_fixed_point(view, matrix):
        return False
    raw = view.raw(matrix)
    try:
        layout = Fixed.of([raw], encoding.dtype, encoding.shape, rows=rows)
    except ValueError:
        return False
    best = _materialised(raw, encoding, layout, folder)
    off = _off(view, best, raw)
    assert best.encoding is not None
    centred = replace(best.encoding, layout={**best.encoding.layout, "zero_centre": True})
    if _off(view, best, raw, centred) < BETTER * off:
        best.encoding = centred
        off = _off(view, best, raw)
    for base in bases:
        made = _against(view, raw, encoding, base, rows, folder)
        if made is None:
            continue
        if made.stored < LESS * best.stored and _off(view, made, raw) <= LOOSER * off:
            best, made = made, best
        made.close()
    view.put(best)
    return True


def part(view: View, store: MatrixStore, matrices: Iterable[str], folder: Path) -> None:
    """Small matrices that lie in one chunk with those of other snapshots: encoded on their own.

    Only where reading them means to read much that belongs to others.
    """
    small = {m: e for m in matrices if (e := view.encoding(m)) and (e.nbytes or 0) <= SMALL}
    chunks = {(p.pack, p.offset): p.length for m in small for p in store.pieces_behind(m)}
    if sum(chunks.values()) <= CROWDED * sum(each.nbytes or 0 for each in small.values()):
        return
    for matrix, encoding in small.items():
        view.put(_materialised(view.raw(matrix), encoding, Ieee(), folder))


def halved(view: View, matrix: str, folder: Path) -> Attempt:
    """The same numbers as in the layout `fixed`, the second plane in two."""
    encoding = view.encoding(matrix)
    assert encoding is not None
    layout = Halved(encoding.layout["rows"], encoding.layout["zero_centre"])
    return _materialised(view.raw(matrix), encoding, layout, folder)


def _materialised(raw: Raw, encoding: Encoding, layout: Layout, folder: Path) -> Attempt:
    def encode(attempt: Attempt) -> Encoding:
        return encode_materialised(
            raw,
            encoding.dtype,
            encoding.shape,
            encoding.matrix,
            attempt.put,
            layout=layout,
            effort="small",
        )

    return Attempt.of(folder, encode)


def _against(
    view: View, raw: Raw, encoding: Encoding, base: str, rows: str, folder: Path
) -> Attempt | None:
    """XOR a base whose exponents this matrix can share; None where it cannot."""
    below = view.encoding(base)
    same = below is not None and (below.dtype, below.shape) == (encoding.dtype, encoding.shape)
    if not same or below is None or base == encoding.matrix or not in_fixed_point(view, base):
        return None
    links = chain(base, view.encoding)
    if len(links) >= min(_LONGEST, MAX_CHAIN) or encoding.matrix in [x.matrix for x in links]:
        return None
    link = link_of(below, view, 0)
    assert isinstance(link.layout, Fixed)
    side = bytes(link.side(view))[: link.layout.side_bytes(below.dtype, below.shape)]
    shared = Fixed.of([raw], encoding.dtype, encoding.shape, rows=rows, at_least=side)
    if link.layout.rows != rows or shared.exponents != hash_bytes(side):
        return None  # a number here is larger than its row may be there
    layout = Fixed(rows, link.layout.zero_centre, shared.exponents, side)
    under = view.raw(base)

    def encode(attempt: Attempt) -> Encoding:
        return encode_delta(
            "xor",
            raw,
            under,
            encoding.dtype,
            encoding.shape,
            encoding.matrix,
            base,
            attempt.put,
            layout=layout,
            effort="small",
        )

    return Attempt.of(folder, encode)


def _off(view: View, attempt: Attempt, raw: Raw, encoding: Encoding | None = None) -> float:
    """How far the first plane leaves the numbers open, all of them together."""
    assert attempt.encoding is not None
    tried = View(view)
    tried.put(attempt, encoding)
    found = tried.level(attempt.encoding.matrix, 1)
    if not isinstance(found, Level):
        return float("inf")
    numbers, _ = numbers_of(words_in(raw, attempt.encoding.dtype), attempt.encoding.dtype)
    return float(np.linalg.norm(numbers.ravel() - found.centre.ravel()))
