"""The reader's side of the suffix metric: one number per row, added up along the centre's run.

Weight after weight is replaced, in thought, by what was read of it, the exact network behind it:
R is the sum of what each of these steps, and each rounding, can change of the scores, and
`pairs[k, j] * R` bounds how far `o_k - o_j` may be off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.network.ball import F64, UNIT, UP, Ball, BallRun, Norms, Reference, gamma, l2
from dlv.network.graph import Port
from dlv.network.interval import Balls
from dlv.network.layers.linear import Reach, radii
from dlv.network.program import Program, Step
from dlv.network.sizes import axis_of
from dlv.network.suffix_plan import window_of
from dlv.network.suffix_record import Correction, Suffix, SuffixLevel, SuffixNode

Array = NDArray[Any]
Floats = NDArray[np.float64]
# By the result of each linear step: planes read of its weight; None: all.
Depths = Mapping[str, int | None]

_ROUNDED = 1e-9
_VANISHING = 2.0**-900  # of squares that are too small to be told from zero


@dataclass(frozen=True)
class Read:
    """A suffix, and how much of the weight of each linear step has been read."""

    suffix: Suffix
    depths: Depths

    def level(self, result: str) -> SuffixLevel | None:
        held, depth = self.suffix.nodes.get(result), self.depths.get(result)
        return None if held is None or depth is None else held.level(depth)


class SuffixBalls(Balls):
    """Balls beside the suffix metric; the smaller bound counts."""

    def __init__(
        self,
        program: Program,
        tensor: Callable[[str], Array],
        norms: Mapping[str, Norms],
        read: Read,
        reference: Reference = F64,
    ) -> None:
        corrections = corrections_of(program, read)
        super().__init__(
            program,
            lambda name: corrected(tensor(name), corrections.get(name)),
            norms,
            reference,
        )
        self.read = read
        self.norms = {**norms, **_loosened(program, read, norms, tensor)}
        self._total: Floats | float = 0.0

    def balls(self, inputs: Mapping[str, Array]) -> dict[Port, Ball]:
        self._total = 0.0
        return super().balls(inputs)

    def bounded(self, step: Step, run: BallRun) -> tuple[Ball, ...]:
        found = super().bounded(step, run)
        if (step.result, 0) == self.program.scores:
            return found
        node = self.read.suffix.nodes.get(step.result)
        if step in self.program.linear:
            self._total = self._total + self._unread(step, node, run)
        if node is not None:
            rounding = node.reach * _rounding(step, run, found[0])
            self._total = (self._total + rounding) * UP
        elif not exact(step):
            self._total = np.inf
        return found

    def _unread(self, step: Step, node: SuffixNode | None, run: BallRun) -> Floats | float:
        """sqrt(e^H M e) at most, of what is not read of this weight."""
        if self.read.depths.get(step.result) is None:
            return 0.0
        level = self.read.level(step.result)
        if node is None or level is None:
            return np.inf
        x = run.inputs[0].centre
        axis = -1
        if step.node.op == "CONV" and step.node.attrs["channels"] == "first":
            axis = 1
        rank = 0 if level.correction is None else level.correction.rank
        size, along = _split(np.moveaxis(x, axis, -1), node, rank)
        found: Floats = (level.dn * size + level.rest * along) * UP
        return found

    def spread(self, known: Mapping[Port, Ball]) -> Floats:
        """R, and what stands for it of the last weight's unread part."""
        found = self._spread(known)
        pairs, last = self.read.suffix.pairs, self._last
        if last is None or not pairs.any():
            return found
        own = self._own_errors(last, known[last.inputs[0]]).max(axis=1)
        typical: Floats = found + 2 * own / pairs[pairs > 0].mean()
        return typical

    def _spread(self, known: Mapping[Port, Ball]) -> Floats:
        rows = len(known[self.program.scores].radius)
        return np.broadcast_to(np.asarray(self._total), (rows,))

    def allowances(self, known: Mapping[Port, Ball], tops: NDArray[np.intp]) -> Floats:
        found = super().allowances(known, tops)
        last, pairs = self._last, self.read.suffix.pairs
        if last is None or len(pairs) != found.shape[1]:
            return found
        e = self._own_errors(last, known[last.inputs[0]])
        total = self._spread(known)[:, None]
        share = pairs[tops] * total + np.take_along_axis(e, tops[:, None], 1) + e
        # Either bound alone is sound; one that is NaN says nothing.
        return np.fmin(found, share * UP)

    def _own_errors(self, last: Step, behind: Ball) -> Floats:
        """Of each score alone: the last weight's unread part, and rounding on both sides.

        The centre's input is known, so what is not read of this weight meets no radius.
        """
        params, norms = self.params(last), self.norms.get(last.node.name)
        weight = params["weight"]
        weight = weight if last.node.attrs["layout"] == "out_in" else weight.T
        unread = np.zeros(len(weight)) if norms is None else norms.drows
        if unread is None:
            unread = np.full(len(weight), norms.dn if norms else 0.0)
        size = l2(behind.centre)
        terms = weight.shape[1] + 3
        rows = (l2(weight) + unread) * UP
        bias = np.abs(params.get("bias", np.zeros(len(weight))))
        ours = gamma(terms, UNIT) * (np.outer(size, rows) + bias)
        theirs = gamma(terms, self.reference.unit) * (np.outer(size + behind.radius, rows) + bias)
        tiny = terms * (self.reference.tiny + 2.0**-1021)
        found: Floats = (np.outer(size, unread) + ours + theirs + tiny) * UP
        return found


