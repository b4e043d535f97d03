"""torch.save's zip files, read without torch and without running anything that is in them.

Skeleton: splice form. Every storage that one contiguous (or wholly transposed) tensor covers
is a reference to it; views, padding, the pickle and the directory are literals.
"""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from collections.abc import Sequence
from functools import partial
from typing import BinaryIO

from dlv.adapters import splice
from dlv.adapters.archive import STORED, Entry, read_directory
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.adapters.source import Source
from dlv.adapters.torch.pickles import MOST_BYTES, load
from dlv.adapters.torch.state_dicts import assign, hyperparameters_of, leaves, step_of
from dlv.adapters.torch.tensors import DTYPES, STORAGES, Storages, View, add_skeleton
from dlv.errors import Damaged, UnsafeInput, UsageError
from dlv.kinds import Raw

FORMAT = "pt"
SUFFIX = ".pt"

_MOST_REPEATS = 16  # bytes read by all tensors together, in file sizes
_FREE_BYTES = 64 << 20
_TRUST = "load it where you trust its author, and save it again with torch.save of 1.6 or newer"


def open(path: str, optimizer: str = "keep") -> Checkpoint:  # noqa: A001 (the Adapter protocol)
    """The tensors of a torch file; `optimizer="drop"` leaves those of optimizers out."""
    if optimizer not in ("keep", "drop"):
        raise UsageError(f"optimizer is keep or drop, not {optimizer!r}")
    file = Source(path)
    try:
        return _open(file, drop=optimizer == "drop")
    except BaseException:
        file.close()
        raise


def _open(file: Source, *, drop: bool) -> Checkpoint:
    _check_magic(file)
    entries = _content(file)
    data = bytes(file.read(entries["data.pkl"].offset, entries["data.pkl"].size))
    verify = _has_checksums(file, entries, data)
    order = _small(file, entries, "byteorder") or b"little"
    if order not in (b"little", b"big"):
        raise Damaged(f"{file.name} has an unknown byte order", why=repr(order[:20]))
    where = f"the pickle in {file.name}"
    root = load(data, where)
    keyed = {
        name.removeprefix("data/"): entry
        for name, entry in entries.items()
        if name.startswith("data/")
    }
    storages = Storages(file, keyed, big=order == b"big", verify=verify)
    found = leaves(root, where)
    checkpoint = Checkpoint(
        FORMAT, [], step=step_of(root), hyperparameters=hyperparameters_of(root), close=file.close
    )
    views: list[View] = []
    first: dict[tuple[object, ...], str] = {}
    dropped = total = 0
    for named in assign(root, found):
        if drop and named.role == "optimizer":
            dropped += 1
            continue
        view = storages.view(named.value, named.name)
        storages.check_filled(view, named.name)
        tied = first.setdefault(view.identity, named.name) if view.nbytes else named.name
        if tied == named.name:
            total += view.nbytes
        if total > _MOST_REPEATS * file.size + _FREE_BYTES:
            raise UnsafeInput(
                f"the tensors of {file.name} are far larger than the file",
                why=f"{total} bytes up to {named.name!r}, {file.size} in the file",
            )
        views.append(view)
        checkpoint.tensors.append(
            Tensor(
                named.name,
                view.dtype,
                view.shape,
                view.nbytes,
                partial(storages.read, view),
                named.role,
                None if tied == named.name else tied,
                storages.part(view),
            )
        )
    if not verify:
        checkpoint.notes.append("saved without checksums: damage in the file would not be seen")
    if dropped:
        checkpoint.notes.append(f"{dropped} optimizer tensors left out")
    else:
        add_skeleton(checkpoint, file, views, big=storages.big)
    return checkpoint


def _check_magic(file: Source) -> None:
    head = bytes(file.read(0, min(file.size, 512)))
    if head[:2] == b"PK":
        return
    if head[:1] == b"\x80" or head[257:262] == b"ustar":
        kind = "a plain pickle" if head[:1] == b"\x80" else "a tar archive"
        raise UnsafeInput(
            f"{file.name} is {kind}, as torch.save wrote before version 1.6",
            why="reading it means running what it contains",
            hint=_TRUST,
        )
    raise Damaged(f"{file.name} is not a torch file", why="it is not a zip archive")


