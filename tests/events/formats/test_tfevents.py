"""Event files as files: how they are cut, and what is done about files that are no good."""

from __future__ import annotations

import gzip
import itertools
import os
import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto import tensor_pb2
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import crc32c

from dlv.errors import NotFound, StorageError
from dlv.events.formats import tfevents
from dlv.events.logs import batches, gathering
from dlv.events.logs.points import BlobPoint, Fault
from tests.events.event_files import (
    Event,
    Summary,
    frame,
    framed,
    metadata,
    read_bytes,
    scalar,
    tensor,
    values,
    version,
)

MB = 1 << 20


def test_sums_of_one_text() -> None:
    text = random.Random(0).randbytes(3000)
    sizes = [*range(70), 1399, 1400, 1401, 1402, 2000, 2048, 3000]
    assert [tfevents.crc32c(text[:size]) for size in sizes] == [
        crc32c(text[:size]) for size in sizes
    ]
    assert tfevents.crc32c(b"123456789") == 0xE3069283  # the check value of the standard


def test_sums_of_big_texts_are_those_of_their_parts() -> None:
    for size in (1 << 17, (1 << 17) + 1, MB + 77):
        text = random.Random(size).randbytes(size)
        register = 0xFFFFFFFF
        for at in range(0, size, 1000):
            part = text[at : at + 1000]
            # Of a text behind another: the register is moved over it, and its own sum added.
            register = (
                tfevents.over_zeros(register, len(part)) ^ crc32c(part) ^ tfevents.start(len(part))
            )
        assert tfevents.crc32c(text) == register ^ 0xFFFFFFFF


def test_sums_of_many_texts() -> None:
    chance = random.Random(1)
    data = np.frombuffer(chance.randbytes(40_000), np.uint8)
    starts = np.array(sorted(chance.sample(range(8, 30_000), 300)))
    lengths = np.array([chance.choice([0, 1, 7, 8, 9, 38, 64, 1000, 9000]) for _ in starts])
    expected = [
        crc32c(data[at : at + size].tobytes())
        for at, size in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
    assert tfevents.of_records(data, starts, lengths).tolist() == expected
    assert tfevents.of_records(data, starts[:0], lengths[:0]).tolist() == []


def test_sums_as_files_keep_them() -> None:
    assert tfevents.masked(tfevents.crc32c(b"")) == 0xA282EAD8
    kept = [tfevents.masked(number) for number in (0, 1, 0xFFFFFFFF, 0x12345678)]
    assert tfevents.unmasked(np.array(kept, np.uint32)).tolist() == [0, 1, 0xFFFFFFFF, 0x12345678]


@pytest.mark.parametrize("count", [0, 1, 2, 5, 37, 300])
def test_what_one_byte_adds(count: int) -> None:
    table = tfevents.behind(count)
    text = bytearray(b"x" * 7 + bytes(count))
    before = crc32c(bytes(text))
    for byte in (0, 1, 0x80, 0xFF):
        text[6] = ord("x") ^ byte
        assert crc32c(bytes(text)) ^ before == table[byte]


def test_most_records_of_a_log_are_not_parsed_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = []
    add = gathering.Gathering.add

    def counted(self: gathering.Gathering, event: Any, *rest: Any) -> None:
        parsed.append(event)
        add(self, event, *rest)

    monkeypatch.setattr(gathering.Gathering, "add", counted)
    rows = []
    run = batches.Period.run

    def repeated(self: batches.Period, *given: Any) -> Any:
        found = run(self, *given)
        rows.append(found[0])
        return found

    monkeypatch.setattr(batches.Period, "run", repeated)
    made = [scalar(tag, step, step / 7) for step in range(400) for tag in "abcde"]
    found = read_bytes(tmp_path, framed([version(), *made]))
    assert [len(found.series[tag].points) for tag in "abcde"] == [400] * 5
    assert len(parsed) < 80
    assert 5 * sum(rows) > 1500
    # A loop within a loop.
    parsed.clear()
    rows.clear()
    epochs = [
        [scalar("t", step, 1.0) for step in range(90)] + [scalar(tag, 1, 1.0) for tag in "vwx"]
        for _ in range(40)
    ]
    found = read_bytes(tmp_path, framed([version(), *itertools.chain(*epochs)]))
    assert [len(found.series[tag].points) for tag in "tvwx"] == [3600, 40, 40, 40]
    assert len(parsed) < 150
    assert 93 * sum(rows) > 2500
    # In no order at all there is no period, but events are still those that came before.
    parsed.clear()
    rows.clear()
    random.Random(0).shuffle(made)
    found = read_bytes(tmp_path, framed([version(), *made]))
    assert [len(found.series[tag].points) for tag in "abcde"] == [400] * 5
    assert len(parsed) < 150
    assert 5 * sum(rows) < 100


def test_a_record_longer_than_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "WINDOW", 1000)
    blob = np.array([os.urandom(100_000)], object)
    run = read_bytes(
        tmp_path, framed([version(), values(1, tensor("i", blob, "images")), scalar("a", 2, 1.0)])
    )
    assert run.series["i"].points == [(1, 2.0, (blob[0],))]
    assert len(run.series["a"].points) == 1
    assert run.errors == [None]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "events.tfevents"
    with path.open("wb") as file:
        file.write(framed([version()]))
        for step in range(12):
            blob = np.array([bytes([step]) * (4 * MB)], object)
            file.write(framed([values(step, tensor("i", blob, "images"))]))
            piece = framed(scalar("a", step * 1000 + i, 1.0) for i in range(1000))
            file.write(piece)
    tracemalloc.start()
    try:
        blobs = 0
        for window in batches.read(path):
            blobs += sum(isinstance(item, BlobPoint) for item in window.items)
            del window
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert blobs == 12
    assert peak < 4 * batches.WINDOW < path.stat().st_size


