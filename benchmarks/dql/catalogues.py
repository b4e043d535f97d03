"""Catalogues of many versions, made by lot and written straight into the tables of the schema.

Networks are chains of blocks with some skips, of 50 to 500 nodes and about 119 in the mean; in
`shared` catalogues nine of ten versions have the network of another one. Nothing is stored beside
the catalogue: no manifests and no weights.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from dlv.canonical import dumps
from dlv.metadata.database import Database
from dlv.network.graph import plain
from dlv.network.vocabulary import complete

VERSION = 2  # of this recipe: catalogues of another one are made again
FAMILIES = {
    **{f"alexnet_{end}": 0.05 for end in "abcde"},
    **{f"alexnet-avgv1{end}": 0.05 for end in ("", "b", "c")},
    **{f"alexnet-origin{n}": 0.05 for n in (1, 2)},
    **{f"resnet{depth}": 0.1 for depth in (18, 34)},
    **{f"vgg{depth}": 0.075 for depth in (16, 19)},
    "lenet": 0.15,
}
_BEGIN = 1_388_534_400_000_000  # 2014
_SHAPES = 600  # as many as thousands of convolutional networks have
_SPAN = 3 * 365 * 86_400_000_000
_SLOW_TABLES = ("node", "edge", "net_pair", "layer_stat", "version", "parent", "metric", "net")
_CONV, _RELU, _NORM, _POOL, _ADD, _FULL, _DROP = range(7)


@dataclass(frozen=True)
class Recipe:
    versions: int
    shared: bool
    seed: int = 7

    @property
    def name(self) -> str:
        kind = "90 % shared" if self.shared else "nothing shared"
        return f"{self.versions // 1000}k, {kind}"

    @property
    def file(self) -> str:
        kind = "shared" if self.shared else "unshared"
        return f"dql{VERSION}-{self.versions}-{kind}-{self.seed}.sqlite"


class Layers:
    """Interned definitions of layers, with what is counted of each."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.ids: dict[tuple[int, int, int], int] = {}
        self.kinds: list[tuple[str, str]] = []
        self.nets: Counter[int] = Counter()
        self.out: Counter[int] = Counter()
        self.into: Counter[int] = Counter()
        self.pairs: Counter[tuple[int, int]] = Counter()

    def of(self, kind: int, number: int, choice: int) -> int:
        """The id of the number-th layer of a kind in a network, in one of its forms."""
        key = kind, number, choice
        found = self.ids.get(key)
        if found is None:
            found = self.ids[key] = len(self.rows)
            row = _definition(kind, number, choice)
            self.rows.append(row)
            self.kinds.append((row[2], row[3]))
        return found


