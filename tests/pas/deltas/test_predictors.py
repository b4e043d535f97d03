"""Predictors against what they are said to compute, in exact numbers; and their bounds."""

from __future__ import annotations

import struct
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlv.canonical import hash_bytes
from dlv.errors import Damaged, NewerFormat
from dlv.pas.deltas.predictors import REAL, integer_planes, predictors_of, side_bytes
from dlv.pas.floats import format_of, ordered, unordered

Words = NDArray[Any]
Found = tuple[list[dict[str, Any]], bytes]
ROWS, COLUMNS = 5, 7
GREATEST = Fraction(sys.float_info.max)
SHAPE = (ROWS, COLUMNS)


def drift(steps: NDArray[Any], flags: list[bool]) -> Found:
    side = steps.astype("<i4").tobytes()
    side += np.packbits(np.array(flags), bitorder="little").tobytes()
    return [{"id": "drift", "data": hash_bytes(side)}], side


def shrink(alphas: list[int], shift: int) -> Found:
    side = np.array(alphas, "<i2").tobytes()
    config = {"id": "shrink", "shift": shift, "rows": len(alphas) > 1, "data": hash_bytes(side)}
    return [config], side


def low_rank(
    left: NDArray[Any], right: NDArray[Any], width: int, rows: list[int], columns: list[int]
) -> Found:
    side = integer_planes(left.T.astype(float), width) + np.array(rows, "<i2").tobytes()
    side += integer_planes(right.astype(float), width) + np.array(columns, "<i2").tobytes()
    rank = left.shape[1]
    return [{"id": "lowrank", "rank": rank, "width": width, "data": hash_bytes(side)}], side


def joined(*parts: Found) -> Found:
    return [config for part in parts for config in part[0]], b"".join(part[1] for part in parts)


def apply(found: Found, words: Words, dtype: str, start: int = 0) -> Words:
    for predictor in predictors_of(*found, dtype, SHAPE):
        words = predictor.apply(words, start)
    return words


def any_words(dtype: str, seed: int, special: bool = True) -> Words:
    """Weights, and among them zeros, denormals, infinities and NaN."""
    form = format_of(dtype)
    random = np.random.default_rng(seed)
    raw = random.bytes(ROWS * COLUMNS * form.width)
    words = np.frombuffer(raw, form.words).copy()
    mask = form.words.type(((1 << form.exponent) - 1) << form.mantissa)
    middle = (1 << (form.exponent - 1)) - 3
    few = random.integers(middle - 3, middle + 3, len(words)).astype(form.words)
    words = np.asarray((words & ~mask) | (few << form.words.type(form.mantissa)), form.words)
    if special:
        full = int(mask)
        choices = [0, form.top, 1, form.top | 1, full, full | form.top, full | 1, full - 1]
        choices += [1 << form.mantissa, form.top | (1 << form.mantissa), full - 2]
        at = random.random(len(words)) < 0.4
        picked = np.array(choices, np.uint64)[random.integers(0, len(choices), int(at.sum()))]
        words[at] = picked.astype(form.words)
    return words


def some_predictors(kind: str, dtype: str, seed: int) -> Found:
    random = np.random.default_rng(seed)
    parts = []
    if "shrink" in kind:
        count = ROWS if seed % 2 else 1
        parts.append(shrink(random.integers(-9000, 9000, count).tolist(), 15 + seed % 5))
    if "drift" in kind:
        steps = random.integers(-(1 << random.integers(1, 31)), 1 << random.integers(1, 31), 128)
        parts.append(drift(steps, (random.random(ROWS) < 0.7).tolist()))
    if "lowrank" in kind:
        rank, width = int(random.integers(1, 5)), int(random.integers(1, 4))
        most = 1 << (8 * width - 1)
        left = random.integers(-most, most, (ROWS, rank))
        right = random.integers(-most, most, (rank, COLUMNS))
        middle = -16 * width - 4
        rows = (middle + random.integers(-3, 4, ROWS)).tolist()
        parts.append(low_rank(left, right, width, rows, random.integers(-3, 4, COLUMNS).tolist()))
    return joined(*parts)


KINDS = ["shrink", "lowrank", "shrink lowrank", "drift", "drift lowrank", "shrink drift lowrank"]


def number(word: int, dtype: str) -> Fraction | None:
    """The exact value of a word; None for infinity and NaN."""
    form = format_of(dtype)
    bias = (1 << (form.exponent - 1)) - 1
    exponent = word >> form.mantissa & ((1 << form.exponent) - 1)
    mantissa = word & ((1 << form.mantissa) - 1)
    if exponent == (1 << form.exponent) - 1:
        return None
    if exponent:
        mantissa |= 1 << form.mantissa
    value = Fraction(mantissa) * Fraction(2) ** (max(exponent, 1) - bias - form.mantissa)
    return -value if word & form.top else value


