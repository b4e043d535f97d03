"""Protocol buffers, read and written strictly and without a library.

A `Span` is bytes of a file as fields, a `Schema` those that a reader wants, and a `Message` has
fields by name, from text or from bytes. A `MessageWriter` knows lengths before a byte leaves, so
that large tensors stream through from where they lie; with fields in ascending order of their
numbers, its bytes are those of Google's own writer.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeVar

from dlv.dataclass import dataclass
from dlv.errors import Damaged, UnsafeInput

if TYPE_CHECKING:
    import numpy as np

_SINGLE = struct.Struct("<f")


def shortest(value: float) -> float:
    """The float with the fewest digits that has this float32: 1e-05 for 9.999999747378752e-06."""
    if not math.isfinite(value):
        return value
    try:
        wanted = _SINGLE.pack(value)
    except OverflowError:  # beyond float32: it is as it is
        return value
    value = _SINGLE.unpack(wanted)[0]
    for digits in range(6, 9):
        near = float(f"{value:.{digits}g}")
        try:
            if _SINGLE.pack(near) == wanted:
                return near
        except OverflowError:
            continue
    return float(f"{value:.9g}")


VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MOST_DEPTH = 100  # as in the library
MOST_FIELDS = 1_000_000  # a second or two of reading
MOST_MEMORY = 64 << 20
MOST_TEXT = 1 << 20

_LOOKAHEAD = 20  # a tag and a varint
_FIRST_WINDOW, _WINDOW = 2 << 10, 64 << 10

Data = bytes | bytearray


class Bytes(Protocol):
    """A source of bytes: a `Source`, or `Memory`."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    def read(self, offset: int, size: int) -> Data: ...


class Memory:
    """Bytes at hand, read like a file."""

    def __init__(self, data: Data, name: str = "message") -> None:
        self.data = data
        self.name = name
        self.size = len(data)

    def read(self, offset: int, size: int) -> Data:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise Damaged(f"{self.name} is truncated")
        return self.data[offset : offset + size]


@dataclass
class Budget:
    """The rest that one file may still take: fields and numbers, and bytes of memory."""

    fields: int
    memory: int


def message(
    file: Bytes,
    offset: int = 0,
    size: int | None = None,
    *,
    most_fields: int = MOST_FIELDS,
    most_memory: int = MOST_MEMORY,
) -> Span:
    """The message that a file, or this range of it, consists of."""
    size = file.size - offset if size is None else size
    if offset < 0 or size < 0 or offset + size > file.size:
        raise Damaged(f"{file.name} is truncated")
    return Span(file, Budget(most_fields, most_memory), offset, size, 0)


