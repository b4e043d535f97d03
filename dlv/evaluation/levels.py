"""From level to level: more planes each time, for the rows that are still open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from dlv.evaluation.answers import (
    OPEN,
    Answers,
    Level,
    Settings,
    Told,
    Watched,
    first_labels,
    first_sets,
)
from dlv.evaluation.open_rows import Inputs, OpenRows, Rows
from dlv.evaluation.planes import Moved, Planes
from dlv.kinds import Array, Places
from dlv.network.forward import Forward
from dlv.network.ops.layer import NoRule
from dlv.network.program import Program

Depths = Mapping[str, int]
Batches = Iterator[tuple[Places, Inputs]]

# Tells what the planes read so far say of batches, one after the other; may raise NoRule.
Judge = Callable[[Batches], Iterator[tuple[Places, Told]]]

# Scores nearer to each other than this, relatively, may be ordered by the order of summing.
NEAR = {"f64": 1e-6, "strict": 1e-2}


class Levels:
    """An evaluation at work. A row is told from a level's bytes and never needs more."""

    def __init__(self, program: Program, planes: Planes, rows: Rows, settings: Settings) -> None:
        self._program = program
        self._planes = planes
        self._settings = settings
        self._rows = OpenRows(program.network, rows, settings)
        self._whole = {name: planes.planes(name) for name in planes.names}
        self.bytes_whole = planes.cost(self._whole)  # what a plain evaluation fetches

    def worthwhile(self, schedule: Sequence[Depths]) -> list[Depths]:
        """The levels that fetch less than everything, each more than the one before."""
        found: list[Depths] = []
        before = self._planes.bytes_read
        for depths in schedule:
            cost = self._planes.bytes_read + self._planes.cost(depths)
            if before < cost < self.bytes_whole:
                found.append(depths)
                before = cost
        return found

    def run(
        self,
        schedule: Sequence[Depths],
        judge: Callable[[], Judge],
        free: Callable[[str, int], bool] = lambda *_: True,
        *,
        proves: bool = False,
    ) -> Answers:
        """Through the levels of `schedule`, and at last the reference for what is still open.

        `free`: which depths of a tensor are of use if they cost nothing. `proves`: what the judge
        is sure of is proved, so that it is asked of the whole weights, too: the reference alone
        does not tell what another order of summing gives.
        """
        answers, planes = self._rows.answers, self._planes
        levels = [*schedule, self._whole]
        for number, depths in enumerate(levels):
            last = number == len(levels) - 1
            if not self._rows.mask.any():
                break
            if answers.fallback is not None and not last:
                continue
            if not self._within(depths):
                break
            try:
                planes.read(depths, free)
                if not last:
                    self._judge(judge(), number, len(levels), proves)
                elif proves and answers.fallback is None:
                    with suppress(Moved, NoRule):  # then all is left to the reference
                        self._judge(judge(), number, len(levels), proves)
                if last:
                    before = self._rows.count
                    self._reference(number, len(levels))
                    answers.evaluated = before - self._rows.count - answers.not_finite
            except (Moved, NoRule) as error:
                answers.fallback = str(error)
            self._note()
        answers.bytes_read, answers.raw_read = planes.bytes_read, planes.raw_read
        return answers

    def _within(self, depths: Depths) -> bool:
        most = self._settings.max_bytes
        return most is None or self._planes.bytes_read + self._planes.cost(depths) <= most

    def _judge(self, judge: Judge, number: int, levels: int, proves: bool) -> None:
        before, examined = self._rows.count, 0
        for at, told in judge(self._rows.batches()):
            examined += int(self._rows.mask[at].sum())
            self._rows.take(at, told, proved=proves)
            self._watch(number, levels, examined, before)

    def _reference(self, number: int, levels: int) -> None:
        """The labels of the reference.

        Where the order of summing could decide, the batches of a plain evaluation are summed.
        """
        precision = np.float32 if self._settings.reference == "strict" else np.float64
        forward = Forward(self._program, self._planes.tensor, precision)
        before, examined = self._rows.count, 0
        for at, inputs in self._rows.batches():
            told, near = self._told(forward(inputs))
            examined += int(self._rows.mask[at].sum())
            self._rows.take(at, _where(told, ~near))
            self._watch(number, levels, examined, before)
        for at, inputs in self._rows.as_they_come(self._rows.mask):
            scores = forward(inputs)
            unknown = np.isnan(scores).any(axis=1)
            self._rows.answers.not_finite += int((unknown & self._rows.mask[at]).sum())
            told, _ = self._told(scores)
            told.labels[unknown] = OPEN
            if told.sets is not None:
                told.sets[unknown] = OPEN
            self._rows.take(at, told)

    def _told(self, scores: Array) -> tuple[Told, NDArray[np.bool_]]:
        """What scores say, and of which rows it hangs on rounding."""
        top_k = self._settings.top_k
        most = first_sets(scores, top_k + 1)
        with np.errstate(all="ignore"):
            best = np.take_along_axis(scores, most, 1)
            apart = (best[:, :-1] - best[:, 1:]).min(axis=1, initial=np.inf)
            scale = 1 + np.abs(scores).max(axis=1, initial=0.0)
            near = ~(apart > NEAR[self._settings.reference] * scale)
        sure = np.ones(len(scores), bool)
        sets = most[:, :top_k] if top_k > 1 else None
        return Told(first_labels(scores), sure, sets, sure), near

    def _note(self) -> None:
        planes, rows = self._planes, self._rows
        rows.answers.levels.append(
            Level(
                bits={name: planes.bits(name) for name in self._program.matrices},
                bytes_read=planes.bytes_read,
                raw_read=planes.raw_read,
                share=planes.share,
                determined=len(rows.mask) - rows.count,
                open=rows.count,
            )
        )

    def _watch(self, level: int, levels: int, examined: int, before: int) -> None:
        if self._settings.watch is not None:
            rows = self._rows
            told = len(rows.mask) - rows.count
            read = self._planes.bytes_read
            self._settings.watch(
                Watched(level + 1, levels, examined, before, told, len(rows.mask), read)
            )


def _where(told: Told, these: NDArray[np.bool_]) -> Told:
    return Told(told.labels, told.sure & these, told.sets, told.sure & these)
