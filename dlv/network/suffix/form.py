"""The moves of a plan carried out on the form M: one Hermitian matrix per frequency.

Each move can be traced back: given the derivative of a number by its result, that by what it
was made from follows, which is how the parameters are tuned. Sound against rounding: what a
sum of products may lose is added to the diagonal again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from dlv.dataclass import dataclass
from dlv.kinds import Array
from dlv.network.suffix.plan import Copied, Masked, Merged, Plan, Relaxed, Spread, Through, Told
from dlv.network.suffix.torus import Torus

Back = Callable[[Array, "Gradients"], Array]

EPS = 2.0**-53
RAISED = 1 + 1e-7  # over every computed eigenvalue
LEAST_THETA = 1 / 64
TINY = 2.0**-900  # more than products lose that are too small to be told from zero


@dataclass
class Parameters:
    """log2 of p for each channel, and theta, by key. Any of them give a sound form."""

    p: dict[str, Array]
    theta: dict[str, float]


@dataclass
class Gradients:
    p: dict[str, Array] = field(default_factory=dict)
    theta: dict[str, float] = field(default_factory=dict)

    def add(self, key: str, p: Array, theta: float | None = None) -> None:
        self.p[key] = self.p.get(key, 0.0) + p
        if theta is not None:
            self.theta[key] = self.theta.get(key, 0.0) + theta


class Peaks:
    """The largest eigenvalue over all frequencies, rounded up."""

    traced = False

    def of(self, key: str, m: Array) -> tuple[float, int, Array]:  # noqa: ARG002
        """Where it lies is only told by RoughPeaks."""
        return float(np.linalg.eigvalsh(m)[:, -1].max()) * RAISED, 0, m[0, :0, 0]


class RoughPeaks(Peaks):
    """By power iteration from the last vectors: from below, for tuning alone."""

    traced = True

    def __init__(self, rounds: int = 4) -> None:
        self._vectors: dict[str, Array] = {}
        self._rounds = rounds

    def of(self, key: str, m: Array) -> tuple[float, int, Array]:
        return self.of_map(key, m.shape[:2], m.dtype, lambda v: m @ v)

    def of_map(
        self, key: str, shape: tuple[int, ...], dtype: Any, times: Callable[[Array], Array]
    ) -> tuple[float, int, Array]:
        """The same of matrices that are only known by what they make of vectors."""
        v = self._vectors.get(key)
        rounds = self._rounds
        if v is None or v.shape != shape:
            v, rounds = np.random.default_rng(0).normal(size=shape).astype(dtype), 20
        for _ in range(rounds):
            w = times(v[..., None])[..., 0]
            v = w / np.maximum(np.linalg.norm(w, axis=1, keepdims=True), np.finfo(w.dtype).tiny)
        self._vectors[key] = v
        values = (v.conj() * times(v[..., None])[..., 0]).sum(axis=1).real
        at = int(values.argmax())
        return float(values[at]), at, v[at]


def dagger(m: Array) -> Array:
    return np.swapaxes(m.conj(), -1, -2)


def walk(
    plan: Plan,
    head: Array,
    parameters: Parameters,
    weights: Callable[[Through | Told, Torus], Array],
    tell: Callable[[Told, Array, Torus], Array | None],
    peaks: Peaks,
    tori: tuple[Torus, ...] | None = None,
) -> Callable[[], Gradients]:
    """Carry out all moves on `head`, the form behind the last hidden layer.

    `tell` gets the block of each result that errs.

    What it returns is the derivative of a number by that block, or None; calling what `walk`
    returns sums up that number's derivatives by the parameters.
    """
    tori = plan.tori if tori is None else tori
    m: Array = head[None]
    backs: list[Back] = []
    for move in plan.moves:
        back: Back | None = None
        if isinstance(move, Told):
            block = m[:, move.start : move.start + move.width, move.start : move.start + move.width]
            gradient = tell(move, block, tori[move.stage])
            if peaks.traced and gradient is not None:
                back = _added(move, gradient)
        elif isinstance(move, Masked):
            m, back = masked(m, move, parameters, peaks)
        elif isinstance(move, Through):
            m, back = through(_spread(m, tori[move.stage]), move, weights(move, tori[move.stage]))
        elif isinstance(move, Copied):
            m, back = copied(m, move)
        elif isinstance(move, Merged):
            m, back = merged(m, move)
        elif isinstance(move, Relaxed):
            m, back = relaxed(m, move, parameters, peaks)
        else:
            m, back = shared(m, move)
        if peaks.traced and back is not None:
            backs.append(back)
    size = m.shape

    def traced() -> Gradients:
        found = Gradients()
        g: Array = np.zeros(size, m.real.dtype)
        for back in reversed(backs):
            g = back(g, found)
        return found

    return traced


def _spread(m: Array, torus: Torus) -> Array:
    """A form that is alike at all frequencies, said once for each."""
    return m if len(m) == torus.count else np.broadcast_to(m, (torus.count, *m.shape[1:]))


def _added(move: Told, gradient: Array) -> Back:
    at = slice(move.start, move.start + move.width)

    def back(g: Array, found: Gradients) -> Array:  # noqa: ARG001
        if len(g) != len(gradient):
            g = _gathered(g, len(gradient))
        g = g.astype(np.result_type(g, gradient))
        g[:, at, at] += gradient
        return g

    return back


def _gathered(g: Array, count: int) -> Array:
    """The derivative by what was said once, from that by all its copies; or an empty one."""
    if count == 1 and len(g) > 1:
        found: Array = g.sum(axis=0, keepdims=True)
        return found
    return np.broadcast_to(g, (count, *g.shape[1:])).copy()


def masked(
    m: Array, move: Masked, parameters: Parameters, peaks: Peaks
) -> tuple[Array, Back | None]:
    """With T = p tau: over u, u^H (M - 2T) u + 2 u^H T z has its maximum T (2T - M)^-1 T."""
    u = slice(move.start, move.start + move.width)
    q = np.exp2(parameters.p[move.key] / 2).astype(m.real.dtype)
    theta = max(parameters.theta[move.key], LEAST_THETA)
    scaled = m.copy()
    scaled[:, u] /= q[:, None]
    scaled[:, :, u] /= q
    own = scaled[:, u, u]
    peak, at, v = peaks.of(move.key, own)
    tau = peak * (0.5 + theta)
    if not tau > TINY:  # of a form that is zero
        tau = 1e-30 if peaks.traced else TINY
    inner = -own.copy()
    diagonal = np.arange(move.width)
    inner[:, diagonal, diagonal] += 2 * tau
    k = np.linalg.inv(inner)
    k = (k + dagger(k)) / 2
    b = scaled[:, u].copy()
    b[:, diagonal, move.start + diagonal] = tau
    b[:, :, u] = np.eye(move.width) * tau
    kb = k @ b
    found = dagger(b) @ kb
    outer = m.copy()
    outer[:, u] = 0
    outer[:, :, u] = 0
    found += outer
    found[:, u] *= q[:, None]
    found[:, :, u] *= q
    count = m.shape[1]
    lost = 4 * EPS * count * count * (2 + 1 / theta) * 8
    everywhere = np.arange(count)
    found = (found + dagger(found)) / 2
    found[:, everywhere, everywhere] *= 1 + lost
    found[:, everywhere, everywhere] += TINY
    if not peaks.traced:
        return found, None

    def back(g: Array, made: Gradients) -> Array:
        g = _gathered(g, len(m)) if len(g) != len(m) else g.copy()
        p_own = 0.5 * 2 * np.einsum("fij,fji->i", g[:, u], found[:, :, u]).real
        g = g.astype(np.result_type(g, m))
        g[:, u] *= q[:, None]
        g[:, :, u] *= q
        rest = g.copy()
        rest[:, u] = 0
        rest[:, :, u] = 0
        kbg = kb @ g
        h = kbg @ dagger(kb)  # the derivative by M_uu, scaled
        db = 2 * kbg
        d_tau = -2 * np.einsum("fii->", h).real + np.einsum("fii->", db[:, :, u]).real
        down = rest
        down[:, u] += db / 2
        down[:, :, u] += dagger(db) / 2
        down[:, u, u] = h
        d_peak = d_tau * (0.5 + theta)
        down[at, u, u] += d_peak * np.outer(v, v.conj())
        # M enters scaled: p changes it in the other direction.
        p_own -= np.einsum("fij,fji->i", down[:, u], scaled[:, :, u]).real
        down[:, u] /= q[:, None]
        down[:, :, u] /= q
        made.add(move.key, p_own, d_tau * peak)
        return down

    return found, back


def through(m: Array, move: Through, w: Array) -> tuple[Array, Back]:
    """M with W x for z: W^H M W, and what its products may have lost."""
    z = slice(move.start, move.start + move.width)
    after = move.start + move.width
    wide = w.shape[2]
    size = m.shape[1] - move.width + wide
    x = slice(move.start, move.start + wide)
    kind = np.result_type(m, w)
    mw = m[:, :, z] @ w
    found = np.zeros((len(m), size, size), kind)
    old = np.r_[0 : move.start, after : m.shape[1]]
    new = np.r_[0 : move.start, move.start + wide : size]
    found[:, x, x] = dagger(w) @ mw[:, z]
    found[:, new[:, None], new] = m[:, old[:, None], old]
    found[:, new, x] = mw[:, old]
    found[:, x, new] = dagger(mw[:, old])
    diagonal = np.sqrt(np.maximum(np.einsum("fii->fi", m[:, z, z]).real, 0))
    lost = np.einsum("fij,fi->fj", np.abs(w), diagonal) ** 2
    at = np.arange(move.start, move.start + wide)
    count = float(max(size, m.shape[1]))
    found[:, at, at] += 8 * EPS * count * count * lost
    others = new
    found[:, others, others] *= 1 + 8 * EPS * count * count
    everywhere = np.arange(size)
    found[:, everywhere, everywhere] += TINY

    def back(g: Array, made: Gradients) -> Array:  # noqa: ARG001
        g = _gathered(g, len(m)) if len(g) != len(m) else g
        down = np.zeros((len(m), m.shape[1], m.shape[1]), np.result_type(g, w))
        wg = w @ g[:, x]
        down[:, z, z] = wg[:, :, x] @ dagger(w)
        down[:, old[:, None], old] = g[:, new[:, None], new]
        down[:, z, old] = wg[:, :, new]
        down[:, old, z] = dagger(wg[:, :, new])
        return down

    return found, back


def copied(m: Array, move: Copied) -> tuple[Array, Back]:
    index = np.array(move.index, np.intp)

    def back(g: Array, made: Gradients) -> Array:  # noqa: ARG001
        return _summed(g, index, m.shape[1])

    return m[:, index[:, None], index], back


def merged(m: Array, move: Merged) -> tuple[Array, Back]:
    index = np.array(move.index, np.intp)

    def back(g: Array, made: Gradients) -> Array:  # noqa: ARG001
        return g[:, index[:, None], index]

    return _summed(m, index, move.width), back


def _summed(m: Array, index: Array, width: int) -> Array:
    chosen = np.zeros((len(index), width), m.real.dtype)
    chosen[np.arange(len(index)), index] = 1
    found: Array = chosen.T @ m @ chosen
    return found


def relaxed(
    m: Array, move: Relaxed, parameters: Parameters, peaks: Peaks
) -> tuple[Array, Back | None]:
    """M <= p lambda_max(p^-1/2 M p^-1/2), alike at all positions of a channel."""
    before, after = np.array(move.before, np.intp), np.array(move.after, np.intp)
    p = np.exp2(parameters.p[move.key])
    q = np.sqrt(p[before]).astype(m.real.dtype)
    scaled = m / q[:, None] / q
    peak, at, v = peaks.of(move.key, scaled)
    own = (p[after] * peak * move.factor + TINY).astype(m.real.dtype)
    found: Array = np.diag(own)[None]
    if not peaks.traced:
        return found, None

    def back(g: Array, made: Gradients) -> Array:
        g = g.sum(axis=0) if len(g) > 1 else g[0]
        share = np.diag(g).real * own
        total = share.sum()
        p_own = np.zeros(len(p))
        np.add.at(p_own, after, share)
        np.add.at(p_own, before, -total * np.abs(v) ** 2)
        made.add(move.key, p_own)
        down = np.zeros(m.shape, np.result_type(g, m))
        w = v / q
        down[at] = (total / peak if peak else 0.0) * np.outer(w, w.conj())
        return down

    return found, back


def shared(m: Array, move: Spread) -> tuple[Array, Back]:
    def back(g: Array, made: Gradients) -> Array:  # noqa: ARG001
        return _gathered(g, len(m)) / move.count

    return m / move.count, back
