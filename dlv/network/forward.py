"""A network run on a batch by numpy: what testing a model computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from dlv.errors import UsageError
from dlv.kinds import Array
from dlv.memory import free_memory
from dlv.network.graph import Network, Port
from dlv.network.ops.op import NotRunnable, Run, op_of
from dlv.network.program import Program, Step, params_of
from dlv.network.sizes import ShapeError, text

Tensor = Callable[[str], Array]


class Forward:
    """A program with its tensors at hand, in one precision; called once per batch."""

    def __init__(self, program: Program, tensor: Tensor, dtype: DTypeLike = np.float64) -> None:
        self.program = program
        self.dtype = np.dtype(dtype)
        self._tensor = tensor
        self._params: dict[str, Mapping[str, Array]] = {}
        self._room = _room()  # bytes of parameters that are kept for the next batch
        self._constants: dict[str, Array] | None = None
        self._ports: dict[str, set[int]] = {}
        read = [port for step in program.steps for port in step.inputs]
        for name, port in (program.scores, *program.kept.values(), *read):
            self._ports.setdefault(name, set()).add(port)

    def __call__(self, inputs: Mapping[str, Array]) -> Array:
        """The scores of a batch."""
        return self.values(inputs)[self.program.scores]

    def values(self, inputs: Mapping[str, Array]) -> dict[Port, Array]:
        """The scores, and what the program was asked to keep, by where they are known."""
        sizes = sizes_of(self.program.network, inputs)
        known: dict[Port, Array] = {
            (name, 0): self.of_dtype(inputs[name]) for name in self.program.input_names
        }
        known.update({(name, 0): value for name, value in self.constants().items()})
        with np.errstate(all="ignore"):
            for step in self.program.steps:
                given = [_port(step, known, port) for port in step.inputs]
                ports = self._ports.get(step.result, ())
                run = Run(given, self.params(step), sizes, ports, self.dtype.name)
                try:
                    found = self.ran(step, run)
                except (ShapeError, ValueError, IndexError) as error:
                    raise _unfit(step, given, error) from error
                known.update({(step.result, port): value for port, value in enumerate(found)})
                forget(known, step)
                del run  # or two layers' parameters would be in memory at once
        return known

    def ran(self, step: Step, run: Run) -> tuple[Array, ...]:
        """What one step makes of its inputs."""
        return op_of(step.node).forward(step.node, run)

    def params(self, step: Step) -> Mapping[str, Array]:
        if step.result in self._params:
            return self._params[step.result]
        params = {k: self.of_dtype(v) for k, v in params_of(step, self._tensor).items()}
        size = sum(value.nbytes for value in params.values())
        if size <= self._room:
            self._room -= size
            self._params[step.result] = params
        return params

    def share(self, other: Forward, *, but: Set[str]) -> None:
        """Reuse the parameters of another run, except those of the steps with these results."""
        self._params |= {k: v for k, v in other._params.items() if k not in but}

    def constants(self) -> Mapping[str, Array]:
        if self._constants is None:
            names = self.program.constants
            self._constants = {name: self.of_dtype(self._tensor(name)) for name in names}
        return self._constants

    def of_dtype(self, value: Array) -> Array:
        """Floats in the precision of the run; whole numbers and flags stay what they are."""
        return value.astype(self.dtype, copy=False) if value.dtype.kind == "f" else value


def _room() -> int:
    """Return a quarter of the free memory; parameters beyond it are read again for each batch."""
    free = free_memory()
    return 1 << 30 if free is None else free // 4


def forget(known: dict[Port, Any], step: Step) -> None:
    """Drop what nothing needs after a step."""
    if step.last:
        for port in [port for port in known if port[0] in step.last]:
            del known[port]


def sizes_of(network: Network, inputs: Mapping[str, Array]) -> dict[str, int]:
    """What the symbols of the inputs stand for; UsageError where shapes do not fit."""
    sizes: dict[str, int] = {}
    for item in network.inputs:
        if item.name not in inputs:
            continue
        shape = inputs[item.name].shape
        fits = len(shape) == len(item.shape)
        for length, wanted in zip(shape, item.shape, strict=False):
            if isinstance(wanted, int):
                fits = fits and wanted == length
            elif wanted is not None:
                fits = fits and sizes.setdefault(wanted, length) == length
        if not fits:
            raise UsageError(
                f"the input `{item.name}` has another shape than the network takes",
                why=f"it is {text(shape)}, the network wants {text(item.shape)}",
            )
    missing = [item.name for item in network.inputs if item.name not in inputs]
    if missing and len(missing) == len(network.inputs):
        raise UsageError(f"missing input `{missing[0]}`")
    return sizes


def _port(step: Step, known: Mapping[Port, Any], port: Port) -> Any:
    try:
        return known[port]
    except KeyError:
        why = f"output {port[1]} of `{port[0]}` is not there"
        raise NotRunnable(step.node, why) from None


def _unfit(step: Step, inputs: list[Array], error: Exception) -> NotRunnable:
    shapes = ", ".join(text(value.shape) for value in inputs)
    said = error.message if isinstance(error, UsageError) else str(error)
    return NotRunnable(step.node, f"with inputs of {shapes}: {said}")
