"""Remotes in folders."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from dlv.errors import RemoteError
from dlv.hub.stores.directory import DirectoryStore
from tests.conformance.remote_store import WritableStoreSuite
from tests.hub.stores import Files


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "remote")


@pytest.fixture
def behind(tmp_path: Path) -> Files:
    return Files(tmp_path / "remote")


class TestDirectory(WritableStoreSuite):
    pass


class TestWithoutLinks(WritableStoreSuite):
    """As on file systems that have no hard links."""

    @pytest.fixture(autouse=True)
    def no_links(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def link(*_: Any, **__: Any) -> None:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")

        monkeypatch.setattr(os, "link", link)


def test_nothing_half_written_has_a_name(store: DirectoryStore, behind: Files) -> None:
    store.put("a", b"x" * 1000)
    assert [key for key in behind if not key.startswith("tmp/")] == ["a"]
    assert not list((store.folder / "tmp").iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read(store: DirectoryStore) -> None:
    store.put("a", b"x")
    (store.folder / "a").chmod(0)
    with pytest.raises(RemoteError, match="cannot read a"):
        store.get("a", most=10)
