"""Which word is the data, and which data is meant where none is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.api as api
from dlv.api import Repo
from dlv.errors import NotFound, UsageError
from dlv.evaluation.given_data import find_data, split_words


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: Any) -> Iterator[Repo]:
    """net@1 has one data set, net@2 another, net@3 both."""
    monkeypatch.chdir(tmp_path)
    with api.open(tmp_path, create=True) as found:
        for number, names in enumerate((["a.npz"], ["b.npz"], ["a.npz", "b.npz"])):
            for path in tmp_path.glob("*.npz"):
                path.unlink()
            for name in names:
                np.savez(tmp_path / name, x=np.full(3, ord(name[0])))
                found.add(name, role="data")
            orphan = number != 2
            found.commit("with data", name="net", parameters={"n": number}, orphan=orphan)
        for path in tmp_path.glob("*.npz"):
            path.unlink()
        yield found


@pytest.mark.parametrize(
    ("words", "references", "data"),
    [
        (["net"], ["net"], None),
        (["net@1", "net@2"], ["net@1", "net@2"], None),
        (["net@1", "net@1:a.npz"], ["net@1"], "net@1:a.npz"),
        (["net@1", "python:m:f"], ["net@1"], "python:m:f"),
        (["net@1", "net@2", "folder"], ["net@1", "net@2"], "folder"),
        (["folder"], ["folder"], None),  # there must be a version
        (["net@1", "net/100"], ["net@1", "net/100"], None),
    ],
)
def test_the_last_word(
    repo: Repo, words: list[str], references: list[str], data: str | None
) -> None:
    here = repo.repository.root
    (here / "folder").mkdir()
    assert split_words(repo.repository, words, here) == (references, data)


def test_a_file_that_is_missing(repo: Repo) -> None:
    here = repo.repository.root
    (here / "test.csv").touch()
    with pytest.raises(NotFound, match=r"no file tset\.csv") as error:
        split_words(repo.repository, ["net", "tset.csv"], here)
    assert error.value.did_you_mean == ["test.csv"]
    with pytest.raises(NotFound, match=r"no file `c\.npz`") as error:
        split_words(repo.repository, ["net", "net@1:c.npz"], here)
    assert error.value.did_you_mean[0] == "net@1:a.npz"


def test_what_was_added_with_the_version(repo: Repo) -> None:
    here = repo.repository.root
    found = find_data(repo.repository, None, ["net@1"], here)
    assert (found.where, found.entry is not None) == ("net@1:a.npz", True)
    with pytest.raises(UsageError, match="there are several") as error:
        find_data(repo.repository, None, ["net@1", "net@2"], here)
    assert error.value.why == "net@1:a.npz, net@2:b.npz"
    with pytest.raises(UsageError, match="there are several"):
        find_data(repo.repository, None, ["net@3"], here)
    assert find_data(repo.repository, "net@2:b.npz", ["net@1"], here).entry is not None
    assert find_data(repo.repository, "elsewhere.npz", ["net@1"], here).entry is None
