"""The content of a catalogue free of its local ids, so that two catalogues can be compared."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from dlv.disk.locks import Patience
from dlv.errors import Conflict, Damaged, NewerFormat, StorageError
from dlv.metadata import facts, versions
from dlv.metadata.database import Database, Row
from dlv.metadata.trials import Trials

STATES = ("live", "removed", "recovered")

_LAYER = "layer.name, layer.alias, layer.op, layer.variant, layer.attrs"
_SRC_LAYER = _LAYER.replace("layer.", "a.")
_DST_LAYER = _LAYER.replace("layer.", "b.")
_ENDS = "JOIN layer a ON a.id = src_layer JOIN layer b ON b.id = dst_layer"

# What manifests, packs and facts determine. Where two packs hold the same bytes, either may
# be the one in use, so chunks are checked against their packs instead; all of an object must
# have its share of some.
CONTENT = {
    "version": "SELECT version.hash, version.name, number, net.hash, tensor_list.hash,"
    " creation_time, author, message, framework, dirty, scheme, state FROM version"
    " LEFT JOIN net ON net.id = net_id LEFT JOIN tensor_list ON tensor_list.id = tensors_id",
    "parent": "SELECT d.hash, parent.pos, b.hash, ifnull(base_hash, b.hash), kind FROM parent"
    " JOIN version d ON d.id = derived LEFT JOIN version b ON b.id = base",
    "snapshot": "SELECT version.hash, snapshot.pos, step, own, removed, snapshot_matrix.pos,"
    " matrix.hash, dtype, shape FROM snapshot JOIN version ON version.id = version_id"
    " LEFT JOIN snapshot_matrix ON snapshot_id = snapshot.id"
    " LEFT JOIN matrix ON matrix.id = matrix_id",
    "tensor": "SELECT hash, pos, name, dtype, shape, role, tied FROM tensor"
    " JOIN tensor_list ON tensor_list.id = list_id",
    "hyperparameter": "SELECT hash, key, type, num, txt FROM hyperparameter"
    " JOIN version ON version.id = version_id",
    "metric": "SELECT hash, tag, run, lower(hex(series_hash)), n, last_step, last, min,"
    " min_step, max, max_step, nonfinite FROM metric JOIN version ON version.id = version_id",
    "file": "SELECT hash, path, role, mode, bytes, blake3, git FROM file"
    " JOIN version ON version.id = version_id",
    "tag": "SELECT tag.name, hash FROM tag JOIN version ON version.id = version_id",
    "saved_query": "SELECT name, text, created FROM saved_query",
    "net": "SELECT hash, structure, n_nodes, n_params, depth FROM net",
    "node": f"SELECT net.hash, pos, {_LAYER}, shape.text, node.n_params FROM node"
    " JOIN net ON net.id = net_id JOIN layer ON layer.id = layer_id"
    " LEFT JOIN shape ON shape.id = out_shape",
    "layer_pair": f"SELECT {_SRC_LAYER}, {_DST_LAYER}, n FROM layer_pair {_ENDS}",
    "edge": f"SELECT net.hash, src, dst, dst_port, {_SRC_LAYER}, {_DST_LAYER}, direct FROM edge"
    f" JOIN net ON net.id = net_id {_ENDS}",
    "raw_edge": f"SELECT net.hash, src, dst, dst_port, {_SRC_LAYER}, {_DST_LAYER} FROM raw_edge"
    f" JOIN net ON net.id = net_id {_ENDS}",
    "net_pair": "SELECT src_op, src_variant, dst_op, dst_variant, hash, n FROM net_pair"
    " JOIN net ON net.id = net_id",
    "layer_stat": f"SELECT {_LAYER}, n_nets, n_out, n_in FROM layer_stat"
    " JOIN layer ON layer.id = layer_id",
    "encoding": "SELECT hash, layout, delta, base_hash, planes FROM encoding"
    " JOIN matrix ON matrix.id = matrix_id",
    "named_object": "SELECT kind, hash FROM named_object",
    "share": "SELECT coalesce(matrix.hash, named_object.hash), chunk.kind, plane, sum(n) FROM"
    " member JOIN chunk ON chunk.id = chunk_id LEFT JOIN encoding ON encoding.id = encoding_id"
    " LEFT JOIN matrix ON matrix.id = matrix_id"
    " LEFT JOIN named_object ON named_object.id = object_id GROUP BY 1, 2, 3",
    "bounds": "SELECT named_object.hash, network FROM bounds"
    " JOIN named_object ON named_object.id = object_id",
    # Of a matrix that is gone, a record tells no more than how its hash begins.
    "bounds_matrix": "SELECT named_object.hash, substr(bounds_matrix.hash, 1, 8) FROM bounds_matrix"
    " JOIN bounds ON bounds.id = bounds_id JOIN named_object ON named_object.id = object_id",
    "pack": "SELECT hash, bytes FROM pack",
    "fact": "SELECT hash, kind, subject, created, data FROM fact",
}

_CODE = re.compile(r"error code=(\d+)")
_SQLITE_IOERR = 10

OF_PACKS = {"pack", "encoding", "named_object", "share", "bounds", "bounds_matrix"}
OF_NETWORKS = {"net", "node", "layer_pair", "edge", "raw_edge", "net_pair", "layer_stat"}


def content(db: Database) -> dict[str, list[Row]]:
    """Table -> its rows in a fixed order."""
    return {name: sorted(db.rows(sql), key=repr) for name, sql in CONTENT.items()}


def differences(db: Database, expected: Database) -> Iterator[tuple[str, Row, str]]:
    """(table, row, "missing" or "not backed by any file") wherever `db` is not `expected`."""
    for name, sql in CONTENT.items():  # a table at a time: some are large
        have, want = set(db.rows(sql)), set(expected.rows(sql))
        for row in sorted(want - have, key=repr):
            yield name, row, "missing"
        for row in sorted(have - want, key=repr):
            yield name, row, "not backed by any file"


def integrity(db: Database) -> list[str]:
    """What SQLite itself finds wrong."""
    problems = [row[0] for row in db.rows("PRAGMA integrity_check(20)") if row[0] != "ok"]
    for problem in problems:
        code = _CODE.search(problem)
        if code is not None and int(code[1]) & 0xFF == _SQLITE_IOERR:
            raise StorageError(
                f"cannot read the database {db.path}", why=problem, hint="check the disk"
            )
    if not db.as_made():
        problems.append("its tables are not those of this version of dlv")
    broken = db.rows("PRAGMA foreign_key_check")
    return problems + [f"{row[0]} row {row[1]} points to nothing in {row[2]}" for row in broken]


def ledger_problems(path: Path) -> list[str]:
    """What SQLite finds wrong with the ledger of trials; nothing if it is not to be had now."""
    if not path.exists():
        return []
    try:
        with closing(Trials(path, patience=Patience().at_most(1))) as ledger:
            rows = ledger.rows("PRAGMA integrity_check(20)")
    except (Conflict, StorageError, NewerFormat):
        return []
    except Damaged as error:
        return [error.why or error.message]
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return [str(error)]
    return [str(row[0]) for row in rows if row[0] != "ok"]


def local_problems(db: Database) -> list[str]:
    """What cannot be right in the part that only this catalogue knows."""
    problems = []
    head = facts.state(db, "HEAD")
    if head is not None and versions.by_id(db, head) is None:
        problems.append("HEAD names a version that is not there")
    readers: list[tuple[str, Callable[[Database], object]]] = [
        ("the name of the next version", _next),
        ("the operation log", facts.operations),
        ("the list of staged files", facts.staged_files),
    ]
    for what, read in readers:
        try:
            read(db)
        except (ValueError, TypeError, KeyError, AttributeError):
            problems.append(f"{what} cannot be read")
    return problems


def _next(db: Database) -> object:
    value = facts.state(db, "next")
    if value is None:
        return None
    data = json.loads(value)
    return data["name"], data["kind"]


def committed_facts(db: Database) -> set[str]:
    """The facts whose change has committed."""
    return {row[0] for row in db.rows("SELECT hash FROM fact")}


def about(db: Database, fact: str) -> tuple[str, str] | None:
    """(kind, subject) of a fact."""
    row = db.row("SELECT kind, subject FROM fact WHERE hash = ?", (fact,))
    return None if row is None else (row[0], str(row[1]))


def labels(db: Database) -> dict[str, str]:
    """Id -> how the version is called, of versions whose manifest is lost too."""
    found = {
        subject: f"{name}@{number}"
        for subject, name, number in db.rows(
            "SELECT subject, json_extract(data, '$.name'), json_extract(data, '$.number')"
            " FROM fact WHERE kind = 'number'"
        )
    }
    return found | {row.id: row.label for row in versions.all_versions(db, STATES)}


def packs(db: Database) -> set[str]:
    return {row[0] for row in db.rows("SELECT hash FROM pack")}


def chunk_rows(db: Database) -> Iterator[tuple[str, tuple[object, ...]]]:
    """(pack, (kind, plane, offset, length, raw, blake3, owner, at, start, n, codec)) of all."""
    for row in db.rows(
        "SELECT pack.hash, chunk.kind, plane, offset, length, raw, blake3,"
        " coalesce(matrix.hash, named_object.hash), at, start, n, chunk.codec FROM member"
        " JOIN chunk ON chunk.id = chunk_id JOIN pack ON pack.id = pack_id"
        " LEFT JOIN encoding ON encoding.id = encoding_id"
        " LEFT JOIN matrix ON matrix.id = matrix_id"
        " LEFT JOIN named_object ON named_object.id = object_id"
        " ORDER BY pack.id, chunk.offset, member.pos"
    ):
        yield row[0], tuple(row[1:])


def versions_of_matrix(db: Database, matrix: str) -> list[str]:
    """Labels of the versions that need a matrix: the blast radius of its loss."""
    return [
        f"{name}@{number}" if number is not None else digest[:12]
        for name, number, digest in db.rows(
            "SELECT DISTINCT version.name, number, version.hash FROM snapshot_matrix"
            " JOIN matrix ON matrix.id = matrix_id JOIN snapshot ON snapshot.id = snapshot_id"
            " JOIN version ON version.id = version_id WHERE matrix.hash = ?"
            " AND version.state != 'undone' ORDER BY version.id",
            (matrix,),
        )
    ]


def ids_of_matrix(db: Database, matrix: str) -> list[str]:
    """Return ids of the versions that have a matrix in a checkpoint."""
    rows = db.rows(
        "SELECT DISTINCT version.hash FROM snapshot_matrix"
        " JOIN matrix ON matrix.id = matrix_id JOIN snapshot ON snapshot.id = snapshot_id"
        " JOIN version ON version.id = version_id WHERE matrix.hash = ?",
        (matrix,),
    )
    return [row[0] for row in rows]


def layers_of_matrix(db: Database, matrix: str) -> list[tuple[str, str]]:
    """(version, tensor) of all that a matrix is the content of."""
    return [
        (f"{name}@{number}" if number is not None else digest[:12], tensor)
        for name, number, digest, tensor in db.rows(
            "SELECT DISTINCT version.name, number, version.hash, tensor.name FROM snapshot_matrix"
            " JOIN matrix ON matrix.id = matrix_id JOIN snapshot ON snapshot.id = snapshot_id"
            " JOIN version ON version.id = version_id JOIN tensor ON tensor.list_id = tensors_id"
            " AND tensor.pos = snapshot_matrix.pos WHERE matrix.hash = ?"
            " AND version.state != 'undone' ORDER BY version.id, tensor.pos",
            (matrix,),
        )
    ]
