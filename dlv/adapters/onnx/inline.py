"""The skeleton of an ONNX file whose tensors lie in other files: one file that holds them all.

The message of the graph is written again around such tensors; everything else stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlv.adapters import splice
from dlv.adapters.onnx.model import Model
from dlv.adapters.onnx.tensors import TENSOR, Stored
from dlv.adapters.protobuf.reader import Span
from dlv.adapters.source import Source
from dlv.errors import Damaged, UsageError

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_MOST = (1 << 31) - 1  # what protobuf's readers take


def skeleton(
    file: Source, model: Model, tensors: Sequence[Stored], inner: Sequence[tuple[int, splice.Piece]]
) -> tuple[bytes, int]:
    """The skeleton and the size of the file that it makes.

    `inner` are the places of the tensors that lie in the file itself.
    """
    graph, numbers = model.span, {id(stored): number for number, stored in enumerate(tensors)}
    for operator in model.graph.operators:
        if any(isinstance(v, Stored) and v.external for v in operator.attrs.values()):
            raise UsageError("a Constant lies in another file", why=operator.name)
    changes: list[tuple[int, int, list[splice.Segment]]] = []  # from, to, what stands there
    grown = 0
    for stored in model.graph.stored.values():
        if stored.external is None:
            continue
        head = _message(stored)
        size = len(head) + stored.nbytes
        start = _start(file, stored.span, _INITIALIZER)
        end = stored.span.offset + stored.span.size
        piece: list[splice.Segment] = [_prefix(_INITIALIZER, size) + head]
        if id(stored) not in numbers:  # numbers that became attributes
            piece.append(bytes(stored.read()))
        elif stored.nbytes:
            piece.append(splice.Piece(numbers[id(stored)], 0, stored.nbytes))
        changes.append((start, end, piece))
        grown += len(_prefix(_INITIALIZER, size)) + size - (end - start)
    start = _start(file, graph, _GRAPH)
    changes.append((start, graph.offset, [_prefix(_GRAPH, graph.size + grown)]))
    changes += [(at, at + piece.size, [piece]) for at, piece in inner if piece.size]
    segments: list[splice.Segment] = []
    position = 0
    for start, end, made in sorted(changes, key=lambda change: change[0]):
        segments += [bytes(file.read(position, start - position)), *made]
        position = end
    segments.append(bytes(file.read(position, file.size - position)))
    total = sum(len(s) if isinstance(s, bytes) else s.size for s in segments)
    return splice.make(segments), total


def too_large(size: int) -> bool:
    return size > _MOST


def _prefix(number: int, size: int) -> bytes:
    """Tag and length of a field."""
    made = bytearray([number << 3 | 2])
    while size >= 0x80:
        made.append(size & 0x7F | 0x80)
        size >>= 7
    made.append(size)
    return bytes(made)


def _start(file: Source, span: Span, number: int) -> int:
    """Where the field begins whose content is `span`."""
    prefix = _prefix(number, span.size)
    start = span.offset - len(prefix)
    if start < 0 or file.read(start, len(prefix)) != prefix:
        raise Damaged(f"{file.name} writes lengths in an odd way", why=f"at byte {span.offset}")
    return start


def _message(stored: Stored) -> bytes:
    """The tensor's message up to its elements: what it had, without where they were."""
    given, made = TENSOR.read(stored.span), bytearray()
    for dim in given["dims"]:
        made += b"\x08" + _varint(dim)
    made += b"\x10" + _varint(stored.code)
    made += _field(8, stored.name.encode("utf-8"))
    if given["doc_string"] is not None:
        made += _field(12, bytes(given["doc_string"].bytes()))
    for entry in given["metadata_props"]:
        made += _field(16, bytes(entry.bytes()))
    return bytes(made) + _prefix(_RAW_DATA, stored.nbytes)


def _field(number: int, data: bytes) -> bytes:
    tag = _varint(number << 3 | 2)
    return tag + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    return _prefix(0, value)[1:]
