"""Versions in the catalogue: rows made from manifests, and the ways to find them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from dlv.canonical import hash_of, timestamp
from dlv.dataclass import dataclass
from dlv.metadata import metrics
from dlv.metadata.database import Database
from dlv.metadata.metrics import Summary
from dlv.objects.imported import run_attributes

if TYPE_CHECKING:
    from dlv.objects.manifest import Manifest


@dataclass(frozen=True)
class Version:
    """One row of the catalogue. `key` is local to this database, `id` is the manifest's hash."""

    key: int
    id: str
    name: str
    number: int | None
    created: str
    author: str
    message: str
    framework: str | None
    dirty: bool | None
    state: str
    network: str | None = None
    tags: tuple[str, ...] = ()
    parents: tuple[tuple[str, str], ...] = field(default=())  # (id, kind), first = first parent
    scheme: str | None = None  # the lossy one that its weights went through

    @property
    def label(self) -> str:
        return f"{self.name}@{self.number}" if self.number is not None else self.id[:12]


@dataclass(frozen=True)
class SnapshotRow:
    key: int
    index: int
    step: int | None
    own: bool
    removed: bool


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def time_of(microseconds: int) -> str:
    return timestamp(_EPOCH + datetime.timedelta(microseconds=microseconds))


def next_number(db: Database, name: str) -> int:
    """Numbers are never used again, not those of removed, undone or lost versions either."""
    taken = db.value(
        "SELECT max(number) FROM (SELECT number FROM version WHERE name = ?1 UNION ALL"
        " SELECT json_extract(data, '$.number') FROM fact WHERE kind = 'number'"
        " AND json_extract(data, '$.name') = ?1)",
        (name,),
    )
    return 1 + int(taken or 0)


def insert(
    db: Database,
    manifest: Manifest,
    *,
    number: int | None,
    net_id: int | None,
    summaries: Sequence[Summary],
    name: str | None = None,
) -> int:
    """Insert all rows of one version; commit and rebuild both come through here.

    `name` is the model's current name if it was renamed since the commit.
    """
    git = manifest.environment.get("git") or {}
    dirty = git.get("dirty") if isinstance(git, dict) else None
    moment = datetime.datetime.fromisoformat(manifest.created) - _EPOCH
    created = moment // datetime.timedelta(microseconds=1)
    version_id = db.insert(
        "INSERT INTO version(hash, name, number, net_id, tensors_id, creation_time, author,"
        " message, framework, dirty, scheme) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
        (
            *(manifest.id, name or manifest.name, number, net_id, _tensor_list(db, manifest)),
            *(created, manifest.author, manifest.message),
            *(manifest.framework, None if not isinstance(dirty, bool) else int(dirty)),
            manifest.lossy,
        ),
    )
    db.many(
        "INSERT INTO parent(derived, pos, base, base_hash, kind)"
        " SELECT ?1, ?2, max(id), CASE WHEN max(id) IS NULL THEN ?3 END, ?4"
        " FROM version WHERE hash = ?3",
        [(version_id, pos, parent.id, parent.kind) for pos, parent in enumerate(manifest.parents)],
    )
    # A child may have come first: by pull, or in a rebuild.
    db.execute(
        "UPDATE parent SET base = ?, base_hash = NULL WHERE base_hash = ?",
        (version_id, manifest.id),
    )
    _insert_snapshots(db, version_id, manifest)
    attributes = {**run_attributes(manifest.environment), **manifest.hyperparameters}
    metrics.insert_hyperparameters(db, version_id, attributes)
    metrics.insert(db, version_id, summaries)
    db.many(
        "INSERT INTO file(version_id, path, role, mode, bytes, blake3, git) VALUES (?,?,?,?,?,?,?)",
        [(version_id, f.path, f.role, f.mode, f.bytes, f.blake3, f.git) for f in manifest.files],
    )
    return version_id


def _tensor_list(db: Database, manifest: Manifest) -> int | None:
    if not manifest.tensors:
        return None
    digest = hash_of(manifest.as_json()["tensors"])
    found: int | None = db.value("SELECT id FROM tensor_list WHERE hash = ?", (digest,))
    if found is not None:
        return found
    list_id = db.insert("INSERT INTO tensor_list(hash) VALUES (?)", (digest,))
    db.many(
        "INSERT INTO tensor(list_id, pos, name, dtype, shape, role, tied) VALUES (?,?,?,?,?,?,?)",
        [
            (list_id, pos, t.name, t.dtype, json.dumps(list(t.shape)), t.role, t.tied)
            for pos, t in enumerate(manifest.tensors)
        ],
    )
    return list_id


def _insert_snapshots(db: Database, version_id: int, manifest: Manifest) -> None:
    for index, snapshot in enumerate(manifest.snapshots):
        snapshot_id = db.insert(
            "INSERT INTO snapshot(version_id, pos, step, own) VALUES (?,?,?,?)",
            (version_id, index, snapshot.step, int(index == manifest.own)),
        )
        present = [
            (pos, digest) for pos, digest in enumerate(snapshot.hashes) if digest is not None
        ]
        db.many(
            "INSERT OR IGNORE INTO matrix(hash, dtype, shape) VALUES (?,?,?)",
            [
                (digest, manifest.tensors[pos].dtype, json.dumps(list(manifest.tensors[pos].shape)))
                for pos, digest in present
            ],
        )
        db.many(
            "INSERT INTO snapshot_matrix(snapshot_id, pos, matrix_id)"
            " VALUES (?, ?, (SELECT id FROM matrix WHERE hash = ?))",
            [(snapshot_id, pos, digest) for pos, digest in present],
        )


