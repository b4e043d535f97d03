"""What every command file is made with: @command, option, argument; the global options."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
_PREFIX, _WAIT = "global_", "Wait so long for others; 0: not at all."

EXITS = {
    0: "done, or nothing to do",
    2: "wrong usage: an option, an argument, a configuration value",
    3: "not in a repository, or it needs a newer dlv",
    4: "something named was not found",
    5: "others are at work on the repository for too long",
    6: "damaged data; see dlv fsck",
    8: "the disk or the file system refused",
    130: "interrupted",
}


class Option(click.Option):
    """An option that also answers to spellings which help does not show."""

    def __init__(self, *args: Any, aliases: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.aliases = list(aliases)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        shown = self.opts
        self.opts = [*shown, *self.aliases]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


def option(
    *names: str, aliases: Sequence[str] = (), complete: str = "", **attrs: Any
) -> Callable[[F], F]:
    """`click.option`; `aliases` are accepted but hidden, `complete` is a kind of completion."""
    if complete:
        attrs["shell_complete"] = _completer(complete)
    return click.option(*names, cls=Option, aliases=aliases, **attrs)


def argument(*names: str, complete: str = "", **attrs: Any) -> Callable[[F], F]:
    """`click.argument` with a kind of completion."""
    if complete:
        attrs["shell_complete"] = _completer(complete)
    return click.argument(*names, **attrs)


def _completer(kind: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        import dlv.terminal.completion as completion

        directory = chosen(ctx).get("directory") or "."
        return completion.complete(kind, incomplete, directory, os.environ)

    return complete


def global_options() -> list[click.Parameter]:
    def add(*names: str, **attrs: Any) -> Option:
        return Option([*names, _PREFIX + attrs.pop("to")], **attrs)

    return [
        add("-C", to="directory", metavar="DIR", help="Work in DIR instead of here."),
        add("--json", to="json", is_flag=True, help="One JSON document on stdout."),
        add("-q", "--quiet", to="quiet", is_flag=True, help="Ids only, one per line."),
        add("-v", "--verbose", to="verbose", is_flag=True, help="Say more on stderr."),
        add("--debug", to="debug", is_flag=True, help="Show a traceback with errors."),
        add(
            "--color",
            to="color",
            aliases=["--colour"],
            type=click.Choice(["auto", "always", "never"]),
            help="Colour: by terminal unless said otherwise.",
        ),
        add("--no-pager", to="no_pager", is_flag=True, help="Never start a pager."),
        add("-j", to="jobs", metavar="N", type=click.IntRange(min=1), help="Threads to use."),
        add("--wait", to="wait", metavar="SECONDS", type=click.FloatRange(0), help=_WAIT),
    ]


def chosen(ctx: click.Context) -> dict[str, Any]:
    """What the global options say: those after the command outdo those before it."""
    found: dict[str, Any] = {}
    scope: click.Context | None = ctx
    while scope is not None:
        for name, value in scope.params.items():
            if name.startswith(_PREFIX) and value is not None and value is not False:
                found.setdefault(name.removeprefix(_PREFIX), value)
        scope = scope.parent
    return found


class Command(click.Command):
    """A command with examples and exit codes in its help, and the global options."""

    examples: Sequence[str] = ()
    exits: Mapping[int, str] = EXITS

    def invoke(self, ctx: click.Context) -> int:
        import dlv.commands.shared.invocation as invocation

        call = ctx.obj["invocation"] = invocation.Invocation(chosen(ctx), os.environ)
        values = {k: v for k, v in ctx.params.items() if not k.startswith(_PREFIX)}
        return (self.callback and ctx.invoke(self.callback, call, **values)) or 0

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[bool, list[tuple[str, str]]] = {False: [], True: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and not isinstance(parameter, click.Argument):
                rows[(parameter.name or "").startswith(_PREFIX)].append(record)
        for title, records in (("Options", rows[False]), ("Global options", rows[True])):
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in self.examples))
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), text) for code, text in sorted(self.exits.items())])


def command(
    name: str, *, examples: Sequence[str], exits: Mapping[int, str] | None = None
) -> Callable[[F], Command]:
    """Make a function(call, ...) -> exit code or None a command; its docstring is the help."""

    def make(function: F) -> Command:
        made = click.command(name, cls=Command)(function)
        made.params += global_options()
        made.examples = list(examples)
        made.exits = {**EXITS, **(exits or {})}
        return made

    return make
