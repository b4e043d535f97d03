"""GGUF files (llama.cpp and its kin): keys with values, tensor descriptions, aligned tensors.

Tensors of whole numbers or floats are plain dtypes; blocks of quantised numbers are kept as
they are, as `raw:Q4_K` and so on (`raw:Q4_K_BE` in a big-endian file, whose blocks differ).
Shapes are in our order, the reverse of GGUF's. Skeleton: splice form.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from dlv.adapters import splice
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.adapters.gguf.header import (
    ALIGNMENT,
    MOST_AXES,
    MOST_NAME_BYTES,
    TYPES,
    Entry,
    Header,
    read_header,
)
from dlv.adapters.order import swap
from dlv.adapters.source import Source
from dlv.adapters.splice import Piece
from dlv.canonical import dumps, number
from dlv.dtypes import ITEM_BYTES, block_of, tensor_bytes
from dlv.errors import Damaged, UnsafeInput, UsageError
from dlv.kinds import Raw

FORMAT = "gguf"
SUFFIX = ".gguf"

_THERE = {dtype: number for number, dtype in TYPES.items()}
_LONGEST_TEXT = 1000
_TEXT = 8


@dataclass(frozen=True)
class _Place:
    """Where a tensor lies, and of how many bytes a number in it is made."""

    offset: int
    size: int
    unit: int


def open(path: str) -> Checkpoint:  # noqa: A001 (the name in the Adapter protocol)
    """Check all of the header against the file; tensors are read when they are asked for."""
    file = Source(path)
    try:
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
        skeleton = splice.cut(file, pieces)
    except BaseException:
        file.close()
        raise
    return Checkpoint(
        FORMAT,
        tensors,
        skeleton,
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
            raise UsageError(f"gguf cannot hold two tensors called {tensor.name}")
        seen.add(tensor.name)
    head = [b"GGUF", _number(3, 4), _number(len(tensors), 8), _number(len(metadata), 8)]
    for key, value in sorted(metadata.items()):
        head += [_text(key), _number(_TEXT, 4), _text(value)]
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
                f"{file.name} ends too early",
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
            f"{file.name} has not the length that its header says",
            why=f"{file.size} bytes instead of {least}",
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
