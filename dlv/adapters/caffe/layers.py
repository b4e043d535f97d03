"""Caffe's layers in the words of the network: what each type computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlv.adapters.caffe.builder import Builder
from dlv.adapters.caffe.schema import ENUMS
from dlv.adapters.caffe.shapes import flatten, permute, reshape, slice_
from dlv.adapters.caffe.spec import Layer
from dlv.adapters.caffe.windows import convolution, deconvolution, pooling
from dlv.errors import Damaged
from dlv.network.graph import Port
from dlv.network.sizes import Dim, Shape

Ports = list[Port]
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
        b.notes.append(f"{layer.name!r} is kept as it is: its field {odd} is not understood")
        return b.raw(layer, inputs)
    if layer.type in _SAME_SHAPE and inputs:
        return _same(b, layer, inputs)
    if layer.type not in _KNOWN_RAW:
        note = f"layers of the type {layer.type!r} are not known: they are kept as they are"
        if note not in b.notes:
            b.notes.append(note)
    return b.raw(layer, inputs)


def one(layer: Layer, inputs: Sequence[Port]) -> Port:
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
        return b.raw(layer, inputs, b.shape(one(layer, inputs)))
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
    return [b.add(layer, "NORM", "BATCH", [one(layer, inputs)], attrs, params=params)]


def _inner_product(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    param = layer.param("inner_product")
    port, axis = one(layer, inputs), param.integer("axis", 1)
    rank = b.rank(port)
    if axis < 0 and rank is not None:
        axis += rank
    if axis < 0 and axis != -1:
        return b.raw(layer, inputs)
    if rank is not None and axis >= rank:
        raise Damaged(f"{layer.where()}: axis {axis} does not exist", why=f"the rank is {rank}")
    # It sees everything behind the axis as one row.
    if axis >= 0 and rank != axis + 1:
        attrs = {"kind": "flatten", "start": axis, "end": -1}
        port = b.add(layer, "RESHAPE", None, [port], attrs, part="flatten")
    bias = param.flag("bias_term", True)
    attrs = {
        "out": param.count("num_output", 0),
        "bias": bias,
        "layout": "in_out" if param.flag("transpose", False) else "out_in",
    }
    return [b.add(layer, "FULL", None, [port], attrs, params=weights(layer, bias=bias))]


def weights(layer: Layer, *, bias: bool) -> dict[str, str]:
    return {slot: layer.tensor(slot) for slot in (("weight", "bias") if bias else ("weight",))}


def _embed(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    param = layer.param("embed")
    out = param.count("num_output", 0)
    attrs = {"out": out, "rows": param.count("input_dim", 0)}
    port = b.add(
        layer, "EMBED", None, [one(layer, inputs)], attrs, params=weights(layer, bias=False)
    )
    if param.flag("bias_term", True):
        params = {"value": layer.tensor("bias")}
        port = b.add(layer, "ADD", None, [port], {"shape": [out]}, params=params, part="add")
    return [port]


def _relu(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    slope = layer.param("relu").number("negative_slope", 0.0)
    return [b.add(layer, "RELU", None, [one(layer, inputs)], {"slope": slope})]


def _activation(variant: str) -> _Translate:
    def made(b: Builder, layer: Layer, inputs: Ports) -> Ports:
        return [b.add(layer, "ACT", variant, [one(layer, inputs)])]

    return made


def _softmax(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    axis, rank = layer.param("softmax").integer("axis", 1), b.rank(one(layer, inputs))
    if rank is not None and axis == rank - 1:
        axis = -1  # as others call the last one
    return [b.add(layer, "SOFTMAX", None, [one(layer, inputs)], {"axis": axis})]


def _dropout(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    ratio = layer.param("dropout").number("dropout_ratio", 0.5)
    return [b.add(layer, "DROPOUT", None, [one(layer, inputs)], {"p": ratio})]


def _lrn(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    """Caffe divides alpha by the size, as NORM LRN does."""
    param, port = layer.param("lrn"), one(layer, inputs)
    if param.word("norm_region", ENUMS["Region"], "ACROSS_CHANNELS") != "ACROSS_CHANNELS":
        return b.raw(layer, inputs, b.shape(port))
    size = param.count("local_size", 5)
    if size % 2 == 0:
        raise Damaged(f"{layer.where()}: local_size is {size}", why="it takes an odd number")
    attrs = {
        "size": size,
        "alpha": param.number("alpha", 1.0),
        "beta": param.number("beta", 0.75),
        "k": param.number("k", 1.0),
    }
    return [b.add(layer, "NORM", "LRN", [port], attrs)]


def _concat(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    param = layer.param("concat")
    axis = param.count("concat_dim", 1) if "concat_dim" in param else param.integer("axis", 1)
    return [b.add(layer, "CONCAT", None, _some(layer, inputs), {"axis": axis})]


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
        return b.raw(layer, inputs, b.shape(inputs[0]))
    if operation == "PROD":
        return [b.add(layer, "MUL", None, inputs)]
    for index, factor in enumerate(factors):
        if factor != 1:
            attrs = {"const": factor}
            part = f"coeff{index}"
            inputs[index] = b.add(layer, "MUL", None, [inputs[index]], attrs, part=part)
    return [b.add(layer, "ADD", None, inputs)]


def _power(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    """(shift + scale * x) ** power; a straight line can be said."""
    param, port = layer.param("power"), one(layer, inputs)
    scale, shift = param.number("scale", 1.0), param.number("shift", 0.0)
    if param.number("power", 1.0) != 1:
        return b.raw(layer, inputs, b.shape(port))
    if not shift:
        return [b.add(layer, "MUL", None, [port], {"const": scale})]
    if scale != 1:
        port = b.add(layer, "MUL", None, [port], {"const": scale}, part="scale")
    return [b.add(layer, "ADD", None, [port], {"const": shift})]


def _swish(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    if layer.param("swish").number("beta", 1.0) == 1:
        return _activation("SILU")(b, layer, inputs)
    return b.raw(layer, inputs, b.shape(one(layer, inputs)))


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
                port = b.add(layer, "RESHAPE", None, [port], attrs, part=f"axis{place}")
            return [b.add(layer, op, None, [inputs[0], port])]
    if len(inputs) == 1 and shape is not None and rank == axis + 1:
        depth, port = shape[-1], one(layer, inputs)
        if isinstance(depth, int) and param.integer("num_axes", 1) == 1:
            names = layer.tensor("weight" if kind == "scale" else "bias"), layer.tensor("bias")
            attrs = {"shape": [depth]}
            port = b.add(layer, op, None, [port], attrs, params={"value": names[0]})
            if bias:
                given = {"value": names[1]}
                port = b.add(layer, "ADD", None, [port], attrs, params=given, part="bias")
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
    return b.raw(layer, inputs, b.shape(inputs[0]) if inputs else None, params)


def _axpy(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    """Of squeeze-and-excitation networks: a * x + y, a for each channel."""
    ranks = {b.rank(port) for port in inputs}
    if len(inputs) != 3 or len(ranks) != 1 or None in ranks:
        return b.raw(layer, inputs)
    product = b.add(layer, "MUL", None, inputs[:2], part="scale")
    return [b.add(layer, "ADD", None, [product, inputs[2]])]


def _crop(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    axis, shape = layer.param("crop").integer("axis", 2), None
    if len(inputs) == 2:
        given, wanted = (b.shape(port) for port in inputs)
        if given is not None and wanted is not None and len(given) == len(wanted):
            shape = (*given[:axis], *wanted[axis:])
    return b.raw(layer, inputs, shape)


def _reduction(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    shape = b.shape(one(layer, inputs))
    axis = layer.param("reduction").integer("axis", 0)
    return b.raw(layer, inputs, None if shape is None else shape[:axis])


def _tile(b: Builder, layer: Layer, inputs: Ports) -> Ports:
    param, shape = layer.param("tile"), b.shape(one(layer, inputs))
    axis, tiles = param.integer("axis", 1), param.integer("tiles", 1)
    result: Shape | None = None
    if shape is not None and -len(shape) <= axis < len(shape):
        sides: list[Dim] = list(shape)
        side = sides[axis]
        sides[axis] = side * tiles if isinstance(side, int) and tiles > 0 else None
        result = tuple(sides)
    return b.raw(layer, inputs, result)


_TYPES: dict[str, _Translate] = {
    "Axpy": _axpy,
    "Bias": _side,
    "Concat": _concat,
    "Convolution": convolution,
    "Crop": _crop,
    "Deconvolution": deconvolution,
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
