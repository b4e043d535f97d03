"""Pairs of matrices compared: how far their elements are apart, exactly or within bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import dlv.weights.reading.interval_statistics as interval_statistics
import dlv.weights.statistics as weight_statistics
from dlv.dataclass import dataclass
from dlv.kinds import Raw
from dlv.network.likeness.comparison import Turn
from dlv.weights.reading.approximation import Bounds, NoBounds, Reading
from dlv.weights.reading.interval_statistics import DifferenceBounds
from dlv.weights.snapshots import Matrix
from dlv.weights.statistics import Difference
from dlv.weights.store import MatrixStore

MOST_JOBS = 4  # threads that compare tensors: each holds two of them
PART = 1 << 21  # elements that are read at once: their memory is used again and again


@dataclass(frozen=True)
class MatrixPair:
    """A matrix on both sides, or on one; `difference` where the elements can be compared.

    `turned`: the new one's elements lie in another order, and were compared in the old one's.
    """

    old: Matrix | None
    new: Matrix | None
    difference: Difference | None = None
    turned: bool = False
    bounds: DifferenceBounds | None = None  # of the difference, where only some planes were read
    reading: Reading | None = None

    @property
    def name(self) -> str:
        matrix = self.new or self.old
        assert matrix is not None
        return matrix.name if self.old is None else self.old.name

    @property
    def status(self) -> str:
        if self.old is None or self.new is None:
            return "added" if self.old is None else "removed"
        if self.turned:
            same = self.difference is not None and not self.difference.changed
            return "rearranged" if same and self.old.dtype == self.new.dtype else "changed"
        if self.old.hash != self.new.hash:
            return "changed"
        return "unchanged" if self.old.name == self.new.name else "renamed"


def compare_all(
    store: MatrixStore,
    pairs: Sequence[tuple[Matrix | None, Matrix | None, Turn | None]],
    planes: int | None,
    jobs: int,
    progress: Callable[[int], None],
) -> list[MatrixPair]:
    """Compare every pair, in threads if several pairs are large and differ."""

    def pair(row: tuple[Matrix | None, Matrix | None, Turn | None]) -> MatrixPair:
        return compared(store, *row, planes, progress)

    if jobs > 1 and sum(_may_differ(old, new) for old, new, _ in pairs) > 1:
        with ThreadPoolExecutor(min(jobs, MOST_JOBS)) as pool:
            return list(pool.map(pair, pairs))
    return [pair(row) for row in pairs]


def _may_differ(old: Matrix | None, new: Matrix | None) -> bool:
    """Whether both have to be read, and are large enough for a thread of their own."""
    large = old is not None and old.elements > PART // 8
    return large and new is not None and old is not None and old.hash != new.hash


def compared(
    store: MatrixStore,
    old: Matrix | None,
    new: Matrix | None,
    turn: Turn | None,
    planes: int | None,
    progress: Callable[[int], None],
) -> MatrixPair:
    """How the two are apart; with `planes` only bounds of that, if the planes tell no more."""
    reading = None
    if planes is not None and old is not None and new is not None and _bounded(old, new, turn):
        a, b = (Bounds(store, matrix.hash, planes) for matrix in (old, new))
        bounds = None
        while bounds is None and not (a.exact and b.exact):
            try:
                bounds = interval_statistics.difference(a, b, same=old.dtype != new.dtype)
            except NoBounds as error:  # of one side, which is read whole then
                a, b = (x.exactly(error.why) if x is error.bounds else x for x in (a, b))
        reading = a.reading.and_(b.reading)
        if bounds is not None:
            progress((old.nbytes or 0) + (new.nbytes or 0))
            return MatrixPair(old, new, bounds=bounds, reading=reading)
    apart = _difference(store, old, new, turn, progress)
    turned = turn is not None and apart is not None
    return MatrixPair(old, new, apart, turned, reading=reading)


def _bounded(old: Matrix, new: Matrix, turn: Turn | None) -> bool:
    """Whether bounds of the two can be compared; what was turned may be equal, so it is read."""
    return (
        turn is None
        and old.hash != new.hash
        and old.shape == new.shape
        and old.elements > 0
        and all(
            weight_statistics.understood(matrix.dtype) and not matrix.dtype.startswith("complex")
            for matrix in (old, new)
        )
    )


def _difference(
    store: MatrixStore,
    old: Matrix | None,
    new: Matrix | None,
    turn: Turn | None,
    progress: Callable[[int], None],
) -> Difference | None:
    """The two are read only if their hashes differ and their elements correspond."""
    if old is None or new is None:
        return None
    if turn is None and (old.hash == new.hash or old.shape != new.shape):
        return None
    known = [weight_statistics.understood(matrix.dtype) for matrix in (old, new)]
    if old.dtype != new.dtype and not all(known):
        return None
    if turn is None and all(known) and old.elements > PART:
        parts = _in_parts(store, old, new, progress)
        return weight_statistics.difference_of_parts(old.dtype, new.dtype, parts)
    before, after = store.matrix(old.hash), store.matrix(new.hash)
    if not all(known) and len(before) != len(after):
        return None
    if turn is not None:
        from dlv.versions.copying import turned  # and with it all that edits networks

        after = turned(new.dtype, after, *turn)
    progress((old.nbytes or 0) + (new.nbytes or 0))
    return weight_statistics.difference(old.dtype, before, new.dtype, after)


def _in_parts(
    store: MatrixStore, old: Matrix, new: Matrix, progress: Callable[[int], None]
) -> Iterator[tuple[Raw, Raw]]:
    for start in range(0, old.elements, PART):
        count = min(PART, old.elements - start)
        before, after = (store.slice(matrix.hash, start, count) for matrix in (old, new))
        progress(len(before) + len(after))
        yield before, after
