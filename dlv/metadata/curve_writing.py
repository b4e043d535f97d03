"""Rows of curves: what logs and packs bring into `live.db`. The caller holds the transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from dlv.dataclass import dataclass
from dlv.metadata.curves import CHUNK
from dlv.metadata.database import Database, Row

PIECE = 8 << 20  # bytes of a blob in one row
# Policies that stand in no log: from here on `preempt` hides points. The step is lower than one
# that is seen, or the same.
BACK, REPEAT = "preempt", "repeat"


@dataclass
class FileRow:
    """A log as it was when it was last read: the points of its first `offset` bytes are here."""

    path: str
    kind: str
    size: int
    mtime_ns: int
    inode: int
    head: str
    offset: int
    status: str
    error: str | None = None
    id: int = 0


@dataclass
class SeriesState:
    """A series in figures, as its row says and is to say."""

    id: int
    data_class: int
    written: int = 0
    n: int = 0
    max_step: int | None = None
    max_wall: float | None = None
    max_length: int = 0
    last: float | None = None
    min: float | None = None
    max: float | None = None
    error: str | None = None
    changed: bool = False


class PackedChunk(NamedTuple):
    """Figures as of `scalar_chunk`, and the packed points."""

    seq: int
    n: int
    step0: int
    step1: int
    vmin: float | None
    imin: int | None
    vmax: float | None
    imax: int | None
    nonfinite: int
    data: bytes


class TensorPoint(NamedTuple):
    seq: int
    step: int
    wall: float
    dtype: str
    shape: str
    data: bytes
    legacy: bytes


def experiment(db: Database, name: str) -> int:
    db.execute("INSERT OR IGNORE INTO experiment(name) VALUES (?)", (name,))
    return int(db.value("SELECT id FROM experiment WHERE name = ?", (name,)))


def run(db: Database, experiment_id: int, name: str) -> int:
    db.execute(
        "INSERT OR IGNORE INTO run(experiment_id, name, hyperparameters, state)"
        " VALUES (?, ?, '{}', '{}')",
        (experiment_id, name),
    )
    return int(
        db.value("SELECT id FROM run WHERE experiment_id = ? AND name = ?", (experiment_id, name))
    )


def run_state(db: Database, run_id: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        db.value("SELECT state FROM run WHERE id = ?", (run_id,)) or "{}"
    )
    return found


def set_run_state(
    db: Database, run_id: int, state: Mapping[str, Any], start_time: float | None
) -> None:
    """The first start counts."""
    db.execute(
        "UPDATE run SET state = ?, start_time = coalesce(min(start_time, ?), start_time, ?)"
        " WHERE id = ?",
        (json.dumps(state), start_time, start_time, run_id),
    )


def describe_run(
    db: Database,
    run_id: int,
    version: str,
    start_time: float | None,
    hyperparameters: Mapping[str, Any],
) -> None:
    db.execute(
        "UPDATE run SET version = ?, start_time = ?, hyperparameters = ? WHERE id = ?",
        (version, start_time, json.dumps(hyperparameters), run_id),
    )


_FILE = "path, kind, size, mtime_ns, inode, head, offset, status, error"


def files(db: Database, experiment_id: int) -> dict[str, dict[str, FileRow]]:
    """Run -> path -> what was read of it; runs without files too."""
    found: dict[str, dict[str, FileRow]] = {}
    for name, *row in db.rows(
        f"SELECT r.name, {_FILE}, f.id FROM run r LEFT JOIN event_file f ON f.run_id = r.id"
        " WHERE r.experiment_id = ? ORDER BY r.name, f.path",
        (experiment_id,),
    ):
        of_run = found.setdefault(name, {})
        if row[0] is not None:
            of_run[row[0]] = FileRow(*row)
    return found


def offset(db: Database, run_id: int, path: str) -> int | None:
    """How far the file is read by now, whoever did it."""
    found = db.value("SELECT offset FROM event_file WHERE run_id = ? AND path = ?", (run_id, path))
    return None if found is None else int(found)


def put_file(db: Database, run_id: int, file: FileRow) -> None:
    db.execute(
        f"INSERT OR REPLACE INTO event_file(run_id, {_FILE}) VALUES (?,?,?,?,?,?,?,?,?,?)",
        (
            *(run_id, file.path, file.kind, file.size, file.mtime_ns, file.inode),
            *(file.head, file.offset, file.status, file.error),
        ),
    )


def series(db: Database, run_id: int) -> dict[str, SeriesState]:
    return {
        tag: SeriesState(*row)
        for tag, *row in db.rows(
            "SELECT tag, id, data_class, written, n, max_step, max_wall, max_length,"
            " last, min, max, error FROM series WHERE run_id = ?",
            (run_id,),
        )
    }


SeriesRow = tuple[str, str, int, bytes, str, str]


def add_series(db: Database, run_id: int, rows: Sequence[SeriesRow]) -> dict[str, SeriesState]:
    """Insert new series of a run: (tag, plugin, data class, content, display name, description)."""
    first = 1 + int(db.value("SELECT coalesce(max(id), 0) FROM series"))
    db.many(
        "INSERT INTO series(id, run_id, tag, plugin, data_class, content, display_name,"
        " description) VALUES (?,?,?,?,?,?,?,?)",
        [(first + index, run_id, *row) for index, row in enumerate(rows)],
    )
    return {row[0]: SeriesState(first + index, row[2]) for index, row in enumerate(rows)}


def save_series(db: Database, states: Iterable[SeriesState]) -> None:
    """Those that have changed."""
    changed = [state for state in states if state.changed]
    db.many(
        "UPDATE series SET written = ?, n = ?, max_step = ?, max_wall = ?, max_length = ?,"
        " last = ?, min = ?, max = ?, error = ? WHERE id = ?",
        [
            (
                *(s.written, s.n, s.max_step, s.max_wall, s.max_length),
                *(s.last, s.min, s.max, s.error, s.id),
            )
            for s in changed
        ],
    )
    for state in changed:
        state.changed = False


def moments(db: Database, series_id: int, table: Literal["tensor", "blob_point"]) -> list[Row]:
    """(step, wall) of every point."""
    return db.rows(f"SELECT step, wall FROM {table} WHERE series_id = ? ORDER BY seq", (series_id,))


def loose_end(db: Database, series_id: int) -> list[tuple[int, int, bytes]]:
    """The chunks at the end that are not full: (seq, n, packed)."""
    found = []
    for seq, n, data in db.stream(
        "SELECT seq, n, data FROM scalar_chunk WHERE series_id = ? ORDER BY seq DESC", (series_id,)
    ):
        if n >= CHUNK:
            break
        found.append((seq, n, data))
    return found[::-1]


def drop_chunks(db: Database, series_id: int, first: int) -> None:
    """Delete the chunks from point `first` on."""
    db.execute("DELETE FROM scalar_chunk WHERE series_id = ? AND seq >= ?", (series_id, first))


def put_chunks(db: Database, chunks: Iterable[tuple[int, PackedChunk]]) -> None:
    """Insert chunks, each with the id of its series."""
    db.many(
        "INSERT INTO scalar_chunk(series_id, seq, n, step0, step1, vmin, imin, vmax, imax,"
        " nonfinite, data) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
        [(series_id, *chunk) for series_id, chunk in chunks],
    )


def put_preview(db: Database, series_id: int, n: int, data: bytes) -> None:
    db.execute("INSERT OR REPLACE INTO preview VALUES (?, ?, ?)", (series_id, n, data))


def put_tensors(db: Database, series_id: int, points: Sequence[TensorPoint]) -> None:
    db.many(
        "INSERT INTO tensor(series_id, seq, step, wall, dtype, shape, data, legacy)"
        " VALUES (?,?,?,?,?,?,?,?)",
        [(series_id, *point) for point in points],
    )


def put_blobs(
    db: Database,
    series_id: int,
    seq: int,
    step: int,
    wall: float,
    blobs: Sequence[tuple[str, bytes]],
) -> None:
    """A point of (hash, content)s; content that is there already is not stored again."""
    db.execute(
        "INSERT INTO blob_point(series_id, seq, step, wall, length) VALUES (?,?,?,?,?)",
        (series_id, seq, step, wall, len(blobs)),
    )
    for index, (digest, data) in enumerate(blobs):
        key = db.value("SELECT id FROM blob WHERE hash = ?", (digest,))
        if key is None:
            key = db.insert("INSERT INTO blob(hash, bytes) VALUES (?, ?)", (digest, len(data)))
            view = memoryview(data)
            db.many(
                "INSERT INTO blob_piece(blob_id, pos, data) VALUES (?, ?, ?)",
                (
                    (key, pos, view[start : start + PIECE])
                    for pos, start in enumerate(range(0, max(len(data), 1), PIECE))
                ),
            )
        db.execute("INSERT INTO blob_place VALUES (?, ?, ?, ?)", (series_id, seq, index, key))


def put_purge(db: Database, series_id: int, seq: int, step: int, policy: str) -> None:
    db.execute("INSERT OR IGNORE INTO purge VALUES (?, ?, ?, ?)", (series_id, seq, step, policy))


def put_back(db: Database, series_id: int, seq: int, step: int, policy: str) -> None:
    """Where it is so first."""
    db.execute(
        "INSERT OR IGNORE INTO purge SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS"
        " (SELECT 1 FROM purge WHERE series_id = ?1 AND policy = ?4)",
        (series_id, seq, step, policy),
    )


def drop_back(db: Database, series_id: int) -> None:
    db.execute("DELETE FROM purge WHERE series_id = ? AND policy <> 'marked'", (series_id,))


def set_hidden(db: Database, series_id: int, ranges: Sequence[tuple[int, int]]) -> None:
    db.execute("DELETE FROM hidden WHERE series_id = ?", (series_id,))
    db.many("INSERT INTO hidden VALUES (?, ?, ?)", [(series_id, *one) for one in ranges])


_OF_RUN = "series_id IN (SELECT id FROM series WHERE run_id = ?)"
_PARTS = ("scalar_chunk", "preview", "purge", "hidden", "tensor", "blob_place", "blob_point")


def withdraw(db: Database, run_id: int) -> None:
    """All that is known of a run, and the run."""
    blobs = db.rows(f"SELECT DISTINCT blob_id FROM blob_place WHERE {_OF_RUN}", (run_id,))
    for table in _PARTS:
        db.execute(f"DELETE FROM {table} WHERE {_OF_RUN}", (run_id,))
    unused = [
        key
        for key in blobs
        if db.value("SELECT 1 FROM blob_place WHERE blob_id = ? LIMIT 1", key) is None
    ]
    db.many("DELETE FROM blob_piece WHERE blob_id = ?", unused)
    db.many("DELETE FROM blob WHERE id = ?", unused)
    for table in ("series", "event_file"):
        db.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
    db.execute("DELETE FROM run WHERE id = ?", (run_id,))


def forget(db: Database, experiment_id: int) -> None:
    """An experiment with all its runs."""
    for (run_id,) in db.rows("SELECT id FROM run WHERE experiment_id = ?", (experiment_id,)):
        withdraw(db, run_id)
    db.execute("DELETE FROM experiment WHERE id = ?", (experiment_id,))


def versions(db: Database, experiment_id: int) -> list[Row]:
    """(run id, name, version id) of the runs that are versions."""
    return db.rows(
        "SELECT id, name, version FROM run WHERE experiment_id = ? AND version IS NOT NULL",
        (experiment_id,),
    )
