"""The batch of a step: which rows, and how they are changed, as functions of (seed, step)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlv.canonical import hash_bytes
from dlv.errors import UsageError
from dlv.kinds import Array
from dlv.training.trainers.datasets import Data, Rows
from dlv.training.trainers.rows import permutation


class Batches:
    """Epochs in an order of their own, each cut into batches of one size; the rest is left out."""

    def __init__(
        self,
        data: Data,
        seed: int,
        size: int,
        augment: Mapping[str, Any],
        *,
        channels_last: bool = False,
    ) -> None:
        if data.train is None and data.batches is None:
            raise UsageError(f"{data.name} has no rows to train on")
        self._data = data
        self._seed = seed
        self._augment = augment if any(augment.values()) else None
        self._last = channels_last
        count = 0 if data.train is None else data.train.count
        self._size = min(size, count)
        self._each = max(1, count // self._size) if count else 0
        self._epoch = -1
        self._order: Array = np.empty(0, np.intp)

    def of(self, step: int) -> Rows:
        """The batch of a step, from 1 on."""
        if self._data.batches is not None:
            rows = self._data.batches(self._seed, step)
        else:
            assert self._data.train is not None
            epoch, place = divmod(step - 1, self._each)
            if epoch != self._epoch:
                self._order = permutation(f"{self._seed}:order:{epoch}", self._data.train.count)
                self._epoch = epoch
            start = place * self._size
            rows = self._data.train.take(self._order[start : start + self._size])
        if self._augment is None:
            return rows
        draw = random(self._seed, "augment", step)
        return augmented(rows, self._augment, draw, self._data.name, channels_last=self._last)


def random(seed: int, purpose: str, step: int) -> np.random.Generator:
    """Random numbers of one purpose at one step."""
    key = int(hash_bytes(f"{seed}:{purpose}:{step}".encode())[:32], 16)
    return np.random.Generator(np.random.Philox(key=key))


def number(seed: int, purpose: str, step: int) -> int:
    """A seed for generators of others; 63 bits."""
    return int(hash_bytes(f"{seed}:{purpose}:{step}".encode())[:16], 16) >> 1


def augmented(
    rows: Rows,
    augment: Mapping[str, Any],
    draw: np.random.Generator,
    name: str,
    *,
    channels_last: bool = False,
) -> Rows:
    """Images turned over, moved by some pixels, with noise: each row in its own way."""
    inputs, images = {}, 0
    for key, array in rows.inputs.items():
        if array.dtype.kind == "f" and array.ndim in (3, 4):
            images += 1
            array = _moved(array, augment, draw, channels_last and array.ndim == 4)
        if array.dtype.kind == "f" and augment["noise"]:
            noise = draw.standard_normal(array.shape, np.float32) * np.float32(augment["noise"])
            array = array + noise.astype(array.dtype)
        inputs[key] = array
    if not images and (augment["flip"] or augment["shift"]):
        raise UsageError(
            f"config.augment turns and moves images, and {name} holds none",
            why="rows of fractions with two axes, or three, are images",
        )
    return Rows(inputs, rows.labels, rows.count)


def _moved(
    array: Array, augment: Mapping[str, Any], draw: np.random.Generator, last: bool
) -> Array:
    """Height and width are the last two axes, or those before a `last` one of channels."""
    tall, wide = (1, 2) if last else (array.ndim - 2, array.ndim - 1)
    if augment["flip"]:
        turned = draw.integers(0, 2, len(array)).astype(bool)
        array = np.where(turned.reshape(-1, *[1] * (array.ndim - 1)), np.flip(array, wide), array)
    most = augment["shift"]
    if not most:
        return array
    pads = [(most, most) if axis in (tall, wide) else (0, 0) for axis in range(array.ndim)]
    padded = np.pad(array, pads)
    moved = np.empty_like(array)
    for place, (down, right) in enumerate(draw.integers(0, 2 * most + 1, (len(array), 2))):
        cut = [slice(None)] * (array.ndim - 1)
        cut[tall - 1] = slice(down, down + array.shape[tall])
        cut[wide - 1] = slice(right, right + array.shape[wide])
        moved[place] = padded[place][tuple(cut)]
    return moved
