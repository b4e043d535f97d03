"""Bounds records in the catalogue: which there are, and the matrices that they are about."""

from __future__ import annotations

import json
from collections.abc import Iterable

from dlv.metadata.database import Database


def insert(db: Database, name: str, network: str, matrices: Iterable[str]) -> None:
    """The rows of a record whose chunk is indexed already."""
    object_id = db.value("SELECT id FROM named_object WHERE kind = 'bounds' AND hash = ?", (name,))
    if db.value("SELECT 1 FROM bounds WHERE object_id = ?", (object_id,)) is not None:
        return
    bounds_id = db.insert(
        "INSERT INTO bounds(object_id, network) VALUES (?, ?)", (object_id, network)
    )
    db.many(
        "INSERT INTO bounds_matrix(bounds_id, hash) VALUES (?, ?)",
        [(bounds_id, digest) for digest in dict.fromkeys(matrices)],
    )


def candidates(db: Database, network: str, matrices: Iterable[str]) -> list[str]:
    """Records of this network about none but these matrices, the newest first."""
    return [
        row[0]
        for row in db.rows(
            "SELECT named_object.hash FROM bounds JOIN named_object ON named_object.id = object_id"
            " WHERE network = ? AND NOT EXISTS (SELECT 1 FROM bounds_matrix"
            " WHERE bounds_id = bounds.id AND hash NOT IN (SELECT value FROM json_each(?)))"
            " ORDER BY bounds.id DESC",
            (network, json.dumps(sorted(set(matrices)))),
        )
    ]


def needed(db: Database) -> list[str]:
    """Records of networks that some version has, the oldest first."""
    return [
        row[0]
        for row in db.rows(
            "SELECT named_object.hash FROM bounds JOIN named_object ON named_object.id = object_id"
            " WHERE EXISTS (SELECT 1 FROM version JOIN net ON net.id = net_id"
            " WHERE net.hash = network AND state IN ('live', 'recovered')) ORDER BY bounds.id"
        )
    ]


def matrices_of_record(db: Database, name: str) -> list[str]:
    """The matrices that the catalogue has for a record."""
    return [
        row[0]
        for row in db.rows(
            "SELECT bounds_matrix.hash FROM bounds_matrix JOIN bounds ON bounds.id = bounds_id"
            " JOIN named_object ON named_object.id = object_id WHERE named_object.hash = ?",
            (name,),
        )
    ]


def named(db: Database) -> list[str]:
    """Every matrix that records may be about."""
    return [row[0] for row in db.rows("SELECT hash FROM matrix")]


def stored(db: Database) -> list[str]:
    """Every record whose chunk is in some pack, the oldest first."""
    return [
        row[0]
        for row in db.rows(
            "SELECT hash FROM named_object WHERE kind = 'bounds' AND EXISTS"
            " (SELECT 1 FROM member WHERE object_id = named_object.id) ORDER BY id"
        )
    ]


def matrices_of(db: Database, names: Iterable[str]) -> set[str]:
    """The matrices that these records are about, and the bases that they rest on."""
    return {
        row[0]
        for row in db.rows(
            "WITH RECURSIVE held(hash) AS (SELECT bounds_matrix.hash FROM bounds_matrix"
            " JOIN bounds ON bounds.id = bounds_id"
            " JOIN named_object ON named_object.id = object_id"
            " WHERE named_object.hash IN (SELECT value FROM json_each(?))"
            " UNION SELECT base_hash FROM held JOIN matrix USING (hash)"
            " JOIN encoding ON matrix_id = matrix.id WHERE base_hash IS NOT NULL)"
            " SELECT hash FROM held",
            (json.dumps(list(names)),),
        )
    }


def forget(db: Database, names: Iterable[str]) -> None:
    """Records that hold no more: the index finds neither them nor their chunks."""
    ours = "(SELECT id FROM named_object WHERE kind = 'bounds' AND hash = ?)"
    gone = [(name,) for name in names]
    db.many(
        "DELETE FROM bounds_matrix WHERE bounds_id IN"
        f" (SELECT id FROM bounds WHERE object_id = {ours})",
        gone,
    )
    db.many(f"DELETE FROM bounds WHERE object_id = {ours}", gone)
    db.many(f"DELETE FROM member WHERE object_id = {ours}", gone)
    db.many("DELETE FROM named_object WHERE kind = 'bounds' AND hash = ?", gone)
    db.execute(
        "DELETE FROM chunk WHERE NOT EXISTS (SELECT 1 FROM member WHERE chunk_id = chunk.id)"
    )
