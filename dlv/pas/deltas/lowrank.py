"""A matrix beside its base, and the search for a low rank in how it moved, and for shrinking.

Both are fitted to differences divided by the scales of rows and columns, since what an
element costs is its logarithm: all scales count alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import hash_bytes
from dlv.dataclass import dataclass
from dlv.kinds import Floats
from dlv.pas.coders.codecs import choose
from dlv.pas.coders.contexts import view
from dlv.pas.deltas.predictors import (
    EXACT,
    MAX_EXPONENT,
    MAX_WIDTH,
    Predictor,
    integer_planes,
    predictors_of,
)
from dlv.pas.floats import (
    Format,
    Words,
    balanced,
    differences,
    exponents,
    format_of,
    values_of_words,
)

BLOCK = 1 << 19  # elements per block of rows
LARGE = 60
GREATEST = 2.0**LARGE  # beyond this a number is no weight, and its square soon no number
SAMPLE = 1 << 17  # elements that a choice is made by


@dataclass
class Pair:
    """Words of a target and of its base, and the predictors between them."""

    target: Words
    base: Words
    dtype: str
    shape: tuple[int, ...]
    predictors: Sequence[Predictor] = field(default=())

    def __post_init__(self) -> None:
        self.form = format_of(self.dtype)
        self.rows, self.columns = view(self.shape)

    def with_predictors(self, predictors: Sequence[Predictor]) -> Pair:
        return Pair(self.target, self.base, self.dtype, self.shape, predictors)

    def predicted(self, start: int, stop: int) -> Words:
        words: Words = self.base[start:stop]
        for predictor in self.predictors:
            words = predictor.apply(words, start)
        return words

    def digits(self, start: int, stop: int) -> Words:
        """Differences to the prediction, as balanced digits."""
        return differences(self.target[start:stop], self.predicted(start, stop), self.form)

    def signed(self, start: int, stop: int) -> NDArray[np.int64]:
        return signed(self.digits(start, stop), self.form)

    def blocks(self) -> Iterator[slice]:
        """Blocks of whole rows."""
        step = max(1, BLOCK // max(1, self.columns))
        for first in range(0, self.rows, step):
            yield slice(first, min(first + step, self.rows))

    def sample(self) -> Iterator[tuple[int, int]]:
        """Runs of elements from all over the matrix, short rows whole."""
        size = len(self.target)
        if size <= SAMPLE:
            yield 0, size
            return
        run = max(2048, min(self.columns, 1 << 14))
        count = max(1, SAMPLE // run)
        for index in range(count):
            start = (size - run) * index // max(1, count - 1)
            if run == self.columns:
                start -= start % run
            yield start, start + run

    def cost(self) -> float:
        """Bits per element of the difference, near enough to choose by."""
        total, count = 0.0, 0
        for start, stop in self.sample():
            size = np.abs(self.signed(start, stop).astype(np.float32))
            total += float(np.log2(size + np.float32(0.3)).sum(dtype=np.float64))
            count += stop - start
        return total / max(1, count) - float(np.log2(0.3))

    def values(self, rows: slice) -> tuple[Floats, Floats]:
        """Base as predicted so far and the difference in a block of rows, 0 where not usual."""
        at = slice(rows.start * self.columns, rows.stop * self.columns)
        base = self.predicted(at.start, at.stop)
        target = self.target[at]
        usual = [exponents(words, self.form) for words in (base, target)]
        full = (1 << self.form.exponent) - 1
        if max(int(some.max(initial=0)) for some in usual) < min(full, full // 2 + LARGE):
            was, moved = values_of_words(base, self.dtype), values_of_words(target, self.dtype)
        else:
            good = (usual[0] != full) & (usual[1] != full)
            zero = self.form.words.type(0)
            was = values_of_words(np.where(good, base, zero), self.dtype)
            moved = values_of_words(np.where(good, target, zero), self.dtype)
            for values in (was, moved):
                values[np.abs(values) > GREATEST] = 0.0
        moved -= was
        grid = (rows.stop - rows.start, self.columns)
        return was.reshape(grid), moved.reshape(grid)


def signed(digits: Words, form: Format) -> NDArray[np.int64]:
    """Differences given as balanced digits."""
    eights = balanced(form)
    words = (digits ^ eights) - eights
    found: NDArray[np.int64] = words.view(f"<i{form.width}").astype(np.int64)
    return found


Predicted = tuple[list[dict[str, Any]], bytes]


MAX_ELEMENTS = 1 << 22
MAX_RANK = 24
REFINEMENTS = 3
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
    for _ in range(REFINEMENTS):
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


def entropy_bytes(pair: Pair, predicted: Predicted) -> float:
    """What differences that are nearly all zero take, and the side data."""
    pair = pair.with_predictors(predictors_of(predicted[0], predicted[1], pair.dtype, pair.shape))
    total, count = 0.0, 0
    counts = np.zeros(256)
    for start, stop in pair.sample():
        signed = pair.signed(start, stop)
        counts += np.bincount(np.clip(signed, -128, 127) + 128, minlength=256)
        total += float(np.log2(1 + np.maximum(np.abs(signed) - 127, 0)).sum())
        count += stop - start
    used = counts[counts > 0]
    total += float((used * np.log2(count / used)).sum())
    return total / count * len(pair.target) / 8 + len(choose(predicted[1])[1])


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


LEAST_SIDE = 8
DENSE = 1 << 22  # elements up to which the whole difference is held as float64
GRAM = 1024  # the longest side whose Gram matrix is taken
RANK, SLOW_RANK = 32, 64
SAMPLE_ROWS = 4096  # of a tall matrix that are looked at first
ROUNDS = 2
ALPHA_BITS = 15

Made = tuple[dict[str, Any], bytes, tuple[Floats, Floats]]


@dataclass
class _Scaled:
    """Differences of a pair divided by row and column scales, which are powers of two."""

    pair: Pair
    rows: NDArray[np.int32]
    columns: NDArray[np.int32]

    def grid(self, rows: slice, alphas: Floats | None) -> Floats:
        base, moved = self.pair.values(rows)
        if alphas is not None:
            moved -= base * (alphas[rows, None] if len(alphas) > 1 else alphas[0])
        moved *= np.ldexp(1.0, -self.rows[rows, None])
        moved *= np.ldexp(1.0, -self.columns[None, :])
        return moved


def find_affine(pair: Pair, *, slow: bool = False, shrink: bool = True) -> list[Predicted]:
    """Candidates: shrinking alone by matrix or by row, a low rank alone, and both."""
    if pair.rows < 2 or pair.columns < 2:
        return []
    scaled = _scales(pair)
    if scaled is None:
        return []
    try:
        return _candidates(scaled, slow, shrink)
    except np.linalg.LinAlgError:  # nothing that a fit can make sense of
        return []


def _candidates(scaled: _Scaled, slow: bool, shrink: bool) -> list[Predicted]:
    pair = scaled.pair
    candidates: list[Predicted] = []
    alphas: tuple[Floats, ...] = _alphas(scaled, None) if shrink else ()
    for by_row, fitted in enumerate(alphas):
        if made := _shrink(fitted, bool(by_row)):
            candidates.append(made)
    rank = SLOW_RANK if slow else RANK
    if min(pair.rows, pair.columns) >= LEAST_SIDE:
        if low := _low_rank(scaled, None, rank):
            candidates.append(([low[0]], low[1]))
        if shrink:
            found: Floats | None = alphas[0]
            for _ in range(ROUNDS):
                low = _low_rank(scaled, found, rank)
                if low is None:
                    break
                found = _alphas(scaled, low[2])[0]
            if low is not None and found is not None and (made := _shrink(found, by_row=False)):
                again = _low_rank(scaled, _stored(made), rank)
                if again is not None:
                    candidates.append(([*made[0], again[0]], made[1] + again[1]))
    return candidates


def _scales(pair: Pair) -> _Scaled | None:
    """Root mean squares of rows, then of columns, as powers of two."""
    rows = np.zeros(pair.rows)
    for block in pair.blocks():
        _, moved = pair.values(block)
        rows[block] = np.sqrt((moved**2).mean(1))
    if not (rows > 0).any():
        return None
    least = rows[rows > 0].min()
    row_scales = _powers(np.maximum(rows, least))
    columns = np.zeros(pair.columns)
    for block in pair.blocks():
        _, moved = pair.values(block)
        moved *= np.ldexp(1.0, -row_scales[block, None])
        columns += (moved**2).sum(0)
    columns = np.sqrt(columns / pair.rows)
    least = columns[columns > 0].min()
    return _Scaled(pair, row_scales, _powers(np.maximum(columns, least)))


def _powers(scales: Floats) -> NDArray[np.int32]:
    found = np.rint(np.log2(scales)).astype(np.int32)
    return np.clip(found, -120, 120)


def _alphas(scaled: _Scaled, factors: tuple[Floats, Floats] | None) -> tuple[Floats, Floats]:
    """Least squares of the scaled difference against the scaled base: in all, and by row."""
    over, under = np.zeros(scaled.pair.rows), np.zeros(scaled.pair.rows)
    for block in scaled.pair.blocks():
        base, moved = scaled.pair.values(block)
        if factors is not None:
            moved -= factors[0][block] @ factors[1]
        weights = np.ldexp(1.0, -2 * scaled.rows[block, None]) * np.ldexp(
            1.0, -2 * scaled.columns[None, :]
        )
        weights *= base
        moved *= weights
        over[block] = moved.sum(1)
        weights *= base
        under[block] = weights.sum(1)

    def fitted(over: Floats, under: Floats) -> Floats:
        alphas: Floats = np.divide(over, under, out=np.zeros_like(over), where=under > 0)
        return np.clip(alphas, -0.4, 0.4)

    return fitted(over.sum(keepdims=True), under.sum(keepdims=True)), fitted(over, under)


def _shrink(alphas: Floats, by_row: bool) -> Predicted | None:
    most = float(np.abs(alphas).max())
    if most < 2.0**-26:
        return None
    shift = min(40, ALPHA_BITS - 1 - int(np.ceil(np.log2(most))))
    whole = np.rint(np.ldexp(alphas, shift))
    side = np.clip(whole, -(1 << 15), (1 << 15) - 1).astype("<i2").tobytes()
    if shift < 0:
        return None
    return [{"id": "shrink", "shift": shift, "rows": by_row, "data": hash_bytes(side)}], side


def _stored(shrunk: Predicted) -> Floats:
    """The alphas as they will be read."""
    alphas: Floats = np.ldexp(
        np.frombuffer(shrunk[1], "<i2").astype(np.float64), -shrunk[0][0]["shift"]
    )
    return alphas


def _low_rank(scaled: _Scaled, alphas: Floats | None, most: int) -> Made | None:
    """Factors of the rank that pays best, in integers; and the same as numbers."""
    pair = scaled.pair
    count = pair.rows * pair.columns
    if pair.rows > 2 * SAMPLE_ROWS and pair.columns <= GRAM and not _promising(scaled, alphas):
        return None
    left, squares, energy = _leading(scaled, alphas, most)
    rank = _best_rank(squares, energy, pair.rows, pair.columns)
    if rank == 0:
        return None
    values = np.sqrt(squares[:rank])
    spare = max(energy - float(squares[:rank].sum()), energy * 1e-15) / count
    noise = min(0.5, rank * (pair.rows + pair.columns) / count)
    left = left[:, :rank] * np.sqrt(values)
    step = np.sqrt(6 * noise * spare * pair.columns / values.sum())
    product = 2.0 ** np.floor(np.log2(step * np.sqrt(6 * noise * spare * pair.rows / values.sum())))
    whole = np.rint(left / step)
    # The other side makes up for what rounding took.
    gram = whole.T @ whole
    gram += np.eye(rank) * 1e-12 * np.trace(gram)
    right = np.rint(np.linalg.solve(gram, _project(scaled, alphas, whole)) / product)
    columns = scaled.columns + int(np.log2(product))
    made = pack_factors(whole, right, scaled.rows, columns)
    if alphas is None and rank <= MAX_RANK and count <= MAX_ELEMENTS:
        return _refined(scaled, left * np.sqrt(values) ** -1, made)
    return made


def _refined(scaled: _Scaled, left: Floats, factors: Made | None) -> Made | None:
    """The same, nearer to the last bits, if little more than rounding is left."""
    pair = scaled.pair
    moved = scaled.grid(slice(0, pair.rows), None)
    weights = weights_of(pair, scaled.rows, scaled.columns)
    right = left.T @ moved
    if np.sqrt((weights * (moved - left @ right) ** 2).mean()) > NEAR:
        return factors
    best = factors
    least = np.inf if factors is None else entropy_bytes(pair, ([factors[0]], factors[1]))
    left, right = refined(moved, weights, right)
    for whole, other, power in in_integers(moved, weights, left, right):
        again = pack_factors(whole, other, scaled.rows, scaled.columns + power)
        if again is None:
            continue
        size = entropy_bytes(pair, ([again[0]], again[1]))
        if size < least:
            best, least = again, size
    return best


def pack_factors(
    left: Floats, right: Floats, rows: NDArray[np.int32], columns: NDArray[np.int32]
) -> Made | None:
    """Config and side data of integer factors; None if they are zero or too large."""
    rank = left.shape[1]
    highest = [float(np.abs(side).max()) for side in (left, right)]
    width = next((w for w in range(1, MAX_WIDTH + 1) if max(highest) < 1 << (8 * w - 1)), None)
    if width is None or not all(highest) or rank * highest[0] * highest[1] >= EXACT:
        return None
    if max(np.abs(rows).max(), np.abs(columns).max()) > MAX_EXPONENT:
        return None
    side = b"".join(
        integer_planes(whole, width) + exponents.astype("<i2").tobytes()
        for whole, exponents in ((left.T, rows), (right, columns))
    )
    config = {"id": "lowrank", "rank": rank, "width": width, "data": hash_bytes(side)}
    return config, side, (np.ldexp(left, rows[:, None]), np.ldexp(right, columns[None, :]))


def _best_rank(squares: Floats, energy: float, rows: int, columns: int) -> int:
    """The rank at which factors and what they leave take the fewest bits; 0 for none."""
    count = rows * columns
    best, best_bits = 0, 0.0
    if not energy > 0:
        return 0
    for rank in range(1, len(squares) + 1):
        left = max(energy - float(squares[:rank].sum()), energy * 1e-14)
        saved = 0.5 * count * np.log2(energy / left)
        noise = min(0.5, rank * (rows + columns) / count)
        values = np.sqrt(np.maximum(squares[:rank], energy * 1e-30))
        # Bits of a normal variable of this spread, rounded to the steps of `_low_rank`.
        step = np.sqrt(6 * noise * left / count / values.sum())
        one = np.log2(np.sqrt(values / (rows * columns)) / step) + 2.05
        spent = (rows + columns) * np.maximum(one, 0.5).sum() + 0.72 * noise * count
        if saved - spent > best_bits:
            best, best_bits = rank, float(saved - spent)
    return best


def _promising(scaled: _Scaled, alphas: Floats | None) -> bool:
    """Whether the blocks of a few rows show a low rank: fewer rows rather show too much."""
    pair = scaled.pair
    gram = np.zeros((pair.columns, pair.columns))
    run = 64
    step = pair.rows * run // SAMPLE_ROWS
    rows = 0
    for first in range(0, pair.rows - run, step):
        grid = scaled.grid(slice(first, first + run), alphas)
        gram += grid.T @ grid
        rows += run
    squares = np.linalg.eigvalsh(gram)[::-1] * (pair.rows / rows)
    energy = float(squares.sum())
    return _best_rank(np.maximum(squares[:RANK], 0), energy, pair.rows, pair.columns) > 0


def _leading(scaled: _Scaled, alphas: Floats | None, most: int) -> tuple[Floats, Floats, float]:
    """Leading left singular vectors, squares of their singular values, and the whole energy."""
    pair = scaled.pair
    if pair.rows <= GRAM and pair.rows * pair.columns <= DENSE:
        whole = scaled.grid(slice(0, pair.rows), alphas)
        squares, vectors = np.linalg.eigh(whole @ whole.T)
        energy = float(squares.sum())
        return vectors[:, ::-1][:, :most], np.maximum(squares[::-1][:most], 0), energy
    if pair.columns <= GRAM:
        gram = np.zeros((pair.columns, pair.columns))
        for block in pair.blocks():
            grid = scaled.grid(block, alphas)
            gram += grid.T @ grid
        squares, vectors = np.linalg.eigh(gram)
        energy = float(squares.sum())
        squares = np.maximum(squares[::-1][:most], energy * 1e-14)
        right = vectors[:, ::-1][:, :most] / np.sqrt(squares)
        left = np.empty((pair.rows, right.shape[1]))
        for block in pair.blocks():
            left[block] = scaled.grid(block, alphas) @ right
        return left, squares, energy
    return _iterated(scaled, alphas, most)


def _iterated(scaled: _Scaled, alphas: Floats | None, most: int) -> tuple[Floats, Floats, float]:
    """The same by subspace iteration, for matrices long on both sides."""
    pair = scaled.pair
    width = min(most + 8, pair.rows, pair.columns)
    right = np.random.default_rng(1).normal(size=(pair.columns, width)).astype(np.float32)
    left = np.empty((pair.rows, width))
    energy = 0.0
    squares = np.zeros(width)
    for _ in range(3):
        energy = 0.0
        for block in pair.blocks():
            grid = scaled.grid(block, alphas).astype(np.float32)
            left[block] = grid @ right
            energy += float((grid**2).sum(dtype=np.float64))
        left = np.linalg.qr(left)[0]
        back = np.zeros((pair.columns, width))
        for block in pair.blocks():
            back += scaled.grid(block, alphas).astype(np.float32).T @ left[block].astype(np.float32)
        right_vectors, values, turn = np.linalg.svd(back, full_matrices=False)
        left = left @ turn.T
        squares = values**2
        right = right_vectors.astype(np.float32)
    return left[:, :most], squares[:most], energy


def _project(scaled: _Scaled, alphas: Floats | None, left: Floats) -> Floats:
    out = np.zeros((left.shape[1], scaled.pair.columns))
    for block in scaled.pair.blocks():
        out += left[block].T @ scaled.grid(block, alphas)
    return out
