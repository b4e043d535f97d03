"""Which operations give a view of their first argument, and how a write into it is handed on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from dlv.adapters.aten.record import Argument, Call, Given, Ref, Tagged, Value
from dlv.dataclass import dataclass

_END = (1 << 63) - 1  # how torch writes that a slice has no end
Emit = Callable[[str, Sequence[Given], Value], str]
Size = Callable[[str, Value], list[Argument]]

# These return the tensor itself.
_SAME = frozenset({"detach", "alias", "lift_fresh", "positive", "resolve_conj", "resolve_neg"})
DROPOUTS = frozenset({"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"})
# The same elements in the same order, under another shape.
_SHAPED = frozenset(
    {
        "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as",
        "reshape_as", "ravel", "atleast_1d", "atleast_2d", "atleast_3d", "_unsafe_view",
        "_reshape_alias",
    }
)  # fmt: skip
_MOVED = frozenset(
    {
        "transpose", "t", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "numpy_T",
        "mT", "adjoint", "mH", "matrix_H",
    }
)  # fmt: skip
_PARTS = frozenset({"select", "slice", "narrow", "diagonal"})
_SPLITS = frozenset(
    {
        "split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split",
        "unsafe_split_with_sizes", "unsafe_chunk",
    }
)  # fmt: skip
# Views too, but no write through them can be told to the base.
_OTHERS = frozenset(
    {
        "expand", "expand_as", "broadcast_to", "as_strided", "unfold", "real", "imag",
        "view_as_real", "view_as_complex", "hsplit", "vsplit", "dsplit", "unbind", "_conj",
        "_neg_view", "broadcast_tensors", "meshgrid",
    }
)  # fmt: skip
# A view if the elements lie as it needs them, otherwise a copy.
_MAYBE = frozenset({"reshape", "flatten", "reshape_as", "ravel", "contiguous", "to", "type_as"})
# In place, these change how a tensor is looked at and none of its elements.
RENAMING = frozenset({"squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes_", "swapdims_"})
_VIEWS = _SAME | _SHAPED | _MOVED | _PARTS | _SPLITS | _OTHERS


@dataclass(frozen=True)
class View:
    """One step from a tensor to a view of it. Without `arguments` it cannot be taken again."""

    op: str
    arguments: tuple[Given, ...] | None = field(compare=False)
    value: Value | None = field(compare=False)
    same: bool = field(default=False, compare=False)
    key: str = ""


def is_view(call: Call, source: Value | None, result: Value | None) -> bool | None:
    """Whether a call gives a view of its first argument; None where that is not known."""
    if not call.aten or source is None or result is None or source.dtype is None:
        return False
    base = call.base
    if base in DROPOUTS:
        return call.get("train") is False or call.get("p") == 0
    shared = _shared(source, result)
    if base in _MAYBE:
        return _maybe(call, source, result) if shared is None else shared
    if base in _VIEWS:
        return True
    # An operation that is not known to give views, and did.
    return None if shared else False


def _shared(source: Value, result: Value) -> bool | None:
    """Whether two values were seen in the same memory."""
    if source.storage is None or result.storage is None:
        return None
    (scope, place), (other, there) = source.storage, result.storage
    return None if scope != other else place == there


def _maybe(call: Call, source: Value, result: Value) -> bool | None:
    order = call.get("memory_format")
    if call.base in ("to", "type_as"):
        if call.get("copy") is True or source.dtype != result.dtype:
            return False
        return True if order in (None, Tagged("memory_format", "preserve_format")) else None
    if call.base == "contiguous":
        return source.dense if order is None else None
    return True if source.dense else None


def view_steps(call: Call, values: Mapping[str, Value]) -> list[View]:
    """The step to each output of a call that gives views."""
    base, more = call.base, call.arguments[1:]
    if base in _SPLITS:
        return _pieces(call, values)
    held = [values.get(name or "") for name in call.outputs]
    if base in _SAME or base in DROPOUTS or base in ("contiguous", "to", "type_as"):
        return [View(call.op, (), value, True) for value in held]
    known = base in _SHAPED | _MOVED | _PARTS or base in ("expand", "expand_as")
    return [
        View(call.op, more if known else None, value, False, f"{port}{more}")
        for port, value in enumerate(held)
    ]


def _pieces(call: Call, values: Mapping[str, Value]) -> list[View]:
    """The pieces of a split, each as a slice."""
    held = [values.get(name or "") for name in call.outputs]
    axis = call.get("dim", 0)
    steps: list[View] = []
    start: int | None = 0
    for port, value in enumerate(held):
        length = None
        if value is not None and type(axis) is int and -len(value.shape) <= axis < len(value.shape):
            length = value.shape[axis]
        arguments = None
        if start is not None and isinstance(length, int):
            words = ("dim", "start", "end", "step")
            numbers = (axis, start, start + length, 1)
            arguments = tuple(Given(w, n) for w, n in zip(words, numbers, strict=True))
            start += length
        else:
            start = None
        key = f"{arguments}" if arguments else f"{call.name}:{port}"
        steps.append(View("aten.slice.Tensor", arguments, value, False, key))
    return steps


def inverse(step: View, above: str, new: str, value: Value, emit: Emit, size: Size) -> str | None:
    """The tensor `above`, of which `value` tells the shape, with `new` where the view is."""
    base = step.op.split(".")[1]
    if step.arguments is None or step.value is None:
        return None
    told = {given.name: given.value for given in step.arguments}
    if base in _SHAPED:
        return emit(
            "aten.reshape.default", [Given("self", Ref(new)), _sized(above, value, size)], value
        )
    if base in _MOVED:
        order = _order(base, told, len(value.shape))
        if order is None or (value.dtype or "").startswith("complex"):
            return None
        back = sorted(range(len(order)), key=order.__getitem__)
        return emit("aten.permute.default", [Given("self", Ref(new)), Given("dims", back)], value)
    if base in ("select", "slice", "narrow"):
        return _part(base, told, above, new, value, emit)
    if base == "diagonal":
        given = [Given("self", Ref(above)), Given("src", Ref(new)), *step.arguments]
        return emit("aten.diagonal_scatter.default", given, value)
    if base in ("expand", "expand_as"):
        return new if step.value.shape == value.shape else None
    return None


def _sized(above: str, value: Value, size: Size) -> Given:
    if sum(not isinstance(dim, int) for dim in value.shape) == 1 and 0 not in value.shape:
        return Given("shape", [dim if isinstance(dim, int) else -1 for dim in value.shape])
    return Given("shape", size(above, value))


def _order(base: str, named: Mapping[str, Argument], rank: int) -> list[int] | None:
    """Of each axis of the view, which one of the tensor it is."""
    order = list(range(rank))
    if base in ("numpy_T", "t"):
        return order[::-1]
    if base == "permute":
        dims = named.get("dims")
        if not isinstance(dims, list) or not all(type(d) is int for d in dims):
            return None
        return [dim % rank for dim in dims]
    if base in ("mT", "adjoint", "mH", "matrix_H"):
        first, second = rank - 2, rank - 1
    elif base in ("movedim", "moveaxis"):
        return _order_of_moved(named, rank)
    else:
        pair = [named.get(a, named.get(b)) for a, b in (("dim0", "axis0"), ("dim1", "axis1"))]
        if not all(type(axis) is int for axis in pair):
            return None
        first, second = (axis % rank for axis in pair) if rank else (0, 0)
    if rank:
        order[first], order[second] = order[second], order[first]
    return order


def _order_of_moved(named: Mapping[str, Argument], rank: int) -> list[int] | None:
    source, target = named.get("source"), named.get("destination")
    source = [source] if type(source) is int else source
    target = [target] if type(target) is int else target
    if not isinstance(source, list) or not isinstance(target, list) or not rank:
        return None
    places = {to % rank: at % rank for at, to in zip(source, target, strict=True)}
    rest = iter(axis for axis in range(rank) if axis not in places.values())
    return [places[axis] if axis in places else next(rest) for axis in range(rank)]


def _part(
    base: str, named: Mapping[str, Argument], above: str, new: str, value: Value, emit: Emit
) -> str | None:
    """Replace one part of a tensor: join the slices before and after it with the new part."""
    axis, rank = named.get("dim", 0), len(value.shape)
    if type(axis) is not int or not -rank <= axis < rank:
        return None
    axis %= rank
    length = value.shape[axis]
    if base == "select":
        index = named.get("index")
        if not isinstance(length, int) or type(index) is not int:
            words = [Given("dim", axis), Given("index", index)]
            source = [Given("self", Ref(above)), Given("src", Ref(new))]
            return emit("aten.select_scatter.default", [*source, *words], value)
        start, end = index % length, index % length + 1
        shape = (*value.shape[:axis], 1, *value.shape[axis + 1 :])
        given = [Given("self", Ref(new)), Given("dim", axis)]
        new = emit("aten.unsqueeze.default", given, Value(value.dtype, shape))
    elif base == "narrow":
        first, count = named.get("start"), named.get("length")
        if type(first) is not int or type(count) is not int or not isinstance(length, int):
            return None
        start = first % length if length else 0
        end = start + count
    else:
        first, last = named.get("start"), named.get("end")
        pace = named.get("step", 1)
        if first in (None, 0) and (last is None or last == _END) and pace == 1:
            return new
        whole = all(type(n) is int or n is None for n in (first, last, pace))
        if not isinstance(length, int) or not whole or pace != 1:
            return _scattered(named, axis, above, new, value, emit)
        start, end, _ = slice(first, last, pace).indices(length)
        end = max(start, end)
    pieces: list[Argument] = []
    if start:
        pieces.append(Ref(_slice(above, axis, 0, start, value, emit)))
    if end > start:
        pieces.append(Ref(new))
    if end < length:
        pieces.append(Ref(_slice(above, axis, end, length, value, emit)))
    if len(pieces) == 1 and isinstance(pieces[0], Ref):
        return pieces[0].name
    return emit("aten.cat.default", [Given("tensors", pieces), Given("dim", axis)], value)


def _slice(name: str, axis: int, start: int, end: int, value: Value, emit: Emit) -> str:
    shape = (*value.shape[:axis], end - start, *value.shape[axis + 1 :])
    words = (("dim", axis), ("start", start), ("end", end))
    given = [Given("self", Ref(name)), *(Given(word, number) for word, number in words)]
    return emit("aten.slice.Tensor", given, Value(value.dtype, shape))


def _scattered(
    named: Mapping[str, Argument], axis: int, above: str, new: str, value: Value, emit: Emit
) -> str:
    given = [Given("self", Ref(above)), Given("src", Ref(new)), Given("dim", axis)]
    given += [
        Given(word, named.get(word, 1 if word == "step" else None))
        for word in ("start", "end", "step")
    ]
    return emit("aten.slice_scatter.default", given, value)
