"""`dlv diff`: two or more versions side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError

if TYPE_CHECKING:
    from dlv.terminal.output import Block


@command(
    "diff",
    examples=[
        "dlv diff lenet@1 lenet@2",
        "dlv diff lenet@1 lenet@2 --structure --params",
        "dlv diff lenet@1 lenet@2 --layer 'conv*'",
        "dlv diff lenet@1 lenet@2 --metrics --md",
        "dlv diff HEAD~1 HEAD --files",
        "dlv diff lenet@1 lenet@2 --matrices --planes 3",
    ],
    exits={1: "the versions differ, with --exit-code", 4: "no such version, snapshot or layer"},
)
@argument("refs", nargs=-1, required=True, metavar="REF..", complete="reference")
@option("--structure", is_flag=True, help="Only layers: added, removed, changed.")
@option("--matrices", is_flag=True, aliases=["--tensors"], help="Only matrices.")
@option("--params", is_flag=True, help="Only hyperparameters.")
@option("--metrics", is_flag=True, help="Only metrics: last values.")
@option("--files", is_flag=True, help="Only associated files.")
@option("--layer", metavar="P", complete="layer", help="Only layers of this name, alias or glob.")
@option("--planes", type=click.IntRange(1), metavar="K", help="Bounds from K planes of each.")
@option("--exact", is_flag=True, help="Read all planes, as is done without --planes, too.")
@option("--all", "everything", is_flag=True, help="Show what is unchanged too.")
@option("--md", is_flag=True, help="Markdown, for a pull request.")
@option("--csv", is_flag=True, help="CSV, one row per fact.")
@option("--exit-code", is_flag=True, help="Exit 1 if something differs.")
def run(
    call: Invocation,
    refs: tuple[str, ...],
    layer: str | None,
    planes: int | None,
    everything: bool,
    **given: bool,
) -> int | None:
    """Show how versions differ; the first is the reference.

    Each REF is a version such as lenet@2, or a snapshot such as lenet@2/1000. Layers are aligned
    by what they do, where they stand and what they are called, so a renamed or an inserted layer
    is seen as such; networks that differ only in names, or in how their weights are stored
    (channels last, kernels turned), are called equal up to that, and their matrices are compared
    element by element all the same. For each matrix: the norm (L2) of the difference, this norm
    relative to the reference's, the largest difference of an element, and how many elements have
    other bits; with --planes, the two ends between which each of these lies. Signs: + added,
    - removed, ~ changed, > renamed, = stored otherwise.
    """
    if given["md"] and given["csv"]:
        raise UsageError("give one of --md and --csv")
    if planes is not None and given["exact"]:
        raise UsageError("give one of --planes and --exact")
    import dlv.versions.diff as diffing
    import dlv.views.difference_records as records
    import dlv.views.differences as view

    with call.progress("compare") as bar:
        found = diffing.diff(
            call.repository,
            refs,
            sections=[name for name in diffing.SECTIONS if given[name]],
            layer=layer,
            everything=everything,
            planes=planes,
            progress=bar.advance,
        )
    for note in found.notes:
        call.output.warn(note)
    body: list[Block]
    if given["md"]:
        body = [view.markdown(found, everything)]
    elif given["csv"]:
        body = [records.csv(found, everything)]
    else:
        body = [*view.text(found, everything, call.output.terminal)]
    call.output.emit("diff", records.document(found), *body, ids=[])
    return 1 if given["exit_code"] and not found.same else None
