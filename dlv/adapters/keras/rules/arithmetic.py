"""Sums, products, comparisons and masks of tensors, and changes of their shape; both ways."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlv.adapters.keras.build import (
    CORE,
    OPS,
    Held,
    Model,
    Out,
    Write,
    channels_last,
    inline_array,
    refuse,
)
from dlv.adapters.keras.config import Ref, Unsayable, dims, flag
from dlv.adapters.keras.graph import Convert, Mask, Use
from dlv.adapters.keras.rules.activations import number_of
from dlv.adapters.keras.rules.windows import channels_setting, count_of
from dlv.dtypes import DTYPES
from dlv.kinds import Array
from dlv.network.fields import whole
from dlv.network.graph import Node, Port
from dlv.network.sizes import Shape, broadcast, elements


def read_flatten(use: Use) -> Port:
    at, channels = use.only_input, channels_setting(use)
    unknown = channels == "last" and use.graph.shapes.get(at) is None
    rank = 2 if unknown else len(use.shape())
    if rank == 1:
        return use.add("RESHAPE", None, {"kind": "unsqueeze", "axis": 1})
    if channels == "first" and rank > 2:
        # Keras flattens in the other order then, so that weights fit either form.
        order = (0, *range(2, rank), 1)
        at = use.add("RESHAPE", None, {"kind": "permute", "axes": order}, word="permute")
    return use.add("RESHAPE", None, {"kind": "flatten", "start": 1}, inputs=[at])


def read_reshape(use: Use) -> Port:
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
        raise Unsayable("two of its lengths are unknown")
    first = batch if -1 in target else -1
    return use.add("RESHAPE", None, {"kind": "reshape", "size": (first, *target)})


def read_permute(use: Use) -> Port:
    order = use.config.get("dims")
    if not isinstance(order, list) or not all(map(whole, order)):
        raise Unsayable(f"dims is {order!r:.40}")
    if sorted(order) != list(range(1, len(use.shape()))):
        raise Unsayable(f"dims is {order!r:.40}")
    return use.add("RESHAPE", None, {"kind": "permute", "axes": (0, *order)})


def read_repeat_vector(use: Use) -> Port:
    count = count_of(use, "n")
    row = use.add("RESHAPE", None, {"kind": "unsqueeze", "axis": 1}, word="unsqueeze")
    attrs = {"kind": "expand", "size": (-1, count, -1)}
    return use.add("RESHAPE", None, attrs, inputs=[row])


def read_get_item(use: Use) -> Port:
    """x[..]: a cut or one entry for each axis from the front."""
    if len(use.call.args) != 2 or use.call.kwargs:
        raise Unsayable("it picks entries in another way")
    given = use.call.args[1]
    items = given if isinstance(given, list) else [given]
    at, axis = use.only_input, 0
    steps: list[Mapping[str, Any]] = []
    for item in items:
        if whole(item):
            steps.append({"kind": "select", "axis": axis, "index": item})
            continue
        start, stop, step = _read_slice(item)
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


def _read_slice(item: Any) -> list[int | None]:
    config = item.get("config") if isinstance(item, dict) else None
    if not isinstance(config, dict) or item.get("class_name") != "__slice__":
        raise Unsayable("it picks entries in another way")
    found = [config.get(key) for key in ("start", "stop", "step")]
    if not all(n is None or whole(n) for n in found):
        raise Unsayable("it picks entries in another way")
    return found


def write_reshape(model: Model, node: Node) -> Held:
    attrs, kind = node.attrs, node.attrs["kind"]
    if node.sizes_only:
        refuse(node, "it computes with lengths")
    port = node.inputs[0]
    if kind == "contiguous":
        return model.values[port]
    if kind == "to":
        if attrs["dtype"] is None:
            return model.values[port]
        config = {"dtype": attrs["dtype"]}
        return model.op_of(node, (CORE, "Cast"), config, [model.plain(port)])
    shape, after = model.known_shape(node, port), model.shape((node.name, 0))
    if (
        kind == "flatten"
        and attrs["start"] % len(shape) == 1
        and attrs["end"] in (-1, len(shape) - 1)
    ):
        config = {"data_format": "channels_last"}
        x = model.plain(port)
        return model.layer_of(node, "Flatten", config, [x])
    if kind in ("transpose", "permute"):
        return _write_permute(model, node, shape)
    if kind in ("select", "slice", "split"):
        return _write_cut(model, node, shape)
    if kind == "expand" and after != shape:
        return _write_expand(model, node, shape)
    if kind in ("squeeze", "unsqueeze") and (not after or after[:1] != shape[:1]):
        return _write_unit_axis(model, node, shape)
    if kind == "getitem":
        refuse(node, "it takes one of several outputs of an operation that is unknown")
    return _write_view(model, node, shape, after)


def _write_view(model: Model, node: Node, shape: Shape, after: Shape | None) -> Held:
    """Write a reshape of any kind that leaves the batch axis in front."""
    if after is None or not after or not shape or after[0] != shape[0]:
        refuse(node, "it does not keep the batch in front")
    target = [n if isinstance(n, int) else -1 for n in after[1:]]
    if target.count(-1) > 1:
        refuse(node, "two of its lengths are unknown")
    x = model.plain(node.inputs[0])
    return model.layer_of(node, "Reshape", {"target_shape": target}, [x])


def _write_unit_axis(model: Model, node: Node, shape: Shape) -> Held:
    """An axis of length one in front of the batch, or taken from there."""
    axis = node.attrs["axis"]
    x = model.plain(node.inputs[0])
    if node.attrs["kind"] == "unsqueeze":
        return model.op_of(node, (OPS, "ExpandDims"), {"axis": axis}, [x])
    places = [a % len(shape) for a in axis or ()]
    if len(places) != 1 or shape[places[0]] != 1:
        refuse(node, "it takes away axes that may be longer than one")
    return model.op_of(node, (OPS, "Squeeze"), {"axis": places[0]}, [x])


def _write_permute(model: Model, node: Node, shape: Shape) -> Held:
    rank = len(shape)
    order = [axis % rank for axis in node.attrs["axes"]]
    if node.attrs["kind"] == "transpose":
        first, second = order
        order = list(range(rank))
        order[first], order[second] = second, first
    port = node.inputs[0]
    if order == [0, *range(2, rank), 1]:  # undoes a turn: the tensor before that turn still exists
        return Held(plain=model.last(node, port))
    x = model.plain(port)
    if order[0] == 0:
        return model.layer_of(node, "Permute", {"dims": order[1:]}, [x])
    return model.op_of(node, (OPS, "Transpose"), {"axes": order}, [x])


def slice_json(start: int | None = None, stop: int | None = None, step: int | None = None) -> Any:
    config = {"start": start, "stop": stop, "step": step}
    return {"class_name": "__slice__", "config": config}


def _write_cut(model: Model, node: Node, shape: Shape) -> Held:
    attrs, x = node.attrs, model.plain(node.inputs[0])
    axis = attrs["axis"] % len(shape)
    before = [slice_json()] * axis
    if attrs["kind"] == "split":
        start = 0
        for place, size in enumerate(attrs["sizes"]):
            key = [*before, slice_json(start, start + size)]
            name, after = f"{node.name}.{place}", model.shape((node.name, place))
            out = model.op(OPS, "GetItem", name, {}, [x, key], after)
            model.values[node.name, place] = Held(plain=out)
            start += size
        return model.values.get((node.name, 0), Held(plain=x))
    end = attrs.get("end")
    whole = attrs["kind"] == "slice" and not attrs["start"] and attrs["step"] == 1
    if whole and (end is None or end >= 1 << 40):
        return model.values[node.inputs[0]]
    last: Any = attrs.get("index")
    if attrs["kind"] == "slice":
        stop = None if end is None or end >= 1 << 40 else end
        last = slice_json(attrs["start"], stop, attrs["step"])
    return model.op_of(node, (OPS, "GetItem"), {}, [x, [*before, last]])


def _write_expand(model: Model, node: Node, shape: Shape) -> Held:
    after = model.shape((node.name, 0))
    if after is None or len(after) != len(shape) or after[:1] != shape[:1]:
        refuse(node, "it adds axes")
    out = model.plain(node.inputs[0])
    for axis, (have, wanted) in enumerate(zip(shape, after, strict=True)):
        if have == wanted:
            continue
        if have != 1 or not isinstance(wanted, int):
            refuse(node, "it expands to a length that is unknown")
        config = {"axis": -1 if axis == len(shape) - 1 else axis}
        name = f"{node.name}.axis{axis}"
        args = [[out.as_json()] * wanted]
        grown = (*(out.shape or ())[:axis], wanted, *(out.shape or ())[axis + 1 :])
        out = model.layer("Concatenate", name, config, [out] * wanted, grown, args=args)
    return Held(plain=out)


def inputs_of_merge(use: Use) -> list[Port]:
    """The tensors in the one list that a merging layer takes."""
    args = use.call.args
    items = args[0] if len(args) == 1 and isinstance(args[0], list) else args
    if len(items) != len(use.inputs) or not all(isinstance(item, Ref) for item in items):
        raise Unsayable("it takes more than tensors")
    return use.inputs


def read_concatenate(use: Use) -> Port:
    axis, ports = use.config.get("axis", -1), inputs_of_merge(use)
    rank = len(use.shape(ports[0])) if ports else 0
    if not whole(axis) or not -rank <= axis < rank:
        raise Unsayable(f"axis is {axis!r:.40}")
    return use.add("CONCAT", None, {"axis": axis % rank}, inputs=ports)


def inputs_in_one_order(model: Model, node: Node) -> tuple[list[Out], bool]:
    """The inputs with their axes in one order, and whether that is channels last."""
    ports = node.inputs
    ranks = {len(model.known_shape(node, port)) for port in ports}
    turned = (
        len(ranks) == 1 and min(ranks) > 2 and any(model.values[p].plain is None for p in ports)
    )
    return [model.last(node, port) if turned else model.plain(port) for port in ports], turned


def write_concat(model: Model, node: Node) -> Held:
    if len(node.inputs) == 1:
        return model.values[node.inputs[0]]
    inputs, turned = inputs_in_one_order(model, node)
    rank = len(model.known_shape(node, node.inputs[0]))
    axis = node.attrs["axis"] % rank
    if axis == 0:
        refuse(node, "it joins batches")
    if turned:
        axis = rank - 1 if axis == 1 else axis - 1
    config = {"axis": -1 if axis == rank - 1 else axis}
    after = channels_last(model.shape((node.name, 0)), turned)
    args = [[out.as_json() for out in inputs]]
    out = model.layer("Concatenate", node.name, config, inputs, after, args=args)
    return Held(last=out) if turned else Held(plain=out)


# Functions of two tensors, or of a tensor and a number: Keras' name -> aten's.
_BINARY = {
    "Subtract": "sub.Tensor",
    "TrueDivide": "div.Tensor",
    "Maximum": "maximum.default",
    "Minimum": "minimum.default",
    "NotEqual": "ne.Scalar",
    "LogicalOr": "logical_or.default",
    "LogicalAnd": "logical_and.default",
}
_FROM_ATEN = {aten: name for name, aten in _BINARY.items()}


MERGES = ("Add", "Multiply", "Average", "Subtract", "Maximum", "Minimum")


def read_merge(use: Use) -> Port:
    ports, kind = inputs_of_merge(use), use.layer.kind
    # Keras lines up axes from the front and the back; numpy, and the vocabulary, from the back.
    if len(ports) < 2 or len({len(use.shape(port)) for port in ports}) > 1:
        raise Unsayable("its inputs have different numbers of axes")
    if kind in ("Add", "Multiply"):
        return use.add("ADD" if kind == "Add" else "MUL", inputs=ports)
    if kind == "Average":
        total = use.add("ADD", inputs=ports, word="add")
        return use.add("MUL", None, {"const": 1 / len(ports)}, inputs=[total])
    if len(ports) > 2 or len({use.shape(port) for port in ports}) > 1:
        raise Unsayable("more than two inputs, or of different shapes")
    return use.aten(_BINARY[kind], {"n": 0}, {"n": 1}, shape=use.shape(ports[0]), inputs=ports)


def _ports_of(use: Use, args: Sequence[Any]) -> list[Port]:
    """Tensors and stored arrays among the arguments; one number is left out."""
    refs, found = use.call.refs, []
    for place, side in enumerate(args):
        if isinstance(side, Ref):
            found.append(use.inputs[refs.index(side)])
        elif isinstance(side, dict):
            found.append(use.constant(_array_of(side), f"constant{place}"))
    return found


def _array_of(item: Mapping[str, Any]) -> Array:
    """The numbers of an array within the settings, in float32 where they are fractions."""
    config = item.get("config")
    if item.get("class_name") not in ("__numpy__", "__tensor__") or not isinstance(config, dict):
        raise Unsayable("its other side is not a number")
    dtype = str(config.get("dtype"))
    if dtype not in ("float32", "float64", "int32", "int64", "bool"):
        raise Unsayable(f"its other side is an array of {dtype:.40}")
    try:
        found = np.asarray(config.get("value"), "float32" if dtype == "float64" else dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise Unsayable("its other side is not an array of numbers") from error
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise Unsayable("its other side is not finite")
    return found


def read_arithmetic(use: Use) -> Port:
    """keras.ops.add and its like: of two tensors, or of one and a number."""
    kind, given = use.layer.kind, dict(zip(("x1", "x2"), use.call.args, strict=False))
    args = [{**use.call.kwargs, **given}.get(side) for side in ("x1", "x2")]
    if len(use.call.args) + len(use.call.kwargs) != 2 or None in args:
        raise Unsayable("it has other arguments than two sides")
    ports = _ports_of(use, args)
    if len(ports) == 2:
        if kind in ("Add", "Multiply"):
            return use.add("ADD" if kind == "Add" else "MUL", inputs=ports)
        shape = broadcast([use.shape(port) for port in ports])
        name = "sub.Tensor" if kind == "Subtract" else "div.Tensor"
        return use.aten(name, {"n": 0}, {"n": 1}, shape=shape, inputs=ports)
    left = not isinstance(args[0], Ref)
    number = args[0] if left else args[1]
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise Unsayable("its other side is not a number")
    if not math.isfinite(number) or abs(number) > 1e300:
        raise Unsayable("its other side is not a finite number")
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
        raise Unsayable("its other side is not a number")
    return use.aten("ne.Scalar", {"n": 0}, {"c": number}, shape=use.shape())


def read_logical(use: Use) -> Port:
    """keras.ops.logical_or and logical_and of two masks."""
    ports = _ports_of(use, use.call.args)
    if len(ports) != 2 or len(use.call.args) != 2 or use.call.kwargs:
        raise Unsayable("it has other arguments than two tensors")
    name, shape = _BINARY[use.layer.kind], broadcast([use.shape(port) for port in ports])
    return use.aten(name, {"n": 0}, {"n": 1}, shape=shape, inputs=ports)


def read_logical_not(use: Use) -> Port:
    _only_tensor(use)
    return use.aten("logical_not.default", {"n": 0}, shape=use.shape())


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
        tensor = model.tensor(node, "value")
        numbers = np.frombuffer(tensor.read(), f"<{DTYPES[tensor.dtype].numpy}")
        value = inline_array(node, numbers.reshape(tensor.shape), tensor.name)
        model.notes.append(f"{node.name}: a stored tensor became a constant")
        args = [model.plain(node.inputs[0]), value]
        return model.op_of(node, (OPS, kind), {}, args)
    fixed = [port for port in node.inputs if model.array(port) is not None]
    fixed += [port for port in node.inputs if port not in fixed and port[0] in model.constants]
    if fixed:
        if len(fixed) > 1 or len(node.inputs) != 2:
            refuse(node, "several of its inputs are constants")
        return model.op_of(node, (OPS, kind), {}, [model.side(node, p) for p in node.inputs])
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


def write_stack(model: Model, node: Node, args: Sequence[Any]) -> Held:
    items = args[0].get("l") if args else None
    axis = args[1].get("c") if len(args) > 1 else 0
    if items != [{"n": place} for place in range(len(node.inputs))] or not whole(axis):
        refuse(node, "it stacks in another way")
    inputs = [model.plain(port) for port in node.inputs]
    listed = [[out.as_json() for out in inputs]]
    after = model.shape((node.name, 0))
    made = model.op(OPS, "Stack", node.name, {"axis": axis}, listed, after, parents=inputs)
    return Held(plain=made)


def write_aten_arithmetic(model: Model, node: Node, name: str, args: Sequence[Any]) -> Held | None:
    """A function of one or two tensors, or a tensor and a number; None if Keras has none."""
    inputs = [model.side(node, port) for port in node.inputs]
    if name == "flip.default" and len(args) == 2 and isinstance(args[1].get("l"), list):
        axes = [item.get("c") for item in args[1]["l"]]
        return model.op_of(node, (OPS, "Flip"), {"axis": axes}, inputs)
    if name == "sum.dim_IntList" and len(args) == 3 and isinstance(args[1].get("l"), list):
        axes = [item.get("c") for item in args[1]["l"]]
        config = {"axis": axes, "keepdims": args[2].get("c") is True}
        return model.op_of(node, (OPS, "Sum"), config, inputs)
    if name == "clamp_max.default" and len(args) == 2 and isinstance(args[1].get("c"), float):
        return model.op_of(node, (OPS, "Minimum"), {}, [inputs[0], args[1]["c"]])
    if name in ("ones_like.default", "zeros_like.default") and len(args) == 1:
        kind = "OnesLike" if name.startswith("ones") else "ZerosLike"
        return model.op_of(node, (OPS, kind), {}, inputs)
    if name == "logical_not.default" and len(args) == 1:
        return model.op_of(node, (OPS, "LogicalNot"), {}, inputs)
    if name == "any.dim" and len(args) == 3 and all("c" in arg for arg in args[1:]):
        reduced: dict[str, Any] = {"axis": [args[1]["c"]], "keepdims": args[2]["c"]}
        return model.op_of(node, (OPS, "Any"), reduced, inputs)
    if name in _FROM_ATEN and len(args) == 2:
        other: Any = inputs[1] if args[1] == {"n": 1} else args[1].get("c")
        if isinstance(other, (Out, int, float, dict)):
            pair = [inputs[0], other]
            return model.op_of(node, (OPS, _FROM_ATEN[name]), {}, pair)
    return None


def _only_tensor(use: Use) -> None:
    if use.call.kwargs or len(use.call.args) != 1:
        raise Unsayable("it has more arguments")


def _places(use: Use, rank: int) -> tuple[int, ...]:
    """The axes that a function names, counted from the front."""
    axis: Any = use.config.get("axis")
    items = axis if isinstance(axis, list) else [axis]
    if not items or not all(whole(item) and -rank <= item < rank for item in items):
        raise Unsayable(f"axis is {axis!r:.40}")
    return tuple(item % rank for item in items)


def read_stack(use: Use) -> Port:
    ports = inputs_of_merge(use)
    shapes = [use.shape(port) for port in ports]
    [place] = _places(use, len(shapes[0]) + 1) if ports else [0]
    if len(set(shapes)) != 1:
        raise Unsayable("tensors of different shapes")
    after = (*shapes[0][:place], len(ports), *shapes[0][place:])
    tensors = {"l": [{"n": number} for number in range(len(ports))]}
    return use.aten("stack.default", tensors, {"c": place}, shape=after, inputs=ports)


def read_unit_axis(use: Use) -> Port:
    _only_tensor(use)
    shape = use.shape()
    if use.layer.kind == "ExpandDims":
        places = _places(use, len(shape) + 1)
        attrs = {"kind": "unsqueeze", "axis": places[0]}
    else:
        places = _places(use, len(shape))
        attrs = {"kind": "squeeze", "axis": places}
    if len(places) != 1:
        raise Unsayable("it names several axes")
    return use.add("RESHAPE", None, attrs)


def read_transpose(use: Use) -> Port:
    _only_tensor(use)
    rank, order = len(use.shape()), use.config.get("axes")
    if order is None:
        order = list(range(rank))[::-1]
    if not isinstance(order, list) or sorted(map(str, order)) != sorted(map(str, range(rank))):
        raise Unsayable(f"axes is {order!r:.40}")
    return use.add("RESHAPE", None, {"kind": "permute", "axes": tuple(order)})


def read_flip(use: Use) -> Port:
    _only_tensor(use)
    places = {"l": [{"c": place} for place in _places(use, len(use.shape()))]}
    return use.aten("flip.default", {"n": 0}, places, shape=use.shape())


def read_pad(use: Use) -> Port:
    """Numbers around any axes."""
    args = {**dict(zip(("x", "constant_values"), use.call.args, strict=False)), **use.call.kwargs}
    value, width, shape = args.get("constant_values", 0.0), use.config.get("pad_width"), use.shape()
    if args.keys() - {"x", "constant_values"} or use.config.get("mode", "constant") != "constant":
        raise Unsayable("it pads in another way")
    if isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
        raise Unsayable("it pads in another way")
    pairs = [dims(pair) for pair in width] if isinstance(width, list) else []
    if len(pairs) != len(shape) or any(not pair or len(pair) != 2 for pair in pairs):
        raise Unsayable(f"pad_width is {width!r:.40}")
    amounts = [[side or 0 for side in pair or ()] for pair in pairs]
    after = tuple(
        length + sum(pair) if isinstance(length, int) else None if any(pair) else length
        for length, pair in zip(shape, amounts, strict=True)
    )
    flat = {"l": [{"c": side} for pair in reversed(amounts) for side in pair]}
    number = {"c": 0.0 if value is None else float(value)}
    return use.aten("constant_pad_nd.default", {"n": 0}, flat, number, shape=after)


def read_repeat(use: Use) -> Port:
    _only_tensor(use)
    times, shape = count_of(use, "repeats"), use.shape()
    [place, *more] = _places(use, len(shape))
    length = shape[place]
    if more:
        raise Unsayable("it names several axes")
    after = (*shape[:place], length * times if isinstance(length, int) else None)
    after = (*after, *shape[place + 1 :])
    args = ({"n": 0}, {"c": times}, {"c": place})
    return use.aten("repeat_interleave.self_int", *args, shape=after)


def read_filled(use: Use) -> Port:
    """keras.ops.ones_like and zeros_like."""
    args = {**use.call.kwargs, **dict(zip(("x", "dtype"), use.call.args, strict=False))}
    dtype = args.get("dtype") or use.config.get("dtype")
    if args.keys() - {"x", "dtype"} or not (dtype is None or dtype in DTYPES):
        raise Unsayable("it has more arguments")
    name = "ones_like.default" if use.layer.kind == "OnesLike" else "zeros_like.default"
    word = "" if dtype is None else "filled"
    filled = use.aten(name, {"n": 0}, shape=use.shape(), word=word)
    if dtype is None:
        return filled
    return use.add("RESHAPE", None, {"kind": "to", "dtype": dtype}, inputs=[filled])


def read_cast(use: Use) -> Port:
    _only_tensor(use)
    dtype = use.config.get("dtype")
    if dtype not in DTYPES:
        raise Unsayable(f"dtype is {dtype!r:.40}")
    return use.add("RESHAPE", None, {"kind": "to", "dtype": dtype})


def read_mean(use: Use) -> Port:
    _only_tensor(use)
    attrs = {"axis": _places(use, len(use.shape())), "keep": flag(use.config, "keepdims", False)}
    return use.add("POOL", "MEAN", attrs)


READERS: Mapping[str, Convert] = {
    **dict.fromkeys(MERGES, read_merge),
    "Masking": read_masking,
    "Flatten": read_flatten,
    "Reshape": read_reshape,
    "Permute": read_permute,
    "RepeatVector": read_repeat_vector,
    "Concatenate": read_concatenate,
}
FUNCTION_READERS: Mapping[str, Convert] = {
    **dict.fromkeys(("Add", "Multiply", "Subtract", "TrueDivide", "Divide"), read_arithmetic),
    "NotEqual": read_not_equal,
    "LogicalOr": read_logical,
    "LogicalAnd": read_logical,
    "LogicalNot": read_logical_not,
    "Any": read_any,
    "GetItem": read_get_item,
    "Stack": read_stack,
    "Squeeze": read_unit_axis,
    "ExpandDims": read_unit_axis,
    "Transpose": read_transpose,
    "Flip": read_flip,
    **dict.fromkeys(("OnesLike", "ZerosLike"), read_filled),
    "Pad": read_pad,
    "Repeat": read_repeat,
    "Cast": read_cast,
    "Mean": read_mean,
    "Concatenate": read_concatenate,
}
WRITERS: Mapping[str, Write] = {
    "ADD": write_sum_or_product,
    "MUL": write_sum_or_product,
    "RESHAPE": write_reshape,
    "CONCAT": write_concat,
}
