"""Sets of nodes as SQL: edge after edge, each end among the layers that are meant."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dlv.metadata import relations as r
from dlv.metadata.node_sets import Hop, Nodes, Pick
from dlv.metadata.select_layers import Layers, LayerSet, attributes, decided_by_layer
from dlv.metadata.select_scope import Expression, Range, Statement

_HOPS = 8  # in one go: SQLite joins 64 tables, and ways fork


@dataclass(frozen=True)
class Chain:
    """Tables and conditions that give a set of nodes; a node may come more than once."""

    tables: tuple[str, ...]
    conditions: tuple[str, ...]
    net: str
    pos: str
    layer: str
    once: bool = False  # each node comes but once
    empty: bool = False  # no network can have such a node

    def sql(self, columns: str, also: Sequence[str] = (), tables: Sequence[str] = ()) -> str:
        if self.empty:
            return f"SELECT {columns} FROM (SELECT 0 AS net_id, 0 AS pos, 0 AS layer_id) WHERE 0"
        where = " AND ".join((*self.conditions, *also)) or "1"
        return f"SELECT {columns} FROM {' CROSS JOIN '.join((*self.tables, *tables))} WHERE {where}"


_NOTHING = Chain((), (), "net_id", "pos", "layer_id", empty=True)


def layers_of(statement: Statement) -> Layers:
    found: Layers = statement.cache.setdefault("layers", Layers(statement))
    return found


def chain(
    statement: Statement, nodes: Nodes, net: str | None, last: LayerSet | None = None
) -> Chain:
    """The nodes of one network, or of all; `last`: layers that they have to be of besides."""
    ground = statement.ranges[nodes.variable].ground
    layers = layers_of(statement)
    base: Chain | None = None
    hops: list[Hop] = []
    filters = [[layers.of(ground, nodes.start)]]
    for step in nodes.steps:
        if isinstance(step, Hop):
            if len(hops) == _HOPS:
                found = _written(statement, ground, base, hops, filters, net)
                base, hops, filters = _gathered(statement, found), [], [[]]
            hops.append(step)
            filters.append([])
        elif isinstance(step, Pick):
            found = _written(statement, ground, base, hops, filters, net)
            base = _picked(statement, ground, found, step.place)
            hops, filters = [], [[]]
        else:
            filters[-1].append(layers.of(ground, step))
    if last is not None:
        filters[-1].append(last)
    return _written(statement, ground, base, hops, filters, net)


def _written(
    statement: Statement,
    ground: str,
    base: Chain | None,
    hops: Sequence[Hop],
    filters: Sequence[Sequence[LayerSet]],
    net: str | None,
) -> Chain:
    together = [_together(sets) for sets in filters]
    if (base and base.empty) or any(not each.ids for sets in together for each in sets):
        return _NOTHING
    tables: list[str] = []
    conditions: list[str] = []
    at = (base.net, base.pos, base.layer) if base else ("", "", "")
    if base:
        tables += base.tables
        conditions += base.conditions
    elif not hops:
        node = statement.name("n")
        tables.append(f"{ground}node AS {node}")
        at = (f"{node}.net_id", f"{node}.pos", f"{node}.layer_id")
        if net is not None:
            conditions.append(f"{at[0]} = {net}")
    for number, hop in enumerate(hops):
        edge = statement.name("e")
        tables.append(f"{_edges(ground, hop)} AS {edge}")
        near, far = ("src", "dst") if hop.forward else ("dst", "src")
        if at[0]:
            conditions += [f"{edge}.net_id = {at[0]}", f"{edge}.{near} = {at[1]}"]
        else:
            at = (f"{edge}.net_id", f"{edge}.{near}", f"{edge}.{near}_layer")
            if net is not None:
                conditions.append(f"{at[0]} = {net}")
        conditions += _among(statement, ground, at, together[number])
        at = (f"{edge}.net_id", f"{edge}.{far}", f"{edge}.{far}_layer")
    conditions += _among(statement, ground, at, together[-1])
    return Chain(tuple(tables), tuple(conditions), *at, once=not hops)


def _together(sets: Sequence[LayerSet]) -> list[LayerSet]:
    """As few sets as say the same: those without aliases narrow the others."""
    plain = [each.ids for each in sets if not each.aliased]
    if not plain:
        return list(sets)
    common = frozenset.intersection(*plain)
    return [each.among(common) for each in sets if each.aliased] or [LayerSet(common)]


def _edges(ground: str, hop: Hop) -> str:
    if not hop.raw:
        return f"{ground}edge"
    columns = "net_id, src, dst, src_layer, dst_layer"
    return (
        f"(SELECT {columns} FROM {ground}edge WHERE direct"
        f" UNION ALL SELECT {columns} FROM {ground}raw_edge)"
    )


def _among(
    statement: Statement, ground: str, at: tuple[str, str, str], sets: Sequence[LayerSet]
) -> list[str]:
    """That the layer is one of these; the unary + keeps indexes of layers out of it."""
    net, _, layer = at
    found = []
    for each in sets:
        found.append(f"+{layer} IN (SELECT id FROM {statement.ids(each.ids)})")
        if each.aliased and each.natives:
            node = statement.name("n")
            found.append(
                f"(+{layer} NOT IN (SELECT id FROM {statement.ids(each.aliased)})"
                f" OR NOT EXISTS (SELECT 1 FROM {ground}node AS {node}"
                f" WHERE {node}.net_id = {net} AND"
                f" +{node}.layer_id IN (SELECT id FROM {statement.ids(each.natives)})))"
            )
    return found


def _gathered(statement: Statement, found: Chain) -> Chain:
    """Each node once: there may be more ways to it than anyone would wait for."""
    if found.empty:
        return _NOTHING
    alias = statement.name("g")
    at = (f"{alias}.net_id", f"{alias}.pos", f"{alias}.layer_id")
    return Chain((f"({_distinct(found)}) AS {alias}",), (), *at, once=True)


def _distinct(found: Chain) -> str:
    return found.sql(
        f"DISTINCT {found.net} AS net_id, {found.pos} AS pos, {found.layer} AS layer_id"
    )


def _picked(statement: Statement, ground: str, found: Chain, place: int) -> Chain:
    if found.empty:
        return _NOTHING
    alias = statement.name("p")
    wanted = str(place + 1) if place >= 0 else f"among {place + 1:+}"
    order = rank(statement, ground, "net_id", "pos")
    table = (
        "(SELECT net_id, pos, layer_id FROM (SELECT net_id, pos, layer_id,"
        f" row_number() OVER (PARTITION BY net_id ORDER BY {order}) AS place,"
        f" count(*) OVER (PARTITION BY net_id) AS among FROM ({_distinct(found)}))"
        f" WHERE place = {wanted})"
    )
    at = (f"{alias}.net_id", f"{alias}.pos", f"{alias}.layer_id")
    return Chain((f"{table} AS {alias}",), (), *at, once=True)


def rank(statement: Statement, ground: str, net: str, pos: str) -> str:
    """SQL of a node's place in topological order."""
    key = "rank", ground
    if key not in statement.cache:
        statement.cache[key] = statement.function("dql_rank", _ranks(statement, ground))
    return f"{statement.cache[key]}({net}, {pos})"


