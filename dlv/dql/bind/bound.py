"""Statements with every name decided: what is asked, what is to be derived from it, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, TypeAlias

from dlv.dataclass import dataclass
from dlv.dql.words.ast import NOWHERE, Span
from dlv.metadata.select.relations import Condition, Nodes, Query, Setting, Value, walk_tree
from dlv.metadata.select.truth import truth
from dlv.training.ledger.space import Domain, Key, Lookup


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
    one_per_match: bool = False
    chosen: tuple[Chosen, ...] = ()
    into: str | None = None
    span: Span = field(compare=False, default=NOWHERE)


@dataclass(frozen=True)
class ConfigFile:
    """What settings are put over. `stored`: it came out of a version, so that nobody wrote it here.

    `folder`: where it lies, beside which paths in it are looked for, too.
    """

    where: str
    table: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    stored: bool = False


@dataclass(frozen=True)
class Rows:
    """The rows that a query gives are the values."""

    query: Query
    text: str
    span: Span = field(compare=False, default=NOWHERE)


@dataclass(frozen=True)
class Automatic:
    """The usual values of a key, or so many of them; `per_node`: for every node by itself."""

    levels: int | None = None
    per_node: bool = False


@dataclass(frozen=True)
class Varied:
    """Keys of the configuration that take their values together. `text`: as it was written."""

    keys: tuple[Key, ...]
    domain: Domain | Rows | Automatic
    when: Condition | None = None
    text: str = ""

    @property
    def reads(self) -> frozenset[Key]:
        """The keys that decide whether it is varied."""
        return frozenset(part.key for part in walk_tree(self.when) if isinstance(part, Setting))

    def applies(self, lookup: Lookup) -> bool:
        """Whether it is varied beside the values that a configuration has already."""

        def value(leaf: Value) -> Any:
            assert isinstance(leaf, Setting)
            return lookup(leaf.key)

        return self.when is None or truth(self.when, value) is True


@dataclass(frozen=True)
class Sampling:
    """How points are picked: "grid", "random" or "tpe"."""

    kind: str = "grid"
    n: int | None = None
    seed: int = 0
    batch: int = 4
    metric: str | None = None
    direction: str | None = None


@dataclass(frozen=True)
class Workers:
    """Where trials run: "local" or "ray"."""

    kind: str = "local"
    count: int | None = None
    address: str | None = None
    cpus: float = 1
    gpus: float = 0


@dataclass(frozen=True)
class Ranked:
    """What the results are ordered by: a metric, a key of the configuration, or a figure."""

    kind: str
    name: str
    key: Key = ()
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class Evaluation:
    """Trials: of each network that the query gives, with each configuration."""

    name: str
    variable: str
    source: Query
    config: ConfigFile
    settings: tuple[tuple[Key, Any], ...] = ()
    varied: tuple[Varied, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    rules: tuple[Mapping[str, Any], ...] = ()
    budget: Mapping[str, float] = field(default_factory=dict)
    workers: Workers = field(default_factory=Workers)
    into: str | None = None
    order: tuple[Ranked, ...] = ()
    limit: int | None = None
    offset: int | None = None
    source_text: str = ""  # what the networks come from, in a word
    span: Span = field(compare=False, default=NOWHERE)


@dataclass(frozen=True)
class Bound:
    """A query and what has to be derived before it can be asked, in that order.

    `Derived(k)` within a query stands for what `derivations[k]` gives. Where the statement is
    itself a slice or construct, that is the last of them, and `query` is None; so it is where it
    is an evaluate.
    """

    query: Query | None
    derivations: tuple[Derivation, ...] = ()
    warnings: tuple[str, ...] = ()
    evaluation: Evaluation | None = None
