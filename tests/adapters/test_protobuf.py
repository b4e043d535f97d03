"""dlv.adapters.protobuf: what google.protobuf wrote (or refuses) is read; fields by name."""

from __future__ import annotations

import math
import random
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.adapters.caffe import prototxt
from dlv.adapters.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Memory,
    Message,
    Schema,
    Span,
    Word,
    message,
    packed_bytes,
    shortest,
    signed,
    signed32,
    varints,
)
from dlv.adapters.source import Source
from dlv.errors import Damaged, DlvError, UnsafeInput


def of(text: str) -> Message:
    return prototxt.parse(text.encode(), "f")


def test_kinds() -> None:
    m = of(
        'a: 1 b: -2 c: 0.1 d: inf e: true f: 0 g: MAX h: 1 i: "t" j: 3 j: 4 k { x: 1 } k { x: 2 }'
    )
    assert m.count("a", 9) == 1
    assert m.integer("b", 9) == -2
    assert m.number("c", 9) == 0.1
    assert m.number("a", 9) == 1.0
    assert m.number("d", 9) == math.inf
    assert (m.flag("e", False), m.flag("f", True), m.flag("none", True)) == (True, False, True)
    assert m.word("g", ("MIN", "MAX"), "MIN") == "MAX"
    assert m.word("h", ("MIN", "MAX"), "MIN") == "MAX"
    assert m.word("none", ("MIN", "MAX"), "MIN") == "MIN"
    assert m.text("i") == "t"
    assert m.counts("j") == [3, 4]
    assert [item.count("x", 0) for item in m.messages("k")] == [1, 2]
    assert m.message("none").count("x", 5) == 5
    assert "a" in m
    assert "none" not in m


@pytest.mark.parametrize(
    ("text", "read", "what"),
    [
        ("a: -1", lambda m: m.count("a", 0), "a count"),
        ("a: 4294967296", lambda m: m.count("a", 0), "a count"),
        ("a: 1.5", lambda m: m.count("a", 0), "a count"),
        ("a: 2147483648", lambda m: m.integer("a", 0), "whole number"),
        ("a: true", lambda m: m.integer("a", 0), "whole number"),
        ("a: X", lambda m: m.number("a", 0), "a number"),
        ("a: 'x'", lambda m: m.number("a", 0), "a number"),
        ("a: X", lambda m: m.text("a"), "quotes"),
        ("a: 1", lambda m: m.text("a"), "quotes"),
        ("a: 2", lambda m: m.flag("a", False), "true or false"),
        ("a: 2", lambda m: m.word("a", ("X", "Y"), "X"), "one of X, Y"),
        ("a: Z", lambda m: m.word("a", ("X", "Y"), "X"), "one of X, Y"),
        ("a: 1", lambda m: m.message("a"), "message in braces"),
        ("a { }", lambda m: m.text("a"), "quotes"),
        ("b: 1\n\na: 1 a: 2", lambda m: m.count("a", 0), "one value"),
        ("a { } a { }", lambda m: m.message("a"), "one value"),
    ],
)
def test_wrong_ones_are_told(text: str, read: Any, what: str) -> None:
    message = of(text)
    with pytest.raises(Damaged) as caught:
        read(message)
    assert what in (caught.value.why or "")
    line = 3 if "\n" in text else 1
    assert f"f, line {line}: a" in caught.value.message


def test_from_bytes_there_is_no_line() -> None:
    message = Message("w")
    message.add("a", Word("X"))
    with pytest.raises(Damaged) as caught:
        message.count("a", 0)
    assert caught.value.message == "w: a is 'X'"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (9.999999747378752e-06, 1e-05),
        (0.8999999761581421, 0.9),
        (0.1, 0.1),
        (1.0, 1.0),
        (0.00390625, 0.00390625),
        (16777217.0, 16777216.0),
        (1e300, 1e300),
        (3.4028234663852886e38, 3.4028235e38),
        (-math.inf, -math.inf),
    ],
)
def test_the_shortest_decimal_of_a_float32(value: float, wanted: float) -> None:
    assert shortest(value) == wanted
    assert math.isnan(shortest(math.nan))


onnx = pytest.importorskip("onnx")
decode_error = pytest.importorskip("google.protobuf.message").DecodeError