def _ranks(statement: Statement, ground: str) -> Callable[[int, int], int]:
    """Nodes are mostly stored in this order; where they are not, their edges tell."""
    known: dict[int, list[int] | None] = {}

    def place(net: int, pos: int) -> int:
        if net not in known:
            edges = statement.db.rows(
                f"SELECT src, dst FROM {ground}edge WHERE net_id = ?1 AND direct"
                f" UNION ALL SELECT src, dst FROM {ground}raw_edge WHERE net_id = ?1",
                (net,),
            )
            known[net] = None
            if any(src >= dst for src, dst in edges):
                count = statement.db.value(
                    f"SELECT max(pos) + 1 FROM {ground}node WHERE net_id = ?", (net,)
                )
                known[net] = topological(count, edges)
        ranks = known[net]
        return pos if ranks is None else ranks[pos]

    return place


def topological(count: int, edges: Sequence[Sequence[int]]) -> list[int]:
    """The place of each node: producers first, otherwise as stored; cycles at the end."""
    waits = [0] * count
    users: list[list[int]] = [[] for _ in range(count)]
    for src, dst in {(src, dst) for src, dst in edges}:
        users[src].append(dst)
        waits[dst] += 1
    ready = [pos for pos in range(count) if not waits[pos]]
    order = []
    while ready:
        pos = heapq.heappop(ready)
        order.append(pos)
        for user in users[pos]:
            waits[user] -= 1
            if not waits[user]:
                heapq.heappush(ready, user)
    order += [pos for pos in range(count) if waits[pos]]
    places = [0] * count
    for place, pos in enumerate(order):
        places[pos] = place
    return places


# What is asked of such sets


def any_node(statement: Statement, nodes: Nodes, test: r.Condition | None, net: str) -> str:
    """Never null: a version without a network has none."""
    last, rest = _divided(statement, nodes, test)
    found = chain(statement, nodes, net, last)
    if found.empty:
        return "0"
    if rest is None:
        return f"EXISTS ({found.sql('1')})"
    return _tested(statement, nodes, found, rest)


