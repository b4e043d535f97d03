"""Operations outside the vocabulary: aten calls, and ONNX operators written back as they were.

The aten calls of layers (convolution, attention, norms, resizing) are written here; `aten_math`,
`aten_reduce` and `aten_shape` write the others.
"""

from __future__ import annotations

import base64
import binascii
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dlv.adapters.protobuf as protobuf
from dlv.adapters.onnx.aten_math import MATH, scaled
from dlv.adapters.onnx.aten_reduce import REDUCTIONS, moments
from dlv.adapters.onnx.aten_shape import SHAPES, lengths_of
from dlv.adapters.onnx.call import body_types, recurrent_shape, result_types
from dlv.adapters.onnx.graph import (
    NARROW,
    Graph,
    Item,
    Rule,
    Rules,
    Value,
    argument,
    arguments,
    arithmetic,
    dialect,
    together,
)
from dlv.adapters.onnx.messages import Array, Encoded, Plain
from dlv.adapters.onnx.model import form, misfit
from dlv.adapters.onnx.rules.attention import attend
from dlv.adapters.onnx.rules.movement import calculate, swap
from dlv.canonical import NON_FINITE, float_of
from dlv.dtypes import ITEM_BYTES
from dlv.errors import UsageError, nearest
from dlv.network.fields import shape as checked_shape
from dlv.network.graph import Node
from dlv.network.ops.op import op_of
from dlv.network.ops.outside import standardising
from dlv.network.sizes import MAX_RANK, Dim, Shape, ShapeError, axis_of, broadcast

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
            shape = (*(value.shape or ())[:2], *(wanted or [_plain_length(item) for item in size]))
            return g.op("Resize", [value, None, scales], attrs, shape=shape)
        if size is None:
            size = [
                _grown(n, f) if isinstance(n, int) else _times(g, n, f)
                for n, f in zip(lengths, factors, strict=True)
            ]
        shape = (*(value.shape or ())[:2], *(_plain_length(item) for item in size))
        return g.op("Resize", [value, None, None, g.vector(size)], attrs, shape=shape)

    return rule


def _plain_length(length: Any) -> Any:
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


OPSET = 21
IR_VERSION = 10
# Newer versions of the format, for operators of theirs: opset -> IR version.
_NEWER = {22: 10, 23: 11, 24: 12, 25: 13, 26: 13, 27: 13, 28: 14}
# The last opset before OPSET in which an operator came to be written in another way.
_CHANGED = {
    **dict.fromkeys(("PRelu",), 7),
    **dict.fromkeys(("BatchNormalization", "Scan"), 9),
    **dict.fromkeys(("Slice", "TopK", "Upsample"), 10),
    **dict.fromkeys(("Clip", "Pad", "Resize", "Scatter"), 11),
    **dict.fromkeys(("Dropout",), 12),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "ReduceSum", "Softmax", "Squeeze", "Unsqueeze"), 13),
    **dict.fromkeys(("RoiAlign",), 16),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"), 18),
    **dict.fromkeys(("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare", "Split"), 18),
    **dict.fromkeys(("DFT", "GridSample"), 20),
    **dict.fromkeys(("GroupNormalization",), 21),
}
_MOST_OUTPUTS = 4096
_CONVERT = "convert the original model: onnx.version_converter, then dlv add it again"
_BODY = protobuf.Schema("GraphProto", {1: "node message*"})
_INNER = protobuf.Schema(
    "NodeProto", {4: "op_type text", 5: "attribute message*", 7: "domain text"}
)
_BODIES = protobuf.Schema("AttributeProto", {6: "g message", 11: "graphs message*"})

# What rules raise at arguments that no importer records.
_WRONG_KINDS = (ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError)

# By operation, or operation and overload where those differ in more than their arguments.
RULES: dict[str, Rule] = {**MATH, **REDUCTIONS, **SHAPES, **LAYERS}


def raw(g: Graph, node: Node, inputs: Sequence[Item]) -> Item | Sequence[Item]:
    found, what = dialect(node), (node.source or {}).get("op", "an operation")
    if op_of(node).passes(node):
        return inputs[0]
    known = standardising(node)
    if known is not None:
        [x] = inputs
        assert isinstance(x, Value)
        means, deviations = (g.constant(each, x.dtype) for each in known)
        return g.op("Div", [g.op("Sub", [x, means]), deviations])
    try:
        if found == "aten":
            return _aten(g, node, inputs)
        if found == "onnx":
            return _verbatim(g, node, inputs)
    except _WRONG_KINDS as error:
        # Whoever recorded this, it was none of dlv's importers.
        raise UsageError(f"{what} has arguments of wrong kinds", why=str(error) or None) from error
    raise UsageError(
        f"{what} of {found or 'an unknown dialect'} cannot be written as ONNX",
        hint="replace the node by one of the vocabulary",
    )