ATTRIBUTE = Schema(
    "AttributeProto",
    {
        1: "name text",
        2: "f float",
        3: "i int",
        4: "s bytes",
        5: "t message",
        7: "floats float*",
        8: "ints int*",
        9: "strings bytes*",
        20: "type int32",
    },
)
NODE = Schema(
    "NodeProto", {1: "input text*", 2: "output text*", 3: "name text", 5: "attribute message*"}
)
TENSOR = Schema(
    "TensorProto",
    {
        1: "dims int*",
        2: "data_type int32",
        4: "float_data fixed32s",
        5: "int32_data varints",
        7: "int64_data varints",
        8: "name text",
        9: "raw_data message",
        10: "double_data fixed64s",
        11: "uint64_data varints",
    },
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FLOATS = st.floats(width=32, allow_nan=False)
ATTRIBUTES = st.fixed_dictionaries(
    {},
    optional={
        "name": TEXTS,
        "f": FLOATS,
        "i": INT64,
        "s": st.binary(max_size=200),
        "floats": st.lists(FLOATS, max_size=20),
        "ints": st.lists(INT64, max_size=20),
        "strings": st.lists(st.binary(max_size=20), max_size=5),
        "type": st.integers(0, 14),
    },
)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, wire: int, payload: bytes) -> bytes:
    length = varint(len(payload)) if wire == BYTES else b""
    return varint(number << 3 | wire) + length + payload


def whole(data: bytes, **limits: int) -> Span:
    return message(Memory(data), **limits)


@given(ATTRIBUTES)
def test_attributes_as_the_library_wrote_them(values: dict[str, Any]) -> None:
    wrote = onnx.AttributeProto(**values)
    read = ATTRIBUTE.read(whole(wrote.SerializeToString()))
    for name, value in read.items():
        if isinstance(value, list):
            assert value == list(values.get(name, []))
        else:
            assert value == values.get(name)


@given(st.lists(TEXTS, max_size=5), st.lists(ATTRIBUTES, max_size=5), TEXTS)
def test_messages_within_messages(
    inputs: list[str], attributes: list[dict[str, Any]], name: str
) -> None:
    wrote = onnx.NodeProto(
        input=inputs, name=name, attribute=[onnx.AttributeProto(**each) for each in attributes]
    )
    read = NODE.read(whole(wrote.SerializeToString()))
    assert (read["input"], read["name"], read["output"]) == (inputs, name, [])
    for span, values in zip(read["attribute"], attributes, strict=True):
        assert ATTRIBUTE.read(span)["ints"] == list(values.get("ints", []))


@given(st.lists(INT64), st.integers(1, 5))
def test_numbers_packed_in_pieces_and_alone(values: list[int], pieces: int) -> None:
    """A repeated field of numbers may come in any mixture; the library reads all of them."""
    dice = random.Random(len(values))
    data, left = b"", list(values)
    while left:
        count = dice.randint(1, pieces)
        part, left = left[:count], left[count:]
        if count == 1:
            data += field(8, VARINT, varint(part[0]))
        else:
            data += field(8, BYTES, b"".join(map(varint, part)))
    assert list(onnx.AttributeProto.FromString(data).ints) == values
    assert ATTRIBUTE.read(whole(data))["ints"] == values


@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=300), st.booleans())
def test_many_numbers_stay_in_the_file(values: list[int], alone: bool) -> None:
    if alone:
        data = b"".join(field(11, VARINT, varint(value)) for value in values)
    else:
        data = onnx.TensorProto(uint64_data=values).SerializeToString()
    read = TENSOR.read(whole(data))
    assert varints(read["uint64_data"], len(values), 8) == struct.pack(f"<{len(values)}Q", *values)
    for wrong in (len(values) - 1, len(values) + 1, 1 << 60):
        if wrong >= 0:
            with pytest.raises(Damaged):
                varints(read["uint64_data"], wrong, 8)


def test_numbers_across_chunks() -> None:
    dice = random.Random(1)
    values = [dice.getrandbits(dice.choice([7, 20, 63])) for _ in range(600_000)]
    data = onnx.TensorProto(int64_data=values).SerializeToString()
    assert len(data) > 2 << 20
    assert varints(TENSOR.read(whole(data))["int64_data"], len(values), 8) == struct.pack(
        f"<{len(values)}q", *values
    )


