"""How a network is run by dlv itself: its steps in order, batch normalisation folded in.

Engines follow data edges and would skip nodes with side effects: those that change memory or draw
random numbers. Networks of earlier imports may hold writes that others depend on; importers of
today leave none but those that keep a buffer's new content at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from dlv.dataclass import dataclass
from dlv.errors import UsageError
from dlv.kinds import Array
from dlv.network.graph import Network, Node, Port
from dlv.network.inference import Tensors, attribute_faults, enough, node_shapes
from dlv.network.ops.op import NotRunnable, op_of

RANDOM = frozenset(
    {
        "bernoulli", "binomial", "cauchy", "exponential", "geometric", "log_normal",
        "multinomial", "normal", "normal_functional", "poisson", "rand", "rand_like", "randint",
        "randint_like", "randn", "randn_like", "random", "randperm", "rrelu_with_noise_functional",
        "uniform",
    }
)  # fmt: skip
_NO_WRITES = frozenset({"detach_", "requires_grad_"})


def refuse_effects(network: Network, needed: Collection[str] | None = None) -> None:
    """Raise where following the data would give a wrong answer, or another one at each call.

    `needed`: the nodes that lead to the answer; all of them, if it is left out.
    """
    refuse_writes(network)
    node = draws(network, needed)
    if node is not None:
        raise UsageError(
            f"the network draws random numbers, in the layer {node.name!r}",
            why="each run would give another answer",
            hint="let forward draw them in training only, or hand them in as an input",
        )


def draws(network: Network, needed: Collection[str] | None = None) -> Node | None:
    """A node that draws random numbers, whatever mode the network is run in."""
    for node in network.nodes:
        if _base(node) in RANDOM and (needed is None or node.name in needed):
            return node
    return None


def refuse_writes(network: Network) -> None:
    """Raise where a part of the network would leave out writes that it depends on."""
    for node in writes(network):
        raise UsageError(
            f"the network has the layer {node.name!r}, which changes a tensor in place",
            why=f"aten.{_base(node)} is stored as imported, and others read what it changes",
            hint="import the network again: dlv add --factory FILE.py:FACTORY",
        )


def writes(network: Network) -> Iterator[Node]:
    """Nodes that change in place what other nodes read."""
    read = {name for node in network.nodes for name, _ in node.inputs}
    read |= {name for name, _ in network.outputs}
    later: set[str] = set()  # tensors and values that nodes further on read
    found = []
    for node in reversed(network.nodes):
        target = _written(node)
        if target is not None and (
            node.name in read or target in later or not _kept(network, node)
        ):
            found.append(node)
        later.update(node.params.values())
        later.update(name for name, _ in node.inputs)
    yield from reversed(found)


def _base(node: Node) -> str:
    """`aten.add_.Tensor` -> `add_`; of other dialects nothing."""
    source = node.source or {}
    op = source.get("op")
    if source.get("dialect") != "aten" or not isinstance(op, str) or not op.startswith("aten."):
        return ""
    return op.split(".")[1]


def _written(node: Node) -> str | None:
    """The tensor or value that a node changes in place."""
    base = _base(node)
    in_place = base.endswith("_") and (not base.endswith("__") or base.startswith("__i"))
    if not in_place or base in _NO_WRITES:
        return None
    args = (node.source or {}).get("args")
    first = args[0] if isinstance(args, list) and args and isinstance(args[0], dict) else {}
    if first.get("p") in node.params:
        return node.params[first["p"]]
    place = first.get("n")
    if isinstance(place, int) and 0 <= place < len(node.inputs):
        return node.inputs[place][0]
    return node.name


def _kept(network: Network, node: Node) -> bool:
    """Whether it writes into a tensor of the network, rather than into a value on the way."""
    target = _written(node)
    return target in network.constants or target in node.params.values()


_STATISTICS = ("running_mean", "running_var")


@dataclass(frozen=True)
class Step:
    """One node that is run. `result`: the name under which its outputs are known.

    `fold`: the batch normalisation that its weight and bias take in; the result is then its.
    `last`: values that nothing needs after this step.
    """

    node: Node
    inputs: tuple[Port, ...]
    result: str
    fold: Node | None = None
    last: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """The steps that lead to the scores. `input_names`: the inputs that the user hands in."""

    network: Network
    steps: tuple[Step, ...]
    input_names: tuple[str, ...]
    scores: Port
    kept: Mapping[str, Port]  # of the nodes asked for by name: where their values are known

    @cached_property
    def linear(self) -> tuple[Step, ...]:
        """The steps with a weight matrix."""
        return tuple(step for step in self.steps if op_of(step.node).matrix)

    @cached_property
    def matrices(self) -> tuple[str, ...]:
        """The tensors of those, each once, by the names under which they are stored."""
        aliases = self.network.aliases
        names = (step.node.params["weight"] for step in self.linear)
        return tuple(dict.fromkeys(aliases.get(name, name) for name in names))

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """Every stored tensor and constant that is needed, each once."""
        aliases, found = self.network.aliases, dict.fromkeys(self.constants)
        for step in self.steps:
            for node in (step.node, step.fold):
                for name in node.params.values() if node else ():
                    found[aliases.get(name, name)] = None
        return tuple(found)

    @cached_property
    def constants(self) -> tuple[str, ...]:
        used = {name for step in self.steps for name, _ in step.inputs}
        used |= {name for name, _ in (self.scores, *self.kept.values())}
        return tuple(name for name in self.network.constants if name in used)


def program(
    network: Network,
    tensors: Tensors | None = None,
    *,
    fold: bool = True,
    until: Sequence[str] = (),
) -> Program:
    """The steps to the network's scores and to the nodes named in `until`.

    Scores stand before a final SOFTMAX, which changes no order. UsageError for what cannot be
    run at all; what numpy alone cannot run is found out when it is run.
    """
    if not network.outputs:
        raise UsageError("the network has no output")
    wanted = {name: _resolved(network, (network.node(name).name, 0)) for name in until}
    scores = _before_softmax(network, network.outputs[0])
    needed = network.needed(name for name, _ in (scores, *wanted.values()))
    refuse_effects(network, needed)
    folds = _folds(network, tensors, needed, {scores, *wanted.values()}) if fold else {}
    steps = []
    for node in network.topological():
        if node.name not in needed or op_of(node).placeholder or node.name in folds.values():
            continue
        if node.picks:
            continue
        faults = attribute_faults(node)
        if faults or not enough(node):
            raise NotRunnable(node, faults[0][1] if faults else "inputs are missing")
        missing = op_of(node).required(node) - node.params.keys()
        if missing:
            raise NotRunnable(node, f"no tensor is named for its slot {min(missing)!r}")
        taken = folds.get(node.name)
        inputs = tuple(_resolved(network, port) for port in node.inputs)
        steps.append(Step(node, inputs, taken or node.name, network.node(taken) if taken else None))
    _check_producers(network, steps, [scores, *wanted.values()])
    given = [item.name for item in network.inputs]
    given += [node.name for node in network.nodes if op_of(node).placeholder]
    used = {name for step in steps for name, _ in step.inputs} | {scores[0]}
    used |= {name for name, _ in wanted.values()}
    kept = {scores[0], *(name for name, _ in wanted.values())}
    return Program(
        network,
        tuple(_with_last(steps, kept)),
        tuple(name for name in given if name in used),
        scores,
        wanted,
    )


def params_of(step: Step, tensor: Callable[[str], Array]) -> dict[str, Array]:
    """The tensors of a step's slots; those of a folded one in float64.

    `tensor` gives a tensor by the name that the network uses.
    """
    params = {slot: tensor(name) for slot, name in step.node.params.items()}
    if step.fold is None:
        return params
    norm = {slot: np.asarray(tensor(n), np.float64) for slot, n in step.fold.params.items()}
    with np.errstate(all="ignore"):
        scale = 1 / np.sqrt(norm["running_var"] + step.fold.attrs["eps"])
        if "weight" in norm:
            scale = norm["weight"] / np.sqrt(norm["running_var"] + step.fold.attrs["eps"])
        bias = np.zeros(len(scale))
        if "bias" in params:
            bias = np.asarray(params["bias"], np.float64)
        bias = (bias - norm["running_mean"]) * scale
        if "bias" in norm:
            bias = bias + norm["bias"]
        weight = np.asarray(params["weight"], np.float64)
        factors = op_of(step.node).along_out(step.node, weight, scale)
        return {"weight": weight * factors, "bias": bias}


def _resolved(network: Network, port: Port) -> Port:
    """Where the value of a port is really made: picking one of several outputs makes nothing."""
    name, _ = port
    while name in network and network.node(name).picks:
        node = network.node(name)
        port = (node.inputs[0][0], node.attrs["index"])
        name = port[0]
    return port


def _before_softmax(network: Network, port: Port) -> Port:
    """The scores that the output's order follows."""
    while True:
        port = _resolved(network, port)
        if port[0] not in network:
            return port
        node = network.node(port[0])
        op = op_of(node)
        if not node.inputs or not (op.passes(node) or op.keeps_order(node)):
            return port
        port = node.inputs[0]


