"""Text logs that grow: whole lines once, whatever the pieces, as the reader of finished logs."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dlv.curves.ingest as ingest
import dlv.curves.text_logs as text_logs
from dlv.adapters import logs as metric_logs
from dlv.curves.store import LIVE, CurveStore
from tests import event_bytes

TIME = 1_700_000_000
CSV = (
    b"step,loss,note,acc\n"
    + b"".join(b"%d,%g,x,%s\n" % (n, 1 / n, b"" if n % 3 else b"0.5") for n in range(1, 40))
    + b'40,nan,"a, b",inf\n'
)
JSONL = b"".join(
    b'{"step": %d, "train": {"loss": %g}, "ok": true%s}\n' % (n, 1 / n, b', "lr": 2' * (n % 2))
    for n in range(1, 40)
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CurveStore]:
    with CurveStore.open(tmp_path / LIVE) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "logs"
    made.mkdir()
    return made


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (TIME, TIME + len(data)))


def shown(store: CurveStore) -> dict[tuple[str, str], list[tuple[int, str]]]:
    """(run, tag) -> (step, value), a value as text: NaN equals itself so."""
    found = {}
    for row in store.series(store.experiments()[0][0]):
        points = store.scalars(row.id)
        steps = struct.unpack(f"<{points.n}q", points.steps)
        values = struct.unpack(f"<{points.n}d", points.values)
        found[row.run, row.tag] = [(s, repr(v)) for s, v in zip(steps, values, strict=True)]
    return found


def finished(path: Path) -> dict[str, list[tuple[int, str]]]:
    columns = metric_logs.read(str(path)).columns
    return {
        tag: [(step, repr(value)) for step, value in zip(found.steps, found.values, strict=True)]
        for tag, found in columns.items()
    }


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    kind=st.sampled_from([("metrics.csv", CSV), ("log.jsonl", JSONL)]),
    cuts=st.lists(st.integers(0, len(CSV)), max_size=4),
)
def test_pieces_are_as_the_whole(tmp_path: Path, kind: tuple[str, bytes], cuts: list[int]) -> None:
    name, whole = kind
    folder = tmp_path / "grow"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with CurveStore.open(folder / LIVE) as store:
        for cut in [*sorted(cuts), len(whole)]:
            put(folder / "r" / name, whole[:cut])
            done = ingest.scan(store, folder / "r", experiment="e")
            assert done.remarks == []
        found = shown(store)
        assert {tag: points for (_, tag), points in found.items()} == finished(folder / "r" / name)
        assert {run for run, _ in found} == {"."}


def test_only_whole_lines(store: CurveStore, folder: Path) -> None:
    path = folder / "x.csv"
    for data, expected in (
        (b"step,lo", None),
        (b"step,loss\n", []),
        (b"step,loss\n1,0.2", []),
        (b"step,loss\n1,0.25\n2", [(1, "0.25")]),
        (b"step,loss\r\n1,0.25\r\n2,1\r\n", [(1, "0.25"), (2, "1.0")]),
    ):
        put(path, data)
        ingest.scan(store, folder, experiment="e")
        assert shown(store) == ({("x", "loss"): expected} if expected else {})


def test_each_text_log_is_a_run(store: CurveStore, folder: Path) -> None:
    row = b"step,loss\n1,2\n"
    for name in (
        *("metrics.csv", "b.csv", "a/log.jsonl", "a/metrics.csv", "a/eval.csv", "both/x.csv"),
        *("data.csv", "c.tsv", "c/x.csv", "c/notes.csv"),
    ):
        put(folder / name, b'{"step": 1, "loss": 2}\n' if name.endswith("jsonl") else row)
    put(folder / "data.csv", b"age,height\n1,2\n")
    put(folder / "c.tsv", b"epoch\tloss\n1\t2\n")
    put(folder / "c/notes.csv", b"step of a\n1\n")
    put(
        folder / "both" / "events.out.tfevents.1.x",
        event_bytes.version() + event_bytes.scalars("loss", [1]),
    )
    done = ingest.scan(store, folder, experiment="e")
    runs = [".", "a", "a/eval", "a/metrics", "b", "both", "c", "c/x"]
    assert done.runs == runs
    assert {run for run, _ in shown(store)} == set(runs)
    assert [Path(path).name for path in done.strange] == ["data.csv", "notes.csv"]


def test_two_logs_that_want_one_name(store: CurveStore, folder: Path) -> None:
    for name in ("x.csv", "x.tsv", "x/metrics.csv", "x/progress.csv", "x/metrics.tsv"):
        put(folder / name, b"step,loss\n1,2\n")
    runs = ["x", "x.tsv", "x/metrics", "x/metrics.tsv", "x/progress"]
    assert ingest.scan(store, folder).runs == runs


@pytest.mark.parametrize(
    ("name", "head", "fits"),
    [
        ("x.csv", b"Step,loss\n", True),
        ("x.csv", b"\xef\xbb\xbfepoch;loss\n", True),
        ("x.csv", b"step\n1\n", False),
        ("x.csv", b"a,b\n1,2\n", False),
        ("x.csv", b"step,loss", False),
        ("x.csv", b"step,loss\0\n", False),
        ("x.csv", b"", False),
        ("x.jsonl", b'{"start": "now"}\n{"iteration": 1, "loss": 2}\n', True),
        ("x.jsonl", b'{"iteration": 1}\n', False),
        ("x.jsonl", b'{"text": "one", "step": "first"}\n', False),
        ("x.ndjson", b"[1, 2]\n3\nnot json\n", False),
    ],
)
def test_what_is_taken_for_a_log(tmp_path: Path, name: str, head: bytes, fits: bool) -> None:
    (tmp_path / name).write_bytes(head)
    assert text_logs.tells_steps(tmp_path / name) is fits


def test_lines_that_are_no_rows(store: CurveStore, folder: Path) -> None:
    put(
        folder / "a.jsonl",
        b'{"step": 1, "loss": 1}\nTraceback\n[3]\n\n{"step": "x", "loss": 3}\n'
        b'{"step": 4, "loss": 4}\n{"step": 5, "loss":\n',
    )
    put(folder / "b.csv", b"step,loss\n1,1\n2,2,2\n3\nx,7\n4,4\nstep,acc\n5,5\n")
    done = ingest.scan(store, folder, experiment="e")
    assert shown(store) == {
        ("a", "loss"): [(1, "1.0"), (4, "4.0")],
        ("b", "loss"): [(1, "1.0"), (4, "4.0")],
        ("b", "acc"): [(5, "5.0")],
    }
    said = "lines that are not rows are skipped, the first is line"
    assert [remark for _, remark in done.remarks] == [
        f"{said} 2: it is not a JSON object",
        f"{said} 3: it has 3 cells, the header 2",
    ]
    with open(folder / "a.jsonl", "ab") as file:
        file.write(b'oops\n{"step": 6, "loss": 6}\n')
    done = ingest.scan(store, folder, experiment="e")
    assert (done.points, done.remarks) == (1, []), "of the first alone"


def test_names_that_no_database_takes(store: CurveStore, folder: Path) -> None:
    """JSON can say half a character; a heading as wide as this is no log's."""
    put(folder / "a.jsonl", b'{"step": 1, "\\ud800": 2, "": 3, "../up": 4}\n')
    put(
        folder / "b.csv",
        b"step," + b",".join(b"%x" % n for n in range(11_000)) + b"\n1" + b",1" * 11_000 + b"\n",
    )
    done = ingest.scan(store, folder, experiment="e")
    assert {tag for _, tag in shown(store)} == {"\\ud800", "", "../up"}
    assert ["too many columns" in text for _, text in done.remarks] == [True]


