"""The messages of an ONNX file, written: model, graph, node, attribute, tensor, types."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, BinaryIO

from dlv.adapters.onnx.tensors import RAW_TYPES
from dlv.adapters.protobuf import MessageWriter, Stream, packed
from dlv.dataclass import dataclass
from dlv.dtypes import DTYPES, STRUCT_CODES
from dlv.errors import UsageError
from dlv.network.sizes import Shape

# TensorProto.DataType of what a tensor may hold; float8_e8m0 came with a later IR version.
TYPES = {name: dtype.onnx for name, dtype in DTYPES.items() if name != "float8_e8m0"}
# What a value may be, though no tensor of it is written here.
_VALUE_TYPES = {
    **{name: dtype.onnx for name, dtype in DTYPES.items()},
    **{name: code for code, name in RAW_TYPES.items() if code},
}
_HOLDERS = {"seq": 4, "optional": 9}
_FLOAT, _INT, _STRING, _TENSOR, _GRAPH, _FLOATS, _INTS, _STRINGS, _GRAPHS = (
    *(1, 2, 3, 4, 5, 6, 7, 8),
    10,
)
_EXTERNAL = 1


@dataclass(frozen=True)
class Operator:
    """A node of the file: its operation, the names of what goes in ("" = left out) and out."""

    kind: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    name: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""


@dataclass(frozen=True)
class Array:
    """An initializer: `data` is a stored tensor, or bytes made here."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Stream


@dataclass(frozen=True)
class Plain:
    """A few bytes, to be written like a tensor."""

    data: bytes

    @property
    def nbytes(self) -> int:
        return len(self.data)

    def copy_to(self, out: BinaryIO) -> None:
        out.write(self.data)


@dataclass(frozen=True)
class Encoded:
    """A graph as the bytes of its message."""

    data: bytes


@dataclass(frozen=True)
class Place:
    """Where the elements of a tensor lie in a file beside the model."""

    location: str
    offset: int


def data_type(dtype: str, label: str, known: Mapping[str, int] = TYPES) -> int:
    """The number of a dtype; UsageError if an ONNX file cannot hold it."""
    if dtype not in known:
        raise UsageError(
            f"an ONNX file cannot hold {label}",
            why=f"it has no dtype {dtype.removeprefix('raw:')}",
            hint="export --file-format safetensors keeps every dtype",
        )
    return known[dtype]


def tensor(array: Array, place: Place | None = None) -> MessageWriter:
    made = MessageWriter()
    for dim in array.shape:
        made.varint(1, dim)
    made.varint(2, data_type(array.dtype, f"the tensor {array.name!r}"))
    if array.name:
        made.text(8, array.name)
    if place is None:
        made.stream(9, array.data)
        return made
    where = {"location": place.location, "offset": place.offset, "length": array.data.nbytes}
    for key, value in where.items():
        made.message(13, _entry(key, str(value)))
    made.varint(14, _EXTERNAL)
    return made


def _entry(key: str, value: str) -> MessageWriter:
    made = MessageWriter()
    made.text(1, key)
    made.text(2, value)
    return made


def sound(value: Any) -> bool:
    """Whether `attribute` can write it."""
    if isinstance(value, (list, tuple)):
        for kinds in ((int, float), (str, bytes), (Encoded,)):
            if all(isinstance(item, kinds) for item in value):
                return all(not isinstance(item, int) or _fits(item) for item in value)
        return False
    if isinstance(value, int):
        return _fits(value)
    return isinstance(value, (float, str, bytes, Array, Encoded))


def _fits(value: int) -> bool:
    return -(1 << 63) <= value < 1 << 63


def attribute(name: str, value: Any) -> MessageWriter:
    """Numbers, texts, an Array, or a list of one kind of numbers or texts."""
    made = MessageWriter()
    made.text(1, name)
    if isinstance(value, float):
        made.single(2, value)
        kind = _FLOAT
    elif isinstance(value, int):
        made.varint(3, int(value))
        kind = _INT
    elif isinstance(value, (str, bytes)):
        made.raw(4, value if isinstance(value, bytes) else value.encode("utf-8"))
        kind = _STRING
    elif isinstance(value, Array):
        made.message(5, tensor(value))
        kind = _TENSOR
    elif isinstance(value, Encoded):
        made.raw(6, value.data)
        kind = _GRAPH
    elif value and all(isinstance(item, Encoded) for item in value):
        for item in value:
            made.raw(11, item.data)
        kind = _GRAPHS
    elif any(isinstance(item, float) for item in value):
        for item in value:
            made.single(7, item)
        kind = _FLOATS
    elif all(isinstance(item, int) for item in value):
        for item in value:
            made.varint(8, item)
        kind = _INTS
    else:
        for item in value:
            made.raw(9, item if isinstance(item, bytes) else item.encode("utf-8"))
        kind = _STRINGS
    made.varint(20, kind)
    return made


def operator(item: Operator) -> MessageWriter:
    made = MessageWriter()
    for name in item.inputs:
        made.text(1, name)
    for name in item.outputs:
        made.text(2, name)
    made.text(3, item.name)
    made.text(4, item.kind)
    for name in sorted(item.attrs):
        made.message(5, attribute(name, item.attrs[name]))
    if item.domain:
        made.text(7, item.domain)
    return made


def value_info(name: str, dtype: str, shape: Shape | None) -> MessageWriter:
    """The type of an input or output; an unknown length is a dimension that says nothing."""
    made = MessageWriter()
    made.text(1, name)
    made.message(2, _type(name, dtype, shape))
    return made


def _type(name: str, dtype: str, shape: Shape | None) -> MessageWriter:
    """A tensor, or `raw:seq(..)` and `raw:optional(..)` of one."""
    outer, typed = MessageWriter(), MessageWriter()
    around, _, inner = dtype.removeprefix("raw:").removesuffix(")").partition("(")
    if inner and around in _HOLDERS:
        known = inner if inner in TYPES else f"raw:{inner}"
        typed.message(1, _type(name, known, None))
        outer.message(_HOLDERS[around], typed)
        return outer
    typed.varint(1, data_type(dtype, name, _VALUE_TYPES))
    if shape is not None:
        dims = MessageWriter()
        for length in shape:
            dim = MessageWriter()
            if isinstance(length, str):
                dim.text(2, length)
            elif length is not None:
                dim.varint(1, length)
            dims.message(1, dim)
        typed.message(2, dims)
    outer.message(1, typed)
    return outer


def model(
    graph: MessageWriter,
    *,
    ir_version: int,
    opsets: Mapping[str, int],
    producer: tuple[str, str],
    metadata: Mapping[str, str],
) -> MessageWriter:
    made = MessageWriter()
    made.varint(1, ir_version)
    made.text(2, producer[0])
    made.text(3, producer[1])
    made.message(7, graph)
    for domain in sorted(opsets):
        opset = MessageWriter()
        if domain:
            opset.text(1, domain)
        opset.varint(2, opsets[domain])
        made.message(8, opset)
    for key in sorted(metadata):
        made.message(14, _entry(key, metadata[key]))
    return made


def elements(dtype: str, values: Iterable[float]) -> bytes:
    """Numbers as the little-endian elements of a tensor; what is too large is infinite."""
    code = STRUCT_CODES[dtype]
    if code in "efd":
        return b"".join(packed(code, float(value)) for value in values)
    whole = [bool(value) if code == "?" else int(value) for value in values]
    try:
        return struct.pack(f"<{len(whole)}{code}", *whole)
    except struct.error as error:
        raise UsageError(f"a number does not fit into {dtype}", why=str(error)) from error
