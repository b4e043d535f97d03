"""What a version is: the manifest whose hash is the version's id, and the facts beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dlv.canonical import WRITER, dumps, hash_bytes, is_hash, loads
from dlv.errors import Damaged, NewerFormat

FORMAT = "dlv/manifest/1"
FACT_FORMAT = "dlv/fact/1"

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*\Z")
ROLES = ("weight", "buffer", "optimizer", "extra")
PARENT_KINDS = ("commit", "copy", "slice", "construct", "evaluate", "scheme", "import")
FACT_KINDS = (
    *("number", "tag", "removal", "undo", "evaluation"),
    *("query", "archive", "remote-head", "card"),
)
_GIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?\Z")

T = TypeVar("T")


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
        return dumps(self.as_json())

    @property
    def id(self) -> str:
        return hash_bytes(self.encode())

    @property
    def framework(self) -> str | None:
        """What made it: the importer's first part, else the first container's format."""
        if self.network is not None and self.network.origin.get("importer"):
            return str(self.network.origin["importer"]).partition(".")[0]
        for snapshot in self.snapshots:
            for container in snapshot.containers:
                return container.format
        return None

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "writer": self.writer,
            "name": self.name,
            "message": self.message,
            "author": self.author,
            "created": self.created,
            "parents": [{"id": parent.id, "kind": parent.kind} for parent in self.parents],
            "network": None
            if self.network is None
            else {
                "id": self.network.id,
                "origin": self.network.origin,
                "constants": self.network.constants,
            },
            "tensors": [
                {
                    "name": tensor.name,
                    "dtype": tensor.dtype,
                    "shape": list(tensor.shape),
                    "role": tensor.role,
                    "tied": tensor.tied,
                }
                for tensor in self.tensors
            ],
            "snapshots": [
                {
                    "step": snapshot.step,
                    "hashes": list(snapshot.hashes),
                    "sources": None if snapshot.sources is None else list(snapshot.sources),
                    "containers": [
                        {
                            "path": container.path,
                            "format": container.format,
                            "bytes": container.bytes,
                            "blake3": container.blake3,
                            "skeleton": container.skeleton,
                            "tensors": list(container.tensors),
                        }
                        for container in snapshot.containers
                    ],
                }
                for snapshot in self.snapshots
            ],
            "own": self.own,
            "scheme": self.scheme,
            "hyperparameters": self.hyperparameters,
            "series": [{"run": s.run, "tag": s.tag, "hash": s.hash} for s in self.series],
            "files": {
                "tree": self.tree,
                "entries": [
                    {
                        "path": entry.path,
                        "role": entry.role,
                        "mode": entry.mode,
                        "bytes": entry.bytes,
                        "blake3": entry.blake3,
                        "git": entry.git,
                    }
                    for entry in self.files
                ],
            },
            "derivation": self.derivation,
            "environment": self.environment,
        }


@dataclass(frozen=True)
class Fact:
    """What is true of a version but not part of its content: a number, a tag, a removal."""

    kind: str
    subject: str | None
    author: str
    created: str
    data: dict[str, Any]
    replaces: str | None = None
    writer: str = WRITER

    def encode(self) -> bytes:
        return dumps(
            {
                "format": FACT_FORMAT,
                "writer": self.writer,
                "kind": self.kind,
                "subject": self.subject,
                "author": self.author,
                "created": self.created,
                "replaces": self.replaces,
                "data": self.data,
            }
        )

    @property
    def hash(self) -> str:
        return hash_bytes(self.encode())


class _Reader:
    """Takes one JSON object apart; whatever does not fit its schema is damage, with its place."""

    def __init__(self, value: Any, what: str, keys: str) -> None:
        self.what = what
        if not isinstance(value, dict):
            raise self.damaged("it is not an object")
        wanted = set(keys.split())
        if set(value) != wanted:
            odd = sorted(set(value) ^ wanted)
            raise self.damaged(f"keys missing or unknown: {', '.join(odd)}")
        self.value = value

    def damaged(self, why: str) -> Damaged:
        return Damaged(f"{self.what} is malformed", why=why, hint="dlv fsck")

    def take(self, key: str, kind: type[T], check: Callable[[T], Any] = lambda _: True) -> T:
        value = self.value[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.damaged(f"`{key}` is not {kind.__name__}")
        if not check(value):
            raise self.damaged(f"`{key}` has a value that is not allowed")
        return value

    def optional(
        self, key: str, kind: type[T], check: Callable[[T], Any] = lambda _: True
    ) -> T | None:
        return None if self.value[key] is None else self.take(key, kind, check)

    def each(self, key: str, keys: str) -> list[_Reader]:
        items = self.take(key, list)
        return [_Reader(item, f"{self.what}: {key}[{i}]", keys) for i, item in enumerate(items)]


def _natural(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _check_format(value: Any, wanted: str, what: str) -> None:
    if not isinstance(value, dict) or not isinstance(value.get("format"), str):
        raise Damaged(f"{what} is malformed", why="it names no format", hint="dlv fsck")
    if value["format"] != wanted:
        raise NewerFormat(
            f"{what} has the format `{value['format']}`",
            why=f"this dlv reads `{wanted}`; it was written by {value.get('writer', 'another dlv')}",
            hint="pip install --upgrade dlv",
        )


def decode(data: bytes, what: str = "manifest") -> Manifest:
    """Read a manifest strictly: canonical bytes, every key, every type, every range."""
    value = loads(data, what)
    _check_format(value, FORMAT, what)
    reader = _Reader(
        value,
        what,
        "format writer name message author created parents network tensors snapshots own scheme "
        "hyperparameters series files derivation environment",
    )
    tensors = tuple(_tensor(item) for item in reader.each("tensors", "name dtype shape role tied"))
    names = [tensor.name for tensor in tensors]
    if len(set(names)) != len(names):
        raise reader.damaged("two tensors have one name")
    snapshots = tuple(
        _snapshot(item, len(tensors))
        for item in reader.each("snapshots", "step hashes sources containers")
    )
    own = reader.optional("own", int, lambda value: 0 <= value < len(snapshots))
    files = _Reader(reader.value["files"], f"{what}: files", "tree entries")
    return Manifest(
        name=reader.take("name", str, NAME.match),
        message=reader.take("message", str),
        author=reader.take("author", str),
        created=reader.take("created", str),
        parents=tuple(
            Parent(item.take("id", str, is_hash), item.take("kind", str, PARENT_KINDS.__contains__))
            for item in reader.each("parents", "id kind")
        ),
        network=_network(reader),
        tensors=tensors,
        snapshots=snapshots,
        own=own,
        scheme=reader.optional("scheme", dict),
        hyperparameters=reader.take("hyperparameters", dict),
        series=tuple(
            SeriesReference(
                item.take("run", str), item.take("tag", str), item.take("hash", str, is_hash)
            )
            for item in reader.each("series", "run tag hash")
        ),
        tree=files.optional("tree", str, _GIT.match),
        files=tuple(
            _file(item) for item in files.each("entries", "path role mode bytes blake3 git")
        ),
        derivation=reader.optional("derivation", dict),
        environment=reader.take("environment", dict),
        writer=reader.take("writer", str),
    )


def _tensor(item: _Reader) -> TensorEntry:
    shape = item.take("shape", list, lambda sizes: all(_natural(size) for size in sizes))
    return TensorEntry(
        name=item.take("name", str),
        dtype=item.take("dtype", str),
        shape=tuple(shape),
        role=item.take("role", str, ROLES.__contains__),
        tied=item.optional("tied", str),
    )


def _hashes(item: _Reader, key: str, count: int) -> tuple[str | None, ...]:
    hashes = item.take(key, list)
    if len(hashes) != count or not all(value is None or is_hash(value) for value in hashes):
        raise item.damaged(f"`{key}` does not name one matrix per tensor")
    return tuple(hashes)


def _snapshot(item: _Reader, count: int) -> Snapshot:
    containers = []
    for part in item.each("containers", "path format bytes blake3 skeleton tensors"):
        indices = part.take("tensors", list)
        if not all(_natural(index) and index < count for index in indices):
            raise part.damaged("`tensors` points outside the list of tensors")
        containers.append(
            Container(
                path=part.take("path", str),
                format=part.take("format", str),
                bytes=part.take("bytes", int, _natural),
                blake3=part.optional("blake3", str, is_hash),
                skeleton=part.optional("skeleton", str, is_hash),
                tensors=tuple(indices),
            )
        )
    return Snapshot(
        step=item.optional("step", int, lambda step: -(2**63) <= step < 2**63),
        hashes=_hashes(item, "hashes", count),
        containers=tuple(containers),
        sources=None if item.value["sources"] is None else _hashes(item, "sources", count),
    )


def _network(reader: _Reader) -> NetworkReference | None:
    if reader.value["network"] is None:
        return None
    item = _Reader(reader.value["network"], f"{reader.what}: network", "id origin constants")
    constants = item.take("constants", list)
    for part in item.each("constants", "name dtype shape hash"):
        part.take("hash", str, is_hash)
    return NetworkReference(item.take("id", str, is_hash), item.take("origin", dict), constants)


def _file(item: _Reader) -> FileEntry:
    return FileEntry(
        path=item.take("path", str),
        role=item.take("role", str),
        mode=item.take("mode", str, ("100644", "100755").__contains__),
        bytes=item.take("bytes", int, _natural),
        blake3=item.take("blake3", str, is_hash),
        git=item.take("git", str, _GIT.match),
    )


def decode_fact(data: bytes, what: str = "fact") -> Fact:
    """Read a fact strictly; an unknown kind was written by a newer dlv."""
    value = loads(data, what)
    _check_format(value, FACT_FORMAT, what)
    reader = _Reader(value, what, "format writer kind subject author created replaces data")
    kind = reader.take("kind", str)
    if kind not in FACT_KINDS:
        raise NewerFormat(
            f"{what} is of the unknown kind `{kind}`", hint="pip install --upgrade dlv"
        )
    fact = Fact(
        kind=kind,
        subject=reader.optional("subject", str),
        author=reader.take("author", str),
        created=reader.take("created", str),
        data=reader.take("data", dict),
        replaces=reader.optional("replaces", str, is_hash),
        writer=reader.take("writer", str),
    )
    _check_fact(fact, reader)
    return fact


_FACT_DATA: Mapping[str, Callable[[dict[str, Any]], bool]] = {
    "number": lambda data: (
        isinstance(data.get("name"), str)
        and NAME.match(data["name"]) is not None
        and _natural(data.get("number"))
    ),
    "tag": lambda data: "version" in data and (data["version"] is None or is_hash(data["version"])),
    "removal": lambda data: (
        "steps" in data and (data["steps"] is None or isinstance(data["steps"], list))
    ),
    "archive": lambda data: (
        isinstance(data.get("packs"), list) and all(map(is_hash, data["packs"]))
    ),
}


def _check_fact(fact: Fact, reader: _Reader) -> None:
    if fact.kind in ("number", "removal", "undo", "evaluation") and not is_hash(fact.subject):
        raise reader.damaged("`subject` is not an id")
    if not _FACT_DATA.get(fact.kind, lambda data: True)(fact.data):
        raise reader.damaged(f"`data` does not fit the kind {fact.kind}")
