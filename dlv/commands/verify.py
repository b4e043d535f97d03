"""`dlv verify`: check the history and the signatures of models on a remote."""

from __future__ import annotations

from pathlib import Path

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.terminal.table import Cell, Column, Id, Table, Text


@command(
    "verify",
    examples=["dlv remote add origin ../team && dlv publish && dlv verify", "dlv verify lenet@2"],
    exits={
        4: "no such model, version or remote",
        7: "the remote cannot be reached",
        9: "a history was changed, or an entry is not signed by a key that counts",
    },
)
@argument("models", nargs=-1, metavar="[REF]..")
@option("--remote", metavar="NAME", complete="remote", help="Remote to use.")
@option(
    "--key",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Public key, or allowed-signers file of SSH.",
)
def run(call: Invocation, models: tuple[str, ...], remote: str | None, key: Path | None) -> int:
    """Check histories and signatures on a remote.

    REF is a model such as lenet or a version such as lenet@2; by default all are checked. Each
    entry must follow from the one before, and nothing seen before may be missing. With --key, or
    core.allowedsigners in the configuration, each entry must be signed by one of these keys.
    """
    import dlv.hub.maintenance as maintenance
    import dlv.hub.names as names
    import dlv.hub.remotes as remotes

    name, url, wanted = names.split(call.config, remote, models)
    opened = remotes.open_remote(call.repository, name, url, call.environ)
    signers = key or call.signers
    result = maintenance.verify(call.repository, opened, wanted, signers)
    rows: list[list[Cell]] = [
        [
            Text(f"{entry.ref.name}@{entry.ref.number}", "bold"),
            entry.ref.kind,
            Id(entry.ref.manifest),
            entry.signer or ("signed, not checked" if entry.ref.sig and not signers else None),
            entry.fault or "ok",
        ]
        for entry in result.entries
    ]
    columns = [Column("version", fixed=True), Column("entry"), Column("id"), Column("signed by")]
    call.output.emit(
        "verify",
        {
            "remote": name,
            "url": url,
            "ok": result.ok,
            "entries": [
                {
                    "version": f"{entry.ref.name}@{entry.ref.number}",
                    "seq": entry.ref.seq,
                    "kind": entry.ref.kind,
                    "id": entry.ref.manifest,
                    "author": entry.ref.author,
                    "time": entry.ref.time,
                    "signed": entry.ref.sig is not None,
                    "signer": entry.signer,
                    "fault": entry.fault,
                }
                for entry in result.entries
            ],
        },
        Table([*columns, Column("result", fixed=True)], rows),
        ids=[entry.ref.manifest for entry in result.entries],
    )
    return 0 if result.ok else 9
