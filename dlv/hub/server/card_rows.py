"""The rows of cards: what is written of a card so that it can be searched and shown."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from dlv.canonical import NON_FINITE, dumps
from dlv.dataclass import dataclass
from dlv.hub.server import tables, words
from dlv.metadata.metrics import typed
from dlv.network.graph import Network
from dlv.pas.coders.zstd import ZstdCodec

MOST_NAME = 200  # characters of names of figures and layers
MOST_LAYERS = 5000  # names of one network


@dataclass(frozen=True)
class NewCard:
    """A card that is to be written. `whole`: made from all that the version has."""

    record: Mapping[str, Any]
    locator: str
    whole: bool
    network: Network | None = None


def insert(connection: sa.Connection, repository_id: int, cards: Iterable[NewCard]) -> None:
    """Insert cards of one repository."""
    for new in cards:
        record = new.record
        key = connection.execute(
            sa.insert(tables.card).values(
                repository_id=repository_id,
                manifest=record["id"],
                locator=new.locator,
                whole=new.whole,
                name=record["name"],
                number=record["number"],
                created=record["created"],
                bytes=record["bytes"],
                parameters=record["parameters"],
                network=record["network"],
            )
        ).inserted_primary_key[0]
        operations = [] if new.network is None else [node.op for node in new.network.nodes]
        all_words, ranked = words.of_card(record, dict.fromkeys(operations))
        text = {"ranked": ranked, "words": all_words, "record": dumps(record).decode()}
        connection.execute(sa.insert(tables.card_text).values(card_id=key, **text))
        figures = [
            {"card_id": key, "name": name, "kind": kind, "value": value}
            for name, kind, value in sorted(set(figures_of(record)))
        ]
        if figures:
            connection.execute(sa.insert(tables.card_figure), figures)


def figures_of(record: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Yield (name, kind, value) of what can be compared; NaN fulfils no comparison."""
    for summary in record["metrics"]:
        run, tag = summary["run"], summary["tag"]
        for name in {tag, f"{run}/{tag}" if run else tag}:
            for kind in ("last", "min", "max"):
                value = summary[kind]
                value = NON_FINITE[value] if isinstance(value, str) else value
                if value is not None and not math.isnan(value) and len(name) <= MOST_NAME:
                    yield words.clean(name, MOST_NAME), kind, float(value)
    for name, setting in record["hyperparameters"].items():
        number = typed(setting)[1]
        if number is not None and len(name) <= MOST_NAME:
            yield words.clean(name, MOST_NAME), "setting", number


def insert_networks(connection: sa.Connection, networks: Iterable[Network]) -> None:
    """Insert networks that are not there yet; all processes do so in the same order."""
    for network in sorted(networks, key=lambda network: network.id):
        known = sa.select(tables.network.c.hash).where(tables.network.c.hash == network.id)
        if connection.execute(known).first() is not None:
            continue
        data = ZstdCodec("text").encode(dumps(network.canonical()))
        # Another process can insert the same network now.
        connection.execute(
            sa.text(
                "INSERT INTO network(hash, record) VALUES (:hash, :data) ON CONFLICT DO NOTHING"
            ),
            {"hash": network.id, "data": data},
        )
        connection.execute(
            sa.text(
                "INSERT INTO network_layer(network, layer) VALUES (:network, :layer)"
                " ON CONFLICT DO NOTHING"
            ),
            [{"network": network.id, "layer": layer} for layer in layers_of(network)],
        )


def layers_of(network: Network) -> list[str]:
    """Return operations and names of layers as they are looked up."""
    texts = [text for node in network.nodes for text in (node.op, node.name)]
    names = {words.clean(text.lower(), MOST_NAME) for text in texts}
    return sorted(names)[:MOST_LAYERS]


def delete(connection: sa.Connection, keys: Collection[int]) -> None:
    """Delete cards by their keys."""
    if keys:
        connection.execute(sa.delete(tables.card).where(tables.card.c.id.in_(keys)))


def load(record: str) -> dict[str, Any]:
    """Return a stored record."""
    value: dict[str, Any] = json.loads(record)
    return value