# Files that are no good


def length(size: int, body: bytes = b"") -> bytes:
    head = struct.pack("<Q", size)
    return head + struct.pack("<I", tfevents.masked(crc32c(head))) + body


def one(made: Any) -> bytes:
    return framed([version(), made])


def huge_repeat() -> bytes:
    """One element that stands for 2**40."""
    made = Summary.Value(tag="t", metadata=metadata("text"))
    made.tensor.dtype = 1
    made.tensor.float_val.append(1.0)
    for _ in range(4):
        made.tensor.tensor_shape.dim.add(size=1 << 10)
    return one(values(1, made))


def huge_strings() -> bytes:
    made = Summary.Value(tag="t", metadata=metadata("text"))
    made.tensor.CopyFrom(tensor_pb2.TensorProto(dtype=7, string_val=[b"x" * 1000]))
    made.tensor.tensor_shape.dim.add(size=1 << 30)
    return one(values(1, made))


def axes() -> bytes:
    made = Summary.Value(tag="t", metadata=metadata("text"))
    made.tensor.CopyFrom(tensor_pb2.TensorProto(dtype=1, float_val=[1.0]))
    for _ in range(10_000):
        made.tensor.tensor_shape.dim.add(size=1)
    return one(values(1, made))


def negative() -> bytes:
    made = Summary.Value(tag="t", metadata=metadata("text"))
    made.tensor.CopyFrom(tensor_pb2.TensorProto(dtype=1, float_val=[1.0]))
    made.tensor.tensor_shape.dim.add(size=-5)
    made.tensor.tensor_shape.dim.add(size=-(1 << 62))
    return one(values(1, made))


