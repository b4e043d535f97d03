"""The table of mounts, read as the kernel writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlv.disk.locks import file_system, network_disk


def test_here() -> None:
    assert file_system(Path("/proc/self")) == "proc"
    assert file_system(Path("/")) is not None
    assert not network_disk(Path("/proc"))


def mounts(folder: Path, *lines: tuple[bytes, bytes]) -> Path:
    """A mountinfo as the kernel writes it."""
    table = folder / "mountinfo"
    table.write_bytes(
        b"".join(
            b"%d 1 0:%d / %s rw,relatime shared:1 - %s device rw\n" % (i, i, point, kind)
            for i, (point, kind) in enumerate(lines, 20)
        )
    )
    return table


class TestFileSystem:
    def test_the_innermost_mount_counts(self, tmp_path: Path) -> None:
        root = str(tmp_path).encode()
        table = mounts(tmp_path, (b"/", b"ext4"), (root + b"/a", b"nfs4"), (root + b"/a/b", b"xfs"))
        for name, kind in (("", "ext4"), ("a", "nfs4"), ("a/x", "nfs4"), ("a/b/c", "xfs")):
            assert file_system(tmp_path / name, table) == kind
        assert file_system(tmp_path / "ab", table) == "ext4"
        assert network_disk(tmp_path / "a", table)
        assert not network_disk(tmp_path / "a/b", table)

    @pytest.mark.parametrize("name", ["Müller", "mit Blank", "a\\b", "tab\there", "日本"])
    def test_names_beyond_ascii_and_escapes(self, tmp_path: Path, name: str) -> None:
        point = str(tmp_path / name).encode()
        for char in b"\\ \t\n":
            point = point.replace(bytes([char]), b"\\%03o" % char)
        table = mounts(tmp_path, (b"/", b"ext4"), (point, b"nfs4"))
        assert file_system(tmp_path / name / "project", table) == "nfs4"

    def test_a_name_that_is_no_text_does_not_disturb(self, tmp_path: Path) -> None:
        table = mounts(tmp_path, (b"/", b"ext4"), (b"/mnt/\xff\xfe", b"nfs"))
        assert file_system(tmp_path, table) == "ext4"

    def test_a_link_is_followed(self, tmp_path: Path) -> None:
        far = tmp_path / "far"
        far.mkdir()
        (tmp_path / "link").symlink_to(far)
        table = mounts(tmp_path, (b"/", b"ext4"), (str(far).encode(), b"lustre"))
        assert network_disk(tmp_path / "link", table)

    def test_without_such_a_table_nothing_is_known(self, tmp_path: Path) -> None:
        assert file_system(tmp_path, tmp_path / "none") is None
        assert not network_disk(tmp_path, tmp_path / "none")
