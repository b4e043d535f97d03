"""A catalogue that has lost what was acknowledged: fsck names it, gc waits, a repair adds it."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.archiving.archive as archiving
import dlv.recovery.compare as comparing
import dlv.repository.revisions as revisions
import dlv.repository.undo as undo
import dlv.upkeep.check as check
import dlv.upkeep.collect as collect
import dlv.upkeep.repair as repairing
import dlv.versions.remove as remove
from dlv.archiving.proposal import Request
from dlv.errors import Damaged
from dlv.metadata import dump, facts, versions
from dlv.repository.handle import Repository, stored

Commit = Callable[..., str]


def still(*_: Any) -> None:
    """Progress that nobody sees."""


@pytest.fixture
def lost(lived: Repository, commit_model: Commit) -> Repository:
    """The catalogue of some time ago: what came since lies in files only, as when SQLite has
    ended its log at a wrong bit and written it over."""
    saved = lived.path / "saved.db"
    lived.database.checkpoint()
    shutil.copyfile(lived.database_file, saved)
    commit_model(lived, "lenet", {"w": np.full((3, 3), 7, "f4")})
    commit_model(lived, "lenet", {"w": np.full((4, 4), 8, "f4")})
    revisions.set_tag(lived, "newest", "lenet@6", "Ada")
    remove.remove(lived, ["lenet@2"], "Ada", force=True)
    with lived.change("define", "Ada") as change:
        change.record("query", "mine", {"text": "select m"})
        change.summary = "mine"
    wanted = dump.content(lived.database)
    lived.close()
    for path in lived.path.glob("dlv.db*"):
        path.unlink()
    saved.rename(lived.database_file)
    lived.wanted = wanted  # type: ignore[attr-defined]
    return lived


def files(repository: Repository) -> set[Path]:
    return {
        path
        for part in ("packs", "manifests", "facts", "files.git")
        for path in (repository.path / part).rglob("*")
        if path.is_file()
    }


def test_each_is_named(lost: Repository) -> None:
    report = check.check(lost)
    assert report.damaged
    found = {fault.object: (fault.why, fault.versions) for fault in report.faults}
    assert found == {
        "lenet@5": (comparing.LOST, ("lenet@5",)),
        "lenet@6": (comparing.LOST, ("lenet@6",)),
        "tag best": (comparing.LOST, ()),  # went with its version
        "tag newest": (comparing.LOST, ("lenet@6",)),
        "removal lenet@2": (comparing.LOST, ("lenet@2",)),
        "query mine": (comparing.LOST, ()),
    }
    assert {fault.kind for fault in report.faults} == {"database"}
    assert check.check(lost, ["lenet@4"], quick=True).damaged


def test_nobody_takes_anything(lost: Repository) -> None:
    before = files(lost)
    request = collect.Request(grace=collect.GRACE * 0)
    with pytest.raises(Damaged, match="gc refused to delete: the") as refused:
        collect.collect(lost, request, progress=still)  # type: ignore[arg-type]
    assert refused.value.why is not None
    assert comparing.LOST in refused.value.why
    assert refused.value.hint is not None
    assert "--repair" in refused.value.hint
    with pytest.raises(Damaged):
        collect.plan(lost, request)
    with pytest.raises(Damaged, match="archive refused to delete: the"):
        archiving.archive(lost, Request(author="Ada"), progress=still)  # type: ignore[arg-type]
    assert files(lost) == before


@pytest.mark.parametrize("copied", [False, True])
def test_a_repair_brings_all_back(lost: Repository, tmp_path: Path, copied: bool) -> None:
    source = shutil.copytree(lost.root, tmp_path / "copy") if copied else None
    before = files(lost)
    assert lost.head is not None
    outcome = repairing.repair(lost, source, "Ada", progress=still)
    assert outcome.report.faults == []
    assert dump.content(lost.database) == lost.wanted  # type: ignore[attr-defined]
    assert files(lost) == before
    newest = versions.by_number(lost.database, "lenet", 6)
    assert newest is not None
    assert lost.head == newest.id  # so the next commit has the right parent


def test_a_rebuild_brings_all_back(lost: Repository) -> None:
    report = check.rebuild(lost)
    assert report.faults == []
    assert dump.content(lost.database) == lost.wanted  # type: ignore[attr-defined]


def test_versions_that_gc_took_do_not_come_back(lost: Repository) -> None:
    """A fact of its removal covers a version, whoever has lost which rows."""
    repairing.repair(lost, None, "Ada", progress=still)
    saved = lost.path / "saved.db"
    lost.database.checkpoint()
    shutil.copyfile(lost.database_file, saved)
    request = collect.Request(grace=collect.GRACE * 0)
    collected = collect.collect(lost, request, progress=_bar)
    assert {hidden.version.label for hidden, _ in collected.due} >= {"lenet@2"}
    wanted = dump.content(lost.database)
    lost.close()
    for path in lost.path.glob("dlv.db*"):
        path.unlink()
    saved.rename(lost.database_file)
    report = check.check(lost)
    assert "removal lenet@2" in {fault.object for fault in report.faults}
    assert repairing.repair(lost, None, "Ada", progress=still).report.faults == []
    assert dump.content(lost.database) == wanted


def _bar(*_: Any) -> Any:
    class Bar:
        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None: ...

        def advance(self, *_: object) -> None: ...

    return Bar()


# Marks of what has not committed


class _KilledError(BaseException):
    """Where a process dies, the test goes on."""


def die(lived: Repository, monkeypatch: pytest.MonkeyPatch, doing: Callable[[], object]) -> None:
    original = facts.log_operation

    def killed(*given: Any, **more: Any) -> int:
        if marks(lived):  # not in a rehearsal
            raise _KilledError
        return original(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(facts, "log_operation", killed)
        with pytest.raises(_KilledError):
            doing()


def marks(repository: Repository) -> set[str]:
    return {
        *(path.name for path in repository.manifests.glob("??/*.open")),
        *(path.name for path in repository.facts.glob("open/*")),
    }


def test_what_has_committed_has_no_mark(lived: Repository) -> None:
    assert marks(lived) == set()


@pytest.mark.parametrize(
    "doing",
    [
        lambda lived: revisions.set_tag(lived, "newest", "lenet@2", "Ada"),
        lambda lived: revisions.delete_tag(lived, "best", "Ada"),
        lambda lived: remove.remove(lived, ["lenet@2"], "Ada", force=True),
        lambda lived: undo.undo(lived, "Ada"),
    ],
    ids=["tag", "no tag", "rm", "undo"],
)
def test_a_change_that_was_killed_is_no_fault(
    lived: Repository, monkeypatch: pytest.MonkeyPatch, doing: Callable[[Repository], object]
) -> None:
    """Nor does it come true by a repair of something else."""
    before = dump.content(lived.database)
    die(lived, monkeypatch, lambda: doing(lived))
    made = len(marks(lived))
    assert made >= 1
    report = check.check(lived)
    assert report.faults == []
    assert [kind for kind, _ in report.dangling] == ["fact"] * made
    assert check.rebuild(lived).faults == []
    assert dump.content(lived.database) == before
    assert collect.plan(lived, collect.Request()).moved["facts"][0] == made
    collect.collect(lived, collect.Request(), progress=_bar)
    assert check.check(lived).dangling == []
    collect.collect(lived, collect.Request(), progress=_bar)
    assert marks(lived) == set()


def test_undoing_several_leaves_no_mark(lived: Repository) -> None:
    """They are one transaction, and the marks go when all of it has committed."""
    undo.undo(lived, "Ada", count=3)
    assert marks(lived) == set()
    assert check.check(lived).faults == []


def test_commits_while_fsck_looks_are_no_fault(
    lived: Repository, commit_model: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever they come: before it reads the facts, between, and within its transaction."""
    other = Repository.find(lived.root)
    count = iter(range(100))

    def commit() -> None:
        number = next(count)
        worker = threading.Thread(
            target=commit_model, args=(other, "aside", {"w": np.full((2, 2), number, "f4")})
        )
        worker.start()
        worker.join()

    for module, name in (
        (comparing, "log_of"),
        (type(lived.marks), "read"),
        (dump, "committed_facts"),
        (dump, "local_problems"),
    ):
        original = getattr(module, name)

        def around(*given: Any, _original: Callable[..., Any] = original) -> Any:
            commit()
            found = _original(*given)
            commit()
            return found

        with monkeypatch.context() as patch:
            patch.setattr(module, name, around)
            assert check.check(lived).faults == []
    other.close()
    assert len([1 for _ in stored(lived.manifests, ".json")]) > 8


