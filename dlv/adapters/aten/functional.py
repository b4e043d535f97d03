"""Replaces in-place operations by functions, so that data edges alone carry every write.

A value is a base or a chain of views of it. A write into a view yields a new value for the base,
and views that are read later are derived from it again. Engines follow data edges only and would
miss a write in place, so an operation that has no functional form is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace

from dlv.adapters.aten.record import (
    BUFFER,
    CONSTANT,
    STATE,
    Argument,
    Call,
    Given,
    Graph,
    Ref,
    Tagged,
    Value,
    refs,
)
from dlv.adapters.aten.views import DROPOUTS, RENAMING, View, inverse, is_view, view_steps
from dlv.dataclass import dataclass
from dlv.errors import UsageError
from dlv.network.sizes import Dim

HINT = "commit without a network, or export it elsewhere: dlv add F.onnx --as network"
COUNTER = "num_batches_tracked"

# The function behind an in-place operation, where it is not the name without the underscore.
_FUNCTIONS = {
    "__iand__": "bitwise_and",
    "__ior__": "bitwise_or",
    "__ixor__": "bitwise_xor",
    "__ilshift__": "bitwise_left_shift",
    "__irshift__": "bitwise_right_shift",
    "normal_": "normal_functional",
    "bernoulli_.float": "bernoulli.p",
    "pow_.Scalar": "pow.Tensor_Scalar",
    "pow_.Tensor": "pow.Tensor_Tensor",
    "float_power_.Scalar": "float_power.Tensor_Scalar",
    "float_power_.Tensor": "float_power.Tensor_Tensor",
    "floor_divide_.Tensor": "floor_divide.default",
    "ldexp_.default": "ldexp.Tensor",
    "__ilshift__.Scalar": "bitwise_left_shift.Tensor_Scalar",
    "__irshift__.Scalar": "bitwise_right_shift.Tensor_Scalar",
}
# No function gives the same.
_NO_FUNCTION = frozenset(
    {
        "set_", "resize_", "random_", "as_strided_", "polygamma_", "embedding_renorm_",
        "resize_as_", "rename_", "fill_diagonal_", "rrelu_with_noise_", "sparse_resize_",
        "_index_put_impl_",
    }
)  # fmt: skip
# They only say something about a tensor.
_NO_WRITE = frozenset({"requires_grad_", "detach_", "retain_grad"})
# Functions of these give truth values; in place, the tensor keeps its dtype.
_TRUTHS = frozenset(
    {
        "eq", "ne", "lt", "le", "gt", "ge", "equal", "not_equal", "less", "less_equal", "greater",
        "greater_equal", "logical_and", "logical_or", "logical_xor", "logical_not",
    }
)  # fmt: skip


class Inseparable(UsageError):
    """A write that no function can stand for."""


@dataclass
class Written:
    """What became of a graph: tensors of the module that forward changes, by name."""

    buffers: list[str] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)


def in_place(call: Call) -> bool:
    """Whether a call writes into its first argument."""
    if not call.aten or call.base in _NO_WRITE:
        return False
    return call.base in _FUNCTIONS or (call.base.endswith("_") and not call.base.endswith("__"))


def functionalise(graph: Graph, numbers: Callable[[str], float | int | bool | None]) -> Written:
    """Rewrite `graph.calls` so that none of them writes into what another one reads.

    `numbers`: the value of a constant of one element, by the name of its placeholder. A buffer
    that is changed gets its new content by a `copy_` at the very end.
    """
    if not any(in_place(call) or _writes(call) or _inner(call) for call in graph.calls):
        return Written()
    return _Rewriting(graph, numbers).run()


def _writes(call: Call) -> bool:
    """Whether it writes in a way that no trailing underscore tells."""
    out = call.aten and (call.op.endswith(".out") or call.base.endswith("_out"))
    return out or (bool(call.writes) and call.base not in _NO_WRITE)


def _inner(call: Call) -> bool:
    """Whether a graph that it is given writes."""
    todo = [given.value for given in call.arguments]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo += value
        elif isinstance(value, Tagged) and isinstance(value.value, Graph):
            for inner in value.value.calls:
                if in_place(inner) or _writes(inner):
                    return True
                todo += [given.value for given in inner.arguments]
    return False


@dataclass(frozen=True)
class _Place:
    """Where a value lies: a base, and the views of it that lead there."""

    base: str
    steps: tuple[View, ...] = ()


class _Rewriting:
    def __init__(self, graph: Graph, numbers: Callable[[str], float | int | bool | None]) -> None:
        self.graph = graph
        self.numbers = numbers
        self.calls: list[Call] = []
        self.places: dict[str, _Place] = {}
        self.content: dict[str, str] = {}  # base -> the value that it holds now
        self.times: dict[str, int] = {}  # base -> how often it was written
        self.known: dict[_Place, tuple[int, str]] = {}  # what stands there, since which write
        self.since: dict[str, int] = {}  # value -> how often its base was written before it
        self.doubtful: dict[str, list[tuple[str, str]]] = {}  # base -> maybe it too, by which op
        # Value -> the place of the last call that reads it.
        self.last_read = {
            ref.name: at for at, call in enumerate(graph.calls) for ref in call.refs()
        }
        self.last_read.update({ref.name: len(graph.calls) for ref in refs(graph.outputs)})
        self.module = {p.name: p for p in graph.placeholders if p.kind in (*STATE, CONSTANT)}
        self.made = 0
        self.call: Call = Call("", "", (), ())

    def run(self) -> Written:
        for place, call in enumerate(self.graph.calls):
            self.call = call
            self._rewrite(place, call)
        self.graph.outputs = [self._argument(value) for value in self.graph.outputs]
        written = self._write_back()
        self.graph.calls = self.calls
        return written

    def _rewrite(self, place: int, call: Call) -> None:
        if self._counts(call):
            return
        if _inner(call):
            raise self._refused("it calls a subgraph that writes")
        if _writes(call) and not in_place(call):
            raise self._refused("it writes into an argument")
        if call.base[:-1] in DROPOUTS and call.base.endswith("_"):
            # Where it drops nothing, it writes nothing.
            given = tuple(
                replace(g, name="input" if g.name == "self" else g.name) for g in call.arguments
            )
            call = replace(call, arguments=given)
            if call.get("train") is False or call.get("p") == 0:
                call = replace(call, op=call.op.replace(call.base, call.base[:-1], 1), writes=())
            self.call = call
        if call.aten and call.base in RENAMING:
            self._renamed(call)
        elif in_place(call):
            self._write(place, call)
        else:
            self._read(call)

    def _counts(self, call: Call) -> bool:
        """Whether it is a layer's count of batches, which is kept by the layer itself."""
        target = call.arguments[0].value if call.arguments else None
        owner = self.module.get(target.name) if isinstance(target, Ref) else None
        if owner is None or call.base != "add_" or not owner.target.endswith(COUNTER):
            return False
        return not any(self.last_read.get(name or "", -1) >= 0 for name in call.outputs)

    def _read(self, call: Call) -> None:
        call = replace(
            call,
            arguments=tuple(
                replace(given, value=self._argument(given.value)) for given in call.arguments
            ),
        )
        self.calls.append(call)
        original = self.call.arguments[0].value if self.call.arguments else None
        if not isinstance(original, Ref):
            return
        for port, name in enumerate(call.outputs):
            if name is None:
                continue
            aliased = is_view(self.call, self.graph.values.get(original.name), self._value(name))
            if aliased is False:
                continue
            source = self._place(original.name)
            if aliased is None:
                self._doubt(source.base, name)
                continue
            step = view_steps(call, self.graph.values)[port]
            lies = _Place(source.base, source.steps if step.same else (*source.steps, step))
            self.places[name] = lies
            times = self.times.get(source.base, 0)
            self.since[name] = times
            # A base is its own value until it is written.
            if self.known.get(lies, (-1 if lies.steps else 0, ""))[0] < times:
                self.known[lies] = (times, name)

    def _renamed(self, call: Call) -> None:
        """`unsqueeze_` and its like change no element: the tensor itself is a view from now on."""
        plain = replace(call, op=call.op.replace(f"{call.base}.", f"{call.base[:-1]}.", 1))
        target = call.arguments[0].value
        self.call = plain
        self._read(plain)
        name = call.outputs[0] if call.outputs else None
        if not isinstance(target, Ref) or name is None or name not in self.places:
            raise self._refused("it changes the shape of a tensor in place")
        self.places[target.name] = self.places[name]

    def _write(self, place: int, call: Call) -> None:
        target = call.arguments[0].value
        if not isinstance(target, Ref) or target.name not in self.graph.values:
            raise self._refused("its target is unknown")
        lies = self._place(target.name)
        if call.base == "copy_" and self._copies_itself(call, lies):
            for name in filter(None, call.outputs):
                self.places[name], self.since[name] = lies, -1
            return
        for other, op in self.doubtful.get(lies.base, ()):
            if self._read_after(place, other):
                raise self._refused(f"{op} may have returned a copy of it or a view")
        if call.base in _NO_FUNCTION:
            raise self._refused("torch has no function for it")
        new = self._function(call, target)
        for name in filter(None, call.outputs):
            self.places[name] = lies
            self.since[name] = -1  # it stands for what is written
        self._write_through(lies, new)

    def _function(self, call: Call, target: Ref) -> str:
        """The value that is written, made by a function."""
        own = self.graph.values[target.name]
        if call.base == "copy_":
            return self._copied(call, target, own)
        given = [replace(g, value=self._argument(g.value)) for g in call.arguments]
        base, _, overload = call.op.removeprefix("aten.").partition(".")
        if base in ("zero_", "fill_"):
            return self._filled(given, own)
        if base == "index_put_":
            masked = self._masked(given, own)
            if masked is not None:
                return masked
        op = _FUNCTIONS.get(f"{base}.{overload}")
        if op is None:
            op = f"{_FUNCTIONS.get(base, base[:-1])}.{overload}"
        dtype = _promoted(base[:-1], own, [self._value(ref.name) for ref in call.refs()])
        name = call.outputs[0] if call.outputs and call.outputs[0] else None
        if dtype == own.dtype and name is not None:
            self._emit(f"aten.{op}", given, own, name)
            return name
        result = self._emit(f"aten.{op}", given, replace(own, dtype=dtype))
        return self._cast(result, own)

    def _copies_itself(self, call: Call, lies: _Place) -> bool:
        """Whether source and target are the same part: x[..] += y ends with such a copy."""
        source = call.arguments[1].value if len(call.arguments) > 1 else None
        return isinstance(source, Ref) and self._place(source.name) == lies

    def _copied(self, call: Call, target: Ref, own: Value) -> str:
        """`copy_`: the source itself, in the target's dtype and shape."""
        source = call.arguments[1].value if len(call.arguments) > 1 else None
        if not isinstance(source, Ref):
            raise self._refused("its source is unknown")
        name, value = self._resolved(source.name), self._value(source.name)
        if value is None:
            raise self._refused("its source is unknown")
        if value.shape != own.shape:
            size = self._size(self._resolved(target.name), own)
            given = [Given("self", Ref(name)), Given("size", size)]
            name = self._emit("aten.expand.default", given, replace(own, dtype=value.dtype))
        if value.dtype != own.dtype:
            name = self._cast(name, own)
        return name

    def _filled(self, arguments: Sequence[Given], own: Value) -> str:
        """One number everywhere."""
        number = 0 if len(arguments) < 2 else self._number(arguments[1].value)
        if number is None:
            one = arguments[1].value
            if not isinstance(one, Ref):
                raise self._refused("its fill value is unknown")
            value = self._value(one.name)
            name = one.name
            if value is not None and value.dtype is None:
                return self._emit("aten.fill.Scalar", arguments, own)
            size = self._size(_name(arguments[0].value), own)
            shaped = [Given("self", Ref(name)), Given("size", size)]
            name = self._emit(
                "aten.expand.default",
                shaped,
                replace(own, dtype=value.dtype if value else own.dtype),
            )
            return self._cast(name, own)
        size = self._size(_name(arguments[0].value), own)
        more = [Given("size", size), Given("fill_value", number)]
        more.append(Given("dtype", Tagged("dtype", own.dtype), True))
        return self._emit("aten.full.default", more, own)

    def _masked(self, arguments: Sequence[Given], own: Value) -> str | None:
        """x[mask] = number is a choice between the two."""
        indices = arguments[1].value if len(arguments) > 1 else None
        if not isinstance(indices, list) or len(indices) != 1 or len(arguments) < 3:
            return None
        mask, value = indices[0], arguments[2].value
        flag = arguments[3].value if len(arguments) > 3 else False
        if not isinstance(mask, Ref) or not isinstance(value, Ref) or flag is True:
            return None
        held, one = self._value(mask.name), self._value(value.name)
        if held is None or one is None or held.dtype != "bool" or one.dtype is None:
            return None
        if math.prod(d if isinstance(d, int) else 2 for d in one.shape) != 1:
            return None
        name = mask.name
        for axis in range(len(held.shape), len(own.shape)):
            held = replace(held, shape=(*held.shape, 1))
            more = [Given("self", Ref(name)), Given("dim", axis)]
            name = self._emit("aten.unsqueeze.default", more, held)
        chosen = [Given("self", arguments[0].value), Given("mask", Ref(name))]
        number = self._number(value)
        if number is not None:
            return self._emit("aten.masked_fill.Scalar", [*chosen, Given("value", number)], own)
        if one.shape:
            more = [Given("self", value), Given("size", [])]
            value = Ref(self._emit("aten.reshape.default", more, replace(one, shape=())))
        if one.dtype != own.dtype:
            value = Ref(self._cast(value.name, replace(own, shape=())))
        return self._emit("aten.masked_fill.Tensor", [*chosen, Given("value", value)], own)

    def _number(self, value: Argument) -> float | int | bool | None:
        """A number, or the content of a constant of one element."""
        if isinstance(value, (bool, int, float)):
            return value
        if not isinstance(value, Ref):
            return None
        name = value.name
        for _ in range(4):
            maker = next((c for c in reversed(self.calls) if name in c.outputs), None)
            if maker is None:
                break
            first = maker.arguments[0].value if maker.arguments else None
            if maker.base not in ("lift_fresh_copy", "clone", "detach") or not isinstance(
                first, Ref
            ):
                return None
            name = first.name
        return self.numbers(name)

    def _cast(self, name: str, own: Value) -> str:
        given = [Given("self", Ref(name)), Given("dtype", Tagged("dtype", own.dtype))]
        return self._emit("aten.to.dtype", given, own)

    def _size(self, name: str, value: Value) -> list[Argument]:
        """The lengths of a value, those left open taken from it as it runs."""
        return [
            dim if isinstance(dim, int) else Ref(self._length(name, axis, dim))
            for axis, dim in enumerate(value.shape)
        ]

    def _length(self, name: str, axis: int, dim: Dim) -> str:
        given = [Given("self", Ref(name)), Given("dim", axis)]
        return self._emit("aten.sym_size.int", given, Value(None, (dim,)))

    def _emit(
        self, op: str, arguments: Sequence[Given], value: Value, name: str | None = None
    ) -> str:
        """One more call, made in the place of the one at hand."""
        if name is None:
            self.made += 1
            name = f"{self.call.name}~{self.made}"
            self.graph.values[name] = replace(value, storage=None, dense=None)
        call = Call(name, op, tuple(arguments), (name,), False, self.call.path, self.call.visit)
        self.calls.append(call)
        return name

    def _write_through(self, lies: _Place, new: str) -> None:
        """Set the new value of the base after a write into one of its views."""
        now = new
        for count in range(len(lies.steps) - 1, -1, -1):
            step = lies.steps[count]
            above = self._now(_Place(lies.base, lies.steps[:count]))
            value = self._value(above)
            made = value and inverse(step, above, now, value, self._emit, self._size)
            if not made:
                raise self._refused(f"a write through {step.op} cannot be carried back to its base")
            now = made
        self.times[lies.base] = self.times.get(lies.base, 0) + 1
        self.content[lies.base] = now
        self.known[_Place(lies.base)] = (self.times[lies.base], now)
        self.known[lies] = (self.times[lies.base], new)

    def _now(self, lies: _Place) -> str:
        """The value that stands in a place now."""
        times = self.times.get(lies.base, 0)
        since, name = self.known.get(lies, (-1, ""))
        if since == times:
            return name
        if not lies.steps:
            return self.content.get(lies.base, lies.base)
        above = self._now(_Place(lies.base, lies.steps[:-1]))
        step = lies.steps[-1]
        if step.arguments is None or step.value is None:
            raise self._refused(f"the view by {step.op} cannot be repeated")
        given = [Given("self", Ref(above)), *step.arguments]
        name = self._emit(step.op, given, step.value)
        self.known[lies] = (times, name)
        return name

    def _place(self, name: str) -> _Place:
        return self.places.get(name) or _Place(name)

    def _resolved(self, name: str) -> str:
        lies = self._place(name)
        # A value whose base has not been written since keeps its name.
        if self.times.get(lies.base, 0) == self.since.get(name, 0):
            return name
        return self._now(lies)

    def _argument(self, value: Argument) -> Argument:
        if isinstance(value, Ref):
            return Ref(self._resolved(value.name))
        return [self._argument(item) for item in value] if isinstance(value, list) else value

    def _value(self, name: str) -> Value | None:
        return self.graph.values.get(name)

    def _doubt(self, base: str, name: str) -> None:
        op = self.call.op
        self.doubtful.setdefault(base, []).append((name, op))
        self.doubtful.setdefault(name, []).append((base, op))

    def _read_after(self, place: int, base: str) -> bool:
        names = [base, *(name for name, lies in self.places.items() if lies.base == base)]
        return any(self.last_read.get(name, -1) > place for name in names)

    def _write_back(self) -> Written:
        """Tensors of the module that were changed: buffers keep it, parameters do not."""
        written = Written()
        for base in self.content:
            owner = self.module.get(base)
            if owner is None:
                continue
            if owner.kind not in (BUFFER, CONSTANT):
                written.parameters.append(owner.target)
                continue
            written.buffers.append(owner.target)
            self.made += 1
            name = f"{base}~{self.made}"
            self.graph.values[name] = self.graph.values[base]
            given = (Given("self", Ref(base)), Given("src", Ref(self.content[base])))
            self.calls.append(Call(name, "aten.copy_.default", given, (name,)))
        return written

    def _refused(self, why: str) -> Inseparable:
        where = f" in {self.call.path}" if self.call.path else ""
        return Inseparable(
            f"{self.call.op}{where} changes a tensor in place",
            why=f"{why}, so the write cannot be expressed as a function",
            hint=f"write it as a function, such as x = torch.where(..); or {HINT}",
        )


def _name(value: Argument) -> str:
    return value.name if isinstance(value, Ref) else ""


_KINDS = ("bool", "uint", "int", "bfloat", "float", "complex")


def _promoted(word: str, own: Value, others: Sequence[Value | None]) -> str | None:
    """The dtype that the function gives where the tensor keeps its own."""
    if word in _TRUTHS:
        return "bool"
    dtypes = [own.dtype or ""]
    dtypes += [other.dtype for other in others if other and other.dtype and other.shape]
    return max(dtypes, key=_width)


def _width(dtype: str) -> tuple[int, int]:
    kind = dtype.rstrip("0123456789")
    return _KINDS.index(kind) if kind in _KINDS else -1, int(dtype[len(kind) :] or 0)
