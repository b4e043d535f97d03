"""`dlv archive`: compress weights with deltas."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from dlv.commands.shared import planning, reporting
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError

_ASKED = "algorithm budget alpha clamp effort export_graph export_plan"
_PLANNING = f"{_ASKED} explain dry_run on"
_ROWS = ("calibration", "config", "sets")


@command(
    "archive",
    examples=[
        "dlv archive --dry-run",
        "dlv archive --budget lenet@latest=200ms",
        "dlv archive --alpha 3 --algorithm mt --dry-run",
        "dlv archive --dry-run -o plan.html",
        "dlv archive --bounds lenet",
    ],
    exits={9: "the budgets cannot be met"},
)
@argument("refs", nargs=-1, metavar="[REF]..", complete="reference")
@option(
    "--algorithm",
    type=click.Choice(["best", "mt", "pt", "last", "mst", "spt"]),
    help="Planner to use [default: best].",
)
@option(
    "--retrieval",
    type=click.Choice(["independent", "parallel"]),
    default="independent",
    help="How the time of a checkpoint is counted: sum of its tensors, or the slowest.",
)
@option(
    "--budget", multiple=True, metavar="REF=TIME", help="Limit the read time of REF, such as 200ms."
)
@option("--alpha", type=float, metavar="A", help="Limit all to A times the fastest possible time.")
@option("--clamp", is_flag=True, help="Raise budgets that cannot be met.")
@option("--bounds", is_flag=True, help="Store bounds for eval --progressive instead.")
@option("--calibration", metavar="DATA", help="Typical examples for --bounds.")
@option("--config", metavar="FILE", help="Read settings: input_data, data.")
@option(
    "--set",
    "sets",
    multiple=True,
    metavar="K=V",
    help="Change a setting, such as data.scale=1/255.",
)
@option(
    "--effort",
    type=click.Choice(["fast", "normal", "high"]),
    help="How hard to search for smaller packs [default: normal].",
)
@option(
    "--for",
    "duration",
    metavar="TIME",
    help="Stop after TIME, such as 10m; the next archive continues.",
)
@option("--on", metavar="PLACE", help="Encode on a Ray cluster: ray or ray:ADDRESS.")
@option("--explain", metavar="TENSOR", help="Show how a tensor would be stored, and why.")
@option("--export-graph", type=click.Path(path_type=Path), help="Write the storage graph to PATH.")
@option("--export-plan", type=click.Path(path_type=Path), help="Write the plan to PATH.")
@option("--dry-run", is_flag=True, help="Show the plan, change nothing.")
@reporting.report_options("Write a report of a --dry-run as an .html file.")
def run(
    call: Invocation, refs: tuple[str, ...], output: str | None, show: bool, **given: Any
) -> None:
    """Compress weights with deltas.

    Finds the smallest storage in which every checkpoint can still be read in time (config:
    archive.*): latest and tagged versions fastest, others within twice that or two seconds. It is
    lossless, and everything is read back before old packs are deleted. With REF, only these
    versions are rewritten. With --bounds, weights are stored so that dlv eval --progressive can
    decide from their first bytes.
    """
    target = reporting.target(call, output, show)
    if target is not None and not given["dry_run"]:
        raise UsageError("--output requires --dry-run", hint="dlv archive --dry-run -o plan.html")
    # One thread per matrix is enough; numpy reads this variable when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if given["bounds"] or any(given[name] for name in _ROWS):
        _bounds(call, refs, given)
        return
    import dlv.views.archive as view

    if given["on"] is not None and (given["dry_run"] or given["explain"] is not None):
        raise UsageError("--on cannot be combined with --dry-run or --explain")
    options = {name: given[name] for name in _ASKED.split()}
    options |= {"scheme": given["retrieval"], "explore": target is not None}
    options["effort"] = given["effort"] or "normal"
    options["place"] = given["on"]
    options["deadline"] = planning.deadline(given["duration"])
    asked = planning.request(call, refs, **options)
    if given["explain"] is not None:
        import dlv.archiving.proposal as proposal

        found = proposal.explain(call.repository, asked, given["explain"], progress=call.progress)
        document, blocks = view.explained(found)
        call.output.emit("archive", document, *blocks, ids=[item.matrix for item in found])
        return
    import dlv.archiving.archive as archiving

    dry = given["dry_run"]
    outcome = archiving.archive(call.repository, asked, dry_run=dry, progress=call.progress)
    document, blocks = view.archived(outcome)
    if target is None:
        call.output.emit("archive", document, *blocks)
    else:
        import dlv.ui.frame as frames
        import dlv.ui.storage as pages

        sections = pages.plan(outcome, blocks, frames.Frame(call.output.now))
        reporting.write_report(target, "Storage plan", sections)
        reporting.deliver(call, "archive", document, target, show=show)
    planning.tell_waiting(call, outcome.waiting)


def _bounds(call: Invocation, refs: tuple[str, ...], options: dict[str, Any]) -> None:
    if not options["bounds"]:
        raise UsageError("--calibration, --config and --set require --bounds")
    import dlv.views.archive as view

    planning.alone("bounds", options, others=_PLANNING)
    if options["duration"] is not None:
        raise UsageError("--bounds and --for cannot be combined")
    outcome = planning.make_bounds(call, refs, **{name: options[name] for name in _ROWS})
    document, blocks = view.bounded(outcome)
    call.output.emit("archive", document, *blocks)
    planning.tell_waiting(call, outcome.waiting)
