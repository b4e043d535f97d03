"""GGUF files (llama.cpp and its kin): keys with values, tensor descriptions, aligned tensors.

Tensors of whole numbers or floats are plain dtypes; blocks of quantised numbers are kept as
they are, as `raw:Q4_K` and so on (`raw:Q4_K_BE` in a big-endian file, whose blocks differ).
Shapes are in our order, the reverse of GGUF's. Skeleton: splice form.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import partial
from typing import Any, BinaryIO

from dlv.adapters import splice
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.adapters.protobuf import shortest
from dlv.adapters.source import Source, opened
from dlv.adapters.splice import Piece, swap
from dlv.canonical import dumps, number
from dlv.dataclass import dataclass
from dlv.dtypes import ITEM_BYTES, block_of, tensor_bytes
from dlv.errors import Damaged, NewerFormat, UnsafeInput, UsageError
from dlv.kinds import Raw

FORMAT = "gguf"
SUFFIX = ".gguf"

ALIGNMENT = 32  # where the file says nothing else
MOST_HEADER_BYTES = 64 << 20
MOST_KEYS = 65_536
MOST_TENSORS = 100_000
MOST_TEXTS = 4_000_000  # in arrays; the largest vocabularies have some 800,000 with their merges
MOST_NESTED = 4
MOST_AXES = 4
MOST_NAME_BYTES = 1024
MOST_KEY_BYTES = 65_535
MOST_ALIGNMENT = 1 << 16
_SHORT_ARRAY = 32
_WINDOW = 1 << 20
_KEY_LEAST, _TENSOR_LEAST = 13, 32  # bytes that the smallest one takes
_VERSIONS = (2, 3)


# ggml's numbers of element types.
TYPES = {
    0: "float32",
    1: "float16",
    2: "raw:Q4_0",
    3: "raw:Q4_1",
    6: "raw:Q5_0",
    7: "raw:Q5_1",
    8: "raw:Q8_0",
    9: "raw:Q8_1",
    10: "raw:Q2_K",
    11: "raw:Q3_K",
    12: "raw:Q4_K",
    13: "raw:Q5_K",
    14: "raw:Q6_K",
    15: "raw:Q8_K",
    16: "raw:IQ2_XXS",
    17: "raw:IQ2_XS",
    18: "raw:IQ3_XXS",
    19: "raw:IQ1_S",
    20: "raw:IQ4_NL",
    21: "raw:IQ3_S",
    22: "raw:IQ2_S",
    23: "raw:IQ4_XS",
    24: "int8",
    25: "int16",
    26: "int32",
    27: "int64",
    28: "float64",
    29: "raw:IQ1_M",
    30: "bfloat16",
    34: "raw:TQ1_0",
    35: "raw:TQ2_0",
    39: "raw:MXFP4",
    40: "raw:NVFP4",
    41: "raw:Q1_0",
}
_REMOVED = (4, 5, 31, 32, 33, 36, 37, 38)

# Scalar types of values, as `struct` calls them; 8 is a text, 9 an array.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q"}
_SCALARS[12] = "d"
_FLOAT, _BOOL, TEXT, _ARRAY = 6, 7, 8, 9


@dataclass(frozen=True)
class Entry:
    """A tensor as the header describes it; the offset counts from the end of the header."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int


@dataclass
class Header:
    """The head of a file, before its tensors; `values` are the scalars and short arrays."""

    big: bool
    version: int
    end: int = 0
    alignment: int = ALIGNMENT
    values: dict[str, Any] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)


