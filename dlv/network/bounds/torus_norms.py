"""The norm of a convolution as an operator, from its frequencies on a torus.

On maps of one size a zero-padded convolution is a part of a circular one on a grid that is larger
by the kernel's reach: strides and the size of the output only select rows, the zeros around the
input columns. The norm of that is the largest over all frequencies of a matrix of [out, in]. With
a stride, frequencies that the selected rows cannot tell apart stand side by side in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import numpy as np

from dlv.kinds import Array

# Complex numbers held at once, and products spent on one norm, at most.
_AT_ONCE = 1 << 21
MOST_PRODUCTS = 10**11
# Matrices of this many rows are taken apart each; of larger ones most are only compared.
_SMALL = 24


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
    if count * groups * out * aliases * depth * (side + len(weight[0, 0, 0])) * 4 > MOST_PRODUCTS:
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
    kernel: Sequence[int],
    lengths: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
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
