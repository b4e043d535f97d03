"""Right after a module was traced: does the network compute what the module computes?

The module itself, as it is tested, is the oracle: on the example, and on a second batch of other
numbers and another size. First the network rebuilt in torch is held against it, then whatever
else `dlv eval` and `dlv export` offer for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.engine_runs import numpy_outputs, onnxruntime_outputs
from dlv.dataclass import dataclass
from dlv.errors import DlvError, UsageError
from dlv.kinds import Array
from dlv.network.agreement import another, differing, distance, tolerance, too_long
from dlv.network.graph import Network
from dlv.network.program import draws
from dlv.network.torch.module import build
from dlv.network.torch.types import dtype_of, torch

# Rounding may be off by so many times what one last bit of the inputs changes.
_OFTEN = 32


_NONE: Array = np.zeros(())
_NOT_COMPARED = "the network was compared with the module in torch only: {}"
_NOT_RUN = "the network was not compared with the module, because torch cannot run it: {}"
_FROZEN = "{} parameters are frozen in the module, such as {}; training the network changes them"
_GRADIENTS = "the gradient of {} differs from the module's, so training gives other results"


class Disagreement(UsageError):
    """The network computes something else than the module."""


@dataclass(frozen=True)
class Batch:
    """Arguments of one call of the module."""

    arguments: tuple[Any, ...]
    named: Mapping[str, Any]

    def mapped(self, change: Callable[[Any], Any]) -> Batch:
        """The same arguments with each tensor changed."""
        of_tensors = torch.utils._pytree.tree_map_only
        arguments = of_tensors(torch.Tensor, change, self.arguments)
        return Batch(arguments, of_tensors(torch.Tensor, change, dict(self.named)))

    def copy(self) -> Batch:
        """Clone all tensors, for a call that may write into its arguments."""
        return self.mapped(torch.clone)

    def tensors(self) -> list[Any]:
        """What the network gets, in the order of its inputs."""
        leaves = torch.utils._pytree.tree_leaves((self.arguments, dict(self.named)))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def compare(
    module: Any,
    network: Network,
    constants: Sequence[Tensor],
    example: Batch,
    outputs: Sequence[int],
    *,
    writes_parameters: bool = False,
) -> list[str]:
    """Compare module and network; return notes, or raise Disagreement at the first difference.

    `outputs`: the places of the network's outputs among all that the module gives. The module is
    left in the mode that its submodules have; its buffers are as before.
    """
    try:
        compared = _Comparison(module, network, constants, outputs)
    except DlvError as error:  # nor does any engine run it
        return [_NOT_RUN.format(error.message)]
    compared.writes_parameters = writes_parameters
    return compared.run(example)


class _Comparison:
    def __init__(
        self, module: Any, network: Network, constants: Sequence[Tensor], outputs: Sequence[int]
    ) -> None:
        self.module = module
        self.network = network
        self.outputs = outputs
        self.writes_parameters = False
        state = module.state_dict(keep_vars=True)
        self.tensors = {n: t.detach() for n, t in state.items() if isinstance(t, torch.Tensor)}
        self.constants = {tensor.name: _as_torch(tensor) for tensor in constants}
        # Buffers of its own: running a network may change them.
        trained = dict(module.named_parameters(remove_duplicate=False))
        own = {n: t if n in trained else t.clone() for n, t in self.tensors.items()}
        constants_of_its_own = {n: t.clone() for n, t in self.constants.items()}
        untrained = [name for name in own if name not in trained]
        self.rebuilt = build(network, own, constants_of_its_own, buffers=untrained)
        self.rebuilt.eval()
        self.notes: list[str] = []
        # Other engines keep all digits where the module casts to fewer.
        told = str([(node.source, node.attrs) for node in network.nodes])
        self.narrow = [name for name in ("float16", "bfloat16") if f"'{name}'" in told]

    def run(self, example: Batch) -> list[str]:
        random = draws(self.network) is not None
        for batch in self._batches(example):
            wanted = self._original(batch)
            if batch is example and not random:
                self._check_repeats(batch, wanted)
            self._held(batch, wanted)
        reason = self._too_long(example)
        if reason is not None:
            self.notes.append(_NOT_COMPARED.format(reason))
        elif not random:
            self._gradients(example)
            self._engines(example)
        return self.notes

    def _too_long(self, example: Batch) -> str | None:
        shapes = {
            name: (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            for name, tensor in self.tensors.items()
        }
        rows = max((t.shape[0] for t in example.tensors() if t.dim()), default=1)
        return too_long(self.network, shapes, rows)

    def _gradients(self, example: Batch) -> None:
        """A note where training the network is not training the module."""
        trained = {
            name: tensor
            for name, tensor in self.module.named_parameters()
            if tensor.requires_grad and not self.writes_parameters
        }
        own = dict(self.rebuilt.named_parameters(remove_duplicate=False))
        frozen = [n for n, t in self.module.named_parameters() if not t.requires_grad]
        if frozen and trained:
            self.notes.append(_FROZEN.format(len(frozen), frozen[0]))
        try:
            given = example.copy()
            with _restored(self._changed()), torch.enable_grad():
                torch.manual_seed(0)
                found = self.module(*given.arguments, **given.named)
                leaves = torch.utils._pytree.tree_leaves(found)
                wanted = _slopes([leaves[place] for place in self.outputs], trained)
        except Exception:  # nor can the module itself be trained so
            return
        names = [name for name in trained if name in own]
        try:
            with torch.enable_grad():
                outputs = self._run_rebuilt(example)
                got = _slopes(outputs, {name: own[name] for name in names})
        except Exception:
            got = {}
        most = 100 * tolerance(*self._dtypes())
        off = next((n for n in names if distance(got.get(n, _NONE), wanted[n]) > most), None)
        if off is not None:
            self.notes.append(_GRADIENTS.format(off))

    def _batches(self, example: Batch) -> Iterator[Batch]:
        yield example
        size = (
            example.tensors()[0].shape[0] if example.tensors() and example.tensors()[0].dim() else 0
        )
        static = (self.network.origin or {}).get("batch") == "static"
        for length in [None] if static else [3 if size != 3 else 5, 1, None]:
            batch = _other(example, size, length)
            try:
                self._original(batch)
            except Exception:  # the user's code, with numbers that the user did not choose
                continue
            yield batch
            if length is not None and length > 1:
                continue
            return

    def _original(self, batch: Batch, seed: int = 0) -> list[Any]:
        """What the module gives, at the places that the network has outputs for."""
        given = batch.copy()
        with _restored(self._changed()), torch.no_grad():
            torch.manual_seed(seed)
            found = self.module(*given.arguments, **given.named)
        leaves = torch.utils._pytree.tree_leaves(found)
        return [leaves[place] for place in self.outputs]

    def _changed(self) -> Iterator[Any]:
        """What a call may change."""
        yield from self.module.buffers()
        if self.writes_parameters:
            yield from self.module.parameters()

    def _check_repeats(self, batch: Batch, wanted: Sequence[Any]) -> None:
        expected = _named(wanted)
        if differing(list(expected), _named(self._original(batch, seed=1)), expected) is not None:
            raise Disagreement(
                "the module gives another result on each call",
                why="it draws random numbers in evaluation by other means than torch operations",
            )

    def _held(self, batch: Batch, wanted: Sequence[Any]) -> None:
        try:
            found = self._rebuilt(batch)
        except Exception as error:
            raise Disagreement(
                "the traced network fails on a batch that the module accepts",
                why=" ".join([_line(error), *getattr(error, "__notes__", [])]),
            ) from error
        got, expected = _named(found), _named(wanted)
        off = differing(list(expected), got, expected, tolerance(*self._dtypes()))
        if off is not None:
            self._check_fast_path(batch, got)
            layer = ""
            with contextlib.suppress(Exception):  # only the message is poorer
                layer = self._first_layer(batch)
            raise Disagreement(
                "the traced network does not compute what the module computes",
                why=f"{off}, first {layer}" if layer else str(off),
            )

    def _check_fast_path(self, batch: Batch, got: Mapping[str, Array]) -> None:
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            wanted = _named(self._original(batch))
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
        if differing(list(wanted), got, wanted, tolerance(*self._dtypes())) is None:
            raise Disagreement(
                "the module gives other results in evaluation with gradients than without",
                why="torch's fast path for transformer encoders sets padded positions to zero",
                hint="torch.nn.TransformerEncoder(.., enable_nested_tensor=False)",
            )

    def _dtypes(self) -> set[str]:
        return {str(t.dtype).removeprefix("torch.") for t in self.tensors.values()}

    def _first_layer(self, batch: Batch) -> str:
        """The first submodule whose result the network has otherwise."""
        seen: dict[str, Array] = {}
        hooks = []

        def hook(name: str) -> Callable[..., None]:
            def keep(_module: Any, _given: Any, result: Any) -> None:
                leaves = torch.utils._pytree.tree_leaves(result)
                if name not in seen and leaves and isinstance(leaves[0], torch.Tensor):
                    seen[name] = _array(leaves[0].clone())

            return keep

        for name, each in self.module.named_modules():
            if name:
                hooks.append(each.register_forward_hook(hook(name)))
        try:
            self._original(batch)
        finally:
            for handle in hooks:
                handle.remove()
        nodes = {
            name: node.name
            for node in self.network.nodes
            for name in _paths(node.name)
            if name in seen
        }
        network = replace(self.network, outputs=tuple((node, 0) for node in nodes.values()))
        torch.manual_seed(0)
        with torch.no_grad():
            other = build(network, self.tensors, self.constants).eval()
            found = other(*batch.copy().tensors())
            found = found if isinstance(found, tuple) else (found,)
            got = {name: _array(_first(value)) for name, value in zip(nodes, found, strict=True)}
            wanted = {
                name: value
                for name, value in seen.items()
                if name in got and got[name].shape == value.shape
            }
            off = differing(list(seen), got, wanted, tolerance(*self._dtypes()))
        return "" if off is None else f"after {off.where!r}"

    def _engines(self, example: Batch) -> None:
        """numpy and onnxruntime against torch, where they take the network."""
        if not self._dtypes() <= {"float32", "float64", "int64", "int32", "bool"}:
            return
        batch = _other(example, -1, None)
        try:
            self._original(batch)
        except Exception:
            batch = example
        for name, run in (("numpy", self._numpy), ("onnxruntime", self._onnxruntime)):
            for place, got in run(batch):
                self._same(name, batch, place, got)

    def _same(self, engine: str, batch: Batch, place: int, got: Array) -> None:
        wanted = self._output(batch, place)
        off = distance(got, wanted)
        if off <= tolerance(*self.narrow):
            return
        moved = _moved(batch)
        if off <= _OFTEN * distance(self._output(moved, place), wanted):
            return
        raise Disagreement(
            f"{engine} does not compute what the module computes",
            why=f"output {place} is off by {off:.2g} of its size",
        )

    def _output(self, batch: Batch, place: int) -> Array:
        return _array(self._rebuilt(batch)[place])

    def _rebuilt(self, batch: Batch) -> Sequence[Any]:
        """What the network gives in torch."""
        with torch.no_grad():
            return self._run_rebuilt(batch)

    def _run_rebuilt(self, batch: Batch) -> Sequence[Any]:
        with _restored(self.rebuilt.buffers()):
            torch.manual_seed(0)
            found = self.rebuilt(*batch.copy().tensors())
        return found if isinstance(found, tuple) else (found,)

    def _inputs(self, batch: Batch) -> dict[str, Array]:
        names = [item.name for item in self.network.inputs]
        return {n: _array(t) for n, t in zip(names, batch.tensors(), strict=True)}

    def _numpy(self, batch: Batch) -> Iterator[tuple[int, Array]]:
        def tensor(name: str) -> Array:
            kept = self.network.aliases.get(name, name)
            return _array(self.constants.get(name, self.tensors.get(name, self.tensors.get(kept))))

        return numpy_outputs(self.network, tensor, self._inputs(batch))

    def _onnxruntime(self, batch: Batch) -> Iterator[tuple[int, Array]]:
        tensors = {name: _array(tensor) for name, tensor in self.tensors.items()}
        constants = {name: _array(tensor) for name, tensor in self.constants.items()}
        return onnxruntime_outputs(self.network, tensors, constants, self._inputs(batch))


@contextlib.contextmanager
def _restored(tensors: Iterable[Any]) -> Iterator[None]:
    """The tensors hold afterwards what they hold now."""
    kept = [(tensor, tensor.detach().clone()) for tensor in tensors]
    try:
        yield
    finally:
        for tensor, before in kept:
            tensor.data.copy_(before)


def _named(outputs: Sequence[Any]) -> dict[str, Array]:
    return {f"output {place}": _array(value) for place, value in enumerate(outputs)}


def _slopes(outputs: Sequence[Any], parameters: Mapping[str, Any]) -> dict[str, Array]:
    """Gradients of a fixed sum of all outputs; zeros where there is none."""
    total: Any = 0
    for output in outputs:
        if isinstance(output, torch.Tensor) and output.is_floating_point() and output.grad_fn:
            weights = torch.arange(output.numel(), dtype=output.dtype).cos().reshape(output.shape)
            total = total + (output * weights).sum()
    slopes: Any = [None] * len(parameters)
    if isinstance(total, torch.Tensor) and parameters:
        slopes = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
    return {
        name: _array(torch.zeros_like(tensor) if slope is None else slope)
        for (name, tensor), slope in zip(parameters.items(), slopes, strict=True)
    }


def _paths(name: str) -> Iterator[str]:
    """The modules that a node may be the last of."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (tuple, list)) else value


