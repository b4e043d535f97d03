"""Figures of matrices as tables: all of them, or one with its histogram."""

from __future__ import annotations

from collections.abc import Iterator

from dlv.describe import Description
from dlv.output import Block, Fields, Output
from dlv.table import Bytes, Cell, Column, Count, Id, Items, Number, Table, Text
from dlv.views.values import percent, shape
from dlv.weight_statistics import Histogram, Statistics

_BAR = 32  # columns of the longest one


def statistics(found: Description) -> Table:
    """`--stats`: one line a matrix."""
    rows: list[list[Cell]] = []
    for name, figures in found.statistics.items():
        if figures is None:
            rows.append([name, *([None] * 8)])
        else:
            rows.append(
                [
                    *(name, *map(_figure, (figures.min, figures.max, figures.mean, figures.std))),
                    *(_figure(figures.l2), Count(figures.zeros), Count(figures.nan)),
                    Count(figures.infinite),
                ]
            )
    columns: list[Column | str] = ["min", "max", "mean", "std", "L2", "zeros", "NaN", "inf"]
    return Table([Column("matrix", least=16), *columns], rows)


def _figure(value: float | None) -> Cell:
    return None if value is None else Number(value)


def matrix(found: Description, output: Output) -> Iterator[Block]:
    """`--matrix`: one of them, with a histogram."""
    for held in found.matrices:
        if held.name in found.statistics:
            figures = found.statistics[held.name]
            stored = found.stored_bytes(held)
            fields: dict[str, Cell] = {
                "matrix": Text(held.name, "bold"),
                "version": found.label,
                "id": Id(held.hash),
                "dtype": held.dtype,
                "shape": shape(held.shape),
                "role": f"tied to {held.tied}" if held.tied else held.role,
                "size": None if held.nbytes is None else Bytes(held.nbytes),
                "stored": None if stored is None else Bytes(stored),
            }
            if figures is None:
                yield Fields(fields)
                yield f"the numbers of {held.dtype} are not known to dlv"
                continue
            yield Fields(fields | _figures(figures))
            if figures.histogram is not None:
                yield ""
                yield _histogram(figures.histogram, output)


def _figures(found: Statistics) -> dict[str, Cell]:
    names = {"min": found.min, "max": found.max, "mean": found.mean, "std": found.std}
    cells: dict[str, Cell] = {
        "elements": Count(found.elements),
        **{name: _figure(value) for name, value in names.items()},
        "L2": _figure(found.l2),
        "zeros": Count(found.zeros),
    }
    share = percent(found.zeros, found.elements)
    if found.zeros and share is not None:
        cells["zeros"] = Items([Count(found.zeros), f"{share.value:.{share.digits}g} %"])
    return cells | {"NaN": Count(found.nan), "infinite": Count(found.infinite)}


def _histogram(found: Histogram, output: Output) -> Table:
    edges = found.edges()
    most = max(found.counts)
    mark = "█" if output.can_print("█") else "#"
    rows: list[list[Cell]] = []
    for i, count in enumerate(found.counts):
        high = edges[i + 1] if len(found.counts) > 1 else found.high
        rows.append([Number(edges[i]), Number(high), Count(count)])
        if output.terminal:
            length = max(1, round(_BAR * count / most)) if count else 0
            rows[-1].append(Text(mark * length, "cyan"))
    columns: list[Column | str] = [Column("from"), Column("to"), Column("count")]
    return Table([*columns, *([Column("", "bar", fixed=True)] if output.terminal else [])], rows)
