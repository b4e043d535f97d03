"""Saved queries: kept, replaced, forgotten, undone, rebuilt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import dlv.dql.saved as saved
import dlv.recovery.rebuild as rebuild
import dlv.repository.undo as undo
import dlv.upkeep.check as check
from dlv.errors import Conflict, NotFound, UsageError
from dlv.repository.handle import Repository

AUTHOR = "Ada <ada@example.org>"


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    made, _ = Repository.init(tmp_path)
    with made:
        yield made


def texts(repository: Repository) -> dict[str, str]:
    return {each.name: each.text for each in saved.list_queries(repository)}


def save(repository: Repository, name: str, text: str, force: bool = False) -> bool:
    return saved.save_query(repository, name, text, force=force, author=AUTHOR).replaced


def test_a_text_and_its_name(repository: Repository) -> None:
    assert save(repository, "two words", "select m\n  where m.lr > 1") is False
    save(repository, "all", "select m")
    assert [each.name for each in saved.list_queries(repository)] == ["all", "two words"]
    found = saved.show_query(repository, "two words")
    assert found.text == "select m\n  where m.lr > 1"
    assert found.created.endswith("Z")


def test_the_same_again_is_nothing_new(repository: Repository) -> None:
    save(repository, "all", "select m")
    assert save(repository, "all", "select m") is False
    assert len(undo.operations(repository)) == 1


def test_another_text_needs_force(repository: Repository) -> None:
    save(repository, "all", "select m")
    with pytest.raises(Conflict, match="`all` already exists") as caught:
        save(repository, "all", "select n")
    assert caught.value.why == "it is select m"
    assert texts(repository) == {"all": "select m"}
    assert save(repository, "all", "select n", force=True) is True
    assert texts(repository) == {"all": "select n"}


def test_forgotten(repository: Repository) -> None:
    save(repository, "good", "select m")
    assert saved.forget_query(repository, "good", author=AUTHOR).text == "select m"
    assert texts(repository) == {}
    with pytest.raises(NotFound, match="no saved query `good`") as caught:
        saved.forget_query(repository, "good", author=AUTHOR)
    assert caught.value.why == "saved queries: none"
    assert save(repository, "good", "select n") is False


def test_an_unknown_name_says_which_is_near(repository: Repository) -> None:
    for name in ("good", "better"):
        save(repository, name, "select m")
    with pytest.raises(NotFound) as caught:
        saved.show_query(repository, "goood")
    assert caught.value.did_you_mean == ["good"]
    assert caught.value.why == "saved queries: better, good"


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x1b[2J", "x" * 101])
def test_names_that_cannot_be_printed(repository: Repository, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a query"):
        save(repository, name, "select m")


def test_undone_and_done_again(repository: Repository) -> None:
    save(repository, "good", "select m")
    save(repository, "good", "select n", force=True)
    undo.undo(repository, AUTHOR)
    assert texts(repository) == {"good": "select m"}
    saved.forget_query(repository, "good", author=AUTHOR)
    assert texts(repository) == {}
    undo.undo(repository, AUTHOR)
    assert texts(repository) == {"good": "select m"}
    undo.undo(repository, AUTHOR, count=1)
    assert texts(repository) == {}
    first = undo.operations(repository)[0]
    undo.undo(repository, AUTHOR, operation=first.id)
    assert texts(repository) == {"good": "select m"}


def test_a_rebuild_has_them(repository: Repository) -> None:
    save(repository, "good", "select m")
    save(repository, "bad", "select n")
    saved.forget_query(repository, "bad", author=AUTHOR)
    save(repository, "good", "select n", force=True)
    save(repository, "other", "select o")
    undo.undo(repository, AUTHOR)
    before = saved.list_queries(repository)
    assert [each.name for each in before] == ["good"]
    assert check.check(repository).faults == []
    repository.close()
    repository.database_file.unlink()
    assert rebuild.rebuild(repository).faults == []
    assert saved.list_queries(repository) == before