def _other(example: Batch, size: int, length: int | None) -> Batch:
    """A batch with other numbers than the example; axis 0 gets `length` if it had `size` rows."""
    seeds = iter(range(1, 1 << 20))

    def changed(tensor: Any) -> Any:
        seed = next(seeds)
        if tensor.is_complex():
            return tensor.flip(0) if tensor.dim() else tensor
        batch = length if tensor.dim() and tensor.shape[0] == size else None
        made = torch.from_numpy(np.asarray(another(_array(tensor), batch=batch, seed=seed)))
        return made.to(tensor.dtype).to(tensor.device)

    return example.mapped(changed)


def _moved(batch: Batch) -> Batch:
    """The same numbers, each off by its last bit or so."""

    def moved(tensor: Any) -> Any:
        if not tensor.is_floating_point():
            return tensor
        return tensor * (1 + 2.0**-22 * torch.sign(torch.randn_like(tensor)))

    return batch.mapped(moved)


def _array(value: Any) -> Array:
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    plain = value.detach().cpu().resolve_conj().resolve_neg()
    if plain.dtype in (torch.bfloat16, torch.float16) or "float8" in str(plain.dtype):
        plain = plain.float()
    array: Array = plain.numpy()
    return array


def _as_torch(tensor: Tensor) -> Any:
    raw = bytearray(b"".join(bytes(part) for part in tensor.parts()))
    kind = dtype_of(tensor.dtype)
    return (
        torch.frombuffer(raw, dtype=kind).reshape(tensor.shape)
        if raw
        else torch.zeros(tensor.shape, dtype=kind)
    )


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