def read_header(file: Source) -> Header:
    """Everything before the tensors, checked."""
    if file.size < 24 or file.read(0, 4) != b"GGUF":
        raise Damaged(f"{file.name} is not a GGUF file", why="its head is missing")
    number = int.from_bytes(file.read(4, 4), "little")
    big = not number & 0xFFFF  # a version is small: these bytes are the other way round
    version = int.from_bytes(file.read(4, 4), "big" if big else "little")
    if version == 1:
        raise UsageError(
            f"{file.name} is GGUF of version 1, which dlv does not read",
            why="it was replaced within a month, in August 2023",
            hint="convert it again with llama.cpp, or add it with --as file",
        )
    if version not in _VERSIONS:
        raise NewerFormat(f"{file.name} is GGUF of version {version}", why="known: 2 and 3")
    scanner = _Scanner(file, big)
    header = Header(big, version)
    tensors = scanner.count("tensors", _TENSOR_LEAST, MOST_TENSORS)
    keys = scanner.count("keys", _KEY_LEAST, MOST_KEYS)
    seen: set[str] = set()
    for _ in range(keys):
        key = scanner.name(MOST_KEY_BYTES, "a key")
        if key in seen:
            raise UnsafeInput(f"{file.name} has the key {key!r} twice")
        seen.add(key)
        kind = scanner.integer(4)
        value = scanner.value(kind, key)
        if key == "general.alignment":
            header.alignment = _alignment(kind, value, file.name)
        if value is not None:
            header.values[key] = value
    names: set[str] = set()
    for _ in range(tensors):
        entry = _entry(scanner)
        if entry.name in names:
            raise UnsafeInput(f"{file.name} has two tensors named {entry.name!r}")
        names.add(entry.name)
        header.entries.append(entry)
    header.end = scanner.at
    return header


def _alignment(kind: int, value: Any, label: str) -> int:
    if kind != 4 or not 0 < value <= MOST_ALIGNMENT or value & (value - 1):
        raise UnsafeInput(
            f"{label} has a wrong alignment",
            why=f"{str(value)[:40]}, expected a power of two up to {MOST_ALIGNMENT}",
        )
    return int(value)


def _entry(scanner: _Scanner) -> Entry:
    name = scanner.name(MOST_NAME_BYTES, "the name of a tensor")
    problem = f"{scanner.file.name} is wrong at the tensor {name!r}"
    axes = scanner.integer(4)
    if axes > MOST_AXES:
        raise UnsafeInput(problem, why=f"{axes} axes, the limit is {MOST_AXES}")
    sides = [scanner.integer(8) for _ in range(axes)]
    number, offset = scanner.integer(4), scanner.integer(8)
    if number not in TYPES:
        if number in _REMOVED:
            raise UsageError(
                problem,
                why=f"its type {number} was removed from GGUF",
                hint="quantise the model again, or add the file with --as file",
            )
        raise NewerFormat(problem, why=f"its type {number} is unknown")
    elements = 1
    for side in sides:
        elements *= max(side, 1)  # a zero elsewhere does not make an absurd side sensible
        if elements >= 1 << 63:
            raise UnsafeInput(problem, why=f"the shape {sides} overflows")
    # Blocks lie along the axis that GGUF names first.
    block, _ = block_of(TYPES[number])
    if (sides[0] if sides else 1) % block:
        raise UnsafeInput(
            problem, why=f"{TYPES[number]} has blocks of {block} numbers, its shape is {sides}"
        )
    return Entry(name, tuple(reversed(sides)), number, offset)


