"""The rows that are still open: streamed again for each level, told once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dlv.evaluation.answers import OPEN, Answers, Settings, Told
from dlv.kinds import Array, Places
from dlv.network.graph import Network

Inputs = Mapping[str, Array]


class Batch(Protocol):
    """Some neighbouring rows."""

    @property
    def start(self) -> int: ...
    @property
    def inputs(self) -> Inputs: ...


class Rows(Protocol):
    """What a model is tested on; it may be gone through again."""

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
            if parts and (held + len(at) > self._size or not _alike(parts[-1], inputs)):
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
            length = len(next(iter(batch.inputs.values())))
            at = np.arange(batch.start, batch.start + length)
            if wanted[at].any():
                yield at, batch.inputs

    def take(self, at: Places, told: Told, *, proved: bool = False) -> None:
        """Labels of the rows that are sure are final, and those rows no longer open."""
        still = self.mask[at]
        sure = told.sure & still
        self.answers.labels[at[sure]] = told.labels[sure]
        if self.answers.sets is not None:
            assert told.sets is not None
            assert told.sure_sets is not None
            sure = told.sure_sets & still
            self.answers.sets[at[sure]] = told.sets[sure]
        self.mask[at[sure]] = False
        self.answers.proved[at[sure]] = proved


def first_row(network: Network, rows: Rows, settings: Settings) -> Inputs | None:
    """A row to try a network on, or the first batch where it must be whole; None without rows."""
    for batch in rows.batches(settings.batch):
        length = None if _fixed(network) else 1
        return {name: value[:length] for name, value in batch.inputs.items()}
    return None


def _fixed(network: Network) -> bool:
    """Whether it was traced with one length of batch, and takes no other."""
    return any(item.shape and isinstance(item.shape[0], int) for item in network.inputs)


def _alike(one: Inputs, other: Inputs) -> bool:
    return all(one[name].shape[1:] == value.shape[1:] for name, value in other.items())


def _joined(places: list[Places], parts: list[Inputs]) -> tuple[Places, Inputs]:
    if len(parts) == 1:
        return places[0], parts[0]
    names = parts[0]
    return np.concatenate(places), {
        name: np.concatenate([part[name] for part in parts]) for name in names
    }
