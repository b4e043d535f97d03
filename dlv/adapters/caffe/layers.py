"""Caffe's layers in the words of the network: what each type computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from dlv.adapters.caffe.graph import Builder
from dlv.adapters.caffe.spec import ENUMS, Layer
from dlv.adapters.protobuf import Message
from dlv.errors import Damaged
from dlv.network.graph import Port
from dlv.network.sizes import MAX_RANK, Dim, Shape

Ports = list[Port]


_FIELDS = (("kernel", "kernel_size", 0), ("stride", "stride", 1), ("pad", "pad", 0))


def _convolution(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    """One top for each bottom, all with the same weights."""
    param = layer.param("convolution")
    if not inputs or len(inputs) != len(layer.tops):
        raise Damaged(f"{layer.where()} has {len(inputs)} bottoms and {len(layer.tops)} tops")
    bias = param.flag("bias_term", True)
    op = "CONV" if layer.type == "Convolution" else "DECONV"
    result = []
    for port in inputs:
        rank = b.rank(port)
        axis = param.integer("axis", 1)
        if axis != 1 and (rank is None or axis + rank != 1):
            return b.raw(inputs)
        attrs: dict[str, Any] = {
            "out": param.count("num_output", 0),
            "groups": param.count("group", 1),
            "bias": bias,
            **_window(layer, param, None if rank is None else rank - 2),
        }
        result.append(b.add(op, [port], attrs, params=weights(layer, bias=bias)))
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
            why="there must be axes after those of rows and channels",
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
            return b.raw(inputs, kept)
        name, _ = b.add("POOL", inputs, {"size": [1] * axes}, variant=variant)
    else:
        lengths: Shape = (None,) * axes if shape is None else shape[2:]
        counts = [_count(*row, ceil=ceil) for row in zip(lengths, *window.values(), strict=True)]
        unpadded = ceil and not any(window["pad"])
        if variant is None or (unpadded and any(map(_empty, lengths, *window.values()))):
            return b.raw(inputs, None if shape is None else (*shape[:2], *counts))
        attrs = {**window, "ceil": ceil and _matters(lengths, window)}
        name, _ = b.add("POOL", inputs, attrs, variant=variant)
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


def flatten(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    param = layer.param("flatten")
    attrs = {
        "kind": "flatten",
        "start": param.integer("axis", 1),
        "end": param.integer("end_axis", -1),
    }
    return [b.add("RESHAPE", [only_bottom(layer, inputs)], attrs)]


def permute(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    order = layer.param("permute").counts("order")
    rank = b.rank(only_bottom(layer, inputs))
    if not order or rank is None:
        return b.raw(inputs)
    if len(set(order)) != len(order) or max(order) >= rank:
        raise Damaged(f"{layer.where()}: its order is {order[:8]}", why=f"the rank is {rank}")
    axes = [*order, *(axis for axis in range(rank) if axis not in order)]
    attrs = {"kind": "permute", "axes": axes}
    return [b.add("RESHAPE", inputs, attrs)]


def reshape(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    """0 keeps a length, -1 takes what is left, `axis` and `num_axes` say what is replaced."""
    param = layer.param("reshape")
    wanted = param.message("shape").integers("dim", -1)
    shape = b.shape(only_bottom(layer, inputs))
    if shape is None:
        return b.raw(inputs)
    start, count = param.integer("axis", 0), param.integer("num_axes", -1)
    start = start if start >= 0 else len(shape) + start + 1
    end = len(shape) if count == -1 else start + count
    if not 0 <= start <= end <= len(shape):
        raise Damaged(f"{layer.where()}: the axes {start} to {end} do not exist")
    size: list[Dim] = []
    for place, side in enumerate(wanted, start):
        if side == 0:
            if place >= len(shape):
                raise Damaged(f"{layer.where()}: there is not an axis {place} to keep")
            size.append(shape[place])
        elif place == 0 and side == b.batch and shape[0] == "B":
            size.append("B")
        else:
            size.append(side)
    size = [*shape[:start], *size, *shape[end:]]
    if size.count(-1) > 1:
        raise Damaged(f"{layer.where()}: -1 is there twice")
    if size.count(-1) + size.count(None) > 1:
        return b.raw(inputs)
    return [b.add("RESHAPE", inputs, {"kind": "reshape", "size": size})]


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
        return _slices(b, inputs, axis, points)
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
    name, _ = b.add("RESHAPE", inputs, attrs)
    return [(name, index) for index in range(tops)]


def _slices(b: Builder, inputs: Ports, axis: int, points: list[int]) -> Ports:
    """Cut where the length is not known: the last part is what is left."""
    if not points or points != sorted(set(points)) or not points[0]:
        return b.raw(inputs)
    result = []
    for index, (start, end) in enumerate(pairwise([0, *points, None])):
        attrs = {"kind": "slice", "axis": axis, "start": start, "end": end}
        result.append(b.add("RESHAPE", inputs, attrs, part=f"top{index}"))
    return result


_Translate = Callable[[Builder, Layer, Ports], Ports]

# Layers with one output, of the shape of their first input.
_SAME_SHAPE = {
    *("AbsVal", "BNLL", "Clip", "ELU", "Exp", "Log", "Mish", "MVN", "Normalize", "Power"),
    *("PReLU", "Threshold", "Swish", "Bias", "Scale"),
}


def translate(b: Builder, layer: Layer, inputs: Ports, scale: Layer | None) -> Ports:
    """The nodes of a layer; `scale` is the Scale that belongs to a BatchNorm.

    A field that is not understood may say that it computes something else: then it stays raw.
    """
    b.layer = layer
    known = _TYPES.get(layer.type)
    if known is not None or layer.type == "BatchNorm":
        before = b.mark()
        if known is not None:
            made = known(b, layer, inputs)
        else:
            made = _batch_norm(b, layer, inputs, scale)
        odd = layer.not_understood()
        kept = any((node.source or {}).get("dialect") == "caffe" for node in b.nodes[before[0] :])
        if odd is None or kept:
            return made
        b.back_to(before)
        b.notes.append(f"{layer.name!r} is stored as it is: its field {odd} is not supported")
        return b.raw(inputs)
    if layer.type in _SAME_SHAPE and inputs:
        return _same(b, layer, inputs)
    if layer.type not in _KNOWN_RAW:
        note = f"layers of the type {layer.type!r} are unknown: they are stored as they are"
        if note not in b.notes:
            b.notes.append(note)
    return b.raw(inputs)


def only_bottom(layer: Layer, inputs: Sequence[Port]) -> Port:
    if len(inputs) != 1 or len(layer.tops) != 1:
        raise Damaged(
            f"{layer.where()} has {len(inputs)} bottoms and {len(layer.tops)} tops",
            why=f"{layer.type} takes one of each",
        )
    return inputs[0]


def _some(layer: Layer, inputs: Sequence[Port]) -> Sequence[Port]:
    if not inputs or len(layer.tops) != 1:
        raise Damaged(
            f"{layer.where()} has {len(inputs)} bottoms and {len(layer.tops)} tops",
            why=f"{layer.type} takes some and gives one",
        )
    return inputs


def _batch_norm(b: Builder, layer: Layer, inputs: Ports, scale: Layer | None) -> Ports:
    param = layer.param("batch_norm")
    if param.flag("scale_bias", False) or not param.flag("use_global_stats", True):
        return b.raw(inputs, b.shape(only_bottom(layer, inputs)))
    params = {slot: layer.tensor(slot) for slot in ("running_mean", "running_var")}
    if scale is not None:
        params["weight"] = scale.tensor("weight")
        if scale.param("scale").flag("bias_term", False):
            params["bias"] = scale.tensor("bias")
    order = ("weight", "bias", "running_mean", "running_var")
    attrs = {
        "eps": param.number("eps", 1e-5),
        "momentum": round(1 - param.number("moving_average_fraction", 0.999), 9),
    }
    params = {slot: params[slot] for slot in order if slot in params}
    return [b.add("NORM", [only_bottom(layer, inputs)], attrs, variant="BATCH", params=params)]


def _inner_product(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    param = layer.param("inner_product")
    port, axis = only_bottom(layer, inputs), param.integer("axis", 1)
    rank = b.rank(port)
    if axis < 0 and rank is not None:
        axis += rank
    if axis < 0 and axis != -1:
        return b.raw(inputs)
    if rank is not None and axis >= rank:
        raise Damaged(f"{layer.where()}: axis {axis} does not exist", why=f"the rank is {rank}")
    # It sees everything behind the axis as one row.
    if axis >= 0 and rank != axis + 1:
        attrs = {"kind": "flatten", "start": axis, "end": -1}
        port = b.add("RESHAPE", [port], attrs, part="flatten")
    bias = param.flag("bias_term", True)
    attrs = {
        "out": param.count("num_output", 0),
        "bias": bias,
        "layout": "in_out" if param.flag("transpose", False) else "out_in",
    }
    return [b.add("FULL", [port], attrs, params=weights(layer, bias=bias))]


def weights(layer: Layer, *, bias: bool) -> dict[str, str]:
    return {slot: layer.tensor(slot) for slot in (("weight", "bias") if bias else ("weight",))}


def _embed(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    param = layer.param("embed")
    out = param.count("num_output", 0)
    attrs = {"out": out, "rows": param.count("input_dim", 0)}
    port = b.add("EMBED", [only_bottom(layer, inputs)], attrs, params=weights(layer, bias=False))
    if param.flag("bias_term", True):
        params = {"value": layer.tensor("bias")}
        port = b.add("ADD", [port], {"shape": [out]}, params=params, part="add")
    return [port]


def _relu(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    slope = layer.param("relu").number("negative_slope", 0.0)
    return [b.add("RELU", [only_bottom(layer, inputs)], {"slope": slope})]


def _activation(variant: str) -> _Translate:
    return lambda b, layer, inputs: [b.add("ACT", [only_bottom(layer, inputs)], variant=variant)]


def _softmax(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    axis, rank = layer.param("softmax").integer("axis", 1), b.rank(only_bottom(layer, inputs))
    if rank is not None and axis == rank - 1:
        axis = -1  # as others call the last one
    return [b.add("SOFTMAX", [only_bottom(layer, inputs)], {"axis": axis})]


def _dropout(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    ratio = layer.param("dropout").number("dropout_ratio", 0.5)
    return [b.add("DROPOUT", [only_bottom(layer, inputs)], {"p": ratio})]


def _lrn(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    """Caffe divides alpha by the size, as NORM LRN does."""
    param, port = layer.param("lrn"), only_bottom(layer, inputs)
    if param.word("norm_region", ENUMS["Region"], "ACROSS_CHANNELS") != "ACROSS_CHANNELS":
        return b.raw(inputs, b.shape(port))
    size = param.count("local_size", 5)
    if size % 2 == 0:
        raise Damaged(f"{layer.where()}: local_size is {size}", why="it takes an odd number")
    attrs = {
        "size": size,
        "alpha": param.number("alpha", 1.0),
        "beta": param.number("beta", 0.75),
        "k": param.number("k", 1.0),
    }
    return [b.add("NORM", [port], attrs, variant="LRN")]


def _concat(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    param = layer.param("concat")
    axis = param.count("concat_dim", 1) if "concat_dim" in param else param.integer("axis", 1)
    return [b.add("CONCAT", _some(layer, inputs), {"axis": axis})]


def _eltwise(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    param = layer.param("eltwise")
    operation = param.word("operation", ENUMS["Eltwise"], "SUM")
    factors = param.numbers("coeff")
    if factors and len(factors) != len(inputs):
        raise Damaged(
            f"{layer.where()} has {len(inputs)} bottoms and {len(factors)} of coeff",
            why="there is one for each, or none",
        )
    if len(_some(layer, inputs)) < 2:
        raise Damaged(f"{layer.where()} has one bottom", why="Eltwise takes two or more")
    if operation == "MAX":
        return b.raw(inputs, b.shape(inputs[0]))
    if operation == "PROD":
        return [b.add("MUL", inputs)]
    for index, factor in enumerate(factors):
        if factor != 1:
            attrs = {"const": factor}
            part = f"coeff{index}"
            inputs[index] = b.add("MUL", [inputs[index]], attrs, part=part)
    return [b.add("ADD", inputs)]


def _power(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    """(shift + scale * x) ** power; a straight line can be said."""
    param, port = layer.param("power"), only_bottom(layer, inputs)
    scale, shift = param.number("scale", 1.0), param.number("shift", 0.0)
    if param.number("power", 1.0) != 1:
        return b.raw(inputs, b.shape(port))
    if not shift:
        return [b.add("MUL", [port], {"const": scale})]
    if scale != 1:
        port = b.add("MUL", [port], {"const": scale}, part="scale")
    return [b.add("ADD", [port], {"const": shift})]


def _swish(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    if layer.param("swish").number("beta", 1.0) == 1:
        return _activation("SILU")(b, layer, inputs)
    return b.raw(inputs, b.shape(only_bottom(layer, inputs)))


def _side(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    """Scale and Bias: the second side is a bottom, or the layer's own blob."""
    kind = "scale" if layer.type == "Scale" else "bias"
    param, shape = layer.param(kind), b.shape(inputs[0]) if inputs else None
    axis, bias = param.integer("axis", 1), kind == "scale" and param.flag("bias_term", False)
    op = "MUL" if kind == "scale" else "ADD"
    rank = None if shape is None else len(shape)
    if axis < 0 and rank is not None:
        axis += rank
    if len(inputs) == 2 and not bias:
        other = b.rank(inputs[1])
        if rank is not None and other is not None and (axis == 0 or axis + other == rank):
            port = inputs[1]
            for place in range(axis + other, rank):
                attrs = {"kind": "unsqueeze", "axis": place}
                port = b.add("RESHAPE", [port], attrs, part=f"axis{place}")
            return [b.add(op, [inputs[0], port])]
    if len(inputs) == 1 and shape is not None and rank == axis + 1:
        depth, port = shape[-1], only_bottom(layer, inputs)
        if isinstance(depth, int) and param.integer("num_axes", 1) == 1:
            names = layer.tensor("weight" if kind == "scale" else "bias"), layer.tensor("bias")
            attrs = {"shape": [depth]}
            port = b.add(op, [port], attrs, params={"value": names[0]})
            if bias:
                given = {"value": names[1]}
                port = b.add("ADD", [port], attrs, params=given, part="bias")
            return [port]
    return _same(b, layer, inputs, bias=bias)


