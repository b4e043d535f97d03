"""`dlv copy`: begin a new model with the files of another one, its network edited on the way."""

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
        4: "the version, a node or an edge was not found, or the version has no network",
        5: "NAME is taken, or a file whose content is in no version is in the way; -f",
        9: "a file name that is not safe to write",
    },
)
@argument("reference", metavar="REF", complete="reference")
@argument("name", metavar="NAME")
@argument("directory", metavar="[DIR]", required=False)
@option("--no-weights", is_flag=True, help="Only the other files.")
@option("-f", "--force", is_flag=True, help="Even if NAME or a file is there already.")
@option("--slice", metavar="A..B", help="Only the layers from A to B.")
@option("--delete", multiple=True, metavar="NODE", complete="layer", help="Take a layer out.")
@option("--replace", multiple=True, metavar="NODE=T", help="Put T in the place of a layer.")
@option("--insert", multiple=True, metavar="NODE=T", help="Put T behind NODE, or between A..B.")
@option("--set", "set", multiple=True, metavar="NODE.ATTR=V", help="Set an attribute: resize.")
@option("--rename", multiple=True, metavar="OLD=NEW", help="Give a layer another name.")
@option("--seed", type=int, metavar="N", help="Of the weights that begin anew; 0 if not given.")
@option("--all", "everything", is_flag=True, help="Report weights that are just copied, too.")
def run(
    call: Invocation,
    reference: str,
    name: str,
    directory: str | None,
    force: bool,
    seed: int | None,
    **given: Any,
) -> None:
    """Begin a new model with the files of a version.

    The files of REF are written into the project's folder, or into DIR. The next commit then
    makes NAME@1 and keeps REF as its parent.

    --slice, --delete, --replace, --insert, --set and --rename edit the network, in this order;
    nodes go by the names or aliases that dlv desc REF shows, a layer to put in is written as
    RELU(), POOL("MAX", kernel=2, stride=2) or [CONV("c", out=64, kernel=3, pad=1), RELU()]. In
    place of REF's own, a network.json and NAME.safetensors are written: weights are copied where
    they fit, in part where a layer has another size, and begin anew where there are none. REF
    may then be a snapshot, such as lenet@1/100. The result is checked; what would not be sound
    is refused.
    """
    weights, everything = not given.pop("no_weights"), given.pop("everything")
    instructions = None
    if any(given.values()) or given["slice"] is not None:
        import dlv.network.edits.instructions as instructing

        instructions = instructing.Instructions(**given, seed=seed or 0)
    elif seed is not None or everything:
        raise UsageError(
            f"{'--seed' if seed is not None else '--all'} needs an edit",
            hint="--set conv1.out=64, --delete, --insert, --replace, --slice or --rename",
        )
    import dlv.views.derived as view

    with call.progress("writing") as bar:
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
    call.output.message(f"the next commit is of `{name}`, a copy of {made.version.label}")
    next_step = "change what is to differ, then dlv add PATH.. and dlv commit -m MESSAGE"
    if made.made:
        folder = "" if directory is None else f"{directory.rstrip('/')}/"
        paths = " ".join(folder + path for path in made.made)
        next_step = f"train it, then dlv add {paths} and dlv commit -m MESSAGE"
    call.output.hint(next_step)
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
