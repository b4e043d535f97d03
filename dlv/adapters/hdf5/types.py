"""HDF5 data types and shapes: those of tensors, and texts for attributes; all others by name."""

from __future__ import annotations

from dataclasses import dataclass

from dlv.adapters.hdf5.bytes import UNDEFINED, Cursor, Limits
from dlv.adapters.hdf5.headers import Attribute
from dlv.dtypes import DTYPES
from dlv.errors import Damaged, NewerFormat, UnsafeInput

MOST_RANK = 32
MOST_TEXT_BYTES = 16 << 20
MOST_TEXTS = 200_000

_CLASSES = (
    "fixed point", "float", "time", "text", "bit field", "opaque", "compound", "reference",
    "enumeration", "variable length", "array", "complex",
)  # fmt: skip
# (size, exponent at, its bits, mantissa bits, bias) -> dtype
_FLOATS = {
    (d.bytes, d.mantissa, d.exponent, d.mantissa, d.bias): name
    for name, d in DTYPES.items()
    if d.exponent and d.word == d.bytes and not name.endswith("fnuz")
}


@dataclass(frozen=True)
class Datatype:
    """`dtype` is None where dlv has no tensors of that type; `unit` bytes are swapped."""

    kind: str
    size: int
    dtype: str | None = None
    unit: int = 1
    variable_text: bool = False


def datatype(limits: Limits, data: bytes) -> Datatype:
    cursor = Cursor(data, limits.name)
    return _datatype(cursor, 0)


def _datatype(cursor: Cursor, depth: int) -> Datatype:
    first = cursor.number(1)
    bits, size = cursor.number(3), cursor.number(4)
    number, version = first & 15, first >> 4
    if number >= len(_CLASSES) or not 1 <= version <= 5:
        raise NewerFormat(f"{cursor.what} holds a type that dlv does not know", why=f"{first}")
    kind = _CLASSES[number]
    if kind == "fixed point":
        offset, precision = cursor.number(2), cursor.number(2)
        whole = offset == 0 and precision == 8 * size and size in (1, 2, 4, 8)
        name = f"{'' if bits & 8 else 'u'}int{8 * size}" if whole else None
        return Datatype(kind, size, name, size if bits & 1 else 1)
    if kind == "float":
        return _float(cursor, bits, size)
    if kind == "enumeration" and depth == 0:
        return _enumeration(cursor, bits & 0xFFFF, size, version)
    if kind == "compound" and depth == 0:
        return _compound(cursor, bits & 0xFFFF, size, version)
    if kind == "complex" and depth == 0:
        base = _datatype(cursor, 1)
        return _complex(base, size) if size == 2 * base.size else Datatype(kind, size)
    if kind == "variable length" and bits & 15 == 1:
        return Datatype(kind, size, variable_text=size == 16)
    return Datatype(kind, size)


def _float(cursor: Cursor, bits: int, size: int) -> Datatype:
    offset, precision = cursor.number(2), cursor.number(2)
    exponent, exponent_bits = cursor.number(1), cursor.number(1)
    mantissa, mantissa_bits = cursor.number(1), cursor.number(1)
    bias = cursor.number(4)
    key = (size, exponent, exponent_bits, mantissa_bits, bias)
    sign, implied, odd = bits >> 8 & 255, bits >> 4 & 3, bits & 0x4E
    whole = offset == 0 and precision == 8 * size and mantissa == 0 and sign == precision - 1
    name = _FLOATS.get(key) if whole and implied == 2 and not odd else None
    return Datatype("float", size, name, size if bits & 1 else 1)


def _enumeration(cursor: Cursor, members: int, size: int, version: int) -> Datatype:
    """h5py's booleans are one byte, FALSE and TRUE."""
    base = _datatype(cursor, 1)
    if base.dtype in ("int8", "uint8") and members == 2 and size == 1:
        names = []
        for _ in range(2):
            start = cursor.at
            names.append(cursor.text())
            if version < 3:
                cursor.align(start)
        if names == [b"FALSE", b"TRUE"] and cursor.take(2) == b"\0\1":
            return Datatype("bool", 1, "bool")
    return Datatype("enumeration", size)


