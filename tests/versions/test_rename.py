"""Renaming a model: versions keep ids and numbers, a rebuild and undo agree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.api as api
import dlv.recovery.rebuild as rebuild
import dlv.repository.revisions as revisions
import dlv.repository.undo as undoing
import dlv.upkeep.check as check
import dlv.versions.rename as renaming
from dlv.errors import Conflict, DlvError
from dlv.metadata import versions
from dlv.repository.handle import Repository

Dlv = Callable[..., Any]


def labels(repository: Any) -> list[str]:
    return sorted(version.label for version in versions.all_versions(repository.database))


@pytest.fixture
def named(tmp_path: Path) -> Any:
    Repository.init(tmp_path)[0].close()
    with api.open(tmp_path) as repo:
        for seed in range(3):
            repo.commit(f"seed {seed}", name="net", weights={"w": np.full((2, 2), seed)})
        repo.commit("other", name="other", weights={"w": np.full((2, 2), 9.0)}, orphan=True)
        yield repo


def test_all_versions_get_the_name(named: Any) -> None:
    repository = named.repository
    ids = [named[f"net@{number}"].id for number in (1, 2, 3)]
    done = renaming.rename(repository, "net", "small", "Ada")
    assert [version.label for version in done.versions] == ["small@1", "small@2", "small@3"]
    assert [named[f"small@{number}"].id for number in (1, 2, 3)] == ids
    assert labels(repository) == ["other@1", "small@1", "small@2", "small@3"]
    assert check.check(repository).faults == []
    assert rebuild.rebuild(repository).faults == []
    assert labels(repository) == ["other@1", "small@1", "small@2", "small@3"]
    assert check.check(repository).faults == []


def test_names_change_places(named: Any) -> None:
    repository = named.repository
    for old, new in (("net", "temporary"), ("other", "net"), ("temporary", "other")):
        renaming.rename(repository, old, new, "Ada")
    wanted = ["net@1", "other@1", "other@2", "other@3"]
    assert labels(repository) == wanted
    assert rebuild.rebuild(repository).faults == []
    assert labels(repository) == wanted


def test_undo(named: Any) -> None:
    repository = named.repository
    commit = undoing.operations(repository)[1].id  # that of net@3
    renaming.rename(repository, "net", "small", "Ada")
    with pytest.raises(Conflict, match="cannot be undone now"):
        undoing.undo(repository, "Ada", operation=commit)
    undoing.undo(repository, "Ada")
    assert labels(repository) == ["net@1", "net@2", "net@3", "other@1"]
    assert rebuild.rebuild(repository).faults == []
    assert labels(repository) == ["net@1", "net@2", "net@3", "other@1"]
    undoing.undo(repository, "Ada", operation=commit)
    assert labels(repository) == ["net@1", "net@2", "other@1"]


def test_numbers_are_not_used_again(named: Any) -> None:
    renaming.rename(named.repository, "net", "small", "Ada")
    made = named.commit("new", name="net", weights={"w": np.full((2, 2), 7.0)}, orphan=True)
    assert made.row.label == "net@4"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [("nope", "small", 4), ("net", "other", 5), ("net", "v1", 5), ("net", "a b", 2)],
)
def test_refused(named: Any, old: str, new: str, code: int) -> None:
    revisions.set_tag(named.repository, "v1", "net@1", "Ada")
    with pytest.raises(DlvError) as caught:
        renaming.rename(named.repository, old, new, "Ada")
    assert caught.value.exit_code == code
    assert labels(named.repository) == ["net@1", "net@2", "net@3", "other@1"]
