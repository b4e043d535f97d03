"""Event files in versions: committed, staged, carried on, checked, rebuilt, shown again."""

from __future__ import annotations

import contextlib
import datetime
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import dlv.curves.frozen as frozen_curves
import dlv.curves.ingest as ingest
import dlv.recovery.rebuild as rebuild
import dlv.upkeep.check as check
import dlv.upkeep.collect as collect
import dlv.versions.add as adding
from dlv.curves.store import LIVE, CurveStore
from dlv.errors import Conflict, Damaged, UsageError
from dlv.metadata import metrics, versions
from dlv.metadata.versions import Version
from dlv.repository.handle import Repository
from dlv.versions.add import Request as AddRequest
from dlv.versions.commit import Committed, Request, commit
from dlv.versions.remove import remove
from dlv.versions.version import Version as Shown
from tests import event_bytes

LOG = "events.out.tfevents.1.host"
RUN = (
    event_bytes.version()
    + event_bytes.start(100.0, 0)
    + b"".join(
        (
            *(
                event_bytes.scalars("loss", range(20)),
                event_bytes.image("img", 2, b"\x89PNG"),
                event_bytes.start(150.0, 15),
            ),
            *(event_bytes.scalars("loss", range(15, 30)), event_bytes.text("note", 3, "three")),
        )
    )
)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.init(tmp_path)[0]


def put(folder: Path, run: str, data: bytes) -> Path:
    path = folder / run / LOG
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def committed(repository: Repository, folder: Path, **given: object) -> Committed:
    """`dlv commit --tb folder`."""
    logs_ = ingest.event_logs_of_folder(repository.path, folder)
    try:
        request = Request("m", "a <a@b>", name="net", events=[logs_], **given)  # type: ignore[arg-type]
        return commit(repository, request)
    finally:
        logs_.close()


def version(repository: Repository, made: Committed) -> Version:
    found = versions.by_id(repository.database, made.id)
    assert found is not None
    return found


def names(repository: Repository, made: Committed) -> set[tuple[str, str]]:
    return {(s.run, s.tag) for s in repository.manifest(made.id).series}


def test_a_folder_is_committed(repository: Repository) -> None:
    put(repository.root / "logs", "", RUN)
    put(repository.root / "logs", "val", event_bytes.scalars("loss", [1, 2]))
    made = committed(repository, repository.root / "logs")
    assert names(repository, made) == {("", "loss"), ("", "img"), ("", "note"), ("val", "loss")}
    told = {
        row.name: row
        for row in metrics.of_version(repository.database, version(repository, made).key)
    }
    assert set(told) == {"loss", "val/loss"}  # what is no number has no figures
    loss = told["loss"]
    # The restart at 15 hid what had been written from there on.
    assert (loss.n, loss.last, loss.last_step, loss.max, loss.min_step) == (30, 14.5, 29, 14.5, 0)
    series = Shown(repository, version(repository, made)).metric("loss")
    assert list(series.steps) == list(range(30))
    with pytest.raises(UsageError, match="has no numbers"):
        Shown(repository, version(repository, made)).metric("img")
    assert check.check(repository).faults == []


def test_what_has_not_grown_is_not_stored_again(repository: Repository) -> None:
    long = event_bytes.version() + event_bytes.scalars("loss", range(5000))
    put(repository.root / "logs", "", long)
    put(
        repository.root / "logs",
        "img",
        event_bytes.image("img", 2, np.random.default_rng(1).bytes(9000)),
    )
    first = committed(repository, repository.root / "logs")
    again = committed(repository, repository.root / "logs")
    assert first.stored > 9000
    assert again.stored == 0
    put(repository.root / "logs", "", long + event_bytes.scalars("loss", range(5000, 5010)))
    longer = committed(repository, repository.root / "logs")
    (head,) = [s.hash for s in repository.manifest(longer.id).series if s.tag == "loss"]
    (before,) = [s.hash for s in repository.manifest(first.id).series if s.tag == "loss"]
    assert head != before
    assert longer.stored < first.stored / 3  # one block of two


