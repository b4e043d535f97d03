"""`dlv stats`: disk usage of versions."""

from __future__ import annotations

import click

from dlv.commands.shared import reporting
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option


@command(
    "stats",
    examples=[
        "dlv stats",
        "dlv stats lenet@1 lenet@2 --by tensor",
        "dlv stats --by codec",
        "dlv stats -o disk.html",
    ],
)
@argument("refs", nargs=-1, metavar="[REF]..", complete="reference")
@option(
    "--by",
    type=click.Choice(["version", "tensor", "codec", "layout"]),
    default="version",
    help="Group by this [default: version].",
)
@reporting.report_options()
def run(call: Invocation, refs: tuple[str, ...], by: str, output: str | None, show: bool) -> None:
    """Show disk usage.

    raw is the size of the tensors, stored what they take in packs without their delta bases,
    ratio raw / stored. freed is what gc would free if this version alone were removed, and needed
    all that is read to restore it. The totals count every byte once.
    """
    import dlv.versions.stats as stats
    import dlv.views.disk as view

    target = reporting.target(call, output, show)
    found = stats.stats(call.repository, refs, by)
    for note in found.notes:
        call.output.warn(note)
    document, blocks = view.document(found, by), view.blocks(found, by)
    if target is None:
        call.output.emit("stats", document, *blocks)
        return
    import dlv.ui.frame as frames
    import dlv.ui.storage as pages

    sections = pages.disk_usage(found, by, blocks, frames.Frame(call.output.now))
    reporting.write_report(target, "Disk usage", sections)
    reporting.deliver(call, "stats", document, target, show=show)
