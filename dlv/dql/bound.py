"""Statements with every name decided: what is asked, what is to be derived from it, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dlv.dql.ast import NOWHERE, Span
from dlv.metadata.node_sets import Nodes
from dlv.metadata.relations import Condition, Query


@dataclass(frozen=True)
class Making:
    """A node to make; `$1` in its name is what was captured as ($1)."""

    op: str
    variant: str | None
    name: str | None
    attrs: tuple[tuple[str, Any], ...]
    span: Span = field(compare=False, default=NOWHERE)


@dataclass(frozen=True)
class Insert:
    """Behind each node, on all of its edges or on that to `to`; `before`: in front of it."""

    nodes: Nodes
    makings: tuple[Making, ...]
    to: Nodes | None = None
    before: bool = False
    source: Nodes | None = None  # with `before`: on the edge from this one
    span: Span = field(compare=False, default=NOWHERE)


@dataclass(frozen=True)
class Replace:
    nodes: Nodes
    makings: tuple[Making, ...]
    span: Span = field(compare=False, default=NOWHERE)


@dataclass(frozen=True)
class Delete:
    """The nodes, or their edges to `to`."""

    nodes: Nodes
    to: Nodes | None = None
    span: Span = field(compare=False, default=NOWHERE)


@dataclass(frozen=True)
class Set:
    """An attribute; several values give a network each."""

    nodes: Nodes
    attribute: str
    values: tuple[Any, ...]
    span: Span = field(compare=False, default=NOWHERE)


Change: TypeAlias = Insert | Replace | Delete | Set


@dataclass(frozen=True)
class Cut:
    """What a slice is: from and to these nodes. Texts are selectors on the source."""

    inputs: tuple[Nodes, ...]
    outputs: tuple[Nodes, ...]
    support: str = "keep"
    span: Span = field(compare=False, default=NOWHERE)


@dataclass(frozen=True)
class Chosen:
    """A set of nodes that `where` asks something of: only those that fulfil it are changed."""

    nodes: Nodes
    test: Condition


@dataclass(frozen=True)
class Derivation:
    """A slice or construct: of each version (or derived network) that the query gives.

    `source` has one column, which stands for the network that `variable` is about.
    """

    verb: str
    name: str
    variable: str
    source: Query
    work: Cut | tuple[Change, ...]
    each: bool = False
    chosen: tuple[Chosen, ...] = ()
    into: str | None = None
    span: Span = field(compare=False, default=NOWHERE)


@dataclass(frozen=True)
class Bound:
    """A query and what has to be derived before it can be asked, in that order.

    `Derived(k)` within a query stands for what `derivations[k]` gives. Where the statement is
    itself a slice or construct, that is the last of them, and `query` is None.
    """

    query: Query | None
    derivations: tuple[Derivation, ...] = ()
    warnings: tuple[str, ...] = ()
