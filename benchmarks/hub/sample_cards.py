"""Cards as a hub of many teams would have them, and what a search over them must find.

`Sample` fills the database of a hub. `expected` looks at every card in plain Python.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from dlv.canonical import hash_bytes
from dlv.hub.server import card_rows, tables, words
from dlv.hub.server.access import Caller
from dlv.hub.server.card_rows import NewCard
from dlv.hub.server.database import HubDatabase
from dlv.hub.server.search import Figure, Wanted
from dlv.metadata.cards import RANKED
from dlv.network.graph import Input, Network
from dlv.network.ops.op import Node
from dlv.network.vocabulary import complete

RARE = [f"w{i:x}" for i in range(5000)]
COMMON = ["model", "vision", "speech", "text", "small", "large", "fast", "tiny", "robust", "sparse"]
WORDS = [*COMMON, *RARE, "Zürich", "日本語", "e\u0301te\u0301", "zoom"]
# As in a language: the second word is half as frequent as the first, and so on.
SHARES = list(itertools.accumulate(1 / (i + 1) for i in range(len(WORDS))))
TASKS = ["image-classification", "text-generation", "translation", "object-detection", "Fill Mask"]
LICENSES = ["mit", "apache-2.0", "cc-by-4.0", None]
AUTHORS = [f"{first} {last}" for first in ("Ada", "Alan", "Grace", "Edsger", "Barbara", "Fei")
           for last in ("Lovelace", "Turing", "Hopper", "Liskov", "Li", "Zhang")]  # fmt: skip
METRICS = ["accuracy", "loss", "f1", "val/loss", "bleu"]
TIME = "2026-01-01T00:00:00.000000Z"


@dataclasses.dataclass
class Known:
    """One card, where it is, and in which order it came."""

    key: int
    repository: int
    record: dict[str, Any]
    layers: frozenset[str]


class Sample:
    """A hub with so many cards. Users 1.. own a namespace each; some repositories are private."""

    def __init__(self, seed: int, cards: int, *, users: int = 40, repositories: int = 400) -> None:
        self.rng = random.Random(seed)
        self.users, self.count = users, cards
        self.networks = [self._network(i) for i in range(max(20, min(2000, cards // 50)))]
        self.layers = {n.id: frozenset(card_rows.layers_of(n)) for n in self.networks}
        self.places = [self._place(i) for i in range(repositories)]
        self.members = sorted({(self.rng.randint(1, users), self.rng.randrange(repositories))
                               for _ in range(repositories // 4)})  # fmt: skip
        self.known: list[Known] = []

    def _place(self, number: int) -> dict[str, Any]:
        owner = self.rng.randint(1, self.users)
        visibility = "private" if self.rng.random() < 0.25 else "public"
        return {"id": number + 1, "namespace_id": owner, "visibility": visibility}

    def _network(self, number: int) -> Network:
        rng, nodes, before = self.rng, list[Node](), ("x", 0)
        for depth in range(rng.choice([3, 6, 12, 40])):
            name = f"{rng.choice(['conv', 'layer', 'block', 'head', 'encoder.layer'])}{depth}"
            op = rng.choice(["RELU", "SOFTMAX"])
            attrs = complete(op, None, {"axis": 1} if op == "SOFTMAX" else {})
            nodes.append(Node(name, op, attrs=attrs, inputs=(before,)))
            before = (name, 0)
        return Network((Input(f"x{number}", ("B", 8)),), tuple(
            dataclasses.replace(node, inputs=((f"x{number}", 0),)) if not i else node
            for i, node in enumerate(nodes)), (before,))  # fmt: skip

    def record(self, number: int) -> dict[str, Any]:
        rng = self.rng
        shown = rng.sample(COMMON, 4)
        network = rng.choice(self.networks) if rng.random() < 0.9 else None
        metrics = []
        for name in rng.sample(METRICS, rng.randint(0, 4)):
            for run in rng.choice([[""], [""], ["train", "test"]]):
                last, low, high = sorted(rng.random() for _ in range(3))
                last, low = rng.choice([(last, low), (low, last), ("NaN", low), (0.5, 0.25)])
                metrics.append({"run": run, "tag": name, "hash": "ab" * 32, "n": 3, "last_step": 3,
                                "last": last, "min": low, "min_step": 1, "max": high,
                                "max_step": 2, "nonfinite": 0})  # fmt: skip
        return {
            "id": hash_bytes(f"{number}".encode()),
            "name": f"{shown[0]}-{rng.choice(['net', 'Former', 'z']) }-{number // 20}",
            "number": 1 + number % 20,
            "author": rng.choice(AUTHORS),
            "created": f"2026-{1 + number % 12:02}-{1 + number % 28:02}T00:00:00.{number:06}Z",
            "message": " ".join(rng.choices(WORDS, cum_weights=SHARES, k=5)),
            "framework": rng.choice(["torch", "onnx", None]),
            "parents": [],
            "hyperparameters": {"lr": rng.choice([0.1, 0.01, 0.001]), "optimizer": "adam",
                                "epochs": rng.randint(1, 50)},
            "metrics": metrics,
            "network": None if network is None else network.id,
            "layers": [],
            "task": rng.choice([*TASKS, None]),
            "license": rng.choice(LICENSES),
            "tags": shown[2:],
            "bytes": rng.randrange(1 << 30),
            "parameters": rng.randrange(1000) << 10,
            "text": " ".join(rng.choices(WORDS, cum_weights=SHARES, k=60)) + f" number{number}",
        }  # fmt: skip

    def fill(self, *databases: HubDatabase) -> None:
        """Write the same cards to all databases."""
        for database in databases:
            with database.writing() as connection:
                self._fill_places(connection)
                card_rows.insert_networks(connection, self.networks)
        networks = {network.id: network for network in self.networks}
        for start in range(0, self.count, 1000):
            rows = []
            for number in range(start, min(start + 1000, self.count)):
                place, record = self.rng.choice(self.places)["id"], self.record(number)
                layers = self.layers.get(record["network"], frozenset())
                self.known.append(Known(len(self.known) + 1, place, record, layers))
                new = NewCard(record, "0" * 64, True, networks.get(record["network"]))
                rows.append((place, card_rows.rows_of(new)))
            for database in databases:
                with database.writing() as connection:
                    card_rows.insert(connection, rows)
        for database in databases:
            if database.is_postgres:
                with database.engine.connect().execution_options(
                    isolation_level="AUTOCOMMIT"
                ) as connection:
                    connection.exec_driver_sql("VACUUM ANALYZE")

    def _fill_places(self, connection: sa.Connection) -> None:
        accounts = [{"id": i, "name": f"user{i}", "kind": "user", "created": TIME}
                    for i in range(1, self.users + 1)]  # fmt: skip
        connection.execute(sa.insert(tables.account), accounts)
        rows = [{**place, "name": f"repo{place['id']}", "uuid": f"{place['id']:064x}",
                 "record": "{}", "created": TIME, "changed": TIME}
                for place in self.places]  # fmt: skip
        connection.execute(sa.insert(tables.repository), rows)
        members = [{"namespace_id": self.places[index]["namespace_id"], "user_id": user,
                    "repository_id": self.places[index]["id"] if index % 3 else None,
                    "role": "reader", "created": TIME} for user, index in self.members]  # fmt: skip
        connection.execute(sa.insert(tables.member), members)

    # What a search must find

    def readable(self, caller: Caller) -> set[int]:
        readable = {p["id"] for p in self.places if p["visibility"] == "public"}
        if caller.user_id is None:
            return readable
        own = set()
        for place in self.places:
            granted = caller.operator or place["namespace_id"] == caller.user_id
            for user, index in self.members:
                other = self.places[index]
                if user == caller.user_id and other["namespace_id"] == place["namespace_id"]:
                    granted = granted or not index % 3 or other is place
            inside = caller.in_scope(f"user{place['namespace_id']}", f"repo{place['id']}")
            if granted and inside:
                own.add(place["id"])
        return readable | own

    def expected(self, caller: Caller, wanted: Wanted, repository: int | None) -> list[Known]:
        """Return all cards that fit, in the order of the answer."""
        places = self.readable(caller) if repository is None else {repository}
        fits = [k for k in self.known if k.repository in places and _fits(k, wanted)]
        order = wanted.order
        fits.sort(key=lambda known: -known.key)
        if isinstance(order, Figure):
            with_values = [(known, _value(known, order)) for known in fits]
            having = [(known, value) for known, value in with_values if value is not None]
            sign = 1 if order.ascending else -1
            return [k for k, _ in sorted(having, key=lambda p: (sign * p[1], sign * p[0].key))]
        if order == "name":
            fits.sort(key=lambda k: (k.record["name"], k.record["number"], k.key))
        elif order is not None:
            fits.sort(key=lambda k: (k.record[order], k.key), reverse=True)
        elif any(word.plain for word in wanted.words):
            fits[:RANKED] = sorted(fits[:RANKED], key=lambda k: (-_score(k, wanted), -k.key))
        return fits


def _text(record: dict[str, Any], layers: Iterable[str]) -> tuple[list[str], list[list[str]]]:
    ranked = [
        list(words.split(text))
        for text in (record["name"], record["task"] or "", " ".join(record["tags"]),
                     record["message"])
    ]  # fmt: skip
    ops = {"relu", "softmax"}.intersection(layers)
    rest = [word for text in (record["author"], record["text"], *ops) for word in words.split(text)]
    return [word for line in ranked for word in line] + rest, ranked


def _has(texts: Sequence[str], code: str, prefix: bool) -> bool:
    return any(text.startswith(code) if prefix else text == code for text in texts)


def _fits(known: Known, wanted: Wanted) -> bool:
    record = known.record
    all_words, _ = _text(record, known.layers)
    for word in wanted.words:
        if word.plain:
            if not _has(all_words, word.code, word.prefix):
                return False
        elif not _has(_field_words(record, word.code[1]), word.code[2:], word.prefix):
            return False
    figures = list(card_rows.figures_of(record))
    operators = {"<": float.__lt__, "<=": float.__le__, ">": float.__gt__, ">=": float.__ge__,
                 "=": float.__eq__}  # fmt: skip
    for name, kind, op, value in wanted.compared:
        if not any(n == name and k in (kind, "setting") and operators[op](v, value)
                   for n, k, v in figures):  # fmt: skip
            return False
    return all(
        _has(list(known.layers), layer.rstrip("*"), layer.endswith("*")) for layer in wanted.layers
    )


def _field_words(record: dict[str, Any], letter: str) -> list[str]:
    values = {"n": [record["name"]], "k": [record["task"]], "l": [record["license"]],
              "t": record["tags"]}  # fmt: skip
    if letter == "u":
        return list(words.split(record["author"]))
    codes = [words.wanted_value("name", value) for value in values[letter] if value]
    return [word.code[2:] for (word,) in codes]


def _value(known: Known, order: Figure) -> float | None:
    values = [v for n, k, v in card_rows.figures_of(known.record)
              if n == order.name and k in (order.kind, "setting")]  # fmt: skip
    return (min if order.ascending else max)(values, default=None)


def _score(known: Known, wanted: Wanted) -> int:
    _, ranked = _text(known.record, known.layers)
    weights = (8, 5, 4, 2)
    score = 0
    for word in wanted.words:
        if word.plain:
            here = [w for line, w in zip(ranked, weights, strict=True)
                    if _has(line, word.code, word.prefix)]  # fmt: skip
            score += here[0] if here else 1
    return score


def some_search(rng: random.Random, cards: int) -> tuple[str, str | None]:
    """Return (text, sort) as somebody could type it."""
    one, other = rng.choices(WORDS, cum_weights=SHARES, k=2)
    common = rng.choice(COMMON)
    text = rng.choice([
        one, f"{one} {other}", f"{one} {other} {common}", f"number{rng.randrange(cards)}",
        f"{rng.choice(WORDS)[:3]}*", f"{common} w{rng.randrange(16):x}*",
        f'task:{rng.choice(["image-class*", "translation", "fill*"])} accuracy>{rng.random():.3f}',
        f"{one} net:conv* tag:{common} loss<0.3", f"name:{common}* license:mit {other}",
        f'author:{rng.choice(["ada", "li", "z*"])} {common}',
        f"lr=0.1 epochs>={rng.randint(40, 51)}", f"f1.max>{rng.random():.3f}",
        f"net:{rng.choice(['encoder*', 'softmax', 'head1', 'relu'])} {one}",
        f"accuracy>{rng.random():.3f} loss<{rng.random():.3f}", f"license:apache* tag:{common}", "",
        f'"task:fill mask" {common}', f"train/accuracy>{rng.random():.2f}",
        f"name:{common}-former-{rng.randrange(max(1, cards // 20))}",
    ])  # fmt: skip
    sort = rng.choice([None, None, None, "created", "name", "bytes", "parameters", "accuracy",
                       "loss", "f1.max:min", "lr", "epochs:min", "train/accuracy"])  # fmt: skip
    return text, sort


def some_caller(rng: random.Random, users: int) -> Caller:
    """Return somebody who searches."""
    user = rng.randint(1, users)
    return rng.choice([
        Caller(), Caller(), Caller(user_id=user, name=f"user{user}"),
        Caller(user_id=user, name=f"user{user}", operator=True),
        Caller(user_id=user, name=f"user{user}", namespace=f"user{rng.randint(1, users)}"),
        Caller(user_id=user, name=f"user{user}", namespace=f"user{user}", repository="repo3"),
    ])  # fmt: skip
