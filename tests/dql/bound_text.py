"""Bound queries and faults as lines that a person can read and compare."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from dlv.dql.bind.bound import Bound
from dlv.dql.words.ast import Span
from dlv.errors import DlvError
from dlv.metadata.select import wording
from dlv.metadata.select.relations import Constant, Nodes
from dlv.network.patterns import Pattern
from dlv.network.selector import Selector

WIDTH = 96


def of_bound(bound: Bound, labels: Mapping[str, str]) -> list[str]:
    """`labels`: what to write for a full hash."""
    lines: list[str] = []
    for work in bound.derivations:
        lines += _lines(work, labels, "")
    if bound.query is not None:
        lines += _lines(bound.query, labels, "")
    if bound.evaluation is not None:
        lines += _lines(bound.evaluation, labels, "")
    return lines + [f"warning: {warning}" for warning in bound.warnings]


def of_fault(error: DlvError) -> list[str]:
    lines = [f"exit {error.exit_code}"]
    for spot in error.spots:
        lines += [spot.message, f"    {spot.line}", f"    {spot.mark}"]
        if spot.did_you_mean:
            lines.append(f"  meant: {', '.join(spot.did_you_mean)}")
        if spot.hint:
            lines.append(f"  hint: {spot.hint}")
    return lines


def _lines(tree: Any, labels: Mapping[str, str], indent: str, title: str = "") -> list[str]:
    line = indent + title + _written(tree, labels)
    if len(line) <= WIDTH or not (is_dataclass(tree) or isinstance(tree, tuple)):
        return [line]
    found = [indent + title + (type(tree).__name__ if is_dataclass(tree) else "")]
    for name, part in _parts(tree):
        found += _lines(part, labels, indent + "  ", name)
    return [each.rstrip() for each in found]


def _parts(tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, tuple):
        yield from (("- ", each) for each in tree)
        return
    for each in fields(tree):
        value = getattr(tree, each.name)
        plain = each.default if each.default is not MISSING else MISSING
        if value != plain and not isinstance(value, Span):
            yield f"{each.name}: ", value


def _written(tree: Any, labels: Mapping[str, str]) -> str:
    if isinstance(tree, Constant):
        known = isinstance(tree.value, str) and tree.value in labels
        return labels[str(tree.value)] if known else json.dumps(tree.value)
    if isinstance(tree, Nodes):
        return wording.nodes(tree)
    if isinstance(tree, Pattern):
        return wording.pattern(tree)
    if isinstance(tree, Selector):
        return tree.text
    if isinstance(tree, re.Pattern):
        return str(tree.pattern)
    if isinstance(tree, tuple):
        return "[" + ", ".join(_written(each, labels) for each in tree) + "]"
    if isinstance(tree, str):
        return labels.get(tree, tree)
    if is_dataclass(tree):
        parts = []
        for name, value in _parts(tree):
            text = _written(value, labels)
            short = isinstance(value, (str, int)) and not isinstance(value, bool)
            named = not (short or is_dataclass(value) or isinstance(value, tuple))
            parts.append(name + text if named else text)
        return f"{type(tree).__name__}({', '.join(parts)})"
    return str(tree)


# Files of queries, each with the lines that it gives


def read(path: Path) -> list[tuple[str, str]]:
    """(query, lines); a query begins with `> ` and may go on with `. `."""
    pairs: list[tuple[str, str]] = []
    for block in path.read_text(encoding="utf-8").strip().split("\n\n"):
        lines = block.split("\n")
        query = [line[2:] for line in lines if line[:2] in ("> ", ". ")]
        pairs.append(("\n".join(query), "\n".join(lines[len(query) :])))
    return pairs


def write(path: Path, pairs: Sequence[tuple[str, str]]) -> None:
    blocks = []
    for query, lines in pairs:
        first, *rest = query.split("\n")
        blocks.append("\n".join([f"> {first}", *(f". {line}" for line in rest), lines]))
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
