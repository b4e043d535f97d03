"""Figures of matrices as tables: all of them, or one with its histogram."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dlv.views.bounds as bounds
from dlv.terminal.output import Block, Fields, Output
from dlv.terminal.table import Bytes, Cell, Column, Count, Id, Items, Number, Table, Text
from dlv.versions.describe import Description
from dlv.views.values import percent, shape

if TYPE_CHECKING:
    from dlv.weights.reading.interval_statistics import HistogramBounds
    from dlv.weights.statistics import Histogram, Statistics

_FIGURES = ("min", "max", "mean", "std", "L2", "zeros")
_BAR = 32  # columns of the longest one


def statistics(found: Description) -> Table:
    """`--stats`: one line a matrix."""
    rows: list[list[Cell]] = []
    for matrix in found.matrices:
        name = matrix.name
        if name in found.bounds:
            cells = bounds.statistics(found.bounds[name])
            rows.append([name, *(cells[title] for title in (*_FIGURES, "NaN", "infinite"))])
            continue
        if name not in found.statistics:
            continue
        figures = found.statistics[name]
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
    # The end of a range must not be cut away.
    columns = [Column(title, fixed=bool(found.bounds)) for title in (*_FIGURES, "NaN", "inf")]
    return Table([Column("matrix", least=16), *columns], rows)


def _figure(value: float | None) -> Cell:
    return None if value is None else Number(value)


def matrix(found: Description, output: Output) -> Iterator[Block]:
    """`--matrix`: one of them, with a histogram."""
    for held in found.matrices:
        if held.name in found.statistics or held.name in found.bounds:
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
            if held.name in found.readings:
                fields["read"] = bounds.planes_read(found.readings[held.name])
            if held.name in found.bounds:
                known = found.bounds[held.name]
                yield Fields(fields | bounds.statistics(known))
                yield ""
                yield _histogram(known.histogram, output)
                continue
            figures = found.statistics[held.name]
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


def _histogram(found: Histogram | HistogramBounds, output: Output) -> Table:
    """Bars; of what may or may not lie in a bin in a lighter shade."""
    from dlv.weights.reading.interval_statistics import Counts

    edges = found.edges()
    counts = [one if isinstance(one, Counts) else Counts(one, one) for one in found.counts]
    most = max(count.high for count in counts)
    mark, maybe = ("█", "░") if output.can_print("█░") else ("#", "-")
    rows: list[list[Cell]] = []
    for i, count in enumerate(counts):
        high = edges[i + 1] if len(counts) > 1 else found.high
        rows.append([Number(edges[i]), Number(high), bounds.count(count)])
        if output.terminal:
            sure, length = (
                max(1, round(_BAR * n / most)) if n else 0 for n in (count.low, count.high)
            )
            rows[-1].append(Text(mark * sure + maybe * (length - sure), "cyan"))
    columns: list[Column | str] = [Column("from"), Column("to"), Column("count")]
    return Table([*columns, *([Column("", "bar", fixed=True)] if output.terminal else [])], rows)
