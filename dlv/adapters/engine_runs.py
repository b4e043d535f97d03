"""Runs of a network by numpy and onnxruntime, for importers that compare it with its original."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.onnx.writer import save_network
from dlv.errors import DlvError, require
from dlv.kinds import Array
from dlv.network.forward import Forward
from dlv.network.graph import Network
from dlv.network.program import program

# It moves padding into a max pool, where the zeros then count as -infinity.
WRONG_OPTIMIZERS = ("Pad_Fusion",)


def in_memory(name: str, array: Array) -> Tensor:
    """A tensor of a checkpoint, from an array."""
    raw = np.ascontiguousarray(array).tobytes()
    return Tensor(name, str(array.dtype), array.shape, len(raw), lambda: raw)


def session(runtime: Any, model: bytes | str, threads: int = 0) -> Any:
    """Open a silent CPU session of onnxruntime; with 0 threads it takes all processors."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, min(threads, 1)
    options.log_severity_level = 4
    return runtime.InferenceSession(
        model,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=list(WRONG_OPTIMIZERS),
    )


def numpy_outputs(
    network: Network, tensor: Callable[[str], Array], inputs: Mapping[str, Array]
) -> Iterator[tuple[int, Array]]:
    """Yield (position, value) of each output that numpy computes; `dlv eval` refuses the others."""
    for position, (name, port) in enumerate(network.outputs):
        if port or name not in network:
            continue
        try:
            steps = program(replace(network, outputs=((name, port),)), until=[name])
            values = Forward(steps, tensor).values(inputs)
        except (DlvError, KeyError):
            continue
        yield position, np.asarray(values[steps.kept[name]])


def onnxruntime_outputs(
    network: Network,
    tensors: Mapping[str, Array],
    constants: Mapping[str, Array],
    inputs: Mapping[str, Array],
) -> Iterator[tuple[int, Array]]:
    """Yield (position, value) of each output, or nothing if onnxruntime cannot run the network."""
    out = io.BytesIO()
    try:
        runtime: Any = require("onnxruntime", "onnxruntime")
        stored = [[in_memory(*item) for item in held.items()] for held in (tensors, constants)]
        save_network(out, network, *stored)
    except DlvError:
        return
    try:
        opened = session(runtime, out.getvalue())
        # The file has its inputs in the order of the network, perhaps under other names.
        names = [item.name for item in opened.get_inputs()]
        given = [np.asarray(inputs[item.name], order="C") for item in network.inputs]
        values = opened.run(None, dict(zip(names, given, strict=True)))
    except Exception:  # of classes of onnxruntime's own
        return
    for position, value in enumerate(values):
        yield position, np.asarray(value)
