"""A repository of several users: rights follow those of its folder, and who is kept out is told."""

from __future__ import annotations

import os
import stat
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dlv.cli as cli
from dlv.errors import denied

Dlv = Callable[..., Any]
NOBODY = 65534


@pytest.fixture
def closed() -> Iterator[None]:
    """A user who lets nobody else read what he makes."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def rights(folder: Path) -> set[tuple[str, str]]:
    """(kind, rights of group and others) of all that lies there."""
    return {
        ("folder" if path.is_dir() else "file", f"{path.stat().st_mode & 0o066:03o}")
        for path in folder.rglob("*")
        if not path.name.endswith(("-wal", "-shm"))
        and path.name != ".gitignore"
        and "objects" not in path.parts  # of git, which nobody may write again
    }


@pytest.mark.usefixtures("closed")
@pytest.mark.parametrize(("who", "wanted"), [("group", "060"), ("all", "064")])
def test_what_is_written_later_is_shared(dlv: Dlv, workspace: Path, who: str, wanted: str) -> None:
    assert dlv("init", "--shared", who).code == 0
    place = workspace / ".dlv"
    assert place.stat().st_mode & stat.S_ISGID
    for name in ("one", "two"):
        (workspace / "notes.txt").write_text(name)
        assert dlv("add", "notes.txt").code == 0
        assert dlv("commit", "-m", name, "--name", "net").code == 0
    assert dlv("tag", "good", "net@1").code == 0
    assert dlv("gc", "--grace", "0", "-y").code == 0
    assert dlv("fsck", "--rebuild").code == 0
    skipped = {("file", "000")}  # what can be made again by anybody
    assert rights(place) - skipped == {("folder", wanted), ("file", wanted)}
    for name in ("packs", "manifests", "facts", "files.git"):
        assert ("file", "000") not in rights(place / name)
    assert (place / "dlv.db").stat().st_mode & 0o066 == int(wanted, 8)
    # What is the user's own stays as the umask wants it.
    (workspace / "notes.txt").unlink()
    assert dlv("checkout", "net@1").code == 0
    assert (workspace / "notes.txt").stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("closed")
def test_an_old_repository_is_opened_to_others(dlv: Dlv, workspace: Path) -> None:
    assert dlv("init").code == 0
    (workspace / "notes.txt").write_text("x")
    dlv("add", "notes.txt")
    dlv("commit", "-m", "x", "--name", "net")
    assert rights(workspace / ".dlv") == {("folder", "000"), ("file", "000")}
    assert dlv("init", "--shared", "group").code == 0
    assert rights(workspace / ".dlv") == {("folder", "060"), ("file", "060")}


@pytest.mark.usefixtures("closed")
def test_where_the_folder_is_shared_so_is_the_repository(dlv: Dlv, workspace: Path) -> None:
    workspace.chmod(0o2770)
    assert dlv("init").code == 0
    assert (workspace / ".dlv").stat().st_mode & 0o7777 == 0o2770
    assert (workspace / ".dlv" / "packs").stat().st_mode & 0o7777 == 0o2770


def as_nobody(out: Path, *words: str) -> tuple[int, str]:
    """In a copy of this process, which has loaded all that it takes, as another user."""
    said = os.open(out, os.O_RDWR | os.O_CREAT)
    child = os.fork()
    if not child:
        code = 70
        try:
            os.dup2(said, 1)
            os.dup2(said, 2)
            sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            code = cli.run(words)
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException as error:
            os.write(said, "".join(traceback.format_exception(error)).encode())
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(said)
    return code, " ".join(out.read_text().split())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("what", ["format.json", "config.toml", "dlv.db", "manifests", ".dlv"])
def test_who_is_kept_out_is_told_by_whom(dlv: Dlv, filled: Path, tmp_path: Path, what: str) -> None:
    for folder in (filled, tmp_path, *list(tmp_path.parents)[:3]):
        folder.chmod(0o755)
    place = filled / ".dlv" if what == ".dlv" else filled / ".dlv" / what
    place.chmod(0o700 if place.is_dir() else 0o600)
    verb = ("config",) if what == "config.toml" else ("show", "lenet@1")
    assert dlv(*verb).code == 0
    code, said = as_nobody(tmp_path / "out", *verb)
    assert code == 8, said
    assert "Traceback" not in said
    assert f"{place} is owned by root" in said
    assert "dlv init --shared group" in said


def test_whose_a_file_is(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch(0o600)
    found = denied(path / "below")
    assert found is not None
    assert found[0].startswith(f"permission denied: {path} is owned by ")
    assert found[0].endswith("with mode 600")
    assert found[1] == f"chmod u+rwX {path}"
