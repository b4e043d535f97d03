from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.errors import UsageError
from dlv.training.trainers.interface import Event
from dlv.training.trainers.process import MOST_LINE, Events, Lines, Report


def line(step: Any, **more: Any) -> bytes:
    return json.dumps({"step": step, "metrics": {"loss": 0.5}, **more}).encode() + b"\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def test_each_line_comes_once_and_when_it_has_ended(log: Path) -> None:
    lines = Lines(log)
    assert list(lines.reports()) == []  # nobody has written yet
    with log.open("ab", buffering=0) as file:
        file.write(line(4)[:10])
        assert list(lines.reports()) == []
        file.write(line(4)[10:-1])
        assert list(lines.reports()) == []
        file.write(b"\n\n  \n" + line(8, checkpoint="c/8") + line(12)[:-1])
        assert list(lines.reports()) == [Report(4, {"loss": 0.5}), Report(8, {"loss": 0.5}, "c/8")]
        assert list(lines.reports()) == []
        # Even at the end: what is torn was not finished.
        assert list(lines.reports(ended=True)) == []


@given(st.lists(st.integers(0, 300), max_size=6))
def test_wherever_it_is_cut_it_is_read_alike(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    text = b"".join(line(step) for step in range(1, 7))
    log = tmp_path_factory.mktemp("log") / "log.jsonl"
    lines, found = Lines(log), []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(text)], strict=True):
        with log.open("ab") as file:
            file.write(text[start:end])
        found += [report.step for report in lines.reports()]
    assert found == [1, 2, 3, 4, 5, 6]


def test_numbers_that_are_not_finite(log: Path) -> None:
    log.write_text(
        '{"step": 4, "metrics": {"a": NaN, "b": Infinity, "c": "-Infinity", "d": "NaN", "e": 1}}\n'
    )
    (found,) = Lines(log).reports()
    assert math.isnan(found.metrics["a"])
    assert math.isnan(found.metrics["d"])
    assert (found.metrics["b"], found.metrics["c"]) == (math.inf, -math.inf)


HOSTILE = {
    "text": (b"step 4\n", "line 1, is not JSON: step 4"),
    "bytes": (b"\xff\xfe{\n", "line 1, is not JSON"),
    "deep": (b"[" * 100_000 + b"\n", "line 1, is not JSON"),
    "digits": (b'{"step": ' + b"9" * 5000 + b', "metrics": {}}\n', "line 1, is not JSON"),
    "list": (b"[4]\n", "line 1, is not a report"),
    "null": (b"null\n", "line 1, is not a report"),
    "no metrics": (b'{"step": 4}\n', "line 1, is not a report"),
    "metrics of a list": (b'{"step": 4, "metrics": [1]}\n', "line 1, is not a report"),
    "no step": (b'{"metrics": {}}\n', "line 1, has the step None"),
    "step of text": (line("4"), "line 1, has the step '4'"),
    "step of truth": (line(True), "line 1, has the step True"),
    "fraction": (line(4.0), r"line 1, has the step 4\.0"),
    "checkpoint of numbers": (line(4, checkpoint=5), "line 1, has a checkpoint that is not a path"),
    "the second": (line(4) + b"{\n", "line 2, is not JSON"),
    "endless": (b" " * (MOST_LINE + (1 << 20)), "line 1, is too long"),
}


@pytest.mark.hostile
@pytest.mark.parametrize("fault", HOSTILE)
def test_lines_that_are_no_reports(log: Path, fault: str) -> None:
    text, said = HOSTILE[fault]
    log.write_bytes(text)
    with pytest.raises(UsageError, match=said):
        list(Lines(log).reports())


def test_a_log_that_is_written_anew(log: Path) -> None:
    log.write_bytes(line(4) + line(8))
    lines = Lines(log)
    assert len(list(lines.reports())) == 2
    log.write_bytes(line(4))
    with pytest.raises(UsageError, match="became shorter"):
        list(lines.reports())


def events(folder: Path, points: list[list[Event]], begun: int = 0) -> Events:
    waiting = list(points)

    def more() -> Iterator[Event]:
        return iter(waiting.pop(0) if waiting else [])

    return Events(more, folder / "checkpoint", 4, begun, 10)


def test_events_are_rows_at_the_steps_of_logs(tmp_path: Path) -> None:
    found = events(
        tmp_path,
        [
            [(1, "loss", 3.0), (3, "loss", 2.0), (3, "acc", 0.1)],
            [(4, "acc", 0.2)],
            [(5, "loss", 1.5), (7, "loss", 1.25)],
            [(9, "loss", 1.0), (10, "acc", 0.4), (11, "acc", 0.5)],
        ],
    )
    assert list(found.reports()) == []
    assert list(found.reports()) == []  # more may come for step 4
    assert list(found.reports()) == [Report(4, {"loss": 2.0, "acc": 0.2})]
    assert list(found.reports()) == [
        Report(8, {"loss": 1.25, "acc": 0.2}),
        Report(10, {"loss": 1.0, "acc": 0.4}),
    ]
    assert list(found.reports(ended=True)) == []


def test_at_the_end_all_is_complete(tmp_path: Path) -> None:
    found = events(tmp_path, [[(1, "loss", 3.0), (7, "loss", 2.0)]])
    assert list(found.reports(ended=True)) == [
        Report(4, {"loss": 3.0}),
        Report(8, {"loss": 2.0}),
        Report(10, {"loss": 2.0}),
    ]
    assert list(events(tmp_path, []).reports(ended=True)) == []


def test_a_resumed_program_tells_of_later_steps_only(tmp_path: Path) -> None:
    found = events(tmp_path, [[(2, "loss", 3.0), (6, "loss", 2.0), (9, "loss", 1.0)]], begun=4)
    assert [report.step for report in found.reports()] == [8]


def test_checkpoints_beside_events_by_their_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name in ("step-4.npz", "48.npz", "model-8.tar.gz", "notes.txt"):
        (folder / name).write_text(name)
    (folder / "ckpt_10").mkdir()
    found = events(tmp_path, [[(step, "loss", 1.0) for step in range(1, 11)]])
    assert [report.checkpoint for report in found.reports(ended=True)] == [
        "checkpoint/step-4.npz",
        "checkpoint/model-8.tar.gz",
        "checkpoint/ckpt_10",
    ]
