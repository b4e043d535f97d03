"""What a name in a query can turn out to be, and what it can then be used for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from dlv.dataclass import dataclass
from dlv.dql.words import ast
from dlv.metadata.select.relations import Constant, Nodes, Query, Value

NUMBER, TEXT, BOOLEAN, TIME = "number", "text", "boolean", "time"
LIST, NULL, ANY, VERSION = "list", "null", "any", "version"
NODES, CONDITION = "nodes", "condition"  # of parts of a query, not of values
# How a value of a kind is spoken of.
WORDS = {
    NUMBER: "a number",
    TEXT: "a string",
    BOOLEAN: "true or false",
    TIME: "a time",
    LIST: "a list",
    NULL: "null",
    VERSION: "a version",
    ANY: "a value",
    NODES: "a set of nodes",
    CONDITION: "a condition",
}


@dataclass(frozen=True)
class Variable:
    """Something that ranges over versions. `unique`: its name among all of the statement.

    `derived`: it may stand for networks that the statement makes. `changes`: it ranges over what
    differs between two versions instead.
    """

    name: str
    unique: str
    derived: bool = False
    changes: bool = False


@dataclass(frozen=True)
class Whole:
    """A version itself."""

    variable: Variable


@dataclass(frozen=True)
class Scalar:
    """One value. `key`: of a hyperparameter, whose kind is looked up where it matters.

    `check` refuses constants that it can never equal.
    """

    value: Value
    kind: str
    key: str | None = None
    check: Callable[[ast.Part, Any], object] | None = None

    @property
    def constant(self) -> bool:
        return isinstance(self.value, Constant)


@dataclass(frozen=True)
class Several:
    """An attribute with several values: `tag`, `parents`."""

    variable: Variable
    name: str


@dataclass(frozen=True)
class NodeSet:
    nodes: Nodes


@dataclass(frozen=True)
class NodeAttribute:
    """An attribute of each node of a set. `kinds`: what it may hold."""

    nodes: Nodes
    name: str
    kinds: frozenset[str]


@dataclass(frozen=True)
class Selected:
    """`m["x"]`: nodes or a metric, which its use decides."""

    variable: Variable
    selector: ast.Selector


Thing: TypeAlias = Whole | Scalar | Several | NodeSet | NodeAttribute | Selected

# What to write in place of `{said}`, by what that is and what is wanted.
INSTEAD: dict[tuple[type, str], str] = {
    (Whole, ANY): "use one of its attributes: {said}.name, {said}.id",
    (NodeSet, ANY): "{said}.count is how many there are, {said}.out an attribute of them",
    (Several, ANY): "in `where`, {said} = .. tests whether one of them is equal",
    (Whole, TEXT): "{said}.name",
    (NodeSet, TEXT): "names of nodes: {said}.name",
    (Whole, NODES): '{said}["conv*"] is a set of nodes; to test for any: exists {said}[CONV]',
    (NodeSet, CONDITION): "exists {said}",
    (Selected, CONDITION): "{said} > 0.5",
    (Several, CONDITION): '{said} = ".."',
    (NodeAttribute, CONDITION): "{said} = ..",
    (Scalar, CONDITION): "compare it: {said} = ..",
}
# The same, whatever stands there.
EXAMPLES = {
    NODES: 'nodes are chosen by name or template: m["conv*"], m[CONV], m["conv*"].next',
    VERSION: 'write a variable such as m, or a reference: "lenet@3"',
}


@dataclass(frozen=True)
class Result:
    """A query inside another one, and what its columns hold.

    `name`: the variable that it is about. `derived`: some of its rows are new networks.
    """

    query: Query
    kinds: tuple[str, ...]
    titles: tuple[str, ...]
    name: str | None = None
    derived: bool = False


def constant(value: Any) -> Scalar:
    """A value of JSON; lists become tuples."""
    return Scalar(Constant(_fixed(value)), kind_of(value))


def kind_of(value: Any) -> str:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, (int, float)):
        return NUMBER
    return TEXT if isinstance(value, str) else LIST


def _fixed(value: Any) -> Any:
    return tuple(_fixed(each) for each in value) if isinstance(value, (list, tuple)) else value
