"""Calls that multiply, normalise, convolve or scale maps, with tensors worked out before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import dlv.network.ops.attending as attending
import dlv.network.ops.standardised as standardised
import dlv.network.ops.windows as windows
from dlv.kinds import Array
from dlv.network.aten.precision import Function, Operand, Precision, Unknown, axes, sized, whole


def _matmul(at: Precision, self: Array, other: Array) -> Array:
    return np.asarray(np.matmul(*at.together(self, other)))


def _addmm(
    at: Precision, self: Array, mat1: Array, mat2: Array, *, beta: float = 1, alpha: float = 1
) -> Array:
    product = np.matmul(mat1, mat2)
    one = product.dtype.type
    del at
    return np.asarray(self * one(beta) + product * one(alpha))


def _linear(_: Precision, input: Array, weight: Array, bias: Array | None = None) -> Array:  # noqa: A002
    result = np.matmul(input, weight.T)
    return np.asarray(result if bias is None else result + bias)


def _einsum(_: Precision, equation: str, tensors: Sequence[Array], path: Any = None) -> Array:
    del path
    return np.asarray(np.einsum(equation, *tensors, optimize=True))


def _bilinear(
    _: Precision, input1: Array, input2: Array, weight: Array, bias: Array | None = None
) -> Array:
    result = np.einsum("...i,oij,...j->...o", input1, weight, input2, optimize=True)
    return np.asarray(result if bias is None else result + bias)


def affine(x: Array, weight: Array | None, bias: Array | None, *, channels: bool = False) -> Array:
    """x times the weight, plus the bias, which lie along its last axes, or along its second."""
    shape = (1, -1, *(1,) * (x.ndim - 2))
    if weight is not None:
        x = x * (weight.reshape(shape) if channels else weight)
    return np.asarray(x if bias is None else x + (bias.reshape(shape) if channels else bias))


def _normalized(x: Array, normalized_shape: Any) -> tuple[int, ...]:
    return tuple(range(x.ndim - len(whole(normalized_shape)), x.ndim))


def _layer_norm(
    at: Precision,
    input: Array,  # noqa: A002
    normalized_shape: Any,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,  # noqa: ARG001
) -> Array:
    x = at.floating(input)
    along = _normalized(x, normalized_shape)
    return affine(standardised.values(x, along, eps), weight, bias)


def _rms_norm(
    at: Precision,
    input: Array,  # noqa: A002
    normalized_shape: Any,
    weight: Array | None = None,
    eps: float | None = None,
) -> Array:
    x = at.floating(input)
    least = float(np.finfo(x.dtype).eps) if eps is None else eps
    along = _normalized(x, normalized_shape)
    return affine(standardised.values(x, along, least, mean=False), weight, None)


def group_norm(
    at: Precision,
    input: Array,  # noqa: A002
    num_groups: int,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,  # noqa: ARG001
) -> Array:
    x = at.floating(input)
    groups = x.reshape(x.shape[0], int(num_groups), -1)
    result = standardised.values(groups, (2,), eps).reshape(x.shape)
    return affine(result, weight, bias, channels=True)


def batch_norm(
    at: Precision,
    input: Array,  # noqa: A002
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,  # noqa: ARG001 (as recorded, not as run)
    momentum: float,  # noqa: ARG001
    eps: float,
    cudnn_enabled: bool = True,  # noqa: ARG001
) -> Array:
    if running_mean is None or running_var is None:
        raise Unknown("a norm by the statistics of the batch")
    centred = affine(at.floating(input), None, -running_mean, channels=True)
    scale = 1 / np.sqrt(running_var + running_var.dtype.type(eps))
    return affine(affine(centred, scale, None, channels=True), weight, bias, channels=True)


def _per_axis(value: Any, count: int) -> list[int]:
    result = whole(value)
    return result * count if len(result) == 1 else result


def _convolution(
    _: Precision,
    input: Array,  # noqa: A002
    weight: Array,
    bias: Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    transposed: bool = False,
    output_padding: Any = 0,
    groups: int = 1,
) -> Array:
    count = weight.ndim - 2
    alone = input.ndim == weight.ndim - 1
    dilations = _per_axis(dilation, count)
    attrs = {
        "stride": _per_axis(stride, count),
        "pad": _padding(padding, weight.shape[2:], dilations),
        "dilation": dilations,
        "output_pad": _per_axis(output_padding, count),
    }
    result = convolved(
        input[None] if alone else input, weight, bias, attrs, int(groups), transposed=transposed
    )
    return result[0] if alone else result


def convolved(
    x: Array,
    weight: Array,
    bias: Array | None,
    attrs: Mapping[str, Any],
    groups: int,
    *,
    transposed: bool = False,
) -> Array:
    """A convolution with the attributes of CONV, or DECONV, but for its kernel."""
    attrs = {**attrs, "kernel": weight.shape[2:]}
    x = windows.channels_last(x, "first")
    for length, pads in zip(x.shape[1:-1], attrs["pad"], strict=True):
        sized([length + sum(pads)])
    filters = windows.kernel_first("kernel_last", weight)
    along = (windows.spreading if transposed else windows.sliding)(attrs, x.shape[1:-1])
    lengths = [each.length if transposed else each.count for each in along]
    sized([len(x), *lengths, weight.shape[1] * groups if transposed else len(weight)])
    result = (windows.spread if transposed else windows.convolve)(x, filters, along, groups)
    return windows.channels_back(result if bias is None else result + bias, "first")


def _padding(padding: Any, kernel: Sequence[int], dilations: Sequence[int]) -> list[list[int]]:
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise Unknown(f"padding by {padding}")
        wide = [
            (k - 1) * d if padding == "same" else 0 for k, d in zip(kernel, dilations, strict=True)
        ]
        return [[total // 2, total - total // 2] for total in wide]
    return [[each, each] for each in _per_axis(padding, len(kernel))]


def _conv(
    at: Precision,
    input: Array,  # noqa: A002
    weight: Array,
    bias: Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Array:
    return _convolution(at, input, weight, bias, stride, padding, dilation, groups=groups)


def _conv_transpose(
    at: Precision,
    input: Array,  # noqa: A002
    weight: Array,
    bias: Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Array:
    return _convolution(
        at, input, weight, bias, stride, padding, dilation, True, output_padding, groups
    )


def _weight_norm(_: Precision, v: Array, g: Array, dim: int = 0) -> Array:
    along = tuple(axis for axis in range(v.ndim) if axis != dim % v.ndim)
    return np.asarray(v * (g / np.sqrt(np.square(v).sum(axis=along, keepdims=True))))


def _attention(
    _: Precision,
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,  # noqa: ARG001 (in training)
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Array:
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        times = query.shape[-3] // key.shape[-3]
        key, value = np.repeat(key, times, -3), np.repeat(value, times, -3)
    inputs = [query, key, value] if attn_mask is None else [query, key, value, attn_mask]
    return attending.values(attending.How(None, is_causal, scale), inputs)


def cubic(x: Array, a: float) -> Array:
    """How much a number so far away counts in a cubic spline."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _scaled(kind: str) -> Function:
    """Maps made larger or smaller, one axis behind the other."""

    def call(at: Precision, self: Array, output_size: Any, *options: Any, **named: Any) -> Array:
        align = bool(named.get("align_corners", False))
        rest = list(options)
        if kind != "nearest" and rest and isinstance(rest[0], bool):
            align = rest.pop(0)
        count = self.ndim - 2
        factors = named.get("scale_factors")
        if rest and isinstance(rest[0], (list, tuple)):
            factors = rest[0]
        elif any(each is not None for each in rest):
            factors = rest
        if factors is None:
            words = ("scales_d", "scales_h", "scales_w") if count > 1 else ("scales",)
            factors = [named.get(word) for word in words][-count:]
        x = at.floating(self) if kind != "nearest" else self
        for axis in range(count):
            factor = factors[axis] if factors and len(factors) == count else None
            length = x.shape[axis + 2]
            new = (
                int(whole(output_size)[axis])
                if output_size is not None
                else math.floor(length * float(factor or 1))
            )
            sized([*x.shape[: axis + 2], new, *x.shape[axis + 3 :]])
            share = 1 / float(factor) if factor else length / new
            x = _along(x, axis + 2, new, share, kind, align)
        return x

    return call


