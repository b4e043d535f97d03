"""Messages written against Google's own writer."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

onnx = pytest.importorskip("onnx", reason="its messages are the ones written here")

from dlv.adapters.checkpoint import PART, Tensor  # noqa: E402
from dlv.adapters.protobuf import MessageWriter, varint  # noqa: E402
from dlv.errors import Damaged  # noqa: E402


def written(message: MessageWriter) -> bytes:
    out = io.BytesIO()
    message.write(out)
    assert message.size == len(out.getvalue())
    return out.getvalue()


@given(
    st.text(max_size=200),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32, allow_nan=False),
    st.binary(max_size=300),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
)
def test_fields_are_those_of_the_library(
    text: str, whole: int, single: float, data: bytes, many: list[int]
) -> None:
    inner = MessageWriter()
    for number in many:
        inner.varint(1, number)
    inner.raw(9, data)
    made = MessageWriter()
    made.text(1, text)
    made.single(2, single)
    made.varint(3, whole)
    made.message(5, inner)
    wanted = onnx.AttributeProto(name=text, f=single, i=whole)
    wanted.t.dims.extend(many)
    wanted.t.raw_data = data
    assert written(made) == wanted.SerializeToString()


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**32, 2**63 - 1, 2**64 - 1])
def test_varints(value: int) -> None:
    found = 0
    for place, byte in enumerate(varint(value)):
        found |= (byte & 0x7F) << 7 * place
    assert found == value
    assert all(byte & 0x80 for byte in varint(value)[:-1])


def test_what_is_too_large_for_a_single_is_infinite() -> None:
    made = MessageWriter()
    made.single(2, 1e39)
    made.single(2, -1e39)
    singles = struct.unpack("<xfxf", written(made))
    assert singles == (float("inf"), float("-inf"))


def test_tensors_stream_part_by_part() -> None:
    asked: list[int] = []
    size = 3 * PART + 5

    def part(start: int, count: int) -> bytes:
        asked.append(count)
        return bytes(count)

    def whole() -> bytes:
        raise AssertionError("read whole")

    made = MessageWriter()
    made.stream(9, Tensor("t", "uint8", (size,), size, whole, part=part))
    assert len(written(made)) > size
    assert asked == [PART] * 3 + [5]


def test_a_tensor_of_another_length_is_damage() -> None:
    made = MessageWriter()
    made.stream(9, Tensor("t", "uint8", (4,), 4, lambda: b"123"))
    with pytest.raises(Damaged, match="wrong length"):
        made.write(io.BytesIO())


def test_messages_may_be_nested_deeply() -> None:
    made = MessageWriter()
    for _ in range(5_000):
        outer = MessageWriter()
        outer.message(1, made)
        made = outer
    assert written(made).startswith(b"\x0a")
