"""An event file whose records are never alike: random tags, several values, histograms."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from dlv.events.formats import tfevents

SEVERAL, HISTOGRAMS = 0.08, 0.02  # of all events
START = 1_700_000_000.0


def write(path: Path, events: int, tags: int = 40, *, seed: int = 0) -> Path:
    """One file; 20 events a step."""
    random = np.random.default_rng(seed)
    names = [b"group%d/metric_%s%d" % (i % 7, b"x" * (i % 11), i) for i in range(tags)]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as file:
        file.write(_frame(_event(START, 0) + _field(3, b"brain.Event:2")))
        for number in range(events):
            kind = random.random()
            if kind < HISTOGRAMS:
                tag = b"weights/" + names[random.integers(tags)]
                values = _field(1, _field(1, tag) + _field(5, _histogram(random)))
            else:
                count = int(random.integers(2, 5)) if kind < HISTOGRAMS + SEVERAL else 1
                values = b"".join(
                    _field(1, _field(1, names[random.integers(tags)]) + b"\x15" + _float(random))
                    for _ in range(count)
                )
            file.write(_frame(_event(START + number / 64, number // 20) + _field(5, values)))
    temporary.replace(path)
    return path


def _float(random: np.random.Generator) -> bytes:
    return struct.pack("<f", random.random())


def _event(wall: float, step: int) -> bytes:
    return b"\x09" + struct.pack("<d", wall) + (b"\x10" + _varint(step) if step else b"")


def _histogram(random: np.random.Generator) -> bytes:
    head = b"".join(bytes([number << 3 | 1]) + struct.pack("<d", number) for number in range(1, 6))
    limits = np.sort(random.random(30)).astype("<f8").tobytes()
    counts = random.integers(0, 9, 30).astype("<f8").tobytes()
    return head + _field(6, limits) + _field(7, counts)


def _varint(number: int) -> bytes:
    made = b""
    while number > 127:
        made, number = made + bytes([number & 127 | 128]), number >> 7
    return made + bytes([number])


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _frame(body: bytes) -> bytes:
    length = struct.pack("<Q", len(body))
    return length + _sum(length) + body + _sum(body)


def _sum(data: bytes) -> bytes:
    return struct.pack("<I", tfevents.masked(tfevents.crc32c(data)))
