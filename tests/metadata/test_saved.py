"""Saved queries as facts give them."""

from __future__ import annotations

from pathlib import Path

import dlv.metadata.usage as usage
from dlv.metadata import facts
from dlv.metadata.database import Database
from dlv.metadata.usage import SavedQuery
from dlv.objects.fact import Fact

FIRST, SECOND = "2026-01-01T00:00:00.000000Z", "2026-01-02T00:00:00.000000Z"


def tell(db: Database, kind: str, subject: str, created: str, **data: str | None) -> Fact:
    fact = Fact(kind, subject, "Ada", created, dict(data))
    facts.record(db, fact)
    return fact


def test_the_newest_fact_that_stands_counts(tmp_path: Path) -> None:
    db = Database(tmp_path / "dlv.db")
    with db.atomic():
        tell(db, "query", "good", FIRST, text="select m")
        assert usage.saved_query(db, "good") == SavedQuery("good", "select m", FIRST)
        later = tell(db, "query", "good", SECOND, text="select n")
        assert usage.saved_queries(db) == [SavedQuery("good", "select n", SECOND)]
        tell(db, "undo", later.hash, SECOND)
        assert usage.saved_queries(db) == [SavedQuery("good", "select m", FIRST)]
        tell(db, "query", "good", "2026-01-03T00:00:00.000000Z", text=None)
        assert usage.saved_query(db, "good") is None
        assert usage.saved_queries(db) == []
    db.close()
