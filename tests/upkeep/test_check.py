"""fsck finds what is wrong, names it, and says which versions it reaches."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dlv.disk.durable as durable
import dlv.upkeep.check as check
from dlv.errors import Damaged
from dlv.metadata import versions
from dlv.pas.packs import Pack
from dlv.repository.handle import Repository
from dlv.upkeep.check import Fault

ALL = ("lenet@1", "lenet@2", "lenet@4", "wide@1", "wide@2")


def flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def id_of(repository: Repository, text: str) -> str:
    name, _, number = text.partition("@")
    found = versions.by_number(repository.database, name, int(number))
    assert found is not None
    return found.id


def only(report: check.Report) -> Fault:
    assert len(report.faults) == 1, report.faults
    return report.faults[0]


def holders(repository: Repository, digest: str) -> set[str]:
    """Labels of the versions whose manifest holds the hash, read as plain text."""
    return {
        label
        for label in ALL
        if digest
        in durable.path_of(repository.manifests, id_of(repository, label), ".json").read_text()
    }


def test_nothing_wrong(lived: Repository) -> None:
    seen: list[int] = []
    report = check.check(lived, progress=seen.append)
    assert (report.faults, report.dangling, report.damaged) == ([], [], False)
    assert report.checked["manifests"] == 5  # not the undone one
    assert report.checked["facts"] == len(list(lived.facts.glob("*/*.json")))
    assert report.checked["packs"] == len(list(lived.packs.glob("*/*.pack")))
    assert sum(seen) == sum(path.stat().st_size for path in lived.packs.glob("*/*.pack"))
    assert not list(lived.cache.iterdir())


def test_it_changes_nothing(lived: Repository) -> None:
    def state() -> dict[str, bytes]:
        return {
            str(path): path.read_bytes()
            for path in lived.path.rglob("*")
            if path.is_file() and not path.name.startswith("dlv.db-")
        }

    before = state()
    check.check(lived)
    assert state() == before


def test_a_chunk(lived: Repository) -> None:
    """The matrices in it and the versions that hold them, no others."""
    for path in lived.packs.glob("*/*.pack"):
        with Pack(path) as pack:
            matrices = [entry.matrix for entry in pack.encodings]
            for chunk in pack.chunks:
                if chunk.kind != "plane":
                    continue
                lost = {matrices[owner] for owner, _, _ in chunk.members if isinstance(owner, int)}
                flip(path, chunk.offset)
                report = check.check(lived)
                found = {fault.kind: fault for fault in report.faults}
                assert found["pack"].object == path.stem
                assert set(found["pack"].matrices) == lost
                reached = {label for matrix in lost for label in holders(lived, matrix)}
                assert set(found["pack"].versions) == reached
                assert {f.object for f in report.faults if f.kind == "tensor"} == {
                    matrix for matrix in lost if holders(lived, matrix)
                }
                flip(path, chunk.offset)


def test_curves_network_and_skeletons(lived: Repository) -> None:
    """Also the points, which only the head of their series names."""
    kinds = set()
    for path in lived.packs.glob("*/*.pack"):
        with Pack(path) as pack:
            for chunk in pack.chunks:
                if chunk.kind == "plane":
                    continue
                kinds.add(chunk.kind)
                flip(path, chunk.offset)
                report = check.check(lived)
                reached = {label for fault in report.faults for label in fault.versions}
                names = [owner for owner, _, _ in chunk.members if isinstance(owner, str)]
                expected = {label for name in names for label in holders(lived, name)}
                assert reached >= expected
                if chunk.kind == "points":
                    assert reached
                assert report.damaged
                flip(path, chunk.offset)
    assert kinds == {"network", "series", "points", "skeleton"}
    assert check.check(lived).faults == []


@pytest.mark.parametrize("how", ["cut", "gone", "footer"])
def test_a_pack(lived: Repository, how: str) -> None:
    path = max(lived.packs.glob("*/*.pack"), key=lambda p: p.stat().st_size)
    with Pack(path) as pack:
        matrices = {entry.matrix for entry in pack.encodings}
    if how == "cut":
        with path.open("r+b") as file:
            file.truncate(100)
    elif how == "gone":
        path.unlink()
    else:
        flip(path)
    for quick in (True, False):
        report = check.check(lived, quick=quick)
        fault = next(fault for fault in report.faults if fault.kind == "pack")
        assert fault.object == path.stem
        # With the footer alone, what lies before it is still whole.
        expected = set() if how == "footer" else matrices
        assert set(fault.matrices) == expected
        reached = {label for matrix in expected for label in holders(lived, matrix)}
        assert set(fault.versions) >= reached


def test_quick_reads_no_weights(lived: Repository) -> None:
    path = max(lived.packs.glob("*/*.pack"), key=lambda p: p.stat().st_size)
    flip(path, 2000)
    report = check.check(lived, quick=True)
    assert report.faults == []
    assert "matrices" not in report.checked
    assert check.check(lived).damaged


@pytest.mark.parametrize("how", ["flip", "gone", "not canonical"])
def test_a_manifest(lived: Repository, how: str) -> None:
    victim = id_of(lived, "lenet@2")
    path = durable.path_of(lived.manifests, victim, ".json")
    if how == "flip":
        flip(path, 30)
    elif how == "gone":
        path.unlink()
    else:
        path.write_bytes(json.dumps(json.loads(path.read_bytes())).encode())
    lived.close()
    report = check.check(Repository.find(lived.root))
    assert ("manifest", victim, ("lenet@2",)) in [
        (fault.kind, fault.object, fault.versions) for fault in report.faults
    ]
    assert {label for fault in report.faults for label in fault.versions} == {"lenet@2"}


def test_a_fact(lived: Repository) -> None:
    victim = id_of(lived, "wide@2")
    for path in lived.facts.glob("*/*.json"):
        fact = json.loads(path.read_bytes())
        if fact["subject"] == victim and fact["kind"] == "number":
            flip(path, 30)
            report = check.check(lived)
            assert ("fact", path.stem, ("wide@2",)) in [
                (fault.kind, fault.object, fault.versions) for fault in report.faults
            ]


def test_a_file_and_its_tree(lived: Repository) -> None:
    manifest = lived.manifest(id_of(lived, "wide@2"))
    entry = next(file for file in manifest.files if file.path == "src/model.py")
    objects = lived.files_git / "objects"
    blob = objects / entry.git[:2] / entry.git[2:]
    blob.chmod(0o644)
    flip(blob)
    fault = only(check.check(lived))
    assert fault.kind == "file"
    assert set(fault.versions) == holders(lived, entry.git) >= {"wide@2"}
    assert entry.path in fault.object
    flip(blob)
    assert manifest.tree is not None
    tree = objects / manifest.tree[:2] / manifest.tree[2:]
    tree.unlink()
    report = check.check(lived)
    assert {fault.kind for fault in report.faults} <= {"tree", "files.git"}
    assert any("wide@2" in fault.versions for fault in report.faults)


def test_a_commit_and_a_reference_of_git(lived: Repository) -> None:
    reference = next(lived.files_git.glob("refs/versions/*"))
    flip(reference, 0)
    fault = only(check.check(lived))
    assert (fault.kind, fault.object) == ("files.git", f"refs/versions/{reference.name}")
    flip(reference, 0)
    (lived.files_git / "objects" / reference.name[:2] / reference.name[2:]).unlink()
    assert only(check.check(lived)).object == reference.name


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("UPDATE version SET message = 'other' WHERE number = 2", "version"),
        ("UPDATE version SET number = 9 WHERE number = 2 AND name = 'lenet'", "version"),
        ("UPDATE version SET state = 'live'", "version"),
        ("DELETE FROM tag", "tag"),
        ("UPDATE hyperparameter SET num = 9", "hyperparameter"),
        ("UPDATE metric SET last = 9", "metric"),
        ("UPDATE snapshot_matrix SET matrix_id = 1", "snapshot"),
        ("UPDATE snapshot SET removed = 0", "snapshot"),
        ("UPDATE encoding SET planes = 1", "encoding"),
        ("UPDATE chunk SET offset = offset + 1", "chunk"),
        ("UPDATE member SET at = at + 1", "chunk"),
        ("UPDATE file SET git = 'x'", "file"),
        ("DELETE FROM fact WHERE kind = 'tag'", "tag"),
        ("UPDATE fact SET data = '{}'", "fact"),
        ("DELETE FROM edge", "edge"),
        ("DELETE FROM parent", "parent"),
        ("UPDATE state SET value = 'x' WHERE key = 'HEAD'", "dlv.db"),
        ("INSERT OR REPLACE INTO state VALUES ('next', '[')", "dlv.db"),
        ("UPDATE operation SET facts = '{'", "dlv.db"),
        ("UPDATE staged SET options = x'ff'", "dlv.db"),
        ("DROP INDEX version_time", "dlv.db"),
        ("UPDATE version SET message = CAST(x'ff' AS TEXT)", "dlv.db"),
    ],
)
def test_a_row(lived: Repository, sql: str, named: str) -> None:
    lived.database.execute("PRAGMA foreign_keys = OFF")
    lived.database.execute(sql)
    report = check.check(lived)
    assert report.damaged
    assert {fault.kind for fault in report.faults} == {"database"}
    assert named in " ".join(fault.object for fault in report.faults)
    assert check.rebuild(lived).faults == []


def test_lost_rows_of_chunks_are_noticed(lived: Repository) -> None:
    lived.database.execute("DELETE FROM member WHERE chunk_id % 2")
    assert check.check(lived).damaged


def test_only_some_versions(lived: Repository) -> None:
    victim = lived.manifest(id_of(lived, "lenet@2"))
    entry = next(file for file in victim.files if file.path == "log.csv")
    (lived.files_git / "objects" / entry.git[:2] / entry.git[2:]).unlink()
    assert check.check(lived, ["lenet@1"]).faults == []
    assert check.check(lived, ["lenet@1"]).checked["manifests"] == 1
    assert {label for f in check.check(lived, ["lenet@2"]).faults for label in f.versions} == {
        "lenet@2"
    }


def test_what_a_commit_left_behind_is_no_fault(
    lived: Repository, commit_model: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects whose transaction never came."""
    monkeypatch.setattr("dlv.repository.change_marks.Marks.end", lambda marks, facts: None)  # noqa: ARG005
    lived.database.checkpoint()
    shutil.copyfile(lived.database_file, lived.path / "saved")
    commit_model(lived, "lenet", {"w": np.ones((2, 2), "f4")}, files={"lost.py": "x"})
    lived.close()
    for path in lived.path.glob("dlv.db*"):
        path.unlink()
    (lived.path / "saved").rename(lived.database_file)
    report = check.check(lived)
    assert report.faults == []
    assert sorted(kind for kind, _ in report.dangling) == ["fact", "manifest", "pack"]


def test_without_a_catalogue(lived: Repository) -> None:
    lived.close()
    for path in lived.path.glob("dlv.db*"):
        path.unlink()
    with pytest.raises(Damaged, match="missing") as caught:
        check.check(lived)
    assert caught.value.hint is not None
    assert "--rebuild" in caught.value.hint
    report = check.rebuild(lived)
    assert (report.rebuilt, report.faults) == (6, [])


def test_a_newer_object_is_no_damage(lived: Repository) -> None:
    """A fact of an unknown kind was written by a newer dlv: said, but not called damage."""
    report = check.Report()
    report.faults.append(Fault("fact", "x", "unknown kind", newer=True))
    assert not report.damaged
