"""What a hub does by itself: search, delete what is not needed, keep aliases of versions."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from dlv.canonical import float_of, is_hash
from dlv.dataclass import dataclass
from dlv.errors import NotFound, Spot, UsageError, nearest
from dlv.hub.deletion import Collected
from dlv.hub.remotes import Remote
from dlv.hub.searching import Found
from dlv.metadata.cards import Hit
from dlv.objects.manifest import NAME

_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ALIASED = re.compile(rf"(?P<model>[^@~^/:]+)@(?P<alias>{_ALIAS.pattern})(?P<rest>.*)")
_OWN = re.compile(r"[0-9]+|latest|best")  # what dlv itself means by a word after @
MOST_LISTED = 1_000_000
MOST_HITS, MOST_OFFSET = 100, 2000  # of one answer to a search, and of all
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Alias:
    """A name such as `production` for a version of a model."""

    model: str
    alias: str
    number: int


def collect(remote: Remote, grace: datetime.timedelta, *, dry_run: bool) -> Collected:
    """Let the hub delete what no version has needed for `grace`."""
    body = {"grace": int(grace.total_seconds()), "dry_run": dry_run}
    answer = remote.store.call("POST", "gc", body)
    try:
        until = answer["until"]
        return Collected(
            deleted=[str(key) for key in answer["deleted"][:MOST_LISTED]],
            listed=[str(key) for key in answer["listed"][:MOST_LISTED]],
            until=None if until is None else str(until),
            leases=int(answer["leases"]),
            bytes=int(answer["bytes"]),
        )
    except (KeyError, TypeError, ValueError):
        raise remote.store.broken("the answer to gc is not valid") from None


def aliases(remote: Remote) -> list[Alias]:
    """Return the aliases of all models on a hub."""
    answer = remote.store.call("GET", "aliases")
    try:
        return [Alias(str(a["name"]), str(a["alias"]), int(a["number"])) for a in answer["aliases"]]
    except (KeyError, TypeError, ValueError):
        raise remote.store.broken("the list of aliases is not valid") from None


def set_alias(remote: Remote, reference: str, alias: str) -> Alias:
    """Let an alias name a version such as lenet@3, on the hub, where everybody sees it."""
    model, _, number = reference.partition("@")
    if not number.isdigit():
        raise UsageError(
            f"an alias names a version by its number, not `{reference}`",
            hint=f"dlv remote alias {remote.name}:{model}@3 {alias}",
        )
    remote.store.call("PUT", _path(model, alias), {"number": int(number)})
    return Alias(model, alias, int(number))


def delete_alias(remote: Remote, model: str, alias: str) -> None:
    """Delete an alias; the version stays."""
    remote.store.call("DELETE", _path(model, alias))


def _path(model: str, alias: str) -> str:
    if _ALIAS.fullmatch(alias) is None:
        raise UsageError(
            f"`{alias}` cannot be an alias", why="letters, digits, `.`, `_` and `-` are allowed"
        )
    return f"aliases/{quote(model, safe='')}/{quote(alias.lower(), safe='')}"


def resolved(remote: Remote, references: Sequence[str]) -> list[str]:
    """Replace aliases in references such as lenet@production by numbers of versions.

    Without a reference that can have one, the hub is not contacted.
    """
    if not remote.store.managed or not any(map(has_alias, references)):
        return list(references)
    known = {(alias.model, alias.alias): alias.number for alias in aliases(remote)}
    try:
        return [numbered(text, known, f"{remote.name}:") for text in references]
    except NotFound as error:
        error.hint = f"dlv remote alias {remote.name}"
        raise


def has_alias(reference: str) -> bool:
    """Whether a reference names a version by an alias."""
    match = _ALIASED.fullmatch(reference)
    return match is not None and _OWN.fullmatch(match["alias"]) is None


def numbered(reference: str, known: Mapping[tuple[str, str], int], where: str = "") -> str:
    """Replace the alias of a reference; `known`: numbers by model and alias."""
    match = _ALIASED.fullmatch(reference)
    if match is None or not has_alias(reference):
        return reference
    model, alias = match["model"], match["alias"].lower()
    number = known.get((model, alias))
    if number is None:
        words = [word for name, word in known if name == model]
        raise NotFound(
            f"{where}{model} has no alias `{alias}`",
            why=f"it has {', '.join(words)}" if words else None,
            did_you_mean=[f"{where}{model}@{word}" for word in nearest(alias, words)],
        )
    return f"{model}@{number}{match['rest']}"


def search(
    remote: Remote, text: str, *, where: Sequence[str], sort: str | None, most: int
) -> Found:
    """Return what the hub finds among the cards of its repository."""
    condition = where[0] if len(where) == 1 else " and ".join(f"({each})" for each in where)
    body = {"text": text, "where": condition, "sort": sort}
    hits: list[Hit] = []
    try:
        while True:
            page = min(most - len(hits), MOST_HITS)
            more = {"most": page, "offset": len(hits)}
            answer = remote.store.call("POST", "search", {**body, **more})
            records = answer["results"][:page]
            hits += [_hit(record) for record in records]
            if len(records) < MOST_HITS or len(hits) >= min(most, MOST_OFFSET):
                return Found(hits, int(answer["count"]), bool(answer["more"]))
    except UsageError as error:
        error.spots = _spots(error.message, condition)
        raise
    except (KeyError, TypeError, ValueError, AttributeError):
        raise remote.store.broken("the answer to a search is not valid") from None


def _spots(message: str, condition: str) -> list[Spot]:
    """Return where the condition is wrong, as far as the message of the hub says it."""
    place = re.match(r"condition:(\d{1,6}):(\d{1,6}): ", message)
    lines = condition.split("\n")
    if place is None or not 0 < int(place[1]) <= len(lines):
        return []
    line = lines[int(place[1]) - 1]
    return [Spot(message, line, " " * min(int(place[2]) - 1, len(line)) + "^")]


def _hit(record: Mapping[str, Any]) -> Hit:
    moment = datetime.datetime.fromisoformat(record["created"])
    texts = [str(record[key]) for key in ("author", "message")]
    task, license_ = (record[key] and str(record[key]) for key in ("task", "license"))
    if not is_hash(record["id"]) or not NAME.match(record["name"]):
        raise ValueError
    return Hit(
        id=record["id"],
        name=record["name"],
        number=int(record["number"]),
        created=(moment - _EPOCH) // datetime.timedelta(microseconds=1),
        author=texts[0],
        message=texts[1],
        task=task,
        license=license_,
        tags=[str(tag) for tag in record["tags"]],
        bytes=int(record["bytes"]),
        parameters=int(record["parameters"]),
        metrics={str(k): _figure(value) for k, value in record["metrics"].items()},
    )


def _figure(value: Any) -> float | None:
    if isinstance(value, str):
        return float_of(value)
    return None if value is None else float(value)
