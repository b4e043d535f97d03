"""`dlv archive`: weights as small as possible, and as fast as asked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from dlv.commands.shared import planning
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError

_ASKED = "algorithm budget alpha clamp slow export_graph export_plan"
_PLANNING = f"{_ASKED} explain dry_run"
_ROWS = ("calibration", "config", "sets")


@command(
    "archive",
    examples=[
        "dlv archive --dry-run",
        "dlv archive --budget lenet@latest=200ms",
        "dlv archive --alpha 3 --algorithm mt --dry-run",
        "dlv archive --bounds lenet",
    ],
    exits={9: "no plan keeps the budgets; each is listed with what is possible"},
)
@argument("refs", nargs=-1, metavar="[REF]..", complete="reference")
@option(
    "--algorithm",
    type=click.Choice(["best", "mt", "pt", "last", "mst", "spt"]),
    help="Which solver plans; best if not said.",
)
@option(
    "--retrieval",
    type=click.Choice(["independent", "parallel"]),
    default="independent",
    help="How a snapshot's time is counted: the sum of its matrices, or the slowest.",
)
@option("--budget", multiple=True, metavar="REF=TIME", help="A limit of its own, as 200ms or 2s.")
@option("--alpha", type=float, metavar="A", help="All within A times the fastest possible.")
@option("--clamp", is_flag=True, help="Raise budgets that cannot be kept to what is possible.")
@option("--bounds", is_flag=True, help="Store bounds for dlv eval --progressive instead.")
@option("--calibration", metavar="DATA", help="Typical rows, for --bounds; as dlv eval takes them.")
@option("--config", metavar="FILE", help="How these are read: input_data, and the table data.")
@option("--set", "sets", multiple=True, metavar="K=V", help="One of these: data.scale=1/255.")
@option("--slow", is_flag=True, help="Search longer for a little less.")
@option("--explain", metavar="MATRIX", help="Show how a matrix would be stored, and why.")
@option("--export-graph", type=click.Path(path_type=Path), help="Write the storage graph here.")
@option("--export-plan", type=click.Path(path_type=Path), help="Write the plan here.")
@option("--dry-run", is_flag=True, help="Plan and show; change nothing.")
def run(call: Invocation, refs: tuple[str, ...], **given: Any) -> None:
    """Store weights as small as limits on reading time allow.

    Every matrix is stored on its own or as the difference to a near relative, whichever is
    smaller, so that each snapshot still comes back in time: the latest and tagged versions almost
    as fast as possible, other versions within twice that or two seconds, checkpoints on the way
    in any time (archive.* in the configuration). Not one bit changes: all is read back before the
    old packs go. With REF only these versions are stored anew. Interrupted, it goes on where it
    stopped.

    The table says of each version what its tensors take as they are and what their matrices take
    before and after: a difference without its base, and in each line what several versions hold.
    Part is after / raw, depth the longest chain of differences. The packs are those of the whole
    repository, each byte once.

    With --bounds the weights of each version (of every name the latest, without REF) are stored so
    that their first bytes tell most labels for certain, with what proves it beside them. Later
    archives leave these matrices as they are.
    """
    if given["bounds"] or any(given[name] for name in _ROWS):
        _bounds(call, refs, given)
        return
    # Each matrix has a thread already: with more of them below numpy they only wait for another.
    import dlv.views.archive as view

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    options = {name: given[name] for name in _ASKED.split()}
    asked = planning.request(call, refs, scheme=given["retrieval"], **options)
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
    call.output.emit("archive", document, *blocks)
    planning.tell_waiting(call, outcome.waiting)


def _bounds(call: Invocation, refs: tuple[str, ...], options: dict[str, Any]) -> None:
    if not options["bounds"]:
        raise UsageError("--calibration, --config and --set are for --bounds")
    import dlv.views.archive as view

    planning.alone("bounds", options, why="bounds are not planned", others=_PLANNING)
    outcome = planning.make_bounds(call, refs, **{name: options[name] for name in _ROWS})
    document, blocks = view.bounded(outcome)
    call.output.emit("archive", document, *blocks)
    planning.tell_waiting(call, outcome.waiting)
