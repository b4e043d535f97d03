"""What is durable: the order of calls, refusals as errors a user can read, leftovers."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from blake3 import blake3

from dlv.disk import durable
from dlv.disk.durable import (
    Failpoints,
    TemporaryFile,
    clear_dead,
    make_directory,
    path_of,
    publish,
    publish_all,
    remove,
    write_once,
)
from dlv.errors import StorageError


class Recorder(Failpoints):
    """Remembers the calls; fails at one of them if told to."""

    def __init__(self, fail_at: int | None = None, number: int = errno.EIO) -> None:
        self.calls: list[str] = []
        self.fail_at, self.number = fail_at, number

    def hit(self, name: str) -> None:
        self.calls.append(name)
        if len(self.calls) - 1 == self.fail_at:
            raise OSError(self.number, os.strerror(self.number))


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setattr(durable, "_settled", set())
    tmp, root = tmp_path / "tmp", tmp_path / "packs"
    tmp.mkdir()
    root.mkdir()
    return tmp, root


def watch(monkeypatch: pytest.MonkeyPatch, *args: int) -> Recorder:
    recorder = Recorder(*args)
    monkeypatch.setattr(durable, "failpoints", recorder)
    return recorder


def name_of(data: bytes) -> str:
    return blake3(data).hexdigest()


def test_write_once(places: tuple[Path, Path]) -> None:
    tmp, root = places
    name = write_once(tmp, root, b"content", ".json")
    assert name == name_of(b"content")
    assert (root / name[:2] / f"{name}.json").read_bytes() == b"content"
    assert list(tmp.iterdir()) == []
    assert path_of(root, name, ".json").parent.name == name[:2]


def test_the_order_of_calls(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = watch(monkeypatch)
    write_once(*places, b"content", "")
    assert recorder.calls == [
        *["create", "lock", "write", "fsync_file", "read", "read"],
        *["mkdir", "open", "fsync_directory"],  # aa is new: packs
        *["rename", "close"],
        *["open", "fsync_directory"],  # aa
    ]


def test_a_known_directory_is_not_synced_into_its_parent_again(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_once(*places, b"content", "")
    recorder = watch(monkeypatch)
    write_once(*places, b"content", ".b")
    assert recorder.calls.count("fsync_directory") == 1


def test_a_directory_of_another_process_is_settled_once(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (places[1] / name_of(b"content")[:2]).mkdir()
    recorder = watch(monkeypatch)
    write_once(*places, b"content", "")
    assert recorder.calls.count("fsync_directory") == 2


def test_what_is_there_already_is_read_and_made_durable(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = write_once(*places, b"content", "")
    before = path_of(places[1], name, "").stat().st_ino
    recorder = watch(monkeypatch)
    assert write_once(*places, b"content", "") == name
    assert "create" not in recorder.calls
    assert recorder.calls[0] == "fsync_file"
    assert recorder.calls[-1] == "fsync_directory"
    assert path_of(places[1], name, "").stat().st_ino == before


@pytest.mark.parametrize("wrong", [b"", b"contenT", b"content and more"])
def test_a_file_is_never_trusted_by_its_name(places: tuple[Path, Path], wrong: bytes) -> None:
    name = write_once(*places, b"content", "")
    path_of(places[1], name, "").write_bytes(wrong)
    write_once(*places, b"content", "")
    assert path_of(places[1], name, "").read_bytes() == b"content"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EDQUOT])
def test_every_call_may_fail(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    tmp, root = places
    for position in range(13):
        durable._settled.clear()
        for directory in root.iterdir():
            for path in directory.iterdir():
                path.unlink()
            directory.rmdir()
        recorder = watch(monkeypatch, position, number)
        with pytest.raises(StorageError) as caught:
            write_once(tmp, root, b"content", "")
        assert caught.value.exit_code == 8
        assert caught.value.why
        assert caught.value.hint
        assert str(tmp.parent) in caught.value.message
        assert list(tmp.iterdir()) == []
        assert recorder.calls.count("fsync_file") <= 1
        name = name_of(b"content")
        assert not path_of(root, name, "").exists() or "rename" in recorder.calls
    recorder = watch(monkeypatch, 13)
    write_once(tmp, root, b"other content", "")
    assert len(recorder.calls) == 13  # so every one of them was tried


@pytest.mark.parametrize("wrong", [b"contenT", b"content and more", b"cont"])
def test_what_does_not_read_back_gets_no_name(places: tuple[Path, Path], wrong: bytes) -> None:
    with TemporaryFile(places[0]) as file:
        file.write(b"content")
        file.path.write_bytes(wrong)
        with pytest.raises(StorageError, match="did not read back") as caught:
            durable.publish(file, places[1], name_of(b"content"), "")
    assert caught.value.hint
    assert not list(places[1].iterdir())
    assert not list(places[0].iterdir())


def test_a_failed_fsync_is_not_tried_again(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = watch(monkeypatch, 3)
    with TemporaryFile(places[0]) as file:
        file.write(b"x")
        with pytest.raises(StorageError):
            file.sync()
        file.sync()
    assert recorder.calls.count("fsync_file") == 1


def test_short_writes_go_on(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
    name = write_once(*places, b"0123456789", "")
    assert path_of(places[1], name, "").read_bytes() == b"0123456789"


def test_a_temporary_file_knows_size_and_hash(places: tuple[Path, Path]) -> None:
    with TemporaryFile(places[0], suffix=".pack") as file:
        assert file.write(b"ab") == 2
        assert file.write(memoryview(b"cd")) == 2
        assert file.write(bytearray()) == 0
        assert file.tell() == 4
        assert file.hexdigest() == name_of(b"abcd")
        assert file.path.suffix == ".pack"
        path = publish(file, places[1], file.hexdigest(), ".pack")
    assert path.read_bytes() == b"abcd"


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="not on this system")
@pytest.mark.parametrize("refused", [False, True])
def test_the_disk_begins_before_all_is_written(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, *, refused: bool
) -> None:
    asked: list[tuple[int, int]] = []
    advise = os.posix_fadvise

    def watched(descriptor: int, offset: int, length: int, advice: int) -> None:
        asked.append((offset, length))
        if refused:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        advise(descriptor, offset, length, advice)

    monkeypatch.setattr(durable, "WRITE_OUT", 1000)
    monkeypatch.setattr(os, "posix_fadvise", watched)
    tmp, root = places
    data = bytes(range(256)) * 20
    with TemporaryFile(tmp) as file:
        for start in range(0, len(data), 300):
            file.write(data[start : start + 300])
        path = publish(file, root, file.hexdigest(), ".pack")
    assert path.read_bytes() == data
    assert asked == [(0, 1200), (1200, 1200), (2400, 1200), (3600, 1200)]


def test_leaving_without_publishing_leaves_nothing(places: tuple[Path, Path]) -> None:
    with TemporaryFile(places[0]) as file:
        file.write(b"ab")
    file.discard()
    assert list(places[0].iterdir()) == []


def test_several_are_synced_before_the_first_is_renamed(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [TemporaryFile(places[0]) for _ in range(3)]
    for number, file in enumerate(files):
        file.write(b"%d" % number)
    names = ["aa" + "0" * 62, "aa" + "1" * 62, "bb" + "2" * 62]
    recorder = watch(monkeypatch)
    paths = publish_all(files, places[1], names, ".pack")
    assert [path.read_bytes() for path in paths] == [b"0", b"1", b"2"]
    assert recorder.calls[:9] == ["fsync_file", "read", "read"] * 3
    assert recorder.calls.count("fsync_directory") == 3  # packs, aa, bb


def test_make_directory_settles_each_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_settled", set())
    recorder = watch(monkeypatch)
    made = make_directory(tmp_path / "a" / "b" / "c")
    assert made.is_dir()
    assert recorder.calls == ["mkdir", "open", "fsync_directory"] * 3
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        make_directory(tmp_path / "file")


def test_remove(places: tuple[Path, Path]) -> None:
    path = places[1] / "x"
    path.write_bytes(b"")
    remove(path)
    assert not path.exists()
    with pytest.raises(StorageError, match="cannot remove"):
        remove(path)


def test_the_reason_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot create"):
        write_once(tmp_path / "no" / "where", tmp_path, b"x", "")


def test_clear_dead_takes_the_dead_only(places: tuple[Path, Path], tmp_path: Path) -> None:
    tmp = places[0]
    (tmp / "dead.pack").write_bytes(b"x")
    (tmp / "folder").mkdir()
    (tmp / "folder" / "inside").write_bytes(b"x")
    kept = tmp_path / "kept"
    kept.write_bytes(b"keep me")
    (tmp / "link").symlink_to(kept)
    held = tmp / "held"
    held.mkdir()
    descriptor = os.open(held, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with TemporaryFile(tmp) as alive:
        alive.write(b"y")
        assert clear_dead(tmp) == ["dead.pack", "folder", "link"]
        assert sorted(tmp.iterdir()) == sorted([alive.path, held])
    os.close(descriptor)
    assert clear_dead(tmp) == ["held"]
    assert kept.read_bytes() == b"keep me"
    assert clear_dead(tmp / "nowhere") == []


WRITER = """
import os, sys
from dlv.disk.durable import TemporaryFile
file = TemporaryFile(sys.argv[1])
file.write(b"half")
print(file.path, flush=True)
sys.stdin.read()
"""


def test_a_killed_writer_is_dead_at_once(places: tuple[Path, Path]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(places[0])],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        path = Path(child.stdout.readline().strip())
        assert clear_dead(places[0]) == []
        assert path.exists()
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert clear_dead(places[0]) == [path.name]
    assert not path.exists()


def test_a_file_cleared_before_its_lock_is_made_again(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    class ClearsOnce(Failpoints):
        done = False

        def hit(self, name: str) -> None:
            if name == "lock" and not self.done:
                self.done = True
                assert len(clear_dead(places[0])) == 1

    monkeypatch.setattr(durable, "failpoints", ClearsOnce())
    name = write_once(*places, b"content", "")
    assert path_of(places[1], name, "").read_bytes() == b"content"


def test_a_file_has_both_names_until_the_new_one_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut during a rename may keep the loss of the old name and not the new name."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    (tmp_path / "folder").mkdir()
    synced: list[tuple[bool, bool]] = []
    real = durable.fsync_directory

    def watched(path: Path) -> None:
        synced.append(((tmp_path / "a").exists(), (tmp_path / "to" / "a").exists()))
        real(path)

    monkeypatch.setattr(durable, "fsync_directory", watched)
    pairs = [(tmp_path / name, tmp_path / "to" / name) for name in ("a", "b", "folder")]
    (tmp_path / "to").mkdir()
    os.link(tmp_path / "b", tmp_path / "to" / "b")  # as a move that was killed leaves it
    durable.move_all(pairs)
    assert synced[-2:] == [(True, True), (False, True)]  # the first is of the new folder
    assert sorted(path.name for path in tmp_path.iterdir()) == ["to"]
    assert [(tmp_path / "to" / name).read_text() for name in ("a", "b")] == ["a", "b"]


def test_a_move_where_files_have_one_name_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    (tmp_path / "a").write_text("a")
    monkeypatch.setattr(os, "link", refused)
    durable.move_all([(tmp_path / "a", tmp_path / "to" / "a")])
    assert (tmp_path / "to" / "a").read_text() == "a"
    assert not (tmp_path / "a").exists()