def recover(db: Database, key: int) -> None:
    """Take the number from a version that a crash left unacknowledged; it stays by its id."""
    db.execute("UPDATE version SET number = NULL, state = 'recovered' WHERE id = ?", (key,))


# Of a row of `parent`; one that is not here has its hash in the row.
BASE_HASH = "ifnull(base_hash, (SELECT b.hash FROM version AS b WHERE b.id = base))"

_SELECT = (
    "SELECT version.id, version.hash, version.name, number, creation_time, author, message,"
    " framework, dirty, state, (SELECT net.hash FROM net WHERE net.id = net_id),"
    " (SELECT json_group_array(tag.name) FROM tag WHERE version_id = version.id),"
    f" (SELECT json_group_array(json_array(base_hash, kind)) FROM (SELECT {BASE_HASH}"
    " AS base_hash, kind FROM parent WHERE derived = version.id ORDER BY pos)), scheme"
    " FROM version"
)


def _read(db: Database, clauses: str = "", parameters: Sequence[object] = ()) -> list[Version]:
    return [
        Version(
            *(key, digest, name, number, time_of(created), author, message, framework),
            *(None if dirty is None else bool(dirty), state, network),
            tuple(sorted(json.loads(labels))),
            tuple((base, kind) for base, kind in json.loads(parents)),
            scheme,
        )
        for row in db.rows(f"{_SELECT} {clauses}", parameters)
        for key, digest, name, number, created, author, message in [row[:7]]
        for framework, dirty, state, network, labels, parents, scheme in [row[7:]]
    ]


def _first(db: Database, clauses: str, parameters: Sequence[object]) -> Version | None:
    found = _read(db, clauses, parameters)
    return found[0] if found else None


def by_id(db: Database, digest: str) -> Version | None:
    return _first(db, "WHERE version.hash = ?", (digest,))


def by_ids(db: Database, digests: Iterable[str]) -> dict[str, Version]:
    """Those of them that are there."""
    found = _read(
        db,
        "WHERE version.hash IN (SELECT value FROM json_each(?))",
        (json.dumps(sorted(set(digests))),),
    )
    return {version.id: version for version in found}


def by_prefix(db: Database, prefix: str) -> list[Version]:
    """All whose id begins so; a few are enough to call it ambiguous."""
    return _read(
        db,
        "WHERE version.hash >= ? AND version.hash < ? ORDER BY version.hash LIMIT 10",
        (prefix, prefix + "g"),
    )


def by_number(db: Database, name: str, number: int) -> Version | None:
    return _first(db, "WHERE version.name = ? AND number = ?", (name, number))


# A rounded copy of another version, as `quantize` makes it.
_QUANTIZED = "EXISTS (SELECT 1 FROM parent WHERE derived = version.id AND parent.kind = 'scheme')"


def is_quantized(version: Version) -> bool:
    """Return whether the version is a rounded copy of another one."""
    return any(kind == "scheme" for _, kind in version.parents)


def latest(db: Database, name: str) -> Version | None:
    """Return a model's newest version; rounded copies count only if there are no others."""
    return _first(
        db,
        f"WHERE version.name = ? AND state = 'live' ORDER BY {_QUANTIZED}, number DESC LIMIT 1",
        (name,),
    )


def by_tag(db: Database, tag: str) -> Version | None:
    return _first(db, "WHERE version.id = (SELECT version_id FROM tag WHERE tag.name = ?)", (tag,))


def all_versions(db: Database, states: Iterable[str] = ("live", "recovered")) -> list[Version]:
    """Newest first."""
    wanted = sorted(states)
    places = ",".join("?" * len(wanted))
    return _read(
        db, f"WHERE state IN ({places}) ORDER BY creation_time DESC, version.id DESC", wanted
    )


def of_name(db: Database, name: str) -> list[Version]:
    """The live versions of a name, oldest first."""
    return _read(
        db, "WHERE version.name = ? AND state IN ('live', 'recovered') ORDER BY number", (name,)
    )


def children(db: Database, key: int) -> list[Version]:
    return _read(
        db, "WHERE version.id IN (SELECT derived FROM parent WHERE base = ?) ORDER BY id", (key,)
    )


def ancestors(db: Database, key: int) -> list[Version]:
    """The version and all it comes from, newest first; a cycle, though impossible, would end."""
    return _read(
        db,
        "WHERE version.id IN (WITH RECURSIVE line(id) AS (SELECT ? UNION"
        " SELECT base FROM parent JOIN line ON derived = line.id WHERE base IS NOT NULL)"
        " SELECT id FROM line) ORDER BY creation_time DESC, version.id DESC",
        (key,),
    )


def names(db: Database) -> list[str]:
    """Names that have a live version."""
    return [
        row[0]
        for row in db.rows(
            "SELECT DISTINCT name FROM version WHERE state IN ('live', 'recovered') ORDER BY name"
        )
    ]


def is_name(db: Database, name: str) -> bool:
    """Whether a version was ever called so; an undone one may come back."""
    return db.value("SELECT 1 FROM version WHERE name = ?", (name,)) is not None


def tags(db: Database) -> list[tuple[str, Version]]:
    found = []
    for name, key in db.rows("SELECT name, version_id FROM tag ORDER BY name"):
        version = _first(db, "WHERE version.id = ?", (key,))
        if version is not None:
            found.append((str(name), version))
    return found


def snapshots(db: Database, key: int) -> list[SnapshotRow]:
    return [
        SnapshotRow(row[0], row[1], row[2], bool(row[3]), bool(row[4]))
        for row in db.rows(
            "SELECT id, pos, step, own, removed FROM snapshot WHERE version_id = ? ORDER BY pos",
            (key,),
        )
    ]
