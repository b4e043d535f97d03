"""`dlv help`: explain a command, or a topic that several commands share."""

from __future__ import annotations

from collections.abc import Sequence

import click

import dlv.commands.shared.topics as topics
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, global_options
from dlv.errors import UsageError, nearest
from dlv.terminal.output import Verbatim


@command("help", examples=["dlv help commit", "dlv help hub user", "dlv help references"])
@argument("words", nargs=-1, metavar="[COMMAND|TOPIC]")
def run(call: Invocation, words: tuple[str, ...]) -> None:
    """Explain a command or a topic.

    Topics are references, query, exit-codes, environment and options.
    """
    context = click.get_current_context().find_root()
    program = context.command
    assert isinstance(program, click.Group)
    topic = " ".join(words) or None
    if topic is None:
        text = program.get_help(context)
    elif topic == "options":
        text = _options(context)
    elif topic in topics.TOPICS:
        text = topics.TOPICS[topic].rstrip()
    else:
        text = _of_command(context, program, words)
    call.output.emit("help", {"topic": topic, "text": text}, Verbatim(text.split("\n")), ids=[])


def _of_command(context: click.Context, program: click.Group, words: Sequence[str]) -> str:
    """Return the help of a command, or of one below it."""
    inner: click.Command = program
    for word in words:
        below = inner.get_command(context, word) if isinstance(inner, click.Group) else None
        if below is None:
            known = inner.list_commands(context) if isinstance(inner, click.Group) else []
            if inner is program:
                known = [*topics.TOPICS, "options", *known]
            raise UsageError(
                f"no command or topic `{' '.join(words)}`",
                hint=f"to list them: {context.command_path} --help",
                did_you_mean=nearest(word, known),
            )
        inner, context = below, click.Context(below, info_name=word, parent=context)
    return inner.get_help(context)


def _options(context: click.Context) -> str:
    formatter = context.make_formatter()
    with formatter.section("Options of all commands"):
        records = [option.get_help_record(context) for option in global_options()]
        formatter.write_dl([record for record in records if record is not None])
    return formatter.getvalue().rstrip()
