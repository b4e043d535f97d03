"""`dlv quantize`: make versions with rounded weights."""

from __future__ import annotations

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option


@command(
    "quantize",
    examples=["dlv quantize lenet@1 --to fp16", "dlv quantize lenet --to uniform:8 --name small"],
    exits={4: "no such version", 5: "a tag has that name"},
)
@argument("refs", nargs=-1, required=True, metavar="REF..", complete="reference")
@option(
    "--to",
    "scheme",
    required=True,
    metavar="SCHEME",
    help="Round to fp16, bf16, or K bits: fixed:K, uniform:K, random:K, lloyd:K.",
)
@option("--name", metavar="NAME", help="Name of the new model [default: as in lenet-fp16].")
@option("-m", "--message", metavar="TEXT", help="Describe the version [default: REF as SCHEME].")
def run(
    call: Invocation, refs: tuple[str, ...], scheme: str, name: str | None, message: str | None
) -> None:
    """Make smaller versions with rounded weights.

    Each one becomes a version of a new model with REF as its parent. REF and HEAD do not change.
    Network, files and hyperparameters are copied, metrics are not. Quantizing REF the same way
    again makes nothing new.
    """
    import dlv.versions.quantize as quantizing
    import dlv.views.archive as view

    with call.progress("Quantizing") as bar:
        made = [
            quantizing.quantize(
                *(call.repository, reference, scheme),
                author=call.author,
                name=name,
                message=message,
                jobs=call.jobs,
                recheck=call.config.get("commit.recheck"),
                progress=bar.advance,
                total=bar.expect,
            )
            for reference in refs
        ]
    document, blocks = view.quantized(made)
    call.output.emit("quantize", document, *blocks, ids=[child.version.id for child in made])
