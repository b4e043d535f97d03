"""Hyperparameters out of the metadata that trainings log, and stores that show some runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.plugins.hparams import plugin_data_pb2

from dlv.curves.store import CurveStore
from dlv.events.formats.summaries import PLUGIN, SESSION, logged_hyperparameters
from dlv.events.logs.points import TENSOR, Metadata, TensorPoint
from dlv.events.provider.provider import Provider
from dlv.events.provider.store import ChosenRuns
from tests.events import stored

VALUES = {"lr": 0.1, "optimizer": "sgd", "nesterov": True, "grün": "é", "none": 0.0}


def content(values: dict[str, Any]) -> bytes:
    made = plugin_data_pb2.HParamsPluginData(version=0)
    made.session_start_info.group_name = "a group"
    for name, value in values.items():
        held = made.session_start_info.hparams[name]
        if isinstance(value, bool):
            held.bool_value = value
        elif isinstance(value, float):
            held.number_value = value
        else:
            held.string_value = value
    return bytes(made.SerializeToString())


def session(values: dict[str, Any]) -> Any:
    point = TensorPoint(SESSION, 0, stored.WALL, "float32", (0,), b"")
    return Metadata(SESSION, PLUGIN, TENSOR, content(values), "", ""), [point]


def test_values_of_each_kind() -> None:
    assert logged_hyperparameters(content(VALUES)) == VALUES
    assert logged_hyperparameters(content({})) == logged_hyperparameters(b"") == {}


@given(st.binary(max_size=60), st.integers(0, 200))
def test_what_is_no_metadata_has_none(garbage: bytes, at: int) -> None:
    assert isinstance(logged_hyperparameters(garbage), dict)
    assert logged_hyperparameters(b"\xff" + garbage) == {}
    whole = content(VALUES)
    assert isinstance(logged_hyperparameters(whole[: at % len(whole)] + garbage), dict)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CurveStore]:
    with stored.opened(tmp_path) as made:
        for run, values in (("lenet@1", {"lr": 0.1}), ("lenet@10", {}), ("wide@1", {"lr": 0.3})):
            key = stored.fill(made, run, stored.scalars("loss", [1.0]))
            stored.described(made, key, values)
        logs = [stored.scalars("loss", [0.5]), session({"lr": 0.2})]
        stored.fill(made, "lenet@1/trial", *logs)
        stored.fill(made, "lenet@10/trial", session({"lr": 0.7}))
        yield made


def test_runs_of_the_names_and_those_below(store: CurveStore) -> None:
    shown = Provider(ChosenRuns(store, lambda: {"lenet@1"}))
    assert [run.name for run in shown.runs()] == ["lenet@1", "lenet@1/trial"]
    assert list(shown.list_scalars()) == ["lenet@1", "lenet@1/trial"]
    assert list(shown.list_scalars(runs=["lenet@1", "wide@1"])) == ["lenet@1"]
    assert list(shown.list_scalars(runs=["wide@1"])) == []
    assert list(shown.read_scalars(runs=[])) == []
    assert Provider(ChosenRuns(store, set)).runs() == []


def test_a_run_that_leads_out_of_its_folder_is_not_shown(store: CurveStore) -> None:
    for name in ("lenet@1/../../etc", "lenet@1/..", "lenet@1/a/../b"):
        stored.fill(store, name, stored.scalars("loss", [0.5]))
    shown = Provider(ChosenRuns(store, lambda: {"lenet@1"}))
    assert [run.name for run in shown.runs()] == ["lenet@1", "lenet@1/trial"]
    assert list(shown.list_scalars()) == ["lenet@1", "lenet@1/trial"]


def test_hyperparameters_of_the_catalogue_and_else_logged_ones(store: CurveStore) -> None:
    both = {"lenet@1", "lenet@10"}
    shown = ChosenRuns(store, lambda: both)
    ((key, _),) = store.experiments()
    assert shown.hyperparameters(key) == [
        ("lenet@1", {"lr": 0.1}),
        ("lenet@1/trial", {"lr": 0.2}),
        ("lenet@10/trial", {"lr": 0.7}),
    ]
    # TensorBoard would look at these alone.
    assert Provider(shown).plugins() == ["scalars"]
