"""Where trials are stored: their ledger, a database of its own, and a folder for each.

`.dlv/trials/<id>/` holds what the trial begins with, written once, and what it made:

trial.json   network, configuration, tensors, where it came from; with a hash of itself
start.npz    the weights it begins with; what npz has no dtype for, as words
checkpoint/  log.jsonl  events/  output.txt    written while it runs
"""

from __future__ import annotations

import json
import math
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

import numpy as np

import dlv.disk.durable as durable
from dlv.canonical import HashedFile, dumps, hash_bytes, hasher, matrix_hash, read_json
from dlv.dataclass import dataclass
from dlv.disk.locks import network_disk
from dlv.dtypes import DTYPES
from dlv.errors import Conflict, Damaged, DlvError, NotFound, StorageError, UsageError, nearest
from dlv.kinds import Array, Raw
from dlv.metadata.trials import Trials
from dlv.network.graph import Network
from dlv.repository.handle import Repository
from dlv.training.checkpoints import Checkpoint
from dlv.training.config import Config

if TYPE_CHECKING:
    from dlv.training.trainers.datasets import Data

EXTRACTED = "data"  # beside their folders: files of versions that they are trained on


def open_store(repository: Repository) -> Trials:
    """The store of the ledger. Heartbeats there hold up no commit, and a catalogue may be made
    again while trials are running."""
    if network_disk(repository.path):
        raise StorageError(
            f"{repository.path} is on a network file system",
            why="processes share the ledger of trials through the memory of one machine",
            hint="evaluate in a clone on a local disk, and push the versions that it makes",
        )
    store = Trials(repository.trials_path, patience=repository.patience)
    durable.inherit_rights(*(f"{repository.trials_path}{end}" for end in ("", "-wal", "-shm")))
    return store


TRIAL, START = "trial.json", "start.npz"
_MOST_BYTES = 64 << 20
_DEPTH = 64


