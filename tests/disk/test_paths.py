"""Names that are refused, and writing that never leaves its folder nor leaves anything behind."""

from __future__ import annotations

import errno
import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dlv.disk.paths as paths
from dlv.canonical import hash_bytes
from dlv.disk.paths import Folder, check, check_together, hash_file, open_regular
from dlv.disk.user_files import replace
from dlv.errors import Conflict, DlvError, StorageError, UnsafeInput

GOOD = ["a", "a/b/c.txt", ".gitignore", ".github/x", "git", "a b", "ü", "日本", "a..b", "...a"]
GOOD += [
    "con1",
    "console.txt",
    "dlv",
    ".dlvignore",
    "ab:c",
    "foo~1",
    "gitx~1",
    "nul_",
    "-x",
    "a.b.",
]
BAD = [
    *("", "/", "/etc/passwd", "//x", "a//b", "a/", ".", "..", "./a", "a/.", "../x", "a/../../x"),
    *("a\0b", "a\nb", "\x1b[31m", "a\\b", "..\\x", "C:\\x", "C:x", "c:/x", "\x7f", "a\x85b"),
    *(".git", ".git/hooks/x", "a/.git/config", ".GIT", ".Git", "git~1", "GIT~2", "x/git~10/y"),
    *(".git ", ".git.", ".git. .", ".git::$INDEX_ALLOCATION", ".git :x", ".git.:x", ".git:"),
    *(".g\u200cit", ".git\u200b", "\ufeff.git", ".g\u202eit", ".gi\u206ft", "\uff0egit", ".ｇｉｔ"),
    *(".dlv", ".DLV/x", "dlv~1", ".d\u200dlv"),
    *("con", "CON", "nul.txt", "aux.tar.gz", "com1", "lpt9.log", "prn ", "com¹", "con .txt"),
    *("conin$", "CONOUT$", "a/nul", "nul:x"),
    *(".. ", "...", ". .", " ", ".\u200b.", "..\u200d", "\u200b", "a/.. /b"),
    *("x" * 5000, "\ud800", "a/\udcff"),
]


@pytest.mark.parametrize("path", GOOD)
def test_good_names(path: str) -> None:
    assert check(path) == path


@pytest.mark.parametrize("path", BAD, ids=ascii)
def test_bad_names(path: str) -> None:
    with pytest.raises(UnsafeInput) as found:
        check(path)
    assert found.value.exit_code == 9
    assert found.value.why
    assert len(found.value.message) < 2500


@given(st.text(st.sampled_from("./gGitT~1:\\ \u200c\u200dauxnul\0\n\ud800ü"), max_size=12))
def test_what_is_let_through_is_harmless(path: str) -> None:
    try:
        check(path)
    except UnsafeInput:
        return
    assert os.path.normpath(path) == path
    assert not os.path.isabs(path)
    for part in path.split("/"):
        bare = "".join(c for c in part if c not in "\u200c\u200d")
        assert unicodedata.normalize("NFKC", bare).lower().rstrip(". ") not in (".git", "git~1", "")


@pytest.mark.parametrize(
    "names",
    [
        ["a", "A"],
        ["a/b", "A/B"],
        ["ü", "u\u0308"],
        ["straße", "STRASSE"],
        ["a", "a\u200b"],
        ["a", "a."],
        ["a ", "a"],
        ["ﬁ", "FI"],
        ["a", "a/b"],
        ["A/b", "a"],
        ["a/b", "a/b/c/d"],
    ],
)
def test_names_that_collide(names: list[str]) -> None:
    for order in (names, names[::-1]):
        with pytest.raises(UnsafeInput):
            check_together(order)
    with pytest.raises(UnsafeInput):
        check_together(["x", *names, "y/z"])


def test_names_that_do_not(tmp_path: Path) -> None:
    check_together(["a", "b", "ab", "a.txt", "c/a", "c/b", "d/c/a", "a-b"])
    check_together([])
    with pytest.raises(UnsafeInput):
        check_together(["fine", "../x"])


# Writing


