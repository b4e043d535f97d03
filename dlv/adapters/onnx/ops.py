"""ONNX operators with weights, normalisations and activations as layers of the vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlv.adapters.onnx.builder import Cannot
from dlv.adapters.onnx.call import Call
from dlv.network.graph import Port
from dlv.network.sizes import Shape

Rule = Callable[[Call], None]


def pads(
    call: Call, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    """(before, after) of each axis, from `pads` or worked out from `auto_pad`."""
    axes, how = len(kernel), call.text("auto_pad", "NOTSET")
    given = call.integers("pads", [0] * (2 * axes))
    if how in ("NOTSET", ""):
        if len(given) != 2 * axes:
            raise Cannot("pads has a wrong length")
        return list(zip(given[:axes], given[axes:], strict=True))
    if any(given):
        raise Cannot("pads beside auto_pad")
    if how == "VALID":
        return [(0, 0)] * axes
    if how not in ("SAME_UPPER", "SAME_LOWER"):
        raise Cannot(f"auto_pad is {how}")
    result = []
    for place in range(axes):
        reach = dilation[place] * (kernel[place] - 1) + 1
        if stride[place] == 1:
            total = reach - 1
        else:
            length = (call.shape(0) or ())[2 + place : 3 + place]
            if not length or not isinstance(length[0], int) or stride[place] < 1:
                raise Cannot("auto_pad depends on a length that is not known")
            count = -(-length[0] // stride[place])
            total = max((count - 1) * stride[place] + reach - length[0], 0)
        small, large = total // 2, total - total // 2
        result.append((small, large) if how == "SAME_UPPER" else (large, small))
    return result


def per_axis(call: Call, name: str, axes: int) -> list[int]:
    found = call.integers(name, [1] * axes)
    if len(found) != axes:
        raise Cannot(f"{name} has a wrong length")
    return found


def _weights(call: Call, out: int) -> tuple[dict[str, str], Shape]:
    """Weight and bias of a convolution, and the weight's shape."""
    params, shape = {"weight": call.weight(1)}, call.shape(1) or ()
    if call.has(2):
        if call.shape(2) != (out,):
            raise Cannot("the bias has another shape")
        params["bias"] = call.weight(2)
    return params, shape


def _kernel(call: Call) -> tuple[int, ...]:
    shape = call.shape(1) or ()
    kernel = tuple(dim for dim in shape[2:] if isinstance(dim, int))
    if not kernel or list(kernel) != call.integers("kernel_shape", kernel):
        raise Cannot("kernel_shape is not that of the weight")
    return kernel


def _conv(call: Call) -> None:
    call.weight(1)
    kernel = _kernel(call)
    axes, out = len(kernel), (call.shape(1) or (0,))[0]
    stride, dilation = per_axis(call, "strides", axes), per_axis(call, "dilations", axes)
    params, _ = _weights(call, int(out or 0))
    attrs = {
        "out": out,
        "kernel": kernel,
        "stride": stride,
        "pad": pads(call, kernel, stride, dilation),
        "dilation": dilation,
        "groups": call.integer("group", 1),
    }
    call.put("CONV", attrs, (call.port(0),), params=params)


def _deconv(call: Call) -> None:
    call.weight(1)
    kernel, groups = _kernel(call), call.integer("group", 1)
    axes, each = len(kernel), (call.shape(1) or (0, 0))[1]
    out = int(each or 0) * groups
    stride, dilation = per_axis(call, "strides", axes), per_axis(call, "dilations", axes)
    extra = call.integers("output_padding", [0] * axes)
    params, _ = _weights(call, out)
    attrs = {
        "out": out,
        "kernel": kernel,
        "stride": stride,
        "pad": _deconv_pads(call, kernel, stride, dilation, extra),
        "dilation": dilation,
        "groups": groups,
        "output_pad": extra,
    }
    call.put("DECONV", attrs, (call.port(0),), params=params)


def _deconv_pads(
    call: Call, kernel: Sequence[int], stride: list[int], dilation: list[int], extra: list[int]
) -> list[tuple[int, int]]:
    how, axes = call.text("auto_pad", "NOTSET"), len(kernel)
    wanted = call.integers("output_shape", [])
    if wanted:
        call.idle("pads")  # as ONNX says
        if len(wanted) != axes:
            raise Cannot("output_shape has a wrong length")
    if not wanted and how in ("NOTSET", "", "VALID"):
        return pads(call, kernel, stride, dilation)
    shape, result = call.shape(0) or (), []
    for place in range(axes):
        length = shape[2 + place] if len(shape) == axes + 2 else None
        if not isinstance(length, int):
            raise Cannot("the padding depends on a length that is not known")
        target = wanted[place] if wanted else length * stride[place]
        full = stride[place] * (length - 1) + extra[place] + dilation[place] * (kernel[place] - 1)
        total = full + 1 - target
        if total < 0:
            raise Cannot("more comes out than the windows reach")
        small, large = total // 2, total - total // 2
        result.append((small, large) if how == "SAME_UPPER" else (large, small))
    return result


