"""Sets of nodes of a network as a query speaks of them: `m["conv*"].next[ADD][0]`."""

from __future__ import annotations

import re
from typing import TypeAlias

from dlv.metadata.select.tree_parts import part
from dlv.network.patterns import Pattern
from dlv.network.selector import Selector


@part(frozen=True)
class Named:
    """Nodes whose name fits; where a network has none, those whose alias fits.

    `captured`: only those of whose name the selector captures just this.
    """

    pattern: Selector | re.Pattern[str]
    captured: tuple[tuple[int, str], ...] | None = None


@part(frozen=True)
class Fitting:
    """Nodes that fit one of these patterns."""

    patterns: tuple[Pattern, ...]


Nodal: TypeAlias = Named | Fitting


@part(frozen=True)
class Hop:
    """To the nodes behind or before; `raw`: plumbing counts as nodes too."""

    forward: bool
    raw: bool = False


@part(frozen=True)
class Pick:
    """One of them, in topological order; a negative one counts from the end."""

    place: int


Step: TypeAlias = Hop | Nodal | Pick  # Nodal: those of them that fit


@part(frozen=True)
class Nodes:
    """A set of nodes of the network of a version; empty if it has none."""

    variable: str
    start: Nodal
    steps: tuple[Step, ...] = ()
