"""Which elements of a tensor are which of the tensor that it was before.

Axis by axis, each with runs of its own, makes one block. A convolution in groups has more: each
group reads a stretch of the channels of its own, so that where these move, they move in each.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlv.network.edits.axes import Axes, Axis, length
from dlv.network.edits.overlap import Run, merged, overlap

Block = tuple[tuple[Run, ...], ...]  # the runs of each axis


def blocks(old: Axes, new: Axes) -> list[Block] | int:
    """Blocks that both have, or the place of the first axis that has nothing in common."""
    grouped = [
        place
        for place, axes in enumerate(zip(old, new, strict=True))
        if any(axis and axis[0].groups > 1 for axis in axes)
    ]
    runs: list[tuple[Run, ...]] = []
    for place, (before, after) in enumerate(zip(old, new, strict=True)):
        found = () if place in grouped else overlap(before, after)
        if not found and place not in grouped:
            return place
        runs.append(found or ())
    if not grouped:
        return [tuple(runs)]
    place = grouped[0]
    # The other axis of channels stands right beside it.
    beside = place - 1 if place and old[place - 1][0].key[:2] in ("o.", "i.") else place + 1
    parts = _by_groups(runs[beside], (old[beside], new[beside]), (old[place], new[place]))
    made = []
    for outer, inner in parts:
        block = list(runs)
        block[beside], block[place] = outer, inner
        made.append(tuple(block))
    return made or place


def _by_groups(
    runs: Sequence[Run], shared: tuple[Axis, Axis], grouped: tuple[Axis, Axis]
) -> list[tuple[tuple[Run, ...], tuple[Run, ...]]]:
    """Runs of the axis that the groups share in equal stretches, with those of the other one.

    What an entry of the other one is goes by the axis of which it is a stretch for each group.
    """
    wholes = [axis[0].whole or axis for axis in grouped]
    counts = [axis[0].groups for axis in grouped]
    totals = [length(axis) for axis in (*shared, *wholes)]
    inner = overlap(*wholes)
    sizes = [total for total in totals if isinstance(total, int) and total]
    if inner is None or len(sizes) < len(totals):
        return []
    outer_old, outer_new, inner_old, inner_new = (
        total // count for total, count in zip(sizes, counts * 2, strict=True)
    )
    found: dict[tuple[Run, ...], list[Run]] = {}
    for after in range(counts[1]):
        for before in range(counts[0]):
            mine = _within(runs, before * outer_old, outer_old, after * outer_new, outer_new)
            if not mine:
                continue
            theirs = _within(inner, before * inner_old, inner_old, after * inner_new, inner_new)
            local = tuple(
                Run(run.new - after * inner_new, run.old - before * inner_old, run.size)
                for run in theirs
            )
            if local:
                found.setdefault(local, []).extend(mine)
    return [(tuple(merged(mine)), local) for local, mine in found.items()]


def _within(runs: Sequence[Run], old: int, had: int, new: int, has: int) -> list[Run]:
    """The parts of runs that stay within a stretch before and one after."""
    found = []
    for run in runs:
        skip = max(0, new - run.new, old - run.old)
        end = min(run.size, new + has - run.new, old + had - run.old)
        if skip < end:
            found.append(Run(run.new + skip, run.old + skip, end - skip))
    return found
