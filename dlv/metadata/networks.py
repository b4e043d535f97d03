"""Networks in the catalogue: interned layers, nodes, logical and raw edges, pair counts."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlv.canonical import dumps
from dlv.dataclass import dataclass
from dlv.metadata.database import Database, Row

if TYPE_CHECKING:
    from dlv.network.graph import Network


_AT_ONCE = 100  # rows of a statement, five values each


@dataclass(frozen=True)
class NodeFigures:
    """What is derived of one node: its output's shape and the parameters it owns."""

    out_shape: Sequence[int | str | None] | None
    parameters: int


def find(db: Database, network_hash: str, prefix: str = "") -> int | None:
    found: int | None = db.value(f"SELECT id FROM {prefix}net WHERE hash = ?", (network_hash,))
    return found


def insert(
    db: Database, network: Network, figures: Mapping[str, NodeFigures], prefix: str = ""
) -> int:
    """The row of this network, made with all that belongs to it if it is new.

    `prefix`: of the tables' names, for networks that are not in the catalogue to stay.
    """
    found = find(db, network.id, prefix)
    if found is not None:
        return found
    net_id = db.insert(
        f"INSERT INTO {prefix}net(hash, structure, n_nodes, n_params, depth) VALUES (?,?,?,?,?)",
        (
            network.id,
            network.structure,
            len(network.nodes),
            sum(figure.parameters for figure in figures.values()),
            0 if network.cyclic else network.depth(),
        ),
    )
    layers = _layers(db, network, prefix)
    position = {node.name: pos for pos, node in reversed([*enumerate(network.nodes)])}
    db.many(
        f"INSERT INTO {prefix}node(net_id, pos, layer_id, out_shape, n_params) VALUES (?,?,?,?,?)",
        [
            (net_id, pos, layers[pos], shape, _count(figures, node.name))
            for (pos, node), shape in zip(
                enumerate(network.nodes), _shapes(db, network, figures, prefix), strict=True
            )
        ],
    )
    logical = _once(
        (net_id, src, dst, edge.dst_port, layers[src], layers[dst], int(edge.direct))
        for edge in network.logical_edges()
        if (src := position.get(edge.src)) is not None
        and (dst := position.get(edge.dst)) is not None
    )
    _join_layers(db, [(row[4], row[5]) for row in logical], prefix)
    db.many(
        f"INSERT INTO {prefix}edge(net_id, src, dst, dst_port, src_layer, dst_layer, direct)"
        " VALUES (?,?,?,?,?,?,?)",
        logical,
    )
    db.many(
        f"INSERT INTO {prefix}raw_edge(net_id, src, dst, dst_port, src_layer, dst_layer)"
        " VALUES (?,?,?,?,?,?)",
        _once(
            (net_id, src, dst, edge.dst_port, layers[src], layers[dst])
            for edge in network.edges()
            if not edge.direct
            and (src := position.get(edge.src)) is not None
            and (dst := position.get(edge.dst)) is not None
        ),
    )
    _count_pairs(db, net_id, network, [(row[1], row[2]) for row in logical], prefix)
    _update_statistics(db, layers, [(row[4], row[5]) for row in logical], prefix)
    return net_id


def _once(rows: Iterable[Row]) -> list[Row]:
    """One row per edge: nodes of one name, a fault that is only warned of, would give more."""
    return list({row[:4]: row for row in rows}.values())


def _layers(db: Database, network: Network, prefix: str) -> list[int]:
    import dlv.network.graph as graph
    import dlv.network.patterns as patterns

    aliases = network.node_aliases()
    rows = []
    written: dict[str, str] = {}  # many layers have the same attributes
    for node in network.nodes:
        attributes = patterns.attributes_of(node)
        key = repr(attributes)
        attrs = written.get(key)
        if attrs is None:
            plain = {name: graph.plain(value) for name, value in attributes.items()}
            attrs = written[key] = dumps(plain).decode()
        rows.append((node.name, aliases.get(node.name, ""), node.op, node.variant or "", attrs))
    db.many(
        f"INSERT OR IGNORE INTO {prefix}layer(name, alias, op, variant, attrs) VALUES (?,?,?,?,?)",
        rows,
    )
    known: dict[Row, int] = {}
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        values = ",".join(["(?,?,?,?,?)"] * len(some))
        found = db.rows(
            f"WITH given(name, alias, op, variant, attrs) AS (VALUES {values})"
            " SELECT l.name, l.alias, l.op, l.variant, l.attrs, l.id FROM given"
            f" CROSS JOIN {prefix}layer AS l USING (name, alias, op, variant, attrs)",
            [value for row in some for value in row],
        )
        known.update((row[:5], row[5]) for row in found)
    return [known[row] for row in rows]


def _shapes(
    db: Database, network: Network, figures: Mapping[str, NodeFigures], prefix: str
) -> list[int | None]:
    """The row of each node's shape."""
    texts = [
        None if figure is None or figure.out_shape is None else json.dumps(list(figure.out_shape))
        for figure in (figures.get(node.name) for node in network.nodes)
    ]
    known: dict[str | None, int | None] = {None: None}
    for text in texts:
        if text not in known:
            db.execute(f"INSERT OR IGNORE INTO {prefix}shape(text) VALUES (?)", (text,))
            known[text] = db.value(f"SELECT id FROM {prefix}shape WHERE text = ?", (text,))
    return [known[text] for text in texts]


def _count(figures: Mapping[str, NodeFigures], name: str) -> int:
    return figures[name].parameters if name in figures else 0


