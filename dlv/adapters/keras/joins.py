"""Reshapes and layers of several inputs, and keras.ops that do the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dlv.adapters.keras.activations import LAYERS as ACTIVATIONS
from dlv.adapters.keras.activations import OPERATIONS, number_of
from dlv.adapters.keras.config import Layer, Ref
from dlv.adapters.keras.graph import Convert, Use
from dlv.adapters.keras.layers import LAYERS as PLAIN
from dlv.adapters.keras.masks import Mask
from dlv.adapters.keras.understood import Unsayable, flag
from dlv.adapters.keras.windows import WINDOWS, channels_of, count_of
from dlv.network.fields import whole
from dlv.network.graph import Port
from dlv.network.sizes import elements


def flatten(use: Use) -> Port:
    at, rank, channels = use.one, len(use.shape()), channels_of(use)
    if rank == 1:
        return use.add("RESHAPE", None, {"kind": "unsqueeze", "axis": 1})
    if channels == "first" and rank > 2:
        # Keras flattens in the other order then, so that weights fit either form.
        order = (0, *range(2, rank), 1)
        at = use.add("RESHAPE", None, {"kind": "permute", "axes": order}, word="permute")
    return use.add("RESHAPE", None, {"kind": "flatten", "start": 1}, inputs=[at])


def reshape(use: Use) -> Port:
    target, have = use.config.get("target_shape"), elements(use.shape()[1:])
    if not isinstance(target, list) or not all(whole(n) and n >= -1 for n in target):
        raise Unsayable(f"target_shape is {target!r:.40}")
    if -1 in target and have is not None:
        known = math.prod(n for n in target if n != -1)
        if target.count(-1) > 1 or not known or have % known:
            raise Unsayable(f"target_shape is {target!r:.40}")
        target = [have // known if n == -1 else n for n in target]
    batch = use.shape()[0]
    if -1 in target and batch is None:
        raise Unsayable("two of its lengths are not known")
    first = batch if -1 in target else -1
    return use.add("RESHAPE", None, {"kind": "reshape", "size": (first, *target)})


def permute(use: Use) -> Port:
    order = use.config.get("dims")
    if not isinstance(order, list) or not all(map(whole, order)):
        raise Unsayable(f"dims is {order!r:.40}")
    if sorted(order) != list(range(1, len(use.shape()))):
        raise Unsayable(f"dims is {order!r:.40}")
    return use.add("RESHAPE", None, {"kind": "permute", "axes": (0, *order)})


def repeat_vector(use: Use) -> Port:
    count = count_of(use, "n")
    row = use.add("RESHAPE", None, {"kind": "unsqueeze", "axis": 1}, word="unsqueeze")
    attrs = {"kind": "expand", "size": (-1, count, -1)}
    return use.add("RESHAPE", None, attrs, inputs=[row])


def masking(use: Use) -> Port:
    """Steps that hold one number alone become zero, and count nowhere."""
    at, shape = use.one, use.shape()
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


def _listed(use: Use) -> list[Port]:
    """All tensors of the one list that a merging layer takes."""
    args = use.call.args
    items = args[0] if len(args) == 1 and isinstance(args[0], list) else args
    if len(items) != len(use.inputs) or not all(isinstance(item, Ref) for item in items):
        raise Unsayable("it takes more than tensors")
    return use.inputs


def _several(use: Use) -> list[Port]:
    ports = _listed(use)
    # Keras lines up axes from the front and the back; numpy, and the vocabulary, from the back.
    ranks = {len(use.shape(port)) for port in ports}
    if len(ports) < 2 or len(ranks) > 1:
        raise Unsayable("its inputs have different numbers of axes")
    return ports


def merge(use: Use) -> Port:
    ports, kind = _several(use), use.layer.kind
    if kind in ("Add", "Multiply"):
        return use.add("ADD" if kind == "Add" else "MUL", inputs=ports)
    if kind == "Average":
        total = use.add("ADD", inputs=ports, word="add")
        return use.add("MUL", None, {"const": 1 / len(ports)}, inputs=[total])
    name = {"Subtract": "sub.Tensor", "Maximum": "maximum.default", "Minimum": "minimum.default"}
    if len(ports) > 2 or len({use.shape(port) for port in ports}) > 1:
        raise Unsayable("more than two inputs, or of different shapes")
    return use.aten(name[kind], {"n": 0}, {"n": 1}, shape=use.shape(ports[0]), inputs=ports)


def concatenate(use: Use) -> Port:
    axis, ports = use.config.get("axis", -1), _listed(use)
    rank = len(use.shape(ports[0])) if ports else 0
    if not whole(axis) or not -rank <= axis < rank:
        raise Unsayable(f"axis is {axis!r:.40}")
    return use.add("CONCAT", None, {"axis": axis % rank}, inputs=ports)


def arithmetic(use: Use) -> Port:
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


def compare(use: Use) -> Port:
    """keras.ops.not_equal of a tensor and a number, as in masks."""
    if len(use.call.args) != 2 or use.call.kwargs or not isinstance(use.call.args[0], Ref):
        raise Unsayable("it has other arguments than two sides")
    number = use.call.args[1]
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise Unsayable("its other side is no number")
    return use.aten("ne.Scalar", {"n": 0}, {"c": number}, shape=use.shape())


def logical(use: Use) -> Port:
    """keras.ops.logical_or of two masks."""
    if len(use.inputs) != 2 or len(use.call.args) != 2 or use.call.kwargs:
        raise Unsayable("it has other arguments than two tensors")
    ports = [use.inputs[use.call.refs.index(side)] for side in use.call.args]
    shape = use.shape(ports[0])
    if shape != use.shape(ports[1]):
        raise Unsayable("tensors of different shapes")
    return use.aten("logical_or.default", {"n": 0}, {"n": 1}, shape=shape, inputs=ports)


def anything(use: Use) -> Port:
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


def get_item(use: Use) -> Port:
    """x[..]: a cut or one entry for each axis from the front."""
    if len(use.call.args) != 2 or use.call.kwargs:
        raise Unsayable("it picks entries in another way")
    given = use.call.args[1]
    items = given if isinstance(given, list) else [given]
    at, axis = use.one, 0
    steps: list[Mapping[str, Any]] = []
    for item in items:
        if whole(item):
            steps.append({"kind": "select", "axis": axis, "index": item})
            continue
        start, stop, step = _slice(item)
        if step is not None and step < 1:
            raise Unsayable("it steps backwards")
        if (start, stop, step) != (None, None, None):
            cut = {"kind": "slice", "axis": axis, "start": start, "end": stop, "step": step or 1}
            steps.append(cut)
        axis += 1
    for number, attrs in enumerate(steps):
        word = f"step{number}" if number < len(steps) - 1 else ""
        at = use.add("RESHAPE", None, attrs, inputs=[at], word=word)
    return at


def _slice(item: Any) -> list[int | None]:
    config = item.get("config") if isinstance(item, dict) else None
    if not isinstance(config, dict) or item.get("class_name") != "__slice__":
        raise Unsayable("it picks entries in another way")
    found = [config.get(key) for key in ("start", "stop", "step")]
    if not all(n is None or whole(n) for n in found):
        raise Unsayable("it picks entries in another way")
    return found


def converter(layer: Layer) -> Convert | None:
    """What turns a layer into nodes; says whether it is a function, as these share names."""
    functions = layer.module.startswith(("keras.src.ops", "keras.ops"))
    if not layer.module and layer.kind in FUNCTIONS and layer.calls:
        # The older form says no module: merging layers take one list, functions do not.
        args = layer.calls[0].args
        merges = len(args) == 1 and isinstance(args[0], list)
        functions = layer.kind not in LAYERS or (layer.kind in _MERGES and not merges)
    layer.function = functions
    return (FUNCTIONS if functions else LAYERS).get(layer.kind)


_MERGES = ("Add", "Multiply", "Average", "Subtract", "Maximum", "Minimum")
LAYERS: Mapping[str, Convert] = {
    **PLAIN,
    **WINDOWS,
    **ACTIVATIONS,
    "Flatten": flatten,
    "Reshape": reshape,
    "Permute": permute,
    "RepeatVector": repeat_vector,
    **dict.fromkeys(_MERGES, merge),
    "Concatenate": concatenate,
    "Masking": masking,
}
FUNCTIONS: Mapping[str, Convert] = {
    **OPERATIONS,
    **dict.fromkeys(("Add", "Multiply", "Subtract", "TrueDivide", "Divide"), arithmetic),
    "Concatenate": concatenate,
    "GetItem": get_item,
    "NotEqual": compare,
    "LogicalOr": logical,
    "Any": anything,
}
