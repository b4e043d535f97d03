"""Any log: what TensorBoard reads, however it is cut into windows and readings."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto import event_pb2, tensor_pb2

from dlv.events.logs import batches
from dlv.events.logs.points import ScalarPoints
from dlv.events.logs.templates import Templates
from tests.events import event_files
from tests.events.event_files import (
    Event,
    Run,
    Summary,
    collect,
    framed,
    metadata,
    scalar,
    tensor,
    tensorboard_reads,
    values,
    version,
)
from tests.events.fuzz_reading import taken_whole, told
from tests.events.repeating_logs import repeating

FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=FIXTURES)

PLUGINS = ["scalars", "histograms", "images", "audio", "text", "hparams", "pr_curves", "mesh"]
PLUGINS += ["graph_keras_model", "custom_scalars", "unheard_of", ""]
TAGS = st.sampled_from(["a", "b/c", "ü", "d"])
STEPS = st.one_of(st.integers(0, 6), st.sampled_from([-1, 127, 128, 2**40, -(2**63), 2**63 - 1]))
FLOATS = st.floats(width=32)
COUNTS = st.lists(st.floats(), max_size=6)


@st.composite
def tensors(draw: st.DrawFn) -> Any:
    """A TensorProto, mostly one whose elements fill its shape."""
    # TensorBoard fails over sounds of which the second axis is empty.
    shape = draw(st.lists(st.integers(1, 3), max_size=3))
    shape[:1] = draw(st.lists(st.integers(0, 3), min_size=len(shape[:1]), max_size=1))
    count = int(np.prod(shape)) if draw(st.booleans()) else draw(st.integers(0, 3))
    made = tensor_pb2.TensorProto()
    for size in shape:
        made.tensor_shape.dim.add(size=size)
    kind = draw(
        st.sampled_from(["string", "f4", "f8", "i4", "i8", "half", "bool", "content", "c8"])
    )
    if kind == "string":
        made.dtype = 7
        made.string_val.extend(
            draw(st.lists(st.binary(max_size=3), min_size=count, max_size=count))
        )
    elif kind == "content":
        # TensorBoard reads uint32 only from bytes, so it cannot read an empty tensor of it.
        whole = [(22, "<u4")] if count else []
        dtype, layout = draw(st.sampled_from([(1, "<f4"), (2, "<f8"), (4, "|u1"), *whole]))
        made.dtype = dtype
        made.tensor_content = np.arange(count).astype(layout).tobytes()
    else:
        number, field, low = {
            "f4": (1, "float_val", -9),
            "f8": (2, "double_val", -9),
            "i4": (3, "int_val", -9),
            "i8": (9, "int64_val", -9),
            "half": (19, "half_val", 0),
            "bool": (10, "bool_val", 0),
            "c8": (8, "scomplex_val", -9),
        }[kind]
        made.dtype = number
        top = 1 if kind == "bool" else 9
        count *= 2 if kind == "c8" else 1
        numbers = draw(st.lists(st.integers(low, top), min_size=count, max_size=count))
        getattr(made, field).extend(numbers)
    return made


@st.composite
def summary_values(draw: st.DrawFn) -> Any:
    made = Summary.Value(tag=draw(TAGS))
    kind = draw(st.sampled_from(["simple", "simple", "histo", "image", "audio", "tensor", "none"]))
    if kind == "simple":
        made.simple_value = draw(FLOATS)
    elif kind == "histo":
        counts = draw(COUNTS)
        made.histo.bucket.extend(counts)
        limits = len(counts) if draw(st.booleans()) else max(0, len(counts) - 1)
        made.histo.bucket_limit.extend(sorted(range(limits)))
        made.histo.min, made.histo.max = draw(st.floats()), draw(st.floats())
    elif kind == "image":
        made.image.width, made.image.height = draw(st.integers(-1, 9)), 7
        made.image.encoded_image_string = draw(st.binary(max_size=4))
    elif kind == "audio":
        made.audio.encoded_audio_string = draw(st.binary(max_size=4))
        made.audio.sample_rate = 8000
    elif kind == "tensor":
        made.tensor.CopyFrom(draw(tensors()))
    if kind in ("tensor", "none") or draw(st.booleans()):
        made.metadata.CopyFrom(
            metadata(
                draw(st.sampled_from(PLUGINS)),
                draw(st.binary(max_size=3)),
                draw(st.sampled_from([0, 0, 0, 0, 1, 2, 3])),
                display_name=draw(st.sampled_from(["", "shown"])),
                summary_description=draw(st.sampled_from(["", "said"])),
            )
        )
    return made


@st.composite
def events(draw: st.DrawFn) -> Any:
    made = Event(wall_time=draw(st.floats(0, 9)), step=draw(STEPS))
    kind = draw(st.sampled_from(["summary"] * 6 + ["session", "graph", "run", "log", "nothing"]))
    if kind == "summary":
        made.summary.value.extend(draw(st.lists(summary_values(), max_size=3)))
        made.summary.SetInParent()
    elif kind == "session":
        made.session_log.status = draw(st.integers(0, 3))
    elif kind == "graph":
        made.graph_def = draw(st.binary(max_size=5))
    elif kind == "run":
        made.tagged_run_metadata.tag = draw(st.sampled_from(["run", "walk"]))
        made.tagged_run_metadata.run_metadata = draw(st.binary(max_size=5))
    elif kind == "log":
        made.log_message.message = "said"
        made.log_message.level = event_pb2.LogMessage.INFO
    return made


@st.composite
def logs(draw: st.DrawFn) -> list[Any]:
    first: list[Any] = draw(
        st.sampled_from([[version()], [version("brain.Event:1")], [], [version("odd")]])
    )
    made: list[Any] = draw(st.lists(events(), max_size=12))
    return first + made


def regular(made: list[Any]) -> list[Any]:
    """Without a graph that has no value, of which TensorBoard makes a tensor without a dtype."""
    for each in made:
        kept = [
            value
            for value in each.summary.value
            if value.WhichOneof("value") or value.metadata.plugin_data.plugin_name != PLUGINS[8]
        ]
        if each.WhichOneof("what") == "summary":
            del each.summary.value[:]
            each.summary.value.extend(kept)
    return made


@SETTINGS
@given(logs())
@pytest.mark.filterwarnings("ignore")
def test_any_log_is_read_as_tensorboard_reads_it(tmp_path_factory: Any, made: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("log")
    made = regular(made)
    run = event_files.read_bytes(folder, framed(made))
    assert run.statuses == ["open"]
    assert run.errors == [None]
    assert run.wall == (made[0].wall_time if made else None)
    theirs = tensorboard_reads(folder).plain()
    assert run.plain() == theirs


@SETTINGS
@given(repeating(), st.sampled_from([600, 5000, 1 << 20]))
@pytest.mark.filterwarnings("ignore")
def test_what_repeats_is_read_as_tensorboard_reads_it(
    tmp_path_factory: Any, made: list[Any], window: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "WINDOW", window)
        patch.setattr(batches, "BLOCK", 2000)
        patch.setattr(batches, "FEW", 16)
        run = event_files.read_bytes(folder, framed(made))
    assert run.errors == [None]
    assert run.plain() == tensorboard_reads(folder).plain()


def read_in_pieces(folder: Path, data: bytes, cuts: list[int]) -> Run:
    """The file as it grows from cut to cut, read on each time."""
    path = folder / "events.out.tfevents.1.grows"
    windows: list[Any] = []
    run = Run()
    for end in [*sorted(cuts), len(data)]:
        path.write_bytes(data[:end])
        reading = batches.read(path, offset=run.offset, state=json.loads(json.dumps(run.state)))
        windows += list(reading)
        run.state, run.offset, run.wall = reading.state, reading.offset, reading.wall
        run.statuses, run.errors = [reading.status], [reading.error]
    return collect(windows, run=run)


@SETTINGS
@given(st.one_of(logs(), repeating(rows=20)), st.data())
def test_a_log_that_grows_is_read_as_one_that_is_there(
    tmp_path_factory: Any, made: list[Any], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("log")
    content = framed(made)
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=5))
    whole = event_files.read_bytes(folder, content)
    pieces = read_in_pieces(folder, content, cuts)
    assert pieces.plain() == whole.plain()
    assert [str(fault) for fault in pieces.faults] == [str(fault) for fault in whole.faults]
    assert (pieces.statuses, pieces.errors) == (whole.statuses, whole.errors)
    assert (pieces.offset, pieces.wall, pieces.state) == (whole.offset, whole.wall, whole.state)


@SETTINGS
@given(repeating(rows=30), st.data())
def test_a_flipped_bit_leaves_the_points_before_it_and_flags_the_file(
    tmp_path_factory: Any, made: list[Any], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("log")
    records = [framed([each]) for each in made]
    content = bytearray(b"".join(records))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    ends = list(itertools.accumulate(map(len, records)))
    good = sum(end <= place for end in ends)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "FEW", 8)
        flipped = event_files.read_bytes(folder, bytes(content))
    prefix = event_files.read_bytes(folder, b"".join(records[:good]))
    assert flipped.statuses == ["damaged" if good else "foreign"]
    assert flipped.offset == prefix.offset == sum(map(len, records[:good]))
    assert flipped.plain() == prefix.plain()
    if good:
        assert f"at byte {flipped.offset}" in str(flipped.errors[0])


@SETTINGS
@given(st.lists(st.one_of(repeating(rows=20), logs()), min_size=2, max_size=4))
def test_what_other_runs_taught_changes_nothing(runs: list[list[Any]]) -> None:
    shared = Templates()
    for run in runs + runs:
        alone, state, damage = taken_whole(framed(run), Templates())
        beside, other, _ = taken_whole(framed(run), shared)
        assert told(beside) == told(alone)
        assert other.as_json() == state.as_json()
        assert damage is None


def test_the_first_metadata_of_another_run_is_not_this_one_s() -> None:
    """A bare tensor is a scalar only behind an event that said so."""
    number = tensor("loss", np.float32(1), "scalars")
    bare = Summary.Value(tag="loss", tensor=number.tensor)
    first = framed([version(), values(0, number), *(values(step, bare) for step in range(1, 9))])
    shared = Templates()
    taken_whole(first, shared)
    for odd in ([values(0, bare), values(1, bare)], [values(0, tensor("loss", [1.0], "text"))]):
        content = framed([version(), *odd, *(values(step, bare) for step in range(2, 9))])
        alone, _, _ = taken_whole(content, Templates())
        beside, _, _ = taken_whole(content, shared)
        assert told(beside) == told(alone)
        assert not any(isinstance(item, ScalarPoints) for item in beside.items)


def long_log() -> list[bytes]:
    """Records of a loop, read by periods for the most part; steps take one byte, then two."""
    made = [
        scalar(tag, step, step + number / 8)
        for step in range(260)
        for number, tag in enumerate("abcde")
    ]
    return [framed([each]) for each in (version(), *made)]


def test_a_flipped_bit_within_a_period(tmp_path: Path) -> None:
    records = long_log()
    content = b"".join(records)
    ends = list(itertools.accumulate(map(len, records)))
    whole = event_files.read_bytes(tmp_path, content)
    chance = random.Random(3)
    for _ in range(150):
        place = chance.randrange(ends[400], len(content))
        flipped = bytearray(content)
        flipped[place] ^= 1 << chance.randrange(8)
        good = sum(end <= place for end in ends)
        run = event_files.read_bytes(tmp_path, bytes(flipped))
        assert (run.statuses, run.offset) == (["damaged"], ends[good - 1])
        for number, tag in enumerate("abcde"):
            count = (good - 1 - number + 4) // 5
            assert run.series[tag].points == whole.series[tag].points[:count]


def test_one_reading_follows_a_log(tmp_path: Path) -> None:
    content = b"".join(long_log())
    path = tmp_path / "events.tfevents"
    path.write_bytes(b"")
    reading, windows, end = batches.read(path), list[Any](), 0
    chance = random.Random(5)
    while end < len(content):
        end = min(len(content), end + chance.choice([1, 3, 7, 50, 500, 9000]))
        path.write_bytes(content[:end])
        windows += list(reading)
        assert (reading.error is None) == (reading.offset == end)
    assert collect(windows).plain() == event_files.read_bytes(tmp_path, content).plain()
    path.write_bytes(content + b"no record, but some text")
    assert list(reading) == []
    assert reading.status == "damaged"
    path.write_bytes(content)
    assert list(reading) == []
    assert (reading.status, reading.error) == ("open", None)


def test_a_loop_that_grows(tmp_path: Path) -> None:
    content = b"".join(long_log())
    whole = event_files.read_bytes(tmp_path, content)
    assert whole.series["c"].points == [(step, 2.0, step + 0.25) for step in range(260)]
    chance = random.Random(4)
    for _ in range(25):
        cuts = [chance.randrange(len(content)) for _ in range(4)]
        pieces = read_in_pieces(tmp_path, content, cuts)
        assert pieces.plain() == whole.plain()
        assert pieces.state == whole.state
