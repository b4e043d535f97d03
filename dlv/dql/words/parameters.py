"""Values of a query's parameters, as they are typed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from dlv.errors import UsageError


def parameters(given: Iterable[str]) -> dict[str, Any]:
    """-P lr=0.1: what $lr stands for."""
    found: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        name = name.removeprefix("$")
        if not equals or not name.isidentifier() or not _sound(value):
            raise UsageError(
                f"`{each}` gives no parameter a value",
                why="-P requires NAME=VALUE, where VALUE is JSON or a string",
                hint="dlv query 'select m where m.lr < $most' -P most=0.1",
            )
        try:
            found[name] = json.loads(value, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            found[name] = value
    return found


def _sound(value: str) -> bool:
    """Whether it came as UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_constant(name: str) -> float:
    raise ValueError(name)
