"""Transfers that are cut at random places: what had arrived is not sent again."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dlv.hub.push as pushing
from dlv.errors import DlvError, RemoteError
from dlv.hub.stores.interface import MissingObject
from dlv.metadata import versions
from dlv.repository.handle import Repository
from tests.hub.stores import MemoryStore
from tests.hub.test_push_pull import contents, publish, pull, remote_of, repository  # noqa: F401

SLICE = 1 << 18


def send(repository: Repository, store: MemoryStore) -> None:  # noqa: F811
    """Publish to one of many stores that all seem to be the same remote."""
    remote = remote_of(repository, store)
    remote.accept_rollback = True
    pushing.publish(repository, remote, pushing.Request(references=(), author="Ada"))


class CutStore(MemoryStore):
    """Breaks down when so many bytes have gone over the line; parts of objects are lost."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.left: float = float("inf")
        self.moved = 0.0  # bytes of packs, over all tries
        self._meter = threading.Lock()

    def _move(self, size: int) -> None:
        """Move bytes in turns with other requests; a cut breaks all that are on their way."""
        for start in range(0, size, SLICE):
            with self._meter:
                if self.left <= 0:
                    raise RemoteError("the line was cut")
                part = min(SLICE, size - start)
                self.moved += part
                self.left -= part
            time.sleep(0.0002)

    def _put(self, key: str, data: bytes) -> None:
        if key.startswith("packs/"):
            self._move(len(data))
        super()._put(key, data)

    def _get(self, key: str, most: int) -> bytes:
        if key.startswith("packs/"):
            self._move(len(self.objects.get(key, b"")))
        return super()._get(key, most)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        if key not in self.objects:
            raise MissingObject(key)
        self._move(length)
        return self.objects[key][start : start + length]


@pytest.mark.parametrize(
    ("size", "cuts"), [(60, 2), pytest.param(1000, 20, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("way", ["up", "down"])
def test_resume(
    repository: Repository,  # noqa: F811
    commit_model: Callable[..., str],
    tmp_path: Path,
    size: int,
    cuts: int,
    way: str,
) -> None:
    """Transfers of `size` MB, each cut once: of the large ones at most 5% go twice."""
    rng = np.random.default_rng(1)
    tensors = {f"l{i}": rng.standard_normal((1024, 1024)).astype("f4") for i in range(size // 4)}
    commit_model(repository, "net", tensors)
    del tensors
    whole = CutStore({})
    publish(repository, whole)
    packs = sum(len(data) for key, data in whole.objects.items() if key.startswith("packs/"))
    places, again = random.Random(2), []
    for number in range(cuts):
        store = CutStore({} if way == "up" else whole.objects)
        shutil.rmtree(repository.cache, ignore_errors=True)
        with Repository.init(tmp_path / f"other{number}")[0] as other:
            store.left = places.randrange(packs)
            with pytest.raises(DlvError):
                send(repository, store) if way == "up" else pull(other, store)
            store.left = float("inf")
            send(repository, store) if way == "up" else pull(other, store)
            again.append(store.moved / packs - 1)
            if way == "down" and number in (0, cuts - 1):
                (version,) = versions.all_versions(other.database)
                assert contents(other, version.id) == contents(repository, version.id)
        shutil.rmtree(tmp_path / f"other{number}")
        if way == "up":
            kept = {key for key in whole.objects if key.startswith("packs/")}
            assert kept == {key for key in store.objects if key.startswith("packs/")}
    print(f"{way}: {100 * min(again):.2f} to {100 * max(again):.2f}% again")
    # In a small transfer, what is on its way at a cut is a large part.
    assert max(again) <= (0.05 if size == 1000 else 1.5)
