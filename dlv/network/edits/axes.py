"""What the axes of every value in a network are made of, and what made their entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import dlv.network.edits.marks as marks
from dlv.dataclass import dataclass
from dlv.network.graph import Network
from dlv.network.inference import Ports
from dlv.network.ops.axes import Axes, Marks, Part, agrees, feature_axis
from dlv.network.ops.op import op_of
from dlv.network.sizes import Shape


def mark_axes(axes: Axes, added: Marks, *, inside: bool = False) -> Axes:
    """The same with marks on its entries; `inside`: on the stretches of joined ones, too."""
    return tuple(tuple(_marked(part, added, inside) for part in axis) for axis in axes)


def _marked(part: Part, added: Marks, inside: bool) -> Part:
    if part.key == "b":
        return part
    if not part.pieces:
        return replace(part, marks=added)
    # They all came the same way: what made each of them is its own.
    way = {mark: at for mark, at in added.items() if not mark.startswith(marks.TENSOR)}
    return _further(part, way) if inside else part


def _further(part: Part, way: Marks) -> Part:
    if not part.pieces:
        return replace(part, marks=marks.joined((part.marks, way)))
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
        known[name] = marks.of_input(name)
    for number, item in enumerate(network.inputs):
        if item.name in outside and agrees(outside[item.name][0], item.shape):
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