def tags() -> bytes:
    return one(values(1, *(Summary.Value(tag=f"t{i}", simple_value=i) for i in range(4_000))))


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "open"),
    "one byte": (b"\0", "open"),
    "text": (b"this is a text, and no event file at all", "foreign"),
    "zeros": (bytes(5000), "foreign"),
    "compressed": (gzip.compress(one(scalar("a", 1, 1.0))), "foreign"),
    "2**40 bytes announced": (framed([version()]) + length(1 << 40), "damaged"),
    "2**64 - 1 bytes announced": (length((1 << 64) - 1), "foreign"),
    "2**30 bytes announced": (framed([version()]) + length(1 << 30, b"abc"), "open"),
    "zeros behind": (framed([version()]) + bytes(4096), "damaged"),
    "groups in groups": (framed([version(), b"\x0b" * 100_000]), "open"),
    "a group without an end": (framed([version(), b"\x0b" * 50]), "open"),
    "numbers without an end": (framed([version(), b"\x10" + b"\xff" * 1000]), "open"),
    "a length beyond the record": (framed([version(), b"\x2a\xff\xff\xff\x7f"]), "open"),
    "values in nothing": (framed([version(), b"\x2a\x04\x0a\x02\x0a\x05"]), "open"),
    "a tag that is no text": (framed([version(), b"\x2a\x05\x0a\x03\x0a\x01\xff"]), "open"),
    "a version that is no text": (framed([b"\x1a\x02\xff\xfe"]), "open"),
    "one element for 2**40": (huge_repeat(), "open"),
    "one string for 2**30": (huge_strings(), "open"),
    "10,000 axes": (axes(), "open"),
    "sizes below 0": (negative(), "open"),
    "4,000 tags": (tags(), "open"),
    "a tag of 100 KB": (one(scalar("x" * 100_000, 1, 1.0)), "open"),
    "a graph's tag of 100 KB": (
        one(Event(tagged_run_metadata={"tag": "x" * 100_000})), "open"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(tmp_path: Path, name: str) -> None:
    data, status = HOSTILE[name]
    path = tmp_path / "events.tfevents"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        reading = batches.read(path)
        windows = list(reading)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reading.status == status
    assert peak < 64 * MB
    points = sum(len(window.items) for window in windows)
    assert points == (4_000 if name == "4,000 tags" else 0)


FLAGGED = {
    "one element for 2**40": "represents",
    "one string for 2**30": "represents",
    "10,000 axes": "axes",
    "sizes below 0": "negative",
    "a tag of 100 KB": "100000 bytes",
    "a graph's tag of 100 KB": "100000 bytes",
    "groups in groups": "nested too deeply",
    "a group without an end": "cut off",
    "numbers without an end": "more than 10 bytes",
    "a tag that is no text": "UTF-8",
    "a version that is no text": "UTF-8",
}


@pytest.mark.parametrize("name", FLAGGED)
def test_hostile_records_are_told_of(tmp_path: Path, name: str) -> None:
    run = read_bytes(tmp_path, HOSTILE[name][0])
    assert [FLAGGED[name] in fault.message for fault in run.faults] == [True]
    assert len(run.faults[0].message) < 300


@pytest.mark.parametrize(
    ("announced", "there", "status"), [(1 << 40, 1 << 41, "damaged"), (1 << 30, 1 << 29, "open")]
)
def test_a_file_with_a_hole_is_not_taken_into_memory(
    tmp_path: Path, announced: int, there: int, status: str
) -> None:
    path = tmp_path / "events.tfevents"
    with path.open("wb") as file:
        file.write(framed([version()]) + length(announced))
        file.truncate(there)
    tracemalloc.start()
    try:
        reading = batches.read(path)
        list(reading)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (reading.status, peak < 4 * batches.WINDOW) == (status, True)
    assert f"at byte {reading.offset}" in str(reading.error)


def test_little_that_stands_for_much_comes_in_small_windows(tmp_path: Path) -> None:
    made = Summary.Value(tag="t", metadata=metadata("text"))
    made.tensor.CopyFrom(tensor_pb2.TensorProto(dtype=1, float_val=[1.0]))
    made.tensor.tensor_shape.dim.add(size=(9 * MB) // 4)
    events = [values(step, made, made) for step in range(30)]
    path = tmp_path / "events.tfevents"
    path.write_bytes(framed([version(), *events, scalar("a", 1, 1.0)]))
    counts: list[int] = []
    faults: list[Fault] = []
    tracemalloc.start()
    try:
        for window in batches.read(path):
            counts.append(len(window.items))
            faults += window.faults
            del window
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The second value of each event would be more than an event may bring.
    assert (sum(counts), len(faults)) == (31, 1)
    assert max(counts) == 2
    assert peak < 120 * MB


def test_gzip_is_named(tmp_path: Path) -> None:
    assert "gzip" in str(read_bytes(tmp_path, HOSTILE["compressed"][0]).errors[0])


@pytest.mark.parametrize(
    ("make", "expected"),
    [(Path.exists, NotFound), (lambda path: path.mkdir(), StorageError), (os.mkfifo, StorageError)],
)
def test_what_is_no_file(
    tmp_path: Path, make: Callable[[Path], object], expected: type[Exception]
) -> None:
    make(tmp_path / "x.tfevents")
    with pytest.raises(expected, match=r"x\.tfevents"):
        list(batches.read(tmp_path / "x.tfevents"))


def test_a_file_that_has_become_shorter(tmp_path: Path) -> None:
    path = tmp_path / "x.tfevents"
    path.write_bytes(frame(b""))
    reading = batches.read(path, offset=100)
    assert list(reading) == []
    assert reading.status == "damaged"
    assert "ends at 16" in str(reading.error)


@pytest.mark.parametrize("place", [0, 1])
def test_a_step_of_other_bytes_is_not_taken_for_one_of_the_period(
    tmp_path: Path, place: int
) -> None:
    """The record is as long as the others, but its step ends a byte earlier or later."""
    bodies = [scalar("a", step, 1.0).SerializeToString() for step in range(200, 500)]
    at = bodies[0].index(b"\x10", 9) + 1
    odd = bytearray(bodies[250])
    odd[at + place] ^= 0x80
    run = read_bytes(tmp_path, framed([version(), *bodies[:250], bytes(odd), *bodies[251:]]))
    assert [point[0] for point in run.series["a"].points] == [*range(200, 450), *range(451, 500)]
    assert len(run.faults) == 1
