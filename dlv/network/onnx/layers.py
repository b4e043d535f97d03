"""Operators that multiply, convolve or normalise, with tensors worked out before."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import dlv.network.aten.layers as aten
import dlv.network.ops.standardised as standardised
from dlv.kinds import Array
from dlv.network.aten.precision import Function, Precision, Unknown, sized
from dlv.network.onnx.moving import whole_of


def _matmul(at: Precision, a: Array, b: Array) -> Array:
    return np.asarray(np.matmul(*at.together(a, b)))


def _gemm(
    _: Precision,
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
) -> Array:
    product = np.matmul(a.T if transA else a, b.T if transB else b)
    if a.dtype.kind != "f" and {alpha, beta} != {1.0}:
        raise Unknown("whole numbers times a fraction")
    result = product * product.dtype.type(alpha)
    return result if c is None else np.asarray(result + c * c.dtype.type(beta))


def _einsum(at: Precision, *tensors: Array, equation: str) -> Array:
    return np.asarray(np.einsum(equation, *at.together(*tensors), optimize=True))


def window_attrs(
    lengths: Sequence[int],
    kernel: Sequence[int],
    *,
    kernel_shape: Any = None,
    strides: Any = None,
    pads: Any = None,
    dilations: Any = None,
    auto_pad: str = "NOTSET",
) -> dict[str, Any]:
    """The attributes of CONV, but for its kernel, over a map of these lengths."""
    count = len(kernel)
    if kernel_shape is not None and whole_of(kernel_shape) != list(kernel):
        raise Unknown(f"a kernel of {list(kernel)} called {kernel_shape}")
    stride = [1] * count if strides is None else whole_of(strides)
    dilation = [1] * count if dilations is None else whole_of(dilations)
    flat = [0] * 2 * count if pads is None else whole_of(pads)
    if auto_pad.startswith("SAME"):
        flat = [0] * 2 * count
        rows = zip(lengths, kernel, stride, dilation, strict=True)
        for axis, (length, k, step, apart) in enumerate(rows):
            total = max((-(-length // step) - 1) * step + (k - 1) * apart + 1 - length, 0)
            _share(flat, axis, total, more_before=auto_pad == "SAME_LOWER")
    elif auto_pad == "VALID":
        flat = [0] * 2 * count
    elif auto_pad != "NOTSET":
        raise Unknown(f"padding by {auto_pad}")
    if len(flat) != 2 * count or min([0, *flat]) < 0 or min([1, *stride, *dilation]) < 1:
        raise Unknown(f"windows with pads {flat}, strides {stride}, dilations {dilation}")
    pairs = [[flat[axis], flat[axis + count]] for axis in range(count)]
    return {"stride": stride, "dilation": dilation, "pad": pairs, "output_pad": [0] * count}


def _share(flat: list[int], axis: int, total: int, *, more_before: bool) -> None:
    before = total - total // 2 if more_before else total // 2
    flat[axis], flat[axis + len(flat) // 2] = before, total - before


def convolution(
    _: Precision,
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    group: int = 1,
    **windows: Any,
) -> Array:
    attrs = window_attrs(x.shape[2:], weight.shape[2:], **windows)
    return aten.convolved(x, weight, bias, attrs, group)


def _deconvolution(
    _: Precision,
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    group: int = 1,
    auto_pad: str = "NOTSET",
    output_padding: Any = None,
    output_shape: Any = None,
    **windows: Any,
) -> Array:
    lengths, kernel = x.shape[2:], weight.shape[2:]
    count = len(kernel)
    attrs = window_attrs(lengths, kernel, **windows)
    attrs["output_pad"] = [0] * count if output_padding is None else whole_of(output_padding)
    same = auto_pad.startswith("SAME")
    if same or output_shape is not None:
        steps = attrs["stride"]
        wanted = (
            [n * step for n, step in zip(lengths, steps, strict=True)]
            if output_shape is None
            else whole_of(output_shape)[-count:]
        )
        flat = [0] * 2 * count
        for axis, out in enumerate(wanted):
            reach = (kernel[axis] - 1) * attrs["dilation"][axis] + 1
            full = (lengths[axis] - 1) * steps[axis] + reach + attrs["output_pad"][axis]
            if full < out:
                raise Unknown(f"an output of {out} where {full} places are reached")
            _share(flat, axis, full - out, more_before=auto_pad != "SAME_UPPER")
        attrs["pad"] = [[flat[axis], flat[axis + count]] for axis in range(count)]
    elif auto_pad not in ("NOTSET", "VALID"):
        raise Unknown(f"padding by {auto_pad}")
    return aten.convolved(x, weight, bias, attrs, group, transposed=True)


def _layer_norm(
    at: Precision,
    x: Array,
    scale: Array,
    bias: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Array, Array, Array]:
    del stash_type
    x = at.floating(x)
    along = tuple(range(axis % x.ndim, x.ndim))
    center = x.mean(axis=along, keepdims=True)
    spread = 1 / np.sqrt(np.square(x - center).mean(axis=along, keepdims=True) + epsilon)
    result = aten.affine(standardised.values(x, along, epsilon), scale, bias)
    return result, center, spread.astype(x.dtype)


def _rms_norm(
    at: Precision,
    x: Array,
    scale: Array,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Array:
    del stash_type
    x = at.floating(x)
    along = tuple(range(axis % x.ndim, x.ndim))
    return aten.affine(standardised.values(x, along, epsilon, mean=False), scale, None)


def _group_norm(
    at: Precision,
    x: Array,
    scale: Array,
    bias: Array,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Array:
    del stash_type
    if at.opset < 21:  # a number for each group
        each = x.shape[1] // num_groups
        scale, bias = np.repeat(scale, each), np.repeat(bias, each)
    return aten.group_norm(at, x, num_groups, scale, bias, epsilon)


def _instance_norm(
    at: Precision, x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5
) -> Array:
    return aten.group_norm(at, x, x.shape[1], scale, bias, epsilon)


def _batch_norm(
    at: Precision,
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
    is_test: int | None = None,
) -> Array:
    if training_mode or not spatial or (at.opset < 7 and not is_test):
        raise Unknown("a norm by the statistics of the batch")
    return aten.batch_norm(at, x, scale, bias, mean, variance, False, momentum, epsilon)


_NEAREST: Mapping[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _resize(
    at: Precision,
    x: Array,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    axes: Any = None,
    antialias: int = 0,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
) -> Array:
    del extrapolation_value
    if at.opset < 11:  # the scales stand second, and places are where they were
        scales, roi, coordinate_transformation_mode, nearest_mode = roi, None, "asymmetric", "floor"
    cropped = coordinate_transformation_mode == "tf_crop_and_resize"
    if antialias or exclude_outside or cropped or keep_aspect_ratio_policy != "stretch":
        raise Unknown(
            "a map scaled with antialiasing, by a crop, in proportion, or without what is outside"
        )
    along = list(range(x.ndim)) if axes is None else [n % x.ndim for n in whole_of(axes)]
    for place, axis in enumerate(along):
        length = x.shape[axis]
        if scales is not None and scales.size:
            # Narrow as the file has it: ten times this float32 is what a length is cut from.
            share = float(np.float32(scales[place]))
            new = math.floor(np.float32(length) * np.float32(share))
            exact = new == length * share
        else:
            assert sizes is not None
            new, exact = whole_of(sizes)[place], True
            share = new / length
        if new == length and share == 1:
            continue
        sized([*x.shape[:axis], new, *x.shape[axis + 1 :]])
        if not exact and coordinate_transformation_mode in (
            "align_corners",
            "half_pixel_symmetric",
        ):
            raise Unknown("a map scaled to a broken length, by its corners")
        places = _origins(np.arange(new), coordinate_transformation_mode, share, length, new)
        if mode == "nearest":
            index = np.clip(_NEAREST[nearest_mode](places), 0, length - 1)
            x = x.take(index.astype(int), axis)
        elif mode in ("linear", "cubic"):
            places = np.clip(places, 0, length - 1) if mode == "linear" else places
            x = aten.resampled(at.floating(x), axis, places, mode, cubic_coeff_a)
        else:
            raise Unknown(f"a map scaled by {mode}")
    return x


def _origins(places: Array, mode: str, share: float, length: int, new: int) -> Array:
    """Where places of a scaled axis stood on the old one."""
    if mode == "align_corners":
        return np.asarray(places * ((length - 1) / (new - 1) if new > 1 else 0.0))
    if mode == "asymmetric":
        return np.asarray(places / share)
    if mode == "pytorch_half_pixel" and new == 1:
        return np.zeros(1)
    if mode in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        return np.asarray((places + 0.5) / share - 0.5)
    raise Unknown(f"places by {mode}")


def _upsample(at: Precision, x: Array, scales: Any, *, mode: str = "nearest") -> Array:
    how = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return _resize(Precision(at.float, 11), x, None, np.asarray(scales), **how)  # type: ignore[arg-type]


def _grid_sample(
    at: Precision,
    x: Array,
    grid: Array,
    *,
    mode: str = "linear",
    padding_mode: str = "zeros",
    align_corners: int = 0,
) -> Array:
    """x at places that a grid names, the last axis first, from -1 to 1."""
    kind = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if kind not in ("linear", "nearest", "cubic"):
        raise Unknown(f"a map sampled by {mode}")
    x = at.floating(x)
    lengths, (batch, *shape, _) = x.shape[2:], grid.shape
    spots = np.moveaxis(grid[..., ::-1], -1, 0).reshape(len(lengths), batch, -1)
    # Each axis: how much of which place counts, for each of its taps.
    taps: list[list[tuple[Array, Array]]] = []
    for spot, length in zip(spots, lengths, strict=True):
        if align_corners:
            places, ends = (spot + 1) / 2 * (length - 1), (0.0, length - 1.0)
        else:
            places, ends = ((spot + 1) * length - 1) / 2, (-0.5, length - 0.5)
        if kind != "cubic":
            places = _inside(places, padding_mode, length, ends)
        if kind == "nearest":
            found = [(np.rint(places), np.ones_like(places))]
        else:
            first = np.floor(places)
            steps = (0, 1) if kind == "linear" else (-1, 0, 1, 2)
            found = [(first + step, np.abs(places - first - step)) for step in steps]
            found = [
                (where, np.maximum(1 - far, 0) if kind == "linear" else aten.cubic(far, -0.75))
                for where, far in found
            ]
        if kind == "cubic":
            found = [(_inside(where, padding_mode, length, ends), w) for where, w in found]
        taps.append(
            [
                (np.clip(where, 0, length - 1).astype(int), w * ((where >= 0) & (where < length)))
                for where, w in found
            ]
        )
    rows = np.arange(batch)[:, None]
    result: Any = 0
    for choice in np.ndindex(*(len(each) for each in taps)):
        chosen = [each[n] for each, n in zip(taps, choice, strict=True)]
        weight = math.prod([w for _, w in chosen], start=np.ones(spots.shape[1:]))
        values = np.moveaxis(x, 1, -1)[(rows, *(where for where, _ in chosen))]
        result = result + values * weight.astype(x.dtype)[..., None]
    return np.moveaxis(np.asarray(result), -1, 1).reshape(batch, x.shape[1], *shape)


def _inside(places: Array, mode: str, length: int, ends: tuple[float, float]) -> Array:
    """Places beyond a map, moved onto it as the padding says."""
    if mode == "zeros":
        return places
    if mode == "border":
        return np.clip(places, 0, length - 1)
    if mode != "reflection":
        raise Unknown(f"padding by {mode}")
    low, high = ends
    if high <= low:
        return np.zeros_like(places)
    turned = np.abs(places - low) % (2 * (high - low))
    return np.clip(low + np.minimum(turned, 2 * (high - low) - turned), 0, length - 1)


LAYERS: Mapping[str, Function] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Conv": convolution,
    "ConvTranspose": _deconvolution,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "BatchNormalization": _batch_norm,
    "Resize": _resize,
    "Upsample": _upsample,
    "GridSample": _grid_sample,
}
