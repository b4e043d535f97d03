"""`import mlflow`: runs of both kinds of store become versions, once."""

from __future__ import annotations

import math
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

import dlv.api as api
import dlv.disk.durable as durable
import dlv.intake.mlflow as intake
import dlv.metadata.facts as facts
import dlv.recovery.rebuild as rebuild
import dlv.repository.revisions as revisions
import dlv.repository.undo as undo
import dlv.versions.add as adding
import dlv.versions.checkout as checkouts
import dlv.versions.remove as remove
from dlv.errors import Conflict, Damaged, NotFound, StorageError, UsageError
from dlv.intake.imported_runs import Imported
from dlv.intake.mlflow import Request
from dlv.repository.handle import Repository
from dlv.versions.draft import fill

FIXTURES = Path(__file__).parents[1] / "fixtures" / "mlflow"


@pytest.fixture(params=["files", "database"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.copytree(FIXTURES / request.param, tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    shutil.copytree(FIXTURES / "files", tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.init(tmp_path / "project")[0]


def take(repository: Repository, store: Path, **given: Any) -> Imported:
    return intake.import_mlflow(
        repository, Request(str(store), "Me <me@x>", repository.root, **given)
    )


def folder_of(files: Path, name: str) -> Path:
    """The folder of a run of the file store."""
    found = [p.parent for p in files.rglob("meta.yaml") if f"run_name: {name}" in p.read_text()]
    return found[0]


def labels(done: Imported) -> list[tuple[str, str, bool]]:
    return [(made.label, made.title, made.new) for made in done.versions]


def test_runs_become_versions(repository: Repository, store: Path) -> None:
    done = take(repository, store)
    assert labels(done) == [
        ("Digits-CNN@1", "baseline", True),
        ("lenet@1", "fine-tuned", True),
        ("Digits-CNN@2", "diverged", True),
        ("in-a-bucket@1", "far away", True),
    ]
    assert repository.head is None
    assert facts.staged_files(repository.database) == []
    with api.open(repository.root) as repo:
        first, second = repo["Digits-CNN@1"], repo["lenet@1"]
        assert first.message == "baseline\n\nThe first one.\n\nKept for comparison."
        assert (first.author, first.created) == ("ada", "2023-11-14T22:13:20.000000Z")
        assert first.hyperparameters == {
            "lr": 0.1,
            "epochs": 3,
            "nesterov": True,
            "momentum": None,
            "seed": "007",
            "optimizer": "sgd",
            "decay": "1e-4",
            "eps": 1e-08,
            "data/path": "digits.npz",
        }
        loss = first.metric("loss")
        assert list(loss.steps) == [0, 1, 2, 3, 4, 5]
        assert math.isnan(loss.values[2])
        assert (loss.values[5], loss.walls[0]) == (-math.inf, 1_700_000_000.5)
        assert list(first.metric("val/accuracy").steps) == [7, 7, 7]
        assert first.files == ["plots/confusion.csv", "report.txt"]
        assert first.file("report.txt") == b"accuracy 0.25\n"
        assert first.steps == [1, 2]
        environment = first.manifest.environment
        assert environment["git"]["head"] == "0123456789abcdef0123456789abcdef01234567"
        said = environment["mlflow"]
        assert said["tags"]["team"] == "vision"
        assert (said["start"], said["status"]) == ("2023-11-14T22:13:20.000000Z", "FINISHED")
        assert said["datasets"] == [
            {
                "name": "digits",
                "digest": said["datasets"][0]["digest"],
                "source_type": "http",
                "source": '{"url": "https://x.org/digits.npz"}',
                "context": "training",
            },
            {
                "name": "held out",
                "digest": said["datasets"][1]["digest"],
                "source_type": "local",
                "source": '{"uri": "val.npz"}',
                "context": "",
            },
        ]
        assert all(len(data["digest"]) == 8 for data in said["datasets"])
        assert second.manifest.environment["mlflow"]["registered"] == [
            {
                "name": "lenet",
                "version": 1,
                "aliases": ["champion"],
                "status": "READY",
                "stage": "Staging",
                "tags": {"owner": "ada", "use": "mail"},
            }
        ]
        assert (second.parents, second.steps) == ([first.id], [10, 20])
        assert second.hyperparameters == {"lr": 0.01, "width": 8}
        assert repo["Digits-CNN@2"].author == "Me <me@x>"
    reasons = dict(done.skipped)
    assert "s3://models" in next(why for why in reasons.values() if "fetch" in why)
    assert sorted(path.partition("/")[2] for path in reasons if "/" in path) == ["model/model.pkl"]
    assert "it is deleted in MLflow" in reasons.values()


def test_queries_find_what_mlflow_knew(repository: Repository, store: Path) -> None:
    take(repository, store)
    rebuild.rebuild(repository)
    found = {
        'm.mlflow.status = "FAILED"': ["Digits-CNN@2"],
        'm.mlflow.tags.team = "vision"': ["Digits-CNN@1"],
        "m.mlflow.alias.champion = 1": ["lenet@1"],
        'm.mlflow.model.tags.use = "mail"': ["lenet@1"],
        'm.mlflow.model.stage = "Staging"': ["lenet@1"],
        'm.mlflow.source.git.commit like "0123%"': ["Digits-CNN@1"],
        "m.mlflow.dataset.digits is not null": ["Digits-CNN@1"],
    }
    with api.open(repository.root) as repo:
        for condition, labels in found.items():
            rows = repo.query(f"select m where {condition}")
            assert [row.label for (row,) in rows] == labels
        assert "mlflow.status" not in repo["lenet@1"].hyperparameters


def test_a_data_set_that_is_lost(repository: Repository, files: Path) -> None:
    first, second = sorted(files.rglob("datasets/*/meta.yaml"))
    first.unlink()
    second.write_text("name: [1, 2]\ndigest: 3\n")
    done = take(repository, files)
    assert "Digits-CNN@1" in [made.label for made in done.versions]
    assert sum("a data set of run" in warning for warning in done.warnings) == 2
    with api.open(repository.root) as repo:
        assert repo["Digits-CNN@1"].manifest.environment["mlflow"]["datasets"] == []


def test_the_bits_come_back(repository: Repository, store: Path) -> None:
    take(repository, store)
    asked = checkouts.Request(
        "Digits-CNN@1", "Me", repository.root, lambda kind, path: adding.open_weights(path, kind)
    )
    checkouts.checkout(repository, asked)
    for path in store.rglob("ckpt-*.safetensors"):
        there = repository.root / "checkpoints" / path.name
        assert there.read_bytes() == path.read_bytes()
        with api.open(repository.root) as repo:
            matrix = repo["Digits-CNN@1"].at(int(path.stem[5:])).tensor("fc1.weight")
        assert matrix.tobytes() == load_file(path)["fc1.weight"].tobytes()


def test_again_brings_nothing_new(repository: Repository, store: Path) -> None:
    first = take(repository, store)
    packs = sorted(repository.packs.rglob("*.pack"))
    again = take(repository, store)
    assert [(m.id, m.new) for m in again.versions] == [(m.id, False) for m in first.versions]
    assert sorted(repository.packs.rglob("*.pack")) == packs


def test_the_same_everywhere(repository: Repository, store: Path, tmp_path: Path) -> None:
    """A run has one id, whoever imports it: two that pull from each other have it once."""
    ids = {made.run: made.id for made in take(repository, store, runs=["baseline"]).versions}
    with Repository.init(tmp_path / "other")[0] as other:
        shutil.move(store, tmp_path / "moved")
        there = {made.run: made.id for made in take(other, tmp_path / "moved").versions}
    assert there.items() >= ids.items()


def test_only_new_runs_are_added(repository: Repository, store: Path) -> None:
    take(repository, store, runs=["baseline"])
    done = take(repository, store)
    assert [made.new for made in done.versions] == [False, True, True, True]
    with api.open(repository.root) as repo:
        assert repo["lenet@1"].parents == [repo["Digits-CNN@1"].id]


def test_a_parent_that_is_not_there(repository: Repository, store: Path) -> None:
    take(repository, store, runs=["fine-tuned"])
    with api.open(repository.root) as repo:
        assert repo["lenet@1"].parents == []
        assert repo["lenet@1"].manifest.environment["mlflow"]["parent"] is not None


def test_choosing(repository: Repository, store: Path) -> None:
    done = take(repository, store, experiments=["in a bucket"], name="far")
    assert labels(done) == [("far@1", "far away", True)]
    run = done.versions[0].run
    done = take(repository, store, runs=[run[:8], "diverged"])
    assert [(made.title, made.new) for made in done.versions] == [
        ("diverged", True),
        ("far away", False),
    ]
    assert done.skipped == []
    with pytest.raises(NotFound, match="no experiment") as caught:
        take(repository, store, experiments=["digits cnn"])
    assert caught.value.did_you_mean == ["Digits CNN"]
    with pytest.raises(NotFound, match="no run") as caught:
        take(repository, store, runs=["basline"])
    assert caught.value.did_you_mean == ["baseline"]
    with pytest.raises(NotFound, match="no run") as caught:
        take(repository, store, runs=["tuned"])  # a part of its name
    assert caught.value.did_you_mean == ["fine-tuned"]
    deleted = next(path for path, why in take(repository, store).skipped if "deleted" in why)
    with pytest.raises(NotFound) as caught:
        take(repository, store, runs=[deleted])
    assert caught.value.why == "it is deleted in MLflow"


def test_artifacts_outside_the_store(repository: Repository, files: Path, tmp_path: Path) -> None:
    """They are read from folders that the user names, wherever the store says they are."""
    folder = folder_of(files, "baseline")
    elsewhere = tmp_path / "elsewhere" / folder.name / "artifacts"
    elsewhere.parent.mkdir(parents=True)
    shutil.move(folder / "artifacts", elsewhere)
    meta = folder / "meta.yaml"
    lines = [line for line in meta.read_text().splitlines() if "artifact_uri" not in line]
    meta.write_text("\n".join([*lines, f"artifact_uri: {elsewhere}", ""]))
    with pytest.raises(NotFound, match="no such directory:"):
        take(repository, files, runs=["baseline"], artifacts=[str(tmp_path / "nowhere")])
    done = take(repository, files, runs=["baseline"])
    assert any("outside the store" in why and "--artifacts" in why for _, why in done.skipped)
    assert done.versions[0].steps == []
    with Repository.init(tmp_path / "second")[0] as second:
        done = take(second, files, runs=["baseline"], artifacts=[str(elsewhere.parent.parent)])
        assert not any("outside" in why for _, why in done.skipped)
        assert done.versions[0].steps != []


def test_where_the_store_is_named(repository: Repository, files: Path) -> None:
    assert len(take(repository, files / "mlruns").versions) == 4
    experiment = next(files.rglob("m-*")).parents[1]  # its runs look much like experiments
    for place in (files / "mlruns" / "models", experiment, FIXTURES / "make.py"):
        with pytest.raises(UsageError, match="an MLflow store"):
            take(repository, place)
    with pytest.raises(NotFound):
        take(repository, files / "nothing")
    with pytest.raises(UsageError) as caught:
        take(repository, FIXTURES / "database" / "mlruns")
    assert caught.value.hint == f"dlv import mlflow {FIXTURES / 'database' / 'mlflow.db'}"


def test_names_that_are_taken(repository: Repository, files: Path) -> None:
    take(repository, files, runs=["baseline"], name="first")
    revisions.set_tag(repository, "lenet", "first@1", "Me")
    with pytest.raises(Conflict):
        take(repository, files, name="lenet")
    done = take(repository, files)
    assert "lenet" not in [made.name for made in done.versions]
    assert "`lenet` is already a tag" in dict(done.skipped).values()
    with pytest.raises(UsageError):
        take(repository, files, name="a b")


def test_one_undo_takes_it_back_and_it_can_come_again(repository: Repository, files: Path) -> None:
    first = take(repository, files, experiments=["in a bucket"])
    undo.undo(repository, "Me")
    with api.open(repository.root) as repo:
        assert "in-a-bucket@1" not in [version.row.label for version in repo]
    again = take(repository, files, experiments=["in a bucket"])
    assert labels(again) == [("in-a-bucket@2", "far away", True)]
    assert again.versions[0].id != first.versions[0].id
    assert [m.new for m in take(repository, files, experiments=["in a bucket"]).versions] == [False]


def test_what_was_removed_stays_away(repository: Repository, files: Path) -> None:
    take(repository, files)
    remove.remove(repository, ["Digits-CNN@2"], "Me")
    done = take(repository, files)
    assert "Digits-CNN@2, which it was imported as, was removed" in dict(done.skipped).values()
    assert len(done.versions) == 3


def test_a_run_that_went_on(repository: Repository, files: Path) -> None:
    meta = folder_of(files, "diverged") / "meta.yaml"
    text = meta.read_text()
    meta.write_text(
        text.replace("end_time: 1700000301000", "end_time: null").replace("status: 4", "status: 1")
    )
    take(repository, files)
    meta.write_text(text)
    done = take(repository, files)
    why = "it has continued since it was imported as Digits-CNN@2: dlv rm Digits-CNN@2,"
    assert f"{why} then import it again" in dict(done.skipped).values()
    remove.remove(repository, ["Digits-CNN@2"], "Me")
    assert ("Digits-CNN@3", "diverged", True) in labels(take(repository, files))


def test_a_damaged_run_does_not_stop_the_others(repository: Repository, files: Path) -> None:
    for path in files.rglob("loss"):
        if "1e+30" in path.read_text():
            path.write_text("broken\n")
    for path in files.rglob("ckpt-2.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    done = take(repository, files)
    assert [made.title for made in done.versions] == ["baseline", "fine-tuned", "far away"]
    assert done.versions[0].steps == [1]
    assert any("loss, line 1, is not a metric" in why for _, why in done.skipped)
    assert any(path.endswith("ckpt-2.safetensors") for path, _ in done.skipped)


def test_weights_that_fail_halfway_leave_nothing(
    repository: Repository, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matrices of a run that failed are not taken for stored when another run has them."""
    twin = shutil.copytree(
        next(files.rglob("ckpt-1.safetensors")).parent,
        folder_of(files, "diverged") / "artifacts" / "twin",
    )

    def failing(draft: Any, *given: Any) -> None:
        fill(draft, *given)
        if any(file.path.startswith("checkpoints") for file in draft.staged):
            raise Damaged("a tensor is corrupt")

    with monkeypatch.context() as patch:
        patch.setattr(intake, "fill", failing)
        done = take(repository, files)
    assert [made.title for made in done.versions if made.steps] == ["fine-tuned", "diverged"]
    assert "a tensor is corrupt" in dict(done.skipped).values()
    with api.open(repository.root) as repo:
        version = repo["Digits-CNN@1"].at(1)
        there = load_file(twin / "ckpt-1.safetensors")
        assert {n: version.tensor(n).tobytes() for n in version.tensors} == {
            name: value.tobytes() for name, value in there.items()
        }


def test_a_full_disk_ends_it(
    repository: Repository, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise StorageError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(durable, "write_once", full)
        with pytest.raises(StorageError):
            take(repository, files)
    assert len(take(repository, files).versions) == 4


def test_nested_in_a_circle(repository: Repository, store: Path) -> None:
    if (store / "mlflow.db").exists():
        db = sqlite3.connect(store / "mlflow.db")
        (child,) = db.execute("SELECT run_uuid FROM runs WHERE name = 'fine-tuned'").fetchone()
        (run,) = db.execute("SELECT run_uuid FROM runs WHERE name = 'baseline'").fetchone()
        db.execute("INSERT INTO tags VALUES ('mlflow.parentRunId', ?, ?)", (child, run))
        db.commit()
        db.close()
    else:
        tag = next(store.rglob("mlflow.parentRunId"))
        run = store / "mlruns" / tag.parents[2].name / tag.read_text() / "tags"
        (run / "mlflow.parentRunId").write_text(tag.parents[1].name)
    done = take(repository, store)
    assert len(done.versions) == 4
    with api.open(repository.root) as repo:
        assert sorted(len(version.parents) for version in repo) == [0, 0, 0, 1]


def test_many_runs_are_stored_together(
    repository: Repository, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = folder_of(files, "diverged")
    for number in range(30):
        folder = template.with_name(f"{number:032}")
        shutil.copytree(template, folder)
        meta = (folder / "meta.yaml").read_text()
        (folder / "meta.yaml").write_text(meta.replace(template.name, folder.name))
        (folder / "tags" / "mlflow.parentRunId").write_text(f"{number + 1:032}")
    monkeypatch.setattr(intake, "BATCH", 7)
    done = take(repository, files, name="many")
    assert len(done.versions) == 34
    # Two with weights, the others seven at a time.
    assert len(undo.operations(repository)) == 2 + 5
    with api.open(repository.root) as repo:
        line = {v.manifest.environment["mlflow"]["run"]: v for v in repo}
        for number in range(29):  # the parent of each comes after it in every other order
            assert line[f"{number:032}"].parents == [line[f"{number + 1:032}"].id]


def test_tensors_of_one_step_twice(repository: Repository, files: Path) -> None:
    (path,) = files.rglob("ckpt-1.safetensors")
    shutil.copy(next(files.rglob("ckpt-2.safetensors")), path.with_name("step-1-b.safetensors"))
    done = take(repository, files, runs=["baseline"])
    assert done.versions[0].steps == [1, 2]
    assert any("is already in checkpoints/ckpt-1.safetensors" in why for _, why in done.skipped)
