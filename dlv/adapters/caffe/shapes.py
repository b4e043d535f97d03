"""Caffe's layers that only rearrange: Flatten, Reshape, Permute, Slice."""

from __future__ import annotations

from itertools import pairwise

from dlv.adapters.caffe.builder import Builder
from dlv.adapters.caffe.spec import Layer
from dlv.errors import Damaged
from dlv.network.graph import Port
from dlv.network.sizes import Dim

Ports = list[Port]


def flatten(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    param = layer.param("flatten")
    attrs = {
        "kind": "flatten",
        "start": param.integer("axis", 1),
        "end": param.integer("end_axis", -1),
    }
    return [b.add(layer, "RESHAPE", None, _first(layer, inputs), attrs)]


def permute(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    order = layer.param("permute").counts("order")
    rank = b.rank(_first(layer, inputs)[0])
    if not order or rank is None:
        return b.raw(layer, inputs)
    if len(set(order)) != len(order) or max(order) >= rank:
        raise Damaged(f"{layer.where()}: its order is {order[:8]}", why=f"the rank is {rank}")
    axes = [*order, *(axis for axis in range(rank) if axis not in order)]
    attrs = {"kind": "permute", "axes": axes}
    return [b.add(layer, "RESHAPE", None, inputs, attrs)]


def reshape(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    """0 keeps a length, -1 takes what is left, `axis` and `num_axes` say what is replaced."""
    param = layer.param("reshape")
    wanted = param.message("shape").integers("dim", -1)
    shape = b.shape(_first(layer, inputs)[0])
    if shape is None:
        return b.raw(layer, inputs)
    start, count = param.integer("axis", 0), param.integer("num_axes", -1)
    start = start if start >= 0 else len(shape) + start + 1
    end = len(shape) if count == -1 else start + count
    if not 0 <= start <= end <= len(shape):
        raise Damaged(f"{layer.where()}: the axes {start} to {end} do not exist")
    size: list[Dim] = []
    for place, side in enumerate(wanted, start):
        if side == 0:
            if place >= len(shape):
                raise Damaged(f"{layer.where()}: there is no axis {place} to keep")
            size.append(shape[place])
        elif place == 0 and side == b.batch and shape[0] == "B":
            size.append("B")
        else:
            size.append(side)
    size = [*shape[:start], *size, *shape[end:]]
    if size.count(-1) > 1:
        raise Damaged(f"{layer.where()}: -1 is there twice")
    if size.count(-1) + size.count(None) > 1:
        return b.raw(layer, inputs)
    return [b.add(layer, "RESHAPE", None, inputs, {"kind": "reshape", "size": size})]


def slice_(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    param = layer.param("slice")
    axis = param.count("slice_dim", 1) if "slice_dim" in param else param.integer("axis", 1)
    points = param.counts("slice_point")
    tops = len(layer.tops)
    if len(inputs) != 1 or not tops or (points and len(points) != tops - 1):
        raise Damaged(
            f"{layer.where()} has {tops} tops and {len(points)} of slice_point",
            why="there is one less of these, or none",
        )
    if tops == 1:
        return inputs
    shape = b.shape(inputs[0])
    length = None
    if shape is not None and -len(shape) <= axis < len(shape):
        length = shape[axis]
    if not isinstance(length, int):
        return _slices(b, layer, inputs, axis, points)
    if not points:
        if length % tops:
            raise Damaged(f"{layer.where()}: {length} cannot be cut into {tops} equal parts")
        points = [length // tops * index for index in range(1, tops)]
    ends = [0, *points, length]
    sizes = [end - start for start, end in pairwise(ends)]
    if min(sizes) <= 0:
        raise Damaged(
            f"{layer.where()}: its slice_point is {points[:8]}", why=f"the length is {length}"
        )
    attrs = {"kind": "split", "axis": axis, "sizes": sizes}
    name, _ = b.add(layer, "RESHAPE", None, inputs, attrs)
    return [(name, index) for index in range(tops)]


def _slices(b: Builder, layer: Layer, inputs: Ports, axis: int, points: list[int]) -> Ports:
    """Cut where the length is not known: the last part is what is left."""
    if not points or points != sorted(set(points)) or not points[0]:
        return b.raw(layer, inputs)
    result = []
    for index, (start, end) in enumerate(pairwise([0, *points, None])):
        attrs = {"kind": "slice", "axis": axis, "start": start, "end": end}
        result.append(b.add(layer, "RESHAPE", None, inputs, attrs, part=f"top{index}"))
    return result


def _first(layer: Layer, inputs: Ports) -> Ports:
    if len(inputs) != 1 or len(layer.tops) != 1:
        raise Damaged(
            f"{layer.where()} has {len(inputs)} bottoms and {len(layer.tops)} tops",
            why=f"{layer.type} takes one of each",
        )
    return inputs
