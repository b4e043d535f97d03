"""From planes to the words of a matrix, by docs/format.md alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tests.format.coders import (
    Words,
    digest,
    need,
    numbers_of_runs,
    packed,
    ranged,
    scattered,
    sorted_numbers,
    unpack,
)

Json = dict[str, Any]

SEGMENT = 1 << 20
SIZES = {"bool": 1, "bfloat16": 2, "complex64": 8, "complex128": 16}
# dtype -> bits of the exponent field, bits below it
FLOATS = {
    "float64": (11, 52),
    "float32": (8, 23),
    "bfloat16": (8, 7),
    "float16": (5, 10),
    "float8_e4m3": (4, 3),
    "float8_e4m3fnuz": (4, 3),
    "float8_e5m2": (5, 2),
    "float8_e5m2fnuz": (5, 2),
    "complex64": (8, 23),
    "complex128": (11, 52),
}
# dtype -> P, Q, the most that E may be
FIXED = {
    "float64": (53, -1074, 1024),
    "float32": (24, -149, 128),
    "float16": (11, -24, 16),
    "bfloat16": (8, -133, 128),
}


@dataclass
class Share:
    """A member of a chunk: `count` bytes of an object from `start`, at `at` of the chunk."""

    chunk: Json
    stored: bytes
    age: int  # of the generation of its pack
    at: int
    start: int
    count: int

    def plain(self) -> bytes:
        """For the codecs that need nothing else."""
        codec = self.chunk["codec"]["id"]
        need(codec in ("raw", "zstd", "pco"), f"codec {codec} where no contexts are")
        whole = self.stored
        if codec == "zstd":
            whole = unpack(self.stored)
        elif codec == "pco":
            unit = self.chunk["codec"]["bytes"]
            count = self.chunk["raw"] // unit
            runs = [min(1 << 20, count - at) for at in range(0, count, 1 << 20)]
            whole = numbers_of_runs(self.stored, runs, unit).tobytes()
        need(len(whole) == self.chunk["raw"], "a chunk has the wrong length")
        return whole[self.at : self.at + self.count]


class Objects(Protocol):
    def object(self, kind: str, name: str) -> bytes: ...


def word_bytes(dtype: str) -> int:
    """Bytes of a word."""
    if dtype.startswith("raw:"):
        return 1
    if dtype.startswith("complex"):
        return SIZES[dtype] // 2
    if dtype.startswith("float8"):
        return 1
    bits = "".join(filter(str.isdigit, dtype))
    return SIZES.get(dtype) or int(bits) // 8


def word_shape(
    dtype: str,
    shape: Sequence[int],
    planes: dict[int | None, list[Share]],
    count: int | None = None,
) -> tuple[int, ...]:
    if dtype.startswith("raw:"):
        return (count if count is not None else sum(s.count for s in planes.get(0, [])),)
    return (*shape, 2) if dtype.startswith("complex") else tuple(shape)


def stretched(words: Words, old: tuple[int, ...], new: tuple[int, ...]) -> Words:
    """The overlap in the new shape, zeros outside."""
    out = np.zeros(new, words.dtype)
    both = tuple(slice(min(pair)) for pair in zip(old, new, strict=True))
    out[both] = words.reshape(old)[both]
    return out.ravel()


def exponents(words: Words, dtype: str) -> Words:
    if dtype not in FLOATS:
        return np.zeros(len(words), np.int64)
    bits, below = FLOATS[dtype]
    return ((words.astype(np.uint64) >> np.uint64(below)) & np.uint64((1 << bits) - 1)).astype(
        np.int64
    )


def _grid(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns: the first axis and all others; of rank 0 or 1 one row."""
    if len(shape) < 2:
        return 1, math.prod(shape)
    return shape[0], math.prod(shape[1:])


