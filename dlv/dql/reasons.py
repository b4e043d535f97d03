"""Why a query gave nothing: how many versions each of its conditions keeps alone."""

from __future__ import annotations

from dlv.metadata import select, wording
from dlv.metadata.database import Database
from dlv.metadata.relations import Query

MOST = 20  # conditions that are told of


def of(db: Database, query: Query) -> list[str]:
    return [
        f"{count} {'version' if count == 1 else 'versions'}: {wording.condition(condition)}"
        for condition, count in select.survivors(db, query, MOST)
    ]
