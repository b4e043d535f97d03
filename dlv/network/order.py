"""Orders of graphs, walks through them, and names that are free: the same for every graph."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence


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


class Names:
    """Names that are in use, and new ones beside them: `conv`, `conv_1`, `conv_2`."""

    def __init__(self, used: Iterable[str] = (), first: int = 1) -> None:
        self.used = set(used)
        self._first = first
        self._next: dict[str, int] = {}

    def new(self, wanted: str) -> str:
        """The name itself, or with the first number behind it that makes it new; in use now."""
        name = wanted
        while name in self.used:
            number = self._next.get(wanted, self._first)
            self._next[wanted] = number + 1
            name = f"{wanted}_{number}"
        self.used.add(name)
        return name
