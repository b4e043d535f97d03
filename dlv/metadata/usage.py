"""Who needs which chunks, and what the parts of versions take: the figures of stats, rm and gc."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from dlv.metadata.database import Database

# (owner, snapshot key): the owner needs all matrices of that snapshot.
Holding = tuple[int, int]
# (owner, kind, hash): the owner needs that named object, or that matrix (kind "matrix").
Need = tuple[int, str, str]

# A matrix needs its delta's base, that one its own, and so on; a chunk the table its codec names.
_CHUNKS = (
    "WITH RECURSIVE held(owner, snapshot) AS"
    " (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)),"
    " wanted(owner, kind, hash) AS (SELECT json_extract(value, '$[0]'),"
    " json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(?)),"
    " need(owner, matrix_id) AS ("
    " SELECT owner, matrix_id FROM held JOIN snapshot_matrix ON snapshot_id = held.snapshot"
    " UNION SELECT owner, matrix.id FROM wanted JOIN matrix USING (hash) WHERE kind = 'matrix'"
    " UNION SELECT owner, base_id FROM need JOIN delta_base USING (matrix_id)),"
    " direct(owner, chunk_id) AS (SELECT owner, chunk_id FROM need"
    " JOIN encoding USING (matrix_id) JOIN member ON member.encoding_id = encoding.id"
    " UNION SELECT owner, chunk_id FROM wanted JOIN named_object USING (kind, hash)"
    " JOIN member ON member.object_id = named_object.id)"
    " SELECT owner, chunk_id FROM direct"
    " UNION SELECT owner, member.chunk_id FROM direct JOIN chunk ON chunk.id = direct.chunk_id"
    " JOIN named_object ON named_object.kind = 'table'"
    " AND named_object.hash = json_extract(codec, '$.table')"
    " JOIN member ON member.object_id = named_object.id WHERE codec LIKE '%\"table\"%'"
)


def chunks_needed(
    db: Database, holdings: Iterable[Holding], needs: Iterable[Need]
) -> list[tuple[int, int]]:
    """Every (owner, chunk) such that the owner cannot be read without the chunk."""
    parameters = (json.dumps(list(holdings)), json.dumps(list(needs)))
    return [(row[0], row[1]) for row in db.rows(_CHUNKS, parameters)]


def chunk_lengths(db: Database) -> dict[int, int]:
    """What each chunk takes in its pack."""
    return dict(db.rows("SELECT id, length FROM chunk"))


def bases(db: Database, matrices: Iterable[str]) -> set[str]:
    """What these matrices (their hashes) rest on, as differences or as bases' differences, beside
    themselves."""
    rows = db.rows(
        "WITH RECURSIVE own(hash) AS (SELECT value FROM json_each(?)),"
        " need(hash) AS (SELECT hash FROM own UNION SELECT base_hash FROM need"
        " JOIN matrix USING (hash) JOIN encoding ON matrix_id = matrix.id"
        " WHERE base_hash IS NOT NULL)"
        " SELECT hash FROM need WHERE hash NOT IN (SELECT hash FROM own)",
        (json.dumps(list(matrices)),),
    )
    return {row[0] for row in rows}


def rests_on(db: Database, version: int, other: int) -> bool:
    """Whether deltas of a version need matrices that it does not hold itself but `other` does."""
    own = (
        "SELECT matrix_id FROM snapshot JOIN snapshot_matrix ON snapshot_id = snapshot.id"
        " WHERE removed = 0 AND version_id = ?"
    )
    found = db.value(
        f"WITH RECURSIVE need(matrix_id) AS ({own} UNION SELECT base_id FROM need"
        " JOIN delta_base USING (matrix_id))"
        f" SELECT 1 FROM need WHERE matrix_id NOT IN ({own}) AND matrix_id IN ({own}) LIMIT 1",
        (version, version, other),
    )
    return found is not None


@dataclass(frozen=True)
class Held:
    """One tensor of one snapshot; `owner` is the version's key."""

    owner: int
    snapshot: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    matrix: str


def held(db: Database, owners: Iterable[int]) -> list[Held]:
    """What the snapshots of versions hold, those removed left out."""
    return [
        Held(owner, snapshot, name, dtype, tuple(json.loads(shape)), matrix)
        for owner, snapshot, name, dtype, shape, matrix in db.rows(
            "SELECT version.id, snapshot.id, tensor.name, tensor.dtype, tensor.shape, matrix.hash"
            " FROM version JOIN snapshot ON snapshot.version_id = version.id"
            " JOIN snapshot_matrix ON snapshot_matrix.snapshot_id = snapshot.id"
            " JOIN matrix ON matrix.id = matrix_id"
            " JOIN tensor ON tensor.list_id = tensors_id AND tensor.pos = snapshot_matrix.pos"
            " WHERE removed = 0 AND version.id IN (SELECT value FROM json_each(?))"
            " ORDER BY version.id, snapshot.pos, tensor.pos",
            (json.dumps(list(owners)),),
        )
    ]


@dataclass(frozen=True)
class Part:
    """Bytes of one matrix or object under one codec: `raw` of them decoded, `stored` in packs."""

    kind: str
    hash: str
    layout: str | None
    delta: str | None
    codec: str
    raw: int
    stored: float


def parts(db: Database) -> list[Part]:
    """All that packs hold and the index uses; a shared chunk is divided by what it holds."""
    columns = "json_extract(codec, '$.id'), sum(n), sum(stored)"
    return [
        Part(*row)
        for row in db.rows(
            "SELECT 'matrix', matrix.hash, json_extract(layout, '$.id'),"
            f" json_extract(delta, '$.id'), {columns} FROM encoding"
            " JOIN matrix ON matrix.id = matrix_id JOIN chunk_share ON encoding_id = encoding.id"
            " GROUP BY encoding.id, codec"
            f" UNION ALL SELECT named_object.kind, named_object.hash, NULL, NULL, {columns}"
            " FROM named_object JOIN chunk_share ON object_id = named_object.id"
            " GROUP BY named_object.id, codec"
        )
    ]
