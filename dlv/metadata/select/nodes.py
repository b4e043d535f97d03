"""Sets of nodes as SQL: edge after edge, each end among the layers that are meant."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dlv.dataclass import dataclass
from dlv.metadata.select import relations as r
from dlv.metadata.select.layers import Layers, LayerSet, attributes, decided_by_layer
from dlv.metadata.select.relations import Hop, Nodes, Pick
from dlv.metadata.select.scope import Expression, Range, Statement, encoded
from dlv.network.order import topological


def topological_rank(statement: Statement, ground: str, net: str, pos: str) -> str:
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
                known[net] = places_of(count, edges)
        ranks = known[net]
        return pos if ranks is None else ranks[pos]

    return place


def places_of(count: int, edges: Sequence[Sequence[int]]) -> list[int]:
    """The place of each node: producers first, otherwise as stored; cycles at the end."""
    producers: list[list[int]] = [[] for _ in range(count)]
    for src, dst in edges:
        producers[dst].append(src)
    order = topological(producers)
    done = set(order)
    order += [pos for pos in range(count) if pos not in done]
    places = [0] * count
    for place, pos in enumerate(order):
        places[pos] = place
    return places


_COLUMNS = "net_id, src, dst, src_layer, dst_layer"
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
    plumbing: bool = False  # some may be nodes that only reshape
    empty: bool = False  # no network can have such a node
    before: tuple[str, ...] = ()  # steps on the way, each `name AS (..)`: SQLite nests but few

    def sql(self, columns: str, also: Sequence[str] = (), tables: Sequence[str] = ()) -> str:
        if self.empty:
            return f"SELECT {columns} FROM (SELECT 0 AS net_id, 0 AS pos, 0 AS layer_id) WHERE 0"
        where = " AND ".join((*self.conditions, *also)) or "1"
        before = f"WITH RECURSIVE {', '.join(self.before)} " if self.before else ""
        joined = " CROSS JOIN ".join((*self.tables, *tables))
        return f"{before}SELECT {columns} FROM {joined} WHERE {where}"


_NOTHING = Chain((), (), "net_id", "pos", "layer_id", empty=True)


def layers_of(statement: Statement) -> Layers:
    found: Layers = statement.cache.setdefault("layers", Layers(statement))
    return found


Segment = tuple[list[Hop], list[list[LayerSet]]]  # between two breaks; sets at each place


def _breaks(step: r.Step) -> bool:
    """Whether what comes before is found first, and what goes on from there by itself."""
    return isinstance(step, Pick) or (isinstance(step, Hop) and step.closure)


def segments(statement: Statement, nodes: Nodes, last: LayerSet | None = None) -> list[Segment]:
    """What lies before the first pick or closure, between them, and behind the last one."""
    ground = statement.ranges[nodes.variable].ground
    layers = layers_of(statement)
    filters: list[list[LayerSet]] = [[layers.of(ground, nodes.start)]]
    found: list[Segment] = [([], filters)]
    for step in nodes.steps:
        hops, filters = found[-1]
        if _breaks(step):
            found.append(([], [[]]))
        elif isinstance(step, Hop):
            hops.append(step)
            filters.append([])
        else:
            assert not isinstance(step, Pick)
            filters[-1].append(layers.of(ground, step))
    if last is not None:
        found[-1][1][-1].append(last)
    return [(hops, [_together(sets) for sets in filters]) for hops, filters in found]


def chain(
    statement: Statement, nodes: Nodes, net: str | None, last: LayerSet | None = None
) -> Chain:
    """The nodes of one network, or of all; `last`: layers that they have to be of besides."""
    ground = statement.ranges[nodes.variable].ground
    breaks = [step for step in nodes.steps if _breaks(step)]
    found: Chain | None = None
    for number, (hops, filters) in enumerate(segments(statement, nodes, last)):
        if found is not None:
            step = breaks[number - 1]
            if isinstance(step, Pick):
                found = _picked(statement, ground, found, step.place)
            else:
                assert isinstance(step, Hop)
                found = _reached(statement, ground, found, step)
        for start in range(0, max(len(hops), 1), _HOPS):
            if start and found is not None:
                found = _gathered(statement, found)
            end = start + len(hops[start : start + _HOPS])
            some = [[], *filters[start + 1 : end + 1]] if start else filters[: end + 1]
            found = _written(statement, ground, found, hops[start:end], some, net)
    assert found is not None
    return found


def _written(
    statement: Statement,
    ground: str,
    base: Chain | None,
    hops: Sequence[Hop],
    filters: Sequence[Sequence[LayerSet]],
    net: str | None,
) -> Chain:
    if (base and base.empty) or any(not each.ids for sets in filters for each in sets):
        return _NOTHING
    tables: list[str] = []
    conditions: list[str] = []
    at = (base.net, base.pos, base.layer) if base else ("", "", "")
    if base:
        tables += base.tables
        conditions += base.conditions
    elif not hops:
        node = statement.name("n")
        tables.append(f"{_table(ground, 'node', net)} AS {node}")
        at = (f"{node}.net_id", f"{node}.pos", f"{node}.layer_id")
        if net is not None:
            conditions.append(f"{at[0]} = {net}")
    plumbing = base is not None and base.plumbing
    for number, hop in enumerate(hops):
        edge = statement.name("e")
        from_plumbing = reaches_plumbing(statement, ground, filters[number], plumbing)
        table = edges_table(ground, hop, net)
        if from_plumbing and not hop.raw:
            both = [
                f"SELECT {_COLUMNS} FROM {table}",
                *ways_at_plumbing(statement, ground, hop, net),
            ]
            table = f"({' UNION ALL '.join(both)})"
        tables.append(f"{table} AS {edge}")
        plumbing = hop.raw
        near, far = ("src", "dst") if hop.forward else ("dst", "src")
        if at[0]:
            conditions += [f"{edge}.net_id = {at[0]}", f"{edge}.{near} = {at[1]}"]
        else:
            at = (f"{edge}.net_id", f"{edge}.{near}", f"{edge}.{near}_layer")
            if net is not None:
                conditions.append(f"{at[0]} = {net}")
        conditions += among(statement, ground, at, filters[number])
        at = (f"{edge}.net_id", f"{edge}.{far}", f"{edge}.{far}_layer")
    conditions += among(statement, ground, at, filters[-1])
    before = base.before if base else ()
    plumbing = reaches_plumbing(statement, ground, filters[-1], plumbing or not (base or hops))
    return Chain(
        tuple(tables), tuple(conditions), *at, once=not hops, plumbing=plumbing, before=before
    )


def reaches_plumbing(
    statement: Statement, ground: str, sets: Sequence[LayerSet], otherwise: bool
) -> bool:
    """Whether nodes of such layers may only reshape; `otherwise`: where no layers are asked for."""
    if not sets:
        return otherwise
    reshaping, _ = layers_of(statement).plumbing(ground)
    return all(reshaping & each.ids for each in sets)


def _together(sets: Sequence[LayerSet]) -> list[LayerSet]:
    """As few sets as say the same: those without aliases narrow the others."""
    plain = [each.ids for each in sets if not each.aliased]
    if not plain:
        return list(sets)
    common = frozenset.intersection(*plain)
    return [each.among(common) for each in sets if each.aliased] or [LayerSet(common)]


def _table(ground: str, word: str, net: str | None, columns: str = "*") -> str:
    """SQLite would put both tables together before it looks for the one network."""
    if ground != "any_" or net is None:
        return f"{ground}{word}"
    return (
        f"(SELECT {columns} FROM {word} WHERE net_id = {net}"
        f" UNION ALL SELECT {columns} FROM derived_{word} WHERE net_id = {net})"
    )


def edges_table(ground: str, hop: Hop, net: str | None) -> str:
    if not hop.raw:
        return _table(ground, "edge", net)
    where = "1" if net is None else f"net_id = {net}"
    grounds = ("", "derived_") if ground == "any_" else (ground,)
    return "({})".format(
        " UNION ALL ".join(
            f"SELECT {_COLUMNS} FROM {each}edge WHERE direct AND {where}"
            f" UNION ALL SELECT {_COLUMNS} FROM {each}raw_edge WHERE {where}"
            for each in grounds
        )
    )


def ways_at_plumbing(statement: Statement, ground: str, hop: Hop, net: str | None) -> list[str]:
    """What a hop from plumbing needs beside the edges of layers: ways past plumbing, as selects.

    Data goes into plumbing by its first input, and no way leads through what holds sizes.
    """
    reshaping, sizes = (statement.ids(ids) for ids in layers_of(statement).plumbing(ground))
    along = f"(e.dst_layer NOT IN {reshaping} OR (e.dst_port = 0 AND e.dst_layer NOT IN {sizes}))"
    begin, end = f"e.src_layer IN {reshaping} AND {along}", f"dst_layer NOT IN {reshaping}"
    if not hop.forward:
        along, end = f"e.dst_layer IN {reshaping} AND e.dst_port = 0", "1"
        begin = f"e.src_layer NOT IN {reshaping} AND {along}"
    found = []
    here = "1" if net is None else f"e.net_id = {net}"
    for each in ("", "derived_") if ground == "any_" else (ground,):
        way = statement.name("way")
        found.append(
            f"SELECT * FROM (WITH RECURSIVE {way}({_COLUMNS}) AS ("
            f"SELECT e.net_id, e.src, e.dst, e.src_layer, e.dst_layer FROM {each}raw_edge AS e"
            f" WHERE {here} AND {begin}"
            f" UNION SELECT w.net_id, w.src, e.dst, w.src_layer, e.dst_layer FROM {way} AS w"
            f" CROSS JOIN {each}raw_edge AS e ON e.net_id = w.net_id AND e.src = w.dst WHERE"
            f" w.dst_layer IN {reshaping} AND w.dst_layer NOT IN {sizes} AND {along})"
            f" SELECT {_COLUMNS} FROM {way} WHERE {end})"
        )
    return found


def among(
    statement: Statement,
    ground: str,
    columns: tuple[str, str, str],
    sets: Sequence[LayerSet],
    *,
    first: bool = False,
) -> list[str]:
    """That the layer is one of these; the unary + keeps indexes of layers out of it.

    `first`: by an index it is already one of the first set.
    """
    net, _, layer = columns
    found = []
    for each in sets:
        if not first or each is not sets[0]:
            found.append(f"+{layer} IN {statement.ids(each.ids)}")
        if each.aliased and each.natives:
            node = statement.name("n")
            found.append(
                f"(+{layer} NOT IN {statement.ids(each.aliased)}"
                f" OR NOT EXISTS (SELECT 1 FROM {_table(ground, 'node', net)} AS {node}"
                f" WHERE {node}.net_id = {net} AND"
                f" +{node}.layer_id IN {statement.ids(each.natives)}))"
            )
    return found


def _gathered(statement: Statement, chain: Chain) -> Chain:
    """Each node once: there may be more ways to it than anyone would wait for."""
    if chain.empty:
        return _NOTHING
    return _step(statement, chain, _distinct(chain))


def _step(statement: Statement, chain: Chain, sql: str) -> Chain:
    name = statement.name("step")
    at = (f"{name}.net_id", f"{name}.pos", f"{name}.layer_id")
    before = (*chain.before, f"{name} AS ({sql})")
    return Chain((name,), (), *at, once=True, plumbing=chain.plumbing, before=before)


def _distinct(chain: Chain) -> str:
    return replace(chain, before=()).sql(
        f"DISTINCT {chain.net} AS net_id, {chain.pos} AS pos, {chain.layer} AS layer_id"
    )


def _picked(statement: Statement, ground: str, chain: Chain, place: int) -> Chain:
    if chain.empty:
        return _NOTHING
    every = _step(statement, chain, _distinct(chain))
    order = topological_rank(statement, ground, "net_id", "pos")
    counted = _step(
        statement,
        every,
        "SELECT net_id, pos, layer_id,"
        f" row_number() OVER (PARTITION BY net_id ORDER BY {order}) AS place,"
        f" count(*) OVER (PARTITION BY net_id) AS among FROM {every.tables[0]}",
    )
    wanted = str(place + 1) if place >= 0 else f"among {place + 1:+}"
    return _step(
        statement,
        counted,
        f"SELECT net_id, pos, layer_id FROM {counted.tables[0]} WHERE place = {wanted}",
    )


def _reached(statement: Statement, ground: str, chain: Chain, hop: Hop) -> Chain:
    """Every node that can be reached from these, once; RESHAPE nodes are skipped as in `.next`."""
    if chain.empty:
        return _NOTHING
    start = _step(statement, chain, _distinct(chain))
    near, far = ("src", "dst") if hop.forward else ("dst", "src")
    edge, name = _table(ground, "edge", None), statement.name("reach")
    first = edge
    if chain.plumbing:
        both = [f"SELECT {_COLUMNS} FROM {edge}", *ways_at_plumbing(statement, ground, hop, None)]
        first = f"({' UNION ALL '.join(both)})"
    there = f"e.net_id, e.{far}, e.{far}_layer"
    ways = [
        f"SELECT {there} FROM {begin} AS b CROSS JOIN {along} AS e"
        f" ON e.net_id = b.net_id AND e.{near} = b.pos"
        for begin, along in ((start.tables[0], first), (name, edge))
    ]
    at = (f"{name}.net_id", f"{name}.pos", f"{name}.layer_id")
    before = (*start.before, f"{name}(net_id, pos, layer_id) AS ({' UNION '.join(ways)})")
    return Chain((name,), (), *at, once=True, before=before)


# What is asked of such sets


def any_node(statement: Statement, nodes: Nodes, test: r.Condition | None, net: str) -> str:
    """Never null: a version without a network has none."""
    last, rest = divided(statement, nodes, test)
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
        bad = f"{found.layer} NOT IN {statement.ids(good)}"
        other = f"EXISTS ({found.sql('1', [bad])})"
    else:
        other = _tested(statement, nodes, found, test, fails=True)
    again = chain(statement, nodes, net)
    return f"(EXISTS ({again.sql('1')}) AND NOT {other})"


def divided(
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
        *_, (_, filters) = segments(statement, nodes)
        among = frozenset.intersection(*(s.ids for s in filters[-1])) if filters[-1] else None
        last = layers_of(statement).fulfilling(ground, among, r.All(by_layer))
    return last, r.All(others) if others else None


def _tested(
    statement: Statement, nodes: Nodes, chain: Chain, test: r.Condition, *, fails: bool = False
) -> str:
    """That a node fulfils the test, or that one does not."""
    ground = statement.ranges[nodes.variable].ground
    layer, node = statement.name("l"), statement.name("n")
    with statement.node_at_hand(lambda name: _value(statement, name, ground, layer, node)):
        condition = statement.condition(test, not fails)
    tables = [f"{ground}layer AS {layer}", f"{ground}node AS {node}"]
    also = [
        f"{layer}.id = {chain.layer}",
        f"{node}.net_id = {chain.net} AND {node}.pos = {chain.pos}",
        f"({condition}) IS NOT TRUE" if fails else f"({condition})",
    ]
    return f"EXISTS ({chain.sql('1', also, tables)})"


def _value(statement: Statement, name: str, ground: str, layer: str, node: str) -> Expression:
    """JSON of an attribute of the node at hand."""
    match name:
        case "attrs":  # all of them; no attribute is called so
            return Expression(f"{layer}.attrs", "node")
        case "out_shape":
            found = f"SELECT text FROM {ground}shape WHERE id = {node}.out_shape"
            return Expression(f"({found})", "node")
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


def shared(statement: Statement, nodes: Nodes, name: str, range_: Range) -> Expression:
    """What the nodes have in common of an attribute, else the list of what each has."""
    found = chain(statement, nodes, range_.net)
    if found.empty:
        return Expression("NULL", "any")
    ground, layer, node = range_.ground, statement.name("l"), statement.name("n")
    value = _value(statement, name, ground, layer, node).sql
    inner = found.sql(
        f"DISTINCT {found.net} AS net_id, {found.pos} AS pos, {value} AS value",
        [
            f"{layer}.id = {found.layer}",
            f"{node}.net_id = {found.net} AND {node}.pos = {found.pos}",
        ],
        [f"{ground}layer AS {layer}", f"{ground}node AS {node}"],
    )
    order = topological_rank(statement, ground, "net_id", "pos")
    listed = (
        f"SELECT json_group_array(json(value)) FROM (SELECT value FROM ({inner}) ORDER BY {order})"
    )
    return Expression(f"dql_shared(({listed}))", "any")


def in_common(written: str | None) -> Any:
    """For SQL: the one value of a JSON list, or all of them as a list; null counts as none."""
    values = [value for value in json.loads(written or "[]") if value is not None]
    if not values:
        return None
    return encoded(values[0] if all(value == values[0] for value in values) else values)


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
    order = topological_rank(statement, range_.ground, "net_id", "pos")
    return f"(SELECT json_group_array(name) FROM (SELECT name FROM ({inner}) ORDER BY {order}))"
