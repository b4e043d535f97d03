"""Sums, products, comparisons and masks of tensors, both ways."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.keras.build import OPS, Held, Model, Out, Write, channels_last, refuse
from dlv.adapters.keras.config import Ref
from dlv.adapters.keras.graph import Convert, Use
from dlv.adapters.keras.masks import Mask
from dlv.adapters.keras.rules.activations import number_of
from dlv.adapters.keras.rules.shapes import inputs_in_one_order, inputs_of_merge
from dlv.adapters.keras.understood import Unsayable, flag
from dlv.dtypes import DTYPES
from dlv.network.fields import whole
from dlv.network.graph import Node, Port
from dlv.network.sizes import Shape

# Functions of two tensors, or of a tensor and a number: Keras' name -> aten's.
_BINARY = {
    "Subtract": "sub.Tensor",
    "TrueDivide": "div.Tensor",
    "Maximum": "maximum.default",
    "Minimum": "minimum.default",
    "NotEqual": "ne.Scalar",
    "LogicalOr": "logical_or.default",
}
_FROM_ATEN = {aten: name for name, aten in _BINARY.items()}


MOST_INLINE = 1 << 16
_INLINE_DTYPES = ("float32", "float64", "int64", "int32")


MERGES = ("Add", "Multiply", "Average", "Subtract", "Maximum", "Minimum")


def _inputs_of_equal_rank(use: Use) -> list[Port]:
    ports = inputs_of_merge(use)
    # Keras lines up axes from the front and the back; numpy, and the vocabulary, from the back.
    ranks = {len(use.shape(port)) for port in ports}
    if len(ports) < 2 or len(ranks) > 1:
        raise Unsayable("its inputs have different numbers of axes")
    return ports


def read_merge(use: Use) -> Port:
    ports, kind = _inputs_of_equal_rank(use), use.layer.kind
    if kind in ("Add", "Multiply"):
        return use.add("ADD" if kind == "Add" else "MUL", inputs=ports)
    if kind == "Average":
        total = use.add("ADD", inputs=ports, word="add")
        return use.add("MUL", None, {"const": 1 / len(ports)}, inputs=[total])
    if len(ports) > 2 or len({use.shape(port) for port in ports}) > 1:
        raise Unsayable("more than two inputs, or of different shapes")
    return use.aten(_BINARY[kind], {"n": 0}, {"n": 1}, shape=use.shape(ports[0]), inputs=ports)


def read_arithmetic(use: Use) -> Port:
    """keras.ops.add and its like: of two tensors, or of one and a number."""
    kind, given = use.layer.kind, dict(zip(("x1", "x2"), use.call.args, strict=False))
    args = [{**use.call.kwargs, **given}.get(side) for side in ("x1", "x2")]
    if len(use.call.args) + len(use.call.kwargs) != 2 or None in args:
        raise Unsayable("it has other arguments than two sides")
    refs = use.call.refs
    ports = [use.inputs[refs.index(side)] for side in args if isinstance(side, Ref)]
    if len(ports) == 2:
        if kind in ("Add", "Multiply"):
            return use.add("ADD" if kind == "Add" else "MUL", inputs=ports)
        shape = use.shape(ports[0])
        if shape != use.shape(ports[1]):
            raise Unsayable("tensors of different shapes")
        name = "sub.Tensor" if kind == "Subtract" else "div.Tensor"
        return use.aten(name, {"n": 0}, {"n": 1}, shape=shape, inputs=ports)
    left = not isinstance(args[0], Ref)
    number = args[0] if left else args[1]
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise Unsayable("its other side is no number")
    if not math.isfinite(number) or abs(number) > 1e300:
        raise Unsayable("its other side is no finite number")
    if kind in ("Add", "Multiply"):
        return use.add("ADD" if kind == "Add" else "MUL", None, {"const": float(number)})
    if kind == "Subtract" and not left:
        return use.add("ADD", None, {"const": -float(number)})
    if kind == "Subtract":
        minus = use.add("MUL", None, {"const": -1.0}, word="negative")
        return use.add("ADD", None, {"const": float(number)}, inputs=[minus])
    if left or not number:
        raise Unsayable("it divides by a tensor, or by nothing")
    return use.aten("div.Tensor", {"n": 0}, {"c": float(number)}, shape=use.shape())


def read_not_equal(use: Use) -> Port:
    """keras.ops.not_equal of a tensor and a number, as in masks."""
    if len(use.call.args) != 2 or use.call.kwargs or not isinstance(use.call.args[0], Ref):
        raise Unsayable("it has other arguments than two sides")
    number = use.call.args[1]
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise Unsayable("its other side is no number")
    return use.aten("ne.Scalar", {"n": 0}, {"c": number}, shape=use.shape())


def read_logical_or(use: Use) -> Port:
    """keras.ops.logical_or of two masks."""
    if len(use.inputs) != 2 or len(use.call.args) != 2 or use.call.kwargs:
        raise Unsayable("it has other arguments than two tensors")
    ports = [use.inputs[use.call.refs.index(side)] for side in use.call.args]
    shape = use.shape(ports[0])
    if shape != use.shape(ports[1]):
        raise Unsayable("tensors of different shapes")
    return use.aten("logical_or.default", {"n": 0}, {"n": 1}, shape=shape, inputs=ports)


def read_any(use: Use) -> Port:
    """keras.ops.any over one axis."""
    axis: Any = use.config.get("axis")
    keep = flag(use.config, "keepdims", False)
    if isinstance(axis, list) and len(axis) == 1:
        axis = axis[0]
    shape = use.shape()
    rank = len(shape)
    if not whole(axis) or not -rank <= axis < rank or use.call.kwargs or len(use.call.args) != 1:
        raise Unsayable(f"axis is {axis!r:.40}")
    place = axis % rank
    after = (*shape[:place], *([1] if keep else []), *shape[place + 1 :])
    return use.aten("any.dim", {"n": 0}, {"c": place}, {"c": keep}, shape=after)


def read_masking(use: Use) -> Port:
    """Steps that hold one number alone become zero, and count nowhere."""
    at, shape = use.only_input, use.shape()
    if len(shape) != 3:
        raise Unsayable(f"its input has {len(shape)} axes")
    value = {"c": number_of(use, "mask_value", default=0.0)}
    other = use.aten("ne.Scalar", {"n": 0}, value, shape=shape, word="other")
    args = ({"n": 0}, {"c": -1}, {"c": True})
    steps = (*shape[:-1], 1)
    kept = use.aten("any.dim", *args, shape=steps, inputs=[other], word="any")
    kind = {"kind": "to", "dtype": use.graph.dtype or "float32"}
    kept = use.add("RESHAPE", None, kind, inputs=[kept], word="counts")
    rows = {"kind": "squeeze", "axis": (2,)}
    mask = use.add("RESHAPE", None, rows, inputs=[kept], word="steps")
    result = use.add("MUL", inputs=[at, kept])
    use.graph.carried[result] = Mask(mask)
    return result


def write_sum_or_product(model: Model, node: Node) -> Held:
    kind = "Add" if node.op == "ADD" else "Multiply"
    if "value" in node.params:
        value = _inline_constant(node, model.tensor(node, "value"))
        model.notes.append(f"{node.name}: a stored tensor became a constant")
        args = [model.plain(node.inputs[0]), value]
        return model.op_of(node, (OPS, kind), {}, args)
    fixed = [port for port in node.inputs if port[0] in model.network.constants]
    if fixed:
        sides: list[Any] = [
            _inline_constant(node, model.constant(node, port[0]))
            if port in fixed
            else model.plain(port)
            for port in node.inputs
        ]
        if len(fixed) > 1 or len(sides) != 2:
            refuse(node, "several of its inputs are constants")
        return model.op_of(node, (OPS, kind), {}, sides)
    if node.attrs["const"] is not None:
        turned = model.values[node.inputs[0]].plain is None
        port = node.inputs[0]
        x = model.last(node, port) if turned else model.plain(port)
        args = [x, node.attrs["const"]]
        after = channels_last(model.shape((node.name, 0)), turned)
        out = model.op(OPS, kind, node.name, {}, args, after)
        return Held(last=out) if turned else Held(plain=out)
    ranks = {len(model.known_shape(node, port)) for port in node.inputs}
    if len(ranks) > 1:  # Keras' layers would line them up from the front
        out = model.plain(node.inputs[0])
        for place, port in enumerate(node.inputs[1:], 2):
            name = node.name if place == len(node.inputs) else f"{node.name}.{place}"
            shape: Shape = (None,) * max(ranks)
            out = model.op(OPS, kind, name, {}, [out, model.plain(port)], shape)
        return Held(plain=Out(out.layer, out.call, model.shape((node.name, 0))))
    inputs, turned = inputs_in_one_order(model, node)
    after = channels_last(model.shape((node.name, 0)), turned)
    args = [[out.as_json() for out in inputs]]
    out = model.layer(kind, node.name, {}, inputs, after, args=args)
    return Held(last=out) if turned else Held(plain=out)


def _inline_constant(node: Node, tensor: Tensor) -> dict[str, Any]:
    """A small tensor within the configuration, as Keras writes arrays."""
    if tensor.elements > MOST_INLINE or tensor.dtype not in _INLINE_DTYPES:
        refuse(node, f"the tensor {tensor.name!r} of {tensor.elements} elements is a constant")
    given = np.frombuffer(tensor.read(), f"<{DTYPES[tensor.dtype].numpy}").reshape(tensor.shape)
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        refuse(node, f"the constant {tensor.name!r} holds what is not finite")
    config = {"value": given.tolist(), "dtype": tensor.dtype}
    return {"class_name": "__numpy__", "config": config}


def write_aten_arithmetic(model: Model, node: Node, name: str, args: Sequence[Any]) -> Held | None:
    """A function of one or two tensors, or a tensor and a number; None if Keras has none."""
    inputs = [model.plain(port) for port in node.inputs]
    if name == "any.dim" and len(args) == 3 and all("c" in arg for arg in args[1:]):
        reduced: dict[str, Any] = {"axis": [args[1]["c"]], "keepdims": args[2]["c"]}
        return model.op_of(node, (OPS, "Any"), reduced, inputs)
    if name in _FROM_ATEN and len(args) == 2:
        other: Any = inputs[1] if args[1] == {"n": 1} else args[1].get("c")
        if isinstance(other, (Out, int, float)):
            pair = [inputs[0], other]
            return model.op_of(node, (OPS, _FROM_ATEN[name]), {}, pair)
    return None


READERS: Mapping[str, Convert] = {**dict.fromkeys(MERGES, read_merge), "Masking": read_masking}
FUNCTION_READERS: Mapping[str, Convert] = {
    **dict.fromkeys(("Add", "Multiply", "Subtract", "TrueDivide", "Divide"), read_arithmetic),
    "NotEqual": read_not_equal,
    "LogicalOr": read_logical_or,
    "Any": read_any,
}
WRITERS: Mapping[str, Write] = {"ADD": write_sum_or_product, "MUL": write_sum_or_product}
