"""The `dlv` program: which commands there are, and the one place where errors are printed."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import click

from dlv.commands.shared.options import Option, commands_below, global_options
from dlv.errors import DlvError, StorageError, UsageError, denied, nearest

if TYPE_CHECKING:
    import click.shell_completion as shell_completion

    import dlv.commands.shared.invocation as invocation

COMPLETE_VARIABLE = "_DLV_COMPLETE"

# name -> (module in dlv.commands, first line of its help, group)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "init": ("init", "Create a repository", "Start here"),
    "add": ("add", "Stage files for the next commit", "Start here"),
    "commit": ("commit", "Record the staged files as a version", "Start here"),
    "status": ("status", "Show staged, changed and untracked files", "Start here"),
    "list": ("list_", "List versions, newest first", "Start here"),
    "diff": ("diff", "Compare versions; the first is the base", "Start here"),
    "checkout": ("checkout", "Restore the files of a version", "Start here"),
    "query": ("query", "Search versions; derive and train networks", "Start here"),
    "show": ("show", "Summarize a version, or print one of its files", "Versions"),
    "desc": ("desc", "Describe a version in full", "Versions"),
    "log": ("log", "Show the history of a version", "Versions"),
    "tag": ("tag", "Name a version, list tags, or delete one", "Versions"),
    "copy": ("copy", "Start a new model from the files of a version", "Versions"),
    "mv": ("mv", "Rename a model", "Versions"),
    "rm": ("rm", "Remove versions, or some of their checkpoints", "Versions"),
    "reset": ("reset", "Unstage files, or everything without PATH", "Versions"),
    "undo": ("undo", "Undo the last operation, or the last N", "Versions"),
    "metrics": (
        "metrics",
        "Show last, smallest and largest metric values",
        "Metrics and evaluation",
    ),
    "plots": ("plots", "Draw metrics in the terminal or to a file", "Metrics and evaluation"),
    "ui": ("ui", "Show the repository in the browser", "Metrics and evaluation"),
    "tensorboard": ("tensorboard", "Show curves in TensorBoard", "Metrics and evaluation"),
    "eval": ("eval", "Evaluate versions on data and save the results", "Metrics and evaluation"),
    "trials": ("trials", "List sweeps, or show the trials of one", "Metrics and evaluation"),
    "import": ("import_", "Import checkpoints, MLflow or TensorBoard runs", "Data in and out"),
    "export": ("export", "Write weights or a network to one file", "Data in and out"),
    "publish": ("publish", "Send versions to a remote", "Sharing"),
    "pull": ("pull", "Fetch versions from a remote", "Sharing"),
    "clone": ("clone", "Create a repository with all versions of a remote", "Sharing"),
    "search": ("search", "Find versions on a remote by text and figures", "Sharing"),
    "remote": ("remote", "List, add or change remotes", "Sharing"),
    "login": ("login", "Log in at a hub and keep its token", "Sharing"),
    "logout": ("logout", "Forget the token of a hub", "Sharing"),
    "hub": ("hub", "Run a hub, and manage its users", "Sharing"),
    "verify": ("verify", "Check histories and signatures on a remote", "Sharing"),
    "archive": ("archive", "Compress weights with deltas", "Storage and upkeep"),
    "quantize": ("quantize", "Make smaller versions with rounded weights", "Storage and upkeep"),
    "stats": ("stats", "Show disk usage", "Storage and upkeep"),
    "gc": ("gc", "Delete removed versions after the grace period", "Storage and upkeep"),
    "fsck": ("fsck", "Check or repair the repository", "Storage and upkeep"),
    "config": ("config", "Show or change config keys", "Setup"),
    "doctor": ("doctor", "Check the environment and suggest fixes", "Setup"),
    "completion": ("completion", "Print or install shell completion", "Setup"),
    "demo": ("demo", "Create a small repository to try commands on", "Setup"),
    "help": ("help", "Explain a command or a topic", "Setup"),
}

# Started by other commands, or `ui` without a browser; not listed, not completed.
HIDDEN = {"worker": "worker", "serve": "serve"}

GROUPS = tuple(dict.fromkeys(group for _, _, group in COMMANDS.values()))

ALIASES = {
    "restore": "checkout",
    "check": "fsck",
    "ls": "list",
    "describe": "desc",
    "push": "publish",
    "fetch": "pull",
}

# What users of other tools type first.
HABITS = {
    "stage": "add",
    "save": "commit",
    "ci": "commit",
    "st": "status",
    "branch": "copy",
    "fork": "copy",
    "switch": "checkout",
    "co": "checkout",
    "unstage": "reset",
    "revert": "undo",
    "delete": "rm",
    "remove": "rm",
    "rename": "mv",
    "find": "query",
    "compare": "diff",
    "evaluate": "eval",
    "test": "eval",
    "predict": "eval",
    "compress": "archive",
    "repack": "archive",
    "prune": "gc",
    "clean": "gc",
    "verify": "fsck",
    "repair": "fsck",
    "du": "stats",
    "usage": "stats",
    "history": "log",
    "info": "show",
    "cat": "show",
    "curves": "plots",
    "plot": "plots",
    "tb": "tensorboard",
    "board": "tensorboard",
    "sweeps": "trials",
    "runs": "trials",
    "web": "ui",
    "gui": "ui",
    "dashboard": "ui",
    "settings": "config",
}
OPTION_HABITS = {
    ("dlv commit", "--amend"): (
        "versions cannot be amended",
        "undo the commit and repeat it: dlv undo",
    ),
    ("dlv reset", "--hard"): (
        "dlv reset only unstages files",
        "to discard changes: dlv checkout -f HEAD",
    ),
    ("dlv reset", "--soft"): ("dlv reset only unstages files", "to undo a commit: dlv undo"),
    ("dlv checkout", "-b"): (
        "dlv has no branches",
        "to start another model from a version: dlv copy REF NAME",
    ),
    ("dlv log", "-p"): ("dlv log does not show changes", "dlv diff HEAD~1 HEAD"),
    ("dlv login", "--token"): (
        "a token in an argument can be seen by others",
        "dlv login URL --token-stdin < FILE",
    ),
}
NOT_YET = ("merge", "rebase")


class Program(click.Group):
    """The commands of the table; only the one that is used is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        row = COMMANDS.get(ALIASES.get(name, name))
        module = HIDDEN.get(name) if row is None else row[0]
        if module is None:
            return None
        found: click.Command = importlib.import_module(f"dlv.commands.{module}").run
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        found = self.get_command(ctx, args[0])
        if found is None and not ctx.resilient_parsing:
            raise _unknown_command(args[0])
        return (found.name if found else None), found, args[1:]

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[shell_completion.CompletionItem]:
        import click.shell_completion as shell_completion

        items = [
            shell_completion.CompletionItem(name, help=row[1])
            for name, row in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        # Not Group's own, which would import every command for its help.
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for group in GROUPS:
            rows = [(name, row[1]) for name, row in COMMANDS.items() if row[2] == group]
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        import dlv.commands.shared.topics as topics

        formatter.write_paragraph()
        formatter.write_text("Help: dlv COMMAND --help; dlv help TOPIC, where TOPIC is one of")
        formatter.write_text(f"{', '.join(topics.TOPICS)}.")


def _unknown_command(name: str) -> UsageError:
    """Suggest the command of that habit or spelling."""
    if name in NOT_YET:
        return UsageError(
            f"no command `{name}`: dlv cannot {name} yet", hint="to list all commands: dlv --help"
        )
    names = [*COMMANDS, *(a for a, name in ALIASES.items() if name in COMMANDS)]
    meant = [HABITS[name]] if name in HABITS else nearest(name, names)
    return UsageError(
        f"no command `{name}`", hint="to list all commands: dlv --help", did_you_mean=meant
    )


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        import dlv.canonical as canonical

        click.echo(f"dlv {canonical.VERSION}")
        ctx.exit()


program = Program(
    "dlv",
    help="Git for model weights: commit checkpoints, compare them, get the exact bytes back.",
    params=[
        *global_options(),
        Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version and exit.",
        ),
    ],
    context_settings={"help_option_names": ["-h", "--help"]},
)


