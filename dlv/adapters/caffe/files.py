"""Caffe: networks as text (`.prototxt`), and trained ones with their weights (`.caffemodel`).

Tensors are called `layer.weight`, `layer.bias`, others `layer.blob0` and so on. BatchNorm keeps
sums and the number that divides them: unless that is one, the sums are `blob0` and `blob1`, as
they are in the file, and `running_mean` and `running_var` are worked out as Caffe does it.
Skeleton: splice form; the numbers of a blob lie in one piece.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import BinaryIO

from dlv.adapters import splice
from dlv.adapters.caffe import prototxt
from dlv.adapters.caffe.graph import build
from dlv.adapters.caffe.layers import translate
from dlv.adapters.caffe.spec import MOST_FIELDS, Blob, Layer, read_net, read_spec
from dlv.adapters.checkpoint import Checkpoint, Part, Tensor
from dlv.adapters.protobuf import Span, message, packed_bytes
from dlv.adapters.source import Source, opened
from dlv.adapters.splice import Piece
from dlv.errors import Damaged, UsageError
from dlv.kinds import Raw
from dlv.network.graph import Network

FORMAT = "caffemodel"
SUFFIX = ".caffemodel"
TEXT_FORMAT = "prototxt"

_HEAD = 64 << 10
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
# Axes of the blobs that the oldest files fill up to four.
_AXES = {"InnerProduct": (2, 1), "Embed": (2, 1), "Convolution": (4, 1), "Deconvolution": (4, 1)}
_BATCH_NORM = ("running_mean", "running_var")


def open(path: str) -> Checkpoint:  # noqa: A001 (the name in the Adapter protocol)
    """A network with its weights, or, from a text, a network alone."""
    return opened(path, _open)


restore = splice.restore


def save(out: BinaryIO, tensors: Sequence[Tensor], metadata: dict[str, str]) -> None:
    """Not offered: a .caffemodel holds a network of Caffe's layers."""
    del out, tensors, metadata
    raise UsageError(
        "dlv does not write Caffe files",
        why="their networks are made of Caffe's own layers",
        hint="export the weights to safetensors, or the network to onnx",
    )


def _open(file: Source) -> Checkpoint:
    if _CONTROL.search(file.read(0, min(file.size, _HEAD))):
        return _open_weights(file)
    file.close()
    net = prototxt.read(file.path)
    spec = read_spec(net)
    network, notes = build(spec, translate)
    if any("blobs" in layer.body for layer in spec.every):
        notes.append("weights that are written as text are not read")
    return Checkpoint(TEXT_FORMAT, [], notes=notes, network=network)


def _open_weights(file: Source) -> Checkpoint:
    net, blobs = read_net(message(file, most_fields=MOST_FIELDS))
    spec = read_spec(net, blobs)
    tensors: list[Tensor] = []
    pieces: list[tuple[int, Piece]] = []
    notes: list[str] = []
    exact = True
    for layer in spec.every:
        for tensor, spans in _tensors(layer):
            start = 0
            for span in spans:
                exact = exact and span.file is file
                pieces.append((span.offset, Piece(len(tensors), start, span.size)))
                start += span.size
            tensors.append(tensor)
    _check_names(tensors, file.name)
    network: Network | None = None
    try:
        network, notes = build(spec, translate)
        network = _tie(network, tensors, notes)
    except Damaged as error:
        # The weights are sound; what connects them is not needed to keep them.
        notes = [f"its network cannot be read: {error.message}, {error.why}"]
    if not exact:
        notes.append("its numbers are not packed: they are kept, the file is not byte for byte")
    return Checkpoint(
        FORMAT,
        tensors,
        splice.cut(file, [piece for piece in pieces if piece[1].size]) if exact else None,
        exact=exact,
        notes=notes,
        close=file.close,
        network=network,
    )


def _check_names(tensors: Sequence[Tensor], label: str) -> None:
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise Damaged(f"{label} has two tensors named {tensor.name!r}")
        seen.add(tensor.name)


