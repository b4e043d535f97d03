"""Tensors of an ONNX file: described and checked first, read when they are asked for.

Their bytes may lie in files beside it, which are opened only below the folder of the model.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

from dlv.adapters.checkpoint import PART, Part, Tensor
from dlv.adapters.protobuf import Schema, Span, packed_bytes, varints
from dlv.adapters.source import Source
from dlv.dataclass import dataclass
from dlv.dtypes import ONNX_DTYPES, STRUCT_CODES, block_of
from dlv.errors import Damaged, NewerFormat, NotFound, StorageError, UnsafeInput
from dlv.kinds import Raw

_MOST_OPEN = 16  # a model may have a file for each tensor
_MOST_FILES = 100_000
_MOST_LENGTH = 4096
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a FIFO would wait for a writer that never comes.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _Beside(Source):
    """A file that was opened step by step, no link followed."""

    def __init__(self, folder: str, location: str, owner: str) -> None:
        self.path = os.path.join(folder, location)
        self.name = location
        self._descriptor = -1
        self._descriptor = _descend(folder, location, owner)
        status = os.fstat(self._descriptor)
        problem = None
        if not stat.S_ISREG(status.st_mode):
            problem = "it is not a regular file"
        elif status.st_nlink != 1:
            problem = "the file has a second name elsewhere (a hard link)"
        if problem:
            self.close()
            raise _refused(owner, location, problem)
        self.size = status.st_size


class External:
    """The files beside a model, opened when they are read."""

    def __init__(self, path: str) -> None:
        self.folder = os.path.dirname(os.path.abspath(path))
        self.name = os.path.basename(path)
        self.locations: dict[str, int] = {}  # with the size each file had
        self._open: OrderedDict[str, Source] = OrderedDict()

    @property
    def paths(self) -> list[str]:
        return [os.path.join(self.folder, location) for location in sorted(self.locations)]

    def check(self, location: str, offset: int, size: int) -> None:
        """Whether a file gives so many bytes; nothing is read."""
        _check_name(location, self.name)
        if location not in self.locations:
            if len(self.locations) == _MOST_FILES:
                raise UnsafeInput(f"{self.name} names too many files")
            self.locations[location] = self.source(location).size
        have = self.locations[location]
        if offset + size > have:
            raise Damaged(
                f"{location} is too short for {self.name}",
                why=f"bytes {offset} to {offset + size} are needed, the file has {have}",
            )

    def read(self, location: str, offset: int, size: int) -> bytearray:
        return self.source(location).read(offset, size)

    def whole(self, location: str) -> Iterator[bytearray]:
        """A file's bytes, in pieces."""
        size = self.locations[location]
        for start in range(0, size, PART):
            yield self.read(location, start, min(PART, size - start))

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def source(self, location: str) -> Source:
        file = self._open.get(location)
        if file is None:
            while len(self._open) >= _MOST_OPEN:
                self._open.popitem(last=False)[1].close()
            file = self._open[location] = _Beside(self.folder, location, self.name)
        self._open.move_to_end(location)
        return file


def _check_name(location: str, owner: str) -> None:
    parts = location.split("/")
    if not location or "\0" in location or len(location) > _MOST_LENGTH:
        raise _refused(owner, location, "this is not a file name")
    if location.startswith("/") or "\\" in location or location[1:2] == ":":
        raise _refused(owner, location, "the path is not relative to the model")
    if ".." in parts or not parts[-1].strip("."):
        raise _refused(owner, location, "the path leads out of the model's folder")


def _descend(folder: str, location: str, owner: str) -> int:
    parts = [part for part in location.split("/") if part not in ("", ".")]
    try:
        here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for place, part in enumerate(parts):
            flags = _FILE if place == len(parts) - 1 else _FOLDER
            try:
                following = os.open(part, flags, dir_fd=here)
            finally:
                os.close(here)
            here = following
    except FileNotFoundError as error:
        raise NotFound(
            f"{owner} keeps weights in {location}, which is not there",
            why=error.strerror,
            hint="put the file next to the model, as it was exported",
        ) from error
    except OSError as error:
        # ELOOP and ENOTDIR: a link, or a file on the way.
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _refused(owner, location, "it is a symbolic link, or below one") from error
        raise StorageError(f"cannot read {location}", why=error.strerror) from error
    return here