def _compound(cursor: Cursor, members: int, size: int, version: int) -> Datatype:
    """h5py's complex numbers are a pair of floats r, i."""
    found: list[tuple[bytes, int, Datatype]] = []
    if members != 2 or size not in (8, 16):
        return Datatype("compound", size)
    for _ in range(2):
        start = cursor.at
        name = cursor.text()
        if version < 3:
            cursor.align(start)
        offset = cursor.number(4 if version < 3 else 1)
        if version == 1:
            cursor.take(28)
        found.append((name, offset, _datatype(cursor, 1)))
    (real, first, base), (imaginary, second, other) = found
    if (real, imaginary, first, second) == (b"r", b"i", 0, base.size) and base == other:
        return _complex(base, size)
    return Datatype("compound", size)


def _complex(base: Datatype, size: int) -> Datatype:
    names = {("float32", 8): "complex64", ("float64", 16): "complex128"}
    return Datatype("complex", size, names.get((base.dtype or "", size)), base.unit)


def shape(limits: Limits, data: bytes) -> tuple[int, ...] | None:
    """The lengths of a data set or attribute; None: it is empty by declaration."""
    cursor = Cursor(data, limits.name)
    version, rank = cursor.number(1), cursor.number(1)
    cursor.take(1)
    if version not in (1, 2):
        raise NewerFormat(f"{limits.name} holds a shape of version {version}")
    kind = cursor.number(1)
    if version == 1:
        cursor.take(4)
        kind = 1
    if rank > MOST_RANK or kind > 2:
        raise UnsafeInput(f"{limits.name} holds an odd shape", why=f"{rank} axes, kind {kind}")
    if kind == 2:
        return None
    sides = tuple(cursor.number(8) for _ in range(rank))
    total = 1
    for side in sides:
        total *= max(side, 1)  # a zero elsewhere does not make an absurd side sensible
        if total >= 1 << 60:
            raise UnsafeInput(f"a shape in {limits.name} overflows", why=f"{sides}")
    return sides


def texts(limits: Limits, attribute: Attribute, heap: Heap) -> list[str] | None:
    """The value of an attribute that holds texts, else None."""
    kind = datatype(limits, attribute.datatype)
    sides = shape(limits, attribute.dataspace)
    if sides is None or not (kind.variable_text or kind.kind == "text"):
        return None
    count = 1
    for side in sides:
        count *= side
    if count > MOST_TEXTS:
        raise UnsafeInput(
            f"the attribute {attribute.name} of {limits.name} is too large", why=f"{count} texts"
        )
    cursor = Cursor(attribute.data, limits.name)
    found = [
        heap.value(cursor) if kind.variable_text else cursor.take(kind.size) for _ in range(count)
    ]
    try:
        return [raw.split(b"\0")[0].decode("utf-8") for raw in found]
    except UnicodeDecodeError as error:
        raise Damaged(
            f"the attribute {attribute.name} of {limits.name} is not UTF-8", why=str(error)
        ) from error


class Heap:
    """Values of variable length, which lie in collections anywhere in the file."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.bytes = 0
        self.collections: dict[int, dict[int, bytes]] = {}

    def value(self, cursor: Cursor) -> bytes:
        length, address, index = cursor.number(4), cursor.number(8), cursor.number(4)
        if length == 0 or address in (0, UNDEFINED):
            return b""
        found = self._collection(address).get(index)
        if found is None or length > len(found):
            raise Damaged(f"the structure of {self.limits.name} is damaged", why="a text is lost")
        self.bytes += length
        if self.bytes > MOST_TEXT_BYTES:
            raise UnsafeInput(
                f"the attributes of {self.limits.name} are too large",
                why=f"more than {MOST_TEXT_BYTES >> 20} MiB of text",
            )
        return found[:length]

    def _collection(self, address: int) -> dict[int, bytes]:
        known = self.collections.get(address)
        if known is not None:
            return known
        cursor = self.limits.cursor(address, 16)
        cursor.expect(b"GCOL", "a collection of texts")
        if cursor.number(1) != 1:
            raise NewerFormat(f"{self.limits.name} holds a newer collection of texts")
        cursor.take(3)
        size = cursor.number(8)
        if size > MOST_TEXT_BYTES * 2:
            raise UnsafeInput(f"the attributes of {self.limits.name} are too large", why=f"{size}")
        cursor = self.limits.cursor(address + 16, size - 16)
        found: dict[int, bytes] = {}
        while cursor.left >= 16:
            index = cursor.number(2)
            cursor.take(6)
            length = cursor.number(8)
            if index == 0:  # the free space, which is the rest
                break
            self.limits.message()
            found[index] = cursor.take(length)
            cursor.take(min(-length % 8, cursor.left))
        self.collections[address] = found
        return found
