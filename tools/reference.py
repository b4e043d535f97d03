"""Write docs/commands.md from the commands themselves: `python tools/reference.py > FILE`."""

from __future__ import annotations

import inspect
import sys

import click

from dlv.cli import ALIASES, COMMANDS, GROUPS, program
from dlv.commands.shared.options import EXITS, Command, Group, commands_below
from dlv.commands.shared.topics import TOPICS

HEAD = """\
# Commands

`make docs` writes this page from the program itself; do not edit it. `dlv COMMAND --help` and
`dlv help TOPIC` show the same.

Options of all commands can be given before or after the command. They cannot be abbreviated;
`--` ends them. Results go to stdout, everything else to stderr. With `--json`, every command
prints one document, `{"schema": "dlv/NAME/1", ...}`, described by `dlv/schemas/NAME.json`.
"""


def options_of(command: click.Command, ctx: click.Context, *, common: bool) -> list[str]:
    lines = []
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        is_global = (parameter.name or "").startswith("global_")
        skipped = isinstance(parameter, click.Argument) or parameter.name == "help"
        if record is None or skipped or is_global != common:
            continue
        spelling, text = (part.replace("|", "\\|") for part in record)
        lines.append(f"| `{spelling}` | {text} |")
    return lines


def section_of_group(name: str, command: Group) -> list[str]:
    text = inspect.cleandoc(command.help or "")
    lines = [f"### dlv {name}", "", f"`dlv {name} COMMAND`", "", text, "", "| command | |"]
    lines += ["|---|---|"]
    lines += [f"| `{name} {word}` | {row[1]} |" for word, row in command.table.items()]
    return [*lines, "", "```sh", *command.examples, "```", ""]


def section(name: str, command: Command) -> list[str]:
    ctx = click.Context(command, info_name=f"dlv {name}")
    usage = " ".join(command.collect_usage_pieces(ctx))
    lines = [f"### dlv {name}", "", f"`dlv {name} {usage}`", ""]
    also = [alias for alias, target in ALIASES.items() if target == name]
    lines += [inspect.cleandoc(command.help or "").replace("\f", ""), ""]
    if also:
        lines += ["Alias: " + ", ".join(f"`{alias}`" for alias in also) + ".", ""]
    lines += ["| option | |", "|---|---|", *options_of(command, ctx, common=False), ""]
    lines += ["```sh", *command.examples, "```", ""]
    special = {code: text for code, text in command.exits.items() if EXITS.get(code) != text}
    if special:
        told = "; ".join(f"{code}: {text}" for code, text in sorted(special.items()))
        lines += [f"Exit codes: {told}.", ""]
    return lines


def _topic(title: str, name: str) -> list[str]:
    return [f"## {title}", "", "```text", *TOPICS[name].rstrip().split("\n"), "```", ""]


def reference() -> str:
    root = click.Context(program, info_name="dlv")
    lines = [HEAD, "## Options of all commands", "", "| option | |", "|---|---|"]
    lines += [*options_of(program, root, common=True), ""]
    lines += ["## Exit codes", "", "| code | |", "|---|---|"]
    lines += [f"| {code} | {text} |" for code, text in sorted(EXITS.items())] + [""]
    lines += _topic("References", "references")
    for group in GROUPS:
        names = [name for name, row in COMMANDS.items() if row[2] == group]
        if names:
            lines += [f"## {group}", ""]
        for name in names:
            command = program.get_command(root, name)
            assert command is not None
            for inner, each, _ in ((name, command, ""), *commands_below(name, command)):
                if isinstance(each, Group):
                    lines += section_of_group(inner, each)
                elif isinstance(each, Command):
                    lines += section(inner, each)
                else:
                    raise TypeError(f"{inner} was not made with @command")
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
