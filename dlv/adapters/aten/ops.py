"""Which operation of the vocabulary an aten operation is: layers with weights, and activations."""

from __future__ import annotations

import math
from collections.abc import Callable

from dlv.adapters.aten.call import Match, Reading, Unmatched
from dlv.adapters.aten.record import Ref
from dlv.adapters.aten.rewrite import RESPONSE_NORM

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
        "FULL",
        {"out": _whole(call, weight, 2)[0]},
        (x,),
        call.slots(weight="weight", bias="bias"),
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


def _batch_norm(call: Reading) -> Match:
    x = call.data("input")
    call.only(0)
    statistics = call.slots(running_mean="running_mean", running_var="running_var")
    return Match(
        "NORM",
        {"eps": call.number("eps", 1e-5), "momentum": call.number("momentum", 0.1), "axis": 1},
        (x,),
        {**call.slots(weight="weight", bias="bias"), **statistics},
        "BATCH",
    )


def _instance_norm(call: Reading) -> Match:
    x = call.data("input")
    statistics = call.slots(running_mean="running_mean", running_var="running_var")
    return Match(
        "NORM",
        {"eps": call.number("eps", 1e-5), "momentum": call.number("momentum", 0.1), "axis": 1},
        (x,),
        {**call.slots(weight="weight", bias="bias"), **statistics},
        "INSTANCE",
    )


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


def _relu(call: Reading) -> Match:
    x = call.data("self")
    return Match("RELU", {"slope": 0.0}, (x,))


def _leaky_relu(call: Reading) -> Match:
    return Match("RELU", {"slope": call.number("negative_slope", 0.01)}, (call.data("self"),))


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


def _dropout(call: Reading) -> Match:
    return Match("DROPOUT", {"p": call.number("p")}, (call.data("input"),))


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


def _with_number(call: Reading, op: str, one: object, number: float) -> Match:
    # A number beside a tensor of whole numbers would make fractions of them.
    if not isinstance(one, Ref) or one.name in call.state or not math.isfinite(number):
        raise Unmatched
    if not (call.out().dtype or "").startswith(("float", "bfloat")):
        raise Unmatched
    call.same_dtype(one)
    return Match(op, {"const": number, "shape": None}, (one,))


def _subtract(call: Reading) -> Match:
    """Only of a number: adding what is less than nothing gives the same bits."""
    if call.get("alpha", 1) != 1:
        raise Unmatched
    return _with_number(call, "ADD", call.get("self"), -call.number("other"))


LAYERS: dict[str, Rule] = {
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
    "aten.batch_norm.default": _batch_norm,
    "aten._native_batch_norm_legit_no_training.default": _batch_norm,
    "aten._native_batch_norm_legit_functional.default": _batch_norm,
    "aten.instance_norm.default": _instance_norm,
    "aten.layer_norm.default": _layer_norm,
    "aten.native_layer_norm.default": _layer_norm,
    "aten.rms_norm.default": _rms_norm,
    "aten._fused_rms_norm.default": _rms_norm,
    "aten.group_norm.default": _group_norm,
    RESPONSE_NORM: _response_norm,
    "aten.relu.default": _relu,
    "aten.leaky_relu.default": _leaky_relu,
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
    "aten.dropout.default": _dropout,
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
}