def _refused(owner: str, location: str, why: str) -> UnsafeInput:
    return UnsafeInput(
        f"{owner} wants its weights from {location[:200]!r}",
        why=why,
        hint="weights of a model are in plain files in its own folder",
    )


MOST_DIMENSIONS = 64
_MOST_OFFSET = 1 << 62
STRING = 8

# TensorProto.DataType of elements that dlv keeps as bytes.
RAW_TYPES = {
    0: "raw:UNDEFINED",
    STRING: "raw:STRING",
    21: "raw:UINT4",
    22: "raw:INT4",
    23: "raw:FLOAT4E2M1",
    25: "raw:UINT2",
    26: "raw:INT2",
    27: "raw:FLOAT6E2M3",
    28: "raw:FLOAT6E3M2",
}
# The field that holds the elements if `raw_data` does not; `int32_data` for all others.
_HOMES = {
    "float32": "float_data",
    "complex64": "float_data",
    "float64": "double_data",
    "complex128": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
}
_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")

TENSOR = Schema(
    "TensorProto",
    {
        1: "dims int*",
        2: "data_type int32",
        3: "segment message",
        4: "float_data fixed32s",
        5: "int32_data varints",
        6: "string_data message*",
        7: "int64_data varints",
        8: "name text",
        9: "raw_data message",
        10: "double_data fixed64s",
        11: "uint64_data varints",
        12: "doc_string message",
        13: "external_data message*",
        14: "data_location int32",
        16: "metadata_props message*",
    },
)
_ENTRY = Schema("StringStringEntryProto", {1: "key text", 2: "value text"})


