"""Side effects of a network: nodes that change memory or draw random numbers.

Engines follow data edges and would skip such nodes. Networks of earlier
imports may hold writes that others depend on; importers of today leave none but those that keep a
buffer's new content at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from dlv.errors import UsageError
from dlv.network.graph import Network, Node

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
            f"the network draws random numbers, in the node {node.name!r}",
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
            f"the network has the node {node.name!r}, which changes a tensor in place",
            why=f"aten.{_base(node)} stands as it was imported, and others read what it changes",
            hint="import the network again: dlv add --network FILE.py:FACTORY",
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