@settings(max_examples=60)
@given(st.sampled_from(["float32", "float64", "float16"]), st.integers(0, 1 << 20))
def test_an_affine_step_is_one_exact_sum_rounded_twice(dtype: str, seed: int) -> None:
    """b * (1 + alpha) and U @ V in exact numbers, each rounded to float64, their sum too."""
    words = any_words(dtype, seed)
    random = np.random.default_rng(seed + 1)
    shift = 20
    alphas = random.integers(-9000, 9000, ROWS).tolist()
    left, right = random.integers(-99, 99, (ROWS, 2)), random.integers(-99, 99, (2, COLUMNS))
    rows, columns = random.integers(-22, -18, ROWS).tolist(), [0, -1, -2, 0, 1, 2, 0]
    found = joined(shrink(alphas, shift), low_rank(left, right, 1, rows, columns))
    predicted = apply(found, words, dtype)
    form = format_of(dtype)
    bias = (1 << (form.exponent - 1)) - 1
    least = Fraction(2) ** (100 - bias if dtype == "float64" else 1 - bias)
    pack = {"float32": "<f", "float64": "<d", "float16": "<e"}[dtype]
    for index, (word, got) in enumerate(zip(words.tolist(), predicted.tolist(), strict=True)):
        i, j = divmod(index, COLUMNS)
        base = number(word, dtype)
        expected = word
        if base is not None and abs(base) >= least:
            exact = base * (1 + Fraction(alphas[i], 1 << shift))
            if abs(exact) > GREATEST:  # beyond float64 too
                continue
            shrunk = float(exact)
            moved = Fraction(int(left[i] @ right[:, j])) * Fraction(2) ** (rows[i] + columns[j])
            total = Fraction(shrunk) + moved
            greatest = number(((1 << form.exponent) - 1 << form.mantissa) - 1, dtype)
            assert greatest is not None
            if least <= abs(total) <= greatest:
                raw = struct.pack(pack, float(total))
                expected = int.from_bytes(raw, "little")
        assert got == expected


@settings(max_examples=40)
@given(st.integers(0, 1 << 20))
def test_drift_adds_a_step_by_the_mantissa(seed: int) -> None:
    words = any_words("float32", seed)
    random = np.random.default_rng(seed)
    steps, flags = random.integers(-5000, 5000, 128), [True, False, True, True, False]
    predicted = apply(drift(steps, flags), words, "float32")
    for index, (word, got) in enumerate(zip(words.tolist(), predicted.tolist(), strict=True)):
        exponent = word >> 23 & 255
        if not flags[index // COLUMNS] or exponent in (0, 255):
            assert got == word
            continue
        size = (word & 0x7FFFFFFF) + int(steps[word >> 16 & 127])
        assert got == (word & 0x80000000) | min(size, 0x7F7FFFFF)


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("kind", KINDS)
def test_any_run_gives_what_the_whole_gives(dtype: str, kind: str) -> None:
    if "drift" in kind and dtype != "float32":
        return
    for seed in range(6):
        found, words = some_predictors(kind, dtype, seed), any_words(dtype, seed)
        before = words.tobytes()
        whole = apply(found, words, dtype)
        assert words.tobytes() == before
        assert whole.dtype == format_of(dtype).words
        for start, stop in ((0, 3), (3, 20), (6, 14), (20, 35), (34, 35), (9, 9)):
            again = apply(found, words[start:stop], dtype, start)
            assert again.tobytes() == whole[start:stop].tobytes()


@settings(max_examples=250)
@given(st.sampled_from(REAL), st.sampled_from(KINDS), st.integers(0, 1 << 20), st.data())
def test_bounds_hold(dtype: str, kind: str, seed: int, data: st.DataObject) -> None:
    """Whatever lies between the bounds of the input is predicted between those of the output."""
    if "drift" in kind and dtype != "float32":
        dtype = "float32"
    form = format_of(dtype)
    found = some_predictors(kind, dtype, seed)
    words = any_words(dtype, seed, special=data.draw(st.booleans()))
    random = np.random.default_rng(seed)
    middle = ordered(words, form).astype(object)
    wide = data.draw(st.sampled_from([0, 4, 12, 20, form.bits]))
    spread = 1 << min(wide, form.bits - 1)
    end = (1 << form.bits) - 1
    low = np.array(
        [max(0, m - int(random.integers(0, spread, dtype=np.uint64))) for m in middle], form.words
    )
    high = np.array(
        [min(end, m + int(random.integers(0, spread, dtype=np.uint64))) for m in middle], form.words
    )
    least, most = low, high
    for predictor in predictors_of(*found, dtype, SHAPE):
        least, most = predictor.bounds(least, most, 0)
    assert least.dtype == most.dtype == form.words
    for part in (0.0, 0.02, 0.3, 0.5, 0.9, 1.0):
        inside = [
            int(a) + int(part * (int(b) - int(a))) if part < 1 else int(b)
            for a, b in zip(low, high, strict=True)
        ]
        inside = [min(max(x, int(a)), int(b)) for x, a, b in zip(inside, low, high, strict=True)]
        given_ = unordered(np.array(inside, form.words), form)
        got = ordered(apply(found, given_, dtype), form)
        assert (least <= got).all()
        assert (got <= most).all()


def test_bounds_are_tight_where_one_word_is_meant() -> None:
    for seed in range(20):
        for kind in KINDS:
            words = any_words("float32", seed, special=False)
            found = some_predictors(kind.replace("drift", ""), "float32", seed)
            if not found[0]:
                continue
            form = format_of("float32")
            least = most = ordered(words, form)
            for predictor in predictors_of(*found, "float32", SHAPE):
                least, most = predictor.bounds(least, most, 0)
            assert (least <= most).all()
            close = most.astype(np.int64) - least.astype(np.int64) < 4
            assert close.mean() > 0.8


@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1, max_size=9))
def test_integers_of_several_bytes(values: list[int]) -> None:
    planes = integer_planes(np.array(values, float), 4)
    rows = [planes[k * len(values) : (k + 1) * len(values)] for k in range(4)]
    for index, value in enumerate(values):
        raw = bytes(row[index] for row in rows)
        assert struct.unpack(">i", raw)[0] == value


