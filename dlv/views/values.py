"""Values of all kinds as cells: numbers, shapes, attributes, shares, bounds, planes read."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dlv.dataclass import dataclass
from dlv.network.sizes import text as shape_text
from dlv.terminal.table import Cell, Column, Count, Items, Number, Range, Table, Text

if TYPE_CHECKING:
    from dlv.weights.reading.approximation import Reading
    from dlv.weights.reading.interval_statistics import (
        Counts,
        DifferenceBounds,
        Interval,
        StatisticsBounds,
    )


def number_cell(value: float | None) -> Cell:
    return None if value is None else Number(value)


def filled(cell: Cell) -> bool:
    return bool(cell.values) if isinstance(cell, Items) else cell is not None


def columns_where(table: Table, keep: Callable[[Column, Sequence[Cell]], bool]) -> Table:
    """The table with those columns alone for which `keep(column, its cells)` holds."""
    kept = [
        place
        for place, column in enumerate(table.columns)
        if keep(column, [row[place] for row in table.rows])
    ]
    rows = [[row[place] for place in kept] for row in table.rows]
    return Table([table.columns[place] for place in kept], rows)


@dataclass(frozen=True)
class Screen:
    """What a drawing may take of the terminal: columns, and letters outside ASCII."""

    width: int | None
    ascii_only: bool


def shape(sizes: Sequence[Any] | None) -> str:
    """`20×1×5×5`; `scalar` of rank 0."""
    return shape_text(sizes)


def setting(value: Any) -> Cell:
    """A hyperparameter."""
    if value is None:
        return Text("null", "dim")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, str)):
        return str(value)
    if isinstance(value, float):
        return f"{value!r}"
    return json.dumps(value, ensure_ascii=False)


def attribute(name: str, value: Any) -> str:
    """An attribute of a layer, as short as it stands in the layer's own line."""
    several = isinstance(value, (list, tuple))
    if name == "output" or (name in ("kernel", "shape", "size") and several):
        return shape(value)
    if name in ("inputs", "outputs", "shares", "tensors") and several:
        return ", ".join(_input(item) for item in value) or "none"
    return _nested(value)


def _input(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)
    kind = "" if item["dtype"] == "float32" else f" {item['dtype']}"
    return f"{item['name']} {shape(item['shape'])}{kind}"


def _nested(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        parts = [_nested(item) for item in value]
        if len(parts) > 1 and len(set(parts)) == 1:
            return parts[0]
        return "(" + ", ".join(parts) + ")"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def percent(part: int, whole: int) -> Number | None:
    """A share with as many digits as keep it from reading 0 or 100 when it is neither."""
    if not whole:
        return None
    value = 100 * part / whole
    digits = 3
    while digits < 12 and part < whole and float(f"{value:.{digits}g}") >= 100:
        digits += 1
    return Number(value, digits)


def plural(count: int, singular: str, plural_form: str = "") -> str:
    return f"{count:,} {singular if count == 1 else plural_form or singular + 's'}"


# Values that are known only between bounds


def interval_cell(held: Interval | None) -> Cell:
    return None if held is None else Range(held.low, held.high, 3)


def count_cell(held: Counts) -> Cell:
    return Count(held.low) if held.low == held.high else Range(held.low, held.high)


def bounded_statistics(bounds: StatisticsBounds) -> dict[str, Cell]:
    """Figures of a matrix, all of whose elements are finite."""
    names = {"min": bounds.min, "max": bounds.max, "mean": bounds.mean, "std": bounds.std}
    return {
        "elements": Count(bounds.elements),
        **{name: interval_cell(held) for name, held in names.items()},
        "L2": interval_cell(bounds.l2),
        "zeros": count_cell(bounds.zeros),
        "NaN": Count(0),
        "infinite": Count(0),
    }


def bounded_difference(bounds: DifferenceBounds) -> dict[str, Cell]:
    """Figures of a difference, with the share of what changed."""
    shares = [percent(n, bounds.elements) for n in (bounds.changed.low, bounds.changed.high)]
    ends = [0.0 if share is None else share.value for share in shares]
    return {
        "l2": interval_cell(bounds.l2),
        "relative": interval_cell(bounds.relative_l2),
        "max_abs": interval_cell(bounds.max_abs),
        "changed": Range(ends[0], ends[1], 3),
        "nonfinite": bounds.nonfinite,
    }


def planes_read(reading: Reading) -> str:
    """`the first 2 planes, 41 % of the bytes`; `whole`, where it had to be."""
    share = f"{100 * reading.share:.0f}% of the bytes"
    if reading.exact:
        return f"whole, {share}" + (f": {reading.why}" if reading.why else "")
    first = "plane" if reading.planes == 1 else f"{reading.planes} planes"
    return f"the first {first}, {share}"


def reading_lines(readings: Sequence[Reading]) -> list[str]:
    """One line on all that was read in part, if anything was."""
    if not readings:
        return []
    total = functools.reduce(lambda one, other: one.and_(other), readings)
    lie = "" if total.exact else "; exact values are within these bounds"
    return [f"read: {planes_read(total)}{lie}"]
