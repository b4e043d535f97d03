"""What gc asks of the catalogue, and the rows that it takes out: what a rebuild would leave out.

Packs stay or go as a whole, each with all its rows, since a rebuild reads footers and knows
nothing of what was needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import dlv.metadata.matrices as matrices
from dlv.dataclass import dataclass
from dlv.metadata import facts
from dlv.metadata.database import Database
from dlv.metadata.matrices import delete_packs


@dataclass(frozen=True)
class ChunkRow:
    """One chunk: where it lies and what it takes."""

    key: int
    pack: str
    length: int


def hidden_since(db: Database, version: str) -> str | None:
    """When the last fact was written that says whether a version is hidden."""
    found: str | None = db.value(
        "WITH RECURSIVE about(hash, created) AS (SELECT hash, created FROM fact WHERE subject = ?"
        " AND kind IN ('removal', 'number') UNION SELECT fact.hash, fact.created FROM fact"
        " JOIN about ON fact.subject = about.hash WHERE fact.kind = 'undo')"
        " SELECT max(created) FROM about",
        (version,),
    )
    return found


def steps_since(db: Database, version: str) -> dict[int | None, str]:
    """Step -> since when its snapshot has been removed without a break."""
    since: dict[int | None, str] = {}
    going: set[int | None] | None = None
    for digest, created, data in db.rows(
        "SELECT hash, created, data FROM fact WHERE kind = 'removal' AND subject = ?"
        " ORDER BY created DESC, hash DESC",
        (version,),
    ):
        if facts.is_undone(db, digest):
            continue
        steps = set(json.loads(data)["steps"] or ())
        going = steps if going is None else going & steps
        for step in going:
            since[step] = str(created)
    return since


def chunks(db: Database) -> list[ChunkRow]:
    return [
        ChunkRow(*row)
        for row in db.rows(
            "SELECT chunk.id, pack.hash, length FROM chunk JOIN pack ON pack.id = pack_id"
        )
    ]


def matrices_needed(db: Database, snapshots: Iterable[int], hashes: Iterable[str]) -> set[str]:
    """The matrices of snapshots (their keys) and these others, with all bases of their deltas."""
    return {
        row[0]
        for row in db.rows(
            "WITH RECURSIVE need(matrix_id) AS (SELECT matrix_id FROM snapshot_matrix"
            " WHERE snapshot_id IN (SELECT value FROM json_each(?))"
            " UNION SELECT id FROM matrix WHERE hash IN (SELECT value FROM json_each(?))"
            " UNION SELECT base_id FROM need JOIN delta_base USING (matrix_id))"
            " SELECT hash FROM need JOIN matrix ON matrix.id = matrix_id",
            (json.dumps(list(snapshots)), json.dumps(sorted(hashes))),
        )
    }


def objects_in(db: Database, keys: Iterable[int]) -> set[tuple[str, str]]:
    """(kind, hash) of the named objects that lie in these chunks."""
    return {
        (row[0], row[1])
        for row in db.rows(
            "SELECT DISTINCT kind, hash FROM member JOIN named_object ON named_object.id ="
            " object_id WHERE chunk_id IN (SELECT value FROM json_each(?))",
            (json.dumps(sorted(keys)),),
        )
    }


def bounds_records(db: Database) -> list[tuple[str, str, frozenset[str]]]:
    """(record, network, matrices) of each record of bounds."""
    held: dict[tuple[str, str], set[str]] = {}
    for name, network, matrix in db.rows(
        "SELECT named_object.hash, network, bounds_matrix.hash FROM bounds"
        " JOIN named_object ON named_object.id = object_id"
        " LEFT JOIN bounds_matrix ON bounds_id = bounds.id"
    ):
        held.setdefault((name, network), set()).update([] if matrix is None else [matrix])
    return [(name, network, frozenset(found)) for (name, network), found in held.items()]


def numbered(db: Database) -> set[str]:
    """Ids that a committed fact has numbered."""
    return {row[0] for row in db.rows("SELECT subject FROM fact WHERE kind = 'number'")}


def forget_packs(db: Database, names: Sequence[str], listed: Iterable[str]) -> None:
    """The rows of packs of which nothing is needed; `listed`: the matrices that only they have."""
    delete_packs(db, names)
    lost = "NOT EXISTS (SELECT 1 FROM member WHERE object_id = named_object.id)"
    records = db.rows(f"SELECT hash FROM named_object WHERE kind = 'bounds' AND {lost}")
    matrices.forget_bounds(db, [row[0] for row in records])
    db.execute(f"DELETE FROM named_object WHERE {lost}")
    db.many(
        "DELETE FROM encoding WHERE matrix_id = (SELECT id FROM matrix WHERE hash = ?)"
        " AND NOT EXISTS (SELECT 1 FROM member WHERE encoding_id = encoding.id)",
        [(digest,) for digest in listed],
    )


def forget_versions(db: Database, keys: Sequence[int]) -> None:
    """All that manifests told of these versions. Facts stay: numbers are not used again."""
    one = [(key,) for key in keys]
    db.many("DELETE FROM parent WHERE derived = ?", one)
    db.many(
        "UPDATE parent SET base = NULL, base_hash = (SELECT hash FROM version WHERE id = base)"
        " WHERE base = ?",
        one,
    )
    db.many(
        "DELETE FROM snapshot_matrix WHERE snapshot_id IN"
        " (SELECT id FROM snapshot WHERE version_id = ?)",
        one,
    )
    for table in ("snapshot", "hyperparameter", "metric", "file", "tag"):
        db.many(f"DELETE FROM {table} WHERE version_id = ?", one)
    db.many("DELETE FROM version WHERE id = ?", one)
    unused = "NOT IN (SELECT tensors_id FROM version WHERE tensors_id IS NOT NULL)"
    db.execute(f"DELETE FROM tensor WHERE list_id {unused}")
    db.execute(f"DELETE FROM tensor_list WHERE id {unused}")
    _forget_networks(db)


def _forget_networks(db: Database) -> None:
    """Networks that no version has any more, and their share of the statistics of layers."""
    unused = [
        (row[0],)
        for row in db.rows(
            "SELECT id FROM net WHERE id NOT IN"
            " (SELECT net_id FROM version WHERE net_id IS NOT NULL)"
        )
    ]
    db.many(
        "UPDATE layer_stat SET n_nets = n_nets - 1,"
        " n_out = n_out - (SELECT count(*) FROM edge WHERE net_id = ?1 AND src_layer = layer_id),"
        " n_in = n_in - (SELECT count(*) FROM edge WHERE net_id = ?1 AND dst_layer = layer_id)"
        " WHERE layer_id IN (SELECT layer_id FROM node WHERE net_id = ?1)",
        unused,
    )
    db.many(
        "UPDATE layer_pair SET n = n - lost FROM (SELECT src_layer AS src, dst_layer AS dst,"
        " count(*) AS lost FROM edge WHERE net_id = ? GROUP BY src_layer, dst_layer)"
        " WHERE src_layer = src AND dst_layer = dst",
        unused,
    )
    for table in ("net_pair", "edge", "raw_edge", "node"):
        db.many(f"DELETE FROM {table} WHERE net_id = ?", unused)
    db.many("DELETE FROM net WHERE id = ?", unused)
    if unused:
        db.execute("DELETE FROM layer_pair WHERE n <= 0")
        db.execute("DELETE FROM layer_stat WHERE n_nets <= 0")
        db.execute("DELETE FROM layer WHERE id NOT IN (SELECT layer_id FROM node)")
        db.execute(
            "DELETE FROM shape WHERE id NOT IN"
            " (SELECT out_shape FROM node WHERE out_shape IS NOT NULL)"
        )


def forget_matrices(db: Database) -> None:
    """Names of matrices that nothing holds and that no pack has."""
    db.execute(
        "DELETE FROM matrix WHERE id NOT IN (SELECT matrix_id FROM snapshot_matrix)"
        " AND id NOT IN (SELECT matrix_id FROM encoding)"
    )
