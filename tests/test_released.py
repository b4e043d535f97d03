"""What a released dlv wrote opens in this one, whole, and no newer one is touched."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

import dlv.api as api
import dlv.cli as cli
import dlv.metadata.database as database
import dlv.recovery.rebuild as rebuild
import dlv.repository.git_files as git_files
import dlv.upkeep.check as check
from dlv.errors import Damaged, StorageError
from dlv.metadata import dump
from dlv.metadata.database import SCHEMA_VERSION
from dlv.repository.handle import Repository
from tests.released import NEWEST, RELEASES, Released, rows, schema, unpack

# In this order in one folder; what needs a newer fixture is in the second list.
VERBS = """
status
list --removed
list --names
log --all --graph
desc lenet@2
diff lenet@1 lenet@2
diff lenet@1 lenet@2 --tensors --network --params
show lenet@2
show lenet@2:src/model.py
metrics lenet@1 lenet@2
plots lenet@1 lenet@2 --metric loss
stats
tag
config
checkout lenet@1 --to there
export lenet@2 out.safetensors
eval lenet@2 test.npz --no-save
archive --dry-run
gc --dry-run
fsck
fsck --quick
query 'select m'
add notes.txt
commit -m afterwards
tag again lenet@1
rm -f wide@1
undo 2
copy lenet@2 narrow
import checkpoints out.safetensors --name back
archive
gc --keep-last 2 -y
gc --grace 0 -y
fsck --rebuild
fsck
""".strip().splitlines()
NEWER = """
eval lenet@2 test.npz --no-save --progressive
query good -P least=0.9
query --show good
trials
trials latest
metrics lenet@2 --metric a/*
fsck
""".strip().splitlines()


@pytest.fixture(params=RELEASES)
def released(request: pytest.FixtureRequest, tmp_path: Path) -> Released:
    return unpack(request.param, tmp_path)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_there_is_one_for_each_schema() -> None:
    """A release with a new schema of the catalogue adds its own."""
    assert [int(name.removeprefix("schema-")) for name in RELEASES][:3] == [1, 2, 3]


def test_everything_is_there(released: Released) -> None:
    """Every byte that was put in comes out, by hashes that dlv has not computed."""
    assert schema(released.database) == released.expected["schema"]
    with api.open(released.root) as repo:
        assert repo.repository.database.as_made()
        assert schema(released.database) == SCHEMA_VERSION
        assert {f"{v.name}@{v.number}": v.id for v in repo} == released.expected["versions"]
        for label, snapshots in released.expected["tensors"].items():
            version = repo[label]
            for step, tensors in snapshots.items():
                weights = version.at(int(step)).state_dict()
                assert {k: _hash(weights[k].tobytes()) for k in weights} == tensors, (label, step)
        store = git_files.FileStore(repo.repository.files_git)
        for label, held in released.expected["files"].items():
            entries = {entry.path: entry for entry in repo[label].manifest.files}
            assert {path: _hash(store.read(entries[path])) for path in held} == held
        for name, digest in released.expected["tags"].items():
            assert repo[name].id == digest


def test_nothing_is_wrong_with_it(released: Released) -> None:
    """Nor is a catalogue rebuilt from its files another one."""
    with api.open(released.root) as repo:
        repository = repo.repository
        report = check.check(repository)
        assert report.faults == []
        assert report.checked["manifests"] >= len(released.expected["versions"])
        before = dump.content(repository.database)
    for path in released.root.glob(".dlv/dlv.db*"):
        path.unlink()
    with Repository.find(released.root) as repository:
        assert check.rebuild(repository).faults == []
        after = dump.content(repository.database)
    assert [name for name in before if before[name] != after[name]] == []


def test_it_changes_as_a_whole_or_not_at_all(
    released: Released, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only the old catalogue knows is taken over; if that fails, the old one stays."""
    before = rows(released.database)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rebuild, "_swap", fail)
    with pytest.raises(KeyboardInterrupt):
        api.open(released.root)
    assert (schema(released.database), rows(released.database)) == (
        released.expected["schema"],
        before,
    )
    monkeypatch.undo()
    api.open(released.root).close()
    assert schema(released.database) == SCHEMA_VERSION
    after = rows(released.database)
    assert all(after[name] == before[name] for name in ("staged", "seen", "operation"))
    assert {name: len(after[name]) for name in before} == {
        name: len(held) for name, held in before.items()
    }


@pytest.mark.parametrize("how", ["--rebuild", "--repair"])
def test_fsck_makes_it_again(
    released: Released, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Repository.find(released.root) as repository, pytest.raises(Damaged) as caught:
        assert repository.database
    assert caught.value.hint == "dlv fsck --rebuild"
    assert cli.run(["-C", str(released.root), "fsck", how]) == 0
    assert "an older dlv" not in capsys.readouterr().err
    assert cli.run(["-C", str(released.root), "fsck"]) == 0
    assert schema(released.database) == SCHEMA_VERSION


def test_any_other_command_makes_it_again_and_says_so(
    released: Released, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for _ in range(2):
        assert cli.run(["-C", str(released.root), "list"]) == 0
        said.append(capsys.readouterr())
    assert "an older dlv" in said[0].err
    assert said[1].err == ""
    assert said[0].out == said[1].out


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == NEWEST else pytest.mark.slow, id=name)
        for name in RELEASES
    ],
)
def test_every_verb(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    released = unpack(name, tmp_path)
    lines: Sequence[str] = VERBS
    if released.expected["schema"] >= 3:
        lines = [*NEWER, *VERBS]
    for line in lines:
        code = cli.run(["-C", str(released.root), *shlex.split(line)])
        assert code == 0, (line, capsys.readouterr())


def _newer(released: Released, what: str) -> None:
    if what == "database":
        with api.open(released.root) as repo:
            repo.repository.database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    else:
        told = {"format": 2, "writer": "dlv 7.1"}
        (released.root / ".dlv" / "format.json").write_text(json.dumps(told))


@pytest.mark.parametrize("what", ["database", "repository"])
def test_a_newer_one_is_refused(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By reading, writing and mending commands alike, and nothing is touched."""
    released = unpack(NEWEST, tmp_path)
    _newer(released, what)
    before = {p: p.read_bytes() for p in sorted(released.root.rglob("*")) if p.is_file()}
    for line in ("list", "commit -m x", "gc --grace 0 -y", "fsck", "fsck --repair"):
        assert cli.run(["-C", str(released.root), *line.split()]) == 3, line
        said = capsys.readouterr().err
        assert "newer dlv" in said or "repository format 2" in said
        assert f"number {SCHEMA_VERSION + 1}" in said or "dlv 7.1" in said
        assert "pip install --upgrade dlv" in said
    after = {p: p.read_bytes() for p in sorted(released.root.rglob("*")) if p.is_file()}
    assert {p for p in after if before.get(p) != after[p]} <= {
        released.root / ".dlv" / name for name in ("dlv.db-wal", "dlv.db-shm", "gc.lock")
    }
    assert before.keys() <= after.keys()


def test_where_it_may_not_be_written_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = unpack(NEWEST, tmp_path)
    before = found.database.read_bytes()
    monkeypatch.setattr(database.Database, "read_only", True)
    monkeypatch.setattr(database, "is_read_only", lambda _: True)
    refused = pytest.raises(StorageError, match="an older dlv")
    with api.open(found.root) as repo, refused as caught:
        list(repo)
    assert caught.value.hint is not None
    assert "dlv status" in caught.value.hint
    assert found.database.read_bytes() == before
