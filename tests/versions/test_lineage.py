from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from dlv.metadata import versions
from dlv.metadata.versions import Version
from dlv.repository.handle import Repository
from dlv.versions.history import Parent, parents_of, relation


@pytest.fixture(scope="module")
def repository(
    tmp_path_factory: pytest.TempPathFactory, commit_model: Callable[..., str]
) -> Iterator[Repository]:
    """a@1 <- a@2 <- a@3, a@1 <- b@1, and c@1 alone."""
    made, _ = Repository.init(tmp_path_factory.mktemp("models"))
    ids = [commit_model(made, "a", {"w": np.array([i], np.float32)}) for i in range(3)]
    with made.change("test") as change:
        change.set_head(ids[0])
    commit_model(made, "b", {"w": np.array([7], np.float32)})
    commit_model(made, "c", {"w": np.array([8], np.float32)}, root=True)
    yield made
    made.close()


def _version(repository: Repository, label: str) -> Version:
    name, _, number = label.partition("@")
    found = versions.by_number(repository.database, name, int(number))
    assert found is not None
    return found


def test_parents(repository: Repository) -> None:
    child = _version(repository, "b@1")
    (parent,) = parents_of(repository.database, child)
    assert (parent.id, parent.kind, parent.label) == (*child.parents[0], "a@1")
    lost = replace(child, parents=(("0" * 64, "copy"),))
    assert parents_of(repository.database, lost) == (Parent("0" * 64, "copy", None),)


@pytest.mark.parametrize(
    ("first", "second", "kind", "steps", "common", "text"),
    [
        ("a@1", "a@1", "same", 0, "a@1", "both are a@1"),
        ("a@1", "a@2", "descendant", 1, "a@1", "a@2 is a child of a@1"),
        ("a@1", "a@3", "descendant", 2, "a@1", "a@3 is 2 commits after a@1"),
        ("a@3", "a@1", "ancestor", 2, "a@1", "a@3 is 2 commits after a@1"),
        ("a@3", "b@1", "siblings", None, "a@1", "a@3 and b@1 both come from a@1"),
        ("a@3", "c@1", "none", None, None, "a@3 and c@1 have no common ancestor here"),
    ],
)
def test_relations(
    repository: Repository,
    first: str,
    second: str,
    kind: str,
    steps: int | None,
    common: str | None,
    text: str,
) -> None:
    db = repository.database
    found = relation(db, _version(repository, first), db, _version(repository, second))
    assert (found.kind, found.steps, found.text) == (kind, steps, text)
    assert (found.common and found.common.label) == common
