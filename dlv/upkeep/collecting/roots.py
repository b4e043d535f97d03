"""What is hidden and since when: after the grace it is no root any more, and gc may take it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass

from dlv.canonical import moment_of, timestamp
from dlv.errors import UsageError
from dlv.metadata import collected, facts, versions
from dlv.metadata.database import Database
from dlv.metadata.versions import SnapshotRow, Version

EVERY = ("live", "removed", "undone", "recovered")
HIDDEN = ("removed", "undone")

_DURATION = re.compile(r"\s*(\d{1,9}(?:\.\d{1,6})?)\s*([smhdw]?)\s*$")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def duration(text: str) -> datetime.timedelta:
    """`14d`, `12h`, `90m`, `0`."""
    match = _DURATION.match(text)
    # Without a unit 14 could be days as well as seconds; nothing is nothing in all of them.
    if match is None or (not match[2] and float(match[1])):
        raise UsageError(f"`{text}` is not a duration", hint="14d, 12h, 90m, 2w or 0")
    seconds = float(match[1]) * _SECONDS[match[2]]
    return datetime.timedelta(seconds=min(seconds, 3.15e9))


@dataclass(frozen=True)
class Hidden:
    """A hidden version, or with `snapshots` some of a version that stays."""

    version: Version
    snapshots: tuple[SnapshotRow, ...] | None
    since: str

    @property
    def steps(self) -> list[int | None] | None:
        return None if self.snapshots is None else [row.step for row in self.snapshots]


@dataclass(frozen=True)
class Roots:
    """Every version, and what of it is hidden: for long enough (`due`), or not yet."""

    every: list[Version]
    due: list[Hidden]
    waiting: list[Hidden]

    @property
    def kept(self) -> list[Version]:
        gone = {hidden.version.key for hidden in self.due if hidden.snapshots is None}
        return [version for version in self.every if version.key not in gone]


def roots(db: Database, head: str | None, grace: datetime.timedelta) -> Roots:
    """HEAD is a root whatever its state: the working directory comes from it."""
    every = versions.all_versions(db, EVERY)
    due: list[Hidden] = []
    waiting: list[Hidden] = []
    taken = facts.collected(db)
    for version in every:
        for hidden in _hidden(db, version, head, taken.get(version.id) or set()):
            (due if _over(hidden.since, grace) else waiting).append(hidden)
    return Roots(every, due, waiting)


def _hidden(
    db: Database, version: Version, head: str | None, taken: set[int | None]
) -> Iterable[Hidden]:
    if version.state in HIDDEN and version.id != head:
        yield Hidden(version, None, collected.hidden_since(db, version.id) or version.created)
        return
    since = collected.steps_since(db, version.id)
    by_time: dict[str, list[SnapshotRow]] = {}
    for row in versions.snapshots(db, version.key):
        if row.removed and row.step not in taken and row.step in since:
            by_time.setdefault(since[row.step], []).append(row)
    for moment, rows in sorted(by_time.items()):
        yield Hidden(version, tuple(rows), moment)


def _over(since: str, grace: datetime.timedelta) -> bool:
    if not grace:
        return True  # also where a clock was set back meanwhile
    return since <= timestamp(moment_of(timestamp()) - grace)


def until(since: str, grace: datetime.timedelta) -> str:
    """When the grace ends."""
    return timestamp(moment_of(since) + grace)
