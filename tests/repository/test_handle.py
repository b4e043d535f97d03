"""A repository: found, made, locked; changes that are whole or not at all."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dlv
import dlv.canonical as canonical
from dlv.config import author_of
from dlv.errors import (
    Conflict,
    Damaged,
    DlvError,
    NewerFormat,
    NotARepository,
    StorageError,
    UnsafeInput,
    UsageError,
)
from dlv.metadata import facts, versions
from dlv.objects.fact import decode_fact
from dlv.objects.manifest import Manifest
from dlv.repository.handle import Repository, read_object, stored

HOME = str(Path(dlv.__file__).parent.parent)
MADE = Manifest("net", "m", "me", "2026-01-01T00:00:00.000000Z")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.init(tmp_path)[0]


def enter(repository: Repository, manifest: Manifest = MADE) -> str:
    version_id = repository.write_manifest(manifest)
    with repository.change("commit", "me") as change:
        number = versions.next_number(change.db, manifest.name)
        versions.insert(change.db, manifest, number=number, net_id=None, summaries=[])
        change.record("number", version_id, {"name": manifest.name, "number": number})
        change.set_head(version_id)
        change.summary = f"net@{number}"
    return version_id


def files_of(root: Path) -> list[str]:
    return sorted(path.stem for path in root.rglob("*.json"))


# Finding and making


def test_init(tmp_path: Path) -> None:
    repository, new = Repository.init(tmp_path / "a/b")
    assert new
    assert repository.root == tmp_path / "a/b"
    assert sorted(path.name for path in repository.path.iterdir()) == [
        *(".gitignore", "cache", "config.toml", "dlv.db", "facts", "files.lock"),
        *("format.json", "gc.lock", "manifests", "packs", "tmp"),
    ]
    assert json.loads((repository.path / "format.json").read_text())["format"] == 1
    repository.config_file.write_text("[user]\nname = 'x'\n")
    again, new = Repository.init(tmp_path / "a/b")
    assert not new
    assert again.config_file.read_text() == "[user]\nname = 'x'\n"


def test_git_does_not_see_it(tmp_path: Path) -> None:
    environ = dict(os.environ, GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_NOSYSTEM="1")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True, env=environ)
    enter(Repository.init(tmp_path)[0])
    done = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        env=environ,
    )
    assert done.stdout == b""


def test_find(tmp_path: Path) -> None:
    with pytest.raises(NotARepository) as found:
        Repository.find(tmp_path)
    assert (found.value.exit_code, found.value.hint) == (3, "to create one: dlv init")
    Repository.init(tmp_path / "p")
    (tmp_path / "p/deep/er").mkdir(parents=True)
    (tmp_path / "link").symlink_to("p/deep")
    for start in ("p", "p/deep/er", "link", "link/er"):
        assert Repository.find(tmp_path / start).root == tmp_path / "p"
    inner, _ = Repository.init(tmp_path / "p/deep")
    assert Repository.find(tmp_path / "p/deep/er").root == inner.root


def test_dlv_dir(tmp_path: Path) -> None:
    repository, _ = Repository.init(tmp_path / "p")
    assert Repository.find(Path("/"), str(repository.path)).root == tmp_path / "p"
    with pytest.raises(NotARepository, match="DLV_DIR"):
        Repository.find(tmp_path / "p", str(tmp_path))
    (tmp_path / "link").symlink_to("p")
    assert Repository.find(Path("/"), str(tmp_path / "link/.dlv")).root == tmp_path / "p"


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / ".dlv").write_text("x")
    with pytest.raises(Conflict) as found:
        Repository.init(tmp_path)
    assert found.value.exit_code == 5
    (tmp_path / "file").write_text("x")
    with pytest.raises(Conflict):
        Repository.init(tmp_path / "file/sub")


def test_an_init_that_was_interrupted_is_completed(tmp_path: Path) -> None:
    for half in (["packs"], ["packs", "manifests"], ["packs", "manifests", "dlv.db"]):
        place = tmp_path / f"p{len(half)}"
        (place / ".dlv").mkdir(parents=True)
        for name in half:
            if name == "dlv.db":
                (place / ".dlv" / name).touch()
            else:
                (place / ".dlv" / name).mkdir()
        repository, _ = Repository.init(place)
        enter(repository)
        assert len(versions.all_versions(Repository.find(place).database)) == 1


def test_a_newer_repository(repository: Repository) -> None:
    (repository.path / "format.json").write_bytes(b'{"format":2,"writer":"dlv 9.0.0"}')
    for call in (
        lambda: Repository.find(repository.root),
        lambda: Repository.init(repository.root),
    ):
        with pytest.raises(NewerFormat) as found:
            call()
        assert found.value.exit_code == 3
        assert "dlv 9.0.0" in (found.value.why or "")


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"{", b"5", b"[" * 1000])
def test_a_damaged_format_file(repository: Repository, content: bytes) -> None:
    (repository.path / "format.json").write_bytes(content)
    with pytest.raises((Damaged, NewerFormat)):
        Repository.find(repository.root)


def test_a_lost_format_file_is_written_again(repository: Repository) -> None:
    made = enter(repository)
    (repository.path / "format.json").unlink()
    with pytest.raises(Damaged, match=r"format\.json is lost"):
        Repository.find(repository.root)
    repository.close()
    assert Repository.init(repository.root)[0].head == made


@pytest.mark.parametrize("how", ["gone", "empty", "headless", "garbage"])
def test_a_lost_catalogue_is_never_taken_for_an_empty_one(repository: Repository, how: str) -> None:
    enter(repository)
    repository.close()
    path = repository.database_file
    for journal in repository.path.glob("dlv.db-*"):
        journal.unlink()
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(
            {"empty": b"", "headless": path.read_bytes()[:60], "garbage": b"x" * 999}[how]
        )
    with pytest.raises(Damaged) as found:
        Repository.find(repository.root).head  # noqa: B018
    assert found.value.exit_code == 6
    assert found.value.hint == "dlv fsck --rebuild"
    (repository.path / "format.json").unlink()
    with pytest.raises(Damaged):
        Repository.init(repository.root)


# Changes


def test_a_change_is_in_files_and_catalogue(repository: Repository) -> None:
    made = enter(repository)
    assert repository.head == made
    [digest] = files_of(repository.facts)
    fact = decode_fact(read_object(repository.facts, digest, "fact"))
    assert (fact.kind, fact.subject, fact.author) == ("number", made, "me")
    [operation] = facts.operations(repository.database)
    assert (operation.verb, operation.summary, operation.facts) == ("commit", "net@1", (digest,))
    assert operation.before == {"HEAD": None, "next": None}
    assert operation.after == {"HEAD": made, "next": None}
    assert list(repository.tmp.iterdir()) == []


def test_a_change_that_fails_leaves_no_fact(repository: Repository) -> None:
    made = enter(repository)
    before = files_of(repository.facts)

    def fail(error: BaseException) -> None:
        with repository.change("tag", "me") as change:
            change.record("tag", "paper", {"version": made})
            change.set_head(None)
            change.set_next("x")
            assert versions.by_tag(change.db, "paper") is not None
            raise error

    for error in (KeyError("x"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            fail(error)
    assert files_of(repository.facts) == before
    assert repository.head == made
    assert repository.next is None
    assert versions.tags(repository.database) == []
    assert len(facts.operations(repository.database)) == 1


def test_records_are_chained_and_checked(repository: Repository) -> None:
    made = enter(repository)
    canonical.fix_clock(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    try:
        with repository.change("tag", "me") as change:
            first = change.record("tag", "paper", {"version": made})
        canonical.fix_clock(datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC))
        with repository.change("tag", "me") as change:
            second = change.record("tag", "paper", {"version": None})
    finally:
        canonical.fix_clock(None)
    assert first.replaces is None
    assert second.replaces == first.hash
    assert second.created > first.created
    assert versions.tags(repository.database) == []
    with pytest.raises(Damaged), repository.change("tag", "me") as change:
        change.record("tag", "paper", {"version": "no hash"})


def test_next(repository: Repository) -> None:
    with repository.change("copy") as change:
        change.set_next("fine", "copy")
    assert repository.next == ("fine", "copy")
    assert Repository.find(repository.root).next == ("fine", "copy")


def test_changes_take_turns(repository: Repository) -> None:
    made = enter(repository)
    code = """
