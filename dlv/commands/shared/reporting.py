"""`-o FILE [--open]`: results as a report in one file, or as a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import WORDS, option
from dlv.errors import UsageError
from dlv.terminal.output import Verbatim

if TYPE_CHECKING:
    from dlv.report.page import Section

F = TypeVar("F", bound=Callable[..., Any])
REPORT, PICTURES = (".html",), (".svg", ".png")


def report_options(what: str = "Write a report as an .html file.") -> Callable[[F], F]:
    """Add --output and --open to a command."""

    def decorate(function: F) -> F:
        opened = option("--open", "show", is_flag=True, help="Open the report in the browser.")
        return option("-o", "--output", metavar="FILE", help=what)(opened(function))

    return decorate


def target(
    call: Invocation, output: str | None, show: bool, kinds: Sequence[str] = REPORT
) -> Path | None:
    """Return the path to write to, None without --output; fail early if it cannot be written."""
    if output is None:
        if show:
            hint = f"{_without_output()} -o report.html --open"
            raise UsageError("--open requires --output", hint=hint)
        return None
    path = Path(call.directory, output)
    if path.suffix.lower() not in kinds:
        names = " or ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))
        hint = f"to write a report: {_without_output()} -o report.html"
        raise UsageError(f"`{path}` must end in {names}", hint=hint)
    if path.is_dir():
        raise UsageError(f"`{path}` is a directory")
    if not path.parent.is_dir():
        raise UsageError(f"no such directory: {path.parent}")
    return path


def command() -> str:
    """Return the command as it was typed."""
    import shlex

    return shlex.join(["dlv", *click.get_current_context().meta.get(WORDS, ())])


def _without_output() -> str:
    """Return the command as typed, without --output and --open."""
    import shlex

    words = list(click.get_current_context().meta.get(WORDS, ()))
    kept: list[str] = []
    while words:
        word = words.pop(0)
        if word in ("-o", "--output"):
            words = words[1:]
        elif word != "--open" and not word.startswith("--output="):
            kept.append(word)
    return shlex.join(["dlv", *kept])


def write_report(path: Path, title: str, sections: Sequence[Section], *, about: str = "") -> None:
    """The file, whole or not at all; what was there before is replaced."""
    import dlv.ui.frame as frames

    frames.write(path, title, sections, about=about, command=command())


def deliver(
    call: Invocation,
    name: str,
    document: dict[str, Any],
    path: Path,
    *,
    show: bool,
    ids: Sequence[str] = (),
) -> None:
    """Print where the file is, and open it if that is wanted."""
    call.output.emit(name, {**document, "output": str(path)}, Verbatim([str(path)]), ids=ids)
    if show:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
