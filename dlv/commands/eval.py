"""`dlv eval`: evaluate versions on data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlv.commands.shared import reporting
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import AfterEquals, argument, command, option
from dlv.errors import DlvError

if TYPE_CHECKING:
    import dlv.evaluation.evaluate as evaluate

MODES = ("guaranteed", "calibrated")


@command(
    "eval",
    examples=[
        "dlv eval lenet test.npz",
        "dlv eval lenet@1/100 lenet@2 lenet@3 test.npz --no-save",
        "dlv eval lenet test.npz --confusion --predictions-out predictions.csv",
        "dlv eval lenet test.npz --activations conv1 -o conv1.npz --set data.rows=10",
        "dlv eval lenet test.npz --progressive -o eval.html",
    ],
    exits={
        4: "no such version, layer or file, or no network or weights",
        5: "an output file exists",
        9: "a config file that names code",
    },
)
@argument("words", nargs=-1, metavar="[REF].. [DATA]", complete="reference")
@option("--config", metavar="FILE", help="Read settings: input_data, batch_size, top_k, data.")
@option(
    "--set",
    "sets",
    multiple=True,
    metavar="K=V",
    help="Change a setting, such as data.scale=1/255.",
)
@click.option(
    "--progressive",
    cls=AfterEquals,
    is_flag=False,
    flag_value=MODES[0],
    type=click.Choice(MODES),
    help="Read only the bytes that decide; =calibrated is not guaranteed.",
)
@option("--strict", is_flag=True, help="Guarantee predictions for any float32 computation.")
@option("--tighten", is_flag=True, help="Bound undecided examples twice: slower, reads less.")
@option(
    "--precision", type=click.Choice(["float64", "float32"]), help="Precision [default: float64]."
)
@option(
    "--engine",
    type=click.Choice(["numpy", "torch", "onnxruntime"]),
    help="Engine for the full evaluation [default: numpy, or torch where numpy cannot].",
)
@option(
    "--max-bytes",
    type=click.IntRange(0),
    metavar="N",
    help="Stop after N bytes; the rest stays undecided.",
)
@option("--top-k", type=click.IntRange(1), metavar="K", help="Report top-K accuracy, too.")
@option("--confusion", is_flag=True, help="Show the confusion matrix.")
@option(
    "--activations",
    multiple=True,
    metavar="LAYER",
    complete="layer",
    help="Write activations of LAYER.",
)
@reporting.report_options("Write a report (.html), or activations.")
@option(
    "--predictions-out",
    "labels_out",
    type=click.Path(path_type=Path),
    metavar="F",
    help="Write predictions: CSV or npz.",
)
@option("--batch", type=click.IntRange(1), metavar="N", help="Examples per batch.")
@option("--no-save", is_flag=True, help="Do not save the results.")
@option("-f", "--force", is_flag=True, help="Overwrite output files.")
def run(call: Invocation, no_save: bool, output: str | None, show: bool, **given: Any) -> None:
    """Evaluate versions on data and save the results.

    REF is a version or a checkpoint such as lenet@2/1000 [default: HEAD]. DATA is an .npz, .npy or
    CSV file, a folder of images, a committed file (lenet@1:test.npz) or python:module:function;
    by default the data set committed with the version. Results are saved as metrics of the data
    set, such as test/accuracy, but not those of a remote (origin:lenet@2). --progressive gives the
    same predictions from fewer bytes; it needs the bounds that dlv archive --bounds stores.
    """
    import dlv.processors as processors
    import dlv.views.evaluated as view

    processors.bound_threads(call.environ)
    target = None
    if given["activations"] and output is not None:
        given["out"] = Path(output)
    else:
        target = reporting.target(call, output, show)
    repository, given["words"], remote = call.look_with_data(given["words"])
    with call.progress("Evaluating", rows=True) as bar:
        import dlv.evaluation.evaluate as evaluate

        request = evaluate.Request(
            directory=call.directory,
            usual_precision=call.config.get("eval.precision"),
            mistakes=0 if target is None else evaluate.MISTAKES,
            watch=lambda done: bar.tell(done.version, done.done, done.rows, view.watched(done)),
            **given,
        )
        found = evaluate.evaluate(repository, request)
    for note in [*found.notes, *view.warnings(found)]:
        call.output.warn(note)
    document, blocks = view.evaluated(found, call.output)
    if remote is not None:
        import dlv.hub.signing as signing

        versions = {result.id for result in found.results}
        signed = signing.is_signed(remote, versions, call.signers)
        if not signed and any(result.mode == "progressive" for result in found.results):
            call.output.warn(f"guaranteed if {remote.name} is honest: no known key signed it")
        document["remote"], line = view.fetched(remote, signed=signed)
        blocks += [line]
    ids = [each.id for each in found.results]
    try:
        if target is None:
            call.output.emit("eval", document, *blocks, ids=ids)
        else:
            import dlv.ui.evaluation as pages

            pages.write(target, found, call.output.now, reporting.command())
            reporting.deliver(call, "eval", document, target, show=show, ids=ids)
        for path in found.written:
            call.output.detail(f"wrote {path}")
    except BaseException:  # the output was closed, but the files are written
        found.until.close()
        raise
    with found:
        if not no_save and remote is None:
            _save(call, found)


def _save(call: Invocation, evaluated: evaluate.Evaluated) -> None:
    """Last, so that what was computed is shown even where nothing can be written."""
    try:
        saved = evaluated.save(call.repository, call.author)
    except DlvError as error:
        error.hint = error.hint or "to show the results without saving: dlv eval --no-save"
        raise
    if saved:
        call.output.message(f"saved results of {', '.join(each.version for each in saved)}")