def test_lengths_follow_from_config_and_shape() -> None:
    assert side_bytes(drift(np.zeros(128), [True] * 5)[0][0], "float32", SHAPE) == 513
    assert side_bytes(shrink([1], 4)[0][0], "float32", SHAPE) == 2
    assert side_bytes(shrink([1] * 5, 4)[0][0], "bfloat16", SHAPE) == 10
    found = some_predictors("lowrank", "float16", 3)
    config = found[0][0]
    assert side_bytes(config, "float16", SHAPE) == len(found[1])
    assert len(found[1]) == (config["rank"] * config["width"] + 2) * 12


def changed(found: Found, **values: Any) -> Found:
    return [{**found[0][0], **values}], found[1]


SHRUNK = shrink([5], 8)
RANKED = low_rank(np.ones((5, 1)), np.ones((1, 7)), 1, [0] * 5, [0] * 7)


@pytest.mark.parametrize(
    ("found", "dtype", "kind"),
    [
        (([{"id": "oracle", "data": "a" * 64}], b""), "float32", NewerFormat),
        (changed(SHRUNK, more=1), "float32", NewerFormat),
        (changed(SHRUNK, data="a" * 64), "float32", Damaged),
        (changed(SHRUNK, data=None), "float32", Damaged),
        (changed(SHRUNK, shift=-1), "float32", Damaged),
        (changed(SHRUNK, shift=True), "float32", Damaged),
        (changed(SHRUNK, rows=1), "float32", Damaged),
        (changed(SHRUNK, rows=True), "float32", Damaged),
        ((SHRUNK[0], SHRUNK[1] + b"\0"), "float32", Damaged),
        (shrink([20000], 8), "float32", Damaged),
        (SHRUNK, "int32", Damaged),
        (SHRUNK, "complex64", Damaged),
        (changed(RANKED, rank=0), "float32", Damaged),
        (changed(RANKED, rank=65), "float32", Damaged),
        (changed(RANKED, width=5), "float32", Damaged),
        (low_rank(np.ones((5, 1)), np.ones((1, 7)), 1, [400] * 5, [0] * 7), "float32", Damaged),
        (drift(np.ones(128), [True] * 5), "float64", Damaged),
        (drift(np.ones(128), [True] * 6), "float32", Damaged),
    ],
)
def test_what_cannot_be_is_named(found: Found, dtype: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        predictors_of(*found, dtype, SHAPE)


def test_products_that_are_not_exact_are_refused() -> None:
    most = (1 << 31) - 1
    found = low_rank(np.full((5, 1), most), np.full((1, 7), most), 4, [0] * 5, [0] * 7)
    with pytest.raises(Damaged, match="exact"):
        predictors_of(*found, "float32", SHAPE)


def test_none_predict_nothing() -> None:
    assert predictors_of([], b"", "int8", SHAPE) == []