def _content(file: Source) -> dict[str, Entry]:
    """Entries by name, without the folder that torch.save puts around all of them."""
    entries: dict[str, Entry] = {}
    folders = set()
    for entry in read_directory(file):
        folder, _, name = entry.name.partition("/")
        folders.add(folder)
        if name.startswith("code/") and "__torch__" in name:
            raise UsageError(
                f"{file.name} is a TorchScript program, not weights",
                why="torch.jit.save wrote it",
                hint="torch.save(model.state_dict(), ...), or torch.export.save with the network",
            )
        if entry.method != STORED:
            raise UnsafeInput(
                f"{entry.name} in {file.name} is compressed", why="torch.save stores plain bytes"
            )
        entries[name] = entry
    if len(folders) > 1:
        raise UnsafeInput(
            f"{file.name} holds more than one folder", why=", ".join(sorted(folders)[:4])
        )
    if "constants.pkl" in entries or any(name.startswith("code/") for name in entries):
        raise UsageError(
            f"{file.name} is a TorchScript module",
            why="it holds code besides tensors",
            hint="save `module.state_dict()` with torch.save",
        )
    if "archive_format" in entries:
        raise UsageError(f"{file.name} is an exported program (.pt2), not a checkpoint")
    if "data.pkl" not in entries:
        raise Damaged(f"{file.name} is not a torch file", why="no data.pkl in the archive")
    if entries["data.pkl"].size > MOST_BYTES:
        raise UnsafeInput(
            f"the pickle in {file.name} is too large",
            why=f"{entries['data.pkl'].size} bytes, the limit is {MOST_BYTES}",
        )
    return entries


def _small(file: Source, entries: dict[str, Entry], name: str) -> bytes:
    entry = entries.get(name)
    return bytes(file.read(entry.offset, min(entry.size, 64))) if entry else b""


def _has_checksums(file: Source, entries: dict[str, Entry], data: bytes) -> bool:
    """False where torch was told to write none; one that is wrong among right ones is damage."""
    right = zlib.crc32(data) == entries["data.pkl"].crc
    version = entries.get("version")
    if right or version is None:
        known = right
    else:
        known = zlib.crc32(_small(file, entries, "version")) == version.crc
    if known and not right:
        raise Damaged(f"the pickle in {file.name} is damaged", why="wrong checksum")
    return right


def restore(out: BinaryIO, skeleton: bytes, tensors: Sequence[Tensor]) -> None:
    """Write the file of `skeleton` again; `tensors` in the order `open` gave them."""
    splice.restore(out, skeleton, tensors)


_PREFIX = "archive"
_ALIGNMENT = 64
_BATCH = 1000  # as the pickle module does: it bounds the reader's stack
_FLAGS = 0x0800  # names are UTF-8
_DOS_DATE = (1 << 5) | 1  # 1980-01-01, the first day that zip knows
_FULL32 = 0xFFFFFFFF

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_END = struct.Struct("<4s4H2LH")

_THERE = {here: there for there, (here, _, _) in DTYPES.items()}
# uint16 and the 8-bit floats have no storage class of their own that torch still writes.
_CLASSES = {
    dtype: name for name, dtype in STORAGES.items() if not name.startswith(("U", "ComplexHalf"))
}


def save(out: BinaryIO, tensors: Sequence[Tensor], metadata: dict[str, str]) -> None:
    """Write `tensors`; tied ones share a storage, as they did when they were read."""
    by_name = {tensor.name: index for index, tensor in enumerate(tensors)}
    if len(by_name) != len(tensors):
        raise UsageError("two tensors have the same name")
    owners = []
    for index, tensor in enumerate(tensors):
        if tensor.dtype not in _THERE:
            raise UsageError(
                f"a torch file cannot hold tensor {tensor.name!r}",
                why=f"torch has no dtype {tensor.dtype}",
            )
        if tensor.nbytes != math.prod(tensor.shape) * DTYPES[_THERE[tensor.dtype]][1]:
            raise UsageError(f"tensor {tensor.name!r} has a size that is not its shape's")
        owners.append(_owner(tensors, by_name, index))
    kept = sorted(set(owners))
    keys = {owner: str(number) for number, owner in enumerate(kept)}
    archive = _Archive(out)
    archive.add("data.pkl", _pickle(tensors, [keys[owner] for owner in owners], metadata))
    archive.add(".format_version", b"1")
    archive.add(".storage_alignment", str(_ALIGNMENT).encode())
    archive.add("byteorder", b"little")
    for owner in kept:
        tensor = tensors[owner]
        data = tensor.read()
        if len(memoryview(data).cast("B")) != tensor.nbytes:
            raise Damaged(f"the tensor {tensor.name} has a wrong length")
        archive.add(f"data/{keys[owner]}", data)
        del data  # before the next one is read
    archive.add("version", b"3\n")
    archive.finish()


