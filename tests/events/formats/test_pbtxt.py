"""Stored graphs as text, held against protobuf's own writer and reader of it."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto import config_pb2, graph_pb2

from dlv.errors import Damaged
from dlv.events.formats.pbtxt import GraphNode, graph_def, limited_graph, text

KINDS = {"GraphDef": graph_pb2.GraphDef, "RunMetadata": config_pb2.RunMetadata}
TEXTS = ["", "conv1", "a/b:1", 'quo"te', "new\nline", "grün", "\U0001f600", "\x00\x7f"]
FLOATS = [0.0, 1.0, -0.5, 0.1, 1e-5, 1e30, 3.4028234663852886e38, float("inf"), 1 / 3]
VALUES: dict[int, list[Any]] = {
    FieldDescriptor.TYPE_INT32: [0, 1, -1, 2**31 - 1, -(2**31)],
    FieldDescriptor.TYPE_INT64: [0, 1, -1, 2**63 - 1, -(2**63)],
    FieldDescriptor.TYPE_UINT32: [0, 1, 2**32 - 1],
    FieldDescriptor.TYPE_UINT64: [0, 1, 2**64 - 1],
    FieldDescriptor.TYPE_FIXED64: [0, 1, 2**64 - 1],
    FieldDescriptor.TYPE_BOOL: [False, True],
    FieldDescriptor.TYPE_FLOAT: FLOATS,
    FieldDescriptor.TYPE_DOUBLE: [*FLOATS, 5e-324, 1e300],
    FieldDescriptor.TYPE_STRING: TEXTS,
    FieldDescriptor.TYPE_BYTES: [
        *(text.encode() for text in TEXTS),
        b"\xff\xfe",
        bytes(range(256)),
    ],
    FieldDescriptor.TYPE_ENUM: [0, 1, 3, 101, 200],
}


def fill(message: Any, rng: random.Random, depth: int = 0) -> None:
    """Some fields of a message, at random."""
    for field in message.DESCRIPTOR.fields:
        if rng.random() > 0.5:
            continue
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            held = getattr(message, field.name)
            for _ in range(rng.randint(1, 2)):
                key = rng.choice(VALUES[inner.fields[0].type])
                if inner.fields[1].message_type is None:
                    held[key] = rng.choice(VALUES[inner.fields[1].type])
                elif depth < 5:
                    fill(held[key], rng, depth + 1)
        elif inner is not None:
            if depth < 5 and field.is_repeated:
                for _ in range(rng.randint(1, 2)):
                    fill(getattr(message, field.name).add(), rng, depth + 1)
            elif depth < 5:
                getattr(message, field.name).SetInParent()
                fill(getattr(message, field.name), rng, depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(
                rng.choice(VALUES[field.type]) for _ in range(rng.randint(1, 3))
            )
        else:
            setattr(message, field.name, rng.choice(VALUES[field.type]))


def ours(message: Any) -> str:
    kind = message.DESCRIPTOR.name
    return "\n".join(text(kind, message.SerializeToString()))


@pytest.mark.parametrize("kind", list(KINDS))
def test_text_is_read_back_as_the_same_message(kind: str) -> None:
    lines = 0
    for seed in range(200):
        message = KINDS[kind]()
        fill(message, random.Random(seed))
        written = ours(message)
        lines += written.count("\n")
        back = text_format.Parse(written, KINDS[kind]())
        assert back == message, seed
    assert lines > 5000


def test_text_is_what_protobuf_writes() -> None:
    graph = graph_pb2.GraphDef()
    node = graph.node.add(name="conv1", op="Conv2D", input=["x", "w:1"])
    node.attr["padding"].s = b"SAME"
    node.attr["alpha"].f = 0.1
    node.attr["T"].type = 1
    node.attr["zero"].i = 0
    node.attr["strides"].list.i.extend([1, -2])
    node.attr["empty"].list.SetInParent()
    graph.versions.producer = 22
    assert ours(graph) == text_format.MessageToString(graph).rstrip("\n")


def test_the_last_of_what_excludes_each_other_counts_and_halves_are_merged() -> None:
    first, second = graph_pb2.GraphDef(), graph_pb2.GraphDef()
    first.versions.producer, second.versions.min_consumer = 3, 4
    first.node.add().attr["a"].i = 1
    for value in (b"\x18\x05" + b"\x12\x01x", b"\x12\x01x" + b"\x18\x05"):  # i, s in both orders
        entry = b"\x0a\x01a" + b"\x12" + bytes([len(value)]) + value
        node = b"\x2a" + bytes([len(entry)]) + entry
        data = b"\x0a" + bytes([len(node)]) + node
        data += first.SerializeToString() + second.SerializeToString()
        expected = graph_pb2.GraphDef.FromString(data)
        assert (
            text_format.Parse("\n".join(text("GraphDef", data)), graph_pb2.GraphDef()) == expected
        )


def test_unknown_fields_are_left_out() -> None:
    data = bytes([0xF8, 0x07, 5, 0xFA, 0x07, 2, 1, 2]) + graph_def([GraphNode("a", "B")])
    assert "\n".join(text("GraphDef", data)).startswith('node {\n  name: "a"')


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_any_bytes_are_text_or_damage(data: bytes) -> None:
    for kind in KINDS:
        try:
            for line in text(kind, data):
                assert line.isascii()
        except Damaged:
            continue


@given(st.integers(0, 2000), st.data())
@settings(deadline=None, max_examples=40)
def test_damaged_graphs(seed: int, data: Any) -> None:
    message = graph_pb2.GraphDef()
    fill(message, random.Random(seed))
    stored = bytearray(message.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        if stored:
            stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Damaged):
        limited = limited_graph(bytes(stored), 10, "large")
        # What is left is whole: nothing more is taken out of it, and it is written the same.
        assert limited_graph(limited, 10**9, "large") == limited
    with contextlib.suppress(Damaged):
        assert all(line.isascii() for line in text("GraphDef", bytes(stored)))


def test_a_message_within_itself_without_end() -> None:
    value = b""
    for _ in range(400):  # AttrValue.func.attr["a"] = AttrValue ...
        entry = b"\x0a\x01a\x12" + size(value) + value
        names = b"\x12" + size(entry) + entry
        value = b"\x52" + size(names) + names
    with pytest.raises(Damaged, match="corrupt") as caught:
        list(text("AttrValue", value))
    assert caught.value.why == "it is nested more than 100 deep"


def size(data: bytes) -> bytes:
    found, left = b"", len(data)
    while left > 127:
        found, left = found + bytes([left & 127 | 128]), left >> 7
    return found + bytes([left])


def test_large_attributes_are_taken_out_and_named() -> None:
    graph = graph_pb2.GraphDef()
    graph.node.add(name="a", op="Input").attr["small"].s = b"x" * 9
    node = graph.node.add(name="b", op="Input")
    node.attr["small"].s = b"some string"
    node.attr["b"].s = b"x" * 2000
    node.attr["a"].s = b"x" * 1023
    graph.versions.producer = 22
    limited = graph_pb2.GraphDef.FromString(limited_graph(graph.SerializeToString(), 1024, "_big"))
    assert list(limited.node[1].attr["_big"].list.s) == [b"a", b"b"]
    assert set(limited.node[1].attr) == {"small", "_big"}
    assert limited.node[0] == graph.node[0]
    assert limited.versions.producer == 22
    # What is counted is the stored value: 1023 bytes with a tag and a length.
    for limit, left in ((1025, 1), (1026, 0)):
        again = graph_pb2.GraphDef.FromString(
            limited_graph(graph.SerializeToString(), limit, "_big")
        )
        assert ("a" not in again.node[1].attr) == left
    del graph.node[1].attr["b"]
    assert graph.node[1].attr["a"].ByteSize() == 1026


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (True, "b", True),
        (5, "i", 5),
        (-5, "i", -5),
        (2**70, "s", str(2**70).encode()),
        (0.5, "f", 0.5),
        (1e300, "f", float("inf")),
        ("same", "s", b"same"),
        ("gr\ud800", "s", b"gr?"),
        (None, "s", b"None"),
        ({"a": 1}, "s", b"{'a': 1}"),
    ],
)
def test_attributes(value: Any, kind: str, expected: Any) -> None:
    graph = graph_pb2.GraphDef.FromString(graph_def([GraphNode("n", "Op", (), {"key": value})]))
    held = graph.node[0].attr["key"]
    assert held.WhichOneof("value") == kind
    assert getattr(held, kind) == expected


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([True, False], "b", [True, False]),
        ([1, -2], "i", [1, -2]),
        ([0.5], "f", [0.5]),
        (["a", "b"], "s", [b"a", b"b"]),
        ([1, "a", None], "s", [b"1", b"a", b"None"]),
        ([True, 1], "s", [b"True", b"1"]),
        ([2**70], "s", [str(2**70).encode()]),
    ],
)
def test_lists_of_attributes(values: list[Any], kind: str, expected: list[Any]) -> None:
    graph = graph_pb2.GraphDef.FromString(graph_def([GraphNode("n", "Op", (), {"key": values})]))
    held = graph.node[0].attr["key"].list
    assert list(getattr(held, kind)) == expected
    assert [field.name for field, _ in held.ListFields()] == [kind]


def test_a_written_graph() -> None:
    nodes = [
        GraphNode("x", "Input", shapes=[[None, 1, 28, 28]]),
        GraphNode("conv", "CONV", ["x"], {"out": 4}, [[None, 4, 26, 26], []]),
        GraphNode("out", "SPLIT", ["conv", "conv:1"]),
    ]
    graph = graph_pb2.GraphDef.FromString(graph_def(nodes))
    assert [(n.name, n.op, list(n.input)) for n in graph.node] == [
        ("x", "Input", []),
        ("conv", "CONV", ["x"]),
        ("out", "SPLIT", ["conv", "conv:1"]),
    ]
    shapes = graph.node[1].attr["_output_shapes"].list.shape
    assert [[d.size for d in shape.dim] for shape in shapes] == [[-1, 4, 26, 26], []]
