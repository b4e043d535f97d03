"""Trials on Ray: the same tables as on one machine, also when a node is lost. Needs the extra."""

from __future__ import annotations

import importlib.util
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dlv.training.workers.ray_pool as ray_pool
from dlv.errors import UsageError
from dlv.metadata.trials import Trials
from dlv.training.ledger.ledger import LEASE, Claim, Ledger
from dlv.training.ledger.results import RunView
from dlv.training.ledger.settling import Budget
from dlv.training.trainers.interface import Readers
from dlv.training.workers.owners import Owner
from tests.training.driven import driven, steps
from tests.training.pooled import Place

ROOT = Path(__file__).resolve().parents[3]
RATES: list[dict[str, Any]] = [{"base_lr": rate} for rate in (0.01, 0.3, 0.03, 0.1)]
TOP = {"rule": "top", "k": 2, "metric": "loss", "direction": "min", "step": 20}

# Ray leaves sockets and files to the interpreter.
pytestmark = pytest.mark.filterwarnings("ignore")
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install 'dlv[ray]'"
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "here")


def train(place: Place, run: str, **how: Any) -> RunView:
    place.seen = []
    with place.store() as store:
        ray_pool.train(
            *(store, place.repository.trials_folder, run),
            reopen=partial(Trials, place.repository.trials_path),
            readers=Readers(),
            progress=place.seen.append,
            **how,
        )
    return place.view(run)


def locally(place: Place, configs: list[dict[str, Any]]) -> tuple[Any, Any]:
    """The table and the curves of the same trials by local workers."""
    run = place.open_run(configs, rules=[TOP])
    place.train(run)
    return place.table(run), place.curves(run)


# The actor, without Ray


def test_the_keeper_answers_without_exceptions(place: Place) -> None:
    run = place.open_run(RATES[:1])
    keeper = ray_pool.Keeper(
        partial(Trials, place.repository.trials_path), place.repository.trials_folder
    )
    with place.store() as store:
        claim = Ledger(store).claim(Owner.here("a"), [run])
        assert isinstance(claim, Claim)
        folder = place.repository.trials_folder / claim.trial
        assert set(keeper.files(claim.trial)) == {"trial.json", "start.npz"}
        assert keeper.keep(claim, "checkpoint/10-1.ckpt", b"bytes")
        assert keeper.keep(claim, "output.txt", b"one ")
        assert keeper.keep(claim, "output.txt", b"two")
        assert (folder / "output.txt").read_bytes() == b"one two"
        assert keeper.files(claim.trial)["checkpoint/10-1.ckpt"] == b"bytes"
        for step in (20, 100):
            assert keeper.keep(claim, f"checkpoint/{step}-1.ckpt", b"more")
        last = {"checkpoint/20-1.ckpt", "checkpoint/100-1.ckpt"}
        assert set(keeper.files(claim.trial)) == {"trial.json", "start.npz", *last}
        assert keeper.silences() == {}
        keeper.begin(claim)
        assert set(keeper.silences()) == {claim.token}
        assert keeper.log(claim, 10, {"loss": 1.0}, 0.1) == "go"
        keeper.stop()
        assert keeper.log(claim, 20, {"loss": 1.0}, 0.1) == "stop"
        assert keeper.finish(claim, "ready", None) == "done"
        assert keeper.silences() == {}
    assert keeper.log(claim, 30, {"loss": 1.0}, 0.1) == "lost"
    assert keeper.finish(claim, "ready", None) == "lost"
    assert not keeper.keep(claim, "checkpoint/30-1.ckpt", b"of a task that lost its trial")
    assert not (folder / "checkpoint" / "30-1.ckpt").exists()


# With Ray