def _owner(tensors: Sequence[Tensor], by_name: dict[str, int], index: int) -> int:
    """The tensor whose storage this one uses: itself, or the earlier equal one it is tied to."""
    tensor = tensors[index]
    other = by_name.get(tensor.tied or "", index)
    first = tensors[other]
    alike = (first.dtype, first.shape) == (tensor.dtype, tensor.shape)
    return other if alike and first.tied is None else index


def _pickle(tensors: Sequence[Tensor], keys: Sequence[str], metadata: dict[str, str]) -> bytes:
    """Protocol 2, without a memo: what repeats is short."""
    out = bytearray(b"\x80\x02" + _name("collections", "OrderedDict") + b")R")
    for start in range(0, len(tensors), _BATCH):
        out += b"("
        for tensor, key in zip(
            tensors[start : start + _BATCH], keys[start : start + _BATCH], strict=True
        ):
            out += _text(tensor.name) + _tensor(tensor, key)
        out += b"u"
    if metadata:
        # An attribute, where torch keeps `_metadata`: no key that load_state_dict would see.
        out += b"}" + _text("dlv_metadata") + b"}("
        for name, value in sorted(metadata.items()):
            out += _text(name) + _text(value)
        out += b"usb"
    return bytes(out) + b"."


def _tensor(tensor: Tensor, key: str) -> bytes:
    there = _THERE[tensor.dtype]
    typed = _CLASSES.get(there)
    elements = math.prod(tensor.shape)
    strides = [math.prod(tensor.shape[axis + 1 :]) for axis in range(len(tensor.shape))]
    out = _name("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3")
    out += b"((" + _text("storage")
    out += _name("torch", typed) if typed else _name("torch.storage", "UntypedStorage")
    out += _text(key) + _text("cpu") + _integer(elements if typed else tensor.nbytes) + b"tQ"
    out += _integer(0) + _tuple(tensor.shape) + _tuple(strides) + b"\x89"
    out += _name("collections", "OrderedDict") + b")R"
    if not typed:
        out += _name("torch", there)
    return out + b"tR"


def _name(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def _integer(value: int) -> bytes:
    if value < 256:
        return bytes((ord("K"), value))
    if value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little")
    return bytes((0x8A, len(data))) + data


def _tuple(values: Sequence[int]) -> bytes:
    return b"(" + b"".join(map(_integer, values)) + b"t"


class _Archive:
    """Stored zip entries whose data begin at multiples of 64, so that torch can map them."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._position = 0
        self._rows: list[bytes] = []
        self._sums = hashlib.sha256()

    def _write(self, data: Raw) -> None:
        self._out.write(data)
        self._position += len(memoryview(data).cast("B"))

    def add(self, name: str, data: Raw) -> None:
        raw = f"{_PREFIX}/{name}".encode()
        size = len(memoryview(data).cast("B"))
        crc = zlib.crc32(data)
        header = self._position
        narrow = min(size, _FULL32)
        local_extra = struct.pack("<2H2Q", 1, 16, size, size) if narrow == _FULL32 else b""
        begin = header + _LOCAL.size + len(raw) + len(local_extra) + 4
        padding = -begin % _ALIGNMENT
        local_extra += b"FB" + struct.pack("<H", padding) + b"Z" * padding
        common = (_FLAGS, 0, 0, _DOS_DATE, crc, narrow, narrow, len(raw))
        self._write(
            _LOCAL.pack(b"PK\x03\x04", 45 if size >= _FULL32 else 20, *common, len(local_extra))
        )
        self._write(raw + local_extra)
        self._write(data)
        wide = [value for value in (size, size, header) if value >= _FULL32]
        extra = struct.pack(f"<2H{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
        version = 45 if wide else 20
        row = _CENTRAL.pack(
            b"PK\x01\x02", version, version, *common, len(extra), 0, 0, 0, 0, min(header, _FULL32)
        )
        self._rows.append(row + raw + extra)
        self._sums.update(raw + struct.pack("<LQ", crc, size))

    def finish(self) -> None:
        """The id that torch wants says what was saved; then the directory."""
        number = int.from_bytes(self._sums.digest()[:16], "big") % 10**40
        self.add(".data/serialization_id", f"{number:040d}".encode())
        start, rows = self._position, b"".join(self._rows)
        count = len(self._rows)
        self._write(rows)
        where = self._position
        if start + len(rows) >= _FULL32 or count >= 0xFFFF:
            self._write(
                _END64.pack(b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(rows), start)
            )
            self._write(_LOCATOR.pack(b"PK\x06\x07", 0, where, 1))
        few, narrow = min(count, 0xFFFF), min(start, _FULL32)
        self._write(_END.pack(b"PK\x05\x06", 0, 0, few, few, min(len(rows), _FULL32), narrow, 0))
