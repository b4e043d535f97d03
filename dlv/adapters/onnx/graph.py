"""An ONNX graph while it grows: values with dtype and shape, constants, operators, names.

Operands are brought to one dtype as torch promotes them; calls of aten are read as recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, TypeVar

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.onnx.messages import Array, Plain, elements, sound
from dlv.canonical import NON_FINITE, float_of
from dlv.dataclass import dataclass
from dlv.dtypes import STRUCT_CODES
from dlv.errors import UsageError
from dlv.network.graph import Node
from dlv.network.sizes import Dim, Shape, axis_of, broadcast, refill

# Runtimes have next to no kernels for these: they are kept, and computed in float32.
NARROW = frozenset(("bfloat16", "float8_e4m3", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"))
FLOATS = frozenset(("float16", "float32", "float64"))
WHOLE = frozenset(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"))
# Most numbers that are written out where the network only says how many.
MOST_NUMBERS = 1 << 22

# Stands for: the shape of the first input.
SAME: Shape = ("the same",)


@dataclass(frozen=True)
class Value:
    """A tensor of the graph. `weak`: a length known at run time, kept as a list of one."""

    id: int
    dtype: str
    shape: Shape | None
    weak: bool = False
    symbol: str | None = None  # of a length: the symbol that it stands for

    @property
    def rank(self) -> int:
        if self.shape is None:
            raise UsageError(
                "the rank of its input is unknown", hint="an operation before it has no shape"
            )
        return len(self.shape)


# What stands at a port: a tensor, or a number that is known already.
Item = Value | int | float | bool


@dataclass
class _Step:
    kind: str
    inputs: list[int | None]
    outputs: list[int]
    attrs: Mapping[str, Any]
    scope: str
    domain: str = ""
    needs: Sequence[int] = ()  # values that its own graphs use by name


def dtype_of(item: Item) -> str:
    if isinstance(item, Value):
        return item.dtype
    return "bool" if isinstance(item, bool) else "int64" if isinstance(item, int) else "float32"


def merged(a: Shape | None, b: Shape | None) -> Shape | None:
    """Two shapes of one tensor: of each axis what says most."""
    if a is None or b is None or len(a) != len(b):
        return b if a is None else a
    return tuple(
        y if x is None or (isinstance(x, str) and isinstance(y, int)) else x
        for x, y in zip(a, b, strict=True)
    )


class Graph:
    """Everything is added under the name of the node at work, `scope`."""

    def __init__(self, tensors: Mapping[str, Tensor], aliases: Mapping[str, str]) -> None:
        self.scope = ""
        self.ports: Set[int] = frozenset()  # the outputs of the node at work that are read
        self.steps: list[_Step] = []
        self.stored: dict[str, Value] = {}  # tensors in use, by name
        self.inputs: dict[str, Value] = {}
        self.opsets: dict[str, int] = {}
        self.notes: dict[str, None] = {}
        self.unsure: set[int] = set()  # values whose dtype is likely, not known
        self.zeros: set[int] = set()  # what is known to be filled with nothing but zeros
        self.plain: dict[int, Value] = {}  # what was cast to be computed in -> what it was
        self.fixed: dict[int, str] = {}  # names that graphs within operators speak of
        self._tensors = tensors
        self._aliases = aliases
        self.last = 0  # the newest value
        self.values: dict[int, Value] = {}
        self.made: dict[int, Array] = {}  # what is made here; named after who needed it first
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Value] = {}
        self._casts: dict[tuple[int, str], Value] = {}
        self._lengths: dict[tuple[int, int], Value] = {}
        self._symbols: dict[str, tuple[Value, int]] = {}

    def new(self, dtype: str, shape: Shape | None, **more: Any) -> Value:
        self.last += 1
        made = self.values[self.last] = Value(self.last, dtype, shape, **more)
        return made

    def input(self, name: str, dtype: str, shape: Shape) -> Value:
        """An input of the model; the first one to name a symbol says what it stands for."""
        made = self.inputs[name] = self.new(dtype, shape)
        for axis, dim in enumerate(shape):
            if isinstance(dim, str):
                self._symbols.setdefault(dim, (made, axis))
        return self.computed(made)

    def computed(self, value: Value) -> Value:
        """The same in a dtype that runtimes compute in."""
        if value.dtype not in NARROW:
            return value
        self.notes[f"{value.dtype} is kept in the file and computed in float32"] = None
        made = self.cast(value, "float32")
        self.plain[made.id] = value
        return made

    def tensor(self, name: str) -> Value:
        """A stored tensor; those that are tied are one."""
        name = self.untied(name)
        if name not in self.stored:
            if name not in self._tensors:
                raise UsageError(
                    f"the tensor {name!r} is not there", hint="export a version with its weights"
                )
            tensor = self._tensors[name]
            self.stored[name] = self.new(tensor.dtype, tensor.shape)
        return self.computed(self.stored[name])

    def untied(self, name: str) -> str:
        return self._aliases.get(name, name)

    def weight(self, node: Node, slot: str, dtype: str) -> Value:
        """The tensor in a slot, in the dtype that the data have."""
        if slot not in node.params:
            raise UsageError(f"no tensor is named for the slot {slot!r}")
        return self.cast(self.tensor(node.params[slot]), dtype)

    def op(
        self,
        kind: str,
        inputs: Sequence[Value | None],
        attrs: Mapping[str, Any] | None = None,
        *,
        dtype: str | None = None,
        shape: Shape | None = SAME,
    ) -> Value:
        """An operator with one output; without `dtype` and `shape` it is like its first input."""
        first = inputs[0] if inputs else None
        like = first if first is not None else Value(0, "float32", None)
        kept = like.shape if shape is SAME else shape
        return self.ops(kind, inputs, [(dtype or like.dtype, kept)], attrs)[0]

    def ops(
        self,
        kind: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[tuple[str, Shape | None]],
        attrs: Mapping[str, Any] | None = None,
        domain: str = "",
    ) -> list[Value]:
        for name, value in (attrs or {}).items():
            if not isinstance(value, Type) and not sound(value):
                raise UsageError(f"{kind} takes no such {name}", why=repr(value)[:80])
        made = [self.new(dtype, shape) for dtype, shape in outputs]
        given = [None if item is None else item.id for item in inputs]
        while given and given[-1] is None:
            given.pop()
        ids = [value.id for value in made]
        self.steps.append(_Step(kind, given, ids, attrs or {}, self.scope, domain))
        return made

    def constant(
        self, values: float | Sequence[float], dtype: str, shape: tuple[int, ...] | None = None
    ) -> Value:
        """Numbers as an initializer; equal ones are written once."""
        if isinstance(values, (int, float)):
            values, shape = [values], () if shape is None else shape
        shape = (len(values),) if shape is None else shape
        if dtype not in STRUCT_CODES:
            raise UsageError(f"numbers of dtype {dtype} cannot be exported")
        key = (dtype, shape, elements(dtype, values))
        if key not in self._constants:
            made = self._constants[key] = self.new(dtype, shape)
            self.made[made.id] = Array(self.scope, dtype, shape, Plain(key[2]))
        return self._constants[key]

    def ints(self, *values: int) -> Value:
        return self.constant(values, "int64")

    def value(self, item: Item, dtype: str | None = None) -> Value:
        """A port's content as a tensor, cast if a dtype is given."""
        if not isinstance(item, Value):
            return self.constant(item, dtype or dtype_of(item))
        if item.weak:
            item = self.op("Squeeze", [item, self.ints(0)], shape=())
        return item if dtype is None else self.cast(item, dtype)

    def cast(self, value: Value, dtype: str) -> Value:
        if value.dtype == dtype:
            return value
        key = value.id, dtype
        if key not in self._casts:
            self._casts[key] = self.op("Cast", [value], {"to": Type(dtype)}, dtype=dtype)
        return replace(self._casts[key], shape=value.shape)

    def length(self, value: Value, axis: int) -> int | Value:
        """How long an axis is: a number, or what will be known at run time."""
        axis = axis_of(axis, value.rank, "axis")
        dim = (value.shape or ())[axis]
        if isinstance(dim, int):
            return dim
        key = value.id, axis
        if key not in self._lengths:
            attrs = {"start": axis, "end": axis + 1}
            found = self.op("Shape", [value], attrs, dtype="int64", shape=(1,))
            self._lengths[key] = replace(found, weak=True, symbol=dim)
        return self._lengths[key]

    def symbol(self, name: str) -> int | Value:
        """What a symbol stands for, by the input that has it."""
        if name not in self._symbols:
            raise UsageError(f"no input of the network has an axis {name!r}")
        return self.length(*self._symbols[name])

    def vector(self, items: Sequence[int | Value]) -> Value:
        """Lengths as one list."""
        parts: list[Value] = []
        plain: list[int] = []
        for item in (*items, None):
            if isinstance(item, int):
                plain.append(item)
                continue
            if plain:
                parts.append(self.ints(*plain))
                plain = []
            if item is not None:
                listed = item if item.weak else self.reshape(item, [1])
                parts.append(self.cast(listed, "int64"))
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return self.constant([], "int64", (0,))
        return self.op("Concat", parts, {"axis": 0}, shape=(len(items),))

    def reshape(self, value: Value, items: Sequence[int | Value]) -> Value:
        """A view of these lengths, one of which may be -1; few of them are read at run time."""
        have = value.shape
        dims = tuple(dim_of(item) for item in items)
        shape = (
            refill(have, dims)
            if have is not None
            else tuple(None if dim == -1 else dim for dim in dims)
        )
        if have is not None and shape == have and None not in shape:
            return value
        wanted, attrs = list(items), {}
        if 0 in dims:
            attrs["allowzero"] = 1
        else:
            for axis, item in enumerate(items[: len(have or ())]):
                if isinstance(item, Value) and item.symbol and item.symbol == (have or ())[axis]:
                    wanted[axis] = 0  # as long as it was
            open_ = [axis for axis, item in enumerate(wanted) if isinstance(item, Value)]
            if len(open_) == 1 and -1 not in dims:
                wanted[open_[0]] = -1
        return self.op("Reshape", [value, self.vector(wanted)], attrs, shape=shape)

    def like(self, value: Value, model: Value) -> Value:
        """`value` in the shape of `model`, which has as many elements."""
        if model.shape is not None and sum(not isinstance(dim, int) for dim in model.shape) <= 1:
            dims = [dim if isinstance(dim, int) else -1 for dim in model.shape]
            if 0 not in dims:
                return self.op("Reshape", [value, self.ints(*dims)], shape=model.shape)
        lengths = self.op("Shape", [model], dtype="int64", shape=None)
        return self.op("Reshape", [value, lengths], {"allowzero": 1}, shape=model.shape)

    def transpose(self, value: Value, order: Sequence[int]) -> Value:
        if list(order) == list(range(len(order))):
            return value
        shape = None if value.shape is None else tuple(value.shape[axis] for axis in order)
        return self.op("Transpose", [value], {"perm": list(order)}, shape=shape)

    def unsqueeze(self, value: Value, *axes: int) -> Value:
        rank = value.rank + len(axes)
        places = sorted(axis_of(axis, rank, "axis") for axis in axes)
        shape: list[Dim] = list(value.shape or ())
        for place in places:
            shape.insert(place, 1)
        return self.op("Unsqueeze", [value, self.ints(*places)], shape=tuple(shape))

    def squeeze(self, value: Value, *axes: int) -> Value:
        gone = {axis_of(axis, value.rank, "axis") for axis in axes}
        shape = tuple(dim for place, dim in enumerate(value.shape or ()) if place not in gone)
        return self.op("Squeeze", [value, self.ints(*sorted(gone))], shape=shape)

    def binary(self, kind: str, a: Value, b: Value, dtype: str | None = None) -> Value:
        """An operator over two tensors of one dtype that are broadcast together."""
        shape = None
        if a.shape is not None and b.shape is not None:
            shape = broadcast([a.shape, b.shape])
        return self.op(kind, [a, b], dtype=dtype or a.dtype, shape=shape)

    def reduce(
        self, kind: str, value: Value, axes: Sequence[int] | None, keep: bool, **attrs: Any
    ) -> Value:
        """ReduceSum and its like; no axes: all."""
        shape: Shape | None = None if axes is not None else ()
        if value.shape is not None:
            rank = value.rank
            gone = set(range(rank)) if axes is None else {axis_of(a, rank, "axis") for a in axes}
            pairs = enumerate(value.shape)
            shape = tuple(
                1 if place in gone else dim for place, dim in pairs if keep or place not in gone
            )
        given = [value] if axes is None else [value, self.ints(*axes)]
        return self.op(kind, given, {"keepdims": int(keep), **attrs}, shape=shape)

    def slice(
        self, value: Value, axis: int, start: int | Value, end: int | Value, step: int = 1
    ) -> Value:
        shape = None
        if value.shape is not None:
            axis = axis_of(axis, value.rank, "axis")
            length = value.shape[axis]
            cut: Dim = None
            if isinstance(length, int) and isinstance(start, int) and isinstance(end, int):
                cut = len(range(*slice(start, end, step).indices(length)))
            shape = (*value.shape[:axis], cut, *value.shape[axis + 1 :])
        given = [value, self.vector([start]), self.vector([end]), self.ints(axis), self.ints(step)]
        return self.op("Slice", given if step != 1 else given[:4], shape=shape)

    def where(self, condition: Value, yes: Value, no: Value) -> Value:
        shape = None
        shapes = [condition.shape, yes.shape, no.shape]
        known = [each for each in shapes if each is not None]
        if len(known) == 3:
            shape = broadcast(known)
        return self.op("Where", [condition, yes, no], dtype=yes.dtype, shape=shape)