class Weights(Protocol):
    """A tensor whose little-endian bytes are read when they are wanted."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def read(self) -> Any: ...  # () -> Raw


@dataclass(frozen=True)
class Held:
    """A tensor of which the bytes are at hand."""

    dtype: str
    shape: tuple[int, ...]
    raw: Raw
    role: str = "weight"
    tied: str | None = None

    def read(self) -> Raw:
        return self.raw


@dataclass(frozen=True)
class Start:
    """A tensor of the start, as trial.json has it; `array`: its name in start.npz."""

    name: str
    array: str
    dtype: str
    shape: tuple[int, ...]
    role: str = "weight"
    tied: str | None = None


@dataclass(frozen=True)
class Trial:
    """What a trainer is handed. `opening` opens the data, where a worker runs it."""

    id: str
    folder: Path
    network: Network
    config: Config
    tensors: Mapping[str, Start]
    constants: Mapping[str, Start] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)
    token: int = 0
    opening: Callable[[], Data] | None = None

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def directory(self) -> Path:
        """Where the query was asked: names of files and modules are relative to it."""
        return Path(self.record.get("directory", "."))

    @property
    def fingerprints(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.record.get("fingerprints", {})
        return found

    def path_of(self, where: str) -> str:
        """A path of the configuration as it is opened: absolute, or taken out of a version."""
        return str(self.record.get("paths", {}).get(where, where))

    def with_(self, **changes: Any) -> Trial:
        """The same with other keys in its configuration, such as log_every of a slice."""
        return replace(self, config=Config({**self.config.values, **changes}))

    @cached_property
    def data(self) -> Data:
        """The rows of `input_data`, read when they are asked for first."""
        if self.opening is None:
            raise UsageError("this trial has no data", why="config.input_data is not set")
        return self.opening()

    @cached_property
    def _start(self) -> Any:
        return np.load(self.folder / START, allow_pickle=False)

    def weights(self, name: str) -> Array:
        """The array of a tensor that the trial begins with; bfloat16 and the like as words."""
        try:
            start = self.tensors[name]
        except KeyError:
            raise NotFound(
                f"the trial has no tensor {name!r}", did_you_mean=nearest(name, self.tensors)
            ) from None
        return self.weights(start.tied) if start.tied is not None else self._array(start)

    def constant(self, name: str) -> Array:
        """The array of a constant of the network."""
        return self._array(self.constants[name])

    def _array(self, start: Start) -> Array:
        array: Array = self._start[start.array]
        return array

    @property
    def names(self) -> list[str]:
        """Of the tensors that the trial begins with, in order."""
        return list(self.tensors)

    def tensor_of(self, name: str, array: Array) -> Held:
        """An array of a checkpoint as a tensor: with the dtype that is meant, and its bytes."""
        start = self.tensors[name]
        words = np.dtype(words_of(start.dtype))
        if array.dtype != words or array.shape != start.shape:
            raise UsageError(
                f"tensor {name} of a checkpoint does not fit the network",
                why=f"{array.dtype} {array.shape} instead of {words} {start.shape}",
            )
        little = np.ascontiguousarray(array, words.newbyteorder("<"))
        return Held(start.dtype, start.shape, little.tobytes(), start.role)


@dataclass(frozen=True)
class TrialFiles:
    """The folder of one trial; its name is the trial's id."""

    folder: Path

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoint"

    def exists(self) -> bool:
        return (self.folder / TRIAL).is_file()

    @property
    def checkpoint_folders(self) -> list[Path]:
        """Where checkpoints lie: a program's own are in the folders in which it ran."""
        return [self.checkpoints, *self.folder.glob("run-*")]

    def checkpoint_bytes(self) -> int:
        size = 0
        for path in (path for folder in self.checkpoint_folders for path in folder.rglob("*")):
            with suppress(FileNotFoundError):  # of a trial that is being trained
                size += path.lstat().st_size if path.is_file() else 0
        return size

    def discard_checkpoints(self) -> None:
        for path in self.checkpoint_folders:
            shutil.rmtree(path, ignore_errors=True)

    def create(
        self,
        network: Network,
        config: Config,
        start: Mapping[str, Weights],
        record: Mapping[str, Any],
        *,
        constants: Mapping[str, Weights] | None = None,
    ) -> None:
        """Write what the trial begins with, all of it or nothing; what is there already stays, but
        for files that are damaged.

        `start`: weights by name, of which `role` and `tied` count where they are told.
        """
        if self.whole():
            return
        parent = durable.make_directory(self.folder.parent)
        made = parent / f"tmp-{os.urandom(8).hex()}"
        made.mkdir()
        try:
            rows, constant_rows, digest = _write_start(made / START, start, constants or {})
            document = {
                "dlv_trial": 1,
                "id": self.id,
                "network": network.canonical(),
                "config": config.document(),
                "tensors": rows,
                "constants": constant_rows,
                "start": digest,
                "record": dict(record),
            }
            document["blake3"] = _hash(document)
            with _written(made / TRIAL) as sink:
                sink.write(json.dumps(document, sort_keys=True).encode() + b"\n")
            for name in (START, TRIAL):
                durable.sync_path(made / name)
            durable.fsync_directory(made)
            self._take(made)
        except OSError as error:
            if not self.whole():  # nor has another query done it
                raise durable.storage_error("write", made, error) from error
        except StorageError:
            if not self.whole():
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def _take(self, fresh: Path) -> None:
        """The new files into place. A folder that is there keeps what the trial has come to."""
        if not self.folder.is_dir():
            self.folder.unlink(missing_ok=True)  # no folder, and of no use to anybody
            durable.move_all([(fresh, self.folder)])
            return
        self.folder.chmod(self.folder.stat().st_mode | 0o700)
        for name in (START, TRIAL):  # the one that makes it a trial comes last
            place = self.folder / name
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            durable.move_all([(fresh / name, place)])
        for place in (self.checkpoints, self.folder / "events"):
            if place.is_dir():
                place.chmod(place.stat().st_mode | 0o700)
            elif os.path.lexists(place):
                place.unlink()

    def whole(self) -> bool:
        """Whether it could be trained: what it begins with is right, and there is a place to go."""
        places = [self.folder / "events", self.checkpoints]
        try:
            self.load()
        except (DlvError, OSError):
            return False
        return all(p.is_dir() and os.access(p, 7) for p in places if os.path.lexists(p))

    def load(self) -> Trial:
        """Checked against its hashes; Damaged names what is wrong."""
        path = self.folder / TRIAL
        what = f"trial {self.id[:7]}"
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise NotFound(f"{what} has no {TRIAL}", why=f"looked in {self.folder}") from None
        except OSError as error:
            raise durable.storage_error("read", path, error) from error
        document = read_json(data, f"{TRIAL} of {what}", limit=_MOST_BYTES, depth=_DEPTH)
        if not isinstance(document, dict) or document.get("dlv_trial") != 1:
            raise Damaged(f"{TRIAL} of {what} is none that this dlv reads")
        told = document.pop("blake3", None)
        if _hash(document) != told:
            raise Damaged(f"{TRIAL} of {what} is corrupt", why="hash mismatch")
        if document["id"] != self.id:
            raise Conflict(f"the folder of {what} belongs to another trial", why=document["id"])
        if _file_hash(self.folder / START) != document["start"]:
            raise Damaged(f"{START} of {what} is corrupt", why="hash mismatch")
        return Trial(
            id=self.id,
            folder=self.folder,
            network=Network.from_canonical(document["network"]),
            config=Config(document["config"]),
            tensors=_starts(document["tensors"]),
            constants=_starts(document["constants"]),
            record=document["record"],
        )

    def weights(self, checkpoint: Checkpoint) -> dict[str, Held]:
        """The tensors of a checkpoint, with their true dtypes; {} where it holds none.

        Those of a program of the user's own are looked for in its `.npz`, by their names.
        """
        trial = self.load()
        found: Mapping[str, Array] = checkpoint.weights
        for name in checkpoint.files:
            if not found and name.endswith(".npz"):
                found = _archived(self.folder / name, trial)
        return {name: trial.tensor_of(name, found[name]) for name in trial.names if name in found}