@pytest.fixture
def cluster() -> Iterator[Any]:
    """The node of the driver, without room for tasks, and two others; all on this machine."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        made.nodes = [made.add_node(num_cpus=1), made.add_node(num_cpus=1)]
        yield made
    finally:
        made.shutdown()


@needs_ray
@pytest.mark.slow
def test_one_machine_gives_the_same_table(place: Place, tmp_path: Path) -> None:
    run = place.open_run(RATES, rules=[TOP])
    view = train(place, run, workers=2)
    assert view.state == "over"
    assert (place.table(run), place.curves(run)) == locally(Place(tmp_path / "b"), RATES)
    assert max(seen.workers for seen in place.seen) == 2
    printed = place.repository.trials_folder / view.trials[0].trial / "output.txt"
    assert printed.read_text().split()[:4] == ["at", "10", "at", "20"]


@needs_ray
@pytest.mark.slow
def test_without_a_shared_disk(place: Place, tmp_path: Path) -> None:
    """Checkpoints come through the actor, and go back with it to the next slice."""
    run = place.open_run(RATES, rules=[TOP])
    train(place, run, workers=2, shared=False)
    assert (place.table(run), place.curves(run)) == locally(Place(tmp_path / "b"), RATES)
    for trial in place.view(run).trials:
        folder = place.repository.trials_folder / trial.trial
        assert list((folder / "checkpoint").glob(f"{trial.step}-*.ckpt"))
        assert "at 20" in (folder / "output.txt").read_text()


@needs_ray
@pytest.mark.slow
def test_trials_that_fail_do_not_stop_the_others(place: Place) -> None:
    faults = ["raise", "killed", "killed once", "hang"]
    configs = [{"fault": fault, "at": 15} for fault in faults] + RATES[:1]
    run = place.open_run(configs, budget=Budget(trial_seconds=20.0))
    view = train(place, run, workers=2)
    states = [(t.state, t.step) for t in view.trials]
    assert states == [*[("failed", 10)] * 2, ("done", 40), ("failed", 10), ("done", 40)]
    assert "no log for" in view.trials[3].why
    assert any("was lost" in text for text in place.news("worker"))


@needs_ray
@pytest.mark.slow
def test_one_of_two_nodes_is_lost(place: Place, cluster: Any, tmp_path: Path) -> None:
    configs = [{**each, "pace": 0.05} for each in RATES]
    run = place.open_run(configs, rules=[TOP])
    begun = threading.Event()

    def lose() -> None:
        begun.wait()
        time.sleep(1)
        cluster.remove_node(cluster.nodes[0], allow_graceful=False)

    thread = threading.Thread(target=lose)
    thread.start()
    with place.store() as store:
        ray_pool.train(
            *(store, place.repository.trials_folder, run),
            reopen=partial(Trials, place.repository.trials_path),
            readers=Readers(),
            address=cluster.address,
            progress=lambda seen: begun.set() if seen.steps else None,
        )
    thread.join()
    assert (place.table(run), place.curves(run)) == locally(Place(tmp_path / "b"), configs)
    logs = [place.steps_of(trial.trial) for trial in place.view(run).trials]
    redone = sum(len(each) - len({step for _, step in each}) for each in logs)
    assert redone <= 1


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_whose_driver_ended_goes_on_elsewhere(
    place: Place, tmp_path: Path, number: signal.Signals
) -> None:
    """Interrupted, or killed: its tasks end with it, and their trials are free at once."""
    configs = [{**each, "pace": 0.05} for each in RATES]
    run = place.open_run(configs, rules=[TOP])
    with driven(place, run, 2, "ray") as driver:
        driver.until(lambda line: steps(line) >= 20)
        driver.process.send_signal(number)
        assert driver.end() == (130 if number == signal.SIGINT else -signal.SIGKILL)
    place.open_run(configs, rules=[TOP])
    begun = time.time()
    place.train(run)
    assert time.time() - begun < LEASE
    assert (place.table(run), place.curves(run)) == locally(Place(tmp_path / "b"), configs)


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:port"])
def test_no_cluster_is_said(place: Place, address: str) -> None:
    run = place.open_run(RATES[:1])
    with pytest.raises(UsageError, match="no Ray cluster answers"):
        train(place, run, address=address)
