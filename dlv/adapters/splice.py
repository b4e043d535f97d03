"""Skeleton of a file made of literal bytes and tensor bytes: which comes where.

Eight bytes length (little-endian), then canonical JSON `{"segments": [..], "splice": 1}`, then
all literals back to back. A segment is n (so many literal bytes), [tensor, start, n] (bytes of
a tensor) or [tensor, 0, n, order, unit]: the whole tensor in order "C" or "F", the bytes of
every `unit` reversed. Strided elements are brought to C order by slices of memoryviews.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO, Literal

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.source import Source
from dlv.canonical import MAX_BYTES, dumps, loads
from dlv.dataclass import dataclass
from dlv.errors import Damaged, NewerFormat, UnsafeInput
from dlv.kinds import Raw


def transpose(data: Raw, shape: Sequence[int], item: int) -> Raw:
    """C order -> Fortran order of an array of `shape`; the way back takes `shape` reversed."""
    sides = [side for side in shape if side != 1]
    if len(sides) < 2 or not len(data):
        return data
    word = math.gcd(item, 8)
    words = item // word
    view = memoryview(data).cast("B")
    if words == 1:
        return view.cast(_FORMATS[word], sides).tobytes("F")
    # Items wider than any format (complex128, text) move word by word.
    columns = view.cast(_FORMATS[word])
    result = bytearray(len(view))
    target = memoryview(result).cast(_FORMATS[word])
    for index in range(words):
        column = memoryview(columns[index::words].tobytes()).cast(_FORMATS[word], sides)
        target[index::words] = memoryview(column.tobytes("F")).cast(_FORMATS[word])
    return result


def swap(data: Raw, unit: int) -> Raw:
    """Reverse the bytes of every `unit`; its own inverse."""
    if unit == 1:
        return data
    result = bytearray(len(data))
    for index in range(unit):
        result[index::unit] = data[unit - 1 - index :: unit]
    return result


_FORMATS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}


def normal_form(
    shape: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same elements in the same order with as few axes as possible; a scalar has none."""
    sizes: list[int] = []
    steps: list[int] = []
    for size, step in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if sizes and steps[-1] == step * size:
            sizes[-1] *= size
            steps[-1] = step
        else:
            sizes.append(size)
            steps.append(step)
    return tuple(sizes), tuple(steps)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    return 0 in shape or normal_form(shape, strides)[1] in ((), (1,))


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements of storage lie between the first and the last, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))


