"""How `desc --activations` lays out what nodes compute."""

from __future__ import annotations

from typing import Any

from dlv.evaluation.activations import Activations, Figures
from dlv.terminal.output import Block, Line
from dlv.terminal.table import Bytes, Cell, Count, Number, Table
from dlv.views.values import percent, shape


def document(found: Activations) -> dict[str, Any]:
    """What is added to the document of a version."""
    return {
        "activations": {
            "data": found.data,
            "rows": found.rows,
            "bytes_read": found.bytes_read,
            "written": None if found.written is None else str(found.written),
            "nodes": [_record(each) for each in found.nodes],
        }
    }


def table(found: Activations) -> list[Block]:
    """A row for each node."""
    bounded = any(each.radius is not None for each in found.nodes)
    columns = ["node", "shape", "min", "max", "mean", "std", "% zero"]
    columns += ["radius, mean", "radius, most"] if bounded else []
    rows: list[list[Cell]] = []
    for each in found.nodes:
        row: list[Cell] = [each.node, shape(each.shape), *_numbers(each)]
        row.append(percent(each.zeros, each.count))
        row += [_number(value) for value in each.radius or ()] if bounded else []
        rows.append(row)
    read = Line(found.data, Count(found.rows), "rows", Bytes(found.bytes_read), "of weights read")
    return [Table(columns, rows), "", read]


def _numbers(found: Figures) -> list[Cell]:
    known = found.count > 0
    return [
        _number(found.low if known else None),
        _number(found.high if known else None),
        _number(found.mean),
        _number(found.std),
    ]


def _number(value: float | None) -> Cell:
    return None if value is None else Number(float(value))


def _record(found: Figures) -> dict[str, Any]:
    low, high, mean, std = _numbers(found)
    return {
        "node": found.node,
        "shape": list(found.shape),
        "min": low,
        "max": high,
        "mean": mean,
        "std": std,
        "elements": found.count + found.not_finite,
        "zeros": found.zeros,
        "not_finite": found.not_finite,
        "radius": None
        if found.radius is None
        else {"mean": _number(found.radius[0]), "most": _number(found.radius[1])},
    }
