"""The element types of tensors: what dlv calls each, how many bytes it takes, what others call it.

Whatever reads or writes numbers asks here. A type without a row of its own is `raw:` and the name
that its file format gives it: dlv keeps its bytes and knows their count, not their meaning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Dtype(NamedTuple):
    """An element type. `exponent`, `mantissa` and `bias` describe a float, or a complex part."""

    name: str
    bytes: int  # per element
    numpy: str | None  # without byte order; None: numpy has no such type
    struct: str | None  # the code of Python's struct module
    torch: str
    onnx: int  # TensorProto.DataType
    exponent: int = 0  # bits
    mantissa: int = 0  # bits
    bias: int = 0

    @property
    def word(self) -> int:
        """Bytes of a number, which other byte orders reverse together: half a complex element."""
        return self.bytes // 2 if self.name.startswith("complex") else self.bytes


# fmt: off
_TABLE = (
    #      name           bytes numpy  struct torch          onnx  exponent, mantissa, bias
    Dtype("bool",            1, "b1",  "?",  "bool",             9),
    Dtype("int8",            1, "i1",  "b",  "int8",             3),
    Dtype("int16",           2, "i2",  "h",  "int16",            5),
    Dtype("int32",           4, "i4",  "i",  "int32",            6),
    Dtype("int64",           8, "i8",  "q",  "int64",            7),
    Dtype("uint8",           1, "u1",  "B",  "uint8",            2),
    Dtype("uint16",          2, "u2",  "H",  "uint16",           4),
    Dtype("uint32",          4, "u4",  "I",  "uint32",          12),
    Dtype("uint64",          8, "u8",  "Q",  "uint64",          13),
    Dtype("float16",         2, "f2",  "e",  "float16",         10,  5, 10, 15),
    Dtype("float32",         4, "f4",  "f",  "float32",          1,  8, 23, 127),
    Dtype("float64",         8, "f8",  "d",  "float64",         11, 11, 52, 1023),
    Dtype("bfloat16",        2, None,  None, "bfloat16",        16,  8, 7, 127),
    Dtype("float8_e4m3",     1, None,  None, "float8_e4m3fn",   17,  4, 3, 7),
    Dtype("float8_e5m2",     1, None,  None, "float8_e5m2",     19,  5, 2, 15),
    Dtype("float8_e4m3fnuz", 1, None,  None, "float8_e4m3fnuz", 18,  4, 3, 8),
    Dtype("float8_e5m2fnuz", 1, None,  None, "float8_e5m2fnuz", 20,  5, 2, 16),
    Dtype("float8_e8m0",     1, None,  None, "float8_e8m0fnu",  24),  # powers of two, no sign
    Dtype("complex64",       8, "c8",  None, "complex64",       14,  8, 23, 127),
    Dtype("complex128",     16, "c16", None, "complex128",      15, 11, 52, 1023),
)
# fmt: on
DTYPES = {dtype.name: dtype for dtype in _TABLE}
TORCH_DTYPES = {dtype.torch: dtype for dtype in _TABLE}
ONNX_DTYPES = {dtype.onnx: dtype for dtype in _TABLE}
ITEM_BYTES = {dtype.name: dtype.bytes for dtype in _TABLE}
STRUCT_CODES = {dtype.name: dtype.struct for dtype in _TABLE if dtype.struct is not None}

# `raw:` types -> (elements, bytes) of a block. First those of GGUF, then elements of so many bits
# that are packed (safetensors, ONNX), then what torch keeps in whole bytes.
RAW_BLOCKS = {
    "raw:Q4_0": (32, 18),
    "raw:Q4_1": (32, 20),
    "raw:Q5_0": (32, 22),
    "raw:Q5_1": (32, 24),
    "raw:Q8_0": (32, 34),
    "raw:Q8_1": (32, 40),
    "raw:Q2_K": (256, 84),
    "raw:Q3_K": (256, 110),
    "raw:Q4_K": (256, 144),
    "raw:Q5_K": (256, 176),
    "raw:Q6_K": (256, 210),
    "raw:Q8_K": (256, 292),
    "raw:IQ2_XXS": (256, 66),
    "raw:IQ2_XS": (256, 74),
    "raw:IQ3_XXS": (256, 98),
    "raw:IQ1_S": (256, 50),
    "raw:IQ4_NL": (32, 18),
    "raw:IQ3_S": (256, 110),
    "raw:IQ2_S": (256, 82),
    "raw:IQ4_XS": (256, 136),
    "raw:IQ1_M": (256, 56),
    "raw:TQ1_0": (256, 54),
    "raw:TQ2_0": (256, 66),
    "raw:MXFP4": (32, 17),
    "raw:NVFP4": (64, 36),
    "raw:Q1_0": (128, 18),
    **dict.fromkeys(("raw:UINT2", "raw:INT2"), (4, 1)),
    **dict.fromkeys(("raw:F4", "raw:UINT4", "raw:INT4", "raw:FLOAT4E2M1"), (2, 1)),
    **dict.fromkeys(("raw:F6_E2M3", "raw:F6_E3M2", "raw:FLOAT6E2M3", "raw:FLOAT6E3M2"), (4, 3)),
    **{f"raw:{sign}int{bits}": (1, 1) for sign in ("", "u") for bits in range(1, 8)},
    "raw:float4_e2m1fn_x2": (1, 1),
    "raw:complex32": (1, 4),
}


def block_of(dtype: str) -> tuple[int, int]:
    """How many elements of a dtype make a block of how many bytes; (1, 0) if it is unknown."""
    if dtype in ITEM_BYTES:
        return 1, ITEM_BYTES[dtype]
    return RAW_BLOCKS.get(dtype.removesuffix("_BE"), (1, 0))


def tensor_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a tensor's elements; 0 if the dtype is unknown."""
    elements, size = block_of(dtype)
    return -(-math.prod(shape) * size // elements)
