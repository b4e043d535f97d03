"""The points of one window, as its events are taken one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dlv.events.formats import summaries, tensors
from dlv.events.formats.summaries import Event, Malformed, Value
from dlv.events.formats.tensors import MOST_REPEATED, STRING, Tensor, Unusable
from dlv.events.logs.points import (
    BLOBS,
    SCALAR,
    TENSOR,
    UNKNOWN,
    BlobPoint,
    Fault,
    Hide,
    Item,
    Metadata,
    RunState,
    ScalarPoints,
    Series,
    TensorPoint,
    Window,
)

MOST_TAG = 64 << 10  # bytes
LARGE_TENSOR = 10 << 20
RUN_GRAPH = "__run_graph__"

# What a value of an old kind says about its tag: plugin, its content.
_OLD = {
    summaries.SIMPLE: ("scalars", b""),
    summaries.IMAGE: ("images", tensors.IMAGE_CONTENT),
    summaries.HISTOGRAM: ("histograms", b""),
    summaries.AUDIO: ("audio", tensors.AUDIO_CONTENT),
}
_CLASSES = {
    "scalars": SCALAR,
    **dict.fromkeys(
        ("histograms", "text", "hparams", "pr_curves", "mesh", "custom_scalars"), TENSOR
    ),
    **dict.fromkeys(
        (
            *("images", "audio", "graph_run_metadata", "graph_run_metadata_graph"),
            "graph_keras_model",
        ),
        BLOBS,
    ),
}
_GRAPHS = {"graph_run_metadata", "graph_run_metadata_graph", "graph_keras_model"}
_NULL = Tensor("float32", (0,))

Columns = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]


class _Columns:
    """Scalars of one tag, in the order written: arrays, and behind them single ones."""

    def __init__(self) -> None:
        self.parts: list[Columns] = []
        self.steps: list[int] = []
        self.walls: list[float] = []
        self.values: list[float] = []

    def extend(self, columns: Columns) -> None:
        self._settle()
        self.parts.append(columns)

    def _settle(self) -> None:
        if self.values:
            self.parts.append(
                (
                    np.array(self.steps, np.int64),
                    np.array(self.walls, np.float64),
                    np.array(self.values, np.float64),
                )
            )
            self.steps, self.walls, self.values = [], [], []

    def points(self, tag: str) -> ScalarPoints:
        self._settle()
        steps, walls, values = zip(*self.parts, strict=True)
        return ScalarPoints(
            tag, np.concatenate(steps), np.concatenate(walls), np.concatenate(values)
        )


class Gathering:
    def __init__(self, run: RunState) -> None:
        self.run = run
        self._items: list[Item] = []
        self._metadata: list[Metadata] = []
        self._faults: list[Fault] = []
        self._scalars: dict[str, _Columns] = {}
        # While they are set: takes scalars, and brings those that it took.
        self.divert: Callable[[Series, Event, float], None] | None = None
        self.catch_up: Callable[[], None] | None = None

        self._repeated = 0  # bytes that elements of the event at hand grew to, by being repeated
        self._grown = 0  # and of all events

    @property
    def full(self) -> bool:
        """Whether points take much more memory than they took in the file."""
        return self._grown > MOST_REPEATED

    def window(self, offset: int) -> Window:
        """All that was gathered."""
        self._flush()
        return Window(self._items, self._metadata, self._faults, offset)

    def fault(
        self, tag: str | None, message: str, kind: str = "", *, warning: bool = False
    ) -> None:
        """Say it; of a kind once for each tag."""
        if kind:
            if (tag or "", kind) in self.run.told:
                return
            self.run.told.add((tag or "", kind))
        self._faults.append(Fault(tag, message, warning))

    def malformed(self, error: Malformed, byte: int) -> None:
        message = f"records that are not events are skipped, the first at byte {byte}: {error}"
        self.fault(None, message, "event")

    def add(self, event: Event, values: Sequence[Value] = ()) -> None:
        """Take one event, with the values of its summary, or (Malformed) nothing of it."""
        run, kind = self.run, event.kind
        graph = status = None
        version = 0.0
        if kind == summaries.FILE_VERSION:
            version = summaries.version(event.content)
        elif kind == summaries.SESSION_LOG:
            status = summaries.session_status(event.content)
        elif kind == summaries.GRAPH:
            graph = (RUN_GRAPH, event.content, "graphs")
        elif kind == summaries.RUN_METADATA:
            graph = (*summaries.tagged_metadata(event.content), "graph_tagged_run_metadata")
        self._repeated = 0
        if run.wall is None:
            run.wall = event.wall
        if kind == summaries.FILE_VERSION:
            run.version = version
        if status == summaries.SESSION_START and run.marks_restarts:
            if run.started:
                self._hide(None, event.step)
            run.started = True
        if graph is not None:
            self._restarted(event, {graph[0]})
            self._graph(event, *graph)
        elif kind == summaries.SUMMARY:
            self._restarted(event, {value.tag for value in values})
            for value in values:
                self._value(event, value)
        if graph is not None or kind == summaries.SUMMARY:
            run.step = event.step

    # Restarts

    def _restarted(self, event: Event, tags: set[str]) -> None:
        """Without a version in the file, a step back is a restart, for the tags of the event."""
        run = self.run
        if run.marks_restarts or event.step >= run.step:
            return
        for tag in sorted(tags):
            series = run.series.get(tag)
            if series is not None and series.latest is not None and series.latest >= event.step:
                self._hide(tag, event.step)
                series.latest = event.step - 1

    def _hide(self, tag: str | None, step: int) -> None:
        if self.catch_up is not None:
            self.catch_up()
        self._flush()
        self._items.append(Hide(tag, step))

    # Values

    def _value(self, event: Event, value: Value) -> None:
        tag = value.tag or (value.node if value.kind == summaries.TENSOR else "")
        series = self.run.series.get(tag)
        if series is not None and value.kind == summaries.SIMPLE and series.data_class == SCALAR:
            self._scalar(series, event, value.number)
            return
        try:
            if series is None:
                bare = value.metadata is None
                if bare and value.kind in (summaries.NOTHING, summaries.OBSOLETE):
                    return
                if not self._admitted(tag):
                    return
                series = self.register(first_metadata(tag, value))
            tensor, legacy = _tensor(series, value, MOST_REPEATED - self._repeated)
            if tensor is not None:
                self._count(tensor, value)
                self._place(series, event, tensor, legacy)
        except (Unusable, Malformed) as error:
            self.fault(tag, f"values are skipped, the first at step {event.step}: {error}", "value")

    def _count(self, tensor: Tensor, value: Value) -> None:
        size = len(tensor.data) + sum(map(len, tensor.strings)) + 8 * len(tensor.strings)
        if size > 2 * len(value.content):
            self._repeated += size
            self._grown += size

    def _admitted(self, tag: str) -> bool:
        size = len(tag.encode())
        if size > MOST_TAG:
            self.fault(None, f"a tag of {size} bytes is skipped: `{tag[:40]}…`", "tag")
        return size <= MOST_TAG

    def register(self, metadata: Metadata) -> Series:
        """Begin the series of a tag."""
        given = metadata.data_class != UNKNOWN
        data_class = data_class_of(metadata)
        if data_class == UNKNOWN:
            named = f"the plugin `{metadata.plugin}`" if metadata.plugin else "no plugin"
            self.fault(metadata.tag, f"it is stored, but listed as {named}", "class", warning=True)
        self._metadata.append(
            Metadata(
                *(metadata.tag, metadata.plugin, data_class),
                *(metadata.content, metadata.display_name, metadata.description),
            )
        )
        series = Series(metadata.tag, metadata.plugin, data_class, given)
        self.run.series[metadata.tag] = series
        return series

    def _graph(self, event: Event, tag: str, content: bytes, plugin: str) -> None:
        series = self.run.series.get(tag)
        if series is None:
            if not self._admitted(tag):
                return
            series = self.register(Metadata(tag, plugin, BLOBS, b"", "", ""))
        try:
            self._place(series, event, Tensor(STRING, (1,), strings=(content,)), b"")
        except Unusable as error:
            self.fault(tag, f"values are skipped, the first at step {event.step}: {error}", "value")

    def _place(self, series: Series, event: Event, tensor: Tensor, legacy: bytes) -> None:
        tag = series.tag
        if series.data_class == SCALAR:
            if tensor.shape:
                raise Unusable(f"a scalar has the shape {list(tensor.shape)}")
            layout = tensors.FLOATS.get(tensor.dtype)
            if layout is None:
                raise Unusable(f"a scalar has the dtype {tensor.dtype}")
            self._scalar(series, event, float(np.frombuffer(tensor.data, layout)[0]))
            return
        self._note(series, event.step)
        if series.data_class == BLOBS:
            if tensor.dtype != STRING or len(tensor.shape) != 1:
                raise Unusable(
                    f"blobs have the dtype {tensor.dtype} and the shape {list(tensor.shape)}"
                )
            self._items.append(BlobPoint(tag, event.step, event.wall, tensor.strings))
            return
        data = tensor.framed()
        if len(data) > LARGE_TENSOR:
            self.fault(
                tag, f"a tensor has {len(data)} bytes, more than 10 MiB", "large", warning=True
            )
        point = TensorPoint(tag, event.step, event.wall, tensor.dtype, tensor.shape, data, legacy)
        self._items.append(point)

    def _note(self, series: Series, step: int) -> None:
        if series.latest is None or step > series.latest:
            series.latest = step

    # Scalars

    def _scalar(self, series: Series, event: Event, value: float) -> None:
        self._note(series, event.step)
        if self.divert is not None:
            self.divert(series, event, value)
            return
        columns = self._columns(series)
        columns.steps.append(event.step)
        columns.walls.append(event.wall)
        columns.values.append(value)

    def extend(self, series: Series, columns: Columns) -> None:
        """Take points of a scalar series that no restart can be among."""
        if len(columns[0]):
            self._note(series, int(columns[0].max()))
            self._columns(series).extend(columns)

    def _columns(self, series: Series) -> _Columns:
        columns = self._scalars.get(series.tag)
        if columns is None:
            columns = self._scalars[series.tag] = _Columns()
        return columns

    def _flush(self) -> None:
        self._items += [columns.points(tag) for tag, columns in self._scalars.items()]
        self._scalars = {}


def first_metadata(tag: str, value: Value) -> Metadata:
    """Return what a tag is if it begins with this value."""
    said = summaries.metadata(tag, value.metadata or b"")
    if value.kind in _OLD:
        plugin, content = _OLD[value.kind]
        said = Metadata(tag, plugin, 0, content, said.display_name or tag, said.description)
    return said


def data_class_of(metadata: Metadata) -> int:
    """Return the data class that metadata names, or else that of its plugin."""
    known = metadata.data_class or _CLASSES.get(metadata.plugin, UNKNOWN)
    return known if UNKNOWN <= known <= BLOBS else UNKNOWN


def _tensor(series: Series, value: Value, room: int) -> tuple[Tensor | None, bytes]:
    """The tensor that a value becomes, None if it has none; what an old histogram says besides."""
    if value.kind == summaries.SIMPLE:
        return Tensor("float32", (), np.array(value.number, "<f4").tobytes()), b""
    if value.kind == summaries.IMAGE:
        return tensors.image(value.content), b""
    if value.kind == summaries.HISTOGRAM:
        return tensors.histogram(value.content)
    if value.kind == summaries.AUDIO:
        labelled = series.given or series.plugin != "audio"
        return tensors.audio(value.content, labelled=labelled), b""
    if value.kind != summaries.TENSOR:
        null = series.plugin == "hparams" and not series.given
        return (_NULL if null else None), b""
    parsed = tensors.parse(value.content)
    if series.given:
        return tensors.tensor(parsed, room=room), b""
    shape = parsed.shape
    if series.plugin == "audio" and len(shape) > 1:
        return _clips(parsed, shape, room), b""
    if series.plugin in _GRAPHS and not shape:
        return tensors.tensor(parsed, shape=[1], room=room), b""
    return tensors.tensor(parsed, room=room), b""


def _clips(parsed: tensors.Parsed, shape: list[int], room: int) -> Tensor:
    """Sounds without their labels: the first axis."""
    stride = math.prod(shape[1:])
    if stride <= 0:
        raise Unusable(f"sounds have the shape {shape}")
    return tensors.tensor(parsed, strings=parsed.strings()[::stride], shape=shape[:1], room=room)
