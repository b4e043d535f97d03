"""Which operation of the vocabulary an aten operation is."""

from __future__ import annotations

import math
from collections.abc import Callable

from dlv.adapters.aten.record import RESPONSE_NORM, Match, Reading, Ref, Tagged, Unmatched

Rule = Callable[[Reading], Match]


def _conv(axes: int) -> Rule:
    def rule(call: Reading) -> Match:
        x, weight = call.data("input"), call.slot("weight")
        call.rank(x, axes + 2)
        shape = _whole(call, weight, axes + 2)
        dilation = call.per_axis("dilation", axes, 1)
        kernel = shape[2:]
        return Match(
            "CONV",
            {
                "out": shape[0],
                "kernel": kernel,
                "stride": call.per_axis("stride", axes, 1),
                "pad": _pads(call, kernel, dilation),
                "dilation": dilation,
                "groups": call.whole("groups", 1),
            },
            (x,),
            call.slots(weight="weight", bias="bias"),
        )

    return rule


def _whole(call: Reading, ref: Ref, rank: int) -> tuple[int, ...]:
    """The shape of a tensor that has so many axes, all of known length."""
    shape = tuple(dim for dim in call.shape(ref) if isinstance(dim, int))
    if not len(shape) == len(call.shape(ref)) == rank:
        raise Unmatched
    return shape


