"""A network with its tensors, and every way in which dlv runs it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnxruntime
import torch

import dlv.evaluation.engines as engines
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.adapters.onnx.writer import save_network
from dlv.network.graph import Network, Port
from dlv.network.program import Program, _resolved, program
from dlv.network.torch import module as torch_module
from dlv.weights.arrays import to_array, to_torch

Arrays = Mapping[str, Any]


class NoKernel(Exception):
    """onnxruntime has no code for an operation and dtype that ONNX has."""


@dataclass(frozen=True)
class Subject:
    network: Network
    tensors: Sequence[Tensor]
    constants: Sequence[Tensor]
    notes: Sequence[str] = ()

    @classmethod
    def of(cls, found: Checkpoint, state: Mapping[str, torch.Tensor] | None = None) -> Subject:
        """Of what an importer gave; the module's own tensors where it gave none."""
        tensors = list(found.tensors)
        if state is not None:
            tensors = [stored(name, tensor) for name, tensor in state.items()]
        assert found.network is not None
        return cls(found.network, tensors, found.constants, found.notes)

    def with_network(self, network: Network, tensors: Sequence[Tensor] | None = None) -> Subject:
        return replace(self, network=network, tensors=self.tensors if tensors is None else tensors)

    @cached_property
    def shapes(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        return {tensor.name: (tensor.dtype, tensor.shape) for tensor in self.tensors}

    @property
    def static(self) -> bool:
        return (self.network.origin or {}).get("batch") == "static"

    def built(self) -> torch_module.NetworkModule:
        """As `version.module()` makes it, in eval mode."""
        buffers = list((self.network.origin or {}).get("buffers", ()))
        buffers += [tensor.name for tensor in self.tensors if tensor.role == "buffer"]
        held = {tensor.name: as_torch(tensor) for tensor in self.tensors}
        constants = {tensor.name: as_torch(tensor) for tensor in self.constants}
        made = torch_module.build(self.network, held, constants, buffers=buffers)
        made.train(False)
        return made

    def program(self) -> Program:
        return program(self.network, self.shapes)

    def engine(self, name: str, precision: str, steps: Program) -> Any:
        held = {tensor.name: tensor for tensor in (*self.tensors, *self.constants)}
        aliases = self.network.aliases

        def tensor(wanted: str) -> Any:
            found = held[aliases.get(wanted, wanted)]
            array = to_array(found.dtype, found.shape, found.read())
            return array.astype(np.float64) if array.dtype.kind == "f" else array

        return engines.engine(name, steps, tensor, precision)

    def evaluated(self, name: str, precision: str, inputs: Arrays) -> list[Any]:
        """All outputs of the network, by an engine of `dlv eval`."""
        network = self.network
        ports = [_resolved(network, port) for port in network.outputs]
        nodes = [node for node, _ in network.outputs if node in network]
        steps = program(network, self.shapes, until=nodes)
        kept = {f"out{place}": port for place, port in enumerate(ports)}
        given = [
            n for n in input_names(network) if n in {*steps.input_names, *(p for p, _ in ports)}
        ]
        steps = replace(steps, kept=kept, scores=ports[0], input_names=tuple(given))
        values = self.engine(name, precision, steps).values(inputs)
        return [values[port] for port in ports]

    def scores(self, name: str, precision: str, inputs: Arrays) -> tuple[Any, bool]:
        """What `dlv eval` looks at, and whether that is the first output itself."""
        steps = self.program()
        first: Port = _resolved(self.network, self.network.outputs[0])
        return self.engine(name, precision, steps).scores(inputs), steps.scores == first

    def onnx(self) -> bytes:
        out = io.BytesIO()
        save_network(out, self.network, self.tensors, self.constants)
        return out.getvalue()


def input_names(network: Network) -> list[str]:
    return [item.name for item in network.inputs]


def as_torch(tensor: Tensor) -> torch.Tensor:
    found: torch.Tensor = to_torch(tensor.dtype, tensor.shape, tensor.read())
    return found


def stored(name: str, tensor: torch.Tensor) -> Tensor:
    plain = tensor.detach().cpu().contiguous()
    raw = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    dtype = str(plain.dtype).removeprefix("torch.")
    return Tensor(name, dtype, tuple(plain.shape), len(raw), lambda: raw)


def run_onnx(model: bytes, values: Sequence[Any]) -> list[Any]:
    """The file in onnxruntime as anyone starts it; inputs in the order of the file."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        if "NOT_IMPLEMENTED" in str(error) or type(error).__name__ == "NotImplemented":
            raise NoKernel(str(error)[:200]) from error
        raise
    names = [item.name for item in session.get_inputs()]
    if len(names) != len(values):
        raise AssertionError(f"the file has the inputs {names}")
    found: list[Any] = session.run(None, dict(zip(names, values, strict=True)))
    return found
