"""Which planes of which weights to read first, so that few bytes determine many labels.

It is a matter of efficiency alone: whatever is read, a label is told only where it is certain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np

from dlv.dataclass import dataclass
from dlv.kinds import Array, Floats
from dlv.network.bounds.ball import F64, STRICT, Norms, Reference
from dlv.network.bounds.interval import Balls, certain
from dlv.network.ops.op import NoRule, op_of
from dlv.network.program import Program
from dlv.network.suffix.radius import Read, SuffixBalls
from dlv.network.suffix.record import Suffix
from dlv.network.suffix.schedule import Allocation

Inputs = Mapping[str, Array]
Depths = Mapping[str, int]

SMALLEST = 0.02  # of the bytes: the smallest tensors up to this are read whole from the start
SHARES = (0.5, 0.9, 0.98, 1.0)  # of the rows: a level for each, and then everything
# Other rows may be harder: where fewer levels do, further ones at this part of the error.
TIGHTER = 0.5
GREEDY_ROWS = 12
# Rows on which the error of each single tensor is measured: divided by the tensors, at least 32.
ERROR_ROWS = 512
LEAST_ERROR_ROWS = 32
SPARED = 0.95  # of the bytes at most, or everything may as well be read
BATCH = 32
_MOST = 1e300


@dataclass(frozen=True)
class Stored:
    """A tensor as it is stored: planes, and the encoded bytes that each usable depth takes.

    `bytes` has an entry for `planes`, and for each smaller depth that bounds the numbers.
    """

    planes: int
    bytes: Mapping[int, float]
    bits: Mapping[int, int] = field(default_factory=dict)  # where a depth is not whole bytes

    @property
    def depths(self) -> list[int]:
        return sorted(self.bytes)

    def depths_from(self, bits: int) -> list[int]:
        """Those that tell so many bits of each number."""
        return [depth for depth in self.depths if self.bits.get(depth, 8 * depth) >= bits]


class Weights:
    """What is asked of the weights: a tensor and a node's norms at a depth; None = whole.

    `suffix`: the tables of the tighter bound, where there is one.
    """

    suffix: Suffix | None = None

    def tensor(self, name: str, planes: int | None) -> Array:
        raise NotImplementedError

    def norms(self, node: str, planes: int | None) -> Norms | None:
        raise NotImplementedError


@dataclass(frozen=True)
class Schedule:
    """`levels`: planes of every tensor, the last one everything. `helps`: whether the level
    before that determined any row, for each reference. `why`: why there are no bounds, if so.
    `sought`: how many of the levels were looked for; those after are for the hardest rows.
    """

    levels: Sequence[Depths]
    helps: Mapping[str, bool]
    shares: Sequence[float] = ()
    why: str | None = None
    sought: int = 0


@dataclass
class _Search:
    """One program on rows for calibration; `nodes`: of each tensor the linear nodes it is for."""

    program: Program
    stored: Mapping[str, Stored]
    weights: Weights
    rows: Inputs
    nodes: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        linear = [step.node.name for step in self.program.linear]
        other = set(self.program.constants)
        for step in self.program.steps:
            for node in (step.node, step.fold):
                for slot, name in node.params.items() if node else ():
                    name = self.named(name)
                    if slot == "weight" and node is step.node and node.name in linear:
                        self.nodes.setdefault(name, []).append(node.name)
                    else:
                        other.add(name)
        for name in other:  # nothing bounds what another operation makes of it
            self.nodes.pop(name, None)

    def named(self, name: str) -> str:
        return self.program.network.aliases.get(name, name)

    @property
    def count(self) -> int:
        return len(next(iter(self.rows.values())))

    def balls(self, depths: Depths, reference: Reference) -> Balls:
        def planes(name: str) -> int | None:
            depth = depths.get(name)
            return None if depth is None or depth >= self.stored[name].planes else depth

        def tensor(name: str) -> Array:
            name = self.named(name)
            return self.weights.tensor(name, planes(name))

        norms = {}
        for name, nodes in self.nodes.items():
            for node in nodes:
                found = self.weights.norms(node, planes(name))
                if found is not None:
                    norms[node] = found
                elif planes(name) is not None:
                    raise NoRule(self.program.network.node(node), "its weight is not bounded")
        if self.weights.suffix is None:
            return Balls(self.program, tensor, norms, reference)
        read = {
            step.result: planes(self.named(step.node.params["weight"]))
            for step in self.program.linear
        }
        held = Read(self.weights.suffix, read)
        return SuffixBalls(self.program, tensor, norms, held, reference)

    def single_errors(self, count: int) -> tuple[Floats, dict[tuple[str, int], Floats]]:
        """Return the error of the scores of the first rows, with everything read; and the same
        with only some planes of one tensor, by (tensor, planes).

        Each of the latter goes on from the pass with everything read, where its tensor is first
        used.
        """
        whole = self.balls({}, F64)
        rest = [whole.spread(whole.balls(rows)) for rows in self.batches(count)]
        steps = self.program.steps
        first: dict[int, list[tuple[str, int, Balls]]] = {}
        for name, nodes in self.nodes.items():
            users = [at for at, step in enumerate(steps) if step.node.name in nodes]
            for depth in self.stored[name].depths:
                if depth < self.stored[name].planes:
                    made = self.balls({name: depth}, F64)
                    made.share(whole, but={steps[at].result for at in users})
                    first.setdefault(users[0], []).append((name, depth, made))
        parts: dict[tuple[str, int], list[Floats]] = {}
        for rows in self.batches(count):
            passing = whole.begin(rows)
            for at, step in enumerate(steps):
                for name, depth, made in first.get(at, ()):
                    other = passing.copy()
                    for later in steps[at:]:
                        made.take(later, other)
                    parts.setdefault((name, depth), []).append(made.spread(other.found))
                whole.take(step, passing)
        return _finite(rest), {key: _finite(some) for key, some in parts.items()}

    def share(self, depths: Depths, reference: Reference) -> float:
        """Which part of the rows is determined."""
        made = self.balls(depths, reference)
        sure = sum(int(certain(made, made.balls(rows))[1].sum()) for rows in self.batches())
        return sure / self.count

    def batches(self, count: int | None = None) -> Iterator[Inputs]:
        """The first rows, a batch at a time."""
        count = self.count if count is None else count
        for start in range(0, count, BATCH):
            stop = min(start + BATCH, count)
            yield {name: found[start:stop] for name, found in self.rows.items()}


def _finite(parts: Sequence[Floats]) -> Floats:
    """Join the errors of all batches, and cut those that are infinite or unknown."""
    return np.nan_to_num(np.concatenate(parts), nan=_MOST, posinf=_MOST).clip(max=_MOST)


def schedule(
    program: Program, stored: Mapping[str, Stored], weights: Weights, rows: Inputs
) -> Schedule:
    """The levels for a network with these rows as examples.

    A tensor is taken one or two planes further where that lets the error of the scores fall most
    per byte. The error is a sum over the tensors, nearly: so each is looked at on its own, and
    then only the levels that are kept are really computed.
    """
    search = _Search(program, stored, weights, rows)
    first = _start(stored, search.nodes)
    everything = {name: each.planes for name, each in stored.items()}
    try:
        if weights.suffix is not None:
            levels, shares = _by_suffix(search, weights.suffix, everything)
        else:
            levels, shares = _kept(search, *_path(search, first))
    except NoRule as error:
        return blind(stored, search.nodes, error.args[0])
    helps = {"f64": bool(shares) and shares[-1] > 0, "strict": False}
    if helps["f64"] and not _normalised(program):
        helps["strict"] = search.share(levels[-1], STRICT) > 0
    if not levels:  # nothing is certain before everything is read
        return blind(stored, search.nodes, None)
    sought = len(levels)
    for level in _further(stored, search.nodes, levels[-1]):
        levels = [*levels, level]
        shares = [*shares, search.share(level, F64)]
    return Schedule([*levels, everything], helps, [*shares, 1.0], sought=sought)


def _further(
    stored: Mapping[str, Stored], linear: Iterable[str], last: Depths
) -> Iterator[dict[str, int]]:
    """For rows harder than these, sets of classes, narrower references: two planes, then three."""
    whole = sum(each.bytes[each.planes] for each in stored.values())
    level = dict(last)
    for planes in (2, 3):
        for name in linear:
            usable = stored[name].depths_from(8 * planes)
            level[name] = max(level[name], min(usable, default=stored[name].planes))
        if level != last and sum(stored[n].bytes[d] for n, d in level.items()) < SPARED * whole:
            last = dict(level)
            yield last


def _start(stored: Mapping[str, Stored], linear: Iterable[str]) -> dict[str, int]:
    """What is read before anything is told: small tensors whole, of the others the first plane."""
    total = sum(each.bytes[each.planes] for each in stored.values())
    known = set(linear)
    depths = {name: stored[name].planes for name in stored}
    spent = 0.0
    for name in sorted(known, key=lambda name: (stored[name].bytes[stored[name].planes], name)):
        spent += stored[name].bytes[stored[name].planes]
        if spent > SMALLEST * total:
            depths[name] = stored[name].depths[0]
    return depths


def _path(search: _Search, first: Depths) -> tuple[list[dict[str, int]], list[float]]:
    """Depths from the start to everything, one step after the other, and how far scores are off."""
    stored = search.stored
    count = min(GREEDY_ROWS, search.count)
    open_ones = [name for name in search.nodes if first[name] < stored[name].planes]
    rest, errors_alone = search.single_errors(count)
    alone = {
        (name, depth): np.maximum(errors_alone[name, depth] - rest, 0)
        if depth < stored[name].planes
        else np.zeros(count)
        for name in open_ones
        for depth in stored[name].depths
    }
    depths = dict(first)
    path = [dict(depths)]
    floor = np.maximum(rest, np.finfo(np.float64).tiny)
    off: list[float] = []
    while any(depths[name] < stored[name].planes for name in open_ones):
        errors = {name: alone[name, depths[name]] for name in open_ones}
        total = floor + sum(errors.values())
        off.append(float(np.median(total)))
        best: tuple[float, float, str, int] | None = None
        for name in open_ones:
            now = stored[name].bytes[depths[name]]
            for depth in [d for d in stored[name].depths if d > depths[name]][:2]:
                after = np.maximum(total - errors[name] + alone[name, depth], floor)
                fall = float(np.median(np.log(total)) - np.median(np.log(after)))
                cost = max(stored[name].bytes[depth] - now, 1.0)
                gain = (fall / cost, -cost, name, depth)
                if best is None or gain[:2] > best[:2]:
                    best = gain
        assert best is not None
        depths[best[2]] = best[3]
        path.append(dict(depths))
    return path, off


def _kept(
    search: _Search, path: Sequence[Depths], off: Sequence[float]
) -> tuple[list[Depths], list[float]]:
    """Of the steps before the last, the first ones that determine so many of the rows."""
    known: dict[int, float] = {}

    def share(index: int) -> float:
        if index not in known:
            known[index] = search.share(path[index], F64)
        return known[index]

    chosen: list[int] = []
    for wanted in SHARES:
        low, high = 0, len(path) - 1  # the last step is everything
        while low < high:
            middle = (low + high) // 2
            if share(middle) >= wanted:
                high = middle
            else:
                low = middle + 1
        if low < len(path) - 1 and low not in chosen:
            chosen.append(low)
    if not chosen and len(path) > 1 and share(len(path) - 2) > 0:
        chosen.append(len(path) - 2)
    chosen.sort()
    while chosen and len(chosen) < len(SHARES):
        goal = TIGHTER * off[chosen[-1]]
        further = [at for at in range(chosen[-1] + 1, len(path) - 1) if off[at] <= goal]
        if not further:
            break
        chosen.append(further[0])
    return [path[at] for at in chosen], [share(at) for at in chosen]


def _by_suffix(
    search: _Search, suffix: Suffix, everything: Depths
) -> tuple[list[Depths], list[float]]:
    """Levels for an error that is a sum over the tensors; those that determine more and more."""
    whole = search.balls({}, F64)
    count = max(LEAST_ERROR_ROWS, ERROR_ROWS // max(1, len(search.nodes)))
    count = min(count, search.count)
    parts = [whole.balls(each) for each in search.batches(count)]
    scores = np.concatenate([known[search.program.scores].centre for known in parts])
    rest, errors_alone = search.single_errors(count)
    errors: dict[str, dict[int, Floats]] = {name: {} for name in search.nodes}
    for (name, depth), radii in errors_alone.items():
        errors[name][depth] = np.maximum(radii - rest, 0)
    sizes = {name: search.stored[name].bytes for name in search.nodes}
    allocation = Allocation(errors, sizes, suffix.budget(scores) - rest)
    found: list[Depths] = []
    shares: list[float] = []
    for depths in allocation.levels():
        level = {**everything, **depths}
        share = search.share(level, F64) if level != everything else 0.0
        if share > 0 and share >= max(shares, default=0.0):
            found.append(level)
            shares.append(share)

    def wider(level: Depths) -> Depths | None:
        return next(_further(search.stored, search.nodes, level), None)

    kept = allocation.kept(found, shares, wider)
    return found[:kept], shares[:kept]


def blind(stored: Mapping[str, Stored], linear: Iterable[str], why: str | None) -> Schedule:
    """Where nothing is certain before the end: depths for who goes by what is likely."""
    first = _start(stored, linear)
    everything = {name: each.planes for name, each in stored.items()}
    levels: list[Depths] = [dict(first)]
    deeper = {
        name: min((d for d in stored[name].depths if d > depth), default=depth)
        for name, depth in first.items()
    }
    levels += [each for each in (deeper, dict(everything)) if each != levels[-1]]
    if len(levels) > 1 and levels[-1] == levels[-2]:
        levels.pop()
    return Schedule(levels, {"f64": False, "strict": False}, (), why)


def _normalised(program: Program) -> bool:
    """Whether batch normalisation was folded away: float32 evaluations need not do so."""
    return any(
        step.fold is not None or op_of(step.node).batch_statistics(step.node)
        for step in program.steps
    )
