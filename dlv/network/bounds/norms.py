"""Norms of a linear layer's weight, and of what its first planes leave open.

What a writer stores and a check computes again. All are upper bounds: raised against rounding,
unless the plain figures are asked for, which a stored one may never be below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import inf, isfinite, prod, sqrt

import numpy as np

from dlv.dataclass import dataclass
from dlv.kinds import Array, Floats
from dlv.network.bounds.ball import UP
from dlv.network.graph import Node
from dlv.network.ops.op import op_of
from dlv.network.sizes import Shape

# Complex numbers held at once, and products spent on one norm, at most.
_AT_ONCE = 1 << 21
MOST_TORUS_PRODUCTS = 10**11
# Matrices of this many rows are taken apart each; of larger ones most are only compared.
_SMALL = 24


# Eigenvalues are computed to far better than this.
RAISED = 1 + 1e-7
# Beyond, ||.||_2 of a matrix is bounded by its Frobenius norm: rows of the smaller Gram matrix,
# and products spent on it.
MOST_ROWS = 4608
MOST_PRODUCTS = 2 * 10**12
_PIECE = 1 << 23


@dataclass(frozen=True)
class WholeNorms:
    """Of a whole weight W. `opn` bounds it as an operator on inputs of the size that was asked.

    `opn_any`: on inputs of any size. `rows`: norms of the rows of [out, in * kernel].
    `frobenius`: the matrix was too large, its operator norms are Frobenius norms.
    """

    opn: float
    opn_any: float
    fro: float
    absmax: float
    finite: bool
    rows: Floats | None = None
    frobenius: bool = False


@dataclass(frozen=True)
class LevelNorms:
    """Of dW: `dn` as a matrix of [out, in * kernel], `dopn` as an operator, infinite if unknown."""

    dn: float
    dfro: float
    dopn: float = inf
    drows: Floats | None = None
    frobenius: bool = False


def norms_of(node: Node, weight: Array, shape: Shape | None, *, raised: bool = True) -> WholeNorms:
    """Of a weight as it is stored, batch normalisation folded in; `shape`: of the node's input."""
    found = _Matrix(node, weight, None)
    if not isfinite(found.absmax):
        return WholeNorms(inf, inf, inf, inf, False)
    op, plain = op_of(node), found.sigma(raised)
    if op.lookup:
        plain = float(found.rows(raised).max(initial=0.0))
    opn_any = plain * sqrt(op.windows_anywhere(node))
    opn = min(opn_any, found.operator(op.map_lengths(node, shape), raised))
    windows = op.most_windows(node, shape)
    if windows is not None:
        opn = min(opn, plain * sqrt(windows))
    rows = None if op.transposed else found.rows(raised)
    fro = found.frobenius(raised)
    return WholeNorms(opn, opn_any, fro, found.absmax, True, rows, found.too_large)


def level_norms(
    node: Node, weight: Array, centre: Array, shape: Shape | None, *, raised: bool = True
) -> LevelNorms:
    """Of what a centre leaves open of a weight, both as `params_of` gives them."""
    found = _Matrix(node, weight, centre)
    if not isfinite(found.absmax):
        return LevelNorms(inf, inf)
    op = op_of(node)
    rows = None if op.transposed else found.rows(raised)
    if op.lookup:
        dn = float(found.rows(raised).max(initial=0.0))
        return LevelNorms(dn, found.frobenius(raised), dn, rows)
    dn = found.sigma(raised)
    dopn = dn if op.dense else found.operator(op.map_lengths(node, shape), raised)
    return LevelNorms(dn, found.frobenius(raised), dopn, rows, found.too_large)


