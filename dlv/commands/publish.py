"""`dlv publish`: send versions to a remote."""

from __future__ import annotations

from pathlib import Path

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.terminal.output import Line
from dlv.terminal.table import Bytes, Cell, Column, Id, Table, Text


@command(
    "publish",
    examples=[
        "dlv remote add origin ../team && dlv publish",
        "dlv publish lenet@2 --remote origin",
        "dlv publish --dry-run",
    ],
    exits={
        4: "no such version or remote",
        5: "the remote has newer versions: pull first",
        7: "the remote cannot be reached, or refuses access",
        9: "the history of the remote was changed",
    },
)
@argument("refs", nargs=-1, metavar="[REF]..", complete="reference")
@option("--remote", aliases=["--to"], metavar="NAME", complete="remote", help="Remote to use.")
@option("--name", aliases=["--as"], metavar="NAME", help="Name of the model on the remote.")
@option(
    "--sign",
    type=click.Path(path_type=Path),
    metavar="KEY",
    help="Sign with this SSH key [default: user.signingkey].",
)
@option("--dry-run", is_flag=True, help="Show what would be sent.")
def run(
    call: Invocation,
    refs: tuple[str, ...],
    remote: str | None,
    name: str | None,
    sign: Path | None,
    dry_run: bool,
) -> None:
    """Send versions to a remote.

    REF is HEAD by default; its ancestors are sent, too. Only tensors that the remote lacks are
    sent, as deltas where they are stored so. Repeat an interrupted publish to continue it.
    """
    import dlv.hub.names as names
    import dlv.hub.push as push
    import dlv.hub.remotes as remotes

    repository = call.repository
    name_, url = names.address(call.config, remote)
    with call.progress("Publishing") as bar:
        opened = remotes.open_remote(repository, name_, url, call.environ, create=not dry_run)
        done = push.publish(
            repository,
            opened,
            push.Request(
                references=refs,
                author=call.author,
                name=name,
                sign=sign or call.signing_key,
                dry_run=dry_run,
                progress=bar.advance,
                total=bar.expect,
            ),
        )
    traffic = opened.store.traffic
    rows: list[list[Cell]] = [
        [
            Text(sent.version.label, "bold"),
            Id(sent.version.id),
            f"{name_}:{sent.name}" + (f"@{sent.number}" if sent.number else ""),
        ]
        for sent in done.sent
    ]
    columns = [Column("version", fixed=True), Column("id"), Column("published as", least=12)]
    line = Line("would send" if dry_run else "sent", Bytes(done.bytes))
    parts: list[Table | Line] = [Table(columns, rows), line] if rows else []
    call.output.emit(
        "publish",
        {
            "remote": name_,
            "url": url,
            "sent": [
                {
                    "version": sent.version.label,
                    "id": sent.version.id,
                    "name": sent.name,
                    "number": sent.number or None,
                }
                for sent in done.sent
            ],
            "known": [version.id for version in done.known],
            "pack_bytes": done.bytes,
            "resumed_bytes": done.resumed,
            "bytes_sent": traffic.sent,
            "requests": traffic.requests,
            "dry_run": dry_run,
        },
        *parts,
        ids=[sent.version.id for sent in done.sent],
    )
    if not rows:
        call.output.message(f"{name_} is up to date")
    elif done.resumed:
        call.output.message("continued an interrupted publish")
