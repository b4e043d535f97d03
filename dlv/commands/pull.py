"""`dlv pull`: fetch versions from a remote."""

from __future__ import annotations

from typing import Any

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError
from dlv.views.pulled import emit_pulled


@command(
    "pull",
    examples=[
        "dlv remote add origin ../team && dlv publish && dlv pull origin:lenet",
        "dlv pull lenet@2",
        "dlv pull --metadata-only lenet",
        "dlv pull",
    ],
    exits={
        4: "no such version or remote",
        6: "the remote lacks parts of a version",
        7: "the remote cannot be reached, or refuses access",
        9: "data of the remote is not what it claims to be",
    },
)
@argument("models", nargs=-1, metavar="[REF]..")
@option("--remote", metavar="NAME", complete="remote", help="Remote to use.")
@option("--name", aliases=["--as"], metavar="NAME", help="Name of the model here.")
@option("--metadata-only", is_flag=True, help="Leave weights there; fetch them when used.")
@option("--tensors", multiple=True, metavar="PATTERN", help="Fetch only weights that match.")
@option(
    "--planes", type=click.IntRange(1), metavar="K", help="Fetch only K byte planes of weights."
)
@option("--all", "everything", is_flag=True, help="Pull all models of the remote.")
@option("--require-signature", is_flag=True, help="Refuse versions that are not signed.")
@option("--accept-rollback", is_flag=True, help="Accept a remote whose history was changed.")
@option("--dry-run", is_flag=True, help="Show what would be fetched.")
def run(
    call: Invocation,
    models: tuple[str, ...],
    remote: str | None,
    everything: bool,
    dry_run: bool,
    require_signature: bool,
    accept_rollback: bool,
    **given: Any,
) -> None:
    """Fetch versions from a remote.

    REF is a model such as lenet or origin:lenet, or one of its versions such as lenet@2. Without
    REF, new versions of all models pulled or published before are fetched. Nothing becomes
    visible before every chunk, tensor and file has been verified. The working directory and HEAD
    do not change. With --metadata-only, --tensors or --planes, other weights stay on the remote
    and are fetched when they are used; pull again without it to have all.
    """
    import dlv.hub.names as names
    import dlv.hub.pull as pulling
    import dlv.hub.remotes as remotes

    if everything and models:
        raise UsageError("--all cannot be used with REF", hint="dlv pull --all")
    repository = call.repository
    name_, url, wanted = names.split(call.config, remote, models)
    with call.progress("Pulling") as bar:
        opened = remotes.open_remote(repository, name_, url, call.environ)
        opened.signed, opened.signers = require_signature, call.signers
        opened.accept_rollback = accept_rollback
        done = pulling.pull(
            repository,
            opened,
            pulling.Request(
                names=wanted,
                author=call.author,
                **given,
                everything=everything,
                dry_run=dry_run,
                progress=bar.advance,
                total=bar.expect,
            ),
        )
    emit_pulled(call.output, "pull", opened, done, dry_run=dry_run)
    if done.versions:
        call.next_step(f"to restore the files: dlv checkout {done.versions[-1].label}")