class _Matrix:
    """W or W - Wc as (groups, out, in, taps), a piece at a time.

    A transposed convolution is taken as the convolution that it is the transpose of. All sums
    are of numbers divided by a power of two near the largest, so that no square vanishes.
    """

    def __init__(self, node: Node, weight: Array, centre: Array | None) -> None:
        self.node, op = node, op_of(node)
        self.lookup = op.lookup
        self.weight = op.weight_by_group(node, weight)
        self.centre = None if centre is None else op.weight_by_group(node, centre)
        self.groups, self.out, self.depth, self.taps = self.weight.shape
        self.absmax, self.scale = 0.0, 1.0
        for piece in self.pieces(1):
            # max() would lose NaN.
            with np.errstate(all="ignore"):
                self.absmax = float(np.maximum(self.absmax, np.abs(piece).max(initial=0.0)))
        if self.absmax and isfinite(self.absmax):
            self.scale = 2.0 ** min(max(int(np.frexp(self.absmax)[1]), -1000), 1000)
        wide = self.depth * self.taps
        self.side, self.long = min(self.out, wide), max(self.out, wide)
        products = self.groups * self.side * self.side * self.long
        self.too_large = not self.lookup and (self.side > MOST_ROWS or products > MOST_PRODUCTS)

    def pieces(self, axis: int) -> Iterator[Floats]:
        """Along `out` (1) or `in` (2), in binary64."""
        size = max(self.weight.size // max(self.weight.shape[axis], 1), 1)
        step = max(_PIECE // size, 1)
        for start in range(0, self.weight.shape[axis], step):
            taken = (slice(None),) * axis + (slice(start, start + step),)
            piece = np.asarray(self.weight[taken], np.float64)
            if self.centre is not None:
                with np.errstate(all="ignore"):
                    piece = piece - self.centre[taken]
            yield piece if self.scale == 1.0 else piece / self.scale

    def rows(self, raised: bool) -> Floats:
        """Norms of the rows of [out, in * taps], group after group."""
        squares = [np.einsum("goit,goit->go", piece, piece) for piece in self.pieces(1)]
        found: Floats = np.sqrt(np.concatenate(squares, axis=1).ravel()) * self.scale
        return found * _up(self.depth * self.taps) if raised else found

    def frobenius(self, raised: bool) -> float:
        squares = sum(float(np.einsum("goit,goit->", piece, piece)) for piece in self.pieces(1))
        return sqrt(squares) * self.scale * (_up(self.weight.size) if raised else 1.0)

    def sigma(self, raised: bool) -> float:
        """||.||_2 of [out, in * taps], of groups the largest."""
        if self.lookup or self.too_large or not self.weight.size:
            return self.frobenius(raised)
        gram = np.zeros((self.groups, self.side, self.side))
        tall = self.out > self.depth * self.taps
        for piece in self.pieces(1 if tall else 2):
            flat = piece.reshape(*piece.shape[:2], -1)
            turned = np.swapaxes(flat, 1, 2)
            for group in range(self.groups):
                into = turned[group] @ flat[group] if tall else flat[group] @ turned[group]
                gram[group] += into
        if self.side == 1:
            top = float(gram.max(initial=0.0))
        else:
            top = max(float(np.linalg.eigvalsh(each)[-1]) for each in gram)
        if not raised:
            return sqrt(max(top, 0.0)) * self.scale
        # What the sums of the Gram matrix may have lost moves no eigenvalue by more than this.
        lost = float(np.trace(gram, axis1=1, axis2=2).max()) * (self.long + 8) * 2.0**-52
        return sqrt(max(top, 0.0) + lost) * self.scale * RAISED

    def operator(self, lengths: Sequence[int] | None, raised: bool) -> float:
        """The norm of a convolution on maps of these lengths; infinite if that is not known."""
        if lengths is None or not self.weight.size:
            return inf
        attrs = self.node.attrs
        whole = np.concatenate(list(self.pieces(1)), axis=1)
        try:
            found = torus_norm(whole, attrs["kernel"], lengths, attrs["stride"], attrs["dilation"])
        except TooLarge:
            return inf
        return found * self.scale * (RAISED if raised else 1.0)


def _up(terms: int) -> float:
    return max(UP, 1 + terms * 2.0**-52)


# The norm of a convolution as an operator, from its frequencies on a torus. On maps of one size a
# zero-padded convolution is a part of a circular one on a grid that is larger by the kernel's
# reach: strides and the size of the output only select rows, the zeros around the input columns.
# The norm of that is the largest over all frequencies of a matrix of [out, in]. With a stride,
# frequencies that the selected rows cannot tell apart stand side by side in it.


class TooLarge(Exception):
    """More products than a norm is worth."""


def torus_norm(
    weight: Array,
    kernel: Sequence[int],
    lengths: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> float:
    """Of (groups, out, in, taps) on maps of these lengths; not raised against rounding.

    TooLarge where it would take too long.
    """
    groups, out, depth, _ = weight.shape
    grid, steps = _grid(kernel, lengths, stride, dilation)
    aliases = prod(steps)
    base = [n // s for n, s in zip(grid, steps, strict=True)]
    side = min(out, aliases * depth)
    count = prod(base) // 2 + 1
    if (
        count * groups * out * aliases * depth * (side + len(weight[0, 0, 0])) * 4
        > MOST_TORUS_PRODUCTS
    ):
        raise TooLarge
    taps = np.array(list(product(*(range(k) for k in kernel))), np.int64) * np.array(dilation)
    flat = np.moveaxis(weight, -1, 0).reshape(len(taps), -1)
    top = 0.0
    at_once = max(_AT_ONCE // (flat.shape[1] * aliases), 1)
    for some in _frequencies(base, steps, at_once):
        # Whole numbers of turns are taken off before the angles are rounded.
        turns = sum(np.multiply.outer(some[..., j], taps[:, j]) % n / n for j, n in enumerate(grid))
        spectrum = np.exp(2j * np.pi * np.asarray(turns)) @ flat
        spectrum = spectrum.reshape(*some.shape[:2], groups, out, depth)
        matrices = np.moveaxis(spectrum, 1, 3).reshape(len(some) * groups, out, -1)
        top = _largest(matrices, top * aliases) / aliases
    return float(np.sqrt(top))


def _grid(
    kernel: Sequence[int], lengths: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Lengths of the torus, and for each axis how many of its frequencies fall together."""
    grid, steps = [], []
    for k, n, s, d in zip(kernel, lengths, stride, dilation, strict=True):
        if k == 1:  # all frequencies are one
            grid.append(1)
            steps.append(1)
        else:
            grid.append(-(-(n + d * (k - 1)) // s) * s)
            steps.append(s)
    return grid, steps


def _frequencies(base: list[int], steps: list[int], at_once: int) -> Iterator[Array]:
    """(some, aliases, axes); of a frequency and its negative, whose norms are equal, one."""
    offsets = list(product(*(range(s) for s in steps)))
    shift = np.array(offsets, np.int64) * np.array(base)
    total = prod(base)
    places = np.arange(total)
    index = np.stack(np.unravel_index(places, base), -1)
    mirrored = np.ravel_multi_index(tuple(((-index) % np.array(base)).T), base)
    index = index[places <= mirrored]
    for start in range(0, len(index), at_once):
        yield index[start : start + at_once, None, :] + shift


def _largest(matrices: Array, least: float) -> float:
    """The largest squared singular value of all, or `least` if that is larger."""
    turned = np.conj(np.swapaxes(matrices, 1, 2))
    tall = matrices.shape[1] > matrices.shape[2]
    grams = turned @ matrices if tall else matrices @ turned
    side = grams.shape[1]
    if side == 1:
        return max(least, float(grams.real.max(initial=0.0)))
    if side <= _SMALL:
        return max(least, float(np.linalg.eigvalsh(grams).max(initial=0.0)))
    sizes = np.sqrt((np.abs(grams) ** 2).sum(axis=(1, 2)))
    diagonal = np.arange(side)
    for place in np.argsort(-sizes):
        if sizes[place] <= least:
            break
        # It has a factor exactly where no eigenvalue is above the largest so far.
        rest = -grams[place]
        rest[diagonal, diagonal] += least * (1 + 1e-12)
        try:
            np.linalg.cholesky(rest)
        except np.linalg.LinAlgError:
            least = max(least, float(np.linalg.eigvalsh(grams[place])[-1]))
    return least
