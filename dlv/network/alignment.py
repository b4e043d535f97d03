"""Which node of one network is which node of another: by name, then by operation and position.

Two things speak for a pair: its name, and what it does. A name given by a person (`conv1`)
decides as long as the operation is the same. A name that is only a position (`features.3`, as
in torch's Sequential) shifts when a layer is put in before it, so it merely tips the scales in
the sequence alignment of what the names left over.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dlv.network.graph import Network, Node, plain

MOST_CELLS = 1_500_000  # of the alignment's table; longer stretches are compared near its diagonal

# Of one operation: any; of one variant; with these attributes, each with its share; a position
# in the name that agrees.
_OP, _VARIANT, _ATTRIBUTES, _NAME = 1.0, 1.0, 2.0, 1.5


@dataclass(frozen=True)
class Alignment:
    """Nodes that are one and the same, in the order of the first network, and those alone."""

    pairs: tuple[tuple[Node, Node], ...]
    removed: tuple[Node, ...]
    added: tuple[Node, ...]


def align(old: Network, new: Network) -> Alignment:
    """Match the nodes of two networks; the other way round the same ones."""
    if new.id < old.id:  # of alignments that are equally good, both ways must find one
        found = _align(new, old)
        place = {id(node): i for i, node in enumerate(ordered(old))}
        pairs = sorted(((a, b) for b, a in found.pairs), key=lambda pair: place[id(pair[0])])
        return Alignment(tuple(pairs), found.added, found.removed)
    return _align(old, new)


def _align(old: Network, new: Network) -> Alignment:
    before, after = ordered(old), ordered(new)
    partner = _by_name(before, after)
    fences = _increasing(sorted(partner.items()))
    ends = [*fences, (len(before), len(after))]
    start = (-1, -1)
    taken = set(partner.values())
    for end in ends:
        left = [i for i in range(start[0] + 1, end[0]) if i not in partner]
        right = [j for j in range(start[1] + 1, end[1]) if j not in taken]
        for i, j in sequence([before[i] for i in left], [after[j] for j in right]):
            partner[left[i]] = right[j]
        start = end
    taken = set(partner.values())
    for i, j in _same_name(before, after):
        if i not in partner and j not in taken:
            partner[i] = j
            taken.add(j)
    return Alignment(
        tuple((before[i], after[j]) for i, j in sorted(partner.items())),
        tuple(node for i, node in enumerate(before) if i not in partner),
        tuple(node for j, node in enumerate(after) if j not in taken),
    )


def ordered(network: Network) -> list[Node]:
    """Every node once, producers before users; those on a cycle come last."""
    first = network.sorted_part
    seen = set(map(id, first))
    return [*first, *(node for node in network.nodes if id(node) not in seen)]


def positional(name: str) -> bool:
    """Whether the name is only a place in a list: `features.3`."""
    return name.rpartition(".")[2].isdecimal()


def _same_name(before: Sequence[Node], after: Sequence[Node]) -> list[tuple[int, int]]:
    """Places of names that stand once in each."""
    counts = Counter(node.name for node in before), Counter(node.name for node in after)
    place = {node.name: j for j, node in enumerate(after)}
    return [
        (i, place[node.name])
        for i, node in enumerate(before)
        if counts[0][node.name] == counts[1][node.name] == 1
    ]


def _by_name(before: Sequence[Node], after: Sequence[Node]) -> dict[int, int]:
    return {
        i: j
        for i, j in _same_name(before, after)
        if before[i].op == after[j].op and not positional(before[i].name)
    }


def _increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest run of pairs that do not cross; `pairs` ascend in the first place."""
    tails: list[int] = []
    at: list[int] = []
    back: list[int] = []
    for index, (_, j) in enumerate(pairs):
        length = bisect.bisect_left(tails, j)
        back.append(at[length - 1] if length else -1)
        if length == len(tails):
            tails.append(j)
            at.append(index)
        else:
            tails[length], at[length] = j, index
    found = []
    index = at[-1] if at else -1
    while index >= 0:
        found.append(pairs[index])
        index = back[index]
    return found[::-1]


def score(old: Node, new: Node) -> float:
    """How well two nodes fit; 0: they are not the same layer."""
    if old.op != new.op:
        return 0.0
    found = _OP + (_NAME if old.name == new.name else 0.0)
    if old.variant != new.variant or (old.op == "OP" and _raw(old) != _raw(new)):
        return found
    names = old.attrs.keys() | new.attrs.keys()
    same = sum(old.attrs.get(name) == new.attrs.get(name) for name in names)
    return found + _VARIANT + _ATTRIBUTES * (same / len(names) if names else 1.0)


def _raw(node: Node) -> object:
    return None if node.source is None else node.source.get("op")


def sequence(before: Sequence[Node], after: Sequence[Node]) -> list[tuple[int, int]]:
    """The pairs, none of them crossing, whose scores have the largest sum."""
    if not before or not after:
        return []
    rows, columns = len(before), len(after)
    reach = columns if rows * columns <= MOST_CELLS else max(1, MOST_CELLS // rows // 2)
    known: dict[tuple[int, int, bool], float] = {}
    kinds: dict[object, int] = {}
    old_kind: list[int] = []
    new_kind: list[int] = []
    for nodes, places in ((before, old_kind), (after, new_kind)):
        for node in nodes:
            raw = _raw(node) if node.op == "OP" else None
            attrs = repr(sorted((name, plain(value)) for name, value in node.attrs.items()))
            kind = (node.op, node.variant, raw, attrs)
            places.append(kinds.setdefault(kind, len(kinds)))
    best = [0.0] * (columns + 1)
    steps: list[tuple[int, bytearray]] = []
    for i, old in enumerate(before):
        middle = i * columns // rows
        low, high = max(0, middle - reach), min(columns, middle + reach + 1)
        row = best[:]  # outside the band: this node is left out
        moves = bytearray(high - low)
        for j in range(low, high):
            key = (old_kind[i], new_kind[j], old.name == after[j].name)
            if key not in known:
                known[key] = score(old, after[j])
            fit = known[key]
            value, move = best[j + 1], 1
            if row[j] > value:
                value, move = row[j], 2
            if fit and best[j] + fit >= value:
                value, move = best[j] + fit, 3
            row[j + 1], moves[j - low] = value, move
        for j in range(high, columns):
            row[j + 1] = max(row[j + 1], row[j])
        best = row
        steps.append((low, moves))
    return _walk_back(steps, columns)


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
