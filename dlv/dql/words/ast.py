"""Queries as trees. Every part knows which stretch of the text it was written as."""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from dlv.dataclass import dataclass


@dataclass(frozen=True)
class Span:
    """Offsets in the text, from `start` up to but without `end`."""

    start: int
    end: int


NOWHERE = Span(0, 0)


@dataclass(frozen=True)
class Part:
    """Anything in a query. Where it stands does not make it another one."""

    span: Span = field(compare=False, kw_only=True, default=NOWHERE)


@dataclass(frozen=True)
class Attribute(Part):
    """`.name`"""

    name: str


@dataclass(frozen=True)
class Method(Part):
    """`.at(100)`"""

    name: str
    args: tuple[Argument, ...]


@dataclass(frozen=True)
class Selector(Part):
    """`["conv*"]`: nodes by name, or a metric; `[re"^conv"]`, a regular expression."""

    text: str
    regular: bool = False


@dataclass(frozen=True)
class TypeSelector(Part):
    """`[CONV(kernel=3)]`: nodes by what they are."""

    template: Template


@dataclass(frozen=True)
class Index(Part):
    """`[0]`: one of a set, in topological order."""

    place: int


Trailer: TypeAlias = Attribute | Method | Selector | TypeSelector | Index


@dataclass(frozen=True)
class Path(Part):
    """`m`, `m.lr`, `m["conv*"].next`."""

    name: str
    trailers: tuple[Trailer, ...] = ()


@dataclass(frozen=True)
class Number(Part):
    value: int | float


@dataclass(frozen=True)
class Text(Part):
    value: str


@dataclass(frozen=True)
class Boolean(Part):
    value: bool


@dataclass(frozen=True)
class Null(Part):
    pass


@dataclass(frozen=True)
class Parameter(Part):
    """`$lr`, bound from outside."""

    name: str


@dataclass(frozen=True)
class Stretch(Part):
    """`1..8`, `0..64:16`: both ends are included."""

    first: int | float
    last: int | float
    step: int | float | None


@dataclass(frozen=True)
class Listing(Part):
    """`[1, 2, 4..8]`"""

    items: tuple[Expression | Stretch, ...]


@dataclass(frozen=True)
class Group(Part):
    """`(1, 2)`: values that belong together, or what may stand behind `in`."""

    items: tuple[Expression, ...]


@dataclass(frozen=True)
class Star(Part):
    """`*` in `select *` and `count(*)`."""


@dataclass(frozen=True)
class Argument(Part):
    """`value`, `name = value`, `value desc`, `distinct value`."""

    value: Expression | Star
    name: str | None = None
    direction: str | None = None
    distinct: bool = False


@dataclass(frozen=True)
class Call(Part):
    """`count(*)`, `range(1, 8)`, `top(5, m["loss"])`."""

    name: str
    args: tuple[Argument, ...]


@dataclass(frozen=True)
class Template(Part):
    """`POOL("MAX")`: a pattern of nodes, or how to make one. `called`: parentheses stood there."""

    name: str
    args: tuple[Argument, ...]
    called: bool


@dataclass(frozen=True)
class Binary(Part):
    """Arithmetic: + - * / %"""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class And(Part):
    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Or(Part):
    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Unary(Part):
    """`-x`, `not x`"""

    operator: str
    operand: Expression


@dataclass(frozen=True)
class Compare(Part):
    """= != < <= > >="""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Test(Part):
    """A condition on one value that `not` may stand in the middle of."""

    left: Expression
    negated: bool


@dataclass(frozen=True)
class Like(Test):
    """`like`, and `ilike` if `folded`."""

    pattern: Expression
    folded: bool
    escape: str | None


@dataclass(frozen=True)
class Matches(Test):
    pattern: str


@dataclass(frozen=True)
class In(Test):
    within: Listing | Group | Query | Saved | Parameter


@dataclass(frozen=True)
class Between(Test):
    low: Expression
    high: Expression


