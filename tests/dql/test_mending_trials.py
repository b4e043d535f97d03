"""Folders of trials that are lost or broken: the query that made them makes them again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dlv.errors import DlvError
from dlv.metadata.trials import Trials as Store
from dlv.repository.handle import Repository
from dlv.training.ledger.ledger import Ledger
from dlv.training.trial_files import TrialFiles
from dlv.training.workers import pool
from tests.dql import trying
from tests.dql.trying import ask, steps, summary

TEXT = (
    'evaluate m from m where m = "net@1" with config = "base.toml"'
    ' vary config.base_lr in [0.1, 0.2] keep top(1, m["loss"], 5)'
)


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


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def as_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("x")


def as_folder(path: Path) -> None:
    path.unlink()
    (path / "inside").mkdir(parents=True)


def emptied(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def both_gone(folder: Path) -> None:
    for name in ("trial.json", "start.npz"):
        (folder / name).unlink()


def as_link(path: Path) -> None:
    shutil.rmtree(path)
    path.symlink_to("nowhere")


def all_flipped(folder: Path) -> None:
    for path in (folder / "checkpoint").glob("*.*"):
        flip(path)


SPOILED: dict[str, Callable[[Path], Any]] = {
    "no trial.json": lambda folder: (folder / "trial.json").unlink(),
    "no start.npz": lambda folder: (folder / "start.npz").unlink(),
    "neither": both_gone,
    "trial.json flipped": lambda folder: flip(folder / "trial.json"),
    "start.npz flipped": lambda folder: flip(folder / "start.npz"),
    "trial.json empty": lambda folder: (folder / "trial.json").write_bytes(b""),
    "start.npz cut": lambda folder: (folder / "start.npz").write_bytes(b"PK"),
    "trial.json a folder": lambda folder: as_folder(folder / "trial.json"),
    "start.npz a folder": lambda folder: as_folder(folder / "start.npz"),
    "an empty folder": emptied,
    "no folder": shutil.rmtree,
    "a file instead": as_file,
    "a link to nothing": as_link,
    "checkpoint a file": lambda folder: as_file(folder / "checkpoint"),
    "no checkpoints": lambda folder: shutil.rmtree(folder / "checkpoint"),
    "checkpoints flipped": all_flipped,
}


@pytest.fixture
def undisturbed(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    folder = tmp_path / "other"
    shutil.copytree(made, folder)
    with monkeypatch.context() as patch, Repository.find(folder) as found:
        patch.setattr(pool, "train", trying.in_process)
        patch.syspath_prepend(str(folder))
        return summary(ask(found, TEXT))


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("when", ["before it began", "in its midst", "when it had failed"])
def test_it_is_made_again(
    repository: Repository, undisturbed: Any, monkeypatch: pytest.MonkeyPatch, how: str, when: str
) -> None:
    """And the trial comes to what it would have come to."""
    if when == "before it began" and "checkpoint" in how:
        pytest.skip("saved queries: none yet")
    with monkeypatch.context() as patch:
        patch.setattr(pool, "train", lambda *_, **__: None)
        ask_quietly(repository)
    monkeypatch.setattr(pool, "train", trying.in_process)
    folders = trial_folders(repository)
    assert len(folders) == 2
    if when != "before it began":
        for folder in folders:
            begin(repository, folder.name)
    for folder in folders:
        SPOILED[how](folder)
    if when == "when it had failed":
        with Store(repository.trials_path) as store:
            for folder in folders:
                store.change_trial(folder.name, {"state": "failed", "error": "damaged"})
    # Nobody can tell why one has failed whose folder is sound.
    sound = "checkpoints" in how
    found = ask(repository, TEXT, retry_failed=sound and when == "when it had failed")
    assert summary(found) == undisturbed
    for folder in trial_folders(repository):
        assert TrialFiles(folder).whole()


def ask_quietly(repository: Repository) -> None:
    with suppress(DlvError):  # nothing was trained
        ask(repository, TEXT)


def trial_folders(repository: Repository) -> list[Path]:
    return sorted(p for p in repository.trials_folder.iterdir() if len(p.name) == 64)


def begin(repository: Repository, trial: str) -> None:
    """Something that it has come to: a folder of checkpoints, if only with a broken one."""
    folder = repository.trials_folder / trial / "checkpoint"
    folder.mkdir(exist_ok=True)
    (folder / "1-1.dlvckpt").write_bytes(b"no checkpoint" * 10)


def test_a_lost_checkpoint_is_trained_again(repository: Repository) -> None:
    """Where it is wanted for a version; what was logged stands."""
    first = ask(repository, TEXT)
    kept = next(each for each in first.trials if each.kept)
    before = steps(repository)
    for path in (repository.trials_folder / kept.id / "checkpoint").glob("*"):
        if path.is_file():
            flip(path)
    told: list[str] = []
    again = ask(repository, f'{TEXT} into "tuned"', say=told.append)
    assert any("trained again from step 0" in text for text in told)
    assert [each.committed for each in again.trials if each.kept] == ["tuned@1"]
    assert steps(repository) == before + 20
    with Store(repository.trials_path) as store:
        assert all(trial.unlike is None for trial in Ledger(store).run(again.run).trials)


def test_a_ledger_that_is_gone_and_folders_that_stayed(
    repository: Repository, undisturbed: Any
) -> None:
    ask(repository, TEXT)
    for end in ("", "-wal", "-shm"):
        repository.trials_path.with_name(f"trials.db{end}").unlink(missing_ok=True)
    assert summary(ask(repository, TEXT)) == undisturbed
