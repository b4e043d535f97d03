"""A lost catalogue comes back from facts, manifests and packs, row for row."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.disk.durable as durable
import dlv.recovery.rebuild as rebuild
import dlv.repository.revisions as revisions
import dlv.repository.undo as undo
import dlv.upkeep.check as check
from dlv.errors import Conflict, Damaged
from dlv.metadata import dump, facts, versions
from dlv.metadata.database import Database
from dlv.repository.handle import HEAD, Repository, stored


def lose(repository: Repository) -> None:
    repository.close()
    for path in repository.path.glob("dlv.db*"):
        path.unlink()


def content(repository: Repository) -> dict[str, list[Any]]:
    return dump.content(repository.database)


def label(repository: Repository, text: str) -> versions.Version:
    name, _, number = text.partition("@")
    found = versions.by_number(repository.database, name, int(number))
    assert found is not None
    return found


def test_the_same_catalogue(lived: Repository) -> None:
    before = content(lived)
    assert [row for row in before["version"] if row[-1] == "undone"]
    assert [row for row in before["version"] if row[-1] == "removed"]
    assert before["tag"]
    assert before["metric"]
    assert before["node"]
    lose(lived)
    filled = rebuild.rebuild(lived)
    assert (filled.versions, filled.faults, filled.recovered) == (6, [], [])
    after = content(lived)
    assert [name for name in before if before[name] != after[name]] == []


def test_chunks_are_those_of_the_packs(lived: Repository) -> None:
    before = sorted(dump.chunk_rows(lived.database), key=repr)
    lose(lived)
    rebuild.rebuild(lived)
    assert sorted(dump.chunk_rows(lived.database), key=repr) == before
    assert check.check(lived).faults == []


def test_head_is_the_newest_version_when_all_is_lost(lived: Repository) -> None:
    lose(lived)
    rebuild.rebuild(lived)
    assert lived.head == label(lived, "lenet@4").id
    assert lived.next is None
    assert facts.staged_files(lived.database) == []
    assert facts.operations(lived.database) == []


def test_what_only_the_old_one_knew_is_kept_while_it_can_be_read(lived: Repository) -> None:
    with lived.change("checkout") as change:
        change.set_head(label(lived, "lenet@2").id)
        change.set_next("another", "copy")
    before = facts.operations(lived.database), facts.staged_files(lived.database)
    rebuild.rebuild(lived)
    assert (facts.operations(lived.database), facts.staged_files(lived.database)) == before
    assert lived.head == label(lived, "lenet@2").id
    assert lived.next == ("another", "copy")
    undo.undo(lived, "Ada")
    assert lived.head == label(lived, "lenet@4").id


def test_life_goes_on(lived: Repository, commit_model: Callable[..., str]) -> None:
    """Numbers are not used again, tags move, removals and undone versions stay what they are."""
    lose(lived)
    rebuild.rebuild(lived)
    made = commit_model(lived, "lenet", {"w": np.zeros((3, 3), "f4")})
    assert label(lived, "lenet@5").id == made
    revisions.set_tag(lived, "best", "lenet@5", "Ada", move=True)
    before = content(lived)
    lose(lived)
    rebuild.rebuild(lived)
    assert content(lived) == before
    assert label(lived, "lenet@3").state == "undone"
    assert label(lived, "wide@1").state == "removed"


class _KilledError(BaseException):
    """Where a process dies, the rest of the test goes on."""


def _unacknowledged(repository: Repository, commit_model: Callable[..., str], **given: Any) -> str:
    """A commit that dies between its fact and its transaction: all files, no rows."""
    before = {name for name, _ in stored(repository.manifests, ".json")}

    def die(*_: Any, **__: Any) -> int:
        raise _KilledError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(facts, "log_operation", die)
        with pytest.raises(_KilledError):
            commit_model(repository, "lenet", {"w": np.full((3, 3), 7, "f4")}, **given)
    (made,) = {name for name, _ in stored(repository.manifests, ".json")} - before
    repository.close()
    return made


def test_a_version_that_was_never_acknowledged_may_come_back(
    lived: Repository, commit_model: Callable[..., str]
) -> None:
    made = _unacknowledged(lived, commit_model)
    assert versions.by_id(lived.database, made) is None
    report = check.check(lived)
    assert report.faults == []
    assert ("manifest", made) in report.dangling
    assert {kind for kind, _ in report.dangling} == {"manifest", "fact", "pack"}
    lose(lived)
    filled = rebuild.rebuild(lived)
    assert filled.recovered == []
    assert label(lived, "lenet@5").id == made
    assert check.check(lived).faults == []


def test_its_number_belongs_to_the_later_one(
    lived: Repository, commit_model: Callable[..., str]
) -> None:
    """As when the same commit was repeated after a crash."""
    lost = _unacknowledged(lived, commit_model)
    made = commit_model(lived, "lenet", {"w": np.full((3, 3), 7, "f4")})
    assert label(lived, "lenet@5").id == made
    lose(lived)
    filled = rebuild.rebuild(lived)
    assert filled.recovered == [lost]
    assert label(lived, "lenet@5").id == made
    again = versions.by_id(lived.database, lost)
    assert again is not None
    assert (again.number, again.state, again.label) == (None, "recovered", lost[:12])
    report = check.check(lived)
    assert report.faults == []
    assert check.rebuild(lived).recovered == [lost]


def test_what_is_damaged_is_listed_and_left_out(lived: Repository) -> None:
    victim = label(lived, "lenet@2")
    path = durable.path_of(lived.manifests, victim.id, ".json")
    path.write_bytes(path.read_bytes()[:-1])
    filled = rebuild.rebuild(lived)
    assert [(kind, name) for kind, name, _ in filled.faults] == [("manifest", victim.id)]
    assert versions.by_id(lived.database, victim.id) is None
    assert path.exists()
    child = label(lived, "wide@1")
    assert [base for base, _ in child.parents] == [victim.id]
    report = check.check(lived)
    assert [(f.kind, f.object, f.versions) for f in report.faults] == [
        ("manifest", victim.id, ("lenet@2",))
    ]


def test_numbers_of_lost_versions_are_not_used_again(
    lived: Repository, commit_model: Callable[..., str]
) -> None:
    durable.path_of(lived.manifests, label(lived, "lenet@4").id, ".json").unlink()
    lose(lived)
    rebuild.rebuild(lived)
    made = commit_model(lived, "lenet", {"w": np.zeros((3, 3), "f4")})
    assert label(lived, "lenet@5").id == made


def test_a_lost_manifest_is_named(lived: Repository) -> None:
    victim = label(lived, "wide@2").id
    durable.path_of(lived.manifests, victim, ".json").unlink()
    filled = rebuild.rebuild(lived)
    assert filled.faults == [("manifest", victim, "missing")]


def test_a_lost_tag_fact_is_only_a_lost_tag(lived: Repository) -> None:
    for path in lived.facts.glob("*/*.json"):
        if json.loads(path.read_bytes())["kind"] == "tag":
            path.unlink()
    lose(lived)
    assert rebuild.rebuild(lived).faults == []
    assert versions.tags(lived.database) == []


def test_a_lost_pack_leaves_the_versions(lived: Repository) -> None:
    """Their manifests say what they were; what is in the pack is missing, and said to be."""
    pack = max(lived.packs.glob("*/*.pack"), key=lambda path: path.stat().st_size)
    pack.unlink()
    lose(lived)
    filled = rebuild.rebuild(lived)
    assert filled.versions == 6
    report = check.check(lived)
    assert report.damaged
    assert {label for fault in report.faults for label in fault.versions} == {
        f"{row.name}@{row.number}"
        for row in versions.all_versions(lived.database, ("live", "removed"))
    }


def test_the_old_catalogue_is_kept_beside(lived: Repository) -> None:
    before = content(lived)
    rebuild.rebuild(lived)
    with_old = Database(lived.path / "dlv.db.old")
    assert dump.content(with_old) == before
    with_old.close()
    assert not list(lived.path.glob("dlv.db.new*"))


@pytest.mark.parametrize("data", [b"", b"SQLite format 3\0" + bytes(4080), bytes(9000)])
def test_from_a_catalogue_that_is_none(lived: Repository, data: bytes) -> None:
    before = content(lived)
    lose(lived)
    lived.database_file.write_bytes(data)
    with pytest.raises(Damaged):
        _ = lived.database
    assert rebuild.rebuild(lived).faults == []
    assert content(lived) == before


def test_leftovers_of_a_rebuild_that_died(lived: Repository) -> None:
    for name in ("dlv.db.new", "dlv.db.new-wal", "dlv.db.new-journal"):
        (lived.path / name).write_bytes(b"half")
    before = content(lived)
    rebuild.rebuild(lived)
    assert content(lived) == before
    assert not list(lived.path.glob("dlv.db.new*"))


def test_an_archive_says_which_encoding_counts(lived: Repository) -> None:
    """Of two packs with one matrix, the one of the newest archive comes first."""
    rows = {name: age for age, name in enumerate(sorted(p.stem for p in lived.packs.glob("*/*")))}
    last = max(rows)
    with lived.change("archive", "Ada") as change:
        change.record("archive", None, {"packs": [last]})
    lose(lived)
    rebuild.rebuild(lived)
    assert lived.database.value("SELECT hash FROM pack ORDER BY id LIMIT 1") == last


def test_an_empty_repository(tmp_path: Path) -> None:
    with Repository.init(tmp_path)[0] as repository:
        lose(repository)
        filled = rebuild.rebuild(repository)
        assert (filled.versions, filled.faults) == (0, [])
        assert repository.head is None


@pytest.fixture
def made(tmp_path: Path) -> Repository:
    return Repository.init(tmp_path / "project")[0]


class TestARebuildMeanwhile:
    """The catalogue's file is another one then: what goes to the old one would be lost."""

    def test_a_change_is_refused_and_can_be_repeated(self, made: Repository) -> None:
        assert versions.all_versions(made.database) == []
        with Repository.find(made.root) as other:
            rebuild.rebuild(other)
        with pytest.raises(Conflict, match="rebuilt "), made.change("test") as change:
            change.set_head("a" * 64)
        with made.change("test") as change:
            change.set_head("b" * 64)
        made.close()
        with Repository.find(made.root) as again:
            assert again.head == "b" * 64
            assert [entry.verb for entry in facts.operations(again.database)] == ["test"]

    def test_also_inside_a_transaction(self, made: Repository) -> None:
        with made.change("test") as change:
            change.set_head("a" * 64)
        with Repository.find(made.root) as other:
            rebuild.rebuild(other)
        with pytest.raises(Conflict, match="rebuilt "):
            undo.undo(made, "Ada")
        assert [done.operation.verb for done in undo.undo(made, "Ada")] == ["test"]
        made.close()

    def test_a_writer_that_waits_for_it_is_not_lost(self, made: Repository) -> None:
        waiting = Repository.find(made.root)
        assert waiting.head is None
        outcome: list[str] = []

        def write() -> None:
            try:
                with waiting.change("test") as change:
                    change.set_head("a" * 64)
                outcome.append("written")
            except Conflict:
                outcome.append("refused")

        writer = threading.Thread(target=write)
        with made.alone("gc.lock"):
            writer.start()
            writer.join(0.2)
            assert writer.is_alive()
            fresh = made.path / "copy.db"
            fresh.write_bytes(made.database_file.read_bytes())
            fresh.rename(made.database_file)
        writer.join()
        waiting.close()
        assert outcome == ["refused"]

    def test_what_only_reads_is_not_disturbed(self, made: Repository) -> None:
        assert facts.state(made.database, HEAD) is None
        with Repository.find(made.root) as other:
            rebuild.rebuild(other)
        assert versions.all_versions(made.database) == []
        made.close()
