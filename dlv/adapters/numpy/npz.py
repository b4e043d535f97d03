"""numpy's `.npz` archives and single `.npy` arrays; pickled objects are never loaded.

Skeleton: splice form. An archive whose arrays are deflated has none: another zlib would not
make the same bytes, so a promise to write them again would be false.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from typing import BinaryIO

from dlv.adapters import archive, splice
from dlv.adapters.archive import Entry
from dlv.adapters.checkpoint import Checkpoint, Part, Tensor
from dlv.adapters.numpy import npy
from dlv.adapters.numpy.npy import Header
from dlv.adapters.order import swap, transpose
from dlv.adapters.source import Source
from dlv.adapters.splice import Piece
from dlv.errors import Damaged, UsageError
from dlv.kinds import Raw

FORMAT = "npz"
SUFFIX = ".npz"


def open(path: str) -> Checkpoint:  # noqa: A001 (the name in the Adapter protocol)
    """Check all headers against the sizes; arrays are read when they are asked for."""
    file = Source(path)
    try:
        if file.size >= 6 and file.read(0, 6) == npy.MAGIC:
            return _open_array(file)
        return _open_archive(file)
    except BaseException:
        file.close()
        raise


restore = splice.restore


def save(out: BinaryIO, tensors: Sequence[Tensor], metadata: dict[str, str]) -> None:
    """Write what `numpy.savez` writes; there is no place for the metadata."""
    del metadata
    headers = []
    seen = set()
    for tensor in tensors:
        header = npy.make(tensor.dtype, tensor.shape)
        if header is None:
            raise UsageError(
                f"npz cannot hold {tensor.dtype}",
                why=f"the tensor {tensor.name} has this type",
                hint="export to safetensors",
            )
        if not archive.is_safe(tensor.name + ".npy"):
            raise UsageError(f"npz cannot hold the name {tensor.name!r}")
        if tensor.name in seen:
            raise UsageError(f"npz cannot hold two arrays called {tensor.name}")
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
    header = npy.parse(
        file.read(0, npy.header_length(file.read(0, min(12, file.size)), file.name)), file.name
    )
    npy.check_size(header, file.size, file.name)
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
        notes.append("compressed npz: the arrays are kept, the file is not kept byte for byte")
    return Checkpoint(FORMAT, tensors, skeleton, exact=exact, notes=notes, close=file.close)


def read_header(file: Source, entry: Entry) -> Header:
    """The checked header of an array in an archive."""
    what = f"{entry.name} in {file.name}"
    start = bytearray()
    needed = 12
    pieces = archive.stream(file, entry, entry.size)
    while len(start) < needed:
        piece = next(pieces, b"")
        start += piece
        if len(start) >= 12 or not piece:
            needed = npy.header_length(start[:12], what)
            if not piece and len(start) < needed:
                raise Damaged(f"{what} ends too early")
    header = npy.parse(start[:needed], what)
    npy.check_size(header, entry.size, what)
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


def _is_fortran(header: Header) -> bool:
    return header.fortran and sum(side != 1 for side in header.shape) > 1


def _piece(index: int, header: Header) -> Piece:
    order = "F" if _is_fortran(header) else "C"
    return Piece(index, 0, header.nbytes, order, header.unit)


def _tensor(name: str, header: Header, read: Callable[[], Raw], part: Part | None) -> Tensor:
    def arranged() -> Raw:
        data = swap(read(), header.unit)
        if _is_fortran(header):
            data = transpose(data, header.shape[::-1], header.item)
        return data

    as_it_is = header.unit == 1 and not _is_fortran(header)
    return Tensor(
        *(name, header.dtype, header.shape, header.nbytes, arranged),
        part=part if as_it_is else None,
    )
