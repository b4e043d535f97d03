"""`dlv plots`: draw metrics in the terminal, as a page or as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dlv.commands.shared import reporting
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.config import KEYS
from dlv.terminal.output import Verbatim
from dlv.terminal.table import Cell, Column, Number, Table, escape

if TYPE_CHECKING:
    import dlv.curves.figures as figures

RESTARTS = KEYS["curves.restarts"].choices


@command(
    "plots",
    examples=[
        "dlv plots lenet",
        "dlv plots lenet@1 lenet@2 --metric loss --smooth 0.6",
        "dlv plots lenet@1 lenet@2 -o curves.html",
        "dlv plots lenet --metric 'l*' --steps 5: --log-scale",
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
    "--smooth",
    type=click.FloatRange(0, 1, max_open=True),
    metavar="S",
    help="Smooth like TensorBoard, 0 to 0.999.",
)
@option("--log-scale", "log", is_flag=True, help="Use a logarithmic axis.")
@reporting.report_options("Write a report (.html) or a picture (.svg, .png).")
def run(
    call: Invocation,
    refs: tuple[str, ...],
    series: tuple[str, ...],
    steps: str | None,
    restarts: str | None,
    smooth: float | None,
    log: bool,
    output: str | None,
    show: bool,
) -> None:
    """Draw metrics in the terminal or to a file.

    One chart for each metric, one line for each version; REF is HEAD by default. Extremes are
    never smoothed away by the resolution. In a pipe, the points are printed.
    """
    import dlv.curves.figures as figures
    import dlv.report.curve_charts as curve_charts

    target = reporting.target(call, output, show, curve_charts.KINDS)
    if target is not None and target.suffix.lower() == ".png":
        curve_charts.check_matplotlib()
    policy = call.config.given("curves.restarts", restarts)
    found = figures.curves(
        *(call.repository, refs or ("HEAD",)),
        series=series,
        steps=steps,
        whole=True,
        restarts=policy,
    )
    for note in found.notes:
        call.output.warn(note)
    about = {}
    if target is not None:
        import dlv.ui.curves as pages

        about = pages.settings_of(call.repository, found)
    charts = curve_charts.charts(found.curves, smooth=smooth or 0.0, log=log, about=about)
    if not found.curves:
        call.output.message("no metrics")
    elif target is not None:
        curve_charts.write(target, charts, reporting.command())
    document: dict[str, Any] = {
        "metrics": [_record(curve) for curve in found.curves],
        "output": None,
    }
    ids = [curve.summary.hash for curve in found.curves if curve.summary.hash]
    body: Table | Verbatim = _points(found.curves)
    if target is not None and charts:
        reporting.deliver(call, "plots", document, target, show=show, ids=ids)
        return
    if target is not None:
        body = Verbatim([])
    elif call.output.terminal:
        import dlv.report.dots as dots

        colour = call.output.colour(call.output.stdout)
        braille = call.output.can_print("⣿│└")
        screen = dots.Screen(call.output.width, call.output.paint, colour, braille)
        body = Verbatim(list(curve_charts.lines(charts, screen, escape)))
    call.output.emit("plots", document, body, ids=ids)


def _points(curve_list: Sequence[figures.Curve]) -> Table:
    """Every point, for other programs."""
    rows: list[list[Cell]] = [
        [curve.version.label, curve.summary.name, step, Number(value)]
        for curve in curve_list
        if curve.points is not None
        for step, value in zip(curve.points.steps, curve.points.values, strict=True)
    ]
    return Table([Column("version"), Column("metric"), Column("step"), Column("value")], rows)


def _record(curve: figures.Curve) -> dict[str, Any]:
    assert curve.points is not None
    return {
        "version": curve.version.label,
        "id": curve.version.id,
        "name": curve.summary.name,
        "run": curve.summary.run,
        "tag": curve.summary.tag,
        "steps": list(curve.points.steps),
        "values": list(curve.points.values),
    }
