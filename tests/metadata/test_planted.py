"""Triggers, views and the like in a database that came from somebody else: it is not opened."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import dlv.repository.revisions as revisions
import dlv.upkeep.check as check
import dlv.upkeep.repair as repairing
from dlv.errors import Damaged
from dlv.metadata import dump
from dlv.metadata.curves import CurveDatabase, open_curves
from dlv.metadata.database import Database
from dlv.metadata.trials import Trials
from dlv.repository.handle import Repository

# What is planted, with a table that the file has in place of {}.
PLANTED = {
    "trigger": "CREATE TRIGGER evil AFTER INSERT ON {0} BEGIN DELETE FROM {0}; END",
    "trigger before": "CREATE TRIGGER evil BEFORE UPDATE ON {0} BEGIN DELETE FROM {0}; END",
    "view": "CREATE VIEW evil AS SELECT * FROM {0}",
    "view in a table's place": "ALTER TABLE {0} RENAME TO evil;"
    " CREATE VIEW {0} AS SELECT * FROM evil",
    "trigger instead": "ALTER TABLE {0} RENAME TO evil; CREATE VIEW {0} AS SELECT * FROM evil;"
    " CREATE TRIGGER more INSTEAD OF INSERT ON {0} BEGIN SELECT 1; END",
    "expression index": "CREATE INDEX evil ON {0}(abs(1))",
    "partial index": "CREATE UNIQUE INDEX evil ON {0}(1) WHERE 1",
    "computed column": "ALTER TABLE {0} ADD COLUMN evil AS (abs(1))",
    "check": "CREATE TABLE evil(x CHECK (x > 0))",
    "virtual table": "CREATE VIRTUAL TABLE evil USING fts5(x)",
    "statistics": "ANALYZE",
    "text alone": "PRAGMA writable_schema = ON;"
    " UPDATE sqlite_schema SET sql = replace(sql, ' NOT NULL', '') WHERE name = '{0}'",
}
KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "dlv.db": (Database, "tag"),
    "live.db": (CurveDatabase, "run"),
    "trials.db": (Trials, "mark"),
}


def plant(path: Path, name: str, table: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        try:
            db.executescript(PLANTED[name].format(table))
        except sqlite3.OperationalError as error:
            pytest.skip(f"this SQLite cannot: {error}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PLANTED)
def test_it_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    make, table = KINDS[kind]
    path = tmp_path / kind
    make(path).close()  # type: ignore[attr-defined]
    make(path).close()  # type: ignore[attr-defined]
    plant(path, name, table)
    with pytest.raises(Damaged) as refused:
        make(path)
    if kind != "live.db":  # which is made anew
        assert "fsck" in str(refused.value.hint)
        assert "foreign" in str(refused.value.why)


def test_curves_are_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    open_curves(path).close()
    plant(path, "trigger", "run")
    with closing(open_curves(path)) as db:
        assert db.as_made()


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("way", ["rebuild", "repair"])
def test_the_way_out(lived: Repository, name: str, way: str) -> None:
    """The table that it meant to empty is whole, and so is what only the catalogue knows."""
    wanted, head = dump.content(lived.database), lived.head
    staged = lived.database.rows("SELECT * FROM staged")
    lived.close()
    plant(lived.database_file, name, "tag")
    with pytest.raises(Damaged):
        revisions.set_tag(lived, "newest", "lenet@2", "Ada")
    if way == "rebuild":
        assert check.rebuild(lived).faults == []
    else:
        assert repairing.repair(lived, None, "Ada", progress=lambda *_: None).report.faults == []
    assert dump.content(lived.database) == wanted
    assert lived.head == head
    assert lived.database.rows("SELECT * FROM staged") == staged
    revisions.set_tag(lived, "newest", "lenet@2", "Ada")
    assert ("newest",) in lived.database.rows("SELECT name FROM tag")


def test_a_ledger_is_set_aside(lived: Repository) -> None:
    Trials(lived.trials_path).close()
    plant(lived.trials_path, "trigger", "mark")
    (fault,) = check.check(lived).faults
    assert (fault.kind, fault.object) == ("trials", "trials.db")
    assert repairing.repair(lived, None, "Ada", progress=lambda *_: None).report.faults == []
    Trials(lived.trials_path).close()


def test_an_old_catalogue_is_not_opened_with_it(tmp_path: Path) -> None:
    path = tmp_path / "dlv.db"
    Database(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TRIGGER evil AFTER INSERT ON node BEGIN DELETE FROM tag; END")
        db.execute("PRAGMA user_version = 3")
    before = shutil.copy(path, tmp_path / "before.db")
    with pytest.raises(Damaged, match="of an older dlv"):
        Database(path)
    assert Path(before).read_bytes() == path.read_bytes()
