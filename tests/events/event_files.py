"""Event files for tests, framed with TensorBoard's own CRC, and what TensorBoard reads in them."""

from __future__ import annotations

import base64
import struct
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.backend.event_processing import plugin_event_accumulator
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.util import tensor_util

import dlv.events.logs.batches as batches
from dlv.events.formats import tfevents
from dlv.events.formats.tensors import FLOATS, strings_of
from dlv.events.logs.points import (
    BLOBS,
    SCALAR,
    BlobPoint,
    Fault,
    Hide,
    Metadata,
    ScalarPoints,
    TensorPoint,
    Window,
    live_points,
)

Event, Summary = event_pb2.Event, summary_pb2.Summary


def frame(body: bytes) -> bytes:
    """One record."""
    # TensorBoard's own sum takes seconds for megabytes.
    kept = masked_crc32c(body) if len(body) < 1 << 16 else tfevents.masked(tfevents.crc32c(body))
    return _head(len(body)) + body + struct.pack("<I", kept)


@cache
def _head(size: int) -> bytes:
    length = struct.pack("<Q", size)
    return length + struct.pack("<I", masked_crc32c(length))


def framed(bodies: Iterable[Any]) -> bytes:
    """Records of bytes or of protocol buffers."""
    return b"".join(
        frame(body if isinstance(body, bytes) else body.SerializeToString()) for body in bodies
    )


def version(text: str = "brain.Event:2", wall: float = 1.0) -> Any:
    return Event(wall_time=wall, file_version=text)


def scalar(tag: str, step: int, value: float, wall: float = 2.0) -> Any:
    """An event as torch writes it."""
    made = Summary.Value(tag=tag, simple_value=value)
    return Event(wall_time=wall, step=step, summary=Summary(value=[made]))


def values(step: int, *made: Any, wall: float = 2.0) -> Any:
    return Event(wall_time=wall, step=step, summary=Summary(value=made))


def metadata(plugin: str, content: bytes = b"", data_class: int = 0, **texts: str) -> Any:
    data = summary_pb2.SummaryMetadata.PluginData(plugin_name=plugin, content=content)
    return summary_pb2.SummaryMetadata(plugin_data=data, data_class=data_class, **texts)


def tensor(tag: str, array: Any, plugin: str, data_class: int = 0, **more: Any) -> Any:
    return Summary.Value(
        tag=tag,
        tensor=tensor_util.make_tensor_proto(array),
        metadata=metadata(plugin, data_class=data_class, **more),
    )


def session(step: int, status: int = 1, wall: float = 3.0) -> Any:
    log = event_pb2.SessionLog(status=status)
    return Event(wall_time=wall, step=step, session_log=log)


@dataclass
class Series:
    """All points of a tag: step, wall time, and a float, an array or a tuple of bytes."""

    metadata: Metadata | None = None
    points: list[tuple[int, float, Any]] = field(default_factory=list)


@dataclass
class Run:
    series: dict[str, Series] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)
    errors: list[str | None] = field(default_factory=list)
    wall: float | None = None
    state: Mapping[str, Any] | None = None
    offset: int = 0

    def plain(self) -> dict[str, tuple[Any, list[Any]]]:
        """Comparable: NaN equals itself, arrays are their bytes."""
        return {tag: (s.metadata, list(map(_plain, s.points))) for tag, s in self.series.items()}


def _plain(point: tuple[int, float, Any]) -> Any:
    step, wall, value = point
    if isinstance(value, float):
        return step, struct.pack("<d", wall), struct.pack("<d", value)
    if isinstance(value, np.ndarray):
        data = value.tolist() if value.dtype == object else value.tobytes()
        return step, struct.pack("<d", wall), str(value.dtype), value.shape, data
    return step, struct.pack("<d", wall), value


