"""safetensors files: a JSON header, then the tensors back to back.

Skeleton: the eight bytes of length and the header, verbatim. Nothing else is in such a file,
so it comes back byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO

from dlv.adapters.checkpoint import Checkpoint, Part, Tensor
from dlv.adapters.source import Source, opened
from dlv.dataclass import dataclass
from dlv.dtypes import block_of
from dlv.errors import Damaged, NewerFormat, UnsafeInput, UsageError

FORMAT = "safetensors"
SUFFIX = ".safetensors"

MOST_HEADER_BYTES = 100_000_000  # the library's own limit
MOST_METADATA_BYTES = 16 << 20
MOST_METADATA = 100_000
MOST_TENSORS = 100_000
_MOST_ENTRY_BYTES = 4096

# Name there -> name here; in the library's order, which `save` sorts by.
DTYPES = {
    "BOOL": "bool",
    "F4": "raw:F4",
    "F6_E2M3": "raw:F6_E2M3",
    "F6_E3M2": "raw:F6_E3M2",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3",
    "F8_E8M0": "float8_e8m0",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
_THERE = {here: there for there, here in DTYPES.items()}
_RANK = {there: rank for rank, there in enumerate(DTYPES)}

_METADATA = "__metadata__"
_STEP_KEYS = ("step", "global_step")

# Possessive, so that a long header costs no memory for backtracking.
_TEXT = rb'("(?:[^"\\\x00-\x1f]++|\\.)*+")'
_BLANK = rb"[ \t\n\r]*+"
_OPEN = re.compile(rb"\{" + _BLANK)
_KEY = re.compile(_TEXT + _BLANK + rb":" + _BLANK, re.DOTALL)
_VALUE = re.compile(_TEXT, re.DOTALL)
_ENTRY = re.compile(rb"\{[^{}]*+\}")
_EMPTY = re.compile(rb"\}" + _BLANK)
_NEXT = re.compile(_BLANK + rb"([,}])" + _BLANK)


@dataclass(frozen=True)
class _Entry:
    """A tensor as the header describes it; offsets count from the end of the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def open(path: str) -> Checkpoint:  # noqa: A001 (the name in the Adapter protocol)
    """Check the whole header against the file; tensors are read when they are asked for."""
    return opened(path, _open)


def _open(file: Source) -> Checkpoint:
    if file.size < 8:
        raise Damaged(f"{file.name} is too short for safetensors", why=f"{file.size} bytes")
    length = int.from_bytes(file.read(0, 8), "little")
    if length > MOST_HEADER_BYTES:
        raise UnsafeInput(
            f"the header of {file.name} is too large",
            why=f"it declares {length} bytes, the limit is {MOST_HEADER_BYTES}",
        )
    skeleton = bytes(file.read(0, 8 + length))
    entries, step = _read_header(skeleton, file.name)
    data, declared = file.size - len(skeleton), entries[-1].end if entries else 0
    if declared != data:
        raise Damaged(
            f"{file.name} has the wrong length",
            why=f"{data} bytes of tensors instead of {declared}",
        )
    tensors = [
        Tensor(
            entry.name,
            DTYPES[entry.dtype],
            entry.shape,
            entry.end - entry.begin,
            partial(file.read, len(skeleton) + entry.begin, entry.end - entry.begin),
            part=_part(file, len(skeleton) + entry.begin),
        )
        for entry in entries
    ]
    return Checkpoint(FORMAT, tensors, skeleton, exact=True, step=step, close=file.close)


def restore(out: BinaryIO, skeleton: bytes, tensors: Sequence[Tensor]) -> None:
    """Write the identical file; the skeleton is checked like a file's header."""
    if len(skeleton) < 8 or int.from_bytes(skeleton[:8], "little") != len(skeleton) - 8:
        raise Damaged("a safetensors skeleton has a wrong length")
    entries, _ = _read_header(skeleton, "a safetensors skeleton")
    if [entry.end - entry.begin for entry in entries] != [tensor.nbytes for tensor in tensors]:
        raise Damaged("a safetensors skeleton does not fit its tensors")
    out.write(skeleton)
    for tensor in tensors:
        tensor.copy_to(out)


def save(out: BinaryIO, tensors: Sequence[Tensor], metadata: dict[str, str]) -> None:
    """Write a fresh file with the order, padding and header form of the library."""
    header: dict[str, Any] = {}
    if metadata:
        header[_METADATA] = dict(sorted(metadata.items()))
    for tensor in tensors:
        if tensor.dtype not in _THERE:
            raise UsageError(
                f"safetensors cannot hold {tensor.dtype}",
                why=f"the tensor {tensor.name} has this type",
                hint="leave it out, or export to another format",
            )
    ordered = sorted(tensors, key=lambda t: (-_RANK[_THERE[t.dtype]], t.name.encode("utf-8")))
    position = 0
    for tensor in ordered:
        if tensor.name in header or tensor.name == _METADATA:
            raise UsageError(f"safetensors cannot hold two entries named {tensor.name}")
        header[tensor.name] = {
            "dtype": _THERE[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [position, position + tensor.nbytes],
        }
        position += tensor.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)  # tensors begin aligned
    out.write(len(text).to_bytes(8, "little"))
    out.write(text)
    for tensor in ordered:
        tensor.copy_to(out)


