"""What there is to plan for: every stored matrix, who holds it, and what its pack holds beside."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dlv.metadata.database import Database


@dataclass(frozen=True)
class StoredMatrix:
    """A matrix and the encoding that counts for it. `stored`: its share of the packs' bytes."""

    hash: str
    dtype: str
    shape: tuple[int, ...]
    layout: dict[str, Any]
    delta: dict[str, Any] | None
    planes: int
    stored: float
    contexts: bool  # some plane is coded by context


@dataclass(frozen=True)
class HeldSnapshot:
    """One snapshot of one version: matrices by tensor name, with dtype, shape and role."""

    version: int
    key: int
    pos: int
    step: int | None
    own: bool
    removed: bool
    tensors: tuple[tuple[str, str, str], ...]  # (name, role, matrix)


def stored_matrices(db: Database) -> list[StoredMatrix]:
    """All that have an encoding, in the order in which they came."""
    return [
        StoredMatrix(
            *(digest, dtype, tuple(json.loads(shape)), json.loads(layout)),
            *(None if delta is None else json.loads(delta), planes, stored),
            contexts=bool(contexts),
        )
        for digest, dtype, shape, layout, delta, planes, stored, contexts in db.rows(
            "SELECT matrix.hash, dtype, shape, layout, delta, planes, coalesce((SELECT"
            " sum(stored) FROM chunk_share WHERE encoding_id = encoding.id AND raw > 0), 0.0),"
            " EXISTS (SELECT 1 FROM chunk_share"
            " WHERE encoding_id = encoding.id AND codec LIKE '%\"context%')"
            " FROM encoding JOIN matrix ON matrix.id = matrix_id ORDER BY matrix.id"
        )
    ]


def held_snapshots(db: Database, versions: Iterable[int]) -> list[HeldSnapshot]:
    """The snapshots of versions (their keys), oldest version first, removed ones too."""
    tensors: dict[int, list[tuple[str, str, str]]] = {}
    wanted = json.dumps(list(versions))
    for snapshot, name, role, digest in db.rows(
        "SELECT snapshot.id, tensor.name, tensor.role, matrix.hash FROM snapshot"
        " JOIN version ON version.id = version_id"
        " JOIN snapshot_matrix ON snapshot_id = snapshot.id"
        " JOIN matrix ON matrix.id = matrix_id"
        " JOIN tensor ON tensor.list_id = tensors_id AND tensor.pos = snapshot_matrix.pos"
        " WHERE version_id IN (SELECT value FROM json_each(?)) ORDER BY snapshot.id, tensor.pos",
        (wanted,),
    ):
        tensors.setdefault(snapshot, []).append((name, role, digest))
    return [
        HeldSnapshot(
            *(version, key, pos, step, bool(own), bool(removed)), tuple(tensors.get(key, ()))
        )
        for version, key, pos, step, own, removed in db.rows(
            "SELECT version_id, snapshot.id, pos, step, own, removed FROM snapshot"
            " JOIN version ON version.id = version_id"
            " WHERE version_id IN (SELECT value FROM json_each(?))"
            " ORDER BY creation_time, version_id, pos",
            (wanted,),
        )
    ]


def packs_of(db: Database, matrices: Iterable[str]) -> dict[str, float]:
    """Pack -> the bytes of it that these matrices take."""
    found: dict[str, float] = {}
    for digest in matrices:
        for pack, size in db.rows(
            "SELECT pack.hash, sum(stored) FROM matrix"
            " JOIN encoding ON encoding.matrix_id = matrix.id"
            " JOIN chunk_share ON encoding_id = encoding.id"
            " JOIN pack ON pack.id = pack_id WHERE matrix.hash = ? AND raw > 0"
            " GROUP BY pack.id",
            (digest,),
        ):
            found[pack] = found.get(pack, 0.0) + size
    return found


def used_bytes(db: Database) -> dict[str, float]:
    """Pack -> the bytes of its chunks that the index finds something in."""
    return dict(
        db.rows(
            "SELECT pack.hash, sum(CASE WHEN raw > 0 THEN length * 1.0 * used / raw ELSE length"
            " END) FROM (SELECT chunk_id, sum(n) AS used FROM member GROUP BY chunk_id)"
            " JOIN chunk ON chunk.id = chunk_id JOIN pack ON pack.id = pack_id GROUP BY pack.id"
        )
    )


def tables_named(db: Database, besides: Iterable[str] = ()) -> set[str]:
    """Tables of frequencies that chunks name, those of some matrices left out."""
    rows = db.rows(
        "SELECT DISTINCT json_extract(codec, '$.table') FROM chunk JOIN member"
        " ON chunk_id = chunk.id JOIN encoding ON encoding.id = encoding_id"
        " JOIN matrix ON matrix.id = matrix_id WHERE codec LIKE '%\"table\"%'"
        " AND matrix.hash NOT IN (SELECT value FROM json_each(?))",
        (json.dumps(list(besides)),),
    )
    return {row[0] for row in rows if row[0] is not None}


def used_in(db: Database, pack: str) -> tuple[list[str], list[tuple[str, str]]]:
    """What the index finds in a pack: matrices, and (kind, hash) of objects."""
    matrices = db.rows(
        "SELECT DISTINCT matrix.hash FROM pack JOIN chunk ON pack_id = pack.id"
        " JOIN member ON chunk_id = chunk.id JOIN encoding ON encoding.id = encoding_id"
        " JOIN matrix ON matrix.id = matrix_id WHERE pack.hash = ? ORDER BY matrix.id",
        (pack,),
    )
    objects = db.rows(
        "SELECT DISTINCT named_object.kind, named_object.hash FROM pack"
        " JOIN chunk ON pack_id = pack.id JOIN member ON chunk_id = chunk.id"
        " JOIN named_object ON named_object.id = object_id WHERE pack.hash = ?"
        " ORDER BY named_object.id",
        (pack,),
    )
    return [row[0] for row in matrices], [(row[0], row[1]) for row in objects]


def matrix_names(db: Database) -> set[str]:
    """Of every matrix that the catalogue knows."""
    return {row[0] for row in db.rows("SELECT hash FROM matrix")}


def size_of_packs(db: Database) -> int:
    """What all packs take on disk."""
    return int(db.value("SELECT coalesce(sum(bytes), 0) FROM pack"))
