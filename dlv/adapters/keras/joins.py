"""Reshapes and layers of several inputs, and keras.ops that do the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dlv.adapters.keras.activations import LAYERS as ACTIVATIONS
from dlv.adapters.keras.activations import OPERATIONS
from dlv.adapters.keras.config import Layer, Ref
from dlv.adapters.keras.graph import Convert, Unsayable, Use
from dlv.adapters.keras.layers import LAYERS as PLAIN
from dlv.adapters.keras.windows import WINDOWS, channels_of, count_of
from dlv.network.fields import whole
from dlv.network.graph import Port
from dlv.network.sizes import elements


def flatten(use: Use) -> Port:
    at, rank = use.one, len(use.shape())
    if rank == 1:
        return use.add("RESHAPE", None, {"kind": "unsqueeze", "axis": 1})
    if channels_of(use) == "first" and rank > 2:
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


def _several(use: Use) -> list[Port]:
    """All tensors of the one list that a merging layer takes."""
    args = use.call.args
    items = args[0] if len(args) == 1 and isinstance(args[0], list) else args
    if use.call.kwargs.keys() - {"mask", "training"} or not all(isinstance(i, Ref) for i in items):
        raise Unsayable("it takes more than tensors")
    # Keras lines up axes from the front and the back; numpy, and the vocabulary, from the back.
    ranks = {len(use.shape(port)) for port in use.inputs}
    if len(use.inputs) < 2 or len(ranks) > 1:
        raise Unsayable("its inputs have different numbers of axes")
    return use.inputs


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
    axis = use.config.get("axis", -1)
    rank = len(use.shape(use.inputs[0])) if use.inputs else 0
    if not whole(axis) or not -rank <= axis < rank:
        raise Unsayable(f"axis is {axis!r:.40}")
    return use.add("CONCAT", None, {"axis": axis % rank}, inputs=use.inputs)


def arithmetic(use: Use) -> Port:
    """keras.ops.add and its like: of two tensors, or of one and a number."""
    kind, args = use.layer.kind, [*use.call.args, *use.call.kwargs.values()]
    if len(args) != 2:
        raise Unsayable("it has more arguments")
    if len(use.inputs) == 2:
        if kind in ("Add", "Multiply"):
            return use.add("ADD" if kind == "Add" else "MUL", inputs=use.inputs)
        shape = use.shape(use.inputs[0])
        if shape != use.shape(use.inputs[1]):
            raise Unsayable("tensors of different shapes")
        name = "sub.Tensor" if kind == "Subtract" else "div.Tensor"
        return use.aten(name, {"n": 0}, {"n": 1}, shape=shape, inputs=use.inputs)
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


def get_item(use: Use) -> Port:
    """x[..]: a cut or one entry for each axis from the front."""
    given = use.call.args[1] if len(use.call.args) > 1 else None
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
    """What turns a layer into nodes. Layers and functions of keras.ops share names."""
    functions = layer.module.startswith(("keras.src.ops", "keras.ops"))
    if not layer.module and layer.kind in _FUNCTIONS and layer.calls:
        # The older form says no module: merging layers take one list, functions do not.
        args = layer.calls[0].args
        merges = len(args) == 1 and isinstance(args[0], list)
        functions = layer.kind not in _LAYERS or (layer.kind in _MERGES and not merges)
    return (_FUNCTIONS if functions else _LAYERS).get(layer.kind)


_MERGES = ("Add", "Multiply", "Average", "Subtract", "Maximum", "Minimum")
_LAYERS: Mapping[str, Convert] = {
    **PLAIN,
    **WINDOWS,
    **ACTIVATIONS,
    "Flatten": flatten,
    "Reshape": reshape,
    "Permute": permute,
    "RepeatVector": repeat_vector,
    **dict.fromkeys(_MERGES, merge),
    "Concatenate": concatenate,
}
_FUNCTIONS: Mapping[str, Convert] = {
    **OPERATIONS,
    **dict.fromkeys(("Add", "Multiply", "Subtract", "TrueDivide", "Divide"), arithmetic),
    "Concatenate": concatenate,
    "GetItem": get_item,
}
