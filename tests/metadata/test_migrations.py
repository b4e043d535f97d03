"""A catalogue of schema 3, with all that its tables can hold, is brought up row by row."""

from __future__ import annotations

import math
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dlv.canonical import hash_bytes
from dlv.errors import Damaged
from dlv.metadata import dump, metrics, networks
from dlv.metadata.database import SCHEMA_VERSION, Database
from dlv.metadata.metrics import Summary
from tests.metadata.made_up import CROSSED, PLAIN, TORCH, Catalogue
from tests.metadata.test_networks import random_network

# What schema 3 said where schema 4 says something else.
_BEFORE = {
    "node": [("out_shape INTEGER REFERENCES shape(id)", "out_shape TEXT")],
    "edge": [
        ("src_layer INTEGER NOT NULL", "src_layer INTEGER NOT NULL REFERENCES layer(id)"),
        ("dst_layer INTEGER NOT NULL", "dst_layer INTEGER NOT NULL REFERENCES layer(id)"),
        (
            ",\n  FOREIGN KEY (src_layer, dst_layer) REFERENCES layer_pair(src_layer, dst_layer)",
            "",
        ),
    ],
    "parent": [
        ("base_hash TEXT,  -- of one that is not here", "base_hash TEXT NOT NULL,"),
        (",\n  CHECK ((base IS NULL) != (base_hash IS NULL))", ""),
    ],
    "metric": [("series_hash BLOB NOT NULL", "series_hash TEXT NOT NULL")],
}
_VALUES = {
    "out_shape": "(SELECT text FROM shape WHERE id = out_shape)",
    "base_hash": "ifnull(base_hash, (SELECT hash FROM version WHERE id = base))",
    "series_hash": "lower(hex(series_hash))",
}
_INDEXES = """
CREATE INDEX node_layer ON node(layer_id, net_id);
CREATE INDEX edge_pair ON edge(src_layer, dst_layer, net_id);
CREATE INDEX edge_rpair ON edge(dst_layer, src_layer, net_id);
CREATE INDEX net_pair_src ON net_pair(src_op, src_variant, dst_op, dst_variant, net_id);
CREATE INDEX parent_base ON parent(base, derived);
CREATE INDEX parent_base_hash ON parent(base_hash);
DROP INDEX hyperparameter_txt;
CREATE INDEX hyperparameter_txt ON hyperparameter(key, txt, version_id);
CREATE INDEX metric_last ON metric(tag, last, version_id);
CREATE INDEX metric_min ON metric(tag, min, version_id);
CREATE INDEX metric_max ON metric(tag, max, version_id);
"""


def of_schema_3(path: Path) -> None:
    with closing(sqlite3.connect(path)) as plain, plain:
        for table, changes in _BEFORE.items():
            text = plain.execute(
                "SELECT sql FROM sqlite_schema WHERE name = ?", (table,)
            ).fetchone()[0]
            for now, before in changes:
                assert now in text
                text = text.replace(now, before)
            columns = [row[1] for row in plain.execute(f"PRAGMA table_info({table})")]
            values = ", ".join(_VALUES.get(column, column) for column in columns)
            held = plain.execute(f"SELECT {values} FROM {table}").fetchall()
            plain.execute(f"DROP TABLE {table}")
            plain.execute(text)
            plain.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", held)
        plain.execute("DROP TABLE layer_pair")
        plain.execute("DROP TABLE shape")
        for index in _INDEXES.strip().splitlines():
            plain.execute(index)
        plain.execute("PRAGMA user_version = 3")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Parents that are not there, nodes without a shape, series without points."""
    lot = random.Random(3)
    made = Catalogue(Database(tmp_path / "dlv.db"))
    for number in range(30):
        network = lot.choice([None, PLAIN, TORCH, CROSSED, random_network(lot, 9)])
        parents = [f"v{lot.randrange(number)}"] if number % 3 else ["elsewhere"] * (number % 2)
        series = {"a/loss": lot.choice((math.nan, 0.5)), "loss": 1.0}
        made.add(f"v{number}", network=network, parents=parents, parameters={"lr": "x", "n": 1},
            series=series, tags=[f"t{number}"])  # fmt: skip
    networks.insert(made.db, random_network(lot, 12), {})
    metrics.insert(made.db, 1, [Summary("", "without points", hash_bytes(b"x"), 0)])
    made.db.close()
    return tmp_path / "dlv.db"


def test_every_row_is_as_it_was(path: Path) -> None:
    db = Database(path)
    before = dump.content(db)
    assert all(before[name] for name in ("node", "edge", "raw_edge", "layer_pair", "metric"))
    assert {row[2] is None for row in before["parent"]} == {True, False}
    assert {row[-2] is None for row in before["node"]} == {True, False}
    db.close()
    of_schema_3(path)
    for _ in range(2):
        db = Database(path, create=False)
        assert db.value("PRAGMA user_version") == SCHEMA_VERSION
        assert db.as_made()
        assert dump.content(db) == before
        assert dump.integrity(db) == []
        assert db.value("PRAGMA freelist_count") == 0
        db.close()


def test_a_former_hash_that_is_none(path: Path) -> None:
    of_schema_3(path)
    with closing(sqlite3.connect(path)) as plain, plain:
        plain.execute("UPDATE metric SET series_hash = 'nonsense' WHERE version_id = 1")
    with pytest.raises(Damaged, match="catalogue is damaged"):
        Database(path)
    with closing(sqlite3.connect(path)) as plain:
        assert plain.execute("PRAGMA user_version").fetchone() == (3,)