def _part(file: Source, offset: int) -> Part:
    return lambda start, size: file.read(offset + start, size)


def _read_header(skeleton: bytes, label: str) -> tuple[list[_Entry], int | None]:
    """Tensors by offset, without holes or overlaps, and the step if the metadata have it."""
    entries: list[_Entry] = []
    step = None
    header = _Header(skeleton, label)
    for name in header.members():
        if name == _METADATA:
            step = _read_metadata(header)
            continue
        if len(entries) == MOST_TENSORS:
            raise UnsafeInput(f"{label} has too many tensors", why=f"more than {MOST_TENSORS}")
        entries.append(_read_entry(name, header))
    header.finish()
    entries.sort(key=lambda entry: (entry.begin, entry.end))
    position = 0
    for entry in entries:
        if entry.begin != position:
            kind = "overlap" if entry.begin < position else "leave a hole"
            raise UnsafeInput(
                f"the tensors of {label} {kind}",
                why=f"{entry.name!r} begins at {entry.begin}, expected {position}",
            )
        position = entry.end
    return entries, step


def _read_metadata(header: _Header) -> int | None:
    """Texts under texts; only the step is of use, the rest stays in the skeleton."""
    start = header.at
    steps: dict[str, str] = {}
    for count, key in enumerate(header.members()):
        value = header.text(header.take(_VALUE))
        if header.at - start > MOST_METADATA_BYTES or count == MOST_METADATA:
            raise UnsafeInput(f"the metadata of {header.label} are too large")
        if key in _STEP_KEYS:
            steps[key] = value
    for key in _STEP_KEYS:
        if re.fullmatch("[0-9]{1,18}", steps.get(key, "")):
            return int(steps[key])
    return None


def _read_entry(name: str, header: _Header) -> _Entry:
    text = header.take(_ENTRY).group()
    if len(text) > _MOST_ENTRY_BYTES:
        raise UnsafeInput(f"the header of {header.label} is wrong at {name!r}", why="too long")
    problem = f"the header of {header.label} is wrong at {name!r}"
    if "\0" in name:
        raise UnsafeInput(problem, why="a NUL in the name")
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        raise Damaged(problem, why=str(error)) from error
    fields = dict(pairs)
    if len(pairs) != 3 or set(fields) != {"dtype", "shape", "data_offsets"}:
        raise Damaged(problem, why="it needs dtype, shape and data_offsets, each once")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or not _are_counts(shape) or not _are_counts(offsets):
        raise Damaged(problem, why="dtype is a string, shape and offsets are lists of counts")
    if dtype not in DTYPES:
        raise NewerFormat(problem, why=f"its dtype {dtype} is unknown")
    elements, size = block_of(DTYPES[dtype])
    bits = 8 * size // elements
    for side in shape:
        bits *= max(side, 1)  # a zero elsewhere does not make an absurd side sensible
        if bits >= 1 << 66:
            raise UnsafeInput(problem, why=f"the shape {shape} overflows")
    if 0 in shape:
        bits = 0
    if len(offsets) != 2 or (offsets[1] - offsets[0]) * 8 != bits:
        raise UnsafeInput(
            problem, why=f"{dtype} {shape} takes {bits / 8:g} bytes, its offsets are {offsets}"
        )
    return _Entry(name, dtype, tuple(shape), offsets[0], offsets[1])


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in value)


class _Header:
    """A scanner over the header: no recursion, and no tree of objects as large as a file likes."""

    def __init__(self, data: bytes, label: str) -> None:
        self.data = data
        self.label = label
        self.at = 8

    def members(self) -> Iterator[str]:
        """The keys of the object that begins here; the caller takes each value."""
        self.take(_OPEN)
        if empty := _EMPTY.match(self.data, self.at):
            self.at = empty.end()
            return
        seen: set[str] = set()
        while True:
            key = self.text(self.take(_KEY))
            if key in seen:
                raise UnsafeInput(f"the header of {self.label} names {key!r} twice")
            seen.add(key)
            yield key
            if self.take(_NEXT)[1] == b"}":
                return

    def take(self, pattern: re.Pattern[bytes]) -> re.Match[bytes]:
        match = pattern.match(self.data, self.at)
        if match is None:
            raise Damaged(f"the header of {self.label} is not JSON", why=f"at byte {self.at}")
        self.at = match.end()
        return match

    def text(self, match: re.Match[bytes]) -> str:
        try:
            text = json.loads(match[1].decode("utf-8"))
            text.encode("utf-8")  # a lone surrogate, written as \u escape, is no text
        except ValueError as error:
            raise Damaged(f"the header of {self.label} is not JSON", why=str(error)) from error
        return str(text)

    def finish(self) -> None:
        if self.at != len(self.data):
            raise Damaged(f"the header of {self.label} continues after its end")
