"""What `add` recorded."""

from __future__ import annotations

import dlv.metadata.facts as facts
from dlv.metadata.database import Database
from dlv.metadata.facts import StagedFile

ONE = StagedFile("b.pt", "/x/b.pt", "weights", "pt", 5, 10, 2**62, "1" * 64, {"own": True, "a": 1})
TWO = StagedFile("a.py", "/x/a.py", "file", "text")
MARK = StagedFile("old.py", "", "removed", "")


def test_put_and_take(db: Database) -> None:
    facts.insert_staged(db, [ONE, TWO, MARK])
    assert facts.staged_files(db) == [TWO, ONE, MARK]
    newer = StagedFile("b.pt", "/y/b.pt", "file", "binary")
    facts.insert_staged(db, [newer])
    assert facts.staged_files(db) == [TWO, newer, MARK]
    facts.drop_staged(db, ["b.pt", "unknown"])
    assert facts.staged_files(db) == [TWO, MARK]
    facts.clear_staged(db)
    assert facts.staged_files(db) == []


def test_json_keeps_all() -> None:
    assert facts.staged_from_json(facts.staged_to_json([ONE, TWO, MARK])) == [ONE, TWO, MARK]
    assert facts.staged_from_json("[]") == []


def test_seen(db: Database) -> None:
    facts.record_looks(db, [("a", 1, 2**62, "1" * 64), ("b", 2, 3, "2" * 64)])
    facts.record_looks(db, [("a", 5, 6, "3" * 64)])
    assert facts.recorded_looks(db) == {"a": (5, 6, "3" * 64), "b": (2, 3, "2" * 64)}
