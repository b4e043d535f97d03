"""A graph of aten calls, as torch.export makes it, told without torch.

Two front ends fill it: a live module (`live`) and a saved program (`pt2`). The values of a graph
have names; placeholders and calls make them, `Ref` refers to them. A `Reading` is a call that is
being translated, its arguments with their kinds checked; a `Match` is what it becomes. `unfold`
and `join` put calls differently before: one layer for many calls, or the reverse.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from dlv.canonical import number
from dlv.dataclass import dataclass
from dlv.errors import Damaged
from dlv.network.sizes import Shape

PARAMETER = "parameter"
BUFFER = "buffer"  # one that state_dict names
CONSTANT = "constant"  # tensors made in forward, and buffers that are not saved
INPUT = "input"
STATE = (PARAMETER, BUFFER)


@dataclass(frozen=True)
class Ref:
    """A value of the graph, by its name."""

    name: str


@dataclass(frozen=True)
class Tagged:
    """An argument that is no plain JSON: a dtype, device, layout, memory format or else."""

    kind: str
    value: Any

    def json(self) -> dict[str, Any]:
        if self.kind == "graph":  # not kept: nothing of ours runs it
            return {"text": "graph"}
        if self.kind == "complex":
            return {"complex": [number(part) for part in self.value]}
        return {self.kind: self.value}


# What an argument may be: Ref, Tagged, a list of arguments, int, float, bool, str or None.
Argument = Any


@dataclass(frozen=True)
class Value:
    """What is known of a value; `dtype` None: a number, which stands in `shape` if it is known.

    `dense`: its elements lie one behind the other. `storage`: where it was seen to lie, as
    (who saw it, which memory); equal for views of one tensor.
    """

    dtype: str | None
    shape: Shape
    dense: bool | None = field(default=None, compare=False)
    storage: tuple[int, int] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Placeholder:
    """Something that exists before the first call; `target` is its name in the module."""

    name: str
    kind: str
    target: str


@dataclass(frozen=True)
class Given:
    """One argument of a call, under the name it has in the operation's schema."""

    name: str
    value: Argument
    keyword: bool = False


@dataclass(frozen=True)
class Call:
    """One operation. `outputs` names its values by port; None where it returns nothing.

    `several`: it returns a tuple or list, of which a reader takes an element. `path` is the
    module that called it, `visit` tells the calls of one module apart. `writes`: arguments that
    its schema says are changed.
    """

    name: str
    op: str
    arguments: tuple[Given, ...]
    outputs: tuple[str | None, ...]
    several: bool = False
    path: str = ""
    visit: str = ""
    writes: tuple[str, ...] = ()

    @property
    def base(self) -> str:
        """`aten.add_.Tensor` -> `add_`."""
        parts = self.op.split(".")
        return parts[1] if len(parts) > 1 else parts[0]

    @property
    def aten(self) -> bool:
        return self.op.startswith("aten.")

    def refs(self) -> Iterator[Ref]:
        for given in self.arguments:
            yield from refs(given.value)

    def get(self, name: str, default: Argument = None) -> Argument:
        for given in self.arguments:
            if given.name == name:
                return given.value
        return default


@dataclass
class Graph:
    """A whole exported program."""

    placeholders: list[Placeholder] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    outputs: list[Argument] = field(default_factory=list)
    # Position of each output among all values that the module returns; None outputs are left out.
    places: list[int] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    training: bool = False  # it is what the module does in training
    # Names of tensors that share their elements with an earlier one -> that one.
    ties: Mapping[str, str] = field(default_factory=dict)
    # The tensors that the module saves, in its order: name -> dtype and shape.
    state: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)


def place(path: str, visit: str) -> tuple[str, str]:
    """The module and the visit of a call, as torch tells them; sizes taken on entry have none."""
    return ("", "") if path.startswith("_empty_nn_module_stack") else (path, visit)


def check(graph: Graph) -> None:
    """Every value is made once, and before it is read; a graph from a file may be anything."""
    known: set[str] = set()
    for placeholder in graph.placeholders:
        _make(placeholder.name, known)
        if placeholder.kind in (*STATE, CONSTANT, INPUT) and placeholder.name not in graph.values:
            raise Damaged("an exported program is corrupt", why=f"{placeholder.name} has no type")
    for call in graph.calls:
        for ref in call.refs():
            _read(ref, known, call.name)
        for name in call.outputs:
            if name is not None:
                _make(name, known)
    for ref in refs(graph.outputs):
        _read(ref, known, "the output")


def _make(name: str, known: set[str]) -> None:
    if name in known:
        raise Damaged("an exported program is corrupt", why=f"{name!r} is made twice")
    known.add(name)