def _count_pairs(
    db: Database, net_id: int, network: Network, edges: Sequence[tuple[int, int]], prefix: str
) -> None:
    kinds = [(node.op, node.variant or "") for node in network.nodes]
    pairs = Counter((*kinds[src], *kinds[dst]) for src, dst in edges)
    db.many(
        f"INSERT INTO {prefix}net_pair(src_op, src_variant, dst_op, dst_variant, net_id, n)"
        " VALUES (?,?,?,?,?,?)",
        [(*pair, net_id, n) for pair, n in pairs.items()],
    )


def _join_layers(db: Database, edges: Sequence[tuple[int, int]], prefix: str) -> None:
    db.many(
        f"INSERT INTO {prefix}layer_pair(src_layer, dst_layer, n) VALUES (?, ?, ?)"
        " ON CONFLICT(src_layer, dst_layer) DO UPDATE SET n = n + excluded.n",
        [(*pair, n) for pair, n in Counter(edges).items()],
    )


def _update_statistics(
    db: Database, layers: Sequence[int], edges: Sequence[tuple[int, int]], prefix: str
) -> None:
    out, into = Counter(src for src, _ in edges), Counter(dst for _, dst in edges)
    db.many(
        f"INSERT INTO {prefix}layer_stat(layer_id, n_nets, n_out, n_in) VALUES (?, 1, ?, ?)"
        " ON CONFLICT(layer_id) DO UPDATE SET n_nets = n_nets + 1,"
        " n_out = n_out + excluded.n_out, n_in = n_in + excluded.n_in",
        [(layer, out[layer], into[layer]) for layer in dict.fromkeys(layers)],
    )


def figures(db: Database, net_id: int) -> dict[str, Any]:
    """The figures kept of a network as a whole."""
    row = db.row(
        "SELECT hash, structure, n_nodes, n_params, depth FROM net WHERE id = ?", (net_id,)
    )
    return dict(zip(("hash", "structure", "nodes", "parameters", "depth"), row or (), strict=False))


# Derived networks beside those of the catalogue, in temporary tables that queries can ask

_PREFIX = "derived_"
_TABLES = (
    *("net", "layer", "shape", "node", "layer_pair", "edge", "raw_edge", "net_pair"),
    "layer_stat",
)
# What a table refers to would be looked for beside it.
_REFERENCES = re.compile(
    r",\s+FOREIGN KEY \([\w, ]+\) REFERENCES \w+\([\w, ]+\)| REFERENCES \w+\(\w+\)"
)
_FIRST = 1 << 40  # ids that no row of the catalogue has
_OF_SOURCE = (
    "name, number, creation_time, author, message, framework, dirty, scheme, state, tensors_id"
)


@dataclass(frozen=True)
class DerivedNetwork:
    """A network that was derived; `version`: the hash of the version that it comes from."""

    version: str
    network: Network
    figures: Mapping[str, NodeFigures]


def insert_derived(db: Database, derived: Sequence[DerivedNetwork]) -> int:
    """The number of the batch, for `relations.Derived`."""
    _make_tables(db)
    batch = 1 + int(db.value("SELECT max(batch) FROM derived_version") or 0)
    for place, each in enumerate(derived):
        net_id = insert(db, each.network, each.figures, _PREFIX)
        db.execute(
            f"INSERT INTO derived_version(hash, net_id, source_id, batch, place, {_OF_SOURCE})"
            f" SELECT ?, ?, id, ?, ?, {_OF_SOURCE} FROM version WHERE hash = ?",
            (each.network.id, net_id, batch, place, each.version),
        )
    db.execute(
        "UPDATE derived_version SET first_id = (SELECT min(other.id) FROM derived_version AS other"
        " WHERE other.hash = derived_version.hash) WHERE batch = ?",
        (batch,),
    )
    return batch


def _make_tables(db: Database) -> None:
    """Tables as those of the catalogue, but temporary: a reader may have them, too."""
    if db.value("SELECT 1 FROM temp.sqlite_schema WHERE name = 'derived_version'"):
        return
    for kind, name, table, sql in db.rows(
        "SELECT type, name, tbl_name, sql FROM main.sqlite_schema WHERE sql IS NOT NULL"
        " ORDER BY type DESC"
    ):
        if table in _TABLES:
            plain = _REFERENCES.sub("", sql)
            if kind == "table":
                plain = plain.replace(f"TABLE {name}", f"TABLE temp.{_PREFIX}{name}")
            else:
                plain = plain.replace(
                    f"INDEX {name} ON ", f"INDEX temp.{_PREFIX}{name} ON {_PREFIX}"
                )
            db.execute(plain)
    db.execute(
        "CREATE TABLE temp.derived_version(id INTEGER PRIMARY KEY, first_id INTEGER, hash TEXT,"
        f" net_id INTEGER, source_id INTEGER, batch INTEGER, place INTEGER, {_OF_SOURCE})"
    )
    db.execute(f"INSERT INTO derived_net VALUES ({_FIRST}, '', '', 0, 0, 0)")
    db.execute(f"INSERT INTO derived_layer VALUES ({_FIRST}, '', '', '', '', '{{}}')")
    db.execute(f"INSERT INTO derived_shape VALUES ({_FIRST}, '')")
    db.execute(f"INSERT INTO derived_version(id) VALUES ({_FIRST})")
    for table in _TABLES:
        db.execute(
            f"CREATE TEMP VIEW any_{table} AS"
            f" SELECT * FROM main.{table} UNION ALL SELECT * FROM {_PREFIX}{table}"
        )
    columns = f"id, hash, net_id, {_OF_SOURCE}"
    db.execute(
        f"CREATE TEMP VIEW any_version AS SELECT {columns}, id AS first_id, id AS source_id,"
        " NULL AS batch, NULL AS place FROM main.version WHERE state IN ('live', 'recovered')"
        f" UNION ALL SELECT {columns}, first_id, source_id, batch, place FROM derived_version"
        " WHERE batch IS NOT NULL"
    )
