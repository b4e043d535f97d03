"""What a version is: the manifest whose hash is the version's id."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dlv.canonical import WRITER, dumps, hash_bytes, is_hash, is_time, loads
from dlv.dtypes import DTYPES
from dlv.errors import UsageError
from dlv.objects.record import Reader, as_json, check_format, natural, whole

FORMAT = "dlv/manifest/1"

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*\Z")
ROLES = ("weight", "buffer", "optimizer", "extra")
PARENT_KINDS = ("commit", "copy", "slice", "construct", "evaluate", "scheme", "import")
_GIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?\Z")


def check_name(name: str) -> None:
    """Refuse a model's name that could not be told apart in a version reference."""
    if not NAME.match(name) or name in ("HEAD", "latest"):
        raise UsageError(
            f"`{name}` cannot be a name",
            why="letters, digits and . _ + - are allowed, the first a letter or digit",
        )
    if is_hash(name):
        raise UsageError(f"`{name}` cannot be a name", why="64 hex digits are always an id")


@dataclass(frozen=True)
class Parent:
    id: str
    kind: str = "commit"


@dataclass(frozen=True)
class NetworkReference:
    id: str
    origin: dict[str, Any]
    constants: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class TensorEntry:
    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str = "weight"
    tied: str | None = None


@dataclass(frozen=True)
class Container:
    """How `checkout` builds one of the user's weight files again."""

    path: str
    format: str
    bytes: int
    blake3: str | None
    skeleton: str | None
    tensors: tuple[int, ...]


@dataclass(frozen=True)
class Snapshot:
    step: int | None
    hashes: tuple[str | None, ...]
    containers: tuple[Container, ...] = ()
    sources: tuple[str | None, ...] | None = None


@dataclass(frozen=True)
class SeriesReference:
    run: str
    tag: str
    hash: str


@dataclass(frozen=True)
class FileEntry:
    path: str
    role: str
    mode: str
    bytes: int
    blake3: str
    git: str


@dataclass(frozen=True)
class Manifest:
    name: str
    message: str
    author: str
    created: str
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


def decode(data: bytes, what: str = "manifest") -> Manifest:
    """Read a manifest strictly: canonical bytes, every key, every type, every range."""
    value = loads(data, what)
    check_format(value, FORMAT, what)
    reader = Reader(
        value,
        what,
        "format writer name message author created parents network tensors snapshots own scheme "
        "hyperparameters series files derivation environment",
    )
    tensors = tuple(_tensor(item) for item in reader.each("tensors", "name dtype shape role tied"))
    names = {tensor.name for tensor in tensors}
    if len(names) != len(tensors):
        raise reader.damaged("two tensors have one name")
    if not all(tensor.tied is None or tensor.tied in names for tensor in tensors):
        raise reader.damaged("a tensor is tied to one that is not there")
    snapshots = tuple(
        _snapshot(item, len(tensors))
        for item in reader.each("snapshots", "step hashes sources containers")
    )
    own = reader.optional("own", int, lambda value: 0 <= value < len(snapshots))
    files = reader.inner("files", "tree entries")
    entries = tuple(_file(e) for e in files.each("entries", "path role mode bytes blake3 git"))
    if len({entry.path for entry in entries}) != len(entries):
        raise files.damaged("two files have one path")
    series = tuple(
        SeriesReference(
            item.take("run", str), item.take("tag", str), item.take("hash", str, is_hash)
        )
        for item in reader.each("series", "run tag hash")
    )
    if len({(reference.run, reference.tag) for reference in series}) != len(series):
        raise reader.damaged("two series have one name")
    return Manifest(
        name=reader.take("name", str, NAME.match),
        message=reader.take("message", str),
        author=reader.take("author", str),
        created=reader.take("created", str, is_time),
        parents=tuple(
            Parent(item.take("id", str, is_hash), item.one_of("kind", PARENT_KINDS))
            for item in reader.each("parents", "id kind")
        ),
        network=_network(reader),
        tensors=tensors,
        snapshots=snapshots,
        own=own,
        scheme=reader.optional("scheme", dict),
        hyperparameters=reader.take("hyperparameters", dict),
        series=series,
        tree=files.optional("tree", str, _GIT.match),
        files=entries,
        derivation=reader.optional("derivation", dict),
        environment=reader.take("environment", dict),
        writer=reader.take("writer", str),
    )


def _tensor(item: Reader) -> TensorEntry:
    return TensorEntry(
        name=item.take("name", str),
        dtype=_dtype(item),
        shape=_shape(item),
        role=item.one_of("role", ROLES),
        tied=item.optional("tied", str),
    )


def _dtype(item: Reader) -> str:
    dtype = item.take("dtype", str)
    return dtype if dtype.startswith("raw:") else item.one_of("dtype", DTYPES)


def _shape(item: Reader) -> tuple[int, ...]:
    return tuple(item.take("shape", list, lambda sizes: all(natural(size) for size in sizes)))


def _hashes(item: Reader, key: str, count: int) -> tuple[str | None, ...]:
    hashes = item.take(key, list)
    if len(hashes) != count or not all(value is None or is_hash(value) for value in hashes):
        raise item.damaged(f"`{key}` does not name one matrix per tensor")
    return tuple(hashes)


def _snapshot(item: Reader, count: int) -> Snapshot:
    containers = []
    for part in item.each("containers", "path format bytes blake3 skeleton tensors"):
        indices = part.take("tensors", list)
        if not all(natural(index) and index < count for index in indices):
            raise part.damaged("`tensors` points outside the list of tensors")
        containers.append(
            Container(
                path=part.take("path", str),
                format=part.take("format", str),
                bytes=part.take("bytes", int, natural),
                blake3=part.optional("blake3", str, is_hash),
                skeleton=part.optional("skeleton", str, is_hash),
                tensors=tuple(indices),
            )
        )
    return Snapshot(
        step=item.optional("step", int, whole),
        hashes=_hashes(item, "hashes", count),
        containers=tuple(containers),
        sources=None if item.value["sources"] is None else _hashes(item, "sources", count),
    )


def _network(reader: Reader) -> NetworkReference | None:
    if reader.value["network"] is None:
        return None
    item = reader.inner("network", "id origin constants")
    constants = [
        {
            "name": part.take("name", str),
            "dtype": _dtype(part),
            "shape": list(_shape(part)),
            "hash": part.take("hash", str, is_hash),
        }
        for part in item.each("constants", "name dtype shape hash")
    ]
    return NetworkReference(item.take("id", str, is_hash), item.take("origin", dict), constants)


def _file(item: Reader) -> FileEntry:
    return FileEntry(
        path=item.take("path", str),
        role=item.take("role", str),
        mode=item.take("mode", str, ("100644", "100755").__contains__),
        bytes=item.take("bytes", int, natural),
        blake3=item.take("blake3", str, is_hash),
        git=item.take("git", str, _GIT.match),
    )
