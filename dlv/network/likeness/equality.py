"""Whether two networks compute the same, up to names and to how their weights are stored."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import field

from dlv.dataclass import dataclass
from dlv.network.graph import Network, Node, Port
from dlv.network.likeness.normal import Normal
from dlv.network.ops.op import op_of


@dataclass(frozen=True)
class Equality:
    """The layers that are each other, and what only one of the networks has.

    `only_old`, `only_new`: dropout, which does nothing after training, and a softmax at the very
    end, which changes no decision. Everything else is the same.
    """

    pairs: tuple[tuple[Node, Node], ...]
    only_old: tuple[Node, ...] = ()
    only_new: tuple[Node, ...] = ()


@dataclass
class _Walk:
    """Both networks walked from their outputs at once."""

    old: Normal
    new: Normal
    hashes: tuple[dict[Port, int], dict[Port, int]]
    partner: dict[str, str] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)
    only: tuple[dict[str, None], dict[str, None]] = field(default_factory=lambda: ({}, {}))
    todo: list[tuple[Port, Port]] = field(default_factory=list)

    def pair(self, a: str, b: str) -> bool | None:
        """True: new; None: known already; False: one of them is paired with another node."""
        if a in self.partner or b in self.taken:
            return None if self.partner.get(a) == b else False
        self.partner[a] = b
        self.taken[b] = a
        return True

    def sides(self) -> tuple[tuple[Normal, dict[str, None]], tuple[Normal, dict[str, None]]]:
        return (self.old, self.only[0]), (self.new, self.only[1])


def equality(old: Normal, new: Normal) -> Equality | None:
    """How the layers correspond, or None if the networks differ in more than names and storage."""
    a, b = old.network, new.network
    if len(a.outputs) != len(b.outputs) or len(a.inputs) != len(b.inputs) or a.cyclic or b.cyclic:
        return None
    numbers: dict[Hashable, int] = {}
    walk = _Walk(old, new, (old.hashes(numbers), new.hashes(numbers)))
    for one, other in zip(a.outputs, b.outputs, strict=True):
        ends = _ends(walk, one, other)
        if ends is None:
            return None
        walk.todo.append(ends)
    while walk.todo:
        if not _step(walk, *walk.todo.pop()):
            return None
    pairs = tuple(
        (node, b.node(walk.partner[node.name]))
        for node in a.sorted_part
        if node.name in walk.partner
    )
    for side, only in walk.sides():
        paired = walk.partner if side is old else walk.taken
        layers = {node.name for node in side.network.nodes if not node.plumbing}
        if layers - set(paired) - set(only):
            return None  # something that leads to no output
    if not _shared_alike(a, b, pairs):
        return None
    only_old, only_new = (
        tuple(node for node in side.network.sorted_part if node.name in only)
        for side, only in walk.sides()
    )
    return Equality(pairs, only_old, only_new)


def _ends(walk: _Walk, one: Port, other: Port) -> tuple[Port, Port] | None:
    """Two outputs, less the softmax that only one of them ends with."""
    ports = [one, other]
    nodes: list[Node | None] = []
    for (side, _), port in zip(walk.sides(), ports, strict=True):
        source = side.network.data_of(port)
        known = source is not None and source[0] in side.network
        nodes.append(side.network.node(source[0]) if known and source else None)
    softmax = [node is not None and op_of(node).gives_probabilities for node in nodes]
    if softmax[0] != softmax[1]:
        place = 0 if softmax[0] else 1
        node, (_, only) = nodes[place], walk.sides()[place]
        assert node is not None
        only[node.name] = None
        ports[place] = node.inputs[0]
    signatures = [
        side.input_hash(None, port, found)
        for (side, _), port, found in zip(walk.sides(), ports, walk.hashes, strict=True)
    ]
    return (ports[0], ports[1]) if signatures[0] == signatures[1] else None


def _step(walk: _Walk, one: Port, other: Port) -> bool:
    """Pair the layers that stand at two ports, and go on to what they read."""
    chains: list[list[Node]] = []
    sources: list[Port] = []
    for (side, _), port in zip(walk.sides(), (one, other), strict=True):
        chain: list[Node] = []
        source = side.network.data_of(port)
        while source is not None and source[0] in side.network:
            node = side.network.node(source[0])
            if not op_of(node).dropout or not node.inputs:
                break
            chain.append(node)
            source = side.network.data_of(node.inputs[0])
        if source is None:
            return False
        chains.append(chain)
        sources.append(source)
    if not _dropouts(walk, *chains):
        return False
    a, b = sources
    if (a[0] in walk.old.network) != (b[0] in walk.new.network) or a[1] != b[1]:
        return False
    if a[0] not in walk.old.network:  # inputs and constants, which the hashes have compared
        return True
    done = walk.pair(a[0], b[0])
    if done is not True:
        return done is None
    node, theirs = walk.old.network.node(a[0]), walk.new.network.node(b[0])
    if walk.hashes[0].get(a) != walk.hashes[1].get(b):
        return False
    walk.todo += _inputs(walk, node, theirs)
    return True


def _dropouts(walk: _Walk, ours: Sequence[Node], theirs: Sequence[Node]) -> bool:
    if len(ours) == len(theirs):
        return all(
            walk.pair(a.name, b.name) is not False and a.attrs == b.attrs
            for a, b in zip(ours, theirs, strict=True)
        )
    for chain, (_, only) in zip((ours, theirs), walk.sides(), strict=True):
        only.update({node.name: None for node in chain})
    return True


def _inputs(walk: _Walk, node: Node, theirs: Node) -> list[tuple[Port, Port]]:
    a, b = walk.old.data_inputs(node), walk.new.data_inputs(theirs)
    if not op_of(node).commutes:
        return list(zip(a, b, strict=True))
    # By what they compute; of several that compute the same, as they are paired already.
    keys = [(walk.old.input_hash(node, port, walk.hashes[0]), port) for port in a]
    keys.sort(key=lambda item: item[1][0] not in walk.partner)
    left = [(walk.new.input_hash(theirs, port, walk.hashes[1]), port) for port in b]
    found = []
    for key, port in keys:
        fitting = [each for each in left if each[0] == key]
        known = walk.partner.get(port[0])
        best = next((each for each in fitting if each[1][0] == known), fitting[0])
        left.remove(best)
        found.append((port, best[1]))
    return found


def _shared_alike(old: Network, new: Network, pairs: Sequence[tuple[Node, Node]]) -> bool:
    """Whether the same slots hold one tensor together in both."""
    forth: dict[str, str] = {}
    back: dict[str, str] = {}
    for a, b in pairs:
        if a.params.keys() != b.params.keys():
            return False
        for slot, name in a.params.items():
            ours = old.aliases.get(name, name)
            theirs = new.aliases.get(b.params[slot], b.params[slot])
            if forth.setdefault(ours, theirs) != theirs or back.setdefault(theirs, ours) != ours:
                return False
    return True