def full(
    call: Call,
    x: Port,
    weight: str,
    shape: Shape,
    layout: str,
    bias: str | None,
    name: str | None = None,
) -> None:
    """FULL of a stored matrix; `shape` is that of the matrix as it is stored."""
    params = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    out = shape[0] if layout == "out_in" else shape[1]
    call.put("FULL", {"out": out, "layout": layout}, (x,), params=params, name=name)


def _gemm(call: Call) -> None:
    broadcast = call.flag("broadcast", int(call.version >= 7))
    if call.flag("transA", 0) or call.decimal("alpha", 1.0) != 1:
        raise Cannot("Gemm with a scale")
    flip = call.flag("transB", 0)
    held = call.held(1)
    if held is None or len(held.stored.shape) != 2:
        raise Cannot("no matrix")
    weight, shape = call.weight(1, flipped=held.flipped), held.stored.shape
    layout = "out_in" if bool(flip) != held.flipped else "in_out"
    out = shape[0] if layout == "out_in" else shape[1]
    if not call.has(2):
        return full(call, call.port(0), weight, shape, layout, None)
    if call.decimal("beta", 1.0) != 1:
        raise Cannot("Gemm with a scale")
    if not broadcast and call.shape(2) == (out,):
        raise Cannot("a row that is not broadcast")
    if broadcast and call.version < 7 and call.shape(2) != (out,):
        raise Cannot("broadcasting as before version 7")
    if call.shape(2) == (out,) and call.held(2) is not None:
        return full(call, call.port(0), weight, shape, layout, call.weight(2))
    # What is added is no plain bias: it is added by a node of its own.
    attrs, third = {"out": out, "layout": layout}, call.held(2)
    if third is None:
        added = call.port(2)
        x = call.before("FULL", attrs, (call.port(0),), params={"weight": weight})
        return call.put("ADD", {}, (x, added))
    x = call.before("FULL", attrs, (call.port(0),), params={"weight": weight})
    params = {"value": call.weight(2)}
    return call.put("ADD", {"shape": third.stored.shape}, (x,), params=params)


def _matmul(call: Call) -> None:
    held = call.held(1)
    if held is None or len(held.stored.shape) != 2 or call.held(0) is not None:
        raise Cannot("no layer")
    layout = "out_in" if held.flipped else "in_out"
    weight = call.weight(1, flipped=held.flipped)
    full(call, call.port(0), weight, held.stored.shape, layout, None)


def _batch_norm(call: Call) -> None:
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
    call.put("NORM", attrs, (call.port(0),), variant="BATCH", params=params)


def _instance_norm(call: Call) -> None:
    params = {"weight": call.weight(1), "bias": call.weight(2)}
    attrs = {"eps": call.decimal("epsilon", 1e-5)}
    call.put("NORM", attrs, (call.port(0),), variant="INSTANCE", params=params)


def _tail(call: Call, places: Sequence[int]) -> int:
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


def _layer_norm(call: Call) -> None:
    call.only_output()
    slots = {1: "weight", 2: "bias"} if call.has(2) else {1: "weight"}
    params = {slot: call.weight(place) for place, slot in slots.items()}
    attrs = {"eps": call.decimal("epsilon", 1e-5), "axis": _tail(call, list(slots))}
    call.put("NORM", attrs, (call.port(0),), variant="LAYER", params=params)


def _rms_norm(call: Call) -> None:
    params = {"weight": call.weight(1)}
    attrs = {"eps": call.decimal("epsilon", 1e-5), "axis": _tail(call, [1])}
    call.put("NORM", attrs, (call.port(0),), variant="RMS", params=params)


def _group_norm(call: Call) -> None:
    groups, shape = call.integer("num_groups"), call.shape(0)
    weights = call.shape(1) or ()
    # Before version 21 there was one weight for each group.
    if call.version < 21 or shape is None or len(shape) < 2:
        raise Cannot("weights of groups")
    if isinstance(shape[1], int) and weights != shape[1:2]:
        raise Cannot("weights of groups")
    params = {"weight": call.weight(1), "bias": call.weight(2)}
    attrs = {"eps": call.decimal("epsilon", 1e-5), "groups": groups}
    call.put("NORM", attrs, (call.port(0),), variant="GROUP", params=params)


