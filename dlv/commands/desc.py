"""`dlv desc`: what is known of one version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError


@command(
    "desc",
    examples=[
        "dlv desc lenet",
        "dlv desc lenet@2 --network",
        "dlv desc lenet@2 --layers",
        "dlv desc lenet@1 --matrix conv1.weight",
        "dlv desc lenet@2 --stats --json",
        "dlv desc lenet@1 --matrix conv1.weight --planes 2",
        "dlv desc lenet --activations conv1 --activations fc1 --data test.npz",
    ],
    exits={4: "no such version, snapshot or matrix"},
)
@argument("ref", required=False, default="HEAD", complete="reference")
@option("--network", "-n", "drawn", is_flag=True, help="Draw the network instead of a table.")
@option("--layers", is_flag=True, help="Only the layers: inputs, tensors, FLOPs, activations.")
@option("--matrix", metavar="M", aliases=["--tensor"], help="One matrix: figures, histogram.")
@option("--stats", is_flag=True, help="Only figures of all matrices: min, max, mean, std, L2, ..")
@option("--planes", type=click.IntRange(1), metavar="K", help="Bounds from K planes of each.")
@option("--exact", is_flag=True, help="Read all planes, as is done without --planes, too.")
@option("--activations", multiple=True, metavar="NODE", complete="layer", help="Of data.")
@option("--data", metavar="DATA", help="What they are computed for, as dlv eval reads it.")
@option("--set", "sets", multiple=True, metavar="K=V", help="A setting of the data.")
@option("--out", type=click.Path(path_type=Path), metavar="F.npz", help="Write activations here.")
@option("--all", "everything", is_flag=True, help="List the matrices of the optimizer, too.")
def run(
    call: Invocation,
    ref: str,
    drawn: bool,
    layers: bool,
    matrix: str | None,
    stats: bool,
    planes: int | None,
    exact: bool,
    everything: bool,
    **given: Any,
) -> None:
    """Describe a version: network, metrics, matrices, storage.

    REF is a version such as lenet@2, or a snapshot of it such as lenet@2/1000; HEAD, if it is
    left out. Weights are read only for --matrix and --stats. NaN and infinities are counted and
    left out of the figures. With --planes they are read in part, and each figure is shown as
    the two ends between which it lies; --activations then come with a radius, within which
    all of the weights would have them (it needs what `dlv archive --bounds` stores).
    """
    named = bool(given["activations"])
    if sum((layers, stats, drawn, named, matrix is not None)) > 1:
        raise UsageError("give one of --network, --layers, --matrix, --stats, --activations")
    if planes is not None and exact:
        raise UsageError("give one of --planes and --exact")
    if planes is not None and matrix is None and not stats and not named:
        raise UsageError("--planes is about figures", hint="--matrix M or --stats")
    if not named and any(given.values()):
        raise UsageError("--data, --set and --out are about --activations")
    if named:
        _activations(call, ref, planes, **given)
        return
    import dlv.views.description as view

    brief = layers or stats or matrix is not None
    with call.progress("read") as bar:
        import dlv.versions.describe as describe

        found = describe.describe(
            call.repository,
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
    ids = [found.version.id]
    if matrix is not None:
        call.output.emit("desc", document, *view.matrix_blocks(found, call.output), ids=ids)
    elif layers:
        call.output.emit("desc", document, *view.layers(found, call.output), ids=ids)
    elif stats:
        import dlv.views.values as values

        read = values.reading_lines(list(found.readings.values()))
        call.output.emit("desc", document, view.statistics_table(found), *read, ids=ids)
    else:
        blocks = view.whole(found, call.output, drawn=drawn, everything=everything)
        call.output.emit("desc", document, *blocks, ids=ids)


def _activations(call: Invocation, ref: str, planes: int | None, **given: Any) -> None:
    """What nodes compute on data."""
    import dlv.evaluation.activations as activations
    import dlv.processors as processors
    import dlv.versions.describe as describe
    import dlv.views.description as view

    processors.bound_threads(call.environ)
    found = describe.describe(call.repository, ref)
    request = activations.Request(
        nodes=given["activations"],
        data=given["data"],
        directory=call.directory,
        sets=given["sets"],
        planes=planes,
        out=given["out"],
    )
    computed = activations.activations(call.repository, ref, request)
    document = view.matrix_document(found) | view.activations_document(computed)
    table = view.activations_blocks(computed)
    call.output.emit("desc", document, *table, ids=[found.version.id])