def test_staged_event_files(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository.root)
    put(repository.root / "logs", "a", RUN)
    put(repository.root / "logs", "b/c", event_bytes.scalars("acc", [1]))
    added = adding.add(repository, repository.root, ["logs"], AddRequest())
    assert {(file.path, file.role) for file in added.files} == {
        (f"logs/a/{LOG}", "log"),
        (f"logs/b/c/{LOG}", "log"),
    }
    made = commit(repository, Request("m", "a <a@b>", name="net"))
    assert names(repository, made) == {("a", "loss"), ("a", "img"), ("a", "note"), ("b/c", "acc")}
    assert {file.path for file in repository.manifest(made.id).files} == {
        f"logs/a/{LOG}",
        f"logs/b/c/{LOG}",
    }
    assert check.check(repository).faults == []


def test_one_staged_file_is_the_run_itself(repository: Repository) -> None:
    put(repository.root, "logs/x", RUN)
    adding.add(repository, repository.root, [f"logs/x/{LOG}"], AddRequest())
    made = commit(repository, Request("m", "a <a@b>", name="net"))
    assert names(repository, made) == {("", "loss"), ("", "img"), ("", "note")}


def test_garbage_is_passed_over(repository: Repository) -> None:
    path = put(repository.root, "logs", b"this is no event file, whatever its name says")
    added = adding.add(repository, repository.root, ["logs"], AddRequest())
    ((skipped, why),) = added.skipped
    assert skipped == f"logs/{LOG}"
    assert "is not an event file" in why
    with pytest.raises(Damaged, match="is not an event file"):
        adding.add(repository, repository.root, [str(path)], AddRequest())
    added = adding.add(repository, repository.root, [str(path)], AddRequest(role="file"))
    assert [file.role for file in added.files] == ["file"]


def test_damage_is_said_and_the_rest_kept(repository: Repository) -> None:
    path = put(repository.root / "logs", "", RUN + event_bytes.scalars("loss", [40])[:-1] + b"\x00")
    made = committed(repository, repository.root / "logs")
    (warning,) = made.warnings
    assert str(path) in warning
    assert names(repository, made) == {("", "loss"), ("", "img"), ("", "note")}


def test_two_logs_of_one_name(repository: Repository) -> None:
    put(repository.root / "logs", "", event_bytes.scalars("loss", [1]))
    csv = repository.root / "log.csv"
    csv.write_text("step,loss\n1,2.0\n")
    with pytest.raises(Conflict, match="is in two logs"):
        committed(repository, repository.root / "logs", logs=[(csv, {})])
    assert versions.all_versions(repository.database) == []


def test_curves_stay_with_their_weights(repository: Repository) -> None:
    save_file({"w": np.ones((3, 3), np.float32)}, repository.root / "w.safetensors")
    adding.add(repository, repository.root, ["w.safetensors"], AddRequest())
    put(repository.root / "logs", "", RUN)
    first = committed(repository, repository.root / "logs")
    carried = commit(repository, Request("only text", "a <a@b>", allow_empty=True))
    assert repository.manifest(carried.id).series == repository.manifest(first.id).series
    save_file({"w": np.zeros((3, 3), np.float32)}, repository.root / "w.safetensors")
    adding.add(repository, repository.root, ["w.safetensors"], AddRequest())
    assert repository.manifest(commit(repository, Request("new", "a <a@b>")).id).series == ()


def shown(repository: Repository) -> list[object]:
    """What a server would find in the packs."""
    with CurveStore.open(repository.cache / "shown.db") as store:
        found = versions.all_versions(repository.database)
        assert frozen_curves.fill(repository, store, found) == []
        (experiment,) = [key for key, name in store.experiments() if name == ""]
        rows: list[object] = [row[1:] for row in store.runs(experiment)]
        for row in store.series(experiment):
            rows.append(row[1:])
            rows.append(
                store.scalars(row.id) if row.data_class == 1 else list(store.tensors(row.id))
            )
            rows += [list(store.blob(row.id, 0, i)) for i in range(row.max_length)]
        return rows


def test_a_rebuild_and_the_packs_have_it_all(repository: Repository) -> None:
    put(repository.root / "logs", "", RUN)
    put(repository.root / "logs", "val", event_bytes.scalars("loss", [1, 2]))
    made = committed(repository, repository.root / "logs", parameters={"lr": 0.5})
    before, figures = shown(repository), metrics.of_version(repository.database, 1)
    with CurveStore.open(repository.path / LIVE) as live:
        (folder,) = [key for key, _ in live.experiments()]
        told = {(row.run, row.tag): row[5:] for row in live.series(folder)}
    there = {row[:2]: row[4:] for row in before if isinstance(row, tuple) and len(row) == 15}
    assert {
        (run.replace("net@1/", "").replace("net@1", "."), tag): rest
        for (run, tag), rest in there.items()
    } == told
    assert repository.manifest(made.id).hyperparameters == {"lr": 0.5}
    assert rebuild.rebuild(repository).faults == []
    assert metrics.of_version(repository.database, 1) == figures
    for path in (*repository.path.glob("live.db*"), *repository.cache.glob("shown.db*")):
        path.unlink()
    assert shown(repository) == before


