"""Facts in the catalogue, and the state of versions, tags, removals and staged files."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from dlv.canonical import dumps, timestamp
from dlv.dataclass import dataclass
from dlv.metadata.database import Database

if TYPE_CHECKING:
    from dlv.objects.fact import Fact


@dataclass(frozen=True)
class Operation:
    """One change of state as `undo` sees it, with HEAD and its like before and after."""

    id: int
    created: str
    verb: str
    summary: str
    facts: tuple[str, ...]
    before: dict[str, str | None]
    after: dict[str, str | None]
    undoes: int | None
    consumed: str  # staged files that went into it, as `staged.from_json` reads them
    undone: bool


def newest(db: Database, kind: str, subject: str | None) -> tuple[str, dict[str, Any]] | None:
    """(hash, data) of the fact that counts: the newest one that is not undone."""
    for digest, data in db.rows(
        "SELECT hash, data FROM fact WHERE kind = ? AND subject IS ?"
        " ORDER BY created DESC, hash DESC",
        (kind, subject),
    ):
        if not is_undone(db, digest):
            return digest, json.loads(data)
    return None


def fact(db: Database, digest: str) -> tuple[str, str | None] | None:
    """(kind, subject) of a fact."""
    row = db.row("SELECT kind, subject FROM fact WHERE hash = ?", (digest,))
    return None if row is None else (row[0], row[1])


def is_irreversible(db: Database, digest: str) -> bool:
    """Return whether undoing cannot change what the fact says: what a remote has, what gc took."""
    row = db.row(
        "SELECT kind, json_extract(data, '$.collected') FROM fact WHERE hash = ?", (digest,)
    )
    return row is not None and (row[0] in ("remote-head", "promise") or row[1] is not None)


def steps_of(db: Database, digest: str) -> list[int | None]:
    """The snapshots that a removal names; none where it names the whole version."""
    data = db.value("SELECT data FROM fact WHERE hash = ?", (digest,))
    return [] if data is None else json.loads(data).get("steps") or []


def subjects(db: Database, kind: str) -> list[str]:
    """Return the subjects of all facts of a kind."""
    rows = db.rows("SELECT DISTINCT subject FROM fact WHERE kind = ? ORDER BY subject", (kind,))
    return [row[0] for row in rows]


def standing(db: Database, kind: str, subject: str) -> list[str]:
    """Return hashes of the facts about a subject that are not undone, oldest first."""
    rows = db.rows(
        "SELECT hash FROM fact WHERE kind = ? AND subject = ? ORDER BY created, hash",
        (kind, subject),
    )
    return [row[0] for row in rows if not is_undone(db, row[0])]


def promises(db: Database) -> dict[str, dict[str, Any]]:
    """Return the data of standing promises: which remote has the weights of a version, by id."""
    rows = db.rows("SELECT subject, hash, data FROM fact WHERE kind = 'promise' ORDER BY created")
    return {
        subject: json.loads(data) for subject, digest, data in rows if not is_undone(db, digest)
    }


def is_undone(db: Database, digest: str) -> bool:
    """Whether some undo of it stands; an undo that was itself undone does not."""
    pending, standing = [digest], [digest]
    chain: dict[str, list[str]] = {}
    while pending:
        fact = pending.pop()
        chain[fact] = [
            row[0]
            for row in db.rows("SELECT hash FROM fact WHERE kind = 'undo' AND subject = ?", (fact,))
        ]
        pending += chain[fact]
        standing += chain[fact]
    undone: dict[str, bool] = {}
    for fact in reversed(standing):
        undone[fact] = any(not undone[undo] for undo in chain[fact])
    return undone[digest]


def collected(db: Database) -> dict[str, set[int | None] | None]:
    """Version -> the steps whose snapshots gc has taken; None: all of it."""
    found: dict[str, set[int | None] | None] = {}
    for digest, subject, data in db.rows(
        "SELECT hash, subject, json_extract(data, '$.collected') FROM fact"
        " WHERE kind = 'removal' AND json_extract(data, '$.collected') IS NOT NULL"
    ):
        if is_undone(db, digest):
            continue
        if data == 1:  # as SQLite writes true
            found[subject] = None
        elif (held := found.setdefault(subject, set())) is not None:
            held.update(json.loads(data))
    return found


def collecting(db: Database, ids: set[str]) -> list[tuple[str, str]]:
    """(fact, time) of those that stand by which gc took these versions, or snapshots of them."""
    return [
        (row[0], row[2])
        for row in db.rows(
            "SELECT hash, subject, created FROM fact WHERE kind = 'removal'"
            " AND json_extract(data, '$.collected') IS NOT NULL ORDER BY created, hash"
        )
        if row[1] in ids and not is_undone(db, row[0])
    ]


def moment_after(db: Database, kind: str, subject: str | None) -> str:
    """Now, but never at or before the newest fact of its kind: clocks step back at times."""
    now = timestamp()
    last = db.value(
        "SELECT max(created) FROM fact WHERE kind = ? AND subject IS ?", (kind, subject)
    )
    if last is None or last < now:
        return now
    moment = datetime.datetime.fromisoformat(last)
    return timestamp(moment + datetime.timedelta(microseconds=1))


def newest_moment(db: Database) -> str | None:
    """When the newest of all facts was written, by the clock of whoever wrote it."""
    found: str | None = db.value("SELECT max(created) FROM fact")
    return found


def record(db: Database, fact: Fact) -> None:
    """Write the row of a fact and let what it says come true."""
    load(db, [fact])
    settle(db, fact)


def load(db: Database, facts: Iterable[Fact]) -> None:
    """Only the rows; a rebuild settles them afterwards."""
    db.many(
        "INSERT OR IGNORE INTO fact(hash, kind, subject, created, data) VALUES (?,?,?,?,?)",
        [(f.hash, f.kind, f.subject, f.created, dumps(f.data).decode()) for f in facts],
    )


def settle(db: Database, fact: Fact) -> None:
    """Bring the tables into the state that all facts about this one's subject give."""
    kind, subject = fact.kind, fact.subject
    while kind == "undo":
        row = db.row("SELECT kind, subject FROM fact WHERE hash = ?", (subject,))
        if row is None:
            return
        kind, subject = row
    if kind in ("number", "removal") and subject is not None:
        settle_version(db, subject)
    elif kind == "tag" and subject is not None:
        settle_tag(db, subject)
    elif kind == "query" and subject is not None:
        settle_query(db, subject)


