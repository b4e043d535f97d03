"""What the axes of every value in a network are made of, what made their entries, and which entries
of an edited network's axes are which of the axes before.

A name can change, a layer can come or go in front: what made the numbers stays. So a stretch of
a joined axis carries the marks of all that stands before it, the nearest ones first: the tensors
that made it, the nodes that handed it on, and what kinds of operations these were.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dlv.dataclass import dataclass
from dlv.network.graph import Network, Node
from dlv.network.inference import Ports
from dlv.network.ops.axes import Axes, Axis, Marks, Part, agrees, axis_length, feature_axis
from dlv.network.ops.op import op_of
from dlv.network.sizes import Shape

# A mark says how far away: so many layers that made something new, and in these so many steps.
TENSOR, NODE, KIND = "tensor ", "layer ", "kind "
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


def mark_axes(axes: Axes, added: Marks, *, inside: bool = False) -> Axes:
    """The same with marks on its entries; `inside`: on the stretches of joined ones, too."""
    return tuple(tuple(_marked(part, added, inside) for part in axis) for axis in axes)


def _marked(part: Part, added: Marks, inside: bool) -> Part:
    if part.key == "b":
        return part
    if not part.pieces:
        return replace(part, marks=added)
    # They all came the same way: what made each of them is its own.
    way = {mark: at for mark, at in added.items() if not mark.startswith(TENSOR)}
    return _further(part, way) if inside else part


def _further(part: Part, way: Marks) -> Part:
    if not part.pieces:
        return replace(part, marks=joined((part.marks, way)))
    pieces = tuple((tag, tuple(_further(each, way) for each in axis)) for tag, axis in part.pieces)
    return replace(part, pieces=pieces)


@dataclass(frozen=True)
class Known:
    """The axes of every input, constant and node, one entry per port, None where unknown; and
    what made them."""

    axes: Mapping[str, tuple[Axes | None, ...]]
    marks: Mapping[str, Marks]


def network_axes(
    network: Network, shapes: Mapping[str, Ports]
) -> Mapping[str, tuple[Axes | None, ...]]:
    """The axes of every input, constant and node, one entry per port; None where unknown."""
    return known_axes(network, shapes, {}).axes


def known_axes(
    network: Network, shapes: Mapping[str, Ports], cut: Mapping[str, tuple[Axes, Marks]]
) -> Known:
    """`cut`: of inputs that stand for nodes of another network, what they are there."""
    roles = _roles(network, _walked(network, shapes, {}, cut).axes)
    return _walked(network, shapes, roles, cut)


def _walked(
    network: Network,
    shapes: Mapping[str, Ports],
    roles: Mapping[str, str],
    outside: Mapping[str, tuple[Axes, Marks]],
) -> Known:
    found: dict[str, tuple[Axes | None, ...]] = {}
    known: dict[str, Marks] = {}
    for name in network.constants:
        found[name] = tuple(_plain(shape, "d") for shape in shapes[name])
        known[name] = of_input(name)
    for number, item in enumerate(network.inputs):
        if item.name in outside and agrees(outside[item.name][0], item.shape):
            found[item.name], known[item.name] = (outside[item.name][0],), outside[item.name][1]
            continue
        known[item.name] = of_input(item.name)
        found[item.name] = (mark_axes(_input_axes(item.shape, number, roles), known[item.name]),)
    for node in network.sorted_part:
        inputs = [
            ports[port] if port < len(ports) else None
            for name, port in node.inputs
            for ports in [found.get(name, ())]
        ]
        if node.attrs.get("kind") == "getitem" and node.inputs:
            ports = found.get(node.inputs[0][0], ())
            inputs[0] = ports[node.attrs["index"]] if node.attrs["index"] < len(ports) else None
        given = [known.get(name, {}) for name, _ in node.inputs]
        known[node.name] = of_node(node, given, network.aliases)
        if op_of(node).joins:
            inputs = [
                axes and mark_axes(axes, each, inside=True)
                for axes, each in zip(inputs, given, strict=True)
            ]
        result = []
        for port, shape in enumerate(shapes[node.name]):
            axes = None if shape is None else op_of(node).output_axes(node, port, inputs, shape)
            if axes is not None and shape is not None and not agrees(axes, shape):
                axes = None
            axes = _plain(shape, "d") if axes is None else axes
            result.append(axes and mark_axes(axes, known[node.name]))
        found[node.name] = tuple(result)
    return Known(found, known)


def _input_axes(shape: Shape, number: int, roles: Mapping[str, str]) -> Axes:
    """An input: its axes by their places, or by what the layers that read it take them for."""
    keys = ["b" if not place else f"i{place}@{number}" for place in range(len(shape))]
    named = [roles.get(key, key) for key in keys]
    return tuple(
        (Part(key, dim, key not in ("b", "c")),) for key, dim in zip(named, shape, strict=True)
    )


def _roles(network: Network, found: Mapping[str, tuple[Axes | None, ...]]) -> dict[str, str]:
    """What the axes of inputs are: channels or places, wherever a convolution reads them."""
    roles: dict[str, str] = {}
    for node in network.nodes:
        window = node.attrs.get("kernel") or node.attrs.get("size")
        if "channels" not in node.attrs or not window or not node.inputs:
            continue
        name, port = node.inputs[0]
        ports = found.get(name, ())
        axes = ports[port] if port < len(ports) else None
        if axes is None or len(axes) != len(window) + 2:
            continue
        feature = feature_axis(node.attrs, len(axes))
        spatial = [axis for place, axis in enumerate(axes) if place not in (0, feature)]
        for axis, role in [(axes[feature], "c"), *((a, f"s{i}") for i, a in enumerate(spatial))]:
            if len(axis) == 1 and "@" in axis[0].key:
                roles.setdefault(axis[0].key, role)
    for number, item in enumerate(network.inputs):
        for place in range(1, len(item.shape)):
            roles.setdefault(f"i{place}@{number}", f"i{place}")
    return roles


def _plain(shape: Shape | None, word: str) -> Axes | None:
    if shape is None:
        return None
    return tuple((Part(f"{word}{place}", dim),) for place, dim in enumerate(shape))


_INPUT = re.compile(r"i\d+(@\d+)?")  # an axis of an input, by its place
_FEATURES = ("c", "g", "m")  # channels, their groups, and what each of them is multiplied to


class Run(NamedTuple):
    """A stretch of entries: `size` of them from `new` on are those from `old` on."""

    new: int
    old: int
    size: int


def overlap(old: Axis, new: Axis) -> tuple[Run, ...] | None:
    """The entries that both have, or None if nothing says which ones these are.

    Features grow and shrink at the end. Of a product each factor does, so that of a flattened
    map whole channels stay. Joined axes go stretch by stretch, each by what made it. Places do
    not change their number.
    """
    a, b = _matched(old, new)
    if a is None or b is None:
        return _unlike(old, new)
    runs: list[Run] = [Run(0, 0, 1)]
    rest_old = rest_new = 1
    for before, after in zip(reversed(a), reversed(b), strict=True):
        had, has = before.length, after.length
        if not isinstance(had, int) or not isinstance(has, int):
            if had != has:
                return None
            continue
        own = _own(before, after)
        if own is None:
            return None
        runs = _product(own, runs, rest_new, rest_old)
        rest_old, rest_new = rest_old * had, rest_new * has
    return tuple(merged(runs))


def _matched(old: Axis, new: Axis) -> tuple[Axis | None, Axis | None]:
    """The factors of both, one beside the other, if they are called the same."""
    if [part.key for part in old] == [part.key for part in new]:
        return old, new
    a, b = _larger(old), _larger(new)
    if [part.key for part in a] == [part.key for part in b]:
        return a, b
    return None, None


def _larger(axis: Axis) -> Axis:
    return tuple(part for part in axis if part.length != 1)


def _unlike(old: Axis, new: Axis) -> tuple[Run, ...] | None:
    """Of axes with other factors. A cut-off part does not know what a map was made of."""
    a, b = _larger(old), _larger(new)
    sizes = axis_length(old), axis_length(new)
    if not isinstance(sizes[0], int) or not isinstance(sizes[1], int):
        return None
    if 1 in (len(a), len(b)) and _features(a) and _features(b):
        return (Run(0, 0, min(sizes[0], sizes[1])),)  # in groups or not, they are channels
    keys = [{part.key for part in axis} for axis in (a, b)]
    if keys[0] <= keys[1] or keys[1] <= keys[0]:
        return None  # the same factors turned round, or some of them gone
    if len(a) == len(b) == 1:
        own = None if "*" in a[0].key and "*" in b[0].key else _own(a[0], b[0])
        return None if own is None else tuple(merged(own))
    return (Run(0, 0, sizes[0]),) if sizes[0] == sizes[1] else None


def _features(axis: Axis) -> bool:
    keys = [part.key.rpartition(".")[2] for part in axis]
    whole = not any(part.fixed or part.start is not None for part in axis)
    return whole and all(key in _FEATURES for key in keys) and keys[-1:] != ["g"]


def _own(before: Part, after: Part) -> list[Run] | None:
    """Of one factor; None if nothing says which entries are which."""
    if before.pieces or after.pieces:
        return _stretches(before, after)
    had, has = before.length, after.length
    if not isinstance(had, int) or not isinstance(has, int):
        return None
    away = (after.start or 0) - (before.start or 0)
    if (before.start, after.start) != (None, None) and had == has and not away:
        return [Run(0, 0, had)]
    if (before.start, after.start) != (None, None) and not _of_one(before, after):
        return []  # cut out of something else
    if (before.fixed or after.fixed) and not _is_an_input(before, after):
        return [Run(0, 0, had)] if had == has and not away else None
    first, last = max(0, away), min(had, has + away)
    return [Run(first - away, first, last - first)] if first < last else []


def _of_one(before: Part, after: Part) -> bool:
    """Whether one thing made both; if nothing says what made either, that is taken to be so."""
    made = makers(before.marks), makers(after.marks)
    return made[0] == made[1] or not made[0].isdisjoint(made[1])


def _is_an_input(before: Part, after: Part) -> bool:
    """Whether one is channels, and the other an input of which no more is known."""
    names = sorted(part.key.rpartition(".")[2] for part in (before, after))
    return names[0] == "c" and _INPUT.fullmatch(names[1]) is not None


def _stretches(before: Part, after: Part) -> list[Run] | None:
    """Of joined axes. What is joined on one side alone is a stretch of its own on the other."""
    if _cut_off(before, after):
        return _plainly(before, after)
    old, new = _leaves(before), _leaves(after)
    places = pairs([each for each, _ in old], [each for each, _ in new])
    starts = [0]
    for _, axis in old:
        size = axis_length(axis)
        if not isinstance(size, int):
            return None
        starts.append(starts[-1] + size)
    found: list[Run] = []
    start = 0
    for place, (_, axis) in enumerate(new):
        size = axis_length(axis)
        if not isinstance(size, int):
            return None
        if place in places:
            at = starts[places[place]]
            inner = overlap(old[places[place]][1], axis)
            found += [Run(start + run.new, at + run.old, run.size) for run in inner or ()]
        start += size
    return found


def _cut_off(before: Part, after: Part) -> bool:
    """Whether one is what the other has joined, as the input of a slice is."""
    if before.pieces and after.pieces:
        return False
    plain, joined = (after, before) if before.pieces else (before, after)
    made = makers(plain.marks)
    return not made or all(makers(each) != made for each, _ in _leaves(joined))


def _plainly(before: Part, after: Part) -> list[Run] | None:
    had, has = before.length, after.length
    if not isinstance(had, int) or not isinstance(has, int):
        return None
    outside = any(mark.startswith(OUTSIDE) for mark in makers(after.marks))
    if had != has and outside:
        return None  # what was joined in it is unknown
    return [Run(0, 0, min(had, has))]


def _leaves(part: Part, tag: str = "") -> list[tuple[Marks, Axis]]:
    """What is joined in a joined one is as if it were joined at once."""
    if not part.pieces:
        return [(part.marks or {NODE + tag: 0}, (part,))]
    found: list[tuple[Marks, Axis]] = []
    for name, axis in part.pieces:
        if len(axis) == 1:
            found += _leaves(axis[0], name)
        else:
            told = joined(each.marks for each in axis)
            found.append((told or {NODE + name: 0}, axis))
    return found


def _product(outer: Sequence[Run], inner: Sequence[Run], size_new: int, size_old: int) -> list[Run]:
    """Runs of an axis whose every entry of the outer factor is a whole inner one."""
    if len(inner) == 1 and inner[0] == Run(0, 0, size_new) and size_new == size_old:
        return [Run(run.new * size_new, run.old * size_old, run.size * size_new) for run in outer]
    return [
        Run((run.new + i) * size_new + part.new, (run.old + i) * size_old + part.old, part.size)
        for run in outer
        for i in range(run.size)
        for part in inner
    ]


def merged(runs: Sequence[Run]) -> list[Run]:
    """In the order of what is new, those that go on where another ends put together."""
    found: list[Run] = []
    for run in sorted(runs):
        if not run.size:
            continue
        if found:
            last = found[-1]
            if (last.new + last.size, last.old + last.size) == (run.new, run.old):
                found[-1] = last._replace(size=last.size + run.size)
                continue
        found.append(run)
    return found
