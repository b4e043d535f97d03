"""Conditions that an index can answer, and how many versions that are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dlv.metadata import relations as r
from dlv.metadata.select_costs import totals
from dlv.metadata.select_functions import pieces_of_like
from dlv.metadata.select_metrics import evaluated, known_series
from dlv.metadata.select_scope import Range, Statement
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


def driver(s: Statement, range_: Range, condition: r.Condition) -> Driver | None:
    """None: there is no index for it."""
    match condition:
        case r.Compare(sign, r.Constant() as left, right) if sign in _MOVING:
            return driver(s, range_, r.Compare(_TURNED.get(sign, sign), right, left))
        case r.Compare(sign, r.Column(_, "name" | "creation_time"), r.Constant()):
            return _counted(s, range_, condition) if sign in _MOVING else None
        case r.Compare("=", r.Column(_, "id"), r.Constant()):
            return Driver(1)
        case r.OneOf(r.Column(_, "name"), options):
            return _counted(s, range_, condition) if options else None
        case r.Like(r.Column(_, "name"), r.Constant(str() as pattern), False, escape):
            pieces = pieces_of_like(pattern, escape)
            fixed = not pieces or isinstance(pieces[0], Fixed)
            return _counted(s, range_, condition) if fixed else None
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


def _counted(s: Statement, range_: Range, condition: r.Condition) -> Driver:
    """By looking: an index gives a few thousand in no time."""
    alias = s.name("k")
    outer = s.ranges[range_.variable]
    s.ranges[range_.variable] = replace(range_, alias=alias)
    try:
        where = s.condition(condition, True)
    finally:
        s.ranges[range_.variable] = outer
    return Driver(_rows(s, f"SELECT 1 FROM version AS {alias} WHERE {where}"))


def _rows(s: Statement, sql: str) -> float:
    """More than are counted: a third of all, as a guess."""
    with s.callable():
        ((found,),) = s.db.stream(f"SELECT count(*) FROM ({sql} LIMIT {_MOST})", s.parameters)
    return float(found) if found < _MOST else max(_MOST, totals(s).versions / 3)


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
    if isinstance(constant, bool) or not isinstance(constant, int | float):
        return None
    pairs = known_series(s, name)
    if figure not in ("last", "min", "max") or len(pairs) != 1 or evaluated(s, name):
        return None
    run, tag = pairs[0]
    inner = (
        f"SELECT version_id FROM metric WHERE tag = {s.bind(tag)} AND run = {s.bind(run)}"
        f" AND {figure} {sign} {s.bind(constant)}"
    )
    return Driver(_rows(s, inner), lambda at: f"{at.row} IN ({inner})")


def _tagged(s: Statement, at: Range, condition: r.AnyOf) -> str:
    alias = s.name("t")
    with s.value_at_hand(f"{alias}.name"):
        inner = s.condition(condition.test, True)
    return f"{at.row} IN (SELECT {alias}.version_id FROM tag AS {alias} WHERE {inner})"
