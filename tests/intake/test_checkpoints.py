"""`import checkpoints`: files that lie somewhere become one version."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import dlv.intake.checkpoints as intake
import dlv.metadata.facts as facts
import dlv.versions.add as adding
import dlv.versions.checkout as checkouts
from dlv.adapters.torch import reader as torch_files
from dlv.errors import Conflict, NotFound, UnsafeInput, UsageError
from dlv.intake.checkpoints import Imported, Request
from dlv.metadata import versions
from dlv.repository.handle import Repository

FIXTURES = Path(__file__).parents[1] / "fixtures" / "torch"


def arrays(seed: int) -> dict[str, Any]:
    return {"w": np.random.default_rng(seed).normal(size=(5, 4)).astype("f4")}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Beside it, not in it: runs/ with three checkpoints and a text."""
    runs = tmp_path / "runs"
    runs.mkdir()
    for step in (30, 4, 100):
        save_file(arrays(step), runs / f"ckpt-{step}.safetensors")
    (runs / "notes.txt").write_text("notes")
    return Repository.init(tmp_path / "project")[0]


def take(repository: Repository, *files: str, **given: Any) -> Imported:
    given = {"name": "old", **given}
    return intake.import_checkpoints(
        repository, Request(files, author="Ada", here=repository.root.parent, **given)
    )


def test_a_folder(repository: Repository) -> None:
    made = take(repository, "runs")
    assert (made.label, made.new, made.steps) == ("old@1", True, [4, 30, 100])
    assert [path for path, _ in made.skipped] == ["runs/notes.txt"]
    manifest = repository.manifest(made.id)
    assert manifest.own == 2
    assert [c.path for s in manifest.snapshots for c in s.containers] == [
        "runs/ckpt-4.safetensors",
        "runs/ckpt-30.safetensors",
        "runs/ckpt-100.safetensors",
    ]
    assert manifest.files == ()
    assert manifest.message == "import of 3 checkpoints"


def test_settings_in_the_files_are_kept(repository: Repository) -> None:
    shutil.copy(FIXTURES / "checkpoint.pt", repository.root.parent / "runs" / "ckpt-200.pt")
    made = take(repository, "runs/ckpt-200.pt")
    opened = torch_files.open(str(FIXTURES / "checkpoint.pt"))
    opened.close()
    assert opened.hyperparameters
    assert repository.manifest(made.id).hyperparameters == opened.hyperparameters


def test_the_bits_come_back(repository: Repository) -> None:
    take(repository, "runs/ckpt-4.safetensors", "runs/ckpt-30.safetensors", message="two")
    asked = checkouts.Request(
        "old", "Ada", repository.root, lambda kind, path: adding.open_weights(path, kind)
    )
    checkouts.checkout(repository, asked)
    for step in (4, 30):
        name = f"ckpt-{step}.safetensors"
        found = next(repository.root.rglob(name))
        added = repository.root.parent / "runs" / name
        assert found.read_bytes() == added.read_bytes()
        assert load_file(found)["w"].tobytes() == arrays(step)["w"].tobytes()


def test_again_is_nothing_new(repository: Repository) -> None:
    first = take(repository, "runs")
    objects = sorted(p.name for p in repository.path.rglob("*") if p.is_file())
    second = take(repository, "runs", message="another message")
    assert (second.new, second.id, second.number) == (False, first.id, 1)
    assert second.stored == 0
    assert sorted(p.name for p in repository.path.rglob("*") if p.is_file()) == objects


def test_again_from_another_place(repository: Repository) -> None:
    first = take(repository, "runs")
    (repository.root.parent / "runs").rename(repository.root.parent / "moved")
    assert take(repository, "moved").id == first.id


def test_one_more_checkpoint_is_a_new_version(repository: Repository) -> None:
    first = take(repository, "runs")
    save_file(arrays(7), repository.root.parent / "runs" / "ckpt-200.safetensors")
    second = take(repository, "runs")
    assert (second.label, second.new) == ("old@2", True)
    parents = repository.manifest(second.id).parents
    assert [(p.id, p.kind) for p in parents] == [(first.id, "import")]
    assert take(repository, "runs").id == second.id


def test_the_same_weights_under_another_name(repository: Repository) -> None:
    take(repository, "runs")
    made = take(repository, "runs", name="other")
    assert (made.label, made.new) == ("other@1", True)


def test_other_steps_are_another_content(repository: Repository) -> None:
    take(repository, "runs/ckpt-4.safetensors")
    runs = repository.root.parent / "runs"
    (runs / "ckpt-4.safetensors").rename(runs / "ckpt-5.safetensors")
    assert take(repository, "runs/ckpt-5.safetensors").label == "old@2"


def test_staging_and_head_stay(repository: Repository) -> None:
    (repository.root / "train.py").write_text("pass")
    adding.add(repository, repository.root, ["train.py"], adding.Request())
    take(repository, "runs")
    assert repository.head is None
    assert [f.path for f in facts.staged_files(repository.database)] == ["train.py"]


class TestRefused:
    def test_nothing_there(self, repository: Repository) -> None:
        (repository.root.parent / "texts").mkdir()
        (repository.root.parent / "texts" / "a.txt").write_text("text")
        with pytest.raises(UsageError, match="no checkpoints"):
            take(repository, "texts")
        with pytest.raises(NotFound):
            take(repository, "no-such-folder")

    def test_a_named_file_that_holds_no_weights(self, repository: Repository) -> None:
        with pytest.raises(UsageError):
            take(repository, "runs/notes.txt")

    def test_a_pickle(self, repository: Repository) -> None:
        (repository.root.parent / "runs" / "evil.pt").write_bytes(b"\x80\x02.")
        with pytest.raises(UnsafeInput):
            take(repository, "runs/evil.pt")
        assert [p for p, _ in take(repository, "runs").skipped] == [
            "runs/evil.pt",
            "runs/notes.txt",
        ]

    def test_two_of_one_step(self, repository: Repository) -> None:
        for name in ("a", "b"):
            save_file(arrays(ord(name)), repository.root.parent / f"{name}.safetensors")
        with pytest.raises(Conflict) as caught:
            take(repository, "a.safetensors", "b.safetensors")
        assert "ckpt-100.pt" in (caught.value.hint or "")
        assert versions.all_versions(repository.database) == []

    @pytest.mark.parametrize("name", ["a@b", "latest", ""])
    def test_names(self, repository: Repository, name: str) -> None:
        with pytest.raises(UsageError):
            take(repository, "runs", name=name)

    def test_a_tag_of_that_name(self, repository: Repository) -> None:
        made = take(repository, "runs")
        with repository.change("tag") as change:
            change.record("tag", "best", {"version": made.id})
        with pytest.raises(Conflict):
            take(repository, "runs", name="best")


def test_a_data_set_beside_them_is_no_checkpoint(repository: Repository) -> None:
    """It would have been the version's own weights."""
    folder = repository.root.parent / "runs"
    np.savez(folder / "test.npz", x=np.zeros((4, 2), "f4"), y=np.zeros(4, "i8"))
    made = take(repository, "runs")
    assert [path for path, _ in made.skipped] == ["runs/notes.txt", "runs/test.npz"]
    assert (made.steps, made.default) == ([4, 30, 100], 100)
    with pytest.raises(UsageError, match=r"test\.npz is not a checkpoint"):
        take(repository, "runs/test.npz")
