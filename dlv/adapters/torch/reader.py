"""torch.save's zip files, read without torch and without running anything that is in them.

Skeleton: splice form. Every storage that one contiguous (or wholly transposed) tensor covers
is a reference to it; views, padding, the pickle and the directory are literals.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import partial
from typing import BinaryIO

from dlv.adapters import splice
from dlv.adapters.archive import STORED, Entry, read_directory
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.adapters.source import Source
from dlv.adapters.torch import writer as torch_writer
from dlv.adapters.torch.pickles import MOST_BYTES, load
from dlv.adapters.torch.skeleton import add_skeleton
from dlv.adapters.torch.state_dicts import assign, hyperparameters_of, leaves, step_of
from dlv.adapters.torch.tensors import Storages, View
from dlv.errors import Damaged, UnsafeInput, UsageError

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
        FORMAT,
        [],
        step=step_of(root),
        hyperparameters=hyperparameters_of(root),
        close=file.close,
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


def save(out: BinaryIO, tensors: Sequence[Tensor], metadata: dict[str, str]) -> None:
    """Write a fresh file that torch.load(weights_only=True) reads as an OrderedDict."""
    torch_writer.save(out, tensors, metadata)