def all_commands() -> Iterator[tuple[str, click.Command, str]]:
    """Yield (name, command, first line of its help), those below others too."""
    context = click.Context(program)
    for name, (_, summary, _) in COMMANDS.items():
        command = program.get_command(context, name)
        assert command is not None
        yield name, command, summary
        yield from commands_below(name, command)


# Modules make far more objects than commands, and hardly any of them garbage.
GARBAGE_AFTER = 100_000


def main() -> NoReturn:
    gc.set_threshold(GARBAGE_AFTER, *gc.get_threshold()[1:])
    code = run(sys.argv[1:])
    # The interpreter would look through everything for garbage again, twice, before it ends.
    gc.freeze()
    sys.exit(code)


def run(argv: Sequence[str]) -> int:
    """One call of dlv, with the exit code as its result."""
    if COMPLETE_VARIABLE in os.environ:
        return _complete()
    state: dict[str, invocation.Invocation] = {}
    try:
        code = _run(argv, state)
        sys.stdout.flush()
        if code != StorageError.exit_code:  # else as a killed process would leave it
            with suppress(KeyboardInterrupt):  # all is done, and said
                _put_away(state)
    except BrokenPipeError:
        # Whoever read our output has gone: that is no error. The null device takes what is
        # still in the buffer when the interpreter flushes it.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.dup2(null, sys.stderr.fileno())
        os.close(null)
        return 0
    return code


