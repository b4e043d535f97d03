"""Names of nodes: the module's path where the call is all that a leaf module does, else path.op."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from dlv.adapters.aten.record import Call


class Names:
    """Names given out once; a repeat gets `_1`, `_2`, ..."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        name = wanted
        while name in self._taken:
            number = self._next.get(wanted, 1)
            self._next[wanted] = number + 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name


@dataclass(frozen=True)
class Named:
    """A call to be named; `main` if it is more than plumbing."""

    call: Call
    main: bool


def give(items: Sequence[Named], tensors: Iterable[str], names: Names) -> list[str]:
    """One name for each call, in their order. `tensors` are those of the module."""
    inner = _inner_modules((item.call.path for item in items), tensors)
    wanted = _wanted(items, inner)
    # Modules come first, so that `l`, called twice, does not take the name of a module `l_1`.
    first: dict[str, int] = {}
    for place, (name, whole) in enumerate(wanted):
        if whole:
            first.setdefault(name, place)
    given = {place: names.fresh(name) for name, place in first.items()}
    return [
        given[place] if place in given else names.fresh(name)
        for place, (name, _) in enumerate(wanted)
    ]


def _wanted(items: Sequence[Named], inner: Collection[str]) -> list[tuple[str, bool]]:
    """The name each would like, and whether it is that of its module."""
    mains: dict[tuple[str, str], int] = {}
    alls: dict[tuple[str, str], int] = {}
    for item in items:
        key = (item.call.path, item.call.visit)
        alls[key] = alls.get(key, 0) + 1
        mains[key] = mains.get(key, 0) + item.main
    result = []
    for item in items:
        path, key = item.call.path, (item.call.path, item.call.visit)
        alone = mains[key] == 1 if item.main else alls[key] == 1
        word = item.call.base.rstrip("_") or item.call.base
        if path and path not in inner and alone:
            result.append((path, True))
        else:
            result.append((f"{path}.{word}" if path else word, False))
    return result


def _inner_modules(paths: Iterable[str], tensors: Iterable[str]) -> set[str]:
    """Modules that hold other modules."""
    found: set[str] = set()
    modules = {*paths, *(name.rpartition(".")[0] for name in tensors)}
    for path in modules:
        above = path.rpartition(".")[0]
        while above and above not in found:
            found.add(above)
            above = above.rpartition(".")[0]
    return found
