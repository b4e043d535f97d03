"""gc and the folders of trials: those that no run needs go, after their time."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dlv.recovery.rebuild as rebuild
import dlv.training.trial_files as trial_files
import dlv.upkeep.check as check
import dlv.upkeep.collect as collect
from dlv.errors import StorageError
from dlv.repository.handle import Repository
from dlv.training.ledger.ledger import Claim, Ledger, NewTrial
from dlv.training.ledger.settling import Budget
from dlv.training.workers.owners import Owner
from dlv.upkeep.collect import unneeded_trials

NAMES = [f"{n}" * 64 for n in range(3)]
RULE = {"rule": "top", "k": 1, "metric": "loss", "direction": "min", "step": 2}
NOW = datetime.timedelta(0)


class Silent:
    def advance(self, count: int) -> None: ...


@contextlib.contextmanager
def silent(what: str, total: int) -> Iterator[Silent]:
    yield Silent()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made, _ = Repository.init(tmp_path)
    for name in NAMES:
        plant(made, name)
    return made


def plant(repository: Repository, name: str, hours: float = 2) -> Path:
    """A folder that was written so long ago."""
    folder = repository.trials_folder / name
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "checkpoint" / "2-1.npz").write_bytes(bytes(1000))
    touched = time.time() - hours * 3600
    for path in (folder / "checkpoint" / "2-1.npz", folder / "checkpoint", folder):
        os.utime(path, (touched, touched))
    return folder


def aged(*paths: Path) -> None:
    for path in paths:
        os.utime(path, (0, 0))


def open_run(ledger: Ledger, run: str = "run", **more: Any) -> None:
    config = json.dumps({"steps": 4, "trainer": "torch"})
    made = [NewTrial(name, n, "net", config, 0, name[:3], {}) for n, name in enumerate(NAMES)]
    ledger.open_run(run, "q", {}, [RULE], Budget(), made, steps=4, **more)


def train(ledger: Ledger, most: int = 100) -> None:
    for _ in range(most):
        claim = ledger.claim(Owner.here("w"))
        if not isinstance(claim, Claim):
            return
        for step in range(claim.step + 1, claim.target + 1):
            ledger.log(claim, step, {"loss": float(claim.trial[0])}, 0.1)
        ledger.finish(claim, "ready")


def gc(repository: Repository, grace: datetime.timedelta = NOW) -> list[str]:
    """Ids of what went; the plan said the same."""
    request = collect.Request(grace)
    planned = collect.plan(repository, request)
    done = collect.collect(repository, request, progress=silent)
    assert planned.trials == done.trials
    assert planned.freed == done.freed
    assert bool(done.trials) == planned.anything
    for each in done.trials:
        assert not each.path.exists()
        assert each.bytes >= 1000
    assert list(repository.tmp.iterdir()) == []
    return [each.path.name for each in done.trials]


def left(repository: Repository) -> list[str]:
    return sorted(path.name for path in repository.trials_folder.iterdir())


def test_what_a_run_needs_stays(repository: Repository) -> None:
    with trial_files.open_store(repository) as store:
        ledger = Ledger(store)
        open_run(ledger)
        assert gc(repository) == []
        train(ledger, 3)  # all wait at the rule
        assert gc(repository) == []
        train(ledger)
        assert ledger.run("run").state == "over"
        assert gc(repository) == NAMES[1:]  # they were stopped; the winner stays
        assert left(repository) == NAMES[:1]
        assert ledger.curves(NAMES[1])["loss"] == [(1, 1.0), (2, 1.0)]
        ledger.forget("run")
        assert gc(repository) == NAMES[:1]


def test_what_was_stopped_by_hand_can_go_on(repository: Repository) -> None:
    with trial_files.open_store(repository) as store:
        ledger = Ledger(store)
        open_run(ledger)
        train(ledger, 3)
        ledger.stop("run")
        assert gc(repository) == []


def test_another_run_needs_it(repository: Repository) -> None:
    with trial_files.open_store(repository) as store:
        ledger = Ledger(store)
        open_run(ledger)
        train(ledger)
        open_run(ledger, "other")
        assert gc(repository) == []


def test_the_grace(repository: Repository) -> None:
    assert gc(repository, datetime.timedelta(hours=3)) == []
    fresh = repository.trials_folder / NAMES[2] / "checkpoint" / "4-2.npz"
    fresh.write_bytes(bytes(10))
    assert gc(repository, datetime.timedelta(hours=1)) == NAMES[:2]
    plant(repository, NAMES[0], hours=0.5)
    assert gc(repository) == []  # a query may be about to enter it into the ledger


def test_data_goes_with_the_last_trial_that_reads_it(repository: Repository) -> None:
    data = plant(repository, "data").rename(repository.trials_folder / "data")
    shutil.rmtree(data / "checkpoint")
    for place, name in enumerate(NAMES):
        (data / f"{place}.npz").write_bytes(bytes(2000))
        record = {"paths": {"net@1:rows.npz": str(data / f"{place}.npz")}}
        path = repository.trials_folder / name / "trial.json"
        path.write_text(json.dumps({"record": record}))
        aged(data / f"{place}.npz", path, path.parent)
    with trial_files.open_store(repository) as store:
        ledger = Ledger(store)
        open_run(ledger)
        assert gc(repository) == []
        train(ledger)
        assert gc(repository) == [*NAMES[1:], "1.npz", "2.npz"]
        ledger.forget("run")
    path = repository.trials_folder / NAMES[0] / "trial.json"
    path.write_text("{no json")  # nobody knows what it reads, till it is gone itself
    assert gc(repository) == []
    aged(path, path.parent)
    assert gc(repository) == [NAMES[0], "0.npz"]


def test_what_a_crash_left_behind_goes_while_others_train(repository: Repository) -> None:
    plant(repository, "tmp-0123")
    plant(repository, "tmp-4567", hours=0.5)  # somebody may be at it
    with trial_files.open_store(repository) as store:
        open_run(Ledger(store))
        assert gc(repository) == ["tmp-0123"]
    assert left(repository) == [*NAMES, "tmp-4567"]


def test_a_link_is_not_followed(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    (repository.trials_folder / ("f" * 64)).symlink_to(tmp_path / "mine")
    os.utime(tmp_path / "mine", (0, 0))
    assert gc(repository) == NAMES
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_a_ledger_that_cannot_be_read_stops_nothing_else(repository: Repository) -> None:
    repository.trials_path.write_bytes(b"no database at all, but long enough to be looked at" * 99)
    request = collect.Request(NOW)
    for found in (
        collect.plan(repository, request),
        collect.collect(repository, request, progress=silent),
    ):
        assert found.trials == []
        assert "the ledger of trials" in (found.trials_stay or "")
    assert left(repository) == NAMES
    repository.trials_path.unlink()
    with trial_files.open_store(repository) as store:
        store._do("PRAGMA user_version = 99")
    _, why = unneeded_trials(repository, NOW)
    assert why is not None
    assert "was written by a newer dlv" in why


def test_a_repository_without_trials(tmp_path: Path) -> None:
    repository, _ = Repository.init(tmp_path)
    assert gc(repository) == []
    assert not repository.trials_path.exists()


def test_fsck_and_a_rebuild_leave_the_ledger_alone(repository: Repository) -> None:
    with trial_files.open_store(repository) as store:
        ledger = Ledger(store)
        open_run(ledger)
        train(ledger, 2)
        before = [view.counts for view in ledger.runs()]
        identity = os.stat(repository.trials_path).st_ino
        assert check.check(repository).faults == []
        rebuild.rebuild(repository)
        assert os.stat(repository.trials_path).st_ino == identity
        assert [view.counts for view in ledger.runs()] == before
        train(ledger)
        assert ledger.run("run").state == "over"
    assert left(repository) == NAMES


def test_not_on_a_network_disk(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_files, "network_disk", bool)
    with pytest.raises(StorageError, match="is on a network file system") as caught:
        trial_files.open_store(repository)
    assert caught.value.exit_code == 8
    assert not repository.trials_path.exists()
    found, why = unneeded_trials(repository, NOW)
    assert [each.path.name for each in found] == NAMES  # of no run
    assert why is None
    repository.trials_path.touch()
    found, why = unneeded_trials(repository, NOW)
    assert found == []
    assert "is on a network file system" in (why or "")