def _same(b: Builder, layer: Layer, inputs: Ports, *, bias: bool = False) -> Ports:
    """Kept as it is; its blobs are known without the weights at hand."""
    slots: list[str] = []
    if layer.type == "PReLU":
        slots = ["weight"]
    elif layer.type in ("Scale", "Bias"):
        own = ["weight"] if layer.type == "Scale" else ["bias"]
        slots = (own if len(inputs) == 1 else []) + (["bias"] if bias else [])
    params = {slot: layer.tensor(slot) for slot in slots} or None
    return b.raw(inputs, b.shape(inputs[0]) if inputs else None, params)


def _axpy(b: Builder, layer: Layer, inputs: Ports) -> Ports:  # noqa: ARG001
    """Of squeeze-and-excitation networks: a * x + y, a for each channel."""
    ranks = {b.rank(port) for port in inputs}
    if len(inputs) != 3 or len(ranks) != 1 or None in ranks:
        return b.raw(inputs)
    product = b.add("MUL", inputs[:2], part="scale")
    return [b.add("ADD", [product, inputs[2]])]


def _crop(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    axis, shape = layer.param("crop").integer("axis", 2), None
    if len(inputs) == 2:
        given, wanted = (b.shape(port) for port in inputs)
        if given is not None and wanted is not None and len(given) == len(wanted):
            shape = (*given[:axis], *wanted[axis:])
    return b.raw(inputs, shape)


def _reduction(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    shape = b.shape(only_bottom(layer, inputs))
    axis = layer.param("reduction").integer("axis", 0)
    return b.raw(inputs, None if shape is None else shape[:axis])


def _tile(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    param, shape = layer.param("tile"), b.shape(only_bottom(layer, inputs))
    axis, tiles = param.integer("axis", 1), param.integer("tiles", 1)
    result: Shape | None = None
    if shape is not None and -len(shape) <= axis < len(shape):
        sides: list[Dim] = list(shape)
        side = sides[axis]
        sides[axis] = side * tiles if isinstance(side, int) and tiles > 0 else None
        result = tuple(sides)
    return b.raw(inputs, result)


_TYPES: dict[str, _Translate] = {
    "Axpy": _axpy,
    "Bias": _side,
    "Concat": _concat,
    "Convolution": _convolution,
    "Crop": _crop,
    "Deconvolution": _convolution,
    "Dropout": _dropout,
    "Eltwise": _eltwise,
    "Embed": _embed,
    "Flatten": flatten,
    "InnerProduct": _inner_product,
    "LRN": _lrn,
    "Permute": permute,
    "Pooling": pooling,
    "Power": _power,
    "ReLU": _relu,
    "ReLU6": _activation("RELU6"),
    "Reduction": _reduction,
    "Reshape": reshape,
    "Scale": _side,
    "Sigmoid": _activation("SIGMOID"),
    "Slice": slice_,
    "Softmax": _softmax,
    "Swish": _swish,
    "TanH": _activation("TANH"),
    "Tile": _tile,
}
# Caffe's own, of which there is no more to say.
_KNOWN_RAW = {
    *("ArgMax", "BatchReindex", "Filter", "Im2col", "LSTM", "LSTMUnit", "Parameter", "Python"),
    *("RNN", "Recurrent", "SPP"),
}
