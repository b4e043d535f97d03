"""Points in live.db: whatever was written in whatever pieces, what is read is what a list says."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dlv.curves.frozen as frozen_curves
from dlv.canonical import hash_bytes
from dlv.curves.store import LIVE, CurveStore, curves_of
from dlv.curves.writer import Batch, RunWriter, keep_preview
from dlv.events.formats import series as frozen_series
from dlv.events.logs.points import BlobPoint, Hide, Item, Metadata, ScalarPoints, TensorPoint
from dlv.events.provider.downsample import SAMPLE, sampled
from dlv.events.provider.store import Columns, Store
from dlv.metadata import curve_writing, curves
from dlv.metadata.metrics import summarise

Point = tuple[int, float, float]

POINTS = st.lists(
    st.tuples(
        st.integers(-3, 60),
        st.floats(0, 1e9),
        st.one_of(st.floats(width=32).map(float), st.sampled_from([math.nan, math.inf, -math.inf])),
    ),
    min_size=1,
    max_size=25,
)
WRITING = st.lists(
    st.one_of(
        st.tuples(st.just("points"), POINTS),
        st.tuples(st.just("hide"), st.integers(-2, 55)),
        st.tuples(st.just("flush"), st.none()),
    ),
    max_size=14,
)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (curves, curve_writing):
        monkeypatch.setattr(module, "CHUNK", 8)
    for module in (frozen_curves, frozen_series):
        monkeypatch.setattr(module, "BLOCK", 8)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CurveStore]:
    with CurveStore.open(tmp_path_factory.mktemp("curves") / "live.db") as opened:
        asked: Store = opened  # mypy sees that it is what providers want
        assert asked.experiments() == []
        yield opened


def declared(tag: str, data_class: int) -> Metadata:
    return Metadata(tag, "scalars", data_class, b"\x01", f"{tag}!", "said")


def columns(points: list[Point], tag: str = "loss") -> ScalarPoints:
    steps, walls, values = zip(*points, strict=True)
    return ScalarPoints(tag, np.array(steps, np.int64), np.array(walls), np.array(values))


class Writing:
    """A run, written batch by batch as `flush` says."""

    def __init__(self, store: CurveStore, run: str, experiment: str = "x") -> None:
        self.store, self.db = store, store.database
        with self.db.atomic():
            self.experiment = curve_writing.experiment(self.db, experiment)
            known = curves.runs(self.db, self.experiment)
            for key, name, *_ in known:
                if name == run:
                    curve_writing.withdraw(self.db, key)
            self.run = curve_writing.run(self.db, self.experiment, run)
        self.batch = Batch()
        self.batch.add([], [declared("loss", 1), declared("t", 2), declared("b", 3)])

    def add(self, *items: Item) -> None:
        self.batch.add(items)

    def flush(self) -> None:
        with self.db.atomic():
            RunWriter(self.store, self.run).write(self.batch)
        self.batch = Batch()

    def key(self, tag: str = "loss") -> int:
        return curve_writing.series(self.db, self.run)[tag].id


def written(store: CurveStore, steps: list[tuple[str, Any]]) -> tuple[Writing, list[Point]]:
    """What was done to the store, and the live points as a list has them."""
    writing, live = Writing(store, "r"), list[Point]()
    for what, given_ in steps:
        if what == "points":
            writing.add(columns(given_))
            live += given_
        elif what == "hide":
            writing.add(Hide(None, given_))
            live = [point for point in live if point[0] < given_]
        else:
            writing.flush()
    writing.flush()
    return writing, live


def rows(found: Columns) -> list[bytes]:
    parts = [np.frombuffer(part, "V8") for part in found]
    return [b"".join(bytes(x) for x in row) for row in zip(*parts, strict=True)]


def packed(points: list[Point]) -> list[bytes]:
    return [
        np.int64(s).tobytes() + np.float64(w).tobytes() + np.float64(v).tobytes()
        for s, w, v in points
    ]


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(WRITING, st.data())
def test_scalars_are_those_of_a_list(
    store: CurveStore, steps: list[tuple[str, Any]], data: st.DataObject
) -> None:
    writing, live = written(store, steps)
    key = writing.key()
    assert rows(store.scalars(key)) == packed(live)
    first, count = data.draw(st.integers(0, 30)), data.draw(st.integers(0, 30))
    assert rows(store.scalars(key, first, count)) == packed(live[first : first + count])
    if live:
        asked = data.draw(st.lists(st.integers(0, len(live) - 1), max_size=12))
        assert rows(store.scalar_at(key, asked)) == packed([live[i] for i in asked])
    (told,) = store.series(writing.experiment, runs=["r"], tags=["loss"])
    finite = [p[2] for p in live if math.isfinite(p[2])]
    assert (told.n, told.content, told.display_name) == (len(live), b"\x01", "loss!")
    assert told.max_step == max((p[0] for p in live), default=None)
    assert told.max_wall == max((p[1] for p in live), default=None)
    assert (told.min, told.max) == (min(finite, default=None), max(finite, default=None))
    assert told.last == (pytest.approx(live[-1][2], rel=0, abs=0, nan_ok=True) if live else None)
    at = 0
    for chunk in store.scalar_chunks(key):
        part = live[chunk.ordinal : chunk.ordinal + chunk.n]
        assert chunk.ordinal == at
        at += chunk.n
        assert (chunk.step0, chunk.step1) == (min(p[0] for p in part), max(p[0] for p in part))
        ends = [(p[2], at - len(part) + i) for i, p in enumerate(part) if math.isfinite(p[2])]
        least = min(ends, default=(None, None), key=lambda pair: pair[0])
        most = max(ends, default=(None, None), key=lambda pair: pair[0])
        assert (chunk.vmin, chunk.imin, chunk.vmax, chunk.imax) == (*least, *most)
        assert chunk.nonfinite == len(part) - len(ends)
    assert at == len(live)


def _unsigned(summary: Any) -> list[Any]:
    """Its fields; SQLite keeps no sign of a zero."""
    values = dataclasses.astuple(summary)
    return [value + 0.0 if isinstance(value, float) else value for value in values]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(WRITING)
def test_frozen_and_thawed(store: CurveStore, steps: list[tuple[str, Any]]) -> None:
    writing, live = written(store, steps)
    (row,) = store.series(writing.experiment, runs=["r"], tags=["loss"])
    objects = Objects()
    digest, summary = frozen_curves.freeze(store, row, "sub", objects.add)
    wanted = summarise("sub", "loss", digest, [p[0] for p in live], [p[2] for p in live])
    assert summary is not None
    np.testing.assert_equal(_unsigned(summary), _unsigned(wanted))
    again = Writing(store, "again")
    for item in frozen_curves.thaw(frozen_series.decode_head(objects["series", digest]), objects):
        again.add(item)
    again.flush()
    assert rows(store.scalars(again.key())) == packed(live)
    (there,) = store.series(again.experiment, runs=["again"], tags=["loss"])
    assert frozen_curves.freeze(store, there, "sub", Objects().add)[0] == digest


class Objects(dict[tuple[str, str], bytes]):
    def add(self, kind: str, data: bytes) -> str:
        name = hash_bytes(data)
        self[kind, name] = data
        return name

    def object(self, kind: str, name: str) -> bytes:
        return self[kind, name]

    def encoding(self, matrix: str) -> None:
        raise AssertionError(matrix)


def test_a_longer_log_shares_all_but_one_block(store: CurveStore) -> None:
    points = [(i, float(i), float(i * i)) for i in range(100)]
    kept: list[set[tuple[str, str]]] = []
    for count in (90, 100):
        writing, _ = written(store, [("points", points[:count])])
        (row,) = store.series(writing.experiment, runs=["r"], tags=["loss"])
        objects = Objects()
        frozen_curves.freeze(store, row, "", objects.add)
        kept.append({key for key in objects if key[0] == "points"})
    assert len(kept[0] - kept[1]) == 1
    assert len(kept[1] - kept[0]) == 2


def tensor(step: int, text: str) -> TensorPoint:
    data = text.encode()
    return TensorPoint("t", step, step + 0.5, "string", (len(data),), data, data[::-1])


def blobs(step: int, *parts: bytes) -> BlobPoint:
    return BlobPoint("b", step, math.nan if step == 3 else step + 0.5, parts)


def test_tensors_and_blobs(store: CurveStore) -> None:
    writing = Writing(store, "r")
    writing.add(tensor(1, "one"), blobs(1), blobs(2, b"same", b"", b"x" * 100))
    writing.flush()
    writing.add(tensor(2, "two"), blobs(3, b"same"), Hide(None, 2), tensor(2, "again"))
    writing.flush()
    found = list(store.tensors(writing.key("t")))
    assert [(t.step, t.wall, t.dtype, t.shape, t.data, t.legacy) for t in found] == [
        (1, 1.5, "string", (3,), b"one", b"eno"),
        (2, 2.5, "string", (5,), b"again", b"niaga"),
    ]
    assert [t.data for t in store.tensors(writing.key("t"), [1, 0, 7])] == [b"again", b"one"]
    key = writing.key("b")
    assert [(b.step, b.blobs) for b in store.blob_sequences(key)] == [(1, ())]
    writing.add(blobs(4, b"same", b"same"))
    writing.flush()
    (last,) = store.blob_sequences(key, [1])
    assert [size for _, size in last.blobs] == [4, 4]
    assert len({blob for blob, _ in last.blobs}) == 1
    assert [b"".join(store.blob(key, 1, i)) for i in (0, 1, 2)] == [b"same", b"same", b""]
    assert not list(store.blob(key, 9, 0))
    told = {row.tag: row for row in store.series(writing.experiment, runs=["r"])}
    assert (told["b"].n, told["b"].max_length, told["b"].max_step) == (2, 3, 4)
    assert (told["t"].n, told["t"].last) == (2, None)


def test_they_are_frozen_and_thawed_too(store: CurveStore) -> None:
    writing = Writing(store, "r")
    items: list[Item] = []
    for step in range(20):
        items += [tensor(step, f"{step}"), blobs(step, b"same", f"{step}".encode())]
        items += [Hide(None, 11)] if step == 14 else []
    writing.add(*items)
    writing.flush()
    again, objects = Writing(store, "again"), Objects()
    for tag in ("t", "b"):
        (row,) = store.series(writing.experiment, runs=["r"], tags=[tag])
        digest, summary = frozen_curves.freeze(store, row, "", objects.add)
        assert summary is None
        again.add(
            *frozen_curves.thaw(frozen_series.decode_head(objects["series", digest]), objects)
        )
    again.flush()

    def content(of: Writing) -> list[Any]:
        key = of.key("b")
        sequences = list(store.blob_sequences(key))
        read = [[b"".join(store.blob(key, i, j)) for j in (0, 1)] for i in range(len(sequences))]
        steps = [s.step for s in sequences]
        return [list(store.tensors(of.key("t"))), steps, read]

    assert content(again) == content(writing)
    assert [t.step for t in store.tensors(again.key("t"))] == [*range(11), *range(15, 20)]


def test_a_blob_is_there_once_and_goes_with_its_last_use(store: CurveStore) -> None:
    count = "SELECT count(*), sum(bytes) FROM blob"
    before = store.database.row(count)
    one, other = Writing(store, "one"), Writing(store, "other")
    for writing in (one, other):
        writing.add(blobs(1, b"only here"), blobs(2, b"only here"))
        writing.flush()
    assert store.database.row(count) != before
    held = store.database.row(count)
    with store.database.atomic():
        curve_writing.withdraw(store.database, one.run)
    assert store.database.row(count) == held
    assert b"".join(store.blob(other.key("b"), 1, 0)) == b"only here"
    with store.database.atomic():
        curve_writing.withdraw(store.database, other.run)
    assert store.database.row(count) == before
    assert store.database.value("SELECT count(*) FROM blob_piece") == (before or [0])[0]


def test_large_blobs_come_in_pieces(store: CurveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curve_writing, "PIECE", 10)
    writing = Writing(store, "r")
    writing.add(blobs(1, bytes(range(25))))
    writing.flush()
    pieces = list(store.blob(writing.key("b"), 0, 0))
    assert [len(piece) for piece in pieces] == [10, 10, 5]
    assert b"".join(pieces) == bytes(range(25))


def test_the_preview_is_the_sample(store: CurveStore) -> None:
    points = [(i, float(i), float(-i)) for i in range(3000)]
    writing, _ = written(store, [("points", points[:2000])])
    key = writing.key()
    assert store.preview(key) is None
    with store.database.atomic():
        keep_preview(store, key, 2000)
    found = store.preview(key)
    assert found is not None
    assert rows(found) == packed([points[i] for i in sampled(2000, SAMPLE)])
    writing.add(columns(points[2000:]))
    writing.flush()
    assert store.preview(key) is None  # it is one of other points


def test_values_of_another_kind_flag_the_series(store: CurveStore) -> None:
    writing = Writing(store, "r")
    writing.add(columns([(1, 1.0, 1.0)]), TensorPoint("loss", 2, 2.0, "float32", (), b"\0" * 4))
    writing.flush()
    (told,) = store.series(writing.experiment, runs=["r"], tags=["loss"])
    assert (told.n, told.error) == (1, "values of several kinds were logged under this tag")


def test_filters(store: CurveStore) -> None:
    writing = Writing(store, "r", "filters")
    writing.flush()

    def tags(**asked: Any) -> list[str]:
        return [row.tag for row in store.series(writing.experiment, **asked)]

    assert tags() == ["b", "loss", "t"]
    assert tags(data_class=2) == ["t"]
    assert tags(plugin="images") == []
    assert tags(tags=["t", "b", "?"], runs=["r"]) == ["b", "t"]
    assert tags(tags=[]) == tags(runs=[]) == []
    assert Writing(store, "z", "other").experiment != writing.experiment


def test_a_file_that_is_no_good_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with CurveStore.open(path) as store:
        assert store.experiments() == []
        Writing(store, "r").flush()
    with CurveStore.open(path) as store:
        assert [name for _, name in store.experiments()] == ["x"]
        store.database.execute("DROP TABLE preview")
    with CurveStore.open(path) as store:
        assert store.experiments() == []
        store.database.execute(f"PRAGMA user_version = {curves.SCHEMA_VERSION + 1}")
    with CurveStore.open(path) as store:
        assert store.experiments() == []


def test_a_folder_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the files in it may be: SQLite needs others beside them."""
    assert curves_of(tmp_path) == tmp_path / LIVE
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert curves_of(tmp_path) is None
