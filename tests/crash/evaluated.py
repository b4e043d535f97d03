"""What `evaluate` has come to, without what differs from run to run: times and who did it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from dlv.metadata.database import Database

_TRIALS = "SELECT id, state, step FROM trial ORDER BY id"
_LOGS = "SELECT trial_id, metric, step, value, finite FROM log ORDER BY 1, 2, 3"
_VERDICTS = "SELECT trial_id, rule, step, value, cut, kept FROM mark ORDER BY 1, 2, 3"
_WEIGHTS = """
SELECT version.name, version.number, version.message, group_concat(matrix.hash, ' ')
FROM version LEFT JOIN snapshot ON snapshot.version_id = version.id
LEFT JOIN snapshot_matrix ON snapshot_id = snapshot.id LEFT JOIN matrix ON matrix.id = matrix_id
GROUP BY version.id
"""


def trials(path: Path) -> list[Any]:
    """Trials, all that they logged, and which were kept: of a ledger, if there is one."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as db:
        if not db.execute("PRAGMA user_version").fetchone()[0]:
            return []
        return [[list(row) for row in db.execute(sql)] for sql in (_TRIALS, _LOGS, _VERDICTS)]


def versions_with_content(db: Database) -> list[Any]:
    """The versions by what they hold: their ids hang on the clock."""
    rows = db.rows(_WEIGHTS)
    return sorted(([*row, sorted((held or "").split())] for *row, held in rows), key=repr)
