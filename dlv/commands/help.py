"""`dlv help`: explain a command, or a topic that several commands share."""

from __future__ import annotations

import click

import dlv.commands.shared.topics as topics
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, global_options
from dlv.errors import UsageError, nearest
from dlv.terminal.output import Verbatim


@command("help", examples=["dlv help commit", "dlv help references", "dlv help options"])
@argument("topic", required=False, metavar="[COMMAND|TOPIC]")
def run(call: Invocation, topic: str | None) -> None:
    """Explain a command or a topic.

    Topics are references, query, exit-codes, environment and options.
    """
    context = click.get_current_context().find_root()
    program = context.command
    assert isinstance(program, click.Group)
    if topic is None:
        text = program.get_help(context)
    elif topic == "options":
        text = _options(context)
    elif topic in topics.TOPICS:
        text = topics.TOPICS[topic].rstrip()
    else:
        found = program.get_command(context, topic)
        if found is None:
            names = [*topics.TOPICS, "options", *program.list_commands(context)]
            raise UsageError(
                f"no command or topic `{topic}`",
                hint="to list them: dlv --help",
                did_you_mean=nearest(topic, names),
            )
        text = found.get_help(click.Context(found, info_name=topic, parent=context))
    call.output.emit("help", {"topic": topic, "text": text}, Verbatim(text.split("\n")), ids=[])


def _options(context: click.Context) -> str:
    formatter = context.make_formatter()
    with formatter.section("Options of all commands"):
        records = [option.get_help_record(context) for option in global_options()]
        formatter.write_dl([record for record in records if record is not None])
    return formatter.getvalue().rstrip()