def _definition(kind: int, number: int, choice: int) -> tuple[str, str, str, str, str]:
    """(name, alias, op, variant, attrs)"""
    sides = [3, 1, 5][choice % 3]
    forms: dict[int, tuple[str, str, str | None, dict[str, Any]]] = {
        _CONV: ("conv", "CONV", None, {"out": 32 << (choice // 3), "kernel": [sides, sides]}),
        _RELU: ("relu", "RELU", None, {}),
        _NORM: ("norm", "NORM", "BATCH", {}),
        _POOL: ("pool", "POOL", ("MAX", "AVG")[choice % 2], {"kernel": [2, 2], "stride": [2, 2]}),
        _ADD: ("add", "ADD", None, {}),
        _FULL: ("fc", "FULL", None, {"out": 10 << choice}),
        _DROP: ("drop", "DROPOUT", None, {"p": 0.5}),
    }
    name, op, variant, attrs = forms[kind]
    full = complete(op, variant, attrs, axes=2)
    text = dumps({key: plain(value) for key, value in full.items()}).decode()
    return f"{name}{number}", f"{op.lower()}{number}", op, variant or "", text


def _network(lot: Random, layers: Layers) -> tuple[list[int], list[tuple[int, int, int]]]:
    """The layers of its nodes, and its edges: (from, to, port)."""
    wanted = min(500, 50 + int(lot.expovariate(1 / 70)))
    nodes: list[int] = []
    edges: list[tuple[int, int, int]] = []
    count = [0] * 7
    relus, norms = lot.random() < 0.7, lot.random() < 0.6

    def add(kind: int, choice: int = 0, skip: int | None = None) -> None:
        count[kind] += 1
        place = len(nodes)
        nodes.append(layers.of(kind, count[kind], choice))
        if place:
            edges.append((place - 1, place, 0))
        if skip is not None:
            edges.append((skip, place, 1))

    while len(nodes) < wanted - 5:
        begun = len(nodes)
        add(_CONV, lot.randrange(12))
        drawn = lot.random()
        if drawn < 0.08:
            add(_POOL, int(drawn > 0.05))
            continue
        if norms:
            add(_NORM)
        if begun and drawn > 0.8:
            add(_ADD, 0, begun - 1)
        if relus or drawn > 0.5:
            add(_RELU)
        if drawn < 0.12:
            add(_POOL, int(drawn > 0.1))
    for _ in range(2):
        add(_FULL, lot.randrange(8))
        add(_DROP)
    add(_FULL, lot.randrange(8))
    return nodes, edges


def build(recipe: Recipe, folder: Path) -> Path:
    """The catalogue, made if it is not there yet."""
    path = folder / recipe.file
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    Database(fresh, wal=False).close()
    db = sqlite3.connect(fresh, isolation_level=None)
    db.execute("PRAGMA journal_mode = OFF")
    db.execute("PRAGMA synchronous = OFF")
    db.execute("PRAGMA foreign_keys = OFF")
    db.execute("PRAGMA cache_size = -400000")
    indexes = [
        (name, sql)
        for name, sql in db.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
        )
    ]
    for name, _ in indexes:
        db.execute(f"DROP INDEX {name}")
    db.execute("BEGIN")
    _fill(db, recipe)
    for _, sql in indexes:
        db.execute(sql)
    db.execute("COMMIT")
    db.close()
    fresh.replace(path)
    return path


def _fill(db: sqlite3.Connection, recipe: Recipe) -> None:
    lot = Random(recipe.seed)
    layers = Layers()
    count = recipe.versions // 10 if recipe.shared else recipe.versions
    for first in range(0, count, 500):
        _fill_networks(db, lot, layers, range(first, min(first + 500, count)))
    db.executemany(
        "INSERT INTO layer VALUES (?,?,?,?,?,?)",
        ((number + 1, *row) for number, row in enumerate(layers.rows)),
    )
    db.executemany(
        "INSERT INTO shape VALUES (?,?)",
        (
            (1 + n, f'["B", {32 + n // 24 * 8}, {4 + n % 24 * 4}, {4 + n % 24 * 4}]')
            for n in range(_SHAPES)
        ),
    )
    db.executemany(
        "INSERT INTO layer_pair VALUES (?,?,?)",
        ((src + 1, dst + 1, n) for (src, dst), n in sorted(layers.pairs.items())),
    )
    db.executemany(
        "INSERT INTO layer_stat VALUES (?,?,?,?)",
        (
            (layer + 1, nets, layers.out[layer], layers.into[layer])
            for layer, nets in layers.nets.items()
        ),
    )
    _fill_versions(db, lot, recipe, count)


def _fill_networks(db: sqlite3.Connection, lot: Random, layers: Layers, numbers: range) -> None:
    made = [(number + 1, *_network(lot, layers)) for number in numbers]
    db.executemany(
        "INSERT INTO net VALUES (?,?,?,?,?,?)",
        (
            (net, _hash("net", net), _hash("structure", net), len(nodes), 61_000_000, len(nodes))
            for net, nodes, _ in made
        ),
    )
    db.executemany(
        "INSERT INTO node VALUES (?,?,?,?,?)",
        (
            (net, place, layer + 1, 1 + layer % _SHAPES, 36928)
            for net, nodes, _ in made
            for place, layer in enumerate(nodes)
        ),
    )
    db.executemany(
        "INSERT INTO edge VALUES (?,?,?,?,?,?,1)",
        (
            (net, src, dst, port, nodes[src] + 1, nodes[dst] + 1)
            for net, nodes, edges in made
            for src, dst, port in sorted(edges)
        ),
    )
    kinds = layers.kinds
    db.executemany(
        "INSERT INTO net_pair VALUES (?,?,?,?,?,?)",
        (
            (*pair, net, n)
            for net, nodes, edges in made
            for pair, n in Counter(
                (*kinds[nodes[src]], *kinds[nodes[dst]]) for src, dst, _ in edges
            ).items()
        ),
    )
    for _, nodes, edges in made:
        layers.nets.update(set(nodes))
        layers.pairs.update((nodes[src], nodes[dst]) for src, dst, _ in edges)
        layers.out.update(nodes[src] for src, _, _ in edges)
        layers.into.update(nodes[dst] for _, dst, _ in edges)


def _fill_versions(db: sqlite3.Connection, lot: Random, recipe: Recipe, networks: int) -> None:
    names, weights = list(FAMILIES), list(FAMILIES.values())
    numbers: Counter[str] = Counter()
    drawn: list[tuple[Any, ...]] = []
    for key in range(1, recipe.versions + 1):
        name = lot.choices(names, weights)[0]
        numbers[name] += 1
        net = lot.randint(1, networks) if recipe.shared else key
        drawn.append((key, name, numbers[name], net, _BEGIN + lot.randrange(_SPAN)))
    db.executemany(
        "INSERT INTO version(id, hash, name, number, net_id, creation_time, author, message,"
        " framework, dirty) VALUES (?,?,?,?,?,?,'Ada <ada@example.org>','trained','torch',0)",
        ((key, _hash("version", key), *rest) for key, *rest in drawn),
    )
    db.executemany("INSERT INTO parent VALUES (?, 0, ?, NULL, 'commit')", _parents(lot, recipe))
    db.executemany(
        "INSERT INTO metric VALUES (?,?,'',?,100,10000,?,?,9000,?,1,0)",
        (
            (key, tag, bytes.fromhex(_hash(tag, key)), last, last * 0.9, last * 1.5)
            for key, *_ in drawn
            for tag in ("accuracy", "loss")
            for last in [lot.random()]
        ),
    )
    db.executemany(
        "INSERT INTO hyperparameter VALUES (?,?,?,?,?)",
        (
            row
            for key, *_ in drawn
            for size in [lot.choice((16, 32, 64, 128))]
            for row in (
                (key, "batch_size", "int", size, str(size)),
                (key, "lr", "float", lot.choice((0.1, 0.01, 0.001, 0.0001)), None),
                (key, "optimizer", "str", None, lot.choice(("adam", "sgd", "adamw"))),
            )
        ),
    )


def _parents(lot: Random, recipe: Recipe) -> Iterator[tuple[int, int]]:
    """Trees: most versions come from one of the two hundred before them."""
    for key in range(2, recipe.versions + 1):
        if lot.random() < 0.97:
            base = lot.randint(max(1, key - 200), key - 1)
            yield key, base


def _hash(kind: str, key: int) -> str:
    return hashlib.blake2b(f"{kind} {key}".encode(), digest_size=32).hexdigest()


def figures(path: Path) -> dict[str, Any]:
    """What is in a catalogue, and how large it is."""
    with sqlite3.connect(path) as db:

        def one(sql: str) -> Any:
            return db.execute(sql).fetchone()[0]

        versions = one("SELECT count(*) FROM version")
        found = {
            "versions": versions,
            "networks": one("SELECT count(*) FROM net"),
            "nodes per network": one("SELECT round(avg(n_nodes), 1) FROM net"),
            "layers": one("SELECT count(*) FROM layer"),
            "bytes per version": path.stat().st_size // versions,
        }
    db.close()
    return found
