"""Models of the zoo, exported once for all tests: what torch made, and what dlv made of it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

from dlv.adapters.aten import live as torch_export
from dlv.adapters.checkpoint import Checkpoint
from dlv.network.graph import Network
from tests.zoo.models import build


@dataclass(frozen=True)
class Traced:
    module: nn.Module
    inputs: tuple[Any, ...]
    checkpoint: Checkpoint
    program: Any  # torch's ExportedProgram

    @property
    def network(self) -> Network:
        assert self.checkpoint.network is not None
        return self.checkpoint.network

    @property
    def tensors(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The state dict as `verify` takes it."""
        state = self.module.state_dict().items()
        return {name: (str(t.dtype).removeprefix("torch."), tuple(t.shape)) for name, t in state}

    @property
    def constants(self) -> dict[str, torch.Tensor]:
        """What the network holds beside the state dict, as torch knows it."""
        found = {}
        for tensor in self.checkpoint.constants:
            dtype = getattr(torch, tensor.dtype)
            flat = torch.frombuffer(bytearray(tensor.read()), dtype=dtype)
            found[tensor.name] = flat.reshape(tensor.shape)
        return found

    def save(self, folder: Path) -> Path:
        """As torch saves it."""
        path = folder / "model.pt2"
        torch.export.save(self.program, path)
        return path


def trace(module: nn.Module, inputs: Any, **options: Any) -> Traced:
    """dlv's trace, with the program that it was made from."""
    programs = []
    export = torch_export._export

    def noted(*arguments: Any) -> Any:
        programs.append(export(*arguments))
        return programs[-1]

    with mock.patch.object(torch_export, "_export", noted):
        checkpoint = torch_export.trace(module, inputs, **options)
    return Traced(module, inputs, checkpoint, programs[-1])


@functools.cache
def traced(name: str) -> Traced:
    """A model of the zoo; not to be changed."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return trace(*build(name))
    finally:
        torch.set_num_threads(before)
