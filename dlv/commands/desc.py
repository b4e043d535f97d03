"""`dlv desc`: what is known of one version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dlv.commands.invocation import Invocation
from dlv.commands.options import argument, command, option
from dlv.errors import UsageError
from dlv.lazy import lazy

if TYPE_CHECKING:
    import dlv.describe as describe
    import dlv.views.bounds as bounds
    import dlv.views.description as view
    import dlv.views.figures as figures
    import dlv.views.version_record as record
else:
    describe = lazy("dlv.describe")
    bounds = lazy("dlv.views.bounds")
    view = lazy("dlv.views.description")
    figures = lazy("dlv.views.figures")
    record = lazy("dlv.views.version_record")


@command(
    "desc",
    examples=[
        "dlv desc lenet",
        "dlv desc lenet@2 --network",
        "dlv desc lenet@2 --layers",
        "dlv desc lenet@1 --matrix conv1.weight",
        "dlv desc lenet@2 --stats --json",
        "dlv desc lenet@1 --matrix conv1.weight --planes 2",
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
) -> None:
    """Describe a version: network, metrics, matrices, storage.

    REF is a version such as lenet@2, or a snapshot of it such as lenet@2/1000; HEAD, if it is
    left out. Weights are read only for --matrix and --stats. NaN and infinities are counted and
    left out of the figures. With --planes they are read in part, and each figure is shown as
    the two ends between which it lies.
    """
    if sum((layers, stats, drawn, matrix is not None)) > 1:
        raise UsageError("give one of --network, --layers, --matrix, --stats")
    if planes is not None and exact:
        raise UsageError("give one of --planes and --exact")
    if planes is not None and matrix is None and not stats:
        raise UsageError("--planes is about figures", hint="--matrix M or --stats")
    brief = layers or stats or matrix is not None
    with call.progress("read") as bar:
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
    document = record.document(found) if matrix is None else record.matrix_document(found)
    ids = [found.version.id]
    if matrix is not None:
        call.output.emit("desc", document, *figures.matrix(found, call.output), ids=ids)
    elif layers:
        call.output.emit("desc", document, *view.layers(found, call.output), ids=ids)
    elif stats:
        read = bounds.read(list(found.readings.values()))
        call.output.emit("desc", document, figures.statistics(found), *read, ids=ids)
    else:
        blocks = view.whole(found, call.output, drawn=drawn, everything=everything)
        call.output.emit("desc", document, *blocks, ids=ids)