def _pads(call: Reading, kernel: tuple[int, ...], dilation: list[int]) -> list[int | list[int]]:
    pad = call.get("padding", 0)
    if pad == "valid":
        return [0] * len(kernel)
    if pad == "same":
        # What does not divide evenly goes behind.
        totals = [step * (size - 1) for size, step in zip(kernel, dilation, strict=True)]
        return [[total // 2, total - total // 2] for total in totals]
    return list(call.per_axis("padding", len(kernel), 0))


def _deconv(axes: int) -> Rule:
    def rule(call: Reading) -> Match:
        x, weight = call.data("input"), call.slot("weight")
        call.rank(x, axes + 2)
        shape, groups = _whole(call, weight, axes + 2), call.whole("groups", 1)
        return Match(
            "DECONV",
            {
                "out": shape[1] * groups,
                "kernel": shape[2:],
                "stride": call.per_axis("stride", axes, 1),
                "pad": list(call.per_axis("padding", axes, 0)),
                "dilation": call.per_axis("dilation", axes, 1),
                "groups": groups,
                "output_pad": call.per_axis("output_padding", axes, 0),
            },
            (x,),
            call.slots(weight="weight", bias="bias"),
        )

    return rule


def _convolution(call: Reading) -> Match:
    """The one operation for all, as decomposed graphs have it."""
    axes = len(call.shape(call.slot("weight"))) - 2
    back = call.flag("transposed")
    if not 1 <= axes <= 3 or (not back and any(call.ints("output_padding", 0))):
        raise Unmatched
    return (_deconv if back else _conv)(axes)(call)


def _linear(call: Reading) -> Match:
    x, weight = call.data("input"), call.slot("weight")
    return Match(
        "FULL", {"out": _whole(call, weight, 2)[0]}, (x,), call.slots(weight="weight", bias="bias")
    )


def _product(bias: str | None, x: str, weight: str) -> Rule:
    """A matrix of the module that is kept the other way round, as GPT-2 has them."""

    def rule(call: Reading) -> Match:
        if (call.get("alpha", 1), call.get("beta", 1)) != (1, 1):
            raise Unmatched
        given, held = call.data(x), call.slot(weight)
        _, out = _whole(call, held, 2)
        params = {"weight": held}
        if bias is not None:
            params["bias"] = call.slot(bias)
            _whole(call, params["bias"], 1)
        return Match("FULL", {"out": out, "layout": "in_out"}, (given,), params)

    return rule


def _embedding(call: Reading) -> Match:
    x, weight = call.data("indices"), call.slot("weight")
    rows, out = _whole(call, weight, 2)
    return Match("EMBED", {"rows": rows, "out": out}, (x,), {"weight": weight})


def _norm_of_channels(variant: str) -> Rule:
    def rule(call: Reading) -> Match:
        x = call.data("input")
        call.only(0)
        attrs = {"eps": call.number("eps", 1e-5), "momentum": call.number("momentum", 0.1)}
        statistics = {slot: slot for slot in ("running_mean", "running_var")}
        params = call.slots(weight="weight", bias="bias", **statistics)
        return Match("NORM", {**attrs, "axis": 1}, (x,), params, variant)

    return rule


def _layer_norm(call: Reading) -> Match:
    x, tail = call.data("input"), call.ints("normalized_shape")
    call.only(0)
    attrs = {"eps": call.number("eps", 1e-5), "axis": -len(tail)}
    return Match("NORM", attrs, (x,), call.slots(weight="weight", bias="bias"), "LAYER")


def _rms_norm(call: Reading) -> Match:
    x, tail = call.data("input"), call.ints("normalized_shape")
    call.only(0)
    eps = None if call.get("eps") is None else call.number("eps")
    attrs = {"eps": eps, "axis": -len(tail)}
    return Match("NORM", attrs, (x,), call.slots(weight="weight"), "RMS")


def _group_norm(call: Reading) -> Match:
    x = call.data("input")
    attrs = {"eps": call.number("eps", 1e-5), "groups": call.whole("num_groups"), "axis": 1}
    return Match("NORM", attrs, (x,), call.slots(weight="weight", bias="bias"), "GROUP")


def _response_norm(call: Reading) -> Match:
    attrs = {name: call.number(name) for name in ("alpha", "beta", "k")}
    attrs |= {"size": call.whole("size"), "axis": 1}
    return Match("NORM", attrs, (call.data("self"),), variant="LRN")


def _relu(slope: float) -> Rule:
    """A slope that the call does not name is the default."""
    return lambda call: Match(
        "RELU", {"slope": call.number("negative_slope", slope)}, (call.data("self"),)
    )


def _act(variant: str) -> Rule:
    def rule(call: Reading) -> Match:
        x = call.data("self")
        call.same_dtype(x)
        return Match("ACT", {}, (x,), variant=variant)

    return rule


def _gelu(call: Reading) -> Match:
    how = {"approximate": call.get("approximate", "none")}
    return Match("ACT", how, (call.data("self"),), variant="GELU")


def _hardtanh(call: Reading) -> Match:
    if (call.number("min_val", -1), call.number("max_val", 1)) != (0, 6):
        raise Unmatched
    return Match("ACT", {}, (call.data("self"),), variant="RELU6")


def _softmax(log: bool) -> Rule:
    def rule(call: Reading) -> Match:
        x = call.data("self")
        if call.flag("half_to_float"):
            raise Unmatched
        call.same_dtype(x, call.get("dtype"))
        return Match("SOFTMAX", {"axis": call.whole("dim"), "log": log}, (x,))

    return rule


def _attention(call: Reading) -> Match:
    inputs = (call.data("query"), call.data("key"), call.data("value"))
    call.only(0)
    scale = None if call.get("scale") is None else call.number("scale")
    attrs = {
        "heads": None,
        "causal": call.flag("is_causal"),
        "scale": scale,
        "p": call.number("dropout_p", 0.0),
    }
    return Match("ATTENTION", attrs, (*inputs, *call.optional_data("attn_mask")))


def _recurrent(variant: str) -> Rule:
    states, gates = (2, 4) if variant == "LSTM" else (1, 3)

    def rule(call: Reading) -> Match:
        x = call.data("input")
        call.rank(x, 3)
        given = call.get("hx")
        start = given if isinstance(given, list) else [given]
        weights = call.get("params")
        layers, bias = call.whole("num_layers"), call.flag("has_biases")
        both = call.flag("bidirectional")
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[: 4 if bias else 2]
        names = [
            f"{kind}_l{layer}{end}"
            for layer in range(min(layers, 1024))
            for end in (("", "_reverse") if both else ("",))
            for kind in kinds
        ]
        if (
            len(start) != states
            or not isinstance(weights, list)
            or len(weights) != len(names)
            or not names
            or not all(isinstance(item, Ref) for item in [*start, *weights])
            or any(ref.name not in call.state for ref in weights)
            or any(ref.name in call.state for ref in start)
        ):
            raise Unmatched
        rows, _ = _whole(call, weights[0], 2)
        if rows % gates:
            raise Unmatched
        attrs = {
            "hidden": rows // gates,
            "layers": layers,
            "bidirectional": both,
            "batch_first": call.flag("batch_first"),
            "bias": bias,
            "p": call.number("dropout"),
        }
        params = dict(zip(names, weights, strict=True))
        return Match("RNN", attrs, (x, *start), params, variant)

    return rule


def _combine(op: str) -> Rule:
    """ADD and MUL of two tensors, a tensor and a stored one, or a tensor and a number."""

    def rule(call: Reading) -> Match:
        if call.get("alpha", 1) != 1:
            raise Unmatched
        one, other = call.get("self"), call.get("other")
        if not isinstance(other, Ref):
            return _with_number(call, op, one, call.number("other"))
        if isinstance(one, Ref) and one.name in call.state:
            one, other = other, one
        if not isinstance(one, Ref) or one.name in call.state:
            raise Unmatched
        if call.value(one).dtype is None or call.value(other).dtype is None:
            raise Unmatched
        if other.name not in call.state:
            return Match(op, {"const": None, "shape": None}, (one, other))
        name = "other" if call.get("other") == other else "self"
        shape = call.shape(other)
        return Match(op, {"const": None, "shape": shape}, (one,), {"value": call.slot(name)})

    return rule


def _with_number(call: Reading, op: str, tensor: object, number: float) -> Match:
    # A number beside a tensor of whole numbers would make fractions of them.
    if not isinstance(tensor, Ref) or tensor.name in call.state or not math.isfinite(number):
        raise Unmatched
    if not (call.out().dtype or "").startswith(("float", "bfloat")):
        raise Unmatched
    call.same_dtype(tensor)
    return Match(op, {"const": number, "shape": None}, (tensor,))


def _subtract(call: Reading) -> Match:
    """Only of a number: adding what is less than nothing gives the same bits."""
    if call.get("alpha", 1) != 1:
        raise Unmatched
    return _with_number(call, "ADD", call.get("self"), -call.number("other"))


_ARITHMETIC = ("operator.", "math.", "torch.sym_")


def _pool(variant: str, axes: int) -> Rule:
    def rule(call: Reading) -> Match:
        x = call.data("self")
        call.rank(x, axes + 2)
        kernel = call.per_axis("kernel_size", axes, 0)
        attrs = {
            "kernel": kernel,
            "stride": call.per_axis("stride", axes, 0) if call.get("stride") else kernel,
            "pad": list(call.per_axis("padding", axes, 0)),
            "dilation": call.per_axis("dilation", axes, 1),
            "ceil": call.flag("ceil_mode"),
        }
        if variant == "AVG":
            if call.get("divisor_override") is not None:
                raise Unmatched
            attrs["count_pad"] = call.flag("count_include_pad", True)
        return Match("POOL", attrs, (x,), variant=variant)

    return rule


def _adaptive(variant: str, axes: int) -> Rule:
    def rule(call: Reading) -> Match:
        x = call.data("self")
        call.rank(x, axes + 2)
        return Match("POOL", {"size": call.per_axis("output_size", axes, 0)}, (x,), variant=variant)

    return rule


def _mean(call: Reading) -> Match:
    x = call.data("self")
    call.same_dtype(x, call.get("dtype"))
    given = call.get("dim")
    axis = call.ints("dim") if given is not None and given != [] else None
    return Match("POOL", {"axis": axis, "keep": call.flag("keepdim")}, (x,), variant="MEAN")


def _concat(call: Reading) -> Match:
    parts = call.get("tensors")
    if not isinstance(parts, list) or not parts:
        raise Unmatched
    for part in parts:
        if not isinstance(part, Ref) or part.name in call.state:
            raise Unmatched
    return Match("CONCAT", {"axis": call.whole("dim", 0)}, tuple(parts))


def _reshape(call: Reading, inputs: tuple[Ref, ...] = (), **attrs: object) -> Match:
    return Match("RESHAPE", attrs, (call.data("self"), *inputs))


def _view(kind: str) -> Rule:
    def rule(call: Reading) -> Match:
        size, refs = call.lengths("shape" if call.get("shape") is not None else "size")
        return _reshape(call, refs, kind=kind, size=size)

    return rule


def _unflatten(call: Reading) -> Match:
    call.ints("sizes")
    shape = call.out().shape
    unknown = [place for place, dim in enumerate(shape) if not isinstance(dim, int)]
    if len(unknown) > 1:
        raise Unmatched
    size = [-1 if place in unknown else dim for place, dim in enumerate(shape)]
    return _reshape(call, kind="reshape", size=size)


def _t(call: Reading) -> Match:
    call.rank(call.data("self"), 2)
    return _reshape(call, kind="transpose", axes=[0, 1])


def _squeeze(call: Reading) -> Match:
    axis = call.ints("dim") if call.get("dim") is not None else None
    return _reshape(call, kind="squeeze", axis=axis)


def _slice(call: Reading) -> Match:
    start = None if call.get("start") is None else call.whole("start")
    end = None if call.get("end") is None else call.whole("end")
    step = call.whole("step", 1)
    return _reshape(call, kind="slice", axis=call.whole("dim", 0), start=start, end=end, step=step)


def _narrow(call: Reading) -> Match:
    start, axis = call.whole("start"), call.whole("dim")
    end: int | None = start + call.whole("length")
    if start < 0 and end is not None and end >= 0:
        end = None
    return _reshape(call, kind="slice", axis=axis, start=start, end=end, step=1)


def _expand(call: Reading) -> Match:
    size, refs = call.lengths("size")
    return _reshape(call, refs, kind="expand", size=size)


def _split(call: Reading) -> Match:
    """Into pieces whose lengths the recorded outputs tell."""
    x, axis = call.data("self"), call.whole("dim", 0)
    rank = len(call.shape(x))
    if not -rank <= axis < rank:
        raise Unmatched
    shapes = [call.out(port).shape for port in range(len(call.call.outputs))]
    if any(len(shape) != rank for shape in shapes):
        raise Unmatched
    sizes = [shape[axis] for shape in shapes]
    if not sizes or not all(isinstance(size, int) for size in sizes):
        raise Unmatched
    return _reshape(call, kind="split", axis=axis, sizes=sizes)


def _contiguous(call: Reading) -> Match:
    if call.get("memory_format") is not None:
        raise Unmatched
    return _reshape(call, kind="contiguous")


def _to(call: Reading) -> Match:
    x = call.data("self")
    for name, usual in (("memory_format", "preserve_format"), ("layout", "strided")):
        if call.get(name) is not None and call.get(name) != Tagged(name, usual):
            raise Unmatched
    dtype = call.out().dtype
    return _reshape(call, kind="to", dtype=None if dtype == call.value(x).dtype else dtype)


def _fill(const: float | None) -> Rule:
    def rule(call: Reading) -> Match:
        number = call.number("fill_value") if const is None else const
        # Attributes tell no dtype: what is not of the usual one stays as it is.
        if call.out().dtype != "float32":
            raise Unmatched
        size, refs = call.lengths("size")
        return Match("RESHAPE", {"kind": "fill", "size": size, "const": number}, refs)

    return rule


def _arithmetic(call: Reading) -> Match:
    if call.out().dtype is not None:
        raise Unmatched
    refs = tuple(call.call.refs())
    if any(call.value(ref).dtype is not None for ref in refs):
        raise Unmatched
    word = call.call.op.rpartition(".")[2].removeprefix("sym_")
    return Match("RESHAPE", {"kind": "arithmetic", "operator": word}, refs)


RULES: dict[str, Rule] = {
    **{f"aten.conv{n}d.{form}": _conv(n) for n in (1, 2, 3) for form in ("default", "padding")},
    "aten.conv_transpose1d.default": _deconv(1),
    "aten.conv_transpose2d.input": _deconv(2),
    "aten.conv_transpose3d.input": _deconv(3),
    "aten.convolution.default": _convolution,
    "aten.linear.default": _linear,
    "aten.addmm.default": _product("self", "mat1", "mat2"),
    "aten.mm.default": _product(None, "self", "mat2"),
    "aten.matmul.default": _product(None, "self", "other"),
    "aten.embedding.default": _embedding,
    "aten.batch_norm.default": _norm_of_channels("BATCH"),
    "aten._native_batch_norm_legit_no_training.default": _norm_of_channels("BATCH"),
    "aten._native_batch_norm_legit_functional.default": _norm_of_channels("BATCH"),
    "aten.instance_norm.default": _norm_of_channels("INSTANCE"),
    "aten.layer_norm.default": _layer_norm,
    "aten.native_layer_norm.default": _layer_norm,
    "aten.rms_norm.default": _rms_norm,
    "aten._fused_rms_norm.default": _rms_norm,
    "aten.group_norm.default": _group_norm,
    RESPONSE_NORM: _response_norm,
    "aten.relu.default": _relu(0.0),
    "aten.leaky_relu.default": _relu(0.01),
    "aten.gelu.default": _gelu,
    "aten.silu.default": _act("SILU"),
    "aten.sigmoid.default": _act("SIGMOID"),
    "aten.tanh.default": _act("TANH"),
    "aten.relu6.default": _act("RELU6"),
    "aten.hardtanh.default": _hardtanh,
    "aten.softmax.int": _softmax(False),
    "aten._softmax.default": _softmax(False),
    "aten.log_softmax.int": _softmax(True),
    "aten._log_softmax.default": _softmax(True),
    "aten.dropout.default": lambda call: Match(
        "DROPOUT", {"p": call.number("p")}, (call.data("input"),)
    ),
    "aten.scaled_dot_product_attention.default": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _attention,
    "aten.lstm.input": _recurrent("LSTM"),
    "aten.gru.input": _recurrent("GRU"),
    "aten.add.Tensor": _combine("ADD"),
    "aten.add.Scalar": _combine("ADD"),
    "aten.mul.Tensor": _combine("MUL"),
    "aten.mul.Scalar": _combine("MUL"),
    "aten.sub.Tensor": _subtract,
    "aten.sub.Scalar": _subtract,
    **{f"aten.max_pool{n}d.default": _pool("MAX", n) for n in (1, 2, 3)},
    **{f"aten.max_pool{n}d_with_indices.default": _pool("MAX", n) for n in (1, 2, 3)},
    **{f"aten.avg_pool{n}d.default": _pool("AVG", n) for n in (1, 2, 3)},
    **{f"aten.adaptive_avg_pool{n}d.default": _adaptive("AVG", n) for n in (1, 2, 3)},
    **{f"aten._adaptive_avg_pool{n}d.default": _adaptive("AVG", n) for n in (2, 3)},
    **{f"aten.adaptive_max_pool{n}d.default": _adaptive("MAX", n) for n in (1, 2, 3)},
    "aten.mean.dim": _mean,
    "aten.mean.default": _mean,
    "aten.cat.default": _concat,
    "aten.flatten.using_ints": lambda call: _reshape(
        call, kind="flatten", start=call.whole("start_dim", 0), end=call.whole("end_dim", -1)
    ),
    "aten.view.default": _view("view"),
    "aten._unsafe_view.default": _view("view"),
    "aten.reshape.default": _view("reshape"),
    "aten.unflatten.int": _unflatten,
    "aten.transpose.int": lambda call: _reshape(
        call, kind="transpose", axes=[call.whole("dim0"), call.whole("dim1")]
    ),
    "aten.t.default": _t,
    "aten.permute.default": lambda call: _reshape(call, kind="permute", axes=call.ints("dims")),
    "aten.squeeze.default": _squeeze,
    "aten.squeeze.dim": _squeeze,
    "aten.squeeze.dims": _squeeze,
    "aten.unsqueeze.default": lambda call: _reshape(call, kind="unsqueeze", axis=call.whole("dim")),
    "aten.select.int": lambda call: _reshape(
        call, kind="select", axis=call.whole("dim"), index=call.whole("index")
    ),
    "aten.slice.Tensor": _slice,
    "aten.narrow.default": _narrow,
    "aten.expand.default": _expand,
    "aten.split.Tensor": _split,
    "aten.split.sizes": _split,
    "aten.split_with_sizes.default": _split,
    "aten.chunk.default": _split,
    "aten.contiguous.default": _contiguous,
    "aten.to.dtype": _to,
    "aten.to.dtype_layout": _to,
    "aten.to.device": _to,
    "aten._to_copy.default": _to,
    "aten.zeros.default": _fill(0.0),
    "aten.ones.default": _fill(1.0),
    "aten.full.default": _fill(None),
    "aten.sym_size.int": lambda call: _reshape(call, kind="size", axis=call.whole("dim")),
}


def match(call: Reading, op: str) -> Match:
    """What the call is, read as `op`: its own, or that of which it is the in-place form."""
    rule = RULES.get(op)
    if rule is None and op.startswith(_ARITHMETIC):
        rule = _arithmetic
    if rule is None:
        raise Unmatched
    return rule(call)