def _split(x: Array, node: SuffixNode, rank: int) -> tuple[Floats, Floats]:
    """||y - Q^T c|| and ||c|| of each row, with y = A x and c = Q y; rounded up."""
    flat = x.reshape(len(x), -1, x.shape[-1])
    scale = node.scale
    squares: Floats = np.einsum("npc,npc->nc", flat, flat) @ scale**2
    lost = flat[:1].size * _VANISHING * float(scale.max()) ** 2
    if not rank:
        return np.sqrt(squares * UP + lost) * UP, np.zeros(len(x))
    usual = node.usual[:rank]
    c = flat @ (usual * scale).T
    pairs = np.matmul(np.swapaxes(c, 1, 2), c)
    taken = np.einsum("nii->n", pairs)
    left = squares - 2 * taken + np.einsum("nij,ij->n", pairs, usual @ usual.T)
    # What these sums, and c itself, were rounded by; c enters as it was computed.
    most = squares + (1 + rank) ** 2 * taken
    left = np.maximum(left, 0) + _ROUNDED * most * (1 + flat[:1].size * 2.0**-22)
    return np.sqrt(left + lost) * UP, np.sqrt(taken * UP + lost) * UP


def exact(step: Step) -> bool:
    """Whether a step rounds nothing: zeros, choices and moves."""
    node = step.node
    return node.op in ("RELU", "DROPOUT", "RESHAPE") or node.variant in ("RELU6", "MAX")


