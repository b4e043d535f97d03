"""Broken events by the thousand: the reader flags them, and never fails or grows.

    python -m tests.events.fuzz_reading --runs 1000000

Bodies of good events are cut, doubled, flipped and stuffed; the sums are right, so that the parser
is reached. What protobuf takes for an event, dlv must take for one too.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorboard.compat.proto import event_pb2, tensor_pb2

from dlv.events.formats import tfevents
from dlv.events.logs.batches import Batches
from dlv.events.logs.gathering import Gathering
from dlv.events.logs.points import BlobPoint, Hide, RunState, ScalarPoints, TensorPoint, Window
from dlv.events.logs.templates import Templates
from tests.events.event_files import Event, Summary, metadata, scalar, session, values, version

TOGETHER = 40  # bodies of one file
MOST_MEMORY = 300 << 20
NUMBERS = [0, 1, 0x7F, 0x80, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]


@dataclass
class Outcome:
    runs: int = 0
    good: int = 0  # bodies that protobuf takes
    items: int = 0
    faults: int = 0
    damaged: int = 0


def seeds() -> list[bytes]:
    """One event of each kind, as bytes."""
    tensors = [
        tensor_pb2.TensorProto(dtype=1, float_val=[1.0, 2.0], tensor_shape=_shape(2)),
        tensor_pb2.TensorProto(dtype=2, double_val=[0.5]),
        tensor_pb2.TensorProto(dtype=7, string_val=[b"a", b"b"], tensor_shape=_shape(1, 2)),
        tensor_pb2.TensorProto(dtype=9, int64_val=[-1, 5], tensor_shape=_shape(2)),
        tensor_pb2.TensorProto(dtype=1, tensor_content=bytes(24), tensor_shape=_shape(2, 3)),
        tensor_pb2.TensorProto(dtype=19, half_val=[15360], tensor_shape=_shape(3)),
        tensor_pb2.TensorProto(dtype=8, scomplex_val=[1.0, 2.0]),
    ]
    made = [version(), version("brain.Event:1"), session(3), scalar("a", 5, 0.5), scalar("b", 0, 1)]
    for number, proto in enumerate(tensors):
        for plugin in ("scalars", "images", "audio", "text", "graph_keras_model", "hparams"):
            value = Summary.Value(tag=f"{plugin}{number}", metadata=metadata(plugin), tensor=proto)
            made.append(values(number, value, Summary.Value(tag="a", simple_value=1.0)))
    histogram = Summary.Value(tag="h")
    histogram.histo.min, histogram.histo.max = -1.0, 2.0
    histogram.histo.bucket.extend([0.0, 1.0, 2.0])
    histogram.histo.bucket_limit.extend([0.0, 1.0, 1e308])
    image = Summary.Image(height=3, width=2, encoded_image_string=b"png")
    sound = Summary.Audio(sample_rate=1.0, encoded_audio_string=b"wav")
    made += [
        values(1, histogram),
        values(2, Summary.Value(tag="i", image=image), Summary.Value(tag="s", audio=sound)),
        Event(graph_def=b"graph"),
        Event(step=4, tagged_run_metadata={"tag": "t", "run_metadata": b"x"}),
        Event(log_message={"message": "said"}),
        Event(meta_graph_def=b"meta"),
    ]
    return [each.SerializeToString() for each in made]


def _shape(*sizes: int) -> dict[str, list[dict[str, int]]]:
    return {"dim": [{"size": size} for size in sizes]}


def varint(number: int) -> bytes:
    made = b""
    while number > 127:
        made, number = made + bytes([number & 127 | 128]), number >> 7
    return made + bytes([number])


def broken(chance: random.Random, good: list[bytes]) -> bytes:
    """A body after a few changes; some have none."""
    body = bytearray(chance.choice(good))
    for _ in range(chance.choice((0, 1, 1, 2, 3, 8))):
        at = chance.randrange(len(body) + 1)
        size = chance.choice((1, 1, 2, 4, 8, 30))
        match chance.randrange(7):
            case 0 if at < len(body):
                body[at] ^= 1 << chance.randrange(8)
            case 1:
                body[at : at + size] = b""
            case 2:
                body[at:at] = chance.randbytes(size)
            case 3:
                body[at : at + size] = varint(chance.choice(NUMBERS))
            case 4:
                body[at:at] = body[at : at + size] * chance.choice((1, 2, 50))
            case 5:
                other = chance.choice(good)
                body[at:] = other[chance.randrange(len(other) + 1) :]
            case 6 if at < len(body):
                body[at] = chance.choice((0, 0x0B, 0x0C, 0x2A, 0x42, 0x7F, 0x80, 0xFF))
    return bytes(body)


def frame(body: bytes) -> bytes:
    length = struct.pack("<Q", len(body))
    return length + _sum(length) + body + _sum(body)


def _sum(data: bytes) -> bytes:
    return struct.pack("<I", tfevents.masked(tfevents.crc32c(data)))


def check(window: Window) -> int:
    """What is promised of every window, whatever was read."""
    tags = {each.tag for each in window.metadata}
    assert len(tags) == len(window.metadata)
    assert all(0 <= each.data_class <= 3 for each in window.metadata)
    classes = {each.tag: each.data_class for each in window.metadata}
    for item in window.items:
        match item:
            case Hide():
                assert item.tag is None or item.tag in tags
            case ScalarPoints():
                assert classes[item.tag] == 1
                assert 0 < len(item.steps) == len(item.walls) == len(item.values)
            case BlobPoint():
                assert classes[item.tag] == 3
            case TensorPoint():
                assert classes[item.tag] in (0, 2)
    return len(window.items)


def fuzz(runs: int, seed: int) -> Outcome:
    """`runs` bodies, some in files that are broken as files too."""
    chance, good, found, shared = random.Random(seed), seeds(), Outcome(), Templates()
    while found.runs < runs:
        bodies = [broken(chance, good) for _ in range(TOGETHER)]
        taken = [body for body in bodies if is_event(body)]
        found.runs += len(bodies)
        found.good += len(taken)
        sound = chance.random() < 0.5
        bodies = taken if sound else bodies
        data = bytearray(b"".join(map(frame, bodies)))
        whole = sound or chance.random() < 0.6
        if not whole:
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        window, run, damage = taken_whole(bytes(data), Templates())
        used = window.offset
        # What was learnt from other files changes nothing.
        again, state, _ = taken_whole(bytes(data), shared)
        assert told(again) == told(window)
        assert state.as_json() == run.as_json()
        found.items += check(window)
        found.faults += len(window.faults)
        found.damaged += damage is not None
        assert RunState(run.as_json()).as_json() == run.as_json()
        assert not whole or (used, damage) == (len(data), None)
        if sound:
            assert not any("no events" in fault.message for fault in window.faults)
    return found


def taken_whole(data: bytes, templates: Templates) -> tuple[Window, RunState, str | None]:
    run = RunState(None)
    gathered, batches = Gathering(run), Batches(run, templates)
    used, _ = batches.take(data, 0, gathered, last=True)
    return gathered.window(used), run, batches.damage


def told(window: Window) -> list[object]:
    """All that a window says, however its points are gathered."""
    points: dict[str, list[object]] = {}
    hides = []
    for item in window.items:
        match item:
            case Hide():
                hides.append((item, {tag: len(before) for tag, before in points.items()}))
            case ScalarPoints():
                columns = item.steps, item.walls.view("<u8"), item.values.view("<u8")
                rows = zip(*(column.tolist() for column in columns), strict=True)
                points.setdefault(item.tag, []).extend(rows)
            case _:
                points.setdefault(item.tag, []).append(repr(item))
    return [points, hides, sorted(map(repr, window.metadata)), sorted(map(repr, window.faults))]


def is_event(body: bytes) -> bool:
    try:
        event_pb2.Event.FromString(body)
    except DecodeError:
        return False
    return True


def slices(runs: int, seed: int, size: int = 50_000) -> Iterator[Outcome]:
    for number, done in enumerate(range(0, runs, size)):
        yield fuzz(min(size, runs - done), seed + number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    total = Outcome()
    for part in slices(given.runs, given.seed):
        for name, count in vars(part).items():
            setattr(total, name, getattr(total, name) + count)
        print(total, file=sys.stderr, flush=True)
    # ru_maxrss would begin with that of the process that started this one.
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
    print(f"{total}, peak {peak >> 20} MB")
    assert peak < MOST_MEMORY


if __name__ == "__main__":
    main()
