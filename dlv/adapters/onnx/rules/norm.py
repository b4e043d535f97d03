"""NORM, with the statistics of inference."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dlv.adapters.onnx.builder import Cannot
from dlv.adapters.onnx.call import Call, Reader
from dlv.adapters.onnx.graph import MOST_NUMBERS, Graph, Item, Value, Writer
from dlv.errors import UsageError
from dlv.network.graph import Node
from dlv.network.sizes import Shape, axis_of

# From ONNX


def read_batch_norm(call: Call) -> None:
    call.only_output()
    if not call.flag("spatial", 1):
        raise Cannot("statistics for each place")
    if call.version < 7 and not call.flag("is_test", 0):
        raise Cannot("statistics of the batch")
    slots = ("weight", "bias", "running_mean", "running_var")
    params = {slot: call.weight(place + 1) for place, slot in enumerate(slots)}
    attrs = {
        "eps": call.decimal("epsilon", 1e-5),
        # torch's momentum is the share of the new, that of ONNX the share of the old.
        "momentum": round(1 - call.decimal("momentum", 0.9), 7),
        "axis": 1,
    }
    call.emit("NORM", attrs, (call.port(0),), variant="BATCH", params=params)


def read_instance_norm(call: Call) -> None:
    params = {"weight": call.weight(1), "bias": call.weight(2)}
    attrs = {"eps": call.decimal("epsilon", 1e-5)}
    call.emit("NORM", attrs, (call.port(0),), variant="INSTANCE", params=params)


def read_layer_norm(call: Call) -> None:
    call.only_output()
    slots = {1: "weight", 2: "bias"} if call.has(2) else {1: "weight"}
    params = {slot: call.weight(place) for place, slot in slots.items()}
    attrs = {"eps": call.decimal("epsilon", 1e-5), "axis": _axis_from_end(call, list(slots))}
    call.emit("NORM", attrs, (call.port(0),), variant="LAYER", params=params)


def read_rms_norm(call: Call) -> None:
    params = {"weight": call.weight(1)}
    attrs = {"eps": call.decimal("epsilon", 1e-5), "axis": _axis_from_end(call, [1])}
    call.emit("NORM", attrs, (call.port(0),), variant="RMS", params=params)


def _axis_from_end(call: Call, places: Sequence[int]) -> int:
    """The axis from the end, of which the weights' shapes must speak."""
    axis = call.integer("axis", -1)
    if axis >= 0:
        axis -= call.rank()
    wanted = (call.shape(0) or ())[axis:]
    for place in places:
        shape = call.shape(place) or ()
        if len(shape) != -axis or any(
            isinstance(a, int) and a != b for a, b in zip(wanted, shape, strict=False)
        ):
            raise Cannot("weights of another shape")
    return axis


def read_group_norm(call: Call) -> None:
    groups, shape = call.integer("num_groups"), call.shape(0)
    weights = call.shape(1) or ()
    # Before version 21 there was one weight for each group.
    if call.version < 21 or shape is None or len(shape) < 2:
        raise Cannot("weights of groups")
    if isinstance(shape[1], int) and weights != shape[1:2]:
        raise Cannot("weights of groups")
    params = {"weight": call.weight(1), "bias": call.weight(2)}
    attrs = {"eps": call.decimal("epsilon", 1e-5), "groups": groups}
    call.emit("NORM", attrs, (call.port(0),), variant="GROUP", params=params)


def read_lrn(call: Call) -> None:
    attrs = {
        "size": call.integer("size"),
        "alpha": call.decimal("alpha", 1e-4),
        "beta": call.decimal("beta", 0.75),
        "k": call.decimal("bias", 1.0),
    }
    call.emit("NORM", attrs, (call.port(0),), variant="LRN")


# To ONNX
_ROUNDING = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}


