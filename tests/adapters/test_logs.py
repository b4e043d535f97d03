"""dlv.adapters.logs on logs as loggers write them."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.adapters import logs as metric_logs
from dlv.adapters.logs import MetricLog, read
from dlv.errors import Damaged, DlvError, UnsafeInput, UsageError


def load(folder: Path, name: str, content: str | bytes, **options: Any) -> MetricLog:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read(str(path), **options)


def points(log: MetricLog) -> dict[str, list[tuple[int, float, float]]]:
    return {
        tag: list(zip(column.steps, column.walls, column.values, strict=True))
        for tag, column in log.columns.items()
    }


def test_keras_csv_logger(tmp_path: Path) -> None:
    log = load(tmp_path, "training.log", "epoch,accuracy,loss\n0,0.5,1.25\n1,0.75,nan\n")
    found = points(log)
    assert found["accuracy"] == [(0, 0.0, 0.5), (1, 0.0, 0.75)]
    assert math.isnan(found["loss"][1][2])
    assert (log.skipped, log.notes) == ([], [])


def test_lightning_csv_logger(tmp_path: Path) -> None:
    text = "epoch,step,train_loss,val_loss\n0,49,0.5,\n0,99,,0.4\n1,149,0.3,\n"
    assert points(load(tmp_path, "metrics.csv", text)) == {
        "epoch": [(49, 0.0, 0.0), (99, 0.0, 0.0), (149, 0.0, 1.0)],
        "train_loss": [(49, 0.0, 0.5), (149, 0.0, 0.3)],
        "val_loss": [(99, 0.0, 0.4)],
    }


def test_trainer_state(tmp_path: Path) -> None:
    state = {
        "best_metric": None,
        "log_history": [
            {"epoch": 0.5, "learning_rate": 5e-5, "loss": 2.5, "step": 500},
            {"epoch": 1.0, "eval_loss": 2.25, "step": 1000},
        ],
    }
    for name in ("trainer_state.json", "any.json"):
        log = load(tmp_path, name, json.dumps(state, indent=2))
        assert points(log)["eval_loss"] == [(1000, 0.0, 2.25)]
        assert points(log)["epoch"] == [(500, 0.0, 0.5), (1000, 0.0, 1.0)]


def test_json_lines(tmp_path: Path) -> None:
    text = (
        '\ufeff{"Step": 1, "timestamp": 10.5, "train": {"loss": 1}, "note": "x", "ok": true}\r\n'
        "\r\n"
        '{"Step": 2, "timestamp": 11, "train": {"loss": Infinity}, "acc": "nan"}\r\n'
    )
    log = load(tmp_path, "log.jsonl", text)
    found = points(log)
    assert found["train.loss"] == [(1, 10.5, 1.0), (2, 11.0, math.inf)]
    assert math.isnan(found["acc"][0][2])
    assert log.skipped == ["note", "ok"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_delimiters_quotes_and_line_ends(tmp_path: Path, delimiter: str) -> None:
    rows = [["step", 'loss, "raw"; all', "note"], ["1", "2", "a\nb"], ["2", "3", 'c"d']]
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows(rows)
    log = load(tmp_path, "a.csv", b"\xef\xbb\xbf" + out.getvalue().encode())
    assert points(log) == {'loss, "raw"; all': [(1, 0.0, 2.0), (2, 0.0, 3.0)]}
    assert log.skipped == ["note"]


def test_no_step_column(tmp_path: Path) -> None:
    log = load(tmp_path, "a.csv", "loss\n0.5\n0.25\n")
    assert points(log) == {"loss": [(0, 0.0, 0.5), (1, 0.0, 0.25)]}
    assert log.notes == ["no step column: rows are counted from 0"]


def test_chosen_columns(tmp_path: Path) -> None:
    text = "step,batch,when,loss\n1,10,2024-01-01T00:00:00,3\n2,20,2024-01-01 00:00:01+00:00,4\n"
    log = load(tmp_path, "a.csv", text, step_column="batch", time_column="when")
    assert points(log)["loss"] == [(10, 1704067200.0, 3.0), (20, 1704067201.0, 4.0)]
    with pytest.raises(UsageError) as caught:
        load(tmp_path, "a.csv", text, step_column="bathc")
    assert caught.value.did_you_mean == ["batch"]


def test_fractional_epochs_are_no_steps(tmp_path: Path) -> None:
    log = load(tmp_path, "a.csv", "epoch,loss\n0.5,3\n1.0,4\n")
    assert points(log)["loss"] == [(0, 0.0, 3.0), (1, 0.0, 4.0)]
    assert points(log)["epoch"] == [(0, 0.0, 0.5), (1, 0.0, 1.0)]


def test_a_column_that_is_not_always_a_number(tmp_path: Path) -> None:
    log = load(tmp_path, "a.csv", "step,loss,lr\n1,3,0.1\n2,4,auto\n3,5,None\n")
    assert list(log.columns) == ["loss"]
    assert log.skipped == ["lr"]
    assert log.notes == ["lr is skipped: line 3 has no number"]


def test_rows_without_step(tmp_path: Path) -> None:
    log = load(tmp_path, "a.jsonl", '{"step": 5, "a": 1}\n{"b": 2}\n')
    assert points(log)["b"] == [(5, 0.0, 2.0)]
    assert "1 rows without a step" in log.notes[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", '{"step": 1, "loss": 2}\n{"step": 2, "lo'),
        ("a.csv", "step,loss\n1,2\n2"),
        ("a.csv", 'step,loss\n1,2\n2,"3'),
        ("a.jsonl", '{"step": 1, "loss": 2}\n{"step": 2, "ä'.encode()[:-1]),
    ],
)
def test_last_line_still_being_written(tmp_path: Path, name: str, text: str | bytes) -> None:
    log = load(tmp_path, name, text)
    assert points(log) == {"loss": [(1, 0.0, 2.0)]}
    assert [note for note in log.notes if "cut and skipped" in note]


def test_last_line_without_end(tmp_path: Path) -> None:
    log = load(tmp_path, "a.csv", "step,loss\n1,2\n2,3")
    assert len(log.columns["loss"].values) == 2
    assert "may be cut" in log.notes[0]
    assert load(tmp_path, "a.jsonl", '{"step": 1, "loss": 2}').notes == []


WRONG: dict[str, tuple[str, str | bytes, type[DlvError], str]] = {
    "broken line": ("a.jsonl", '{"a": 1}\n{"a": \n{"a": 2}\n', Damaged, "a.jsonl, line 2"),
    "broken last line": ("a.jsonl", '{"a": 1}\n{"a": \n', Damaged, "line 2"),
    "list line": ("a.jsonl", "[1]\n", Damaged, "line 1"),
    "not UTF-8": ("a.jsonl", b'{"a": 1}\n{"a": "\xff"}\n', Damaged, "line 2"),
    "NUL": ("a.csv", "a,b\n1,2\n1,\0\n", Damaged, "line 3, contains a NUL"),
    "short row": ("a.csv", "a,b\n1,2\n1\n1,2\n", Damaged, "line 3"),
    "long row": ("a.csv", "a,b\n1,2\n1,2,3", Damaged, "line 3"),
    "no heading": ("a.csv", "1,2\n3,4\n", Damaged, "line 1"),
    "column twice": ("a.csv", "a,a\n3,4\n", Damaged, "line 1"),
    "quote": ("a.csv", 'a,b\n1,"2"3\n1,2\n', Damaged, "line 2"),
    "open quote": ("a.csv", 'a,b\n1,"2\n1,2\n', Damaged, "a.csv, line"),
    "step text": ("a.csv", "step,b\n1,2\nx,2\n", Damaged, "line 3"),
    "time text": ("a.csv", "step,time,b\n1,2,3\n2,x,3\n", Damaged, "line 3"),
    "huge cell": ("a.csv", "a,b\n1," + "9" * 200_000 + "\n", Damaged, "line 2"),
    "long line": ("a.jsonl", '{"a": "' + "x" * (3 << 20) + '"}\n', UnsafeInput, "line 1"),
    "long last line": ("a.csv", "a,b\n" + "x" * (2 << 20), UnsafeInput, "line 2"),
    "wide": ("a.csv", ",".join(f"c{i}" for i in range(20_000)) + "\n", UnsafeInput, "columns"),
    "deep": ("a.jsonl", '{"a": 1}\n' + "[" * 500_000 + "\n", Damaged, "line 2"),
    "state deep": ("a.json", '{"log_history": ' + "[" * 99, UnsafeInput, "line 1"),
    "state wide": ("a.json", '{"log_history": [' + "{}," * 2_100_000, UnsafeInput, "too large"),
    "state broken": ("a.json", '{"log_history": [\n{]}', Damaged, "line 2"),
    "state without rows": ("a.json", '{"log_history": 3}', Damaged, "rows"),
    "text": ("a.txt", "hello\n", UsageError, "not a metric log"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refuses(tmp_path: Path, case: str) -> None:
    name, content, kind, words = WRONG[case]
    with pytest.raises(kind, match=words):
        load(tmp_path, name, content)


def test_most_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_logs, "MOST_POINTS", 5)
    with pytest.raises(UnsafeInput, match="points"):
        load(tmp_path, "a.csv", "a\n" + "1\n" * 6)


def test_lines_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f'{{"step": {i}, "loss": {i}.5, "ä": "{"x" * (i % 7)}"}}\n' for i in range(300))
    whole = points(load(tmp_path, "a.jsonl", text))
    for size in (1, 2, 7, 1000):
        monkeypatch.setattr(metric_logs, "BLOCK", size)
        assert points(load(tmp_path, "a.jsonl", text)) == whole
    assert whole["loss"] == [(i, 0.0, i + 0.5) for i in range(300)]


ROWS = st.lists(
    st.dictionaries(st.sampled_from(["loss", "acc", "lr"]), st.floats(allow_nan=False), max_size=3),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_json_lines_and_csv_agree(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, float]]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    numbered = [{"step": index * 10, **row} for index, row in enumerate(rows)]
    lines = "".join(json.dumps(row) + "\n" for row in numbered)
    out = io.StringIO()
    writer = csv.DictWriter(out, ["step", "loss", "acc", "lr"])
    writer.writeheader()
    writer.writerows(numbered)
    expected = {
        tag: [(row["step"], 0.0, row[tag]) for row in numbered if tag in row]
        for tag in ("loss", "acc", "lr")
    }
    expected = {tag: found for tag, found in expected.items() if found}
    assert points(load(folder, "a.jsonl", lines, format_="jsonl")) == expected
    assert points(load(folder, "a.csv", out.getvalue())) == expected


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from('step,loss;\t"01.5e{}[]:\n\r ä'), max_size=60), st.data())
def test_any_text(tmp_path_factory: pytest.TempPathFactory, text: str, data: st.DataObject) -> None:
    suffix = data.draw(st.sampled_from(["csv", "jsonl", "json"]))
    try:
        log = load(tmp_path_factory.mktemp("log"), f"a.{suffix}", text, format_=suffix)
    except DlvError:
        return
    for column in log.columns.values():
        assert len(column.steps) == len(column.walls) == len(column.values) > 0


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(
        ["", "-", "nan", " 1.5 ", "1_0", "-inf", "+2", "1e3", "x", "\u0661", 'a"b', "1,5"]
    ),
)
NAMES = ["step", "epoch", "time", "loss", "acc", "Step", "note"]


def outcome(path: Path, **asked: Any) -> tuple[Any, ...]:
    try:
        log = read(str(path), **asked)
    except DlvError as error:
        return (type(error), error.message, error.why)
    points = [
        (tag, c.steps, c.walls, [repr(v) for v in c.values]) for tag, c in log.columns.items()
    ]
    return (points, log.skipped, log.notes)


@st.composite
def stretches(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows, many of which are alike: columns mostly of one kind, or with gaps."""
    rows: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 3))):
        names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=4))
        kinds = {name: draw(st.sampled_from("nnnnnnfffffffffggggttx")) for name in names}
        for at in range(draw(st.integers(6, 14))):
            row: dict[str, Any] = {}
            for name in names:
                some = {"n": at, "f": at * 0.5, "g": at * 0.5 if at % 3 else None, "t": "text"}
                row[name] = some[kinds[name]] if kinds[name] != "x" else draw(CELLS)
            rows.append(row)
    return rows