def _read(ref: Ref, known: set[str], where: str) -> None:
    if ref.name not in known:
        raise Damaged("an exported program is corrupt", why=f"{where}: nothing makes {ref.name!r}")


def refs(value: Argument) -> Iterator[Ref]:
    """The references in an argument, from left to right."""
    # Lists of lists are as deep as it gets, but nothing here relies on it.
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, Ref):
            yield item
        elif isinstance(item, list):
            todo.extend(reversed(item))


def rename_symbols(graph: Graph) -> None:
    """The symbols of inputs become B, S1, S2, ..; what others stand for is not known."""
    shapes = [graph.values[p.name].shape for p in graph.placeholders if p.kind == INPUT]
    names: dict[str, str] = {}
    for dim in [*(shape[0] for shape in shapes if shape), *(dim for s in shapes for dim in s)]:
        if isinstance(dim, str) and dim not in names:
            # The first axis of the first input that leaves it open is the batch.
            names[dim] = f"S{len(names)}" if names else "B"
    if not names:
        return
    for name, value in graph.values.items():
        if any(isinstance(dim, str) for dim in value.shape):
            shape = tuple(names.get(d) if isinstance(d, str) else d for d in value.shape)
            graph.values[name] = replace(value, shape=shape)


class Unmatched(Exception):
    """The call is none of the vocabulary's: it is kept as OP."""


@dataclass(frozen=True)
class Match:
    """What a call is in the vocabulary. `params` are slots filled by tensors of the module."""

    op: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[Ref, ...] = ()
    params: Mapping[str, Ref] = field(default_factory=dict)
    variant: str | None = None


@dataclass(frozen=True)
class Reading:
    """A call with what is around it. Whatever is not as asked for raises Unmatched.

    `state` are the values that are tensors of the module, `live` those that somebody reads.
    """

    call: Call
    graph: Graph
    state: Collection[str]
    live: Collection[str]

    def get(self, name: str, default: Any = None) -> Any:
        return self.call.get(name, default)

    def value(self, ref: Ref) -> Value:
        try:
            return self.graph.values[ref.name]
        except KeyError:
            raise Unmatched from None

    def data(self, name: str) -> Ref:
        """A tensor that flows in."""
        ref = self.get(name)
        if not isinstance(ref, Ref) or ref.name in self.state or self.value(ref).dtype is None:
            raise Unmatched
        return ref

    def optional_data(self, name: str) -> tuple[Ref, ...]:
        return () if self.get(name) is None else (self.data(name),)

    def slot(self, name: str) -> Ref:
        """A tensor of the module, of fractions."""
        ref = self.get(name)
        if not isinstance(ref, Ref) or ref.name not in self.state:
            raise Unmatched
        if not (self.value(ref).dtype or "").startswith(("float", "bfloat", "complex")):
            raise Unmatched
        return ref

    def slots(self, **names: str) -> dict[str, Ref]:
        """Slot -> tensor, for the arguments that are given."""
        return {slot: self.slot(name) for slot, name in names.items() if self.get(name) is not None}

    def shape(self, ref: Ref) -> Shape:
        return self.value(ref).shape

    def whole(self, name: str, default: int | None = None) -> int:
        found = self.get(name, default)
        if type(found) is not int:
            raise Unmatched
        return found

    def number(self, name: str, default: float | None = None) -> float:
        found = self.get(name, default)
        if type(found) not in (int, float):
            raise Unmatched
        return float(found)

    def flag(self, name: str, default: bool = False) -> bool:
        found = self.get(name, default)
        if type(found) is not bool:
            raise Unmatched
        return found

    def ints(self, name: str, default: int | list[int] | None = None) -> list[int]:
        """A list of whole numbers; one alone stands for a list of it."""
        found = self.get(name, default)
        found = [found] if type(found) is int else found
        if not isinstance(found, list) or not all(type(item) is int for item in found):
            raise Unmatched
        return found

    def per_axis(self, name: str, axes: int, default: int) -> list[int]:
        """One number for each of so many axes."""
        found = self.ints(name, default)
        found = found * axes if len(found) == 1 else found
        if len(found) != axes:
            raise Unmatched
        return found

    def lengths(self, name: str) -> tuple[Shape, tuple[Ref, ...]]:
        """A size as attribute, and the values that bring what stands there as symbol or null."""
        found = self.get(name)
        if not isinstance(found, list):
            raise Unmatched
        size: list[int | str | None] = []
        refs = []
        for item in found:
            if isinstance(item, Ref):
                if self.value(item).dtype is not None:
                    raise Unmatched
                known = self.shape(item)
                dim = known[0] if known else None
                # A number that turned out fixed is one, though the graph computes it.
                size.append(dim if isinstance(dim, str) else None)
                refs.append(item)
            elif type(item) is int:
                size.append(item)
            else:
                raise Unmatched
        return tuple(size), tuple(refs)

    def rank(self, ref: Ref, *ranks: int) -> None:
        if len(self.shape(ref)) not in ranks:
            raise Unmatched

    def only(self, *ports: int) -> None:
        """Nobody reads any other output."""
        for port, name in enumerate(self.call.outputs):
            if port not in ports and name in self.live:
                raise Unmatched

    def same_dtype(self, ref: Ref, dtype: object = None) -> None:
        """What comes out has the dtype that went in, and nothing else was asked for."""
        if self.out().dtype != self.value(ref).dtype:
            raise Unmatched
        wanted = getattr(dtype, "value", None)
        if dtype is not None and wanted != self.out().dtype:
            raise Unmatched

    def out(self, port: int = 0) -> Value:
        name = self.call.outputs[port] if port < len(self.call.outputs) else None
        if name is None or name not in self.graph.values:
            raise Unmatched
        return self.graph.values[name]


