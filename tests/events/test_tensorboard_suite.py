"""TensorBoard's own tests of a data provider, run over ours.

They come with its sources, not with its package, and need TensorFlow to write their logs:

    DLV_TENSORBOARD_TESTS=.../tensorboard/backend/event_processing/data_provider_test.py
"""

from __future__ import annotations

import importlib.util
import os
import unittest
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dlv.curves.ingest as ingest
from dlv.curves.store import CurveStore
from dlv.events.provider import downsample
from dlv.events.provider.provider import Provider
from dlv.events.server.tb_provider import data_provider
from dlv.metadata import curve_writing

THEIRS = os.environ.get("DLV_TENSORBOARD_TESTS", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # TensorFlow has many
    pytest.mark.skipif(not THEIRS, reason="DLV_TENSORBOARD_TESTS names no file"),
]


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Their module, in which every provider is one of ours."""
    pytest.importorskip("tensorflow")
    spec = importlib.util.spec_from_file_location("data_provider_test", THEIRS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    stores: list[CurveStore] = []

    def ours(multiplexer: Any, logdir: str) -> Any:
        store = CurveStore.open(tmp_path / f"{len(stores)}.db")
        stores.append(store)
        if type(multiplexer).__name__ == "FakeMultiplexer":
            start_runs(store, multiplexer)
        else:
            ingest.scan(store, Path(logdir), experiment="")
        provider = Provider(store)
        return data_provider(lambda: provider, experiment="", location=logdir)

    def pick(xs: Any, k: int) -> list[Any]:
        return [xs[at] for at in downsample.sampled(len(xs), k)]

    monkeypatch.setattr(module.data_provider, "MultiplexerDataProvider", ours)
    monkeypatch.setattr(module.data_provider, "_downsample", pick)
    yield module
    for store in stores:
        store.close()


def start_runs(store: CurveStore, multiplexer: Any) -> None:
    """The runs, and when they began, of a stand-in that has no logs."""
    db = store.database
    with db.atomic():
        experiment = curve_writing.experiment(db, "")
        for run in multiplexer.Runs():
            try:
                began = multiplexer.FirstEventTimestamp(run)
            except ValueError:
                began = None
            curve_writing.set_run_state(db, curve_writing.run(db, experiment, run), {}, began)


@pytest.mark.parametrize(
    ("name", "count"), [("MultiplexerDataProviderTest", 16), ("DownsampleTest", 4)]
)
def test_all_of_them_pass(theirs: ModuleType, name: str, count: int) -> None:
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(getattr(theirs, name))
    wanted = [test for test in suite if not str(test).startswith("test_session ")]  # TensorFlow's
    assert len(wanted) == count
    result = unittest.TestResult()
    unittest.TestSuite(wanted).run(result)
    problems = [*result.failures, *result.errors]
    assert not problems, "\n".join(f"{test.id()}\n{text}" for test, text in problems)
    assert result.testsRun == count
    assert not result.skipped
