"""Curves put into a store as a reader of logs puts them, without a log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from dlv.curves.store import CurveStore
from dlv.curves.writer import Batch, RunWriter, keep_preview
from dlv.events.logs.points import (
    BLOBS,
    SCALAR,
    TENSOR,
    BlobPoint,
    Item,
    Metadata,
    ScalarPoints,
    TensorPoint,
)
from dlv.metadata import curve_writing


def opened(folder: Path) -> CurveStore:
    return CurveStore.open(folder / "live.db")


def put(
    store: CurveStore,
    run: str,
    items: Iterable[Item],
    metadata: Iterable[Metadata],
    *,
    experiment: str = "",
    start: float | None = None,
) -> None:
    batch = Batch()
    batch.add(items, metadata)
    with store.database.atomic():
        key = curve_writing.run(
            store.database, curve_writing.experiment(store.database, experiment), run
        )
        RunWriter(store, key).write(batch)
        curve_writing.set_run_state(store.database, key, {}, start)
        for state in curve_writing.series(store.database, key).values():
            if state.data_class == SCALAR:
                keep_preview(store, state.id, state.n)


def metadata(
    tag: str,
    plugin: str,
    data_class: int,
    content: bytes = b"",
    display_name: str = "",
    description: str = "",
) -> Metadata:
    return Metadata(tag, plugin, data_class, content, display_name, description)


def scalars(
    store: CurveStore,
    run: str,
    tag: str,
    steps: Sequence[int] | range,
    values: Sequence[float] | None = None,
    *,
    plugin: str = "scalars",
    experiment: str = "",
    walls: Sequence[float] | None = None,
) -> None:
    """Values are the steps where none are given, wall times a thousand more."""
    column = np.asarray(steps, np.int64)
    numbers = np.asarray(steps if values is None else values, np.float64)
    times = np.asarray(1000.0 + column if walls is None else walls, np.float64)
    points = ScalarPoints(tag, column, times, numbers)
    put(store, run, [points], [metadata(tag, plugin, SCALAR)], experiment=experiment)


def tensors(
    store: CurveStore,
    run: str,
    tag: str,
    steps: Sequence[int] | range,
    *,
    plugin: str = "histograms",
    experiment: str = "",
) -> None:
    """At each step [step, step + 1]."""
    items = [
        TensorPoint(tag, at, 1000.0 + at, "float32", (2,), np.array([at, at + 1], "<f4").tobytes())
        for at in steps
    ]
    put(store, run, items, [metadata(tag, plugin, TENSOR)], experiment=experiment)


def blobs(
    store: CurveStore,
    run: str,
    tag: str,
    sequences: Sequence[tuple[int, Sequence[bytes]]],
    *,
    plugin: str = "images",
    experiment: str = "",
) -> None:
    items = [BlobPoint(tag, step, 1000.0 + step, tuple(found)) for step, found in sequences]
    put(store, run, items, [metadata(tag, plugin, BLOBS)], experiment=experiment)