def test_versions_that_are_gone_go_from_what_is_shown(repository: Repository) -> None:
    put(repository.root / "logs", "", RUN)
    first = committed(repository, repository.root / "logs")
    second = committed(repository, repository.root / "logs", allow_empty=True)
    with CurveStore.open(repository.cache / "shown.db") as store:
        both = [version(repository, made) for made in (first, second)]
        frozen_curves.fill(repository, store, both)
        ((experiment, _),) = store.experiments()
        assert [row.name for row in store.runs(experiment)] == ["net@1", "net@2"]
        repository.database.execute(
            "UPDATE version SET state = 'removed' WHERE hash = ?", (first.id,)
        )
        repository.database.execute("UPDATE version SET number = 7 WHERE hash = ?", (second.id,))
        frozen_curves.fill(repository, store, [version(repository, second)])
        assert [(row.name, row.version) for row in store.runs(experiment)] == [("net@7", second.id)]


def test_a_block_that_is_gone_is_said(repository: Repository) -> None:
    put(repository.root / "logs", "", RUN)
    made = committed(repository, repository.root / "logs")
    shutil.rmtree(repository.packs)
    repository.packs.mkdir()
    with CurveStore.open(repository.cache / "shown.db") as store:
        remarks = frozen_curves.fill(repository, store, [version(repository, made)])
        assert {name for name, _ in remarks} == {f"net@1: {tag}" for tag in ("loss", "img", "note")}
        ((experiment, _),) = store.experiments()
        assert store.series(experiment) == []
        assert [row.name for row in store.runs(experiment)] == ["net@1"]


class Silent:
    def advance(self, count: int) -> None: ...


def silent(what: str, total: int) -> contextlib.nullcontext[Silent]:
    return contextlib.nullcontext(Silent())


def test_gc_takes_what_no_version_needs(repository: Repository) -> None:
    """Blocks that a version shares with one that is removed stay, the others go."""
    noise = np.random.default_rng(2)
    images = [event_bytes.image("img", step, noise.bytes(20_000)) for step in range(2)]
    put(repository.root / "logs", "", RUN + images[0])
    first = committed(repository, repository.root / "logs")
    put(repository.root / "only here", "", event_bytes.image("img", 1, noise.bytes(50_000)))
    other = committed(repository, repository.root / "only here", orphan=True)
    put(repository.root / "logs", "", RUN + b"".join(images))
    longer = committed(repository, repository.root / "logs", parents=["net@1"])
    remove(repository, [first.id, other.id], author="a <a@b>")
    request = collect.Request(datetime.timedelta(0))
    before = sum(path.stat().st_size for path in repository.packs.rglob("*.pack"))
    collect.collect(repository, request, progress=silent)
    collect.collect(repository, request, progress=silent)
    after = sum(path.stat().st_size for path in repository.packs.rglob("*.pack"))
    assert before - after > 50_000
    assert check.check(repository).faults == []
    with CurveStore.open(repository.cache / "shown.db") as store:
        assert frozen_curves.fill(repository, store, [version(repository, longer)]) == []
        (row,) = store.series(1, tags=["img"])
        assert [len(b"".join(store.blob(row.id, i, 2))) for i in range(row.n)] == [
            4,
            20_000,
            20_000,
        ]


def test_a_folder_without_logs(repository: Repository, tmp_path: Path) -> None:
    """A version without the curves that were asked for is worth nothing."""
    (tmp_path / "runs" / "deep").mkdir(parents=True)
    (tmp_path / "runs" / "notes.txt").write_text("none")
    for path, said in (
        (tmp_path / "runs", "no logs below"),
        (tmp_path / "runs" / "notes.txt", "is not a folder"),
    ):
        with pytest.raises(UsageError, match=said):
            ingest.event_logs_of_folder(repository.path, path)
