"""Files of the working folder against what a version says of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.disk.paths as paths
import dlv.metadata.facts as facts
import dlv.versions.add as adding
import dlv.versions.working as working
from dlv.adapters.checkpoint import Checkpoint
from dlv.canonical import hash_bytes, matrix_hash
from dlv.metadata.database import Database
from dlv.objects.manifest import Container, Snapshot
from dlv.versions.working import CHANGED, IN_THE_WAY, MISSING, SAME, Tracked, Working


def opened(format_: str, path: Path) -> Checkpoint:
    return adding.open_weights(path, format_)


def never(format_: str, path: Path) -> Checkpoint:
    raise AssertionError("only files that do not come back byte for byte are opened")


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "dlv.db")


def plain(path: Path, content: bytes) -> Tracked:
    path.write_bytes(content)
    return Tracked(path.name, "file", "", len(content), hash_bytes(content))


class TestCompare:
    def test_the_same(self, tmp_path: Path) -> None:
        item = plain(tmp_path / "a", b"text")
        assert Working(tmp_path, None, never).compare(item) == SAME

    @pytest.mark.parametrize("content", [b"TEXT", b"longer text", b""])
    def test_another_content(self, tmp_path: Path, content: bytes) -> None:
        item = plain(tmp_path / "a", b"text")
        (tmp_path / "a").write_bytes(content)
        assert Working(tmp_path, None, never).compare(item) == CHANGED

    def test_missing(self, tmp_path: Path) -> None:
        item = Tracked("no/such", "file", "", 1, hash_bytes(b"x"))
        assert Working(tmp_path, None, never).compare(item) == MISSING
        (tmp_path / "no").write_text("a file where the folder was")
        assert Working(tmp_path, None, never).compare(item) == MISSING

    def test_something_else_in_the_way(self, tmp_path: Path) -> None:
        item = Tracked("a", "file", "", 1, hash_bytes(b"x"))
        (tmp_path / "a").mkdir()
        assert Working(tmp_path, None, never).compare(item) == IN_THE_WAY
        (tmp_path / "b").symlink_to("nowhere")
        broken = Tracked("b", "file", "", 1, hash_bytes(b"x"))
        assert Working(tmp_path, None, never).compare(broken) == IN_THE_WAY

    def test_through_a_link_to_a_file(self, tmp_path: Path) -> None:
        item = plain(tmp_path / "a", b"text")
        (tmp_path / "link").symlink_to("a")
        linked = Tracked("link", "file", "", 4, item.mark)
        assert Working(tmp_path, None, never).compare(linked) == SAME


class TestCache:
    def test_size_and_time_spare_the_hash(
        self, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        item = plain(tmp_path / "a", b"text")
        first = Working(tmp_path, database, never)
        assert first.compare(item) == SAME
        first.remember()

        def no_hash(*_: object) -> None:
            raise AssertionError("hashed again")

        monkeypatch.setattr(paths, "hash_file", no_hash)
        again = Working(tmp_path, database, never)
        assert again.compare(item) == SAME
        assert again.has_seen("a")

    def test_another_time_is_hashed_again(self, tmp_path: Path, database: Database) -> None:
        item = plain(tmp_path / "a", b"text")
        first = Working(tmp_path, database, never)
        first.compare(item)
        first.remember()
        (tmp_path / "a").write_bytes(b"TEXT")
        os.utime(tmp_path / "a", ns=(1, 1))
        again = Working(tmp_path, database, never)
        assert not again.has_seen("a")
        assert again.compare(item) == CHANGED

    def test_a_changed_big_file_is_hashed_once(
        self, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        item = plain(tmp_path / "a", b"text")
        (tmp_path / "a").write_bytes(b"TEXT")
        first = Working(tmp_path, database, never)
        assert first.compare(item) == CHANGED
        first.remember()
        monkeypatch.setattr(paths, "hash_file", None)
        assert Working(tmp_path, database, never).compare(item) == CHANGED

    def test_nothing_is_remembered_of_other_folders(self, tmp_path: Path) -> None:
        item = plain(tmp_path / "a", b"text")
        elsewhere = Working(tmp_path, None, never)
        assert elsewhere.compare(item) == SAME
        elsewhere.remember()
        assert not elsewhere.has_seen("a")


class TestContent:
    """Files that do not come back byte for byte count by their tensors."""

    @pytest.fixture
    def item(self, tmp_path: Path) -> Tracked:
        self.arrays: dict[str, Any] = {"a": np.arange(6, dtype="f4"), "b": np.ones((2, 3), "f8")}
        np.savez_compressed(tmp_path / "w.npz", **self.arrays)
        checkpoint = opened("npz", tmp_path / "w.npz")
        hashes = tuple(matrix_hash(t.dtype, t.shape, t.read()) for t in checkpoint.tensors)
        checkpoint.close()
        container = Container("w.npz", "npz", 999, None, None, (0, 1))
        return working.weight_file(Snapshot(None, hashes, (container,)), container)

    def test_another_file_of_the_same_tensors(self, tmp_path: Path, item: Tracked) -> None:
        assert Working(tmp_path, None, opened).compare(item) == SAME
        np.savez(tmp_path / "w.npz", b=self.arrays["b"], a=self.arrays["a"])
        assert Working(tmp_path, None, opened).compare(item) == SAME

    def test_one_bit(self, tmp_path: Path, item: Tracked) -> None:
        self.arrays["a"].view("u4")[3] ^= 1
        np.savez(tmp_path / "w.npz", **self.arrays)
        assert Working(tmp_path, None, opened).compare(item) == CHANGED

    def test_no_weights_at_all(self, tmp_path: Path, item: Tracked) -> None:
        (tmp_path / "w.npz").write_text("PK")
        assert Working(tmp_path, None, opened).compare(item) == CHANGED

    def test_is_remembered_apart_from_hashes(
        self, tmp_path: Path, item: Tracked, database: Database
    ) -> None:
        status = (tmp_path / "w.npz").stat()
        row = ("w.npz", status.st_size, status.st_mtime_ns, hash_bytes(b"as commit noted it"))
        facts.record_looks(database, [row])
        first = Working(tmp_path, database, opened)
        assert first.compare(item) == SAME
        first.remember()
        assert Working(tmp_path, database, never).compare(item) == SAME
