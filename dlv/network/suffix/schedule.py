"""Which planes to read, where the error of the scores is a sum over the weights.

Level by level the fewest bytes are looked for whose error, times a reserve, is within what most
rows can bear: rows in use are harder than those that a network was trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dlv.kinds import Floats

Depths = Mapping[str, int]

MOST_ROWS = 0.9
RESERVES = (0.7, 1.0, 1.2, 1.5, 1.9, 2.6, 3.5, 5.0, 8.0)
ANCHOR = 1.9
_TRIES = 24
# A small tensor's plane is taken for this part of the bytes if so much of the error remains.
_BARGAIN = (0.002, 0.9)
_UNBEARABLE = 1e100  # sums of it can still be told from infinity


class Allocation:
    """`errors`: by tensor and depth, of each row; `budget`: what each row bears.

    `bytes`: what a depth of a tensor takes; whole tensors add no error.
    """

    def __init__(
        self,
        errors: Mapping[str, Mapping[int, Floats]],
        bytes_of: Mapping[str, Mapping[int, float]],
        budget: Floats,
    ) -> None:
        self._names = sorted(errors)
        self._depths = {name: sorted(bytes_of[name]) for name in self._names}
        self._bytes = bytes_of
        share = np.maximum(budget, np.finfo(np.float64).tiny)
        none = np.zeros(len(budget))
        with np.errstate(over="ignore"):  # a row that is tied bears nothing
            self._errors = {
                (name, depth): np.minimum(errors[name].get(depth, none) / share, _UNBEARABLE)
                for name in self._names
                for depth in self._depths[name]
            }
        self._place = max(int(np.ceil(MOST_ROWS * len(budget))) - 1, 0)

    def levels(
        self, reserves: Sequence[float] = RESERVES, anchor: float = ANCHOR
    ) -> list[dict[str, int]]:
        """Depths for each reserve, none less deep than the one before.

        The level of the reserve nearest to `anchor` has a free choice; others keep to it.
        """
        least = {name: self._depths[name][0] for name in self._names}
        most = {name: self._depths[name][-1] for name in self._names}
        middle = min(range(len(reserves)), key=lambda at: abs(reserves[at] - anchor))
        found = [self._best(least, most, reserves[middle])]
        for reserve in reserves[middle + 1 :]:
            found.append(self._best(found[-1], most, reserve))
        for reserve in reserves[:middle][::-1]:
            found.insert(0, self._best(least, found[0], reserve))
        return [each for at, each in enumerate(found) if not at or each != found[at - 1]]

    def kept(
        self,
        levels: Sequence[Depths],
        shares: Sequence[float],
        wider: Callable[[Depths], Depths | None],
    ) -> int:
        """How many of the levels are worth their bytes, which determine such shares of the rows.

        A last one that determines no more than the one before is for rows harder than these:
        `wider`, what would follow if it were not there, may take more of the error per byte.
        """
        count = len(levels)
        while count > 1 and shares[count - 1] <= shares[count - 2]:
            before, last = levels[count - 2 : count]
            other = wider(before)
            if other is None or self._slope(before, last) >= self._slope(before, other):
                break
            count -= 1
        return count

    def _slope(self, before: Depths, after: Depths) -> float:
        """How often the error is halved, per byte."""
        first, then = (self._worst(self._total(depths)) for depths in (before, after))
        paid = self._cost(after) - self._cost(before)
        if not first or not then:  # nothing is left: no step is worth more
            return float(not then)
        return float(np.log2(first / then)) / max(paid, 1.0)

    def _total(self, depths: Depths) -> Floats:
        found: Floats = np.sum([self._errors[n, depths[n]] for n in self._names], axis=0)
        return found

    def _worst(self, total: Floats) -> float:
        return float(np.partition(total, self._place)[self._place])

    def _cost(self, depths: Depths) -> float:
        return sum(self._bytes[name][depths[name]] for name in self._names)

    def _best(self, least: Depths, most: Depths, reserve: float) -> dict[str, int]:
        """Few bytes with an error of at most 1 / reserve: down and up, then by turns."""
        limit = 1 / reserve
        ways = [
            self._turned(start, least, most, limit)
            for start in (self._down(most, least, limit), self._up(least, most, limit))
        ]
        return self._bargains(min(ways, key=self._cost), most)

    def _bargains(self, depths: Depths, most: Depths) -> dict[str, int]:
        """Planes that cost next to nothing beside what they spare.

        Levels are nested: without them the next level down would miss a small tensor's plane.
        """
        found = dict(depths)
        dear, worth = _BARGAIN
        while True:
            total, cost = self._total(found), self._cost(found)
            now, moves = self._worst(total), []
            for name in self._names:
                upper = self._next(name, found[name], 1)
                if upper is None or upper > most[name]:
                    continue
                paid = self._bytes[name][upper] - self._bytes[name][found[name]]
                moved = total - self._errors[name, found[name]] + self._errors[name, upper]
                after = self._worst(moved)
                if paid <= dear * cost and after <= worth * now:
                    moves.append(((after - now) / max(paid, 1.0), name, upper))
            if not moves:
                return found
            _, name, upper = min(moves)
            found[name] = upper

    def _turned(
        self, best: dict[str, int], least: Depths, most: Depths, limit: float
    ) -> dict[str, int]:
        for _ in range(_TRIES):
            better = min(
                (self._swapped(best, name, (least, most), limit) for name in self._names),
                key=self._cost,
                default=best,
            )
            if not self._cost(better) < self._cost(best):
                break
            best = better
        return best

    def _down(self, depths: Depths, least: Depths, limit: float) -> dict[str, int]:
        """One plane less at a time, where that costs the least error per byte."""
        found = dict(depths)
        while True:
            total = self._total(found)
            now, moves = self._worst(total), []
            for name in self._names:
                lower = self._next(name, found[name], -1)
                if lower is None or lower < least[name]:
                    continue
                moved = total - self._errors[name, found[name]] + self._errors[name, lower]
                after = self._worst(moved)
                spared = self._bytes[name][found[name]] - self._bytes[name][lower]
                if after <= limit:
                    moves.append(((after - now) / max(spared, 1.0), name, lower))
            if not moves:
                return found
            _, name, lower = min(moves)
            found[name] = lower

    def _up(self, depths: Depths, most: Depths, limit: float) -> dict[str, int]:
        """One plane more at a time, where it spares most error per byte; then less if it fits."""
        found = dict(depths)
        total = self._total(found)
        while (now := self._worst(total)) > limit:
            moves = []
            for name in self._names:
                upper = self._next(name, found[name], 1)
                if upper is None or upper > most[name]:
                    continue
                moved = total - self._errors[name, found[name]] + self._errors[name, upper]
                paid = self._bytes[name][upper] - self._bytes[name][found[name]]
                moves.append(((self._worst(moved) - now) / max(paid, 1.0), name, upper))
            if not moves:
                return found
            _, name, upper = min(moves)
            found[name] = upper
            total = self._total(found)
        return self._down(found, depths, limit)

    def _swapped(
        self, depths: Depths, name: str, between: tuple[Depths, Depths], limit: float
    ) -> dict[str, int]:
        """One plane of a tensor less, others more for it, and then less again where it fits."""
        least, most = between
        lower = self._next(name, depths[name], -1)
        if lower is None or lower < least[name]:
            return dict(depths)
        found = {**depths, name: lower}
        total = self._total(found)
        while (now := self._worst(total)) > limit:
            moves = []
            for other in self._names:
                upper = self._next(other, found[other], 1)
                if upper is None or upper > most[other] or other == name:
                    continue
                moved = total - self._errors[other, found[other]] + self._errors[other, upper]
                paid = self._bytes[other][upper] - self._bytes[other][found[other]]
                moves.append(((self._worst(moved) - now) / max(paid, 1.0), other, upper, moved))
            if not moves or self._cost(found) >= self._cost(depths):
                return dict(depths)
            _, other, upper, total = min(moves, key=lambda move: move[:3])
            found[other] = upper
        return self._down(found, least, limit)

    def _next(self, name: str, depth: int, way: int) -> int | None:
        depths = self._depths[name]
        at = depths.index(depth) + way
        return depths[at] if 0 <= at < len(depths) else None
