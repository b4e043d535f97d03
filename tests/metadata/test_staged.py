"""What `add` recorded."""

from __future__ import annotations

from dlv.metadata import staged
from dlv.metadata.database import Database
from dlv.metadata.staged import StagedFile

ONE = StagedFile("b.pt", "/x/b.pt", "weights", "pt", 5, 10, 2**62, "1" * 64, {"own": True, "a": 1})
TWO = StagedFile("a.py", "/x/a.py", "file", "text")
MARK = StagedFile("old.py", "", "removed", "")


def test_put_and_take(db: Database) -> None:
    staged.insert_staged(db, [ONE, TWO, MARK])
    assert staged.everything(db) == [TWO, ONE, MARK]
    newer = StagedFile("b.pt", "/y/b.pt", "file", "binary")
    staged.insert_staged(db, [newer])
    assert staged.everything(db) == [TWO, newer, MARK]
    staged.drop(db, ["b.pt", "unknown"])
    assert staged.everything(db) == [TWO, MARK]
    staged.clear(db)
    assert staged.everything(db) == []


def test_json_keeps_all() -> None:
    assert staged.from_json(staged.as_json([ONE, TWO, MARK])) == [ONE, TWO, MARK]
    assert staged.from_json("[]") == []


def test_seen(db: Database) -> None:
    staged.see(db, [("a", 1, 2**62, "1" * 64), ("b", 2, 3, "2" * 64)])
    staged.see(db, [("a", 5, 6, "3" * 64)])
    assert staged.seen(db) == {"a": (5, 6, "3" * 64), "b": (2, 3, "2" * 64)}
