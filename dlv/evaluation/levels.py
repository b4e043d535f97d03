"""From level to level: more planes each time, for the rows that are still open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dlv.evaluation.answers import (
    OPEN,
    Answers,
    Level,
    Progress,
    Settings,
    Verdicts,
    first_labels,
    first_sets,
)
from dlv.evaluation.data import Batch
from dlv.evaluation.planes import Moved, Planes
from dlv.kinds import Array, Places
from dlv.network.forward import Forward
from dlv.network.graph import Network
from dlv.network.ops.op import NoRule
from dlv.network.program import Program

Inputs = Mapping[str, Array]


class Rows(Protocol):
    """What a model is tested on; its batches may be read several times."""

    @property
    def count(self) -> int: ...

    def batches(self, size: int) -> Iterator[Batch]: ...


class OpenRows:
    """Which rows are open; gives them in batches and takes what was told of them."""

    def __init__(self, network: Network, rows: Rows, settings: Settings) -> None:
        self._rows = rows
        self._size = settings.batch
        self._whole_batches = _fixed(network)
        self.mask = np.ones(rows.count, bool)
        labels = np.full(rows.count, OPEN, np.int64)
        sets = None
        if settings.top_k > 1:
            sets = np.full((rows.count, settings.top_k), OPEN, np.int64)
        self.answers = Answers(labels, sets, reference=settings.reference)

    @property
    def count(self) -> int:
        return int(self.mask.sum())

    def batches(self) -> Iterator[tuple[Places, Inputs]]:
        """The open rows in full batches. Where batches must stay whole, with their neighbours."""
        if self._whole_batches:
            yield from self.as_they_come(self.mask)
            return
        places: list[Places] = []
        parts: list[Inputs] = []
        held = 0
        for at, inputs in self.as_they_come(self.mask):
            inside = self.mask[at]
            if not inside.all():
                at = at[inside]
                inputs = {name: value[inside] for name, value in inputs.items()}
            if parts and (held + len(at) > self._size or not _same_shapes(parts[-1], inputs)):
                yield _joined(places, parts)
                places, parts, held = [], [], 0
            places.append(at)
            parts.append(inputs)
            held += len(at)
        if parts:
            yield _joined(places, parts)

    def as_they_come(self, wanted: NDArray[np.bool_]) -> Iterator[tuple[Places, Inputs]]:
        """The batches of a plain evaluation that hold a wanted row, whole."""
        for batch in self._rows.batches(self._size):
            at = np.arange(batch.start, batch.start + batch.count)
            if wanted[at].any():
                yield at, batch.inputs

    def take(self, places: Places, verdicts: Verdicts, *, proved: bool = False) -> None:
        """Labels of the rows that are sure are final, and those rows no longer open."""
        still = self.mask[places]
        sure = verdicts.sure & still
        self.answers.labels[places[sure]] = verdicts.labels[sure]
        if self.answers.sets is not None:
            assert verdicts.sets is not None
            assert verdicts.sure_sets is not None
            sure = verdicts.sure_sets & still
            self.answers.sets[places[sure]] = verdicts.sets[sure]
        self.mask[places[sure]] = False
        self.answers.proved[places[sure]] = proved


def first_row(network: Network, rows: Rows, settings: Settings) -> Inputs | None:
    """A row to try a network on, or the first batch where it must be whole; None without rows."""
    for batch in rows.batches(settings.batch):
        length = None if _fixed(network) else 1
        return {name: value[:length] for name, value in batch.inputs.items()}
    return None


def _fixed(network: Network) -> bool:
    """Whether it was traced with one length of batch, and takes no other."""
    return any(item.shape and isinstance(item.shape[0], int) for item in network.inputs)


def _same_shapes(inputs: Inputs, others: Inputs) -> bool:
    """Whether the rows of two batches have the same shapes, so that they can be joined."""
    return all(inputs[name].shape[1:] == value.shape[1:] for name, value in others.items())


def _joined(places: list[Places], parts: list[Inputs]) -> tuple[Places, Inputs]:
    if len(parts) == 1:
        return places[0], parts[0]
    names = parts[0]
    return np.concatenate(places), {
        name: np.concatenate([part[name] for part in parts]) for name in names
    }


Depths = Mapping[str, int]
Batches = Iterator[tuple[Places, Inputs]]

# Tells what the planes read so far say of batches, one after the other; may raise NoRule.
Judge = Callable[[Batches], Iterator[tuple[Places, Verdicts]]]

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
                    self._judge(judge(), proves)
                elif proves and answers.fallback is None:
                    with suppress(Moved, NoRule):  # then all is left to the reference
                        self._judge(judge(), proves)
                if last:
                    before = self._rows.count
                    self._reference()
                    answers.evaluated = before - self._rows.count - answers.not_finite
            except (Moved, NoRule) as error:
                answers.fallback = str(error)
            self._note()
        answers.bytes_read, answers.raw_read = planes.bytes_read, planes.raw_read
        return answers

    def _within(self, depths: Depths) -> bool:
        most = self._settings.max_bytes
        return most is None or self._planes.bytes_read + self._planes.cost(depths) <= most

    def _judge(self, judge: Judge, proves: bool) -> None:
        for places, verdicts in judge(self._rows.batches()):
            self._rows.take(places, verdicts, proved=proves)
            self._watch()

    def _reference(self) -> None:
        """The labels of the reference.

        Where the order of summing could decide, the batches of a plain evaluation are summed.
        """
        precision = np.float32 if self._settings.reference == "strict" else np.float64
        forward = Forward(self._program, self._planes.tensor, precision)
        for at, inputs in self._rows.batches():
            verdicts, near = self._verdicts(forward(inputs))
            verdicts.sure[near] = False
            self._rows.take(at, verdicts)
            self._watch()
        for at, inputs in self._rows.as_they_come(self._rows.mask):
            scores = forward(inputs)
            unknown = np.isnan(scores).any(axis=1)
            self._rows.answers.not_finite += int((unknown & self._rows.mask[at]).sum())
            verdicts, _ = self._verdicts(scores)
            verdicts.labels[unknown] = OPEN
            if verdicts.sets is not None:
                verdicts.sets[unknown] = OPEN
            self._rows.take(at, verdicts)

    def _verdicts(self, scores: Array) -> tuple[Verdicts, NDArray[np.bool_]]:
        """Labels and sets of exact scores, and a mask of the rows that rounding could change."""
        top_k = self._settings.top_k
        most = first_sets(scores, top_k + 1)
        with np.errstate(all="ignore"):
            best = np.take_along_axis(scores, most, 1)
            apart = (best[:, :-1] - best[:, 1:]).min(axis=1, initial=np.inf)
            scale = 1 + np.abs(scores).max(axis=1, initial=0.0)
            near = ~(apart > NEAR[self._settings.reference] * scale)
        sure = np.ones(len(scores), bool)
        sets = most[:, :top_k] if top_k > 1 else None
        return Verdicts(first_labels(scores), sure, sets, sure), near

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

    def _watch(self) -> None:
        rows = len(self._rows.mask)
        read = self._planes.bytes_read
        self._settings.watch(Progress(rows, rows - self._rows.count, read))
