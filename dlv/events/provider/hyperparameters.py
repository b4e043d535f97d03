"""Hyperparameters of runs: their domains, and the runs that share their values as one group."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from dlv.dataclass import dataclass
from dlv.events.provider.store import InvalidArgument

Value = str | float | bool
Kind = Literal["interval", "float", "string", "bool"]
FEW = 10  # so many different numbers are listed, more become an interval
LONGEST = 1000  # characters of a pattern


@dataclass(frozen=True)
class Hyperparameter:
    """`domain`: the values that are known, of an interval the least and the greatest."""

    name: str
    kind: Kind
    domain: tuple[Value, ...]
    differs: bool


@dataclass(frozen=True)
class SessionGroup:
    """Runs with the same values. `root`: their longest common folder, "" if there is none."""

    root: str
    runs: tuple[str, ...]
    values: Mapping[str, Value]


@dataclass(frozen=True)
class Filter:
    """Keeps values that fit: a pattern, an interval (least, greatest), or one of several."""

    name: str
    pattern: str | None = None
    interval: tuple[float, float] | None = None
    among: Collection[Value] | None = None

    def __post_init__(self) -> None:
        if sum(each is not None for each in (self.pattern, self.interval, self.among)) != 1:
            raise InvalidArgument(f"the filter of `{self.name}` must have one value")
        if self.pattern is not None:
            try:
                if len(self.pattern) > LONGEST:
                    raise InvalidArgument(f"a pattern has at most {LONGEST} characters")
                re.compile(self.pattern)
            except (re.error, RecursionError, OverflowError) as error:
                raise InvalidArgument(
                    f"the pattern for `{self.name}` is none", why=str(error)
                ) from error

    def admits(self, value: Value | None) -> bool:
        if value is None:
            return False
        if self.pattern is not None:
            return re.search(self.pattern, _text(value)) is not None
        if self.interval is not None:
            number = not isinstance(value, (str, bool))
            return number and self.interval[0] <= value <= self.interval[1]  # type: ignore[operator]
        # True equals 1, but is not what was asked for.
        alike = [
            each for each in self.among or () if isinstance(each, bool) == isinstance(value, bool)
        ]
        return value in alike


@dataclass(frozen=True)
class Sort:
    name: str
    descending: bool = False


Logged = Sequence[tuple[str, Mapping[str, Any]]]


def listed(logged: Logged, most: int | None = None) -> list[Hyperparameter]:
    """What differs between runs first; `most` of them, None or 0: all."""
    kinds = _kinds(logged)
    found = []
    for name, kind in kinds.items():
        values = [_as(kind, _value(given[name])) for _, given in logged if _known(given, name)]
        distinct = tuple(sorted(set(values)))
        domain: tuple[Value, ...] = distinct
        if kind == "float" and len(distinct) > FEW:
            kind, domain = "interval", (distinct[0], distinct[-1])
        # That a run has none at all is a difference too.
        differs = len(distinct) > 1 or len(values) < len(logged)
        found.append(Hyperparameter(name, kind, domain, differs))
    found.sort(key=lambda each: (not each.differs, each.name))
    return found[: most or None]


def groups(
    logged: Logged,
    filters: Sequence[Filter] = (),
    sort: Sequence[Sort] = (),
    include: Collection[str] | None = None,
) -> list[SessionGroup]:
    """Groups that pass all filters, in the order of the first of `sort`, then of the next.

    `include`: the names that answers hold, besides those of filters and sorts; None: all.
    """
    kinds = _kinds(logged)
    gathered: dict[str, tuple[dict[str, Value], list[str]]] = {}
    for run, given in logged:
        values = {
            name: _as(kinds[name], _value(given[name]))
            for name in sorted(given)
            if _known(given, name)
        }
        gathered.setdefault(json.dumps(values), (values, []))[1].append(run)
    found = [
        (values, tuple(sorted(runs)))
        for values, runs in gathered.values()
        if all(each.admits(values.get(each.name)) for each in filters)
    ]
    found.sort(key=lambda each: each[1])
    for each in reversed(sort):
        has = [group for group in found if each.name in group[0]]
        has.sort(key=lambda group: group[0][each.name], reverse=each.descending)
        found = has + [group for group in found if each.name not in group[0]]
    shown = None
    if include is not None:
        shown = {*include, *(each.name for each in filters), *(each.name for each in sort)}
    everything = len({run for run, _ in logged})
    return [
        SessionGroup(
            _root(runs, everything),
            runs,
            {name: value for name, value in values.items() if shown is None or name in shown},
        )
        for values, runs in found
    ]


def _known(values: Mapping[str, Any], name: str) -> bool:
    return name in values and values[name] is not None and values[name] == values[name]  # no NaN


def _value(value: Any) -> Value:
    if isinstance(value, (str, bool)):
        return value
    if isinstance(value, (int, float)):
        whole = isinstance(value, int) and abs(value) >= 2**1023
        return math.inf * (1 if value > 0 else -1) if whole else float(value)
    return json.dumps(value, sort_keys=True, default=str)


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return str(int(value))
    return str(value)


def _as(kind: Kind, value: Value) -> Value:
    return _text(value) if kind == "string" else value


def _kinds(logged: Logged) -> dict[str, Kind]:
    """One kind for each name: what is of several kinds becomes text."""
    found: dict[str, Kind] = {}
    for _, given in logged:
        for name in given:
            if not _known(given, name):
                continue
            value = _value(given[name])
            kind: Kind = (
                "bool"
                if isinstance(value, bool)
                else "string"
                if isinstance(value, str)
                else "float"
            )
            found[name] = kind if found.get(name, kind) == kind else "string"
    return dict(sorted(found.items()))


def _root(runs: Sequence[str], everything: int) -> str:
    if len(runs) == 1:
        return runs[0]
    if len(runs) == everything:
        return ""
    levels = zip(*(run.split("/") for run in runs), strict=False)
    common = itertools.takewhile(lambda names: len({*names}) == 1, levels)
    return "/".join(names[0] for names in common)
