"""A network as an nn.Module: the state_dict that was stored, trainable, for any batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from dlv.dataclass import dataclass
from dlv.errors import NotFound, UsageError, nearest
from dlv.network.graph import Network, Node
from dlv.network.ops.op import op_of
from dlv.network.sizes import text
from dlv.network.torch.ops import COUNTER, one_dtype, run_of
from dlv.network.torch.source import kept_slots, source_run
from dlv.network.torch.types import Call, Run, torch

DIALECT = "aten"
_STATISTICS = "running_mean"


@dataclass(frozen=True)
class Step:
    """One node. An input is (producer, port); port None: all that the producer gives."""

    node: Node
    run: Run
    inputs: tuple[tuple[str, int | None], ...]
    params: tuple[tuple[str, str], ...]  # slot, name of the tensor
    counter: str | None  # tensor that counts batches
    last: tuple[str, ...]  # values that nothing needs after this step


@dataclass(frozen=True)
class Plan:
    """All steps; `needed` are the network's inputs without which they cannot be run."""

    steps: tuple[Step, ...]
    needed: frozenset[str]


def exact(node: Node) -> bool:
    """Whether the node is run as it was exported."""
    known = node.source is not None and node.source.get("dialect") == DIALECT
    return known and not node.picks


def plan(network: Network, tensors: Iterable[str]) -> Plan:
    """What to run, in the stored order; UsageError for what cannot be, naming the node.

    Nodes that nothing needs are left out, but for exported ones: they may change a buffer,
    or draw random numbers.
    """
    order = [node for node in network.topological() if not op_of(node).placeholder]
    wanted = _wanted(network, order)
    order = [node for node in order if node.name in wanted]
    _check_producers(network, order)
    tensors = set(tensors)
    last = _last_uses(network, order)
    second = _second_outputs(network, order)
    steps = [_step(node, tensors, node.name in second, last[node.name]) for node in order]
    used = {name for node in order for name, _ in node.inputs} | {n for n, _ in network.outputs}
    return Plan(tuple(steps), frozenset(used & set(given_names(network))))


def given_names(network: Network) -> list[str]:
    """What the caller hands in: the inputs, then what stands for a part that was cut off."""
    names = [item.name for item in network.inputs]
    return names + [node.name for node in network.nodes if op_of(node).placeholder]


def _wanted(network: Network, order: Sequence[Node]) -> set[str]:
    wanted = {name for name, _ in network.outputs}
    for node in reversed(order):
        if node.name in wanted or exact(node):
            wanted.add(node.name)
            wanted.update(name for name, _ in node.inputs)
    return wanted


def _check_producers(network: Network, order: Sequence[Node]) -> None:
    known = {node.name for node in order} | set(given_names(network)) | set(network.constants)
    for node in order:
        for name, _ in node.inputs:
            if name not in known:
                raise UsageError(f"node {node.name!r}: its input {name!r} is produced by nothing")
    for name, _ in network.outputs:
        if name not in known:
            raise UsageError(f"the output {name!r} is produced by nothing")


def _last_uses(network: Network, order: Sequence[Node]) -> dict[str, tuple[str, ...]]:
    """For each node the values that it is the last to read."""
    seen = {name for name, _ in network.outputs}
    result: dict[str, tuple[str, ...]] = {}
    for node in reversed(order):
        names = dict.fromkeys(name for name, _ in node.inputs if name not in seen)
        seen.update(names)
        result[node.name] = tuple(names)
        if node.name not in seen:
            result[node.name] += (node.name,)
    return result


def _second_outputs(network: Network, order: Sequence[Node]) -> set[str]:
    """The nodes of which more is read than the first output."""
    found = {name for name, port in network.outputs if port}
    for node in order:
        found.update(name for name, port in node.inputs if port or node.picks)
    return found


def _step(node: Node, tensors: set[str], positions: bool, last: tuple[str, ...]) -> Step:
    run = source_run(node) if exact(node) else run_of(node, positions=positions)
    if op_of(node).recurrent:
        run = one_dtype(run)
    inputs = tuple((name, None if node.picks else port) for name, port in node.inputs)
    params = list(node.params.items())
    counter = None
    statistics = node.params.get(_STATISTICS)
    if op_of(node).batch_statistics(node) and statistics is not None:
        name = statistics.rpartition(".")[0]
        name = f"{name}.{COUNTER}" if name else COUNTER
        if name in tensors:
            counter = name
            params.append((COUNTER, name))
    return Step(node, run, inputs, tuple(params), counter, last)