# An operation of ours: the calls of torch.nn.functional.local_response_norm in one.
RESPONSE_NORM = "dlv.local_response_norm"
# Calls of an inner graph under a mode: how many arguments come before the graph.
_WRAPPERS = {"higher_order.wrap_with_set_grad_enabled": 1, "higher_order.wrap_with_autocast": 4}
_ALONG = ("view", "reshape", "squeeze", "unsqueeze")
_POOLS = ("aten.avg_pool2d.default", "aten.avg_pool3d.default")


def unfold(graph: Graph) -> None:
    """Inner graphs are unfolded; `unbind` becomes one `select` for each piece."""
    if any(call.op in _WRAPPERS for call in graph.calls):
        unfolded = _Unfolded(graph.values)
        unfolded.add(graph.calls, {}, "")
        graph.calls = unfolded.calls
    graph.calls = [piece for call in graph.calls for piece in _pieces(call)]


def join(graph: Graph) -> None:
    """A product with a transposed weight is a linear layer; the calls of a response norm are one.

    Call this on a graph without writes: calls are matched by their inputs alone.
    """
    _join_linear(graph)
    _join_response_norms(graph)


class _Unfolded:
    """Calls one after the other, those of inner graphs under names of their own."""

    def __init__(self, values: dict[str, Value]) -> None:
        self.calls: list[Call] = []
        self.values = values

    def add(self, calls: list[Call], known: dict[str, Argument], prefix: str) -> None:
        """`known`: what stands for the values of the inner graph that the calls are from."""
        for call in calls:
            arguments = tuple(
                replace(given, value=_replaced(given.value, known, prefix))
                for given in call.arguments
            )
            outputs = tuple(name and prefix + name for name in call.outputs)
            moved = replace(call, arguments=arguments, outputs=outputs)
            inner = _wrapped(moved)
            if inner is None:
                self.calls.append(moved)
            else:
                self._unfold(moved, *inner)

    def _unfold(self, call: Call, inner: Graph, inputs: list[Argument], detached: bool) -> None:
        prefix = f"{next(iter(call.outputs), None) or call.name}/"
        names = [placeholder.name for placeholder in inner.placeholders]
        known = dict(zip(names, inputs, strict=True))
        for name, value in inner.values.items():
            if name not in known:
                self.values[prefix + name] = value
        self.add(inner.calls, known, prefix)
        for port, output in zip(call.outputs, inner.outputs, strict=True):
            if port is None:
                continue
            source = (Given("self", _replaced(output, known, prefix)),)
            held = self.values.get(port)
            stops = detached and held is not None and held.dtype is not None
            op = "aten.detach.default" if stops else "aten.alias.default"
            self.calls.append(Call(port, op, source, (port,), False, call.path, call.visit))


def _replaced(value: Argument, known: dict[str, Argument], prefix: str) -> Argument:
    if isinstance(value, Ref):
        return known[value.name] if value.name in known else Ref(prefix + value.name)
    if isinstance(value, list):
        return [_replaced(item, known, prefix) for item in value]
    return value


def _wrapped(call: Call) -> tuple[Graph, list[Argument], bool] | None:
    """The inner graph that only runs under a mode, what goes in, and whether gradients end."""
    skipped = _WRAPPERS.get(call.op)
    if skipped is None or len(call.arguments) <= skipped:
        return None
    values = [given.value for given in call.arguments]
    mode, held = values[0 if skipped == 1 else 2], values[skipped]
    if not isinstance(held, Tagged) or not isinstance(held.value, Graph):
        return None
    inner, given = held.value, values[skipped + 1 :]
    # An autocast that is on casts what the calls themselves do not tell.
    if not isinstance(mode, bool) or (skipped > 1 and mode):
        return None
    outputs = inner.outputs
    if len(given) != len(inner.placeholders) or len(outputs) != len(call.outputs):
        return None
    if not all(isinstance(output, Ref) for output in outputs):
        return None
    return inner, given, skipped == 1 and not mode


