"""`dlv metrics`: summarize the metrics of versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.config import KEYS
from dlv.terminal.table import Cell, Column, Number, Table

if TYPE_CHECKING:
    import dlv.curves.figures as figures

RESTARTS = KEYS["curves.restarts"].choices


@command(
    "metrics",
    examples=[
        "dlv metrics lenet",
        "dlv metrics lenet@1 lenet@2 --metric loss --steps 5:",
        "dlv metrics lenet --format md --digits 3",
        "dlv metrics lenet --metric accuracy --json",
    ],
    exits={4: "no such version or metric"},
)
@argument("refs", nargs=-1, metavar="[REF]..", complete="reference")
@option(
    "--metric",
    "series",
    multiple=True,
    metavar="PATTERN",
    complete="metric",
    help="Show only these.",
)
@option("--steps", metavar="A:B", help="Show only steps A to B, inclusive.")
@option("--restarts", type=click.Choice(RESTARTS), help="Which points of restarted runs to show.")
@option(
    "--digits",
    "precision",
    type=click.IntRange(1, 17),
    metavar="N",
    help="Round to N significant digits.",
)
def run(
    call: Invocation,
    refs: tuple[str, ...],
    series: tuple[str, ...],
    steps: str | None,
    restarts: str | None,
    precision: int | None,
) -> None:
    """Show last, smallest and largest metric values.

    REF is HEAD by default. Results of dlv eval are listed as DATA/METRIC. With --metric, --json
    includes all points.
    """
    import dlv.curves.figures as figures

    drawn = call.output.terminal and call.output.format == "table"
    repository, names, _ = call.look(refs or ("HEAD",))
    found = figures.curves(
        *(repository, names),
        series=series,
        steps=steps,
        courses=drawn and not call.quiet,
        restarts=call.config.given("curves.restarts", restarts),
    )
    for note in found.notes:
        call.output.warn(note)
    table = _table(call, found.curves, precision, drawn=drawn)
    document = {"metrics": [_record(curve, precision) for curve in found.curves]}
    call.output.emit(
        "metrics", document, table, ids=[c.summary.hash for c in found.curves if c.summary.hash]
    )
    if not found.curves:
        call.output.message("no metrics")


def _table(
    call: Invocation, curve_list: list[figures.Curve], precision: int | None, *, drawn: bool
) -> Table:
    """Add a column for the version if there are several, and curves on a terminal."""
    several = len({curve.version.id for curve in curve_list}) > 1
    titles = ["metric", "points", "last", "last step", "min", "min step", "max", "max step"]
    unusual = any(curve.summary.nonfinite for curve in curve_list)
    if drawn:  # there is no room to say which
        titles = [title if title == "metric" else title.split()[-1] for title in titles]
        titles = ["at" if title == "step" else title for title in titles]
    columns = [Column(title, fixed=title != "metric") for title in titles]
    if unusual:
        columns.append(Column("NaN or inf"))
    if several:
        columns.insert(0, Column("version", fixed=True))
    if drawn:
        columns.append(Column("curve", fixed=True))
    rows = []
    for curve in curve_list:
        s = curve.summary
        row: list[Cell] = [s.name, s.n, _number(s.last, precision), s.last_step]
        row += [_number(s.min, precision), s.min_step, _number(s.max, precision), s.max_step]
        row += [s.nonfinite or None] if unusual else []
        row = [curve.version.label, *row] if several else row
        if drawn:
            row.append(call.output.sparkline(curve.course or (), len(curve.course or ())))
        rows.append(row)
    return Table(columns, rows)


def _number(value: float | None, precision: int | None) -> Cell:
    """Rounded in pipes and documents too, where a precision was asked for."""
    if value is None:
        return None
    return Number(value) if precision is None else Number(_rounded(value, precision), precision)


def _rounded(value: float, precision: int | None) -> float:
    return value if precision is None else float(f"{value:.{precision}g}")


def _record(curve: figures.Curve, precision: int | None) -> dict[str, Any]:
    s = curve.summary
    record: dict[str, Any] = {
        "version": curve.version.label,
        "id": curve.version.id,
        "name": s.name,
        "run": s.run,
        "tag": s.tag,
        "points": s.n,
        "nonfinite": s.nonfinite,
        "last": _number(s.last, precision),
        "last_step": s.last_step,
        "min": _number(s.min, precision),
        "min_step": s.min_step,
        "max": _number(s.max, precision),
        "max_step": s.max_step,
    }
    if curve.points is not None:
        record["steps"] = list(curve.points.steps)
        record["walls"] = list(curve.points.walls)
        record["values"] = [_rounded(value, precision) for value in curve.points.values]
    return record
