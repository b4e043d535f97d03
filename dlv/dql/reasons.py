"""Why a query gave nothing: how many versions each of its conditions keeps alone."""

from __future__ import annotations

from dlv.metadata.database import Database
from dlv.metadata.select import statement as select
from dlv.metadata.select import wording
from dlv.metadata.select.relations import Query

MOST = 20  # conditions that are told of


def of(db: Database, query: Query) -> list[str]:
    return [
        f"{count} {'version' if count == 1 else 'versions'}: {wording.condition(condition)}"
        for condition, count in select.survivors(db, query, MOST)
    ]
