"""Caffe's convolutions and poolings: all the ways to write a window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlv.adapters.caffe.builder import Builder
from dlv.adapters.caffe.schema import ENUMS
from dlv.adapters.caffe.spec import Layer
from dlv.adapters.protobuf.message import Message
from dlv.errors import Damaged
from dlv.network.graph import Port
from dlv.network.sizes import MAX_RANK, Dim, Shape

Ports = list[Port]
_FIELDS = (("kernel", "kernel_size", 0), ("stride", "stride", 1), ("pad", "pad", 0))


def convolution(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    return _convolutions(b, layer, inputs, "CONV")


def deconvolution(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    return _convolutions(b, layer, inputs, "DECONV")


def _convolutions(b: Builder, layer: Layer, inputs: Ports, op: str) -> Ports:
    """One top for each bottom, all with the same weights."""
    param = layer.param("convolution")
    if not inputs or len(inputs) != len(layer.tops):
        raise Damaged(f"{layer.where()} has {len(inputs)} bottoms and {len(layer.tops)} tops")
    bias = param.flag("bias_term", True)
    slots = ("weight", "bias") if bias else ("weight",)
    result = []
    for port in inputs:
        rank = b.rank(port)
        axis = param.integer("axis", 1)
        if axis != 1 and (rank is None or axis + rank != 1):
            return b.raw(layer, inputs)
        attrs: dict[str, Any] = {
            "out": param.count("num_output", 0),
            "groups": param.count("group", 1),
            "bias": bias,
            **_window(layer, param, None if rank is None else rank - 2),
        }
        params = {slot: layer.tensor(slot) for slot in slots}
        result.append(b.add(layer, op, None, [port], attrs, params=params))
    return result


def _window(layer: Layer, param: Message, axes: int | None) -> dict[str, Any]:
    fields = (*_FIELDS, ("dilation", "dilation", 1))
    two = any(f"{name}_{side}" in param for name, _, _ in fields for side in "hw")
    lists = [param.counts(field) for _, field, _ in fields]
    if axes is None or not 0 < axes <= MAX_RANK:
        axes = 2 if two else max(2, *map(len, lists)) if max(map(len, lists)) > 1 else 2
    return {
        name: _per_axis(layer, param, name, values, axes, default)
        for (name, _, default), values in zip(fields, lists, strict=True)
    }


def _per_axis(
    layer: Layer, param: Message, name: str, values: Sequence[int], axes: int, default: int
) -> list[int]:
    """One value for all axes, one for each, or `_h` and `_w`."""
    if f"{name}_h" in param or f"{name}_w" in param:
        if values or axes != 2:
            raise Damaged(
                f"{layer.where()}: {name}_h and {name}_w are for two axes",
                why=f"it has {axes}" if axes != 2 else f"{name} is there too",
            )
        return [param.count(f"{name}_h", default), param.count(f"{name}_w", default)]
    if len(values) not in (0, 1, axes):
        raise Damaged(f"{layer.where()}: {name} is there {len(values)} times", why=f"{axes} axes")
    return list(values) if len(values) == axes else [values[0] if values else default] * axes


def pooling(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    param = layer.param("pooling")
    if len(inputs) != 1 or not 1 <= len(layer.tops) <= 2:
        raise Damaged(f"{layer.where()} has {len(inputs)} bottoms and {len(layer.tops)} tops")
    method = param.word("pool", ENUMS["Pool"], "MAX")
    shape = b.shape(inputs[0])
    if shape is not None and len(shape) < 3:
        raise Damaged(
            f"{layer.where()} pools an input of {len(shape)} axes",
            why="there must be some behind those of rows and channels",
        )
    axes = 2 if shape is None else len(shape) - 2
    window = {
        name: _per_axis(layer, param, name, param.counts(field), axes, default)
        for name, field, default in _FIELDS
    }
    variant = {"MAX": "MAX", "AVE": "AVG"}.get(method)
    ceil = param.word("round_mode", ENUMS["Rounding"], "CEIL") == "CEIL"
    if param.flag("global_pooling", False):
        if variant is None:
            kept = None if shape is None else (*shape[:2], *[1] * axes)
            return b.raw(layer, inputs, kept)
        name, _ = b.add(layer, "POOL", variant, inputs, {"size": [1] * axes})
    else:
        lengths: Shape = (None,) * axes if shape is None else shape[2:]
        counts = [_count(*row, ceil=ceil) for row in zip(lengths, *window.values(), strict=True)]
        unpadded = ceil and not any(window["pad"])
        if variant is None or (unpadded and any(map(_empty, lengths, *window.values()))):
            return b.raw(layer, inputs, None if shape is None else (*shape[:2], *counts))
        attrs = {**window, "ceil": ceil and _matters(lengths, window)}
        name, _ = b.add(layer, "POOL", variant, inputs, attrs)
    return [(name, port) for port in range(len(layer.tops))]


def _matters(lengths: Shape, window: dict[str, list[int]]) -> bool:
    """Whether rounding up gives another length than rounding down, or is not known not to.

    So a network that was trained elsewhere and rounds down is seen to be the same.
    """
    return any(
        not isinstance(length, int) or (stride and (length + 2 * pad - kernel) % stride != 0)
        for length, kernel, stride, pad in zip(lengths, *window.values(), strict=True)
    )


def _count(length: Dim, kernel: int, stride: int, pad: int, *, ceil: bool) -> Dim:
    if not isinstance(length, int) or not stride or length + 2 * pad < kernel:
        return None
    room = length + 2 * pad - kernel
    count = (-(-room // stride) if ceil else room // stride) + 1
    return count - (pad > 0 and (count - 1) * stride >= length + pad)


def _empty(length: Dim, kernel: int, stride: int, pad: int) -> bool:
    """Whether Caffe adds a last window without any element, which no other program does.

    It drops windows that begin behind the input only where there is padding.
    """
    if not isinstance(length, int):
        return False
    count = _count(length, kernel, stride, pad, ceil=True)
    return isinstance(count, int) and (count - 1) * stride >= length
