"""`dlv query`: search versions, derive and train networks with DQL."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import click

from dlv.commands.shared import reporting
from dlv.commands.shared.asking import Session, typed
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, chosen, command, option
from dlv.errors import UsageError
from dlv.terminal.output import Line, Verbatim
from dlv.terminal.table import Text


def _complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    import dlv.dql.words.completing as completing
    import dlv.terminal.completion as completion

    directory = chosen(ctx).get("directory") or "."
    look = partial(completion.complete, directory=directory, environ=os.environ)
    found = completing.completions(incomplete, look)
    return [incomplete[: len(incomplete) - each.replaced] + each.text for each in found]


@command(
    "query",
    examples=[
        """dlv query 'select m where m["accuracy"] > 0.9 and m["conv*"].next has RELU'""",
        """dlv query 'select m.name, m["loss"].min as best order by best limit 3' --format csv""",
        """dlv query 'select a, b where b child_of a and b["loss"] < a["loss"]' --json""",
        """dlv query 'construct d from m where m.name = "lenet" mutate m["conv1"].out = 16'""",
        """dlv query 'define good as select m where m["accuracy"] > $least' -P least=0.9"""
        " && dlv query good -P least=0.9",
    ],
    exits={
        1: "nothing matches, with --exit-code",
        4: "no such version, query or file, nothing to derive, or all trials failed",
        5: "a query of this name exists",
        9: "over 1,000 trials without a budget, or untrusted code",
    },
)
@argument("text", nargs=-1, metavar="[QUERY|-]", shell_complete=_complete)
@option("--file", metavar="FILE", help="Read the query from FILE; - is stdin.")
@option("--remote", metavar="NAME", complete="remote", help="Search the versions of a remote.")
@option("-P", "given", multiple=True, metavar="K=V", help="Set the query variable $K.")
@option("--explain", is_flag=True, help="Show the plan, with -v also its SQL; do not run it.")
@option("--exit-code", is_flag=True, help="Exit with 1 if nothing matches.")
@option("--dry-run", is_flag=True, help="Do not train, commit or save.")
@option("--trust", is_flag=True, help="Run code named by committed config files.")
@option("--retry-failed", is_flag=True, help="Retry failed trials.")
@option("--fresh", is_flag=True, help="Discard earlier trials of this query.")
@option("--discard-checkpoints", is_flag=True, help="Delete checkpoints of stopped trials.")
@option(
    "--checkpoints",
    "snapshots",
    type=click.Choice(("last", "all")),
    default="last",
    help="Checkpoints to commit for each trial [default: last].",
)
@option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@option("--strict", is_flag=True, help="Fail if a derived network is invalid.")
@option("-f", "--force", is_flag=True, help="Let `define` overwrite a saved query.")
@option("--list", "listed", is_flag=True, help="List saved queries.")
@option("--show", "shown", metavar="NAME", complete="saved", help="Print a saved query.")
@option("--forget", metavar="NAME", complete="saved", help="Delete a saved query.")
@reporting.report_options()
def run(
    call: Invocation,
    text: tuple[str, ...],
    file: str | None,
    listed: bool,
    shown: str | None,
    forget: str | None,
    remote: str | None,
    given: tuple[str, ...],
    exit_code: bool,
    output: str | None,
    show: bool,
    **asked: bool | str,
) -> int | None:
    """Search versions; derive and train networks.

    QUERY is DQL, or the name of a saved query; - reads stdin. Without it, a prompt opens. `select`
    finds versions and layers, `slice` and `construct` derive networks, `evaluate` trains them,
    `into "name"` commits them, and `define NAME as` saves a query. Syntax: dlv help query.
    """
    target = reporting.target(call, output, show)
    about = listed + (shown is not None) + (forget is not None)
    if about > 1 or (about and (text or file)):
        raise UsageError("a query, --list, --show and --forget cannot be combined")
    if about and target is not None:
        raise UsageError("--output requires a query")
    if about:
        _saved(call, shown, forget)
        return None
    import dlv.dql.words.parameters as values

    if remote is not None:
        call.use_mirror(remote)
    session = Session(call, call.output.format, parameters=values.parameters(given), **asked)
    words = typed(call, text, file)
    if words is None:
        if target is not None:
            raise UsageError("--output requires a query")
        session.prompt()
        return None
    if target is not None:
        session.sections = []
    found = session.ask(words)
    if target is not None:
        session.report(target, " ".join(words.split()), reporting.command())
        reporting.deliver(call, "query", session.document, target, show=show, ids=session.ids)
    return 1 if exit_code and not found else None


def _saved(call: Invocation, show: str | None, forget: str | None) -> None:
    import dlv.dql.saved as saved
    import dlv.views.queried as view

    if show is not None:
        found = [saved.show_query(call.repository, show)]
        body: Any = Verbatim(found[0].text.split("\n"))
    elif forget is not None:
        found = [saved.forget_query(call.repository, forget, author=call.author)]
        body = Line(Text(forget, "bold"), "forgotten")
    else:
        found = saved.list_queries(call.repository)
        body = view.saved(found)[1]
    call.output.emit("query", view.saved(found)[0], body, ids=[each.name for each in found])
    if not found:
        call.output.message("no saved queries; to save one: dlv query 'define NAME as ...'")
