"""The first page of a repository, and the repositories of a namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dlv.versions.card as cards
from dlv.canonical import timestamp
from dlv.errors import DlvError
from dlv.hub.server import repositories
from dlv.hub.server.access import Place, Role, namespace_role, visible_repositories
from dlv.hub.server.refusal import not_found
from dlv.metadata import metrics, versions
from dlv.metadata.versions import Version
from dlv.report.markup import Html, text
from dlv.report.page import Section
from dlv.repository.handle import Repository
from dlv.terminal.output import Fields
from dlv.terminal.table import Bytes, Cell, Column, Count, Number, Table, Time
from dlv.ui.addresses import Addresses
from dlv.ui.frame import Frame, now
from dlv.ui.hub.context import Context
from dlv.ui.hub.mirrors import Mirror
from dlv.ui.hub.visitors import Visitor

MOST_MODELS = 500
FIGURES = 3  # metrics of a model


def namespace(context: Context, visitor: Visitor, request: Any) -> Any:
    """The repositories of a namespace that the visitor may read."""
    name = request.path_params["namespace"].lower()
    with context.hub.database.reading() as connection:
        known, role = namespace_role(connection, visitor.caller, name)
        found = visible_repositories(connection, visitor.caller, name)
    if known is None or (not found and role is Role.NONE):
        raise not_found()

    def leads(title: str, value: Cell) -> str | None:
        own = title == "repository" and isinstance(value, str)
        return context.addresses(name, str(value)).base if own else None

    frame = Frame(now(), leads)
    rows: list[list[Cell]] = [
        [row["name"], row["visibility"], Time(row["changed"]), row["description"] or None]
        for row in found
    ]
    columns = [
        Column("repository"), Column("visibility"), Column("changed"), Column("description")
    ]  # fmt: skip
    body = frame.table(Table(columns, rows), caption="repositories", fold=200)
    url = context.public(f"/{name}/REPOSITORY")
    return context.shell.sections(
        name, [Section("", body)] if rows else [], context.around_namespace(visitor, name, role),
        about="Repositories", here="Repositories",
        empty=f"No repositories yet: dlv remote add origin {url} && dlv publish",
    )  # fmt: skip


def repository(context: Context, visitor: Visitor, place: Place, mirror: Mirror) -> Any:
    """Models of a repository, how to get them, and the card of the newest one."""
    to = context.addresses(place.namespace, place.name)
    frame = Frame.of_pages(now(), to)
    shown = mirror.repository
    every = versions.all_versions(shown.database)
    newest: dict[str, Version] = {}
    count: dict[str, int] = {}
    for version in sorted(every, key=lambda version: version.number or 0):
        newest[version.name] = version
        count[version.name] = count.get(version.name, 0) + 1
    with context.hub.database.reading() as connection:
        aliases = repositories.aliases(connection, place.id)
    last = max(newest.values(), key=lambda version: version.created, default=None)
    url = context.public(f"/{place.label}")
    commands = [("All models:", f"dlv clone {url}")]
    if last is not None:
        pull = f"dlv remote add {place.name} {url} && dlv pull {place.name}:{last.name}"
        commands.append(("One model, into a repository:", pull))
    facts: list[tuple[str, Any]] = [("models", f"{len(newest):,}"), ("versions", f"{len(every):,}")]
    return context.shell.render(
        "hub_repository.html", place.label, context.around_place(visitor, place), here="Overview",
        about=place.description, visibility="public" if place.public else "private", facts=facts,
        commands=commands if every else [], count=len(every), base=to.base,
        models=_models(shown, list(newest.values()), count, aliases, frame),
        aliases=_aliases(aliases, frame), sections=_newest(shown, last, frame, to),
        faults=[f"{name} cannot be shown: {why}" for name, why in mirror.state.faults.items()],
        publish=f"dlv remote add origin {url} && dlv publish",
    )  # fmt: skip


def _models(
    shown: Repository,
    newest: Sequence[Version],
    count: Mapping[str, int],
    aliases: Sequence[Mapping[str, Any]],
    frame: Frame,
) -> Html:
    """A row for each model, with its newest version."""
    rows: list[list[Cell]] = []
    words = {version.name: _alias_words(version.name, aliases) for version in newest}

    def leads(title: str, value: Cell) -> str | None:
        if title == "name":
            return frame.addresses.versions({"names": str(value)})
        return frame.addresses.links(title, value)

    for version in sorted(newest, key=lambda v: v.created, reverse=True)[:MOST_MODELS]:
        found = metrics.of_version(shown.database, version.key)
        found.sort(key=lambda summary: "/" in summary.name)
        figures = ", ".join(
            f"{summary.name} {summary.last:.4g}"
            for summary in found[:FIGURES]
            if summary.last is not None
        )
        rows.append(
            [
                version.name,
                version.label,
                Count(count[version.name]),
                Time(timestamp_of(version)),
                words[version.name] or None,
                figures or None,
                version.message.partition("\n")[0] or None,
            ]
        )
    columns = [
        Column("name"), Column("version"), Column("versions"), Column("age"), Column("aliases"),
        Column("metrics"), Column("message"),
    ]  # fmt: skip
    if not any(words.values()):
        rows = [[*row[:4], *row[5:]] for row in rows]
        del columns[4]
    return frame.leading(leads).table(Table(columns, rows), caption="models", fold=100)


def timestamp_of(version: Version) -> str:
    return version.created if isinstance(version.created, str) else timestamp(version.created)


def _alias_words(name: str, aliases: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{a['alias']} @{a['number']}" for a in aliases if a["name"] == name)


def _aliases(aliases: Sequence[Mapping[str, Any]], frame: Frame) -> Html:
    """Where production and the like lead, as links above all models."""
    if not aliases:
        return Html("")
    links = []
    for alias in aliases[:40]:
        label = f"{alias['name']}@{alias['number']}"
        links.append(
            f'<span class="badge">{text(alias["alias"])}</span>'
            f'<a href="{text(frame.addresses.version(label))}">{text(label)}</a>'
        )
    return Html(f'<p class="facts">{" ".join(f"<span>{link}</span>" for link in links)}</p>')


def _newest(shown: Repository, version: Version | None, frame: Frame, to: Addresses) -> list[Html]:
    """The card of the version that was published last."""
    if version is None:
        return []
    try:
        card = cards.card_of(shown, version)
    except DlvError as error:
        return [Section(f"newest: {version.label}", frame.html(error.message)).html()]
    facts: dict[str, Cell] = {
        "task": card.own.task,
        "license": card.own.license,
        "parameters": Count(card.parameters),
        "size": Bytes(card.bytes),
        "framework": version.framework,
        "layers": ", ".join(f"{n} {op}" for op, n in list(card.operations.items())[:8]) or None,
    }
    figures: list[list[Cell]] = [
        [summary.name, _number(summary.last), _number(summary.min), _number(summary.max)]
        for summary in card.metrics[:20]
    ]
    words = "Curves, network, tensors and files"
    link = Html(f'<p><a href="{text(to.version(version.label))}">{words}</a></p>')
    fields = frame.html(Fields({key: value for key, value in facts.items() if value is not None}))
    table = frame.table(Table([Column("metric"), "last", "min", "max"], figures), caption="metrics")
    tags = "".join(f'<span class="badge">{text(tag)}</span>' for tag in card.tags[:20])
    badges = f"<p>{tags}</p>" if tags else ""
    side = f'<div class="side"><div>{fields}{badges}{link}</div><div>{table}</div></div>'
    found = [Section(f"newest: {version.label}", Html(side)).html()]
    if card.own.text:
        found.append(Section("card", Html(f"<pre>{text(card.own.text)}</pre>")).html())
    return found


def _number(value: float | None) -> Cell:
    return None if value is None else Number(value)
