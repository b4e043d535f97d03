"""Other ways to answer: the paper's tables, a row per node and edge of a version, and networkx."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import networkx as nx

from benchmarks.dql.queries import QUERY1, QUERY3, UNFILTERED, Timed

_TABLES = """
CREATE TABLE version (id INTEGER PRIMARY KEY, name TEXT, creation_time INTEGER);
CREATE TABLE node (
  version INTEGER, id INTEGER, name TEXT, op TEXT, variant TEXT, attrs TEXT,
  PRIMARY KEY (version, id)
) WITHOUT ROWID;
CREATE TABLE edge (
  version INTEGER, src INTEGER, dst INTEGER, PRIMARY KEY (version, src, dst)
) WITHOUT ROWID;
INSERT INTO version SELECT id, name, creation_time FROM interned.version;
INSERT INTO node SELECT v.id, n.pos, l.name, l.op, l.variant, l.attrs FROM interned.version v
  JOIN interned.node n USING (net_id) JOIN interned.layer l ON l.id = n.layer_id ORDER BY 1, 2;
INSERT OR IGNORE INTO edge SELECT v.id, e.src, e.dst FROM interned.version v
  JOIN interned.edge e USING (net_id) ORDER BY 1, 2, 3;
CREATE INDEX version_name ON version(name, creation_time);
CREATE INDEX version_time ON version(creation_time);
CREATE INDEX node_name ON node(name, version);
CREATE INDEX node_op ON node(op, variant, version);
CREATE INDEX edge_back ON edge(version, dst, src);
ANALYZE main;
"""


def paper(interned: Path, path: Path) -> sqlite3.Connection:
    """The same versions in the paper's tables, well indexed."""
    path.unlink(missing_ok=True)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = OFF")
    db.execute("PRAGMA synchronous = OFF")
    db.execute("ATTACH ? AS interned", (str(interned),))
    db.executescript(_TABLES)
    db.execute("DETACH interned")
    return db


def ask_paper(db: sqlite3.Connection, timed: Timed) -> int:
    assert timed.paper is not None
    first, second, version = timed.paper
    sql = (
        "SELECT v.id, v.name, v.creation_time FROM version v WHERE v.id IN (SELECT e.version"
        " FROM node a JOIN edge e ON e.version = a.version AND e.src = a.id"
        " JOIN node b ON b.version = e.version AND b.id = e.dst"
        f" WHERE {first} AND {second} AND a.version = v.id) AND {version}"
        " ORDER BY v.creation_time DESC"
    )
    joined = (
        "SELECT DISTINCT v.id, v.name, v.creation_time FROM version v"
        " JOIN node a ON a.version = v.id JOIN edge e ON e.version = a.version AND e.src = a.id"
        " JOIN node b ON b.version = e.version AND b.id = e.dst"
        f" WHERE {first} AND {second} AND {version} ORDER BY v.creation_time DESC"
    )
    return len(db.execute(joined if version == "1" else sql).fetchall())


Filter = Callable[[str, str, str], bool]
HOPS: dict[str, tuple[str, Filter, str]] = {
    # title: (SQL on versions, whether the first node's name is right, variant of the pool)
    QUERY1: (
        "name GLOB 'alexnet?*' AND creation_time > 1448150400000000",
        lambda name, *_: name in ("conv1", "conv3", "conv5"),
        "MAX",
    ),
    UNFILTERED: ("1", lambda name, *_: name in ("conv1", "conv3", "conv5"), "MAX"),
    QUERY3: ("name GLOB 'alexnet-avgv1*'", lambda name, *_: name.startswith("conv"), "AVG"),
}


def ask_networkx(db: sqlite3.Connection, title: str) -> int:
    """The versions by SQL, and a graph made of each one's network when it is looked at."""
    where, right, variant = HOPS[title]
    layers = {row[0]: row[1:] for row in db.execute("SELECT id, name, op, variant FROM layer")}
    hits = 0
    known: dict[int, bool] = {}
    for (net,) in db.execute(f"SELECT net_id FROM version WHERE {where}").fetchall():
        if net not in known:
            graph = _graph(db, net, layers)
            data = graph.nodes
            known[net] = any(
                data[after]["op"] == "POOL" and data[after]["variant"] == variant
                for before in graph
                if right(data[before]["name"], "", "")
                for after in graph.successors(before)
            )
        hits += known[net]
    return hits


def _graph(db: sqlite3.Connection, net: int, layers: dict[int, tuple[str, str, str]]) -> nx.DiGraph:
    graph = nx.DiGraph()
    for place, layer in db.execute("SELECT pos, layer_id FROM node WHERE net_id = ?", (net,)):
        name, op, variant = layers[layer]
        graph.add_node(place, name=name, op=op, variant=variant)
    graph.add_edges_from(db.execute("SELECT src, dst FROM edge WHERE net_id = ?", (net,)))
    return graph
