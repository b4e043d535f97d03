"""The types of values as an ONNX file says them: a dtype and a shape, or what holds such."""

from __future__ import annotations

from dataclasses import dataclass

from dlv.adapters.onnx.tensors import MOST_DIMENSIONS, dtype_of
from dlv.adapters.protobuf.reader import Schema, Span
from dlv.errors import UnsafeInput
from dlv.network.fields import LARGEST
from dlv.network.sizes import Dim, Shape

VALUE = Schema("ValueInfoProto", {1: "name text", 2: "type message"})
_TYPE = Schema(
    "TypeProto",
    {
        1: "tensor message",
        4: "sequence message",
        5: "map message",
        7: "opaque message",
        8: "sparse message",
        9: "optional message",
    },
)
_TENSOR = Schema("TypeProto.Tensor", {1: "elem_type int32", 2: "shape message"})
_HOLDER = Schema("TypeProto.Sequence", {1: "elem_type message"})
_SHAPE = Schema("TensorShapeProto", {1: "dim message*"})
_DIM = Schema("Dimension", {1: "value int", 2: "param text"})
_HOLDERS = {"sequence": "seq", "optional": "optional"}
_MOST_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Value:
    """What the file says of a value; shape None: nothing about its rank.

    The dtype of a sequence of float32 is `raw:seq(float32)`; `raw:map` stays what it is.
    """

    dtype: str
    shape: Shape | None


def read_value(span: Span) -> tuple[str, Value | None]:
    given = VALUE.read(span)
    name = given["name"] or ""
    if given["type"] is None:
        return name, None
    return name, read_type(given["type"], f"{name!r} of {span.file.name}")


def read_type(span: Span, what: str, depth: int = 0) -> Value:
    kinds = _TYPE.read(span)
    if kinds["tensor"] is None:
        kind = next((key for key, value in kinds.items() if value is not None), "unknown")
        if kind in _HOLDERS and depth < _MOST_DEPTH:
            held = _HOLDER.read(kinds[kind])["elem_type"]
            if held is not None:
                inner = read_type(held, what, depth + 1).dtype
                return Value(f"raw:{_HOLDERS[kind]}({inner.removeprefix('raw:')})", None)
        return Value(f"raw:{kind}", None)
    typed = _TENSOR.read(kinds["tensor"])
    dtype = dtype_of(typed["elem_type"] or 0, what)
    if typed["shape"] is None:
        return Value(dtype, None)
    dims = _SHAPE.read(typed["shape"])["dim"]
    if len(dims) > MOST_DIMENSIONS:
        raise UnsafeInput(f"{what} has {len(dims)} dimensions")
    return Value(dtype, tuple(_dim(dim) for dim in dims))


def _dim(span: Span) -> Dim:
    given = _DIM.read(span)
    if given["value"] is not None:
        return given["value"] if 0 <= given["value"] <= LARGEST else None
    return given["param"] or None