def dim_of(item: int | Value) -> Dim:
    return item if isinstance(item, int) else item.symbol


@dataclass(frozen=True)
class Type:
    """A dtype as an attribute of an operator or an argument of a call."""

    dtype: str


# What writes one operation of the vocabulary.
Writer = Callable[[Graph, Node, Sequence[Item]], Item | Sequence[Item]]


_SIGNED = ("int8", "int16", "int32", "int64")
_FLOATING = ("float16", "float32", "float64")


def category(dtype: str) -> int:
    """0 for truth values, 1 for whole numbers, 2 for fractions, 3 for complex numbers."""
    if dtype == "bool":
        return 0
    if dtype.startswith("complex"):
        return 3
    return 2 if dtype in FLOATS else 1


def common(a: str, b: str) -> str:
    """The dtype that two tensors of the same standing meet in."""
    if a == b:
        return a
    low, high = sorted((a, b), key=category)
    if category(low) != category(high):
        return high
    if low in _FLOATING:
        return max(low, high, key=_FLOATING.index)
    if low in _SIGNED and high in _SIGNED:
        return max(low, high, key=_SIGNED.index)
    if low.startswith("complex"):
        return "complex128"
    # An unsigned one beside a signed one of its width needs the next.
    widths = [int(dtype.removeprefix("u").removeprefix("int")) for dtype in (low, high)]
    if low.startswith("u") and high.startswith("u"):
        return f"uint{max(widths)}"
    unsigned = widths[0] if low.startswith("u") else widths[1]
    signed = widths[1] if low.startswith("u") else widths[0]
    return f"int{min(64, signed if signed > unsigned else 2 * unsigned)}"