def _folds(
    network: Network, tensors: Tensors | None, needed: set[str], kept: set[Port]
) -> dict[str, str]:
    """Linear node -> the batch normalisation right behind it that alone reads it."""
    readers: dict[str, list[Node]] = {}
    for node in network.nodes:
        if node.name in needed:
            for name in {_resolved(network, port)[0] for port in node.inputs}:
                readers.setdefault(name, []).append(node)
    shapes = node_shapes(network, tensors)
    found: dict[str, str] = {}
    for node in network.nodes:
        if node.name not in needed or not op_of(node).batch_statistics(node):
            continue
        source = _resolved(network, node.inputs[0])[0] if node.inputs else ""
        if source not in network or not all(slot in node.params for slot in _STATISTICS):
            continue
        linear, alone = network.node(source), len(readers.get(source, ())) == 1
        shape = shapes.get(source, (None,))[0]
        if not op_of(linear).folds(linear) or not alone or (source, 0) in kept or shape is None:
            continue
        channels = linear.attrs.get("channels", "last")
        axis = len(shape) - 1 if channels == "last" else 1
        if node.attrs["axis"] % len(shape) == axis:
            found[source] = node.name
    return found


def _check_producers(network: Network, steps: Sequence[Step], wanted: Iterable[Port]) -> None:
    known = {step.result for step in steps} | network.input_names | set(network.constants)
    known |= {node.name for node in network.nodes if op_of(node).placeholder}
    for step in steps:
        for name, _ in step.inputs:
            if name not in known:
                raise NotRunnable(step.node, f"its input {name!r} is not produced by anything")
    for name, _ in wanted:
        if name not in known:
            raise UsageError(f"the output {name!r} is not produced by anything")


def _with_last(steps: Sequence[Step], kept: set[str]) -> list[Step]:
    seen, result = set(kept), []
    for step in reversed(steps):
        last = [name for name in dict.fromkeys(name for name, _ in step.inputs) if name not in seen]
        seen.update(last)
        if step.result not in seen:
            last.append(step.result)
        result.append(replace(step, last=tuple(last)))
    return result[::-1]
