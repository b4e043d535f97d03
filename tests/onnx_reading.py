"""ONNX models read by dlv, and run in torch beside onnxruntime, for the tests of the reader."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch

from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.adapters.onnx import files as onnx_files
from dlv.network.graph import Network, Node
from dlv.network.torch.module import build
from dlv.network.verify import verify

Array = np.ndarray[Any, Any]
# What onnxruntime says of a model that it cannot load or run.
FAILURES: tuple[type[Exception], ...] = tuple(
    getattr(onnxruntime.capi.onnxruntime_pybind11_state, name)
    for name in ("Fail", "InvalidArgument", "InvalidGraph", "NotImplemented", "RuntimeException")
)


@contextmanager
def opened(
    model: onnx.ModelProto | bytes, folder: Path, name: str = "m.onnx"
) -> Iterator[Checkpoint]:
    path = folder / name
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    checkpoint = onnx_files.open(str(path))
    try:
        yield checkpoint
    finally:
        checkpoint.close()


def network_of(model: onnx.ModelProto, folder: Path) -> Network:
    """The network, of which nothing is wrong."""
    with opened(model, folder) as checkpoint:
        return sound(checkpoint)


def sound(checkpoint: Checkpoint) -> Network:
    network = checkpoint.network
    assert network is not None
    stored = {t.name: (t.dtype, t.shape) for t in [*checkpoint.tensors, *checkpoint.constants]}
    errors = [problem for problem in verify(network, stored) if problem.severity == "error"]
    assert not errors, [str(problem) for problem in errors]
    assert Network.from_canonical(network.canonical()).id == network.id
    return network


def word(node: Node) -> str:
    """A node in a word: `CONV`, `POOL.MAX`, `view`, `aten.sub.Tensor`, `onnx:LSTM`."""
    if node.op == "RESHAPE":
        return str(node.attrs["kind"])
    if node.op != "OP" or node.source is None:
        return node.op if node.variant is None else f"{node.op}.{node.variant}"
    op = str(node.source["op"])
    return op if node.source["dialect"] == "aten" else f"onnx:{op}"


def words(network: Network) -> list[str]:
    return [word(node) for node in network.nodes]


def elements(tensor: Tensor) -> torch.Tensor:
    raw = bytearray(tensor.read())
    dtype = getattr(torch, tensor.dtype)
    if not raw:
        return torch.empty(tensor.shape, dtype=dtype)
    return torch.frombuffer(raw, dtype=dtype).reshape(tensor.shape).clone()


def in_torch(checkpoint: Checkpoint, inputs: Mapping[str, Array]) -> list[Array]:
    """What dlv's own rebuilding makes of the model."""
    network = sound(checkpoint)
    module = build(
        network,
        {tensor.name: elements(tensor) for tensor in checkpoint.tensors},
        {tensor.name: elements(tensor) for tensor in checkpoint.constants},
    ).eval()
    with torch.no_grad():
        got = module(*(torch.from_numpy(inputs[item.name].copy()) for item in network.inputs))
    return [each.detach().numpy() for each in (got if isinstance(got, tuple) else (got,))]


def in_onnxruntime(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    found: list[Array] = session.run(None, dict(inputs))
    return found


def random_input(model: onnx.ModelProto, batch: int = 2) -> dict[str, Array]:
    """Numbers for the inputs that are no initializers; lengths that are free are `batch`."""
    dice = np.random.default_rng(batch)
    stored = {item.name for item in model.graph.initializer}
    result = {}
    for item in model.graph.input:
        if item.name in stored:
            continue
        kind = item.type.tensor_type
        shape = [dim.dim_value or batch for dim in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if dtype.kind == "f":
            result[item.name] = dice.standard_normal(shape).astype(dtype)
        elif dtype.kind == "b":
            result[item.name] = dice.random(shape) < 0.5
        else:
            result[item.name] = dice.integers(0, 5, shape).astype(dtype)
    return result


def restored(checkpoint: Checkpoint) -> bytes:
    out = io.BytesIO()
    assert checkpoint.skeleton is not None
    onnx_files.restore(out, checkpoint.skeleton, checkpoint.tensors)
    return out.getvalue()
