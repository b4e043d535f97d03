"""Rows of versions, and the ways to find them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from dlv.metadata import facts, metrics, versions
from dlv.metadata.database import Database
from dlv.metadata.matrices import PackIndex
from dlv.objects.fact import Fact
from dlv.objects.manifest import FileEntry, Manifest, Parent, Snapshot, TensorEntry

Make = Callable[..., Manifest]


def insert(db: Database, manifest: Manifest, number: int | None = None) -> int:
    number = versions.next_number(db, manifest.name) if number is None else number
    return versions.insert(db, manifest, number=number, net_id=None, summaries=[])


def remove(db: Database, version: str) -> None:
    moment = facts.moment_after(db, "removal", version)
    facts.record(db, Fact("removal", version, "me", moment, {"steps": None}))


def tag(db: Database, name: str, version: str) -> None:
    moment = facts.moment_after(db, "tag", name)
    facts.record(db, Fact("tag", name, "me", moment, {"version": version}))


def test_a_row_says_what_the_manifest_says(db: Database, manifest: Make) -> None:
    first = manifest(1)
    insert(db, first)
    made = manifest(
        2,
        parents=(Parent(first.id, "copy"), Parent("f" * 64)),
        environment={"git": {"head": None, "dirty": True}},
    )
    tag(db, "b", made.id)
    key = insert(db, made)
    facts.settle_tag(db, "b")
    tag(db, "a", made.id)
    found = versions.by_id(db, made.id)
    assert found == versions.Version(
        key=key,
        id=made.id,
        name="lenet",
        number=2,
        created=made.created,
        author="me",
        message="number 2",
        framework=None,
        dirty=True,
        state="live",
        network=None,
        tags=("a", "b"),
        parents=((first.id, "copy"), ("f" * 64, "commit")),
    )
    assert found.label == "lenet@2"


@pytest.mark.parametrize("git", [None, {}, {"dirty": "unknown"}, [], "x", 5])
def test_git_states_that_say_nothing(db: Database, manifest: Make, git: Any) -> None:
    made = manifest(1, environment={"git": git})
    insert(db, made)
    found = versions.by_id(db, made.id)
    assert found is not None
    assert found.dirty is None


@pytest.mark.parametrize(
    "created",
    ["1000-01-01T00:00:00.000000Z", "1969-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"],
)
def test_times_come_back(db: Database, manifest: Make, created: str) -> None:
    made = manifest(1, created=created)
    insert(db, made)
    found = versions.by_id(db, made.id)
    assert found is not None
    assert found.created == created


def test_numbers_are_never_used_again(db: Database, manifest: Make) -> None:
    assert versions.next_number(db, "lenet") == 1
    for number in (1, 2, 3):
        insert(db, manifest(number))
    remove(db, manifest(3).id)
    assert versions.next_number(db, "lenet") == 4
    assert versions.next_number(db, "other") == 1


def test_finding(db: Database, manifest: Make) -> None:
    made = [manifest(n) for n in (1, 2, 3)] + [manifest(9, name="other")]
    for one in made:
        insert(db, one)
    ids = [one.id for one in made]

    def found(version: versions.Version | None) -> str | None:
        return None if version is None else version.id

    assert found(versions.by_number(db, "lenet", 2)) == ids[1]
    assert found(versions.by_number(db, "lenet", 4)) is None
    assert found(versions.latest(db, "lenet")) == ids[2]
    assert found(versions.latest(db, "nothing")) is None
    assert [v.id for v in versions.by_prefix(db, ids[0][:8])] == [ids[0]]
    assert sorted(v.id for v in versions.by_prefix(db, "")) == sorted(ids)
    assert [v.id for v in versions.all_versions(db)] == [ids[3], ids[2], ids[1], ids[0]]
    assert [v.id for v in versions.of_name(db, "lenet")] == ids[:3]
    assert versions.names(db) == ["lenet", "other"]
    remove(db, ids[2])
    remove(db, ids[3])
    assert found(versions.latest(db, "lenet")) == ids[1]
    assert found(versions.by_number(db, "lenet", 3)) == ids[2]
    assert [v.id for v in versions.all_versions(db)] == [ids[1], ids[0]]
    assert [v.id for v in versions.all_versions(db, ["removed"])] == [ids[3], ids[2]]
    assert versions.names(db) == ["lenet"]


def test_many_versions_share_a_prefix(db: Database, manifest: Make) -> None:
    for number in range(1, 41):
        insert(db, manifest(number))
    assert len(versions.by_prefix(db, "")) == 10


def test_lineage(db: Database, manifest: Make) -> None:
    """1 <- 2 <- 4, 1 <- 3 <- 4; the children are there before their parents."""
    one = manifest(1)
    two, three = (manifest(n, parents=(Parent(one.id),)) for n in (2, 3))
    four = manifest(4, parents=(Parent(two.id), Parent(three.id), Parent("f" * 64)))
    keys = {m.id: insert(db, m, n) for n, m in ((4, four), (2, two), (1, one), (3, three))}
    by_key = {key: name for name, key in keys.items()}
    assert db.rows("SELECT derived, pos, base FROM parent ORDER BY derived, pos") == [
        (keys[four.id], 0, keys[two.id]),
        (keys[four.id], 1, keys[three.id]),
        (keys[four.id], 2, None),
        (keys[two.id], 0, keys[one.id]),
        (keys[three.id], 0, keys[one.id]),
    ]
    assert [v.id for v in versions.ancestors(db, keys[four.id])] == [
        m.id for m in (four, three, two, one)
    ]
    assert {v.id for v in versions.children(db, keys[one.id])} == {two.id, three.id}
    assert [by_key[v.key] for v in versions.children(db, keys[two.id])] == [four.id]


def test_tensor_lists_and_matrices_are_shared(db: Database, manifest: Make) -> None:
    first = manifest(1, steps=(10, None))
    second = dataclasses.replace(manifest(2), snapshots=first.snapshots)
    insert(db, first)
    key = insert(db, second)
    insert(db, manifest(3, steps=()))
    assert db.value("SELECT count(*) FROM tensor_list") == 1
    assert db.rows("SELECT name, dtype, shape, role, tied FROM tensor ORDER BY pos") == [
        ("w", "float32", "[2, 3]", "weight", None),
        ("b", "float32", "[3]", "weight", None),
    ]
    assert db.value("SELECT count(*) FROM matrix") == 4
    assert db.value("SELECT count(*) FROM snapshot_matrix") == 8
    rows = versions.snapshots(db, key)
    assert [(r.index, r.step, r.own, r.removed) for r in rows] == [
        (0, 10, True, False),
        (1, None, False, False),
    ]


def test_absent_tensors_have_no_row(db: Database, manifest: Make) -> None:
    tensors = (TensorEntry("w", "float32", (1,)), TensorEntry("v", "float32", (1,)))
    made = manifest(1, tensors=tensors, snapshots=(Snapshot(None, (None, "1" * 64)),), own=0)
    insert(db, made)
    assert db.rows(
        "SELECT pos, hash FROM snapshot_matrix JOIN matrix ON matrix.id = matrix_id"
    ) == [(1, "1" * 64)]


def test_files(db: Database, manifest: Make) -> None:
    entry = FileEntry("a.py", "file", "100755", 3, "1" * 64, "2" * 40)
    key = insert(db, manifest(1, files=(entry,), tree="3" * 40))
    assert db.rows("SELECT * FROM file") == [(key, "a.py", "file", "100755", 3, "1" * 64, "2" * 40)]


# Look-ups that every command makes must not read whole tables.


def test_frequent_look_ups_use_indices(db: Database, manifest: Make) -> None:
    key = insert(db, manifest(1, steps=(10, 20)))
    index = PackIndex(db)
    look_ups: dict[str, Callable[[], Any]] = {
        "by_id": lambda: versions.by_id(db, "1" * 64),
        "by_prefix": lambda: versions.by_prefix(db, "12ab"),
        "by_number": lambda: versions.by_number(db, "lenet", 1),
        "latest": lambda: versions.latest(db, "lenet"),
        "by_tag": lambda: versions.by_tag(db, "paper"),
        "of_name": lambda: versions.of_name(db, "lenet"),
        "next_number": lambda: versions.next_number(db, "lenet"),
        "children": lambda: versions.children(db, key),
        "ancestors": lambda: versions.ancestors(db, key),
        "snapshots": lambda: versions.snapshots(db, key),
        "metrics": lambda: metrics.of_version(db, key),
        "newest": lambda: facts.newest(db, "tag", "paper"),
        "is_undone": lambda: facts.is_undone(db, "1" * 64),
        "moment_after": lambda: facts.moment_after(db, "tag", "paper"),
        "settle": lambda: facts.settle_version(db, manifest(1, steps=(10, 20)).id),
        "state": lambda: facts.state(db, "HEAD"),
        "encoding": lambda: index.encoding("1" * 64),
        "chunks": lambda: index.chunks("1" * 64),
        "objects": lambda: index.object_chunks("series", "1" * 64),
        "insert": lambda: insert(db, manifest(2, parents=(Parent(manifest(1).id),))),
    }
    # `line` and `json_each` are made by the query itself.
    tables = {row[0] for row in db.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    for name, look_up in look_ups.items():
        seen: list[str] = []
        db._connection.set_trace_callback(seen.append)
        look_up()
        db._connection.set_trace_callback(None)
        assert seen, name
        for sql in seen:
            if not sql.lstrip().startswith(("SELECT", "UPDATE", "DELETE", "WITH", "INSERT")):
                continue
            plan = [str(row[3]) for row in db.rows(f"EXPLAIN QUERY PLAN {sql}")]
            scans = [
                step for step in plan if step.startswith("SCAN ") and step.split()[1] in tables
            ]
            assert not scans, (name, sql, plan)
