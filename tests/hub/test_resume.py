"""Transfers that are cut at random places: what had arrived is not sent again."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import numpy as np
import pytest

import dlv.upkeep.check as check
from dlv.errors import DlvError, RemoteError
from dlv.hub.stores.interface import MissingObject
from dlv.metadata import versions
from dlv.repository.handle import Repository
from tests.hub.stores import MemoryStore
from tests.hub.test_push_pull import contents, other, publish, pull, repository  # noqa: F401


class CutStore(MemoryStore):
    """Breaks down when so many bytes have gone over the line; parts of objects are lost."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.left: float = float("inf")
        self.moved = 0.0  # bytes of packs, over all tries
        self._meter = threading.Lock()

    def _move(self, size: int) -> None:
        with self._meter:
            self.moved += min(size, max(self.left, 0)) if self.left != float("inf") else size
            self.left -= size
            if self.left < 0:
                raise RemoteError("the line was cut")

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
    ("size", "cuts"), [(60, 4), pytest.param(1000, 20, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("way", ["up", "down"])
def test_resume(
    repository: Repository,  # noqa: F811
    other: Repository,  # noqa: F811
    commit_model: Callable[..., str],
    size: int,
    cuts: int,
    way: str,
) -> None:
    """`size` MB, cut so many times: of the large one at most 5% go twice."""
    rng = np.random.default_rng(1)
    tensors = {f"l{i}": rng.standard_normal((1024, 1024)).astype("f4") for i in range(size // 4)}
    commit_model(repository, "net", tensors)
    del tensors
    store = CutStore({})
    if way == "down":
        publish(repository, store)
        store.moved = 0
    places = random.Random(2)
    for _ in range(cuts):
        store.left = places.randrange(size * 1_000_000 // (cuts + 1) * 2)
        try:
            publish(repository, store) if way == "up" else pull(other, store)
        except DlvError:
            continue
        break
    store.left = float("inf")
    publish(repository, store)
    if way == "up":
        moved = store.moved
    pull(other, store)
    if way == "down":
        moved = store.moved
    whole = sum(len(data) for key, data in store.objects.items() if key.startswith("packs/"))
    print(f"{way}: {100 * (moved / whole - 1):.2f}% sent again")
    # In a small transfer, what is in flight at a cut is a large part.
    assert moved <= whole * (1.05 if cuts == 20 else 2.5)
    (version,) = versions.all_versions(other.database)
    assert contents(other, version.id) == contents(repository, version.id)
    assert check.check(other).faults == []