@dataclass(eq=False)
class Stored:
    """A tensor as the file describes it. `span`: its message; `place`: where in the file or in
    which file beside it the elements lie plainly; None: they are written in some other form.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    span: Span
    read: Callable[[], Raw]
    code: int = 0
    place: int | tuple[str, int] | None = None
    pieces: tuple[Span, ...] = ()  # of `float_data` and `double_data`
    part: Part | None = None
    label: str = ""  # by which messages call it
    _values: tuple[Any, ...] | None = field(default=None, repr=False)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def external(self) -> tuple[str, int] | None:
        return self.place if isinstance(self.place, tuple) else None

    def values(self, most: int = 4096) -> tuple[Any, ...] | None:
        """The elements as Python numbers, in C order; None if they are many or of odd dtypes."""
        if self.elements > most or self.dtype not in STRUCT_CODES:
            return None
        if self._values is None:
            raw = bytes(self.read())
            self._values = struct.unpack(f"<{self.elements}{STRUCT_CODES[self.dtype]}", raw)
        return self._values

    def tensor(self, name: str, role: str = "weight") -> Tensor:
        return Tensor(name, self.dtype, self.shape, self.nbytes, self.read, role, part=self.part)


def dtype_of(code: int, label: str) -> str:
    """The name of a TensorProto.DataType."""
    dtype = dtype_named(code)
    if dtype is None:
        raise NewerFormat(f"{label} has a dtype that is unknown", why=f"number {code}")
    return dtype


def dtype_named(code: int) -> str | None:
    """The same; None for a number that is not known."""
    return ONNX_DTYPES[code].name if code in ONNX_DTYPES else RAW_TYPES.get(code)


def read_tensor(span: Span, external: External, *, name: str = "") -> Stored | None:
    """The checked description of a tensor; None for one of texts."""
    given = TENSOR.read(span)
    name = name or given["name"] or ""
    label = f"the tensor {name!r} of {span.file.name}"
    code = given["data_type"] or 0
    if code == STRING:
        return None
    dtype = dtype_of(code, label)
    if code == 0:
        raise Damaged(f"{label} has no dtype")
    if given["segment"] is not None:
        raise NewerFormat(f"{label} is one segment of several, which no program writes")
    home = _HOMES.get(dtype, "int32_data")
    elements, size = block_of(dtype)
    bits = 8 * size // elements
    shape = _shape(given["dims"], bits, label)
    count = math.prod(shape)
    nbytes = (count * bits + 7) // 8
    stored = Stored(name, dtype, shape, nbytes, span.detached(), bytes, code, label=label)
    present = [key for key in _FIELDS if given[key]] + ["raw_data"] * (
        given["raw_data"] is not None
    )
    if given["string_data"]:
        raise Damaged(f"{label} contains strings, its dtype is {dtype}")
    if given["data_location"] not in (None, 0, 1):
        raise NewerFormat(f"{label} is in an unknown place", why=f"{given['data_location']}")
    if given["data_location"] == 1:
        if present:
            raise UnsafeInput(f"{label} is in the file and outside of it")
        _take_external(stored, given["external_data"], external)
    elif len(present) > 1:
        raise UnsafeInput(f"{label} has its elements twice", why=" and ".join(present))
    elif present == ["raw_data"]:
        _take_raw(stored, given["raw_data"])
    elif present and present != [home]:
        raise Damaged(f"{label} has its elements in {present[0]}", why=f"its dtype is {dtype}")
    else:
        _take_typed(stored, given[home], home, bits)
    return stored


def _shape(dims: list[int], bits: int, label: str) -> tuple[int, ...]:
    if len(dims) > MOST_DIMENSIONS:
        raise UnsafeInput(f"{label} has {len(dims)} dimensions")
    total = bits
    for dim in dims:
        if dim < 0:
            raise Damaged(f"{label} has a negative length", why=f"{dims}")
        total *= max(dim, 1)  # a zero elsewhere does not make an absurd length sensible
        if total >= 1 << 63:
            raise UnsafeInput(f"the shape of {label} overflows", why=f"{dims}")
    return tuple(dims)


def _take_raw(stored: Stored, span: Span) -> None:
    _check_length(stored, span.size)
    file, offset, size = span.file, span.offset, span.size
    stored.place = offset
    stored.read = lambda: file.read(offset, size)
    stored.part = lambda start, count: file.read(offset + start, count)


def _check_length(stored: Stored, size: int) -> None:
    if size != stored.nbytes:
        raise Damaged(
            f"{stored.label} has a wrong length",
            why=f"{size} bytes, {stored.dtype} {list(stored.shape)} takes {stored.nbytes}",
        )


def _take_typed(stored: Stored, spans: list[Span], home: str, bits: int) -> None:
    nbytes = stored.nbytes
    if home in ("float_data", "double_data"):
        found = sum(span.size for span in spans)
        if found != nbytes:
            raise Damaged(f"{stored.label} has a wrong length", why=f"{found} bytes, not {nbytes}")
        stored.pieces = tuple(span.detached() for span in spans)
        stored.read = lambda: packed_bytes(spans, nbytes)
        return
    # What is narrower than a byte is packed into bytes first.
    width = max(bits // 8, 1)
    count = nbytes // width
    if count > sum(span.size for span in spans):
        raise Damaged(f"{stored.label} has too few elements", why=f"{count} are declared")
    stored.read = lambda: varints(spans, count, width)


def _take_external(stored: Stored, entries: list[Span], external: External) -> None:
    given: dict[str, str] = {}
    for span in entries:
        entry = _ENTRY.read(span)
        key = entry["key"] or ""
        if key in given:
            raise UnsafeInput(f"{stored.label} has two locations", why=key)
        given[key] = entry["value"] or ""
    location, offset = given.get("location", ""), _count(given, "offset", 0, stored.label)
    length = _count(given, "length", stored.nbytes, stored.label)
    _check_length(stored, length)
    external.check(location, offset, length)
    stored.place = location, offset
    stored.read = lambda: external.read(location, offset, length)
    stored.part = lambda start, count: external.read(location, offset + start, count)


def _count(entries: dict[str, str], key: str, default: int, label: str) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not text.isdecimal() or not text.isascii() or len(text) > 19 or int(text) > _MOST_OFFSET:
        raise UnsafeInput(f"{label} has a wrong {key}", why=f"{text[:40]!r}")
    return int(text)
