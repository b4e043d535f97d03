"""Facts against a plain model: what counts, what is undone, whatever the clock says."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import dlv.canonical as canonical
from dlv.metadata import facts, versions
from dlv.metadata.database import Database
from dlv.objects.fact import Fact
from dlv.objects.manifest import Manifest

T0 = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
Make = Callable[..., Manifest]


def write(db: Database, kind: str, subject: str | None, data: dict[str, Any]) -> Fact:
    """As `Repository.change` does it."""
    found = facts.newest(db, kind, subject)
    moment = facts.moment_after(db, kind, subject)
    fact = Fact(kind, subject, "me", moment, data, None if found is None else found[0])
    facts.record(db, fact)
    return fact


def commit(db: Database, manifest: Manifest) -> str:
    number = versions.next_number(db, manifest.name)
    versions.insert(db, manifest, number=number, net_id=None, summaries=[])
    write(db, "number", manifest.id, {"name": manifest.name, "number": number})
    return manifest.id


@dataclass
class Model:
    """The rules in the plainest words: facts in the order in which they were written."""

    log: list[Fact] = field(default_factory=list)

    def stands(self, fact: Fact) -> bool:
        undos = [one for one in self.log if one.kind == "undo" and one.subject == fact.hash]
        return not any(self.stands(undo) for undo in undos)

    def counting(self, kind: str, subject: str) -> Fact | None:
        found = None
        for fact in self.log:
            if (fact.kind, fact.subject) == (kind, subject) and self.stands(fact):
                found = fact
        return found

    def state(self, version: str) -> str:
        if self.counting("number", version) is None:
            return "undone"
        removal = self.counting("removal", version)
        return "removed" if removal and removal.data["steps"] is None else "live"

    def hidden(self, version: str) -> list[int]:
        removal = self.counting("removal", version)
        return (removal.data["steps"] or []) if removal else []

    def tag(self, name: str) -> str | None:
        fact = self.counting("tag", name)
        if fact is None or fact.data["version"] is None:
            return None
        return str(fact.data["version"])


def compare(db: Database, model: Model, made: list[str], names: list[str]) -> None:
    for version in made:
        row = versions.by_id(db, version)
        assert row is not None
        assert row.state == model.state(version)
        hidden = [s.step for s in versions.snapshots(db, row.key) if s.removed]
        assert hidden == [step for step in (100, 200) if step in model.hidden(version)]
    tags = {name: version.id for name, version in versions.tags(db)}
    assert tags == {name: model.tag(name) for name in names if model.tag(name)}
    for fact in model.log:
        assert facts.is_undone(db, fact.hash) == (not model.stands(fact))


@pytest.mark.parametrize("seed", range(30))
def test_random_histories(db: Database, manifest: Make, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    model, names = Model(), ["paper", "best"]
    made: list[str] = []
    for turn in range(25):
        # The clock stands, jumps, and steps back.
        canonical.fix_clock(T0 + datetime.timedelta(seconds=rng.choice([0, turn, -turn, 5])))
        what = rng.choice(["commit", "tag", "tag", "removal", "removal", "undo", "undo", "undo"])
        if what == "commit" or not made:
            made.append(commit(db, manifest(turn, steps=(100, 200, 300))))
            data = {"name": "lenet", "number": len(made)}
            found = facts.newest(db, "number", made[-1])
            assert found is not None
            assert found[1] == data
            created = db.value("SELECT created FROM fact WHERE hash = ?", (found[0],))
            model.log.append(Fact("number", made[-1], "me", created, data))
            assert model.log[-1].hash == found[0]
        elif what == "tag":
            target = rng.choice([*made, None])
            model.log.append(write(db, "tag", rng.choice(names), {"version": target}))
        elif what == "removal":
            steps = rng.choice([None, None, [], [100], [200, 100], [300], [7]])
            model.log.append(write(db, "removal", rng.choice(made), {"steps": steps}))
        else:
            victim = rng.choice(model.log)
            model.log.append(write(db, "undo", victim.hash, {}))
        compare(db, model, made, names)
    # The same from the facts alone, in any order, as a rebuild finds them.
    other = Database(tmp_path / "again.db", wal=False)
    for turn, version in enumerate(made):
        row = versions.by_id(db, version)
        assert row is not None
        again = manifest(int(row.message.split()[1]), steps=(100, 200, 300))
        versions.insert(other, again, number=turn + 1, net_id=None, summaries=[])
    shuffled = rng.sample(model.log, len(model.log))
    with other.atomic():
        facts.load(other, shuffled)
        for fact in shuffled:
            facts.settle(other, fact)
    compare(other, model, made, names)
    other.close()


def test_the_newest_counts_and_of_one_moment_the_greater_hash(db: Database) -> None:
    moment = "2026-01-01T00:00:00.000000Z"
    rivals = [Fact("query", "q", "me", moment, {"text": text}) for text in "abcdef"]
    facts.load(db, rivals)
    best = max(rivals, key=lambda fact: fact.hash)
    assert facts.newest(db, "query", "q") == (best.hash, best.data)
    older = Fact("query", "q", "me", "2025-01-01T00:00:00.000000Z", {"text": "old"})
    facts.load(db, [older])
    assert facts.newest(db, "query", "q") == (best.hash, best.data)
    assert facts.newest(db, "query", "other") is None
    assert facts.newest(db, "tag", "q") is None


def test_facts_without_a_subject(db: Database) -> None:
    first = write(db, "archive", None, {"packs": []})
    second = write(db, "archive", None, {"packs": ["1" * 64]})
    assert second.replaces == first.hash
    assert facts.newest(db, "archive", None) == (second.hash, {"packs": ["1" * 64]})


def test_time_never_goes_back_for_one_subject(db: Database) -> None:
    canonical.fix_clock(T0)
    first = write(db, "tag", "t", {"version": None})
    canonical.fix_clock(T0 - datetime.timedelta(days=3))
    second = write(db, "tag", "t", {"version": None})
    canonical.fix_clock(T0 - datetime.timedelta(days=3))
    other = write(db, "tag", "other", {"version": None})
    assert first.created < second.created
    assert second.created == "2026-01-01T00:00:00.000001Z"
    assert other.created == "2025-12-29T00:00:00.000000Z"


def test_a_fact_is_there_once(db: Database) -> None:
    fact = write(db, "tag", "t", {"version": None})
    facts.load(db, [fact, fact])
    assert db.value("SELECT count(*) FROM fact") == 1


def test_facts_about_what_is_not_here_change_nothing(db: Database) -> None:
    write(db, "tag", "t", {"version": "1" * 64})
    write(db, "removal", "1" * 64, {"steps": None})
    write(db, "undo", "2" * 64, {})
    assert versions.tags(db) == []
    # The tag comes true when the version does.
    assert versions.by_tag(db, "t") is None


def test_a_version_without_a_number_is_recovered(db: Database, manifest: Make) -> None:
    made = manifest(1)
    key = versions.insert(db, made, number=1, net_id=None, summaries=[])
    versions.recover(db, key)
    found = versions.by_id(db, made.id)
    assert found is not None
    assert (found.state, found.number, found.label) == ("recovered", None, made.id[:12])
    removal = write(db, "removal", made.id, {"steps": None})
    write(db, "undo", removal.hash, {})
    found = versions.by_id(db, made.id)
    assert found is not None
    assert found.state == "recovered"


def test_own_weights_are_never_hidden_by_steps(db: Database, manifest: Make) -> None:
    version = commit(db, manifest(1, steps=(100, 200)))
    write(db, "removal", version, {"steps": [100, 200]})
    row = versions.by_id(db, version)
    assert row is not None
    assert [s.removed for s in versions.snapshots(db, row.key)] == [True, False]


def test_state(db: Database) -> None:
    assert facts.state(db, "HEAD") is None
    facts.set_state(db, "HEAD", "1")
    facts.set_state(db, "HEAD", "2")
    assert facts.state(db, "HEAD") == "2"
    facts.set_state(db, "HEAD", None)
    assert facts.state(db, "HEAD") is None


def test_the_operation_log(db: Database) -> None:
    before: dict[str, str | None] = {"HEAD": None}
    first = facts.log_operation(db, "commit", "lenet@1", ["1" * 64], before, {"HEAD": "a"})
    second = facts.log_operation(db, "undo", "lenet@1", [], {"HEAD": "a"}, before, undoes=first)
    assert [(o.id, o.verb, o.undone) for o in facts.operations(db)] == [
        (second, "undo", False),
        (first, "commit", True),
    ]
    assert facts.operations(db)[1].facts == ("1" * 64,)
    assert facts.operations(db)[1].after == {"HEAD": "a"}
    third = facts.log_operation(db, "undo", "", [], before, before, undoes=second)
    undone = {o.id: o.undone for o in facts.operations(db)}
    assert undone == {first: False, second: True, third: False}
    assert [o.id for o in facts.operations(db, 1)] == [third]
    assert facts.operations(db, 0) == []


@pytest.mark.parametrize("seed", range(10))
def test_undone_operations_against_a_model(db: Database, seed: int) -> None:
    rng = random.Random(seed)
    log: list[tuple[int, int | None]] = []
    for _ in range(20):
        undoes = rng.choice(log)[0] if log and rng.random() < 0.6 else None
        log.append((facts.log_operation(db, "x", "", [], {}, {}, undoes=undoes), undoes))

    def undone(number: int) -> bool:
        return any(not undone(one) for one, of in log if of == number)

    assert {o.id: o.undone for o in facts.operations(db)} == {n: undone(n) for n, _ in log}
