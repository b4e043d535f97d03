"""The search for a low rank in how a matrix moved, and for shrinking.

Both are fitted to differences divided by the scales of rows and columns, since what an element
costs is its logarithm: all scales count alike. What a search costs grows with the elements: a few
passes over the matrix, each a product with some forty vectors, and no decomposition of anything
larger than these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import hash_bytes
from dlv.dataclass import dataclass
from dlv.kinds import Floats
from dlv.pas.coders.codecs import choose
from dlv.pas.deltas.pair import Pair, Singles
from dlv.pas.deltas.predictors import EXACT, MAX_EXPONENT, MAX_WIDTH, integer_planes, predictors_of
from dlv.pas.floats import exponents

Predicted = tuple[list[dict[str, Any]], bytes]
Made = tuple[dict[str, Any], bytes, tuple[Floats, Floats]]

LEAST_SIDE = 8
RANK, THOROUGH_RANK = 32, 64
SPARE = 8  # vectors beyond the rank that is looked for: they make the others exact
HELD = 1 << 23  # elements up to which the scaled difference is kept between passes
SKETCH = 1 << 20  # elements above which some rows are looked at first,
SKETCH_ROWS = 512  # at least so many, and as a rule one in
SKETCH_SHARE = 8  # so many: a rank that pays stands out of the noise of as many;
SKETCH_MOST = 1 << 23  # elements at most, because they are copied
HOPEFUL = 2.0  # how much more a rank may turn out to be than at first sight
ALPHA_BITS = 15
# A shrink that takes less than this part of the energy away is none, with or without a low rank.
FAINT = 1e-4
PART = 4  # it is looked for in one row of so many
SEEN = 100.0  # nor one that chance might make of as many elements

# A closer look, where little more than rounding is left.
MAX_ELEMENTS = 1 << 22
MAX_RANK = 24
REFINEMENTS = 2
NEAR = 4096.0  # last bits that a low rank in singles may be off, for it to be worth one
# Steps of the factors to try, as the error they make in parts of a typical last bit.
ERRORS = (1.0, 0.5, 0.25, 0.12, 0.06)


@dataclass
class Scaled:
    """Differences of a pair divided by row and column scales, which are powers of two."""

    pair: Pair
    rows: NDArray[np.int32]
    columns: NDArray[np.int32]

    def __post_init__(self) -> None:
        self._by_row = np.ldexp(np.float32(1), -self.rows)[:, None]
        self._by_column = np.ldexp(np.float32(1), -self.columns)[None, :]
        self._held: list[Singles] = []
        self._held_shares: bytes | None = None

    @classmethod
    def of(cls, pair: Pair) -> Scaled | None:
        """By root mean squares of rows, then of columns; None where nothing moved."""
        rows = np.zeros(pair.rows)
        for block in pair.blocks():
            rows[block] = _mean_squares(pair.moved(block)[1], 1)
        if not (rows > 0).any():
            return None
        rows = np.sqrt(np.maximum(rows, rows[rows > 0].min()))
        row_scales = _powers(rows)
        columns = np.zeros(pair.columns)
        for block in pair.blocks():
            moved = pair.moved(block)[1] * np.ldexp(np.float32(1), -row_scales[block, None])
            columns += _mean_squares(moved, 0) * ((block.stop - block.start) / pair.rows)
        columns = np.sqrt(np.maximum(columns, columns[columns > 0].min()))
        return cls(pair, row_scales, _powers(columns))

    def base_and_moved(self, block: slice) -> tuple[Singles, Singles]:
        """Both scaled."""
        base, moved = self.pair.moved(block)
        scales = self._by_row[block], self._by_column
        with np.errstate(over="ignore", invalid="ignore"):  # a row that hardly moves
            return base * scales[0] * scales[1], moved * scales[0] * scales[1]

    def passes(self, alphas: Floats | None) -> Iterator[tuple[slice, Singles]]:
        """Blocks of the scaled difference, less a share of the base; kept if they are few."""
        keep = self.pair.rows * self.pair.columns <= HELD
        shares = None if alphas is None else alphas.tobytes()
        if shares != self._held_shares:
            self._held, self._held_shares = [], shares
        for number, block in enumerate(self.pair.blocks()):
            if keep and number < len(self._held):
                yield block, self._held[number]
                continue
            grid = self.block(block, alphas)
            if keep:
                self._held.append(grid)
            yield block, grid

    def block(self, block: slice, alphas: Floats | None) -> Singles:
        base, moved = self.pair.moved(block)
        if alphas is not None:
            moved = moved - base * _shares(alphas, block)
        with np.errstate(over="ignore", under="ignore"):
            return moved * self._by_row[block] * self._by_column

    def few(self) -> Scaled:
        """Some of the rows, in runs from all over the matrix, as a pair of their own."""
        pair = self.pair
        count = min(pair.rows // SKETCH_SHARE, pair.columns, SKETCH_MOST // pair.columns)
        count = max(SKETCH_ROWS, count)
        run = min(32, count)
        starts = np.linspace(0, pair.rows - run, count // run).astype(np.int64)
        chosen = (starts[:, None] + np.arange(run)).ravel()
        spans = [slice(first * pair.columns, (first + run) * pair.columns) for first in starts]
        target = np.concatenate([pair.target[span] for span in spans])
        base = np.concatenate([pair.predicted(span.start, span.stop) for span in spans])
        some = Pair(target, base, pair.dtype, (len(chosen), pair.columns))
        return Scaled(some, self.rows[chosen], self.columns)


def _mean_squares(values: Singles, axis: int) -> Floats:
    """The mean square along an axis; no single is so small that its square is lost."""
    top = float(np.abs(values).max(initial=0.0))
    if not top:
        return np.zeros(values.shape[1 - axis])
    power = int(np.floor(np.log2(top)))
    part = np.ldexp(values, -power)
    np.square(part, out=part)
    means = part.mean(axis, dtype=np.float64 if axis else np.float32).astype(np.float64)
    squares: Floats = np.ldexp(means, 2 * power)
    return squares


def _powers(scales: Floats) -> NDArray[np.int32]:
    found = np.rint(np.log2(scales)).astype(np.int32)
    return np.clip(found, -120, 120)


def _shares(alphas: Floats, block: slice) -> Any:
    return alphas[block, None].astype(np.float32) if len(alphas) > 1 else np.float32(alphas[0])


@dataclass(frozen=True)
class Shrunk:
    """A shrink and what it is made of."""

    predicted: Predicted
    alphas: Floats  # as they will be read


def find_shrinks(scaled: Scaled, *, thorough: bool = False) -> list[Shrunk]:
    """By one number for the matrix, and by one for each row where that may pay."""
    fit = Alphas.of(scaled, None, part=1 if thorough else PART)
    by_matrix = thorough or fit.share() > FAINT
    # A scale for each row costs two bytes, and as a rule says no more than one for all.
    by_row = thorough or fit.by_row_pays()
    if not thorough and (by_matrix or by_row):
        fit = Alphas.of(scaled, None)
    shrinks = []
    if by_matrix:
        shrinks.append(_shrink(fit.whole(), by_row=False))
    if by_row:
        shrinks.append(_shrink(fit.by_row(), by_row=True))
    return [shrunk for shrunk in shrinks if shrunk is not None]


def find_low_rank(
    scaled: Scaled, shrunk: Shrunk | None, *, thorough: bool = False
) -> list[Predicted]:
    """Products of low rank that pay, alone and beside a shrink by one number.

    `shrunk` is what shows without a low rank; there may be one behind it where none was seen.
    """
    if min(scaled.pair.rows, scaled.pair.columns) < LEAST_SIDE:
        return []
    most = THOROUGH_RANK if thorough else RANK
    products: list[Predicted] = []
    alphas = None if shrunk is None else shrunk.alphas
    start: Floats | None = None
    try:
        low = _low_rank(scaled, None, most, 2)
        if low is not None:
            products.append(([low[0]], low[1]))
            if alphas is None:
                start = np.ldexp(low[2][1], -scaled.columns)
                rest = Alphas.of(scaled, low[2], part=PART)
                seen = rest.share() > max(FAINT, PART * SEEN / len(scaled.pair.target))
                alphas = rest.whole() if seen else None
        first = None if alphas is None else _shrink(alphas, by_row=False)
        if first is None:
            return products
        low = _low_rank(scaled, first.alphas, most, 1, start)
        if low is None:
            return products
        # Each of the two tells more of the other.
        first = _shrink(Alphas.of(scaled, low[2]).whole(), by_row=False) or first
        low = _low_rank(scaled, first.alphas, most, 0, np.ldexp(low[2][1], -scaled.columns))
        if low is not None:
            products.append(([*first.predicted[0], low[0]], first.predicted[1] + low[1]))
    except np.linalg.LinAlgError:  # nothing that a fit can make sense of
        pass
    return products


@dataclass
class Alphas:
    """Least squares of the scaled difference against the scaled base."""

    over: Floats
    under: Floats
    energy: Floats
    columns: int

    @classmethod
    def of(cls, scaled: Scaled, factors: tuple[Floats, Floats] | None, part: int = 1) -> Alphas:
        """Of each row, or of one in `part`; `factors`: a product to be taken off before."""
        over, under, energy = (np.zeros(scaled.pair.rows) for _ in range(3))
        right = None if factors is None else factors[1].astype(np.float32)
        for whole in scaled.pair.blocks():
            block = slice(whole.start, whole.start + -(-(whole.stop - whole.start) // part))
            base, moved = scaled.base_and_moved(block)
            if factors is not None and right is not None:
                product = factors[0][block].astype(np.float32) @ right
                moved = moved - product * scaled._by_row[block] * scaled._by_column
            over[block] = np.einsum("ij,ij->i", base, moved)
            under[block] = np.einsum("ij,ij->i", base, base)
            energy[block] = np.einsum("ij,ij->i", moved, moved)
        odd = ~np.isfinite(over + under + energy)
        over[odd] = under[odd] = energy[odd] = 0.0
        return cls(over, under, energy, scaled.pair.columns)

    def whole(self) -> Floats:
        """One for the matrix."""
        return _fitted(self.over.sum(keepdims=True), self.under.sum(keepdims=True))

    def by_row(self) -> Floats:
        return _fitted(self.over, self.under)

    def share(self) -> float:
        """The part of the energy that one for the matrix takes away."""
        under, energy = self.under.sum(), self.energy.sum()
        return float(self.over.sum() ** 2 / (under * energy)) if under > 0 < energy else 0.0

    def by_row_pays(self) -> bool:
        """Whether one for each row takes away more than its bits, beyond what one for all does."""
        if len(self.over) < 2:
            return False
        rows = int(np.count_nonzero(self.under))
        left = self.energy - self.by_row() * self.over
        alone = self.energy - self.whole()[0] * (2 * self.over - self.whole()[0] * self.under)
        good = (left > 0) & (alone > 0)
        saved = 0.5 * self.columns * np.log2(alone[good] / left[good]).sum()
        return bool(saved > 16 * max(1, rows))


def _fitted(over: Floats, under: Floats) -> Floats:
    alphas: Floats = np.divide(over, under, out=np.zeros_like(over), where=under > 0)
    return np.clip(alphas, -0.4, 0.4)


def _shrink(alphas: Floats, *, by_row: bool) -> Shrunk | None:
    most = float(np.abs(alphas).max())
    if most < 2.0**-26:
        return None
    shift = min(40, ALPHA_BITS - 1 - int(np.ceil(np.log2(most))))
    if shift < 0:
        return None
    whole = np.clip(np.rint(np.ldexp(alphas, shift)), -(1 << 15), (1 << 15) - 1)
    side = whole.astype("<i2").tobytes()
    config = {"id": "shrink", "shift": shift, "rows": by_row, "data": hash_bytes(side)}
    return Shrunk(([config], side), np.ldexp(whole, -shift))


def _low_rank(
    scaled: Scaled, alphas: Floats | None, most: int, rounds: int, start: Floats | None = None
) -> Made | None:
    """Factors of the rank that pays best, in integers; and the same as numbers.

    `start`: rows of a right factor that is nearly right.
    """
    pair = scaled.pair
    rows, columns = pair.rows, pair.columns
    if start is None and rows > 2 * SKETCH_ROWS and rows * columns > SKETCH:
        some = scaled.few()
        _, squares, energies = leading(some, alphas, most, rounds=1)
        more = rows / some.pair.rows
        if not _best_rank(squares * more, energies * more, rows, columns):
            return None
    left, squares, energies = leading(scaled, alphas, most, rounds, start)
    rank = _best_rank(squares, energies, rows, columns)
    if rank == 0:
        return None
    vectors = left[:, :rank]
    spare = float(energies[rank]) / (rows * columns)

    def project(whole: Floats) -> Floats:
        return _project(scaled, alphas, whole)

    made = _in_steps(scaled, vectors, squares[:rank], spare, project)
    if alphas is None and rank <= MAX_RANK and rows * columns <= MAX_ELEMENTS:
        return _refined(scaled, vectors, made)
    return made


def _in_steps(
    scaled: Scaled,
    vectors: Floats,
    squares: Floats,
    spare: float,
    project: Callable[[Floats], Floats],
) -> Made | None:
    """Integer factors, rounded finely beside `spare`, the mean square of what they leave."""
    rows, columns, rank = scaled.pair.rows, scaled.pair.columns, len(squares)
    values = np.sqrt(squares)
    noise = min(0.5, rank * (rows + columns) / (rows * columns))
    left = vectors * np.sqrt(values)
    step = np.sqrt(6 * noise * spare * columns / values.sum())
    product = 2.0 ** np.floor(np.log2(step * np.sqrt(6 * noise * spare * rows / values.sum())))
    whole = np.rint(left / step)
    # The other side makes up for what rounding took.
    gram = whole.T @ whole
    gram += np.eye(rank) * 1e-12 * np.trace(gram)
    right = np.rint(np.linalg.solve(gram, project(whole)) / product)
    return pack_factors(whole, right, scaled.rows, scaled.columns + int(np.log2(product)))


def leading(
    scaled: Scaled, alphas: Floats | None, most: int, rounds: int, start: Floats | None = None
) -> tuple[Floats, Floats, Floats]:
    """Leading left singular vectors, the squares of their singular values, and the energies that
    remain after the first 0, 1, 2, ... of them.

    By a randomised range finder: some more random vectors than are asked for, sent through the
    matrix and back `rounds` times.
    """
    pair = scaled.pair
    width = min(most + SPARE, pair.rows, pair.columns)
    right = np.random.default_rng(1).normal(size=(pair.columns, width)).astype(np.float32)
    if start is not None:
        known = min(width, len(start))
        right[:, :known] = (start / np.linalg.norm(start, axis=1, keepdims=True)).T[:, :known]
        right[:, :known] *= np.sqrt(pair.columns)
    left = np.empty((pair.rows, width), np.float32)
    energy = 0.0
    sizes = pair.rows, pair.columns
    for number in range(rounds + 1):
        for block, grid in scaled.passes(alphas):
            np.matmul(grid, right, out=left[block])
            if not number:
                energy += float(np.vdot(grid, grid))
        last = number == rounds
        left = _orthonormal(left.astype(np.float64), 1 + last).astype(np.float32)
        back = _project(scaled, alphas, left)
        if number < rounds:
            seen: Floats = np.linalg.eigvalsh(back @ back.T)[::-1].astype(np.float64)
            # A rank that pays is seen at once, if not yet to its full extent.
            hope = HOPEFUL * seen[:most]
            if not number and not _best_rank(hope, _left(energy, hope), *sizes):
                break
            right = _orthonormal(back.T, 1).astype(np.float32)
    values, turn = np.linalg.eigh(back @ back.T)
    turn, squares = turn[:, ::-1][:, :most], np.maximum(values[::-1][:most], 0.0)
    vectors = left @ turn
    # What all of them leave may be far below the rounding of sums: so it is measured, on some rows.
    few = slice(0, min(pair.rows, max(1, (1 << 16) // pair.columns)))
    off = scaled.block(few, alphas) - vectors[few] @ (turn.T @ back)
    rest = float(np.square(off).mean()) * pair.rows * pair.columns
    return vectors, squares, np.maximum(_left(energy, squares), rest)


def _left(energy: float, squares: Floats) -> Floats:
    """What the first none, one, two, ... of the squares leave of an energy."""
    left = energy - np.concatenate([[0.0], np.cumsum(squares)])
    least: Floats = np.maximum(left, energy * 1e-15)
    return least


def _orthonormal(vectors: Floats, times: int) -> Floats:
    """Columns that span the same, by the Cholesky factor of their products; exact if taken twice.

    That is some five times as fast as Householder's way, which serves where it fails.
    """
    try:
        for _ in range(times):
            factor = np.linalg.cholesky(vectors.T @ vectors)
            vectors = vectors @ np.linalg.inv(factor).T
    except np.linalg.LinAlgError:
        return np.linalg.qr(vectors)[0]
    return vectors


def _project(scaled: Scaled, alphas: Floats | None, left: Any) -> Floats:
    out = np.zeros((left.shape[1], scaled.pair.columns))
    narrow = left.astype(np.float32, copy=False)
    for block, grid in scaled.passes(alphas):
        out += narrow[block].T @ grid
    return out


def _best_rank(squares: Floats, energies: Floats, rows: int, columns: int) -> int:
    """The rank at which factors and what they leave take the fewest bits; 0 for none."""
    count = rows * columns
    energy, left = float(energies[0]), energies[1:]
    if not energy > 0 or not len(squares):
        return 0
    ranks = np.arange(1, len(squares) + 1)
    saved = 0.5 * count * np.log2(energy / left)
    noise = np.minimum(0.5, ranks * (rows + columns) / count)
    values = np.sqrt(np.maximum(squares, energy * 1e-30))
    # Bits of a normal variable of this spread, rounded to the steps of `_low_rank`.
    step = np.sqrt(6 * noise * left / count / np.cumsum(values))
    one = np.log2(np.sqrt(values / (rows * columns))[None, :] / step[:, None]) + 2.05
    spent = (rows + columns) * np.tril(np.maximum(one, 0.5)).sum(1) + 0.72 * noise * count
    best = int(np.argmax(saved - spent))
    return best + 1 if saved[best] > spent[best] else 0


def _refined(scaled: Scaled, left: Floats, factors: Made | None) -> Made | None:
    """The same, nearer to the last bits, if little more than rounding is left."""
    pair = scaled.pair
    few = slice(0, min(pair.rows, max(1, (1 << 16) // pair.columns)))
    right = _project(scaled, None, left)
    if _last_bits(scaled, few, left, right) > NEAR:  # to look at all rows takes long
        return factors
    moved = pair.exact(slice(0, pair.rows)) * np.ldexp(1.0, -scaled.rows[:, None])
    moved *= np.ldexp(1.0, -scaled.columns[None, :])
    for _ in range(REFINEMENTS):
        left = np.linalg.qr(moved @ right.T)[0]
        right = left.T @ moved
    turn, values, _ = np.linalg.svd(right, full_matrices=False)
    left = left @ turn
    spare = float(np.square(moved - left @ (turn.T @ right)).mean())
    squares = np.square(values)
    candidates = [_in_steps(scaled, left, squares, spare, lambda whole: whole.T @ moved)]
    weights = weights_of(scaled, slice(0, pair.rows))
    for whole, other, power in in_integers(moved, weights, _solved(moved, weights, right), right):
        candidates.append(pack_factors(whole, other, scaled.rows, scaled.columns + power))
    best = factors
    least = np.inf if factors is None else entropy_bytes(pair, ([factors[0]], factors[1]))
    for again in candidates:
        if again is not None and (size := entropy_bytes(pair, ([again[0]], again[1]))) < least:
            best, least = again, size
    return best


def _last_bits(scaled: Scaled, rows: slice, left: Floats, right: Floats) -> float:
    """How far a product is off in some rows, in last bits of the target."""
    off = scaled.block(rows, None) - left[rows] @ right
    return float(np.sqrt((weights_of(scaled, rows) * off**2).mean()))


def weights_of(scaled: Scaled, rows: slice) -> Floats:
    """1 / last bit squared of each element, in the units of scaled differences."""
    pair = scaled.pair
    words = pair.target[rows.start * pair.columns : rows.stop * pair.columns]
    powers = exponents(words, pair.form).astype(np.int32).reshape(-1, pair.columns)
    powers -= np.int32((1 << (pair.form.exponent - 1)) - 1 + pair.form.mantissa)
    powers -= scaled.rows[rows, None] + scaled.columns[None, :]
    return np.ldexp(1.0, -2 * np.clip(powers, -400, 400))


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