def _put_away(state: Mapping[str, invocation.Invocation]) -> None:
    """The catalogue's log goes into its file: a short log has few bits to go wrong, and who may
    not write needs no copy of it."""
    for call in state.values():
        repository = vars(call).get("repository")
        database = None if repository is None else vars(repository).get("database")
        if database is not None:
            database.put_log_away()


def _run(argv: Sequence[str], state: dict[str, invocation.Invocation]) -> int:
    try:
        # Not `program.main`, which ends the process with 1 when a pipe is closed.
        with program.make_context("dlv", list(argv), obj=state) as ctx:
            result = program.invoke(ctx)
        return result if isinstance(result, int) else 0
    except BrokenPipeError:
        raise
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except (KeyboardInterrupt, EOFError, click.Abort):
        if sys.stderr.isatty():
            sys.stderr.write("\n")  # after the ^C that the terminal shows
        return _report(argv, state, _InterruptedError())
    except click.ClickException as error:
        return _report(argv, state, _usage(argv, error))
    except DlvError as error:
        return _report(argv, state, error)
    except MemoryError:
        return _report(argv, state, StorageError("not enough memory"))
    except OSError as error:
        return _report(argv, state, _io(error))
    except Exception as error:
        return _report(argv, state, _internal(argv, error))


class _InterruptedError(DlvError):
    exit_code = 130
    kind = "interrupted"

    def __init__(self) -> None:
        super().__init__("interrupted; nothing is half-written, so it is safe to run again")


def _report(
    argv: Sequence[str], state: Mapping[str, invocation.Invocation], error: DlvError
) -> int:
    import dlv.commands.shared.invocation as invocation

    call = state.get("invocation") or invocation.Invocation(_glance(argv), os.environ, strict=False)
    if call.debug:
        import traceback

        traceback.print_exc(file=sys.stderr)
    sys.stdout.flush()
    call.output.error(error)
    return error.exit_code


