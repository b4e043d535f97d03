from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.training.checkpoints as checkpoints
from dlv.errors import UsageError
from dlv.training.checkpoints import Checkpoint
from dlv.training.trainers.interface import FILES
from dlv.training.workers.slices import Recorder
from tests.training import small


class Ledger:
    """Rows as they come; says stop at a step."""

    def __init__(self, folder: Path, stop: int | None = None, **config: Any) -> None:
        given = {"steps": 100, "log_every": 10, **config}
        files = small.created(folder, small.mlp(), small.mlp_weights(), given)
        self.trial = replace(files.load(), token=1)
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.stop = stop

    def __call__(self, step: int, metrics: Mapping[str, float]) -> bool:
        self.rows.append((step, dict(metrics)))
        return step == self.stop

    def recorder(self, begun: Checkpoint | None = None, steps: int = 100) -> Recorder:
        return Recorder(self.trial, begun or Checkpoint(), steps, self)

    @property
    def newest(self) -> Checkpoint | None:
        return checkpoints.newest(self.trial.checkpoints)


def test_the_checkpoint_is_there_before_the_row(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    seen: list[int] = []

    def row(step: int, metrics: Any) -> bool:
        assert ledger.newest is not None
        seen.append(ledger.newest.step)
        return False

    log = Recorder(ledger.trial, Checkpoint(), 100, row)
    log(10, {"loss": 1.0}, {"weight/a": np.ones(2), "best": 3, "at": np.float32(2)})
    assert seen == [10]
    assert ledger.newest is not None
    assert ledger.newest.values == {"best": 3}
    assert set(ledger.newest.arrays) == {"weight/a", "at"}
    assert ledger.newest.metrics == {10: {"loss": 1.0}}


def test_what_was_logged_is_told_again(tmp_path: Path) -> None:
    first = Ledger(tmp_path)
    log = first.recorder()
    log(10, {"loss": 1.0}, {})
    log(20, {"loss": 0.5}, {})
    second = Ledger(tmp_path)
    again = second.recorder(first.newest)
    assert not again.replay()
    assert second.rows == first.rows
    assert again.step == 20
    stopped = Ledger(tmp_path, stop=10)
    assert stopped.recorder(first.newest).replay()


def test_a_row_without_a_state_leaves_no_checkpoint(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    log = ledger.recorder()
    log(10, {"loss": 1.0})
    assert checkpoints.newest(ledger.trial.checkpoints) is None
    assert ledger.rows == [(10, {"loss": 1.0})]
    log(20, {"loss": 0.5}, {})
    assert ledger.newest is not None
    assert ledger.newest.metrics == {10: {"loss": 1.0}, 20: {"loss": 0.5}}


def test_what_is_not_finite_ends_the_trial_and_is_kept(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    log = ledger.recorder()
    assert log(10, {"loss": math.nan, "accuracy": 0.5}, {})
    assert log.diverged
    assert not log.stopped
    assert math.isnan(ledger.rows[0][1]["loss"])
    assert log(20, {"loss": 1.0}, {})
    assert len(ledger.rows) == 1  # nothing more is taken
    again = Ledger(tmp_path).recorder(ledger.newest)
    assert again.replay()
    assert again.diverged
    allowed = Ledger(tmp_path / "allowed", allow_nan=True)
    assert not allowed.recorder()(10, {"loss": math.inf}, {})


def test_stopped_it_takes_nothing_more(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, stop=20)
    log = ledger.recorder()
    assert [log(step, {"loss": 1.0}, {}) for step in (10, 20, 30)] == [False, True, True]
    assert log.stopped
    assert [step for step, _ in ledger.rows] == [10, 20]


@pytest.mark.parametrize(
    ("step", "metrics", "said"),
    [
        (15, {}, "logged step 15"),
        (0, {}, "logged step 0"),
        (-10, {}, "logged step -10"),
        (110, {}, "logged step 110"),
        (True, {}, "logged the step True"),
        (10.0, {}, "logged the step 10.0"),
        ("10", {}, "logged the step '10'"),
        (10, {"loss": "low"}, "logged loss = 'low'"),
        (10, {"loss": None}, "logged loss = None"),
        (10, {"loss": True}, "logged loss = True"),
        (10, {"loss": np.ones(2)}, "logged loss"),
    ],
)
def test_what_a_trainer_does_wrong(tmp_path: Path, step: Any, metrics: Any, said: str) -> None:
    ledger = Ledger(tmp_path)
    with pytest.raises(UsageError, match=said):
        ledger.recorder()(step, metrics, {})
    assert not ledger.rows
    assert ledger.newest is None


def test_the_target_of_a_slice_is_logged_though_it_is_no_multiple(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    log = ledger.recorder(steps=15)
    log(10, {"loss": float(np.float32(1.0))}, {})
    log(15, {"loss": 2}, {})
    assert ledger.rows == [(10, {"loss": 1.0}), (15, {"loss": 2.0})]
    with pytest.raises(UsageError):
        log(15, {"loss": 2}, {})


def test_files_of_the_trainer(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    own = ledger.trial.folder / "own.bin"
    own.write_bytes(b"x")
    ledger.recorder()(10, {}, {FILES: {"own.bin": checkpoints.file_digest(own)}})
    assert ledger.newest is not None
    assert list(ledger.newest.files) == ["own.bin"]
    assert ledger.newest.values == {}