def ir_version(opset: int) -> int:
    return _NEWER.get(opset, IR_VERSION)


def _aten(g: Graph, node: Node, inputs: Sequence[Item]) -> Item | Sequence[Item]:
    """What the recorded call gives, in inference."""
    name = str((node.source or {}).get("op"))
    base, _, overload = name.removeprefix("aten.").partition(".")
    rule = RULES.get(f"{base}.{overload}") or RULES.get(base)
    if rule is None:
        raise _unknown(name, base)
    args, kwargs = arguments(g, node, inputs)
    try:
        inspect.signature(rule).bind(g, *args, **kwargs)
    except TypeError as error:
        raise UsageError(
            f"{name} cannot be exported with these arguments", why=str(error)
        ) from None
    return rule(g, *args, **kwargs)


def _unknown(name: str, base: str) -> UsageError:
    if base.endswith("_") and not base.startswith("_") and base[:-1] in RULES:
        return UsageError(
            f"{name} changes a tensor in place, which ONNX cannot express",
            hint=f"write it as x = x.{base[:-1]}(..) and import the module again",
        )
    near = nearest(base, [rule.partition(".")[0] for rule in RULES])
    return UsageError(
        f"{name} has no counterpart in dlv's ONNX export",
        hint="torch.onnx.export may have one: export a .pt of the version and call it,"
        " or replace the operation",
        did_you_mean=[f"aten.{word}" for word in near],
    )


def _verbatim(g: Graph, node: Node, inputs: Sequence[Item]) -> list[Value]:
    """The operator as its file had it, under this file's version of the format."""
    source = node.source or {}
    domain, _, kind = str(source.get("op")).rpartition("::")
    args, kwargs, count = source.get("args", []), source.get("kwargs", {}), source.get("outputs", 1)
    if not isinstance(args, list) or not isinstance(kwargs, Mapping):
        raise UsageError("its source is not an operator")
    if type(count) is not int or not 0 < count <= _MOST_OUTPUTS:
        raise UsageError(f"it has {count!r} outputs")
    version = _settle_version(g, domain, kind, source.get("opset"))
    given = [argument(g, node, inputs, item) for item in args]
    # An operator that is written back takes what it took.
    values = [None if item is None else _plain(g, g.value(item)) for item in given]
    attrs = {name: _attribute(name, item) for name, item in kwargs.items()}
    fault = None if domain else misfit(kind, version, attrs, len(values))
    if fault is not None:
        raise UsageError(
            f"{kind} of opset {source.get('opset')} has no form in opset {version}",
            why=fault,
            hint=_CONVERT,
        )
    for body in _bodies(attrs):
        _check_body(body, int(source.get("opset") or OPSET))
    outer = source.get("captured") or {}
    needs = [_captured(g, name, argument(g, node, inputs, item)) for name, item in outer.items()]
    dtypes = _types(source, domain, kind, attrs, values, count)
    shapes = _shapes(kind if not domain else "", attrs, values, count)
    for place, (_, rank) in enumerate(_results(source, count)):
        if shapes[place] is None and rank is not None and 0 <= rank <= MAX_RANK:
            shapes[place] = (None,) * rank
    made = g.ops(kind, values, list(zip(dtypes, shapes, strict=True)), attrs, domain)
    g.steps[-1].needs = needs
    # Only the runtime knows for sure: nothing is claimed where nothing has to be.
    sure = [dtype for dtype, _ in _results(source, count)]
    g.unsure.update(value.id for value, dtype in zip(made, sure, strict=True) if dtype is None)
    return [g.computed(value) if value.dtype in NARROW else value for value in made]


def _plain(g: Graph, value: Value) -> Value:
    return g.plain.get(value.id, value)


def _settle_version(g: Graph, domain: str, kind: str, recorded: Any) -> int:
    """Let the file speak the operator's version, or one in which it is still the same."""
    version: int = recorded if type(recorded) is int else OPSET if not domain else 1
    found = form(domain, kind, version)
    if not domain and found is not None and version > OPSET:
        version = max(OPSET, found.since)  # since then it is the same
    if domain:
        if g.opsets.setdefault(domain, version) != version:
            raise UsageError(
                f"operators of {domain} in two versions do not go into one file",
                why=f"{g.opsets[domain]} and {version}",
            )
        g.notes[f"{domain} {version} is needed to run {kind}: a runtime must know it"] = None
    elif version > OPSET:
        if version not in _NEWER:
            raise UsageError(
                f"{kind} is of opset {version}, which this dlv version does not support",
                why=f"it knows the opsets up to {max(_NEWER)}",
            )
        g.opsets[""] = max(g.opsets.get("", OPSET), version)
    else:
        _check_age(kind, version)
    return version if domain else max(version, OPSET)


