"""Canonical JSON and hashes: one form per value, nothing else is read, nothing makes it slow."""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import struct
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dlv.canonical as canonical
from dlv.canonical import (
    MAX_DEPTH,
    dumps,
    float_of,
    hash_bytes,
    hash_of,
    hasher,
    is_hash,
    is_time,
    loads,
    matrix_hash,
    moment_of,
    number,
    read_json,
    timestamp,
)
from dlv.errors import Damaged

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4)
).filter(lambda value: depth(value) <= MAX_DEPTH)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


def same(left: Any, right: Any) -> bool:
    """Equal in type, sign of zero and order-free keys."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return struct.pack("<d", left) == struct.pack("<d", right)
    return bool(left == right)


def nested(levels: int, inner: Any = None) -> Any:
    value: Any = [] if inner is None else [inner]
    for _ in range(levels - 1):
        value = [value]
    return value


# Writing


@given(VALUES)
def test_round_trip(value: Any) -> None:
    data = dumps(value)
    assert same(loads(data), value)
    assert dumps(loads(data)) == data


@given(VALUES)
def test_the_form_is_the_documented_one(value: Any) -> None:
    expected = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    assert dumps(value) == expected.encode()


def test_golden_forms() -> None:
    assert dumps({"b": 1, "a": [1.0, 1e-05, -0.0, 1e22, True, None]}) == (
        b'{"a":[1.0,1e-05,-0.0,1e+22,true,null],"b":1}'
    )
    assert dumps({"é": "\u2028", "z": "\x7f\n\t", "\U0001f600": 0, "\uffff": 0}) == (
        '{"z":"\x7f\\n\\t","é":"\u2028","\uffff":0,"\U0001f600":0}'.encode()
    )


@pytest.mark.parametrize(
    "value", [2**64, -(2**63) - 1, math.nan, math.inf, "\ud800", {"\udfff": 1}]
)
def test_what_has_no_form(value: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        dumps({"x": [value]})


def test_keys_are_text() -> None:
    with pytest.raises(ValueError, match="not text"):
        dumps({1: 2})


@pytest.mark.parametrize("inner", [None, 0, {}])
def test_depth_written_is_depth_read(inner: Any) -> None:
    levels = MAX_DEPTH - (inner == {})
    value = nested(levels, inner)
    assert loads(dumps(value)) == value
    with pytest.raises(ValueError, match="nested deeper"):
        dumps([value])


# Reading


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" 1",
        b"1 ",
        b"1\n",
        b'{"b":1,"a":2}',
        b'{"a":1,"a":1}',
        b'{"a":1,"a":2}',
        b'{"a": 1}',
        b"[1,2,]",
        b'"\\u00e9"',
        b'"\\/"',
        b'"\\ud800"',
        b'"\xed\xa0\x80"',
        b'"\xff"',
        b"\xef\xbb\xbf1",
        b"-0",
        b"01",
        b"1.0e5",
        b"100000.00",
        b"1E5",
        b"0.1e1",
        b"1e400",
        b"-1e400",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"18446744073709551616",
        b"-9223372036854775809",
        b"1" * 5000,
        b'"abc',
        b'"\t"',
        b"[" * 17 + b"]" * 17,
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"]" * 50_000 + b"[" * 50_000,
    ],
)
def test_anything_else_is_damage(data: bytes) -> None:
    with pytest.raises(Damaged):
        loads(data, "thing")


@given(VALUES, st.data())
def test_a_changed_byte_never_passes_for_the_same(value: Any, data: st.DataObject) -> None:
    good = bytearray(dumps(value))
    place = data.draw(st.integers(0, len(good) - 1))
    good[place] ^= data.draw(st.integers(1, 255))
    try:
        read = loads(bytes(good))
    except Damaged:
        return
    assert not same(read, value)
    assert dumps(read) == bytes(good)


@given(st.binary(max_size=40))
def test_random_bytes(data: bytes) -> None:
    try:
        value = loads(data)
    except Damaged:
        return
    assert dumps(value) == data


def test_errors_name_the_object() -> None:
    with pytest.raises(Damaged, match="pack 12 is not canonical JSON") as found:
        loads(b"[1, 2]", "pack 12")
    assert found.value.why == "it does not serialise to the same bytes again"
    with pytest.raises(Damaged, match="pack 12 is not JSON"):
        loads(b"[", "pack 12")


def test_limit_of_bytes() -> None:
    assert loads(b'"1234"', limit=6) == "1234"
    with pytest.raises(Damaged, match="too large") as found:
        loads(b'"12345"', limit=6)
    assert found.value.why == "7 bytes, the limit is 6"


@pytest.mark.parametrize("text", ['"[[[["', '"\\"[[["', '"\\\\"', '["a[", "]]"]'])
def test_brackets_inside_strings_do_not_nest(text: str) -> None:
    assert read_json(text.encode(), depth=1) == json.loads(text)


def test_plain_json_may_be_untidy_but_not_deep_or_infinite() -> None:
    assert read_json(b' {"b": 1, "a": [1e5]} ') == {"b": 1, "a": [1e5]}
    with pytest.raises(Damaged, match="too deeply"):
        read_json(b"[[[1]]]", depth=2)
    for text in (b"NaN", b"[1e999]", b"-1e999"):
        with pytest.raises(Damaged, match="is not JSON"):
            read_json(text)


@pytest.mark.parametrize(
    "data",
    [
        b'"' + b'\\"' * 2_000_000,
        b'"' + b"a" * 4_000_000 + b'"',
        b'"\\' * 1_000_000,
        b'"",' * 1_000_000,
        b"1" * 4_000_000,
    ],
    ids=["open string", "one string", "backslashes", "many strings", "digits"],
)
def test_no_text_is_slow(data: bytes) -> None:
    started = time.process_time()
    with contextlib.suppress(Damaged):
        loads(data)
    assert time.process_time() - started < 8


def test_ten_megabytes_in_seconds() -> None:
    entry = {"dtype": "float32", "role": "weight", "shape": [128, 64], "tied": None}
    tensors = [{**entry, "name": f"layers.{i}.mlp.weight"} for i in range(60_000)]
    data = dumps({"tensors": tensors, "hashes": ["ab" * 32] * 60_000})
    assert 9_500_000 < len(data) < 16 << 20
    started = time.process_time()
    loads(data)
    assert time.process_time() - started < 5


# Numbers, times, hashes


@given(st.floats())
def test_floats_as_json(value: float) -> None:
    shown = number(value)
    assert math.isfinite(value) == isinstance(shown, float)
    back = float_of(json.loads(json.dumps(shown, allow_nan=False)))
    assert back == value or (math.isnan(back) and math.isnan(value))


@given(st.datetimes(datetime.datetime(1000, 1, 1), timezones=st.just(datetime.UTC)))
def test_times_round_trip_and_sort(moment: datetime.datetime) -> None:
    text = timestamp(moment)
    assert len(text) == 27
    assert is_time(text)
    assert moment_of(text) == moment
    later = timestamp(datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, datetime.UTC))
    assert text <= later


def test_times_are_utc() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    moment = datetime.datetime(2026, 1, 31, 14, 0, 0, 5, zone)
    assert timestamp(moment) == "2026-01-31T12:00:00.000005Z"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00.5Z",
        "2026-01-31T12:00:00.000000",
        "2026-01-31T12:00:00.000000+00:00",
        "2026-02-30T12:00:00.000000Z",
        "2026-01-31T12:00:60.000000Z",
        "2026-01-31 12:00:00.000000Z",
        "2026-1-31T12:00:00.000000Z",
        None,
        5,
    ],
)
def test_no_times(text: Any) -> None:
    assert not is_time(text)


def test_a_fixed_clock_still_moves() -> None:
    try:
        canonical.fix_clock(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
        assert [timestamp(), timestamp()] == [
            "2026-01-01T00:00:00.000000Z",
            "2026-01-01T00:00:00.000001Z",
        ]
    finally:
        canonical.fix_clock(None)
    assert timestamp() > "2026-01-01T00:00:00.000001Z"


@pytest.mark.parametrize(
    "value", ["a" * 63, "a" * 65, "A" * 64, "g" * 64, "a" * 64 + "\n", None, 1]
)
def test_no_hash(value: Any) -> None:
    assert not is_hash(value)


def test_golden_hashes() -> None:
    # The two given with the format, and BLAKE3 of nothing from its own specification.
    assert matrix_hash("float32", [2], struct.pack("<2f", 1.0, -0.0)) == (
        "9254369d741a618e2d1319c7feafd35254871612b8764c42bf3225aabfb5a825"
    )
    assert matrix_hash("float32", (), struct.pack("<f", 1.0)) == (
        "88be23cc37707003eea04d9b686d41ee6042e7efb83cfa1408b33ecc98c39640"
    )
    assert hash_bytes() == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"


@given(st.lists(st.binary(max_size=20), max_size=5))
@settings(max_examples=30)
def test_parts_hash_like_the_whole(parts: list[bytes]) -> None:
    running = hasher()
    for part in parts:
        running.update(part)
    assert hash_bytes(*parts) == hash_bytes(b"".join(parts)) == running.hexdigest()
    assert is_hash(running.hexdigest())


def test_hash_of_a_value_is_of_its_form() -> None:
    assert hash_of({"b": 1, "a": 2}) == hash_bytes(b'{"a":2,"b":1}')


def test_a_matrix_is_more_than_its_bytes() -> None:
    raw = bytes(8)
    names = {
        matrix_hash("float32", [2], raw),
        matrix_hash("float32", [2, 1], raw),
        matrix_hash("float32", [1, 2], raw),
        matrix_hash("int32", [2], raw),
        matrix_hash("float64", [1], raw),
    }
    assert len(names) == 5
