"""The catalogue against the files that it is an index of, both ways.

A version is what a fact on the disk has numbered, whatever the catalogue says: rows that it has
lost are named, and no command removes files before the catalogue has been checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dlv.disk.durable as durable
import dlv.recovery.catalogue_log as catalogue_log
import dlv.recovery.rebuild as rebuild
import dlv.repository.handle as repositories
from dlv.canonical import dumps
from dlv.dataclass import dataclass
from dlv.errors import Damaged, DlvError
from dlv.kinds import Piece
from dlv.metadata import dump
from dlv.metadata.database import Database
from dlv.objects.fact import Fact
from dlv.pas.chunks import SUFFIX
from dlv.pas.footer import pieces_of
from dlv.pas.packs import Pack
from dlv.recovery.catalogue_log import Log
from dlv.recovery.rebuild import Filled
from dlv.repository.change_marks import Standing
from dlv.repository.handle import Repository

LOST = "in the repository, missing from the database"
LARGE = 64 << 20  # bytes of a catalogue of which a second one goes to the disk

Rows = list[tuple[Any, ...]]


@dataclass
class Compared:
    """What of the catalogue is not as it should be: (object, why, versions that it reaches)."""

    faults: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    filled: Filled = field(default_factory=Filled)

    def add(self, name: str, why: str, versions: Sequence[str] = ()) -> None:
        self.faults.append((name, why, tuple(versions)))


@contextmanager
def fresh_catalogue(repository: Repository) -> Iterator[Database]:
    """An empty one beside, in memory if it is going to be small: the disk may be full."""
    if repository.database_file.stat().st_size <= LARGE:
        with closing(Database(Path(":memory:"), wal=False)) as db:
            yield db
        return
    with (
        TemporaryDirectory(prefix="dlv-fsck-") as folder,
        closing(Database(Path(folder) / "fresh.db")) as db,
    ):
        yield db


def log_of(repository: Repository) -> Log | None:
    """The WAL of the catalogue, if any; read it before the catalogue is opened and empties it."""
    path = catalogue_log.beside(repository.database_file)
    try:
        return catalogue_log.read(path)
    except OSError as error:
        raise durable.storage_error("read", path, error) from error


def compare(repository: Repository, fresh: Database, standing: Standing) -> Compared:
    """SQLite's own checks, then row by row against `fresh`, which is filled from the files.

    `standing` was read before the transaction in which this happens.
    """
    db = repository.database
    compared = Compared()
    committed: set[str] | None = None
    lost: set[str] = set()
    try:
        committed = dump.committed_facts(db)
        lost = rebuild.lost_facts(repository, standing, db, committed)
        for problem in [*dump.integrity(db), *dump.local_problems(db)]:
            compared.add("dlv.db", problem)
    except Damaged as error:
        compared.add("dlv.db", error.why or error.message)
    try:
        for name, label in sorted(_called(repository, db, lost).items()):
            compared.add(name, LOST, [label] if label else [])
    except Damaged as error:
        compared.add("dlv.db", error.why or error.message)
    wanted = None if committed is None else committed | lost
    compared.filled = rebuild.fill(repository, fresh, wanted)
    if lost:
        return compared  # what else differs follows from that, and a repair looks at all again
    try:
        _rows(repository, fresh, compared)
    except Damaged as error:
        compared.add("dlv.db", error.why or error.message)
    return compared


def _called(repository: Repository, db: Database, lost: set[str]) -> dict[str, str]:
    """What facts are about -> the version that each reaches, or nothing."""
    found: dict[str, str] = {}
    if not lost:
        return found
    labels = dump.labels(db)
    read = [(name, repository.marks.fact(name)) for name in sorted(lost)]
    for _, fact in read:
        if fact is not None and fact.kind == "number" and fact.subject is not None:
            labels[fact.subject] = f"{fact.data['name']}@{fact.data['number']}"
    for name, fact in read:
        if fact is None:
            found[f"fact {name[:12]}"] = ""
        elif fact.kind == "number":
            found[labels[str(fact.subject)]] = labels[str(fact.subject)]
        else:
            target = fact.data["version"] if fact.kind == "tag" else fact.subject
            found[_word(fact, labels)] = labels.get(str(target), "")
    return found


def _word(fact: Fact, labels: dict[str, str]) -> str:
    if fact.subject is None:
        return f"{fact.kind} {fact.hash[:12]}"
    subject = labels.get(fact.subject, fact.subject)
    return f"{fact.kind} {subject[:12] if subject not in labels.values() else subject}"


def _rows(repository: Repository, fresh: Database, compared: Compared) -> None:
    explained = _explained(repository, compared.filled)
    labels = dump.labels(fresh)
    for table, row, what in dump.differences(repository.database, fresh):
        # Objects that no committed version refers to are not the catalogue's business.
        if what == "missing" and table in dump.OF_PACKS:
            if table == "pack":
                compared.filled.dangling.append((table, str(row[0])))
        elif not explained(table, row):
            reached = [labels[value] for value in row[:4] if value in labels]
            compared.add(f"{table} {_short(row)}", f"the row is {what}", reached)


def _explained(repository: Repository, filled: Filled) -> Callable[[str, Sequence[Any]], bool]:
    """Whether a row differs because of a fault of the files, which is listed by itself."""
    kinds = {kind for kind, _, _ in filled.faults}
    names = {name for kind, name, _ in filled.faults if kind in ("fact", "manifest")}
    tables: set[str] = set()
    for kind, name, _ in filled.faults:
        about = dump.about(repository.database, name) if kind == "fact" else None
        if about is not None:
            names.add(about[1])
            if about[0] == "undo":
                tables |= {"version", "snapshot", "tag"}
    present = {name for name, _ in repositories.stored(repository.packs, SUFFIX)}
    if kinds & {"pack", "network", "series", "bounds"} or dump.packs(repository.database) - present:
        tables |= dump.OF_PACKS | dump.OF_NETWORKS | {"metric"}
    if "network" in kinds:
        tables.add("version")
    if names:
        tables |= dump.OF_NETWORKS | {"tensor"}
    return lambda table, row: table in tables or not names.isdisjoint(row[:4])


def _short(row: Sequence[Any]) -> str:
    return " ".join(str(value)[:16] for value in row[:3])


def chunks_of_packs(db: Database) -> dict[str, Rows]:
    """Pack -> the rows of its chunks."""
    rows: dict[str, Rows] = {}
    for name, row in dump.chunk_rows(db):
        rows.setdefault(name, []).append(row)
    return rows


def unbacked(db: Database, fresh: Database) -> dict[str, Rows]:
    """Return chunk rows of the catalogue that the one rebuilt from files lacks, by pack.

    These can still be right: if a matrix is stored twice, either encoding may be listed.
    """
    known = {hash(row) for row in dump.chunk_rows(fresh)}  # hashes, to save memory
    rows: dict[str, Rows] = {}
    for name, row in dump.chunk_rows(db):
        if hash((name, row)) not in known:
            rows.setdefault(name, []).append(row)
    return rows


def wrong_chunks(path: Path, name: str, rows: Rows) -> list[str]:
    """Rows that speak of a chunk that is not in the pack, as a fault is called."""
    with Pack(path) as pack:
        known = {
            (*(p.kind, p.plane, p.offset, p.length, p.raw, p.blake3), *_member(p))
            for p in pieces_of(pack.footer, name)
        }
    return [f"chunk {row[2]} of pack {name[:12]}" for row in rows if row not in known]


def _member(piece: Piece) -> tuple[str, int, int, int, str]:
    return piece.object, piece.at, piece.start, piece.count, dumps(piece.codec).decode()


def demand(repository: Repository, doing: str, *, rows: bool = True) -> None:
    """Raise Damaged unless the catalogue agrees with the files; called before files are removed.

    Without `rows` only what it lacks is looked for, which is quick.
    """
    log = log_of(repository)
    if log is not None and log.lost:
        problem: tuple[str, str] | None = (log.path.name, log.why)
    else:
        problem = _lacking(repository) or (_problem(repository) if rows else None)
    if problem is not None:
        name, why = problem
        raise Damaged(
            f"{doing} refused to delete: the database does not match the repository",
            why=f"{name}: {why}",
            hint="to list errors: dlv fsck; to repair them: dlv fsck --repair",
        )


def _lacking(repository: Repository) -> tuple[str, str] | None:
    db = repository.database
    standing = repository.marks.read()
    with repository.holding(), db.snapshot():
        lost = rebuild.lost_facts(repository, standing, db, dump.committed_facts(db))
        called = sorted(_called(repository, db, lost))
    return (called[0], LOST) if called else None


def _problem(repository: Repository) -> tuple[str, str] | None:
    db = repository.database
    standing = repository.marks.read()
    with repository.holding(), db.snapshot(), fresh_catalogue(repository) as fresh:
        compared = compare(repository, fresh, standing)
        for name, why, _ in compared.faults:
            return name, why
        for pack, rows in unbacked(db, fresh).items():
            path = durable.path_of(repository.packs, pack, SUFFIX)
            try:
                for chunk in wrong_chunks(path, pack, rows) if path.exists() else ():
                    return chunk, "not in the pack"
            except DlvError:
                continue  # the pack is at fault
    return None