class IsNull(Test):
    """`is null`"""


class IsNan(Test):
    """`is nan`"""


@dataclass(frozen=True)
class Has(Test):
    templates: tuple[Template, ...]


@dataclass(frozen=True)
class Quantified(Part):
    """`every m["conv*"].out > 3`: any, every or no."""

    quantifier: str
    test: Expression


@dataclass(frozen=True)
class Lineage(Part):
    """`a derived_from b within 3`"""

    relation: str
    left: Expression
    right: Expression
    within: int | None


@dataclass(frozen=True)
class Exists(Part):
    tested: Path | Query


@dataclass(frozen=True)
class OneValue(Part):
    """`(select max(n["acc"]) from n)`: the value that a query of one row and column gives."""

    query: Query


@dataclass(frozen=True)
class Case(Part):
    """`case when A then x when B then y else z end`: the value of the first one that holds."""

    whens: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None


Expression: TypeAlias = (
    Path | Call | Number | Text | Boolean | Null | Parameter | Listing | Group | Binary | Unary
    | And | Or | Compare | Like | Matches | In | Between | IsNull | IsNan | Has | Quantified
    | Lineage | Exists | OneValue | Case
)  # fmt: skip


# Clauses


@dataclass(frozen=True)
class Saved(Part):
    """`"good"`: a query by its name."""

    name: str


@dataclass(frozen=True)
class Source(Part):
    """One thing of `from`: a variable over a query or a call, or over all versions."""

    name: str | None
    query: Query | Saved | Call | None


@dataclass(frozen=True)
class Item(Part):
    value: Expression | Star
    name: str | None


@dataclass(frozen=True)
class Order(Part):
    value: Expression
    descending: bool
    nulls_first: bool | None


@dataclass(frozen=True)
class Action(Part):
    """`path = value`, `path in domain`, or `path` alone."""

    path: Path
    value: Expression | None = None
    domain: Domain | None = None


Domain: TypeAlias = Listing | Call | Stretch | Saved | Parameter  # and Query


@dataclass(frozen=True)
class Dimension(Part):
    """What is varied: one path, or several `linked` ones, over a domain or `auto`."""

    paths: tuple[Path, ...]
    linked: bool
    domain: Domain | Query | None
    auto: tuple[Argument, ...] | None
    when: Expression | None


@dataclass(frozen=True)
class Select(Part):
    items: tuple[Item, ...]
    distinct: bool = False
    sources: tuple[Source, ...] = ()
    where: Expression | None = None
    group_by: tuple[Expression, ...] = ()
    having: Expression | None = None


@dataclass(frozen=True)
class Derived(Part):
    """A query that makes networks. `one_per_match`: one for every match; None: not said."""

    name: str
    sources: tuple[Source, ...]
    where: Expression | None
    one_per_match: bool | None
    actions: tuple[Action, ...]
    into: str | None


class Slice(Derived):
    """Parts of networks."""


class Construct(Derived):
    """Networks changed."""


@dataclass(frozen=True)
class Evaluate(Part):
    name: str
    sources: tuple[Source, ...]
    where: Expression | None
    settings: tuple[Action, ...]
    vary: tuple[Dimension, ...]
    using: Call | None
    keep: tuple[Call, ...]
    budget: tuple[Argument, ...]
    on: Call | None
    into: str | None


@dataclass(frozen=True)
class SetOperation(Part):
    """union, union all, intersect, except."""

    operator: str
    left: Body
    right: Body


@dataclass(frozen=True)
class Query(Part):
    body: Body
    order_by: tuple[Order, ...] = ()
    limit: int | Parameter | None = None
    offset: int | Parameter | None = None


Body: TypeAlias = Select | Slice | Construct | Evaluate | SetOperation | Query


@dataclass(frozen=True)
class Define(Part):
    name: str
    query: Query


@dataclass(frozen=True)
class Explain(Part):
    query: Query
    analyze: bool


Statement: TypeAlias = Query | Define | Explain
