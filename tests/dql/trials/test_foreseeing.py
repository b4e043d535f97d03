"""What a query would train, held against what it then trains: a trainer writes down its steps."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dlv.dql.outcome import Trials
from dlv.metadata.trials import Trials as Store
from dlv.repository.handle import Repository
from dlv.training.ledger.ledger import Claim, Ledger
from dlv.training.trainers.interface import Readers
from dlv.training.workers import pool
from dlv.training.workers.owners import Owner
from dlv.training.workers.slices import Slice
from tests.dql import trying
from tests.dql.trying import ask, summary

ONE = 'evaluate m from m where m = "net@1" with config = "base.toml"'
RATES = f"{ONE} vary config.base_lr in [0.05, 0.1, 0.2, 0.3]"
FIRST = f'{RATES} keep top(1, m["loss"], 5)'


@pytest.fixture(scope="module")
def made(tmp_path_factory: Any, commit_model: Callable[..., str]) -> Path:
    folder: Path = tmp_path_factory.mktemp("trials")
    trying.repository(folder, commit_model).close()
    return folder


@pytest.fixture
def repository(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    folder = tmp_path / "work"
    shutil.copytree(made, folder)
    monkeypatch.setattr(pool, "train", trying.in_process)
    monkeypatch.syspath_prepend(str(folder))
    with Repository.find(folder) as found:
        yield found


def trained(repository: Repository) -> dict[str, list[int]]:
    """The steps of each trial in the order in which its trainer did them."""
    steps: dict[str, list[int]] = defaultdict(list)
    path = repository.root / "steps.txt"
    for line in path.read_text().splitlines() if path.exists() else ():
        trial, step = line.split()
        steps[trial].append(int(step))
    return steps


def check_plan(repository: Repository, text: str, **asked: Any) -> tuple[Trials, Trials]:
    """The plan of a query and its result; the trainer did what the plan says, and no more."""
    planned = ask(repository, text, dry_run=True, **asked)
    plan = planned.plan
    assert plan is not None
    before = {trial: len(steps) for trial, steps in trained(repository).items()}
    result = ask(repository, text, **asked)
    steps = {t: s[before.get(t, 0) :] for t, s in trained(repository).items()}
    steps = {trial: done for trial, done in steps.items() if done}
    begins = {t.id: t.begin for t in planned.trials if t.begin is not None}
    waiting = {t.id for t in planned.trials if t.view and t.view.condition == "waiting"}
    suggested = {t.id for t in result.trials} - {t.id for t in planned.trials}
    assert set(begins) - waiting <= set(steps) - suggested <= set(begins)
    for trial, done in steps.items():
        assert done == list(range(begins.get(trial, 0) + 1, done[-1] + 1))
    to_train = len(set(begins) - waiting) + len(suggested)
    assert (plan.waiting, plan.to_train) == (len(waiting), to_train)
    assert plan.finished == len(planned.trials) - len(begins)
    assert sum(map(len, steps.values())) <= plan.steps
    if plan.finished == len(planned.trials):
        assert summary(planned) == summary(result)
    again = ask(repository, text, dry_run=True, **asked)
    assert again.plan is not None
    assert (again.plan.finished, again.plan.steps) == (len(result.trials), 0)
    assert summary(again) == summary(result)
    assert [t.committed for t in again.trials] == [t.committed for t in result.trials]
    assert again.state == result.state
    return planned, result


NEXT = {
    "the same": FIRST,
    "wider": f'{RATES} keep top(3, m["loss"], 5)',
    "later": f'{RATES} keep top(1, m["loss"], 10)',
    "earlier": f'{RATES} keep top(1, m["loss"], 1)',
    "without rules": RATES,
    "more rates": FIRST.replace("[0.05, ", "[0.05, 0.15, 0.4, "),
    "other rates": FIRST.replace("[0.05, 0.1, 0.2, 0.3]", "[0.1, 0.25]"),
    "longer": FIRST.replace('"base.toml"', '"base.toml", config.steps = 30'),
    "rungs": f'{RATES} keep asha(m["loss"], eta = 2, first = 5, sync = true)',
    "rungs as they come": f'{RATES} keep asha(m["loss"], eta = 2, first = 5)',
    "patience": f'{RATES} keep patience(m["loss"], 1)',
    "median": f'{RATES} keep median(m["loss"], warmup = 1)',
    "threshold": f'{RATES} keep threshold(m["accuracy"] > 0.9, 10)',
    "a budget": f"{RATES} budget(trials = 2)",
    "into": f'{FIRST} into "tuned"',
    "suggested": f"{ONE} vary config.base_lr in uniform(0.05, 0.3) using tpe(4, batch = 2)"
    ' keep top(2, m["loss"], 5)',
}


@pytest.mark.parametrize("name", NEXT)
def test_a_plan_is_what_is_trained_then(repository: Repository, name: str) -> None:
    planned, _ = check_plan(repository, FIRST)
    assert planned.state is None
    check_plan(repository, NEXT[name])
    check_plan(repository, f'{NEXT[name]} into "other"' if "into" not in NEXT[name] else FIRST)


@pytest.mark.parametrize("claims", [1, 3, 5])
@pytest.mark.parametrize("name", ["the same", "wider", "rungs", "suggested"])
def test_a_plan_of_an_interrupted_sweep(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, name: str, claims: int
) -> None:
    def interrupted(store: Store, run: str, **_: Any) -> None:
        ledger = Ledger(store)
        for _place in range(claims):
            claim = ledger.claim(Owner.here("test"), [run])
            if isinstance(claim, Claim):
                folder = repository.trials_folder / claim.trial
                Slice(claim, ledger, Readers(), lambda: False).run(folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(pool, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ask(repository, NEXT[name])
    monkeypatch.setattr(pool, "train", trying.in_process)
    planned, _ = check_plan(repository, NEXT[name])
    assert planned.state == "interrupted"


@pytest.mark.parametrize("how", ["discarded", "deleted folder", "into"])
def test_a_plan_where_checkpoints_are_gone(repository: Repository, how: str) -> None:
    """Trials whose rules are decided by their logs are not trained again, others from the start."""
    first = ask(repository, FIRST, discard_checkpoints=how == "discarded")
    text = NEXT["wider"]
    if how == "deleted folder":
        for trial in first.trials:
            shutil.rmtree(repository.trials_folder / trial.id)
    if how == "into":
        text = f'{FIRST} into "tuned"'
        shutil.rmtree(repository.trials_folder / first.trials[0].id / "checkpoint")
    planned, result = check_plan(repository, text)
    begins = [trial.begin for trial in planned.trials]
    assert begins.count(0) == (1 if how == "into" else 2)
    with Store(repository.trials_path) as store:
        run = Ledger(store).run(result.run)
        assert [trial.unlike for trial in run.trials] == [None] * 4
        again = sum(map(len, trained(repository).values()))
        assert sum(view.spent_steps for view in Ledger(store).runs()) == again


def test_a_plan_of_failed_trials(repository: Repository) -> None:
    text = f'{ONE} vary config.fault in ["none", "raise"]'
    check_plan(repository, text)
    planned = ask(repository, text, dry_run=True, retry_failed=True)
    assert [(trial.begin, trial.steps) for trial in planned.trials] == [(None, 20), (5, 20)]


def test_a_plan_begins_anew_with_fresh(repository: Repository) -> None:
    ask(repository, FIRST)
    planned = ask(repository, FIRST, dry_run=True, fresh=True)
    assert [trial.begin for trial in planned.trials] == [0] * 4
    assert len(ask(repository, FIRST).trials) == 4


def test_a_plan_writes_nothing(repository: Repository) -> None:
    ask(repository, FIRST)

    def files() -> dict[str, tuple[int, int]]:
        paths = (path for path in repository.path.rglob("*") if "trials.db" not in path.name)
        return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in paths}

    before, ledger = files(), dump(repository)
    ask(repository, NEXT["wider"], dry_run=True, retry_failed=True, fresh=True)
    assert files() == before
    assert dump(repository) == ledger


def dump(repository: Repository) -> list[Any]:
    with Store(repository.trials_path) as store:
        return [store.rows(f"SELECT * FROM {t}") for t in ("token", "run", "trial", "mark", "log")]


def test_explained_after_a_sweep(repository: Repository) -> None:
    import dlv.dql.execute as execute
    from dlv.dql.outcome import Explained, QueryOptions

    ask(repository, FIRST)
    options = QueryOptions(directory=repository.root)
    (plan,) = execute.run(repository, f"explain {NEXT['wider']}", options)
    assert isinstance(plan, Explained)
    assert plan.lines[-1] == "  2 finished before, <= 30 steps to train"
    assert plan.document["plan"] == {"finished": 2, "to_train": 2, "waiting": 0, "steps": 30}
