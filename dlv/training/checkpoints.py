"""Checkpoints of trials: one file each, whole or not there, of which the newest valid one counts.

    magic, length of the header (8 bytes, little-endian), header (JSON), arrays, BLAKE3 of it all

Files are called STEP-TOKEN: what a worker that lost its trial still writes hides nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import dlv.disk.durable as durable
from dlv.canonical import float_of, hasher, number
from dlv.dataclass import dataclass
from dlv.errors import Damaged, StorageError, UsageError
from dlv.kinds import Array

Metrics = Mapping[int, Mapping[str, float]]

MAGIC = b"dlvtrial"
WEIGHT = "weight/"
SUFFIX = ".ckpt"
KEPT = 2
ALL = "all"  # a file of this name: none is removed
# Metrics of so many logs go with a checkpoint: what the ledger may have lost of the last ones.
MOST_METRICS = 256
_NAME = re.compile(r"([0-9]{1,13})-([0-9]{1,13})\.ckpt\Z")
_ALIGN = 64
_KINDS = "biufc"
_DIGEST = 32


@dataclass(frozen=True)
class Checkpoint:
    """Where training stands after `step` steps; step 0 has nothing and begins anew.

    `arrays` hold weights as `weight/NAME`, in the words in which the trial's start has them, and
    whatever else the trainer needs. `values` is JSON. `metrics`: what was logged, by step.
    `files`: those of the trainer's own that belong to it, relative to the trial, with BLAKE3.
    """

    step: int = 0
    arrays: Mapping[str, Array] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    metrics: Metrics = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def state(self) -> dict[str, Any]:
        """Arrays and values as one mapping: what was given to `log`."""
        return {**self.values, **self.arrays}

    @property
    def weights(self) -> dict[str, Array]:
        return {
            name.removeprefix(WEIGHT): array
            for name, array in self.arrays.items()
            if name.startswith(WEIGHT)
        }


def save(folder: Path, checkpoint: Checkpoint, token: int) -> Path:
    """Durable when it returns; beside it only the one before it is kept."""
    tmp = durable.make_directory(folder) / "tmp"
    try:
        tmp.mkdir(exist_ok=True)  # without a sync: after a power cut nobody misses it
    except OSError as error:
        raise durable.storage_error("create", tmp, error) from error
    header, arrays = _header(checkpoint, token)
    path = folder / f"{checkpoint.step}-{token}{SUFFIX}"
    with durable.TemporaryFile(tmp) as file:
        file.write(MAGIC + len(header).to_bytes(8, "little"))
        file.write(header)
        for array in arrays:
            file.write(bytes(-file.tell() % _ALIGN))
            file.write(array.reshape(-1).view(np.uint8).data)
        file.write(bytes.fromhex(file.hexdigest()))
        # Renamed while it is locked, so that nobody takes it for a leftover.
        durable.put_in_place(file, path)
    prune(folder)
    return path


def keep_all(folder: Path) -> None:
    """From now on none of this trial's is removed, till `thin` is called."""
    try:
        durable.make_directory(folder).joinpath(ALL).touch()
    except OSError as error:
        raise durable.storage_error("write", folder / ALL, error) from error


def thin(folder: Path, count: int = KEPT) -> None:
    """Keep the newest checkpoints only, even where all were kept so far."""
    (folder / ALL).unlink(missing_ok=True)
    prune(folder, count)


def steps(folder: Path, most_step: int) -> Iterator[Checkpoint]:
    """The valid ones up to a step, one of each, in their order; read as they are asked for."""
    paths: dict[int, list[Path]] = {}
    for path in reversed(listed(folder)):
        paths.setdefault(_place(path)[0], []).insert(0, path)
    for step, found in paths.items():
        if step <= most_step and (checkpoint := _first(found)):
            yield checkpoint


def newest(folder: Path, most_step: int | None = None) -> Checkpoint | None:
    """The valid one of the highest step, and of that step of the highest token."""
    return _first(p for p in listed(folder) if most_step is None or _place(p)[0] <= most_step)


def resumed(folder: Path) -> Checkpoint | None:
    """The newest, to go on from. Damaged ones of later steps go, or they would be kept instead of
    those that are to come."""
    found = newest(folder)
    for path in listed(folder):
        if found is None or _place(path)[0] > found.step:
            with suppress(StorageError):
                durable.unlink(path)
    return found


def last_step(folder: Path) -> int:
    """The step that training can go on from, by the names of the checkpoints; 0: from the start."""
    return next((_place(path)[0] for path in listed(folder)), 0)


def _first(paths: Iterable[Path]) -> Checkpoint | None:
    """The first that is valid."""
    for path in paths:
        try:
            return read(path)
        except (Damaged, FileNotFoundError):
            continue  # the one before it was kept for this
    return None


