"""`import tensorboard`: a version for each run, once; runs that belong together are one."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import dlv.upkeep.check as check
from dlv.errors import Conflict, NotFound, UsageError
from dlv.intake.imported_runs import Imported
from dlv.intake.tensorboard import Request, grouped, import_tensorboard
from dlv.metadata import versions
from dlv.repository.handle import Repository
from dlv.versions.remove import remove
from tests import event_bytes

LOG = "events.out.tfevents.1.host"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.init(tmp_path)[0]


def put(folder: Path, run: str, data: bytes) -> Path:
    path = folder / run / LOG
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def taken(repository: Repository, **given: Any) -> Imported:
    request = Request("exp 1", "a <a@b>", repository.root, **given)
    return import_tensorboard(repository, request)


def hyperparameters(**values: float) -> bytes:
    """As SummaryWriter.add_hparams writes them: the metadata of a tag without a value."""
    entries = b"".join(
        event_bytes.part(
            1,
            event_bytes.part(1, name.encode())
            + event_bytes.part(2, b"\x11" + struct.pack("<d", value)),
        )
        for name, value in values.items()
    )
    plugin = event_bytes.part(1, b"hparams") + event_bytes.part(2, event_bytes.part(3, entries))
    told = event_bytes.part(1, b"_hparams_/session_start_info") + event_bytes.part(
        9, event_bytes.part(1, plugin)
    )
    return event_bytes.event(100.0, 0, event_bytes.part(5, event_bytes.part(1, told)))


def series(repository: Repository, made: Any) -> set[tuple[str, str]]:
    return {(s.run, s.tag) for s in repository.manifest(made.id).series}


def test_a_version_for_each_run(repository: Repository) -> None:
    folder = repository.root / "exp 1"
    put(folder, "b", event_bytes.version(50.0) + event_bytes.scalars("loss", range(5)))
    put(folder, "a", event_bytes.version(90.0) + event_bytes.scalars("loss", range(7)))
    put(folder, "a/1700000000.5", hyperparameters(lr=0.1, depth=3) + event_bytes.scalars("hp", [0]))
    put(folder, "empty", b"")
    done = taken(repository)
    assert [(made.run, made.label, made.new) for made in done.versions] == [
        ("b", "exp-1@1", True),
        ("a", "exp-1@2", True),
    ]
    assert done.versions[1].series == [
        ("loss", 7),
        ("1700000000.5/_hparams_/session_start_info", 1),
        ("1700000000.5/hp", 1),
    ]
    assert done.skipped == [("empty", "it is empty")]
    manifest = repository.manifest(done.versions[1].id)
    assert manifest.hyperparameters == {"lr": 0.1, "depth": 3.0}
    assert manifest.created == "1970-01-01T00:01:46.000000Z"  # its last point
    assert repository.head is None
    assert check.check(repository).faults == []


def test_again_makes_nothing_new(repository: Repository) -> None:
    put(
        repository.root / "exp 1",
        "a",
        event_bytes.version() + event_bytes.scalars("loss", range(5)),
    )
    first, again = taken(repository), taken(repository)
    assert [made.new for made in first.versions + again.versions] == [True, False]
    assert again.stored == 0
    assert again.versions[0].id == first.versions[0].id
    assert len(versions.all_versions(repository.database)) == 1


def test_a_run_that_has_gone_on_is_a_child(repository: Repository) -> None:
    data = event_bytes.version() + event_bytes.scalars("loss", range(5))
    put(repository.root / "exp 1", "a", data)
    (first,) = taken(repository).versions
    put(repository.root / "exp 1", "a", data + event_bytes.scalars("loss", [9]))
    (second,) = taken(repository).versions
    assert (second.label, second.new) == ("exp-1@2", True)
    manifest = repository.manifest(second.id)
    assert [(parent.id, parent.kind) for parent in manifest.parents] == [(first.id, "import")]
    (again,) = taken(repository).versions
    assert (again.id, again.new) == (second.id, False)


def test_one_that_was_removed_stays_away(repository: Repository) -> None:
    put(repository.root / "exp 1", "a", event_bytes.scalars("loss", range(5)))
    taken(repository)
    remove(repository, ["exp-1@1"], author="a <a@b>")
    done = taken(repository)
    assert done.versions == []
    assert done.skipped == [("a", "exp-1@1, which it was imported as, was removed")]


def test_the_parts_of_a_training_are_one_version(repository: Repository) -> None:
    for run in ("m1/train", "m1/validation", "m2/train", "m2/validation"):
        put(repository.root / "exp 1", run, event_bytes.scalars("loss", range(3)))
    done = taken(repository, name="keras")
    assert [(made.run, made.label) for made in done.versions] == [
        ("m1", "keras@1"),
        ("m2", "keras@2"),
    ]
    assert series(repository, done.versions[0]) == {("train", "loss"), ("validation", "loss")}


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (["."], {".": {".": ""}}),
        ([".", "a", "a/b"], {".": {".": "", "a": "a", "a/b": "a/b"}}),
        (["a", "a/b", "ab"], {"a": {"a": "", "a/b": "b"}, "ab": {"ab": ""}}),
        (["train", "val"], {".": {"train": "train", "val": "val"}}),
        (["x/y/Test"], {"x/y": {"x/y/Test": "Test"}}),
    ],
)
def test_grouped(runs: list[str], expected: dict[str, dict[str, str]]) -> None:
    assert grouped(runs) == expected


def test_refused(repository: Repository) -> None:
    with pytest.raises(NotFound, match="no such directory:"):
        taken(repository)
    (repository.root / "exp 1").mkdir()
    with pytest.raises(UsageError, match="no event files"):
        taken(repository)
    with pytest.raises(UsageError, match="cannot be a name"):
        taken(repository, name="a@b")
    put(repository.root / "exp 1", "a", event_bytes.scalars("loss", range(5)))
    taken(repository, name="other")
    repository.database.execute("INSERT INTO tag(name, version_id) VALUES ('exp-1', 1)")
    with pytest.raises(Conflict, match="is already"):
        taken(repository)