def every_node(statement: Statement, nodes: Nodes, test: r.Condition, net: str) -> str:
    found = chain(statement, nodes, net)
    if found.empty:
        return "0"
    if decided_by_layer(test):
        range_ = statement.ranges[nodes.variable]
        good = layers_of(statement).fulfilling(range_.ground, None, test).ids
        bad = f"{found.layer} NOT IN (SELECT id FROM {statement.ids(good)})"
        other = f"EXISTS ({found.sql('1', [bad])})"
    else:
        other = _tested(statement, nodes, found, test, fails=True)
    again = chain(statement, nodes, net)
    return f"(EXISTS ({again.sql('1')}) AND NOT {other})"


def _divided(
    statement: Statement, nodes: Nodes, test: r.Condition | None
) -> tuple[LayerSet | None, r.Condition | None]:
    """What the layer decides, as a set of layers, and what is left to ask of each node."""
    if test is None:
        return None, None
    parts = test.parts if isinstance(test, r.All) else (test,)
    by_layer = tuple(part for part in parts if decided_by_layer(part))
    others = tuple(part for part in parts if not decided_by_layer(part))
    last = None
    if by_layer:
        ground = statement.ranges[nodes.variable].ground
        last = layers_of(statement).fulfilling(ground, None, r.All(by_layer))
    return last, r.All(others) if others else None


def _tested(
    statement: Statement, nodes: Nodes, found: Chain, test: r.Condition, *, fails: bool = False
) -> str:
    """That a node fulfils the test, or that one does not."""
    ground = statement.ranges[nodes.variable].ground
    layer, node = statement.name("l"), statement.name("n")
    with statement.node_at_hand(lambda name: _value(statement, name, layer, node)):
        condition = statement.condition(test, not fails)
    tables = [f"{ground}layer AS {layer}", f"{ground}node AS {node}"]
    also = [
        f"{layer}.id = {found.layer}",
        f"{node}.net_id = {found.net} AND {node}.pos = {found.pos}",
        f"({condition}) IS NOT TRUE" if fails else f"({condition})",
    ]
    return f"EXISTS ({found.sql('1', also, tables)})"


def _value(statement: Statement, name: str, layer: str, node: str) -> Expression:
    """JSON of an attribute of the node at hand."""
    match name:
        case "attrs":  # all of them; no attribute is called so
            return Expression(f"{layer}.attrs", "node")
        case "out_shape":
            return Expression(f"{node}.out_shape", "node")
        case "n_params":
            return Expression(f"CAST({node}.n_params AS TEXT)", "node")
        case "name" | "op":
            return Expression(f"json_quote({layer}.{name})", "node")
        case "alias" | "variant":
            return Expression(f"json_quote(nullif({layer}.{name}, ''))", "node")
    return Expression(f"dql_attribute({layer}.attrs, {statement.bind(name)})", "node")


def attribute(attrs: str, name: str) -> str | None:
    """For SQL: JSON of one attribute."""
    value = attributes(attrs).get(name)
    return None if value is None else json.dumps(value)


def fits(statement: Statement, condition: r.Fits) -> str:
    """Where the layer alone does not decide: that of the node at hand."""
    at_hand = statement.nodes[-1]
    named, op, variant, attrs = (at_hand(n).sql for n in ("name", "op", "variant", "attrs"))
    patterns = condition.patterns

    def fit(name: str, op: str, variant: str | None, attrs: str) -> int:
        given: Any = attributes(attrs)
        kind = None if variant is None else json.loads(variant)
        return int(any(p.fits(json.loads(op), kind, json.loads(name), given) for p in patterns))

    called = statement.function("dql_fits", fit)
    return f"{called}({named}, {op}, {variant}, {attrs})"


def count(statement: Statement, nodes: Nodes, net: str) -> str:
    found = chain(statement, nodes, net)
    if found.empty:
        return "abs(0)"  # to order by 0 would be by no column
    return f"({found.sql('count(*)' if found.once else f'count(DISTINCT {found.pos})')})"


def names(statement: Statement, nodes: Nodes, range_: Range) -> str:
    """A JSON list of the nodes' names in topological order."""
    found = chain(statement, nodes, range_.net)
    if found.empty:
        return "'[]'"
    layer = statement.name("l")
    inner = found.sql(
        f"DISTINCT {found.net} AS net_id, {found.pos} AS pos, {layer}.name AS name",
        [f"{layer}.id = {found.layer}"],
        [f"{range_.ground}layer AS {layer}"],
    )
    order = rank(statement, range_.ground, "net_id", "pos")
    return f"(SELECT json_group_array(name) FROM (SELECT name FROM ({inner}) ORDER BY {order}))"
