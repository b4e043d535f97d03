"""`dlv desc`: describe a version in full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dlv.commands.shared import reporting
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError


@command(
    "desc",
    examples=[
        "dlv desc lenet",
        "dlv desc lenet@2 --network",
        "dlv desc lenet@2 --layers",
        "dlv desc lenet@1 --tensor conv1.weight",
        "dlv desc lenet@2 --stats --json",
        "dlv desc lenet@2 --card",
        "dlv desc lenet@2 -o lenet.html --open",
        "dlv desc lenet@2 --network -o lenet.svg",
        "dlv desc lenet@1 --tensor conv1.weight --planes 2",
        "dlv desc lenet --activations conv1 --activations fc1 --data test.npz",
    ],
    exits={4: "no such version, checkpoint or tensor"},
)
@argument("ref", required=False, default="HEAD", complete="reference")
@option("--network", "drawn", is_flag=True, help="Show only a drawing of the network.")
@option("--layers", is_flag=True, help="Show only layers: inputs, tensors, FLOPs.")
@option("--tensors", is_flag=True, help="Show only tensors and how they are stored.")
@option(
    "--tensor",
    "matrix",
    metavar="NAME",
    aliases=["--matrix"],
    help="Show one tensor with statistics.",
)
@option("--card", is_flag=True, help="Print a model card: Markdown, front matter for HF.")
@option("--stats", is_flag=True, help="Show only statistics of all tensors.")
@option(
    "--planes", type=click.IntRange(1), metavar="K", help="Read only K byte planes; show bounds."
)
@option("--activations", multiple=True, metavar="LAYER", complete="layer", help="Show activations.")
@option("--data", metavar="DATA", help="Data to compute activations on.")
@option(
    "--set",
    "sets",
    multiple=True,
    metavar="K=V",
    help="Change a setting, such as data.scale=1/255.",
)
@reporting.report_options("Write a report (.html), the network (.svg, .png), or activations.")
@option("--all", "everything", is_flag=True, help="Include optimizer state.")
def run(
    call: Invocation,
    ref: str,
    drawn: bool,
    layers: bool,
    tensors: bool,
    matrix: str | None,
    stats: bool,
    planes: int | None,
    everything: bool,
    card: bool,
    output: str | None,
    show: bool,
    **given: Any,
) -> None:
    """Describe a version in full.

    REF is a version such as lenet@2 or a checkpoint such as lenet@2/1000 [default: HEAD]. Weights
    are read only for --tensor and --stats. With --planes they are read in part and bounds are
    shown; --activations then needs the bounds that dlv archive --bounds stores. The text of a file
    CARD.md is shown, too; --card prints it as a model card, with what dlv knows.
    """
    named = bool(given["activations"])
    if sum((layers, tensors, stats, drawn, card, named, matrix is not None)) > 1:
        words = "--network, --layers, --tensors, --tensor, --stats, --card and --activations"
        raise UsageError(f"{words} cannot be combined")
    if card and not (call.json or call.quiet):
        _card(call, ref)
        return
    if planes is not None and matrix is None and not stats and not named:
        raise UsageError("--planes requires --tensor, --stats or --activations")
    if not named and any(given.values()):
        raise UsageError("--data and --set require --activations")
    if named:
        _activations(call, ref, planes, out=None if output is None else Path(output), **given)
        return
    kinds = (*reporting.REPORT, *(reporting.PICTURES if drawn else ()))
    target = reporting.target(call, output, show, kinds)
    import dlv.views.description as view

    brief = drawn or layers or tensors or stats or matrix is not None
    with call.progress("Reading") as bar:
        import dlv.versions.describe as describe

        repository, ref = call.look_at(ref)
        found = describe.describe(
            repository,
            ref,
            curves=call.output.terminal and not brief,
            matrix=matrix,
            statistics=stats,
            planes=planes,
            progress=bar.advance,
        )
    for note in found.notes:
        call.output.warn(note)
    document = view.version_document(found) if matrix is None else view.matrix_document(found)
    parts = {"tensor": matrix, "network": drawn, "layers": layers, "tensors": tensors}
    part = next((name for name, wanted in (parts | {"stats": stats}).items() if wanted), "")
    ids = [found.version.id]
    if target is None:
        blocks = view.blocks(found, call.output, part, everything=everything)
        call.output.emit("desc", document, *blocks, ids=ids)
        return
    import dlv.ui.version as pages

    pages.write(target, repository, found, part, call.output.now, reporting.command())
    reporting.deliver(call, "desc", document, target, show=show, ids=ids)


def _card(call: Invocation, ref: str) -> None:
    import dlv.versions.card as cards
    import dlv.versions.describe as describe

    repository, ref = call.look_at(ref)
    described = describe.describe(repository, ref)
    base = next((parent.label or parent.id[:12] for parent in described.parents), None)
    card = cards.card_of(repository, described.version)
    call.output.raw(cards.markdown(card, described.version.label, base).encode())


def _activations(call: Invocation, ref: str, planes: int | None, **given: Any) -> None:
    """Show what layers compute on data."""
    import dlv.evaluation.activations as activations
    import dlv.processors as processors
    import dlv.versions.describe as describe
    import dlv.views.description as view

    processors.bound_threads(call.environ)
    repository, ref = call.look_at(ref)
    found = describe.describe(repository, ref)
    request = activations.Request(
        nodes=given["activations"],
        data=given["data"],
        directory=call.directory,
        sets=given["sets"],
        planes=planes,
        out=given["out"],
    )
    computed = activations.activations(repository, ref, request)
    document = view.matrix_document(found) | view.activations_document(computed)
    table = view.activations_blocks(computed)
    call.output.emit("desc", document, *table, ids=[found.version.id])
