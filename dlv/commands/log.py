"""`dlv log`: the history of a version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from dlv.commands.shared import reporting
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError
from dlv.terminal.output import Verbatim
from dlv.terminal.table import SHORT_ID, age, cut, escape, width

if TYPE_CHECKING:
    import dlv.versions.history as history


@command(
    "log",
    examples=["dlv log", "dlv log --graph --all", "dlv log --oneline -n 5", "dlv log -o log.svg"],
)
@argument("reference", required=False, metavar="[REF]", complete="reference")
@option("--graph", is_flag=True, help="Draw the graph of versions.")
@option("--oneline", is_flag=True, help="Show each version on one line.")
@option("--all", "everything", is_flag=True, help="Show all versions, not only ancestors.")
@option("-n", "most", type=click.IntRange(min=0), metavar="N", help="Show at most N versions.")
@reporting.report_options("Write the graph: .html, .svg or .png.")
def run(
    call: Invocation,
    reference: str | None,
    graph: bool,
    oneline: bool,
    everything: bool,
    most: int | None,
    output: str | None,
    show: bool,
) -> None:
    """Show the history of a version.

    REF is HEAD by default. Children come before their parents.
    """
    if reference is not None and everything:
        raise UsageError("REF and --all cannot be combined", hint="dlv log --all")
    target = reporting.target(call, output, show, (*reporting.REPORT, *reporting.PICTURES))
    import dlv.hub.names as names
    import dlv.versions.history as history
    import dlv.views.versions as view

    remote = names.default_name(call.config)
    published = None if remote is None else names.noted(call.repository, remote)
    entries, notes = history.log(call.repository, reference, everything=everything)
    tips = _tips(entries, remote or "", published or set())
    entries = entries if most is None else entries[:most]
    for note in notes:
        call.output.warn(note)
    if call.json or call.quiet:
        lines: list[str] = []
    elif graph:
        lines = list(_graph(call, entries, tips))
    elif oneline:
        lines = [_line(call, entry, escape(entry.version.label), tips) for entry in entries]
    else:
        lines = [line for entry in entries for line in (*_block(call, entry, tips), "")][:-1]
    document = view.log_document(entries, published)
    ids = [entry.version.id for entry in entries]
    if target is None:
        call.output.emit("log", document, Verbatim(lines), ids=ids)
    else:
        import dlv.ui.history as pages

        pages.write(target, entries, reporting.command())
        reporting.deliver(call, "log", document, target, show=show, ids=ids)
    if not entries:
        call.output.message("no versions yet" if most is None else "nothing to show")


def _tips(entries: Sequence[history.Entry], remote: str, published: set[str]) -> dict[str, str]:
    """Version id -> the remote, for the newest version of each model that the remote has."""
    newest: dict[str, str] = {}
    for entry in entries:
        if entry.version.id in published:
            newest.setdefault(entry.version.name, entry.version.id)
    return dict.fromkeys(newest.values(), remote)


def _words(entry: history.Entry, tips: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(word, style): HEAD, tags, the remote, and what is unusual about the version."""
    if entry.head:
        yield "HEAD", "bold cyan"
    if entry.version.id in tips:
        yield escape(tips[entry.version.id]), "green"
    yield from ((f"tag: {escape(tag)}", "yellow") for tag in entry.version.tags)
    if entry.version.state != "live":
        yield entry.version.state, "red"


def _names(call: Invocation, entry: history.Entry, tips: Mapping[str, str]) -> str:
    """The same in brackets."""
    words = [call.output.paint(word, style) for word, style in _words(entry, tips)]
    return f" ({', '.join(words)})" if words else ""


def _id(call: Invocation, digest: str) -> str:
    return digest[:SHORT_ID] if call.output.terminal else digest


def _block(call: Invocation, entry: history.Entry, tips: Mapping[str, str]) -> Iterator[str]:
    version, paint = entry.version, call.output.paint
    lead = f"{paint(f'version {version.id}', 'yellow')} {escape(version.label)}"
    yield f"{lead}{_names(call, entry, tips)}"
    for parent in entry.parents:
        name = escape(parent.label) if parent.label else "not in this repository"
        how = "" if parent.kind == "commit" else f", {escape(parent.kind)}"
        yield f"Parent: {_id(call, parent.id)} ({name}{how})"
    if version.scheme:
        yield f"Lossy:  {escape(version.scheme)}"
    yield f"Author: {escape(version.author)}"
    ago = f" ({age(version.created, call.output.now)})" if call.output.terminal else ""
    yield f"Date:   {version.created[:19].replace('T', ' ')} UTC{ago}"
    yield ""
    for line in version.message.rstrip("\n").split("\n"):
        yield f"    {escape(line)}".rstrip()


def _graph(
    call: Invocation, entries: list[history.Entry], tips: Mapping[str, str]
) -> Iterator[str]:
    import dlv.terminal.lanes as lanes

    style = lanes.BOX if call.output.can_print("●│─╮") else lanes.ASCII
    drawn = lanes.draw(
        ((entry.version.id, [p.id for p in entry.parents]) for entry in entries), style
    )
    room = max((width(row.node) for row in drawn), default=0)
    for entry, row in zip(entries, drawn, strict=True):
        yield _line(call, entry, f"{row.node:<{room}} {escape(entry.version.label)}", tips)
        if row.links:
            yield row.links


def _line(call: Invocation, entry: history.Entry, lead: str, tips: Mapping[str, str]) -> str:
    """Return a version as one line that fits the terminal."""
    extra, short = _origin(call, entry), _id(call, entry.version.id)
    text = escape(entry.version.message.partition("\n")[0])
    if call.output.terminal:
        used = width(f"{lead} {short}{_plain(entry, tips)}{extra}") + 2
        text = cut(text, max(10, call.output.width - used))
    marks = _names(call, entry, tips) + extra
    return f"{lead} {call.output.paint(short, 'yellow')}{marks}  {text}".rstrip()


def _origin(call: Invocation, entry: history.Entry) -> str:
    """What is not seen from the lines: a copy of another model, weights that were rounded."""
    named = {p.kind: escape(p.label or _id(call, p.id)) for p in reversed(entry.parents)}
    extra = f" copy of {named['copy']}" if "copy" in named else ""
    if entry.version.scheme:
        extra += f" quantized: {escape(entry.version.scheme)}"
        extra += f" of {named['quantize']}" if "quantize" in named else ""
    return extra


def _plain(entry: history.Entry, tips: Mapping[str, str]) -> str:
    """As wide as `_names` is on the screen."""
    words = [word for word, _ in _words(entry, tips)]
    return f" ({', '.join(words)})" if words else ""