@settings(max_examples=300, deadline=None)
@given(
    stretches(),
    st.sampled_from([None, None, None, "step"]),
    st.sampled_from(["jsonl", "jsonl", "csv"]),
)
def test_many_rows_at_once_are_as_one_by_one(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[dict[str, Any]],
    step: str | None,
    kind: str,
) -> None:
    path = tmp_path_factory.getbasetemp() / f"alike.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
    at_once = outcome(path, step_column=step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metric_logs, "_FEW", 10**9)
        # As text, because NaN does not equal itself.
        assert repr(outcome(path, step_column=step)) == repr(at_once)


@pytest.mark.parametrize(
    "lines",
    [
        ['{"a": 1},{"a": 2}', '{"a": [{}', '{"a": 1}]}'],
        ['{"a": 1', '"b": 2}'],
        ['{"a": "}', '{", "b": 3}'],
        ['{"a": 1}, {"a": 2}'],
        ['{"a": 1}]', '[{"a": 1}'],
    ],
)
def test_lines_are_not_read_into_one_another(tmp_path: Path, lines: list[str]) -> None:
    good = ['{"a": 5}'] * 20
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join([*good, *lines, *good]) + "\n")
    with pytest.raises(Damaged, match=r"line 2[12], is not JSON"):
        read(str(path))
