"""`vary`: what each key of the configuration is tried with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from functools import partial
from typing import Any

from dlv.dql.bind.binder import Binder, Reported
from dlv.dql.bind.bound import Automatic, Rows, Varied
from dlv.dql.bind.call_arguments import FLAG, NUMBER, WHOLE, Wanted, read
from dlv.dql.bind.conditions import condition
from dlv.dql.bind.configurations import Configuration, check_known, fitting, key_of, setting
from dlv.dql.bind.constants import MOST_VALUES, is_constant, plain, stretch
from dlv.dql.bind.things import LIST, VERSION, WORDS
from dlv.dql.words import ast
from dlv.errors import nearest
from dlv.training import config as configs
from dlv.training.config import Field
from dlv.training.ledger.space import Choices, Domain, Key, Row, Uniform, Whole, named

_EXACT = Context(prec=40)
_ENDS = {"low": Wanted(NUMBER, required=True), "high": Wanted(NUMBER, required=True)}
_SPREAD = {**_ENDS, "n": Wanted(WHOLE, required=True, least=1, most=MOST_VALUES)}
_WHOLE = Wanted(WHOLE, required=True, least=-(2**53))
CALLS: dict[str, tuple[dict[str, Wanted], str]] = {
    "range": ({**_ENDS, "step": Wanted(NUMBER, above=0)}, "range(16, 129, 16)"),
    "linspace": (_SPREAD, "linspace(0, 0.1, 3)"),
    "logspace": (_SPREAD, "logspace(-4, -1, 4)"),
    "uniform": (_ENDS, "uniform(0.5, 0.99)"),
    "loguniform": (_ENDS, "loguniform(1e-4, 1e-1)"),
    "int": ({"low": _WHOLE, "high": _WHOLE}, "int(16, 256)"),
}
_AUTO = {"levels": Wanted(WHOLE, named=True, least=1), "each": Wanted(FLAG, named=True)}


def varied(binder: Binder, part: ast.Dimension, config: Configuration) -> Varied:
    """One dimension; what is wrong with it is noted, Reported then."""
    before = len(binder.notes.faults)
    keys: list[Key] = []
    known: list[Field | None] = []
    for path in part.paths:
        with binder.collecting():
            key = key_of(binder, path)
            if key in keys:
                raise binder.fault(path.span, f"{binder.short(path)} is there twice")
            keys.append(key)
            known.append(check_known(binder, path, key, strict=config.strict))
    when = None
    if part.when is not None:
        with binder.collecting():
            settings = partial(setting, strict=config.strict)
            when = condition(binder.within(clause="when", setting=settings), part.when)
    if len(known) < len(part.paths):
        raise Reported
    domain: Domain | Rows | Automatic
    if part.auto is not None:
        domain = _automatic(binder, part, keys[0])
    else:
        domain = _Values(binder, part, keys, known).domain()
    if len(binder.notes.faults) > before:
        raise Reported
    return Varied(tuple(keys), domain, when, binder.said(part))


def _automatic(binder: Binder, part: ast.Dimension, key: Key) -> Automatic:
    if part.linked:
        raise binder.fault(
            part.span, "auto is of one key", why="keys that belong together need their values"
        )
    found = read(binder, "auto", part.auto or (), _AUTO, part.span, "auto(levels = 2)")
    usual = configs.auto(key)
    said = ".".join(key) if key[0] != "net" else f'net["{key[1]}"].{key[2]}'
    if usual is None:
        names = [name.replace("net.", 'net["*"].') for name in configs.AUTO]
        raise binder.fault(
            part.paths[0].span,
            f"config.{said} has no usual values",
            why=f"there are some for {', '.join(names)}",
            hint=f"config.{said} in [..]",
        )
    levels = found.get("levels")
    if levels is not None and levels > len(usual):
        raise binder.fault(part.span, f"config.{said} has {len(usual)} usual values")
    if found.get("each") and key[0] != "net":
        raise binder.fault(
            part.span, "each is said of nodes", hint='config.net["conv*"].lr auto(each = true)'
        )
    return Automatic(levels, bool(found.get("each")))


class _Values:
    """What stands behind `in`, held against what its keys may be."""

    def __init__(
        self,
        binder: Binder,
        part: ast.Dimension,
        keys: Sequence[Key],
        known: Sequence[Field | None],
    ) -> None:
        self.binder = binder
        self.part = part
        self.keys = keys
        self.known = known
        self.rows: list[Row] = []

    def domain(self) -> Domain | Rows:
        found: Any = self.part.domain
        if isinstance(found, ast.Call):
            return self._call(found)
        if isinstance(found, (ast.Query, ast.Saved)):
            return self._query(found)
        if isinstance(found, ast.Parameter):
            self._parameter(found)
        elif isinstance(found, ast.Stretch):
            self._single(found)
            for value in stretch(self.binder, found):
                self._add(found, (value,))
        else:
            assert isinstance(found, ast.Listing)
            for item in found.items:
                with self.binder.collecting():
                    self._item(item)
            if not found.items:
                raise self._empty(found)
        return self._choices()

    def _choices(self) -> Choices:
        different = {named((row,)): row for row in self.rows}
        return Choices(tuple(different.values()))

    def _empty(self, part: ast.Part) -> Exception:
        return self.binder.fault(
            part.span, "there is no value to try", hint=f"{self._said()} in [0.1, 0.01]"
        )

    def _said(self) -> str:
        return self.binder.short(self.part.paths[0])

    def _single(self, part: ast.Part) -> None:
        """Only values for one key can be written so."""
        if len(self.keys) > 1:
            raise self.binder.fault(
                part.span,
                f"{self.binder.short(part)} has no values for {len(self.keys)} keys",
                hint=f"in [({', '.join('1' * len(self.keys))}), ..]",
            )

    def _add(self, part: ast.Part, values: Sequence[Any]) -> None:
        """One row, each value as the trainer gets it."""
        self.rows.append(
            tuple(
                fitting(self.binder, part, key, known, value)
                for key, known, value in zip(self.keys, self.known, values, strict=True)
            )
        )

    def _item(self, item: Any) -> None:
        binder = self.binder
        if len(self.keys) == 1:
            if isinstance(item, ast.Stretch):
                for value in stretch(binder, item):
                    self._add(item, (value,))
                return
            self._add(item, (self._constant(item),))
            return
        parts = item.items if isinstance(item, (ast.Group, ast.Listing)) else ()
        if len(parts) != len(self.keys):
            raise binder.fault(
                item.span,
                f"{binder.short(item)} is not {len(self.keys)} values",
                why=f"{len(self.keys)} keys are varied together",
                hint=f"({', '.join('1' * len(self.keys))})",
            )
        values = [self._constant(each) for each in parts]
        row = []
        for part, key, known, value in zip(parts, self.keys, self.known, values, strict=True):
            row.append(fitting(binder, part, key, known, value))
        self.rows.append(tuple(row))

    def _constant(self, part: Any) -> Any:
        if not is_constant(part):
            said = self.binder.short(part)
            path = isinstance(part, ast.Path) and not part.trailers
            raise self.binder.fault(
                part.span,
                f"{said} is no value to try",
                hint=f'a text stands in quotes: "{said}"' if path else None,
            )
        return plain(self.binder, part)

    def _parameter(self, part: ast.Parameter) -> None:
        given = self.binder.parameter(part)
        if not isinstance(given, (list, tuple)):
            raise self.binder.fault(
                part.span,
                f"${part.name} is no list of values",
                hint=f"-P '{part.name}=[0.1, 0.01]'",
            )
        if not given:
            raise self._empty(part)
        for each in given:
            row = each if len(self.keys) > 1 else [each]
            if not isinstance(row, (list, tuple)) or len(row) != len(self.keys):
                raise self.binder.fault(
                    part.span,
                    f"${part.name} holds {each!r}"[:200],
                    why=f"{len(self.keys)} keys are varied together",
                )
            self._add(part, row)

    def _query(self, part: ast.Query | ast.Saved) -> Rows:
        binder = self.binder
        found = binder.query(part, alone=True)
        if len(found.kinds) != len(self.keys):
            raise binder.fault(
                part.span,
                f"{len(self.keys)} column{'s' * (len(self.keys) > 1)} of values are wanted here",
                why=f"this query gives {', '.join(found.titles)}",
            )
        for kind, title in zip(found.kinds, found.titles, strict=True):
            if kind in (VERSION, LIST):
                raise binder.fault(
                    part.span,
                    f"{title} is {WORDS[kind]}, and a value is wanted here",
                    hint=f"{title}.lr" if kind == VERSION else None,
                )
        return Rows(found.query, binder.said(part), part.span)

    def _call(self, call: ast.Call) -> Domain:
        binder, name = self.binder, call.name.lower()
        if name not in CALLS:
            raise binder.fault(
                ast.Span(call.span.start, call.span.start + len(call.name)),
                f"there are no values {call.name}(..)",
                why=f"there are {', '.join(CALLS)}",
                did_you_mean=nearest(name, CALLS),
            )
        self._single(call)
        wanted, example = CALLS[name]
        given = read(binder, name, call.args, wanted, call.span, example)
        low, high = given["low"], given["high"]
        if name in ("uniform", "loguniform"):
            return self._uniform(call, low, high, log=name == "loguniform")
        if name == "int":
            if high < low:
                raise self._backwards(call, low, high)
            for end in (low, high):
                fitting(binder, call, self.keys[0], self.known[0], end)
            return Whole(low, high)
        values = _SERIES[name](given)
        if not values:
            raise self._empty(call)
        if len(values) > MOST_VALUES or not all(map(math.isfinite, values)):
            raise binder.fault(
                call.span, f"{binder.short(call)} are not at most {MOST_VALUES} numbers"
            )
        whole = name == "range" and all(float(value).is_integer() for value in values)
        for value in values:
            self._add(call, (int(value) if whole else value,))
        return self._choices()

    def _uniform(self, call: ast.Call, low: float, high: float, *, log: bool) -> Uniform:
        binder, known = self.binder, self.known[0]
        if high <= low:
            raise self._backwards(call, low, high)
        if log and low <= 0:
            raise binder.fault(
                call.span, "only numbers above 0 have a logarithm", hint="loguniform(1e-4, 1e-1)"
            )
        if known is not None and known.kind != "float":
            wide = known.kind == "int"
            raise binder.fault(
                call.span,
                f"{self._said()} is {known.wanted}",
                hint=f"int({math.ceil(low)}, {math.floor(high)})" if wide else None,
            )
        for end in (low, high):
            fitting(binder, call, self.keys[0], known, end)
        return Uniform(low, high, log)

    def _backwards(self, call: ast.Call, low: float, high: float) -> Exception:
        return self.binder.fault(
            call.span,
            f"there is nothing between {low:g} and {high:g}",
            hint=f"the smaller end comes first: {call.name}({high:g}, {low:g})"
            if high < low
            else None,
        )


def _range(given: dict[str, Any]) -> list[float]:
    """As in Python: without the end."""
    low, high, step = (
        Decimal(repr(each)) for each in (given["low"], given["high"], given.get("step") or 1.0)
    )
    count = max(0, math.ceil((high - low) / step))
    return [float(low + place * step) for place in range(min(count, MOST_VALUES + 1))]


def _linspace(given: dict[str, Any]) -> list[float]:
    return [float(each) for each in _spread(given)]


def _logspace(given: dict[str, Any]) -> list[float]:
    if max(abs(given["low"]), abs(given["high"])) > 308:
        return [math.inf]
    return [float(_EXACT.power(Decimal(10), each)) for each in _spread(given)]


def _spread(given: dict[str, Any]) -> list[Decimal]:
    low, high = Decimal(repr(given["low"])), Decimal(repr(given["high"]))
    n = given["n"]
    if n == 1:
        return [low]
    return [_EXACT.divide(low * (n - 1 - at) + high * at, Decimal(n - 1)) for at in range(n)]


_SERIES: dict[str, Callable[[dict[str, Any]], list[float]]] = {
    "range": _range,
    "linspace": _linspace,
    "logspace": _logspace,
}
