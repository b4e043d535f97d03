"""How a network is run in torch: its nodes in order, each with what it needs and what runs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlv.errors import UsageError
from dlv.network.graph import Network, Node
from dlv.network.torch.ops import run_of
from dlv.network.torch.ops_norms import COUNTER
from dlv.network.torch.ops_sequences import one_dtype
from dlv.network.torch.source import source_run
from dlv.network.torch.types import Run

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
    return known and not _getitem(node)


def plan(network: Network, tensors: Iterable[str]) -> Plan:
    """What to run, in the stored order; UsageError for what cannot be, naming the node.

    Nodes that nothing needs are left out, but for exported ones: they may change a buffer,
    or draw random numbers.
    """
    order = [node for node in network.topological() if node.op != "INPUT"]
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
    return names + [node.name for node in network.nodes if node.op == "INPUT"]


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
        found.update(name for name, port in node.inputs if port or _getitem(node))
    return found


def _step(node: Node, tensors: set[str], positions: bool, last: tuple[str, ...]) -> Step:
    run = source_run(node) if exact(node) else run_of(node, positions=positions)
    if node.op == "RNN":
        run = one_dtype(run)
    inputs = tuple((name, None if _getitem(node) else port) for name, port in node.inputs)
    params = list(node.params.items())
    counter = None
    statistics = node.params.get(_STATISTICS)
    if node.op == "NORM" and node.variant == "BATCH" and statistics is not None:
        name = statistics.rpartition(".")[0]
        name = f"{name}.{COUNTER}" if name else COUNTER
        if name in tensors:
            counter = name
            params.append((COUNTER, name))
    return Step(node, run, inputs, tuple(params), counter, last)


def _getitem(node: Node) -> bool:
    return node.op == "RESHAPE" and node.attrs.get("kind") == "getitem"
