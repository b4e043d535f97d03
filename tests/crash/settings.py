"""Limits made small, so that little data takes the ways of much."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import dlv.adapters.data.sets as data_parts
import dlv.archiving.bounding.fixing as fixing
import dlv.archiving.reencode as reencode
import dlv.events.logs.batches as batches
import dlv.training.workers.pool as pool
import dlv.training.workers.worker as worker
import dlv.upkeep.collect as collect
from dlv.metadata.trials import Trials
from dlv.pas.spool import BUFFER
from dlv.training.ledger.ledger import Ledger
from dlv.training.trainers.interface import Readers
from dlv.training.workers.owners import Owner


def _buffer() -> None:
    """Lanes of an archive spill into packs of their own."""
    given = reencode.Packing.__init__.__kwdefaults__
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
    collect.DEAD, collect.LEAST = 0.0, 600


def _inline() -> None:
    """Trials are trained by the process that asks for them, so that one kill ends it all."""

    def train(store: Trials, run: str, *, progress: Any, **_: Any) -> None:
        ledger = Ledger(store)
        worker.work(
            store,
            store.path.with_suffix(""),
            Readers(rows=data_parts.open_parts, events=batches.Tail),
            owner=Owner.here("inline"),
            runs=[run],
            stop=lambda _: ledger.run(run).state != "running",
        )

    setattr(pool, "train", train)  # noqa: B010
    # Standard output may be a text here.
    setattr(worker, "printing_to", lambda _: contextlib.nullcontext())  # noqa: B010


SETTINGS: dict[str, Callable[[], None]] = {
    "buffer": _buffer,
    "batches": _batches,
    "fixed": _fixed,
    "eager": _eager,
    "inline": _inline,
}