def _check_age(kind: str, version: int) -> None:
    if version < _CHANGED.get(kind, 0):
        raise UsageError(
            f"{kind} is of opset {version} and was written in another way"
            f" since opset {_CHANGED[kind]}",
            why=f"the file is of opset {OPSET}",
            hint=_CONVERT,
        )


def _attribute(name: str, item: Any) -> Any:
    if isinstance(item, Mapping):
        if "l" in item and isinstance(item["l"], list):
            return [_attribute(name, each) for each in item["l"]]
        if "c" in item and item["c"] is not None:
            value = item["c"]
            return float_of(value) if isinstance(value, str) and value in NON_FINITE else value
        if isinstance(item.get("graph"), str):
            return Encoded(_decoded(item["graph"]))
        if isinstance(item.get("tensor"), Mapping) and "elements" in item["tensor"]:
            return _tensor(item["tensor"])
        if isinstance(item.get("bytes"), str):
            return _decoded(item["bytes"])
    raise UsageError(
        f"its attribute {name!r} was too large, or of a kind, to be kept in the network",
        hint="export the version's own ONNX file, which has it",
    )


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise UsageError("its source contains bytes that are not written as such") from error


def _tensor(described: Mapping[str, Any]) -> Array:
    data, dtype = _decoded(described["elements"]), str(described.get("dtype"))
    dims = checked_shape(described.get("shape"), "the shape of an attribute")
    shape = tuple(dim for dim in dims if isinstance(dim, int))
    size = ITEM_BYTES.get(dtype, 0)
    for dim in shape:
        size *= dim
    if len(shape) != len(dims) or size != len(data):
        raise UsageError("a tensor in its source is not of its shape's size")
    return Array("", dtype, shape, Plain(data))


def _bodies(attrs: Mapping[str, Any]) -> Iterator[Encoded]:
    for value in attrs.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Encoded):
                yield item


def _check_body(body: Encoded, version: int) -> None:
    """The operators in a graph of its own come under the file's version, too."""
    if version >= OPSET:
        return
    todo = [_message(body)]
    while todo:
        for part in _BODY.read(todo.pop())["node"]:
            inner = _INNER.read(part)
            if not inner["domain"]:
                _check_age(inner["op_type"] or "", version)
            for attribute in inner["attribute"]:
                held = _BODIES.read(attribute)
                todo += [*([held["g"]] if held["g"] is not None else []), *held["graphs"]]


def _captured(g: Graph, name: str, item: Any) -> int:
    """A value of the surrounding graph that its own graphs use by name."""
    value = _plain(g, g.value(item))
    if g.stored.get(g.untied(name)) != value and g.inputs.get(name) != value:
        value = g.op("Identity", [value])
        g.fixed[value.id] = name
    return value.id


def _types(
    source: Mapping[str, Any],
    domain: str,
    kind: str,
    attrs: Mapping[str, Any],
    inputs: Sequence[Value | None],
    count: int,
) -> list[str]:
    """By the operator's schema, else as its file said, else like what goes in."""
    found = form(domain, kind, int(source.get("opset") or OPSET))
    given = [None if value is None else value.dtype for value in inputs]
    body = next(_bodies(attrs), None)
    inner = [] if body is None else body_types(kind, _message(body))
    made = result_types(kind, found, attrs, given, count, inner)
    told = [item[0] for item in _results(source, count)]
    first = next((dtype for dtype in given if dtype), "float32")
    return [type_ or said or first for type_, said in zip(made, told, strict=True)]


def _results(source: Mapping[str, Any], count: int) -> list[tuple[str | None, int | None]]:
    """Dtype and rank of each output, as far as the file said them."""
    listed = source.get("results")
    rows = listed if isinstance(listed, list) and len(listed) == count else [[None, None]] * count
    return [
        (dtype if isinstance(dtype, str) else None, rank if type(rank) is int else None)
        for dtype, rank in rows
    ]


def _message(body: Encoded) -> protobuf.Span:
    return protobuf.message(protobuf.Memory(body.data, "a graph in the network"))


def _shapes(
    kind: str, attrs: Mapping[str, Any], inputs: Sequence[Value | None], count: int
) -> list[Shape | None]:
    """The shapes of several outputs, which a network does not record."""
    shape = inputs[0].shape if inputs and inputs[0] is not None else None
    if shape is None or count == 1:
        return [None] * count
    if kind in ("LSTM", "GRU", "RNN") and len(shape) == 3 and not attrs.get("layout"):
        states = recurrent_shape(attrs, shape)
        return [states, *[states[1:]] * (count - 1)]
    if kind == "Unique":
        first: Shape = (None,) * (len(shape) if "axis" in attrs else 1)
        return [first, *[(None,)] * (count - 1)]
    axis = attrs.get("axis", 0 if kind == "Split" else -1)
    if kind in ("Split", "TopK") and type(axis) is int:
        place = axis_of(axis, len(shape), "axis")
        return [(*shape[:place], None, *shape[place + 1 :])] * count
    return [None] * count
