"""Curves as they lie in `live.db`: the file opened, and what is read of it."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dlv.disk.locks import Patience
from dlv.errors import Damaged, NewerFormat, StorageError
from dlv.metadata import schemas
from dlv.metadata.database import Database, Row

SCHEMA_VERSION = 2
PAGE = 16384  # a chunk of points takes a few pages, not dozens


def open_curves(path: Path, *, wal: bool = True, patience: Patience | None = None) -> CurveDatabase:
    """The curves in `path`; what cannot be used is thrown away, as logs and packs have it all."""
    with contextlib.suppress(Damaged, NewerFormat):
        return CurveDatabase(path, wal=wal, patience=patience)
    for end in ("", "-wal", "-shm", "-journal"):
        try:
            path.with_name(path.name + end).unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(
                f"the curves in {path} cannot be read or rebuilt",
                why=error.strerror,
                hint="run the command once as a user who may write there",
            ) from error
    return CurveDatabase(path, wal=wal, patience=patience)


class CurveDatabase(Database):
    """A machine that crashes may cost its last moments: they are read again."""

    def __init__(self, path: Path, *, wal: bool = True, patience: Patience | None = None) -> None:
        super().__init__(path, wal=wal, patience=patience)
        self.execute("PRAGMA synchronous = NORMAL")

    def _connect(self) -> sqlite3.Connection:
        made = super()._connect()
        made.execute(f"PRAGMA page_size = {PAGE}")  # of a file that is not there yet
        return made

    @property
    def _busy(self) -> str:
        return "the file of curves is busy"

    def _begin(self, create: bool) -> None:
        found = self.value("PRAGMA user_version")
        if not found and create and not self.read_only:
            with self.atomic():
                if not self.value("PRAGMA user_version"):
                    for statement in schemas.statements("curves.sql"):
                        self.execute(statement)
                    self.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            found = SCHEMA_VERSION
        if found != SCHEMA_VERSION or not self.as_made():
            raise Damaged(f"{self.path} does not have the curves of this dlv version")

    def foreign(self) -> list[str]:
        return schemas.foreign(self, "curves.sql")

    def as_made(self) -> bool:
        try:
            return not self.foreign() and not schemas.missing(self, "curves.sql")
        except Damaged:
            return False

    def _translated(self, error: sqlite3.Error | UnicodeDecodeError) -> BaseException:
        found = super()._translated(error)
        if isinstance(found, Damaged):
            found.message = f"{self.path} is corrupt"
            found.hint = "remove it and repeat the command: it is made again"
        elif isinstance(found, StorageError):
            found.message = f"cannot use the curves in {self.path}"
        return found


CHUNK = 4096  # points at most

_SERIES = (
    "s.id, r.name, s.tag, s.plugin, s.data_class, s.content, s.display_name, s.description,"
    " s.n, s.max_step, s.max_wall, s.max_length, s.last, s.min, s.max, s.error"
)


class Extent(NamedTuple):
    """How many points were written, and which of them are hidden: (seq, n) in order."""

    written: int
    hidden: tuple[tuple[int, int], ...]

    def live(self) -> Iterator[tuple[int, int, int]]:
        """(ordinal, seq, n) of the live points between the hidden ones."""
        ordinal = seq = 0
        for start, n in (*self.hidden, (self.written, 0)):
            if start > seq:
                yield ordinal, seq, start - seq
                ordinal += start - seq
            seq = start + n


def experiments(db: Database) -> list[tuple[int, str]]:
    return [(key, name) for key, name in db.rows("SELECT id, name FROM experiment ORDER BY name")]


def experiment(db: Database, name: str) -> int | None:
    found = db.value("SELECT id FROM experiment WHERE name = ?", (name,))
    return None if found is None else int(found)


def files(db: Database, experiment_name: str, kind: str) -> list[str]:
    """Paths of the logs of a kind that were read for an experiment."""
    found = db.rows(
        "SELECT f.path FROM experiment e JOIN run r ON r.experiment_id = e.id"
        " JOIN event_file f ON f.run_id = r.id WHERE e.name = ? AND f.kind = ?",
        (experiment_name, kind),
    )
    return [path for (path,) in found]


def runs(db: Database, experiment_id: int) -> list[Row]:
    """(id, name, version, start time), by name."""
    return db.rows(
        "SELECT id, name, version, start_time FROM run WHERE experiment_id = ? ORDER BY name",
        (experiment_id,),
    )


def hyperparameters(db: Database, experiment_id: int) -> list[tuple[str, dict[str, Any]]]:
    """Of the runs that have some."""
    return [
        (name, json.loads(text))
        for name, text in db.rows(
            "SELECT name, hyperparameters FROM run WHERE experiment_id = ?"
            " AND hyperparameters <> '{}' ORDER BY name",
            (experiment_id,),
        )
    ]


def series(
    db: Database,
    experiment_id: int,
    plugin: str | None = None,
    data_class: int | None = None,
    run_names: Collection[str] | None = None,
    tags: Collection[str] | None = None,
) -> list[Row]:
    """Rows of `_SERIES`, by run and tag; None stands for all, an empty collection for none."""
    sql = f"SELECT {_SERIES} FROM run r JOIN series s ON s.run_id = r.id WHERE r.experiment_id = ?"
    given: list[Any] = [experiment_id]
    for column, value in (("s.plugin", plugin), ("s.data_class", data_class)):
        if value is not None:
            sql += f" AND {column} = ?"
            given.append(value)
    for column, names in (("r.name", run_names), ("s.tag", tags)):
        if names is not None:
            sql += f" AND {column} IN (SELECT value FROM json_each(?))"
            given.append(json.dumps(list(names)))
    return db.rows(f"{sql} ORDER BY r.name, s.tag", given)


def extent(db: Database, series_id: int) -> Extent:
    written = db.value("SELECT written FROM series WHERE id = ?", (series_id,))
    hidden = db.rows("SELECT seq, n FROM hidden WHERE series_id = ? ORDER BY seq", (series_id,))
    return Extent(written or 0, tuple((seq, n) for seq, n in hidden))


def restarted(db: Database, experiment_id: int) -> set[int]:
    """Series of which the policies of restarts do not all show the same."""
    found = db.rows(
        "SELECT s.id FROM run r JOIN series s ON s.run_id = r.id WHERE r.experiment_id = ?1"
        " AND (EXISTS (SELECT 1 FROM hidden h WHERE h.series_id = s.id) OR EXISTS"
        " (SELECT 1 FROM purge p WHERE p.series_id = s.id AND p.policy <> 'marked'))",
        (experiment_id,),
    )
    return {key for (key,) in found}


def is_restarted(db: Database, series_id: int) -> bool:
    found = db.value(
        "SELECT EXISTS (SELECT 1 FROM hidden WHERE series_id = ?1)"
        " OR EXISTS (SELECT 1 FROM purge WHERE series_id = ?1 AND policy <> 'marked')",
        (series_id,),
    )
    return bool(found)


def went_back(db: Database, experiment_id: int) -> list[tuple[str, int]]:
    """Runs in which steps went back and no restart is marked, and to which step."""
    return [
        (run, step)
        for run, step in db.rows(
            "SELECT r.name, min(p.step) FROM purge p JOIN series s ON s.id = p.series_id"
            " JOIN run r ON r.id = s.run_id WHERE p.policy = 'preempt' AND r.experiment_id = ?"
            " GROUP BY r.name ORDER BY r.name",
            (experiment_id,),
        )
    ]


def stamp(db: Database, series_id: int) -> Row:
    """Its class, and what is another as soon as other points are there."""
    return db.rows(
        "SELECT data_class, written, n, max_step, max_wall, last, min, max, run_id, tag,"
        " (SELECT count(*) FROM purge WHERE series_id = series.id) FROM series WHERE id = ?",
        (series_id,),
    )[0]


def chunks(db: Database, series_id: int, start: int, end: int) -> Iterator[tuple[int, int, bytes]]:
    """(seq, n, packed) of the chunks that hold points from `start` up to `end`."""
    return (
        (seq, n, data)
        for seq, n, data in db.stream(
            "SELECT seq, n, data FROM scalar_chunk WHERE series_id = ?"
            " AND seq > ? AND seq < ? AND seq + n > ? ORDER BY seq",
            (series_id, start - CHUNK, end, start),
        )
    )


def chunk_figures(db: Database, series_id: int) -> list[Row]:
    """(seq, n, step0, step1, vmin, imin, vmax, imax, nonfinite); imin and imax count from seq."""
    return db.rows(
        "SELECT seq, n, step0, step1, vmin, imin, vmax, imax, nonfinite"
        " FROM scalar_chunk WHERE series_id = ? ORDER BY seq",
        (series_id,),
    )


def preview(db: Database, series_id: int) -> bytes | None:
    """The packed sample, if it is one of the points that are there now."""
    found = db.value(
        "SELECT p.data FROM preview p JOIN series s ON s.id = p.series_id"
        " WHERE p.series_id = ? AND p.n = s.n",
        (series_id,),
    )
    return None if found is None else bytes(found)


def tensors(db: Database, series_id: int, start: int, end: int) -> Iterator[Row]:
    """(step, wall, dtype, shape as JSON, data, legacy) of points `start` .. `end`."""
    return db.stream(
        "SELECT step, wall, dtype, shape, data, legacy FROM tensor"
        " WHERE series_id = ? AND seq >= ? AND seq < ? ORDER BY seq",
        (series_id, start, end),
    )


def blob_points(db: Database, series_id: int, start: int, end: int) -> Iterator[Row]:
    """(step, wall, [[blob id, bytes], ..] as JSON) of points `start` .. `end`."""
    return db.stream(
        "SELECT p.step, p.wall, (SELECT json_group_array(json_array(id, bytes)) FROM"
        " (SELECT b.id, b.bytes FROM blob_place q JOIN blob b ON b.id = q.blob_id"
        " WHERE q.series_id = p.series_id AND q.seq = p.seq ORDER BY q.idx))"
        " FROM blob_point p WHERE p.series_id = ? AND p.seq >= ? AND p.seq < ? ORDER BY p.seq",
        (series_id, start, end),
    )


def blob_at(db: Database, series_id: int, seq: int, index: int) -> int | None:
    found = db.value(
        "SELECT blob_id FROM blob_place WHERE series_id = ? AND seq = ? AND idx = ?",
        (series_id, seq, index),
    )
    return None if found is None else int(found)


def blob(db: Database, blob_id: int) -> Iterator[bytes]:
    """A blob, piece by piece; one statement each, so that a slow reader holds up nobody."""
    pos = 0
    while True:
        found = db.value(
            "SELECT data FROM blob_piece WHERE blob_id = ? AND pos = ?", (blob_id, pos)
        )
        if found is None:
            return
        yield bytes(found)
        pos += 1


def purges(db: Database, series_id: int) -> Sequence[tuple[str, int, int]]:
    """(policy, seq, step) as they came."""
    return [
        (policy, seq, step)
        for policy, seq, step in db.rows(
            "SELECT policy, seq, step FROM purge WHERE series_id = ? ORDER BY seq, step",
            (series_id,),
        )
    ]
