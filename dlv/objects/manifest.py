"""What a version is: the manifest whose hash is the version's id."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from typing import Annotated, Any, TypedDict

from dlv.canonical import WRITER, dumps, hash_bytes, is_hash
from dlv.dataclass import dataclass
from dlv.dtypes import DTYPES
from dlv.errors import UsageError
from dlv.objects.record import Hash, Natural, Place, Time, Whole, Word, as_json, parse
from dlv.objects.record import decode as decode_record

FORMAT = "dlv/manifest/1"

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*\Z")
ROLES = ("weight", "buffer", "optimizer", "extra")
PARENT_KINDS = ("commit", "copy", "slice", "construct", "evaluate", "scheme", "import")


def check_name(name: str) -> None:
    """Refuse a model's name that could not be told apart in a version reference."""
    if not NAME.match(name) or name in ("HEAD", "latest"):
        raise UsageError(
            f"`{name}` cannot be a name",
            why="letters, digits and . _ + - are allowed, the first a letter or digit",
        )
    if is_hash(name):
        raise UsageError(f"`{name}` cannot be a name", why="64 hex digits are always an id")


_Git = Annotated[str, re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?\Z").match]
_Dtype = Annotated[str, Word(lambda dtype: dtype.startswith("raw:") or dtype in DTYPES)]


@dataclass(frozen=True)
class Parent:
    id: Hash
    kind: Annotated[str, Word(PARENT_KINDS.__contains__)] = "commit"


class Constant(TypedDict):
    """A constant of the network and its matrix."""

    name: str
    dtype: _Dtype
    shape: list[Natural]
    hash: Hash


@dataclass(frozen=True)
class NetworkReference:
    id: Hash
    origin: dict[str, Any]
    constants: list[Constant] = field(default_factory=list)


@dataclass(frozen=True)
class TensorEntry:
    name: str
    dtype: _Dtype
    shape: tuple[Natural, ...]
    role: Annotated[str, Word(ROLES.__contains__)] = "weight"
    tied: str | None = None


@dataclass(frozen=True)
class Container:
    """How `checkout` builds one of the user's weight files again."""

    path: str
    format: str
    bytes: Natural
    blake3: Hash | None
    skeleton: Hash | None
    tensors: tuple[Natural, ...]  # indices into those of the manifest


@dataclass(frozen=True)
class Snapshot:
    """The matrices of all tensors at one step, in the order of the manifest's tensors."""

    step: Whole | None
    hashes: tuple[Hash | None, ...]
    containers: tuple[Container, ...] = ()
    sources: tuple[Hash | None, ...] | None = None


@dataclass(frozen=True)
class SeriesReference:
    run: str
    tag: str
    hash: Hash


@dataclass(frozen=True)
class FileEntry:
    path: str
    role: str
    mode: Annotated[str, ("100644", "100755").__contains__]
    bytes: Natural
    blake3: Hash
    git: _Git


@dataclass(frozen=True)
class _Files:
    """The key `files` of a manifest."""

    tree: _Git | None
    entries: tuple[FileEntry, ...]


@dataclass(frozen=True)
class Manifest:
    name: Annotated[str, NAME.match]
    message: str
    author: str
    created: Time
    parents: tuple[Parent, ...] = ()
    network: NetworkReference | None = None
    tensors: tuple[TensorEntry, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    own: int | None = None
    scheme: dict[str, Any] | None = None
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    series: tuple[SeriesReference, ...] = ()
    tree: str | None = None
    files: tuple[FileEntry, ...] = ()
    derivation: dict[str, Any] | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    writer: str = WRITER

    def encode(self) -> bytes:
        return self._encoded

    @cached_property
    def _encoded(self) -> bytes:
        return dumps(self.as_json())

    @cached_property
    def id(self) -> str:
        return hash_bytes(self._encoded)

    @property
    def framework(self) -> str | None:
        """What made it: the importer's first part, else the first container's format."""
        if self.network is not None and self.network.origin.get("importer"):
            return str(self.network.origin["importer"]).partition(".")[0]
        for snapshot in self.snapshots:
            for container in snapshot.containers:
                return container.format
        return None

    @property
    def lossy(self) -> str | None:
        """The scheme by which its weights are not those that were given: `uniform:8`."""
        if self.scheme is None:
            return None
        known = (self.scheme.get("id", "unknown"), self.scheme.get("bits"))
        return ":".join(str(part) for part in known if part is not None)

    def as_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {"format": FORMAT, **as_json(self)}
        record["files"] = {"tree": record.pop("tree"), "entries": record["files"]}
        return record


def decode(data: bytes, noun: str = "manifest") -> Manifest:
    """Read a manifest strictly: canonical bytes, every key, every type, every range."""
    record, place = parse(data, FORMAT, noun)
    files = decode_record(_Files, record.pop("files", None), place.inner("files"))
    manifest = decode_record(Manifest, record, place, tree=files.tree, files=files.entries)
    _check_unique(place, "tensors have one name", [tensor.name for tensor in manifest.tensors])
    _check_unique(place, "files have one path", [entry.path for entry in manifest.files])
    _check_unique(place, "series have one name", [(s.run, s.tag) for s in manifest.series])
    names = {tensor.name for tensor in manifest.tensors}
    if not all(tensor.tied is None or tensor.tied in names for tensor in manifest.tensors):
        raise place.damaged("a tensor is tied to one that is not there")
    for index, snapshot in enumerate(manifest.snapshots):
        _check_snapshot(place.inner(f"snapshots[{index}]"), snapshot, len(names))
    if manifest.own is not None and not 0 <= manifest.own < len(manifest.snapshots):
        raise place.damaged("`own` has a value that is not allowed")
    return manifest


def _check_unique(place: Place, noun: str, names: Sequence[object]) -> None:
    if len(set(names)) != len(names):
        raise place.damaged(f"two {noun}")


def _check_snapshot(place: Place, snapshot: Snapshot, tensors: int) -> None:
    for key, hashes in (("hashes", snapshot.hashes), ("sources", snapshot.sources)):
        if hashes is not None and len(hashes) != tensors:
            raise place.damaged(f"`{key}` does not name one hash per tensor")
    for index, container in enumerate(snapshot.containers):
        if not all(tensor < tensors for tensor in container.tensors):
            inner = place.inner(f"containers[{index}]")
            raise inner.damaged("`tensors` points outside the list of tensors")