def promoted(items: Sequence[Item]) -> str:
    """The dtype of a result: tensors outrank scalars, and those outrank plain numbers."""
    found: list[str | None] = [None, None, None]
    for item in items:
        plain = not isinstance(item, Value) or item.weak
        tier = 2 if plain else int(isinstance(item, Value) and item.shape == ())
        before = found[tier]
        dtype = dtype_of(item)
        found[tier] = dtype if before is None else common(before, dtype)
    result: str | None = None
    for each in found:
        if each is None:
            continue
        if result is None or category(each) > category(result):
            result = each if result is None else common(result, each)
    return result or "float32"


def together(
    g: Graph, items: Sequence[Item], *, fractions: bool = False, least: str | None = None
) -> list[Value]:
    """The items as tensors of one dtype; `fractions`: a floating one, whatever they are."""
    dtype = promoted(items)
    if fractions and category(dtype) < 2:
        dtype = "float32"
    if least is not None and category(dtype) < category(least):
        dtype = least
    return [g.value(item, dtype) for item in items]


def fractions(g: Graph, item: Item) -> Value:
    """One item as a tensor of a floating dtype."""
    return together(g, [item], fractions=True)[0]


_LOGICAL = {"Add": "Or", "Mul": "And"}


def arithmetic(g: Graph, kind: str, items: Sequence[Item]) -> Value:
    """Add, Mul, Sub, .. of two or more, one after the other."""
    values = together(g, items)
    result = values[0]
    for value in values[1:]:
        logical = result.dtype == "bool" and kind in _LOGICAL
        result = g.binary(_LOGICAL[kind] if logical else kind, result, value)
    return result


