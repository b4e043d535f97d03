"""The rows of cards: what is written of a card so that it can be searched and shown."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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


@dataclass(frozen=True)
class Rows:
    """The rows of one card, all but its key and its repository."""

    card: dict[str, Any]
    text: dict[str, str]
    figures: list[tuple[str, str, float]]


def rows_of(new: NewCard) -> Rows:
    """Return what is written of a card."""
    record = new.record
    columns = ("name", "number", "created", "bytes", "parameters", "network")
    row = {key: record[key] for key in columns}
    row |= {"manifest": record["id"], "locator": new.locator, "whole": new.whole}
    operations = [] if new.network is None else [node.op for node in new.network.nodes]
    all_words, ranked = words.of_card(record, dict.fromkeys(operations))
    text = {"ranked": ranked, "words": all_words, "record": dumps(record).decode()}
    return Rows(row, text, sorted(set(figures_of(record))))


def insert(connection: sa.Connection, cards: Sequence[tuple[int, Rows]]) -> None:
    """Insert cards, each with the key of its repository; later ones get higher keys."""
    if not cards:
        return
    statement = sa.insert(tables.card).returning(tables.card.c.id, sort_by_parameter_order=True)
    rows = [{"repository_id": repository, **card_rows.card} for repository, card_rows in cards]
    keys = connection.execute(statement, rows).scalars().all()
    keyed = list(zip(keys, (card_rows for _, card_rows in cards), strict=True))
    texts = [{"card_id": key, **card_rows.text} for key, card_rows in keyed]
    connection.execute(sa.insert(tables.card_text), texts)
    figures = [
        {"card_id": key, "name": name, "kind": kind, "value": value}
        for key, card_rows in keyed
        for name, kind, value in card_rows.figures
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
