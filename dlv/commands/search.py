"""`dlv search`: find versions on a remote by text and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option

if TYPE_CHECKING:
    from dlv.repository.handle import Repository


@command(
    "search",
    examples=[
        "dlv remote add origin ../team && dlv publish && dlv search lenet",
        "dlv search 'net:conv* accuracy>0.9' --sort accuracy",
        """dlv search --where 'm["conv*"].next has RELU'""",
    ],
    exits={
        1: "nothing matches, with --exit-code",
        4: "no such remote, metric or hyperparameter",
        7: "the remote cannot be reached",
    },
)
@argument("text", nargs=-1, metavar="[TEXT]..")
@option("--remote", metavar="NAME", complete="remote", help="Remote to use.")
@option("--where", multiple=True, metavar="COND", help="Show only matches of a DQL condition on m.")
@option("--sort", metavar="KEY", help="Sort by created, name, bytes, parameters or a metric.")
@option(
    "--last",
    "-n",
    "most",
    type=click.IntRange(min=0),
    metavar="N",
    help="Show at most N [default: 20].",
)
@option("--offline", is_flag=True, help="Do not look for new versions.")
@option("--exit-code", is_flag=True, help="Exit with 1 if nothing matches.")
def run(
    call: Invocation,
    text: tuple[str, ...],
    remote: str | None,
    where: tuple[str, ...],
    sort: str | None,
    most: int | None,
    offline: bool,
    exit_code: bool,
) -> int | None:
    """Find versions on a remote by text and figures.

    TEXT has words (or word*) of names, descriptions, messages, tags and layers; fields: name:len*
    task:vision license:mit tag:small author:ada net:conv*; and figures: accuracy>0.9 loss.min<1
    lr=0.1. All of it must match. The cards of all versions are read from the index of the remote
    and kept, so that only new ones are fetched later. A hub searches by itself.
    """
    import dlv.hub.index as index
    import dlv.hub.names as names
    import dlv.hub.remotes as remotes
    import dlv.hub.searching as searching

    name, url = names.address(call.config, remote)
    words, most = " ".join(text), 20 if most is None else most
    with call.progress("Reading cards", rows=True) as bar:
        opened = remotes.open_remote(call.repository, name, url, call.environ)
        if opened.store.managed:
            import dlv.hub.service as service

            result = service.search(opened, words, where=where, sort=sort, most=most)
        else:
            catalogue = index.catalogue_of(opened, not offline, bar.advance, bar.expect)
            with catalogue:
                among = _matches(call, catalogue, where) if where else None
                result = searching.search(
                    catalogue.database, words, among=among, sort=sort, most=most
                )
    import dlv.views.found as view

    call.output.emit(
        "search",
        view.document(result, name, url),
        view.table(result, name),
        ids=[hit.id for hit in result.hits],
    )
    if not result.count:
        call.output.message("nothing matches")
    elif result.count > len(result.hits):
        call.output.message(f"{result.total} match; to see more: -n {2 * len(result.hits)}")
    return 1 if exit_code and not result.count else None


def _matches(call: Invocation, catalogue: Repository, where: tuple[str, ...]) -> set[str]:
    """Return ids of the versions that fulfil all conditions."""
    import dlv.dql.answers as answers

    ids = [answers.matching(catalogue, condition, call.environ) for condition in where]
    return set.intersection(*ids)
