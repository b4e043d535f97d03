"""`dlv copy`: start a new model from a version, with an edited network if asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlv.commands.shared.invocation import Invocation, open_weights, say_files
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError
from dlv.terminal.table import Bytes, Column, Id, Table

if TYPE_CHECKING:
    from dlv.terminal.output import Block


@command(
    "copy",
    examples=[
        "dlv copy HEAD lenet-small",
        "dlv copy HEAD alexnet --no-weights",
        "dlv copy HEAD lenet-big big --set conv1.out=32 --insert 'conv1=NORM(\"BATCH\")'",
        "dlv copy HEAD features cut --slice conv1..fc1",
    ],
    exits={
        4: "no such version or layer, or the version has no network",
        5: "NAME is taken, or uncommitted changes would be overwritten",
        9: "an unsafe file name",
    },
)
@argument("reference", metavar="REF", complete="reference")
@argument("name", metavar="NAME")
@argument("directory", metavar="[DIR]", required=False)
@option("--no-weights", is_flag=True, help="Skip weights.")
@option("-f", "--force", is_flag=True, help="Overwrite NAME and uncommitted changes.")
@option("--slice", metavar="A..B", help="Keep only the layers from A to B.")
@option("--delete", multiple=True, metavar="LAYER", complete="layer", help="Delete a layer.")
@option("--replace", multiple=True, metavar="LAYER=T", help="Replace a layer by T.")
@option("--insert", multiple=True, metavar="LAYER=T", help="Insert T after LAYER, or between A..B.")
@option(
    "--set",
    "set",
    multiple=True,
    metavar="LAYER.ATTR=V",
    help="Set an attribute, such as conv1.out=32.",
)
@option("--rename", multiple=True, metavar="OLD=NEW", help="Rename a layer.")
@option("--seed", type=int, metavar="N", help="Seed for reinitialized weights [default: 0].")
@option("--all", "everything", is_flag=True, help="Show unchanged items, too.")
def run(
    call: Invocation,
    reference: str,
    name: str,
    directory: str | None,
    force: bool,
    seed: int | None,
    **given: Any,
) -> None:
    """Start a new model from the files of a version.

    Writes the files of REF to the project or to DIR. The next commit creates NAME@1 with REF as
    its parent. The editing options change the network, in the order listed; T is a layer such as
    RELU() or POOL("MAX", kernel=2, stride=2), or a list of layers. Weights are copied where they
    fit and reinitialized elsewhere. An invalid network is refused.
    """
    weights, everything = not given.pop("no_weights"), given.pop("everything")
    instructions = None
    if any(given.values()) or given["slice"] is not None:
        import dlv.network.edits.instructions as instructing

        instructions = instructing.Instructions(**given, seed=seed or 0)
    elif seed is not None or everything:
        raise UsageError(
            f"{'--seed' if seed is not None else '--all'} requires an edit of the network",
            hint=f"dlv copy {reference} {name} --set LAYER.ATTR=V",
        )
    import dlv.views.derived as view

    with call.progress("Writing files") as bar:
        import dlv.versions.copying as copying

        made = copying.copy(
            call.repository,
            copying.Request(
                reference=reference,
                author=call.author,
                here=call.directory,
                opened=open_weights,
                to=None if directory is None else Path(directory),
                weights=weights,
                force=force,
                name=name,
                progress=bar.advance,
                total=bar.expect,
            ),
            instructions,
        )
    for note in (*made.notes, *(edit.warning for edit in made.edits if edit.warning)):
        call.output.warn(note)
    say_files(call, made)
    call.output.message(f"The next commit creates {name}@1 (parent: {made.version.label})")
    next_step = "edit the files, then: dlv add . && dlv commit -m MESSAGE"
    if made.made:
        folder = "" if directory is None else f"{directory.rstrip('/')}/"
        paths = " ".join(folder + path for path in made.made)
        next_step = f"train it, then: dlv add {paths} && dlv commit -m MESSAGE"
    call.next_step(next_step)
    blocks: list[Block] = [
        Table(
            [Column("path", least=20), "bytes", "hash"],
            [[w.path, Bytes(w.bytes), Id(w.hash)] for w in made.written],
        ),
        *(view.copy_blocks(made, everything) if made.network is not None else ()),
    ]
    call.output.emit(
        "copy",
        {
            "name": name,
            "parent": made.version.id,
            "folder": str(made.folder.resolve()),
            "written": [{"path": w.path, "bytes": w.bytes, "hash": w.hash} for w in made.written],
            "unchanged": made.unchanged,
            "removed": made.removed,
            "kept": made.kept,
            **(view.copy_record(made) if made.network is not None else {}),
        },
        *blocks,
        ids=[w.path for w in made.written],
    )