def _archived(path: Path, trial: Trial) -> dict[str, Array]:
    try:
        # Opened here: numpy leaves a file open that it does not understand.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            known = {start.name: start.array for start in trial.tensors.values()}
            return {name: held[key] for name, key in known.items() if key in held}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise Damaged(f"the checkpoint {path.name} cannot be read", why=str(error)) from error


def start_hash(start: Mapping[str, Weights]) -> str:
    """The hash of the weights that a trial begins with, of any network: name and matrix."""
    names = {name: matrix_hash(each.dtype, each.shape, each.read()) for name, each in start.items()}
    return hash_bytes(dumps(names))


def words_of(dtype: str) -> str:
    """numpy's dtype under which elements of a dtype are kept."""
    known = DTYPES.get(dtype)
    if known is None or known.numpy is None:  # kept as words of the same length
        return "uint16" if dtype == "bfloat16" else "uint8"
    return dtype


def _starts(rows: list[dict[str, Any]]) -> dict[str, Start]:
    return {row["name"]: Start(**{**row, "shape": tuple(row["shape"])}) for row in rows}


Row = dict[str, Any]


def _write_start(
    path: Path, start: Mapping[str, Weights], constants: Mapping[str, Weights]
) -> tuple[list[Row], list[Row], str]:
    """Both kinds into one archive: how they are called there, and the hash of the file."""
    with _written(path) as sink, zipfile.ZipFile(cast(BinaryIO, sink), "w") as archive:
        rows = [
            _write_tensor(archive, _entry(name, place), name, tensor)
            for place, (name, tensor) in enumerate(start.items())
        ]
        more = [
            _write_tensor(archive, f"constant {place}", name, tensor)
            for place, (name, tensor) in enumerate(constants.items())
        ]
    return rows, more, sink.hexdigest()


@contextmanager
def _written(path: Path) -> Iterator[HashedFile]:
    """A new file, read back at the end of the block."""
    with path.open("w+b") as out:
        sink = HashedFile(out)
        yield sink
        out.flush()
        durable.read_back(out.fileno(), sink.hexdigest(), path)


def _write_tensor(archive: zipfile.ZipFile, entry: str, name: str, tensor: Weights) -> Row:
    tied = getattr(tensor, "tied", None)
    if tied is None:
        array = _array(name, tensor)
        info = zipfile.ZipInfo(f"{entry}.npy")  # without the time: equal trials are equal bytes
        with archive.open(info, "w", force_zip64=True) as out:
            np.lib.format.write_array(out, array, allow_pickle=False)
    return {
        "name": name,
        "array": entry,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "role": getattr(tensor, "role", "weight"),
        "tied": tied,
    }


def _entry(name: str, place: int) -> str:
    """The name itself, where an archive can hold it."""
    plain = name.isprintable() and len(name) < 200 and not name.startswith("constant ")
    return name if plain else f"tensor {place}"


def _array(name: str, tensor: Weights) -> Array:
    words = np.dtype(words_of(tensor.dtype)).newbyteorder("<")
    raw = memoryview(tensor.read()).cast("B") if math.prod(tensor.shape) else b""
    if len(raw) != math.prod(tensor.shape) * words.itemsize:
        raise Damaged(f"the tensor {name} has a wrong length", why=f"{len(raw)} bytes")
    return np.frombuffer(raw, words).reshape(tensor.shape)


def _hash(document: Mapping[str, Any]) -> str:
    return hash_bytes(json.dumps(document, sort_keys=True).encode())


def _file_hash(path: Path) -> str:
    running = hasher()
    try:
        with path.open("rb") as file:
            while piece := file.read(durable.READ_SIZE):
                running.update(piece)
    except OSError as error:
        raise durable.storage_error("read", path, error) from error
    return running.hexdigest()
