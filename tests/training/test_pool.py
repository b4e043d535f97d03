"""Local workers: all trials trained, whatever becomes of trials, workers and drivers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.pooled import Place

RATES = [{"base_lr": rate} for rate in (0.3, 0.1, 0.03, 0.01)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "here")


def test_all_trials_are_trained(place: Place) -> None:
    run = place.open_run(RATES)
    view = place.train(run)
    assert view.state == "over"
    assert [(t.state, t.step) for t in view.trials] == [("done", 40)] * 4