def read(path: Path) -> Checkpoint:
    """A checkpoint, checked as a whole; Damaged says what is wrong with it."""
    try:
        data = np.fromfile(path, np.uint8)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Damaged(f"the checkpoint {path.name} cannot be read", why=str(error)) from error
    start = len(MAGIC) + 8
    if len(data) < start + _DIGEST or data[: len(MAGIC)].tobytes() != MAGIC:
        raise Damaged(f"{path.name} is not a checkpoint")
    running = hasher()
    running.update(data[:-_DIGEST].data)
    if running.digest() != data[-_DIGEST:].tobytes():
        raise Damaged(f"the checkpoint {path.name} is corrupt", why="checksum mismatch")
    length = int.from_bytes(data[len(MAGIC) : start].tobytes(), "little")
    if length > len(data) - start - _DIGEST:
        raise Damaged(f"the checkpoint {path.name} is corrupt", why="its header is too long")
    try:
        header = json.loads(data[start : start + length].tobytes())
        found = _checkpoint(header, data[:-_DIGEST], start + length)
        if (found.step, header["token"]) != _place(path):
            raise ValueError("its step differs from its name")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"the checkpoint {path.name} is corrupt", why=str(error)[:200]) from error
    for name, digest in found.files.items():
        _check_file(path, name, digest)
    return found


def file_digest(path: Path) -> str:
    """BLAKE3 of a file, or of the files of a folder with their names."""
    running = hasher()
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for each in files:
        if each != path:
            running.update(each.relative_to(path).as_posix().encode("utf-8", "surrogateescape"))
            running.update(b"\0")
        inner = hasher()
        with each.open("rb") as file:
            while piece := file.read(durable.READ_SIZE):
                inner.update(piece)
        running.update(inner.digest())
    return running.hexdigest()


def _header(checkpoint: Checkpoint, token: int) -> tuple[bytes, list[Array]]:
    table, arrays, at = [], [], 0
    for name, given in checkpoint.arrays.items():
        array = np.asarray(given)
        if array.dtype.kind not in _KINDS:
            raise UsageError(
                f"the array {name!r} of a checkpoint is of {array.dtype}",
                why="numbers can be stored; everything else must be JSON",
            )
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        at += -at % _ALIGN
        row = {"name": name, "dtype": array.dtype.str, "shape": list(np.shape(given)), "at": at}
        table.append(row)
        arrays.append(array)
        at += array.nbytes
    last = sorted(checkpoint.metrics)[-MOST_METRICS:]
    header = {
        "dlv_checkpoint": 1,
        "step": checkpoint.step,
        "token": token,
        "arrays": table,
        "values": dict(checkpoint.values),
        "metrics": [
            [step, {name: number(float(v)) for name, v in checkpoint.metrics[step].items()}]
            for step in last
        ],
        "files": dict(checkpoint.files),
    }
    try:
        text = json.dumps(header).encode()
    except (TypeError, ValueError) as error:
        raise UsageError(
            "the values of a checkpoint are not JSON",
            why=str(error),
            hint="numpy arrays, numbers, strings, lists and tables can be stored",
        ) from error
    # Arrays are aligned: blanks may follow the header.
    text += b" " * (-(len(MAGIC) + 8 + len(text)) % _ALIGN)
    return text, arrays


def _checkpoint(header: Any, data: npt.NDArray[np.uint8], start: int) -> Checkpoint:
    if header["dlv_checkpoint"] != 1:
        raise ValueError("its format is unknown to this dlv version")
    arrays = {}
    for row in header["arrays"]:
        dtype = np.dtype(row["dtype"])
        shape = tuple(int(side) for side in row["shape"])
        if dtype.kind not in _KINDS or min(shape, default=0) < 0:
            raise ValueError(f"array {row['name']!r} has no plain dtype and shape")
        begin, size = start + row["at"], math.prod(shape) * dtype.itemsize
        if row["at"] < 0 or begin + size > len(data):
            raise ValueError(f"array {row['name']!r} is outside")
        raw = data[begin : begin + size].copy()
        arrays[str(row["name"])] = raw.view(dtype).astype(dtype.newbyteorder("=")).reshape(shape)
    metrics = {
        int(step): {str(name): float_of(value) for name, value in row.items()}
        for step, row in header["metrics"]
    }
    files = {str(name): str(digest) for name, digest in header["files"].items()}
    return Checkpoint(int(header["step"]), arrays, dict(header["values"]), metrics, files)


def _check_file(path: Path, name: str, digest: str) -> None:
    """Files are named from the trial's folder, in which the folder of checkpoints lies."""
    file = path.parent.parent / name
    try:
        if file_digest(file) == digest:
            return
        why = "its content differs"
    except OSError as error:
        why = error.strerror or str(error)
    raise Damaged(f"{name}, which the checkpoint {path.name} names, is corrupt", why=why)


def _place(path: Path) -> tuple[int, int]:
    found = _NAME.match(path.name)
    return (int(found[1]), int(found[2])) if found else (-1, -1)


def listed(folder: Path) -> list[Path]:
    """Checkpoints by their names, the newest first."""
    try:
        paths = [path for path in folder.iterdir() if _NAME.match(path.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(paths, key=_place, reverse=True)


def prune(folder: Path, count: int = KEPT) -> None:
    """Keep the newest checkpoints only, unless all are wanted."""
    for path in [] if (folder / ALL).exists() else listed(folder)[count:]:
        try:
            durable.unlink(path)
        except StorageError:
            continue  # another worker was faster
    durable.clear_dead(folder / "tmp")
