"""`dlv diff`: two or more versions side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dlv.commands.shared import reporting
from dlv.commands.shared.invocation import Invocation, open_weights
from dlv.commands.shared.options import argument, command, option

if TYPE_CHECKING:
    from dlv.terminal.output import Block


@command(
    "diff",
    examples=[
        "dlv diff",
        "dlv diff lenet@1 lenet@2",
        "dlv diff lenet@1 lenet@2 --network --params",
        "dlv diff lenet@1 lenet@2 --layer 'conv*'",
        "dlv diff lenet@1 lenet@2 --metrics --format md",
        "dlv diff HEAD~1 HEAD --files",
        "dlv diff lenet@1 lenet@2 --tensors --planes 3",
        "dlv diff lenet@1 lenet@2 -o diff.html --open",
    ],
    exits={1: "the versions differ, with --exit-code", 4: "no such version, checkpoint or layer"},
)
@argument("refs", nargs=-1, metavar="[REF]..", complete="reference")
@option("--network", "structure", is_flag=True, help="Compare layers.")
@option("--tensors", "matrices", is_flag=True, help="Compare weights.")
@option("--params", is_flag=True, help="Compare hyperparameters.")
@option("--metrics", is_flag=True, help="Compare metrics.")
@option("--files", is_flag=True, help="Compare files.")
@option("--layer", metavar="PATTERN", complete="layer", help="Compare only these layers.")
@option(
    "--planes", type=click.IntRange(1), metavar="K", help="Read only K byte planes; show bounds."
)
@option("--all", "everything", is_flag=True, help="Show unchanged items, too.")
@option("--exit-code", is_flag=True, help="Exit with 1 if anything differs.")
@reporting.report_options()
def run(
    call: Invocation,
    refs: tuple[str, ...],
    layer: str | None,
    planes: int | None,
    everything: bool,
    output: str | None,
    show: bool,
    **given: bool,
) -> int | None:
    """Compare versions; the first is the base.

    REF is a version such as lenet@2 or a checkpoint such as lenet@2/1000. One REF, or HEAD if
    there is none, is compared with the working directory. Renamed and inserted layers are
    recognized. For each tensor: L2 norm of the difference, relative to the base, largest change
    and number of changed elements. Signs: + added, - removed, ~ changed, > renamed, = stored
    differently.
    """
    import dlv.versions.diff as diffing
    import dlv.views.difference_records as records
    import dlv.views.differences as view

    target = reporting.target(call, output, show)
    elsewhere = {text: call.look_at(text) for text in refs if call.names_remote([text])}
    with call.progress("Comparing") as bar:
        found = diffing.diff(
            call.repository,
            refs,
            elsewhere=elsewhere,
            sections=[name for name in diffing.SECTIONS if given[name]],
            layer=layer,
            everything=everything,
            planes=planes,
            opened=open_weights,
            jobs=call.jobs,
            progress=bar.advance,
        )
    for note in found.notes:
        call.output.warn(note)
    body: list[Block]
    if target is not None:
        import dlv.ui.comparison as pages
        import dlv.ui.frame as frames

        sections = pages.sections(
            call.repository, found, frames.Frame(call.output.now), everything=everything
        )
        reporting.write_report(target, pages.title(found), sections)
        reporting.deliver(call, "diff", records.document(found), target, show=show)
        return 1 if given["exit_code"] and not found.same else None
    if call.output.format == "md":
        body = [view.markdown(found, everything)]
    elif call.output.format == "csv":
        body = [records.csv(found, everything)]
    else:
        body = [*view.text(found, everything, call.output.terminal)]
    call.output.emit("diff", records.document(found), *body, ids=[])
    return 1 if given["exit_code"] and not found.same else None