def settle_version(db: Database, digest: str) -> None:
    """Set the model, the state (live, removed or undone) and the removed snapshots."""
    row = db.row("SELECT id, number FROM version WHERE hash = ?", (digest,))
    if row is None:
        return
    version_id, number = row
    removal = newest(db, "removal", digest)
    steps = removal[1]["steps"] if removal else []
    numbered = db.value("SELECT 1 FROM fact WHERE kind = 'number' AND subject = ?", (digest,))
    standing = newest(db, "number", digest)
    if standing is not None and number is not None:
        db.execute("UPDATE version SET name = ? WHERE id = ?", (standing[1]["name"], version_id))
    if numbered and standing is None:
        state = "undone"
    elif removal and steps is None:
        state = "removed"
    else:
        state = "recovered" if number is None else "live"
    db.execute("UPDATE version SET state = ? WHERE id = ?", (state, version_id))
    db.execute("UPDATE snapshot SET removed = 0 WHERE version_id = ?", (version_id,))
    for step in steps or ():
        db.execute(
            "UPDATE snapshot SET removed = 1 WHERE version_id = ? AND step IS ? AND own = 0",
            (version_id, step),
        )


def settle_tag(db: Database, name: str) -> None:
    found = newest(db, "tag", name)
    target = None if found is None else found[1]["version"]
    row = None if target is None else db.row("SELECT id FROM version WHERE hash = ?", (target,))
    db.execute("DELETE FROM tag WHERE name = ?", (name,))
    if row is not None:
        db.execute("INSERT INTO tag(name, version_id) VALUES (?, ?)", (name, row[0]))


def settle_query(db: Database, name: str) -> None:
    found = newest(db, "query", name)
    db.execute("DELETE FROM saved_query WHERE name = ?", (name,))
    if found is not None and found[1]["text"] is not None:
        db.execute(
            "INSERT INTO saved_query(name, text, created)"
            " SELECT subject, ?, created FROM fact WHERE hash = ?",
            (found[1]["text"], found[0]),
        )


def state(db: Database, key: str) -> str | None:
    """One of the values that only this database knows, such as HEAD."""
    found: str | None = db.value("SELECT value FROM state WHERE key = ?", (key,))
    return found