def _glance(argv: Sequence[str]) -> dict[str, Any]:
    """How to print an error that came before the options were understood."""
    given = list(argv[: argv.index("--")] if "--" in argv else argv)
    found: dict[str, Any] = {"json": "--json" in given, "debug": "--debug" in given}
    for word, following in zip(given, [*given[1:], ""], strict=True):
        name, _, value = word.partition("=")
        if name in ("--color", "--colour"):
            found["color"] = value or following
    return found


def _usage(argv: Sequence[str], error: click.ClickException) -> UsageError:
    """click's complaint in dlv's form."""
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    name = next((word for word in argv if not word.startswith("-")), "")
    path = ctx.command_path if ctx else f"dlv {name}".rstrip() if name in COMMANDS else "dlv"
    help_line = f"{path} --help"
    if isinstance(error, click.NoSuchOption):
        if (path, error.option_name) in OPTION_HABITS:
            message, hint = OPTION_HABITS[path, error.option_name]
            return UsageError(message, hint=hint)
        known = (
            [o for p in ctx.command.get_params(ctx) if not _hidden(p) for o in p.opts]
            if ctx
            else []
        )
        known = [name for name in known if name.startswith("--")]
        return UsageError(
            f"`{path}` has no option `{error.option_name}`",
            hint=f"to list all options: {help_line}",
            did_you_mean=nearest(error.option_name, known),
        )
    if path == "dlv login" and "extra argument" in error.message:
        # The argument is not repeated: it is a token.
        message, hint = OPTION_HABITS[path, "--token"]
        return UsageError(message, hint=hint)
    chosen = getattr(getattr(error, "param", None), "type", None)
    choices = chosen.choices if isinstance(chosen, click.Choice) else ()
    meant = nearest(error.message[1:].partition("' is not one of")[0], choices)
    # click breaks the lines of a list of choices.
    message = " ".join(error.format_message().split()).rstrip(".")
    message = message.replace(". Choose from: ", "; choose from ")
    message = message.removeprefix(f"Invalid value for '[{'|'.join(choices)}]': ")
    message = message.replace("a valid integer range", "a number").replace(
        "a valid integer", "a number"
    )
    message = message[:1].lower() + message[1:]
    return UsageError(message.replace("'", "`"), hint=help_line, did_you_mean=meant)


def _hidden(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Argument) or bool(getattr(parameter, "hidden", False))


def _io(error: OSError) -> StorageError:
    found = denied(os.fsdecode(error.filename)) if isinstance(error, PermissionError) else None
    reason, hint = found or (error.strerror or str(error) or type(error).__name__, None)
    named = isinstance(error.filename, (str, bytes))
    where = f"cannot access {os.fsdecode(error.filename)}" if named else "file system error"
    return StorageError(f"{where}: {reason[:1].lower()}{reason[1:]}", hint=hint)


def _internal(argv: Sequence[str], error: Exception) -> DlvError:
    """A bug in dlv: the details go to a file that can be sent along with a report."""
    import pathlib
    import platform
    import traceback

    import dlv.canonical as canonical

    text = "".join(traceback.format_exception(error))
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "dlv"
    path = cache / f"crash-{os.getpid()}.txt"
    head = f"dlv {canonical.VERSION}, Python {platform.python_version()}, {platform.platform()}\n"
    hint = "run again with --debug to see the traceback"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{head}arguments: {list(argv)}\n\n{text}")
        hint = f"please report it and attach {path}"
    except OSError:
        pass
    what = f"internal: {type(error).__name__}: {error}".rstrip(": ")
    return DlvError(what, why="this is a bug in dlv", hint=hint)


def _complete() -> int:
    """Answer the shell; whatever goes wrong, it must not appear in the user's prompt."""
    try:
        import dlv.terminal.completion as completion

        completion.answer(program, "dlv", COMPLETE_VARIABLE, os.environ[COMPLETE_VARIABLE])
    except Exception:
        return 1
    return 0