def test_times(store: CurveStore, folder: Path) -> None:
    """As the log says; else when the file was written."""
    put(folder / "a.csv", b"step,time,loss\n1,100.5,1\n2,,2\n")
    put(folder / "b.jsonl", b'{"step": 1, "timestamp": "2024-01-01T00:00:00", "loss": 1}\n')
    ingest.scan(store, folder, experiment="e")
    (key, _), *_ = store.experiments()
    starts = {run.name: run.start_time for run in store.runs(key)}
    assert starts == {"a": 100.5, "b": 1704067200.0}
    walls = {
        row.run: struct.unpack(f"<{row.n}d", store.scalars(row.id).walls)
        for row in store.series(key)
    }
    size = len(b"step,time,loss\n1,100.5,1\n2,,2\n")
    assert walls == {"a": (100.5, TIME + size), "b": (1704067200.0,)}


def test_a_log_that_is_written_anew(store: CurveStore, folder: Path) -> None:
    """As loggers do that meet a new column."""
    put(folder / "metrics.csv", b"step,loss\n1,1\n2,2\n")
    ingest.scan(store, folder, experiment="e")
    put(folder / "metrics.csv", b"step,loss,acc\n1,1,\n2,2,\n3,3,0.5\n")
    ingest.scan(store, folder, experiment="e")
    assert shown(store) == {
        (".", "loss"): [(1, "1.0"), (2, "2.0"), (3, "3.0")],
        (".", "acc"): [(3, "0.5")],
    }
    put(
        folder / "events.out.tfevents.1.x", event_bytes.version() + event_bytes.scalars("loss", [7])
    )
    ingest.scan(store, folder, experiment="e")
    assert shown(store) == {(".", "loss"): [(7, "3.5")]}, "event files count where tags: some"


def test_what_has_not_changed_is_not_opened(
    store: CurveStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder / "a.csv", b"step,loss\n1,1\n")
    put(folder / "data.csv", b"a,b\n1,1\n")
    strangers: dict[Path, ingest.Look] = {}
    ingest.scan(store, folder, strangers=strangers)
    assert [path.name for path in strangers] == ["data.csv"]

    def refused(*_: Any) -> Any:
        raise AssertionError("it is opened")

    with monkeypatch.context() as patch:
        patch.setattr(text_logs, "Source", refused)
        assert ingest.scan(store, folder, strangers=strangers).read == 0
    put(folder / "data.csv", b"step,b\n1,1\n")
    assert ingest.scan(store, folder, strangers=strangers).runs == ["a", "data"]


def test_a_line_without_an_end_for_long(
    store: CurveStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_logs, "WINDOW", 64)
    put(folder / "a.csv", b"step,loss\n" + b"".join(b"%d,1\n" % n for n in range(90)) + b"9" * 70)
    done = ingest.scan(store, folder, experiment="e")
    assert len(shown(store)["a", "loss"]) == 90, "windows are put together"
    assert [text for _, text in done.remarks] == ["line 92 is longer than 4 MiB"]


def test_a_log_of_many_steps_counts_rows_where_it_must(store: CurveStore, folder: Path) -> None:
    """Epochs like 0.5 are no steps: rows are counted, over pieces too."""
    put(folder / "a.csv", b"epoch,loss\n0.5,1\n1.0,2\n")
    ingest.scan(store, folder, experiment="e")
    put(folder / "a.csv", b"epoch,loss\n0.5,1\n1.0,2\n1.5,3\n")
    ingest.scan(store, folder, experiment="e")
    assert shown(store)["a", "loss"] == [(0, "1.0"), (1, "2.0"), (2, "3.0")]
    assert shown(store)["a", "epoch"] == [(0, "0.5"), (1, "1.0"), (2, "1.5")]