import sys
from pathlib import Path
from dlv.repository.handle import Repository
with Repository.find(Path(sys.argv[1])) as repository:
    for turn in range(5):
        with repository.change("tag", "me") as change:
            change.record("tag", "shared", {"version": sys.argv[2]})
            change.record("tag", f"own{sys.argv[3]}-{turn}", {"version": sys.argv[2]})
"""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(repository.root), made, str(number)],
            env=dict(os.environ, PYTHONPATH=HOME),
            stderr=subprocess.PIPE,
        )
        for number in range(3)
    ]
    for writer in writers:
        _, err = writer.communicate(timeout=120)
        assert (writer.returncode, err) == (0, b"")
    assert len(versions.tags(repository.database)) == 16
    assert len(files_of(repository.facts)) == 31
    db = repository.database
    rows = db.rows("SELECT created FROM fact WHERE subject = 'shared'")
    assert len(set(rows)) == 15


# Locks


def test_writers_share_and_gc_waits(repository: Repository) -> None:
    with repository.writing(), repository.writing():
        descriptor = os.open(repository.path / "gc.lock", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.close(descriptor)
    with repository.alone("gc.lock"):
        descriptor = os.open(repository.path / "gc.lock", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.close(descriptor)


def test_a_dead_holder_holds_nothing(repository: Repository) -> None:
    code = """
