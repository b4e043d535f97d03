"""What each kind of RESHAPE does to numbers, and to the bounds on their errors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlv.dataclass import dataclass
from dlv.errors import UsageError
from dlv.kinds import Array
from dlv.network.ops.op import Node, NotRunnable
from dlv.network.sizes import axis_of

_MOST_BITS = 63
Number = int | float | bool


Lengths = tuple[int, ...]
Numbers = Sequence[int | float | bool]


@dataclass(frozen=True)
class Move:
    """`values` moves the numbers; `grids` does it to a grid of bounds, which may give several."""

    values: Callable[[Array], Array]
    grids: Callable[[Array], list[Array]]


def moves(node: Node, shape: Lengths, numbers: Numbers, sizes: Mapping[str, int]) -> list[Move]:
    """One for each output. `numbers`: the numbers that came in behind the tensor."""
    kind = node.attrs["kind"]
    if kind == "split":
        return _split(node, shape)
    if kind in ("view", "reshape"):
        return [_reshape(_filled(node, shape, node.attrs["size"], numbers, sizes), shape)]
    if kind == "expand":
        return [_expand(node, shape, node.attrs["size"], numbers, sizes)]
    if kind in ("slice", "select"):
        return [_cut(node, shape, numbers)]
    return [_MAKERS[kind](node.attrs, shape)]


def number(value: Array) -> int | float | bool:
    """A number that came in as an array without axes."""
    found: int | float | bool = value.item() if value.size == 1 else float("nan")
    # Bounds are computed on floats throughout.
    return int(found) if isinstance(found, float) and found.is_integer() else found


def lengths(
    node: Node, size: Sequence[Any], numbers: Numbers, sizes: Mapping[str, int]
) -> list[int]:
    """A size with the numbers that came in put in its open places.

    Symbols and unknowns come in, in this order; where none do, a symbol is that of the
    network's inputs, and one unknown is inferred.
    """
    unknown = [place for place, dim in enumerate(size) if dim is None]
    places = [place for place, dim in enumerate(size) if not isinstance(dim, int)]
    source: dict[int, int | float | bool] = {}
    if numbers and len(numbers) == len(places):
        source = dict(zip(places, numbers, strict=True))
    elif numbers and len(numbers) == len(unknown):
        source = dict(zip(unknown, numbers, strict=True))
    elif numbers:
        raise NotRunnable(
            node, f"{len(numbers)} lengths are given, {len(places)} are unknown in {size}"
        )
    elif len(unknown) == 1 and -1 not in size and node.attrs["kind"] in ("view", "reshape"):
        source = {unknown[0]: -1}
    elif unknown:
        raise NotRunnable(node, f"its size {list(size)} has unknown lengths")
    result = []
    for place, dim in enumerate(size):
        found = source[place] if place in source else sizes.get(dim, dim)
        if not isinstance(found, int):
            raise NotRunnable(node, f"nothing says how long {dim!r} is")
        result.append(int(found))
    return result


def _filled(
    node: Node, shape: Lengths, size: Sequence[Any], numbers: Numbers, sizes: Mapping[str, int]
) -> Lengths:
    """The same with the one length that follows from the others."""
    import dlv.network.bounds.grains as grains

    found = lengths(node, size, numbers, sizes)
    if -1 in found:
        place, total = found.index(-1), grains.count(shape, 0)
        rest = grains.count([length for length in found if length != -1], 0)
        if found.count(-1) > 1 or not rest or total % rest:
            raise NotRunnable(node, f"{total} numbers do not fill the size {list(found)}")
        found[place] = total // rest
    if grains.count(found, 0) != grains.count(shape, 0):
        raise NotRunnable(node, f"{grains.count(shape, 0)} numbers do not fill {list(found)}")
    return tuple(found)


def _reshape(new: Lengths, old: Lengths) -> Move:
    import dlv.network.bounds.grains as grains

    return Move(lambda x: x.reshape(new), lambda grid: grains.reshaped(grid, old, new))


def _flatten(attrs: Mapping[str, Any], shape: Lengths) -> Move:
    if not shape:
        return _reshape((1,), shape)
    import dlv.network.bounds.grains as grains

    start, end = (axis_of(attrs[name], len(shape), name) for name in ("start", "end"))
    joined = grains.count(shape[start : end + 1], 0)
    return _reshape((*shape[:start], joined, *shape[end + 1 :]), shape)


def _turn(axes: Sequence[int]) -> Move:
    return Move(lambda x: x.transpose(axes), lambda grid: [grid.transpose(axes)])


def _transpose(attrs: Mapping[str, Any], shape: Lengths) -> Move:
    axes = list(range(len(shape)))
    first, second = (axis_of(axis, len(shape), "axis") for axis in attrs["axes"])
    if axes:
        axes[first], axes[second] = second, first
    return _turn(axes)


def _permute(attrs: Mapping[str, Any], shape: Lengths) -> Move:
    return _turn([axis_of(axis, len(shape), "axis") for axis in attrs["axes"]])


def _squeeze(attrs: Mapping[str, Any], shape: Lengths) -> Move:
    named = attrs["axis"]
    rank = len(shape)
    axes = range(rank) if named is None else [axis_of(axis, rank, "axis") for axis in named]
    gone = tuple(axis for axis in axes if rank and shape[axis] == 1)
    return Move(lambda x: x.squeeze(gone), lambda grid: [grid.squeeze(gone)])


def _unsqueeze(attrs: Mapping[str, Any], shape: Lengths) -> Move:
    import numpy as np

    place = axis_of(attrs["axis"], len(shape) + 1, "axis")
    return Move(lambda x: np.expand_dims(x, place), lambda grid: [np.expand_dims(grid, place)])


def _expand(
    node: Node, shape: Lengths, size: Sequence[Any], numbers: Numbers, sizes: Mapping[str, int]
) -> Move:
    found = lengths(node, size, numbers, sizes)
    new = len(found) - len(shape)
    if new < 0 or -1 in found[:new]:
        raise NotRunnable(node, f"{list(shape)} cannot be expanded to {found}")
    import numpy as np

    wanted = tuple(
        shape[place - new] if length == -1 else length for place, length in enumerate(found)
    )
    own = (*(1,) * new, *shape)

    def grids(grid: Array) -> list[Array]:
        grid = grid.reshape((1,) * new + grid.shape)
        # An axis that is repeated becomes whole: each copy has the error once more.
        kept = tuple(
            length if have != length else there
            for have, length, there in zip(own, wanted, grid.shape, strict=True)
        )
        return [np.broadcast_to(grid, kept)]

    return Move(lambda x: np.broadcast_to(x, wanted), grids)


def _piece(shape: Lengths, place: int, piece: slice | int) -> Move:
    index = (*(slice(None),) * place, piece)
    first = (*(slice(None),) * place, 0 if isinstance(piece, int) else slice(None))

    def grids(grid: Array) -> list[Array]:
        # A norm over the whole axis bounds that over a part of it.
        whole = grid.shape[place] == shape[place]
        return [grid[index if whole else first]]

    return Move(lambda x: x[index], grids)


def _cut(node: Node, shape: Lengths, numbers: Numbers) -> Move:
    attrs = node.attrs
    axis = attrs["axis"]
    if attrs["kind"] == "select":
        names: tuple[str, ...] = ("axis", "index")
    else:
        names = ("axis", "start", "end", "step")
    told: dict[str, Any] = {name: attrs[name] for name in names}
    if numbers:
        told.update(_recorded(node, names, numbers))
        axis = told["axis"]
    place = axis_of(axis, len(shape), "axis")
    if attrs["kind"] == "slice":
        return _piece(shape, place, slice(told["start"], told["end"], told["step"]))
    index, length = told["index"], shape[place]
    if not -length <= index < length:
        raise NotRunnable(node, f"index {index} does not exist on an axis of {length}")
    return _piece(shape, place, int(index))


def _recorded(node: Node, names: Sequence[str], numbers: Numbers) -> dict[str, Any]:
    """Attributes of a cut whose numbers came in, by the recorded call."""
    args = (node.source or {}).get("args")
    result: dict[str, Any] = {}
    used = 0
    for name, item in zip(names, args[1:] if isinstance(args, list) else [], strict=False):
        [(tag, value)] = item.items() if isinstance(item, dict) and len(item) == 1 else [("", 0)]
        if tag == "n" and 1 <= value <= len(numbers):
            result[name] = numbers[value - 1]
            used += 1
        elif tag == "c":
            result[name] = value
    if used != len(numbers):
        raise NotRunnable(
            node,
            "inputs other than the data do not fit its attributes",
            hint="dlv eval --engine torch",
        )
    return result


def _split(node: Node, shape: Lengths) -> list[Move]:
    place = axis_of(node.attrs["axis"], len(shape), "axis")
    pieces, start = [], 0
    for size in node.attrs["sizes"]:
        pieces.append(_piece(shape, place, slice(start, start + size)))
        start += size
    if start != shape[place]:
        raise NotRunnable(node, f"its pieces add up to {start}, the axis has {shape[place]}")
    return pieces


def _unchanged(attrs: Mapping[str, Any], shape: Lengths) -> Move:  # noqa: ARG001
    return Move(lambda x: x, lambda grid: [grid])


_MAKERS: Mapping[str, Callable[[Mapping[str, Any], Lengths], Move]] = {
    "flatten": _flatten,
    "transpose": _transpose,
    "permute": _permute,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    # How numbers lie in memory is nobody's concern here; which output is meant is resolved before.
    "contiguous": _unchanged,
    "getitem": _unchanged,
    "to": _unchanged,
}


def filled_array(node: Node, numbers: Numbers, sizes: Mapping[str, int]) -> Array:
    """What is filled from numbers alone, or worked out of them."""
    import numpy as np

    attrs = node.attrs
    if attrs["kind"] == "fill":
        return np.full(lengths(node, attrs["size"], numbers, sizes), attrs["const"], _dtype(node))
    found = evaluate(node, numbers)
    if found is None:
        raise NotRunnable(
            node,
            f"{attrs['operator']!r} of {len(numbers)} numbers is unknown",
            hint="dlv eval --engine torch",
        )
    return np.asarray(found)


def _dtype(node: Node) -> str:
    """Fills are float32 but where the recorded call says something else."""
    kwargs = (node.source or {}).get("kwargs")
    asked = kwargs.get("dtype") if isinstance(kwargs, dict) else None
    name = asked.get("dtype") if isinstance(asked, dict) else None
    return str(name) if name in ("bool", "uint8", "int8", "int16", "int32", "int64") else "float32"


# Arithmetic on sizes: the numbers about shapes that plumbing needs at run time.


def _power(base: Any, exponent: Any) -> Any:
    """Of sizes: what cannot be one is not worked out."""
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and base.bit_length() * max(exponent, 0) > 4 * _MOST_BITS:
        raise UsageError(f"{base} ** {exponent} is not a size")
    return base**exponent


def _choose(condition: Any, first: Any, second: Any) -> Any:
    return first if condition else second


_FUNCTIONS: Mapping[str, tuple[int, Callable[..., Any]]] = {
    "add": (2, operator.add),
    "sub": (2, operator.sub),
    "mul": (2, operator.mul),
    "floordiv": (2, operator.floordiv),
    "truediv": (2, operator.truediv),
    "mod": (2, operator.mod),
    "neg": (1, operator.neg),
    "pos": (1, operator.pos),
    "abs": (1, abs),
    "pow": (2, _power),
    "eq": (2, operator.eq),
    "ne": (2, operator.ne),
    "lt": (2, operator.lt),
    "le": (2, operator.le),
    "gt": (2, operator.gt),
    "ge": (2, operator.ge),
    "and_": (2, operator.and_),
    "or_": (2, operator.or_),
    "not_": (1, operator.not_),
    "not": (1, operator.not_),
    "ceil": (1, math.ceil),
    "floor": (1, math.floor),
    "trunc": (1, math.trunc),
    "int": (1, int),
    "float": (1, float),
    "round": (1, round),
    "sqrt": (1, math.sqrt),
    "max": (2, max),
    "min": (2, min),
    "ite": (3, _choose),
}


def evaluate(node: Node, numbers: Sequence[Number]) -> Number | None:
    """The number that an `arithmetic` node works out; None where its attributes do not say how.

    Numbers that stood in the exported call are in its `source` alone.
    """
    word = str(node.attrs["operator"]).rpartition(".")[2].removeprefix("sym_")
    numbers = _arguments(node, numbers)
    try:
        if word == "sum":
            return sum(numbers)
        count, function = _FUNCTIONS.get(word, (None, None))
        if function is None or count != len(numbers):
            return None
        found: Number = function(*numbers)
        return found
    except (ArithmeticError, TypeError, ValueError) as error:
        raise UsageError(f"{word} of {', '.join(map(str, numbers))}", why=str(error)) from error


def _arguments(node: Node, numbers: Sequence[Number]) -> Sequence[Number]:
    """What comes in, between the constants of the recorded call."""
    recorded = (node.source or {}).get("args")
    if not isinstance(recorded, list):
        return numbers
    result: list[Number] = []
    for item in recorded:
        if not isinstance(item, dict) or len(item) != 1:
            return numbers
        [(tag, value)] = item.items()
        if tag == "n" and type(value) is int and 0 <= value < len(numbers):
            result.append(numbers[value])
        elif tag == "c" and isinstance(value, int | float):
            result.append(value)
        else:
            return numbers
    return result
