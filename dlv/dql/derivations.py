"""Slices and constructs."""

from __future__ import annotations

from dlv.dql import ast
from dlv.dql.reading import Reading


def derivation(reading: Reading, part: ast.Derived, *, nested: bool) -> int:
    raise reading.fault(part.span, "not yet" + " nested" * nested)
