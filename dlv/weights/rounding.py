"""Weights on their way into a version, rounded by a lossy scheme, and the files they lie in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from dlv.adapters import archive, registry
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.adapters.source import Source
from dlv.canonical import matrix_hasher
from dlv.dataclass import dataclass
from dlv.disk.durable import TemporaryFile, storage_error
from dlv.dtypes import ITEM_BYTES
from dlv.errors import DlvError
from dlv.kinds import Raw
from dlv.pas.layouts import schemes
from dlv.pas.layouts.schemes import Fit, Rounding, Scheme
from dlv.weights.snapshots import Weights

ROLE = "weight"  # buffers, an optimizer's state and whatever else there is stay exact


@dataclass
class Tally:
    """What one may wonder about of what a scheme did."""

    notes: list[str] = field(default_factory=list)

    def note(self, name: str, fit: Fit) -> None:
        if fit.why:
            self.notes.append(f"{name} stays exact: {fit.why}")


def suits(scheme: Scheme, tensor: Tensor) -> bool:
    """Whether a scheme is for such tensors."""
    return tensor.role == ROLE and schemes.suits(scheme, tensor.dtype, tensor.shape)


def fits(scheme: Scheme, tensor: Tensor) -> Fit | None:
    """The scheme made to measure for a tensor; None: it is not for such ones."""
    if not suits(scheme, tensor):
        return None
    return schemes.fit(scheme, tensor.dtype, tensor.shape, tensor.parts())


def rounded(tensor: Tensor, rounding: Rounding) -> Tensor:
    """The tensor as the scheme leaves it, rounded whenever it is read."""
    part = None if tensor.part is None else partial(_part, tensor, rounding)
    return replace(tensor, read=lambda: rounding.apply(tensor.read()), part=part)


def _part(tensor: Tensor, rounding: Rounding, start: int, size: int) -> Raw:
    """Some bytes of it, by way of the elements that they belong to."""
    assert tensor.part is not None
    item = ITEM_BYTES[tensor.dtype]
    first = start // item * item
    last = min(-(-(start + size) // item) * item, tensor.nbytes)
    made = rounding.apply(tensor.part(first, last - first))
    return made if len(made) == size else made[start - first : start - first + size]


# A whole file


def checkpoint(
    opened: Checkpoint, scheme: Scheme, tmp: Path, tally: Tally
) -> tuple[Checkpoint, dict[int, str]]:
    """The same file with rounded weights, and the hashes they had: place in the file -> hash."""
    made: dict[str, Fit | None] = {}
    tensors: list[Tensor] = []
    sources: dict[int, str] = {}
    for index, tensor in enumerate(opened.tensors):
        known = tensor.tied is not None and tensor.tied in made
        found = made[tensor.tied or ""] if known else fits(scheme, tensor)
        made[tensor.name] = found
        if found is not None:
            if not known:
                tally.note(tensor.name, found)
            sources[index] = found.source
        if found is None or found.rounding is None:
            tensors.append(tensor)
        else:
            tensors.append(rounded(tensor, found.rounding))
    if any(found is not None and found.rounding is not None for found in made.values()):
        frame = None
        if opened.skeleton is not None:
            frame = skeleton(opened.format, opened.skeleton, tensors, tmp)
        return replace(opened, tensors=tensors, skeleton=frame), sources
    return opened, sources


def with_sources(weights: Weights, sources: Mapping[str, Mapping[int, str]]) -> Weights:
    """The weights with the hashes before; `sources`: path -> place in that file -> hash."""
    snapshots = []
    for snapshot in weights.snapshots:
        before = list(snapshot.hashes)
        for container in snapshot.containers:
            for place, digest in sources.get(container.path, {}).items():
                before[container.tensors[place]] = digest
        snapshots.append(replace(snapshot, sources=tuple(before)))
    return replace(weights, snapshots=tuple(snapshots))


def changed(weights: Weights) -> int:
    """How many matrices are no longer what they were."""
    pairs = {
        (old, new)
        for snapshot in weights.snapshots
        for old, new in zip(snapshot.sources or snapshot.hashes, snapshot.hashes, strict=True)
    }
    return sum(old != new for old, new in pairs)


# No checksum of the numbers stands in these; a part of such a model cannot be opened alone.
_UNCHECKED = frozenset(("onnx",))


def skeleton(format_: str, frame: bytes, tensors: Sequence[Tensor], tmp: Path) -> bytes | None:
    """What a file has besides its tensors, once these are others: checksums may stand in it.

    The file is made once and opened like any other: only if it is whole and holds just these
    tensors is it one that `checkout` may write. None: a fresh file will have to do.
    """
    if format_ in _UNCHECKED:
        return frame
    adapter = registry.adapter(format_)
    with TemporaryFile(tmp, suffix=adapter.SUFFIX) as out:
        adapter.restore(cast(BinaryIO, out), frame, tensors)
        with Source(str(out.path)) as file:
            zipped = bytes(file.read(0, min(4, file.size))) == b"PK\3\4"
        if zipped:
            _seal(out.path)
        try:
            opened = adapter.open(str(out.path))
        except DlvError:
            return None
        try:
            same = _names(opened.tensors) == _names(tensors)
            return opened.skeleton if same else None
        except DlvError:
            return None
        finally:
            opened.close()


def _seal(path: Path) -> None:
    with Source(str(path)) as file:
        patches = archive.renewed_checksums(file)
    try:
        with open(path, "r+b") as out:
            for place, data in patches:
                out.seek(place)
                out.write(data)
    except OSError as error:
        raise storage_error("write", path, error) from error


def _names(tensors: Sequence[Tensor]) -> list[str]:
    found = []
    for tensor in tensors:
        named = matrix_hasher(tensor.dtype, tensor.shape)
        for part in tensor.parts():
            named.update(part)
        found.append(named.hexdigest())
    return found
