"""How many bytes a tensor takes, also of the dtypes that only their bytes describe."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlv.adapters.checkpoint import ITEM_BYTES
from dlv.adapters.gguf.header import TYPES

# `raw:` dtype -> (elements, bytes) of a block; elements of less than a byte fill whole bytes.
_BLOCKS = {kind.here: (kind.block, kind.size) for kind in TYPES.values()}
# Elements of other widths in bits, packed; as safetensors, onnx and torch call them.
_BITS = {
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "UINT4": 4,
    "INT4": 4,
    "FLOAT4E2M1": 4,
    "UINT2": 2,
    "INT2": 2,
    "FLOAT6E2M3": 6,
    "FLOAT6E3M2": 6,
    "complex32": 32,
    "float4_e2m1fn_x2": 8,
    **{f"{sign}int{bits}": 8 for sign in ("", "u") for bits in range(1, 8)},
}


def tensor_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of all elements; 0 where nothing is known of the dtype."""
    elements = math.prod(shape)
    if dtype in ITEM_BYTES:
        return ITEM_BYTES[dtype] * elements
    if dtype.removesuffix("_BE") in _BLOCKS:
        block, size = _BLOCKS[dtype.removesuffix("_BE")]
        return -(-elements // block) * size
    return -(-elements * _BITS.get(dtype.removeprefix("raw:"), 0) // 8)