def _tensors(layer: Layer) -> list[tuple[Tensor, tuple[Span, ...]]]:
    """The blobs of a layer, and where their bytes lie; nowhere for what is worked out."""
    slots = [layer.slot(index) for index in range(len(layer.blobs))]
    factor = _factor(layer)
    if factor == 1:
        slots[:2] = _BATCH_NORM
    found = []
    for index, (slot, blob) in enumerate(zip(slots, layer.blobs, strict=True)):
        role = "weight"
        if layer.type == "BatchNorm":
            role = "buffer" if slot in _BATCH_NORM else "extra"
        name = layer.tensor(slot)
        shape = _shape(layer, index, blob)
        found.append((_tensor(name, blob.dtype, shape, blob.spans, role), blob.spans))
        if blob.gradient:
            tensor = _tensor(f"{name}.diff", blob.dtype, shape, blob.gradient, "extra")
            found.append((tensor, blob.gradient))
    if factor is not None and factor != 1:
        for slot, blob in zip(_BATCH_NORM, layer.blobs, strict=False):
            read = partial(_scaled, blob, factor)
            shape = _shape(layer, 0, blob)
            name = layer.tensor(slot)
            tensor = Tensor(name, blob.dtype, shape, blob.nbytes, read, "buffer")
            found.append((tensor, ()))
    return found


def _tensor(
    name: str, dtype: str, shape: tuple[int, ...], spans: tuple[Span, ...], role: str
) -> Tensor:
    size = sum(span.size for span in spans)
    read: Callable[[], Raw] = partial(packed_bytes, spans, size) if spans else bytes
    part = _part(spans[0]) if len(spans) == 1 else None
    return Tensor(name, dtype, shape, size, read, role, part=part)


def _part(span: Span) -> Part:
    return lambda start, size: span.file.read(span.offset + start, size)


def _shape(layer: Layer, index: int, blob: Blob) -> tuple[int, ...]:
    """The shape of a blob; in the oldest files without the ones that fill it up to four axes.

    Caffe itself takes (1, 1, 500, 800) for (500, 800) there; the elements are the same.
    """
    if not blob.legacy:
        return blob.shape
    known = _AXES.get(layer.type, ())
    axes = known[index] if index < len(known) else 1
    shape = blob.shape
    while len(shape) > axes and shape[0] == 1:
        shape = shape[1:]
    return shape


def _factor(layer: Layer) -> float | None:
    """The number that divides the sums of a BatchNorm; None for another layer."""
    blobs = layer.blobs
    if layer.type != "BatchNorm" or len(blobs) != 3 or len({blob.dtype for blob in blobs}) != 1:
        return None
    if blobs[2].nbytes != (4 if blobs[2].dtype == "float32" else 8):
        return None
    return _numbers(blobs[2])[0]


def _numbers(blob: Blob) -> array[float]:
    numbers = array("f" if blob.dtype == "float32" else "d")
    numbers.frombytes(packed_bytes(blob.spans, blob.nbytes))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _scaled(blob: Blob, factor: float) -> bytes:
    """The sums times the inverse of the factor, rounded where Caffe rounds."""
    kind = "f" if blob.dtype == "float32" else "d"
    inverse = array(kind, [1 / factor if factor else 0.0])[0]
    numbers = array(kind, [number * inverse for number in _numbers(blob)])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _tie(network: Network, tensors: list[Tensor], notes: list[str]) -> Network:
    """Blobs that layers share are one tensor, if the file does not say otherwise."""
    if not network.aliases:
        return network
    place = {tensor.name: index for index, tensor in enumerate(tensors)}
    aliases = {}
    for name, kept in network.aliases.items():
        if name in place and kept in place:
            first, second = tensors[place[kept]], tensors[place[name]]
            if place[kept] > place[name] or first.content_hash() != second.content_hash():
                notes.append(f"{name} is shared with {kept}, but holds other numbers")
                continue
            tensors[place[name]] = replace(second, tied=kept)
        aliases[name] = kept
    return replace(network, aliases=aliases)