def _along(x: Array, axis: int, new: int, share: float, kind: str, align: bool) -> Array:
    """One axis with `new` places, each `share` of an old one wide."""
    length, places = x.shape[axis], np.arange(new)
    if kind == "nearest":
        nearest = np.minimum(np.floor(places * np.float32(share)), length - 1)
        return np.asarray(x.take(nearest.astype(int), axis))
    if align:
        at = places * ((length - 1) / (new - 1) if new > 1 else 0.0)
    else:
        at = (places + 0.5) * share - 0.5
    return resampled(x, axis, np.maximum(at, 0) if kind == "linear" and not align else at, kind)


def resampled(x: Array, axis: int, at: Array, kind: str, a: float = -0.75) -> Array:
    """x at places between its own along one axis; `kind`: linear, or cubic with that `a`."""
    length, first = x.shape[axis], np.floor(at)
    shape = [1] * x.ndim
    shape[axis] = len(at)
    result: Any = 0
    for tap in (0, 1) if kind == "linear" else (-1, 0, 1, 2):
        distance = np.abs(at - (first + tap))
        weight = np.maximum(1 - distance, 0) if kind == "linear" else cubic(distance, a)
        index = np.clip(first + tap, 0, length - 1).astype(int)
        result = result + x.take(index, axis) * weight.astype(x.dtype).reshape(shape)
    return np.asarray(result)


