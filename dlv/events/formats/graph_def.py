"""A graph of named operations as TensorBoard's Graphs page reads it: GraphDef bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlv.events.formats.pbtxt import tagged, varint

RUN_GRAPH = "__run_graph__"  # the tag under which a run keeps its graph
PLUGIN = "graphs"
TAGGED = "graph_run_metadata_graph"  # the plugin of graphs that have a tag, and their content
TAGGED_CONTENT = b"1"
_PRODUCER = 22  # a version of the format that every reader knows


@dataclass(frozen=True)
class GraphNode:
    """`inputs` are names of nodes, `name:1` for another than the first output of one.

    `shapes`: of what each output gives; None is a size that is not known.
    """

    name: str
    op: str
    inputs: Sequence[str] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    shapes: Sequence[Sequence[int | None]] = ()


def graph_def(nodes: Iterable[GraphNode]) -> bytes:
    """The stored form: every node in the order given."""
    versions = varint(1 << 3) + varint(_PRODUCER)
    return b"".join(tagged(1, _node(node)) for node in nodes) + tagged(4, versions)


def as_run_metadata(graph: bytes) -> bytes:
    """A graph that has a tag is the first of a RunMetadata: of its functions, before optimizing."""
    return tagged(4, tagged(2, graph))


def _node(node: GraphNode) -> bytes:
    found = tagged(1, _utf8(node.name)) + tagged(2, _utf8(node.op))
    found += b"".join(tagged(3, _utf8(name)) for name in node.inputs)
    held = {name: _value(value) for name, value in node.attributes.items()}
    if node.shapes:
        held["_output_shapes"] = tagged(
            1, b"".join(tagged(7, _shape(shape)) for shape in node.shapes)
        )
    for name in sorted(held):
        found += tagged(5, tagged(1, _utf8(name)) + tagged(2, held[name]))
    return found


def _value(value: Any) -> bytes:
    """An AttrValue: a number, a truth, a text, or a list of one of these; the rest as text."""
    if isinstance(value, bool):
        return varint(5 << 3) + varint(value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return varint(3 << 3) + varint(value)
    if isinstance(value, float):
        return varint(4 << 3 | 5) + _single(value)
    if isinstance(value, (list, tuple)):
        return tagged(1, _list(value))
    return tagged(2, _utf8(value if isinstance(value, str) else str(value)))


def _list(values: Sequence[Any]) -> bytes:
    """A list has one kind of items; a mixed one is text."""
    if values and all(type(value) is bool for value in values):
        return tagged(5, b"".join(varint(value) for value in values))
    if values and all(type(value) is int and -(2**63) <= value < 2**63 for value in values):
        return tagged(3, b"".join(varint(value) for value in values))
    if values and all(type(value) is float for value in values):
        return tagged(4, b"".join(_single(value) for value in values))
    return b"".join(tagged(2, _utf8(str(value))) for value in values)


def _shape(shape: Sequence[int | None]) -> bytes:
    sizes = (-1 if size is None else size for size in shape)
    return b"".join(tagged(2, varint(1 << 3) + varint(size)) for size in sizes)


def _single(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")
