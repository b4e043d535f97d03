"""`repo.query`: rows with versions, networks, parameters, DataFrames."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dlv.api as api
import dlv.demo.run as demos
from dlv.dql.answers import DerivedNetwork
from dlv.errors import NotFound, UsageError
from dlv.versions.version import Version


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("answers") / "demo"
    demos.demo(made, "Ada <ada@example.org>")
    return made


@pytest.fixture
def repo(folder: Path) -> Iterator[api.Repo]:
    with api.open(folder) as found:
        yield found


def test_rows(repo: api.Repo) -> None:
    answer = repo.query('select m, m.name, m["loss"].min as best order by m.creation_time')
    assert answer.columns == ["m", "m.name", "best"]
    assert len(answer) == 4
    version, name, best = answer[0]
    assert isinstance(version, Version)
    assert (version.name, name) == ("lenet", "lenet")
    assert best == version.metrics["loss"].min
    assert [row[1] for row in answer] == ["lenet", "lenet-wide", "lenet", "lenet"]
    assert [row[1] for row in answer[1:3]] == ["lenet-wide", "lenet"]
    assert repr(answer) == "<dlv answer: 4 rows of m, m.name, best>"


def test_parameters(repo: api.Repo) -> None:
    text = "select m where m.name = $text and m.number in $numbers"
    answer = repo.query(text, text="lenet", numbers=[1, 3])
    assert sorted(version.number for (version,) in answer) == [1, 3]
    with pytest.raises(UsageError, match=r"\$text"):
        repo.query(text, numbers=[1])


def test_networks(repo: api.Repo) -> None:
    text = 'construct d from m where m = "lenet@1" mutate m["conv1"].out in [2, 4]'
    answer = repo.query(text)
    assert len(answer.networks) == 2
    assert len(answer) == 0
    for made in answer.networks:
        assert made.origins == ("lenet@1",)
        assert made.source.row.label == "lenet@1"
        assert made.version is None
        assert made.edits[0].action == "set"
        assert made.id == made.network.id
    assert repr(answer) == "<dlv answer: 2 networks>"
    rows = repo.query(f"select d, d.n_params from d in ({text}) order by d.n_params")
    assert all(isinstance(network, DerivedNetwork) for network, _ in rows)
    assert {network.id for network, _ in rows} == {made.id for made in answer.networks}


def test_committed(repo: api.Repo) -> None:
    text = 'construct d from m where m = "lenet@1" mutate m["conv1"].out = 2 into "lenet-two"'
    (made,) = repo.query(text).networks
    assert made.version is not None
    assert made.version.row.label == "lenet-two@1"
    assert made.version.network is not None
    assert made.version.network.id == made.id
    repo.query("define two as select m; define one as select m where m.number = 1")
    assert len(repo.query('select m from m in "one" where m.name = "lenet-two"')) == 1


def test_the_last_statement_answers(repo: api.Repo) -> None:
    assert len(repo.query("select m limit 3; select m limit 1")) == 1
    assert len(repo.query("define all_of_them as select m")) == 0


def test_errors(repo: api.Repo) -> None:
    with pytest.raises(UsageError, match="unexpected"):
        repo.query("select m wher m.lr > 1")
    with pytest.raises(NotFound, match="lenett"):
        repo.query('select m where m = "lenett@1"')


def test_data_frame(repo: api.Repo) -> None:
    pytest.importorskip("pandas")
    text = 'select m, m["loss"].min as best where m.name = "lenet" order by m.number'
    frame = repo.query(text).to_pandas()
    assert list(frame.columns) == ["m", "best"]
    assert list(frame["m"]) == ["lenet@1", "lenet@2", "lenet@3"]
    assert frame["best"].dtype == float


def test_without_pandas(repo: api.Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="pandas") as caught:
        repo.query("select m").to_pandas()
    assert caught.value.hint == "pip install pandas"
