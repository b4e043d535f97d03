"""What a query gives: titled columns, and rows of plain values and versions."""

from __future__ import annotations

from typing import Any, TypeAlias

from dlv.dataclass import dataclass


@dataclass(frozen=True)
class Column:
    """`kind`: version, number, text, boolean, time, list, or any where rows differ."""

    title: str
    kind: str


@dataclass(frozen=True)
class VersionCell:
    """A version of the catalogue by its hash, or a derived network: its own hash, and whose.

    `derived`: (batch, place in it).
    """

    id: str
    derived: tuple[int, int] | None = None


Row: TypeAlias = tuple[Any, ...]
