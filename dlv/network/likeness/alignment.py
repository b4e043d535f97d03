"""Which node of one network is which node of another, whatever they are called.

If the networks are equal up to names, that says it all. Otherwise several things speak for a
pair: what the nodes do, what stands before and behind them, their order, and their names. Names
that people give (`head`) say much; those that only count (`conv2`, `features.3`) shift when a
layer is put in before them, and merely tip the scales.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from dlv.dataclass import dataclass
from dlv.network.graph import Network, Node, plain
from dlv.network.likeness.equality import Equality, Normal, equality
from dlv.network.ops.op import op_of

MOST_CELLS = 1_500_000  # of the alignment's table; longer rows are compared near its diagonal

# Of one operation: any; of one variant; with these attributes, each with its share; with all of
# them; with operations like these before it, and behind it; called the same.
_OP, _VARIANT, _ATTRIBUTES, _ALL, _CONTEXT, _NAME = 1.0, 1.0, 1.0, 1.0, 0.4, 1.3
_COUNTED_NAME = 0.45  # called the same by a name that only counts
_COUNTED = re.compile(r"(.*[a-z])?[_.]?[0-9]+\Z", re.IGNORECASE | re.DOTALL)


def counted(name: str) -> bool:
    """Whether the name ends with a number, which may be only a place in a row."""
    return _COUNTED.match(name.rpartition(".")[2]) is not None


def name_score(old: str, new: str) -> float:
    """What names say for a pair."""
    if old != new:
        return 0.0
    return _COUNTED_NAME if counted(old) else _NAME


@dataclass(frozen=True)
class _Sample:
    """All that counts of a node, its name aside."""

    op: str
    variant: str | None
    raw: object
    kind: Hashable
    around: tuple[tuple[str, ...], ...]
    attrs: Mapping[str, object]


class Sequencer:
    """Scores of pairs of nodes of two networks; what was worked out once is kept."""

    def __init__(self, old: Normal, new: Normal, near_old: Near, near_new: Near) -> None:
        self._sides = (old, new)
        self._near = (near_old, near_new)
        self._numbers: dict[Hashable, int] = {}
        self._of: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._samples: list[_Sample] = []
        self._known: dict[tuple[int, int], float] = {}

    def fit(self, a: Node, b: Node) -> float:
        """How well two nodes fit, their names aside; 0: they are not the same layer."""
        return self._fit(self._number(0, a), self._number(1, b))

    def _number(self, side: int, node: Node) -> int:
        """Nodes with one number are alike, and stand beside the same operations."""
        known = self._of[side]
        if id(node) not in known:
            kind, around = self._sides[side].kind(node), self._around(side, node)
            attrs = {name: plain(value) for name, value in sorted(node.attrs.items())}
            key = (kind, around, repr(attrs))
            if key not in self._numbers:
                self._numbers[key] = len(self._samples)
                raw = None if node.source is None or not op_of(node).raw else node.source.get("op")
                self._samples.append(_Sample(node.op, node.variant, raw, kind, around, attrs))
            known[id(node)] = self._numbers[key]
        return known[id(node)]

    def _around(self, side: int, node: Node) -> tuple[tuple[str, ...], ...]:
        near = self._near[side]
        return tuple(
            tuple(sorted(f"{each.op} {each.variant}" for each in which.get(node.name, ())))
            for which in (near.before, near.behind)
        )

    def _fit(self, one: int, other: int) -> float:
        found = self._known.get((one, other))
        if found is None:
            found = self._known[one, other] = _score(self._samples[one], self._samples[other])
        return found

    def pairs(self, before: Sequence[Node], after: Sequence[Node]) -> list[tuple[int, int]]:
        """The pairs, none of them crossing, whose scores have the largest sum."""
        if not before or not after:
            return []
        rows, columns = len(before), len(after)
        reach = columns if rows * columns <= MOST_CELLS else max(1, MOST_CELLS // rows // 2)
        old = [self._number(0, node) for node in before]
        new = [self._number(1, node) for node in after]
        places: dict[str, list[int]] = {}
        for j, node in enumerate(after):
            places.setdefault(node.name, []).append(j)
        kept: dict[int, list[float]] = {}
        best = [0.0] * (columns + 1)
        steps: list[tuple[int, bytearray]] = []
        for i, kind in enumerate(old):
            fits = kept.get(kind)
            if fits is None:
                fits = kept[kind] = [self._fit(kind, each) for each in new]
            named = [j for j in places.get(before[i].name, ()) if fits[j]]
            if named:
                fits = fits[:]
                for j in named:
                    fits[j] += name_score(before[i].name, after[j].name)
            middle = i * columns // rows
            low, high = max(0, middle - reach), min(columns, middle + reach + 1)
            best, moves = _row(best, fits, low, high, columns)
            steps.append((low, moves))
        return _walk_back(steps, columns)


def _row(
    best: list[float], fits: Sequence[float], low: int, high: int, columns: int
) -> tuple[list[float], bytearray]:
    """The next row of the table, and how each of its cells was reached."""
    row = best[:]  # outside the band: this node is left out
    moves = bytearray(high - low)
    left = row[low]
    for j in range(low, high):
        value, move = best[j + 1], 1
        if left > value:
            value, move = left, 2
        fit = fits[j]
        if fit and best[j] + fit >= value:
            value, move = best[j] + fit, 3
        row[j + 1] = left = value
        moves[j - low] = move
    for j in range(high, columns):
        row[j + 1] = max(row[j + 1], row[j])
    return row, moves


def _walk_back(steps: Sequence[tuple[int, bytearray]], columns: int) -> list[tuple[int, int]]:
    found = []
    i, j = len(steps) - 1, columns - 1
    while i >= 0 and j >= 0:
        low, moves = steps[i]
        if j >= low + len(moves):
            j -= 1
        elif j < low or moves[j - low] == 1:
            i -= 1
        elif moves[j - low] == 2:
            j -= 1
        else:
            found.append((i, j))
            i, j = i - 1, j - 1
    return found[::-1]


def _score(a: _Sample, b: _Sample) -> float:
    if a.op != b.op:
        return 0.0
    found = _OP + _CONTEXT * ((a.around[0] == b.around[0]) + (a.around[1] == b.around[1]))
    if a.kind == b.kind:
        return found + _VARIANT + _ATTRIBUTES + _ALL
    if a.variant != b.variant or a.raw != b.raw:
        return found
    names = a.attrs.keys() | b.attrs.keys()
    alike = sum(a.attrs.get(name) == b.attrs.get(name) for name in names)
    return found + _VARIANT + _ATTRIBUTES * (alike / len(names) if names else 1.0)


@dataclass(frozen=True)
class Alignment:
    """Nodes that are one and the same, in the order of the first network, and those alone."""

    pairs: tuple[tuple[Node, Node], ...]
    removed: tuple[Node, ...]
    added: tuple[Node, ...]
    equality: Equality | None = None


def align(old: Network, new: Network) -> Alignment:
    """Match the nodes of two networks; the other way round the same ones."""
    return align_normal(Normal(old), Normal(new))


def align_normal(old: Normal, new: Normal) -> Alignment:
    if new.network.id < old.network.id:  # of equally good alignments, both ways must find one
        found = _align(new, old)
        place = {id(node): i for i, node in enumerate(ordered(old.network))}
        pairs = sorted(((a, b) for b, a in found.pairs), key=lambda pair: place[id(pair[0])])
        same = found.equality
        if same is not None:
            turned = tuple((a, b) for b, a in same.pairs)
            same = Equality(turned, same.only_new, same.only_old)
        return Alignment(tuple(pairs), found.added, found.removed, same)
    return _align(old, new)


def ordered(network: Network) -> list[Node]:
    """Every node once, producers before users; those on a cycle come last."""
    first = network.sorted_part
    seen = set(map(id, first))
    return [*first, *(node for node in network.nodes if id(node) not in seen)]


def _align(old: Normal, new: Normal) -> Alignment:
    same = equality(old, new)
    match = _Match(old, new)
    if same is not None:
        match.join_all(same.pairs)
    else:
        match.fill()
        match.rest()
        by_name = _Match(old, new)
        if by_name.names():
            by_name.fill()
            by_name.rest()
            if by_name.total() >= match.total():
                match = by_name
    match.plumbing()
    return match.result(same)


class _Match:
    """Pairs found so far, by the places of the nodes in an order that follows the edges."""

    def __init__(self, old: Normal, new: Normal) -> None:
        self.sides = (old, new)
        self.nodes = (_walked(old), _walked(new))
        self.place = tuple({id(node): i for i, node in enumerate(nodes)} for nodes in self.nodes)
        self.partner: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        self._near = tuple(_neighbours(side) for side in self.sides)

    def join(self, i: int, j: int) -> bool:
        if i in self.partner or j in self.taken:
            return False
        self.partner[i], self.taken[j] = j, i
        return True

    def join_all(self, pairs: Sequence[tuple[Node, Node]]) -> None:
        for a, b in pairs:
            self.join(self.place[0][id(a)], self.place[1][id(b)])

    def names(self) -> bool:
        """Pair what has one name of its own and does the same kind of thing; whether any has."""
        for i, j in self._same_name():
            a, b = self.nodes[0][i], self.nodes[1][j]
            if a.op == b.op and not a.plumbing and not counted(a.name):
                self.join(i, j)
        return bool(self.partner)

    def _same_name(self) -> list[tuple[int, int]]:
        counts = [Counter(node.name for node in nodes) for nodes in self.nodes]
        places = {node.name: j for j, node in enumerate(self.nodes[1])}
        return [
            (i, places[node.name])
            for i, node in enumerate(self.nodes[0])
            if counts[0][node.name] == counts[1][node.name] == 1
        ]

    def fill(self) -> None:
        """Align the layers between those that are paired and do not cross."""
        sequencer = Sequencer(*self.sides, *self._near)
        fences = _increasing(sorted(self.partner.items()))
        start = (-1, -1)
        for end in [*fences, (len(self.nodes[0]), len(self.nodes[1]))]:
            left, right = (
                [p for p in range(start[k] + 1, end[k]) if self._open(k, p)] for k in (0, 1)
            )
            found = sequencer.pairs(
                [self.nodes[0][i] for i in left], [self.nodes[1][j] for j in right]
            )
            for i, j in found:
                self.join(left[i], right[j])
            start = end

    def _open(self, side: int, place: int) -> bool:
        known: Mapping[int, int] = self.taken if side else self.partner
        return place not in known and not self.nodes[side][place].plumbing

    def rest(self) -> None:
        """What moved, or was replaced in its place: by what stands beside it, then by name."""
        self._moved()
        self._joined()
        for i, j in self._same_name():
            a, b = self.nodes[0][i], self.nodes[1][j]
            if a.plumbing or b.plumbing:
                continue
            if not counted(a.name) or a.op == b.op or self._in_place(i, j):
                self.join(i, j)

    def _moved(self) -> None:
        kinds: dict[Hashable, list[int]] = {}
        for j, node in enumerate(self.nodes[1]):
            if self._open(1, j):
                kinds.setdefault(self.sides[1].kind(node), []).append(j)
        for i, node in enumerate(self.nodes[0]):
            if not self._open(0, i):
                continue
            around = {
                self.partner[self.place[0][id(each)]]
                for each in self._beside(0, node)
                if self.place[0][id(each)] in self.partner
            }
            for j in kinds.get(self.sides[0].kind(node), ()):
                theirs = {self.place[1][id(each)] for each in self._beside(1, self.nodes[1][j])}
                if around & theirs and self.join(i, j):
                    break

    def _joined(self) -> None:
        """Of layers that are alike, take those that stand behind what is paired before them."""
        for i, node in enumerate(self.nodes[0]):
            j = self.partner.get(i)
            if j is None or node.plumbing or node.name == self.nodes[1][j].name:
                continue
            wanted = self._mapped_before(node)
            if not wanted or wanted == self._places_before(self.nodes[1][j]):
                continue
            kind = self.sides[1].kind(self.nodes[1][j])
            last = self.nodes[1][wanted[0]]
            for each in self._near[1].behind.get(last.name, ()):
                place = self.place[1][id(each)]
                alike = self.sides[1].kind(each) == kind
                if alike and place not in self.taken and self._places_before(each) == wanted:
                    del self.taken[j]
                    self.partner[i], self.taken[place] = place, i
                    break

    def _mapped_before(self, node: Node) -> list[int] | None:
        """Where the layers before it are in the other network, if all of them are."""
        places = [self.place[0][id(each)] for each in self._near[0].before.get(node.name, ())]
        found = [self.partner[place] for place in places if place in self.partner]
        return found if len(found) == len(places) else None

    def _places_before(self, node: Node) -> list[int]:
        return [self.place[1][id(each)] for each in self._near[1].before.get(node.name, ())]

    def _beside(self, side: int, node: Node) -> list[Node]:
        near = self._near[side]
        return [*near.before.get(node.name, ()), *near.behind.get(node.name, ())]

    def _in_place(self, i: int, j: int) -> bool:
        """Whether all that stands before the two, or all behind, is paired."""
        a, b = self.nodes[0][i], self.nodes[1][j]
        for which in ("before", "behind"):
            ours, theirs = (
                [self.place[k][id(each)] for each in getattr(self._near[k], which).get(n.name, ())]
                for k, n in ((0, a), (1, b))
            )
            if ours and sorted(self.partner.get(each, -1) for each in ours) == sorted(theirs):
                return True
        return False

    def total(self) -> float:
        """How much speaks for the pairs: what they do, their names, and the edges between."""
        sequencer = Sequencer(*self.sides, *self._near)
        result = 0.0
        for i, j in self.partner.items():
            a, b = self.nodes[0][i], self.nodes[1][j]
            result += sequencer.fit(a, b) + name_score(a.name, b.name)
            ours, theirs = (
                [self.place[k][id(each)] for each in self._near[k].before.get(n.name, ())]
                for k, n in ((0, a), (1, b))
            )
            mapped = [self.partner.get(each, -1) for each in ours]
            agree = mapped == theirs or (op_of(a).commutes and sorted(mapped) == sorted(theirs))
            result += agree and bool(ours)
        return result

    def plumbing(self) -> None:
        """Pair the plumbing on edges that correspond, then what has one name."""
        sequencer = Sequencer(*self.sides, *self._near)
        old, new = (side.network for side in self.sides)
        for first, second in zip(old.outputs, new.outputs, strict=False):
            self._chains(sequencer, first[0], second[0])
        done: set[int] = set()
        while todo := sorted(self.partner.keys() - done):
            for i in todo:
                a, b = self.nodes[0][i], self.nodes[1][self.partner[i]]
                if len(a.inputs) == len(b.inputs):
                    for one, other in zip(a.inputs, b.inputs, strict=True):
                        self._chains(sequencer, one[0], other[0])
            done.update(todo)
        for i, j in self._same_name():
            if self.nodes[0][i].plumbing and self.nodes[1][j].plumbing:
                self.join(i, j)

    def _chains(self, sequencer: Sequencer, one: str, other: str) -> None:
        chains = [self._chain(0, one), self._chain(1, other)]
        ours = [n for n in chains[0] if self.place[0][id(n)] not in self.partner]
        theirs = [n for n in chains[1] if self.place[1][id(n)] not in self.taken]
        for i, j in sequencer.pairs(ours, theirs):
            self.join(self.place[0][id(ours[i])], self.place[1][id(theirs[j])])

    def _chain(self, side: int, name: str) -> list[Node]:
        """Plumbing from there up to a layer, uppermost first."""
        network, found = self.sides[side].network, []
        while name in network:
            node = network.node(name)
            if not node.plumbing or not node.inputs or node in found:
                if node.plumbing and node not in found:
                    found.append(node)
                break
            found.append(node)
            name = node.inputs[0][0]
        return found[::-1]

    def result(self, same: Equality | None) -> Alignment:
        place = {id(node): i for i, node in enumerate(ordered(self.sides[0].network))}
        later = {id(node): i for i, node in enumerate(ordered(self.sides[1].network))}
        before, after = self.nodes
        pairs = [(before[i], after[j]) for i, j in self.partner.items()]
        removed = [node for i, node in enumerate(before) if i not in self.partner]
        added = [node for j, node in enumerate(after) if j not in self.taken]
        return Alignment(
            tuple(sorted(pairs, key=lambda pair: place[id(pair[0])])),
            tuple(sorted(removed, key=lambda node: place[id(node)])),
            tuple(sorted(added, key=lambda node: later[id(node)])),
            same,
        )


@dataclass(frozen=True)
class Near:
    """The layers right before and behind each layer, past plumbing."""

    before: Mapping[str, list[Node]]
    behind: Mapping[str, list[Node]]


def _neighbours(side: Normal) -> Near:
    network = side.network
    before: dict[str, list[Node]] = {}
    behind: dict[str, list[Node]] = {}
    for edge in network.logical_edges():
        if edge.src in network and edge.dst in network:
            before.setdefault(edge.dst, []).append(network.node(edge.src))
            behind.setdefault(edge.src, []).append(network.node(edge.dst))
    return Near(before, behind)


def _walked(side: Normal) -> list[Node]:
    """All nodes, producers first, in an order that does not depend on how they are stored.

    Backwards from the outputs, each input's part after the other; of a sum the longer part first.
    """
    network = side.network
    depth: dict[str, int] = {}
    for node in network.sorted_part:
        depth[node.name] = 1 + max((depth.get(name, 0) for name, _ in node.inputs), default=0)
    found: dict[str, Node] = {}
    todo = [(name, False) for name, _ in reversed(network.outputs)]
    while todo:
        name, done = todo.pop()
        if name in found or name not in network:
            continue
        node = network.node(name)
        if done:
            found[name] = node
            continue
        if name not in depth:
            continue  # on a cycle
        todo.append((name, True))
        names = [each for each, _ in node.inputs]
        if op_of(node).commutes:
            names.sort(key=lambda each: -depth.get(each, 0))
        todo += [(each, False) for each in reversed(names)]
    rest = [node for node in ordered(network) if found.get(node.name) is not node]
    return [*found.values(), *rest]


def _increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest run of pairs that do not cross; `pairs` ascend in the first place."""
    tails: list[int] = []
    at: list[int] = []
    back: list[int] = []
    for index, (_, j) in enumerate(pairs):
        size = bisect.bisect_left(tails, j)
        back.append(at[size - 1] if size else -1)
        if size == len(tails):
            tails.append(j)
            at.append(index)
        else:
            tails[size], at[size] = j, index
    found = []
    index = at[-1] if at else -1
    while index >= 0:
        found.append(pairs[index])
        index = back[index]
    return found[::-1]
