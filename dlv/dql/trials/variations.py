"""The configurations of each network: what is varied, in a fixed order, as settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlv.dql.bind.bound import Automatic, Evaluation, Rows, Varied
from dlv.dql.bind.configurations import looked_up
from dlv.errors import UsageError
from dlv.network.graph import Network
from dlv.training import config as configs
from dlv.training.config import Config, Setting
from dlv.training.ledger.space import (
    Choices,
    Dimension,
    Domain,
    Key,
    Lookup,
    Point,
    Row,
    Space,
    Uniform,
    Whole,
    named,
)

BASE_RATE: Key = ("base_lr",)


@dataclass(frozen=True)
class Variation:
    """A configuration of one network. `varied`: what is not as in the file, as it is written."""

    point: Point
    config: Config
    varied: Mapping[str, Any]


def said(key: Key) -> str:
    """A key as it stands in a query, without `config.` in front."""
    if key[0] == "net" and len(key) == 3:
        return f'net["{key[1]}"].{key[2]}'
    return ".".join(key)


def space(work: Evaluation, rows: Mapping[int, Sequence[Row]], network: Network) -> Space:
    """What is varied for a network; `rows`: what queries gave, by the place of their dimension."""
    base = _base(work)
    dimensions: list[Dimension] = []
    for place, varied in enumerate(work.varied):
        dimensions += _dimensions(varied, rows.get(place, ()), network)
    return Space(tuple(dimensions), base)


def _base(work: Evaluation) -> Lookup:
    def value(key: Key) -> Any:
        for name, value in reversed(work.settings):
            if name == key:
                return value
        return looked_up(work.config.table, key)

    return value


def _dimensions(varied: Varied, rows: Sequence[Row], network: Network) -> Iterable[Dimension]:
    when = None if varied.when is None else varied.applies
    asked = varied.reads
    domain = varied.domain
    if not isinstance(domain, Automatic):
        values = Choices(_different(rows)) if isinstance(domain, Rows) else domain
        yield Dimension(varied.keys, values, when, asked)
        return
    (key,) = varied.keys
    usual = _usual(key, domain.levels)
    if key[0] == "net" and key[2] == "lr":
        values = Choices(usual.rows, BASE_RATE)
        asked |= {BASE_RATE}
    else:
        values = usual
    if not domain.each:
        yield Dimension(varied.keys, values, when, asked)
        return
    for name in configs.matching(key[1], key[2], network):
        yield Dimension((("net", literal(name), key[2]),), values, when, asked)


def _usual(key: Key, levels: int | None) -> Choices:
    """The values of `auto`, or as many of them as are asked for, from one end to the other."""
    values = configs.auto(key) or ()
    count = len(values) if levels is None else levels
    if count == 1:
        places = [len(values) // 2]
    else:
        places = [round(at * (len(values) - 1) / (count - 1)) for at in range(count)]
    return Choices(tuple((values[place],) for place in places))


def _different(rows: Sequence[Row]) -> tuple[Row, ...]:
    return tuple({named((row,)): row for row in rows}.values())


def literal(name: str) -> str:
    """The selector that fits just this name."""
    return re.sub(r"([\\*?\[\]()])", r"\\\1", name)


def values_of(varied: Varied, found: Iterable[Sequence[Any]]) -> list[Row]:
    """The rows of a query as values that the keys may have; null is none."""
    domain = varied.domain
    assert isinstance(domain, Rows)
    made: list[Row] = []
    for row in found:
        if any(value is None for value in row):
            continue
        values = []
        for key, value in zip(varied.keys, row, strict=True):
            known = configs.field_of(key)
            try:
                values.append(value if known is None else known.read(said(key), value))
            except UsageError as error:
                error.why = f"{error.why}; the query ({domain.said}) gave it"
                raise
        made.append(tuple(values))
    if not made:
        raise UsageError(
            f"there is no value to try for config.{said(varied.keys[0])}",
            why=f"({domain.said}) gives none",
        )
    return made


def resolved(work: Evaluation, network: Network, made: Space, point: Point) -> Variation:
    """The configuration of a point; UsageError says of which."""
    settings = made.settings(point)
    given = [Setting(key, value) for key, value in (*work.settings, *settings)]
    try:
        config = configs.resolve(work.config.table, given, network)
    except UsageError as error:
        varied = ", ".join(f"{said(key)} = {value}" for key, value in settings)
        if varied and error.why is None:
            error.why = f"with {varied}"
        elif varied:
            error.why = f"{error.why}; with {varied}"
        raise
    return Variation(point, config, {said(key): value for key, value in settings})


def described(varied: Varied, made: Space | None = None) -> tuple[str, int | None]:
    """A dimension in words, and how many values it has, as far as that is known."""
    domain: Domain | Rows | Automatic = varied.domain
    if isinstance(domain, Automatic):
        key = varied.keys[0]
        return varied.said, None if domain.each else len(_usual(key, domain.levels).rows)
    if isinstance(domain, Choices):
        return varied.said, len(domain.rows)
    if isinstance(domain, Whole):
        return varied.said, domain.high - domain.low + 1
    if isinstance(domain, Uniform) or made is None:
        return varied.said, None
    return varied.said, next(
        (each.count for each in made.dimensions if each.keys == varied.keys), None
    )