@given(st.lists(st.integers(-(1 << 15), (1 << 16) - 1)))
def test_numbers_of_smaller_types(values: list[int]) -> None:
    data = onnx.TensorProto(int32_data=values).SerializeToString()
    spans = TENSOR.read(whole(data))["int32_data"]
    wanted = b"".join((value & 0xFFFF).to_bytes(2, "little") for value in values)
    assert varints(spans, len(values), 2) == wanted
    if any(not -128 <= value < 256 for value in values):
        with pytest.raises(Damaged, match="corrupt"):
            varints(spans, len(values), 1)


@given(st.lists(FLOATS, max_size=20), st.booleans())
def test_floats_stay_in_the_file(values: list[float], alone: bool) -> None:
    raw = struct.pack(f"<{len(values)}f", *values)
    if alone:
        data = b"".join(field(4, FIXED32, raw[at : at + 4]) for at in range(0, len(raw), 4))
    else:
        data = onnx.TensorProto(float_data=values).SerializeToString()
    spans = TENSOR.read(whole(data))["float_data"]
    assert packed_bytes(spans, len(raw)) == raw
    with pytest.raises(Damaged):
        packed_bytes(spans, len(raw) + 4)


def test_doubles_and_presence() -> None:
    read = TENSOR.read(whole(onnx.TensorProto(double_data=[1.5, -2.0]).SerializeToString()))
    assert packed_bytes(read["double_data"], 16) == struct.pack("<2d", 1.5, -2.0)
    assert read["data_type"] is None
    assert read["dims"] == []
    assert ATTRIBUTE.read(whole(onnx.AttributeProto(i=0, s=b"").SerializeToString()))["i"] == 0


