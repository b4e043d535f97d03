"""ONNX files: the graph as a network, initializers as tensors. Read without the onnx package.

Skeleton: the file with the elements of its tensors cut out, so that it comes back byte for
byte. A model whose weights lie in files beside it comes back as these files, or, where they
cannot be taken apart, as one file that holds everything.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO

from dlv.adapters import splice
from dlv.adapters.checkpoint import Apart, Checkpoint, Companion, Tensor
from dlv.adapters.onnx.model import NEWEST_OPSET, Model, read_model
from dlv.adapters.onnx.network import Built, build
from dlv.adapters.onnx.tensors import TENSOR, External, Stored
from dlv.adapters.protobuf import Span
from dlv.adapters.source import Source
from dlv.canonical import MAX_BYTES, dumps
from dlv.errors import Damaged, DlvError, UnsafeInput, UsageError
from dlv.network.graph import Port

FORMAT = "onnx"
SUFFIX = ".onnx"

_KEY = re.compile(r"[\w.:/ -]{1,64}")
_MOST_VALUE, _MOST_ENTRIES = 256, 64
_OWN = ("dlv", "step", "format")  # written by `export`
_SURELY_SMALL = 2000  # nodes
_LITERAL = 1 << 20  # bytes of a file of weights that may be no tensor's


def open(  # noqa: A001 (the name in the Adapter protocol)
    path: str, *, raw: Collection[str] = ()
) -> Checkpoint:
    """Check the whole file's structure; tensors are read when they are asked for.

    `raw`: values whose operators are kept as they are.
    """
    file = Source(path)
    external = External(path)

    def close() -> None:
        external.close()
        file.close()

    try:
        model = read_model(file, external)
        built = build(model, raw)
        result = _checkpoint(file, model, built)
        result.beside = external.paths
    except BaseException:
        close()
        raise
    result.close = close
    return result


@contextmanager
def _model(path: str) -> Iterator[Model]:
    file, external = Source(path), External(path)
    try:
        yield read_model(file, external)
    finally:
        external.close()
        file.close()


def outputs(path: str) -> list[str]:
    """What comes out, in the order of the network's outputs."""
    with _model(path) as model:
        return model.graph.outputs


def values(path: str, raw: Collection[str] = ()) -> dict[str, tuple[Port, str]]:
    """Where the values of the file stand in its network, and what makes them, producers first."""
    with _model(path) as model:
        places = build(model, raw).places
        made = {name: each for each in model.graph.operators for name in each.outputs if name}
    return {
        name: (places[name], f"{each.kind} {each.name}".strip())
        for name, each in made.items()
        if name in places
    }


def restore(out: BinaryIO, skeleton: bytes, tensors: Sequence[Tensor]) -> None:
    """Write the file again."""
    splice.restore(out, skeleton, tensors)


def save(out: BinaryIO, tensors: Sequence[Tensor], metadata: dict[str, str]) -> None:  # noqa: ARG001
    """An ONNX file is a network; tensors alone make none."""
    raise UsageError(
        "tensors alone make no ONNX file",
        why="it describes a network, and these weights have none",
        hint="dlv export --file-format safetensors",
    )


def _checkpoint(file: Source, model: Model, built: Built) -> Checkpoint:
    notes = list(built.notes)
    stored = [each for each, _ in built.tensors]
    pieces = _pieces(file, stored)
    external = bool(model.external.locations)
    skeleton: bytes | None = None
    apart: Apart | None = None
    try:
        if external:
            skeleton, size = inline_skeleton(file, model, stored, pieces)
            apart = _apart(file, model, stored, pieces)
            if apart is None:
                names = sorted(model.external.locations)
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                notes.append(
                    f"weights are taken from {', '.join(names[:3])}{more}; checkout writes one"
                    " file that holds them"
                )
                if too_large(size):
                    notes.append("that file will be larger than 2 GiB, which many programs refuse")
        else:
            skeleton = splice.cut(file, pieces)
    except DlvError as error:
        notes.append(f"{file.name} will not come back byte for byte: {error.message}")
    result = _with_notes(skeleton, external, model, built, notes)
    result.apart = apart
    network = built.network
    if len(network.nodes) > _SURELY_SMALL and len(dumps(network.canonical())) > MAX_BYTES:
        notes.append(f"the graph of {file.name} is too large: its weights are kept alone")
        return result
    result.network, result.constants = network, built.constants
    return result


