"""Keras 3 `.keras` files: a zip with the settings as JSON and the weights as HDF5.

Nothing of it is run: layers are known by name, code (Lambda) is left alone. Skeleton: splice
form over the whole zip, whose members Keras stores as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

from dlv.adapters import archive, splice
from dlv.adapters.archive import Entry
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.adapters.hdf5 import file as hdf5
from dlv.adapters.hdf5.file import Contents
from dlv.adapters.hdf5.objects import Memory, Region, Window
from dlv.adapters.keras.config import MOST_BYTES, parse
from dlv.adapters.keras.model import checkpoint_of, describe
from dlv.adapters.keras.weights import numbered
from dlv.adapters.source import Source
from dlv.errors import Damaged, UnsafeInput, UsageError

FORMAT = "keras"
SUFFIX = ".keras"

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
MOST_UNPACKED_BYTES = 128 << 20


def open(path: str) -> Checkpoint:  # noqa: A001 (the name in the Adapter protocol)
    """Check the archive, the settings and the structure of the weights; nothing is run."""
    file = Source(path)
    try:
        return _open(file)
    except BaseException:
        file.close()
        raise


def configuration(path: str) -> dict[str, Any]:
    """The configuration of the file's model."""
    with closing(Source(path)) as file:
        entries = {entry.name: entry for entry in archive.read_directory(file)}
        return _json(file, entries, CONFIG)


def unpack_weights(path: str, target: Path) -> bool:
    """The weights in a file of their own; False where there are none."""
    with closing(Source(path)) as file:
        entries = {entry.name: entry for entry in archive.read_directory(file)}
        if WEIGHTS not in entries:
            return False
        with target.open("wb") as out:
            for piece in archive.stream(file, entries[WEIGHTS], entries[WEIGHTS].size):
                out.write(piece)
    return True


restore = splice.restore


def save(out: BinaryIO, tensors: Sequence[Tensor], metadata: dict[str, str]) -> None:
    """Refuse: a `.keras` file needs a network, which `writer.save_network` writes too."""
    del out, tensors, metadata
    raise UsageError(
        "a .keras file holds a network and its weights",
        why="here are weights only",
        hint="export to .h5 or to safetensors",
    )


def _open(file: Source) -> Checkpoint:
    entries = {entry.name: entry for entry in archive.read_directory(file)}
    config = _json(file, entries, CONFIG)
    version = _json(file, entries, METADATA).get("keras_version") if METADATA in entries else None
    name = f"{CONFIG} of {file.name}"
    description = describe(FORMAT, config, version, name, config.get("compile_config"))
    entry = entries.get(WEIGHTS)
    if entry is None:
        description.notes.append(f"{file.name} holds no {WEIGHTS}: a network without weights")
        contents = Contents(Memory(b"", file.name))
    else:
        contents = hdf5.read(_region(file, entry))
    stored = entry is not None and entry.method == archive.STORED
    return checkpoint_of(
        file,
        contents,
        numbered(contents, description.model),
        description,
        base=entry.offset if entry is not None and stored else None,
        check=lambda: _check(file, entry if stored else None),
    )


def _json(file: Source, entries: dict[str, Entry], name: str) -> dict[str, Any]:
    if name not in entries:
        raise Damaged(f"{file.name} is no Keras model", why=f"it has no {name}")
    data = archive.read(file, entries[name], MOST_BYTES)
    return parse(bytes(data), f"{name} of {file.name}")


def _region(file: Source, entry: Entry) -> Region:
    name = f"{entry.name} of {file.name}"
    if entry.method == archive.STORED:
        return Window(file, entry.offset, entry.size, name)
    if entry.size > MOST_UNPACKED_BYTES:
        raise UnsafeInput(
            f"{name} is packed and too large",
            why=f"{entry.size} bytes, the limit is {MOST_UNPACKED_BYTES}",
            hint="save the model again, Keras stores its weights as they are",
        )
    return Memory(archive.read(file, entry, MOST_UNPACKED_BYTES), name)


def _check(file: Source, entry: Entry | None) -> None:
    """The checksum of the archive covers all weights together."""
    if entry is not None:
        for _ in archive.stream(file, entry, entry.size):
            pass
