"""What every command file is made with: @command, option, argument; the global options."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dlv.errors import UsageError, nearest

if TYPE_CHECKING:
    import click.shell_completion as shell_completion

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
        ctx.meta[WORDS] = [*ctx.command_path.split()[1:], *args]
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


class Group(click.Group):
    """A command that has commands below it; only the one that is used is imported."""

    table: Mapping[str, tuple[str, str]] = {}  # name -> (module:function, first line of its help)
    examples: Sequence[str] = ()

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.table)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in self.table:
            return None
        module, _, function = self.table[name][0].partition(":")
        inner: click.Command = getattr(importlib.import_module(f"dlv.commands.{module}"), function)
        return inner

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        inner = self.get_command(ctx, args[0])
        if inner is None and not ctx.resilient_parsing:
            raise UsageError(
                f"no command `{ctx.command_path} {args[0]}`",
                hint=f"to list all commands: {ctx.command_path} --help",
                did_you_mean=nearest(args[0], list(self.table)),
            )
        return (inner.name if inner else None), inner, args[1:]

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[shell_completion.CompletionItem]:
        import click.shell_completion as shell_completion

        items = [
            shell_completion.CompletionItem(name, help=row[1])
            for name, row in self.table.items()
            if name.startswith(incomplete)
        ]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, row[1]) for name, row in self.table.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in self.examples))
        formatter.write_paragraph()
        formatter.write_text(f"Help: {ctx.command_path} COMMAND --help")


def group(
    name: str, text: str, *, table: Mapping[str, tuple[str, str]], examples: Sequence[str]
) -> Group:
    """Make a command of which `table` has the commands below it; `text` is its help."""
    made = Group(name, help=text, params=global_options())
    made.context_settings = {"help_option_names": ["-h", "--help"]}
    made.table, made.examples = table, list(examples)
    return made


def commands_below(name: str, command: click.Command) -> Iterator[tuple[str, click.Command, str]]:
    """Yield (name, command, first line of its help) of all commands below one, such as `hub user`.

    Groups come before what is in them.
    """
    if isinstance(command, Group):
        for word, (_, summary) in command.table.items():
            inner = command.get_command(click.Context(command), word)
            assert inner is not None
            yield f"{name} {word}", inner, summary
            yield from commands_below(f"{name} {word}", inner)
