"""Cards of many versions, to be searched by text and by figures: the database of `search`."""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dlv.dataclass import dataclass
from dlv.errors import Damaged
from dlv.metadata import facts, metrics
from dlv.metadata.database import Database
from dlv.metadata.metrics import Summary

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
LOADED = "index-seq"

_TABLES = """
CREATE TABLE IF NOT EXISTS cards.card (
  version_id INTEGER PRIMARY KEY,
  task TEXT, license TEXT, tags TEXT NOT NULL, bytes INTEGER NOT NULL, parameters INTEGER NOT NULL,
  text TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS cards.card_tag (
  tag TEXT NOT NULL, version_id INTEGER NOT NULL, PRIMARY KEY (tag, version_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS cards.card_task ON card(task);
CREATE INDEX IF NOT EXISTS cards.card_license ON card(license);
CREATE VIRTUAL TABLE IF NOT EXISTS cards.card_words USING fts5(
  name, task, tags, message, text, layers, author, tokenize = 'porter unicode61'
)
"""
COUNTED = 300  # matches are counted up to here
RANKED = 300  # the newest of so many matches are ranked
FEW = 2000  # candidates
# A word in a name or a task says more than one in a long text.
_RANK = "bm25(card_words, 8.0, 5.0, 4.0, 2.0, 1.0, 1.0, 1.0)"


def prepare(db: Database) -> int:
    """Add the cards, which lie in a file beside the database; the number of their last segment."""
    db.execute("ATTACH ? AS cards", (str(db.path.with_name("cards.db")),))
    strange = [
        name
        for name, kind in db.rows("SELECT name, type FROM cards.sqlite_schema")
        if not name.startswith(("card", "sqlite_autoindex_card")) or kind not in ("table", "index")
    ]
    if strange:
        raise Damaged("the cards of the remote are not as dlv made them", why=", ".join(strange))
    for statement in _TABLES.split(";"):
        db.execute(statement)
    return int(facts.state(db, LOADED) or 0)


def loaded(db: Database, seq: int) -> None:
    facts.set_state(db, LOADED, str(seq))


