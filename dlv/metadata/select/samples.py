"""What a few versions tell of all of them: how many fulfil a condition, nearly.

To count thousands of rows, if only in an index, takes longer than many a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from dlv.metadata.select import relations as r
from dlv.metadata.select.scope import Range, Statement

_VERSIONS, _NETS = 64, 16
_ENOUGH = 6  # hits among them, from which on their share is worth something
_GOLDEN = 0.6180339887498949  # its multiples lie everywhere, and in step with nothing
_AMONG = "(SELECT value FROM json_each({}))"


@dataclass(frozen=True)
class Totals:
    versions: int
    nets: int
    edges: int


@dataclass(frozen=True)
class Share:
    """Of so many versions so many fulfil a condition."""

    hits: float
    among: int

    @property
    def sure(self) -> bool:
        return self.hits >= _ENOUGH

    @property
    def part(self) -> float:
        """At most, where it is too small to be sure."""
        return max(self.hits, _ENOUGH) / self.among


def totals(s: Statement) -> Totals:
    """Ids count up, so the greatest one tells how many there are, nearly."""
    return s.remembered("totals", lambda: _totals(s))


def _totals(s: Statement) -> Totals:
    ((versions, nets),) = s.db.rows(
        "SELECT (SELECT max(id) FROM version), (SELECT max(id) FROM net)"
    )
    # A network has about as many edges as nodes.
    nodes = f"SELECT avg(n_nodes) FROM net WHERE id IN {_AMONG.format('?')}"
    each = s.db.value(nodes, (spread(nets or 0, _NETS),))
    return Totals(versions or 0, nets or 0, int((nets or 0) * (each or 0)))


def shares(s: Statement, range_: Range, conditions: Sequence[r.Condition]) -> list[Share | None]:
    """Of all at once; None of so few versions that an index is as fast."""
    known = totals(s).versions
    if known <= _VERSIONS or not conditions:
        return [None] * len(conditions)
    at = replace(range_, alias=s.name("k"))
    counts = ", ".join(f"total({s.about(at, condition)})" for condition in conditions)
    ids = _AMONG.format(s.bind(spread(known, _VERSIONS)))
    sql = f"SELECT count(*), {counts} FROM version AS {at.alias} WHERE {at.alias}.id IN {ids}"
    with s.callable():
        ((among, *hits),) = s.db.stream(sql, s.parameters)
    return [Share(each, among) if among else None for each in hits]


@lru_cache(8)
def spread(last: int, most: int) -> str:
    """Ids up to the last one, as JSON."""
    ids: Sequence[int] = range(1, last + 1)
    if last > most:
        ids = [1 + int(last * (n * _GOLDEN % 1)) for n in range(most)]
    return f"[{','.join(map(str, ids))}]"
