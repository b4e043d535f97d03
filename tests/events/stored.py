"""A curve store with series of every kind, for tests of what is served out of one."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dlv.curves.store import CurveStore
from dlv.curves.writer import Batch, RunWriter
from dlv.events.formats.pbtxt import RUN_GRAPH, GraphNode, graph_def
from dlv.events.formats.tensors import AUDIO_CONTENT, IMAGE_CONTENT
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

WALL = 1_700_000_000.25


def fill(store: CurveStore, run: str, *given: tuple[Metadata, Iterable[Item]]) -> int:
    """Series of one run, in one transaction; the run's number."""
    with store.database.atomic():
        experiment = curve_writing.experiment(store.database, "")
        run_id = curve_writing.run(store.database, experiment, run)
        batch = Batch()
        for known, items in given:
            batch.add(items, [known])
        RunWriter(store, run_id).write(batch)
    return run_id


def scalars(
    tag: str, values: Sequence[float], steps: Sequence[int] | None = None
) -> tuple[Metadata, list[Item]]:
    at = np.asarray(range(len(values)) if steps is None else steps, np.int64)
    walls = WALL + np.arange(len(values)) / 2
    points = ScalarPoints(tag, at, walls, np.asarray(values, np.float64))
    return Metadata(tag, "scalars", SCALAR, b"", tag, ""), [points]


def histograms(
    tag: str, rows: Sequence[Any], legacy: bytes = b"", dtype: str = "float32"
) -> tuple[Metadata, list[Item]]:
    """Each of `rows` is one step: [left, right, count]s."""
    items: list[Item] = []
    for step, row in enumerate(rows):
        held = np.asarray(row, np.dtype(dtype).newbyteorder("<")).reshape(-1, 3)
        items.append(TensorPoint(tag, step, WALL + step, dtype, held.shape, held.tobytes(), legacy))
    return Metadata(tag, "histograms", TENSOR, b"", tag, ""), items


def blobs(
    tag: str, plugin: str, points: Sequence[Sequence[bytes]], content: bytes = b""
) -> tuple[Metadata, list[Item]]:
    items = [BlobPoint(tag, step, WALL + step, tuple(each)) for step, each in enumerate(points)]
    return Metadata(tag, plugin, BLOBS, content, tag, ""), list(items)


def images(tag: str, points: Sequence[Sequence[bytes]]) -> tuple[Metadata, list[Item]]:
    whole = [[b"3", b"2", *each] for each in points]
    return blobs(tag, "images", whole, IMAGE_CONTENT)


def audio(tag: str, points: Sequence[Sequence[bytes]]) -> tuple[Metadata, list[Item]]:
    return blobs(tag, "audio", points, AUDIO_CONTENT)


def graph(*nodes: GraphNode) -> tuple[Metadata, list[Item]]:
    return blobs(RUN_GRAPH, "graphs", [[graph_def(nodes)]])


def png(width: int, height: int, shade: int) -> bytes:
    """A grey image."""

    def part(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = (b"\0" + bytes([shade]) * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + part(b"IHDR", head)
        + part(b"IDAT", zlib.compress(rows))
        + part(b"IEND", b"")
    )


def wav(samples: int) -> bytes:
    """Silence."""
    head = struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8)
    data = bytes([128]) * samples
    body = b"WAVEfmt " + head + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def described(store: CurveStore, run_id: int, parameters: Mapping[str, Any]) -> None:
    with store.database.atomic():
        curve_writing.describe_run(store.database, run_id, "0" * 64, WALL, parameters)


def opened(path: Path) -> CurveStore:
    return CurveStore.open(path / "live.db")
