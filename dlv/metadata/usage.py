"""What packs hold and who needs it, for stats, rm, gc and archive; and names that queries may use.

Each question about names is answered by an index in good cases; lists are read only to suggest
what was meant.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache, cached_property
from typing import Any

from dlv.dataclass import dataclass
from dlv.metadata.database import Database
from dlv.metadata.evaluations import saved_evaluations


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
    read = cache(json.loads)  # of many thousands most are alike
    return [
        StoredMatrix(
            *(digest, dtype, tuple(read(shape)), dict(read(layout))),
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


# Who needs which chunks

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


@dataclass(frozen=True)
class SavedQuery:
    name: str
    text: str
    created: str


def saved_queries(db: Database) -> list[SavedQuery]:
    """In the order of the alphabet."""
    return [
        SavedQuery(*row)
        for row in db.rows("SELECT name, text, created FROM saved_query ORDER BY name")
    ]


def saved_query(db: Database, name: str) -> SavedQuery | None:
    if not all(map(str.isprintable, name)):  # nor may SQLite get bytes that are no UTF-8
        return None
    row = db.row("SELECT name, text, created FROM saved_query WHERE name = ?", (name,))
    return None if row is None else SavedQuery(*row)


# What a stored type counts as in a query.
KINDS = {
    "int": "number",
    "float": "number",
    "bool": "boolean",
    "str": "text",
    "json": "list",
    "null": "null",
}
_MOST = 20_000  # names that are read to find those that were meant


class KnownNames:
    """The names of one catalogue."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def has_hyperparameter(self, key: str) -> bool:
        return self._some("hyperparameter WHERE key = ?", key)

    def has_kind(self, key: str, kind: str) -> bool:
        """Whether some version has a hyperparameter of that kind under this key."""
        types = [stored for stored, counted in KINDS.items() if counted == kind]
        marks = ", ".join("?" * len(types))
        return self._some(f"hyperparameter WHERE key = ? AND type IN ({marks})", key, *types)

    def kinds(self, key: str) -> list[str]:
        """All kinds of the values under a key, which takes a look at each of them."""
        rows = self.database.rows("SELECT DISTINCT type FROM hyperparameter WHERE key = ?", (key,))
        return sorted({KINDS.get(row[0], "list") for row in rows})

    @cached_property
    def hyperparameters(self) -> list[str]:
        """The keys, each found from the one before it."""
        found: list[str] = []
        key = self.database.value("SELECT min(key) FROM hyperparameter")
        while key is not None and len(found) < _MOST:
            found.append(key)
            key = self.database.value("SELECT min(key) FROM hyperparameter WHERE key > ?", (key,))
        return found

    def has_series(self, name: str) -> bool:
        """Whether there is a series, or a figure of an evaluation, of that name."""
        splits = [("", name)]
        splits += [(name[:at], name[at + 1 :]) for at, sign in enumerate(name) if sign == "/"]
        return (
            any(self._some("metric WHERE tag = ? AND run = ?", tag, run) for run, tag in splits)
            or name in self._evaluated
        )

    @cached_property
    def series(self) -> list[str]:
        rows = self.database.rows("SELECT DISTINCT run, tag FROM metric LIMIT ?", (_MOST,))
        return sorted({f"{run}/{tag}" if run else tag for run, tag in rows} | self._evaluated)

    @cached_property
    def _evaluated(self) -> set[str]:
        return {name for saved in saved_evaluations(self.database) for name, _ in saved.values()}

    def has_layer(self, name: str) -> bool:
        """Whether a layer of some network has that name or alias."""
        return self._some("layer WHERE name = ?", name) or self._some("layer WHERE alias = ?", name)

    @cached_property
    def layers(self) -> list[str]:
        rows = self.database.rows(
            "SELECT name FROM layer UNION SELECT alias FROM layer WHERE alias <> '' LIMIT ?",
            (_MOST,),
        )
        return [row[0] for row in rows]

    def saved(self, name: str) -> str | None:
        """The text of a saved query."""
        found = saved_query(self.database, name)
        return None if found is None else found.text

    def saved_names(self) -> list[str]:
        return [query.name for query in saved_queries(self.database)]

    def _some(self, condition: str, *values: str) -> bool:
        return self.database.row(f"SELECT 1 FROM {condition} LIMIT 1", values) is not None
