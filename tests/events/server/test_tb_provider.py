"""TensorBoard's interface over ours: its types, its errors, its hyperparameters."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlv.curves.store import CurveStore
from dlv.errors import UsageError
from dlv.events.logs.points import SCALAR
from dlv.events.provider.provider import Provider
from dlv.events.server.tb_provider import data_provider
from dlv.metadata import curve_writing
from tests.events import filled_store as fill

context = pytest.importorskip("tensorboard.context")
errors = pytest.importorskip("tensorboard.errors")
types = pytest.importorskip("tensorboard.data.provider")

CTX = context.RequestContext()
SCALARS: dict[str, Any] = {"experiment_id": "", "plugin_name": "scalars"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CurveStore]:
    with fill.opened(tmp_path) as found:
        fill.scalars(found, "a", "loss", [1, 2, 3], [0.5, math.nan, 0.1])
        fill.blobs(found, "a", "seen", [(1, [b"bytes"])])
        fill.tensors(found, "b", "weights", [4])
        yield found


@pytest.fixture
def ours(store: CurveStore) -> Any:
    provider = Provider(store, cap=1000)
    return data_provider(lambda: provider, location="here")


def test_it_is_a_data_provider(ours: Any) -> None:
    assert isinstance(ours, types.DataProvider)
    assert str(ours) == "DlvDataProvider('here')"
    told = ours.experiment_metadata(CTX, experiment_id="")
    assert told == types.ExperimentMetadata(data_location="here")
    assert ours.list_plugins(CTX, experiment_id="") == ["histograms", "images", "scalars"]
    assert [run.run_name for run in ours.list_runs(CTX, experiment_id="")] == ["a", "b"]


def test_answers_are_of_its_types(ours: Any) -> None:
    listed = ours.list_scalars(CTX, **SCALARS)["a"]["loss"]
    assert listed == types.ScalarTimeSeries(
        max_step=3, max_wall_time=1003.0, plugin_content=b"", description="", display_name=""
    )
    points = ours.read_scalars(CTX, downsample=2, **SCALARS)["a"]["loss"]
    assert points[-1] == types.ScalarDatum(3, 1003.0, 0.1)
    assert [type(each) for each in (points[0].step, points[0].wall_time, points[0].value)] == [
        int,
        float,
        float,
    ]
    assert ours.read_last_scalars(CTX, **SCALARS)["a"]["loss"] == points[-1]
    tensors: dict[str, Any] = {"experiment_id": "", "plugin_name": "histograms"}
    assert ours.list_tensors(CTX, **tensors)["b"]["weights"].max_step == 4
    (tensor,) = ours.read_tensors(CTX, downsample=9, **tensors)["b"]["weights"]
    assert tensor.numpy.tolist() == [4, 5]
    blobs: dict[str, Any] = {"experiment_id": "", "plugin_name": "images"}
    assert ours.list_blob_sequences(CTX, **blobs)["a"]["seen"].max_length == 1
    (blob,) = ours.read_blob_sequences(CTX, downsample=9, **blobs)["a"]["seen"]
    assert ours.read_blob(CTX, blob_key=blob.values[0].blob_key) == b"bytes"


def test_filters(ours: Any) -> None:
    for chosen, found in (
        (types.RunTagFilter(["a"], ["loss"]), {"a"}),
        (types.RunTagFilter(None, ["loss", "x"]), {"a"}),
        (types.RunTagFilter(["b"], None), set()),
        (types.RunTagFilter([], None), set()),
    ):
        assert set(ours.list_scalars(CTX, run_tag_filter=chosen, **SCALARS)) == found


def test_errors_are_those_that_it_answers_with(ours: Any, store: CurveStore) -> None:
    with pytest.raises(errors.NotFoundError, match="no experiment `x`"):
        ours.list_runs(CTX, experiment_id="x")
    with pytest.raises(errors.NotFoundError, match="no blob has this key"):
        ours.read_blob(CTX, blob_key="nothing")
    with pytest.raises(errors.InvalidArgumentError, match="`points` is -1"):
        ours.read_scalars(CTX, downsample=-1, **SCALARS)
    fill.scalars(store, "long", "loss", range(1001))
    with pytest.raises(errors.InvalidArgumentError, match="an answer has at most 1000"):
        ours.read_scalars(CTX, downsample=10**6, **SCALARS)
    with pytest.raises(TypeError, match="`downsample` is required"):
        ours.read_scalars(CTX, **SCALARS)
    with pytest.raises(TypeError, match="experiment_id must be a str"):
        ours.list_runs(CTX, experiment_id=None)


def test_a_series_that_is_not_of_scalars(ours: Any, store: CurveStore) -> None:
    fill.put(store, "a", [], [fill.metadata("bad", "scalars", SCALAR)])
    with store.database.atomic():
        store.database.execute("UPDATE series SET error = 'rank 2' WHERE tag = 'bad'")
    one = types.RunTagFilter(["a"], ["bad"])
    for kind in (errors.InvalidArgumentError, ValueError):
        with pytest.raises(kind, match="rank 2"):
            ours.read_scalars(CTX, downsample=9, run_tag_filter=one, **SCALARS)


def test_damage_is_told_without_a_traceback_of_sqlite(store: CurveStore) -> None:
    with store.database.atomic():
        store.database.execute("UPDATE scalar_chunk SET data = x'00'")
    provider = Provider(store)
    with pytest.raises(errors.PublicError, match="corrupt") as error:
        data_provider(lambda: provider).read_scalars(CTX, downsample=9, **SCALARS)
    assert error.value.http_code == 500


def test_one_experiment_under_every_id(store: CurveStore) -> None:
    provider = Provider(store)
    only = data_provider(lambda: provider, experiment="")
    assert len(only.list_runs(CTX, experiment_id="whatever")) == 2
    assert only.read_hyperparameters(CTX, experiment_ids=["x", "y"]) == []


def test_hyperparameters(ours: Any, store: CurveStore) -> None:
    given: dict[str, dict[str, Any]] = {
        "a": {"lr": 0.1, "name": "sgd", "warm": True},
        "b": {"lr": 0.2, "name": "sgd", "warm": True},
    }
    with store.database.atomic():
        key = curve_writing.experiment(store.database, "")
        for run, values in given.items():
            found = curve_writing.run(store.database, key, run)
            curve_writing.describe_run(store.database, found, "v" + run, 1.0, values)
    listed = ours.list_hyperparameters(CTX, experiment_ids=[""])
    kinds = types.HyperparameterDomainType
    assert listed.hyperparameters[0] == types.Hyperparameter(
        "lr", "lr", kinds.DISCRETE_FLOAT, (0.1, 0.2), differs=True
    )
    assert [each.domain_type for each in listed.hyperparameters[1:]] == [
        kinds.DISCRETE_STRING,
        kinds.DISCRETE_BOOL,
    ]
    assert len(listed.session_groups) == 2
    assert len(ours.list_hyperparameters(CTX, experiment_ids=[""], limit=1).hyperparameters) == 1

    def runs(**asked: Any) -> list[str]:
        return [
            group.sessions[0].run
            for group in ours.read_hyperparameters(CTX, experiment_ids=[""], **asked)
        ]

    condition, kind = types.HyperparameterFilter, types.HyperparameterFilterType
    assert runs() == ["a", "b"]
    assert runs(filters=[condition("lr", kind.INTERVAL, (0.15, 0.3))]) == ["b"]
    assert runs(filters=[condition("lr", kind.DISCRETE, [0.1])]) == ["a"]
    assert runs(filters=[condition("name", kind.REGEX, "^x")]) == []
    down = types.HyperparameterSort("lr", types.HyperparameterSortDirection.DESCENDING)
    assert runs(sort=[down]) == ["b", "a"]
    (group, _) = ours.read_hyperparameters(CTX, experiment_ids=[""], hparams_to_include=["name"])
    assert group.root == types.HyperparameterSessionRun("", "a")
    assert list(group.hyperparameter_values) == [
        types.HyperparameterValue("name", kinds.DISCRETE_STRING, "sgd")
    ]
    with pytest.raises(errors.InvalidArgumentError, match="pattern"):
        runs(filters=[condition("name", kind.REGEX, "(")])
    with pytest.raises(errors.InvalidArgumentError, match="2 experiments at once"):
        ours.list_hyperparameters(CTX, experiment_ids=["", "x"])


def test_without_the_package_the_line_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.data.provider", None)
    with pytest.raises(UsageError) as error:
        data_provider(lambda: None)  # type: ignore[arg-type, return-value]
    assert error.value.hint == "pip install 'dlv[tensorboard]'"
