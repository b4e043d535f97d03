"""Undo: random histories against a model in plain Python, and the state that facts alone give."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dlv.recovery.rebuild as rebuild
import dlv.repository.revisions as revisions
import dlv.repository.undo as undo
import dlv.versions.add as adding
import dlv.versions.commit as committing
import dlv.versions.remove as remove
from dlv.errors import Conflict, NotFound, UnsafeInput
from dlv.metadata import facts, versions
from dlv.metadata.database import Database
from dlv.repository.handle import Repository
from dlv.versions.add import Request as AddRequest

AUTHOR = "Ada <ada@example.org>"
NAMES = ("net", "wide", "best")
TAGS = ("best", "good", "wide")


@dataclass
class ModelVersion:
    name: str
    number: int
    base: str | None


@dataclass
class ModelOperation:
    """`effects`: (what, subject, value) in the order in which they were said."""

    verb: str
    effects: list[tuple[str, str, Any]]
    before: str | None
    after: str | None
    consumed: set[str] = field(default_factory=set)
    undoes: int | None = None


class Model:
    """What the history means: replay of the operations that stand, and nothing else."""

    def __init__(self) -> None:
        self.versions: dict[str, ModelVersion] = {}
        self.operations: list[ModelOperation] = []
        self.head: str | None = None
        self.staged: set[str] = set()

    def stands(self, index: int) -> bool:
        return not any(
            op.undoes == index and self.stands(later)
            for later, op in enumerate(self.operations)
            if later > index
        )

    def replay(self) -> tuple[dict[str, str], dict[str, str]]:
        """(state by version, version by tag)."""
        states = dict.fromkeys(self.versions, "undone")
        found: dict[str, str] = {}
        standing = [op for i, op in enumerate(self.operations) if self.stands(i)]
        effects = [effect for op in standing for effect in op.effects]
        for what, subject, _ in effects:
            if what == "number":
                states[subject] = "live"
        for what, subject, _ in effects:
            if what == "removal" and states[subject] != "undone":
                states[subject] = "removed"
        for what, subject, value in effects:
            if what == "tag":
                found.pop(subject, None)
                if value is not None:
                    found[subject] = value
        return states, found

    def dangling(self) -> set[str]:
        states, found = self.replay()
        names = {version.name for version in self.versions.values()}
        return {tag for tag, target in found.items() if states[target] != "live" or tag in names}

    def apply(self, verb: str, effects: list[tuple[str, str, Any]]) -> None:
        self.operations.append(ModelOperation(verb, effects, self.head, self.head))

    def commit(self, version_id: str, name: str) -> None:
        number = 1 + sum(version.name == name for version in self.versions.values())
        self.versions[version_id] = ModelVersion(name, number, self.head)
        before, self.head = self.head, version_id
        self.operations.append(
            ModelOperation(
                "commit", [("number", version_id, None)], before, version_id, self.staged
            )
        )
        self.staged = set()

    def undo(self, index: int) -> bool:
        """Whether it may be undone; then it is."""
        before = self.dangling()
        target = self.operations[index]
        self.operations.append(ModelOperation("undo", [], self.head, None, undoes=index))
        if self.dangling() - before:
            self.operations.pop()
            return False
        states, _ = self.replay()
        head = target.before if self.head == target.after else self.head
        while head is not None and states[head] == "undone":
            head = self.versions[head].base
        origin, again = target, False
        while origin.undoes is not None:
            origin, again = self.operations[origin.undoes], not again
        if head != self.head:
            self.staged = self.staged - origin.consumed if again else self.staged | origin.consumed
        self.head = self.operations[-1].after = head
        return True


class Both:
    """The repository and the model, kept in step and compared."""

    def __init__(self, folder: Path) -> None:
        self.repository, _ = Repository.init(folder)
        self.model = Model()
        self.count = 0

    def visible(self) -> list[str]:
        states, _ = self.model.replay()
        return [digest for digest in self.model.versions if states[digest] == "live"]

    def add(self) -> None:
        self.count += 1
        name = f"file{self.count}.txt"
        (self.repository.root / name).write_text(name)
        adding.add(self.repository, self.repository.root, [name], AddRequest())
        self.model.staged = self.model.staged | {name}

    def commit(self, name: str) -> None:
        self.count += 1
        request = committing.Request(f"number {self.count}", AUTHOR, name, allow_empty=True)
        taken = name in self.model.replay()[1]
        if taken:
            with pytest.raises(Conflict):
                committing.commit(self.repository, request)
        else:
            self.model.commit(committing.commit(self.repository, request).id, name)

    def tag(self, name: str, choice: int, move: bool) -> None:
        if not self.model.versions:
            return
        target = list(self.model.versions)[choice % len(self.model.versions)]
        states, found = self.model.replay()
        names = {version.name for version in self.model.versions.values()}
        if found.get(name) == target:
            assert not revisions.set_tag(self.repository, name, target, AUTHOR, move=move).changed
        elif (name in found and not move) or name in names or states[target] != "live":
            with pytest.raises(Conflict):
                revisions.set_tag(self.repository, name, target, AUTHOR, move=move)
        else:
            revisions.set_tag(self.repository, name, target, AUTHOR, move=move)
            self.model.apply("tag", [("tag", name, target)])

    def delete_tag(self, name: str) -> None:
        if name in self.model.replay()[1]:
            revisions.delete_tag(self.repository, name, AUTHOR)
            self.model.apply("tag", [("tag", name, None)])
        else:
            with pytest.raises(NotFound):
                revisions.delete_tag(self.repository, name, AUTHOR)

    def rm(self, choice: int, force: bool) -> None:
        if not self.model.versions:
            return
        target = list(self.model.versions)[choice % len(self.model.versions)]
        states, found = self.model.replay()
        own = sorted(tag for tag, version in found.items() if version == target)
        if states[target] != "live" or (own and not force):
            with pytest.raises(Conflict):
                remove.remove(self.repository, [target], AUTHOR, force=force)
        else:
            remove.remove(self.repository, [target], AUTHOR, force=force)
            deleted = [("tag", tag, None) for tag in own]
            self.model.apply("rm", [*deleted, ("removal", target, None)])

    def undo(self, choice: int | None) -> None:
        if choice is None:
            stand = [
                i
                for i, op in enumerate(self.model.operations)
                if op.undoes is None and self.model.stands(i)
            ]
            if not stand:
                assert undo.undo(self.repository, AUTHOR) == []
                return
            index, number = stand[-1], None
        elif self.model.operations:
            index = choice % len(self.model.operations)
            number = index + 1
        else:
            return
        if not self.model.stands(index) or not self.model.undo(index):
            with pytest.raises(Conflict):
                undo.undo(self.repository, AUTHOR, operation=number)
        else:
            undo.undo(self.repository, AUTHOR, operation=number)

    def compare(self) -> None:
        db = self.repository.database
        states, found = self.model.replay()
        assert seen(db) == (
            {
                digest: (version.name, version.number, states[digest])
                for digest, version in self.model.versions.items()
            },
            found,
        )
        assert self.repository.head == self.model.head
        assert {file.path for file in facts.staged_files(db)} == self.model.staged
        log = undo.operations(self.repository)
        assert [not entry.undone for entry in reversed(log)] == [
            self.model.stands(i) for i in range(len(self.model.operations))
        ]

    def compare_with_facts(self) -> None:
        """Another catalogue, filled from manifests and facts alone."""
        fresh = Database(self.repository.path / "fresh.db")
        filled = rebuild.fill(self.repository, fresh)
        assert filled.faults == []
        assert seen(fresh) == seen(self.repository.database)
        fresh.close()


def seen(db: Database) -> tuple[dict[str, tuple[str, int | None, str]], dict[str, str]]:
    every = versions.all_versions(db, ("live", "removed", "undone", "recovered"))
    return (
        {version.id: (version.name, version.number, version.state) for version in every},
        {tag: version.id for tag, version in versions.tags(db)},
    )


few, numbers = st.integers(0, 2), st.integers(0, 12)
actions = st.one_of(
    st.tuples(st.just("add")),
    st.tuples(st.just("commit"), st.sampled_from(NAMES)),
    st.tuples(st.just("tag"), st.sampled_from(TAGS), few, st.booleans()),
    st.tuples(st.just("delete_tag"), st.sampled_from(TAGS)),
    st.tuples(st.just("rm"), few, st.booleans()),
    st.tuples(st.just("undo"), st.none()),
    st.tuples(st.just("undo"), numbers),
)


# What a random history seldom has.
@example([("commit", "net"), ("commit", "net"), ("undo", 0), ("undo", None), ("commit", "net")])
@example([("commit", "net"), ("tag", "good", 0, False), ("rm", 0, True), ("undo", None)])
@example([("tag", "wide", 0, False), ("commit", "wide"), ("undo", None), ("undo", 1)])
@given(st.lists(actions, min_size=3, max_size=18))
@settings(max_examples=25, deadline=None)
def test_random_histories(history: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        both = Both(Path(folder))
        for name, *arguments in history:
            getattr(both, name)(*arguments)
            both.compare()
        both.compare_with_facts()
        both.repository.close()


@pytest.fixture
def both(tmp_path: Path) -> Both:
    made = Both(tmp_path)
    made.add()
    made.commit("net")
    return made


def test_undo_and_do_again_as_often_as_one_likes(both: Both) -> None:
    both.tag("good", 0, False)
    for number in range(2, 9):
        both.undo(number - 1)
        both.compare()
    both.compare_with_facts()


def test_the_files_of_an_undone_commit_are_staged_again(both: Both) -> None:
    first = facts.staged_files(both.repository.database)
    done = undo.undo(both.repository, AUTHOR)[0]
    assert first == []
    assert (done.staged, done.gone, done.head, done.moved) == (["file1.txt"], [], None, True)
    again = committing.commit(both.repository, committing.Request("again", AUTHOR, "net"))
    assert again.number == 2, "the number of an undone version is not used again"
    assert [file.path for file in both.repository.manifest(again.id).files] == ["file1.txt"]


def test_a_file_that_is_gone_is_not_staged_again(both: Both) -> None:
    (both.repository.root / "file1.txt").unlink()
    done = undo.undo(both.repository, AUTHOR)[0]
    assert (done.staged, done.gone) == ([], ["file1.txt"])
    assert facts.staged_files(both.repository.database) == []


def test_what_was_staged_since_stays_as_it_is(both: Both) -> None:
    path = both.repository.root / "file1.txt"
    path.write_text("newer")
    adding.add(both.repository, path.parent, ["file1.txt"], AddRequest())
    newer = facts.staged_files(both.repository.database)
    assert undo.undo(both.repository, AUTHOR)[0].staged == []
    assert facts.staged_files(both.repository.database) == newer
    undo.undo(both.repository, AUTHOR, operation=2)  # the commit stands again, with the old file
    assert facts.staged_files(both.repository.database) == newer


def test_an_older_commit_leaves_head_and_staging_alone(both: Both) -> None:
    both.add()
    both.commit("net")
    done = undo.undo(both.repository, AUTHOR, operation=1)[0]
    assert (done.moved, done.staged) == (False, [])
    both.model.undo(0)
    both.compare()


def test_a_checkout_moves_head_back_and_nothing_else(both: Both) -> None:
    first = both.model.head
    both.add()
    both.commit("net")
    with both.repository.change("checkout", AUTHOR) as change:
        change.set_head(first)
        change.set_next("wide", "copy")
    done = undo.undo(both.repository, AUTHOR)[0]
    assert (done.origin.verb, done.moved, done.staged) == ("checkout", True, [])
    assert (both.repository.head, both.repository.next) == (both.model.head, None)
    undo.undo(both.repository, AUTHOR, operation=4)
    assert (both.repository.head, both.repository.next) == (first, ("wide", "copy"))


def test_several_at_once_are_all_or_none(both: Both) -> None:
    both.tag("good", 0, False)
    both.add()
    both.commit("net")
    with pytest.raises(NotFound):
        undo.undo(both.repository, AUTHOR, count=4)
    both.compare()
    done = undo.undo(both.repository, AUTHOR, count=3)
    assert [item.operation.id for item in done] == [3, 2, 1]
    assert [item.staged for item in done] == [["file3.txt"], [], ["file1.txt"]]


def test_a_refused_undo_leaves_no_fact(both: Both) -> None:
    """A rebuild believes every fact on disk."""
    both.tag("good", 0, False)
    before = sorted(both.repository.facts.glob("*/*"))
    with pytest.raises(Conflict) as caught:
        undo.undo(both.repository, AUTHOR, operation=1)
    assert "`good` points to net@1," in str(caught.value.why)
    assert sorted(both.repository.facts.glob("*/*")) == before
    both.compare_with_facts()


def test_a_dry_run_says_the_same_and_does_nothing(both: Both) -> None:
    both.tag("good", 0, False)
    before = (seen(both.repository.database), sorted(both.repository.facts.glob("*/*")))
    rehearsed = undo.undo(both.repository, AUTHOR, count=2, dry_run=True)
    assert (seen(both.repository.database), sorted(both.repository.facts.glob("*/*"))) == before
    assert rehearsed == undo.undo(both.repository, AUTHOR, count=2)


@pytest.mark.parametrize("verb", ["gc", "publish"])
def test_what_has_no_way_back_is_refused(both: Both, verb: str) -> None:
    with both.repository.change(verb, AUTHOR) as change:
        change.summary = "something"
    with pytest.raises(UnsafeInput) as caught:
        undo.undo(both.repository, AUTHOR)
    assert caught.value.exit_code == 9
    undo.undo(both.repository, AUTHOR, operation=1)


def test_facts_of_a_kind_without_way_back_are_refused(both: Both) -> None:
    with both.repository.change("other", AUTHOR) as change:
        change.record("remote-head", "hub", {"seq": 1, "hash": "a" * 64})
    with pytest.raises(UnsafeInput):
        undo.undo(both.repository, AUTHOR)


def test_what_gc_took_does_not_come_back(both: Both) -> None:
    version_id = both.model.head
    remove.remove(both.repository, ["net@1"], AUTHOR)
    db = both.repository.database
    key = db.value("SELECT id FROM version WHERE hash = ?", (version_id,))
    for table in ("file", "snapshot"):
        db.execute(f"DELETE FROM {table} WHERE version_id = ?", (key,))
    db.execute("DELETE FROM version WHERE id = ?", (key,))
    with pytest.raises(UnsafeInput) as caught:
        undo.undo(both.repository, AUTHOR)
    assert "gc deleted" in str(caught.value.why)


def test_numbers_of_operations(both: Both) -> None:
    with pytest.raises(NotFound):
        undo.undo(both.repository, AUTHOR, operation=7)
    undo.undo(both.repository, AUTHOR, operation=1)
    with pytest.raises(Conflict) as caught:
        undo.undo(both.repository, AUTHOR, operation=1)
    assert caught.value.hint == "to redo it: dlv undo --op 2"


def test_steps_of_snapshots_come_back(tmp_path: Path, commit_model: Callable[..., str]) -> None:
    repository, _ = Repository.init(tmp_path)
    held = {step: {"w": np.full(3, step, np.float32)} for step in (1, 2, 3)}
    version_id = commit_model(repository, "net", held)
    key = versions.by_number(repository.database, "net", 1)
    assert key is not None

    def gone() -> list[int | None]:
        rows = versions.snapshots(repository.database, key.key)
        return [row.step for row in rows if row.removed]

    remove.remove(repository, ["net"], AUTHOR, steps="1")
    remove.remove(repository, ["net"], AUTHOR, steps="2")
    assert gone() == [1, 2]
    undo.undo(repository, AUTHOR)
    assert gone() == [1]
    undo.undo(repository, AUTHOR)
    assert gone() == []
    assert facts.newest(repository.database, "removal", version_id) is None
