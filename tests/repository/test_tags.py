"""Tags: facts that name versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import dlv.repository.revisions as revisions
import dlv.repository.undo as undo
import dlv.versions.commit as committing
import dlv.versions.remove as remove
from dlv.errors import Conflict, NotFound, UsageError
from dlv.repository.handle import Repository
from dlv.repository.revisions import delete_tag, set_tag, tags

AUTHOR = "Ada <ada@example.org>"


@pytest.fixture
def repository(tmp_path: Path, commit_model: Callable[..., str]) -> Iterator[Repository]:
    made, _ = Repository.init(tmp_path)
    for value in (1, 2):
        commit_model(made, "net", {"w": np.full(2, value, np.float32)})
    yield made
    made.close()


def named(repository: Repository) -> dict[str, str]:
    return {name: version.label for name, version in tags(repository)}


def test_set_move_delete(repository: Repository) -> None:
    done = set_tag(repository, "good", "net@1", AUTHOR)
    assert (done.before, done.changed) == (None, True)
    assert revisions.version(repository.database, "good").label == "net@1"
    moved = set_tag(repository, "good", "HEAD", AUTHOR, move=True)
    assert moved.before is not None
    assert moved.before.label == "net@1"
    assert named(repository) == {"good": "net@2"}
    delete_tag(repository, "good", AUTHOR)
    assert named(repository) == {}
    assert [entry.summary for entry in undo.operations(repository)][:3] == [
        "good deleted, was net@2",
        "good -> net@2, was net@1",
        "good -> net@1",
    ]


def test_the_same_again_changes_nothing(repository: Repository) -> None:
    set_tag(repository, "good", "net@1", AUTHOR)
    before = len(undo.operations(repository)), sorted(repository.facts.glob("*/*"))
    assert not set_tag(repository, "good", "net@1", AUTHOR).changed
    assert (len(undo.operations(repository)), sorted(repository.facts.glob("*/*"))) == before


def test_a_tag_that_exists(repository: Repository) -> None:
    set_tag(repository, "good", "net@1", AUTHOR)
    with pytest.raises(Conflict) as caught:
        set_tag(repository, "good", "net@2", AUTHOR)
    assert caught.value.hint == "dlv tag good net@2 --move"
    assert named(repository) == {"good": "net@1"}


def test_tags_and_names_exclude_each_other(repository: Repository) -> None:
    with pytest.raises(Conflict):
        set_tag(repository, "net", "net@1", AUTHOR)
    set_tag(repository, "good", "net@1", AUTHOR)
    with pytest.raises(Conflict):
        committing.commit(repository, committing.Request("m", AUTHOR, "good", allow_empty=True))
    # The name of an undone version may come back.
    committing.commit(repository, committing.Request("m", AUTHOR, "other", allow_empty=True))
    undo.undo(repository, AUTHOR)
    with pytest.raises(Conflict):
        set_tag(repository, "other", "net@1", AUTHOR)


@pytest.mark.parametrize(
    "name", ["", "a/b", "a b", "HEAD", "latest", "-x", "a@1", "a:b", "a~1", "a^", "f" * 64, "ü"]
)
def test_names_that_no_reference_could_say(repository: Repository, name: str) -> None:
    with pytest.raises(UsageError):
        set_tag(repository, name, "net@1", AUTHOR)


@pytest.mark.parametrize("name", ["v1.0", "1", "a_b+c-d.e", "beef"])
def test_names_that_are_fine(repository: Repository, name: str) -> None:
    set_tag(repository, name, "net@1", AUTHOR)
    assert revisions.version(repository.database, name).label == "net@1"


def test_hidden_versions_are_not_tagged(repository: Repository) -> None:
    remove.remove(repository, ["net@1"], AUTHOR)
    with pytest.raises(Conflict, match="was removed"):
        set_tag(repository, "good", "net@1", AUTHOR)


def test_what_is_not_there(repository: Repository) -> None:
    set_tag(repository, "paper-final", "net@1", AUTHOR)
    with pytest.raises(NotFound) as caught:
        delete_tag(repository, "paper-finl", AUTHOR)
    assert caught.value.did_you_mean == ["paper-final"]
    with pytest.raises(NotFound):
        set_tag(repository, "good", "net@9", AUTHOR)
    with pytest.raises(UsageError):
        set_tag(repository, "good", "net@1:train.py", AUTHOR)
