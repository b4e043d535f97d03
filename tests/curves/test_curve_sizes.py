"""Large logs: memory while they are read, and blobs of more than SQLite holds in one value."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from benchmarks.curves import ingest as measuring
from benchmarks.curves import logs
from dlv.curves.store import CurveStore
from dlv.curves.writer import Batch, RunWriter
from dlv.events.logs.points import BLOBS, BlobPoint, Metadata
from dlv.metadata import curve_writing

pytestmark = pytest.mark.slow


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    peaks = []
    for count in (100_000, 1_000_000):
        log = logs.scalars(tmp_path / str(count) / logs.NAME, count, 10)
        found = measuring.child("dlv", log.parent, tmp_path / f"{count}.db")
        assert found["points"] == 10 * count
        assert found["bytes a point"] <= 10
        peaks.append(found["peak MB"])
    assert peaks[1] <= 200
    assert peaks[1] <= peaks[0] + 30


def test_a_blob_of_more_than_a_gibibyte(tmp_path: Path) -> None:
    blob = b"".join([os.urandom(1 << 20) * 1025, b"the end"])
    told = hashlib.blake2b(blob).digest()
    with CurveStore.open(tmp_path / "live.db") as store:
        db = store.database
        with db.atomic():
            key = curve_writing.run(db, curve_writing.experiment(db, "x"), "r")
            batch = Batch()
            known = Metadata("b", "images", BLOBS, b"", "", "")
            batch.add([BlobPoint("b", 1, 2.0, (blob,))], [known])
            RunWriter(store, key).write(batch)
        del blob, batch
        (row,) = store.series(1)
        ((_, size),) = next(iter(store.blob_sequences(row.id))).blobs
        assert size == (1025 << 20) + 7
        seen, length = hashlib.blake2b(), 0
        for piece in store.blob(row.id, 0, 0):
            seen.update(piece)
            length += len(piece)
        assert (length, seen.digest()) == (size, told)
