"""How `eval` lays out what it found: for people and pipes, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dlv.evaluation.answers import Confusion, Evaluation, Level, Progress
from dlv.evaluation.evaluate import Evaluated, level_record
from dlv.terminal.output import Block, Heading, Line, Output
from dlv.terminal.table import Bytes, Cell, Column, Count, Id, Items, Number, Range, Table, Text
from dlv.views.values import columns_where, number_cell, percent, plural

if TYPE_CHECKING:
    from dlv.hub.remotes import Remote

_WIDE = 20  # classes of which a terminal shows the whole table
_WORST = 10  # else the most frequent mistakes


def evaluated(evaluated: Evaluated, output: Output) -> tuple[dict[str, Any], list[Block]]:
    """The document, and what is printed."""
    document = {
        "data": {name: value for name, value in evaluated.data.items() if name != "settings"},
        "results": [record(each) for each in evaluated.results],
        "written": [str(path) for path in evaluated.written],
    }
    blocks: list[Block] = [_table(evaluated, output)]
    for each in evaluated.results:
        if each.levels:
            blocks += ["", Heading(f"{each.version}, level by level"), _levels(each, output)]
        if each.confusion is not None:
            title = f"{each.version}: classes, and the labels they got"
            blocks += ["", Heading(title), *_confusion(each, each.confusion, output)]
    return document, blocks


def fetched(remote: Remote, *, signed: bool) -> tuple[dict[str, Any], Line]:
    """What was fetched to evaluate versions of a remote, as JSON and as a line."""
    traffic = remote.store.traffic
    record = {
        "name": remote.name,
        "url": remote.url,
        "bytes_received": traffic.received,
        "requests": traffic.requests,
        "signed": signed,
    }
    text = f"from {remote.name} in {plural(traffic.requests, 'request', 'requests')}"
    return record, Line("fetched", Bytes(traffic.received), text)


def warnings(evaluated: Evaluated) -> Iterator[str]:
    """What a person must know beside the figures."""
    for each in evaluated.results:
        if each.fallback is not None:
            read = "not read any further" if each.open else "evaluated in full"
            yield f"{each.version} was {read}: {each.fallback}"
        if each.engine_why is not None:
            yield f"{each.version}: {each.engine} ran the network, since {each.engine_why}"
        if each.not_finite:
            rows = plural(each.not_finite, "row has", "rows have")
            yield f"{each.version}: {rows} scores that are NaN, and so no prediction"
        if each.mode == "progressive" and each.evaluated and each.levels:
            rows = plural(each.evaluated, "row", "rows")
            yield f"{each.version}: of {rows} the label is that of the full evaluation, not proved"
        if each.mode == "calibrated":
            yield f"{each.version}: calibrated labels are likely, not guaranteed"
        if not each.bounds_verified:
            yield f"{each.version}: bounds not verified; guaranteed only if they are correct"


def watched(progress: Progress) -> str:
    """What the progress bar says beside the rows."""
    share = 100 * progress.done / max(progress.rows, 1)
    return f"{share:.0f}%, {progress.bytes_read / 1e6:.1f} MB read"


def _level_record(level: Level) -> dict[str, Any]:
    record = level_record(level)
    record["decided"], record["undecided"] = record.pop("determined"), record.pop("open")
    return record


def record(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "version": evaluation.version,
        "id": evaluation.id,
        "step": evaluation.step,
        "examples": evaluation.rows,
        "accuracy": number_cell(evaluation.accuracy),
        "metrics": {name: Number(value) for name, value in evaluation.metrics.items()},
        "between": {
            name: [Number(low), Number(high)] for name, (low, high) in evaluation.between.items()
        },
        "mode": evaluation.mode,
        "precision": evaluation.reference,
        "engine": evaluation.engine,
        "bounds_verified": evaluation.bounds_verified,
        "confidence": None if evaluation.confidence is None else dict(evaluation.confidence),
        "fallback": evaluation.fallback,
        "guaranteed": evaluation.guaranteed,
        "evaluated": evaluation.evaluated,
        "undecided": evaluation.open if evaluation.class_count else 0,
        "not_finite": evaluation.not_finite,
        "levels": [_level_record(level) for level in evaluation.levels],
        "bytes_read": evaluation.bytes_read,
        "bytes_whole": evaluation.bytes_whole,
        "raw_read": evaluation.raw_read,
        "raw_whole": evaluation.raw_whole,
        "seconds": Number(round(evaluation.seconds, 6)),
        "confusion": _confusion_record(evaluation),
    }


def _table(evaluated: Evaluated, output: Output) -> Table:
    """A row for each version; a column for each figure that any of them has."""
    names = list(
        dict.fromkeys(n for each in evaluated.results for n in (*each.metrics, *each.between))
    )
    progressive = any(each.levels for each in evaluated.results)
    columns: list[Column | str] = [Column("version", fixed=True), "id", "examples"]
    columns += [Column(name, fixed=True) for name in names]
    counts = ["guaranteed", "full", "undecided"] if progressive else []
    others = any(each.engine != "numpy" for each in evaluated.results)
    columns += ["mode", *(["engine"] if others else []), "precision", *counts, "read", "total"]
    rows: list[list[Cell]] = []
    for each in evaluated.results:
        row: list[Cell] = [Text(each.version, "bold"), Id(each.id), Count(each.rows)]
        for name in names:
            low_high = each.between.get(name)
            row.append(Range(*low_high) if low_high else number_cell(each.metrics.get(name)))
        row += [each.mode, *([each.engine] if others else []), each.reference]
        if progressive:
            row += [Count(each.guaranteed), Count(each.evaluated), Count(each.open)]
        rows.append([*row, Bytes(each.bytes_read), Bytes(each.bytes_whole)])
    alike = {each.mode for each in evaluated.results}
    if output.terminal and (not progressive or alike == {"progressive"}):
        hidden = {"mode"}  # all are alike, or say how many rows are proved
        if not progressive:  # all is read
            hidden |= {"read", "of", *(["id"] if len(rows) > 1 else [])}
        return columns_where(Table(columns, rows), lambda column, _: column.title not in hidden)
    return Table(columns, rows)


def _levels(evaluation: Evaluation, output: Output) -> Table:
    """What was read after each level, and how many rows had their label then."""
    columns: list[Column | str] = [
        "level",
        "read",
        "% of bytes",
        "decided",
        "% of examples",
        "undecided",
    ]
    if not output.terminal:
        columns.append("bits")
    rows: list[list[Cell]] = []
    for number, level in enumerate(evaluation.levels, 1):
        row: list[Cell] = [number, Bytes(level.bytes_read)]
        row += [percent(level.bytes_read, evaluation.bytes_whole), Count(level.determined)]
        row += [percent(level.determined, evaluation.rows), Count(level.open)]
        if not output.terminal:
            row.append(Items([f"{name}={bits}" for name, bits in level.bits.items()]))
        rows.append(row)
    return Table(columns, rows)


def _class(evaluation: Evaluation, index: int) -> str:
    names = evaluation.classes
    return names[index] if names is not None and index < len(names) else str(index)


def _confusion(evaluation: Evaluation, held: Confusion, output: Output) -> Iterator[Block]:
    """All of it where it fits; else, and in pipes, what was taken for what and how often."""
    count = len(held.counts)
    if output.terminal and count <= _WIDE:
        columns: list[Column | str] = [Column("class", fixed=True)]
        columns += [Column(_class(evaluation, at), f"label_{at}") for at in range(count)]
        columns += ["none"] if held.open.any() else []
        rows: list[list[Cell]] = []
        for at in range(count):
            row: list[Cell] = [_class(evaluation, at)]
            row += [
                Text(str(int(n)), "bold" if at == to else "red") if n else Text("·", "dim")
                for to, n in enumerate(held.counts[at])
            ]
            row += [int(held.open[at])] if held.open.any() else []
            rows.append(row)
        yield Table(columns, rows)
        return
    pairs = [(int(a), int(b)) for a, b in np.argwhere(held.counts)]
    if output.terminal:
        pairs = [pair for pair in pairs if pair[0] != pair[1]]
        pairs.sort(key=lambda pair: -int(held.counts[pair]))
        pairs = pairs[:_WORST]
    yield Table(
        ["label", "prediction", "examples"],
        [
            [_class(evaluation, a), _class(evaluation, b), Count(int(held.counts[a, b]))]
            for a, b in pairs
        ],
    )


def _confusion_record(evaluation: Evaluation) -> dict[str, Any] | None:
    if evaluation.confusion is None:
        return None
    count = len(evaluation.confusion.counts)
    return {
        "classes": [_class(evaluation, at) for at in range(count)],
        "counts": evaluation.confusion.counts.tolist(),
        "undecided": evaluation.confusion.open.tolist(),
    }
