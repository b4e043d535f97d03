"""Orders of graphs, walks through them, and names that are free: the same for every graph."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Sequence


def topological(producers: Sequence[Iterable[int]]) -> list[int]:
    """The positions of a graph's nodes, producers before users, otherwise as they come.

    `producers`: by position, of each node those that it reads. What is on a cycle, or waits for
    one, is left out.
    """
    waits = [0] * len(producers)
    users: list[list[int]] = [[] for _ in producers]
    for position, read in enumerate(producers):
        for producer in set(read):
            users[producer].append(position)
            waits[position] += 1
    ready = [position for position, count in enumerate(waits) if not count]
    order = []
    while ready:
        position = heapq.heappop(ready)
        order.append(position)
        for user in users[position]:
            waits[user] -= 1
            if not waits[user]:
                heapq.heappush(ready, user)
    return order


def reached(starts: Iterable[str], neighbours: Callable[[str], Iterable[str]]) -> set[str]:
    """All names to which one comes from the starts, these included."""
    found: set[str] = set()
    todo = list(starts)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(neighbours(name))
    return found


class FreeNames:
    """Names given out once; a repeat gets the first free one of `conv_1`, `conv_2`, ...

    Numbers begin with `first`. `reserved` names are given to those who ask for them, and never
    made up for a repeat.
    """

    def __init__(
        self, used: Iterable[str] = (), reserved: Collection[str] = (), first: int = 1
    ) -> None:
        self._before = first - 1
        self._last = dict.fromkeys(used, self._before)  # name -> the last number put behind it
        self._reserved = reserved

    def __contains__(self, name: str) -> bool:
        return name in self._last

    def __len__(self) -> int:
        return len(self._last)

    def take(self, wanted: str) -> str:
        """Return the name itself, or with the first free number behind it; it is in use now."""
        name, number = wanted, self._last.get(wanted, self._before)
        while name in self._last or (name != wanted and name in self._reserved):
            number += 1
            name = f"{wanted}_{number}"
        self._last[wanted] = number
        self._last.setdefault(name, self._before)
        return name

    def forget_after(self, count: int) -> None:
        """Free all names but the first `count` ones."""
        while len(self._last) > count:
            self._last.popitem()

    def copy(self) -> FreeNames:
        names = FreeNames((), self._reserved, self._before + 1)
        names._last = dict(self._last)
        return names
