"""numpy's `.npz` archives and single `.npy` arrays; pickled objects are never loaded.

Skeleton: splice form. An archive whose arrays are deflated has none: another zlib would not
make the same bytes, so a promise to write them again would be false.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Sequence
from typing import BinaryIO

from dlv.adapters import archive, splice
from dlv.adapters.archive import Entry
from dlv.adapters.checkpoint import Checkpoint, Part, Tensor
from dlv.adapters.source import Source, opened
from dlv.adapters.splice import Piece, swap, transpose
from dlv.dataclass import dataclass
from dlv.dtypes import DTYPES
from dlv.errors import Damaged, UnsafeInput, UsageError
from dlv.kinds import Raw

FORMAT = "npz"
SUFFIX = ".npz"

MAGIC = b"\x93NUMPY"
MOST_HEADER_BYTES = 64 << 10
MOST_DIMENSIONS = 64  # numpy's own limit

_BY_DESCR = {dtype.numpy: name for name, dtype in DTYPES.items() if dtype.numpy}
_DESCR = re.compile(r"([<>|])([biufcSUVMm])([0-9]{1,9})(\[[0-9]{0,9}[A-Za-z]{1,9}\])?")
_TEXT = r"'[^'\\]*+'|\"[^\"\\]*+\""
_FIELD = re.compile(
    rf"\s*+({_TEXT})\s*+:\s*+"
    rf"(?:(?P<text>{_TEXT})|(?P<flag>True|False)|\((?P<shape>[0-9L,\s]*+)\)|(?P<list>\[))"
)
_NEXT = re.compile(r"\s*+(?:,\s*+)?+(\})?+\s*+")
_SHAPE = re.compile(r"\s*+(?:(?:[0-9]{1,19}L?+\s*+,\s*+)++(?:[0-9]{1,19}L?+\s*+)?+)?+")
_SIDE = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class Header:
    """An array as its header describes it; `unit` bytes are to be reversed, `item` make one."""

    dtype: str
    shape: tuple[int, ...]
    fortran: bool
    item: int
    unit: int
    length: int  # of the header itself

    @property
    def column_major(self) -> bool:
        """Whether the elements lie in another order than C's."""
        return self.fortran and sum(side != 1 for side in self.shape) > 1

    @property
    def nbytes(self) -> int:
        size = self.item
        for side in self.shape:
            size *= side
        return size


def header_length(start: bytes | bytearray, label: str) -> int:
    """Length of the whole header, from the first 12 bytes (or all there are)."""
    if start[:6] != MAGIC or len(start) < 10:
        raise Damaged(f"{label} does not begin as an npy array")
    major, minor = start[6], start[7]
    if major not in (1, 2, 3) or minor:
        raise Damaged(f"{label} has an unknown npy version", why=f"{major}.{minor}")
    width = 2 if major == 1 else 4
    length = int.from_bytes(start[8 : 8 + width], "little")
    if len(start) < 8 + width:
        raise Damaged(f"{label} is truncated")
    if length > MOST_HEADER_BYTES:
        raise UnsafeInput(
            f"the header of {label} is too large",
            why=f"{length} bytes, the limit is {MOST_HEADER_BYTES}",
        )
    return 8 + width + length


def parse(data: bytes | bytearray, label: str) -> Header:
    """The checked header; `data` is exactly `header_length` bytes."""
    begin = 10 if data[6] == 1 else 12
    try:
        text = data[begin:].decode("utf-8" if data[6] == 3 else "latin-1")
    except UnicodeDecodeError as error:
        raise Damaged(f"the header of {label} is not UTF-8", why=str(error)) from error
    fields = _fields(text, label)
    descr, flag, shape = fields["descr"], fields["fortran_order"], fields["shape"]
    if descr["list"]:
        raise UnsafeInput(
            f"{label} is a structured array",
            why="dlv keeps plain arrays of numbers",
            hint="save its fields as arrays of their own",
        )
    if descr["text"] is None or flag["flag"] is None or shape["shape"] is None:
        raise Damaged(f"the header of {label} has fields of a wrong type")
    if not _SHAPE.fullmatch(shape["shape"]):
        raise Damaged(f"the header of {label} has a wrong shape", why=shape["shape"][:100])
    sides = tuple(int(side) for side in _SIDE.findall(shape["shape"]))
    dtype, item, unit = _read_descr(descr["text"][1:-1], label)
    size = max(item, 1)
    for side in sides:
        size *= max(side, 1)  # a zero elsewhere does not make an absurd side sensible
        if size >= 1 << 63:
            raise UnsafeInput(f"the shape of {label} overflows")
    if len(sides) > MOST_DIMENSIONS:
        raise UnsafeInput(f"{label} has {len(sides)} dimensions")
    return Header(dtype, sides, flag["flag"] == "True", item, unit, len(data))


