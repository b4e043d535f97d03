"""What can be asked of the catalogue, as trees, which `statement.run` turns into SQL.

Variables are named so that no two of a statement are alike; a query inside another one may speak
of the outer one's. Everything a name could stand for is decided before such a tree is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, TypeAlias, TypeVar

from dlv.dataclass import FIELD_NAMES, dataclass
from dlv.network.patterns import Pattern
from dlv.network.selector import Selector


@dataclass(frozen=True)
class Named:
    """Nodes whose name fits; where a network has none, those whose alias fits.

    `captured`: only those of whose name the selector captures just this.
    """

    pattern: Selector | re.Pattern[str]
    captured: tuple[tuple[int, str], ...] | None = None


@dataclass(frozen=True)
class Fitting:
    """Nodes that fit one of these patterns."""

    patterns: tuple[Pattern, ...]


Nodal: TypeAlias = Named | Fitting


@dataclass(frozen=True)
class Hop:
    """To the nodes behind or before; `raw`: plumbing counts as nodes too.

    `closure`: to all that are reached so, in one step or many.
    """

    forward: bool
    raw: bool = False
    closure: bool = False


@dataclass(frozen=True)
class Pick:
    """One of them, in topological order; a negative one counts from the end."""

    place: int


Step: TypeAlias = Hop | Nodal | Pick  # Nodal: those of them that fit


@dataclass(frozen=True)
class Nodes:
    """A set of nodes of the network of a version; empty if it has none."""

    variable: str
    start: Nodal
    steps: tuple[Step, ...] = ()


Scalar: TypeAlias = bool | int | float | str | None
Listing: TypeAlias = tuple["Scalar | Listing", ...]

# Values


@dataclass(frozen=True)
class Constant:
    """A list stands only beside attributes of nodes and hyperparameters, for = and !=."""

    value: Scalar | Listing


@dataclass(frozen=True)
class Column:
    """A built-in attribute: one of COLUMNS, with the kind of its value."""

    variable: str
    name: str


# `net` is the hash of the structure, `creation_time` microseconds since 1970 in UTC.
COLUMNS = {
    "id": "text",
    "name": "text",
    "number": "number",
    "creation_time": "time",
    "author": "text",
    "message": "text",
    "framework": "text",
    "net": "text",
    "n_nodes": "number",
    "n_params": "number",
    "depth": "number",
    "dirty": "boolean",
    "source": "text",  # of a derived network: the version that it comes from, by the full hash
}
# Attributes with several values: a test holds if it holds of one of them.
MANY = {"tag": "text", "parents": "text"}


@dataclass(frozen=True)
class Hyperparameter:
    variable: str
    key: str


@dataclass(frozen=True)
class Metric:
    """A figure of a series: last, min, max, last_step, min_step, max_step or n.

    `name` is `run/tag`, or the tag alone where there is no run, as it is shown elsewhere.
    """

    variable: str
    name: str
    figure: str


@dataclass(frozen=True)
class MetricAt:
    """The value at a step; null if there is no point at just that step."""

    variable: str
    name: str
    step: int


@dataclass(frozen=True)
class NodeCount:
    nodes: Nodes


@dataclass(frozen=True)
class OfNodes:
    """An attribute of nodes as one value: what they share, else the list of all, in order.

    Null where no node has it.
    """

    nodes: Nodes
    attribute: str


@dataclass(frozen=True)
class NodeValue:
    """Inside the test of AnyNode or EveryNode: an attribute of the node at hand.

    One of the vocabulary's, or name, alias, op, variant, out_shape, n_params.
    """

    attribute: str


@dataclass(frozen=True)
class ManyValue:
    """Inside the test of AnyOf: the value at hand."""


@dataclass(frozen=True)
class Setting:
    """A key of a trial's configuration, in the `when` of what is varied."""

    key: tuple[str, ...]


@dataclass(frozen=True)
class Whole:
    """A version itself, as a column, in `count(m)`, `group by m` or on the left of `in (query)`."""

    variable: str


@dataclass(frozen=True)
class Listed:
    """For output alone: the values of one of MANY, or the names of nodes, as a list."""

    listed: str | Nodes
    variable: str