class Span:
    """A length-delimited field: where its bytes lie. It is a message, a text, bytes or numbers."""

    __slots__ = ("_base", "_data", "budget", "depth", "file", "offset", "size")

    def __init__(
        self,
        file: Bytes,
        budget: Budget,
        offset: int,
        size: int,
        depth: int,
        data: Data = b"",
        base: int = 0,
    ) -> None:
        self.file = file
        self.budget = budget
        self.offset = offset
        self.size = size
        self.depth = depth
        # Bytes of the file from `base` on that happen to be here already.
        self._data = data
        self._base = base

    def fields(self) -> Iterator[tuple[int, int, int | Span]]:
        """(field number, wire type, unsigned number or Span) of each field of this message."""
        if self.depth > MOST_DEPTH:
            raise UnsafeInput(
                f"{self.file.name} is nested too deeply", why=f"the limit is {MOST_DEPTH} levels"
            )
        file, budget, depth = self.file, self.budget, self.depth + 1
        at, end = self.offset, self.offset + self.size
        data, base, window = self._data, self._base, _FIRST_WINDOW
        have = base + len(data)
        while at < end:
            if at + _LOOKAHEAD > have and have < end:
                # Behind a large field that was skipped, there may be little before the next one.
                window = _FIRST_WINDOW if at > have else min(2 * window, _WINDOW)
                base, data = at, file.read(at, min(window, end - at))
                have = base + len(data)
            place, stop = at - base, min(have, end) - base
            budget.fields -= 1
            if budget.fields < 0:
                raise self._too_much("fields")
            tag = data[place]
            place += 1
            if tag >= 0x80:
                tag, place = self._varint(data, place - 1, stop, base)
            number, wire = tag >> 3, tag & 7
            if not 0 < number < 1 << 29:
                raise self._wrong(f"the field number {number}", at)
            if wire in (VARINT, BYTES):
                if place >= stop:
                    raise self._wrong("an end within a field", at)
                value: int | Span = data[place]
                place += 1
                if value >= 0x80:  # type: ignore[operator]
                    value, place = self._varint(data, place - 1, stop, base)
                if wire == BYTES:
                    size = value
                    assert isinstance(size, int)
                    start = base + place
                    if size > end - start:
                        raise self._wrong(f"a length of {size} with {end - start} bytes left", at)
                    at = start + size
                    if at <= have:
                        value = Span(file, budget, start, size, depth, data, base)
                    else:
                        value = Span(file, budget, start, size, depth)
                else:
                    at = base + place
            elif wire in (FIXED32, FIXED64):
                width = 4 if wire == FIXED32 else 8
                if place + width > stop:
                    raise self._wrong("an end within a field", at)
                value = int.from_bytes(data[place : place + width], "little")
                at = base + place + width
            else:
                raise self._wrong("a group" if wire in (3, 4) else f"the wire type {wire}", at)
            yield number, wire, value

    def bytes(self, most: int = MOST_TEXT) -> Data:
        """The bytes themselves, at most so many."""
        if self.size > most:
            raise UnsafeInput(
                f"a field of {self.file.name} is too long",
                why=f"{self.size} bytes at byte {self.offset}, the limit is {most}",
            )
        self.budget.memory -= self.size
        if self.budget.memory < 0:
            raise self._too_much("texts")
        return self.peek()

    def detached(self) -> Span:
        """The span without the bytes that it holds in memory."""
        return Span(self.file, self.budget, self.offset, self.size, self.depth)

    def peek(self) -> Data:
        """The bytes, for who keeps account of them."""
        start = self.offset - self._base
        if self._data and start >= 0 and start + self.size <= len(self._data):
            return self._data[start : start + self.size]
        return self.file.read(self.offset, self.size)

    def text(self, most: int = MOST_TEXT) -> str:
        """UTF-8, checked."""
        try:
            return self.bytes(most).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._wrong("a string that is not UTF-8", self.offset) from error

    def numbers(self, wire: int) -> list[int]:
        """The numbers of a packed field, unsigned."""
        data, stop = self.bytes(MOST_MEMORY), self.size
        found: list[int] = []
        if wire != VARINT:
            width = 4 if wire == FIXED32 else 8
            if stop % width:
                raise self._wrong("numbers that are cut", self.offset)
            self.charge(stop // width)
            found.extend(struct.unpack(f"<{stop // width}{'I' if width == 4 else 'Q'}", data))
            return found
        place = 0
        while place < stop:
            self.charge(1)
            value = data[place]
            place += 1
            if value >= 0x80:
                value, place = self._varint(data, place - 1, stop, self.offset)
            found.append(value)
        return found

    def charge(self, count: int) -> None:
        """Take so many fields from the budget."""
        self.budget.fields -= count
        if self.budget.fields < 0:
            raise self._too_much("numbers")

    def _varint(self, data: Data, place: int, stop: int, base: int) -> tuple[int, int]:
        begin, value, shift = place, 0, 0
        while place < stop:
            byte = data[place]
            place += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 1 << 64:
                    break
                return value, place
            shift += 7
            if shift > 63:
                break
        else:
            raise self._wrong("an end within a number", base + begin)
        raise self._wrong("a number of more than 64 bits", base + begin)

    def _wrong(self, label: str, offset: int) -> Damaged:
        return Damaged(f"{self.file.name} is corrupt", why=f"{label} at byte {offset}")

    def _too_much(self, label: str) -> UnsafeInput:
        return UnsafeInput(f"{self.file.name} has too many {label}")


def signed(value: int) -> int:
    """A varint as int64, or an enum."""
    return value - (1 << 64) if value >= 1 << 63 else value


def signed32(value: int) -> int:
    """A varint as int32: what is beyond 32 bits does not count, as in the library."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def float32_of(value: int) -> float:
    return float(struct.unpack("<f", value.to_bytes(4, "little"))[0])


def float64_of(value: int) -> float:
    return float(struct.unpack("<d", value.to_bytes(8, "little"))[0])


# Kind -> wire type, and what makes the value of a number.
_NUMBERS: dict[str, tuple[int, Any]] = {
    "int": (VARINT, signed),
    "int32": (VARINT, signed32),
    "uint": (VARINT, int),
    "bool": (VARINT, bool),
    "float": (FIXED32, float32_of),
    "double": (FIXED64, float64_of),
}
_RUNS = {"varints": VARINT, "fixed32s": FIXED32, "fixed64s": FIXED64}
_KINDS = {*_NUMBERS, *_RUNS, "text", "bytes", "message"}


class Schema:
    """The fields of one kind of message that a reader wants: number -> "name kind" or "name kind*".

    `int`, `float` and so on with `*` may be packed or not, as written.
    """

    def __init__(self, name: str, fields: Mapping[int, str]) -> None:
        self.name = name
        self._fields: dict[int, tuple[str, str, bool]] = {}
        self._empty: dict[str, bool] = {}
        for number, text in fields.items():
            field, kind = text.split()
            many = kind.endswith("*") or kind in _RUNS
            kind = kind.removesuffix("*")
            assert kind in _KINDS, kind
            self._fields[number] = field, kind, many
            self._empty[field] = many

    def read(self, span: Span) -> dict[str, Any]:
        """The message as a dict with every name of the schema."""
        result: dict[str, Any] = {name: [] if many else None for name, many in self._empty.items()}
        wanted = self._fields
        for number, wire, value in span.fields():
            known = wanted.get(number)
            if known is None:
                continue
            name, kind, many = known
            if isinstance(value, Span):
                if kind == "message" or kind in _RUNS:
                    item: Any = value
                elif kind == "text":
                    item = value.text()
                elif kind == "bytes":
                    item = value.bytes()
                elif many:
                    wanted_wire, convert = _NUMBERS[kind]
                    result[name].extend(map(convert, value.numbers(wanted_wire)))
                    continue
                else:
                    raise self._wire(span, name, wire)
            elif kind in _NUMBERS:
                wanted_wire, convert = _NUMBERS[kind]
                if wire != wanted_wire:
                    raise self._wire(span, name, wire)
                item = convert(value)
            elif wire == _RUNS.get(kind):
                # One number on its own: its bytes are those it would have in a packed field.
                item = _alone(span, wire, value)
            else:
                raise self._wire(span, name, wire)
            if many:
                result[name].append(item)
            elif result[name] is None:
                result[name] = item
            else:
                raise UnsafeInput(f"{span.file.name} has two values for {self.name}.{name}")
        return result

    def _wire(self, span: Span, name: str, wire: int) -> Damaged:
        return Damaged(
            f"{span.file.name} is corrupt",
            why=f"{self.name}.{name} at byte {span.offset} has the wire type {wire}",
        )


def _alone(span: Span, wire: int, value: int) -> Span:
    width = 4 if wire == FIXED32 else 8
    data = varint(value) if wire == VARINT else value.to_bytes(width, "little")
    return Span(Memory(data, span.file.name), span.budget, 0, len(data), span.depth)


_CHUNK = 1 << 20


def packed_bytes(spans: Iterable[Span], size: int) -> bytearray:
    """The numbers of a field of floats or doubles, as they lie there: `size` bytes in all."""
    spans = list(spans)
    found = sum(span.size for span in spans)
    if found != size:
        name = spans[0].file.name if spans else "a message"
        raise Damaged(f"{name} is corrupt", why=f"{found} bytes of numbers, expected {size}")
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
        raise Damaged(f"{name} is corrupt", why=f"{count} numbers are declared, there are fewer")
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
                raise Damaged(f"{name} is corrupt", why="an end within a number")
            if len(values) > count - done:
                raise Damaged(f"{name} is corrupt", why=f"more than {count} numbers")
            _store(values, result, done, width, name)
            done += len(values)
    if done != count:
        raise Damaged(f"{name} is corrupt", why=f"{done} numbers, {count} are declared")
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
        raise Damaged(f"{name} is corrupt", why="a number of more than 64 bits")
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
        raise Damaged(f"{name} is corrupt", why=f"a number of more than {8 * width} bits")
    result[done * width : (done + len(values)) * width] = low.tobytes()


_UINT32, _INT64 = 1 << 32, 1 << 63
_TRUE, _FALSE = ("true", "True", "t"), ("false", "False", "f")
_FLOATS = {"inf": math.inf, "infinity": math.inf, "nan": math.nan}

T = TypeVar("T")


class Word(str):
    """A bare word: the name of an enum's value, or true and false."""

    __slots__ = ()


Value = Any  # int, float, bool, str, Word or Message


class Message:
    """Fields by name, each with all its values in their order, and the line of each."""

    __slots__ = ("asked", "fields", "file", "line", "lines")

    def __init__(self, file: str, line: int = 0) -> None:
        self.file = file
        self.line = line  # where it begins; 0: not from a text
        self.fields: dict[str, list[Value]] = {}
        self.lines: dict[str, list[int]] = {}
        self.asked: set[str] = set()  # names of fields that someone wanted to know

    def add(self, name: str, value: Value, line: int = 0) -> None:
        self.fields.setdefault(name, []).append(value)
        self.lines.setdefault(name, []).append(line)

    def __contains__(self, name: str) -> bool:
        self.asked.add(name)
        return name in self.fields

    def _values(self, name: str) -> list[Value]:
        self.asked.add(name)
        return self.fields.get(name, [])

    @property
    def left(self) -> list[str]:
        """Return the fields of the message that no reader has requested."""
        return [name for name in self.fields if name not in self.asked]

    def place(self, name: str | None = None, index: int = 0) -> str:
        """The place of a field, or of the message, as messages to the user begin."""
        line = self.lines[name][index] if name in self.lines else self.line
        return f"{self.file}, line {line}" if line else self.file

    def wrong(self, name: str, wanted: str, index: int = 0) -> Damaged:
        value = self.fields[name][index]
        shown = "a message" if isinstance(value, Message) else repr(value)[:60]
        return Damaged(f"{self.place(name, index)}: {name} is {shown}", why=f"it takes {wanted}")

    def _single(self, name: str, values: Sequence[T], default: T) -> T:
        if len(values) > 1:
            raise Damaged(f"{self.place(name, 1)}: {name} is there twice", why="it takes one value")
        return values[0] if values else default

    def messages(self, name: str) -> list[Message]:
        found = self._values(name)
        for index, value in enumerate(found):
            if not isinstance(value, Message):
                raise self.wrong(name, "a message in braces", index)
        return list(found)

    def message(self, name: str) -> Message:
        """The message of that name, an empty one if there is none."""
        return self._single(name, self.messages(name), Message(self.file, self.line))

    def texts(self, name: str) -> list[str]:
        found = self._values(name)
        for index, value in enumerate(found):
            if not isinstance(value, str) or isinstance(value, Word):
                raise self.wrong(name, "a string in quotes", index)
        return list(found)

    def text(self, name: str, default: str = "") -> str:
        return self._single(name, self.texts(name), default)

    def integers(self, name: str, least: int = -_INT64, most: int = _INT64 - 1) -> list[int]:
        found = self._values(name)
        for index, value in enumerate(found):
            if type(value) is not int or not least <= value <= most:
                kind = "a count" if least == 0 else "a whole number"
                raise self.wrong(name, kind, index)
        return list(found)

    def integer(self, name: str, default: int) -> int:
        return self._single(name, self.integers(name, -(1 << 31), (1 << 31) - 1), default)

    def counts(self, name: str) -> list[int]:
        """Whole numbers of 32 bits without a sign."""
        return self.integers(name, 0, _UINT32 - 1)

    def count(self, name: str, default: int) -> int:
        return self._single(name, self.counts(name), default)

    def numbers(self, name: str) -> list[float]:
        """Floats of 32 bits, as the decimals that people write."""
        found = []
        for index, value in enumerate(self._values(name)):
            if isinstance(value, Word) and value.lower() in _FLOATS:
                found.append(_FLOATS[value.lower()])
            elif type(value) in (int, float):
                found.append(shortest(float(value)))
            else:
                raise self.wrong(name, "a number", index)
        return found

    def number(self, name: str, default: float) -> float:
        return self._single(name, self.numbers(name), default)

    def flag(self, name: str, default: bool) -> bool:
        values = []
        for index, value in enumerate(self._values(name)):
            if value in _TRUE or value in (True, 1):
                values.append(True)
            elif value in _FALSE or value in (False, 0):
                values.append(False)
            else:
                raise self.wrong(name, "true or false", index)
        return self._single(name, values, default)

    def word(self, name: str, choices: Sequence[str], default: str) -> str:
        """One of an enum's values, which may be given by its number."""
        values = []
        for index, value in enumerate(self._values(name)):
            if isinstance(value, str) and value in choices:
                values.append(str(value))
            elif type(value) is int and 0 <= value < len(choices):
                values.append(choices[value])
            else:
                raise self.wrong(name, "one of " + ", ".join(choices), index)
        return self._single(name, values, default)


MOST_BYTES = (1 << 31) - 1  # of a whole message: readers take no more

_MASK64 = (1 << 64) - 1


class Stream(Protocol):
    """Bytes that are written when their turn comes; a `checkpoint.Tensor` is one."""

    @property
    def nbytes(self) -> int: ...
    def copy_to(self, out: BinaryIO) -> None: ...


class MessageWriter:
    """A message that grows; one put into another must be finished."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[bytearray | MessageWriter | Stream] = []

    def varint(self, field: int, value: int) -> None:
        """int32, int64, bool or an enumeration; negative numbers take ten bytes."""
        self._append(varint(field << 3 | VARINT) + varint(value & _MASK64))

    def single(self, field: int, value: float) -> None:
        """32 bits; what is too large for them is infinite."""
        self._append(varint(field << 3 | FIXED32) + packed("f", value))

    def raw(self, field: int, data: bytes) -> None:
        self._append(self._head(field, len(data)) + data)

    def text(self, field: int, text: str) -> None:
        self.raw(field, text.encode("utf-8"))

    def message(self, field: int, inner: MessageWriter) -> None:
        self._append(self._head(field, inner.size))
        self._parts.append(inner)
        self.size += inner.size

    def stream(self, field: int, data: Stream) -> None:
        """Bytes, copied when the message is written."""
        self._append(self._head(field, data.nbytes))
        self._parts.append(data)
        self.size += data.nbytes

    def write(self, out: BinaryIO) -> None:
        """Write the message; small fields and one part of a tensor are in memory at a time."""
        stack: list[Iterator[bytearray | MessageWriter | Stream]] = [iter(self._parts)]
        while stack:
            part = next(stack[-1], None)
            if part is None:
                stack.pop()
            elif isinstance(part, MessageWriter):
                stack.append(iter(part._parts))
            elif isinstance(part, bytearray):
                out.write(part)
            else:
                part.copy_to(out)

    @staticmethod
    def _head(field: int, size: int) -> bytes:
        return varint(field << 3 | BYTES) + varint(size)

    def _append(self, data: bytes) -> None:
        if not self._parts or not isinstance(self._parts[-1], bytearray):
            self._parts.append(bytearray())
        last = self._parts[-1]
        assert isinstance(last, bytearray)
        last += data
        self.size += len(data)


def packed(code: str, value: float) -> bytes:
    """A number in a format of `struct`, little-endian; infinite if it is too large for that."""
    try:
        return struct.pack(f"<{code}", value)
    except OverflowError:
        return struct.pack(f"<{code}", math.copysign(math.inf, value))


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
