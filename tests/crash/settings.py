"""Limits made small, so that little data takes the ways of much."""

from __future__ import annotations

from collections.abc import Callable

import dlv.archiving.packing as packing
import dlv.archiving.reencode as reencode
import dlv.bounding.fixing as fixing
import dlv.collecting.rewrite as rewriting
from dlv.pas.spool import BUFFER


def _buffer() -> None:
    """Lanes of an archive spill into packs of their own."""
    given = packing.Packing.__init__.__kwdefaults__
    assert given == {"buffer": BUFFER}
    given["buffer"] = 8 << 10


def _batches() -> None:
    """An archive switches several times."""
    reencode.BATCH = 16 << 10


def _fixed() -> None:
    """Small weights go into fixed point too."""
    fixing.SMALLEST = 1


def _eager() -> None:
    """gc writes packs again of which it needs but a little less than all."""
    rewriting.DEAD, rewriting.LEAST = 0.0, 600


SETTINGS: dict[str, Callable[[], None]] = {
    "buffer": _buffer,
    "batches": _batches,
    "fixed": _fixed,
    "eager": _eager,
}
