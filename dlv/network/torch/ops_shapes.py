"""RESHAPE in torch: plumbing, and the numbers about shapes that it needs at run time."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlv.network.graph import Node
from dlv.network.torch.types import Call, Run, dtype_of, refuse, torch

_MOST_BITS = 63


def _power(base: Any, exponent: Any) -> Any:
    """Of sizes: what cannot be one is not worked out."""
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and base.bit_length() * max(exponent, 0) > 4 * _MOST_BITS:
        raise OverflowError(f"{base} ** {exponent} is not a size")
    return base**exponent


# All functions beside torch.ops.aten that a network may name; arithmetic on sizes needs them.
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "truediv": operator.truediv,
    "mod": operator.mod,
    "neg": operator.neg,
    "pos": operator.pos,
    "abs": operator.abs,
    "pow": _power,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "and_": operator.and_,
    "or_": operator.or_,
    "not_": torch.sym_not,
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
    "round": round,
    "sqrt": math.sqrt,
    # Attributes say them without `sym_`.
    **{
        word: getattr(torch, f"sym_{name}")
        for name in ("max", "min", "int", "float", "not", "sum", "ite")
        for word in (name, f"sym_{name}")
    },
}
_HOMES = {
    "operator": {
        *("add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "pos", "abs", "pow"),
        *("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "not_"),
    },
    "math": {"ceil", "floor", "trunc", "sqrt", "pow"},
    "builtins": {"round", "abs", "pow"},
    "torch": {"sym_max", "sym_min", "sym_int", "sym_float", "sym_not", "sym_sum", "sym_ite"},
}
_UNARY = {
    *("neg", "pos", "abs", "not_", "ceil", "floor", "trunc", "round", "sqrt"),
    *("int", "float", "not"),
}


def function_of(name: str) -> Callable[..., Any] | None:
    """The function on sizes of that name, "operator.mul" or "mul"; None if it is not one."""
    home, dot, word = name.rpartition(".")
    if dot and word not in _HOMES.get(home.removeprefix("_"), ()):
        return None
    return FUNCTIONS.get(word)


def reshape(node: Node) -> Run:
    return _MAKERS[node.attrs["kind"]](node)


def _sizes(node: Node, size: Sequence[Any], first: int) -> Callable[[Call], list[Any]]:
    """Lengths of `size`: symbols and unknowns come in at the ports from `first` on.

    Where none come in, a symbol is that of the network's inputs, and one unknown is inferred.
    """
    ports = len(node.inputs) - first
    unknown = [place for place, dim in enumerate(size) if dim is None]
    open_places = [place for place, dim in enumerate(size) if not isinstance(dim, int)]
    source: dict[int, int] = {}
    if ports == len(open_places):
        source = {place: first + index for index, place in enumerate(open_places)}
    elif ports == len(unknown):
        source = {place: first + index for index, place in enumerate(unknown)}
    elif ports:
        raise refuse(node, f"{ports} lengths come in, {len(open_places)} are open in {size}")
    elif len(unknown) == 1 and -1 not in size and node.attrs["kind"] in ("view", "reshape"):
        size = [-1 if dim is None else dim for dim in size]
    elif unknown:
        raise refuse(node, f"its size {list(size)} has unknown lengths")

    def made(call: Call) -> list[Any]:
        result = []
        for place, dim in enumerate(size):
            if place in source:
                result.append(call.inputs[source[place]])
            elif isinstance(dim, str):
                if dim not in call.sizes:
                    raise refuse(node, f"nothing says how long {dim!r} is")
                result.append(call.sizes[dim])
            else:
                result.append(dim)
        return result

    return made


def _view(node: Node) -> Run:
    sizes = _sizes(node, node.attrs["size"], 1)
    return lambda call: call.inputs[0].reshape(sizes(call))


def _expand(node: Node) -> Run:
    sizes = _sizes(node, node.attrs["size"], 1)
    return lambda call: call.inputs[0].expand(sizes(call))


def _fill(node: Node) -> Run:
    sizes, const = _sizes(node, node.attrs["size"], 0), node.attrs["const"]
    return lambda call: torch.full(sizes(call), const, device=call.device)


def _flatten(node: Node) -> Run:
    start, end = node.attrs["start"], node.attrs["end"]
    return lambda call: call.inputs[0].flatten(start, end)


def _transpose(node: Node) -> Run:
    first, second = node.attrs["axes"]
    return lambda call: call.inputs[0].transpose(first, second)


def _permute(node: Node) -> Run:
    axes = node.attrs["axes"]
    return lambda call: call.inputs[0].permute(axes)


def _squeeze(node: Node) -> Run:
    axis = node.attrs["axis"]
    if axis is None:
        return lambda call: call.inputs[0].squeeze()
    return lambda call: call.inputs[0].squeeze(axis)


def _unsqueeze(node: Node) -> Run:
    axis = node.attrs["axis"]
    return lambda call: call.inputs[0].unsqueeze(axis)


def _select(node: Node) -> Run:
    axis, index = node.attrs["axis"], node.attrs["index"]
    _only(node, 1)
    return lambda call: call.inputs[0].select(axis, index)


def _slice(node: Node) -> Run:
    attrs = node.attrs
    axis, start, end, step = attrs["axis"], attrs["start"], attrs["end"], attrs["step"]
    _only(node, 1)
    cut = torch.ops.aten.slice.Tensor
    return lambda call: cut(call.inputs[0], axis, start, end, step)


def _only(node: Node, count: int) -> None:
    if len(node.inputs) > count:
        raise refuse(
            node,
            "inputs other than the data do not fit its attributes",
            hint="keep the layer as it was imported, with its `source`",
        )


def _split(node: Node) -> Run:
    axis, sizes = node.attrs["axis"], node.attrs["sizes"]
    return lambda call: call.inputs[0].split(sizes, axis)


def _contiguous(node: Node) -> Run:  # noqa: ARG001
    return lambda call: call.inputs[0].contiguous()


def _to(node: Node) -> Run:
    name = node.attrs["dtype"]
    if name is None:
        return lambda call: call.inputs[0]
    dtype = dtype_of(name)
    return lambda call: call.inputs[0].to(dtype)


def _getitem(node: Node) -> Run:
    index = node.attrs["index"]
    return lambda call: call.inputs[0][index]


def _size(node: Node) -> Run:
    axis = node.attrs["axis"]
    return lambda call: call.inputs[0].shape[axis]


def _arithmetic(node: Node) -> Run:
    name = node.attrs["operator"]
    function = function_of(name)
    if function is None:
        raise refuse(node, f"{name!r} is not a function on sizes")
    word, count = name.rpartition(".")[2].removeprefix("sym_"), len(node.inputs)
    if word == "sum":
        return lambda call: function(list(call.inputs))
    wanted = 1 if word in _UNARY else 3 if word == "ite" else 2
    if count != wanted:
        raise refuse(
            node,
            f"{name} takes {wanted} numbers, {count} come in",
            hint="only its `source` has the numbers of the call",
        )
    return lambda call: function(*call.inputs)


_MAKERS: Mapping[str, Callable[[Node], Run]] = {
    "flatten": _flatten,
    "view": _view,
    "reshape": _view,
    "transpose": _transpose,
    "permute": _permute,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "select": _select,
    "slice": _slice,
    "expand": _expand,
    "split": _split,
    "contiguous": _contiguous,
    "to": _to,
    "getitem": _getitem,
    "size": _size,
    "arithmetic": _arithmetic,
    "fill": _fill,
}
