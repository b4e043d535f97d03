"""Two catalogues are compared by what they say, not by how their rows are numbered."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import dlv.recovery.rebuild as rebuild
from dlv.metadata import database, dump
from dlv.metadata.database import Database
from dlv.repository.handle import Repository

# Known to one database alone, or only there to be joined by the others.
LOCAL = {"state", "staged", "operation", "seen"}
JOINED = {"layer", "shape", "tensor_list", "matrix", "snapshot_matrix", "chunk", "member"}

# What that life has none of.
EMPTY = ("saved_query", "raw_edge", "net_pair", "bounds", "bounds_matrix")


@pytest.fixture
def fresh(lived: Repository, tmp_path: Path) -> Database:
    db = Database(tmp_path / "fresh.db")
    rebuild.fill(lived, db)
    return db


def test_every_table_is_compared(lived: Repository) -> None:
    """A new table of the schema must be put into one of these lists."""
    schema = Path(database.__file__).with_name("schema.sql").read_text()
    tables = set(re.findall(r"CREATE TABLE (\w+)", schema))
    assert tables == (set(dump.CONTENT) - {"share"}) | LOCAL | JOINED
    for name in JOINED:
        assert any(re.search(rf"\b{name}\b", sql) for sql in dump.CONTENT.values()), name


def test_every_row_of_a_life_is_there(lived: Repository) -> None:
    """Each query gives as many rows as its table has; none is lost in a join."""
    found = dump.content(lived.database)
    for name in set(dump.CONTENT) - {"share", "snapshot"}:
        count = lived.database.value(f"SELECT count(*) FROM {name}")
        assert len(found[name]) == count, name
        assert count or name in EMPTY, name
    assert len(found["snapshot"]) == lived.database.value("SELECT count(*) FROM snapshot_matrix")


def test_numbers_of_rows_do_not_matter(lived: Repository, fresh: Database) -> None:
    keys = "SELECT hash, id FROM matrix"
    assert dict(fresh.rows(keys)) != dict(lived.database.rows(keys))
    assert dump.content(fresh) == dump.content(lived.database)
    assert list(dump.differences(fresh, lived.database)) == []


def test_differences_have_a_direction(lived: Repository, fresh: Database) -> None:
    row = fresh.row("SELECT tag.name, hash FROM tag JOIN version ON version.id = version_id")
    assert row is not None
    fresh.execute("DELETE FROM tag")
    assert list(dump.differences(fresh, lived.database)) == [("tag", row, "missing")]
    assert list(dump.differences(lived.database, fresh)) == [("tag", row, "not backed by any file")]


def test_values_that_are_no_text(lived: Repository, fresh: Database) -> None:
    """Rows of any type sort and compare."""
    fresh.execute("UPDATE hyperparameter SET key = x'ff', num = NULL")
    fresh.execute("UPDATE version SET message = 7 WHERE number = 1")
    assert {table for table, _, _ in dump.differences(fresh, lived.database)} == {
        "hyperparameter",
        "version",
    }


def test_sqlite_finds(lived: Repository) -> None:
    assert dump.integrity(lived.database) == []
    lived.database.execute("PRAGMA foreign_keys = OFF")
    lived.database.execute("DELETE FROM tensor_list")
    assert any("tensor_list" in problem for problem in dump.integrity(lived.database))


def test_another_schema(lived: Repository) -> None:
    lived.database.execute("CREATE TABLE other (a)")
    assert dump.integrity(lived.database) == ["its tables are not those of this version of dlv"]


def test_what_only_it_knows(lived: Repository) -> None:
    assert dump.local_problems(lived.database) == []
    lived.database.execute("UPDATE state SET value = 'f' WHERE key = 'HEAD'")
    lived.database.execute("UPDATE operation SET before = '7'")
    lived.database.execute("UPDATE staged SET options = '}'")
    lived.database.execute("INSERT OR REPLACE INTO state VALUES ('next', '[]')")
    assert len(dump.local_problems(lived.database)) >= 3


def test_chunks_of_a_pack_add_up(lived: Repository) -> None:
    """Members of one chunk cover what it decodes to."""
    held: dict[tuple[str, object], int] = {}
    raw: dict[tuple[str, object], int] = {}
    for pack, row in dump.chunk_rows(lived.database):
        key = (pack, row[2])
        held[key] = held.get(key, 0) + int(str(row[9]))
        raw[key] = int(str(row[4]))
    assert held == raw


def test_labels_outlive_their_versions(lived: Repository) -> None:
    before = dump.labels(lived.database)
    assert " ".join(sorted(before.values())) == "lenet@1 lenet@2 lenet@3 lenet@4 wide@1 wide@2"
    lived.database.execute("PRAGMA foreign_keys = OFF")
    lived.database.execute("DELETE FROM version")
    assert dump.labels(lived.database) == before
    assert dump.committed_facts(lived.database) == {p.stem for p in lived.facts.glob("*/*.json")}


def test_which_versions_hold_a_matrix(lived: Repository) -> None:
    rows = lived.database.rows("SELECT hash FROM matrix")
    for (digest,) in rows:
        expected = set()
        for path in lived.manifests.glob("*/*.json"):
            if digest in path.read_text():
                expected.add(path.stem)
        labels = dump.labels(lived.database)
        expected_labels = {labels[i] for i in expected} - {"lenet@3"}  # undone
        assert set(dump.versions_of_matrix(lived.database, digest)) == expected_labels


def test_what_a_fact_is_about(lived: Repository) -> None:
    for path in lived.facts.glob("*/*.json"):
        fact = json.loads(path.read_bytes())
        assert dump.about(lived.database, path.stem) == (fact["kind"], fact["subject"])
    assert dump.about(lived.database, "0" * 64) is None
