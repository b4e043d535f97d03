"""Files for the user: durable before they count, together or not at all, and no parts for ever."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dlv.disk.durable as durable
import dlv.disk.user_files as user_files
from dlv.disk.paths import Folder
from dlv.disk.user_files import Batch
from dlv.errors import StorageError

NAMES = ("a", "b/c", "b/d", "e/f/g")
PARTS = "**/.*.dlv-part"


def contents(root: Path) -> dict[str, str]:
    found = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_text() for path in found}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where two of the files are there already."""
    made = tmp_path / "root"
    (made / "b").mkdir(parents=True)
    (made / "a").write_text("old a")
    (made / "b" / "c").write_text("old b/c")
    return made


def write(root: Path, *names: str, then: Callable[[], object] = lambda: None) -> None:
    with Batch(Folder(root)) as batch:
        for name in names or NAMES:
            with batch.new(name) as out:
                out.write(f"new {name}".encode())
        batch.put()
        then()


class Calls:
    """The calls that make a batch durable, in order; one of them, or each from one on, fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int = 0, *, on: bool = False) -> None:
        self.made: list[tuple[str, str]] = []
        self.at, self.on = at, on
        for name in ("fsync", "rename", "link", "unlink", "open", "mkdir"):
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if kind == "open" and not (args[1] & os.O_CREAT):
                return real(*args, **more)
            what = str(args[0])
            if kind == "fsync":
                what = os.readlink(f"/proc/self/fd/{args[0]}")
            self.made.append((kind, what.rpartition("/")[2]))
            count = len(self.made)
            if self.at and (count == self.at or (self.on and count > self.at)):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*args, **more)

        return call


def test_all_are_on_the_disk_before_the_first_has_its_name(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch).made
    write(root)
    kinds = [kind for kind, _ in calls]
    first = kinds.index("rename")
    assert kinds[:first].count("fsync") == len(NAMES)
    assert all(what.endswith(".dlv-part") for kind, what in calls[:first] if kind == "fsync")
    last = len(kinds) - kinds[::-1].index("rename")
    # Each folder once, and those above: b, e/f, e, and the one of them all.
    synced = sorted(what for kind, what in calls[last:] if kind == "fsync")
    assert synced == ["b", "e", "f", "root"]
    assert contents(root) == {name: f"new {name}" for name in NAMES}


def test_many_files_wait_for_few_open_ones(root: Path) -> None:
    held = []

    def count() -> None:
        held.append(len(os.listdir("/proc/self/fd")))

    before = len(os.listdir("/proc/self/fd"))
    write(root, *(f"many/{number}" for number in range(300)), then=count)
    assert held[0] < before + 20
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(contents(root / "many")) == 300


@pytest.mark.parametrize("at", range(1, 34))
def test_a_call_that_fails_changes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    before = contents(root)
    with monkeypatch.context() as patched:
        calls, failed = Calls(patched, at), False
        try:
            write(root)
        except StorageError as error:
            failed, why = True, str(error.why)
        if failed:
            assert f"nothing changed in {root}" in why or not calls.made[1:]
            assert contents(root) == before
            assert not (root / "e").exists()
        else:  # what only tidies up may fail
            assert len(calls.made) < at or calls.made[at - 1][0] in ("unlink", "open")
            kept = {name: text for name, text in contents(root).items() if ".dlv-part" not in name}
            assert kept == {name: f"new {name}" for name in NAMES}
    write(root)
    assert contents(root) == {name: f"new {name}" for name in NAMES}


def test_where_nothing_can_be_taken_back_it_is_said(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call fails from the second rename on."""
    watched = Calls(monkeypatch)
    write(root)
    second = [at for at, (kind, _) in enumerate(watched.made, 1) if kind == "rename"][1]
    (root / "a").write_text("old a")
    with monkeypatch.context() as patched:
        Calls(patched, second, on=True)
        with pytest.raises(StorageError) as caught:
            write(root)
    assert "a is the new one already" in str(caught.value.why)
    assert "check the disk before writing" in str(caught.value.hint)
    write(root)
    assert contents(root) == {name: f"new {name}" for name in NAMES}


@pytest.mark.parametrize("error", [KeyError("x"), KeyboardInterrupt(), StorageError("no")])
def test_what_follows_fails(root: Path, error: BaseException) -> None:
    before = contents(root)

    def fail() -> None:
        assert contents(root)["b/c"] == "new b/c"
        raise error

    with pytest.raises(type(error)):
        write(root, then=fail)
    assert contents(root) == before


