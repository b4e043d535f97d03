"""The recorded call of a node: its tagged arguments as values of an ONNX graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dlv.adapters.onnx.graph import Graph, Item
from dlv.canonical import NON_FINITE, float_of
from dlv.errors import UsageError
from dlv.network.graph import Node

# Where and how tensors lie, which makes no difference to what they hold.
_IGNORED = frozenset(
    ("device", "layout", "memory_format", "pin_memory", "requires_grad", "non_blocking", "copy")
)
_MOST_DEPTH = 8


# What writes one operation: the graph, then the call's own arguments.
Rule = Callable[..., Item | Sequence[Item]]


@dataclass(frozen=True)
class Dtype:
    """A dtype given as an argument."""

    name: str


F = TypeVar("F", bound=Rule)


class Rules(dict[str, Rule]):
    """Rules by the names of the operations that they write."""

    def enter(self, *names: str) -> Callable[[F], F]:
        """Decorate a function to enter it under these names."""

        def entered(rule: F) -> F:
            self.update(dict.fromkeys(names, rule))
            return rule

        return entered


def dtype_name(dtype: Dtype | None) -> str | None:
    return None if dtype is None else dtype.name


def dialect(node: Node) -> str | None:
    return None if node.source is None else node.source.get("dialect")


def arguments(g: Graph, node: Node, inputs: Sequence[Item]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named arguments: items, plain values, Dtypes, and lists of these."""
    source = node.source or {}
    args, kwargs = source.get("args", []), source.get("kwargs", {})
    if not isinstance(args, list) or not isinstance(kwargs, Mapping):
        raise UsageError("its source is no call")
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
            return Dtype(str(value))
        if tag in _IGNORED:
            return None
    raise UsageError(f"its source holds {str(item)[:60]}, which is no argument")
