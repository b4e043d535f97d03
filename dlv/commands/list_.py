"""`dlv list`: the versions of all models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.terminal.table import Column, Items, Table, Text, Time

if TYPE_CHECKING:
    import dlv.versions.conditions as conditions
    import dlv.versions.history as history

FIXED = ("version", "created")
WIDE = 100  # columns of a terminal that has room for two metrics


@command(
    "list",
    examples=[
        "dlv list",
        "dlv list --last 3",
        "dlv list --where 'accuracy>0.5 and loss.min<1'",
        "dlv list 'l*' --since 52w --sort accuracy --columns version,accuracy,message",
        "dlv list --names",
    ],
    exits={1: "nothing matches, with --exit-code"},
)
@argument("patterns", nargs=-1, metavar="[PATTERN]..", complete="name")
@option("--name", aliases=["--model_name"], metavar="NAME", help="Show only this model.")
@option(
    "--message",
    aliases=["--commit_msg"],
    metavar="TEXT",
    help="Show only messages that contain TEXT.",
)
@option("--last", "-n", type=click.IntRange(min=0), metavar="N", help="Show at most N versions.")
@option("--where", multiple=True, metavar="COND", help="Show only matches, such as accuracy>0.9.")
@option("--since", metavar="TIME", help="Show only newer ones: 2026-06-01, 3d, 2w.")
@option("--tag", metavar="TAG", complete="tag", help="Show only versions with this tag.")
@option("--sort", metavar="KEY", help="Sort by a column, metric (best first) or hyperparameter.")
@option("--columns", metavar="LIST", help="Columns, metrics, hyperparameters to show.")
@option("--names", is_flag=True, help="List models instead of versions.")
@option("--removed", is_flag=True, help="Include removed versions.")
@option("--exit-code", is_flag=True, help="Exit with 1 if nothing matches.")
def run(call: Invocation, names: bool, exit_code: bool, **given: Any) -> int | None:
    """List versions, newest first.

    PATTERN is a model name, with * and ? as wildcards; origin: lists a remote. A condition compares
    a hyperparameter or the last value of a metric; loss.min and loss.max are its smallest and
    largest value. Join conditions with `and`.
    """
    import dlv.versions.history as history

    repository, patterns, _ = call.look(given.pop("patterns"))
    wanted = history.Filter(patterns=[text for text in patterns if text], **given)
    found = history.list_versions(repository, wanted)
    if names:
        _names(call, found)
    else:
        import dlv.views.versions as view

        entries = found.entries
        if found.columns:
            table = Table(
                [Column(name, fixed=name == "version") for name, _ in found.columns],
                [
                    [view.entry_cell(entry, *column) for column in found.columns]
                    for entry in entries
                ],
            )
        else:
            table = _usual(call, found, wanted.removed)
        ids = [entry.version.id for entry in entries]
        call.output.emit(
            "list",
            {
                "versions": [
                    view.entry_record(entry) | view.entry_figures(entry) for entry in entries
                ]
            },
            table,
            ids=ids,
        )
        if not entries:
            _say_none(call, found, wanted)
    return 1 if exit_code and not found.entries else None


def _say_none(call: Invocation, listing: history.Listing, wanted: history.Filter) -> None:
    hidden = listing.hidden
    if listing.total or wanted.removed:
        call.output.message("no matching versions" if listing.total else "no versions yet")
    elif hidden:
        removed = "1 is removed" if hidden == 1 else f"{hidden} are removed"
        call.output.message(f"no versions ({removed}; to list them: dlv list --removed)")
    else:
        call.output.message("no versions yet")


def _names(call: Invocation, listing: history.Listing) -> None:
    import dlv.versions.history as history

    rows = history.names(listing)
    table = Table(
        [Column("name", fixed=True), "versions", "latest", Column("age", key="created")],
        [
            [Text(row.name, "bold"), row.versions, row.latest.label, Time(row.latest.created)]
            for row in rows
        ],
    )
    names = [row.name for row in rows]
    call.output.emit("list", {"versions": [], "names": table.records()}, table, ids=names)


def _usual(call: Invocation, listing: history.Listing, removed: bool) -> Table:
    """The same columns everywhere, with two metrics; on a terminal without empty ones."""
    import dlv.versions.conditions as conditions
    import dlv.views.values as values
    import dlv.views.versions as view

    terminal = call.output.terminal
    wide = not terminal or call.output.width >= WIDE
    metrics = listing.usual[: 1 + wide]
    titles = ["version", "id", *(["state"] if removed else []), "created", "parents"]
    keys: list[tuple[str, conditions.Key | None]] = [(title, None) for title in titles]
    keys += [(name, conditions.Key(name, "last")) for name in metrics]
    keys += [("tags", None), ("message", None)]
    rows = [[view.entry_cell(entry, *key) for key in keys] for entry in listing.entries]
    columns = [
        Column("age" if name == "created" and terminal else name, fixed=name in FIXED)
        for name, _ in keys
    ]
    for entry, row in zip(listing.entries, rows, strict=True):
        if entry.head:
            row[-2] = Items([Text("HEAD"), *entry.version.tags])
    if terminal:
        kept = [i for i in range(len(keys)) if any(values.filled(row[i]) for row in rows)]
        columns = [columns[i] for i in kept]
        rows = [[row[i] for i in kept] for row in rows]
    return Table(columns, rows)
