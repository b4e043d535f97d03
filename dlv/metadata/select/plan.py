"""Which index drives, and by which of four plans sets of nodes are looked for.

What each plan would cost is estimated from a few versions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import lru_cache
from math import isnan
from typing import Any

from dlv.dataclass import FIELD_NAMES, dataclass
from dlv.metadata.schemas import NAN
from dlv.metadata.select import relations as r
from dlv.metadata.select.functions import pieces_of_like
from dlv.metadata.select.layers import LayerSet
from dlv.metadata.select.nodes import (
    among,
    divided,
    edges_table,
    reaches_plumbing,
    segments,
    ways_at_plumbing,
)
from dlv.metadata.select.relations import Hop, Nodes
from dlv.metadata.select.scope import Range, Statement, joined
from dlv.metadata.select.values import evaluated, known_series
from dlv.network.selector import Fixed

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


_MOST = 2000  # rows that are counted, before an estimate has to do
_EXACT = 2**53  # beyond, the column of numbers has rounded
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MOVING = ("=", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Driver:
    """`sql` of the condition for an index, where that is not how it is written anyway."""

    rows: float
    sql: Callable[[Range], str] | None = None


def ranging(condition: r.Condition) -> bool:
    """Whether it may well be true of so many versions that to count them would take long."""
    match condition:
        case r.Compare(sign, r.Column(_, "name" | "creation_time"), r.Constant()):
            return sign in _MOVING and sign != "="
        case r.Compare(sign, r.Constant(), r.Column(_, "name" | "creation_time")):
            return sign in _MOVING and sign != "="
        case r.Like(r.Column(_, "name"), r.Constant(str()), False):
            return True
    return False


def driver(
    s: Statement, range_: Range, condition: r.Condition, share: Share | None = None
) -> Driver | None:
    """Return None if no index answers it. `share`: the known share of versions that fulfil it."""
    match condition:
        case r.Compare(sign, r.Constant() as left, right) if sign in _MOVING:
            return driver(s, range_, r.Compare(_TURNED.get(sign, sign), right, left), share)
        case r.Compare(sign, r.Column(_, "name" | "creation_time"), r.Constant()):
            return _counted(s, range_, condition, share) if sign in _MOVING else None
        case r.Compare("=", r.Column(_, "id"), r.Constant()):
            return Driver(1)
        case r.OneOf(r.Column(_, "name"), options):
            return _counted(s, range_, condition) if options else None
        case r.Like(r.Column(_, "name"), r.Constant(str() as pattern), False, escape):
            pieces = pieces_of_like(pattern, escape)
            fixed = not pieces or isinstance(pieces[0], Fixed)
            return _counted(s, range_, condition, share) if fixed else None
        case r.Is(_, ids):
            return Driver(len(ids))
        case r.Compare(sign, r.Hyperparameter(_, key), r.Constant(constant)) if sign in _MOVING:
            return _hyperparameter(s, sign, key, constant)
        case r.Compare(sign, r.Metric(_, name, figure), r.Constant(constant)) if sign in _MOVING:
            return _metric(s, sign, name, figure, constant)
        case r.Related(_, left, right) if isinstance(left, r.Fixed) or isinstance(right, r.Fixed):
            return _counted(s, range_, condition)
        case r.AnyOf(_, "tag"):
            rows = s.db.value("SELECT count(*) FROM tag")
            return Driver(rows, lambda at: _tagged(s, at, condition))
    return None


def _counted(
    s: Statement, range_: Range, condition: r.Condition, share: Share | None = None
) -> Driver:
    """By looking: an index gives a few thousand in no time."""
    if share is not None and share.sure:
        return Driver(share.part * totals(s).versions)
    at = replace(range_, alias=s.name("k"))
    sql = f"SELECT 1 FROM version AS {at.alias} WHERE {s.about(at, condition)}"
    return Driver(_rows(s, sql, 1 / 3 if share is None else share.part))


def _rows(s: Statement, sql: str, part: float = 1 / 3) -> float:
    """`part`: of all versions, a guess where there are more than are counted."""
    with s.callable():
        ((found,),) = s.db.stream(f"SELECT count(*) FROM ({sql} LIMIT {_MOST})", s.parameters)
    return float(found) if found < _MOST else max(_MOST, totals(s).versions * part)


def _hyperparameter(s: Statement, sign: str, key: str, constant: object) -> Driver | None:
    if isinstance(constant, bool) or not isinstance(constant, int | float | str):
        return None
    if isinstance(constant, str):
        test = f"txt {sign} {s.bind(constant)} AND type = 'str'"
    elif abs(constant) < _EXACT:
        test = f"num {sign} {s.bind(constant)} AND type IN ('int', 'float')"
    else:
        return None
    inner = f"SELECT version_id FROM hyperparameter WHERE key = {s.bind(key)} AND {test}"
    return Driver(_rows(s, inner), lambda at: f"{at.row} IN ({inner})")


def _metric(s: Statement, sign: str, name: str, figure: str, constant: object) -> Driver | None:
    if isinstance(constant, bool) or not isinstance(constant, int | float) or isnan(constant):
        return None
    pairs = known_series(s, name)
    if figure not in ("last", "min", "max") or len(pairs) != 1 or evaluated(s, name):
        return None
    run, tag = pairs[0]
    inner = (
        f"SELECT version_id FROM metric WHERE tag = {s.bind(tag)} AND run = {s.bind(run)}"
        f" AND {figure} {sign} {s.bind(constant)}"
    )
    if sign in (">", ">="):
        inner += f" AND {figure} < {NAN}"
    return Driver(_rows(s, inner), lambda at: f"{at.row} IN ({inner})")


def _tagged(s: Statement, range_: Range, condition: r.AnyOf) -> str:
    alias = s.name("t")
    with s.value_at_hand(f"{alias}.name"):
        inner = s.condition(condition.test, True)
    return f"{range_.row} IN (SELECT {alias}.version_id FROM tag AS {alias} WHERE {inner})"


VISIBLE = "('live', 'recovered')"
_LOOKED_AT = 20  # conditions that may drive: to count rows takes time
_SPEAKING = {r.Column, r.Hyperparameter, r.Metric, r.MetricAt, r.Whole, r.Is, r.OfChange, Nodes}
_LEAVES = {str, int, float, bool, bytes, type(None)}
_FEW = 64  # versions that are better asked one by one than gathered by their networks


@dataclass
class Step:
    """What `explain` tells of a part of the plan. `rows`: versions that are left, as estimated."""

    kind: str  # scan, match, join
    variable: str
    conditions: tuple[r.Condition, ...]
    rows: float
    plan: Plan | None = None
    rejected: tuple[Plan, ...] = ()
    rows_before: float = 0
    rows_counted: int | None = None
    ms: float | None = None
    check: str = ""  # SQL that counts what is left behind this step


@dataclass
class _Part:
    """A conjunct about one variable, and the ways to write it."""

    condition: r.Condition
    plain: Callable[[Range], str]
    driving: Callable[[Range], str] | None = None
    rows: float = math.inf  # that it keeps alone, where that is known


@dataclass
class _Match:
    """A conjunct that networks decide."""

    condition: r.Condition
    chosen: Plan
    rejected: tuple[Plan, ...]
    hits: float = field(default=math.inf)


def where(s: Statement, select: r.Select, sources: dict[str, list[str]]) -> list[str]:
    """SQL of all that must hold. `sources`: what each variable ranges over, by itself."""
    conjuncts = r.conjuncts(select.where)
    alone: dict[str, list[r.Condition]] = {variable: [] for variable in sources}
    together = []
    for conjunct in conjuncts:
        about = variables(conjunct)
        if len(about) == 1 and (variable := next(iter(about))) in alone:
            alone[variable].append(conjunct)
        else:
            together.append(conjunct)
    found = []
    for variable, own in alone.items():
        range_ = s.ranges[variable]
        if range_.ground:
            found += [*sources[variable], *(s.condition(each, True) for each in own)]
        else:
            found += _of_variable(s, range_, own, sources[variable], lone=len(alone) == 1)
    found += [s.condition(each, True) for each in together]
    if together:
        s.steps.append(Step("join", "", tuple(together), 0))
    return found or ["1"]


def variables(tree: Any) -> frozenset[str]:
    """Those that something speaks of and does not declare itself."""
    kind = type(tree)
    if kind in _SPEAKING:
        return frozenset((tree.variable,))
    if kind is tuple:
        return frozenset().union(*map(variables, tree))
    if kind in (r.Same, r.Related, r.Changes):
        return frozenset(side for side in (tree.left, tree.right) if isinstance(side, str))
    found = _within(tree)
    if kind is r.Select:
        return found - {source.variable for source in tree.sources}
    if kind is r.AnyOf or kind is r.Listed:
        return found | {tree.variable}
    return found


def _within(tree: Any) -> frozenset[str]:
    parts = [part for part in _inside(tree) if type(part) not in _LEAVES]
    return frozenset().union(*map(variables, parts))


def _inside(tree: Any) -> list[Any]:
    """What a part of a query has inside."""
    names = FIELD_NAMES[type(tree)] if type(tree).__module__ == r.__name__ else None
    return [getattr(tree, name) for name in names or ()]


def _of_variable(
    s: Statement, range_: Range, own: Sequence[r.Condition], source: list[str], *, lone: bool
) -> list[str]:
    known = totals(s)
    structural: list[r.Condition] = []
    rest: list[r.Condition] = []
    for each in own:
        (structural if by_network(each) else rest).append(each)
    parts = _parts(s, range_, rest)
    candidates = float(known.versions)
    for part in parts:
        if part.rows < known.versions:
            candidates *= part.rows / max(known.versions, 1)
    least = min((part.rows for part in parts), default=math.inf)
    of_nets = _nets(known, candidates)
    matches = [_match(s, each, known, candidates, of_nets) for each in structural]
    sets = sorted((m for m in matches if m.chosen.sql), key=lambda match: match.hits)
    probes = sorted((m for m in matches if not m.chosen.sql), key=lambda match: match.chosen.cost)
    per_net = known.versions / max(known.nets, 1)
    by_net = bool(sets) and sets[0].hits * per_net < 0.5 * min(least, known.versions)
    drives = None
    if not by_net and parts and (lone or least < known.versions / 4):
        drives = min(parts, key=lambda part: part.rows)
        drives = drives if drives.driving else None

    def relational(range_: Range) -> list[str]:
        plus = replace(range_, alias=f"+{range_.alias}")
        return [
            part.driving(range_) if part is drives and part.driving else part.plain(plus)
            for part in parts
        ]

    def matched(range_: Range) -> list[str]:
        return [
            f"{'' if by_net and match is sets[0] else '+'}{range_.net} IN ({match.chosen.sql})"
            for match in sets
        ]

    state = f"{range_.alias}.state IN {VISIBLE}"
    scanning = relational(range_)
    found = [*source, *scanning, *matched(range_), state]
    check = _count(range_, [*source, *scanning, state])
    scanned = tuple(part.condition for part in parts)
    s.steps.append(
        Step("scan", range_.variable, scanned, candidates, rows_before=known.versions, check=check)
    )
    shared = candidates > _FEW and not source
    if probes and shared:
        other = replace(range_, alias=s.name("w"))
        gathered = "SELECT id AS net_id FROM net"
        if parts or sets:
            gathered = f"SELECT DISTINCT {other.net} AS net_id FROM version AS {other.alias} WHERE "
            gathered += " AND ".join([*relational(other), *matched(other)])
        name = s.name("c")
        asked = [
            _network_condition(s, range_, match.condition, f"{name}.net_id") for match in probes
        ]
        inner = f"SELECT {name}.net_id FROM ({gathered}) AS {name} WHERE {' AND '.join(asked)}"
        found.append(_also_without(s, range_, probes, inner))
    else:
        found += [_network_condition(s, range_, match.condition, range_.net) for match in probes]
    left, check = candidates, _count(range_, found)
    for match in (*sets, *probes):
        left = min(left, match.hits * per_net)
        step = Step("match", range_.variable, (match.condition,), left)
        step.plan, step.rejected, step.check = match.chosen, match.rejected, check
        s.steps.append(step)
    return found


def _count(range_: Range, conditions: Sequence[str]) -> str:
    return f"SELECT count(*) FROM version AS {range_.alias} WHERE {joined(conditions, 'AND')}"


def _also_without(s: Statement, range_: Range, probes: Sequence[_Match], inner: str) -> str:
    """Of a version without a network some things are true as well: that it has no such node."""
    if all(isinstance(match.condition, r.AnyNode | r.EveryNode) for match in probes):
        return f"+{range_.net} IN ({inner})"
    each = [_network_condition(s, range_, match.condition, "NULL") for match in probes]
    return (
        f"CASE WHEN {range_.net} IS NULL THEN {' AND '.join(each)}"
        f" ELSE {range_.net} IN ({inner}) END"
    )


def _network_condition(s: Statement, range_: Range, condition: r.Condition, net: str) -> str:
    """A condition about one network."""
    return s.about(replace(range_, at_net=net), condition)


def _parts(s: Statement, range_: Range, conditions: Sequence[r.Condition]) -> list[_Part]:
    """Only of the first ones is it looked at how many versions they keep."""
    wide = [at for at, each in enumerate(conditions[:_LOOKED_AT]) if ranging(each)]
    found = shares(s, range_, [conditions[at] for at in wide])
    of = dict(zip(wide, found, strict=True))
    return [
        _part(s, range_, each, of.get(at), look=at < _LOOKED_AT)
        for at, each in enumerate(conditions)
    ]


def _part(
    s: Statement, range_: Range, condition: r.Condition, share: Share | None, *, look: bool
) -> _Part:
    def plain(range_: Range) -> str:
        return s.about(range_, condition)

    found = driver(s, range_, condition, share) if look else None
    if found is None:
        return _Part(condition, plain)
    return _Part(condition, plain, found.sql or plain, found.rows)


def by_network(condition: r.Condition) -> bool:
    """Whether nothing but the network decides it, and it needs a look into that."""
    return _structural(condition) and any(
        isinstance(each, r.AnyNode | r.EveryNode | r.NodeCount) for each in r.walk_tree(condition)
    )


def _structural(tree: Any) -> bool:
    match tree:
        case r.AnyNode(nodes, test) | r.EveryNode(nodes, test):
            return test is None or (variables(test) <= {nodes.variable} and _structural(test))
        case r.All(parts) | r.Either(parts) | r.Coalesce(parts):
            return all(map(_structural, parts))
        case r.Not(inner) | r.Negative(inner) | r.IsNull(inner) | r.IsNan(inner):
            return _structural(inner)
        case r.Compare(_, left, right) | r.Arithmetic(_, left, right):
            return _structural(left) and _structural(right)
        case r.OneOf(inner) | r.Matches(inner):
            return _structural(inner)
        case r.Like(inner, pattern):
            return _structural(inner) and _structural(pattern)
        case r.Column(_, name):
            return name in ("net", "n_nodes", "depth")  # versions without a network have n_params
    return isinstance(tree, r.Truth | r.Fits | r.NodeCount | r.NodeValue | r.Constant)


def _nets(known: Totals, candidates: float) -> float:
    """Networks that so many versions have."""
    nets = max(known.nets, 1)
    return nets * (1 - math.exp(-candidates / nets))


def _match(
    s: Statement, condition: r.Condition, known: Totals, candidates: float, nets: float
) -> _Match:
    per_net = known.edges / max(known.nets, 1)
    gathering = 0.3 * candidates if candidates < known.versions else 0
    probe = Plan("probe", gathering + nets * (3 + 0.12 * per_net))
    if not isinstance(condition, r.AnyNode):
        return _Match(condition, probe, ())
    last, rest = divided(s, condition.nodes, condition.test)
    found = [] if rest is not None else plans(s, condition.nodes, last, known)
    every = sorted([*found, probe], key=lambda plan: plan.cost)
    if s.forced is not None:
        every.sort(key=lambda plan: plan.name != s.forced)
    hits = min((plan.hits for plan in found), default=math.inf)
    return _Match(condition, every[0], tuple(every[1:]), hits)