import sys, time
from pathlib import Path
from dlv.repository.handle import Repository
with Repository.find(Path(sys.argv[1])).alone("gc.lock"):
    print("in", flush=True)
    time.sleep(60)
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(repository.root)],
        env=dict(os.environ, PYTHONPATH=HOME),
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"in\n"
    holder.kill()
    holder.communicate(timeout=30)
    started = time.monotonic()
    with repository.alone("gc.lock"):
        assert time.monotonic() - started < 5


def test_writing_clears_what_the_dead_left(repository: Repository) -> None:
    (repository.tmp / "leftover").write_text("x")
    with repository.writing():
        assert list(repository.tmp.iterdir()) == []


# Objects


def test_manifests(repository: Repository) -> None:
    version_id = repository.write_manifest(MADE)
    assert version_id == MADE.id
    path = repository.manifests / version_id[:2] / f"{version_id}.json"
    assert path.read_bytes() == MADE.encode()
    assert Repository(repository.path).manifest(version_id) == MADE
    assert [name for name, _ in stored(repository.manifests, ".json")] == [version_id]
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b'"m"', b'"n"'))
    with pytest.raises(Damaged, match=f"manifest {version_id[:12]} is corrupt"):
        Repository(repository.path).manifest(version_id)
    path.unlink()
    with pytest.raises(Damaged, match="is missing"):
        Repository(repository.path).manifest(version_id)
    path.mkdir()
    with pytest.raises(StorageError):
        Repository(repository.path).manifest(version_id)


def test_a_manifest_that_is_none_is_not_written(repository: Repository) -> None:
    for bad in (Manifest("a/b", "", "", MADE.created), Manifest("net", "", "", "now")):
        with pytest.raises(DlvError):
            repository.write_manifest(bad)
    assert files_of(repository.manifests) == []


# Authors


@pytest.mark.parametrize(
    ("name", "email", "login", "wanted"),
    [
        ("Ada", "a@b.c", "x", "Ada <a@b.c>"),
        ("Ada", "", "x", "Ada"),
        ("", "a@b.c", "ada", "ada <a@b.c>"),
        ("", "", "", "unknown"),
    ],
)
def test_authors(name: str, email: str, login: str, wanted: str) -> None:
    assert author_of(name, email, login) == wanted


@pytest.mark.parametrize("bad", ["a\nb", "a<b", "a>b", "a\0", "a\rb"])
def test_no_authors(bad: str) -> None:
    for name, email in ((bad, ""), ("x", bad)):
        with pytest.raises(UsageError):
            author_of(name, email, "")


def test_a_network_disk_is_written_only_by_the_one_host_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, _ = Repository.init(tmp_path)
    monkeypatch.setattr("dlv.repository.handle.network_disk", lambda path: path == repository.path)
    with pytest.raises(UnsafeInput, match="network file") as caught, repository.writing():
        pass
    assert "core.singlehost" in (caught.value.hint or "")
    repository.single_host = lambda: True
    with repository.writing():
        pass
