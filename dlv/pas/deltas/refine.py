"""Makes a low rank exact to the last bits, where nothing but rounding is left of a difference.

That is what an adapter leaves that was merged into its base. Rounding is coarse where weights
are large and fine where they are small; so the factors are fitted again, each element weighted
by how finely it was rounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.kinds import Floats
from dlv.pas.coders.codecs import choose
from dlv.pas.deltas.pairs import Pair
from dlv.pas.deltas.predictors import predictors_of
from dlv.pas.floats import exponents

Found = tuple[list[dict[str, Any]], bytes]

MAX_ELEMENTS = 1 << 22
MAX_RANK = 24
ROUNDS = 3
# Last bits that a low rank may be off, for it to be worth a closer look.
NEAR = 64.0
# Steps of the factors to try, as the error they make in parts of a typical last bit.
ERRORS = (1.0, 0.5, 0.25, 0.12, 0.06)


def weights_of(pair: Pair, rows: NDArray[np.int32], columns: NDArray[np.int32]) -> Floats:
    """1 / last bit squared of each element, in the units of scaled differences."""
    powers = exponents(pair.target, pair.form).astype(np.int32).reshape(pair.rows, pair.columns)
    powers -= np.int32((1 << (pair.form.exponent - 1)) - 1 + pair.form.mantissa)
    powers -= rows[:, None] + columns[None, :]
    return np.ldexp(1.0, -2 * np.clip(powers, -400, 400))


def refined(moved: Floats, weights: Floats, right: Floats) -> tuple[Floats, Floats]:
    """Factors of weighted least squares, from right factors that are nearly right."""
    left = _solved(moved, weights, right)
    for _ in range(ROUNDS):
        right = _solved(moved.T, weights.T, left.T).T
        left = _solved(moved, weights, right)
    return left, right


def in_integers(
    moved: Floats, weights: Floats, left: Floats, right: Floats
) -> Iterator[tuple[Floats, Floats, int]]:
    """Integer factors with coarse to fine steps, and the power of two of their products."""
    # Turned so that both sides share the size of each component.
    base_left, turn_left = np.linalg.qr(left)
    base_right, turn_right = np.linalg.qr(right.T)
    inner, values, outer = np.linalg.svd(turn_left @ turn_right.T)
    values = np.maximum(values, values[0] * 1e-12)
    roots: Floats = np.sqrt(values)
    left = base_left @ (inner * roots).astype(np.float64)
    right = (base_right @ (outer.T * roots).astype(np.float64)).T
    typical = 2.0 ** (-0.5 * float(np.log2(weights).mean()))
    for error in ERRORS:
        step = error * typical * np.sqrt(6 * moved.shape[1] / values.sum())
        other = error * typical * np.sqrt(6 * moved.shape[0] / values.sum())
        power = int(np.floor(np.log2(step * other)))
        whole = np.rint(left / step)
        if not whole.any(0).all():
            continue
        again = _solved(moved.T, weights.T, whole.T).T
        yield whole, np.rint(again * 2.0**-power), power


def entropy_bytes(pair: Pair, found: Found) -> float:
    """What differences that are nearly all zero take, and the side data."""
    pair = pair.with_predictors(predictors_of(found[0], found[1], pair.dtype, pair.shape))
    total, count = 0.0, 0
    counts = np.zeros(256)
    for start, stop in pair.sample():
        signed = pair.signed(start, stop)
        counts += np.bincount(np.clip(signed, -128, 127) + 128, minlength=256)
        total += float(np.log2(1 + np.maximum(np.abs(signed) - 127, 0)).sum())
        count += stop - start
    used = counts[counts > 0]
    total += float((used * np.log2(count / used)).sum())
    return total / count * len(pair.target) / 8 + len(choose(found[1])[1])


def _solved(moved: Floats, weights: Floats, basis: Floats) -> Floats:
    """For each row of `moved`, weighted least squares onto the rows of `basis`."""
    rank = len(basis)
    products = (basis[:, None, :] * basis[None, :, :]).reshape(rank * rank, -1)
    grams = (weights @ products.T).reshape(-1, rank, rank)
    traces = np.trace(grams, axis1=1, axis2=2)[:, None, None]
    np.add(grams, np.eye(rank) * (1e-13 * traces + 1e-300), out=grams)
    sides = (weights * moved) @ basis.T
    found = np.linalg.solve(grams, sides[:, :, None])[:, :, 0]
    return np.asarray(found, np.float64)
