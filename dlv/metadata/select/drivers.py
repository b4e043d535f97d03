"""Conditions that an index can answer, and how many versions that are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isnan

from dlv.metadata.nan import NAN
from dlv.metadata.select import relations as r
from dlv.metadata.select.functions import pieces_of_like
from dlv.metadata.select.metrics import evaluated, known_series
from dlv.metadata.select.samples import Share, totals
from dlv.metadata.select.scope import Range, Statement
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
    """None: there is no index for it. `share`: of how many versions it is true, as far as known."""
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


def _tagged(s: Statement, at: Range, condition: r.AnyOf) -> str:
    alias = s.name("t")
    with s.value_at_hand(f"{alias}.name"):
        inner = s.condition(condition.test, True)
    return f"{at.row} IN (SELECT {alias}.version_id FROM tag AS {alias} WHERE {inner})"
