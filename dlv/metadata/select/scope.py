"""What the SQL of one query shares: parameters, variables, sets of ids, functions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, TypeVar

from dlv.canonical import dumps
from dlv.dataclass import dataclass
from dlv.metadata.database import Database
from dlv.metadata.schemas import stored_number
from dlv.metadata.select.functions import AGGREGATES, LARGEST
from dlv.metadata.select.relations import Condition, Query

PointReader = Callable[[str, str, int], float | None]  # (version, series, step) -> value

CHANGES = "changes_"  # the ground of a variable that stands for changes
TRUE, FALSE = b"\x01", b"\x00"  # booleans are no numbers
_FEW = 16  # values that may stand in the SQL's own lists

T = TypeVar("T")
_statements = itertools.count(1)


@dataclass(frozen=True)
class Expression:
    """SQL of a value; `kind`: number, text, time, boolean, version, list, null, or any.

    Numbers and texts are SQLite's own, NaN, booleans and lists are blobs: `typeof` and `length`
    tell kinds apart.
    `column`: it is one, so that it has an affinity, and perhaps an index. `grouped`: an aggregate
    stands in it.
    """

    sql: str
    kind: str
    column: bool = False
    grouped: bool = False

    @property
    def bare(self) -> str:
        """Without affinity: SQLite would make texts out of numbers beside a column of texts."""
        return f"+{self.sql}" if self.column else self.sql


@dataclass(frozen=True)
class Range:
    """What a variable stands for, as a table: versions, derived networks, or both."""

    variable: str
    alias: str
    ground: str  # what tables of networks begin with: nothing, derived_, any_
    at_net: str | None = None  # where just one network is asked about

    @property
    def table(self) -> str:
        return f"{self.ground}version"

    @property
    def key(self) -> str:
        """Equal for equal versions, and for derived networks that are equal."""
        return f"{self.alias}.first_id" if self.ground else f"{self.alias}.id"

    @property
    def row(self) -> str:
        """The row of a version, of a derived one that of its source."""
        return f"{self.alias}.source_id" if self.ground else f"{self.alias}.id"

    @property
    def net(self) -> str:
        return self.at_net or f"{self.alias}.net_id"

    @property
    def hash(self) -> str:
        return f"{self.alias}.hash"


def encoded(value: Any) -> Any:
    """A constant as SQLite gets it, so that values of one kind have one storage class."""
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, int):
        return value if -LARGEST <= value <= LARGEST else float(value)
    if isinstance(value, float):
        return stored_number(value)
    if isinstance(value, (tuple, list, dict)):
        return b"j" + dumps(_plain(value))
    return value


def _plain(value: Any) -> Any:
    return [_plain(each) for each in value] if isinstance(value, (tuple, list)) else value


@dataclass
class Statement:
    """One query on its way to SQL. The two writers are those of conditions and of queries."""

    db: Database
    write_condition: Callable[[Statement, Condition, bool], str]
    write_query: Callable[[Statement, Query], tuple[str, str]]
    metric_at: PointReader | None = None
    shared_functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)  # functions
    forced: str | None = None  # a plan that is taken where it can be, for tests
    most_within: int = 3  # queries in a query, beyond which an inner one is asked first
    steps: list[Any] = field(default_factory=list)  # what `explain` tells
    parameters: dict[str, Any] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    tables: list[str] = field(default_factory=list)  # made for this query alone
    heights: list[int] = field(default_factory=list)  # queries within those that are being written
    many: list[str] = field(default_factory=list)  # what `ManyValue` is, innermost last
    nodes: list[Callable[[str], Expression]] = field(default_factory=list)  # and `NodeValue`
    cache: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._number = next(_statements)
        self._names = itertools.count(1)

    def condition(self, condition: Condition, positive: bool = False) -> str:
        """`positive`: null may as well be false there."""
        return self.write_condition(self, condition, positive)

    def about(self, range_: Range, condition: Condition) -> str:
        """A condition that has to hold, with its variable in this range."""
        outer = self.ranges[range_.variable]
        self.ranges[range_.variable] = range_
        try:
            return self.condition(condition, True)
        finally:
            self.ranges[range_.variable] = outer

    def column_of(self, query: Query) -> tuple[str, str]:
        """(SQL, kind) of a query of one column; of versions it gives their keys."""
        return self.write_query(self, query)

    def bind(self, value: Any) -> str:
        name = f"p{len(self.parameters) + 1}"
        self.parameters[name] = encoded(value)
        return f":{name}"

    def name(self, word: str) -> str:
        return f"{word}{next(self._names)}"

    def once(self, template: str, *given: Expression) -> str:
        """`{0}`, `{1}` of the template are these values, which SQLite finds but once.

        Aggregates cannot stand in an inner query, and are repeated.
        """
        if any(each.grouped for each in given):
            return f"({template.format(*(each.bare for each in given))})"
        names = [self.name("x") for _ in given]
        called = (f"{each.bare} AS {name}" for each, name in zip(given, names, strict=True))
        return f"(SELECT {template.format(*names)} FROM (SELECT {', '.join(called)}))"

    def function(self, word: str, called: Callable[..., Any]) -> str:
        """The name under which SQL may call it."""
        name = f"{word}_{self._number}_{next(self._names)}"
        self.functions[name] = called
        return name

    def remembered(self, key: Any, make: Callable[[], T]) -> T:
        """What was made before under this key, or now."""
        if key not in self.cache:
            self.cache[key] = make()
        found: T = self.cache[key]
        return found

    def values(self, values: Iterable[Any]) -> str:
        """What may stand behind IN; many of them go into a table."""
        given = list(dict.fromkeys(map(encoded, values)))
        if len(given) <= _FEW:
            return f"({', '.join(map(self.bind, given))})"
        table = self._made("value_list", "value")
        self.db.many(f"INSERT INTO {table} VALUES (?)", [(value,) for value in given])
        return f"(SELECT value FROM {table})"

    def ids(self, ids: frozenset[int]) -> str:
        """A table of ids, as one parameter; equal sets share it.

        To make and drop a table would cost more than all else that is asked of it: SQLite reads
        its whole schema anew when the transaction is over.
        """
        key = "ids", ids
        if key not in self.cache:
            self.cache[key] = self.bind(f"[{','.join(map(str, sorted(ids)))}]")
        return f"(SELECT value AS id FROM json_each({self.cache[key]}))"

    def _made(self, word: str, columns: str) -> str:
        name = f"temp.{word}_{self._number}_{next(self._names)}"
        self.db.execute(f"CREATE TABLE {name}({columns})")
        self.tables.append(name)
        return name

    def made(self, word: str, columns: str, rows: Sequence[Sequence[Any]]) -> str:
        """A table of this query's own, with these rows."""
        name = self._made(word, columns)
        if rows:
            self.db.many(f"INSERT INTO {name} VALUES ({','.join('?' * len(rows[0]))})", rows)
        return name

    @contextmanager
    def callable(self) -> Iterator[None]:
        """SQL may call the functions that it speaks of."""
        with self.db.functions({**self.shared_functions, **self.functions}, AGGREGATES):
            yield

    def drop(self) -> None:
        """Where a transaction goes on behind the query, its tables would stay."""
        for name in self.tables:
            self.db.execute(f"DROP TABLE IF EXISTS {name}")
        self.tables.clear()
        self.db.forget_functions(self.functions)

    @contextmanager
    def value_at_hand(self, sql: str) -> Iterator[None]:
        self.many.append(sql)
        try:
            yield
        finally:
            self.many.pop()

    @contextmanager
    def node_at_hand(self, value: Callable[[str], Expression]) -> Iterator[None]:
        self.nodes.append(value)
        try:
            yield
        finally:
            self.nodes.pop()


def joined(parts: Sequence[str], word: str) -> str:
    """`(a AND b) AND (c AND d)`: a tree of little depth, however many there are."""
    if len(parts) == 1:
        return parts[0]
    if len(parts) <= 30:
        return "(" + f" {word} ".join(parts) + ")"
    middle = len(parts) // 2
    return f"({joined(parts[:middle], word)} {word} {joined(parts[middle:], word)})"
