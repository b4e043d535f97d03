"""What reading a log brings: points, which of them a restart hides, metadata, what is wrong.

The state of a run is what one reading leaves for the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import float_of, number
from dlv.dataclass import dataclass

POLICIES = ("marked", "preempt", "keep")


def live_points(
    steps: NDArray[np.int64], hides: Sequence[tuple[int, int]], policy: str
) -> NDArray[np.bool_] | None:
    """Which points of a series (in the order written) are seen; None: all.

    `marked`: each of `hides` is (seq, step): of the points before number seq, those from `step`
    on are hidden. `preempt`: a point hides all earlier ones whose step is not below its own.
    `keep`: nothing is hidden.
    """
    if policy == "marked":
        hidden = _marked(steps, hides)
    elif policy == "preempt":
        hidden = _preempted(steps)
    elif policy == "keep":
        return None
    else:
        raise ValueError(f"{policy!r} is not a policy of restarts")
    return ~hidden if hidden.any() else None


def _marked(steps: NDArray[np.int64], hides: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    hidden = np.zeros(len(steps), bool)
    # What is hidden once is hidden for good: of the hides behind a point, the least step counts.
    end, least = len(steps), None
    for before, step in sorted(hides, reverse=True):
        before = max(0, min(before, len(steps)))
        if least is not None and before < end:
            hidden[before:end] = steps[before:end] >= least
        end = min(end, before)
        least = step if least is None else min(least, step)
    if least is not None:
        hidden[:end] = steps[:end] >= least
    return hidden


def _preempted(steps: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Points that a later one of the same or a lower step follows."""
    hidden = np.zeros(len(steps), bool)
    if len(steps) > 1:
        least: NDArray[Any] = np.minimum.accumulate(steps[::-1])[::-1]
        hidden[:-1] = steps[:-1] >= least[1:]
    return hidden


_RESTARTS_ARE_MARKED = 2  # from this version on a file says where a restart is


@dataclass(slots=True, eq=False)
class Series:
    """How the values of a tag are taken: as its first metadata says."""

    tag: str
    plugin: str
    data_class: int
    given: bool  # the writer named the class itself, nothing is converted
    # No point that is not hidden has a greater step.
    latest: int | None = None


class RunState:
    """JSON in, JSON out; nothing in it depends on where the files were cut into windows."""

    def __init__(self, state: Mapping[str, Any] | None) -> None:
        state = state or {}
        self.wall = None if state.get("wall") is None else float_of(state["wall"])
        self.version: float = float_of(state.get("version", 0.0))
        self.started = bool(state.get("started", False))
        self.step = int(state.get("step", -1))  # of the latest summary
        self.series: dict[str, Series] = {
            tag: Series(tag, *row) for tag, row in state.get("series", {}).items()
        }
        self.told: set[tuple[str, str]] = {(tag, kind) for tag, kind in state.get("told", ())}

    @property
    def marks_restarts(self) -> bool:
        return bool(self.version >= _RESTARTS_ARE_MARKED)

    def as_json(self) -> dict[str, Any]:
        return {
            "wall": None if self.wall is None else number(self.wall),
            "version": number(self.version),
            "started": self.started,
            "step": self.step,
            "series": {
                tag: [each.plugin, each.data_class, each.given, each.latest]
                for tag, each in self.series.items()
            },
            "told": sorted([tag, kind] for tag, kind in self.told),
        }


UNKNOWN, SCALAR, TENSOR, BLOBS = range(4)  # data classes


@dataclass(frozen=True)
class Metadata:
    """What the first value of a tag says about all of them."""

    tag: str
    plugin: str
    data_class: int
    content: bytes
    display_name: str
    description: str


@dataclass(frozen=True)
class ScalarPoints:
    """Points of one tag in the order in which they were written."""

    tag: str
    steps: NDArray[np.int64]
    walls: NDArray[np.float64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class TensorPoint:
    """`data`: elements, little-endian in C order; strings as u32 length and bytes each.

    `legacy` keeps an old histogram, of which the tensor leaves something out: little-endian
    float64 min, max, num, sum, sum of squares, then the limits and then the counts of its buckets
    (old_summaries.OldHistogram reads it).
    """

    tag: str
    step: int
    wall: float
    dtype: str
    shape: tuple[int, ...]
    data: bytes
    legacy: bytes = b""


@dataclass(frozen=True)
class BlobPoint:
    tag: str
    step: int
    wall: float
    blobs: tuple[bytes, ...]


@dataclass(frozen=True)
class Hide:
    """Points before this item, of the tag (None: of the whole run), from `step` on are hidden."""

    tag: str | None
    step: int
    policy: Literal["marked"] = "marked"


Item = ScalarPoints | TensorPoint | BlobPoint | Hide


@dataclass(frozen=True)
class Fault:
    """Values of a tag (None: of the log) that were left out; with `warning`, nothing was."""

    tag: str | None
    message: str
    warning: bool = False


@dataclass(frozen=True)
class Window:
    """A piece of a log: items in the order written; the log is good up to `offset`.

    A ScalarPoints gathers points of its tag that had points of others between them, but never
    a Hide.
    """

    items: Sequence[Item]
    metadata: Sequence[Metadata]
    faults: Sequence[Fault]
    offset: int
