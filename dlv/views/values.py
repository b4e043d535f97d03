"""Values of all kinds as cells: shapes, attributes, hyperparameters, shares."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dlv.network.sizes import text as shape_text
from dlv.terminal.table import Cell, Number, Text


@dataclass(frozen=True)
class Screen:
    """What a drawing may take of the terminal: columns, and letters outside ASCII."""

    width: int | None
    ascii_only: bool


def shape(sizes: Sequence[Any] | None) -> str:
    """`20×1×5×5`; `scalar` of rank 0."""
    return shape_text(sizes)


def setting(value: Any) -> Cell:
    """A hyperparameter."""
    if value is None:
        return Text("null", "dim")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, str)):
        return str(value)
    if isinstance(value, float):
        return f"{value!r}"
    return json.dumps(value, ensure_ascii=False)


def attribute(what: str, value: Any) -> str:
    """An attribute of a layer, as short as it stands in the layer's own line."""
    several = isinstance(value, (list, tuple))
    if what == "output" or (what in ("kernel", "shape", "size") and several):
        return shape(value)
    if what in ("inputs", "outputs", "shares", "tensors") and several:
        return ", ".join(_input(item) for item in value) or "none"
    return _nested(value)


def _input(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)
    kind = "" if item["dtype"] == "float32" else f" {item['dtype']}"
    return f"{item['name']} {shape(item['shape'])}{kind}"


def _nested(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        parts = [_nested(item) for item in value]
        if len(parts) > 1 and len(set(parts)) == 1:
            return parts[0]
        return "(" + ", ".join(parts) + ")"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def percent(part: int, whole: int) -> Number | None:
    """A share with as many digits as keep it from reading 0 or 100 when it is neither."""
    if not whole:
        return None
    value = 100 * part / whole
    digits = 3
    while digits < 12 and part < whole and float(f"{value:.{digits}g}") >= 100:
        digits += 1
    return Number(value, digits)


def plural(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