def _with_notes(
    skeleton: bytes | None, external: bool, model: Model, built: Built, notes: list[str]
) -> Checkpoint:
    if model.opsets.get("", 1) > NEWEST_OPSET:
        notes.append(
            f"ONNX version {model.opsets['']} is newer than this dlv, which knows operators up to"
            f" version {NEWEST_OPSET}: all of them are stored as they are"
        )
    if model.trains:
        notes.append("the training information of the file is kept in it and not read")
    return Checkpoint(
        FORMAT,
        [tensor for _, tensor in built.tensors],
        skeleton,
        exact=skeleton is not None and not external,
        hyperparameters=_settings(model),
        notes=notes,
    )


def _pieces(file: Source, stored: Sequence[Stored]) -> list[tuple[int, splice.Piece]]:
    """Where in the file the elements of each tensor lie."""
    found: list[tuple[int, splice.Piece]] = []
    for number, each in enumerate(stored):
        if isinstance(each.place, int):
            found.append((each.place, splice.Piece(number, 0, each.nbytes)))
            continue
        start = 0
        for span in each.pieces:
            # A number that was not packed is no plain piece of the file.
            if span.file is file:
                found.append((span.offset, splice.Piece(number, start, span.size)))
            start += span.size
    return found


def _apart(
    file: Source, model: Model, stored: Sequence[Stored], inner: Sequence[tuple[int, splice.Piece]]
) -> Apart | None:
    """The skeletons of the model's own file and of those beside it; None: not all can be cut."""
    places: dict[str, dict[tuple[int, int], int]] = {name: {} for name in model.external.locations}
    for number, each in enumerate(stored):
        if each.external is not None:
            location, offset = each.external
            # Tensors that share all of their bytes are in the file once.
            places[location].setdefault((offset, each.nbytes), number)
    paths = {location: posixpath.normpath(location) for location in places}
    if len(set(paths.values())) < len(paths):
        return None
    companions = []
    try:
        for location, found in places.items():
            rest = model.external.locations[location] - sum(size for _, size in found)
            if rest > max(_LITERAL, model.external.locations[location] // 10):
                return None  # most likely another model's weights
            numbers = list(found.values())
            cuts = [
                (offset, splice.Piece(place, 0, size)) for place, (offset, size) in enumerate(found)
            ]
            skeleton = splice.cut(model.external.source(location), cuts)
            companions.append(
                Companion(
                    paths[location],
                    model.external.locations[location],
                    tuple(numbers),
                    skeleton,
                    partial(model.external.whole, location),
                )
            )
        return Apart(splice.cut(file, inner), tuple(companions))
    except UnsafeInput:
        return None


def _settings(model: Model) -> dict[str, str]:
    """What exporters noted about the model: short texts; what dlv noted is no setting of it."""
    metadata = model.metadata
    if model.producer.partition(" ")[0] == "dlv":
        metadata = {key: metadata[key] for key in metadata if key not in _OWN}
    if len(metadata) > _MOST_ENTRIES:
        return {}
    return {
        key: value
        for key, value in metadata.items()
        if _KEY.fullmatch(key) and value and len(value) <= _MOST_VALUE and value.isprintable()
    }


# The skeleton of a file whose tensors lie in others

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_MOST = (1 << 31) - 1  # what protobuf's readers take


def inline_skeleton(
    file: Source, model: Model, tensors: Sequence[Stored], inner: Sequence[tuple[int, splice.Piece]]
) -> tuple[bytes, int]:
    """The skeleton and the size of the file that it makes.

    `inner` are the places of the tensors that lie in the file itself.
    """
    graph, numbers = model.span, {id(stored): number for number, stored in enumerate(tensors)}
    for operator in model.graph.operators:
        if any(isinstance(v, Stored) and v.external for v in operator.attrs.values()):
            raise UsageError("a Constant is in another file", why=operator.name)
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