def gather(
    data: bytes | bytearray, item: int, shape: Sequence[int], strides: Sequence[int]
) -> bytearray:
    """The elements of a view that begins at the start of `data`, in C order."""
    sizes, steps = normal_form(shape, strides)
    out = bytearray(item * math.prod(sizes))
    if not out:
        return out
    word = math.gcd(item, 8)
    if word != item:  # 16-byte elements: two words each
        sizes, steps = (*sizes, item // word), (*(step * (item // word) for step in steps), 1)
    source = memoryview(data)[: len(data) // word * word].cast(_FORMATS[word])
    target = memoryview(out).cast(_FORMATS[word])
    if not sizes:
        target[:] = source[:1]
        return out
    # Row-major steps of the result; the longest axis is the one that is copied by slices.
    placed = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    longest = max(range(len(sizes)), key=sizes.__getitem__)
    outer = [axis for axis in range(len(sizes)) if axis != longest]
    size, step, place = sizes[longest], steps[longest], placed[longest]
    index = [0] * len(outer)
    start = goal = 0
    while True:
        end = goal + (size - 1) * place + 1
        if step:
            target[goal:end:place] = source[start : start + (size - 1) * step + 1 : step]
        else:
            repeated = memoryview(source[start : start + 1].tobytes() * size)
            target[goal:end:place] = repeated.cast(_FORMATS[word])
        for position in range(len(outer) - 1, -1, -1):
            axis = outer[position]
            index[position] += 1
            start += steps[axis]
            goal += placed[axis]
            if index[position] < sizes[axis]:
                break
            start -= steps[axis] * sizes[axis]
            goal -= placed[axis] * sizes[axis]
            index[position] = 0
        else:
            return out


MOST_LITERAL_BYTES = 64 << 20
_UNITS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Piece:
    """`size` bytes of a tensor from `start`, perhaps in another order of elements and bytes."""

    tensor: int
    start: int
    size: int
    order: str = "C"
    unit: int = 1

    @property
    def plain(self) -> bool:
        return self.order == "C" and self.unit == 1


Segment = bytes | Piece


def make(segments: Iterable[Segment]) -> bytes:
    """The skeleton of a file that consists of `segments`."""
    rows: list[int | list[int | str]] = []
    literals: list[bytes] = []
    total = 0
    for segment in segments:
        if isinstance(segment, Piece):
            row: list[int | str] = [segment.tensor, segment.start, segment.size]
            rows.append(row if segment.plain else [*row, segment.order, segment.unit])
            continue
        if not segment:
            continue
        total += len(segment)
        if total > MOST_LITERAL_BYTES:
            raise UnsafeInput(
                "the file is too large besides its tensors",
                why=f"more than {MOST_LITERAL_BYTES >> 20} MiB",
            )
        literals.append(segment)
        if rows and isinstance(rows[-1], int):
            rows[-1] += len(segment)
        else:
            rows.append(len(segment))
    header = dumps({"splice": 1, "segments": rows})
    if len(header) > MAX_BYTES:
        raise UnsafeInput("the file has too many pieces", why=f"{len(rows)} segments")
    return b"".join([len(header).to_bytes(8, "little"), header, *literals])


def cut(file: Source, pieces: Iterable[tuple[int, Piece]]) -> bytes:
    """The skeleton of `file`, given where in it (offset) the tensors' pieces lie."""
    places = sorted(pieces, key=lambda place: (place[0], place[1].size))
    literal = file.size - sum(piece.size for _, piece in places)
    if literal > MOST_LITERAL_BYTES:
        raise UnsafeInput(f"{file.name} is too large besides its tensors", why=f"{literal} bytes")
    segments: list[Segment] = []
    position = 0
    for offset, piece in places:
        if offset < position:
            raise UnsafeInput(f"tensors overlap in {file.name}", why=f"at byte {offset}")
        segments.append(bytes(file.read(position, offset - position)))
        if piece.size:
            segments.append(piece)
        position = offset + piece.size
    segments.append(bytes(file.read(position, file.size - position)))
    return make(segments)


def parse(skeleton: bytes) -> list[Segment]:
    """The segments of a skeleton, which may come from another machine: nothing is believed."""
    length = int.from_bytes(skeleton[:8], "little")
    if len(skeleton) < 8 or length > min(MAX_BYTES, len(skeleton) - 8):
        raise Damaged("a skeleton is truncated")
    header = loads(skeleton[8 : 8 + length], "skeleton")
    if not isinstance(header, dict) or "splice" not in header:
        raise Damaged("a skeleton is not of the splice form")
    if header["splice"] != 1 or set(header) != {"splice", "segments"}:
        raise NewerFormat("a skeleton was written by a newer dlv", why=f"splice {header['splice']}")
    rows = header["segments"]
    if not isinstance(rows, list):
        raise Damaged("a skeleton has no list of segments")
    segments: list[Segment] = []
    position = 8 + length
    for row in rows:
        if not _is_count(row):
            segments.append(_read_piece(row))
            continue
        if row == 0 or row > len(skeleton) - position:
            raise Damaged("a skeleton lacks literal bytes")
        if segments and isinstance(segments[-1], bytes):
            raise Damaged("a skeleton is not in its shortest form")
        segments.append(skeleton[position : position + row])
        position += row
    if position != len(skeleton):
        raise Damaged("a skeleton is longer than its segments")
    return segments


def restore(out: BinaryIO, skeleton: bytes, tensors: Sequence[Tensor]) -> None:
    """Write the file again; everything is checked before the first byte is written."""
    segments = parse(skeleton)
    for segment in segments:
        if isinstance(segment, Piece):
            _check_piece(segment, tensors)
    held, data = -1, memoryview(b"")
    for segment in segments:
        if isinstance(segment, bytes):
            out.write(segment)
            continue
        tensor = tensors[segment.tensor]
        if segment.plain and segment.size == tensor.nbytes:
            held, data = -1, memoryview(b"")  # what was read holds only until the next one is
            tensor.copy_to(out)
            continue
        if segment.tensor != held:
            data = memoryview(b"")  # freed before the next one is read
            held, data = segment.tensor, _read(tensor)
        if segment.plain:
            out.write(data[segment.start : segment.start + segment.size])
        else:
            out.write(_arrange(data, tensor, segment))


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _read_piece(row: Any) -> Piece:
    if isinstance(row, list) and len(row) in (3, 5) and all(_is_count(n) for n in row[:3]):
        piece = Piece(*row)
        whole = not piece.start and piece.order in ("C", "F") and type(piece.unit) is int
        if piece.size and (len(row) == 3 or (whole and not piece.plain and piece.unit in _UNITS)):
            return piece
    raise Damaged("a skeleton contains a wrong segment", why=repr(row)[:100])


def _check_piece(piece: Piece, tensors: Sequence[Tensor]) -> None:
    if piece.tensor >= len(tensors):
        raise Damaged(
            "a skeleton names a tensor that is not there",
            why=f"number {piece.tensor} of {len(tensors)}",
        )
    tensor = tensors[piece.tensor]
    whole = piece.size == tensor.nbytes and tensor.nbytes % piece.unit == 0
    if piece.start + piece.size > tensor.nbytes or not (piece.plain or whole):
        raise Damaged(
            f"a skeleton does not fit the tensor {tensor.name}",
            why=f"bytes {piece.start} to {piece.start + piece.size} of {tensor.nbytes}",
        )


def _read(tensor: Tensor) -> memoryview:
    data = memoryview(tensor.read()).cast("B")
    if len(data) != tensor.nbytes:
        raise Damaged(
            f"the tensor {tensor.name} has a wrong length",
            why=f"{len(data)} bytes instead of {tensor.nbytes}",
        )
    return data


def _arrange(data: memoryview, tensor: Tensor, piece: Piece) -> Raw:
    result: Raw = data
    if piece.order == "F":
        elements = math.prod(tensor.shape)
        if elements < 1 or tensor.nbytes % elements:
            raise Damaged(f"a skeleton does not fit the tensor {tensor.name}", why="Fortran order")
        result = transpose(result, tensor.shape, tensor.nbytes // elements)
    return swap(result, piece.unit)