def collect(windows: Iterable[Window], policy: str = "marked", run: Run | None = None) -> Run:
    """Points by tag, without those that a restart hides."""
    run = Run() if run is None else run
    run.windows += windows
    run.series = {}
    hides: dict[str | None, list[tuple[dict[str, int], int]]] = {}
    written: dict[str, int] = {}
    for window in run.windows:
        for each in window.metadata:
            assert each.tag not in run.series, "a tag is met once"
            run.series[each.tag] = Series(each)
            written[each.tag] = 0
        for item in window.items:
            if isinstance(item, Hide):
                hides.setdefault(item.tag, []).append((dict(written), item.step))
                continue
            points = list(_points(item))
            run.series[item.tag].points += points
            written[item.tag] += len(points)
    run.faults = [fault for window in run.windows for fault in window.faults]
    for tag, series in run.series.items():
        marks = [
            (counts.get(tag, 0), step) for counts, step in hides.get(None, []) + hides.get(tag, [])
        ]
        steps = np.array([point[0] for point in series.points], np.int64)
        live = live_points(steps, marks, policy)
        if live is not None:
            series.points = [p for p, seen in zip(series.points, live, strict=True) if seen]
    return run


def _points(item: ScalarPoints | TensorPoint | BlobPoint) -> Iterable[tuple[int, float, Any]]:
    if isinstance(item, ScalarPoints):
        assert len(item.steps) == len(item.walls) == len(item.values) > 0
        columns = (item.steps.tolist(), item.walls.tolist(), item.values.tolist())
        return list(zip(*columns, strict=True))
    if isinstance(item, BlobPoint):
        return [(item.step, item.wall, item.blobs)]
    if item.dtype == "string":
        array = np.array(strings_of(item.data), object)
    else:
        array = np.frombuffer(item.data, np.dtype(item.dtype))
    return [(item.step, item.wall, array.reshape(item.shape))]


def read_run(paths: Sequence[Path], policy: str = "marked") -> Run:
    """The files of a run, one after the other."""
    windows, run = [], Run()
    for path in paths:
        reading = batches.read(path, state=run.state)
        windows += list(reading)
        run.state, run.wall, run.offset = reading.state, reading.wall, reading.offset
        run.statuses.append(reading.status)
        run.errors.append(reading.error)
    return collect(windows, policy, run)


def read_bytes(tmp_path: Path, data: bytes, name: str = "events.out.tfevents.1.x") -> Run:
    path = tmp_path / name
    path.write_bytes(data)
    return read_run([path])


def tensorboard_reads(folder: Path) -> Run:
    """What TensorBoard's accumulator, without any limit, has of a run."""
    guidance = {plugin_event_accumulator.TENSORS: 0}
    accumulator = plugin_event_accumulator.EventAccumulator(str(folder), guidance)
    run = Run()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accumulator.Reload()
        tagged = accumulator.Tags()[plugin_event_accumulator.TENSORS]
        for tag, said in accumulator.AllSummaryMetadata().items():
            data = said.plugin_data
            series = Series(
                Metadata(
                    *(tag, data.plugin_name, said.data_class, data.content),
                    *(said.display_name, said.summary_description),
                )
            )
            run.series[tag] = series
            for event in accumulator.Tensors(tag) if tag in tagged else ():
                value = _usable(event.tensor_proto, said.data_class)
                if value is not None:
                    series.points.append((event.step, event.wall_time, value))
    return run


def _usable(proto: Any, data_class: int) -> Any:
    """The value, or None where dlv flags a series: the rules of its data class are broken."""
    try:
        array = tensor_util.make_ndarray(proto)
    except (TypeError, ValueError, OverflowError):
        return None
    if data_class == SCALAR:
        fine = array.shape == () and str(array.dtype) in FLOATS
        return float(array.item()) if fine else None
    if data_class == BLOBS:
        return tuple(array.tolist()) if array.dtype == object and array.ndim == 1 else None
    return array


def as_json(run: Run) -> dict[str, Any]:
    """JSON: metadata and points of each tag; bytes in base64, floats in hexadecimal digits."""
    return {
        tag: {
            "metadata": [
                *(series.metadata.plugin, series.metadata.data_class),
                base64.b64encode(series.metadata.content).decode(),
                *(series.metadata.display_name, series.metadata.description),
            ],
            "points": [[step, wall.hex(), _coded(value)] for step, wall, value in series.points],
        }
        for tag, series in sorted(run.series.items())
        if series.metadata is not None
    }


def _coded(value: Any) -> Any:
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, tuple):
        return [_coded(each) for each in value]
    data = list(map(_coded, value.ravel().tolist())) if value.dtype == object else value.tobytes()
    return [str(value.dtype), list(value.shape), data if isinstance(data, list) else _coded(data)]
