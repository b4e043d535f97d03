"""`dlv query`: models by what they are, how they did and where they come from; and new ones."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import click

from dlv.commands.shared.asking import Session, typed
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, chosen, command, option
from dlv.errors import UsageError
from dlv.terminal.output import Line, Verbatim
from dlv.terminal.table import Text

FORMATS = ("table", "json", "jsonl", "csv", "ids")


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
        """dlv query 'select m.name, m["loss"].min as best order by best limit 3' --csv""",
        """dlv query 'select a, b where b child_of a and b["loss"] < a["loss"]' --json""",
        """dlv query 'construct d from m where m.name = "lenet" mutate m["conv1"].out = 16'""",
        """dlv query 'define good as select m where m["accuracy"] > $least' -P least=0.9"""
        " && dlv query good -P least=0.9",
    ],
    exits={
        1: "no row and no network; only with --exit-code",
        2: "what is wrong with the query, with its place",
        4: "a version, query or file that is not there; nothing matched; all trials failed",
        5: "another query is saved under this name",
        9: "more than 1,000 trials without a budget; code that came with a version",
    },
)
@argument("text", nargs=-1, metavar="[TEXT|-]", shell_complete=_complete)
@option("--file", "-f", metavar="FILE", help="Take the query from a file; - is standard input.")
@option("-P", "given", multiple=True, metavar="K=V", help="Value of $K: JSON, else a text.")
@option("--explain", is_flag=True, help="Show how it would be answered, without doing it.")
@option("--format", "how", type=click.Choice(FORMATS), help="How to print what was found.")
@option("--csv", is_flag=True, help="The same as --format csv.")
@option("--exit-code", is_flag=True, help="Exit 1 if nothing is found.")
@option("--dry-run", is_flag=True, help="Train, commit and save nothing, whatever it says.")
@option("--trust", is_flag=True, help="Let code run that a version's configuration names.")
@option("--retry-failed", is_flag=True, help="Try trials again that failed.")
@option("--fresh", is_flag=True, help="Drop the trials of this query, and begin anew.")
@option("--keep-checkpoints", is_flag=True, help="Also those of trials that were stopped.")
@option(
    "--snapshots",
    type=click.Choice(("last", "all")),
    default="last",
    help="Which checkpoints of trials become snapshots of versions.",
)
@option("-y", "--yes", is_flag=True, help="Do so without asking.")
@option("--strict", is_flag=True, help="Fail at the first derived network that is not sound.")
@option("--force", is_flag=True, help="Let `define` put a new query in the place of another.")
@option("--list", "listed", is_flag=True, help="List the saved queries.")
@option("--show", metavar="NAME", complete="saved", help="Print a saved query.")
@option("--forget", metavar="NAME", complete="saved", help="Take a saved query away.")
def run(
    call: Invocation,
    text: tuple[str, ...],
    file: str | None,
    listed: bool,
    show: str | None,
    forget: str | None,
    how: str | None,
    csv: bool,
    given: tuple[str, ...],
    exit_code: bool,
    **asked: bool | str,
) -> int | None:
    """Ask for models by structure, metrics, lineage; derive new ones.

    TEXT is a query in DQL, several with `;` between them, or the name of a saved one; - reads it
    from standard input. Without TEXT, on a terminal, queries are typed at a prompt. `select`
    gives rows, `slice` and `construct` derive networks, `evaluate` trains them; `into "name"`
    commits what they make. `define NAME as ..` keeps a query.
    """
    about = listed + (show is not None) + (forget is not None)
    if about > 1 or (about and (text or file)):
        raise UsageError("give one of a query, --list, --show and --forget")
    if about:
        _saved(call, show, forget)
        return None
    import dlv.dql.words.parameters as values

    how = _format(call, how, csv)
    session = Session(call, how, parameters=values.parameters(given), **asked)
    words = typed(call, text, file)
    if words is None:
        session.prompt()
        return None
    found = session.ask(words)
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
        call.output.message("no saved queries; define NAME as QUERY saves one")


def _format(call: Invocation, how: str | None, csv: bool) -> str:
    """--format, or one of its short forms; errors and warnings follow it into JSON."""
    short = (("csv", csv), ("json", call.json), ("ids", call.quiet))
    said = {name for name, given in short if given} | ({how} if how is not None else set())
    if len(said) > 1:
        raise UsageError("give one of --format, --json, --csv and -q")
    found = said.pop() if said else "table"
    call.output.json |= found in ("json", "jsonl")
    call.output.quiet |= found == "ids"
    return found
