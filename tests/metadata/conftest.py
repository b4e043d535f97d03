"""An empty catalogue on disk, and manifests to fill it with."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import dlv.canonical as canonical
from dlv.canonical import hash_bytes, timestamp
from dlv.metadata.database import Database
from dlv.objects.manifest import Manifest, Snapshot, TensorEntry

EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "dlv.db", wal=False)
    database.execute("PRAGMA synchronous = OFF")
    database.execute("PRAGMA journal_mode = MEMORY")
    yield database
    database.close()


@pytest.fixture(autouse=True)
def _clock() -> Iterator[None]:
    yield
    canonical.fix_clock(None)


@pytest.fixture
def manifest() -> Callable[..., Manifest]:
    """manifest(seed, name="lenet", steps=(None,), **fields): its matrices depend on the seed."""

    def make(
        seed: int, name: str = "lenet", steps: Sequence[int | None] = (None,), **fields: Any
    ) -> Manifest:
        tensors = (TensorEntry("w", "float32", (2, 3)), TensorEntry("b", "float32", (3,)))
        snapshots = tuple(
            Snapshot(step, tuple(hash_bytes(f"{seed} {step} {t.name}".encode()) for t in tensors))
            for step in steps
        )
        given: dict[str, Any] = {
            "message": f"number {seed}",
            "author": "me",
            "created": timestamp(EPOCH + datetime.timedelta(minutes=seed)),
            "tensors": tensors if steps else (),
            "snapshots": snapshots,
            "own": len(steps) - 1 if steps else None,
        }
        return Manifest(name, **{**given, **fields})

    return make