def everything(root: Path) -> dict[str, str]:
    """Path -> content, of what lies below."""
    return {
        str(path.relative_to(root)): os.readlink(path)
        if path.is_symlink()
        else path.read_text()
        if path.is_file()
        else "<folder>"
        for path in sorted(root.rglob("*"))
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("safe")
    return tmp_path / "root"


def write(root: Path, path: str, content: bytes = b"new", mode: int = 0o644) -> None:
    with replace(Folder(root), path, mode=mode) as out:
        out.write(content)


def test_new_files_and_folders(root: Path) -> None:
    write(root, "a/b/c.txt")
    write(root, "run.sh", mode=0o755)
    assert everything(root) == {
        "a": "<folder>",
        "a/b": "<folder>",
        "a/b/c.txt": "new",
        "run.sh": "new",
    }
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o755 & ~_umask()
    write(root, "a/b/c.txt", b"newer")
    assert (root / "a/b/c.txt").read_text() == "newer"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("path", BAD[:60:3], ids=ascii)
def test_bad_names_are_not_written(root: Path, path: str) -> None:
    with pytest.raises(UnsafeInput):
        write(root, path)
    with pytest.raises(UnsafeInput):
        Folder(root).kind(path)
    with pytest.raises(UnsafeInput):
        remove(root, path)
    assert everything(root) == {}


@pytest.mark.parametrize("target", ["../outside", "/", "inner"])
def test_no_writing_through_linked_folders(root: Path, target: str) -> None:
    (root / "inner").mkdir()
    (root / "link").symlink_to(target)
    before = everything(root.parent)
    for path in ("link/file", "link/deep/file"):
        with pytest.raises(Conflict) as found:
            write(root, path)
        assert found.value.exit_code == 5
        assert Folder(root).kind(path) == "other"
        with pytest.raises(Conflict):
            remove(root, path)
    assert everything(root.parent) == before


def test_a_link_in_the_place_of_the_file_is_replaced_not_followed(root: Path) -> None:
    (root / "file").symlink_to("../outside/file")
    assert Folder(root).kind("file") == "other"
    write(root, "file")
    assert not (root / "file").is_symlink()
    assert (root.parent / "outside/file").read_text() == "safe"
    (root / "gone").symlink_to("../outside/new")
    write(root, "gone")
    assert not (root.parent / "outside/new").exists()


def test_a_link_that_appears_meanwhile(root: Path) -> None:
    (root / "a").mkdir()

    def swap() -> None:
        with replace(Folder(root), "a/file") as out:
            out.write(b"new")
            (root / "a").rename(root / "moved")
            (root / "a").symlink_to("../outside")

    with pytest.raises(DlvError):
        swap()
    assert (root.parent / "outside/file").read_text() == "safe"
    assert sorted(p.name for p in (root.parent / "outside").iterdir()) == ["file"]


def test_a_file_where_a_folder_must_be(root: Path) -> None:
    (root / "a").write_text("x")
    with pytest.raises(Conflict, match="cannot write a/b"):
        write(root, "a/b")
    assert everything(root) == {"a": "x"}
    assert Folder(root).kind("a/b") == "other"


def test_a_folder_where_the_file_must_be(root: Path) -> None:
    (root / "a/b").mkdir(parents=True)
    with pytest.raises(StorageError):
        write(root, "a/b")
    assert everything(root) == {"a": "<folder>", "a/b": "<folder>"}
    assert Folder(root).kind("a/b") == "other"


@pytest.mark.parametrize("error", [KeyError("x"), KeyboardInterrupt(), OSError(errno.ENOSPC, "x")])
def test_nothing_is_left_after_an_error(root: Path, error: BaseException) -> None:
    (root / "old").write_text("old")
    (root / "there").mkdir()
    before = everything(root)

    def fail(path: str) -> None:
        with replace(Folder(root), path) as out:
            out.write(b"half")
            raise error

    for path in ("old", "new", "a/b/new", "there/x/y"):
        with pytest.raises((type(error), StorageError)):
            fail(path)
    assert everything(root) == before


def test_descriptors_are_closed(root: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for turn in range(5):
        write(root, f"a{turn}/b/c")
        Folder(root).kind("a/b/c/d")
        remove(root, f"a{turn}/b/c")
        with pytest.raises(StorageError):
            write(root, "x/" + "y" * 300)
    assert len(os.listdir("/proc/self/fd")) == before
    assert not (root / "x").exists()


def test_kinds(root: Path) -> None:
    write(root, "a/file")
    os.mkfifo(root / "pipe")
    folder = Folder(root)
    kinds = {name: folder.kind(name) for name in ("a/file", "a", "pipe", "none", "none/x")}
    assert kinds == {"a/file": "file", "a": "other", "pipe": "other", "none": None, "none/x": None}


def remove(root: Path, path: str) -> None:
    with Folder(root).parent(path) as (parent, name):
        os.unlink(name, dir_fd=parent)


def test_a_root_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        write(tmp_path / "gone", "a")


# Reading


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/null")):
        with pytest.raises(Conflict, match="not a regular file"):
            open_regular(path)
    with pytest.raises(StorageError):
        open_regular(tmp_path / "none")


@given(st.binary(max_size=100))
def test_hashes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("hash") / "file"
    path.write_bytes(data)
    digest, status = hash_file(path)
    assert digest == hash_bytes(data)
    assert status.st_size == len(data)


def test_a_file_that_grows_while_it_is_hashed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 << 20))
    seen: list[int] = []

    def grow(count: int) -> None:
        seen.append(count)
        if len(seen) == 1:
            with path.open("ab") as out:
                out.write(b"more")

    with pytest.raises(Conflict, match="being written"):
        hash_file(path, grow)
    seen.clear()
    hash_file(path, seen.append)
    assert sum(seen) == path.stat().st_size


def test_folders_of_a_user_as_the_environment_says() -> None:
    environ = {"HOME": "/home/ada", "XDG_CACHE_HOME": "/tmp/c", "XDG_STATE_HOME": "/tmp/s"}
    assert paths.cache(environ) == Path("/tmp/c/dlv")
    assert paths.state(environ) == Path("/tmp/s/dlv")


def test_folders_of_a_user_at_home_otherwise() -> None:
    environ = {"HOME": "/home/ada", "XDG_CACHE_HOME": ""}
    assert paths.cache(environ) == Path("/home/ada/.cache/dlv")
    assert paths.state(environ) == Path("/home/ada/.local/state/dlv")
