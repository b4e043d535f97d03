"""Durations, and since when something has been hidden."""

from __future__ import annotations

import datetime

import pytest

import dlv.repository.undo as undo
import dlv.upkeep.mark as mark
import dlv.versions.remove as remove
from dlv.errors import UsageError
from dlv.metadata import collected
from dlv.repository.handle import Repository


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("14d", 14 * 86400), ("1.5h", 5400), ("90m", 5400), ("2w", 14 * 86400), ("0", 0), ("0s", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert mark.duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "14", "d", "-1d", "1y", "14 days", "1d2h", "inf", "nan"])
def test_no_durations(text: str) -> None:
    with pytest.raises(UsageError):
        mark.duration(text)


def test_a_duration_beyond_all_measure_is_a_long_one() -> None:
    assert mark.duration("999999999w") > datetime.timedelta(days=36000)


def test_a_removal_that_was_repeated_counts_from_the_last(lived: Repository) -> None:
    db = lived.database
    version = remove.remove(lived, ["lenet@2"], "Ada", force=True).removals[0].version
    first = collected.hidden_since(db, version.id)
    undo.undo(lived, "Ada")
    remove.remove(lived, ["lenet@2"], "Ada", force=True)
    again = collected.hidden_since(db, version.id)
    assert first is not None
    assert again is not None
    assert first < again


def test_steps_count_from_when_they_were_named_first(lived: Repository) -> None:
    """A later removal of another step of the same version names all of them once more."""
    db = lived.database
    found = mark.roots(db, lived.head, datetime.timedelta(days=1)).waiting
    by_label = {hidden.version.label: hidden for hidden in found}
    assert set(by_label) == {"lenet@1", "lenet@3", "wide@1"}
    version = by_label["lenet@1"].version
    assert by_label["lenet@1"].steps == [100]
    since = collected.steps_since(db, version.id)
    with lived.change("rm", "Ada") as change:
        change.record("removal", version.id, {"steps": [100, 150]})
    later = collected.steps_since(db, version.id)
    assert later[100] == since[100] < later[150]
