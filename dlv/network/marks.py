"""What tells one stretch of features from another: whose weights made them, and on what way.

A name can change, a layer can come or go in front: what made the numbers stays. So a stretch of
a joined axis carries the marks of all that stands before it, the nearest ones first: the tensors
that made it, the nodes that handed it on, and what kinds of operations these were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dlv.network.graph import Node

# A mark -> how far away: so many layers that made something new, and in these so many steps.
Marks = Mapping[str, int]

TENSOR, NODE, KIND = "tensor ", "node ", "kind "
LAYER = 1 << 20
_MOST = 64  # marks of one stretch, the nearest ones
_MAKERS = ("CONV", "DECONV", "FULL", "EMBED", "RNN")


def of_input(name: str) -> Marks:
    """Of what is handed in; of a slice that is what the node of that name made."""
    return {f"{TENSOR}>{name}": 0, f"{NODE}{name}": 0}


def of_node(node: Node, given: Iterable[Marks], aliases: Mapping[str, str]) -> Marks:
    """Of what a node makes out of what has these marks."""
    found = {f"{NODE}{node.name}": 0, f"{KIND}{node.op} {node.variant}": 0}
    for name in node.params.values():
        found[f"{TENSOR}{aliases.get(name, name)}"] = 0
    further = LAYER if node.op in _MAKERS else 1
    return joined([found, *({mark: at + further for mark, at in m.items()} for m in given)])


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


def likeness(one: Marks, other: Marks) -> tuple[float, ...]:
    """How much the two have in common: tensors before nodes, nodes before kinds."""
    return tuple(_share(one, other, kind) for kind in (TENSOR, NODE, KIND))


def _share(one: Marks, other: Marks, kind: str) -> float:
    both = every = 0.0
    for mark in {**one, **other}:
        if mark.startswith(kind):
            a, b = (_weight(marks.get(mark)) for marks in (one, other))
            both, every = both + min(a, b), every + max(a, b)
    return round(both / every, 9) if every else 0.0


def _weight(at: int | None) -> float:
    if at is None:
        return 0.0
    layers, steps = divmod(at, LAYER)
    found: float = 8.0**-layers * 0.9 ** min(steps, 64)
    return found


def pairs(old: Sequence[Marks], new: Sequence[Marks]) -> dict[int, int]:
    """Which stretch of a joined axis is which of another one: new place -> old place.

    What was made by the same tensors, if only one on each side was, comes first; then what has
    most in common, of equals what stands nearest. Where nothing has, the order counts.
    """
    found: dict[int, int] = {}
    for j, i in _sole(old, new):
        found[j] = i
    rest_old = [i for i in range(len(old)) if i not in set(found.values())]
    rest_new = [j for j in range(len(new)) if j not in found]
    scored = sorted(
        (tuple(-part for part in likeness(old[i], new[j])), abs(i - j), i, j)
        for i in rest_old
        for j in rest_new
    )
    taken: set[int] = set()
    for score, _, i, j in scored:
        if any(score) and i not in taken and j not in found:
            found[j] = i
            taken.add(i)
    if not found and len(old) == len(new):
        return {place: place for place in range(len(new))}
    return found


def _sole(old: Sequence[Marks], new: Sequence[Marks]) -> list[tuple[int, int]]:
    places: list[dict[frozenset[str], list[int]]] = [{}, {}]
    for side, all_of in zip(places, (old, new), strict=True):
        for place, marks in enumerate(all_of):
            side.setdefault(makers(marks), []).append(place)
    return [
        (their[0], places[0][key][0])
        for key, their in places[1].items()
        if key and len(their) == 1 and len(places[0].get(key, ())) == 1
    ]
