"""aten operations that are layers, their weights computed; resizing and sampling of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlv.adapters.onnx.graph import Graph, Item, Value
from dlv.adapters.onnx.promotion import arithmetic, together
from dlv.adapters.onnx.recorded import Rule, Rules
from dlv.adapters.onnx.rules.attention import attend
from dlv.adapters.onnx.rules.lengths import calculate
from dlv.adapters.onnx.rules.movement import swap
from dlv.adapters.onnx.writing.aten_math import scaled
from dlv.adapters.onnx.writing.aten_reduce import moments
from dlv.adapters.onnx.writing.aten_shape import lengths_of
from dlv.errors import UsageError
from dlv.network.sizes import Dim, Shape, ShapeError, broadcast

LAYERS = Rules()


@LAYERS.enter("matmul", "mm", "bmm", "mv", "dot", "linalg_matmul")
def matmul(g: Graph, x: Item, other: Item) -> Value:
    a, b = together(g, [x, other])
    return g.op("MatMul", [a, b], shape=_product(a.shape, b.shape))


def _product(a: Shape | None, b: Shape | None) -> Shape | None:
    if a is None or b is None:
        return None
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    try:
        return (*broadcast([a[:-2], b[:-2]]), *rows, *columns)
    except ShapeError as error:
        raise UsageError(error.message, why=f"{error.seen}") from error


@LAYERS.enter("addmm", "baddbmm")
def addmm(g: Graph, x: Item, a: Item, b: Item, beta: Item = 1, alpha: Item = 1) -> Value:
    product = scaled(g, matmul(g, a, b), alpha)
    return arithmetic(g, "Add", [scaled(g, x, beta), product])


@LAYERS.enter("linear")
def linear(g: Graph, x: Item, weight: Item, bias: Item | None = None) -> Value:
    made = matmul(g, x, swap(g, g.value(weight), -2, -1))
    return made if bias is None else arithmetic(g, "Add", [made, bias])


@LAYERS.enter("outer", "ger")
def outer(g: Graph, x: Item, other: Item) -> Value:
    return arithmetic(g, "Mul", [g.unsqueeze(g.value(x), 1), g.value(other)])


@LAYERS.enter("einsum")
def einsum(g: Graph, equation: str, tensors: Sequence[Item], path: Any = None) -> Value:  # noqa: ARG001
    values = together(g, tensors)
    shape = _summed(equation.replace(" ", ""), [value.shape for value in values])
    return g.op("Einsum", values, {"equation": equation}, shape=shape)


def _summed(equation: str, shapes: Sequence[Shape | None]) -> Shape | None:
    """The shape of an Einstein sum; letters that stand for several axes: not worked out."""
    given, arrow, result = equation.partition("->")
    if "." in equation or None in shapes:
        return None
    dims: dict[str, Dim] = {}
    for letters, shape in zip(given.split(","), shapes, strict=False):
        for letter, dim in zip(letters, shape or (), strict=False):
            if dims.get(letter) in (None, 1):
                dims[letter] = dim
    if not arrow:
        result = "".join(sorted(letter for letter in dims if given.count(letter) == 1))
    return tuple(dims.get(letter) for letter in result)


@LAYERS.enter("bilinear")
def bilinear(g: Graph, x1: Item, x2: Item, weight: Item, bias: Item | None = None) -> Value:
    a, b, w = together(g, [x1, x2, weight])
    shape = None if a.shape is None or w.shape is None else (*a.shape[:-1], w.shape[0])
    made = g.op("Einsum", [a, w, b], {"equation": "...i,oij,...j->...o"}, shape=shape)
    return made if bias is None else arithmetic(g, "Add", [made, bias])


def _per_axis(item: Any, axes: int) -> list[int]:
    listed = list(item) if isinstance(item, (list, tuple)) else [item]
    return listed * axes if len(listed) == 1 else listed


def _conv(
    g: Graph,
    x: Item,
    weight: Item,
    bias: Item | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    data, kernel = together(g, [x, weight])
    axes = kernel.rank - 2
    attrs: dict[str, Any] = {
        "strides": _per_axis(stride, axes),
        "dilations": _per_axis(dilation, axes),
        "group": groups,
    }
    if padding == "same":
        lengths = (kernel.shape or ())[2:]
        totals = [
            step * (length - 1) if isinstance(length, int) else None
            for step, length in zip(attrs["dilations"], lengths, strict=True)
        ]
        if None in totals:
            raise UsageError('padding "same" takes a kernel of fixed lengths')
        known = [total for total in totals if total is not None]
        attrs["pads"] = [*(n // 2 for n in known), *(n - n // 2 for n in known)]
    elif padding != "valid":
        attrs["pads"] = _per_axis(padding, axes) * 2
    given = [data, kernel, None if bias is None else g.value(bias, data.dtype)]
    return g.op("Conv", given, attrs, shape=(None,) * (axes + 2))


def _deconv(
    g: Graph,
    x: Item,
    weight: Item,
    bias: Item | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Value:
    data, kernel = together(g, [x, weight])
    axes = kernel.rank - 2
    attrs = {
        "strides": _per_axis(stride, axes),
        "dilations": _per_axis(dilation, axes),
        "pads": _per_axis(padding, axes) * 2,
        "output_padding": _per_axis(output_padding, axes),
        "group": groups,
    }
    given = [data, kernel, None if bias is None else g.value(bias, data.dtype)]
    return g.op("ConvTranspose", given, attrs, shape=(None,) * (axes + 2))


for _n in (1, 2, 3):
    LAYERS[f"conv{_n}d"], LAYERS[f"conv_transpose{_n}d"] = _conv, _deconv


@LAYERS.enter("convolution")
def convolution(
    g: Graph,
    x: Item,
    weight: Item,
    bias: Item | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Value:
    if transposed:
        return _deconv(g, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return _conv(g, x, weight, bias, stride, padding, dilation, groups)


@LAYERS.enter("embedding")
def embedding(g: Graph, weight: Item, indices: Item, *_: Any) -> Value:
    rows, table_ = g.value(indices), g.value(weight)
    shape = None if rows.shape is None else (*rows.shape, *(table_.shape or ())[1:])
    return g.op("Gather", [table_, rows], {"axis": 0}, shape=shape)


@LAYERS.enter("scaled_dot_product_attention")
def attention(
    g: Graph,
    query: Item,
    key: Item,
    value: Item,
    attn_mask: Item | None = None,
    dropout_p: float = 0.0,  # noqa: ARG001
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: ARG001
) -> Value:
    q, k, v = together(g, [query, key, value])
    mask = None if attn_mask is None else g.value(attn_mask)
    return attend(g, q, k, v, mask, causal=is_causal, scale=scale)


@LAYERS.enter("layer_norm", "native_layer_norm")
def layer_norm(
    g: Graph,
    x: Item,
    normalized_shape: Sequence[int],
    weight: Item | None = None,
    bias: Item | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> list[Value]:
    value = g.value(x)
    axes = list(range(-len(normalized_shape), 0))
    made = _standard(g, value, axes, eps)
    return [_affine(g, made, weight, bias)]


def _standard(g: Graph, x: Value, axes: Sequence[int], eps: float) -> Value:
    variance, center = moments(g, x, list(axes), 0, True)
    root = g.op("Sqrt", [arithmetic(g, "Add", [variance, eps])])
    return arithmetic(g, "Div", [arithmetic(g, "Sub", [x, center]), root])


def _affine(g: Graph, x: Value, weight: Item | None, bias: Item | None) -> Value:
    if weight is not None:
        x = arithmetic(g, "Mul", [x, weight])
    return x if bias is None else arithmetic(g, "Add", [x, bias])


@LAYERS.enter("batch_norm", "_native_batch_norm_legit_no_training")
def batch_norm(
    g: Graph,
    x: Item,
    weight: Item | None,
    bias: Item | None,
    running_mean: Item | None,
    running_var: Item | None,
    *options: Any,
) -> list[Value]:
    value = g.value(x)
    # (training, momentum, eps, cudnn_enabled), or (momentum, eps)
    eps = next(item for item in reversed(options) if not isinstance(item, bool))
    columns = [1] * (value.rank - 2)

    def wide(item: Item | None) -> Value | None:
        return None if item is None else g.reshape(g.value(item), [-1, *columns])

    if running_mean is None or running_var is None:
        made = _standard(g, value, [axis for axis in range(value.rank) if axis != 1], eps)
    else:
        center, variance = wide(running_mean), wide(running_var)
        assert center is not None
        assert variance is not None
        root = g.op("Sqrt", [arithmetic(g, "Add", [variance, eps])])
        made = arithmetic(g, "Div", [arithmetic(g, "Sub", [value, center]), root])
    return [_affine(g, made, wide(weight), wide(bias))]


def _resize(kind: str, mode: str, place: str, nearest: str | None = None) -> Rule:
    def rule(g: Graph, x: Item, size: Any, *options: Any) -> Value:
        value = g.value(x)
        given = list(options)
        aligned = bool(given.pop(0)) if kind != "nearest" else False
        how = "align_corners" if aligned else place
        axes = list(range(2, value.rank))
        attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": how, "axes": axes}
        if nearest is not None:
            attrs["nearest_mode"] = nearest
        if mode == "cubic":
            attrs["cubic_coeff_a"] = -0.75
        # Overloads end with one list of factors, or with a factor for each axis.
        factors = given[0] if given and isinstance(given[0], (list, tuple)) else given
        named = factors and all(isinstance(item, (int, float)) for item in factors)
        lengths = lengths_of(g, value)[2:]
        if named and not aligned:
            del attrs["axes"]
            scales = g.constant([1.0, 1.0, *map(float, factors)], "float32")
            wanted = (
                None
                if size is not None
                else [_grown(n, f) for n, f in zip(lengths, factors, strict=True)]
            )
            shape = (*(value.shape or ())[:2], *(wanted or [_plain(item) for item in size]))
            return g.op("Resize", [value, None, scales], attrs, shape=shape)
        if size is None:
            size = [
                _grown(n, f) if isinstance(n, int) else _times(g, n, f)
                for n, f in zip(lengths, factors, strict=True)
            ]
        shape = (*(value.shape or ())[:2], *(_plain(item) for item in size))
        return g.op("Resize", [value, None, None, g.vector(size)], attrs, shape=shape)

    return rule


def _plain(length: Any) -> Any:
    return length if isinstance(length, int) else None


def _grown(length: int | Value, factor: float) -> int | None:
    return int(length * factor) if isinstance(length, int) else None


def _times(g: Graph, length: Value, factor: float) -> Value:
    return calculate(
        g, "floor", [calculate(g, "mul", [calculate(g, "sym_float", [length]), factor])]
    )


for _n in (1, 2, 3):
    LAYERS[f"upsample_nearest{_n}d"] = _resize("nearest", "nearest", "asymmetric", "floor")
    LAYERS[f"_upsample_nearest_exact{_n}d"] = _resize(
        "nearest", "nearest", "half_pixel", "round_prefer_ceil"
    )
LAYERS["upsample_linear1d"] = _resize("linear", "linear", "half_pixel")
LAYERS["upsample_bilinear2d"] = LAYERS["upsample_trilinear3d"] = LAYERS["upsample_linear1d"]
LAYERS["upsample_bicubic2d"] = _resize("cubic", "cubic", "half_pixel")


@LAYERS.enter("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(g: Graph, x: Item, grid: Item, mode: int, padding: int, aligned: bool) -> Value:
    value, places = together(g, [x, grid])
    attrs = {
        "mode": ("linear", "nearest", "cubic")[mode],
        "padding_mode": ("zeros", "border", "reflection")[padding],
        "align_corners": int(aligned),
    }
    shape = (*(value.shape or ())[:2], *(places.shape or ())[1:-1])
    return g.op("GridSample", [value, places], attrs, shape=shape)


@LAYERS.enter("pixel_shuffle")
def pixel_shuffle(g: Graph, x: Item, upscale_factor: int) -> Value:
    value = g.value(x)
    *leading, depth, height, width = lengths_of(g, value)
    r = upscale_factor
    rank = value.rank
    if not isinstance(depth, int):
        raise UsageError("pixel_shuffle takes a fixed number of channels")
    parts = g.reshape(value, [*leading, depth // r**2, r, r, height, width])
    order = [*range(rank - 2), rank, rank - 2, rank + 1, rank - 1]
    ends = [_scaled(g, height, r), _scaled(g, width, r)]
    return g.reshape(g.transpose(parts, order), [*leading, depth // r**2, *ends])


def _scaled(g: Graph, length: int | Value, factor: int) -> int | Value:
    return length * factor if isinstance(length, int) else calculate(g, "mul", [length, factor])
