"""What ONNX's operators take and give in each version: which attributes there are at all.

The table is written by tools/onnx_operators.py from the schemas of the onnx package.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

# Operators of later opsets have not been reviewed.
NEWEST_OPSET = 28
_NEWEST = {"": NEWEST_OPSET}
# How runtimes of 2017 shared memory; it changes no number.
_IDLE = frozenset(("consumed_inputs",))


@dataclass(frozen=True)
class Form:
    """An operator since a version. `attributes`: kind and, where there is one, default.

    `results`: of each output what tells its dtype, in this order: `@name` an attribute, `=0` an
    input, or a dtype; `?` where nothing does.
    """

    since: int
    least: int
    most: int
    outputs: int
    attributes: Mapping[str, list[Any]]
    results: list[str]


@cache
def _table() -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = json.loads(
        Path(__file__).with_name("operators.json").read_bytes()
    )
    return found


@lru_cache(4096)  # kinds and domains are any text that a file holds
def form(domain: str, kind: str, version: int) -> Form | None:
    """The operator in that version of its domain; None: it is not known in it."""
    if version > _NEWEST.get(domain, version):
        return None
    name = f"{domain}::{kind}" if domain else kind
    rows = [row for row in _table().get(name, ()) if row[0] <= version]
    return Form(*rows[-1]) if rows and len(rows[-1]) > 1 else None


def unknown(
    known_form: Form | None, attrs: Mapping[str, Any], read: Collection[str] = ()
) -> str | None:
    """Return the first attribute that is not at its default and that no rule has read."""
    for name, value in attrs.items():
        told = None if known_form is None else known_form.attributes.get(name)
        if told is None:
            return name
        if name not in read and name not in _IDLE and told[1:] != [value]:
            return name
    return None


def misfit(kind: str, version: int, attrs: Mapping[str, Any], inputs: int) -> str | None:
    """Why an operator of ONNX's own cannot stand in a file of that version; None: it can."""
    found = form("", kind, version)
    if kind == "Initializer":
        return "texts and sparse tensors stay in the file that the version came from"
    if found is None:
        # Of what was never known, nobody can tell.
        return "it is gone, or not there yet" if kind in _table() else None
    if not found.least <= inputs <= found.most:
        return f"it has {inputs} inputs"
    name = next((name for name in attrs if name not in found.attributes), None)
    return None if name is None else f"it has no attribute {name}"