def check_size(header: Header, size: int, label: str) -> None:
    """Damaged unless `size` bytes are this header and the array."""
    if header.length + header.nbytes != size:
        raise Damaged(
            f"{label} has not the length that its shape needs",
            why=f"{header.length} + {header.nbytes} bytes instead of {size}",
        )


def make(dtype: str, shape: Sequence[int]) -> bytes | None:
    """The header as numpy writes it for a C-ordered array, or None if it has no such dtype."""
    descr = _descr_of(dtype)
    if descr is None or len(shape) > MOST_DIMENSIONS:
        return None
    sides = tuple(shape)
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {sides!r}, }}"
    if sides:
        text += " " * (21 - len(repr(sides[0])))  # room for the first axis to grow
    # Blanks and a newline, so that the elements begin at a multiple of 64.
    padding = -(10 + len(text) + 1) % 64
    data = (text + " " * padding + "\n").encode("ascii")
    return MAGIC + b"\x01\x00" + len(data).to_bytes(2, "little") + data


def _fields(text: str, label: str) -> dict[str, dict[str, str | None]]:
    fields: dict[str, dict[str, str | None]] = {}
    at, closed = 1, None
    while text.startswith("{") and not closed:
        match = _FIELD.match(text, at)
        if match is None or match[1][1:-1] in fields:
            break
        fields[match[1][1:-1]] = match.groupdict()
        if match["list"]:
            # Whatever the list describes, no dtype of a plain array is written as one.
            unknown: dict[str, str | None] = dict.fromkeys(match.groupdict())
            return {"descr": match.groupdict(), "fortran_order": unknown, "shape": unknown}
        following = _NEXT.match(text, match.end())
        assert following is not None, "it matches nothing at least"
        at, closed = following.end(), following[1]
    if not closed or at != len(text) or set(fields) != {"descr", "fortran_order", "shape"}:
        raise Damaged(f"the header of {label} is not an npy header", why=repr(text[:100]))
    return fields