def _rounding(step: Step, run: BallRun, made: Ball) -> Floats:
    """How far both sides together may be from exact sums, at the result of one step."""
    node, units = step.node, (run.reference.unit, UNIT)
    x, radius = run.inputs[0].centre, run.inputs[0].radius
    size = l2(x)
    outputs = made.centre[:1].size
    tiny = (run.reference.tiny + 2.0**-1021) * sqrt(outputs)
    if node.op in ("CONV", "FULL"):
        assert run.norms is not None
        alone = replace(run.norms, opn=0.0, dn=0.0, dopn=0.0)
        overlap, terms = 1, x.shape[-1]
        if node.op == "CONV":
            window = window_of(node)
            overlap = window.overlap()
            depth = x.shape[1 if node.attrs["channels"] == "first" else -1]
            terms = prod(window.kernel) * depth // node.attrs["groups"]
        places = outputs // node.attrs["out"]
        patches = size * sqrt(overlap) * UP
        reach = Reach(terms, places, outputs, overlap, patches, size)
        return radii(alone, run, reach, radius, run.params.get("bias"))
    if node.op == "ADD":
        sizes = [(l2(each.centre), each.radius) for each in run.inputs]
        whole: Floats = np.sum([size + radius for size, radius in sizes], axis=0)
        both = sum(gamma(len(sizes), unit) for unit in units)
        added: Floats = (both * whole + tiny) * UP
        return added
    if node.op == "POOL":
        terms = x[:1].size // max(outputs, 1)
        factor = 1 / sqrt(terms)
        if node.variant == "AVG":
            window = window_of(node)
            terms = prod(window.kernel)
            factor = sqrt(window.overlap() / terms)
        both = sum(gamma(terms + 2, unit) for unit in units)
        found: Floats = (both * factor * (size + radius) + tiny * terms) * UP
        return found
    axis = axis_of(node.attrs["axis"], x.ndim, "axis")
    params = run.params
    scale = np.abs(params.get("weight", np.ones(1))) / np.sqrt(
        params["running_var"] + node.attrs["eps"]
    )
    shift = np.abs(params["running_mean"]) * scale + np.abs(params.get("bias", np.zeros(1)))
    places = outputs // x.shape[axis]
    moved = float(scale.max(initial=0.0)) * (size + radius) + sqrt(places) * float(
        l2(shift[None])[0]
    )
    result: Floats = (sum(gamma(16, unit) for unit in units) * moved + 4 * tiny) * UP
    return result


def corrections_of(program: Program, read: Read) -> dict[str, Array]:
    """By tensor: what is added to its centre, in the order of axes that it is stored in."""
    found = {}
    for step in program.linear:
        level = read.level(step.result)
        if level is not None and level.correction is not None:
            node = read.suffix.nodes[step.result]
            found[step.node.params["weight"]] = correction_of(step, node, level.correction)
    return found


def correction_of(step: Step, node: SuffixNode, correction: Correction) -> Array:
    attrs = step.node.attrs
    along = node.usual[: correction.rank] * node.scale
    taps = (correction.floats @ along).reshape(attrs["out"], -1, len(node.scale))
    taps = np.moveaxis(taps, 1, 2)
    if step.node.op == "FULL":
        return taps[:, :, 0] if attrs["layout"] == "out_in" else taps[:, :, 0].T
    added: Array = taps.reshape(*taps.shape[:2], *attrs["kernel"])
    return added if attrs["layout"] == "kernel_last" else np.moveaxis(added, (0, 1), (-1, -2))


def corrected(centre: Array, correction: Array | None) -> Array:
    return centre if correction is None else np.asarray(centre, np.float64) + correction


def _loosened(
    program: Program, read: Read, norms: Mapping[str, Norms], tensor: Callable[[str], Array]
) -> dict[str, Norms]:
    """Norms of what was not read hold of centres before they are corrected: of these here."""
    found = {}
    for step in program.linear:
        level, known = read.level(step.result), norms.get(step.node.name)
        if level is None or level.correction is None or known is None:
            continue
        node = read.suffix.nodes[step.result]
        more = float(np.linalg.norm(correction_of(step, node, level.correction))) * UP
        if step.fold is not None:
            params = {slot: tensor(name) for slot, name in step.fold.params.items()}
            scale = params.get("weight", np.ones(1)) / np.sqrt(
                params["running_var"] + step.fold.attrs["eps"]
            )
            more *= float(np.abs(scale).max(initial=0.0)) * UP
        found[step.node.name] = replace(
            known,
            dn=(known.dn + more) * UP,
            dfro=(known.dfro + more) * UP,
            drows=None,
            dopn=np.inf,
        )
    return found
