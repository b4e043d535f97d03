"""Another `keep` over the same trials: what was stopped goes on, and comes to the same bits."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlv.metadata import versions
from dlv.metadata.trials import Trials as Store
from dlv.repository.handle import Repository
from dlv.training.ledger.ledger import Ledger
from dlv.training.workers import pool
from dlv.versions.version import Version
from tests.dql import trying
from tests.dql.trying import ask, summary

TRAINERS = {
    "own": "config.steps = 20, config.schedule.kind = 'constant'",
    "torch": "config.trainer = 'torch', config.input_data = 'rows.npz', config.batch_size = 8,"
    " config.optimizer = 'adam', config.weight_decay = 0.01",
    "torch, cosine": "config.trainer = 'torch', config.input_data = 'rows.npz',"
    " config.batch_size = 8, config.schedule.kind = 'cosine', config.schedule.warmup = 3",
}
# Queries one after the other; the last is held against itself where nothing was cut before.
KEEPS = {
    "wider": ['top(1, m["loss"], 5)', 'top(3, m["loss"], 5)'],
    "later": ['top(1, m["loss"], 5)', 'top(2, m["loss"], 10)'],
    "no longer": ['top(1, m["loss"], 5)', ""],
    "halving, wider": [
        'asha(m["loss"], eta = 4, first = 5, sync = true)',
        'asha(m["loss"], eta = 2, first = 5, sync = true)',
    ],
    "halving, later": [
        'asha(m["loss"], eta = 2, first = 5, sync = true)',
        'asha(m["loss"], eta = 2, first = 10, sync = true)',
    ],
    "thrice": ['top(1, m["loss"], 5)', 'top(1, m["loss"], 15)', 'top(4, m["loss"], 10)'],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: Any, commit_model: Callable[..., str]) -> Path:
    folder: Path = tmp_path_factory.mktemp("keeps")
    trying.repository(folder, commit_model).close()
    draw = np.random.default_rng(0)
    x = draw.normal(0, 1, (50, 1, 8, 8)).astype("f4")
    np.savez(folder / "rows.npz", x=x, y=(x.mean((1, 2, 3)) > 0).astype(int))
    return folder


@pytest.fixture
def repositories(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[Repository]]:
    """Two equal ones."""
    monkeypatch.setattr(pool, "train", trying.in_process)
    monkeypatch.syspath_prepend(str(made))
    found = []
    for name in ("cut", "whole"):
        shutil.copytree(made, tmp_path / name)
        found.append(Repository.find(tmp_path / name))
    yield found
    for each in found:
        each.close()


def query(settings: str, keep: str) -> str:
    return (
        f'evaluate m from m where m = "net@1" with config = "base.toml", {settings}'
        f" vary config.base_lr in [0.02, 0.05, 0.1, 0.2] {'keep' if keep else ''} {keep}"
        ' into "tuned"'
    )


def weights(repository: Repository) -> dict[str, dict[str, Any]]:
    """Of each version that became of a trial, by the trial's id and its step."""
    found = {}
    for row in versions.of_name(repository.database, "tuned"):
        version = Version(repository, row)
        told = version.manifest.derivation or {}
        arrays = {name: version.tensor(name) for name in trying.tensors()}
        found[f"{told['trial']} {told['step']}"] = arrays
    return found


def spent(repository: Repository) -> tuple[int, int]:
    """Steps that the sweeps were charged with, and those that their trials have come to."""
    with Store(repository.trials_path) as store:
        rows = [store.trial(name) for name in store.trials()]
        reached = sum(row["step"] for row in rows if row is not None)
        runs = Ledger(store).runs()
        assert all(trial.unlike is None for run in runs for trial in run.trials)
        return sum(run.spent_steps for run in runs), reached


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("name", KEEPS)
def test_stopped_trials_go_on(repositories: list[Repository], name: str, trainer: str) -> None:
    if trainer != "own":
        pytest.importorskip("torch")
    cut, whole = repositories
    *before, last = [query(TRAINERS[trainer], keep) for keep in KEEPS[name]]
    for text in before:
        ask(cut, text)
    result, expected = ask(cut, last), ask(whole, last)
    charged, reached = spent(cut)
    assert charged == reached  # no step twice
    if trainer == "own":
        lines = (cut.root / "steps.txt").read_text().splitlines()
        assert len(lines) == len(set(lines)) == reached
    # A trial that an earlier `keep` took further is compared where the rule looks.
    assert [(t.rank, t.id, t.view and t.view.verdict) for t in result.trials] == [
        (t.rank, t.id, t.view and t.view.verdict) for t in expected.trials
    ]
    kept = [t.id for t in expected.trials if t.kept]
    assert kept
    assert [row for row in summary(result) if row[1] in kept] == [
        row for row in summary(expected) if row[1] in kept
    ]
    there, wanted = weights(cut), weights(whole)
    assert set(wanted) <= set(there)
    for trial, arrays in wanted.items():
        for tensor, array in arrays.items():
            assert np.array_equal(there[trial][tensor], array), (trial, tensor)


def test_more_steps_go_on_too(repositories: list[Repository]) -> None:
    cut, whole = repositories
    first = query(TRAINERS["own"], 'top(1, m["loss"], 5)')
    last = query(TRAINERS["own"], 'top(2, m["loss"], 25)').replace("steps = 20", "steps = 40")
    ask(cut, first)
    assert summary(ask(cut, last)) == summary(ask(whole, last))
    lines = (cut.root / "steps.txt").read_text().splitlines()
    assert len(lines) == len(set(lines))


def test_repeated_steps_are_counted(repositories: list[Repository]) -> None:
    """Where the checkpoints were discarded, and the log is held against what comes again."""
    cut, _ = repositories
    first = query(TRAINERS["own"], 'top(1, m["loss"], 5)')
    ask(cut, first, discard_checkpoints=True)
    result = ask(cut, query(TRAINERS["own"], ""))
    lines = (cut.root / "steps.txt").read_text().splitlines()
    with Store(cut.trials_path) as store:
        ledger = Ledger(store)
        assert len(lines) == 4 * 20 + 3 * 5 == sum(run.spent_steps for run in ledger.runs())
        assert [t.unlike for t in ledger.run(result.run).trials] == [None] * 4


def test_repeated_steps_that_differ_are_told(repositories: list[Repository]) -> None:
    cut, _ = repositories
    ask(cut, query(TRAINERS["own"], 'top(1, m["loss"], 5)'), discard_checkpoints=True)
    with Store(cut.trials_path) as store, store.atomic():
        store._do("UPDATE log SET value = value + 1 WHERE step = 5 AND metric = 'zeal'")
    found = ask(cut, query(TRAINERS["own"], ""))
    assert len([text for text in found.warnings if "not reproducible: zeal at step 5" in text]) == 3