def _pieces(call: Call) -> list[Call]:
    axis = call.get("dim", 0)
    if call.op != "aten.unbind.int" or type(axis) is not int or not call.arguments:
        return [call]
    return [
        replace(
            call,
            name=f"{call.name}:{index}",
            op="aten.select.int",
            arguments=(call.arguments[0], Given("dim", axis), Given("index", index)),
            outputs=(name,),
            several=False,
        )
        for index, name in enumerate(call.outputs)
        if name is not None
    ]


def _join_linear(graph: Graph) -> None:
    """addmm(bias, x, weight.t()), which decomposed graphs have, is linear(x, weight, bias)."""
    state = {item.name for item in graph.placeholders if item.kind in STATE}
    turned = {}
    for call in graph.calls:
        weight = call.get("self")
        if isinstance(weight, Ref) and weight.name in state and _transposes(call):
            turned[call.outputs[0]] = weight
    for place, call in enumerate(graph.calls if turned else ()):
        last = call.get("mat2")
        if not isinstance(last, Ref) or last.name not in turned:
            continue
        given = [call.get("self"), turned[last.name]]
        if call.op == "aten.addmm.default" and len(call.arguments) == 3:
            given = [call.get("mat1"), turned[last.name], given[0]]
        elif call.op != "aten.mm.default":
            continue
        names = ("input", "weight", "bias")
        arguments = tuple(Given(name, value) for name, value in zip(names, given, strict=False))
        graph.calls[place] = replace(call, op="aten.linear.default", arguments=arguments)


def _transposes(call: Call) -> bool:
    """Whether it swaps the two axes of a matrix."""
    if call.op == "aten.transpose.int":
        return sorted((call.get("dim0") or 0, call.get("dim1") or 0)) in ([0, 1], [-2, -1])
    if call.op == "aten.permute.default":
        return bool(call.get("dims") == [1, 0])
    return call.op == "aten.t.default"


def _join_response_norms(graph: Graph) -> None:
    """div(x, pow(k + alpha * mean of x * x over channels, beta)) is one layer."""
    if not any(call.op == "aten.pow.Tensor_Scalar" for call in graph.calls):
        return
    makers = {call.outputs[0]: call for call in graph.calls if len(call.outputs) == 1}
    for place, call in enumerate(graph.calls):
        if call.op == "aten.div.Tensor":
            found = _response_norm(call, makers)
            if found is not None:
                graph.calls[place] = found


def _response_norm(call: Call, makers: dict[str | None, Call]) -> Call | None:
    x = call.get("self")

    def behind(ref: Any, op: str) -> Call | None:
        made = makers.get(ref.name) if isinstance(ref, Ref) else None
        return made if made is not None and made.op == op and made.visit == call.visit else None

    power = behind(call.get("other"), "aten.pow.Tensor_Scalar")
    plus = power and behind(power.get("self"), "aten.add.Tensor")
    times = plus and behind(plus.get("self"), "aten.mul.Tensor")
    if not (power and plus and times) or len(plus.arguments) != 2:
        return None
    size, pad, ref = 0, None, times.get("self")
    for _ in range(8):
        made = makers.get(ref.name) if isinstance(ref, Ref) else None
        if made is None or made.visit != call.visit:
            return None
        if made.op in _POOLS and not size:
            kernel = made.get("kernel_size")
            if not isinstance(kernel, list) or set(kernel[1:]) != {1}:
                return None
            size = kernel[0]
        elif made.op == "aten.pad.default" and pad is None:
            pad = made.get("pad")
        elif made.op == "aten.mul.Tensor":
            break
        elif made.base not in _ALONG:
            return None
        ref = made.get("self")
    numbers = (times.get("other"), power.get("exponent"), plus.get("other"))
    squared = makers.get(ref.name) if isinstance(ref, Ref) else None
    if (
        squared is None
        or squared.op != "aten.mul.Tensor"
        or (squared.get("self"), squared.get("other")) != (x, x)
        or type(size) is not int
        or size < 1
        or not isinstance(pad, list)
        or pad[-2:] != [size // 2, (size - 1) // 2]
        or any(pad[:-2])
        or not all(type(number) in (int, float) for number in numbers)
    ):
        return None
    alpha, beta, k = numbers
    given = {"self": x, "size": size, "alpha": alpha, "beta": beta, "k": k}
    arguments = tuple(Given(name, value) for name, value in given.items())
    return replace(call, op=RESPONSE_NORM, arguments=arguments)