def _read_descr(descr: str, label: str) -> tuple[str, int, int]:
    """dtype, bytes per element, bytes to reverse together."""
    if "O" in descr:
        raise UnsafeInput(
            f"{label} is an array of Python objects",
            why="it is a pickle, and loading one can run any program",
        )
    match = _DESCR.fullmatch(descr)
    if match is None:
        raise Damaged(f"{label} has an unknown dtype", why=repr(descr[:100]))
    order, kind, number, moment = match[1], match[2], int(match[3]), match[4]
    item = 4 * number if kind == "U" else number
    unit = {"S": 1, "V": 1, "U": 4, "c": item // 2}.get(kind, item)
    if (order == "|") != (unit == 1) and not (unit == 1 and item == 1):
        raise Damaged(f"{label} has an unknown dtype", why=repr(descr[:100]))
    name = _BY_DESCR.get(f"{kind}{number}")
    if name is None or moment:
        sizes = {"f": (16,), "c": (32,), "M": (8,), "m": (8,)}
        if kind in "biu" or item not in sizes.get(kind, (item,)) or (moment and kind not in "Mm"):
            raise Damaged(f"{label} has an unknown dtype", why=repr(descr[:100]))
        name = f"raw:{'|' if unit == 1 else '<'}{descr[1:]}"
    return name, item, unit if order == ">" else 1


def _descr_of(dtype: str) -> str | None:
    if dtype.startswith("raw:"):
        match = _DESCR.fullmatch(dtype[4:])
        return match[0] if match and match[1] != ">" and match[2] not in "biu" else None
    known = DTYPES.get(dtype)
    if known is None or known.numpy is None:
        return None
    return f"{'|' if known.bytes == 1 else '<'}{known.numpy}"


def open(path: str) -> Checkpoint:  # noqa: A001 (the name in the Adapter protocol)
    """Check all headers against the sizes; arrays are read when they are asked for."""
    return opened(path, _open)


restore = splice.restore


def _open(file: Source) -> Checkpoint:
    whole = file.size >= 6 and file.read(0, 6) == MAGIC
    return _open_array(file) if whole else _open_archive(file)


def save(out: BinaryIO, tensors: Sequence[Tensor], metadata: dict[str, str]) -> None:
    """Write the file that `numpy.savez` writes; the format cannot hold the metadata."""
    del metadata
    headers = []
    seen = set()
    for tensor in tensors:
        header = make(tensor.dtype, tensor.shape)
        if header is None:
            raise UsageError(
                f"npz cannot hold {tensor.dtype}",
                why=f"the tensor {tensor.name} has this type",
                hint="export to safetensors",
            )
        if not archive.is_safe(tensor.name + ".npy"):
            raise UsageError(f"npz cannot hold the name {tensor.name!r}")
        if tensor.name in seen:
            raise UsageError(f"npz cannot hold two arrays named {tensor.name}")
        seen.add(tensor.name)
        headers.append(header)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as target:
        for tensor, header in zip(tensors, headers, strict=True):
            data = memoryview(tensor.read()).cast("B")
            if len(data) != tensor.nbytes:
                raise Damaged(f"the tensor {tensor.name} has a wrong length")
            with target.open(tensor.name + ".npy", "w", force_zip64=True) as member:
                member.write(header)
                member.write(data)
            del data  # before the next one is read


def _open_array(file: Source) -> Checkpoint:
    header = parse(
        file.read(0, header_length(file.read(0, min(12, file.size)), file.name)), file.name
    )
    check_size(header, file.size, file.name)
    tensor = _tensor(
        file.name.removesuffix(".npy"),
        header,
        lambda: file.read(header.length, header.nbytes),
        lambda start, size: file.read(header.length + start, size),
    )
    skeleton = splice.cut(file, [(header.length, _piece(0, header))])
    return Checkpoint("npy", [tensor], skeleton, exact=True, close=file.close)


def _open_archive(file: Source) -> Checkpoint:
    tensors: list[Tensor] = []
    pieces: list[tuple[int, Piece]] = []
    notes: list[str] = []
    exact = True
    for entry in archive.read_directory(file):
        if not entry.name.endswith(".npy"):
            notes.append(f"{entry.name} is not an array")
            continue
        header = read_header(file, entry)
        pieces.append((entry.offset + header.length, _piece(len(tensors), header)))
        name = entry.name.removesuffix(".npy")
        tensors.append(_tensor(name, header, *_readers(file, entry, header)))
        exact = exact and entry.method == archive.STORED
    skeleton = splice.cut(file, pieces) if exact else None
    if not exact:
        notes.append("compressed npz: the arrays are kept, the file is not stored byte for byte")
    return Checkpoint(FORMAT, tensors, skeleton, exact=exact, notes=notes, close=file.close)


def read_header(file: Source, entry: Entry) -> Header:
    """The checked header of an array in an archive."""
    label = f"{entry.name} in {file.name}"
    start = bytearray()
    needed = 12
    pieces = archive.stream(file, entry, entry.size)
    while len(start) < needed:
        piece = next(pieces, b"")
        start += piece
        if len(start) >= 12 or not piece:
            needed = header_length(start[:12], label)
            if not piece and len(start) < needed:
                raise Damaged(f"{label} is truncated")
    header = parse(start[:needed], label)
    check_size(header, entry.size, label)
    return header


def _readers(file: Source, entry: Entry, header: Header) -> tuple[Callable[[], Raw], Part | None]:
    def whole() -> Raw:
        return memoryview(archive.read(file, entry, entry.size))[header.length :]

    verified = False

    def part(start: int, size: int) -> Raw:
        nonlocal verified
        if not verified:
            for _ in archive.stream(file, entry, entry.size):  # the checksum covers all of it
                pass
            verified = True
        return file.read(entry.offset + header.length + start, size)

    return whole, part if entry.method == archive.STORED else None


def _piece(index: int, header: Header) -> Piece:
    order = "F" if header.column_major else "C"
    return Piece(index, 0, header.nbytes, order, header.unit)


def _tensor(name: str, header: Header, read: Callable[[], Raw], part: Part | None) -> Tensor:
    def arranged() -> Raw:
        data = swap(read(), header.unit)
        if header.column_major:
            data = transpose(data, header.shape[::-1], header.item)
        return data

    as_it_is = header.unit == 1 and not header.column_major
    part = part if as_it_is else None
    return Tensor(name, header.dtype, header.shape, header.nbytes, arranged, part=part)