@dataclass(frozen=True)
class OfChange:
    """One of OF_CHANGES, of a variable over Changes."""

    variable: str
    name: str


# A layer's value is its operation; those of its attributes are named `layer.attribute`.
OF_CHANGES = {"kind": "text", "name": "text", "before": "any", "after": "any"}


@dataclass(frozen=True)
class Arithmetic:
    """+ - * / % as of floats: of NaN, or of infinities that cancel out, it is NaN.

    Division is that of real numbers, and null where the divisor is 0.
    """

    operator: str
    left: Value
    right: Value


@dataclass(frozen=True)
class Negative:
    value: Value


@dataclass(frozen=True)
class Coalesce:
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Case:
    """The value beside the first condition that is true, else `otherwise`."""

    whens: tuple[tuple[Condition, Value], ...]
    otherwise: Value


@dataclass(frozen=True)
class Aggregate:
    """count sum avg min max stddev median argmin argmax; `count(*)` has no value.

    `distinct`: equal values count once. `by`: of argmin and argmax, what decides.
    """

    function: str
    value: Value | None
    distinct: bool = False
    by: Value | None = None


@dataclass(frozen=True)
class Applied:
    """lower upper abs round length: a function of one value, and of `round` the digits."""

    function: str
    value: Value
    digits: int = 0


@dataclass(frozen=True)
class OneValue:
    """What a query of one row and one column gives; null where it gives none."""

    query: Query


@dataclass(frozen=True)
class Output:
    """A column of what a set operation gives, by its place: in its `order by`."""

    place: int


Value: TypeAlias = (
    Constant | Column | Hyperparameter | Metric | MetricAt | NodeCount | OfNodes | NodeValue
    | ManyValue | Setting | Whole | Listed | OfChange | Arithmetic | Negative | Coalesce | Case
    | Aggregate | Applied | OneValue | Output
)  # fmt: skip


# Conditions, with the three truth values of SQL


@dataclass(frozen=True)
class Truth:
    value: bool | None


@dataclass(frozen=True)
class All:
    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Either:
    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Not:
    part: Condition


@dataclass(frozen=True)
class Compare:
    """= != < <= > >=

    Null if a side is null. Values of different kinds (number, text, boolean, other) are not
    equal, and null with the other signs. NaN is a number that is unequal to all numbers.
    """

    operator: str
    left: Value
    right: Value


@dataclass(frozen=True)
class Like:
    """% any run, _ one character. `folded`: upper and lower case are one. Null if no text."""

    value: Value
    pattern: Value
    folded: bool = False
    escape: str | None = None


@dataclass(frozen=True)
class Matches:
    value: Value
    selector: Selector


@dataclass(frozen=True)
class OneOf:
    value: Value
    options: tuple[Constant, ...]


@dataclass(frozen=True)
class Within:
    """Among the values of the one column of a query, which are versions if this is a Whole."""

    value: Value
    query: Query


@dataclass(frozen=True)
class IsNull:
    value: Value


@dataclass(frozen=True)
class IsNan:
    """True or false: null is not NaN."""

    value: Value


@dataclass(frozen=True)
class Same:
    """Two variables stand for the same version."""

    left: str
    right: str


@dataclass(frozen=True)
class Is:
    """A version is one of these, by the full hash."""

    variable: str
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Related:
    """Lineage: left is derived_from, ancestor_of, child_of, parent_of or sibling_of right.

    A side is a variable or a Fixed version. `within`: over at most so many steps.
    """

    relation: str
    left: str | Fixed
    right: str | Fixed
    within: int | None = None


@dataclass(frozen=True)
class Fixed:
    """A version named outright, by the full hash."""

    id: str


@dataclass(frozen=True)
class Exists:
    query: Query


@dataclass(frozen=True)
class AnyNode:
    """Some node fulfils the test; without a test: there is one. Never null."""

    nodes: Nodes
    test: Condition | None = None


@dataclass(frozen=True)
class EveryNode:
    """There are nodes, and all of them fulfil the test. Never null."""

    nodes: Nodes
    test: Condition


@dataclass(frozen=True)
class Fits:
    """Inside the test of AnyNode or EveryNode: the node at hand fits one of the patterns."""

    patterns: tuple[Pattern, ...]


