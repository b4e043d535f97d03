"""A call being translated: its arguments with their kinds checked, and what it becomes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from dlv.adapters.aten.record import Call, Graph, Ref, Value
from dlv.network.sizes import Shape


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
