"""What each kind of summary becomes: the checklist of design and ingestion document, by number."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto import event_pb2, histogram_pb2, tensor_pb2

import dlv.curves.ingest as ingest
import dlv.events.logs.batches as batches
from dlv.curves.store import CurveStore
from dlv.events.formats.tensors import OldHistogram
from dlv.events.logs.points import Metadata, TensorPoint
from tests.events.event_files import (
    Event,
    Run,
    Summary,
    collect,
    framed,
    metadata,
    read_bytes,
    read_run,
    scalar,
    session,
    tensor,
    tensorboard_reads,
    values,
    version,
)


def read(tmp_path: Path, *events: Any) -> Run:
    """A file of the current version with these events, which is wholly good."""
    run = read_bytes(tmp_path, framed([version(), *events]))
    assert (run.statuses, run.errors) == (["open"], [None])
    return run


def histogram(tag: str, step: int, limits: list[float], counts: list[float], **more: float) -> Any:
    made = histogram_pb2.HistogramProto(bucket_limit=limits, bucket=counts, **more)
    return values(step, Summary.Value(tag=tag, histo=made))


def test_19_a_simple_value_is_a_scalar_of_32_bits(tmp_path: Path) -> None:
    run = read(tmp_path, scalar("loss", 5, 0.1, wall=7.5))
    assert run.series["loss"].metadata == Metadata("loss", "scalars", 1, b"", "loss", "")
    assert run.series["loss"].points == [(5, 7.5, float(np.float32(0.1)))]
    named = Summary.Value(tag="t", simple_value=1.0)
    named.metadata.CopyFrom(metadata("other", b"x", 3, display_name="T", summary_description="d"))
    assert read(tmp_path, values(1, named)).series["t"].metadata == Metadata(
        "t", "scalars", 1, b"", "T", "d"
    )


def test_20_a_histogram_is_rows_of_edges_and_counts(tmp_path: Path) -> None:
    limits, counts = [-1.5, -0.5, 0.5, 1.0, 1e308], [0.0, 2.0, 0.0, 3.0, 0.0]
    more = {"min": -0.75, "max": 0.875, "num": 5.0, "sum": 1.5, "sum_squares": 9.0}
    run = read(
        tmp_path,
        histogram("h", 1, limits, counts, **more),
        histogram("h", 2, [1.0, 2.0], [0.0, 0.0]),
        histogram("h", 3, [], []),
        histogram("h", 4, [1.0], [4.0], min=0.25, max=0.5),
    )
    assert run.series["h"].metadata == Metadata("h", "histograms", 2, b"", "h", "")
    trimmed, empty, none, single = (point[2] for point in run.series["h"].points)
    rows = [[-0.75, -0.5, 2.0], [-0.5, 0.5, 0.0], [0.5, 0.875, 3.0]]
    assert trimmed.tolist() == rows
    assert trimmed.dtype == np.float32
    assert empty.shape == none.shape == (0, 3)
    assert single.tolist() == [[0.25, 0.5, 4.0]]
    point = run.windows[0].items[0]
    assert isinstance(point, TensorPoint)
    old = OldHistogram.unpacked(point.legacy)
    assert [old.min, old.max, old.num, old.sum, old.sum_squares] == list(more.values())
    assert (old.limits.tolist(), old.counts.tolist()) == (limits, counts)


def test_21_an_image_is_width_height_and_its_bytes(tmp_path: Path) -> None:
    made = Summary.Image(height=2, width=3, colorspace=3, encoded_image_string=b"\x89PNG")
    run = read(tmp_path, values(1, Summary.Value(tag="i", image=made)))
    assert run.series["i"].metadata == Metadata("i", "images", 3, b"\x10\x01", "i", "")
    assert run.series["i"].points == [(1, 2.0, (b"3", b"2", b"\x89PNG"))]


def test_22_of_audio_the_first_axis_is_kept_and_labels_are_dropped(tmp_path: Path) -> None:
    made = Summary.Audio(sample_rate=8000, encoded_audio_string=b"RIFF")
    labelled = np.array([[b"one", b"first"], [b"two", b"second"]], object)
    run = read(
        tmp_path,
        values(1, Summary.Value(tag="old", audio=made)),
        values(1, tensor("v2", labelled, "audio")),
        values(2, tensor("v2", np.array([b"alone"], object), "audio")),
        values(1, tensor("deep", np.array([[[b"a", b"b"], [b"c", b"d"]]], object), "audio")),
        values(1, tensor("kept", labelled, "audio", data_class=2)),
    )
    assert run.series["old"].metadata == Metadata("old", "audio", 3, b"\x10\x0b\x18\x01", "old", "")
    assert run.series["old"].points == [(1, 2.0, (b"RIFF",))]
    assert [point[2] for point in run.series["v2"].points] == [(b"one", b"two"), (b"alone",)]
    assert [point[2] for point in run.series["deep"].points] == [(b"a",)]
    assert run.series["kept"].points[0][2].tolist() == labelled.tolist()


@pytest.mark.parametrize(
    ("plugin", "data_class"),
    [
        ("scalars", 1),
        *((name, 2) for name in ("histograms", "text", "pr_curves", "mesh", "hparams")),
        ("custom_scalars", 2),
        *((name, 3) for name in ("images", "audio", "graph_run_metadata", "graph_keras_model")),
        ("graph_run_metadata_graph", 3),
        ("somebody's", 0),
    ],
)
def test_23_a_plugin_has_a_class(tmp_path: Path, plugin: str, data_class: int) -> None:
    array = np.float32(1) if data_class == 1 else np.array([b"x"], object)
    run = read(tmp_path, values(1, tensor("t", array, plugin)))
    said = run.series["t"].metadata
    assert said is not None
    assert (said.plugin, said.data_class, said.display_name) == (plugin, data_class, "")
    assert len(run.series["t"].points) == 1


def test_24_hparams_without_a_value_are_an_empty_tensor(tmp_path: Path) -> None:
    made = Summary.Value(tag="_hparams_/experiment", metadata=metadata("hparams", b"told"))
    run = read(tmp_path, values(0, made))
    series = run.series["_hparams_/experiment"]
    assert series.metadata is not None
    assert (series.metadata.data_class, series.metadata.content) == (2, b"told")
    assert (series.points[0][2].shape, series.points[0][2].dtype) == ((0,), np.float32)


def test_25_a_graph_is_a_blob_of_its_own_bytes(tmp_path: Path) -> None:
    run = read(tmp_path, Event(wall_time=4.0, step=9, graph_def=b"\x0a\x00 not looked at"))
    assert run.series["__run_graph__"].metadata == Metadata(
        "__run_graph__", "graphs", 3, b"", "", ""
    )
    assert run.series["__run_graph__"].points == [(9, 4.0, (b"\x0a\x00 not looked at",))]


def test_26_run_metadata_is_a_blob(tmp_path: Path) -> None:
    told = event_pb2.TaggedRunMetadata(tag="step1", run_metadata=b"\x0a\x00")
    run = read(tmp_path, Event(step=3, tagged_run_metadata=told))
    assert run.series["step1"].metadata == Metadata(
        "step1", "graph_tagged_run_metadata", 3, b"", "", ""
    )
    assert run.series["step1"].points == [(3, 0.0, (b"\x0a\x00",))]


def test_27_graphs_of_keras_without_axes_are_one_blob(tmp_path: Path) -> None:
    made = [
        values(1, tensor(plugin, np.array(b"graph", object), plugin))
        for plugin in ("graph_run_metadata", "graph_run_metadata_graph", "graph_keras_model")
    ]
    run = read(tmp_path, *made)
    assert len(run.series) == 3
    assert all(each.points == [(1, 2.0, (b"graph",))] for each in run.series.values())


def test_28_a_class_that_the_writer_names_is_never_changed(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        values(1, tensor("s", np.float32(2), "histograms", data_class=1)),
        values(1, tensor("t", np.float32(2), "scalars", data_class=2)),
        values(1, tensor("b", np.array([b"x"], object), "text", data_class=3)),
        # Nothing is converted either: neither the axes of a graph nor a value that is not there.
        values(1, tensor("g", np.array(b"x", object), "graph_keras_model", data_class=3)),
        values(1, Summary.Value(tag="h", metadata=metadata("hparams", data_class=2))),
    )
    classes = {tag: each.metadata and each.metadata.data_class for tag, each in run.series.items()}
    assert classes == {"s": 1, "t": 2, "b": 3, "g": 3, "h": 2}
    assert {tag: len(each.points) for tag, each in run.series.items()} == {
        "s": 1, "t": 1, "b": 1, "g": 0, "h": 0
    }  # fmt: skip


def test_29_an_unknown_class_is_kept_and_told_once(tmp_path: Path) -> None:
    made = [values(step, tensor("own", np.arange(3), "somebody's")) for step in range(3)]
    run = read(tmp_path, *made, values(1, tensor("newer", np.float32(1), "scalars", data_class=7)))
    assert run.series["own"].metadata is not None
    assert run.series["own"].metadata.data_class == 0
    assert [point[2].tolist() for point in run.series["own"].points] == [[0, 1, 2]] * 3
    assert [(fault.tag, fault.warning) for fault in run.faults] == [("own", True), ("newer", True)]


def test_30_what_is_no_scalar_flags_its_series_only(tmp_path: Path) -> None:
    run = read(
        tmp_path,
        values(1, tensor("rank", np.array([1, 2], "f4"), "scalars")),
        values(1, tensor("one", np.array([1], "f4"), "scalars")),
        values(1, tensor("int", np.int32(1), "scalars")),
        values(1, tensor("mixed", np.float32(1), "scalars")),
        values(2, tensor("mixed", np.array(b"x", object), "scalars")),
        values(3, tensor("mixed", np.float32(3), "scalars")),
        values(1, tensor("blob", np.array([[b"x"]], object), "images")),
        values(1, tensor("good", np.float32(1), "scalars"), wall=1),
    )
    assert [fault.tag for fault in run.faults] == ["rank", "one", "int", "mixed", "blob"]
    assert not any(fault.warning for fault in run.faults)
    assert "shape [2]" in run.faults[0].message
    assert "dtype int32" in run.faults[2].message
    points = {tag: [point[0] for point in each.points] for tag, each in run.series.items()}
    assert points == {"rank": [], "one": [], "int": [], "mixed": [1, 3], "blob": [], "good": [1]}


def test_31_a_large_tensor_is_kept_and_told_once(tmp_path: Path) -> None:
    large = np.zeros((10 << 20) // 8 + 1)
    run = read(
        tmp_path,
        *(values(step, tensor("t", large, "histograms")) for step in range(2)),
        values(1, tensor("just", large[:-1], "histograms")),
    )
    assert [len(run.series[tag].points) for tag in ("t", "just")] == [2, 1]
    assert [(fault.tag, fault.warning) for fault in run.faults] == [("t", True)]


def test_32_the_first_metadata_of_a_tag_wins(tmp_path: Path) -> None:
    first = tensor("t", np.float32(1), "scalars", display_name="first")
    then = tensor("t", np.float32(2), "text", data_class=2, display_name="second")
    run = read(tmp_path, values(1, first), values(2, then), scalar("t", 3, 3.0))
    assert run.series["t"].metadata == Metadata("t", "scalars", 1, b"", "first", "")
    assert [point[2] for point in run.series["t"].points] == [1.0, 2.0, 3.0]
    # What an old value becomes is what its tag already is.
    text = values(1, tensor("u", np.array(b"x", object), "text"))
    run = read(tmp_path, text, scalar("u", 2, 0.5))
    assert run.series["u"].points[1][2].dtype == np.float32
    assert run.series["u"].points[1][2].tolist() == 0.5


def test_33_scalars_of_64_bits_keep_all_of_them(tmp_path: Path) -> None:
    made = Summary.Value(tag="d", metadata=metadata("scalars"))
    made.tensor.CopyFrom(tensor_pb2.TensorProto(dtype=2, double_val=[0.1]))
    half = Summary.Value(tag="h", metadata=metadata("scalars"))
    half.tensor.CopyFrom(tensor_pb2.TensorProto(dtype=19, half_val=[0x3E00]))
    run = read(tmp_path, *(values(step, made, half) for step in range(30)))
    assert {point[2] for point in run.series["d"].points} == {0.1}
    assert {point[2] for point in run.series["h"].points} == {1.5}


def test_34_files_of_a_run_follow_each_other(tmp_path: Path) -> None:
    named = tensor("t", np.float32(1), "scalars", display_name="told once")
    bare = Summary.Value(tag="t", tensor=named.tensor)
    first, second = tmp_path / "events.tfevents.1", tmp_path / "events.tfevents.2"
    first.write_bytes(framed([version(wall=5.0), values(1, named)]))
    second.write_bytes(framed([version(wall=9.0), values(2, bare)]))
    run = read_run([first, second])
    assert [point[0] for point in run.series["t"].points] == [1, 2]
    assert run.wall == 5.0
    # A second START is a restart, whichever file it is in.
    first.write_bytes(framed([version(), session(0), *(scalar("a", s, 1) for s in range(4))]))
    second.write_bytes(framed([version(), session(2), *(scalar("a", s, 2) for s in range(2, 6))]))
    run = read_run([first, second])
    assert [point[0] for point in run.series["a"].points] == [0, 1, 2, 3, 4, 5]


def test_35_restarts(tmp_path: Path) -> None:
    def written(*events: Any) -> bytes:
        return framed(events)

    def steps(data: bytes, policy: str) -> list[int]:
        path = tmp_path / "events.tfevents"
        path.write_bytes(data)
        return [point[0] for point in read_run([path], policy).series["a"].points]

    marked = written(
        *(version(), session(0), *(scalar("a", s, 0.0) for s in range(5))),
        *(session(3), *(scalar("a", s, 1.0) for s in range(3, 6))),
    )
    assert steps(marked, "marked") == [0, 1, 2, 3, 4, 5]
    assert steps(marked, "preempt") == [0, 1, 2, 3, 4, 5]
    assert steps(marked, "keep") == [0, 1, 2, 3, 4, 3, 4, 5]
    # Writers of torch and tensorboardX do not say that they began again.
    silent = written(version(), *(scalar("a", s, 0.0) for s in [*range(100), *range(50, 120)]))
    assert len(steps(silent, "marked")) == 170
    assert steps(silent, "preempt") == list(range(120))
    # Without a version, a step back is a restart, for the tags of the event.
    old = written(*(scalar("a", s, 0.0) for s in range(5)), scalar("b", 4, 0), scalar("a", 2, 1))
    assert steps(old, "marked") == [0, 1, 2]
    assert len(steps(old, "keep")) == 6


def test_36_a_cut_off_tail_is_read_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.tfevents"
    whole = framed([version(), *(scalar("a", step, step) for step in range(20))])
    path.write_bytes(whole[:-30])
    first = batches.read(path)
    windows = list(first)
    assert first.status == "open"
    assert first.error == f"the record at byte {first.offset} is cut off"
    again = batches.read(path, offset=first.offset, state=first.state)
    assert list(again) == []
    path.write_bytes(whole)
    state = json.loads(json.dumps(first.state))
    then = batches.read(path, offset=first.offset, state=state)
    run = collect(windows + list(then))
    assert [point[0] for point in run.series["a"].points] == list(range(20))
    assert (then.status, then.error, then.offset) == ("open", None, len(whole))


@pytest.mark.parametrize("place", ["length", "sum of the length", "body", "sum"])
def test_37_a_wrong_sum_keeps_what_stands_before_it(tmp_path: Path, place: str) -> None:
    good = framed([version(), *(scalar("a", step, step) for step in range(3))])
    bad = bytearray(framed([scalar("a", 3, 3.0)]))
    bad[{"length": 0, "sum of the length": 9, "body": 20, "sum": -1}[place]] ^= 4
    run = read_bytes(tmp_path, good + bytes(bad) + framed([scalar("a", 4, 4.0)]))
    assert [point[0] for point in run.series["a"].points] == [0, 1, 2]
    assert run.statuses == ["damaged"]
    assert f"at byte {len(good)}" in str(run.errors[0])
    assert run.offset == len(good)


def test_39_numbers_that_are_none_come_through(tmp_path: Path) -> None:
    numbers = [math.nan, math.inf, -math.inf, -0.0]
    run = read(tmp_path, *(scalar("a", step, number) for step, number in enumerate(numbers)))
    found = [point[2] for point in run.series["a"].points]
    assert struct.pack("<4d", *found) == struct.pack("<4d", *numbers)
    # One of the signalling kind is a NaN like others, however it is read.
    loud = 0x7F800001
    records = [scalar("a", step, 1.0).SerializeToString()[:-4] for step in range(300)]
    path = tmp_path / "loud.tfevents"
    path.write_bytes(framed([version(), *(each + struct.pack("<I", loud) for each in records)]))
    points = read_run([path]).series["a"].points
    assert [math.isnan(point[2]) for point in points] == [True] * 300
    wide = [1e300, struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000001))[0]]
    made = histogram("h", 1, [1.0, 2.0], [1.0, 2.0], min=wide[0], max=wide[1])
    rows = read(tmp_path, made).series["h"].points[0][2]
    assert rows[0, 0] == math.inf
    assert math.isnan(rows[1, 1])
    state = batches.read(_nan_wall(tmp_path))
    list(state)
    assert json.loads(json.dumps(state.state))["wall"] == "NaN"


def _nan_wall(tmp_path: Path) -> Path:
    path = tmp_path / "nan.tfevents"
    path.write_bytes(framed([version(wall=math.nan)]))
    return path


def test_a_value_named_by_its_node(tmp_path: Path) -> None:
    made = tensor("", np.float32(2), "scalars")
    made.node_name = "by/its/node"
    assert [point[2] for point in read(tmp_path, values(1, made)).series["by/its/node"].points] == [
        2
    ]


def test_a_record_that_is_no_event_is_left_out(tmp_path: Path) -> None:
    run = read_bytes(
        tmp_path,
        framed([version(), scalar("a", 1, 1.0), b"\xff\xff\xff", b"\x0f", scalar("a", 2, 2.0)]),
    )
    assert [point[0] for point in run.series["a"].points] == [1, 2]
    assert len(run.faults) == 1
    assert "not events" in run.faults[0].message
    # An event that says nothing is one.
    assert read(tmp_path, b"").series == {}


def test_38_reading_again_brings_nothing_twice_and_a_replaced_file_is_seen(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    path = folder / "events.tfevents"

    def look(*steps: int) -> tuple[int, list[int]]:
        """Bytes that were read, and the steps that are there then."""
        if steps:
            path.write_bytes(framed([version(), *(scalar("a", step, 1.0) for step in steps)]))
        with CurveStore.open(tmp_path / "live.db") as store:
            done = ingest.scan(store, folder)
            ((experiment, _),) = store.experiments()
            (series,) = store.series(experiment, tags=["a"])
            return done.bytes, np.frombuffer(store.scalars(series.id).steps, "<i8").tolist()

    first, found = look(*range(20))
    assert (first, found) == (path.stat().st_size, list(range(20)))
    assert look() == (0, list(range(20)))
    grown, found = look(*range(30))
    assert (grown, found) == (path.stat().st_size - first, list(range(30)))
    assert look(*range(50, 80))[1] == list(range(50, 80)), "replaced, of the same size or not"
    assert look(3, 4)[1] == [3, 4], "shrunken"


def test_what_differs_from_tensorboard(tmp_path: Path) -> None:
    """The class of a tag is told by its first value; TensorBoard mixes it with a later one's."""
    bare = tensor("t", np.float32(1), "scalars")
    bare.ClearField("metadata")
    named = tensor("t", np.float32(2), "scalars", data_class=1)
    nothing = Summary.Value(tag="n")
    made = [version(), values(1, bare), values(2, named), values(1, nothing), scalar("n", 2, 1.0)]
    ours = read_bytes(tmp_path, framed(made))
    theirs = tensorboard_reads(tmp_path)
    said = [run.series["t"].metadata for run in (ours, theirs)]
    assert [each and (each.plugin, each.data_class) for each in said] == [("", 0), ("scalars", 1)]
    # A value that says nothing at all does not take a scalar off its list.
    said = [run.series["n"].metadata for run in (ours, theirs)]
    assert [each and each.data_class for each in said] == [1, 0]
