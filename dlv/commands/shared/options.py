"""What every command file is made with: @command, option, argument; the global options."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
_PREFIX = "global_"
WORDS = "dlv.words"  # where the context keeps the command as it was typed
FORMATS = ("table", "json", "jsonl", "csv", "md", "ids")

EXITS = {
    0: "success",
    1: "differences, or nothing found; only with --exit-code",
    2: "invalid option, argument or configuration value",
    3: "not in a repository, or the repository needs a newer dlv",
    4: "not found",
    5: "conflict: a name is taken, a file changed, another dlv process holds the lock",
    6: "corrupt data; see dlv fsck",
    7: "a remote cannot be reached, or refuses access",
    8: "disk or file system error",
    9: "refused as unsafe, or not confirmed",
    70: "a bug in dlv",
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


class AfterEquals(Option):
    """An option whose value, which may be left out, stands after `=` and never in the next word."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)
        parse = parser.parse_args

        def completed(args: list[str]) -> Any:
            end = args.index("--") if "--" in args else len(args)
            return parse(
                [
                    f"{word}={self.flag_value}" if word in self.opts and at < end else word
                    for at, word in enumerate(args)
                ]
            )

        parser.parse_args = completed


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
        add("-C", to="directory", metavar="DIR", help="Run as if started in DIR."),
        add(
            "--format",
            to="format",
            type=click.Choice(FORMATS),
            help="Print results in this format [default: table].",
        ),
        add("--json", to="json", is_flag=True, help="Same as --format json."),
        add("-q", "--quiet", to="quiet", is_flag=True, help="Same as --format ids."),
        add("--header", to="header", is_flag=True, help="Print column titles in a pipe, too."),
        add("-v", "--verbose", to="verbose", is_flag=True, help="Print more details."),
        add("--debug", to="debug", is_flag=True, help="Print tracebacks of errors."),
        add(
            "--color",
            to="color",
            aliases=["--colour"],
            type=click.Choice(["auto", "always", "never"]),
            help="Color the output [default: auto].",
        ),
        add("--no-pager", to="no_pager", is_flag=True, help="Do not use a pager."),
        add(
            "-j",
            to="jobs",
            metavar="N",
            type=click.IntRange(min=1),
            help="Number of threads [default: all cores].",
        ),
        add(
            "--wait",
            to="wait",
            metavar="SECONDS",
            type=click.FloatRange(0),
            help="Wait for other dlv processes.",
        ),
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
    exits: Mapping[int, str] = {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = [self.name, *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> int:
        import dlv.commands.shared.invocation as invocation

        call = ctx.obj["invocation"] = invocation.Invocation(chosen(ctx), os.environ)
        values = {k: v for k, v in ctx.params.items() if not k.startswith(_PREFIX)}
        return (self.callback and ctx.invoke(self.callback, call, **values)) or 0

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            shared = (parameter.name or "").startswith(_PREFIX)
            if record is not None and not shared and not isinstance(parameter, click.Argument):
                rows.append(record)
        with formatter.section("Options"):
            formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in self.examples))
        formatter.write_paragraph()
        formatter.write_text("Options of all commands, such as --json and -C: dlv help options")
        if self.exits:
            with formatter.section("Exit codes (all: dlv help exit-codes)"):
                rows = sorted(self.exits.items())
                formatter.write_dl([(str(code), text) for code, text in rows])


def command(
    name: str, *, examples: Sequence[str], exits: Mapping[int, str] | None = None
) -> Callable[[F], Command]:
    """Make a function(call, ...) -> exit code or None a command; its docstring is the help."""

    def make(function: F) -> Command:
        made = click.command(name, cls=Command)(function)
        made.params += global_options()
        made.examples = list(examples)
        made.exits = exits or {}
        return made

    return make
