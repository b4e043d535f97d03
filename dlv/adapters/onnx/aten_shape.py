"""aten operations that make, cut, turn, join and pick from tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlv.adapters.onnx.graph import (
    NARROW,
    Graph,
    Item,
    Rule,
    Rules,
    Type,
    Value,
    arithmetic,
    dtype_name,
    dtype_of,
    merged,
    together,
)
from dlv.adapters.onnx.rules.movement import (
    LAST,
    MOST_PIECES,
    calculate,
    converted,
    cut,
    expand,
    filled,
    flatten,
    select,
    split,
    squeeze,
    swap,
)
from dlv.errors import UsageError
from dlv.network.sizes import Dim, axis_of

SHAPES = Rules()

Lengths = Sequence[int | Value]
_MOST_PLACES = 1 << 16  # under all windows along an axis


def lengths_of(g: Graph, x: Value) -> list[int | Value]:
    return [g.length(x, axis) for axis in range(x.rank)]


SHAPES.update(
    {
        "view": lambda g, x, size: g.reshape(g.value(x), size),
        "view_as": lambda g, x, other: g.reshape(g.value(x), lengths_of(g, g.value(other))),
        "flatten": lambda g, x, start_dim=0, end_dim=-1: flatten(g, g.value(x), start_dim, end_dim),
        "transpose": lambda g, x, dim0, dim1: swap(g, g.value(x), dim0, dim1),
        "squeeze": lambda g, x, dim=None: squeeze(
            g, g.value(x), None if dim is None else _listed(dim)
        ),
        "unsqueeze": lambda g, x, dim: g.unsqueeze(g.value(x), dim),
        "select": lambda g, x, dim, index: select(g, g.value(x), dim, index),
        "slice": lambda g, x, dim=0, start=None, end=None, step=1: cut(
            g, g.value(x), dim, start, end, step
        ),
        "expand_as": lambda g, x, other: expand(g, g.value(x), lengths_of(g, g.value(other))),
    }
)
SHAPES.update(dict.fromkeys(("reshape", "_unsafe_view", "_reshape_alias"), SHAPES["view"]))
SHAPES["reshape_as"] = SHAPES["view_as"]
SHAPES["swapaxes"] = SHAPES["swapdims"] = SHAPES["transpose"]


@SHAPES.enter("unflatten")
def unflatten(g: Graph, x: Item, dim: int, sizes: Lengths) -> Value:
    value = g.value(x)
    axis = axis_of(dim, value.rank, "axis")
    have = lengths_of(g, value)
    return g.reshape(value, [*have[:axis], *sizes, *have[axis + 1 :]])


@SHAPES.enter("t", "numpy_T", "mT", "adjoint")
def turned(g: Graph, x: Item) -> Value:
    value = g.value(x)
    return swap(g, value, -2, -1) if value.rank > 1 else value


@SHAPES.enter("permute")
def permute(g: Graph, x: Item, dims: Sequence[int]) -> Value:
    value = g.value(x)
    return g.transpose(value, [axis_of(dim, value.rank, "axis") for dim in dims])


@SHAPES.enter("movedim")
def movedim(g: Graph, x: Item, source: Any, destination: Any) -> Value:
    value = g.value(x)
    pairs = zip(*(_listed(item) for item in (source, destination)), strict=True)
    moves = {axis_of(to, value.rank, "axis"): axis_of(at, value.rank, "axis") for at, to in pairs}
    rest = iter([axis for axis in range(value.rank) if axis not in moves.values()])
    return g.transpose(
        value, [moves[axis] if axis in moves else next(rest) for axis in range(value.rank)]
    )


def _listed(item: Any) -> list[Any]:
    return list(item) if isinstance(item, (list, tuple)) else [item]


@SHAPES.enter("narrow")
def narrow(g: Graph, x: Item, dim: int, start: int | Value, length: int | Value) -> Value:
    plain = isinstance(start, int) and isinstance(length, int)
    if plain and start < 0 and start + length >= 0:  # type: ignore[operator]
        return cut(g, g.value(x), dim, start, None)
    end = start + length if plain else calculate(g, "add", [start, length])  # type: ignore[operator]
    return cut(g, g.value(x), dim, start, end)


@SHAPES.enter("expand", "broadcast_to")
def expand_(g: Graph, x: Item, size: Lengths, implicit: bool = False) -> Value:  # noqa: ARG001
    return expand(g, g.value(x), size)


def _fixed(g: Graph, x: Value, dim: int) -> int:
    length = g.length(x, dim)
    if isinstance(length, int):
        return length
    raise UsageError(
        "how many pieces it gives depends on a length that is not fixed",
        why=f"axis {dim} is {length.symbol or 'of unknown length'}",
    )


@SHAPES.enter("split", "split_with_sizes", "split_copy")
def split_(g: Graph, x: Item, sizes: Any, dim: int = 0) -> list[Value]:
    value = g.value(x)
    if isinstance(sizes, int):
        length = _fixed(g, value, dim)
        count = min(max(1, -(-length // sizes)), MOST_PIECES + 1)
        sizes = [min(sizes, length - at * sizes) for at in range(count)]
    return split(g, value, dim, sizes)


@SHAPES.enter("chunk")
def chunk(g: Graph, x: Item, chunks: int, dim: int = 0) -> list[Value]:
    value = g.value(x)
    return split_(g, value, max(1, -(-_fixed(g, value, dim) // chunks)), dim)


@SHAPES.enter("unbind")
def unbind(g: Graph, x: Item, dim: int = 0) -> list[Value]:
    value = g.value(x)
    pieces = split(g, value, dim, [1] * min(_fixed(g, value, dim), MOST_PIECES + 1))
    return [g.squeeze(piece, dim) for piece in pieces]


@SHAPES.enter("cat", "concat", "concatenate")
def cat(g: Graph, tensors: Sequence[Item], dim: int = 0) -> Value:
    values = together(g, tensors)
    # torch lets empty lists take part in a join of anything.
    values = [each for each in values if each.shape != (0,)] or values
    first = values[0]
    axis = axis_of(dim, first.rank, "axis")
    shape: list[Dim] = list(first.shape or ())
    lengths = [(each.shape or (None,) * first.rank)[axis] for each in values]
    numbers = [length for length in lengths if isinstance(length, int)]
    shape[axis] = sum(numbers) if len(numbers) == len(lengths) else None
    return g.op("Concat", values, {"axis": axis}, shape=tuple(shape))


@SHAPES.enter("stack", "_stack")
def stack(g: Graph, tensors: Sequence[Item], dim: int = 0) -> Value:
    axis = axis_of(dim, g.value(tensors[0]).rank + 1, "axis")
    return cat(g, [g.unsqueeze(g.value(each), axis) for each in tensors], axis)


@SHAPES.enter("diff")
def diff(
    g: Graph,
    x: Item,
    n: int = 1,
    dim: int = -1,
    prepend: Item | None = None,
    append: Item | None = None,
) -> Value:
    value = g.value(x)
    around = [item for item in (prepend, value, append) if item is not None]
    value = cat(g, around, dim) if len(around) > 1 else value
    if not 0 <= n <= MOST_PIECES:
        raise UsageError(f"a difference of order {n} cannot be exported")
    for _ in range(n):
        later, sooner = cut(g, value, dim, 1, None), cut(g, value, dim, 0, -1)
        shape = merged(later.shape, sooner.shape)
        value = g.op("Xor" if value.dtype == "bool" else "Sub", [later, sooner], shape=shape)
    return value


@SHAPES.enter("repeat", "tile")
def repeat(g: Graph, x: Item, repeats: Lengths) -> Value:
    value = g.value(x)
    times = [1] * (value.rank - len(repeats)) + list(repeats)
    if len(times) > value.rank:
        value = g.unsqueeze(value, *range(len(times) - value.rank))
    shape = tuple(
        dim * count if isinstance(dim, int) and isinstance(count, int) else None
        for dim, count in zip(value.shape or (), times, strict=True)
    )
    return g.op("Tile", [value, g.vector(times)], shape=shape)


@SHAPES.enter("repeat_interleave.self_int")
def repeat_interleave(
    g: Graph,
    x: Item,
    repeats: int,
    dim: int | None = None,
    output_size: Any = None,  # noqa: ARG001
) -> Value:
    value = g.value(x)
    if dim is None:
        value, dim = g.reshape(value, [-1]), 0
    axis = axis_of(dim, value.rank, "axis")
    have = lengths_of(g, value)
    wide = expand(g, g.unsqueeze(value, axis + 1), [*have[: axis + 1], repeats, *have[axis + 1 :]])
    length = have[axis]
    total = length * repeats if isinstance(length, int) else calculate(g, "mul", [length, repeats])
    return g.reshape(wide, [*have[:axis], total, *have[axis + 1 :]])


@SHAPES.enter("flip")
def flip(g: Graph, x: Item, dims: Sequence[int]) -> Value:
    value = g.value(x)
    axes = [axis_of(dim, value.rank, "axis") for dim in dims]
    if not axes:
        return value
    starts, ends = g.ints(*[-1] * len(axes)), g.ints(*[-LAST] * len(axes))
    return g.op("Slice", [value, starts, ends, g.ints(*axes), g.ints(*[-1] * len(axes))])


@SHAPES.enter("roll")
def roll(g: Graph, x: Item, shifts: Any, dims: Any = ()) -> Value:
    value = g.value(x)
    if not dims and dims != 0:
        flat = g.reshape(value, [-1])
        return g.like(roll(g, flat, shifts, [0]), value)
    for shift, dim in zip(_listed(shifts), _listed(dims), strict=True):
        length = g.length(value, dim)
        if isinstance(length, int) and isinstance(shift, int):
            start: Item = -shift % length if length else 0
        else:
            start = calculate(g, "mod", [calculate(g, "neg", [shift]), length])
        if start == 0:
            continue
        parts = [cut(g, value, dim, start, None), cut(g, value, dim, 0, start)]
        axis = axis_of(dim, value.rank, "axis")
        value = g.op("Concat", parts, {"axis": axis}, shape=value.shape)
    return value


@SHAPES.enter("gather")
def gather(g: Graph, x: Item, dim: int, index: Item, sparse_grad: bool = False) -> Value:  # noqa: ARG001
    rows = g.value(index)
    return g.op("GatherElements", [g.value(x), rows], {"axis": dim}, shape=rows.shape)


@SHAPES.enter("take_along_dim")
def take_along_dim(g: Graph, x: Item, indices: Item, dim: int) -> Value:
    own, other = g.value(x), g.value(indices)
    axis = axis_of(dim, own.rank, "axis")
    lengths = zip(own.shape or (), other.shape or (), strict=False)
    widened = any(
        isinstance(here, int) and isinstance(there, int) and here != there
        for place, (here, there) in enumerate(lengths)
        if place != axis
    )
    if own.rank != other.rank or widened:
        raise UsageError("take_along_dim is exported where both have the same other axes only")
    return gather(g, x, dim, indices)


@SHAPES.enter("scatter.src")
def scatter(g: Graph, x: Item, dim: int, index: Item, src: Item) -> Value:
    value = g.value(x)
    return g.op(
        "ScatterElements", [value, g.value(index), g.value(src, value.dtype)], {"axis": dim}
    )


@SHAPES.enter("index_select")
def index_select(g: Graph, x: Item, dim: int, index: Item) -> Value:
    rows = g.value(index)
    return pick(g, g.value(x), dim, rows if rows.shape != () else g.unsqueeze(rows, 0))


def pick(g: Graph, x: Value, dim: int, rows: Value) -> Value:
    shape = None
    axis = axis_of(dim, x.rank, "axis")
    if x.shape is not None and rows.shape is not None:
        shape = (*x.shape[:axis], *rows.shape, *x.shape[axis + 1 :])
    return g.op("Gather", [x, rows], {"axis": axis}, shape=shape)


def _windows(
    g: Graph, x: Value, axis: int, size: int, step: int, apart: int = 1, more: int = 0
) -> Value:
    """The places under each window that slides along an axis, (windows, size) in its place."""
    length = g.length(x, axis)
    if not isinstance(length, int):
        raise UsageError("windows are cut out of axes of fixed lengths only")
    if more:
        x = pad(g, x, [*(0, 0) * (x.rank - 1 - axis), more, more])
    count = (length + 2 * more - (size - 1) * apart - 1) // step + 1
    if not 0 < count * size <= _MOST_PLACES:
        raise UsageError(f"{count} windows of {size} cannot be exported")
    places = [first * step + tap * apart for first in range(count) for tap in range(size)]
    return pick(g, x, axis, g.constant(places, "int64", (count, size)))


@SHAPES.enter("unfold")
def unfold(g: Graph, x: Item, dimension: int, size: int, step: int) -> Value:
    value = g.value(x)
    axis = axis_of(dimension, value.rank, "axis")
    taken = _windows(g, value, axis, size, step)
    others = [place for place in range(taken.rank) if place != axis + 1]
    return g.transpose(taken, [*others, axis + 1])


@SHAPES.enter("im2col")
def im2col(
    g: Graph,
    x: Item,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    value = g.value(x)
    lead = value.rank - 2
    rows = zip(kernel_size, stride, dilation, padding, strict=True)
    for axis, (size, step, apart, more) in enumerate(rows):
        value = _windows(g, value, lead + 2 * axis, size, step, apart, more)
    turned = g.transpose(value, [*range(lead), lead + 1, lead + 3, lead, lead + 2])
    *batch, channels, high, wide, down, right = lengths_of(g, turned)
    taps, windows = calculate(g, "mul", [high, wide]), calculate(g, "mul", [down, right])
    return g.reshape(turned, [*batch, calculate(g, "mul", [channels, taps]), windows])


@SHAPES.enter("index.Tensor", "_unsafe_index.Tensor")
def index(g: Graph, x: Item, indices: Sequence[Item | None]) -> Value:
    value = g.value(x)
    places = [axis for axis, item in enumerate(indices) if item is not None]
    rows = [g.value(item) for item in indices if item is not None]
    if any(row.dtype in ("bool", "uint8") for row in rows):
        raise UsageError(
            "picking by a mask cannot be exported",
            why="how much it gives depends on the values",
            hint="torch.where keeps the shape",
        )
    if len(rows) == 1:
        return pick(g, value, places[0], rows[0])
    if places != list(range(places[0], places[0] + len(places))):
        raise UsageError("indices on axes that are apart cannot be exported")
    # The indexed axes first; the axes of the indices stand there in the result.
    first, count = places[0], len(places)
    order = [*places, *(axis for axis in range(value.rank) if axis not in places)]
    moved = g.transpose(value, order)
    wide = rows[0]
    for row in rows[1:]:
        wide = g.binary("Add", wide, row)
    zeros = g.binary("Mul", g.cast(wide, "int64"), g.constant(0, "int64"))
    stacked = [g.unsqueeze(g.binary("Add", g.cast(row, "int64"), zeros), -1) for row in rows]
    joined = cat(g, stacked, -1)
    many = zeros.rank
    shape = (*(zeros.shape or ()), *(moved.shape or ())[count:])
    made = g.op("GatherND", [moved, joined], shape=shape)
    back = [*range(many, many + first), *range(many), *range(many + first, made.rank)]
    return g.transpose(made, back)


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@SHAPES.enter("pad", "constant_pad_nd")
def pad(
    g: Graph, x: Item, pad: Lengths, mode: Any = "constant", value: Item | None = None
) -> Value:
    if not isinstance(mode, str):
        mode, value = "constant", mode  # constant_pad_nd(x, pad, value)
    data = g.value(x)
    rank, pairs = data.rank, len(pad) // 2
    amounts: list[int | Value] = [0] * (2 * rank)
    for place in range(pairs):
        amounts[rank - 1 - place] = pad[2 * place]
        amounts[2 * rank - 1 - place] = pad[2 * place + 1]
    shape = tuple(
        dim + before + after
        if isinstance(dim, int) and isinstance(before, int) and isinstance(after, int)
        else dim
        if before == after == 0
        else None
        for dim, before, after in zip(data.shape or (), amounts[:rank], amounts[rank:], strict=True)
    )
    given = [data, g.vector(amounts)]
    if value is not None and mode == "constant":
        given.append(g.value(value, data.dtype))
    return g.op("Pad", given, {"mode": _MODES[mode]}, shape=shape)


def _edged(mode: str) -> Rule:
    return lambda g, x, padding: pad(g, x, padding, mode)


for _axes in (1, 2, 3):
    SHAPES[f"reflection_pad{_axes}d"] = _edged("reflect")
    SHAPES[f"replication_pad{_axes}d"] = _edged("replicate")


def plain(name: str | None, default: str) -> str:
    """A dtype to compute in."""
    name = name or default
    return "float32" if name in NARROW else name


@SHAPES.enter("arange.default")
def arange_to(g: Graph, end: Item, dtype: Type | None = None) -> Value:
    return arange(g, 0, end, 1, dtype)


@SHAPES.enter("arange")
def arange(g: Graph, start: Item, end: Item, step: Item = 1, dtype: Type | None = None) -> Value:
    items = (start, end, step)
    default = (
        "float32" if any(dtype_of(item) in ("float32", "float64") for item in items) else "int64"
    )
    wanted = plain(dtype_name(dtype), default)
    counted = wanted if wanted in ("int64", "int32", "float32", "float64") else default
    length: Dim = None
    numbers = [item for item in items if not isinstance(item, Value)]
    if len(numbers) == 3:
        length = max(0, math.ceil((numbers[1] - numbers[0]) / numbers[2]))
    elif start == 0 and step == 1 and isinstance(end, Value):
        length = end.symbol
    given = [g.value(item, counted) for item in items]
    return g.cast(g.op("Range", given, dtype=counted, shape=(length,)), wanted)


@SHAPES.enter("linspace.default")
def linspace(g: Graph, start: Item, end: Item, steps: int, dtype: Type | None = None) -> Value:
    wanted = plain(dtype_name(dtype), "float32")
    places = arange(g, 0, steps, 1, Type("float64"))
    step = arithmetic(g, "Div", [arithmetic(g, "Sub", [end, start]), float(max(steps - 1, 1))])
    made = arithmetic(g, "Add", [arithmetic(g, "Mul", [places, g.cast(step, "float64")]), start])
    return g.cast(made, wanted)


@SHAPES.enter("eye")
def eye(g: Graph, n: int | Value, m: Any = None, dtype: Type | None = None) -> Value:
    columns = arange(g, 0, n if m is None else m)
    rows = g.unsqueeze(arange(g, 0, n), 1)
    return g.cast(g.binary("Equal", rows, columns, "bool"), plain(dtype_name(dtype), "float32"))


@SHAPES.enter("full")
def full(g: Graph, size: Lengths, fill_value: Item, dtype: Type | None = None) -> Value:
    return filled(g, size, fill_value, plain(dtype_name(dtype), dtype_of(fill_value)))


def _constant_rules(const: int) -> tuple[Rule, Rule, Rule]:
    """What writes a tensor of one number: of a size, like another one, of a size and its dtype."""

    def of_size(g: Graph, size: Lengths, dtype: Type | None = None) -> Value:
        return filled(g, size, const, plain(dtype_name(dtype), "float32"))

    def of_tensor(g: Graph, x: Item, dtype: Type | None = None) -> Value:
        return full_like(g, x, const, dtype)

    def new(g: Graph, x: Item, size: Lengths, dtype: Type | None = None) -> Value:
        return new_full(g, x, size, const, dtype)

    return of_size, of_tensor, new


for _name, _const in (("zeros", 0), ("ones", 1), ("empty", 0)):
    SHAPES[_name], SHAPES[f"{_name}_like"], SHAPES[f"new_{_name}"] = _constant_rules(_const)


@SHAPES.enter("full_like")
def full_like(g: Graph, x: Item, fill_value: Item, dtype: Type | None = None) -> Value:
    value = g.value(x)
    wanted = plain(dtype_name(dtype), value.dtype)
    return filled(g, lengths_of(g, value), fill_value, wanted)


@SHAPES.enter("new_full")
def new_full(
    g: Graph, x: Item, size: Lengths, fill_value: Item, dtype: Type | None = None
) -> Value:
    return filled(g, size, fill_value, plain(dtype_name(dtype), dtype_of(x)))


@SHAPES.enter("scalar_tensor")
def scalar_tensor(g: Graph, s: Item, dtype: Type | None = None) -> Value:
    return converted(g, g.value(s), dtype_name(dtype) or "float32")


@SHAPES.enter("one_hot")
def one_hot(g: Graph, x: Item, num_classes: int = -1) -> Value:
    if num_classes < 0:
        raise UsageError("one_hot is exported with a number of classes only")
    value = g.value(x, "int64")
    ends = g.constant([0, 1], "int64")
    shape = None if value.shape is None else (*value.shape, num_classes)
    return g.op("OneHot", [value, g.constant(num_classes, "int64"), ends], shape=shape)


def _triangle(upper: int) -> Rule:
    def rule(g: Graph, x: Item, diagonal: int = 0) -> Value:
        value = g.value(x)
        wide = g.cast(value, "int64") if value.dtype in ("bool", "int32", "uint8") else value
        made = g.op("Trilu", [wide, g.constant(diagonal, "int64")], {"upper": upper})
        return g.cast(made, value.dtype)

    return rule


SHAPES["tril"], SHAPES["triu"] = _triangle(0), _triangle(1)


@SHAPES.enter("meshgrid")
def meshgrid(g: Graph, tensors: Sequence[Item], indexing: str = "ij") -> list[Value]:
    values = [g.value(each) for each in tensors]
    lengths = [g.length(each, 0) if each.rank else 1 for each in values]
    made = []
    for place, each in enumerate(values):
        flat = each if each.rank else g.unsqueeze(each, 0)
        around = [axis for axis in range(len(values)) if axis != place]
        made.append(expand(g, g.unsqueeze(flat, *around) if around else flat, lengths))
    if indexing == "xy" and len(made) > 1:
        made = [swap(g, each, 0, 1) for each in made]
    return made
