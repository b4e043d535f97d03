"""What the plans for a set of nodes would cost, by a few versions looked at, and their SQL."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from dlv.dataclass import dataclass
from dlv.metadata.select import relations as r
from dlv.metadata.select.layers import LayerSet
from dlv.metadata.select.nodes import (
    among,
    edges_table,
    reaches_plumbing,
    segments,
    ways_at_plumbing,
)
from dlv.metadata.select.relations import Hop, Nodes
from dlv.metadata.select.scope import Range, Statement

# What a few versions tell of all of them: to count thousands of rows, if only in an index, takes
# longer than many a query.

_VERSIONS, _NETS = 64, 16
_ENOUGH = 6  # hits among them, from which on their share is worth something
_GOLDEN = 0.6180339887498949  # its multiples lie everywhere, and in step with nothing
_AMONG = "(SELECT value FROM json_each({}))"


@dataclass(frozen=True)
class Totals:
    versions: int
    nets: int
    edges: int


@dataclass(frozen=True)
class Share:
    """Of so many versions so many fulfil a condition."""

    hits: float
    among: int

    @property
    def sure(self) -> bool:
        return self.hits >= _ENOUGH

    @property
    def part(self) -> float:
        """At most, where it is too small to be sure."""
        return max(self.hits, _ENOUGH) / self.among


def totals(s: Statement) -> Totals:
    """Ids count up, so the greatest one tells how many there are, nearly."""
    return s.remembered("totals", lambda: _totals(s))


def _totals(s: Statement) -> Totals:
    ((versions, nets),) = s.db.rows(
        "SELECT (SELECT max(id) FROM version), (SELECT max(id) FROM net)"
    )
    # A network has about as many edges as nodes.
    nodes = f"SELECT avg(n_nodes) FROM net WHERE id IN {_AMONG.format('?')}"
    each = s.db.value(nodes, (spread(nets or 0, _NETS),))
    return Totals(versions or 0, nets or 0, int((nets or 0) * (each or 0)))


def shares(s: Statement, range_: Range, conditions: Sequence[r.Condition]) -> list[Share | None]:
    """Of all at once; None of so few versions that an index is as fast."""
    known = totals(s).versions
    if known <= _VERSIONS or not conditions:
        return [None] * len(conditions)
    at = replace(range_, alias=s.name("k"))
    counts = ", ".join(f"total({s.about(at, condition)})" for condition in conditions)
    ids = _AMONG.format(s.bind(spread(known, _VERSIONS)))
    sql = f"SELECT count(*), {counts} FROM version AS {at.alias} WHERE {at.alias}.id IN {ids}"
    with s.callable():
        ((among, *hits),) = s.db.stream(sql, s.parameters)
    return [Share(each, among) if among else None for each in hits]


@lru_cache(8)
def spread(last: int, most: int) -> str:
    """Ids up to the last one, as JSON."""
    ids: Sequence[int] = range(1, last + 1)
    if last > most:
        ids = [1 + int(last * (n * _GOLDEN % 1)) for n in range(most)]
    return f"[{','.join(map(str, ids))}]"


# Plans

# Microseconds, as measured: to find a place in an index, and to read on from there.
_SEEK, _ROW, _HIT = 0.9, 0.16, 0.35
_MOST_PAIRS = 40  # of operations that a search by pairs may try
_MOST_COUNTED = 1000  # pairs of layers; where there are more, by the edges that join them
_EDGES_OF_PAIR = 8
_SIDES = ("src", "dst")


@dataclass(frozen=True)
class Plan:
    """`sql` gives the networks, which may come more than once; without it they are probed."""

    name: str
    cost: float  # microseconds
    sql: str = ""
    hits: float = math.inf  # networks

    def document(self) -> dict[str, object]:
        return {"plan": self.name, "ms": round(self.cost / 1000, 3)}


@dataclass(frozen=True)
class _End:
    """The layers at one end of a hop."""

    ids: frozenset[int]
    nets: int
    out: int
    into: int


def plans(s: Statement, nodes: Nodes, last: LayerSet | None, known: Totals) -> list[Plan]:
    """All but the probe; none where only a look at each network tells."""
    parts = segments(s, nodes, last)
    if len(parts) != 1:
        return []
    hops, filters = parts[0]
    if any(not each.ids for sets in filters for each in sets):
        return [Plan("nothing", 0, "SELECT 0 WHERE 0", 0)]
    if any(hop.raw for hop in hops) or len(hops) > 8:
        return []
    at_plumbing = any(reaches_plumbing(s, "", sets, otherwise=False) for sets in filters[:-1])
    if at_plumbing and len(hops) > 1:
        return []
    ends = [_end(s, sets) for sets in filters]
    if not hops:
        return [_by_layer(s, filters[0], ends[0])]
    if len(hops) == 1:
        found = _one_hop(s, hops[0], filters, ends, known)
        return [_also_at_plumbing(s, hops[0], filters, p) for p in found] if at_plumbing else found
    return [_several(s, hops, filters, ends, known)]


def _end(s: Statement, sets: Sequence[LayerSet]) -> _End:
    if not sets:
        return _End(frozenset(), *(3 * (1 << 40),) * 3)
    ids = sets[0].ids
    sql = (
        "SELECT total(n_nets), total(n_out), total(n_in) FROM layer_stat"
        f" WHERE layer_id IN {s.ids(ids)}"
    )
    (row,) = s.db.stream(sql, s.parameters)
    return _End(ids, *map(int, row))


def _by_layer(s: Statement, sets: Sequence[LayerSet], end: _End) -> Plan:
    node, layer = s.name("n"), s.name("s")
    where = [f"{node}.layer_id = {layer}.id"]
    where += among(s, "", (f"{node}.net_id", f"{node}.pos", f"{node}.layer_id"), sets, first=True)
    sql = (
        f"SELECT {node}.net_id FROM {s.ids(end.ids)} AS {layer} CROSS JOIN node AS {node}"
        f" WHERE {' AND '.join(where)}"
    )
    hits = min(end.nets, totals(s).nets)
    return Plan("by layer", len(end.ids) * _SEEK + end.nets * (_ROW + _HIT), sql, hits)


def _one_hop(
    s: Statement,
    hop: Hop,
    filters: Sequence[Sequence[LayerSet]],
    ends: Sequence[_End],
    known: Totals,
) -> list[Plan]:
    order = (0, 1) if hop.forward else (1, 0)
    src, dst = (ends[at] for at in order)
    sets = [filters[at] for at in order]
    met = min(src.out, dst.into, src.out * dst.into / max(known.edges, 1))
    hits = min(met, known.nets)
    found = []
    if src.ids or dst.ids:
        # Fewer edges are those of fewer pairs; a side without layers has all edges.
        side, near, edges = ("src", src, src.out) if src.out < dst.into else ("dst", dst, dst.into)
        read = _joined(s, side, near, edges)
        seeks = read * met / max(edges, 1)  # as many of the pairs fit as of the edges
        cost = len(near.ids) * _SEEK + read * _ROW + seeks * _SEEK + met * (_ROW + _HIT)
        found.append(Plan("pair seek", cost, _by_pairs(s, sets, side), hits))
    if src.ids and dst.ids and (pairs := _pairs(s, sets)) is not None:
        sql, rows = pairs
        found.append(Plan("net_pair", 30 + rows * (_ROW + _HIT), sql, min(rows, known.nets)))
    if src.ids:
        cost = len(src.ids) * _SEEK + src.out * 1.3 * _ROW + met * _HIT
        found.append(Plan("scan", cost, _scan(s, sets), hits))
    return found


def _also_at_plumbing(
    s: Statement, hop: Hop, filters: Sequence[Sequence[LayerSet]], plan: Plan
) -> Plan:
    """With the networks where a hop from a node that only reshapes leads there."""
    edge = s.name("e")
    where = ["1"]
    for side, sets in zip(_SIDES if hop.forward else _SIDES[::-1], filters, strict=True):
        where += among(s, "", (f"{edge}.net_id", f"{edge}.{side}", f"{edge}.{side}_layer"), sets)
    ways = " UNION ALL ".join(ways_at_plumbing(s, "", hop, None))
    more = f"SELECT {edge}.net_id FROM ({ways}) AS {edge} WHERE {' AND '.join(where)}"
    cost = plan.cost + totals(s).edges * (_ROW + _SEEK)
    return replace(plan, cost=cost, sql=f"{plan.sql} UNION ALL {more}")


def _joined(s: Statement, side: str, end: _End, edges: int) -> float:
    """How many pairs of layers have one of these on a side."""
    sql = f"SELECT 1 FROM layer_pair WHERE {side}_layer IN {s.ids(end.ids)} LIMIT {_MOST_COUNTED}"
    ((found,),) = s.db.stream(f"SELECT count(*) FROM ({sql})", s.parameters)
    if found < _MOST_COUNTED:
        return float(found)
    return max(float(found), edges / _EDGES_OF_PAIR)


def _by_pairs(s: Statement, sets: Sequence[Sequence[LayerSet]], near: str) -> str:
    """Edges by the pairs of layers that there are, which are found from one side."""
    pair, edge = s.name("p"), s.name("e")
    where = []
    for side, layers in zip(_SIDES, sets, strict=True):
        if layers:
            plus = "" if side == near else "+"
            where.append(f"{plus}{pair}.{side}_layer IN {s.ids(layers[0].ids)}")
        where.append(f"{edge}.{side}_layer = {pair}.{side}_layer")
        at = (f"{edge}.net_id", f"{edge}.{side}", f"{edge}.{side}_layer")
        where += among(s, "", at, layers, first=True)
    return (
        f"SELECT {edge}.net_id FROM layer_pair AS {pair} CROSS JOIN edge AS {edge}"
        f" WHERE {' AND '.join(where)}"
    )


def _scan(s: Statement, sets: Sequence[Sequence[LayerSet]]) -> str:
    """All edges from some layers. Not by a join: SQLite would read all for a Bloom filter."""
    edge = s.name("e")
    where = [f"{edge}.src_layer IN {s.ids(sets[0][0].ids)}"]
    for side, layers in zip(_SIDES, sets, strict=True):
        at = (f"{edge}.net_id", f"{edge}.{side}", f"{edge}.{side}_layer")
        where += among(s, "", at, layers, first=side == "src")
    return (
        f"SELECT {edge}.net_id FROM edge AS {edge} INDEXED BY edge_pair WHERE {' AND '.join(where)}"
    )


def _pairs(s: Statement, sets: Sequence[Sequence[LayerSet]]) -> tuple[str, float] | None:
    """By operation and variant, if these tell just the layers that are meant."""
    kinds = []
    for layers in sets:
        if len(layers) != 1 or layers[0].aliased:
            return None
        ids = layers[0].ids
        key = "kinds", ids
        if key not in s.cache:
            sql = f"SELECT op, variant FROM layer WHERE id IN {s.ids(ids)} GROUP BY op, variant"
            found = [*s.db.stream(sql, s.parameters)]
            s.cache[key] = found if _all_of(s, found, len(ids)) else None
        if s.cache[key] is None:
            return None
        kinds.append(s.cache[key])
    if len(kinds[0]) * len(kinds[1]) > _MOST_PAIRS:
        return None
    arms = [
        "SELECT net_id FROM net_pair WHERE"
        f" src_op = {s.bind(src[0])} AND src_variant = {s.bind(src[1])}"
        f" AND dst_op = {s.bind(dst[0])} AND dst_variant = {s.bind(dst[1])}"
        for src in kinds[0]
        for dst in kinds[1]
    ]
    sql = " UNION ALL ".join(arms)
    ((rows,),) = s.db.stream(f"SELECT count(*) FROM ({sql} LIMIT 5000)", s.parameters)
    if rows == 5000:
        rows = max(rows, totals(s).nets // 2)
    return sql, rows


def _all_of(s: Statement, kinds: Sequence[tuple[str, str]], count: int) -> bool:
    """Whether no more layers than these are of one of the kinds."""
    sql = "SELECT count(*) FROM (SELECT 1 FROM layer WHERE op = ? AND variant = ? LIMIT ?)"
    for op, variant in kinds:
        count -= s.db.value(sql, (op, variant, count + 1))
        if count < 0:
            return False
    return True


def _several(
    s: Statement,
    hops: Sequence[Hop],
    filters: Sequence[Sequence[LayerSet]],
    ends: Sequence[_End],
    known: Totals,
) -> Plan:
    """From the rarest layers on, forwards first, and then back to the start."""
    reads = []
    for at, end in enumerate(ends):
        forth = hops[at].forward if at < len(hops) else not hops[at - 1].forward
        reads.append(end.out if forth else end.into)
    start = min(range(len(ends)), key=lambda at: reads[at])
    if not filters[start]:
        start = next((at for at, sets in enumerate(filters) if sets), 0)
    names = [s.name("e") for _ in hops]
    alias = s.name("s") if filters[start] else ""
    first = start if start < len(hops) else start - 1
    order = [*range(first, len(hops)), *range(first - 1, -1, -1)]
    tables, where = [], []
    if alias:
        tables.append(f"{s.ids(ends[start].ids)} AS {alias}")
        side = _side(hops, start, first)
        where.append(f"{names[first]}.{side}_layer = {alias}.id")
        if side == "dst":  # edges are found by the layer that they come from
            pair = s.name("p")
            tables.append(f"layer_pair AS {pair}")
            where.append(f"{pair}.dst_layer = {alias}.id")
            where.append(f"{names[first]}.src_layer = {pair}.src_layer")
    tables += [f"{edges_table('', hops[at], None)} AS {names[at]}" for at in order]
    for at, hop in enumerate(hops):
        near = "src" if hop.forward else "dst"
        if at:
            far = "dst" if hops[at - 1].forward else "src"
            where.append(
                f"{names[at]}.net_id = {names[at - 1]}.net_id"
                f" AND {names[at]}.{near} = {names[at - 1]}.{far}"
            )
    for at, sets in enumerate(filters):
        through = first if at == start else at if at < len(hops) else at - 1
        side = _side(hops, at, through)
        edge = names[through]
        # What is asked of one table alone makes SQLite read all of it for a Bloom filter.
        other = f"{names[first]}.net_id" if through != first else f"{alias}.id" if alias else ""
        layer = f"{edge}.{side}_layer" + (f" + 0 * {other}" if other and at != start else "")
        where += among(s, "", (f"{edge}.net_id", f"{edge}.{side}", layer), sets, first=at == start)
    sql = f"SELECT {names[0]}.net_id FROM {' CROSS JOIN '.join(tables)} WHERE {' AND '.join(where)}"
    per_net = known.edges / max(known.nets, 1)
    back = first * reads[start] * per_net * _ROW / 3
    cost = len(ends[start].ids) * _SEEK + reads[start] * (_ROW + 2 * _SEEK * (len(hops) - 1)) + back
    return Plan("chain", cost, sql, min(min(reads), known.nets))


def _side(hops: Sequence[Hop], place: int, through: int) -> str:
    """Which end of an edge a place of the chain is: before its hop, or behind it."""
    forward = hops[through].forward
    return "src" if (place == through) == forward else "dst"
