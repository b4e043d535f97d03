"""CONV and DECONV: channels first, kernels last, whatever is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlv.adapters.onnx.builder import Cannot
from dlv.adapters.onnx.call import Call, Reader
from dlv.adapters.onnx.graph import Graph, Item, Value, Writer
from dlv.network.graph import Node
from dlv.network.sizes import Shape

# From ONNX


def read_pads(
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
        raise Cannot("pads next to auto_pad")
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
                raise Cannot("auto_pad depends on a length that is unknown")
            count = -(-length[0] // stride[place])
            total = max((count - 1) * stride[place] + reach - length[0], 0)
        small, large = total // 2, total - total // 2
        result.append((small, large) if how == "SAME_UPPER" else (large, small))
    return result


def read_per_axis(call: Call, name: str, axes: int) -> list[int]:
    found = call.integers(name, [1] * axes)
    if len(found) != axes:
        raise Cannot(f"{name} has a wrong length")
    return found


def read_conv(call: Call) -> None:
    call.weight(1)
    kernel = _kernel(call)
    axes, out = len(kernel), (call.shape(1) or (0,))[0]
    stride, dilation = read_per_axis(call, "strides", axes), read_per_axis(call, "dilations", axes)
    params, _ = _weights(call, int(out or 0))
    attrs = {
        "out": out,
        "kernel": kernel,
        "stride": stride,
        "pad": read_pads(call, kernel, stride, dilation),
        "dilation": dilation,
        "groups": call.integer("group", 1),
    }
    call.emit("CONV", attrs, (call.port(0),), params=params)


def read_deconv(call: Call) -> None:
    call.weight(1)
    kernel, groups = _kernel(call), call.integer("group", 1)
    axes, each = len(kernel), (call.shape(1) or (0, 0))[1]
    out = int(each or 0) * groups
    stride, dilation = read_per_axis(call, "strides", axes), read_per_axis(call, "dilations", axes)
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
    call.emit("DECONV", attrs, (call.port(0),), params=params)


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
        return read_pads(call, kernel, stride, dilation)
    shape, result = call.shape(0) or (), []
    for place in range(axes):
        length = shape[2 + place] if len(shape) == axes + 2 else None
        if not isinstance(length, int):
            raise Cannot("the padding depends on a length that is unknown")
        target = wanted[place] if wanted else length * stride[place]
        full = stride[place] * (length - 1) + extra[place] + dilation[place] * (kernel[place] - 1)
        total = full + 1 - target
        if total < 0:
            raise Cannot("more comes out than the windows reach")
        small, large = total // 2, total - total // 2
        result.append((small, large) if how == "SAME_UPPER" else (large, small))
    return result


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


# To ONNX


def channels_first(g: Graph, x: Value, axes: int) -> Value:
    return g.transpose(x, (0, axes + 1, *range(1, axes + 1)))


def channels_last(g: Graph, x: Value, axes: int) -> Value:
    return g.transpose(x, (0, *range(2, axes + 2), 1))


def pads_attribute(pairs: Sequence[tuple[int, int]]) -> list[int]:
    """All that comes before, then all that comes behind."""
    return [before for before, _ in pairs] + [after for _, after in pairs]


def write_conv(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    x, weight, bias = _operands(g, node, inputs)
    made = g.op("Conv", [x, weight, bias], _attributes(node, node.attrs["pad"]), shape=None)
    return _laid_out(g, node, made)


def write_deconv(g: Graph, node: Node, inputs: Sequence[Item]) -> Value:
    x, weight, bias = _operands(g, node, inputs)
    pad, extra = list(node.attrs["pad"]), list(node.attrs["output_pad"])
    for axis, (stride, (before, after)) in enumerate(zip(node.attrs["stride"], pad, strict=True)):
        # Where dilation allows more than runtimes take, less is cut off instead.
        if extra[axis] >= stride:
            kept = min(extra[axis], after)
            pad[axis], extra[axis] = (before, after - kept), extra[axis] - kept
    attrs = _attributes(node, pad)
    edge = [more if more >= at else 0 for more, at in zip(extra, node.attrs["stride"], strict=True)]
    attrs["output_padding"] = [more - left for more, left in zip(extra, edge, strict=True)]
    if not any(edge):
        return _laid_out(g, node, g.op("ConvTranspose", [x, weight, bias], attrs, shape=None))
    # An edge that no kernel reaches: zeros, and the bias. Nothing is cut off before it is there.
    cut = [before if more else 0 for more, (before, _) in zip(edge, pad, strict=True)]
    held = [(before - less, after) for less, (before, after) in zip(cut, pad, strict=True)]
    attrs["pads"] = pads_attribute(held)
    made = g.op("ConvTranspose", [x, weight], attrs, shape=None)
    sides = [(-less, more) for less, more in zip(cut, edge, strict=True)]
    amounts = g.ints(*pads_attribute([(0, 0), (0, 0), *sides]))
    made = g.op("Pad", [made, amounts], shape=None)
    if bias is not None:
        made = g.op("Add", [made, g.unsqueeze(bias, *range(1, len(pad) + 1))], shape=None)
    return _laid_out(g, node, made)


def _operands(g: Graph, node: Node, inputs: Sequence[Item]) -> tuple[Value, Value, Value | None]:
    attrs, x = node.attrs, g.value(inputs[0])
    axes = len(attrs["kernel"])
    weight = g.weight(node, "weight", x.dtype)
    if attrs["layout"] == "depthwise":
        weight = g.transpose(weight, (axes, axes + 1, *range(axes)))
        weight = g.reshape(weight, [attrs["out"], 1, *attrs["kernel"]])
    elif attrs["layout"] == "kernel_first":
        weight = g.transpose(weight, (axes + 1, axes, *range(axes)))
    bias = g.weight(node, "bias", x.dtype) if attrs["bias"] else None
    return channels_first(g, x, axes) if attrs["channels"] == "last" else x, weight, bias


def _attributes(node: Node, pad: Sequence[tuple[int, int]]) -> dict[str, Any]:
    attrs = node.attrs
    return {
        "kernel_shape": list(attrs["kernel"]),
        "strides": list(attrs["stride"]),
        "pads": pads_attribute(pad),
        "dilations": list(attrs["dilation"]),
        "group": attrs["groups"],
    }


def _laid_out(g: Graph, node: Node, result: Value) -> Value:
    last = node.attrs["channels"] == "last"
    return channels_last(g, result, len(node.attrs["kernel"])) if last else result


READERS: dict[str, Reader] = {"Conv": read_conv, "ConvTranspose": read_deconv}
WRITERS: dict[str, Writer] = {"CONV": write_conv, "DECONV": write_deconv}