def insert(db: Database, card: Mapping[str, Any], net_id: int | None) -> None:
    """Insert one card whose fields have been checked, unless it is there."""
    if db.value("SELECT 1 FROM version WHERE hash = ?", (card["id"],)) is not None:
        return
    taken = "SELECT 1 FROM version WHERE name = ? AND number = ?"
    if db.value(taken, (card["name"], card["number"])) is not None:
        return
    moment = datetime.datetime.fromisoformat(card["created"]) - _EPOCH
    version_id = db.insert(
        "INSERT INTO version(hash, name, number, net_id, creation_time, author, message, framework)"
        " VALUES (?,?,?,?,?,?,?,?)",
        (
            *(card["id"], card["name"], card["number"], net_id),
            *(moment // datetime.timedelta(microseconds=1), card["author"], card["message"]),
            card["framework"],
        ),
    )
    db.many(
        "INSERT INTO parent(derived, pos, base, base_hash, kind)"
        " SELECT ?1, ?2, max(id), CASE WHEN max(id) IS NULL THEN ?3 END, ?4"
        " FROM version WHERE hash = ?3",
        [(version_id, pos, *parent) for pos, parent in enumerate(card["parents"])],
    )
    db.execute(
        "UPDATE parent SET base = ?, base_hash = NULL WHERE base_hash = ?", (version_id, card["id"])
    )
    metrics.insert_hyperparameters(db, version_id, card["hyperparameters"])
    metrics.insert(db, version_id, [Summary(**row) for row in card["metrics"]])
    tags = card["tags"]
    db.execute(
        "INSERT INTO card(version_id, task, license, tags, bytes, parameters, text)"
        " VALUES (?,?,?,?,?,?,?)",
        (
            *(version_id, card["task"] and card["task"].lower()),
            *(card["license"] and card["license"].lower(), json.dumps(tags)),
            *(card["bytes"], card["parameters"], card["text"][:400]),
        ),
    )
    db.many(
        "INSERT OR IGNORE INTO card_tag(tag, version_id) VALUES (?, ?)",
        [(tag.lower(), version_id) for tag in tags],
    )
    db.execute(
        "INSERT INTO card_words(rowid, name, task, tags, message, text, layers, author)"
        " VALUES (?,?,?,?,?,?,?,?)",
        (
            *(version_id, card["name"], card["task"] or "", " ".join(tags), card["message"]),
            *(card["text"], " ".join(card["layers"]), card["author"]),
        ),
    )


def withdraw(db: Database, ids: Collection[str]) -> None:
    """Hide versions that were retired."""
    db.many("UPDATE version SET state = 'removed' WHERE hash = ?", [(digest,) for digest in ids])


@dataclass(frozen=True)
class Hit:
    """A version that was found; the figures of its metrics are looked up for the hits alone."""

    id: str
    name: str
    number: int
    created: int
    author: str
    message: str
    task: str | None
    license: str | None
    tags: list[str]
    bytes: int
    parameters: int
    metrics: dict[str, float | None]


@dataclass(frozen=True)
class Clause:
    """A condition: `holds` of a row of `version` and `card`; `ids` is a query for all versions."""

    holds: str
    parameters: Sequence[object]
    ids: str
    id_parameters: Sequence[object]


@dataclass
class Wanted:
    """`words` are looked for in the text. `among`: only these ids.

    By default the order is that of how well the words fit, or of time. `column`: another one of
    ORDERS. `metric`: by its last value, smallest first if `ascending`.
    """

    words: Sequence[str] = ()
    clauses: Sequence[Clause] = ()
    among: Collection[str] | None = None
    column: str | None = None
    metric: str | None = None
    ascending: bool = False
    most: int = 20


ORDERS = {
    "created": "creation_time DESC",
    "name": "version.name, number",
    "bytes": "card.bytes DESC",
    "parameters": "card.parameters DESC",
}


def search(db: Database, wanted: Wanted) -> tuple[list[Hit], int]:
    """Return the best hits, and how many versions match; COUNTED stands for that many or more.

    The clause that fewest versions fulfil gives the candidates, if these are few. Else many
    versions probably match, and of those with the words the newest are ranked.
    """
    tables, where = "version CROSS JOIN card ON card.version_id = version.id", ["state = 'live'"]
    parameters: list[object] = []
    if wanted.words:
        tables = f"card_words CROSS JOIN {tables} AND version.id = card_words.rowid"
        where.append("card_words MATCH ?")
        parameters.append(" ".join(map(_quoted, wanted.words)))
    if wanted.among is not None:
        where.append("version.hash IN (SELECT value FROM json_each(?))")
        parameters.append(json.dumps(sorted(wanted.among)))
    driving = _driving(db, wanted.clauses)
    for clause in wanted.clauses:
        if clause is driving:
            where.append(f"version.id IN ({clause.ids})")
            parameters += clause.id_parameters
        else:
            where.append(clause.holds)
            parameters += clause.parameters
    text = f"FROM {tables} WHERE {' AND '.join(where)}"
    count = int(
        db.value(f"SELECT count(*) FROM (SELECT 1 {text} LIMIT ?)", [*parameters, COUNTED]) or 0
    )
    many = driving is None and count >= COUNTED
    way = "ASC" if wanted.ascending else "DESC"
    if wanted.metric is not None and many:
        # From the best value on, until enough of the versions fulfil the rest.
        if wanted.words:
            where[1] = "version.id IN (SELECT rowid FROM card_words WHERE card_words MATCH ?)"
        query = (
            f"SELECT version.id FROM metric CROSS JOIN version CROSS JOIN card"
            " ON card.version_id = version.id AND version.id = metric.version_id"
            f" WHERE metric.tag = ? AND typeof(metric.last) != 'blob' AND {' AND '.join(where)}"
            f" ORDER BY metric.last {way} LIMIT ?"
        )
        parameters.insert(0, wanted.metric)
    elif wanted.metric is not None:
        value = "(SELECT last FROM metric WHERE metric.version_id = version.id AND tag = ? LIMIT 1)"
        query = f"SELECT version.id {text} ORDER BY {value} IS NULL, {value} {way}"
        query += ", version.id DESC LIMIT ?"
        parameters += [wanted.metric, wanted.metric]
    elif wanted.words and wanted.column is None:
        newest = f"ORDER BY card_words.rowid DESC LIMIT {RANKED}" if many else ""
        inner = f"SELECT version.id AS id, {_RANK} AS rank {text} {newest}"
        query = f"SELECT id FROM ({inner}) ORDER BY rank, id DESC LIMIT ?"
    else:
        order = ORDERS[wanted.column or "created"]
        query = f"SELECT version.id {text} ORDER BY {order}, version.id DESC LIMIT ?"
    keys = dict.fromkeys(row[0] for row in db.rows(query, [*parameters, wanted.most]))
    return [_hit(db, key) for key in keys], count


def _hit(db: Database, key: int) -> Hit:
    row = db.row(
        "SELECT hash, name, number, creation_time, author, message, task, license, tags, bytes,"
        " parameters FROM version JOIN card ON version_id = version.id WHERE version.id = ?",
        (key,),
    )
    assert row is not None
    digest, name, number, created, author, message, task, licence, tags, size, parameters = row
    return Hit(
        id=digest,
        name=name,
        number=number,
        created=created,
        author=author,
        message=message,
        task=task,
        license=licence,
        tags=json.loads(tags),
        bytes=size,
        parameters=parameters,
        metrics={summary.name: summary.last for summary in metrics.of_version(db, key)},
    )


def _quoted(word: str) -> str:
    """Return a word for FTS5, which finds its other forms, too; a star at the end: any ending."""
    star = "*" if word.endswith("*") else ""
    return '"' + word.rstrip("*").replace('"', '""') + '"' + star


def names(db: Database) -> set[str]:
    """Return all names of metrics and hyperparameters, each by one look into an index."""
    known: set[str] = set()
    for table, column in (("metric", "tag"), ("hyperparameter", "key")):
        name = db.value(f"SELECT min({column}) FROM {table}")
        while name is not None:
            known.add(name)
            name = db.value(f"SELECT min({column}) FROM {table} WHERE {column} > ?", (name,))
    return known


def _driving(db: Database, clauses: Sequence[Clause]) -> Clause | None:
    """Return the clause that fewest versions fulfil, if these are few."""
    best, fewest = None, FEW
    for clause in clauses:
        query = f"SELECT count(*) FROM (SELECT * FROM ({clause.ids}) LIMIT ?)"
        count = int(db.value(query, [*clause.id_parameters, fewest]) or 0)
        if count < fewest:
            best, fewest = clause, count
    return best


def clause(field: str, value: str) -> Clause | None:
    """Return the condition that `field:value` stands for; None for an unknown field."""
    value = value.lower()
    op = "GLOB" if set(value) & set("*?[") else "="
    if field in ("task", "license"):
        ids = f"SELECT version_id FROM card WHERE {field} {op} ?"
        return Clause(f"card.{field} {op} ?", [value], ids, [value])
    if field in ("name", "author"):
        pattern = value if field == "name" else f"*{value}*"
        holds = f"lower(version.{field}) {op if field == 'name' else 'GLOB'} ?"
        return Clause(holds, [pattern], f"SELECT id FROM version WHERE {holds}", [pattern])
    if field == "tag":
        ids = f"SELECT version_id FROM card_tag WHERE tag {op} ?"
        here = f"EXISTS ({ids} AND version_id = version.id)"
        return Clause(here, [value], ids, [value])
    if field == "net":
        nets = f"SELECT net_id FROM node JOIN layer ON layer.id = layer_id WHERE lower(op) {op} ?"
        nets += f" OR lower(layer.name) {op} ? OR lower(layer.alias) {op} ?"
        ids = f"SELECT id FROM version WHERE net_id IN ({nets})"
        return Clause(f"+net_id IN ({nets})", [value] * 3, ids, [value] * 3)
    return None


def figure(name: str, column: str, op: str, value: float) -> Clause:
    """Return the condition that a figure of a metric, or a hyperparameter, compares so."""
    # NaN is kept as a blob, which sorts behind all numbers.
    metric = f"SELECT version_id FROM metric WHERE tag = ? AND {column} {op} ?"
    metric += f" AND typeof({column}) != 'blob'"
    setting = f"SELECT version_id FROM hyperparameter WHERE key = ? AND num {op} ?"
    setting += " AND typeof(num) != 'blob'"
    # The plus keeps SQLite from using an index that it would search through for each version.
    one = f"SELECT 1 FROM metric WHERE version_id = version.id AND tag = ? AND +{column} {op} ?"
    one += f" AND typeof({column}) != 'blob'"
    other = "SELECT 1 FROM hyperparameter AS h WHERE h.version_id = version.id AND key = ?"
    other += f" AND +num {op} ? AND typeof(num) != 'blob'"
    values = [name, value, name, value]
    return Clause(
        f"(EXISTS ({one}) OR EXISTS ({other}))", values, f"{metric} UNION ALL {setting}", values
    )
