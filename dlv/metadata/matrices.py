"""Packs in the catalogue: encodings of matrices, chunks, which bytes lie in which, and bounds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from dlv.canonical import dumps
from dlv.kinds import EncodingRow, Piece
from dlv.metadata.database import Database

# Matrix -> (row, configuration) of the encodings that one call has made.
_Fresh = dict[str, tuple[int | None, tuple[object, ...]]]


class PackIndex:
    """What the weight store asks: how a matrix is encoded, and where its chunks lie."""

    def __init__(self, db: Database) -> None:
        self.db = db

    def encoding(self, matrix: str) -> EncodingRow | None:
        row = self.db.row(
            "SELECT hash, dtype, shape, layout, delta, planes FROM encoding"
            " JOIN matrix ON matrix.id = matrix_id WHERE hash = ?",
            (matrix,),
        )
        if row is None:
            return None
        digest, dtype, shape, layout, delta, planes = row
        return EncodingRow(
            *(digest, dtype, tuple(json.loads(shape)), json.loads(layout)),
            *(None if delta is None else json.loads(delta), planes),
        )

    def chunks(self, matrix: str) -> list[Piece]:
        return self._pieces(
            matrix,
            "JOIN encoding ON encoding.id = member.encoding_id"
            " JOIN matrix ON matrix.id = encoding.matrix_id WHERE matrix.hash = ?",
            (matrix,),
        )

    def object_chunks(self, kind: str, name: str) -> list[Piece]:
        return self._pieces(
            name,
            "JOIN named_object ON named_object.id = member.object_id"
            " WHERE named_object.kind = ? AND named_object.hash = ?",
            (kind, name),
        )

    def _pieces(self, name: str, clauses: str, parameters: Sequence[object]) -> list[Piece]:
        rows = self.db.rows(
            "SELECT pack.hash, chunk.kind, chunk.plane, chunk.offset, chunk.length, chunk.raw,"
            " chunk.blake3, chunk.codec, member.at, member.start, member.n FROM member"
            " JOIN chunk ON chunk.id = member.chunk_id JOIN pack ON pack.id = chunk.pack_id"
            f" {clauses} ORDER BY pack.id, chunk.offset, member.pos",
            parameters,
        )
        return [
            Piece(
                *(name, pack, kind, plane, offset, length, raw, blake3),
                *(json.loads(codec), at, start, count),
            )
            for pack, kind, plane, offset, length, raw, blake3, codec, at, start, count in rows
        ]


def insert_packs(
    db: Database,
    packs: Iterable[tuple[str, int, Mapping[str, Any]]],
    left_out: Set[str] = frozenset(),
) -> None:
    """Rows of new packs: (hash, bytes, footer). A matrix keeps the encoding it has already.

    Those left out have none in these packs that should count.
    """
    fresh: _Fresh = dict.fromkeys(left_out, (None, ()))
    for digest, size, footer in packs:
        if db.value("SELECT 1 FROM pack WHERE hash = ?", (digest,)) is None:
            _insert_pack(db, digest, size, footer, fresh)


def _insert_pack(
    db: Database, digest: str, size: int, footer: Mapping[str, Any], fresh: _Fresh
) -> None:
    pack_id = db.insert("INSERT INTO pack(hash, bytes) VALUES (?, ?)", (digest, size))
    encodings = [_encoding_id(db, entry, fresh) for entry in footer["encodings"]]
    for chunk in footer["chunks"]:
        members = _members(db, chunk, encodings)
        if not members:
            continue
        chunk_id = db.insert(
            "INSERT INTO chunk(pack_id, kind, plane, offset, length, raw, blake3, codec)"
            " VALUES (?,?,?,?,?,?,?,?)",
            (
                *(pack_id, chunk["kind"], chunk["plane"], chunk["offset"], chunk["length"]),
                *(chunk["raw"], chunk["blake3"], dumps(chunk["codec"]).decode()),
            ),
        )
        db.many(
            "INSERT INTO member(chunk_id, pos, encoding_id, object_id, at, start, n)"
            " VALUES (?,?,?,?,?,?,?)",
            [(chunk_id, *member) for member in members],
        )


def _encoding_id(db: Database, entry: Mapping[str, Any], fresh: _Fresh) -> int | None:
    """The row of this encoding; None if the matrix has another, or one from an earlier call.

    The planes of one encoding may lie in several packs that came together, so an encoding
    made by this very call is continued.
    """
    matrix: str = entry["matrix"]
    delta = entry["delta"]
    layout, difference = dumps(entry["layout"]).decode(), delta and dumps(delta).decode()
    config = layout, difference, entry["planes"]
    if matrix in fresh:
        known, its_config = fresh[matrix]
        return known if its_config == config else None
    db.execute(
        "INSERT OR IGNORE INTO matrix(hash, dtype, shape) VALUES (?,?,?)",
        (matrix, entry["dtype"], json.dumps(list(entry["shape"]))),
    )
    matrix_id = db.value("SELECT id FROM matrix WHERE hash = ?", (matrix,))
    if db.value("SELECT 1 FROM encoding WHERE matrix_id = ?", (matrix_id,)) is not None:
        return None
    encoding_id = db.insert(
        "INSERT INTO encoding(matrix_id, layout, delta, base_hash, planes) VALUES (?,?,?,?,?)",
        (matrix_id, layout, difference, delta and delta.get("base"), entry["planes"]),
    )
    fresh[matrix] = encoding_id, config
    return encoding_id


def _members(
    db: Database, chunk: Mapping[str, Any], encodings: Sequence[int | None]
) -> list[tuple[int, int | None, int | None, int, int, int]]:
    """Rows for what the index is to find in this chunk; not what it has elsewhere already."""
    found: list[tuple[int, int | None, int | None, int, int, int]] = []
    at = 0
    for pos, (owner, start, count) in enumerate(chunk["members"]):
        if isinstance(owner, int):
            encoding_id = encodings[owner]
            if encoding_id is not None and not _covered(db, chunk, encoding_id, start, count):
                found.append((pos, encoding_id, None, at, start, count))
        else:
            object_id = _object_id(db, chunk["kind"], owner, start)
            if object_id is not None:
                found.append((pos, None, object_id, at, start, count))
        at += count
    return found


def _covered(
    db: Database, chunk: Mapping[str, Any], encoding_id: int, start: int, count: int
) -> bool:
    """Whether this part of the plane is found already: two packs may hold the same encoding."""
    return (
        db.value(
            "SELECT 1 FROM member JOIN chunk ON chunk.id = chunk_id WHERE encoding_id = ?"
            " AND kind = ? AND plane IS ? AND start < ? AND start + n > ?",
            (encoding_id, chunk["kind"], chunk["plane"], start + count, start),
        )
        is not None
    )


def _object_id(db: Database, kind: str, digest: str, start: int) -> int | None:
    db.execute("INSERT OR IGNORE INTO named_object(kind, hash) VALUES (?, ?)", (kind, digest))
    object_id: int = db.value(
        "SELECT id FROM named_object WHERE kind = ? AND hash = ?", (kind, digest)
    )
    known = db.value("SELECT 1 FROM member WHERE object_id = ? AND start = ?", (object_id, start))
    return None if known else object_id


def stored_bytes(db: Database) -> dict[str, float]:
    """Bytes of packs that each matrix takes: shared chunks are divided by what they hold."""
    return dict(
        db.rows(
            "SELECT matrix.hash, sum(stored) FROM chunk_share"
            " JOIN encoding ON encoding.id = encoding_id JOIN matrix ON matrix.id = matrix_id"
            " WHERE raw > 0 GROUP BY matrix.id"
        )
    )


def stored_of(db: Database, matrices: Iterable[str]) -> dict[str, float]:
    """The same, of some matrices; of one that is not stored, nothing."""
    found: dict[str, float] = {}
    for digest in dict.fromkeys(matrices):
        size = db.value(
            "SELECT sum(stored) FROM matrix JOIN encoding ON matrix_id = matrix.id"
            " JOIN chunk_share ON encoding_id = encoding.id WHERE matrix.hash = ? AND raw > 0",
            (digest,),
        )
        if size is not None:
            found[digest] = size
    return found


def packs(db: Database) -> list[tuple[str, int]]:
    return [(row[0], row[1]) for row in db.rows("SELECT hash, bytes FROM pack ORDER BY id")]


def supersede(db: Database, packs: Sequence[tuple[str, int, Mapping[str, Any]]]) -> None:
    """Rows of packs whose encodings and objects take the place of those there are."""
    owners: dict[str, list[tuple[str, ...]]] = {"encoding": [], "object": []}
    for _, _, footer in packs:
        owners["encoding"] += [(entry["matrix"],) for entry in footer["encodings"]]
        owners["object"] += [
            (chunk["kind"], owner)
            for chunk in footer["chunks"]
            for owner, _, _ in chunk["members"]
            if isinstance(owner, str)
        ]
    db.many(
        "DELETE FROM member WHERE encoding_id = (SELECT encoding.id FROM encoding"
        " JOIN matrix ON matrix.id = matrix_id WHERE hash = ?)",
        owners["encoding"],
    )
    db.many(
        "DELETE FROM encoding WHERE matrix_id = (SELECT id FROM matrix WHERE hash = ?)",
        owners["encoding"],
    )
    db.many(
        "DELETE FROM member WHERE object_id ="
        " (SELECT id FROM named_object WHERE kind = ? AND hash = ?)",
        owners["object"],
    )
    # A pack may come out just as one that is there: then its rows are made again.
    delete_packs(db, [digest for digest, _, _ in packs])
    db.execute(
        "DELETE FROM chunk WHERE NOT EXISTS (SELECT 1 FROM member WHERE chunk_id = chunk.id)"
    )
    insert_packs(db, packs)


# Chunks of a pack that are needed: not a table of frequencies that no chunk names any more.
_NEEDED = (
    "SELECT 1 FROM chunk WHERE pack_id = pack.id AND (kind != 'table' OR EXISTS"
    " (SELECT 1 FROM member JOIN named_object ON named_object.id = object_id"
    " WHERE chunk_id = chunk.id AND named_object.hash IN named))"
)


def unused_packs(db: Database) -> list[tuple[str, int]]:
    """(hash, bytes) of packs that the index finds nothing in that is needed."""
    return [
        (row[0], row[1])
        for row in db.rows(
            "WITH named(hash) AS (SELECT DISTINCT json_extract(codec, '$.table')"
            " FROM chunk WHERE codec LIKE '%\"table\"%')"
            f" SELECT hash, bytes FROM pack WHERE NOT EXISTS ({_NEEDED}) ORDER BY id"
        )
    ]


def forget_packs(db: Database, names: Iterable[str]) -> None:
    """Drop the rows of packs that are used for nothing, those of needless tables first."""
    delete_packs(db, names)
    db.execute(
        "DELETE FROM named_object WHERE kind = 'table'"
        " AND NOT EXISTS (SELECT 1 FROM member WHERE object_id = named_object.id)"
    )


def delete_packs(db: Database, names: Iterable[str]) -> None:
    """Delete the rows of packs and of their chunks."""
    packs = [(name,) for name in names]
    ours = "SELECT id FROM chunk WHERE pack_id = (SELECT id FROM pack WHERE hash = ?)"
    db.many(f"DELETE FROM member WHERE chunk_id IN ({ours})", packs)
    db.many(f"DELETE FROM chunk WHERE id IN ({ours})", packs)
    db.many("DELETE FROM pack WHERE hash = ?", packs)


def insert_bounds(db: Database, name: str, network: str, matrices: Iterable[str]) -> None:
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


def bounds_candidates(db: Database, network: str, matrices: Iterable[str]) -> list[str]:
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


def needed_bounds(db: Database) -> list[str]:
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


def named_bounds(db: Database) -> list[str]:
    """Every matrix that records may be about."""
    return [row[0] for row in db.rows("SELECT hash FROM matrix")]


def stored_bounds(db: Database) -> list[str]:
    """Every record whose chunk is in some pack, the oldest first."""
    return [
        row[0]
        for row in db.rows(
            "SELECT hash FROM named_object WHERE kind = 'bounds' AND EXISTS"
            " (SELECT 1 FROM member WHERE object_id = named_object.id) ORDER BY id"
        )
    ]


def matrices_of_bounds(db: Database, names: Iterable[str]) -> set[str]:
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


def forget_bounds(db: Database, names: Iterable[str]) -> None:
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
