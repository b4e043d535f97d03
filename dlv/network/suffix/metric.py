"""The suffix metric of a network made by the writer, and made again by whoever checks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from dlv.kinds import Array
from dlv.network.bounds.ball import short
from dlv.network.bounds.schedule import Inputs, Weights
from dlv.network.ops.op import NoRule
from dlv.network.program import Program
from dlv.network.suffix.errors import felt, head_of, matrix_of, over_torus, pairs_of, reach
from dlv.network.suffix.form import Parameters, Peaks, walk
from dlv.network.suffix.habits import LINEAR, Source, check, gain
from dlv.network.suffix.plan import Plan, Through, Told, plan
from dlv.network.suffix.radius import correction_of
from dlv.network.suffix.record import FINE, THETA, Correction, Suffix, SuffixLevel, SuffixNode
from dlv.network.suffix.torus import Torus
from dlv.network.suffix.tuning import STEPS, Tuning, start, tuning_of

_LARGEST = 1e90  # of norms: products of two, and sums of these, are far from infinity


def suffix_of(
    program: Program,
    weights: Weights,
    depths: Mapping[str, Sequence[int]],
    rows: Inputs,
    steps: int = STEPS,
    tuning: Tuning | None = None,
) -> tuple[Suffix, Tuning]:
    """The tables for inputs of the size of these rows, which are examples of them; NoRule.

    `depths`: of each weight, the planes after which its numbers are bounded. With what comes
    back beside the tables they are made again for planes of which the first is the same.
    """
    source = Source(program, weights, depths)
    made = plan(program, {name: rows[name].shape[1:] for name in program.input_names})
    check(made, source)
    try:
        with np.errstate(all="ignore"):
            tuning = tuning or tuning_of(made, source, rows, steps)
            found = _Writer(made, source, tuning).suffix()
    except np.linalg.LinAlgError:
        found = None
    if found is None or tuning is None or not _finite(found):
        raise NoRule(made.last.node, "numbers after it are too large or too small")
    return found, tuning


def _finite(suffix: Suffix) -> bool:
    """Whether a reader can reckon with all of it."""
    norms = [node.reach for node in suffix.nodes.values()]
    for node in suffix.nodes.values():
        for level in (*node.levels, *node.plain):
            norms += [level.dn, level.rest]
    return bool((np.array(norms) < _LARGEST).all() and (suffix.pairs < _LARGEST).all())


def needed(program: Program, suffix: Suffix, levels: Sequence[Mapping[str, int]]) -> Suffix:
    """What a reader of these levels asks for: each says how many planes of a tensor are read.

    Planes beyond them may come free with others: for these depths there are no corrections,
    nor where they would make little of the whole error.
    """
    aliases = program.network.aliases
    names = {step.result: step.node.params["weight"] for step in program.linear}
    depths = [
        {result: level.get(aliases.get(name, name)) for result, name in names.items()}
        for level in levels
    ]
    totals = [sum(_usual(suffix, result, at.get(result)) for result in names) for at in depths]
    weights = sum(node.weights for node in suffix.nodes.values())
    nodes = dict(suffix.nodes)
    for result in names:
        node = nodes.get(result)
        if node is None:
            continue
        kept = []
        for best, plain in zip(node.levels, node.plain, strict=True):
            parts = [
                (plain.usual - best.usual) / total
                for at, total in zip(depths, totals, strict=True)
                if at[result] == best.planes and total > 0
            ]
            taken = len(best.correction.values) if best.correction is not None else 0
            spared = gain(np.log2(1 + max(parts, default=0.0)), weights, taken)
            kept.append(best if parts and spared > 0 else plain)
        rank = max((each.correction.rank for each in kept if each.correction), default=0)
        assert node.a is not None
        assert node.basis is not None
        basis = node.basis[: rank * len(node.a)]
        nodes[result] = replace(node, levels=tuple(kept), plain=(), basis=basis)
    return replace(suffix, nodes=nodes)


def _usual(suffix: Suffix, result: str, depth: int | None) -> float:
    node = suffix.nodes.get(result)
    level = node.level(depth) if node is not None and depth is not None else None
    return 0.0 if level is None else level.usual


def parameters_of(suffix: Suffix) -> Parameters:
    return Parameters(
        {key: value / FINE for key, value in suffix.p.items()},
        {key: value / THETA for key, value in suffix.theta.items()},
    )


def faults(
    program: Program,
    weights: Weights,
    depths: Mapping[str, Sequence[int]],
    shapes: Mapping[str, Sequence[int]],
    suffix: Suffix,
) -> Iterator[str]:
    """Where a stored suffix says less than what comes out when it is made again."""
    source = Source(program, weights, depths)
    try:
        made = plan(program, shapes)
        check(made, source)
    except NoRule as error:
        yield f"no suffix metric: {error}"
        return
    if {key: len(value) for key, value in suffix.p.items()} != dict(made.sizes) or set(
        suffix.theta
    ) != set(start(made).theta):
        yield "its parameters are of another network"
        return
    checker = _Checker(made, source, suffix)
    yield from checker.found()


class _Chain:
    """The moves of one plan carried out for one network, exactly."""

    def __init__(self, made: Plan, source: Source, parameters: Parameters) -> None:
        self.plan, self.source, self.parameters = made, source, parameters
        self.last = source.whole(made.last)
        self.head = head_of(self.last)

    def run(self, tell: Callable[[Told, Array, Torus], None]) -> None:
        def through(move: Through | Told, torus: Torus) -> Array:
            return over_torus(self.source.whole(move.step), move.window, torus)

        walk(self.plan, self.head, self.parameters, through, tell, Peaks())

    def shares(
        self, move: Told, node: SuffixNode, level: SuffixLevel, block: Array, torus: Torus
    ) -> tuple[float, float]:
        """`dn` and `rest` of a level."""
        correction = None
        if level.correction is not None:
            correction = correction_of(move.step, node, level.correction)
        dw = self.source.open_at(move.step, level.planes, correction)
        dn = felt(block, over_torus(dw, move.window, torus), node.scale)
        if level.correction is None:
            return dn, 0.0
        along = node.usual[: level.correction.rank] / node.scale
        left = np.einsum("oi...,ri->or...", dw, along)
        rest = felt(block, over_torus(left, move.window, torus), np.ones(len(along)))
        # The reader's sum of centre and correction may be rounded in another way.
        whole, plain = self.source.whole(move.step), self.source.open_at(move.step, level.planes)
        size = float(np.linalg.norm(whole) + 4 * np.linalg.norm(plain - dw)) * 2.0**-50
        other = size * reach(block) * sqrt(move.window.overlap() if move.window else 1)
        return dn + other / float(node.scale.min()), rest + other * float(np.linalg.norm(along))


class _Writer(_Chain):
    def __init__(self, made: Plan, source: Source, tuning: Tuning) -> None:
        parameters = tuning.parameters
        p = {key: _small(value, FINE) for key, value in parameters.p.items()}
        theta = {key: max(round(v * THETA), 4) for key, v in parameters.theta.items()}
        self._p, self._theta = p, theta
        self._usual, self._a = tuning.usual, tuning.a
        self._nodes: dict[str, SuffixNode] = {}
        rounded = parameters_of(Suffix(np.zeros((1, 1)), {}, p, theta))
        super().__init__(made, source, rounded)

    def suffix(self) -> Suffix:
        self.run(self._tell)
        pairs = np.vectorize(short, otypes=[np.float64])(pairs_of(self.last, self.head))
        return Suffix(pairs, self._nodes, self._p, self._theta)

    def _tell(self, move: Told, block: Array, torus: Torus) -> None:
        step = move.step
        node = SuffixNode(short(reach(block)))
        if step.node.op in LINEAR:
            habit = self._usual[step.result]
            a = self._a.get(step.result, habit.start)
            node = SuffixNode(node.reach, _small(a, FINE), np.zeros(0, np.int8))
            if self.source.correctable(step):
                whole = self.source.whole(step)
                basis = habit.directions(node.scale, habit.rank(node.scale, whole.shape))
                rough = 4 * np.clip(np.rint(basis * 32), -32, 31).astype(np.int8)
                node = replace(node, basis=rough.ravel())
            plain = tuple(
                self._plain(move, node, planes, block, torus)
                for planes in self.source.open_depths(step)
            )
            best = tuple(self._best(move, node, level, block, torus) for level in plain)
            size = self.source.whole(step).size
            node = replace(node, levels=best, plain=plain, weights=size)
        self._nodes[step.result] = node

    def _plain(
        self, move: Told, node: SuffixNode, planes: int, block: Array, torus: Torus
    ) -> SuffixLevel:
        dn, _ = self.shares(move, node, SuffixLevel(planes, 0.0), block, torus)
        usual = dn * self._usual[move.step.result].size(node.scale)
        return SuffixLevel(planes, short(dn), usual=usual)

    def _best(
        self, move: Told, node: SuffixNode, plain: SuffixLevel, block: Array, torus: Torus
    ) -> SuffixLevel:
        """With or without a correction, whichever spares more bytes."""
        rank = len(node.usual)
        if not rank:
            return plain
        habit, planes = self._usual[move.step.result], plain.planes
        raw = self.source.weights.tensor(move.step.node.params["weight"], planes)
        whole = self.source.tensor(move.step.node.params["weight"])
        open_part = np.asarray(whole, np.float64) - raw
        along = matrix_of(move.step, {"weight": open_part})
        along = np.moveaxis(along.reshape(*along.shape[:2], -1), 1, 2).reshape(-1, along.shape[1])
        wanted = (along / node.scale) @ np.linalg.pinv(node.usual)
        values, unit = _rough(wanted.ravel())
        level = SuffixLevel(planes, 0.0, 0.0, Correction(values, unit, rank))
        shares = self.shares(move, node, level, block, torus)
        left, taken = habit.split(node.scale, node.usual)
        after = shares[0] * left + shares[1] * taken
        if after > 0 and gain(np.log2(plain.usual / after), whole.size, len(values)) > 0:
            return SuffixLevel(planes, short(shares[0]), short(shares[1]), level.correction, after)
        return plain


class _Checker(_Chain):
    def __init__(self, made: Plan, source: Source, suffix: Suffix) -> None:
        super().__init__(made, source, parameters_of(suffix))
        self._suffix = suffix
        self._found: list[str] = []

    def found(self) -> list[str]:
        self.run(self._tell)
        pairs = pairs_of(self.last, self.head)
        stored = self._suffix.pairs
        if stored.shape != pairs.shape or (stored < pairs * _NEARLY).any():
            self._found.append("its table of pairs is too small")
        return self._found

    def _tell(self, move: Told, block: Array, torus: Torus) -> None:
        name = move.step.result
        node = self._suffix.nodes.get(name)
        if node is None:
            return
        if node.reach < reach(block) * _NEARLY:
            self._found.append(f"the reach of `{name}` is too small")
        for level in node.levels:
            if level.planes not in self.source.open_depths(move.step):
                self._found.append(f"`{name}` has no level of {level.planes} planes")
                continue
            dn, rest = self.shares(move, node, level, block, torus)
            if level.dn < dn * _NEARLY or level.rest < rest * _NEARLY:
                self._found.append(f"`{name}` after {level.planes} planes is bounded too low")


# Another machine may round what is raised by 1e-7 in another way.
_NEARLY = 1 - 1e-8


def _small(values: Array, steps: float) -> NDArray[np.int8]:
    """Logarithms around their middle, in whole steps of 6 bits: a letter in a record."""
    middle = float(np.median(values)) if len(values) else 0.0
    found: NDArray[np.int8] = np.clip(np.rint((values - middle) * steps), -32, 31).astype(np.int8)
    return found


def _rough(values: Array) -> tuple[NDArray[np.int8], int]:
    """Numbers as 6 bits each, times one power of two."""
    most = float(np.abs(values).max(initial=0.0))
    if not most > 2.0**-900:
        return np.zeros(len(values), np.int8), 0
    unit = int(np.frexp(most / 31)[1])
    found: NDArray[np.int8] = np.rint(np.ldexp(values, -unit)).astype(np.int8)
    return found, unit
