"""Which layers a query means: decided in Python, as there are few of them however many nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import starmap
from typing import Any

from dlv.canonical import NON_FINITE, float_of
from dlv.dataclass import dataclass
from dlv.metadata.select import relations as r
from dlv.metadata.select.relations import Fitting, Named
from dlv.metadata.select.scope import Statement
from dlv.metadata.select.truth import truth
from dlv.network.fields import Kind
from dlv.network.ops.shape import SIZE_KINDS
from dlv.network.patterns import Pattern
from dlv.network.selector import Choice, Fixed, Selector, Wildcard, searching
from dlv.network.vocabulary import OPS

# What a node has of itself, not by its layer.
OF_NODES = ("out_shape", "n_params")
_COLUMNS = "id, name, alias, op, variant, attrs"
_MOST_RUNS, _MOST_LISTED = 2, 60
# Attributes that may be infinite, which JSON has a text for.
_FLOATS = {
    attribute.name
    for known in (each for op in OPS.values() for each in (op.attributes, *op.kinds.values()))
    for attribute in known
    if attribute.kind is Kind.FLOAT
}


@dataclass(frozen=True)
class Layer:
    id: int
    name: str
    alias: str
    op: str
    variant: str
    attrs: str

    @property
    def attributes(self) -> dict[str, Any]:
        return attributes(self.attrs)

    def attribute(self, name: str) -> Any:
        """None if it has none."""
        if name in ("name", "alias", "op", "variant"):
            return getattr(self, name) or None
        return self.attributes.get(name)


@dataclass(frozen=True)
class LayerSet:
    """Layers; those of `aliased` count only in networks that have none of `natives`."""

    ids: frozenset[int]
    aliased: frozenset[int] = frozenset()
    natives: frozenset[int] = frozenset()

    def among(self, others: frozenset[int]) -> LayerSet:
        return LayerSet(self.ids & others, self.aliased & others, self.natives)


@dataclass
class Layers:
    """The layers of the catalogue, and of derived networks where a query speaks of those."""

    statement: Statement
    _attributes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def _rows(
        self, ground: str, where: str, parameters: Sequence[Any] | Mapping[str, Any] = ()
    ) -> Iterator[Layer]:
        return starmap(Layer, self._read(ground, _COLUMNS, where, parameters))

    def _read(
        self, ground: str, columns: str, where: str, parameters: Sequence[Any] | Mapping[str, Any]
    ) -> Iterator[tuple[Any, ...]]:
        for table in _layer_tables(ground):
            yield from self.statement.db.stream(
                f"SELECT {columns} FROM {table} {where}", parameters
            )

    def named(self, ground: str, wanted: Named) -> LayerSet:
        key = "named", ground, _spelt(wanted.pattern), wanted.captured
        if key not in self.statement.cache:
            natives = self._fitting_names(ground, "name", wanted.pattern)
            others = self._fitting_names(ground, "alias", wanted.pattern) - natives
            meant = natives
            if wanted.captured is not None:
                meant = self._captured(ground, "name", wanted, natives)
                others = self._captured(ground, "alias", wanted, others)
            self.statement.cache[key] = LayerSet(meant | others, others, natives)
        found: LayerSet = self.statement.cache[key]
        return found

    def _captured(
        self, ground: str, column: str, wanted: Named, ids: frozenset[int]
    ) -> frozenset[int]:
        assert isinstance(wanted.pattern, Selector)
        only = dict(wanted.captured or ())
        rows = self._read(ground, f"id, {column}", "", ())
        match = wanted.pattern.match
        return frozenset(key for key, name in rows if key in ids and match(name) == only)

    def _fitting_names(
        self, ground: str, column: str, pattern: Selector | re.Pattern[str]
    ) -> frozenset[int]:
        where, given = f"WHERE {column} != ''", []
        fits: Callable[[str], Any] | None = None
        if not isinstance(pattern, Selector):
            fits = searching(pattern)
        elif (spelt := spellings(pattern)) is not None:
            where += f" AND {column} IN ({', '.join('?' * len(spelt))})"
            given = spelt
        else:
            fits = quick_test(pattern)
            if pattern.prefix:
                low, high = prefix_range(pattern.prefix)
                where, given = f"{where} AND {column} >= ? AND {column} < ?", [low, high]
        rows = self._read(ground, f"id, {column}", where, given)
        if fits is None:
            return frozenset(number for number, _ in rows)
        known: dict[str, bool] = {}
        found = set()
        for number, name in rows:
            if name not in known:
                known[name] = bool(fits(name))
            if known[name]:
                found.add(number)
        return frozenset(found)

    def fitting(self, ground: str, patterns: Sequence[Pattern]) -> frozenset[int]:
        """The layers that fit one of these."""
        found: set[int] = set()
        for pattern in patterns:
            where, given = "WHERE op = ?", [pattern.op]
            if pattern.variant is not None:
                where, given = f"{where} AND variant = ?", [*given, pattern.variant]
            if pattern == Pattern(pattern.op, pattern.variant):
                found.update(number for (number,) in self._read(ground, "id", where, given))
                continue
            found.update(
                layer.id
                for layer in self._rows(ground, where, given)
                if pattern.fits(
                    layer.op,
                    layer.variant or None,
                    layer.name,
                    self._attributes_of(layer) if pattern.tests or pattern.raw else {},
                )
            )
        return frozenset(found)

    def plumbing(self, ground: str) -> tuple[frozenset[int], frozenset[int]]:
        """The layers that only reshape, and those of them that hold sizes instead of data."""
        key = "plumbing", ground
        if key not in self.statement.cache:
            rows = [*self._read(ground, "id, attrs", "WHERE op = 'RESHAPE'", ())]
            sizes = (i for i, attrs in rows if attributes(attrs).get("kind") in SIZE_KINDS)
            self.statement.cache[key] = frozenset(i for i, _ in rows), frozenset(sizes)
        found: tuple[frozenset[int], frozenset[int]] = self.statement.cache[key]
        return found

    def fulfilling(self, ground: str, ids: frozenset[int] | None, test: r.Condition) -> LayerSet:
        """Those of these layers (None: of all) of which the test is true."""
        parts = test.parts if isinstance(test, r.All) else (test,)
        rest = []
        for part in parts:
            if isinstance(part, r.Fits):  # which an index knows
                fitting = self.fitting(ground, part.patterns)
                ids = fitting if ids is None else ids & fitting
            else:
                rest.append(part)
        if ids is None or rest:
            ids = frozenset(
                layer.id for layer in self._with(ground, ids) if self._fulfils(layer, rest)
            )
        return LayerSet(ids)

    def _fulfils(self, layer: Layer, tests: Sequence[r.Condition]) -> bool:
        def leaf(value: r.Value) -> Any:
            assert isinstance(value, r.NodeValue)
            if value.attribute in ("name", "alias", "op", "variant"):
                return layer.attribute(value.attribute)
            return self._attributes_of(layer).get(value.attribute)

        def pattern_parts() -> tuple[str, str | None, str, Mapping[str, Any]]:
            return layer.op, layer.variant or None, layer.name, self._attributes_of(layer)

        return all(truth(test, leaf, pattern_parts) for test in tests)

    def _with(self, ground: str, ids: frozenset[int] | None) -> Iterator[Layer]:
        if ids is None:
            return self._rows(ground, "")
        where = f"WHERE id IN {self.statement.ids(ids)}"
        return self._rows(ground, where, self.statement.parameters)

    def _attributes_of(self, layer: Layer) -> dict[str, Any]:
        known = self._attributes.get(layer.attrs)
        if known is None:
            known = self._attributes[layer.attrs] = attributes(layer.attrs)
        return known

    def of(self, ground: str, nodal: Named | Fitting) -> LayerSet:
        if isinstance(nodal, Named):
            return self.named(ground, nodal)
        return LayerSet(self.fitting(ground, nodal.patterns))


def _layer_tables(ground: str) -> tuple[str, ...]:
    return {"": ("layer",), "derived_": ("derived_layer",)}.get(ground, ("layer", "derived_layer"))


def _spelt(pattern: Selector | re.Pattern[str]) -> tuple[str, str]:
    if isinstance(pattern, Selector):
        return "selector", pattern.text
    return "re", pattern.pattern


def attributes(written: str) -> dict[str, Any]:
    """The attributes of a layer as they are compared: infinities are numbers again."""
    found: dict[str, Any] = json.loads(written)
    if "NaN" in written or "Infinity" in written:
        for name, value in found.items():
            if name in _FLOATS and value in NON_FINITE:
                found[name] = float_of(value)
    return found


def prefix_range(prefix: str) -> tuple[str, str]:
    """[low, high): every text that begins so. The last character is raised past surrogates."""
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at]) + 1
        code = 0xE000 if 0xD800 <= code < 0xE000 else code
        if code <= 0x10FFFF:
            return prefix, prefix[:at] + chr(code)
    return prefix, ""


def quick_test(wanted: Selector) -> Callable[[str], Any]:
    """By a regular expression, where that has no many ways to try; else as selectors do it."""
    runs, written = 0, ""
    for piece in wanted.pieces:
        if isinstance(piece, Fixed):
            written += re.escape(piece.text)
        elif isinstance(piece, Wildcard):
            runs += piece.many
            written += ".*" if piece.many else "."
        elif piece.negated or (listed := _listed(piece)) is None:
            return wanted.__contains__
        else:
            written += f"(?:{'|'.join(map(re.escape, listed))})"
    if runs > _MOST_RUNS:
        return wanted.__contains__
    return re.compile(written, re.DOTALL).fullmatch


def spellings(wanted: Selector) -> list[str] | None:
    """All texts that fit, if they are few."""
    found = [""]
    for piece in wanted.pieces:
        if isinstance(piece, Fixed):
            ends: list[str] | None = [piece.text]
        elif isinstance(piece, Wildcard) or piece.negated:
            return None
        else:
            ends = _listed(piece)
        if ends is None or len(found) * len(ends) > _MOST_LISTED:
            return None
        found = [begin + end for begin in found for end in ends]
    return list(dict.fromkeys(found))


def _listed(choice: Choice) -> list[str] | None:
    """All that it may be, if that is not too much to list."""
    found: list[str] = []
    for item in choice.items:
        if isinstance(item, Fixed):
            found.append(item.text)
        elif not item.numbers:
            last = min(ord(item.high), ord(item.low) + _MOST_LISTED)
            found += map(chr, range(ord(item.low), last + 1))
        else:
            last = min(int(item.high), int(item.low) + _MOST_LISTED)
            found += map(str, range(int(item.low), last + 1))
        if len(found) > _MOST_LISTED:
            return None
    return found


# Tests of a single node's attributes, as far as its layer tells them


def decided_by_layer(test: r.Condition) -> bool:
    """Whether it speaks of nothing but constants and what the node has by its layer."""
    match test:
        case r.Truth() | r.Fits():
            return True
        case r.All(parts) | r.Either(parts):
            return all(map(decided_by_layer, parts))
        case r.Not(part):
            return decided_by_layer(part)
        case r.Compare(_, left, right):
            return _plain(left) and _plain(right)
        case r.Like(value, pattern):
            return _plain(value) and isinstance(pattern, r.Constant)
        case r.Matches(value) | r.OneOf(value) | r.IsNull(value) | r.IsNan(value):
            return _plain(value)
    return False


def _plain(value: r.Value) -> bool:
    match value:
        case r.Constant():
            return True
        case r.NodeValue(name):
            return name not in OF_NODES
        case r.Negative(inner):
            return _plain(inner)
        case r.Arithmetic(_, left, right):
            return _plain(left) and _plain(right)
        case r.Coalesce(values):
            return all(map(_plain, values))
    return False
