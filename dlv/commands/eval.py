"""`dlv eval`: versions tested on data, without leaving the repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import Option, argument, command, option
from dlv.errors import DlvError

if TYPE_CHECKING:
    import dlv.evaluation.evaluate as evaluate

MODES = ("guaranteed", "calibrated")


class _AfterEquals(Option):
    """An option whose value, which may be left out, stands after `=` and never in the next word."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)
        parse = parser.parse_args

        def completed(args: list[str]) -> Any:
            end = args.index("--") if "--" in args else len(args)
            return parse(
                [
                    f"{word}={self.flag_value}" if word in self.opts and at < end else word
                    for at, word in enumerate(args)
                ]
            )

        parser.parse_args = completed


@command(
    "eval",
    examples=[
        "dlv eval lenet test.npz",
        "dlv eval lenet@1/100 lenet@2 lenet@3 test.npz --no-save",
        "dlv eval lenet test.npz --confusion --labels-out labels.csv",
        "dlv eval lenet test.npz --activations conv1 --out conv1.npz --set data.rows=10",
        "dlv eval lenet test.npz --progressive --json",
    ],
    exits={
        2: "the data does not fit the network, or has unknown labels; an option",
        4: "no such version, node or file; a version without network or weights",
        5: "a file to be written is there already",
        9: "a configuration that names code",
    },
)
@argument("words", nargs=-1, required=True, metavar="REF.. [DATA]", complete="reference")
@option("--config", metavar="FILE", help="Settings: input_data, batch_size, top_k, table data.")
@option("--set", "sets", multiple=True, metavar="K=V", help="One setting, as data.scale=1/255.")
@click.option(
    "--progressive",
    cls=_AfterEquals,
    is_flag=False,
    flag_value=MODES[0],
    type=click.Choice(MODES),
    help="Read only as many planes as determine the labels; =calibrated proves nothing.",
)
@option("--strict", is_flag=True, help="Determined for any float32 evaluation, not float64 alone.")
@option("--tighten", is_flag=True, help="Bound open rows once more, backwards: slower, less read.")
@option("--precision", type=click.Choice(["float64", "float32"]), help="Of the full evaluation.")
@option(
    "--engine",
    type=click.Choice(["numpy", "torch", "onnxruntime"]),
    help="What computes the full evaluation; numpy if not said.",
)
@option("--max-bytes", type=click.IntRange(0), metavar="N", help="Read no more; rows stay open.")
@option("--top-k", type=click.IntRange(1), metavar="K", help="Also whether the K first hold it.")
@option("--confusion", is_flag=True, help="Count which class was taken for which.")
@option("--activations", multiple=True, metavar="NODE", complete="layer", help="Values of a node.")
@option("--out", type=click.Path(path_type=Path), metavar="F.npz", help="Where these are written.")
@option("--labels-out", type=click.Path(path_type=Path), metavar="F", help="Labels: CSV or npz.")
@option("--batch", type=click.IntRange(1), metavar="N", help="Rows that are computed together.")
@option("--no-save", is_flag=True, help="Do not keep the result with the version.")
@option("--force", "-f", is_flag=True, help="Write over files that are there.")
def run(call: Invocation, no_save: bool, **given: Any) -> None:
    """Test versions on data and keep the results.

    REF is a version, or a snapshot of one such as lenet@2/1000. DATA is an .npz or .npy file,
    CSV, a folder of images with a subfolder per class, a file that is stored with a version
    (lenet@1:test.npz), or python:module:function; left out, the data set that was added with
    the version. Scores are computed with numpy in float64 from the stored weights.

    With --progressive only the first planes of the weights are read where these determine
    the label of a row already: labels are those of the full evaluation, surely. It needs the
    bounds that `dlv archive --bounds` stores, and says so where it reads everything.
    """
    import dlv.processors as processors
    import dlv.views.evaluated as view

    processors.bound_threads(call.environ)
    with call.progress("evaluate", rows=True) as bar:
        import dlv.evaluation.evaluate as evaluate

        request = evaluate.Request(
            directory=call.directory,
            usual_precision=call.config.get("eval.precision"),
            watch=lambda done: bar.tell(done.version, done.done, done.rows, view.watched(done)),
            **given,
        )
        found = evaluate.evaluate(call.repository, request)
    for note in [*found.notes, *view.warnings(found)]:
        call.output.warn(note)
    document, blocks = view.evaluated(found, call.output)
    try:
        call.output.emit("eval", document, *blocks, ids=[each.id for each in found.results])
        for path in found.written:
            call.output.detail(f"wrote {path}")
    except BaseException:  # the output was closed, but the files are written
        found.until.close()
        raise
    with found:
        if not no_save:
            _save(call, found)


def _save(call: Invocation, evaluated: evaluate.Evaluated) -> None:
    """Last, so that what was computed is shown even where nothing can be written."""
    try:
        saved = evaluated.save(call.repository, call.author)
    except DlvError as error:
        error.hint = error.hint or "--no-save only shows the result"
        raise
    if saved:
        call.output.message(f"saved with {', '.join(each.version for each in saved)}")
