"""What each axis is made of: channels, places, gates; who brings which stretch of a joined one.

A flattened feature map is an axis of channels times places. Knowing that, weights can be carried
over when one factor grows, and two ways of storing them can be told from two networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import dlv.network.edits.marks as marks
from dlv.network.edits.marks import Marks
from dlv.network.edits.regrouping import grouping
from dlv.network.graph import Network, Node
from dlv.network.inference import Ports
from dlv.network.sizes import Dim, Shape, dim_of, product


@dataclass(frozen=True)
class Part:
    """One factor of an axis.

    `fixed`: entries are places or gates, not a bag of features: of another number nothing can
    be said to be the same. `pieces`: of a joined axis, who brings which stretch; of what was cut
    out, `start` is where it began. `marks`: what made these features. `groups`: so many equal
    stretches has the axis `whole`, and the entries are those of any one of them.
    """

    key: str
    length: Dim
    fixed: bool = False
    pieces: tuple[tuple[str, Axis], ...] = ()
    start: int | None = None
    marks: Marks = field(default_factory=dict, compare=False, repr=False)
    groups: int = 1
    whole: Axis = ()


Axis = tuple[Part, ...]  # slowest first
Axes = tuple[Axis, ...]


def axis_length(axis: Axis) -> Dim:
    return dim_of(product(part.length for part in axis))


def cut_axis(axis: Axis, start: int, end: int) -> Axis | None:
    """The entries from `start` to `end`; None where they are not whole ones of the first factor."""
    inner = axis_length(axis[1:]) if len(axis) > 1 else 1
    if not axis or not isinstance(inner, int) or not inner or start % inner or end % inner:
        return None
    outer, low, high = axis[0], start // inner, end // inner
    pieces: list[tuple[str, Axis]] = []
    at = 0
    for tag, piece in outer.pieces:
        size = axis_length(piece)
        if not isinstance(size, int):
            return None
        first, last = max(low - at, 0), min(high - at, size)
        if first < last:
            part = piece if (first, last) == (0, size) else cut_axis(piece, first, last)
            if part is None:
                return None
            pieces.append((tag, part))
        at += size
    begin = None if pieces else (outer.start or 0) + low
    return (replace(outer, length=high - low, pieces=tuple(pieces), start=begin), *axis[1:])


def mark_axes(axes: Axes, given: Marks, *, inside: bool = False) -> Axes:
    """The same with marks on its entries; `inside`: on the stretches of joined ones, too."""
    return tuple(tuple(_marked(part, given, inside) for part in axis) for axis in axes)


def _marked(part: Part, given: Marks, inside: bool) -> Part:
    if part.key == "b":
        return part
    if not part.pieces:
        return replace(part, marks=given)
    # They all came the same way: what made each of them is its own.
    way = {mark: at for mark, at in given.items() if not mark.startswith(marks.TENSOR)}
    return _further(part, way) if inside else part


def _further(part: Part, way: Marks) -> Part:
    if not part.pieces:
        return replace(part, marks=marks.joined((part.marks, way)))
    pieces = tuple((tag, tuple(_further(each, way) for each in axis)) for tag, axis in part.pieces)
    return replace(part, pieces=pieces)


__all__ = [
    "Axes",
    "Axis",
    "Known",
    "Part",
    "axis_length",
    "feature_axis",
    "known_axes",
    "network_axes",
    "out_axis",
    "parameter_axes",
]


def feature_axis(node: Node, rank: int) -> int:
    return rank - 1 if node.attrs.get("channels") == "last" else 1


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
        known[name] = marks.of_input(name)
    for number, item in enumerate(network.inputs):
        if item.name in outside and _agrees(outside[item.name][0], item.shape):
            found[item.name], known[item.name] = (outside[item.name][0],), outside[item.name][1]
            continue
        known[item.name] = marks.of_input(item.name)
        found[item.name] = (mark_axes(_given(item.shape, number, roles), known[item.name]),)
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
        known[node.name] = marks.of_node(node, given, network.aliases)
        if node.op == "CONCAT":
            inputs = [
                axes and mark_axes(axes, each, inside=True)
                for axes, each in zip(inputs, given, strict=True)
            ]
        result = []
        for port, shape in enumerate(shapes[node.name]):
            axes = None if shape is None else _made(node, port, inputs, shape)
            if axes is not None and shape is not None and not _agrees(axes, shape):
                axes = None
            axes = _plain(shape, "d") if axes is None else axes
            result.append(axes and mark_axes(axes, known[node.name]))
        found[node.name] = tuple(result)
    return Known(found, known)


def _given(shape: Shape, number: int, roles: Mapping[str, str]) -> Axes:
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
        feature = feature_axis(node, len(axes))
        spatial = [axis for place, axis in enumerate(axes) if place not in (0, feature)]
        for axis, role in [(axes[feature], "c"), *((a, f"s{i}") for i, a in enumerate(spatial))]:
            if len(axis) == 1 and "@" in axis[0].key:
                roles.setdefault(axis[0].key, role)
    for number, item in enumerate(network.inputs):
        for place in range(1, len(item.shape)):
            roles.setdefault(f"i{place}@{number}", f"i{place}")
    return roles


def _agrees(axes: Axes, shape: Shape) -> bool:
    return len(axes) == len(shape) and all(
        axis_length(axis) == dim or axis_length(axis) is None
        for axis, dim in zip(axes, shape, strict=True)
    )


def _plain(shape: Shape | None, word: str) -> Axes | None:
    if shape is None:
        return None
    return tuple((Part(f"{word}{place}", dim),) for place, dim in enumerate(shape))


def _map(batch: Dim, channels: Axis, node: Node, shape: Shape) -> Axes:
    """A feature map of that shape."""
    place = feature_axis(node, len(shape))
    spatial = [dim for i, dim in enumerate(shape) if i not in (0, place)]
    axes: list[Axis] = [(Part(f"s{i}", dim, True),) for i, dim in enumerate(spatial)]
    axes.insert(place - 1, channels)
    return ((Part("b", batch),), *axes)


def _made(node: Node, port: int, inputs: Sequence[Axes | None], shape: Shape) -> Axes | None:
    op, attrs = node.op, node.attrs
    first = inputs[0] if inputs else None
    if op in ("CONV", "DECONV", "POOL") and node.variant != "MEAN":
        if first is None or len(first) != len(shape):
            return None
        before = first[feature_axis(node, len(shape))]
        channels = before if op == "POOL" else out_axis(node, before)
        made = _map(shape[0], channels, node, shape)
        return (first[0], *made[1:])
    if op == "POOL":
        return first and _mean(node, first)
    if op == "FULL":
        return first and (*first[:-1], (Part("c", attrs["out"]),))
    if op == "EMBED":
        return None if first is None else (*first, (Part("c", attrs["out"]),))
    if op in ("NORM", "RELU", "ACT", "SOFTMAX", "DROPOUT"):
        return first
    if op in ("ADD", "MUL"):
        return _combined([axes for axes in inputs if axes is not None and _agrees(axes, shape)])
    if op == "CONCAT":
        return _joined(node, inputs, shape)
    if op == "ATTENTION":
        value = inputs[2] if len(inputs) > 2 else None
        return None if first is None or value is None else (*first[:-1], value[-1])
    if op == "RNN" and first is not None and port == 0:
        ways = 2 if attrs["bidirectional"] else 1
        return (*first[:2], (Part("way", ways, True), Part("c", attrs["hidden"])))
    if op == "RESHAPE" and first is not None:
        return _reshaped(node, port, first, shape)
    return None


def _combined(known: Sequence[Axes]) -> Axes | None:
    """The axes of a sum: of its first term, but what is joined in any is told."""
    if not known:
        return None
    return tuple(
        next((axis for axis in same if any(part.pieces for part in axis)), same[0])
        for same in zip(*known, strict=True)
    )


def out_axis(node: Node, before: Axis) -> Axis:
    """The channels that a convolution makes; a depthwise one keeps apart what it got."""
    out, groups = node.attrs["out"], node.attrs["groups"]
    if groups > 1 and axis_length(before) == groups:
        return (*before, Part("m", out // groups))
    if groups > 1:
        return (Part("g", groups), Part("c", out // groups))
    return (Part("c", out),)


def _mean(node: Node, first: Axes) -> Axes:
    axis = node.attrs["axis"]
    rank = len(first)
    gone = set(range(rank)) if axis is None else {a % rank for a in axis}
    if not node.attrs["keep"]:
        return tuple(a for place, a in enumerate(first) if place not in gone)
    return tuple(
        tuple(replace(part, length=1, pieces=()) for part in a) if place in gone else a
        for place, a in enumerate(first)
    )


def _joined(node: Node, inputs: Sequence[Axes | None], shape: Shape) -> Axes | None:
    if not inputs or any(axes is None or len(axes) != len(shape) for axes in inputs):
        return None
    known = [axes for axes in inputs if axes is not None]
    place = node.attrs["axis"] % len(shape)
    pieces = tuple(
        (f"{name}:{port}", axes[place])
        for (name, port), axes in zip(node.inputs, known, strict=True)
    )
    joined = (Part("c", shape[place], pieces=pieces),)
    return (*known[0][:place], joined, *known[0][place + 1 :])


def _reshaped(node: Node, port: int, first: Axes, shape: Shape) -> Axes | None:
    kind, attrs, rank = node.attrs["kind"], node.attrs, len(first)
    if kind in ("contiguous", "to", "getitem"):
        return first
    if kind in ("flatten", "view", "reshape", "squeeze", "unsqueeze"):
        return _regrouped(first, shape)
    if kind in ("transpose", "permute"):
        order = list(range(rank))
        if kind == "transpose":
            a, b = (axis % rank for axis in attrs["axes"])
            order[a], order[b] = b, a
        else:
            order = [axis % rank for axis in attrs["axes"]]
        return tuple(first[place] for place in order)
    if kind == "select":
        place = attrs["axis"] % rank
        return (*first[:place], *first[place + 1 :])
    if kind in ("slice", "split"):
        place = attrs["axis"] % rank
        return (*first[:place], _taken(node, port, first[place], shape), *first[place + 1 :])
    if kind == "expand":
        new = len(shape) - rank
        kept = [
            axis if axis_length(axis) == dim else (Part("x", dim),)
            for axis, dim in zip(first, shape[new:], strict=True)
        ]
        return (*[(Part("x", dim),) for dim in shape[:new]], *kept)
    return None


def _taken(node: Node, port: int, axis: Axis, shape: Shape) -> Axis:
    """A stretch of an axis. What it is made of is told, if it holds whole entries of a product."""
    attrs = node.attrs
    size, total = shape[attrs["axis"] % len(shape)], axis_length(axis)
    split = attrs["kind"] == "split"
    which = port if split else f"{attrs['start']}:{attrs['end']}:{attrs['step']}"
    start: int | None = sum(attrs["sizes"][:port]) if split else None
    ends = () if split else (attrs["start"], attrs["end"], attrs["step"])
    if isinstance(total, int) and not split and all(isinstance(x, int | None) for x in ends):
        first, _, step = slice(*ends).indices(total)
        start = first if step == 1 else None
    if start is not None and isinstance(size, int) and isinstance(total, int):
        found = cut_axis(axis, start, start + size)
        if found is not None:
            outer = found[0]
            return (replace(outer, key=f"{outer.key}/{which}"), *found[1:])
    if len(axis) == 1:
        return (Part(f"{axis[0].key}/{which}", size, axis[0].fixed),)
    return (Part(f"{'*'.join(f'{part.key}{part.length}' for part in axis)}/{which}", size, True),)


def _regrouped(first: Axes, shape: Shape) -> Axes | None:
    """Axes merged keep their factors; one that is split into what it is made of has them again."""
    groups = grouping(tuple(axis_length(axis) for axis in first), shape)
    if groups is None:
        return None
    found: list[Axis] = [()] * len(shape)
    for ours, theirs in groups:
        parts = [part for place in ours for part in first[place]]
        if not theirs:
            continue
        if len(theirs) == 1:
            found[theirs[0]] = tuple(parts) or (Part("1", 1),)
            continue
        left = [part for part in parts if part.length != 1]
        for place in theirs:
            taken: list[Part] = []
            while axis_length(tuple(taken)) != shape[place] and left:
                taken.append(left.pop(0))
            if axis_length(tuple(taken)) != shape[place]:
                left = [Part("", None)]
                break
            found[place] = tuple(taken) or (Part("1", 1),)
        if left:
            key = "*".join(part.key for part in parts)
            for place in theirs:
                found[place] = (Part(f"{key}.{place - theirs[0]}", shape[place]),)
    return tuple(found)


# Parameters


def parameter_axes(
    node: Node, inputs: Sequence[Axes | None], outputs: Sequence[Axes | None]
) -> dict[str, Axes]:
    """What the axes of the tensor in each slot are; slots are missing where that is not known."""
    op, attrs = node.op, node.attrs
    first = inputs[0] if inputs else None
    if op in ("CONV", "DECONV") and first is not None:
        return _convolution(node, first[feature_axis(node, len(first))])
    if op == "FULL" and first:
        out: Axis = (Part("o.c", attrs["out"]),)
        weight = (out, _renamed(first[-1], "i."))
        return {"weight": weight if attrs["layout"] == "out_in" else weight[::-1], "bias": (out,)}
    if op == "EMBED":
        return {"weight": ((Part("r", attrs["rows"]),), (Part("o.c", attrs["out"]),))}
    if op == "NORM" and first is not None:
        place = attrs["axis"] % len(first)
        end = len(first) if node.variant in ("LAYER", "RMS") else place + 1
        return {slot: tuple(first[place:end]) for slot in node.params}
    if op == "RNN" and first is not None:
        return _recurrent(node, first)
    if op in ("ADD", "MUL") and attrs["shape"] is not None and outputs and outputs[0] is not None:
        side, whole = attrs["shape"], outputs[0]
        if len(side) <= len(whole):
            pairs = zip(side, whole[len(whole) - len(side) :], strict=True)
            axes = [axis if axis_length(axis) == dim else (Part("1", dim),) for dim, axis in pairs]
            return {"value": tuple(axes)}
    return {}


def _renamed(axis: Axis, prefix: str) -> Axis:
    return tuple(replace(part, key=prefix + part.key) for part in axis)


def _convolution(node: Node, before: Axis) -> dict[str, Axes]:
    attrs = node.attrs
    groups, layout = attrs["groups"], attrs["layout"]
    kernel: Axes = tuple((Part(f"k{i}", size),) for i, size in enumerate(attrs["kernel"]))
    out = _renamed(out_axis(node, before), "o.")
    depth = axis_length(before)
    if layout == "depthwise":
        many = (Part("o.m", attrs["out"] // groups),)
        return {"weight": (*kernel, _renamed(before, "o."), many), "bias": (out,)}
    if node.op == "DECONV":
        made: Axis = (Part("o.c", attrs["out"] // groups),)
        into: Axis = _renamed(before, "i.")
        if groups > 1 and depth != groups:
            made = _grouped(made, out, groups)
        weight = (made, into) if layout == "kernel_first" else (into, made)
    else:
        into = _renamed(before, "i.")
        if groups > 1:
            each = (Part("i.c", depth // groups if isinstance(depth, int) else None),)
            into = each if depth == groups else _grouped(each, into, groups)
        weight = (into, out) if layout == "kernel_first" else (out, into)
    whole = (*kernel, *weight) if layout == "kernel_first" else (*weight, *kernel)
    return {"weight": whole, "bias": (out,)}


def _grouped(each: Axis, whole: Axis, groups: int) -> Axis:
    """Each group has its own stretch of what the whole layer reads, or makes."""
    return (replace(each[0], groups=groups, whole=whole),)


def _recurrent(node: Node, first: Axes) -> dict[str, Axes]:
    hidden: Axis = (Part("o.c", node.attrs["hidden"]),)
    ways = 2 if node.attrs["bidirectional"] else 1
    gates: Axis = (Part("gate", 4 if node.variant == "LSTM" else 3, True), *hidden)
    found: dict[str, Axes] = {}
    for slot in node.params:
        if slot.startswith("bias"):
            found[slot] = (gates,)
        elif slot.startswith("weight_hh"):
            found[slot] = (gates, (Part("i.c", node.attrs["hidden"]),))
        elif slot.startswith("weight_ih_l0"):
            found[slot] = (gates, _renamed(first[-1], "i."))
        else:
            found[slot] = (gates, (Part("i.way", ways, True), Part("i.c", node.attrs["hidden"])))
    return found
