"""Golden packs: every layout, delta, predictor and codec, on small matrices of hard values."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import hash_bytes, matrix_hash
from dlv.pas.coders.codecs import choose
from dlv.pas.coders.context import (
    BITS,
    LEAST,
    STATES,
    TOTAL,
    AboveCodec,
    ContextPacked,
    ContextRans,
    ContextZstd,
    Order,
    Table,
)
from dlv.pas.coders.contexts import Measure, Scales, default_lo, numbers
from dlv.pas.coders.numbers import ContextNumbers, NumbersCodec, runs_of
from dlv.pas.coders.zstd import ZstdCodec
from dlv.pas.deltas.difference import Delta, delta_cutter, overlap_of, stretched
from dlv.pas.deltas.lowrank import pack_factors
from dlv.pas.deltas.predictors import predictors_of
from dlv.pas.encode import encode_object
from dlv.pas.floats import differences, exponents, format_of
from dlv.pas.footer import Encoding
from dlv.pas.layouts.fixed import Fixed
from dlv.pas.layouts.segments import SEGMENT, UNSIGNED, WORDS, Ieee, Layout, word_shape, words_of
from dlv.pas.layouts.table import Table as TableLayout
from dlv.pas.layouts.units import Units
from dlv.pas.packs import PackWriter

VERSION = "1"  # of the format
WRITER = "dlv 0.1.0"

Words = NDArray[Any]
Shape = tuple[int, ...]
Codecs = Sequence[str]


def make_table(counts: NDArray[np.int64]) -> bytes:
    """The table that suits counts of digits (256) in contexts (128); each seen one has a share."""
    used = counts.sum(1) > 0
    rows = [_shares(row) for row in counts[used]]
    bitmap = np.packbits(used, bitorder="little").tobytes()
    return bitmap + b"".join(row.astype("<u2").tobytes() for row in rows)


def _shares(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    exact = counts * (TOTAL / counts.sum())
    shares: NDArray[np.int64] = np.maximum(np.floor(exact), counts > 0).astype(np.int64)
    left = TOTAL - int(shares.sum())
    if left > 0:
        order = np.argsort(-(exact - shares), kind="stable")
        shares[order[:left]] += 1
    while left < 0:  # many rare digits: the frequent ones give way
        largest = int(shares.argmax())
        taken = min(-left, max(1, int(shares[largest]) // 8))
        shares[largest] -= taken
        left += taken
    return shares


def encode_ranged(digits: bytes, contexts: NDArray[np.uint8], raw_table: bytes) -> bytes:
    """Digits as `context-rans` stores them. Backwards: the last digit's words are read last."""
    table = Table(raw_table)
    symbols = np.frombuffer(digits, np.uint8)
    rows = table.rows_of(contexts)
    states = np.full(STATES, LEAST, np.uint64)
    frequencies = table.frequencies[rows, symbols].astype(np.uint64)
    starts = table.starts[rows, symbols].astype(np.uint64)
    parts = []
    low = np.uint64(0xFFFF)
    for start in range((len(symbols) - 1) // STATES * STATES, -1, -STATES):
        share, begin = frequencies[start : start + STATES], starts[start : start + STATES]
        some = states[: len(share)]
        full = some >= share << np.uint64(32 - BITS)
        if full.any():
            parts.append((some[full] & low).astype("<u2"))
            some[full] >>= np.uint64(16)
        whole, rest = np.divmod(some, share)
        some[...] = (whole << np.uint64(BITS)) + rest + begin
    words = b"".join(part.tobytes() for part in reversed(parts))
    return states.astype("<u4").tobytes() + words


@dataclass
class Matrix:
    dtype: str
    shape: Shape
    words: Words

    @property
    def name(self) -> str:
        return matrix_hash(self.dtype, self.shape, self.words.tobytes())

    @property
    def word_shape(self) -> Shape:
        if self.dtype.startswith("raw:"):
            return (len(self.words),)
        return word_shape(self.shape, words_of(self.dtype)[1])


@dataclass
class Maker:
    """One pack on its way."""

    folder: Path
    name: str
    matrices: list[str] = field(default_factory=list)
    tables: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.file = io.BytesIO()
        self.pack = PackWriter(self.file, writer=WRITER)

    def add(
        self,
        target: Matrix,
        *,
        layout: Layout | None = None,
        kind: str | None = None,
        base: Matrix | None = None,
        predictors: tuple[list[dict[str, Any]], bytes] = ([], b""),
        codecs: Codecs = (),
        scale: tuple[str, Words] | None = None,
        lo: int | None = None,
        scales: Scales | None = None,
    ) -> None:
        """A matrix on its own or as a delta; `codecs`: one for each plane, the last for the rest.

        `scale`: name and exponents, in the shape of the target's words; by default the base's.
        `lo` and `scales`: others than dlv would choose.
        """
        name, dtype = target.name, target.dtype
        if name in self.matrices:
            raise ValueError(f"{dtype} {list(target.shape)} comes twice")
        layout = layout or Ieee()
        delta, under = None, None
        if base is not None and kind is not None:
            overlap = overlap_of(target.shape, base.shape)
            delta = Delta(kind, base.name, overlap, tuple(predictors[0])).get_config()
            under = base.words
            if overlap is not None:
                count = len(target.words)
                under = stretched(base.words, base.word_shape, target.word_shape, 0, count)
            scale = scale or (base.name, exponents(under, format_of(dtype)))
        planes = layout.planes(dtype)
        config = layout.get_config()
        index = self.pack.add_encoding(Encoding(name, dtype, target.shape, config, delta, planes))
        self.matrices.append(name)
        if not len(target.words):
            return
        own = layout.side_of(target.words.tobytes(), dtype, target.shape)
        side = own + predictors[1]
        made = predictors_of(*predictors, dtype, target.word_shape)
        cut: list[list[Any]] = []
        measure = Measure(target.word_shape, format_of(dtype))
        starts = range(0, len(target.words), SEGMENT)
        for start in starts:
            words = target.words[start : start + SEGMENT]
            if under is None or kind is None:
                cut.append(layout.cutter(own, dtype, target.shape).cut(words, start))
                continue
            expected = under[start : start + SEGMENT]
            for predictor in made:
                expected = predictor.apply(expected, start)
            cutter = delta_cutter(kind, layout, own, dtype, target.shape)
            cut.append(cutter.cut(words, expected, start))
            if scale is not None:
                measure.add(
                    differences(words, expected, format_of(dtype)),
                    scale[1][start : start + SEGMENT].astype(np.uint16),
                    start,
                )
        if any(one.startswith("context-") and one != "context-above" for one in codecs):
            scales = scales or measure.finish()
            side += scales.tobytes()
        if side:
            part = encode_object(side)[0]
            self._chunk("side", None, (index, 0, len(side)), part.codec, bytes(part.data))
        ends = [0] * planes
        for start, segment in zip(starts, cut, strict=True):
            above: NDArray[np.uint8] | None = None
            for plane, data in enumerate(segment):
                data = bytes(data)
                codec = codecs[min(plane, len(codecs) - 1)] if codecs else ""
                member = (index, ends[plane], len(data))
                ends[plane] += len(data)
                if plane == planes - 1 and layout.layout_id in ("fixed", "halved"):
                    if not any(len(bytes(one[plane])) for one in cut):
                        continue
                    codec = "" if data else "zstd"
                if codec == "context-pco":
                    assert scales is not None
                    assert scale is not None
                    assert isinstance(layout, Units)
                    q = scales.q(scale[1][start : start + SEGMENT].astype(np.uint16), start)
                    sized = ContextNumbers(layout.unit_of(dtype), scale[0])
                    order = Order(q)
                    ends_of = runs_of(order.counts)
                    gathered = order.gather(data, sized.unit)
                    stored = sized.get_config(), sized.encode_sorted(gathered, ends_of)
                elif codec == "pco":
                    assert isinstance(layout, Units)
                    plain = NumbersCodec(layout.unit_of(dtype))
                    stored = plain.get_config(), plain.encode(data)
                elif codec.startswith("context-") and codec != "context-above":
                    assert scales is not None
                    assert scale is not None
                    first = max(0, default_lo(plane, format_of(dtype))) if lo is None else lo
                    q = scales.q(scale[1][start : start + SEGMENT].astype(np.uint16), start)
                    stored = self._in_context(
                        codec, data, numbers(q, above, first), first, scale[0]
                    )
                elif codec == "context-above":
                    assert above is not None
                    above_codec = AboveCodec()
                    stored = above_codec.get_config(), above_codec.encode(data, above.tobytes())
                elif codec == "raw":
                    stored = {"id": "raw"}, data
                elif codec == "zstd":
                    stored = {"id": "zstd"}, ZstdCodec("high").encode(data)
                else:
                    chosen = choose(data)
                    stored = chosen[0], bytes(chosen[1])
                self._chunk("plane", plane, member, *stored)
                above = np.frombuffer(data, np.uint8)

    def _in_context(
        self, codec: str, data: bytes, contexts: NDArray[np.uint8], lo: int, scale: str
    ) -> tuple[dict[str, Any], bytes]:
        if codec == "context-zstd":
            plain = ContextZstd(lo, scale)
            return plain.get_config(), plain.encode(data, contexts)
        if codec == "context-packed":
            packed = ContextPacked(lo, scale)
            return packed.get_config(), packed.encode(data, contexts)
        counts = np.zeros((128, 256), np.int64)
        np.add.at(counts, (contexts, np.frombuffer(data, np.uint8)), 1)
        table = make_table(counts)
        name = hash_bytes(table)
        if name not in self.tables:
            self.tables.add(name)
            part = encode_object(table)[0]
            self._chunk("table", None, (name, 0, len(table)), part.codec, bytes(part.data))
        ranged = ContextRans(lo, scale, name, table)
        return ranged.get_config(), encode_ranged(data, contexts, table)

    def _chunk(
        self,
        kind: str,
        plane: int | None,
        member: tuple[int | str, int, int],
        codec: dict[str, Any],
        stored: bytes,
    ) -> None:
        self.pack.add_chunk(kind, plane, [member], member[2], codec, stored)

    def finish(self) -> tuple[str, dict[str, Any]]:
        self.pack.finish()
        data = self.file.getvalue()
        (self.folder / self.name).write_bytes(data)
        return self.name, {
            "sha256": hashlib.sha256(data).hexdigest(),
            "matrices": sorted(self.matrices),
            "tables": sorted(self.tables),
        }


def of_floats(values: Any, dtype: str) -> Matrix:
    values = np.asarray(values, np.float64)
    if dtype == "bfloat16":
        words = (values.astype("<f4").view("<u4") >> np.uint32(16)).astype("<u2").ravel()
    else:
        size = int(dtype[5:]) // 8
        words = np.ascontiguousarray(values).astype(f"<f{size}").ravel().view(f"<u{size}")
    return Matrix(dtype, values.shape, words)


def any_words(dtype: str, shape: Shape, seed: int) -> Matrix:
    """Any bits at all."""
    width, per_element = words_of(dtype)
    count = math.prod(shape) * per_element
    random = np.random.default_rng(seed)
    return Matrix(dtype, shape, np.frombuffer(random.bytes(count * width), UNSIGNED[width]))


def near(base: Matrix, seed: int, bits: int = 3) -> Matrix:
    """Words a little above or below those of the base, some the same, a few anything."""
    random = np.random.default_rng(seed)
    kind = base.words.dtype
    steps = random.integers(-(1 << bits), (1 << bits) + 1, len(base.words)).astype(kind)
    steps[random.random(len(steps)) < 0.4] = 0
    words = base.words + steps
    lost = random.random(len(words)) < 0.02
    words[lost] = np.frombuffer(random.bytes(words.nbytes), kind)[lost]
    return Matrix(base.dtype, base.shape, words)


def weights(dtype: str, shape: Shape, seed: int) -> Matrix:
    """As weights are, with zeros of both signs and rows of different sizes."""
    random = np.random.default_rng(seed)
    values = random.normal(0, 0.05, shape)
    if len(shape) > 1:
        values *= np.ldexp(1.0, random.integers(-3, 4, shape[0])).reshape(
            -1, *[1] * (len(shape) - 1)
        )
    values[random.random(shape) < 0.02] = 0.0
    values[random.random(shape) < 0.02] = -0.0
    return of_floats(values, dtype)


def special(matrix: Matrix, seed: int, *, finite: bool = False) -> Matrix:
    """The same with denormals, the least normal and the greatest number, infinities, NaN."""
    form = format_of(matrix.dtype)
    full = ((1 << form.exponent) - 1) << form.mantissa
    least = 1 << form.mantissa
    found = [0, 1, least - 1, least, full - 1]
    if not finite:
        found += [full, full | 1, full | (1 << (form.mantissa - 1))]
    found += [word | form.top for word in found]
    random = np.random.default_rng(seed)
    words = matrix.words.copy()
    places = random.choice(len(words), len(found), replace=False)
    words[places] = np.array(found, np.uint64).astype(words.dtype)
    return Matrix(matrix.dtype, matrix.shape, words)


def layouts(folder: Path) -> tuple[str, dict[str, Any]]:
    maker = Maker(folder, "layouts.pack")
    for seed, dtype in enumerate(WORDS):
        maker.add(any_words(dtype, (3, 5), seed))
    maker.add(any_words("raw:i4x3", (7,), 90))
    maker.add(any_words("float32", (), 91))
    maker.add(any_words("complex64", (5,), 92))
    maker.add(any_words("int16", (2, 0, 3), 93))
    maker.add(
        any_words("float64", (2, 3, 2, 2), 94), codecs=["raw", "zstd", "context-above", "raw"]
    )
    few = np.array([0x3F800000, 0xBF800000, 0, 0x80000000, 0x7FC00001], "<u4")
    random = np.random.default_rng(95)
    for dtype, words in (
        ("float32", few),
        ("int64", np.array([0, 5, 1 << 63, (1 << 64) - 1], "<u8")),
        ("complex64", few),
        ("uint16", np.arange(0, 5120, 20, dtype="<u2")),
    ):
        per_element = words_of(dtype)[1]
        picked = random.choice(words, 40 * 30 * per_element)
        maker.add(Matrix(dtype, (40, 30), picked), layout=TableLayout.of_words(np.unique(picked)))
    for seed, dtype in enumerate(("float32", "float64", "float16", "bfloat16"), 100):
        for rows in ("first", "last"):
            held = special(weights(dtype, (12, 3, 14), seed), seed, finite=True)
            held.words[42:84] = 0  # a row of zeros, with signs
            held.words[50] = format_of(dtype).top
            if rows == "last":
                held.words[3::14] = 0
                held.words[17] = format_of(dtype).top
            _fixed(maker, held, rows=rows, zero_centre=rows == "last")
            small = Matrix(dtype, (20, 6), held.words[:120] & held.words.dtype.type(3))
            if rows == "first":  # denormals only
                _fixed(maker, small, rows=rows)
            _fixed(maker, weights(dtype, (31,), seed + 20 * len(rows)), rows=rows)
        _fixed(maker, weights(dtype, (), seed + 40))
    return maker.finish()


def _fixed(maker: Maker, target: Matrix, *, codecs: Codecs = (), **options: Any) -> None:
    raw = target.words.tobytes()
    maker.add(target, layout=Fixed.of([raw], target.dtype, target.shape, **options), codecs=codecs)


def deltas(folder: Path) -> tuple[str, dict[str, Any]]:
    maker = Maker(folder, "deltas.pack")
    for seed, dtype in enumerate([*WORDS, "raw:q4"], 200):
        base = any_words(dtype, (4, 9), seed)
        maker.add(base)
        for bits, kind in enumerate(("xor", "sub"), 2):
            maker.add(near(base, seed, bits), kind=kind, base=base)
    for seed, dtype in enumerate(("float32", "bfloat16", "int8", "complex128"), 300):
        base = any_words(dtype, (5, 4, 6), seed)
        maker.add(base)
        for shape, kind in (((7, 3, 6), "xor"), ((5, 9, 2), "sub")):
            count = math.prod(shape) * words_of(dtype)[1]
            target = any_words(dtype, shape, seed + 50)
            inside = stretched(base.words, base.word_shape, target.word_shape, 0, count)
            target.words = np.where(inside == 0, target.words, inside + inside.dtype.type(1))
            maker.add(target, kind=kind, base=base)
    for seed, dtype in enumerate(("float32", "float64", "float16", "bfloat16"), 400):
        for rows in ("first", "last"):
            base = special(weights(dtype, (10, 2, 9), seed + 60 * len(rows)), seed, finite=True)
            base.words[18:36] = 0
            maker.add(base)
            for bits, kind in enumerate(("xor", "sub"), 1):
                moved = near(base, seed, bits)
                top = (1 << (format_of(dtype).exponent - 1)) - 1 << format_of(dtype).mantissa
                mask = moved.words.dtype.type(format_of(dtype).top - 1)
                wild = (moved.words & mask) > top
                moved.words[wild] = base.words[wild]
                moved.words[18:36] = 0
                moved.words[20] = 1  # beside a zero, in a row of zeros of the base
                _fixed_delta(maker, moved, base, kind, rows)
        base = weights(dtype, (6, 8), seed + 30)
        maker.add(base)
        _fixed_delta(maker, weights(dtype, (9, 5), seed + 31), base, "sub", "first")
        _fixed_delta(maker, weights(dtype, (4, 12), seed + 32), base, "xor", "last")
    chain = [weights("float32", (8, 8), 500)]
    maker.add(chain[0])
    for seed, kind in enumerate(("sub", "xor", "sub", "xor", "sub"), 501):
        chain.append(near(chain[-1], seed, 6))
        maker.add(chain[-1], kind=kind, base=chain[-2])
    return maker.finish()


def differences_in_units(folder: Path) -> tuple[str, dict[str, Any]]:
    """The layout `units`, numbers of every size, as they stand and in the order of contexts."""
    maker = Maker(folder, "numbers.pack")
    for seed, dtype in enumerate([*WORDS, "raw:q4"], 700):
        base = any_words(dtype, (6, 11), seed)
        maker.add(base)
        for bits, unit in enumerate((1, 2, 4, 8), 1):
            codecs = ["pco"] if bits % 2 else ["pco", "raw"]
            moved = near(base, seed + 100 * unit, bits)
            maker.add(moved, layout=Units(unit), kind="sub", base=base, codecs=codecs)
    for seed, dtype in enumerate(("float32", "bfloat16", "float64", "float16", "int32"), 800):
        shape = (120, 3, 50) if seed < 802 else (30, 40)  # of several runs, and of one
        base = any_words(dtype, shape, seed) if dtype == "int32" else weights(dtype, shape, seed)
        maker.add(base)
        moved = near(base, seed + 10, 9)
        maker.add(moved, layout=Units(2), kind="sub", base=base, codecs=["context-pco"])
        last = near(moved, seed + 20, 4)
        maker.add(last, layout=Units(1), kind="sub", base=moved, codecs=["pco", "context-pco"])
    random = np.random.default_rng(900)  # two segments, nearly all alike
    words = np.full(1030 * 1024, 0x3DCC0000, "<u4")
    places = random.choice(len(words), 300, replace=False)
    words[places[:150]] = 0x3C000001
    base = Matrix("float32", (1030, 1024), words)
    maker.add(base, codecs=["zstd"])
    for seed, codec in enumerate(("context-pco", "pco"), 1):
        moved = Matrix(base.dtype, base.shape, words.copy())
        moved.words[places] += random.integers(1, 1 << (8 * seed), 300).astype("<u4")
        maker.add(moved, layout=Units(2 * seed), kind="sub", base=base, codecs=[codec])
    return maker.finish()


def _fixed_delta(
    maker: Maker,
    target: Matrix,
    base: Matrix,
    kind: str,
    rows: str,
    *,
    predictors: tuple[list[dict[str, Any]], bytes] = ([], b""),
    codecs: Codecs = (),
) -> None:
    """A delta under row exponents that hold both."""
    count = len(target.words)
    under = stretched(base.words, base.word_shape, target.word_shape, 0, count)
    held = [under]
    for predictor in predictors_of(*predictors, target.dtype, target.shape):
        held.append(predictor.apply(held[-1], 0))
    raws = [words.tobytes() for words in (target.words, *held)]
    layout = Fixed.of(raws, target.dtype, target.shape, rows=rows)
    maker.add(target, layout=layout, kind=kind, base=base, predictors=predictors, codecs=codecs)


def drift_of(rows: int, seed: int) -> tuple[list[dict[str, Any]], bytes]:
    random = np.random.default_rng(seed)
    steps = random.integers(-70_000, 70_000, 128).astype("<i4")
    steps[::17] = [-(1 << 31), (1 << 31) - 1, 0, 1, -1, 1 << 23, -(1 << 23), 5]
    flags = random.random(rows) < 0.6
    side = steps.tobytes() + np.packbits(flags, bitorder="little").tobytes()
    return [{"id": "drift", "data": hash_bytes(side)}], side


def shrink_of(rows: int | None, shift: int, seed: int) -> tuple[list[dict[str, Any]], bytes]:
    most = min((1 << 15) - 1, (1 << shift) // 2 - 1)
    whole = np.random.default_rng(seed).integers(-most, most + 1, rows or 1).astype("<i2")
    side = whole.tobytes()
    config = {"id": "shrink", "shift": shift, "rows": rows is not None, "data": hash_bytes(side)}
    return [config], side


def low_rank_of(
    shape: Shape, rank: int, width: int, seed: int, power: int = 0
) -> tuple[list[dict[str, Any]], bytes]:
    """A rank whose products are about 2^-8 and some far from it, in factors of `width` bytes."""
    random = np.random.default_rng(seed)
    rows, columns = shape
    # The narrow factor keeps products of wide ones exact.
    most = 1 << (8 * width - 1)
    other = min(most, (1 << 52) // (most * rank))
    left = random.integers(-most + 1, most, (rows, rank)).astype(np.float64)
    right = random.integers(-other + 1, other, (rank, columns)).astype(np.float64)
    level = -int(math.log2(most)) - int(math.log2(other)) - 8
    up = random.integers(-2, 3, rows).astype(np.int32)
    across = random.integers(-2, 3, columns).astype(np.int32) + level
    up[-1], across[-1] = power or up[-1], -power or across[-1]
    made = pack_factors(left, right, up, across)
    assert made is not None
    assert made[0]["width"] == width
    return [made[0]], made[1]


def joined(*parts: tuple[list[dict[str, Any]], bytes]) -> tuple[list[dict[str, Any]], bytes]:
    return [one for part in parts for one in part[0]], b"".join(part[1] for part in parts)


def predictors(folder: Path) -> tuple[str, dict[str, Any]]:
    maker = Maker(folder, "predictors.pack")
    shape: Shape = (18, 25)
    for seed, dtype in enumerate(("float32", "float64", "float16", "bfloat16"), 600):
        base = special(weights(dtype, shape, seed), seed)
        if dtype == "float64":  # on both sides of 2^-923, where products become inexact
            least = np.arange(0x0620, 0x0662, 3, dtype="<u8") << np.uint64(48)
            base.words[30 : 30 + 5 * len(least) : 5] = least
        maker.add(base)
        tried = [
            shrink_of(None, 15, seed),
            shrink_of(18, 9, seed),
            shrink_of(None, 40, seed),
            *(
                low_rank_of(shape, rank, width, seed + rank, 300 * (rank == 2))
                for width, rank in enumerate((1, 2, 5, 1), 1)
            ),
            joined(shrink_of(None, 17, seed + 1), low_rank_of(shape, 3, 1, seed + 1)),
            joined(shrink_of(18, 16, seed + 2), low_rank_of(shape, 4, 2, seed + 2)),
            joined(low_rank_of(shape, 1, 1, seed + 3), shrink_of(18, 16, seed + 3)),
            joined(shrink_of(None, 16, seed + 4), shrink_of(18, 16, seed + 4)),
        ]
        if dtype == "float32":
            tried += [
                drift_of(18, seed),
                joined(drift_of(18, seed), low_rank_of(shape, 2, 1, seed + 5)),
                joined(shrink_of(18, 16, seed + 6), drift_of(18, seed + 6)),
            ]
        for number, found in enumerate(tried):
            _predicted(maker, base, found, seed * 50 + number)
        calm = weights(dtype, shape, seed + 40)
        maker.add(calm)
        found = joined(shrink_of(None, 17, seed + 7), low_rank_of(shape, 2, 1, seed + 7))
        for kind, rows in (("sub", "first"), ("sub", "last")):
            moved = _moved(calm, found, seed + len(rows))
            _fixed_delta(maker, moved, calm, kind, rows, predictors=found)
        vector = special(weights(dtype, (40,), seed + 41), seed)
        maker.add(vector)
        _predicted(maker, vector, low_rank_of((1, 40), 1, 1, seed + 8), seed)
    deep = special(weights("float32", (6, 2, 9), 690), 690)
    maker.add(deep)
    _predicted(maker, deep, joined(drift_of(6, 691), low_rank_of((6, 18), 2, 1, 691)), 692)
    return maker.finish()


def _moved(base: Matrix, found: tuple[list[dict[str, Any]], bytes], seed: int) -> Matrix:
    words = base.words
    for predictor in predictors_of(*found, base.dtype, base.shape):
        words = predictor.apply(words, 0)
    random = np.random.default_rng(seed)
    steps = random.integers(-2, 3, len(words)).astype(words.dtype)
    steps[random.random(len(words)) < 0.5] = 0
    plain = exponents(words, format_of(base.dtype)) > 1
    return Matrix(base.dtype, base.shape, words + steps * plain)


def _predicted(
    maker: Maker, base: Matrix, found: tuple[list[dict[str, Any]], bytes], seed: int
) -> None:
    target = _moved(base, found, seed)
    maker.add(target, kind="sub", base=base, predictors=found)


def contexts(folder: Path) -> tuple[str, dict[str, Any]]:
    maker = Maker(folder, "contexts.pack")
    codecs = ("context-zstd", "context-packed", "context-rans")
    some = ["float32", "float64", "float16", "bfloat16", "complex64", "int8", "int32", "uint16"]
    some += ["float8_e4m3", "float8_e5m2", "float8_e8m0", "raw:x"]
    some += ["float8_e4m3fnuz", "float8_e5m2fnuz"]
    for seed, dtype in enumerate(some, 700):
        shape: Shape = (20, 3, 16)
        if dtype in ("float32", "float64", "float16", "bfloat16"):
            base = special(weights(dtype, shape, seed), seed)
        else:
            base = any_words(dtype, shape, seed)
        maker.add(base)
        for number, codec in enumerate(codecs):
            moved = near(base, seed * 10 + number, 1 + 2 * number)
            maker.add(moved, kind="sub", base=base, codecs=[codec])
    base = any_words("complex64", (60,), 800)
    maker.add(base)
    maker.add(near(base, 801), kind="sub", base=base, codecs=["context-zstd"])
    base = weights("float32", (300,), 802)
    maker.add(base, codecs=["zstd", "context-above"])
    maker.add(near(base, 803), kind="xor", base=base, codecs=["context-rans", "raw"])
    maker.add(
        near(base, 804),
        kind="sub",
        base=base,
        codecs=["raw", "context-packed", "zstd", "context-above"],
    )
    # Each counts from the exponents of the matrix at the root, over a chain and other shapes.
    form = format_of("float32")
    root = weights("float32", (16, 20), 810)
    maker.add(root, codecs=["raw", "context-above", "zstd"])
    chain = [root]
    held = exponents(root.words, form)
    sizes: list[Shape] = [(16, 20), (18, 15), (18, 15), (12, 22)]
    for seed, shape in enumerate(sizes, 811):
        count = math.prod(shape)
        last = chain[-1]
        held = stretched(held, last.shape, shape, 0, count)
        inside = stretched(last.words, last.shape, shape, 0, count)
        moved = near(Matrix("float32", shape, inside), seed, 8)
        found = low_rank_of(shape, 1, 1, seed) if shape == last.shape else ([], b"")
        maker.add(
            moved,
            kind="sub",
            base=last,
            predictors=found,
            codecs=[codecs[seed % 3], codecs[(seed + 1) % 3]],
            scale=(root.name, held),
        )
        chain.append(moved)
    middle = stretched(exponents(chain[2].words, form), chain[2].shape, chain[4].shape, 0, count)
    moved = near(chain[4], 816, 4)
    scale = (chain[2].name, middle)
    maker.add(moved, kind="sub", base=chain[4], codecs=["context-packed"], scale=scale)
    # Sums of scales beyond 16 bits, and contexts that begin where q ends.
    for number, codec in enumerate(codecs):
        moved = near(root, 817 + number, 5)
        random = np.random.default_rng(817 + number)
        ends = [random.integers(-32768, 32768, size).astype("<i2") for size in root.shape]
        extreme = Scales(*ends)
        maker.add(moved, kind="sub", base=root, codecs=[codec], scales=extreme, lo=100 + number)
    for seed, dtype in enumerate(("float32", "float64", "float16", "bfloat16"), 820):
        base = weights(dtype, (14, 30), seed)
        maker.add(base)
        found = shrink_of(None, 17, seed)
        for number, rows in enumerate(("first", "last")):
            moved = _moved(base, found, seed + 9 * number)
            _fixed_delta(
                *(maker, moved, base, "sub", rows),
                predictors=found,
                codecs=[codecs[number], "context-above", "context-rans"],
            )
    return maker.finish()


def segments(folder: Path) -> tuple[str, dict[str, Any]]:
    """Matrices of more than one segment; nearly all of their elements are alike."""
    maker = Maker(folder, "segments.pack")
    shape = (1030, 1024)
    count = math.prod(shape)
    random = np.random.default_rng(900)
    places = random.choice(count, 300, replace=False)
    for dtype, word in (("float16", 0x2C00), ("int8", 7)):
        words = np.full(count, word, UNSIGNED[words_of(dtype)[0]])
        words[places[:100]] += words.dtype.type(9)
        base = Matrix(dtype, shape, words)
        maker.add(base, codecs=["zstd"])
        last = base
        for number, codec in enumerate(("context-zstd", "context-packed", "context-rans")):
            moved = last.words.copy()
            moved[places[100 * number :][:60]] += moved.dtype.type(3)
            last = Matrix(dtype, shape, moved)
            maker.add(last, kind="sub", base=base, codecs=[codec])
    words = np.full(count, 0x2C00, "<u2")
    words[places] = 0x1801
    words[:1024] = 0
    words[count - 1024 :] = np.arange(1024) % 5 + 0x2BFF
    fixed = Matrix("float16", shape, words)
    _fixed(maker, fixed, rows="first", codecs=["zstd"])
    moved = words.copy()
    moved[places[:50]] ^= np.uint16(1)
    _fixed_delta(
        *(maker, Matrix("float16", shape, moved), fixed, "sub", "last"),
        codecs=["context-packed", "context-rans", "zstd"],
    )
    few = TableLayout.of_words(np.unique(words))
    maker.add(Matrix("float16", (1024, 1030), words), layout=few, codecs=["zstd"])
    return maker.finish()


MAKERS = (layouts, deltas, predictors, contexts, segments, differences_in_units)


def make(folder: Path) -> None:
    found = dict(made(folder) for made in MAKERS)
    (folder / "contents.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
