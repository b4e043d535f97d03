"""`dlv quantize`: versions with rounded weights."""

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
    help="fp16, bf16, fixed:K, uniform:K, random:K or lloyd:K, with K bits.",
)
@option("--name", metavar="NAME", help="Model to make [default: REF's and SCHEME, as lenet-fp16].")
@option("-m", "--message", metavar="TEXT", help="What the version is [default: REF as SCHEME].")
def run(
    call: Invocation, refs: tuple[str, ...], scheme: str, name: str | None, message: str | None
) -> None:
    """Make smaller versions with rounded weights.

    Each becomes a version of another model, whose parent is REF; REF itself and HEAD stay as they
    are. Network, files and hyperparameters come along, metrics do not. The same twice makes
    nothing new.
    """
    import dlv.versions.quantize as quantizing
    import dlv.views.archive as view

    with call.progress("round") as bar:
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