def test_a_changed_row_names_its_version(lived: Repository) -> None:
    lived.close()
    with closing(sqlite3.connect(lived.database_file)) as db:
        db.execute("UPDATE version SET message = 'another' WHERE name = 'lenet' AND number = 1")
        db.commit()
    faults = check.check(lived).faults
    assert {fault.versions for fault in faults if fault.object.startswith("version ")} == {
        ("lenet@1",)
    }


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE chunk SET offset = offset + 1 WHERE id = (SELECT max(id) FROM chunk)",
        "UPDATE chunk SET blake3 = replace(blake3, substr(blake3, 1, 1), 'x') WHERE id = 1",
        "UPDATE chunk SET length = length - 1 WHERE id = 1",
        'UPDATE chunk SET codec = \'{"id":"raw"}\' WHERE id = 1',
        "UPDATE member SET at = at + 1 WHERE chunk_id = 1",
    ],
)
def test_rows_of_chunks_are_held_against_the_packs(lived: Repository, change: str) -> None:
    with lived.database.atomic():
        lived.database.execute(change)
    report = check.check(lived, quick=True)
    assert [fault.kind for fault in report.faults] == ["database"]
    assert report.faults[0].why == "not in the pack"
    request = collect.Request(grace=collect.GRACE * 0)
    with pytest.raises(Damaged) as refused:
        collect.plan(lived, request)
    assert "not in the pack" in str(refused.value.why)
    with pytest.raises(Damaged) as refused:
        collect.collect(lived, request, progress=still)  # type: ignore[arg-type]
    assert "not in the pack" in str(refused.value.why)