# Where and how tensors lie, which makes no difference to what they hold.
_IGNORED = frozenset(
    ("device", "layout", "memory_format", "pin_memory", "requires_grad", "non_blocking", "copy")
)
_MOST_DEPTH = 8


# What writes one operation: the graph, then the call's own arguments.
Rule = Callable[..., Item | Sequence[Item]]


F = TypeVar("F", bound=Rule)


class Rules(dict[str, Rule]):
    """Rules by the names of the operations that they write."""

    def enter(self, *names: str) -> Callable[[F], F]:
        """Decorate a function to enter it under these names."""

        def entered(rule: F) -> F:
            self.update(dict.fromkeys(names, rule))
            return rule

        return entered


def dtype_name(type_: Type | None) -> str | None:
    return None if type_ is None else type_.dtype


def dialect(node: Node) -> str | None:
    return None if node.source is None else node.source.get("dialect")


def arguments(g: Graph, node: Node, inputs: Sequence[Item]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named arguments: items, plain values, Types, and lists of these."""
    source = node.source or {}
    args, kwargs = source.get("args", []), source.get("kwargs", {})
    if not isinstance(args, list) or not isinstance(kwargs, Mapping):
        raise UsageError("its source is not a call")
    given = [argument(g, node, inputs, item) for item in args]
    named = {
        name: argument(g, node, inputs, item)
        for name, item in kwargs.items()
        if name not in _IGNORED
    }
    return given, named


def argument(g: Graph, node: Node, inputs: Sequence[Item], item: Any, depth: int = 0) -> Any:
    if isinstance(item, Mapping) and len(item) == 1 and depth < _MOST_DEPTH:
        [(tag, value)] = item.items()
        if tag == "n" and isinstance(value, int) and 0 <= value < len(inputs):
            return inputs[value]
        if tag == "p" and value in node.params:
            return g.tensor(node.params[value])
        if tag == "l" and isinstance(value, list):
            return [argument(g, node, inputs, each, depth + 1) for each in value]
        if tag == "c":
            return float_of(value) if isinstance(value, str) and value in NON_FINITE else value
        if tag == "dtype":
            return Type(str(value))
        if tag in _IGNORED:
            return None
    raise UsageError(f"its source holds {str(item)[:60]}, which is not an argument")
