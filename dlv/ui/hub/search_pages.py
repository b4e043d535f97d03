"""Search over a hub, and its newest models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlv.errors import DlvError
from dlv.hub.server import catalogues, search
from dlv.hub.server.access import Caller
from dlv.hub.server.hub import Hub
from dlv.hub.server.refusal import Refused
from dlv.hub.server.search import Found, Hit
from dlv.report.markup import cell
from dlv.terminal.table import Bytes, Cell, Count, Number, Time
from dlv.ui.frame import now
from dlv.ui.hub.context import Context, words_of
from dlv.ui.hub.visitors import Visitor
from dlv.ui.repository_pages import number_of

RESULTS = 20  # of one page
NEWEST = 30  # models of the first page
LOOKED_AT = 100  # versions among which the newest models are
MOST_FIGURES = 5  # metrics of a card
ORDERS = ("created", "name", "bytes", "parameters")


def home(context: Context, visitor: Visitor, _: Any) -> Any:
    """The newest models; of each its newest version."""
    found = search.search(context.hub.database, visitor.caller, search.parse(""), most=LOOKED_AT)
    newest: dict[tuple[str, str], Hit] = {}
    for hit in found.hits:
        newest.setdefault((hit.repository, hit.record["name"]), hit)
    cards = [card_of(context, hit) for hit in list(newest.values())[:NEWEST]]
    about = "Nothing that you may read is published here yet. To publish from a repository:"
    hint = f"dlv remote add origin {context.public('/NAMESPACE/REPOSITORY')} && dlv publish"
    return _page(context, visitor, "Models", cards, subtitle="Newest", empty=about, hint=hint)


def results(context: Context, visitor: Visitor, request: Any) -> Any:
    """What a search finds."""
    query = {name: request.query_params.get(name, "").strip() for name in ("q", "where", "sort")}
    if not any(query.values()):
        return home(context, visitor, request)
    fault, found = "", Found([], 0, more=False)
    try:
        start = number_of(request.query_params.get("from"), 0)
        found = find(context.hub, visitor.caller, query, start)
    except Refused as refused:
        fault = words_of(refused.error)
    except DlvError as error:
        fault = "\n\n".join(_spot_words(spot) for spot in error.spots) or words_of(error)
    shown = start + len(found.hits) if not fault else 0
    more = "over " if found.more else ""
    further = bool(found.hits) and (found.more or shown < found.count)
    after = {**query, "from": str(start + RESULTS)} if further else None
    before = {**query, "from": str(max(0, start - RESULTS))} if shown and start else None
    return _page(
        context, visitor, "Search", [card_of(context, hit) for hit in found.hits], query=query,
        fault=fault, count=f"{more}{found.count:,} version{'' if found.count == 1 else 's'}",
        subtitle="Versions", empty="No versions match.",
        before=before and context.to("/search", before),
        after=after and context.to("/search", after),
    )  # fmt: skip


def find(hub: Hub, caller: Caller, query: Mapping[str, str], start: int) -> Found:
    """Search by text and a DQL condition."""
    wanted = search.parse(query["q"], query["sort"] or None)
    among = catalogues.matches(hub, caller, query["where"]) if query["where"] else None
    return search.search(hub.database, caller, wanted, among=among, most=RESULTS, offset=start)


def _spot_words(spot: Any) -> str:
    return "\n".join(filter(None, (spot.message, spot.line, spot.mark, spot.hint)))


def _page(
    context: Context,
    visitor: Visitor,
    title: str,
    cards: list[dict[str, Any]],
    *,
    query: Mapping[str, str] | None = None,
    **values: Any,
) -> Any:
    asked: dict[str, Any] = dict(query or {"q": "", "where": "", "sort": ""})
    return context.shell.render(
        "hub_home.html", title, context.around(visitor), cards=cards, orders=ORDERS, **asked,
        **{
            "asked": any(asked.values()), "count": "", "fault": "", "hint": "", "before": None,
            "after": None, **values,
        },
    )  # fmt: skip


def card_of(context: Context, hit: Hit) -> dict[str, Any]:
    """A version as a card of the page."""
    record = hit.record
    namespace, _, repository = hit.repository.partition("/")
    to = context.addresses(namespace, repository)
    label = f"{record['name']}@{record['number']}"
    moment = now()
    facts: list[tuple[str, Cell]] = [
        ("task", record["task"]),
        ("license", record["license"]),
        ("parameters", Count(record["parameters"]) if record["parameters"] else None),
        ("size", Bytes(record["bytes"]) if record["bytes"] else None),
        ("framework", record["framework"]),
        ("age", Time(record["created"])),
        ("author", record["author"].partition(" <")[0]),
    ]
    return {
        "version": label,
        "address": to.version(label),
        "repository": hit.repository,
        "place": to.base,
        "message": record["message"].partition("\n")[0],
        "facts": [(name, cell(value, moment)) for name, value in facts if value],
        "figures": [(name, cell(value, moment)) for name, value in figures_of(record)],
        "tags": record["tags"][:12],
    }


def figures_of(record: Mapping[str, Any]) -> list[tuple[str, Cell]]:
    """The last values of the first metrics; those of whole runs before those of parts."""
    found: list[tuple[str, Cell]] = []
    for summary in sorted(record["metrics"], key=lambda s: ("/" in s["tag"], bool(s["run"]))):
        last = summary["last"]
        name = f"{summary['run']}/{summary['tag']}" if summary["run"] else summary["tag"]
        if isinstance(last, (int, float)) and len(found) < MOST_FIGURES:
            found.append((name, Number(float(last), 4)))
        elif isinstance(last, str) and len(found) < MOST_FIGURES:
            found.append((name, last))
    return found