def set_state(db: Database, key: str, value: str | None) -> None:
    db.execute(
        "INSERT INTO state(key, value) VALUES (?, ?)"
        " ON CONFLICT(key) DO UPDATE SET value = excluded.value",
        (key, value),
    )


def log_operation(
    db: Database,
    verb: str,
    summary: str,
    facts: Sequence[str],
    before: dict[str, str | None],
    after: dict[str, str | None],
    undoes: int | None = None,
    consumed: str = "[]",
) -> int:
    return db.insert(
        "INSERT INTO operation(created, verb, summary, facts, before, after, undoes, consumed)"
        " VALUES (?,?,?,?,?,?,?,?)",
        (
            *(timestamp(), verb, summary, dumps(list(facts)).decode()),
            *(dumps(before).decode(), dumps(after).decode(), undoes, consumed),
        ),
    )


def operations(db: Database, most: int = -1) -> list[Operation]:
    """The operation log, newest first."""
    rows = db.rows(
        "SELECT id, created, verb, summary, facts, before, after, undoes, consumed"
        " FROM operation ORDER BY id DESC"
    )
    # An undo comes after what it undoes, so newest first each one's own state is known already.
    undone: set[int] = set()
    found = []
    for number, created, verb, summary, digests, before, after, undoes, consumed in rows:
        if undoes is not None and number not in undone:
            undone.add(undoes)
        found.append(
            Operation(
                *(number, created, verb, summary, tuple(json.loads(digests))),
                *(json.loads(before), json.loads(after), undoes, consumed, number in undone),
            )
        )
    return found if most < 0 else found[:most]


@dataclass(frozen=True)
class StagedFile:
    """A file as it was when it was added. Role "removed": it is to leave the version."""

    path: str
    source: str
    role: str
    format: str
    step: int | None = None
    bytes: int = 0
    mtime_ns: int = 0
    hash: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def looks(self) -> dict[str, tuple[int, int]]:
        """Size and time, when it was added, of the file and of those that its weights lie in."""
        beside = self.options.get("beside") or {}
        return {
            self.source: (self.bytes, self.mtime_ns),
            **{path: (size, time) for path, (size, time) in beside.items()},
        }

    @property
    def shown_role(self) -> str:
        """The role in the words of users; rows of the database say snapshot."""
        return "checkpoint" if self.role == "snapshot" else self.role


_COLUMNS = "path, source, role, format, step, bytes, mtime_ns, hash, options"


def staged_to_json(files: Sequence[StagedFile]) -> str:
    """As the operation log keeps them; `from_json` reads it."""
    return json.dumps([vars(file) for file in files], sort_keys=True)


def staged_from_json(text: str) -> list[StagedFile]:
    return [StagedFile(**values) for values in json.loads(text)]


def insert_staged(db: Database, files: Sequence[StagedFile]) -> None:
    db.many(
        f"INSERT OR REPLACE INTO staged({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?)",
        [
            (
                *(f.path, f.source, f.role, f.format, f.step, f.bytes, f.mtime_ns, f.hash),
                json.dumps(f.options, sort_keys=True),
            )
            for f in files
        ],
    )


def staged_files(db: Database) -> list[StagedFile]:
    """In the order of paths."""
    return [
        StagedFile(path, source, role, format_, step, size, mtime_ns, digest, json.loads(options))
        for path, source, role, format_, step, size, mtime_ns, digest, options in db.rows(
            f"SELECT {_COLUMNS} FROM staged ORDER BY path"
        )
    ]


def drop_staged(db: Database, paths: Sequence[str]) -> None:
    db.many("DELETE FROM staged WHERE path = ?", [(path,) for path in paths])


def remove_staged(db: Database, files: Sequence[StagedFile]) -> None:
    """Unstage these files, except those that have been staged again since."""
    db.many(
        "DELETE FROM staged WHERE path = ? AND hash = ?", [(file.path, file.hash) for file in files]
    )


def clear_staged(db: Database) -> None:
    db.execute("DELETE FROM staged")


def record_looks(db: Database, files: Sequence[tuple[str, int, int, str]]) -> None:
    """Remember (path, bytes, mtime_ns, hash) of working files."""
    db.many("INSERT OR REPLACE INTO seen(path, bytes, mtime_ns, hash) VALUES (?,?,?,?)", files)


def recorded_looks(db: Database) -> dict[str, tuple[int, int, str]]:
    return {row[0]: (row[1], row[2], row[3]) for row in db.rows("SELECT * FROM seen")}