@dataclass(frozen=True)
class AnyOf:
    """Some value of an attribute of MANY fulfils the test; `parents` are ids. Never null."""

    variable: str
    name: str
    test: Condition


Condition: TypeAlias = (
    Truth | All | Either | Not | Compare | Like | Matches | OneOf | Within | IsNull | IsNan | Same
    | Is | Related | Exists | AnyNode | EveryNode | Fits | AnyOf
)  # fmt: skip

# Queries


@dataclass(frozen=True)
class Derived:
    """Networks that slice or construct made, put into the catalogue's temporary tables."""

    batch: int


@dataclass(frozen=True)
class Changes:
    """What differs between the versions of two variables that are declared before."""

    left: str
    right: str


@dataclass(frozen=True)
class Source:
    """What a variable stands for: any version, those of a query, derived networks, changes."""

    variable: str
    rows_from: Query | Derived | Changes | None = None


@dataclass(frozen=True)
class Item:
    """A column: its title, and what stands in it."""

    title: str
    value: Value


@dataclass(frozen=True)
class Order:
    value: Value
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class Select:
    items: tuple[Item, ...]
    sources: tuple[Source, ...]
    where: Condition | None = None
    group_by: tuple[Value, ...] = ()
    having: Condition | None = None
    distinct: bool = False


@dataclass(frozen=True)
class Combined:
    """union, union all, intersect, except"""

    operator: str
    left: Body
    right: Body


@dataclass(frozen=True)
class Query:
    """Without `order`: the newest first, groups by what they are grouped by."""

    body: Body
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int | None = None


Body: TypeAlias = Select | Combined | Query


# Ways through such trees

T = TypeVar("T")
_WHOLE = (Constant, Pattern, Selector)  # nothing in them is a part of the query
_LEAVES = {str, int, float, bool, type(None)}
_NAMING = {"variable", "left", "right"}  # where a text is the name of a variable


def map_tree(tree: T, change: Callable[[Any], Any]) -> T:
    """Every part through `change`, inner ones first. What stays equal stays the same object."""
    if isinstance(tree, tuple):
        parts = []
        same = True
        for part in tree:
            made = map_tree(part, change)
            same = same and made is part
            parts.append(made)
        return tree if same else tuple(parts)  # type: ignore[return-value]
    names = None if isinstance(tree, _WHOLE) else FIELD_NAMES[type(tree)]
    if names is None:
        return tree
    given: dict[str, Any] = {}
    for name in names:
        old = getattr(tree, name)
        if type(old) in _LEAVES:
            continue
        made = map_tree(old, change)
        if made is not old:
            given[name] = made
    result: T = change(replace(tree, **given) if given else tree)  # type: ignore[type-var]
    return result


def walk_tree(tree: Any) -> Iterator[Any]:
    """A tree and all that it is made of."""
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += part
        elif part is not None:
            yield part
            names = None if isinstance(part, _WHOLE) else FIELD_NAMES[type(part)]
            waiting += [getattr(part, name) for name in names or ()]


def own_parts(tree: Any, but: Sequence[Value] = ()) -> Iterator[Any]:
    """A tree's parts, without those of aggregates and of queries inside, and without `but`."""
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += part
        elif is_dataclass(part) and not isinstance(part, Query) and part not in but:
            yield part
            if not isinstance(part, Aggregate):
                waiting += [getattr(part, name) for name in FIELD_NAMES[type(part)] or ()]


def has_aggregate(*trees: Any) -> bool:
    """Whether one of them belongs to a group of rows."""
    return any(isinstance(part, Aggregate) for tree in trees for part in own_parts(tree))


def conjuncts(condition: Condition | None) -> list[Condition]:
    """The conditions that all have to hold, however they are put together."""
    if condition is None:
        return []
    if not isinstance(condition, All):
        return [condition]
    return [single for part in condition.parts for single in conjuncts(part)]


def rename_variable(tree: T, old: str, new: str) -> T:
    """The same tree about another variable."""

    def change(part: Any) -> Any:
        given = {
            name: new
            for name in FIELD_NAMES[type(part)] or ()
            if name in _NAMING and getattr(part, name) == old
        }
        return replace(part, **given) if given else part

    return map_tree(tree, change)
