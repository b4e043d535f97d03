"""What every trainer must do: subclass `TrainerSuite` in the trainer's own test file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import dlv.training.checkpoints as checkpoints
import dlv.training.trainers.contract as contract
from dlv.training.checkpoints import Checkpoint
from dlv.training.trainers.interface import Readers, State
from dlv.training.trial_files import Trial, TrialFiles
from dlv.training.workers.slices import Recorder


class Killed(BaseException):
    """Stands for a signal that nobody can catch."""


@dataclass
class Run:
    """Slices of one trial, each as a worker of its own would run it; rows are the ledger's."""

    folder: Path
    readers: Readers
    log_every: int
    rows: dict[int, dict[str, float]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)  # steps as they were logged by trainers
    token: int = 0
    replaying: bool = False
    stop_at: int | None = None
    dies_at: int | None = None  # once its checkpoint is there, before the ledger knows

    def trial(self) -> Trial:
        trial = TrialFiles(self.folder).load().with_(log_every=self.log_every)
        return replace(trial, token=self.token)

    def to(self, *steps: int) -> Run:
        """Go to each of these steps, one slice after the other."""
        for each in steps:
            self.token += 1
            trial = self.trial()
            begun = checkpoints.newest(trial.checkpoints) or Checkpoint()
            log = Recorder(trial, begun, each, self._row)
            self.replaying = True
            over = log.replay()
            self.replaying = False
            if not over:
                contract.run(trial, each, begun, log, self.readers)
        return self

    def killed(self, steps: int, at: int) -> Run:
        """A slice of which the worker dies at a log."""
        self.dies_at = at
        try:
            self.to(steps)
        except Killed:
            self.dies_at = None
            return self
        raise AssertionError(f"it never logged step {at}")

    def _row(self, step: int, metrics: Mapping[str, float]) -> bool:
        if step == self.dies_at:
            raise Killed
        if step in self.rows:
            assert self.rows[step] == dict(metrics), f"step {step} came out otherwise"
        self.rows[step] = dict(metrics)
        if not self.replaying:
            self.order.append(step)
        return self.stop_at is not None and step >= self.stop_at

    @property
    def newest(self) -> Checkpoint:
        found = checkpoints.newest(self.folder / "checkpoint")
        assert found is not None
        return found

    def bits(self) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
        """The weights as they are now."""
        held = TrialFiles(self.folder).weights(self.newest)
        assert held, "the trainer keeps no weights"
        return {name: (each.dtype, each.shape, bytes(each.raw)) for name, each in held.items()}


class TrainerSuite:
    """`created` writes a trial of the trainer under test into a folder."""

    readers = Readers()
    every = 4  # steps between logs
    between = 6  # a target between two logs
    most = 16  # steps, a multiple of `every` and beyond `between`

    def created(self, folder: Path, **config: Any) -> TrialFiles:
        raise NotImplementedError

    def run(self, folder: Path, **config: Any) -> Run:
        files = self.created(folder, **{"steps": self.most, "log_every": self.every, **config})
        return Run(files.folder, self.readers, self.every)

    def logs(self, *steps: int) -> list[int]:
        """When there must be logs on the way to these targets."""
        found = set(range(self.every, max(steps) + 1, self.every)) | set(steps)
        return sorted(found)

    def test_it_trains_and_logs_when_it_has_to(self, tmp_path: Path) -> None:
        run = self.run(tmp_path).to(self.most)
        assert run.order == self.logs(self.most)
        trial = run.trial()
        moved = [
            name for name, (_, _, raw) in run.bits().items() if raw != trial.weights(name).tobytes()
        ]
        assert moved, "nothing was learnt"
        assert run.newest.step == self.most

    def test_slices_come_to_the_same_as_one_go(self, tmp_path: Path) -> None:
        whole = self.run(tmp_path / "whole").to(self.most)
        cut = self.run(tmp_path / "cut").to(self.between, self.every * 3, self.most)
        assert cut.order == self.logs(self.between, self.every * 3, self.most)
        assert cut.bits() == whole.bits()
        assert {step: cut.rows[step] for step in whole.rows} == whole.rows

    def test_killed_and_resumed_it_comes_to_the_same(self, tmp_path: Path) -> None:
        whole = self.run(tmp_path / "whole").to(self.most)
        killed = self.run(tmp_path / "killed")
        killed.killed(self.most, self.every).killed(self.most, self.every * 3).to(self.most)
        assert killed.bits() == whole.bits()
        assert killed.rows == whole.rows

    def test_a_damaged_checkpoint_costs_one_interval(self, tmp_path: Path) -> None:
        whole = self.run(tmp_path / "whole").to(self.most)
        run = self.run(tmp_path / "run").to(self.every * 3)
        newest = max(
            (run.folder / "checkpoint").glob("*.ckpt"), key=lambda p: int(p.name.split("-")[0])
        )
        data = bytearray(newest.read_bytes())
        data[len(data) // 2] ^= 1
        newest.write_bytes(data)
        run.order.clear()
        run.to(self.most)
        assert run.order[-2:] == [self.every * 3, self.most]
        assert run.bits() == whole.bits()

    def test_it_stops_when_it_is_told(self, tmp_path: Path) -> None:
        run = self.run(tmp_path)
        run.stop_at = self.every
        run.to(self.most)
        assert run.order == [self.every]
        assert run.newest.step == self.every

    def test_what_is_done_is_not_done_again(self, tmp_path: Path) -> None:
        run = self.run(tmp_path).to(self.every * 2)
        before, logged = run.bits(), list(run.order)

        def log(step: int, metrics: Mapping[str, float], state: State | None = None) -> bool:
            raise AssertionError((step, metrics, state))

        for steps in (self.every * 2, self.every):
            contract.run(run.trial(), steps, run.newest, log, self.readers)
        assert (run.bits(), run.order) == (before, logged)

    def test_the_seed_counts(self, tmp_path: Path) -> None:
        one = self.run(tmp_path / "one", seed=1).to(self.every)
        two = self.run(tmp_path / "two", seed=2).to(self.every)
        assert one.bits() != two.bits()
        assert one.bits() == self.run(tmp_path / "again", seed=1).to(self.every).bits()

    def test_its_metrics_are_numbers(self, tmp_path: Path) -> None:
        run = self.run(tmp_path).to(self.every)
        assert run.rows[self.every]
        assert all(np.isfinite(value) for value in run.rows[self.every].values())