@given(st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    """What is read without complaint the library reads too, and to the same values."""
    try:
        read = ATTRIBUTE.read(whole(data))
        nested = read["t"] is None or TENSOR.read(read["t"])
    except DlvError:
        return
    wrote = onnx.AttributeProto.FromString(data)
    assert read["ints"] == list(wrote.ints)
    assert (read["i"] or 0) == wrote.i
    assert (read["s"] or b"") == wrote.s
    assert nested or not wrote.HasField("t")


@given(ATTRIBUTES.filter(bool), st.data())
def test_every_cut(values: dict[str, Any], data: st.DataObject) -> None:
    """A cut is an error, or falls between two fields, and the library says so too."""
    wrote = onnx.AttributeProto(**values).SerializeToString()
    cut = wrote[: data.draw(st.integers(0, len(wrote)))]
    try:
        ATTRIBUTE.read(whole(cut))
    except Damaged:
        with pytest.raises(decode_error):
            onnx.AttributeProto.FromString(cut)
    else:
        onnx.AttributeProto.FromString(cut)


def test_a_file_is_read_in_windows(tmp_path: Path) -> None:
    """The same from a file, of which large fields are never read."""
    model = onnx.GraphProto(
        node=[onnx.NodeProto(name=f"n{i}", input=["x" * i]) for i in range(3000)],
        initializer=[onnx.TensorProto(name="w", dims=[9 << 20], raw_data=bytes(9 << 20))],
        name="g",
    )
    path = tmp_path / "graph"
    path.write_bytes(model.SerializeToString())

    class Counted(Source):
        taken = 0

        def read(self, offset: int, size: int) -> bytearray:
            Counted.taken += size
            return super().read(offset, size)

    graph = Schema("GraphProto", {1: "node message*", 2: "name text", 5: "initializer message*"})
    with Counted(str(path)) as file:
        read = graph.read(message(file))
        names = [NODE.read(span)["name"] for span in read["node"]]
        tensor = TENSOR.read(read["initializer"][0])
        assert names == [f"n{i}" for i in range(3000)]
        assert tensor["raw_data"].size == 9 << 20
        assert Counted.taken < 9 << 20
        assert bytes(tensor["raw_data"].peek()) == bytes(9 << 20)
    part = Memory(b"\xff" * 7 + field(8, BYTES, b"\x01\x02") + b"\xff" * 9)
    assert ATTRIBUTE.read(message(part, 7, 4))["ints"] == [1, 2]


WRONG = {
    "group": b"\x0b\x0c",
    "end of a group": b"\x0c",
    "wire type 6": b"\x0e",
    "wire type 7": b"\x0f",
    "field 0": b"\x02\x00",
    "field beyond 29 bits": varint(1 << 32) + b"\x00",
    "tag of 70 bits": b"\x80" * 10 + b"\x01\x00",
    "varint of 65 bits": b"\x18" + b"\xff" * 9 + b"\x02",
    "varint of 11 bytes": b"\x18" + b"\x80" * 10 + b"\x00",
    "varint cut": b"\x18\x80",
    "tag cut": b"\x80",
    "nothing behind the tag": b"\x18",
    "length beyond the end": b"\x22\x05abcd",
    "length of 2**63": b"\x22" + varint(1 << 63) + b"abc",
    "float cut": b"\x15\0\0\0",
    "double cut": b"\x11\0\0\0\0\0\0\0",
    "text not UTF-8": b"\x0a\x02\xc3\x28",
    "surrogate": b"\x0a\x03\xed\xa0\x80",
    "number for a text": b"\x08\x01",
    "text for a number": b"\x1a\x01a",
    "float for an int": b"\x1d\0\0\0\0",
    "packed varint cut": b"\x42\x02\x01\x80",
    "packed floats cut": b"\x3a\x05\0\0\0\0\0",
    "numbers beyond 64 bits": b"\x42\x0b" + b"\xff" * 10 + b"\x01",
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_bytes(case: str) -> None:
    with pytest.raises(Damaged):
        ATTRIBUTE.read(whole(WRONG[case]))


def test_a_field_that_reaches_into_the_next_one() -> None:
    """The length fits the file, but not the message around it."""
    data = field(5, BYTES, b"\x22\x02a") + field(5, BYTES, b"")
    [first, _] = NODE.read(whole(data))["attribute"]
    with pytest.raises(Damaged):
        ATTRIBUTE.read(first)
    number = field(5, BYTES, b"\x15\0\0\0") + field(5, BYTES, b"")
    with pytest.raises(Damaged):
        ATTRIBUTE.read(NODE.read(whole(number))["attribute"][0])


def test_wrong_wire_types_of_many_numbers() -> None:
    for data in (
        field(4, VARINT, b"\x01"),
        field(7, FIXED64, bytes(8)),
        field(10, FIXED32, b"abcd"),
    ):
        with pytest.raises(Damaged):
            TENSOR.read(whole(data))


def test_a_second_value() -> None:
    with pytest.raises(UnsafeInput, match=r"AttributeProto\.i"):
        ATTRIBUTE.read(whole(b"\x18\x01\x18\x01"))
    with pytest.raises(UnsafeInput, match=r"AttributeProto\.t"):
        ATTRIBUTE.read(whole(b"\x2a\x00\x2a\x00"))


def descend(span: Span) -> None:
    while True:
        _, _, inner = next(span.fields())
        assert isinstance(inner, Span)
        span = inner


def test_limits() -> None:
    data = b"\x18\x01" * 100
    with pytest.raises(UnsafeInput, match="too many fields"):
        list(whole(data, most_fields=99).fields())
    assert len(list(whole(data, most_fields=100).fields())) == 100
    with pytest.raises(UnsafeInput, match="too many numbers"):
        ATTRIBUTE.read(whole(field(8, BYTES, bytes(200)), most_fields=200))
    with pytest.raises(UnsafeInput, match="too many texts"):
        NODE.read(whole(field(1, BYTES, b"abc") * 4, most_memory=10))
    with pytest.raises(UnsafeInput, match="too long"):
        NODE.read(whole(field(3, BYTES, bytes(2 << 20))))
    nested = b""
    for _ in range(200):
        nested = field(5, BYTES, nested)
    with pytest.raises(UnsafeInput, match="nested"):
        descend(whole(nested))


def test_nothing_is_slow() -> None:
    """A bomb of the shortest fields ends at the limit, and soon."""
    start = time.process_time()
    with pytest.raises(UnsafeInput):
        ATTRIBUTE.read(whole(b"\x30\x01" * 5_000_000))
    assert time.process_time() - start < 12


@given(INT64)
def test_signs(value: int) -> None:
    assert signed(value & (1 << 64) - 1) == value
    assert signed32(value & (1 << 64) - 1) == ((value + (1 << 31)) % (1 << 32)) - (1 << 31)


@settings(max_examples=30)
@given(st.binary(max_size=3000), st.integers(0, 4000))
def test_every_window_boundary(text: bytes, padding: int) -> None:
    """Fields at any place relative to the windows that are read."""
    data = field(4, BYTES, bytes(padding)) + field(9, BYTES, text) * 3 + field(3, VARINT, b"\x05")
    read = ATTRIBUTE.read(whole(data))
    assert read["strings"] == [text] * 3
    assert read["i"] == 5