class _Scanner:
    """Reads forward through the header, a window of the file at a time."""

    def __init__(self, file: Source, big: bool) -> None:
        self.file = file
        self.at = 8
        self._window = bytearray()
        self._start = 0
        self._order: str = ">" if big else "<"
        self._length = struct.Struct(self._order + "Q")
        self._texts = MOST_TEXTS

    def take(self, size: int) -> bytes:
        """The next `size` bytes; the file must have them, and the header's limit allow them."""
        place = self._place(size)
        self.at += size
        return bytes(self._window[place : place + size])

    def _place(self, size: int) -> int:
        """Where in the window the next `size` bytes begin; they are all in it."""
        if self.at + size > MOST_HEADER_BYTES and self.at + size <= self.file.size:
            raise UnsafeInput(
                f"the header of {self.file.name} is too large",
                why=f"the limit is {MOST_HEADER_BYTES >> 20} MiB",
            )
        place = self.at - self._start
        if place + size > len(self._window):
            rest = max(self.file.size - self.at, 0)
            self._window = self.file.read(self.at, max(size, min(_WINDOW, rest)))
            self._start, place = self.at, 0
        return place

    def skip(self, size: int) -> None:
        if self.at + size > self.file.size:
            raise Damaged(
                f"{self.file.name} is truncated",
                why=f"bytes {self.at} to {self.at + size} are needed, it has {self.file.size}",
            )
        if self.at + size > MOST_HEADER_BYTES:
            self._place(size)
        self.at += size

    def integer(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big" if self._order == ">" else "little")

    def count(self, label: str, least: int, most: int) -> int:
        """How many follow: not more than the limit, nor than the file has bytes for."""
        number = self.integer(8)
        if number > most:
            raise UnsafeInput(
                f"{self.file.name} has too many {label}", why=f"{number}, the limit is {most}"
            )
        if number * least > self.file.size - self.at:
            raise Damaged(
                f"{self.file.name} is too short for its {label}",
                why=f"it declares {number} and has {self.file.size} bytes",
            )
        return number

    def name(self, most: int, label: str) -> str:
        size = self.integer(8)
        if not 0 < size <= most:
            raise UnsafeInput(
                f"{label} in {self.file.name} has a wrong length",
                why=f"{size} bytes at byte {self.at - 8}, the limit is {most}",
            )
        try:
            text = self.take(size).decode("utf-8")
        except UnicodeDecodeError as error:
            raise Damaged(f"{label} in {self.file.name} is not UTF-8", why=str(error)) from error
        if "\0" in text:
            raise UnsafeInput(f"{label} in {self.file.name} contains a NUL", why=repr(text)[:100])
        return text

    def value(self, kind: int, key: str) -> Any:
        """A scalar, a text or a short array; None for what is not kept."""
        if kind in _SCALARS:
            return self._scalars(kind, 1, key)[0]
        if kind == TEXT:
            return self._text()
        if kind == _ARRAY:
            return self._array(key)
        raise NewerFormat(
            f"{self.file.name} is wrong at the key {key!r}", why=f"its type {kind} is unknown"
        )

    def _scalars(self, kind: int, count: int, key: str) -> list[Any]:
        form = _SCALARS[kind]
        data = self.take(count * struct.calcsize(self._order + form))
        values = struct.unpack(f"{self._order}{count}{form}", data)
        if kind == _BOOL:
            if any(value > 1 for value in values):
                raise Damaged(
                    f"{self.file.name} is wrong at the key {key!r}", why="neither true nor false"
                )
            return [bool(value) for value in values]
        return [shortest(value) for value in values] if kind == _FLOAT else list(values)

    def _text(self) -> str | None:
        try:
            return self.take(self.integer(8)).decode("utf-8")
        except UnicodeDecodeError:
            return None  # the file keeps it; nobody could read it

    def _array(self, key: str) -> list[Any] | None:
        """Walk an array, and arrays in it; those of scalars or texts, if short, are values."""
        waiting = [1]  # how many arrays are still to come, by depth
        result: list[Any] | None = None
        while waiting:
            if not waiting[-1]:
                waiting.pop()
                continue
            waiting[-1] -= 1
            kind, count = self.integer(4), self.integer(8)
            if kind == _ARRAY:
                if len(waiting) == MOST_NESTED:
                    raise UnsafeInput(
                        f"{self.file.name} is wrong at the key {key!r}",
                        why=f"arrays in arrays, deeper than {MOST_NESTED}",
                    )
                self._spend(count, key)
                waiting.append(count)
            elif kind == TEXT:
                result = self._texts_of(count, key)
            elif kind in _SCALARS:
                result = self._numbers(kind, count, key)
            else:
                raise NewerFormat(
                    f"{self.file.name} is wrong at the key {key!r}",
                    why=f"the type {kind} in its array is unknown",
                )
            if len(waiting) > 1:
                result = None
        return result

    def _spend(self, count: int, key: str) -> None:
        """Every text and every inner array costs time; all of them together are limited."""
        if count * 8 > self.file.size - self.at:
            raise Damaged(
                f"{self.file.name} is too short for the key {key!r}",
                why=f"it declares {count} elements",
            )
        self._texts -= count
        if self._texts < 0:
            raise UnsafeInput(
                f"{self.file.name} is too large at the key {key!r}",
                why=f"more than {MOST_TEXTS} strings",
            )

    def _numbers(self, kind: int, count: int, key: str) -> list[Any] | None:
        if count <= _SHORT_ARRAY:
            return self._scalars(kind, count, key)
        self.skip(count * struct.calcsize(self._order + _SCALARS[kind]))
        return None

    def _texts_of(self, count: int, key: str) -> list[Any] | None:
        self._spend(count, key)
        if count <= _SHORT_ARRAY:
            texts = [self._text() for _ in range(count)]
            return None if None in texts else texts
        unpack: Callable[[Any, int], tuple[Any, ...]] = self._length.unpack_from
        for _ in range(count):
            place = self._place(8)  # before the window is named: it may be another one then
            self.skip(8 + unpack(self._window, place)[0])
        return None


_THERE = {dtype: number for number, dtype in TYPES.items()}
_LONGEST_TEXT = 1000


@dataclass(frozen=True)
class _Place:
    """The place of a tensor's bytes; `unit` bytes make a number."""

    offset: int
    size: int
    unit: int


def open(path: str) -> Checkpoint:  # noqa: A001 (the name in the Adapter protocol)
    """Check all of the header against the file; tensors are read when they are asked for."""
    return opened(path, _open)


def _open(file: Source) -> Checkpoint:
    header = read_header(file)
    tensors = []
    pieces = []
    for index, (entry, place) in enumerate(_places(header, file)):
        dtype = TYPES[entry.type]
        if header.big and dtype.startswith("raw:"):
            dtype += "_BE"
        part = partial(_read, file, place)
        whole = partial(part, 0, place.size)
        tensors.append(Tensor(entry.name, dtype, entry.shape, place.size, whole, part=part))
        pieces.append((place.offset, Piece(index, 0, place.size, "C", place.unit)))
    return Checkpoint(
        FORMAT,
        tensors,
        splice.cut(file, pieces),
        exact=True,
        hyperparameters=_hyperparameters(header),
        close=file.close,
    )


restore = splice.restore


def save(out: BinaryIO, tensors: Sequence[Tensor], metadata: dict[str, str]) -> None:
    """Write version 3, little-endian, with the metadata as texts."""
    seen: set[str] = set()
    for tensor in tensors:
        _check_saved(tensor)
        if tensor.name in seen:
            raise UsageError(f"gguf cannot hold two tensors named {tensor.name}")
        seen.add(tensor.name)
    head = [b"GGUF", _number(3, 4), _number(len(tensors), 8), _number(len(metadata), 8)]
    for key, value in sorted(metadata.items()):
        head += [_text(key), _number(TEXT, 4), _text(value)]
    position = 0
    for tensor in tensors:
        head += [_text(tensor.name), _number(len(tensor.shape), 4)]
        head += [_number(side, 8) for side in reversed(tensor.shape)]
        head += [_number(_THERE[tensor.dtype], 4), _number(position, 8)]
        position += _aligned(tensor.nbytes)
    start = b"".join(head)
    out.write(start + bytes(_aligned(len(start)) - len(start)))
    for tensor in tensors:
        tensor.copy_to(out)
        out.write(bytes(_aligned(tensor.nbytes) - tensor.nbytes))


def _check_saved(tensor: Tensor) -> None:
    if tensor.dtype not in _THERE:
        raise UsageError(
            f"gguf cannot hold {tensor.dtype}",
            why=f"the tensor {tensor.name} has this type",
            hint="export to safetensors, or leave it out",
        )
    if len(tensor.shape) > MOST_AXES:
        raise UsageError(
            f"gguf cannot hold {len(tensor.shape)} axes",
            why=f"the tensor {tensor.name} has the shape {list(tensor.shape)}",
            hint="export to safetensors",
        )
    if len(tensor.name.encode("utf-8")) > MOST_NAME_BYTES:
        raise UsageError(f"gguf cannot hold a name of this length: {tensor.name[:80]}…")
    block, size = block_of(tensor.dtype)
    blocks, left = divmod(math.prod(tensor.shape), block)
    if left or blocks * size != tensor.nbytes:
        raise Damaged(
            f"the tensor {tensor.name} has a wrong length",
            why=f"{tensor.nbytes} bytes for {tensor.dtype} {list(tensor.shape)}",
        )


def _number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little")


def _text(text: str) -> bytes:
    data = text.encode("utf-8")
    return _number(len(data), 8) + data


def _aligned(position: int, alignment: int = ALIGNMENT) -> int:
    return position + -position % alignment


def _places(header: Header, file: Source) -> Iterator[tuple[Entry, _Place]]:
    """Every tensor with its place; holes, overlaps and a wrong length of the file are refused."""
    start = _aligned(header.end, header.alignment)
    sizes = []
    for entry in header.entries:
        size = tensor_bytes(TYPES[entry.type], entry.shape)
        if entry.offset % header.alignment:
            raise UnsafeInput(
                f"the tensor {entry.name!r} of {file.name} is not aligned",
                why=f"it begins at {entry.offset}, the alignment is {header.alignment}",
            )
        if start + entry.offset + size > file.size:
            raise Damaged(
                f"{file.name} is truncated",
                why=f"the tensor {entry.name!r} ends at byte {start + entry.offset + size},"
                f" the file has {file.size}",
            )
        sizes.append(size)
    position = 0
    for index in sorted(range(len(sizes)), key=lambda i: (header.entries[i].offset, sizes[i])):
        entry = header.entries[index]
        if entry.offset != _aligned(position, header.alignment):
            kind_of_fault = "overlap" if entry.offset < position else "leave a hole"
            raise UnsafeInput(
                f"the tensors of {file.name} {kind_of_fault}",
                why=f"{entry.name!r} begins at {entry.offset}, expected"
                f" {_aligned(position, header.alignment)}",
            )
        position = entry.offset + sizes[index]
    # Not every writer fills up what comes behind the last tensor.
    least = start + position if sizes else header.end
    if not least <= file.size <= _aligned(least, header.alignment):
        raise Damaged(
            f"{file.name} has the wrong length", why=f"{file.size} bytes instead of {least}"
        )
    for entry, size in zip(header.entries, sizes, strict=True):
        unit = ITEM_BYTES.get(TYPES[entry.type], 1) if header.big else 1
        yield entry, _Place(start + entry.offset, size, unit)


def _read(file: Source, place: _Place, start: int, size: int) -> Raw:
    """Bytes of a tensor, little-endian whatever the file is."""
    if place.unit == 1:
        return file.read(place.offset + start, size)
    first = start - start % place.unit
    end = min(_aligned(start + size, place.unit), place.size)
    data = memoryview(swap(file.read(place.offset + first, end - first), place.unit))
    return data[start - first : start - first + size]


def _hyperparameters(header: Header) -> dict[str, object]:
    """What describes the model: no tokenizer, nothing about the file itself, no long texts."""
    found = {}
    for key, value in header.values.items():
        if key.startswith(("tokenizer.", "split.")) or key == "general.alignment":
            continue
        if isinstance(value, str) and len(value) > _LONGEST_TEXT:
            continue
        # As settings in a file say it, so that the two are one hyperparameter.
        if isinstance(value, list):
            value = dumps([_plain(item) for item in value]).decode("utf-8")
        found[key] = _plain(value)
    return found


def _plain(value: object) -> object:
    return number(value) if isinstance(value, float) else value
