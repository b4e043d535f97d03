"""`dlv metrics`: what the series of versions come to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.config import KEYS
from dlv.errors import UsageError
from dlv.terminal.output import Block, Verbatim
from dlv.terminal.table import Cell, Column, Number, Table

if TYPE_CHECKING:
    import dlv.curves.figures as figures

RESTARTS = KEYS["curves.restarts"].choices


@command(
    "metrics",
    examples=[
        "dlv metrics lenet",
        "dlv metrics lenet@1 lenet@2 --series loss --steps 5:",
        "dlv metrics lenet --md --precision 3",
        "dlv metrics lenet --series accuracy --json",
    ],
    exits={4: "no such version or series"},
)
@argument("refs", nargs=-1, required=True, metavar="REF..", complete="reference")
@option("--series", multiple=True, metavar="S", complete="metric", help="Only this one; * and ?.")
@option("--steps", metavar="A:B", help="Only from step A to step B, both included.")
@option("--restarts", type=click.Choice(RESTARTS), help="Points that a restarted run shows.")
@option("--precision", type=click.IntRange(1, 17), metavar="N", help="Significant digits.")
@option("--md", is_flag=True, help="As a Markdown table.")
@option("--csv", is_flag=True, help="As CSV.")
def run(
    call: Invocation,
    refs: tuple[str, ...],
    series: tuple[str, ...],
    steps: str | None,
    restarts: str | None,
    precision: int | None,
    md: bool,
    csv: bool,
) -> None:
    """Show the last, smallest and largest value of each metric series.

    NaN is smallest and largest only where there is no number. With --series the points are in
    the JSON document. What `dlv eval` has saved is listed under the name of its data.
    """
    if md and csv:
        raise UsageError("give one of --md and --csv")
    import dlv.curves.figures as figures

    drawn = call.output.terminal and not md and not csv
    found = figures.curves(
        *(call.repository, refs),
        series=series,
        steps=steps,
        courses=drawn and not call.quiet,
        restarts=call.config.given("curves.restarts", restarts),
    )
    for note in found.notes:
        call.output.warn(note)
    table = _table(call, found.curves, precision, drawn=drawn, piped=not (drawn or md or csv))
    block: Block = table
    if md:
        block = Verbatim(table.markdown())
    elif csv:
        block = Verbatim(table.csv())
    document = {"series": [_record(curve, precision) for curve in found.curves]}
    call.output.emit(
        "metrics", document, block, ids=[c.summary.hash for c in found.curves if c.summary.hash]
    )
    if not found.curves:
        call.output.message("no metrics")


def _table(
    call: Invocation,
    curve_list: list[figures.Curve],
    precision: int | None,
    *,
    drawn: bool,
    piped: bool,
) -> Table:
    """The version only where there are several, the curve only where a person looks."""
    several = len({curve.version.id for curve in curve_list}) > 1
    titles = ["series", "n", "last", "last step", "min", "min step", "max", "max step"]
    unusual = piped or any(curve.summary.nonfinite for curve in curve_list)
    if drawn:  # there is no room to say which
        titles = [title if title == "series" else title.split()[-1] for title in titles]
        titles = ["at" if title == "step" else title for title in titles]
    columns = [Column(title, fixed=title != "series") for title in titles]
    if unusual:
        columns.append(Column("not finite"))
    if several or not drawn:
        columns.insert(0, Column("version", fixed=True))
    if drawn:
        columns.append(Column("curve", fixed=True))
    rows = []
    for curve in curve_list:
        s = curve.summary
        row: list[Cell] = [s.name, s.n, _number(s.last, precision), s.last_step]
        row += [_number(s.min, precision), s.min_step, _number(s.max, precision), s.max_step]
        row += [s.nonfinite or None] if unusual else []
        row = [curve.version.label, *row] if several or not drawn else row
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
        "n": s.n,
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