def write_norm(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    x, attrs = g.value(inputs[0]), node.attrs
    axis = axis_of(attrs["axis"], x.rank, "axis")
    if node.variant == "LAYER":
        return _layer(g, node, x, axis)
    if node.variant == "RMS":
        return _rms(g, node, x, axis)
    # The rest speaks of channels on axis 1.
    order = list(range(x.rank))
    order.insert(1, order.pop(axis))
    moved = g.transpose(x, order)
    if node.variant == "LRN":
        made = _response(g, node, moved)
    elif "running_mean" in node.params:
        made = _batch(g, node, moved)
    elif node.variant == "BATCH":
        # One that keeps no statistics uses those of the batch in inference too.
        axes = [place for place in range(x.rank) if place != 1]
        made = _affine(g, node, moved, _standard(g, moved, axes, attrs["eps"]))
    elif node.variant == "GROUP":
        made = _group(g, node, moved)
    else:
        made = _instance(g, node, moved)
    return g.transpose(made, [order.index(place) for place in range(x.rank)])


def _slot(g: Graph, node: Node, slot: str, x: Value, shape: Shape | None) -> Value:
    """The tensor in a slot; ones or zeros of that shape where the node has none."""
    if slot in node.params:
        return g.weight(node, slot, x.dtype)
    numbers = tuple(dim for dim in shape or () if isinstance(dim, int))
    if shape is None or len(numbers) != len(shape) or prod(numbers) > MOST_NUMBERS:
        raise UsageError("how many channels are normalized is unknown, or too many")
    return g.constant([float(slot == "weight")] * prod(numbers), x.dtype, numbers)


def _weight_and_bias(g: Graph, node: Node, x: Value, shape: Shape | None) -> list[Value]:
    return [_slot(g, node, slot, x, shape) for slot in ("weight", "bias")]


def _channels(x: Value) -> Shape:
    return (x.shape or ())[1:2]


def _batch(g: Graph, node: Node, x: Value) -> Value:
    statistics = [g.weight(node, slot, x.dtype) for slot in ("running_mean", "running_var")]
    given = [x, *_weight_and_bias(g, node, x, statistics[0].shape), *statistics]
    return g.op("BatchNormalization", given, {"epsilon": node.attrs["eps"]})


def _standard(g: Graph, x: Value, axes: Sequence[int], eps: float) -> Value:
    """Mean 0 and variance 1 over some axes."""
    off = g.binary("Sub", x, g.reduce("ReduceMean", x, axes, True))
    variance = g.reduce("ReduceMean", g.op("Mul", [off, off]), axes, True)
    raised = g.op("Add", [variance, g.constant(eps, x.dtype)])
    return g.op("Div", [off, g.op("Sqrt", [raised])])


def _affine(g: Graph, node: Node, x: Value, result: Value) -> Value:
    """Weight and bias of the channels, which are axis 1."""
    for slot, kind in (("weight", "Mul"), ("bias", "Add")):
        if slot in node.params:
            value = g.weight(node, slot, x.dtype)
            if x.rank > 2:
                value = g.unsqueeze(value, *range(1, x.rank - 1))
            result = g.op(kind, [result, value])
    return result


def _instance(g: Graph, node: Node, x: Value) -> Value:
    given = [x, *_weight_and_bias(g, node, x, _channels(x))]
    return g.op("InstanceNormalization", given, {"epsilon": node.attrs["eps"]})


def _group(g: Graph, node: Node, x: Value) -> Value:
    attrs = {"epsilon": node.attrs["eps"], "num_groups": node.attrs["groups"]}
    return g.op("GroupNormalization", [x, *_weight_and_bias(g, node, x, _channels(x))], attrs)


def _layer(g: Graph, node: Node, x: Value, axis: int) -> Value:
    shape = (x.shape or ())[axis:]
    bias = g.weight(node, "bias", x.dtype) if "bias" in node.params else None
    counts = [dim for dim in shape if isinstance(dim, int)]
    few = len(counts) == len(shape) and prod(counts) <= MOST_NUMBERS
    if few or "weight" in node.params:
        given = [x, _slot(g, node, "weight", x, shape), bias]
        attrs = {"epsilon": node.attrs["eps"], "axis": axis - x.rank}
        return g.op("LayerNormalization", given, attrs)
    made = _standard(g, x, range(axis, x.rank), node.attrs["eps"])
    return made if bias is None else g.binary("Add", made, bias)


def _rms(g: Graph, node: Node, x: Value, axis: int) -> Value:
    eps = node.attrs["eps"]
    # As torch does it, half precision is too narrow for squares.
    wide = g.cast(x, "float32") if x.dtype == "float16" else x
    eps = _ROUNDING[x.dtype] if eps is None else eps
    mean = g.reduce("ReduceMean", g.op("Mul", [wide, wide]), range(axis, x.rank), True)
    root = g.op("Sqrt", [g.op("Add", [mean, g.constant(eps, wide.dtype)])])
    made = g.cast(g.op("Div", [wide, root]), x.dtype)
    if "weight" in node.params:
        made = g.binary("Mul", made, g.weight(node, "weight", x.dtype))
    return made


def _response(g: Graph, node: Node, x: Value) -> Value:
    attrs = node.attrs
    size, alpha, beta, k = attrs["size"], attrs["alpha"], attrs["beta"], attrs["k"]
    if size % 2 and x.rank == 4:
        return g.op("LRN", [x], {"size": size, "alpha": alpha, "beta": beta, "bias": k})
    # Runtimes take four axes only; of an even window ONNX has the longer half behind, torch before.
    channels = g.length(x, 1)
    flat = g.op("Mul", [x, x])
    flat = g.op("Reshape", [flat, g.vector([0, 1, channels, -1])], shape=None)
    window = {"kernel_shape": [size, 1], "pads": [size // 2, 0, (size - 1) // 2, 0]}
    mean = g.op("AveragePool", [flat], {**window, "count_include_pad": 1})
    mean = g.like(mean, x)
    raised = g.op("Add", [g.op("Mul", [mean, g.constant(alpha, x.dtype)]), g.constant(k, x.dtype)])
    return g.op("Div", [x, g.op("Pow", [raised, g.constant(beta, x.dtype)])])


READERS: dict[str, Reader] = {
    "BatchNormalization": read_batch_norm,
    "InstanceNormalization": read_instance_norm,
    "LayerNormalization": read_layer_norm,
    "RMSNormalization": read_rms_norm,
    "GroupNormalization": read_group_norm,
    "LRN": read_lrn,
}
WRITERS: dict[str, Writer] = {"NORM": write_norm}
