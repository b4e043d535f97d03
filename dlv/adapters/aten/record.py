"""A graph of aten calls, as torch.export makes it, told without torch.

Two front ends fill it: a live module (`live`) and a saved program (`pt2`). The values of a graph
have names; placeholders and calls make them, `Ref` refers to them. A `Reading` is a call that is
being translated, its arguments with their kinds checked; a `Match` is what it becomes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dlv.canonical import number
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
            raise Damaged("an exported program is damaged", why=f"{placeholder.name} has no type")
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
        raise Damaged("an exported program is damaged", why=f"{name!r} is made twice")
    known.add(name)


def _read(ref: Ref, known: set[str], where: str) -> None:
    if ref.name not in known:
        raise Damaged("an exported program is damaged", why=f"{where}: nothing makes {ref.name!r}")


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
