"""Reshapes, joins, attention and raw nodes as Keras layers and functions of keras.ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.keras.writing.layers import LAYERS as PLAIN
from dlv.adapters.keras.writing.layers import shared
from dlv.adapters.keras.writing.model import CORE, NN, OPS, Held, Model, Out, arranged, refuse
from dlv.adapters.keras.writing.own_layers import keras_layer
from dlv.adapters.keras.writing.windows import Write, moved
from dlv.network.graph import Node, Port
from dlv.network.sizes import Shape

# torch's order of gates -> Keras'.
_GATES = {"LSTM": (0, 1, 2, 3), "GRU": (1, 0, 2)}
_FLOATS = {"float32": "f4", "float64": "f8", "float16": "f2"}


def recurrent(model: Model, node: Node) -> Held:
    attrs, kind = node.attrs, node.variant or ""
    if attrs["p"] and attrs["layers"] > 1:
        model.notes.append(f"{node.name}: its dropout between layers is left out")
    for state, _ in node.inputs[1:]:
        if not _zeros(model, state):
            refuse(node, "it starts from states that are handed in")
    out = model.plain(node.inputs[0])
    shape = model.known_shape(node, node.inputs[0])
    if not attrs["batch_first"]:
        turned: Shape = (shape[1], shape[0], shape[2])
        out = model.op(OPS, "Transpose", f"{node.name}.time", {"axes": [1, 0, 2]}, [out], turned)
    ways = 2 if attrs["bidirectional"] else 1
    after: Shape = (None, None, ways * attrs["hidden"])
    last = attrs["layers"] - 1
    states: list[list[Out]] = [[] for _ in range(2 if kind == "LSTM" else 1)]
    for layer in range(attrs["layers"]):
        end = layer == last and attrs["batch_first"]
        name = node.name if end else f"{node.name}.l{layer}"
        config, weights = _layer(model, node, kind, layer)
        out = model.layer(
            *("Bidirectional" if ways == 2 else kind, name, config, [out], after),
            weights=weights,
            share=(shared(node), layer),
        )
        # Behind the sequence come the states, those of one way after those of the other.
        for place in range(ways * len(states)):
            given = replace(out, tensor=1 + place, shape=(shape[0], attrs["hidden"]))
            states[place % len(states)].append(given)
    for port, stacked in enumerate(states, 1):
        if any((node.name, port) in n.inputs for n in model.network.nodes) or (
            (node.name, port) in model.network.outputs
        ):
            args = [[each.as_json() for each in stacked]]
            made = model.op(
                *(OPS, "Stack", f"{node.name}.state{port}", {"axis": 0}, args),
                model.shape((node.name, port)),
                parents=stacked,
            )
            model.values[node.name, port] = Held(plain=made)
    if not attrs["batch_first"]:
        axes = {"axes": [1, 0, 2]}
        out = model.op(OPS, "Transpose", node.name, axes, [out], model.shape((node.name, 0)))
    return Held(plain=out)


def _zeros(model: Model, name: str) -> bool:
    found = model.network.node(name) if name in model.network else None
    return found is not None and found.attrs.get("kind") == "fill" and not found.attrs["const"]


def _layer(
    model: Model, node: Node, kind: str, layer: int
) -> tuple[dict[str, Any], dict[str, Sequence[Tensor]]]:
    attrs = node.attrs
    config: dict[str, Any] = {
        "units": attrs["hidden"],
        "return_sequences": True,
        "return_state": True,
        "use_bias": attrs["bias"],
        "activation": "tanh",
        "recurrent_activation": "sigmoid",
    }
    if kind == "GRU":
        config["reset_after"] = True
    if not attrs["bidirectional"]:
        return config, {"cell": _variables(model, node, kind, f"l{layer}")}
    forward, backward = (
        {
            "module": "keras.layers",
            "class_name": kind,
            "config": {"name": f"{way}_{kind.lower()}", **config, "go_backwards": way != "forward"},
            "registered_name": None,
        }
        for way in ("forward", "backward")
    )
    return {"merge_mode": "concat", "layer": forward, "backward_layer": backward}, {
        "forward_layer/cell": _variables(model, node, kind, f"l{layer}"),
        "backward_layer/cell": _variables(model, node, kind, f"l{layer}_reverse"),
    }


def _variables(model: Model, node: Node, kind: str, end: str) -> list[Tensor]:
    found = [
        _gates(model.tensor(node, f"weight_{side}_{end}"), kind, turned=True)
        for side in ("ih", "hh")
    ]
    if node.attrs["bias"]:
        pair = [model.tensor(node, f"bias_{side}_{end}") for side in ("ih", "hh")]
        found.append(_bias(node, kind, pair))
    return found


def _gates(tensor: Tensor, kind: str, *, turned: bool) -> Tensor:
    """The blocks of the gates in Keras' order, along the last axis."""
    gates = _GATES[kind]
    rest = tensor.shape[1:]
    split = (len(gates), tensor.shape[0] // len(gates), *rest)
    order = (2, 0, 1) if turned else (0, 1)
    moved = Tensor(
        *(tensor.name, tensor.dtype, split, tensor.nbytes, lambda: _picked(tensor, split, gates))
    )
    return arranged(moved, order, (*rest, tensor.shape[0]))


def _picked(tensor: Tensor, split: Sequence[int], gates: Sequence[int]) -> bytes:
    given = np.frombuffer(tensor.read(), np.uint8).reshape(split[0], -1)
    return given[list(gates)].tobytes()


def _bias(node: Node, kind: str, pair: Sequence[Tensor]) -> Tensor:
    first, second = pair
    if kind == "GRU":
        both = [_gates(each, kind, turned=False) for each in pair]
        shape = (2, *first.shape)
        return Tensor(
            *(first.name, first.dtype, shape, 2 * first.nbytes),
            lambda: b"".join(bytes(each.read()) for each in both),
        )
    if first.dtype not in _FLOATS:
        refuse(node, f"its two biases of {first.dtype} would have to be added")
    form = _FLOATS[first.dtype]
    return Tensor(
        *(first.name, first.dtype, first.shape, first.nbytes),
        lambda: np.add(
            *(np.frombuffer(each.read(), f"<{form}") for each in (first, second))
        ).tobytes(),
    )


_ATEN = {
    "elu": "elu", "selu": "selu", "softplus": "softplus", "exp": "exponential", "mish": "mish",
    "hardsigmoid": "hard_sigmoid", "hardswish": "hard_silu", "log_sigmoid": "log_sigmoid",
    "celu": "celu", "relu": "relu", "silu": "silu", "sigmoid": "sigmoid", "tanh": "tanh",
    "softsign": "softsign",
}  # fmt: skip
_UNARY = {"sqrt": "Sqrt", "square": "Square", "abs": "Absolute", "neg": "Negative", "log": "Log",
          "rsqrt": "Rsqrt", "sin": "Sin", "cos": "Cos"}  # fmt: skip
_NUMPY = {"float32": "<f4", "float64": "<f8", "int64": "<i8", "int32": "<i4"}
MOST_INLINE = 1 << 16
_BINARY = {
    "sub.Tensor": "Subtract",
    "div.Tensor": "TrueDivide",
    "maximum.default": "Maximum",
    "minimum.default": "Minimum",
    "ne.Scalar": "NotEqual",
    "logical_or.default": "LogicalOr",
}


def reshape(model: Model, node: Node) -> Held:
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
        return _plain(model, node, model.op, CORE, "Cast", config, [model.plain(port)])
    shape, after = model.known_shape(node, port), model.shape((node.name, 0))
    if (
        kind == "flatten"
        and attrs["start"] % len(shape) == 1
        and attrs["end"] in (-1, len(shape) - 1)
    ):
        config = {"data_format": "channels_last"}
        x = model.plain(port)
        return Held(plain=model.layer("Flatten", node.name, config, [x], after))
    if kind in ("transpose", "permute"):
        return _permuted(model, node, shape)
    if kind in ("select", "slice", "split"):
        return _cut(model, node, shape)
    if kind == "expand" and after != shape:
        return _expanded(model, node, shape)
    if kind in ("squeeze", "unsqueeze") and (not after or after[:1] != shape[:1]):
        return _axis(model, node, shape)
    if kind == "getitem":
        refuse(node, "it takes one of several outputs of an operation that is not known")
    return _viewed(model, node, shape, after)


def _plain(model: Model, node: Node, make: Any, *given: Any) -> Held:
    *head, inputs = given
    module, kind, config = head
    after = model.shape((node.name, 0))
    return Held(plain=make(module, kind, node.name, config, inputs, after))


def _viewed(model: Model, node: Node, shape: Shape, after: Shape | None) -> Held:
    """Everything that only says the shape anew, as long as the batch stays in front."""
    if after is None or not after or not shape or after[0] != shape[0]:
        refuse(node, "it does not keep the batch in front")
    target = [n if isinstance(n, int) else -1 for n in after[1:]]
    if target.count(-1) > 1:
        refuse(node, "two of its lengths are not known")
    x = model.plain(node.inputs[0])
    return Held(plain=model.layer("Reshape", node.name, {"target_shape": target}, [x], after))


def _axis(model: Model, node: Node, shape: Shape) -> Held:
    """An axis of length one in front of the batch, or taken from there."""
    axis, after = node.attrs["axis"], model.shape((node.name, 0))
    x = model.plain(node.inputs[0])
    if node.attrs["kind"] == "unsqueeze":
        return Held(plain=model.op(OPS, "ExpandDims", node.name, {"axis": axis}, [x], after))
    places = [a % len(shape) for a in axis or ()]
    if len(places) != 1 or shape[places[0]] != 1:
        refuse(node, "it takes away axes that may be longer than one")
    return Held(plain=model.op(OPS, "Squeeze", node.name, {"axis": places[0]}, [x], after))


def _permuted(model: Model, node: Node, shape: Shape) -> Held:
    rank = len(shape)
    order = [axis % rank for axis in node.attrs["axes"]]
    if node.attrs["kind"] == "transpose":
        first, second = order
        order = list(range(rank))
        order[first], order[second] = second, first
    port, after = node.inputs[0], model.shape((node.name, 0))
    if order == [0, *range(2, rank), 1]:  # what is turned back is there already
        return Held(plain=model.last(node, port))
    x = model.plain(port)
    if order[0] == 0:
        return Held(plain=model.layer("Permute", node.name, {"dims": order[1:]}, [x], after))
    return Held(plain=model.op(OPS, "Transpose", node.name, {"axes": order}, [x], after))


def _slice(start: int | None = None, stop: int | None = None, step: int | None = None) -> Any:
    config = {"start": start, "stop": stop, "step": step}
    return {"class_name": "__slice__", "config": config}


def _cut(model: Model, node: Node, shape: Shape) -> Held:
    attrs, x = node.attrs, model.plain(node.inputs[0])
    axis = attrs["axis"] % len(shape)
    before = [_slice()] * axis
    if attrs["kind"] == "split":
        start = 0
        for place, size in enumerate(attrs["sizes"]):
            key = [*before, _slice(start, start + size)]
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
        last = _slice(attrs["start"], None if end is None or end >= 1 << 40 else end, attrs["step"])
    after = model.shape((node.name, 0))
    return Held(plain=model.op(OPS, "GetItem", node.name, {}, [x, [*before, last]], after))


def _expanded(model: Model, node: Node, shape: Shape) -> Held:
    after = model.shape((node.name, 0))
    if after is None or len(after) != len(shape) or after[:1] != shape[:1]:
        refuse(node, "it adds axes")
    out = model.plain(node.inputs[0])
    for axis, (have, wanted) in enumerate(zip(shape, after, strict=True)):
        if have == wanted:
            continue
        if have != 1 or not isinstance(wanted, int):
            refuse(node, "it expands to a length that is not known")
        config = {"axis": -1 if axis == len(shape) - 1 else axis}
        name = f"{node.name}.axis{axis}"
        args = [[out.as_json()] * wanted]
        grown = (*(out.shape or ())[:axis], wanted, *(out.shape or ())[axis + 1 :])
        out = model.layer("Concatenate", name, config, [out] * wanted, grown, args=args)
    return Held(plain=out)


def _together(model: Model, node: Node) -> tuple[list[Out], bool]:
    """All inputs in one order: channels last where one of them stands only so."""
    ports = node.inputs
    ranks = {len(model.known_shape(node, port)) for port in ports}
    turned = (
        len(ranks) == 1 and min(ranks) > 2 and any(model.values[p].plain is None for p in ports)
    )
    return [model.last(node, port) if turned else model.plain(port) for port in ports], turned


def concat(model: Model, node: Node) -> Held:
    if len(node.inputs) == 1:
        return model.values[node.inputs[0]]
    inputs, turned = _together(model, node)
    rank = len(model.known_shape(node, node.inputs[0]))
    axis = node.attrs["axis"] % rank
    if axis == 0:
        refuse(node, "it joins batches")
    if turned:
        axis = rank - 1 if axis == 1 else axis - 1
    config = {"axis": -1 if axis == rank - 1 else axis}
    after = moved(model.shape((node.name, 0)), turned)
    args = [[out.as_json() for out in inputs]]
    out = model.layer("Concatenate", node.name, config, inputs, after, args=args)
    return Held(last=out) if turned else Held(plain=out)


def combine(model: Model, node: Node) -> Held:
    kind = "Add" if node.op == "ADD" else "Multiply"
    if "value" in node.params:
        value = _inline(node, model.tensor(node, "value"))
        model.notes.append(f"{node.name}: a stored tensor became a constant")
        args = [model.plain(node.inputs[0]), value]
        return Held(plain=model.op(OPS, kind, node.name, {}, args, model.shape((node.name, 0))))
    fixed = [port for port in node.inputs if port[0] in model.network.constants]
    if fixed:
        sides: list[Any] = [
            _inline(node, model.constant(node, port[0])) if port in fixed else model.plain(port)
            for port in node.inputs
        ]
        if len(fixed) > 1 or len(sides) != 2:
            refuse(node, "several of its inputs are constants")
        return Held(plain=model.op(OPS, kind, node.name, {}, sides, model.shape((node.name, 0))))
    if node.attrs["const"] is not None:
        turned = model.values[node.inputs[0]].plain is None
        port = node.inputs[0]
        x = model.last(node, port) if turned else model.plain(port)
        args = [x, node.attrs["const"]]
        after = moved(model.shape((node.name, 0)), turned)
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
    inputs, turned = _together(model, node)
    after = moved(model.shape((node.name, 0)), turned)
    args = [[out.as_json() for out in inputs]]
    out = model.layer(kind, node.name, {}, inputs, after, args=args)
    return Held(last=out) if turned else Held(plain=out)


def _inline(node: Node, tensor: Tensor) -> dict[str, Any]:
    """A small tensor within the configuration, as Keras writes arrays."""
    if tensor.elements > MOST_INLINE or tensor.dtype not in _NUMPY:
        refuse(node, f"the tensor {tensor.name!r} of {tensor.elements} elements is a constant")
    given = np.frombuffer(tensor.read(), _NUMPY[tensor.dtype]).reshape(tensor.shape)
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        refuse(node, f"the constant {tensor.name!r} holds what is not finite")
    config = {"value": given.tolist(), "dtype": tensor.dtype}
    return {"class_name": "__numpy__", "config": config}


def attention(model: Model, node: Node) -> Held:
    """keras.ops.dot_product_attention, which has the heads behind the sequence."""
    if len(node.inputs) > 3:
        refuse(node, "it has a mask")
    if node.attrs["p"]:
        model.notes.append(f"{node.name}: its dropout of {node.attrs['p']} is left out")
    shapes = [model.known_shape(node, port) for port in node.inputs]
    heads = node.attrs["heads"]
    if {len(shape) for shape in shapes} != {4 if heads is None else 3}:
        refuse(node, "its heads are not on an axis of their own")
    given = [
        _heads(model, node, port, shape, word)
        for port, shape, word in zip(node.inputs, shapes, ("query", "key", "value"), strict=True)
    ]
    config = {"is_causal": node.attrs["causal"], "flash_attention": False}
    after, width = model.shape((node.name, 0)), shapes[0][-1]
    if not isinstance(width, int):
        refuse(node, "the width of its query is not known")
    scale = node.attrs["scale"]
    if scale is None:
        scale = (width // (heads or 1)) ** -0.5
    inner: Shape = (None,) * 4
    out = model.op(
        *(NN, "DotProductAttention", f"{node.name}.heads", config, given, inner, {"scale": scale})
    )
    if heads is None:
        return Held(plain=model.layer("Permute", node.name, {"dims": [2, 1, 3]}, [out], after))
    target = [n if isinstance(n, int) else -1 for n in (after or (None, None, None))[1:]]
    if target.count(-1) > 1:
        refuse(node, "two of its lengths are not known")
    return Held(plain=model.layer("Reshape", node.name, {"target_shape": target}, [out], after))


def _heads(model: Model, node: Node, port: Port, shape: Shape, word: str) -> Out:
    x, name, heads = model.plain(port), f"{node.name}.{word}", node.attrs["heads"]
    after: Shape = (None,) * 4
    if heads is None:
        return model.layer("Permute", name, {"dims": [2, 1, 3]}, [x], after)
    if not isinstance(shape[-1], int) or shape[-1] % heads:
        refuse(node, "its heads do not divide the width")
    length = shape[1] if isinstance(shape[1], int) else -1
    config = {"target_shape": [length, heads, shape[-1] // heads]}
    return model.layer("Reshape", name, config, [x], after)


def raw(model: Model, node: Node) -> Held:
    source = node.source or {}
    if source.get("dialect") == "keras":
        return keras_layer(model, node, source)
    if source.get("dialect") != "aten":
        refuse(node, f"it is an operation of {source.get('dialect')}")
    name = str(source.get("op")).removeprefix("aten.")
    args = source.get("args", [])
    after = model.shape((node.name, 0))
    plain = source.get("kwargs") in (None, {}) and all(isinstance(arg, dict) for arg in args)
    if plain and args[:1] == [{"n": 0}]:
        if name.startswith("upsample_nearest") and name.endswith("d.vec"):
            return _upsampled(model, node, args[1:])
        inputs = [model.plain(port) for port in node.inputs]
        found = _function(model, node, name, args, inputs) or _sides(
            model, node, name, args[1:], inputs[0], after
        )
        if found is not None:
            return found
    return refuse(node, f"{name} has no counterpart")


def _function(
    model: Model, node: Node, name: str, args: Sequence[Any], inputs: Sequence[Out]
) -> Held | None:
    """Functions of one tensor, and of two."""
    base, after = name.partition(".")[0], model.shape((node.name, 0))
    if len(args) == 1 and base in _ATEN:
        config = {"activation": _ATEN[base]}
        return Held(plain=model.layer("Activation", node.name, config, inputs, after))
    if len(args) == 1 and base in _UNARY:
        return Held(plain=model.op(OPS, _UNARY[base], node.name, {}, inputs, after))
    if name == "elu.default" and len(args) == 2 and isinstance(args[1].get("c"), float):
        alpha = {"alpha": args[1]["c"]}
        return Held(plain=model.layer("ELU", node.name, alpha, inputs, after))
    if name == "any.dim" and len(args) == 3 and all("c" in arg for arg in args[1:]):
        reduced: dict[str, Any] = {"axis": [args[1]["c"]], "keepdims": args[2]["c"]}
        return Held(plain=model.op(OPS, "Any", node.name, reduced, inputs, after))
    if name in _BINARY and len(args) == 2:
        other: Any = inputs[1] if args[1] == {"n": 1} else args[1].get("c")
        if isinstance(other, (Out, int, float)):
            pair = [inputs[0], other]
            return Held(plain=model.op(OPS, _BINARY[name], node.name, {}, pair, after))
    return None


def _upsampled(model: Model, node: Node, args: Sequence[Any]) -> Held:
    """Nearest neighbours by whole factors."""
    last = args[-1].get("l") if args else None
    factors = [item.get("c") for item in last] if isinstance(last, list) else []
    if not factors or any(factor not in range(1, 1 << 20) for factor in factors):
        refuse(node, "it does not repeat entries a whole number of times")
    x = model.last(node, node.inputs[0])
    size: Any = [int(factor) for factor in factors]
    config: dict[str, Any] = {"size": size if len(size) > 1 else size[0]}
    if len(size) > 1:
        config["data_format"] = "channels_last"
    after = moved(model.shape((node.name, 0)), True)
    kind = f"UpSampling{len(size)}D"
    return Held(last=model.layer(kind, node.name, config, [x], after))


def _sides(
    model: Model, node: Node, name: str, args: Sequence[Any], x: Out, after: Shape | None
) -> Held | None:
    """Padding with zeros, and entries repeated, over any axes but the batch."""
    values = [arg.get("c") for arg in args]
    if name == "repeat_interleave.self_int" and len(args) == 2:
        times, axis = values
        if isinstance(times, int) and isinstance(axis, int):
            repeat = {"repeats": times, "axis": axis}
            return Held(plain=model.op(OPS, "Repeat", node.name, repeat, [x], after))
    if name == "constant_pad_nd.default" and args and isinstance(args[0].get("l"), list):
        flat = [item.get("c") for item in args[0]["l"]]
        rank = len(x.shape or ())
        pairs = [list(pair) for pair in zip(flat[::2], flat[1::2], strict=False)][::-1]
        whole = all(isinstance(n, int) and n >= 0 for n in flat)
        value = values[1] if len(values) > 1 else 0.0
        if whole and len(flat) % 2 == 0 and len(pairs) <= rank and isinstance(value, (int, float)):
            width = [[0, 0]] * (rank - len(pairs)) + pairs
            config: dict[str, Any] = {"pad_width": width, "mode": "constant"}
            keyed = {"constant_values": value}
            return Held(plain=model.op(OPS, "Pad", node.name, config, [x], after, keyed))
    return None


WRITERS: Mapping[str, Write] = {
    **PLAIN,
    "RESHAPE": reshape,
    "CONCAT": concat,
    "ADD": combine,
    "MUL": combine,
    "ATTENTION": attention,
    "RNN": recurrent,
    "OP": raw,
}
