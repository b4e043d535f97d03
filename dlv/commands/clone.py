"""`dlv clone`: create a repository from a remote."""

from __future__ import annotations

from pathlib import Path

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command
from dlv.views.pulled import emit_pulled


@command(
    "clone",
    examples=["dlv remote add origin ../team && dlv publish && dlv clone ../team ../copy"],
    exits={
        5: "the directory is not empty",
        7: "the remote cannot be reached, or refuses access",
        9: "data of the remote is not what it claims to be",
    },
)
@argument("url", metavar="URL")
@argument("directory", metavar="[DIR]", required=False)
def run(call: Invocation, url: str, directory: str | None) -> None:
    """Create a repository with all versions of a remote.

    DIR is the last part of URL by default. The remote is called origin. To restore files, use dlv
    checkout.
    """
    import dlv.hub.cloning as cloning
    from dlv.hub.stores.opening import absolute

    address = absolute(url, call.directory)
    folder = call.directory / (directory or address.rstrip("/").rpartition("/")[2])
    with call.progress("Cloning") as bar:
        opened, done = cloning.clone(
            address, folder, call.environ, call.author, progress=bar.advance, total=bar.expect
        )
    emit_pulled(call.output, "clone", opened, done, dry_run=False, folder=str(folder.resolve()))
    call.output.message(f"cloned into {Path(folder)}")
    if done.versions:
        call.next_step(f"to restore files: cd {folder} && dlv checkout {done.versions[-1].label}")
