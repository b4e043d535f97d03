"""Write docs/commands.md from the commands themselves: `python tools/reference.py > FILE`."""

from __future__ import annotations

import inspect
import sys

import click

from dlv.cli import ALIASES, COMMANDS, GROUPS, program
from dlv.commands.shared.options import EXITS, Command

HEAD = """\
# Commands

Made by `make docs` from the program itself; do not edit. `dlv COMMAND --help` says the same.

Global options are accepted before and after the command. Options cannot be abbreviated; `--`
ends them. Result on stdout, everything else on stderr. On a terminal a table is aligned and cut
to the width; in a pipe the same rows are tab-separated and complete; with `--json` there is one
document, `{"schema": "dlv/NAME/1", ...}`, described by `dlv/schemas/NAME.json`.
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


def section(name: str, command: Command) -> list[str]:
    ctx = click.Context(command, info_name=f"dlv {name}")
    usage = " ".join(command.collect_usage_pieces(ctx))
    lines = [f"### dlv {name}", "", f"`dlv {name} {usage}`", ""]
    also = [alias for alias, target in ALIASES.items() if target == name]
    lines += [inspect.cleandoc(command.help or "").replace("\f", ""), ""]
    if also:
        lines += ["Also called " + ", ".join(f"`{alias}`" for alias in also) + ".", ""]
    lines += ["| option | |", "|---|---|", *options_of(command, ctx, common=False), ""]
    lines += ["```sh", *command.examples, "```", ""]
    special = {code: text for code, text in command.exits.items() if EXITS.get(code) != text}
    if special:
        told = "; ".join(f"{code}: {text}" for code, text in sorted(special.items()))
        lines += [f"Exit codes: {told}.", ""]
    return lines


def reference() -> str:
    root = click.Context(program, info_name="dlv")
    lines = [HEAD, "## Global options", "", "| option | |", "|---|---|"]
    lines += [*options_of(program, root, common=True), ""]
    lines += [
        "## Exit codes",
        "",
        "Every command may end with these.",
        "",
        "| code | |",
        "|---|---|",
    ]
    lines += [f"| {code} | {text} |" for code, text in sorted(EXITS.items())] + [""]
    for group in GROUPS:
        names = [name for name, row in COMMANDS.items() if row[2] == group]
        if names:
            lines += [f"## {group}", ""]
        for name in names:
            command = program.get_command(root, name)
            if not isinstance(command, Command):
                raise TypeError(f"{name} was not made with @command")
            lines += section(name, command)
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
