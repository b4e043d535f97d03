"""Completions: other weights that agree with stored ones in every bit that was read.

A label issued after k planes must hold for each of them that the stored norms do not exclude.
Written against the format, not with dlv's own reader, so that neither can hide the other's fault.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]
Layout = Literal["ieee", "fixed", "halved"]

PLANES = {"ieee": 4, "fixed": 4, "halved": 5}
# Bits of each code that so many planes hold.
BITS = {"fixed": (8, 16, 24), "halved": (8, 12, 16, 24)}


class Cells:
    """Where each float32 weight of one matrix may lie after k of its planes.

    `near` and `far` are the weights next to zero and furthest from it, both possible.
    """

    def __init__(self, weights: Array, layout: Layout, planes: int) -> None:
        self.weights = weights
        if planes >= PLANES[layout]:
            self.near = self.far = weights
        elif layout == "ieee":
            words = np.ascontiguousarray(weights).view(np.uint32)
            rest = np.uint32((1 << (8 * (PLANES[layout] - planes))) - 1)
            self.near = (words & ~rest).view(np.float32)
            self.far = (words | rest).view(np.float32)
        else:
            self.near, self.far = _fixed(weights, BITS[layout][planes - 1])

    @property
    def width(self) -> Floats:
        return np.abs(self.far.astype(np.float64) - self.near)

    def random(self, rng: np.random.Generator) -> Array:
        """Each weight anywhere in its cell, many at its ends."""
        share = rng.uniform(-0.5, 1.5, self.weights.shape).clip(0, 1)
        near = self.near.astype(np.float64)
        found = (near + share * (self.far - near)).astype(np.float32)
        return self._inside(found)

    def ends(self, rng: np.random.Generator) -> Array:
        """Each weight at one end of its cell."""
        return np.where(rng.integers(0, 2, self.weights.shape) == 1, self.far, self.near)

    def against(self, gradient: Array) -> Array:
        """The weights that lower most, to first order, what has this gradient."""
        low, high = np.minimum(self.near, self.far), np.maximum(self.near, self.far)
        # Where both ends are zeros only their signs differ, and the stored one counts.
        found = np.where(gradient > 0, low, high)
        return self._inside(found)

    def along(self, direction: Array) -> Array:
        """From the middle in this direction, as far as the cells allow for all weights at once."""
        most = float(np.abs(direction).max(initial=0.0))
        near, far = self.near.astype(np.float64), self.far.astype(np.float64)
        part = direction / most if most > 0 else np.zeros(direction.shape)
        return self._inside(((near + far) / 2 + part * np.abs(far - near) / 2).astype(np.float32))

    def mixed(self, other: Array, share: float) -> Array:
        """Between the true weights (0) and other ones of these cells (1)."""
        true = self.weights.astype(np.float64)
        return self._inside((true + share * (other - true)).astype(np.float32))

    def _inside(self, found: Array) -> Array:
        """Rounding may have left the cell, and zeros may have lost their sign."""
        size = np.abs(found).clip(np.abs(self.near), np.abs(self.far))
        inside: Array = np.copysign(size, self.weights)
        return inside


def _fixed(weights: Array, bits: int) -> tuple[Array, Array]:
    unit = units(weights, bits)
    cell = np.floor(np.abs(weights.astype(np.float64)) / unit)
    least, beyond = cell * unit, (cell + 1) * unit
    with np.errstate(over="ignore"):
        near = least.astype(np.float32)
        near = np.where(near < least, np.nextafter(near, np.float32(np.inf)), near)
        far = beyond.astype(np.float32)
        far = np.where(far >= beyond, np.nextafter(far, np.float32(0)), far)
    zero = (np.abs(rows_of(weights)).max(1) == 0).reshape(-1, *[1] * (weights.ndim - 1))
    far = np.where(zero, 0, far).astype(np.float32)
    found: tuple[Array, Array] = np.copysign(near, weights), np.copysign(far, weights)
    return found


def units(weights: Array, bits: int) -> Floats:
    """The width of the cells of each row after so many bits of its codes."""
    largest = np.abs(rows_of(weights)).max(1).astype(np.float64)
    exponents = np.frexp(largest)[1].reshape(-1, *[1] * (weights.ndim - 1))
    found: Floats = np.ldexp(1.0, exponents + 1 - bits)
    return found


def rows_of(weights: Array) -> Array:
    """As the layout sees a matrix: 1-D ones are a single row."""
    if weights.ndim < 2:
        return weights.reshape(1, -1)
    return weights.reshape(len(weights), -1)


def same_prefix(one: Array, other: Array, layout: Layout, planes: int) -> bool:
    """Whether the first planes of both are the same."""
    if planes >= PLANES[layout]:
        return bool((one.view(np.uint32) == other.view(np.uint32)).all())
    if layout == "ieee":
        down = 8 * (PLANES[layout] - planes)
        return bool((one.view(np.uint32) >> down == other.view(np.uint32) >> down).all())
    bits = BITS[layout][planes - 1]
    unit, signs = units(one, bits), np.signbit(one) == np.signbit(other)
    cells = [np.floor(np.abs(each.astype(np.float64)) / unit) for each in (one, other)]
    return bool((units(other, bits) == unit).all() and signs.all() and (cells[0] == cells[1]).all())
