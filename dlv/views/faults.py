"""Errors in a repository as `fsck` prints them: one by one, or by version if there are many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlv.canonical import is_hash
from dlv.terminal.output import Line
from dlv.terminal.table import Cell, Column, Id, Items, Table, Text

if TYPE_CHECKING:
    import dlv.upkeep.check as check

MOST_ROWS = 10  # errors that are listed one by one


def repaired(objects: list[tuple[str, str]], *, every: bool) -> list[Line]:
    """Return a line for each repaired object, or for each source if there are many."""
    if every or len(objects) <= MOST_ROWS:
        return [Line("repaired", _object(name), f"({where})") for name, where in objects]
    counted = Counter(where for _, where in objects)
    return [Line("repaired", count("objects", many), f"({how})") for how, many in counted.items()]


def tables(report: check.Report, *, every: bool) -> Iterator[Table]:
    """Yield a table with a row for each error, or for each version if there are many errors."""
    if not report.faults:
        return
    if every or len(report.faults) <= MOST_ROWS:
        yield Table(
            ["kind", Column("object", least=20), Column("error", least=20), "versions"],
            [
                [Text(e.kind, "red"), _object(e.object), e.why, Items(e.versions)]
                for e in report.faults
            ],
        )
        return
    by_version: dict[str, list[check.Fault]] = {}
    for error in report.faults:
        for version in error.versions or ("-",):
            by_version.setdefault(version, []).append(error)
    yield Table(
        [Column("version", fixed=True), "errors", Column("first error", least=20)],
        [
            [label, len(errors), f"{errors[0].kind} {_short(errors[0].object)}: {errors[0].why}"]
            for label, errors in by_version.items()
        ],
    )


def _short(name: str) -> str:
    return name[:7] if is_hash(name) else name


def _object(name: str) -> Cell:
    return Id(name) if is_hash(name) else name


def count(kind: str, many: int) -> str:
    odd = {"bounds": "bounds", "files.git": "files.git"}
    one = odd.get(kind, kind.removesuffix("s"))
    return f"{many} {one if many == 1 else kind}"
