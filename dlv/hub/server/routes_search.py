"""Routes of search, and of the models and cards of a repository."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from dlv.dataclass import dataclass
from dlv.errors import NotFound, UsageError
from dlv.hub.server import catalogues, tables
from dlv.hub.server import search as searching
from dlv.hub.server.access import Role
from dlv.hub.server.exchange import Answer, Exchange, Route
from dlv.hub.server.refusal import Refused, not_found

MOST_CARDS = 100  # of one answer
_CARD = {
    "type": "object",
    "description": "a version as the index of a remote has it",
    "additionalProperties": True,
}
_FOUND = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "description": "versions that match, or the least of them"},
        "more": {"type": "boolean", "description": "whether more match than are counted"},
        "results": {"type": "array", "items": {"type": "object", "additionalProperties": True}},
    },
    "required": ["count", "more", "results"],
}
_MODELS = {
    "type": "object",
    "properties": {
        "models": {"type": "array", "items": {"type": "object", "additionalProperties": True}}
    },
    "required": ["models"],
}
_CARDS = {
    "type": "object",
    "properties": {"count": {"type": "integer"}, "cards": {"type": "array", "items": _CARD}},
    "required": ["count", "cards"],
}


@dataclass(frozen=True)
class Search:
    """A search. `text`: words, fields, figures. `where`: a DQL condition on m."""

    text: str = ""
    where: str = ""
    sort: str | None = None
    most: int = 20
    offset: int = 0


def search_everywhere(call: Exchange) -> Answer:
    """Search all repositories that the caller may read."""
    return Answer.of_json(found(call, call.body).as_json())


def search_here(call: Exchange) -> Answer:
    """Search one repository."""
    return Answer.of_json(found(call, call.body, call.place.id).as_json())


def found(call: Exchange, body: Search, repository_id: int | None = None) -> searching.Found:
    """Return what a search finds; also the pages of the hub use it."""
    if not (0 <= body.most <= searching.MOST and 0 <= body.offset <= searching.MOST_OFFSET):
        raise Refused(
            422,
            "`most` or `offset` is out of range",
            why=f"at most {searching.MOST} and {searching.MOST_OFFSET}",
        )
    try:
        wanted = searching.parse(body.text, body.sort)
        among = None
        if body.where.strip():
            among = catalogues.matches(call.hub, call.caller, body.where, repository_id)
        return searching.search(
            call.hub.database,
            call.caller,
            wanted,
            repository_id=repository_id,
            among=among,
            most=body.most,
            offset=body.offset,
        )
    except UsageError as error:
        raise Refused(422, error.message, why=error.why, hint=error.hint) from None
    except NotFound as error:
        near = [f"there is `{name}`" for name in error.did_you_mean[:1]]
        raise Refused(404, error.message, why=error.why or "".join(near) or None) from None


def models(call: Exchange) -> Answer:
    """List the models of a repository, each with its newest version."""
    card = tables.card.c
    newest = (
        sa.select(card.name, sa.func.max(card.number).label("number"), sa.func.count().label("n"))
        .where(card.repository_id == call.place.id)
        .group_by(card.name)
        .subquery()
    )
    query = (
        sa.select(newest.c.n, tables.card_text.c.record)
        .select_from(tables.card)
        .join(newest, sa.and_(newest.c.name == card.name, newest.c.number == card.number))
        .join(tables.card_text, tables.card_text.c.card_id == card.id)
        .where(card.repository_id == call.place.id)
        .order_by(card.name)
        .limit(10_000)
    )
    with call.hub.database.reading() as connection:
        rows = connection.execute(query).all()
    return Answer.of_json({"models": [_model(count, json.loads(text)) for count, text in rows]})


def _model(versions: int, record: dict[str, Any]) -> dict[str, Any]:
    shown = ("name", "number", "id", "created", "author", "message", "task", "license", "tags")
    row = {key: record[key] for key in (*shown, "bytes", "parameters")}
    return row | {"versions": versions}


def cards(call: Exchange) -> Answer:
    """Show cards, the newest first; `model` and `number` choose some of them."""
    card, text = tables.card.c, tables.card_text.c
    where = [card.repository_id == call.place.id]
    if "model" in call.query:
        where.append(card.name == _clean(call.query["model"]))
    if "number" in call.query:
        where.append(card.number == call.number("number", 0))
    offset = call.number("offset", 0, 1 << 31)
    most = min(call.number("most", MOST_CARDS), MOST_CARDS)
    query = (
        sa.select(text.record)
        .join(tables.card, card.id == text.card_id)
        .where(*where)
        .order_by(card.id.desc())
        .limit(most)
        .offset(offset)
    )
    count = sa.select(sa.func.count()).select_from(tables.card).where(*where)
    with call.hub.database.reading() as connection:
        total = connection.execute(count).scalar_one()
        records = connection.execute(query).scalars().all() if total else []
    if not total and where[1:]:
        raise not_found()
    # Records are JSON already.
    return Answer(200, f'{{"cards":[{",".join(records)}],"count":{total}}}'.encode())


def _clean(name: str) -> str:
    return name.replace("\0", "")


_HERE = "/v1/{namespace}/{repository}"
_PAGE = {"most": f"Show at most so many, {MOST_CARDS} at most", "offset": "Skip so many"}
ROUTES = [
    Route(
        "POST", "/v1/search", Role.NONE, search_everywhere,
        "Search all repositories that the caller may read", body=Search, answer=_FOUND,
    ),
    Route(
        "POST", f"{_HERE}/search", Role.READER, search_here, "Search a repository",
        body=Search, answer=_FOUND,
    ),
    Route("GET", f"{_HERE}/models", Role.READER, models, "List models", answer=_MODELS),
    Route(
        "GET", f"{_HERE}/cards", Role.READER, cards, "Show cards of versions", answer=_CARDS,
        query={"model": "Only of this model", "number": "Only this version", **_PAGE},
    ),
]  # fmt: skip
