"""Canonical JSON, its strict reader, and BLAKE3: the form in which everything hashed is written."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Sequence
from typing import Any, BinaryIO

from blake3 import blake3

from dlv.errors import Damaged, UsageError

VERSION = "0.1.0"
WRITER = f"dlv {VERSION}"  # for messages only: what wrote an object

MAX_DEPTH = 16
MAX_BYTES = 16 << 20
HASH = re.compile(r"[0-9a-f]{64}\Z")

# Never fails once it has begun, so that no byte is looked at twice; an open string ends the text.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_TEXT = {str}
_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)
NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def dumps(value: Any) -> bytes:
    """The one byte string that stands for `value`."""
    _check(value)
    return _ENCODER.encode(value).encode("utf-8")


def loads(data: bytes, what: str = "object", *, limit: int = MAX_BYTES) -> Any:
    """Read canonical JSON; anything that is not exactly canonical is damage."""
    value = read_json(data, what, limit=limit)
    try:
        canonical = dumps(value)
    except (ValueError, UnicodeEncodeError) as error:
        raise Damaged(f"{what} is not canonical JSON", why=str(error)) from error
    if canonical != data:
        raise Damaged(
            f"{what} is not canonical JSON", why="it does not serialise to the same bytes again"
        )
    return value


def read_json(data: bytes, what: str = "file", *, limit: int = MAX_BYTES, depth: int = 16) -> Any:
    """Read plain JSON from outside, with size and depth bounded before parsing begins."""
    if len(data) > limit:
        raise Damaged(f"{what} is too large", why=f"{len(data)} bytes, the limit is {limit}")
    level = 0
    for bracket in _STRING.sub(b"", data).translate(None, _NO_BRACKETS):
        level += 1 if bracket in b"[{" else -1
        if level > depth:
            raise Damaged(f"{what} is nested too deeply", why=f"the limit is {depth} levels")
    try:
        return json.loads(
            data.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite
        )
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{what} is not JSON", why=str(error)) from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not allowed, write it as text")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:40]} is too large for a float")
    return value


def _check(value: Any) -> None:
    """What json.dumps would let pass; level by level, as a call for each value takes longer."""
    level, depth = [value], 0
    while level:
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str or item is None or kind is float or kind is bool:
                continue
            if kind is int and 0 <= item < 2**63:
                continue
            if isinstance(item, (dict, list, tuple)):
                if depth >= MAX_DEPTH:
                    raise ValueError(f"nested deeper than {MAX_DEPTH}")
                if isinstance(item, dict):
                    if set(map(type, item)) - _TEXT:
                        for key in item:
                            if not isinstance(key, str):
                                raise ValueError(f"key {key!r} is not text")
                    below.extend(item.values())
                else:
                    below.extend(item)
            elif isinstance(item, int) and not -(2**63) <= item < 2**64:
                raise ValueError(f"integer {item} is out of range")
        level, depth = below, depth + 1


def number(value: float) -> float | str:
    """A float as it stands in JSON: non-finite ones as text."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def float_of(value: float | str) -> float:
    """The inverse of `number`."""
    return NON_FINITE[value] if isinstance(value, str) else float(value)


def is_hash(value: Any) -> bool:
    return isinstance(value, str) and HASH.match(value) is not None


def hash_bytes(*parts: bytes | bytearray | memoryview) -> str:
    """BLAKE3-256 of the parts, one after the other, in 64 hex digits."""
    hasher = blake3()
    for part in parts:
        hasher.update(part)
    return hasher.hexdigest()


def hash_of(value: Any) -> str:
    """The hash of the canonical form of a JSON value."""
    return hash_bytes(dumps(value))


def keyed_hash(key: bytes, data: bytes) -> bytes:
    """BLAKE3-256 that only who has the 32 bytes of `key` can make or check."""
    return blake3(data, key=key).digest()


def hasher() -> blake3:
    """A running BLAKE3, for what is read piece by piece."""
    return blake3()


class HashSink:
    """Takes what is written to it like a file; only its hash is wanted."""

    def __init__(self) -> None:
        self._hasher = blake3()
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview) -> int:
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        self._hasher.update(view)
        self._size += len(view)
        return len(view)

    def tell(self) -> int:
        return self._size

    def hexdigest(self) -> str:
        return self._hasher.hexdigest()


class HashedFile(HashSink):
    """Passes on what is written to it, and knows the hash of that; it cannot go back."""

    def __init__(self, out: BinaryIO) -> None:
        super().__init__()
        self._out = out

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self._out.write(data)
        return super().write(data)

    def flush(self) -> None:
        self._out.flush()


def matrix_hash(dtype: str, shape: Sequence[int], raw: bytes | bytearray | memoryview) -> str:
    """The name of a matrix: its dtype, shape and little-endian elements in C order."""
    return hash_bytes(_matrix_head(dtype, shape), raw)


def matrix_hasher(dtype: str, shape: Sequence[int]) -> blake3:
    """`matrix_hash` for elements that come in parts."""
    made = hasher()
    made.update(_matrix_head(dtype, shape))
    return made


def _matrix_head(dtype: str, shape: Sequence[int]) -> bytes:
    return dumps({"dtype": dtype, "shape": list(shape)}) + b"\n"


_fixed_clock: list[datetime.datetime] = []


def fix_clock(moment: datetime.datetime | None) -> None:
    """Let time stand still at `moment`, for reproducible examples and tests; None: run again."""
    _fixed_clock[:] = [] if moment is None else [moment]


def stop_clock(text: str) -> datetime.datetime:
    """`fix_clock` at a moment given as text, as in DLV_NOW."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"DLV_NOW is not a time: `{text}`", why=str(error)) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    fix_clock(moment)
    return moment


def current_moment() -> datetime.datetime:
    """Now, or where the clock was fixed."""
    return _fixed_clock[0] if _fixed_clock else datetime.datetime.now(datetime.UTC)


def timestamp(moment: datetime.datetime | None = None) -> str:
    """UTC with microseconds, as every format of dlv writes time."""
    if moment is None and _fixed_clock:
        moment = _fixed_clock[0]
        # Two facts must never be of one moment, not even where time stands still.
        _fixed_clock[0] += datetime.timedelta(microseconds=1)
    moment = moment or datetime.datetime.now(datetime.UTC)
    plain = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return plain.isoformat(timespec="microseconds") + "Z"


def moment_of(text: str) -> datetime.datetime:
    """The inverse of `timestamp`; ValueError for anything that it would not write."""
    moment = datetime.datetime.fromisoformat(text)  # strptime would load locale and more
    if timestamp(moment) != text:
        raise ValueError(f"{text!r} is not written as dlv writes time")
    return moment


def is_time(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(moment_of(value))
    except ValueError:
        return False
