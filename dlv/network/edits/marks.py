"""What tells one stretch of features from another: whose weights made them, and on what way.

A name can change, a layer can come or go in front: what made the numbers stays. So a stretch of
a joined axis carries the marks of all that stands before it, the nearest ones first: the tensors
that made it, the nodes that handed it on, and what kinds of operations these were.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from dlv.network.graph import Node
from dlv.network.ops.axes import Marks
from dlv.network.ops.op import op_of

# A mark says how far away: so many layers that made something new, and in these so many steps.
TENSOR, NODE, KIND = "tensor ", "node ", "kind "
OUTSIDE = f"{TENSOR}>"  # what is handed in
LAYER = 1 << 20
_MOST = 64  # marks of one stretch, the nearest ones
_WEIGHTS = {TENSOR: 1.0, KIND: 0.5, NODE: 0.25}
_SURE, _FAR = 1e6, 0.25


def of_input(name: str) -> Marks:
    """Of what is handed in; of a slice that is what the node of that name made."""
    return {f"{OUTSIDE}{name}": 0, f"{NODE}{name}": 0}


def of_node(node: Node, inputs: Iterable[Marks], aliases: Mapping[str, str]) -> Marks:
    """Of what a node makes out of what has these marks."""
    found = {f"{NODE}{node.name}": 0, f"{KIND}{node.op} {node.variant}": 0}
    for name in node.params.values():
        found[f"{TENSOR}{aliases.get(name, name)}"] = 0
    further = LAYER if op_of(node).makes_features else 1
    return joined([found, *({mark: at + further for mark, at in m.items()} for m in inputs)])


def joined(parts: Iterable[Marks]) -> Marks:
    """All of them, each as near as it is in any."""
    found: dict[str, int] = {}
    for marks in parts:
        for mark, at in marks.items():
            if at < found.get(mark, at + 1):
                found[mark] = at
    if len(found) <= _MOST:
        return found
    nearest = sorted(found.items(), key=lambda pair: (pair[1], pair[0]))
    return dict(nearest[:_MOST])


def makers(marks: Marks) -> frozenset[str]:
    """The tensors, or the inputs, that the features themselves are of."""
    return frozenset(mark for mark, at in marks.items() if at < LAYER and mark.startswith(TENSOR))


def likeness(a: Marks, b: Marks) -> float:
    """How much the two have in common: tensors before kinds, kinds before nodes."""
    return sum(much * _share(a, b, kind) for kind, much in _WEIGHTS.items())


def _share(one: Marks, other: Marks, kind: str) -> float:
    both = every = 0.0
    for mark in {**one, **other}:
        if mark.startswith(kind):
            a, b = (_weight(marks.get(mark)) for marks in (one, other))
            both, every = both + min(a, b), every + max(a, b)
    return round(both / every, 9) if every else 0.0


def _weight(distance: int | None) -> float:
    if distance is None:
        return 0.0
    layers, steps = divmod(distance, LAYER)
    found: float = 8.0**-layers * 0.9 ** min(steps, 64)
    return found


def pairs(old: Sequence[Marks], new: Sequence[Marks]) -> dict[int, int]:
    """Which stretch of a joined axis is which of another one: new place -> old place.

    What was made by the same tensors, if only one on each side was, comes first. The rest is
    taken in its order, so that most is in common, unless far more is in another order. What has
    nothing in common with any stands in for what stood in its place.
    """
    sure = _sole(old, new)
    if len(sure) == max(len(old), len(new)):
        return sure
    taken = set(sure.values())
    alike = {
        (i, j): likeness(old[i], new[j])
        for i in range(len(old))
        for j in range(len(new))
        if i not in taken and j not in sure
    }
    in_order = _in_order(len(old), len(new), sure, alike)
    freely = _freely(alike)
    found = in_order
    if found is None or _total(freely, alike) > _total(found, alike) + _FAR:
        found = freely
    found = {**found, **sure}
    if len(old) != len(new):
        return found
    left = set(range(len(old))) - set(found.values()) - found.keys()
    return found | {place: place for place in left if makers(new[place]) or not found}


def _total(pairs: Mapping[int, int], alike: Mapping[tuple[int, int], float]) -> float:
    return sum(alike.get((i, j), 0.0) for j, i in pairs.items())


def _freely(alike: Mapping[tuple[int, int], float]) -> dict[int, int]:
    """What is most alike first."""
    found: dict[int, int] = {}
    taken: set[int] = set()
    for (i, j), much in sorted(
        alike.items(), key=lambda pair: (-pair[1], abs(pair[0][0] - pair[0][1]))
    ):
        if much and i not in taken and j not in found:
            found[j] = i
            taken.add(i)
    return found


def _in_order(
    old: int, new: int, sure: Mapping[int, int], alike: Mapping[tuple[int, int], float]
) -> dict[int, int] | None:
    """The pairs that do not cross, with most in common; None if what is sure does cross."""
    if [i for _, i in sorted(sure.items())] != sorted(sure.values()):
        return None
    best = [[0.0] * (new + 1) for _ in range(old + 1)]
    for i in reversed(range(old)):
        for j in reversed(range(new)):
            here = _SURE if sure.get(j) == i else alike.get((i, j), 0.0)
            best[i][j] = max(best[i + 1][j + 1] + here, best[i + 1][j], best[i][j + 1])
    found: dict[int, int] = {}
    i = j = 0
    while i < old and j < new:
        here = _SURE if sure.get(j) == i else alike.get((i, j), 0.0)
        if here and best[i][j] == best[i + 1][j + 1] + here:
            found[j] = i
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return found


def _sole(old: Sequence[Marks], new: Sequence[Marks]) -> dict[int, int]:
    """New place -> old place of what only one on each side is: by its tensors, or altogether."""
    found: dict[int, int] = {}
    for key in (makers, _all):
        places: list[dict[Hashable, list[int]]] = [{}, {}]
        for side, of in zip(places, (old, new), strict=True):
            for place, marks in enumerate(of):
                side.setdefault(key(marks), []).append(place)
        for mark, theirs in places[1].items():
            ours = places[0].get(mark, ())
            if mark and len(theirs) == len(ours) == 1 and theirs[0] not in found:
                found[theirs[0]] = ours[0]
    return found


def _all(marks: Marks) -> frozenset[tuple[str, int]]:
    return frozenset(marks.items())
