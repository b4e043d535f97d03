"""Associated files, written by dlv and read back by git itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dlv.disk.durable as durable
from dlv.canonical import hash_bytes
from dlv.errors import Conflict, Damaged, DlvError
from dlv.objects.manifest import FileEntry
from dlv.repository.git_files import FileStore, Source


def git(store: FileStore, *arguments: str) -> str:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environ |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    return subprocess.run(
        ["git", f"--git-dir={store.path}", *arguments], env=environ, check=True, capture_output=True
    ).stdout.decode()


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    (tmp_path / "tmp").mkdir()
    return FileStore(tmp_path / "files.git")


def source(folder: Path, path: str, content: bytes = b"x", *, mode: int = 0o644) -> Source:
    target = folder / "work" / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    target.chmod(mode)
    return Source(path, target, "file", hash_bytes(content))


def test_git_sees_what_was_stored(store: FileStore, tmp_path: Path) -> None:
    contents = {
        "train.py": b"print()\n",
        "a/b/c.txt": b"deep",
        "a/b.txt": b"between",
        "a.txt": b"before the folder in git's order",
        "a-b": b"",
        "ü/日本.txt": b"\x00\xff" * 500,
    }
    sources = [source(tmp_path, path, data) for path, data in contents.items()]
    sources.append(source(tmp_path, "run.sh", b"#!/bin/sh\n", mode=0o755))
    tree, entries = store.store(sources, [], "net")
    assert git(store, "fsck", "--strict", "--full") == ""
    listed = git(store, "ls-tree", "-r", "-z", tree).rstrip("\0").split("\0")
    assert sorted(listed) == sorted(f"{e.mode} blob {e.git}\t{e.path}" for e in entries)
    assert [e.path for e in entries] == sorted([*contents, "run.sh"])
    for entry in entries:
        data = contents.get(entry.path, b"#!/bin/sh\n")
        assert (entry.bytes, entry.blake3) == (len(data), hash_bytes(data))
        assert store.read(entry) == data
        assert git(store, "hash-object", str(tmp_path / "work" / entry.path)).strip() == entry.git
    assert {e.path: e.mode for e in entries}["run.sh"] == "100755"
    assert store.check(entries) == []
    [reference] = (store.path / "refs/versions").iterdir()
    assert git(store, "rev-parse", f"{reference.name}^{{tree}}").strip() == tree
    assert git(store, "log", "-1", "--format=%s|%an|%at", reference.name) == "net|dlv|0\n"
    assert git(store, "gc", "--prune=now", "--quiet") == ""
    assert all(store.read(entry) for entry in entries if entry.bytes)


@given(
    st.dictionaries(
        st.lists(st.sampled_from(["a", "b", "a.b", "a-", "a0", "Z"]), min_size=1, max_size=4).map(
            "/".join
        ),
        st.binary(max_size=5),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=25, deadline=None)
def test_trees_are_what_git_would_write(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[str, bytes]
) -> None:
    names = set(contents)
    flat = {p: d for p, d in contents.items() if not any(n.startswith(p + "/") for n in names)}
    root = tmp_path_factory.mktemp("trees")
    (root / "tmp").mkdir()
    store = FileStore(root / "files.git")
    tree, entries = store.store([source(root, p, d) for p, d in flat.items()], [], "m")
    lines = "".join(f"{e.mode} {e.git}\t{e.path}\n" for e in entries)
    environ = dict(os.environ, GIT_INDEX_FILE=str(root / "index"))
    command = ["git", f"--git-dir={store.path}"]
    subprocess.run(
        [*command, "update-index", "--index-info"], input=lines.encode(), env=environ, check=True
    )
    done = subprocess.run([*command, "write-tree"], env=environ, check=True, capture_output=True)
    assert done.stdout.decode().strip() == tree


def test_kept_files_stay_and_equal_ones_are_one_object(store: FileStore, tmp_path: Path) -> None:
    first_tree, first = store.store(
        [source(tmp_path, "a.txt", b"same"), source(tmp_path, "b.txt", b"same")], [], "m"
    )
    assert first[0].git == first[1].git
    objects = set(store.path.glob("objects/??/*"))
    tree, entries = store.store([source(tmp_path, "c.txt", b"same")], first, "m")
    assert [e.path for e in entries] == ["a.txt", "b.txt", "c.txt"]
    assert len(set(store.path.glob("objects/??/*")) - objects) == 2  # a tree, a commit
    again, _ = store.store([], first, "m")
    assert (again, tree != first_tree) == (first_tree, True)


def test_a_file_that_is_not_what_was_added(store: FileStore, tmp_path: Path) -> None:
    one = source(tmp_path, "a.txt", b"old")
    one.source.write_bytes(b"new")
    with pytest.raises(Conflict, match=r"a\.txt changed after it was staged"):
        store.store([one], [], "m")
    _, [entry] = store.store([Source("a.txt", one.source, "file", None)], [], "m")
    assert store.read(entry) == b"new"


def test_damage_is_named(store: FileStore, tmp_path: Path) -> None:
    _, entries = store.store(
        [source(tmp_path, name, name.encode() * 50) for name in ("a", "b", "c")], [], "m"
    )

    def object_of(entry: FileEntry) -> Path:
        path = store.path / "objects" / entry.git[:2] / entry.git[2:]
        path.chmod(0o644)
        return path

    content = bytearray(object_of(entries[0]).read_bytes())
    content[len(content) // 2] ^= 1
    object_of(entries[0]).write_bytes(content)
    object_of(entries[1]).unlink()
    faults = {entry.path for entry, _ in store.check(entries)}
    assert faults == {"a", "b"}
    for entry in entries[:2]:
        with pytest.raises(Damaged, match=f"the file {entry.path} is"):
            store.read(entry)
    # What is carried on has to be whole; what is stored anew is repaired.
    with pytest.raises(Damaged):
        store.store([], entries, "m")
    store.store([source(tmp_path, name, name.encode() * 50) for name in ("a", "b")], [], "m")
    assert store.check(entries) == []


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_no_damage_passes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    root = tmp_path_factory.mktemp("flip")
    (root / "tmp").mkdir()
    store = FileStore(root / "files.git")
    content = b"some content " * 20
    _, [entry] = store.store([source(root, "a", content)], [], "m")
    path = store.path / "objects" / entry.git[:2] / entry.git[2:]
    path.chmod(0o644)
    raw = bytearray(path.read_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw))) :]
    path.write_bytes(raw)
    try:
        assert store.read(entry) == content
    except Damaged:
        assert store.check([entry])


def test_a_wrong_entry_is_damage(store: FileStore, tmp_path: Path) -> None:
    tree, [entry] = store.store([source(tmp_path, "a", b"x")], [], "m")
    for git_id in (tree, "0" * 40):
        wrong = FileEntry("a", "file", "100644", 1, entry.blake3, git_id)
        with pytest.raises(Damaged):
            store.read(wrong)
    other = FileEntry("a", "file", "100644", 1, "0" * 64, entry.git)
    assert [why for _, why in store.check([other])] == ["has another content"]
    assert len(FileStore(tmp_path / "none.git").check([entry])) == 1


def test_what_killed_writers_leave_is_cleared(store: FileStore, tmp_path: Path) -> None:
    store.store([source(tmp_path, "a")], [], "m")
    left = [store.path / "HEAD.lock", store.path / "refs/versions/x.lock"]
    left.append(store.path / "objects/tmp_obj_abc")
    for path in left:
        path.write_text("")
    store.store([source(tmp_path, "b")], [], "m")
    assert not any(path.exists() for path in left)


def test_everything_is_made_durable(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each new object, and each directory that holds one, before the reference."""
    seen: list[str] = []
    monkeypatch.setattr(
        durable, "fsync_directory", _noting(seen, durable.fsync_directory, "directory")
    )
    monkeypatch.setattr(durable, "sync_path", _noting(seen, durable.sync_path, "file"))
    before = set(store.path.glob("objects/??/*"))
    store.store([source(tmp_path, "a/b")], [], "m")
    new = set(store.path.glob("objects/??/*")) - before
    assert len(new) == 4  # a blob, two trees, a commit
    last = {line: position for position, line in enumerate(seen)}
    reference = last[f"directory {store.path}/refs/versions"]
    for path in new:
        assert last[f"file {path}"] < last[f"directory {path.parent}"] < reference
    assert last[f"directory {store.path}/objects"] < reference


def _noting(seen: list[str], function: object, kind: str) -> object:
    def call(path: object) -> object:
        seen.append(f"{kind} {path}")
        return function(path)  # type: ignore[operator]

    return call


def test_hostile_configuration_outside_changes_nothing(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "executed"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {marker}\n")
    script.chmod(0o755)
    (tmp_path / ".gitconfig").write_text(
        f"[core]\n\tfsmonitor = {script}\n\thooksPath = {tmp_path}\n\tautocrlf = true\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "elsewhere"))
    _, [entry] = store.store([source(tmp_path, "a", b"x\r\n")], [], "m")
    assert store.read(entry) == b"x\r\n"
    assert not marker.exists()
    assert not (tmp_path / "elsewhere").exists()


def test_a_pipe_does_not_hang(store: FileStore, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DlvError):
        store.store([Source("pipe", tmp_path / "pipe", "file", None)], [], "m")