@dataclass
class Matrix:
    packs: Objects
    row: Json
    shape: tuple[int, ...]  # of words
    planes: dict[int | None, list[Share]]
    base: Words | None
    under: dict[str, Words]  # exponent fields of the matrices below

    def words(self) -> Words:
        layout, delta, dtype = self.row["layout"], self.row["delta"], self.row["dtype"]
        self.dtype = dtype
        self.width = word_bytes(dtype)
        self.kind = np.dtype(f"<u{self.width}")
        self.count = math.prod(self.shape)
        if not self.count:
            return np.empty(0, self.kind)
        self.side = b"".join(share.plain() for share in self.planes.get(None, []))
        rows, columns = _grid(self.shape)
        own = self._side(self._layout_side())
        base = self.base
        predictors = [] if delta is None else delta.get("predictor", [])
        if base is not None:
            base = self._predicted(base, predictors)
        self.scales: tuple[Words, Words] | None = None
        if any("scale" in s.chunk["codec"] for shares in self.planes.values() for s in shares):
            both = np.frombuffer(self._side(2 * (rows + columns)), "<i2").astype(np.int64)
            self.scales = both[:rows], both[rows:]
        need(not self.side, "more side data than there can be")
        unit = min(layout["bytes"], self.width) if layout["id"] == "units" else 1
        words = self.width // unit
        count = {"ieee": words, "units": words, "table": 1, "fixed": 4, "halved": 5}[layout["id"]]
        need(self.row["planes"] == count, "another number of planes")
        if layout["id"] == "table":
            need(delta is None and digest(own) == layout["data"], "a table is not the one named")
            table = np.frombuffer(own, self.kind)
            need((table[1:] > table[:-1]).all(), "a table does not ascend")
            return table[np.frombuffer(self._decoded_planes(1)[0], np.uint8)]
        if layout["id"] in ("fixed", "halved"):
            return self._fixed(own, base)
        stored = self._decoded_planes(words, unit=unit)
        parts = [np.frombuffer(plane, f"<u{unit}") for plane in reversed(stored)]
        joined: Words = np.stack(parts, 1).ravel().view(self.kind)
        if base is None:
            need(layout["id"] == "ieee", "a difference from nothing")
            return joined
        if delta["id"] == "xor":
            return joined ^ base
        need(delta["id"] == "sub", "another delta")
        half = self.kind.type(int(("80" + "00" * (unit - 1)) * words, 16))
        digits = (joined ^ half) - half
        return self._from_order(self._to_order(base) + digits)

    def _side(self, count: int) -> bytes:
        taken, self.side = self.side[:count], self.side[count:]
        need(len(taken) == count, "side data is truncated")
        return taken

    def _layout_side(self) -> int:
        layout = self.row["layout"]
        if layout["id"] == "table":
            return int(layout["words"]) * self.width
        return 2 * self._fixed_rows() if layout["id"] in ("fixed", "halved") else 0

    # Integers in the order of numbers

    def _to_order(self, words: Words) -> Words:
        top = self.kind.type(1 << (8 * self.width - 1))
        everything = ~self.kind.type(0)
        if self.dtype in FLOATS:
            mapped: Words = np.where(words & top, words ^ everything, words ^ top)
            return mapped
        return words ^ top if self.dtype.startswith("int") else words

    def _from_order(self, order: Words) -> Words:
        top = self.kind.type(1 << (8 * self.width - 1))
        everything = ~self.kind.type(0)
        if self.dtype in FLOATS:
            words: Words = np.where(order & top, order ^ top, order ^ everything)
            return words
        return order ^ top if self.dtype.startswith("int") else order

    # Planes

    def _decoded_planes(self, count: int, uneven: Sequence[int] = (), unit: int = 1) -> list[bytes]:
        """All planes whole; of an uneven one the segments are not cut by elements."""
        done: list[bytes] = []
        for plane in range(count):
            parts = []
            at = 0
            for share in self.planes.get(plane, []):
                need(share.start == at, "a plane has a gap")
                at += share.count
                if share.chunk["codec"]["id"].startswith("context-"):
                    need(share.count == share.chunk["raw"] and not share.at, "a shared context")
                    need(share.start % (SEGMENT * unit) == 0, "a context chunk is not a segment")
                    above = done[plane - 1][share.start : at] if plane else None
                    parts.append(self._in_context(share, above, unit))
                else:
                    parts.append(share.plain())
            need(plane in uneven or at == self.count * unit, "a plane has the wrong length")
            done.append(b"".join(parts))
        return done

    def _in_context(self, share: Share, above: bytes | None, unit: int) -> bytes:
        codec = share.chunk["codec"]
        if codec["id"] == "context-pco":
            need(codec["bytes"] == unit, "numbers of another size")
            q = self._sizes(share.start // unit, share.count // unit, codec)
            return sorted_numbers(share.stored, q, unit)
        if codec["id"] == "context-above":
            assert above is not None
            return scattered(unpack(share.stored), np.frombuffer(above, np.uint8))
        contexts = self._contexts(share, codec, above)
        if codec["id"] == "context-zstd":
            return scattered(unpack(share.stored), contexts)
        if codec["id"] == "context-packed":
            return packed(share.stored, contexts)
        need(codec["id"] == "context-rans", f"codec {codec['id']}")
        return ranged(share.stored, contexts, self.packs.object("table", codec["table"]))

    def _sizes(self, start: int, count: int, codec: Json) -> Words:
        """q of so many elements."""
        assert self.scales is not None
        places = np.arange(start, start + count)
        columns = len(self.scales[1])
        scales = self.scales[0][places // columns] + self.scales[1][places % columns]
        sums = scales - 4 * self.under[codec["scale"]][places]
        q: Words = np.clip(((sums + 0x8000) % 0x10000 - 0x8000) >> 1, 0, 127)  # int16
        return q

    def _contexts(self, share: Share, codec: Json, above: bytes | None) -> Words:
        s: Words = np.clip(self._sizes(share.start, share.count, codec) - codec["lo"], 0, 31)
        if above is None:
            found: Words = 32 + s
            return found
        classes = np.full(256, 3)
        classes[[0xFF, 0x00, 0x01]] = 0, 1, 2
        s += 32 * classes[np.frombuffer(above, np.uint8)]
        return s

    # Predictors

    def _predicted(self, base: Words, configs: Sequence[Json]) -> Words:
        rows, columns = _grid(self.shape)
        alpha: NDArray[np.float64] | None = None
        for index, config in enumerate(configs):
            name = config["id"]
            if name == "drift":
                data = self._side(512 + (rows + 7) // 8)
                steps = np.frombuffer(data[:512], "<i4").astype(np.int64)
                bits = np.unpackbits(np.frombuffer(data[512:], np.uint8), bitorder="little")
                base = _drift(base, steps, np.repeat(bits[:rows], columns).astype(np.bool_))
            elif name == "shrink":
                data = self._side(2 * (rows if config["rows"] else 1))
                alpha = np.frombuffer(data, "<i2") * 2.0 ** -config["shift"]
                alpha = np.broadcast_to(alpha, (rows,))
                need((np.abs(alpha) < 0.5).all(), "an alpha is too large")
                following = configs[index + 1]["id"] if index + 1 < len(configs) else None
                if following != "lowrank":
                    base, alpha = self._step(base, alpha, None), None
            else:
                need(name == "lowrank", f"predictor {name}")
                rank, width = config["rank"], config["width"]
                before = self.side
                u, v = self._factor(rank, width, rows), self._factor(rank, width, columns)
                data = before[: len(before) - len(self.side)]
                base, alpha = self._step(base, alpha, u.T @ v), None
            need(digest(data) == config["data"], "side data of a predictor is corrupt")
        return base

    def _factor(self, rank: int, width: int, lines: int) -> NDArray[np.float64]:
        stored = np.frombuffer(self._side(rank * width * lines), np.uint8)
        planes = stored.reshape(width, rank, lines).astype(np.int64)
        whole = np.zeros((rank, lines), np.int64)
        for plane in planes:
            whole = whole * 256 + plane
        whole = np.where(whole >> (8 * width - 1), whole - (1 << (8 * width)), whole)
        powers = np.frombuffer(self._side(2 * lines), "<i2").astype(np.int64)
        return whole * 2.0**powers

    def _step(
        self, words: Words, alpha: NDArray[np.float64] | None, added: NDArray[np.float64] | None
    ) -> Words:
        bits, below = FLOATS[self.dtype]
        field_of = exponents(words, self.dtype)
        kept = (field_of < (100 if self.dtype == "float64" else 1)) | (field_of == (1 << bits) - 1)
        x = np.where(kept, 0.0, numbers(np.where(kept, 0, words).astype(self.kind), self.dtype))
        grid = x.reshape(_grid(self.shape))
        with np.errstate(over="ignore"):
            if alpha is not None:
                grid = grid * (1.0 + alpha)[:, None]
            if added is not None:
                grid = grid + added
        x = grid.ravel()
        bias = (1 << (bits - 1)) - 1
        least = -923 if self.dtype == "float64" else 1 - bias
        kept |= np.abs(x) < math.ldexp(1.0, least)
        kept |= np.abs(x) > math.ldexp(2.0 - 2.0**-below, bias)
        found = rounded(np.where(kept, 0.0, x), self.dtype)
        return np.where(kept, words, found)

    # The layout `fixed`

    def _fixed_rows(self) -> int:
        if len(self.shape) < 2:
            return 1
        return self.shape[0 if self.row["layout"]["rows"] == "first" else -1]

    def _fixed(self, side: bytes, base: Words | None) -> Words:
        layout, delta = self.row["layout"], self.row["delta"]
        halved = layout["id"] == "halved"
        need(halved or digest(side) == layout["exponents"], "row exponents are damaged")
        need(delta is None or not halved, "a delta in halves")
        _, q, most = FIXED[self.dtype]
        e = np.frombuffer(side, "<i2").astype(np.int64)
        need((((e > q) & (e <= most)) | (e == -32768)).all(), "a row exponent cannot be")
        places = np.arange(self.count)
        if len(self.shape) < 2:
            e = np.full(self.count, e[0])
        elif layout["rows"] == "first":
            e = e[places // math.prod(self.shape[1:])]
        else:
            e = e[places % self.shape[-1]]
        if halved:
            first, upper, lower, third, _ = self._decoded_planes(5, uneven=(1, 2, 4))
            pairs = [_digits(upper, self.count), _digits(lower, self.count)]
            second = bytes(16 * one + other for one, other in zip(*pairs, strict=True))
            codes = [first, second, third]
        else:
            *codes, _ = self._decoded_planes(4, uneven=(3,))
        code = np.zeros(self.count, np.int64)
        for plane in codes:
            code = code << 8 | np.frombuffer(plane, np.uint8)
        under = None
        if base is not None:
            under = _codes(base, self.dtype, e)
            if delta["id"] == "xor":
                code ^= under[0]
            else:
                digits = (code ^ 0x808080) - 0x808080
                order = (_code_order(under[0]) + digits) & 0xFFFFFF
                code = np.where(order & 0x800000, order ^ 0x800000, order ^ 0xFFFFFF)
        mag = code & 0x7FFFFF
        n = _tail_bits(mag, e, self.dtype)
        tail = np.zeros(self.count, np.int64)
        escaped = np.zeros(self.count, self.kind)
        flags = np.zeros(self.count, np.bool_)
        if halved:
            tops = [int(mag[e == one].max()).bit_length() for one in set(e.tolist()) - {-32768}]
            need(set(tops) <= {23}, "a row exponent is not the smallest")
        shares = self.planes.get(4 if halved else 3, [])
        for index, start in enumerate(range(0, self.count, SEGMENT)):
            some = slice(start, min(start + SEGMENT, self.count))
            data = shares[index].plain() if shares else b""
            asked = (mag[some] == 0) & (e[some] != -32768)
            tail[some], flags[some], escaped[some] = self._tails(data, n[some], asked)
        if under is not None and base is not None:
            tail ^= np.where(n == under[1], under[2], 0)
            escaped ^= np.where(under[0] & 0x7FFFFF == 0, base, self.kind.type(0))
        size = np.ldexp((mag << n | tail).astype(np.float64), np.where(mag > 0, e - 23 - n, 0))
        words = rounded(size, self.dtype)
        words |= (code >> 23).astype(self.kind) << self.kind.type(8 * self.width - 1)
        return np.where(flags, escaped, words)

    def _tails(self, data: bytes, n: Words, asked: Words) -> tuple[Words, Words, Words]:
        """Tails of a segment, which elements are no zeros all the same, and their words."""

        def bits(count: int) -> Words:
            nonlocal data
            size = -(-count // 8)
            need(len(data) >= size, "a tail is truncated")
            found = np.unpackbits(np.frombuffer(data[:size], np.uint8))
            data = data[size:]
            need(not found[count:].any(), "a tail is not filled up with zeros")
            return found[:count]

        tail = np.zeros(len(n), np.int64)
        for i in range(int(n.max())):
            there = np.flatnonzero(n > i)
            tail[there] |= bits(len(there)).astype(np.int64) << (n[there] - 1 - i)
        flags = np.zeros(len(n), np.bool_)
        flags[asked] = bits(int(asked.sum())).astype(np.bool_)
        words = np.zeros(len(n), self.kind)
        need(len(data) == int(flags.sum()) * self.width, "a tail is too long")
        words[flags] = np.frombuffer(data, self.kind)
        return tail, flags, words


def _digits(plane: bytes, count: int) -> list[int]:
    """Of 4 bits, two to a byte, the upper half first."""
    need(len(plane) == -(-count // 2), "a plane of halves has the wrong length")
    found = [int(digit, 16) for digit in plane.hex()]
    need(not any(found[count:]), "a plane of halves is not filled up with zeros")
    return found[:count]


def numbers(words: Words, dtype: str) -> NDArray[np.float64]:
    """What words of a real dtype are as numbers."""
    if dtype == "bfloat16":
        return (words.astype("<u4") << np.uint32(16)).view("<f4").astype(np.float64)
    return words.view(f"<f{words.itemsize}").astype(np.float64)


def rounded(x: NDArray[np.float64], dtype: str) -> Words:
    """To nearest even; bfloat16 by way of float32."""
    if dtype != "bfloat16":
        size = int(dtype[5:]) // 8
        return x.astype(f"<f{size}").view(f"<u{size}")
    wide = x.astype("<f4").view("<u4").astype(np.int64)
    low, high = wide & 0xFFFF, wide >> 16
    up = (low > 0x8000) | ((low == 0x8000) & (high & 1 == 1))
    found: Words = (high + up).astype("<u2")
    return found


def _drift(words: Words, steps: Words, flags: Words) -> Words:
    sign, v = words & np.uint32(1 << 31), (words & np.uint32(0x7FFFFFFF)).astype(np.int64)
    moved = np.clip(v + steps[(v >> 16) & 127], 0, 0x7F7FFFFF)
    still = ~flags | (v >> 23 == 0) | (v >> 23 == 255)
    return np.where(still, words, sign | moved.astype("<u4")).astype("<u4")


def _code_order(code: Words) -> Words:
    return np.where(code & 0x800000, code ^ 0xFFFFFF, code ^ 0x800000)


def _tail_bits(mag: Words, e: Words, dtype: str) -> Words:
    p, q, _ = FIXED[dtype]
    lengths = np.frexp(mag.astype(np.float64))[1].astype(np.int64)
    return np.where(mag > 0, np.maximum(0, np.minimum(p - lengths, e - 23 - q)), 0)


def _codes(words: Words, dtype: str, e: Words) -> tuple[Words, Words, Words]:
    """Codes of words under these row exponents, lengths of tails, and tails."""
    values = numbers(words, dtype)
    need(np.isfinite(values).all(), "a base is not finite")
    size = np.abs(values)
    empty = e == -32768
    need((size[empty] == 0).all(), "a base is not zero where its delta is")
    e = np.where(empty, 0, e)
    with np.errstate(over="ignore"):
        scaled = np.ldexp(size, 23 - e)
    need((scaled < 1 << 23).all(), "a base does not fit the row exponents of its delta")
    mag = np.floor(scaled).astype(np.int64)
    n = _tail_bits(mag, e, dtype)
    tail = np.where(mag > 0, np.ldexp(size, 23 - e + n) - np.ldexp(mag.astype(np.float64), n), 0)
    sign = (words >> words.dtype.type(8 * words.itemsize - 1)).astype(np.int64)
    return sign << 23 | mag, n, tail.astype(np.int64)