def test_without_second_names(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On such a file system what was there cannot be kept meanwhile."""

    def link(*_: Any, **more: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    write(root)
    assert contents(root) == {name: f"new {name}" for name in NAMES}

    def fail() -> None:
        raise StorageError("no", why="full")

    with pytest.raises(StorageError) as caught:
        write(root, "a", "h", then=fail)
    assert caught.value.why == "full; a is the new one already"
    assert not (root / "h").exists()


def test_a_folder_that_was_made_for_nothing(tmp_path: Path) -> None:
    def begin() -> None:
        with Batch(Folder(tmp_path / "x" / "y"), create=True) as batch:
            with batch.new("a/b") as out:
                out.write(b"x")
            raise StorageError("no")

    with pytest.raises(StorageError):
        begin()
    assert list(tmp_path.iterdir()) == []


def test_folders_that_cannot_be_synced(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems refuse that: the file is written all the same."""

    def refuse(path: Path) -> None:
        raise durable.storage_error("make durable", path, OSError(errno.EINVAL, "no")) from OSError(
            errno.EINVAL, "no"
        )

    monkeypatch.setattr(durable, "fsync_directory", refuse)
    write(root)
    assert (root / "a").read_text() == "new a"


# One file


def test_a_link_stays_and_so_does_the_mode(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text("old")
    real.chmod(0o640)
    (tmp_path / "link").symlink_to("real")
    user_files.write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o640


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    user_files.write(pipe, b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()


def test_two_files_until_the_end(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")

    def begin() -> None:
        with contextlib.ExitStack() as until:
            for name in ("a", "b"):
                with user_files.replacing(tmp_path / name, until=until) as out:
                    out.write(b"new")
            assert contents(tmp_path)["a"] == "new"
            raise KeyError

    with pytest.raises(KeyError):
        begin()
    assert contents(tmp_path) == {"a": "old"}


# Parts that are left


WRITER = """
import sys
from pathlib import Path
from dlv.disk.paths import Folder
from dlv.disk.user_files import Batch
with Batch(Folder(Path(sys.argv[1]))) as batch:
    for name in sys.argv[2:]:
        with batch.new(name) as out:
            out.write(b"half")
    batch.sync()
    print("written", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def writer(root: Path, *names: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root), *names],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "written"
        yield child
        child.send_signal(signal.SIGKILL)
        child.wait()


@pytest.mark.parametrize("names", [("x",), ("x", "b/y", "b/z", "w")])
def test_parts_of_the_living_stay_and_those_of_the_dead_go(
    root: Path, names: tuple[str, ...]
) -> None:
    with writer(root, *names):
        there = sorted(root.glob(PARTS))
        assert len(there) == len(names) + (len(names) > 1)
        assert sorted(user_files.below(root)) == there
        write(root, "a", "b/c")
        assert sorted(root.glob(PARTS)) == there
        assert user_files.left(user_files.below(root)) == []
    assert [path for path, _ in user_files.left(user_files.below(root))] == there
    write(root, "a", "b/c")
    assert sorted(root.glob(PARTS)) == []


def test_a_batch_of_this_process_is_alive(root: Path) -> None:
    with Batch(Folder(root)) as batch:
        for name in NAMES:
            with batch.new(name) as out:
                out.write(b"x")
        batch.sync()
        write(root, "a", "b/c", "e/f/other")
        assert user_files.left(user_files.below(root)) == []
        batch.put()
    assert (root / "e" / "f" / "g").read_text() == "x"
    assert sorted(root.glob(PARTS)) == []


@pytest.mark.parametrize(
    "name",
    ["a.dlv-part", ".a.dlv-part", ".a.xyz.dlv-part", ".a.0123.dlv-part", ".dlv-part", ".a.tmp"],
)
def test_other_names_are_none_of_ours(root: Path, name: str) -> None:
    (root / name).write_text("mine")
    (root / "b" / ".old.0123456789ab.dlv-part").write_text("left by a release before")
    write(root, "a", "b/c")
    assert (root / name).read_text() == "mine"
    assert sorted(root.glob("b/.*")) == []


def test_what_cannot_be_locked_or_is_no_file_stays(root: Path) -> None:
    name = ".a.0123456789abcdef.dlv-part"
    (root / name).symlink_to("a")
    (root / f".b{name}").mkdir()
    held = root / f".c{name}"
    held.write_text("held")
    with held.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write(root, "a")
        assert len(sorted(root.glob(PARTS))) == 3
    write(root, "a")
    assert not held.exists()


def test_a_part_that_is_cleared_before_its_lock_is_made_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = user_files.held
    cleared: list[Path] = []

    def first(descriptor: int) -> bool:
        if not cleared:
            cleared.extend(user_files.remove(user_files.below(root)))
        return held(descriptor)

    monkeypatch.setattr(user_files, "held", first)
    write(root)
    assert len(cleared) == 1
    assert contents(root) == {name: f"new {name}" for name in NAMES}
