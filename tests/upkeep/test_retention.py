"""What the words of `--keep-best` mean."""

from __future__ import annotations

import pytest

import dlv.upkeep.retention as retention
from dlv.errors import UsageError
from dlv.repository.handle import Repository
from dlv.upkeep.retention import Best, Policy


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("accuracy:3", Best("accuracy", 3, "max")),
        ("val/loss:1", Best("val/loss", 1, "min")),
        ("bleu:max:12", Best("bleu", 12, "max")),
        ("run:loss:2", Best("run:loss", 2, "min")),
    ],
)
def test_what_is_best(text: str, expected: Best) -> None:
    assert retention.best(text) == expected


@pytest.mark.parametrize(
    "text", ["", "accuracy", "accuracy:", "accuracy:0", ":3", "zork:3", "a:-1"]
)
def test_what_says_nothing(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        retention.best(text)
    assert caught.value.hint


def test_without_a_policy_all_stay(lived: Repository) -> None:
    assert retention.choose(lived.database, Policy(), lived.head) == []


def test_more_than_there_are(lived: Repository) -> None:
    assert retention.choose(lived.database, Policy(last=99), lived.head) == []


def test_removed_versions_do_not_count(lived: Repository) -> None:
    """lenet@3 is undone: @4 and @2 are the last two."""
    assert [
        c.version.label for c in retention.choose(lived.database, Policy(last=2), lived.head)
    ] == ["lenet@1"]
