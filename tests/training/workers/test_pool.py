"""Local workers: all trials trained, whatever becomes of trials, workers and drivers."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import dlv.training.workers.pool as pool
from dlv.errors import DlvError, StorageError
from dlv.training.ledger.ledger import ATTEMPTS, Ledger
from dlv.training.ledger.progress import Progress
from dlv.training.ledger.settling import Budget
from dlv.training.workers.owners import start_of
from tests.training.driven import driven, gone, steps
from tests.training.pooled import Place

RATES: list[dict[str, Any]] = [{"base_lr": rate} for rate in (0.01, 0.3, 0.03, 0.1, 0.2, 0.02)]
TOP = {"rule": "top", "k": 2, "metric": "loss", "direction": "min", "step": 20}
PATIENCE = {"rule": "patience", "metric": "loss", "n": 2, "min_delta": 0.0, "direction": "min"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "here")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """Table and curves of a run by one worker."""
    place = Place(tmp_path_factory.mktemp("alone") / "here")
    run = place.open_run(RATES, rules=[TOP, PATIENCE])
    place.train(run, workers=1)
    return numbered(place, run)


def numbered(place: Place, run: str) -> tuple[Any, Any]:
    """Table and curves by the numbers of trials: how long they take is part of their ids."""
    ordinals = {trial.trial: trial.ordinal for trial in place.view(run).trials}
    table = [(row[0], ordinals[row[1]], *row[2:]) for row in place.table(run)]
    return table, {ordinals[t]: curve for t, curve in place.curves(run).items()}


@pytest.mark.parametrize("workers", [2, 4])
def test_the_number_of_workers_changes_nothing(
    place: Place, undisturbed: tuple[Any, Any], workers: int
) -> None:
    run = place.open_run(RATES, rules=[TOP, PATIENCE])
    place.train(run, workers=workers)
    assert numbered(place, run) == undisturbed
    table = undisturbed[0]
    assert [row[4] for row in table] == ["kept", "kept", *["stopped"] * 4]
    assert [row[3] for row in table] == [40, 40, 20, 20, 20, 20]


def test_what_is_done_is_not_done_again(place: Place) -> None:
    run = place.open_run(RATES[:2])
    place.train(run)
    place.open_run(RATES[:2])
    before = place.curves(run)
    with place.store() as store:  # a worker would be an error
        pool.train(store, run, progress=lambda _: None, command=["/nowhere"])
    assert place.curves(run) == before
    assert place.view(run).state == "over"


def test_more_steps_go_on_where_the_last_ones_ended(place: Place) -> None:
    run = place.open_run([{"base_lr": 0.1, "schedule": {"kind": "constant"}}])
    place.train(run, workers=1)
    (done,) = place.view(run).trials
    longer = place.open_run(
        [{"base_lr": 0.1, "schedule": {"kind": "constant"}, "steps": 60}], run="f" * 64, steps=60
    )
    view = place.train(longer, workers=1)
    assert [(t.trial, t.step) for t in view.trials] == [(done.trial, 60)]
    assert [step for _, step in place.steps_of(done.trial)] == [10, 20, 30, 40, 50, 60]


def test_what_trials_print_is_kept(place: Place) -> None:
    run = place.open_run(RATES[:2])
    view = place.train(run)
    for trial in view.trials:
        text = (place.repository.trials_folder / trial.trial / "output.txt").read_text()
        assert text.split() == ["at", "10", "at", "20", "at", "30", "at", "40"]


def test_trials_that_fail_do_not_stop_the_others(place: Place) -> None:
    faults = ["raise", "exit", "return", "memory", "nan", "killed once"]
    run = place.open_run([{"fault": fault, "at": 15} for fault in faults] + RATES[:1])
    view = place.train(run)
    states = {t.varied.get("fault", ""): (t.state, t.step) for t in view.trials}
    wanted = dict.fromkeys(["raise", "exit", "return", "memory"], ("failed", 10))
    wanted |= {"nan": ("diverged", 20), "killed once": ("done", 40), "": ("done", 40)}
    assert (view.state, states) == ("over", wanted)
    said = {t.varied.get("fault"): str(t.error) for t in view.trials}
    assert said["raise"].startswith("Traceback")
    assert said["raise"].endswith("ValueError: the moon is full")
    assert "bowl.py" in said["raise"]
    assert "slices.py" not in said["raise"]
    assert said["exit"].endswith("SystemExit: 3")
    assert said["memory"].endswith("out of memory")
    assert len(place.news("worker")) == 1


def test_a_trainer_that_returns_too_early_has_failed(place: Place) -> None:
    (place.folder / "bowl.py").write_text("def train(net, config, steps, ckpt, log): pass")
    run = place.open_run(RATES[:1])
    (trial,) = place.train(run, workers=1).trials
    assert trial.state == "failed"
    assert "returned at step 0" in trial.why


def test_a_trial_that_says_nothing_is_given_up(place: Place) -> None:
    configs = [{"fault": "hang", "at": 15}, *RATES[:2]]
    run = place.open_run(configs, budget=Budget(trial_seconds=6.0))
    view = place.train(run, workers=1)
    assert [(t.state, t.step) for t in view.trials] == [("failed", 10), ("done", 40), ("done", 40)]
    assert re.fullmatch(r"no log for \d+ s; trial_seconds is 6", view.trials[0].why)
    assert len(place.news("worker")) == 1


def test_the_last_trial_that_says_nothing_ends_the_run(place: Place) -> None:
    """Its worker ends with it, and there is no other that could ask what is left."""
    run = place.open_run([{"fault": "hang", "at": 5}], budget=Budget(trial_seconds=1.0))
    view = place.train(run, workers=1)
    assert (view.state, [trial.state for trial in view.trials]) == ("over", ["failed"])


def test_a_worker_that_cannot_begin_is_said(place: Place) -> None:
    run = place.open_run(RATES[:1])
    script = "import sys; sys.exit('error: no such thing')"
    with place.store() as store, pytest.raises(DlvError) as caught:
        pool.train(
            store, run, workers=1, progress=lambda _: None, command=[sys.executable, "-c", script]
        )
    assert (caught.value.message, caught.value.why) == ("a worker cannot begin", "no such thing")
    with place.store() as store, pytest.raises(DlvError, match="cannot be started"):
        pool.train(store, run, workers=1, progress=lambda _: None, command=["/nowhere"])


def test_a_full_disk_is_no_fault_of_trials(place: Place) -> None:
    """A file is in the way of the checkpoints: as good as no room for them."""
    run = place.open_run(RATES[:3])
    trials = place.view(run).trials
    folder = place.repository.trials_folder / trials[1].trial
    (folder / "checkpoint").write_text("")
    with pytest.raises(StorageError) as caught:
        place.train(run, workers=1)
    assert caught.value.message == "the trials cannot continue"
    assert str(folder / "checkpoint") in str(caught.value.why)
    states = [(t.state, t.step, t.attempts) for t in place.view(run).trials]
    assert states == [("done", 40, 0), ("ready", 0, 0), ("ready", 0, 0)]
    (folder / "checkpoint").unlink()
    assert [t.state for t in place.train(run, workers=1).trials] == ["done"] * 3


def test_the_number_of_workers_follows_the_threads(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "physical", lambda _: 8)
    for threads, workers in ((1, 8), (3, 2), (16, 1)):
        run = place.open_run([{"threads": threads}, {"threads": 1}], run=f"{threads:x}" * 64)
        assert pool._room(place.view(run)) == workers


def test_a_trial_that_kills_its_workers_does_not_stop_the_others(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "FAULTS", 1)
    run = place.open_run([{"fault": "killed", "at": 1}, RATES[0]])
    view = place.train(run, workers=1)
    assert [t.state for t in view.trials] == ["failed", "done"]
    assert view.trials[0].why == "killed 3 times at step 0: out of memory?"
    assert len(place.news("worker")) == 3
    assert all("was killed by SIGKILL" in text for text in place.news("worker"))


def test_one_worker_that_cannot_begin_is_done_without(place: Place) -> None:
    """As where there is no memory left for it."""
    run = place.open_run(waiting(place)[:2])
    command = pool.worker_command(place.folder, run)
    begun = str(place.folder / "begun")
    script = f"""
        import os, sys, time
        if sys.argv[1] == "w1":
            while not os.path.exists({begun!r}):
                time.sleep(0.01)
            sys.exit("MemoryError")
        os.execv(sys.executable, {command!r} + sys.argv[1:])
    """
    told: list[str] = []

    def note(progress: Progress) -> None:
        told.extend(news.text for news in progress.news if news.kind == "worker")
        if progress.steps:
            Path(begun).touch()
        if told:
            go_on(place)

    with place.store() as store:
        pool.train(
            *(store, run),
            workers=2,
            progress=note,
            command=[sys.executable, "-c", textwrap.dedent(script)],
            environ=pool.worker_environment(os.environ),
        )
    assert [t.state for t in place.view(run).trials] == ["done"] * 2
    assert told == ["worker w1 cannot begin: MemoryError"]


def test_workers_that_end_and_end_are_not_replaced_for_ever(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "FAULTS", 2)
    run = place.open_run(RATES[:1])
    script = "import sys; print('ready', flush=True)"
    with place.store() as store, pytest.raises(DlvError, match="2 workers ended one after"):
        pool.train(
            store, run, workers=1, progress=lambda _: None, command=[sys.executable, "-c", script]
        )


def test_a_run_that_is_stopped_ends_at_the_next_log(place: Place) -> None:
    run = place.open_run([{**each, "steps": 100_000, "pace": 0.001} for each in RATES[:3]])

    def stop(progress: Progress) -> None:
        if progress.steps:
            with place.store() as store:
                Ledger(store).stop(run)

    with place.store() as store:
        pool.train(
            *(store, run),
            workers=2,
            progress=stop,
            command=pool.worker_command(place.folder, run),
            environ=pool.worker_environment(os.environ),
        )
    view = place.view(run)
    assert (view.state, view.why) == ("stopped", "stopped by the user")
    assert 0 < sum(trial.step for trial in view.trials) < 10_000


def test_a_growing_run_gets_more_trials(place: Place) -> None:
    """With the same workers, which wait meanwhile."""
    left = [RATES[:4], RATES[:6]]
    run = place.open_run(RATES[:2], growing=True)

    def more() -> None:
        if left:
            place.open_run(left.pop(0), growing=True)
        else:
            with place.store() as store:
                Ledger(store).add_trials(run, [], last=True)

    view = place.train(run, more=more)
    assert (view.state, [t.state for t in view.trials]) == ("over", ["done"] * 6)
    assert max(seen.workers for seen in place.seen) <= 2


def test_progress_tells_what_happened(place: Place) -> None:
    run = place.open_run([*RATES, {"fault": "raise", "at": 5}], rules=[TOP])
    place.train(run)
    first, last = place.seen[0], place.seen[-1]
    assert (first.steps, first.trials, first.over, first.groups["ready"]) == (0, 7, False, 7)
    assert (last.steps, last.most_steps, last.over) == (160, 160, True)
    assert {k: v for k, v in last.groups.items() if v} == {"done": 2, "stopped": 4, "failed": 1}
    assert [course.value for course in last.best] == sorted(course.value for course in last.best)
    assert len(last.best) == 2
    assert len(last.best[0].values) == 4
    news = Counter(text.split()[1] for text in place.news("trial"))
    assert news == {"done": 2, "stopped": 4, "failed": 1}
    assert any("not in the top 2: loss" in text for text in place.news("trial"))


# Killed and interrupted


def owners(place: Place, run: str) -> list[int]:
    return [t.owner["pid"] for t in place.view(run).trials if t.owner is not None]


def redone(place: Place, run: str) -> int:
    """Intervals that were trained more than once."""
    logs = [place.steps_of(trial.trial) for trial in place.view(run).trials]
    return sum(len(each) - len({step for _, step in each}) for each in logs)


PACED = [{**each, "pace": 0.01} for each in RATES]


def waiting(place: Place) -> list[dict[str, Any]]:
    """Each stops in its second interval until `go_on`."""
    until = str(place.folder / "go")
    return [{**each, "fault": "wait", "at": 15, "until": until} for each in RATES]


def go_on(place: Place) -> None:
    (place.folder / "go").touch()


def test_an_interrupted_run_goes_on(place: Place, undisturbed: tuple[Any, Any]) -> None:
    run = place.open_run(waiting(place), rules=[TOP, PATIENCE])
    with driven(place, run) as driver:
        driver.until(lambda line: steps(line) == 20)  # of two trials
        workers = owners(place, run)
        driver.process.send_signal(signal.SIGINT)
        driver.until(lambda line: line.startswith("note"))
        go_on(place)
        assert driver.end() == 130
        assert "resume, run the same command;" in driver.said[-1]
    assert len(workers) == 2
    assert gone(workers)
    assert sorted(trial.step for trial in place.view(run).trials) == [0, 0, 0, 0, 20, 20]
    place.open_run(waiting(place), rules=[TOP, PATIENCE])
    place.train(run)
    assert numbered(place, run) == undisturbed
    assert redone(place, run) == 0


def test_interrupted_twice_ends_at_once(place: Place) -> None:
    run = place.open_run([{"pace": 0.3}, {"pace": 0.4}], log_every=1_000_000, steps=1000)
    with driven(place, run) as driver:
        driver.until(lambda _: len(owners(place, run)) == 2)
        workers = owners(place, run)
        driver.process.send_signal(signal.SIGINT)
        driver.until(lambda line: line.startswith("note"))
        driver.process.send_signal(signal.SIGINT)
        assert driver.end() == 130
    assert gone(workers)
    # That they were killed does not count as a fault of the trials.
    assert [(t.state, t.attempts) for t in place.view(run).trials] == [("ready", 0)] * 2


@pytest.mark.parametrize("all_of_them", [False, True])
def test_the_driver_is_killed(
    place: Place, undisturbed: tuple[Any, Any], all_of_them: bool
) -> None:
    """Its workers end at their next log; or are killed, too."""
    run = place.open_run(waiting(place), rules=[TOP, PATIENCE])
    with driven(place, run) as driver:
        driver.until(lambda line: steps(line) == 20)
        workers = owners(place, run)
        driver.process.kill()
        driver.process.wait()
        for worker in workers if all_of_them else ():
            os.kill(worker, signal.SIGKILL)
        assert not all_of_them or gone(workers)
        go_on(place)
        assert gone(workers)
    came = [10, 10] if all_of_them else [20, 20]
    assert sorted(trial.step for trial in place.view(run).trials) == [0, 0, 0, 0, *came]
    place.open_run(waiting(place), rules=[TOP, PATIENCE])
    place.train(run)
    assert numbered(place, run) == undisturbed
    assert redone(place, run) == 0


def test_two_equal_queries_share_the_work(place: Place, undisturbed: tuple[Any, Any]) -> None:
    run = place.open_run(PACED, rules=[TOP, PATIENCE])
    with driven(place, run, 1) as one, driven(place, run, 1) as other:
        assert [one.end(), other.end()] == [0, 0]
        assert [one.said[-1], other.said[-1]] == ["over", "over"]
    assert numbered(place, run) == undisturbed
    assert redone(place, run) == 0


def killable(place: Place, run: str) -> list[int]:
    """Workers whose trial has not been killed so often yet that it is thought to be at fault."""
    view = place.view(run)
    found = [t.owner["pid"] for t in view.trials if t.owner is not None and t.attempts < ATTEMPTS]
    return [pid for pid in found if start_of(pid)]


def killing(place: Place, run: str, kills: int, seed: int) -> int:
    """Train while workers are killed at random moments; how many were."""
    rng, done = random.Random(seed), 0
    over = threading.Event()

    def kill() -> None:
        nonlocal done
        while done < kills and not over.wait(rng.uniform(0.0, 0.3)):
            found = killable(place, run)
            if found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(found), signal.SIGKILL)
                    done += 1

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        place.train(run)
    finally:
        over.set()
        thread.join()
    return done


@pytest.mark.crash
def test_workers_killed_at_random(place: Place, undisturbed: tuple[Any, Any]) -> None:
    run = place.open_run(PACED, rules=[TOP, PATIENCE])
    done = killing(place, run, 3, seed=1)
    assert numbered(place, run) == undisturbed
    assert redone(place, run) <= done


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("seed", range(10))
def test_workers_killed_at_a_hundred_moments(
    place: Place, undisturbed: tuple[Any, Any], seed: int
) -> None:
    """Ten kills in each of ten runs."""
    run = place.open_run(PACED, rules=[TOP, PATIENCE])
    done = killing(place, run, 10, seed)
    assert numbered(place, run) == undisturbed
    assert redone(place, run) <= done
