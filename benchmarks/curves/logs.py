"""Event files of scalars by the million, as torch and TensorFlow write them."""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.uint8]

START = 1_700_000_000.0
NAME = "events.out.tfevents.1700000000.host"


def scalars(path: Path, steps: int, tags: int, *, seed: int = 0) -> Path:
    """`tags` events a step, one value each; the values are a noisy decay."""
    random = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as file:
        file.write(_rows(np.array([_text(b"brain.Event:2", 3)])).tobytes())
        first = 0
        while first < steps:
            # Records are of one length as long as their steps take as many bytes.
            end = min(steps, _longer(first), first + (1 << 18) // tags) if first else 1
            column = np.arange(first, end)
            parts = []
            for tag in range(tags):
                noise = random.normal(size=len(column)) * 0.1
                values = (np.exp(-column / steps) + noise).astype("<f4")
                name = b"train/loss/%0*d" % (len(str(tags - 1)), tag)
                parts.append(_rows(_events(column, name, values)))
            file.write(np.stack(parts, axis=1).tobytes())
            first = end
    temporary.replace(path)
    return path


def linked(root: Path, log: Path, runs: int) -> Path:
    """A folder in which `runs` runs share one file."""
    for run in range(runs):
        folder = root / f"run-{run:03}"
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / NAME).exists():
            os.link(log, folder / NAME)
    return root


def _longer(step: int) -> int:
    """The first step that takes more bytes."""
    return 1 << 7 * max(1, math.ceil(step.bit_length() / 7))


def _text(content: bytes, field: int) -> Matrix:
    head = b"\x09" + struct.pack("<d", START) + bytes([field << 3 | 2, len(content)])
    return np.frombuffer(head + content, np.uint8)


def _events(steps: NDArray[np.int64], tag: bytes, values: NDArray[np.float32]) -> Matrix:
    """One event a row: wall time, step, summary {value {tag, simple_value}}."""
    value = bytes([0x0A, len(tag)]) + tag + b"\x15"
    behind = bytes([0x2A, len(value) + 6, 0x0A, len(value) + 4]) + value
    shift = 7 * np.arange(max(1, math.ceil(int(steps[-1]).bit_length() / 7)))
    varint = (steps[:, None] >> shift & 0x7F).astype(np.uint8)
    varint[:, :-1] |= 0x80
    walls = (START + steps / 64).astype("<f8").view(np.uint8).reshape(-1, 8)
    numbers = values.view(np.uint8).reshape(-1, 4)
    if int(steps[0]) == 0 and len(steps) == 1:  # proto3 leaves a zero out
        return np.concatenate([_same(b"\x09", 1), walls, _same(behind, 1), numbers], axis=1)
    n = len(steps)
    columns = [_same(b"\x09", n), walls, _same(b"\x10", n), varint, _same(behind, n), numbers]
    return np.concatenate(columns, axis=1)


def _same(data: bytes, n: int) -> Matrix:
    return np.tile(np.frombuffer(data, np.uint8), (n, 1))


def _rows(bodies: Matrix) -> Matrix:
    """Framed: length, its sum, body, its sum."""
    n, length = bodies.shape
    head = _same(struct.pack("<Q", length), n)
    return np.concatenate([head, _sums(head), bodies, _sums(bodies)], axis=1)


def _table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ 0x82F63B78, table >> 1).astype(np.uint32)
    return table


def _sums(rows: Matrix) -> Matrix:
    """Masked CRC32C of each row."""
    table, register = _table(), np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in rows.T:
        register = table[(register ^ column) & 0xFF] ^ register >> 8
    register = ~register
    masked = (register >> 15 | register << 17) + np.uint32(0xA282EAD8)
    return masked.astype("<u4").view(np.uint8).reshape(-1, 4)
