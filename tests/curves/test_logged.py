"""Curves in a program: of versions and of folders, as numpy and pandas have them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import dlv.api as api
from dlv.errors import NotFound, UsageError
from dlv.events.provider.store import InvalidArgument
from tests.events import foreign_logs

LOSS = [(step, 1 / (step + 1)) for step in range(3000)]


@pytest.fixture
def repo(tmp_path: Path) -> api.Repo:
    made = api.open(tmp_path, create=True)
    weights = {"w": np.zeros(3, np.float32)}
    made.commit("first", name="net", weights=weights, metrics={"loss": LOSS, "acc": 0.5})
    made.commit(
        "second",
        name="net",
        weights={"w": np.ones(3, np.float32)},
        metrics={"loss": LOSS[:100]},
        parameters={"lr": 0.1, "deep": {"er": [1, 2]}},
    )
    return made


def test_of_versions(repo: api.Repo) -> None:
    with repo.curves("net@1", "net@2") as curves:
        assert curves.runs == ["net@1", "net@2"]
        assert curves.plugins == ["scalars"]
        assert curves.tags() == ["acc", "loss"]
        found = curves.scalars("loss")
        assert {run: list(tags) for run, tags in found.items()} == {
            "net@1": ["loss"],
            "net@2": ["loss"],
        }
        points = found["net@1"]["loss"]
        assert (len(points), str(points.steps.dtype)) == (3000, "int64")
        assert points.values.tolist() == [value for _, value in LOSS], "all of them"
        assert set(curves.hyperparameters) == {"net@2"}
        assert curves.hyperparameters["net@2"]["lr"] == 0.1
        assert repr(curves) == "<dlv curves of 2 runs>"
        assert curves.remarks == []


def test_of_one_version_and_of_all(repo: api.Repo) -> None:
    with repo["net@2"].curves() as curves:
        assert curves.runs == ["net@2"]
        assert len(curves.scalars()["net@2"]["loss"]) == 100
    with repo.curves() as curves:
        assert curves.runs == ["net@1", "net@2"]
    repo.commit("third", name="other", metrics={"loss": 1.0})
    with repo.curves() as curves:
        assert curves.runs == ["net@1", "net@2", "other@1"]


def test_parts_of_curves(repo: api.Repo) -> None:
    with repo["net@1"].curves() as curves:

        def steps(**asked: object) -> list[int]:
            found: list[int] = curves.scalars("loss", **asked)["net@1"]["loss"].steps.tolist()  # type: ignore[arg-type]
            return found

        assert steps(steps=(10, 12)) == [10, 11, 12]
        assert steps(last=2) == [2998, 2999]
        assert steps(points=3, sampling="linear") == [0, 1500, 2999]
        assert len(steps(points=20, sampling="envelope")) <= 20
        assert curves.scalars("loss", runs=[]) == {}
        with pytest.raises(NotFound, match="no series `los`") as error:
            curves.scalars("los")
        assert error.value.did_you_mean == ["loss"]
        with pytest.raises(NotFound, match="no run `net@9`"):
            curves.scalars(runs=["net@9"])
        with pytest.raises(InvalidArgument, match="no sampling"):
            steps(sampling="none")


def test_a_cap_in_the_configuration(repo: api.Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLV_CURVES_CAP", "2999")
    with api.open(repo.repository.root) as again, again.curves("net@1") as curves:
        with pytest.raises(InvalidArgument, match="an answer has at most 2999") as error:
            curves.scalars("loss")
        assert "curves.cap" in str(error.value.hint)
        assert len(curves.scalars("loss", points=100)["net@1"]["loss"]) == 100


def test_a_frame(repo: api.Repo) -> None:
    pandas = pytest.importorskip("pandas")
    with repo.curves() as curves:
        frame = curves.to_pandas("loss", steps=(0, 2))
        assert frame.columns.tolist() == ["run", "tag", "step", "wall_time", "value"]
        assert len(frame) == 6
        wide = frame.pivot(index="step", columns="run", values="value")
        assert wide["net@1"].tolist() == [1, 1 / 2, 1 / 3]
        assert isinstance(frame, pandas.DataFrame)
        nothing = curves.to_pandas(runs=[])
        assert (len(nothing), nothing.columns.tolist()) == (0, frame.columns.tolist())


def test_of_a_folder(repo: api.Repo, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    logs = tmp_path / "logs"
    foreign_logs.builders(logs)
    foreign_logs.oddities(logs)
    with repo.curves(folder=logs) as curves:
        assert "made/v2" in curves.runs
        assert curves.scalars("loss", runs=["made/v2"])["made/v2"]["loss"].steps[-1] == 11
        tensors = curves.tensors("weights", runs=["made/v2"], last=2)["made/v2"]["weights"]
        assert [each.step for each in tensors] == [10, 11]
        assert tensors[0].array.shape == (30, 3)
        texts = curves.tensors("note", plugin="text", last=1)["made/v2"]["note"]
        assert texts[0].array.tolist() == [b"at **11**"] or texts[0].array.item() == b"at **11**"
        pictures = curves.blobs("p")["odd/twice"]["p"]
        assert [each.step for each in pictures] == [1, 2, 3]
        assert list(pictures[0]) == [b"1", b"1", b"\1"]
        assert pictures[0][1:] == [b"1", b"\1"]
        assert repr(pictures[0]) == "<dlv blobs: 3 at step 1>"
    foreign_logs.written(logs / "new", [foreign_logs.simple(1, loss=9.0)])
    with repo.curves(folder=logs) as curves:
        assert curves.scalars(runs=["new"])["new"]["loss"].values.tolist() == [9]
    with pytest.raises(UsageError, match="not of both at once"):
        repo.curves("net@1", folder=logs)
    with pytest.raises(NotFound, match="no such directory:"):
        repo.curves(folder=logs / "nowhere")


def test_a_damaged_log_is_told_of(repo: api.Repo, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    foreign_logs.broken(tmp_path / "logs")
    with repo.curves(folder=tmp_path / "logs") as curves:
        told = " ".join(why for _, why in curves.remarks)
        assert "sum of a record is wrong" in told
        assert len(curves.scalars("loss", runs=["broken/crc of a body"])) == 1


def test_where_nothing_can_be_written(repo: api.Repo, tmp_path: Path) -> None:
    (tmp_path / ".dlv/live.db.lock").mkdir()
    with repo.curves("net@2") as curves:
        assert len(curves.scalars("loss")["net@2"]["loss"]) == 100
    assert not (tmp_path / ".dlv/live.db").exists()


def test_numbers_that_are_none(repo: api.Repo) -> None:
    odd = [math.nan, math.inf, -math.inf]
    repo.commit("odd", name="odd", metrics={"loss": list(enumerate(odd))})
    with repo["odd@1"].curves() as curves:
        found = curves.scalars("loss")["odd@1"]["loss"].values
        assert [str(value) for value in found] == ["nan", "inf", "-inf"]
