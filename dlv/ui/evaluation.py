"""Evaluations: metrics, who was taken for whom, and examples decided against bytes read."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dlv.report.plots as plots
import dlv.views.evaluated as view
from dlv.evaluation.answers import Evaluation
from dlv.evaluation.evaluate import Evaluated
from dlv.report.gallery import gallery
from dlv.report.markup import Html, scrolling, text
from dlv.report.page import Section
from dlv.report.plots import Axis, Dot
from dlv.terminal.table import Cell, Table, human_bytes
from dlv.ui.frame import Frame
from dlv.ui.frame import write as write_report
from dlv.views.values import percent

MOST_CLASSES = 40


def sections(evaluated: Evaluated, frame: Frame) -> list[Section]:
    """All that `eval` found."""
    document, blocks = view.evaluated(evaluated, frame.output)
    tables = [block for block in blocks if isinstance(block, Table)][:1]
    found = [Section("results", frame.html(*tables))]
    several = len(evaluated.results) > 1
    for result, evaluation in zip(document["results"], evaluated.results, strict=True):
        found += details(result, frame, several=several)
        found += mistakes(evaluation, frame, several=several)
    notes = [*evaluated.notes, *view.warnings(evaluated)]
    return [*found, Section("", frame.html(*notes))] if notes else found


def write(path: Path, evaluated: Evaluated, now: datetime.datetime, command: str) -> None:
    """A report of what `eval` found."""
    labels = list(dict.fromkeys(result.version for result in evaluated.results))
    title = f"{', '.join(labels[:4])} on {evaluated.data.get('name', 'data')}"
    write_report(path, title, sections(evaluated, Frame(now)), command=command)


def details(result: Mapping[str, Any], frame: Frame, *, several: bool) -> list[Section]:
    """Levels and confusion of one result, as `eval --json` has it."""
    of = f" of {result['version']}" if several else ""
    found = []
    if result["levels"]:
        found.append(Section(f"certainty against bytes{of}", certainty(result)))
        found += _levels(result, frame)
    if result["confusion"]:
        found.append(Section(f"classes and predictions{of}", confusion(result["confusion"])))
        found.append(Section(f"classes{of}", frame.table(classes(result["confusion"]), fold=20)))
    return found


def mistakes(evaluation: Evaluation, frame: Frame, *, several: bool) -> list[Section]:
    """Wrong predictions: images where there are some, else a table."""
    if not evaluation.mistakes:
        return []
    of = f" of {evaluation.version}" if several else ""
    title = f"wrong predictions{of}"
    images = [
        (
            each.image,
            f"{each.label} → {each.prediction}",
            f"example {each.example}: {each.label}, predicted as {each.prediction}",
        )
        for each in evaluation.mistakes
        if each.image is not None
    ]
    if images:
        return [Section(title, gallery(images))]
    rows: list[list[Cell]] = [
        [each.example, each.label, each.prediction] for each in evaluation.mistakes
    ]
    return [Section(title, frame.table(Table(["example", "label", "prediction"], rows)))]


def certainty(result: Mapping[str, Any]) -> Html:
    """The share of examples that is decided after each level, against the bytes read."""
    whole, examples = result["bytes_whole"], max(result["examples"], 1)
    points = [(0.0, 0.0)]
    dots = []
    for number, level in enumerate(result["levels"], 1):
        x, y = 100 * level["bytes_read"] / max(whole, 1), 100 * level["decided"] / examples
        points.append((x, y))
        told = (
            f"level {number}: {human_bytes(level['bytes_read'])} read, {level['decided']:,} decided"
        )
        dots.append(Dot(x, y, told))
    return plots.scatter(
        "examples decided against bytes read",
        [Dot(0.0, 0.0, "nothing read", size=2), *dots, Dot(100.0, 100.0, "all read", 6, 2)],
        Axis("bytes read", "percent"),
        Axis("examples decided", "percent"),
        [points],
    )


def _levels(result: Mapping[str, Any], frame: Frame) -> list[Section]:
    rows = [
        [number, human_bytes(level["bytes_read"]), level["decided"], level["undecided"]]
        for number, level in enumerate(result["levels"], 1)
    ]
    table = Table(["level", "read", "decided", "undecided"], rows)
    return [Section("", frame.table(table, caption="levels"))]


def confusion(held: Mapping[str, Any]) -> Html:
    """Labels down, predictions across; darker where there are more, and each with its number."""
    classes, counts = held["classes"], held["counts"]
    if len(classes) > MOST_CLASSES:
        return _mistakes(classes, counts)
    undecided = any(held["undecided"])
    heads = [*classes, *(["undecided"] if undecided else [])]
    head = "".join(f'<th scope="col" class="n">{text(name)}</th>' for name in heads)
    rows = []
    for at, row in enumerate(counts):
        total = sum(row) or 1
        cells = "".join(
            f'<td class="m{_shade(count / total)}">{count if count else "·"}</td>' for count in row
        )
        more = f"<td>{held['undecided'][at]}</td>" if undecided else ""
        rows.append(f'<tr><th scope="row">{text(classes[at])}</th>{cells}{more}</tr>')
    caption = '<caption class="soft">label down, prediction across</caption>'
    body = f"<thead><tr><td></td>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return scrolling("confusion matrix", f'<table class="heat confusion">{caption}{body}</table>')


def classes(held: Mapping[str, Any]) -> Table:
    """For each class how many of its examples were right, and what it was taken for most often."""
    rows: list[list[Cell]] = []
    counts = held["counts"]
    for at, (name, row) in enumerate(zip(held["classes"], counts, strict=True)):
        total = sum(row) + held["undecided"][at]
        told = sum(other[at] for other in counts)
        wrong = max((n, to) for to, n in enumerate(row) if to != at) if len(row) > 1 else (0, 0)
        rows.append(
            [
                name,
                total,
                percent(row[at], total),
                percent(row[at], told),
                f"{held['classes'][wrong[1]]} ({wrong[0]})" if wrong[0] else None,
            ]
        )
    columns = ["class", "examples", "recall %", "precision %", "mostly mistaken for"]
    return Table(columns, rows)


def _mistakes(classes: Sequence[str], counts: Sequence[Sequence[int]]) -> Html:
    """Of many classes the most frequent mistakes."""
    wrong = sorted(
        (
            (count, a, b)
            for a, row in enumerate(counts)
            for b, count in enumerate(row)
            if count and a != b
        ),
        reverse=True,
    )[:30]
    bars = [(f"{classes[a]} → {classes[b]}", float(n), f"{n:,}") for n, a, b in wrong]
    return plots.bars("most frequent mistakes", bars)


def _shade(share: float) -> int:
    return sum(share > step for step in (0, 0.02, 0.1, 0.3, 0.6, 0.85))