def _lrn(call: Call) -> None:
    attrs = {
        "size": call.integer("size"),
        "alpha": call.decimal("alpha", 1e-4),
        "beta": call.decimal("beta", 0.75),
        "k": call.decimal("bias", 1.0),
    }
    call.put("NORM", attrs, (call.port(0),), variant="LRN")


def _relu(call: Call) -> None:
    call.put("RELU", {"slope": 0.0}, (call.port(0),))


def _leaky_relu(call: Call) -> None:
    call.put("RELU", {"slope": call.decimal("alpha", 0.01)}, (call.port(0),))


def _act(variant: str) -> Rule:
    def rule(call: Call) -> None:
        call.put("ACT", {}, (call.port(0),), variant=variant)

    return rule


def _gelu(call: Call) -> None:
    how = {"approximate": call.text("approximate", "none")}
    call.put("ACT", how, (call.port(0),), variant="GELU")


def _swish(call: Call) -> None:
    if call.decimal("alpha", 1.0) != 1:
        raise Cannot("a slope")
    call.put("ACT", {}, (call.port(0),), variant="SILU")


def _clip(call: Call) -> None:
    least = _limit(call, "min", 1, float("-inf"))
    most = _limit(call, "max", 2, float("inf"))
    if least == 0 and most == 6:
        call.put("ACT", {}, (call.port(0),), variant="RELU6")
    elif least == 0 and most > 3e38:
        call.put("RELU", {"slope": 0.0}, (call.port(0),))
    else:
        raise Cannot("other limits")


def _limit(call: Call, name: str, place: int, default: float) -> float:
    if call.version < 11:
        return call.decimal(name, default)
    return float(call.scalar(place)) if call.has(place) else default


def _softmax(log: bool) -> Rule:
    def rule(call: Call) -> None:
        if call.version >= 13:
            axis = call.integer("axis", -1)
        else:
            # Until version 13 all axes from this one on were one.
            axis, rank = call.integer("axis", 1), call.rank()
            if call.axis(axis, rank) != rank - 1:
                raise Cannot("a softmax over several axes")
        call.put("SOFTMAX", {"axis": axis, "log": log}, (call.port(0),))

    return rule


def _dropout(call: Call) -> None:
    call.only_output()
    call.idle("seed")
    if call.version < 7 and not call.flag("is_test", 0):
        raise Cannot("a dropout in training")
    if call.has(2) and any(call.numbers(2)):
        raise Cannot("a dropout in training")
    if call.version >= 12:
        p = float(call.scalar(1)) if call.has(1) else 0.5
    else:
        p = call.decimal("ratio", 0.5)
    call.put("DROPOUT", {"p": p}, (call.port(0),))


def _attention(call: Call) -> None:
    """Attention of version 23, as far as it is torch's."""
    call.only_output()
    heads, groups = (call.integer(name, 0) for name in ("q_num_heads", "kv_num_heads"))
    odd = ("softcap", "softmax_precision", "qk_matmul_output_mode")
    if heads != groups or any(call.given(name) for name in odd):
        raise Cannot("a special attention")
    if call.dtype() == "bfloat16":
        raise Cannot("three digits, of which each step on the way rounds")
    _whole_mask(call)
    if call.rank() != (3 if heads else 4):
        raise Cannot("heads")
    scale = None if call.given("scale") is None else call.decimal("scale")
    attrs: dict[str, Any] = {
        "heads": heads or None,
        "causal": call.flag("is_causal", 0),
        "scale": scale,
        "p": 0.0,
    }
    inputs = [call.port(place) for place in range(4 if call.has(3) else 3)]
    call.put("ATTENTION", attrs, inputs)


def _whole_mask(call: Call) -> None:
    """A mask that speaks of every key: ONNX fills a shorter one up, torch stretches it."""
    mask, keys = call.shape(3) if call.has(3) else None, call.shape(1)
    if not call.has(3):
        return
    if mask is None or keys is None or len(mask) < 2 or len(keys) < 3:
        raise Cannot("a mask of unknown shape")
    if mask[-1] is None or mask[-1] != keys[-2]:
        raise Cannot("a mask that is shorter than the keys")


LAYERS: dict[str, Rule] = {
    "Conv": _conv,
    "ConvTranspose": _deconv,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "GroupNormalization": _group_norm,
    "LRN": _lrn,
    "Relu": _relu,
    "LeakyRelu": _leaky_relu,
    "Sigmoid": _act("SIGMOID"),
    "Tanh": _act("TANH"),
    "Gelu": _gelu,
    "Swish": _swish,
    "Clip": _clip,
    "Softmax": _softmax(False),
    "LogSoftmax": _softmax(True),
    "Dropout": _dropout,
    "Attention": _attention,
}
