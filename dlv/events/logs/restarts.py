"""Which points a restart of the training leaves visible; nothing is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

POLICIES = ("marked", "preempt", "keep")


def live(
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
        raise ValueError(f"{policy!r} is no policy of restarts")
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
