"""Free names for the nodes of a network that is read from another format."""

from __future__ import annotations

from collections.abc import Collection, Iterable


class FreeNames:
    """Names given out once; a repeat gets the first free one of `_1`, `_2`, ...

    `reserved` names are given to those who ask for them, and never made up for a repeat.
    """

    def __init__(self, taken: Iterable[str] = (), reserved: Collection[str] = ()) -> None:
        self._last = dict.fromkeys(taken, 0)  # name -> the last number put behind it
        self._reserved = reserved

    def __contains__(self, name: str) -> bool:
        return name in self._last

    def __len__(self) -> int:
        return len(self._last)

    def take(self, wanted: str) -> str:
        """Return the name itself, or with the first free number behind it."""
        name, number = wanted, self._last.get(wanted, 0)
        while name in self._last or (number and name in self._reserved):
            number += 1
            name = f"{wanted}_{number}"
        self._last[wanted] = number
        self._last.setdefault(name, 0)
        return name

    def forget_after(self, count: int) -> None:
        """Free all names but the first `count` ones."""
        while len(self._last) > count:
            self._last.popitem()

    def copy(self) -> FreeNames:
        names = FreeNames((), self._reserved)
        names._last = dict(self._last)
        return names
