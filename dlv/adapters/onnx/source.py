"""Attributes of an ONNX operator as JSON, for operators that are kept as they are.

Besides the tags of every `source`: {"tensor": {dtype, shape, elements}} and {"bytes": ..} in
base64, {"graph": ..} for the body of If, Loop and Scan: a GraphProto in base64, or null and its
hash if it is large, {"unread": kind} for what stays in the file.
"""

from __future__ import annotations

import base64
from typing import Any

from dlv.adapters.decimals import shortest
from dlv.adapters.onnx.model import Body, Opaque
from dlv.adapters.onnx.tensors import Stored
from dlv.canonical import hasher, number

MOST_BODY_BYTES = 64 << 10
_MOST_TENSOR_BYTES = 4096


def attribute_json(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {"l": [attribute_json(item) for item in value]}
    if isinstance(value, float):
        return {"c": number(shortest(value))}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, Body):
        return _kept("graph", value.span.size, value.span)
    if isinstance(value, Opaque):
        return {"unread": value.kind, "bytes": value.size}
    if isinstance(value, Stored):
        made: dict[str, Any] = {"dtype": value.dtype, "shape": list(value.shape)}
        if value.nbytes <= _MOST_TENSOR_BYTES:
            made["elements"] = base64.b64encode(bytes(value.read())).decode("ascii")
        return {"tensor": made}
    return {"c": value}


def _kept(kind: str, size: int, span: Any) -> dict[str, Any]:
    if size > MOST_BODY_BYTES:
        made = hasher()
        for start in range(0, size, 1 << 20):
            made.update(span.file.read(span.offset + start, min(1 << 20, size - start)))
        return {kind: None, "bytes": size, "blake3": made.hexdigest()}
    return {kind: base64.b64encode(bytes(span.peek())).decode("ascii")}
