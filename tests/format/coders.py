"""Hashes, frames and codecs of packs, by docs/format.md alone."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import zstandard
from blake3 import blake3
from numpy.typing import NDArray
from pcodec import wrapped

Words = NDArray[Any]


class Unreadable(Exception):
    """What is there is not what the format says."""


def need(truth: object, what: str) -> None:
    if not truth:
        raise Unreadable(what)


def digest(data: bytes) -> str:
    return blake3(data).hexdigest()


def canonical(value: object) -> bytes:
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def unpack(frame: bytes) -> bytes:
    """One zstd frame with its content size."""
    size = zstandard.frame_content_size(frame)
    need(size >= 0, "a frame does not tell its size")
    if size == 0:
        return b""
    found: bytes = zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)
    need(len(found) == size, "a frame has another size than it says")
    return found


def scattered(ordered: bytes, keys: Words) -> bytes:
    """The bytes, which lie in the order of the keys, back in their places."""
    need(len(ordered) == len(keys), "a chunk with contexts has the wrong length")
    out = np.empty(len(keys), np.uint8)
    out[np.argsort(keys, kind="stable")] = np.frombuffer(ordered, np.uint8)
    return out.tobytes()


def numbers_of_runs(data: bytes, runs: list[int], unit: int) -> Words:
    """Numbers that pcodec coded, in runs of so many."""
    kind = {1: "i16", 2: "i16", 4: "i32", 8: "i64"}[unit]
    decompressor, at = wrapped.FileDecompressor.new(data[:4])
    parts = []
    for count in runs:
        size = int.from_bytes(data[at : at + 4], "little")
        part = data[at + 4 : at + 4 + size]
        at += 4 + size
        out = np.empty(count, f"<i{max(2, unit)}")
        run, used = decompressor.chunk_decompressor(part, kind)
        run.read_page_into(part[used:], count, out)
        parts.append(out.astype(f"<i{unit}"))
    need(at == len(data), "bytes behind the last run")
    return np.concatenate(parts)


def sorted_numbers(data: bytes, q: Words, unit: int) -> bytes:
    """The numbers, which lie in the order of q, back in their places."""
    runs: list[int] = []
    open_run = 0
    for count in np.bincount(q, minlength=128).tolist():
        open_run += count
        if open_run >= 8192:
            runs.append(open_run)
            open_run = 0
    if open_run and runs:
        runs[-1] += open_run
    elif open_run:
        runs.append(open_run)
    out = np.empty(len(q), f"<i{unit}")
    out[np.argsort(q, kind="stable")] = numbers_of_runs(data, runs, unit)
    return out.tobytes()


def packed(data: bytes, contexts: Words) -> bytes:
    packed = np.unpackbits(np.frombuffer(data[:16], np.uint8), bitorder="little").astype(np.bool_)
    length = int.from_bytes(data[16:20], "little")
    classes, rest = unpack(data[20 : 20 + length]), unpack(data[20 + length :])
    four = np.frombuffer(classes, np.uint8)
    each = np.stack([four >> np.uint8(2 * i) & np.uint8(3) for i in range(4)], 1).ravel()
    marked = packed[np.sort(contexts)]
    count = int(marked.sum())
    need(len(four) == -(-count // 4) and not each[count:].any(), "packed classes")
    found = np.full(len(contexts), 3)
    found[marked] = each[:count]
    out = np.array([0xFF, 0x00, 0x01, 0], np.uint8)[found]
    need(len(rest) == int((found == 3).sum()), "bytes beside packed classes")
    out[found == 3] = np.frombuffer(rest, np.uint8)
    return scattered(out.tobytes(), contexts)


def ranged(data: bytes, contexts: Words, table: bytes) -> bytes:
    used = [c for c in range(128) if table[c // 8] >> (c % 8) & 1]
    need(len(table) == 16 + 512 * len(used), "a table has the wrong length")
    rows: dict[int, tuple[list[int], list[int], list[int]]] = {}
    for index, context in enumerate(used):
        f = [int(n) for n in np.frombuffer(table, "<u2", 256, 16 + 512 * index)]
        need(sum(f) == 4096, "frequencies do not add up")
        below = [sum(f[:byte]) for byte in range(256)]
        rows[context] = f, below, [byte for byte in range(256) for _ in range(f[byte])]
    states = list(struct.unpack("<64I", data[:256]))
    words = struct.unpack(f"<{(len(data) - 256) // 2}H", data[256:])
    taken = 0
    out = bytearray()
    for i, context in enumerate(contexts.tolist()):
        need(context in rows, "a table lacks a context")
        f, below, bytes_at = rows[context]
        x = states[i % 64]
        place = x % 4096
        byte = bytes_at[place]
        x = f[byte] * (x >> 12) + place - below[byte]
        if x < 1 << 16:
            x = x << 16 | words[taken]
            taken += 1
        states[i % 64] = x
        out.append(byte)
    need(states == [1 << 16] * 64 and taken == len(words), "a range coder is not at its end")
    return bytes(out)