Tensors = Mapping[str, Any]  # name -> torch.Tensor


def build(
    network: Network, tensors: Tensors, constants: Tensors, *, buffers: Collection[str] = ()
) -> NetworkModule:
    """The module of a network: `tensors` by name, in the order that its state_dict shall have.

    Tensors that no node uses are kept, too. `buffers`: names of tensors that are not trained,
    beside statistics and whole numbers, which never are.
    """
    missing = sorted(network.tensor_names() - tensors.keys())
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise NotFound(
            f"the network needs tensors that are not there: {', '.join(missing[:3])}{more}",
            did_you_mean=nearest(missing[0], tensors),
        )
    for name in network.constants:
        if name not in constants:
            raise NotFound(f"the network needs the constant {name!r}, which is not there")
    return NetworkModule(network, tensors, constants, buffers)


class Holder(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    """A submodule that only holds tensors, whatever they are called."""

    def train(self, mode: bool = True) -> Holder:
        # Not by setattr, which takes the mode for the tensor where one is called `training`.
        self.__dict__["training"] = mode
        for child in self.children():
            child.train(mode)
        return self


class _Held:
    """Stands for a submodule that is never trained."""

    training = False


_HELD = _Held()


class NetworkModule(Holder):
    """Runs a network node by node. Its submodules hold tensors, under the names they had.

    It takes the network's inputs, by position or name, and gives its output, or a tuple of all.
    """

    def __init__(
        self, network: Network, tensors: Tensors, constants: Tensors, buffers: Collection[str]
    ) -> None:
        super().__init__()
        # Names that no submodule has: all of the network's own are to be found on the module.
        self._dlv_network = network
        self._dlv_constants: dict[str, str] = {}
        self._dlv_held: frozenset[str] = frozenset()
        made = plan(network, {*tensors, *network.aliases})
        self._register(tensors, {*buffers, *_buffers(network)})
        for name in network.constants:
            self._register_constant(name, constants[name])
        self._prepare(made)

    def _register(self, tensors: Tensors, buffers: Collection[str]) -> None:
        aliases = self._dlv_network.aliases
        made: dict[str, Any] = {}
        names = dict.fromkeys([*tensors, *aliases])
        for name in names:
            kept = aliases.get(name, name)
            if kept not in tensors:
                kept = name
            if kept not in tensors:
                continue
            if kept not in made:
                tensor = tensors[kept].detach()
                trained = kept not in buffers and name not in buffers and _trainable(tensor)
                made[kept] = torch.nn.Parameter(tensor) if trained else tensor
            holder, key = self._holder(name)
            trained = isinstance(made[kept], torch.nn.Parameter)
            (holder._parameters if trained else holder._buffers)[key] = made[kept]

    def _register_constant(self, name: str, tensor: Any) -> None:
        place = name
        holder, key = self._holder(place)
        while key in holder._buffers or key in holder._parameters:
            place += "_"
            holder, key = self._holder(place)
        holder._buffers[key] = tensor.detach()
        holder._non_persistent_buffers_set.add(key)
        self._dlv_constants[name] = place

    def _holder(self, name: str) -> tuple[Any, str]:
        """The submodule that holds the tensor of that name, made where it is not there yet.

        Written past the methods of nn.Module: names of other frameworks may hold what those
        refuse, and none of them may hide a method.
        """
        *path, key = name.split(".")
        holder: Any = self
        for word in path:
            if holder._modules.get(word) is None:
                holder._modules[word] = Holder()
            holder = holder._modules[word]
        return holder, key

    def _prepare(self, plan: Plan) -> None:
        self._dlv_needed = plan.needed
        self._dlv_steps = [
            (
                step,
                [(slot, *self._holder(name)) for slot, name in step.params],
                _HELD if step.node.name in self._dlv_held else self._gate(step),
            )
            for step in plan.steps
        ]

    def hold(self, names: Collection[str]) -> None:
        """Run these nodes as when the network is tested, in every mode: statistics stay."""
        self._dlv_held = frozenset(names)
        self._prepare(plan(self._dlv_network, self._known()))

    def _gate(self, step: Step) -> Any:
        """The submodule whose mode counts: the one that the node belongs to."""
        first = next(iter(step.node.params.values()), None)
        path = step.node.name.split(".") if first is None else first.split(".")[:-1]
        holder: Any = self
        for word in path:
            inner = holder._modules.get(word)
            if inner is None:
                break
            holder = inner
        return holder

    def __getstate__(self) -> dict[str, Any]:
        """Without what is worked out anew for a copy."""
        state: dict[str, Any] = dict(self.__dict__)
        del state["_dlv_steps"], state["_dlv_needed"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._prepare(plan(self._dlv_network, self._known()))

    def _known(self) -> set[str]:
        """The names of all tensors."""
        names = {name for name, _ in self.named_parameters(remove_duplicate=False)}
        return names | {name for name, _ in self.named_buffers(remove_duplicate=False)}

    def extra_repr(self) -> str:
        network = self._dlv_network
        return f"dlv network {network.id[:12]}, {len(network.nodes)} nodes"

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        network = self._dlv_network
        values = self._given(args, kwargs)
        sizes = {
            symbol: values[item.name].shape[place]
            for item in network.inputs
            if item.name in values and values[item.name].dim() == len(item.shape)
            for place, symbol in enumerate(item.shape)
            if isinstance(symbol, str)
        }
        self._check_shapes(values)
        device = next((value.device for value in values.values()), self._device())
        for name, place in self._dlv_constants.items():
            values[name] = _read(*self._holder(place))
        step = None
        try:
            for step, params, gate in self._dlv_steps:
                training = gate.training
                tensors = {slot: _read(holder, key) for slot, holder, key in params}
                if training and step.counter is not None:
                    # In place, as torch does it, so that a copy of the module has its own.
                    tensors[COUNTER].add_(1)
                inputs = [_value(values, name, port) for name, port in step.inputs]
                call = Call(inputs, tensors, training, sizes, device)
                values[step.node.name] = step.run(call)
                for name in step.last:
                    values.pop(name, None)
        except Exception as error:
            if step is not None:
                error.add_note(f"in the node {step.node.name!r} ({step.node.op})")
            raise
        outputs = tuple(_value(values, name, port) for name, port in network.outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names = given_names(self._dlv_network)
        if len(args) > len(names):
            raise UsageError(f"the network takes {len(names)} inputs, not {len(args)}")
        values = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in values:
                what = "is given twice" if name in values else "is none of the network's"
                raise UsageError(f"the input {name!r} {what}", did_you_mean=nearest(name, names))
            values[name] = value
        for name in names:
            if values.get(name) is None:
                if name in self._dlv_needed:
                    raise UsageError(f"the network needs its input {name!r}")
                values.pop(name, None)
        return values

    def _check_shapes(self, values: Mapping[str, Any]) -> None:
        """What was imported may have the lengths of its inputs written in its nodes, too."""
        for item in self._dlv_network.inputs if self._dlv_network.origin else ():
            shape = tuple(values[item.name].shape) if item.name in values else item.shape
            lengths = zip(shape, item.shape, strict=False)
            fits = all(have == wanted for have, wanted in lengths if isinstance(wanted, int))
            if len(shape) != len(item.shape) or not fits:
                raise UsageError(
                    f"the input {item.name!r} has another shape than the network takes",
                    why=f"it is {text(shape)}, the network wants {text(item.shape)}",
                )

    def _device(self) -> Any:
        first = next(self.parameters(), None)
        return torch.device("cpu") if first is None else first.device


def _read(holder: Any, key: str) -> Any:
    """A tensor where it is now: it may have been replaced, or be worked out from others."""
    for place in (holder._parameters, holder._buffers):
        if place.get(key) is not None:
            return place[key]
    return getattr(holder, key)


def _value(values: Mapping[str, Any], name: str, port: int | None) -> Any:
    value = values[name]
    if port is None or not isinstance(value, tuple | list):
        return value
    return value[port]


def _trainable(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def _buffers(network: Network) -> set[str]:
    """Tensors that the vocabulary calls buffers and no node uses as anything else, and those that
    a node writes.
    """
    found: dict[str, bool] = {}
    written: set[str] = set()
    for node in network.nodes:
        buffers = _buffer_slots(node)
        for slot, name in node.params.items():
            kept = network.aliases.get(name, name)
            found[kept] = found.get(kept, True) and slot in buffers
            if slot in buffers and op_of(node).raw:
                written.add(kept)
    return written | {name for name, buffer in found.items() if buffer}


def _buffer_slots(node: Node) -> set[str]:
    if op_of(node).raw:
        return kept_slots(node) if exact(node) else set()
    return {slot.name for slot in op_of(node).node_slots(node) or () if slot.buffer}
