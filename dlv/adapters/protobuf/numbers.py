"""The numbers of large repeated fields, which protobuf packs as elements or as varints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dlv.adapters.protobuf.reader import Span
from dlv.errors import Damaged

if TYPE_CHECKING:
    import numpy as np

_CHUNK = 1 << 20


def packed_bytes(spans: Iterable[Span], size: int) -> bytearray:
    """The numbers of a field of floats or doubles, as they lie there: `size` bytes in all."""
    spans = list(spans)
    found = sum(span.size for span in spans)
    if found != size:
        name = spans[0].file.name if spans else "a message"
        raise Damaged(f"{name} is damaged", why=f"{found} bytes of numbers, expected {size}")
    if len(spans) == 1:
        return bytearray(spans[0].peek())
    result = bytearray(size)
    at = 0
    for span in spans:
        result[at : at + span.size] = span.peek()
        at += span.size
    return result


def varints(spans: Iterable[Span], count: int, width: int) -> bytearray:
    """`count` varints as little-endian integers of `width` bytes; one that does not fit is damage.

    A varint takes a byte at least, so that `count` cannot ask for more than the file can give.
    """
    spans = list(spans)
    name = spans[0].file.name if spans else "a message"
    if count > sum(span.size for span in spans):
        raise Damaged(f"{name} is damaged", why=f"{count} numbers are declared, there are fewer")
    result = bytearray(count * width)
    done = 0
    for span in spans:
        at, rest = 0, b""
        while at < span.size:
            size = min(_CHUNK, span.size - at)
            part = rest + bytes(span.file.read(span.offset + at, size))
            at += size
            values, used = _decode(part, name)
            rest = part[used:]
            if len(rest) >= 10 or (rest and at == span.size):
                raise Damaged(f"{name} is damaged", why="an end within a number")
            if len(values) > count - done:
                raise Damaged(f"{name} is damaged", why=f"more than {count} numbers")
            _store(values, result, done, width, name)
            done += len(values)
    if done != count:
        raise Damaged(f"{name} is damaged", why=f"{done} numbers, {count} are declared")
    return result


def _decode(part: bytes, name: str) -> tuple[np.ndarray[Any, np.dtype[np.uint64]], int]:
    """The whole varints in `part`, and how many bytes they took."""
    import numpy as np

    raw = np.frombuffer(part, np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    if not len(ends):
        return np.zeros(0, np.uint64), 0
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > 10 or (longest == 10 and bool((raw[ends[lengths == 10]] > 1).any())):
        raise Damaged(f"{name} is damaged", why="a number of more than 64 bits")
    values = np.zeros(len(ends), np.uint64)
    for place in range(longest):
        there = lengths > place
        bits = (raw[starts[there] + place] & 0x7F).astype(np.uint64)
        values[there] |= bits << np.uint64(7 * place)
    return values, int(ends[-1]) + 1


def _store(
    values: np.ndarray[Any, np.dtype[np.uint64]],
    result: bytearray,
    done: int,
    width: int,
    name: str,
) -> None:
    import numpy as np

    low = values.astype(f"<u{width}")
    same = low.astype(np.uint64) == values
    # Negative numbers are written as 64 bits.
    negative = low.astype(f"<i{width}").astype(np.int64).astype(np.uint64) == values
    if not bool((same | negative).all()):
        raise Damaged(f"{name} is damaged", why=f"a number of more than {8 * width} bits")
    result[done * width : (done + len(values)) * width] = low.tobytes()
