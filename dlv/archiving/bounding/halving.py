"""Weights with planes of 4 bits: for networks whose levels read much less by them.

If there is much to spare, all weights that can have them are tried so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from dlv.archiving.bounding.fixing import halved
from dlv.archiving.bounding.make import Made, Model, make
from dlv.archiving.bounding.view import View
from dlv.kinds import Array

# Smaller ones share chunks with their like: then planes more would be chunks more.
SMALLEST = 8 << 10
DTYPES = ("float32", "float64")  # codes of others end before their third plane
LEVEL = 0.9  # of the rows, of the level that must read less
WORTH = 0.02  # of the bytes, that it must read less

_SECOND = 2  # depth of `fixed`: 16 bits


def made_in_halves(
    model: Model, view: View, rows: Mapping[str, Array], folder: Path, *, strict: bool
) -> Made:
    """The record; the weights of the view are in halves then if that pays."""
    made = make(model, view, rows, strict=strict)
    fresh = {name for name in model.program.matrices if _fits(view, model.hash(name))}
    before = _level(made)
    if before is None or _most(made, before, fresh) < WORTH * _bytes(made):
        return made
    with View(view) as tried:
        for matrix in {model.hash(name) for name in fresh}:
            tried.put(halved(view, matrix, folder))
        # The first planes stay what they are.
        finer = make(model, tried, rows, strict=strict, tuning=made.tuning)
        after = _level(finer)
        spared = 0.0 if after is None else _bytes(made, before) - _bytes(finer, after)
        if spared < WORTH * _bytes(made):
            return made
        for matrix in list(tried.made):
            view.put(tried.made.pop(matrix))
    return finer


def _fits(view: View, matrix: str) -> bool:
    encoding = view.encoding(matrix)
    return (
        encoding is not None
        and encoding.layout["id"] == "fixed"
        and encoding.delta is None
        and matrix in view.made
        and encoding.dtype in DTYPES
        and (encoding.nbytes or 0) > SMALLEST
    )


def _level(made: Made) -> Mapping[str, int] | None:
    """The first level that tells most of the rows."""
    found = zip(made.schedule.levels, made.schedule.shares, strict=False)
    sought = list(found)[: made.schedule.sought]
    return next((level for level, share in sought if share >= LEVEL), None)


def _bytes(made: Made, level: Mapping[str, int] | None = None) -> float:
    """Of the planes that a level reads; of all."""
    return sum(
        each.bytes[each.planes if level is None else level[name]]
        for name, each in made.stored.items()
    )


def _most(made: Made, level: Mapping[str, int], names: Iterable[str]) -> float:
    """What could be spared of a level: half of a second plane, wherever one is read."""
    found = 0.0
    for name in names:
        sizes = made.stored[name].bytes
        if level[name] >= _SECOND:
            found += (sizes[_SECOND] - sizes[_SECOND - 1]) / 2
    return found