def _adaptive(at: Precision, self: Array, output_size: Any) -> Array:
    """Means of parts of a map that need not be of one length."""
    x = at.floating(self)
    sizes = whole(output_size)
    for axis, count in zip(range(x.ndim - len(sizes), x.ndim), sizes, strict=True):
        length = x.shape[axis]
        parts = [
            x.take(range(n * length // count, -(-(n + 1) * length // count)), axis).mean(
                axis=axis, keepdims=True
            )
            for n in range(count)
        ]
        x = np.concatenate(parts, axis)
    return x


def _distance(at: Precision, x1: Array, x2: Array, dim: int = 1, eps: float = 1e-8) -> Array:
    """Cosine similarity, as torch bounds the norms from below: each on its own."""
    first, second = at.together(x1, x2)
    along = axes(dim, first.ndim)

    def size(x: Array) -> Array:
        root = np.sqrt(np.square(x).sum(axis=along, keepdims=True))
        return np.asarray(np.maximum(root, x.dtype.type(eps)))

    return np.asarray((first / size(first) * (second / size(second))).sum(axis=along))


def _outer(at: Precision, self: Operand, vec2: Operand) -> Array:
    return np.outer(*at.together(self, vec2))


LAYERS: Mapping[str, Function] = {
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "dot"), _matmul),
    "bmm": lambda at, self, mat2: _matmul(at, self, mat2),
    "mm": lambda at, self, mat2: _matmul(at, self, mat2),
    "mv": lambda at, self, vec: _matmul(at, self, vec),
    "dot": lambda at, self, tensor: _matmul(at, self, tensor),
    "outer": _outer,
    "addmm": _addmm,
    "baddbmm": lambda at, self, batch1, batch2, *, beta=1, alpha=1: _addmm(
        at, self, batch1, batch2, beta=beta, alpha=alpha
    ),
    "linear": _linear,
    "bilinear": _bilinear,
    "einsum": _einsum,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": group_norm,
    "batch_norm": batch_norm,
    **{f"conv{n}d": _conv for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _conv_transpose for n in (1, 2, 3)},
    "convolution": _convolution,
    "_weight_norm": _weight_norm,
    "scaled_dot_product_attention": _attention,
    "cosine_similarity": _distance,
    **{f"upsample_nearest{n}d": _scaled("nearest") for n in (1, 2, 3)},
    "upsample_linear1d": _scaled("linear"),
    "upsample_bilinear2d": _scaled("linear"),
    "upsample_trilinear3d": _scaled("linear"),
    "upsample_bicubic2d": _scaled("cubic"),
    **{f"adaptive_avg_pool{n}d": _adaptive for n in (1, 2, 3)},
}
