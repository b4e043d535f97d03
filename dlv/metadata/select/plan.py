"""Which index drives, and by which of four plans sets of nodes are looked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from math import isnan
from typing import Any

from dlv.dataclass import FIELD_NAMES, dataclass
from dlv.metadata.nan import NAN
from dlv.metadata.select import relations as r
from dlv.metadata.select.costs import Plan, Share, Totals, plans, shares, totals
from dlv.metadata.select.functions import pieces_of_like
from dlv.metadata.select.nodes import divided
from dlv.metadata.select.relations import Nodes
from dlv.metadata.select.scope import Range, Statement, joined
from dlv.metadata.select.values import evaluated, known_series
from dlv.network.selector import Fixed

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
_SPEAKING = {r.Column, r.Hyperparameter, r.Metric, r.MetricAt, r.Whole, r.Is, Nodes}
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
    if kind is r.Same or kind is r.Related:
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
            return name in ("net", "n_nodes", "n_params", "depth")
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
