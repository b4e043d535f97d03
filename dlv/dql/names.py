"""From the tree of a query to one in which every name is decided, or to all that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dlv.dql import ast, parser, queries
from dlv.dql.bound import Bound
from dlv.dql.faults import Fault, refuse
from dlv.dql.reading import Found, Parse, Reading, Reported
from dlv.lazy import lazy
from dlv.metadata.known_names import KnownNames
from dlv.metadata.relations import Query

if TYPE_CHECKING:
    import dlv.dql.derivations as derivations
else:  # most queries ask for rows
    derivations = lazy("dlv.dql.derivations")


def resolve(
    text: str,
    query: ast.Query,
    known: KnownNames,
    parameters: Mapping[str, Any] | None = None,
    *,
    defining: str | None = None,
    parse: Parse = parser.parse,
) -> Bound:
    """The query of one statement; Faults with all that is wrong in it.

    `defining`: the name it is to be saved under. Its parameters may have no values then, and
    what comes back is not to be run. `parse` reads saved queries.
    """
    found = Found()
    reading = Reading(
        text, known, parameters or {}, parse, queries.Queries(), found, defining=defining
    )
    asked: Query | None = None
    done = False
    with reading.collecting():
        asked = _statement(reading, query)
        done = True
    faults = [*found.faults]
    if found.missing and defining is None:
        faults.append(_missing(reading))
    refuse(faults)
    if not done and not found.missing:
        raise Reported
    return Bound(asked, tuple(found.derivations), tuple(found.warnings))


def _statement(reading: Reading, query: ast.Query) -> Query | None:
    body: ast.Body = query
    while isinstance(body, ast.Query) and _bare(body):
        body = body.body
    if isinstance(body, ast.Derived):
        derivations.derivation(reading, body, nested=False)
        return None
    return queries.query(reading, None, query).query


def _bare(query: ast.Query) -> bool:
    return not query.order_by and query.limit is None and query.offset is None


def _missing(reading: Reading) -> Fault:
    """One fault for all parameters without values, where the first of them stands."""
    missing = sorted(reading.found.missing.values(), key=lambda each: each[1].span.start)
    first, names = missing[0], [part.name for _, part in missing]
    listed = ", ".join(f"${name}" for name in names)
    inside, part = first
    return inside.fault(
        part.span,
        f"{listed} {'has no value' if len(names) == 1 else 'have no values'}",
        hint=" ".join(f"-P {name}=VALUE" for name in names),
    )
