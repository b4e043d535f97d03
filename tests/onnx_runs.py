"""Networks written as ONNX and run by onnxruntime, for the tests of the writer."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.onnx.writer import save_network
from dlv.canonical import matrix_hash
from dlv.network.graph import Input, Network, Node
from dlv.network.vocabulary import complete

Arrays = Mapping[str, Any]


def stored(name: str, array: Any, dtype: str | None = None) -> Tensor:
    """A tensor in memory; `dtype` names what the bytes are where numpy has no word for it."""
    shape = tuple(array.shape)
    raw = np.ascontiguousarray(array).tobytes()
    return Tensor(name, dtype or str(array.dtype), shape, len(raw), lambda: raw)


def node(
    op: str,
    inputs: Sequence[str | tuple[str, int]],
    *,
    name: str = "n",
    variant: str | None = None,
    params: Sequence[str] | Mapping[str, str] = (),
    **attrs: Any,
) -> Node:
    """A node with complete attributes; slots named in a list hold tensors of their own names."""
    slots = dict(params) if isinstance(params, Mapping) else {slot: slot for slot in params}
    ports = tuple(item if isinstance(item, tuple) else (item, 0) for item in inputs)
    return Node(name, op, variant, complete(op, variant, attrs, params=slots), ports, slots)


def network(
    nodes: Sequence[Node], shapes: Mapping[str, Any], *outputs: str | tuple[str, int], **more: Any
) -> Network:
    """Inputs by shape, or by (dtype, shape); without outputs, the last node's."""
    inputs = [
        Input(name, tuple(given[1]), given[0])
        if len(given) == 2 and isinstance(given[1], tuple)
        else Input(name, tuple(given))
        for name, given in shapes.items()
    ]
    ends = [item if isinstance(item, tuple) else (item, 0) for item in outputs]
    return Network(tuple(inputs), tuple(nodes), tuple(ends or [(nodes[-1].name, 0)]), **more)


def written(
    made: Network, tensors: Arrays, constants: Arrays | None = None, **options: Any
) -> tuple[bytes, list[str]]:
    """The file and the notes; the file is one that onnx itself calls sound."""
    out = io.BytesIO()
    given = [
        item if isinstance(item, Tensor) else stored(name, item) for name, item in tensors.items()
    ]
    kept = [stored(name, item) for name, item in (constants or {}).items()]
    notes = save_network(out, made, given, kept, **options)
    onnx.checker.check_model(out.getvalue(), full_check=True)
    return out.getvalue(), notes


def hashes(constants: Arrays) -> dict[str, str]:
    return {
        name: matrix_hash(str(item.dtype), item.shape, item.tobytes())
        for name, item in constants.items()
    }


def session(data: bytes | str) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def run(
    made: Network, tensors: Arrays, inputs: Arrays, constants: Arrays | None = None
) -> list[Any]:
    """What onnxruntime computes, one array for each output."""
    data, _ = written(made, tensors, constants)
    found: list[Any] = session(data).run(None, dict(inputs))
    return found


def difference(a: Any, b: Any) -> float:
    """The largest one, relative to what is larger than 1; infinite where the shapes differ."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or (a.dtype != b.dtype):
        return float("inf")
    if not a.size:
        return 0.0
    if a.dtype == bool or not np.issubdtype(a.dtype, np.floating):
        return 0.0 if np.array_equal(a, b) else float("inf")
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0.0, np.abs(a.astype(float) - b) / np.maximum(1, np.abs(b)))
    return float(np.nan_to_num(off, nan=np.inf).max())
