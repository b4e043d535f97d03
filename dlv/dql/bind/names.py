"""From the tree of a query to one in which every name is decided, or to all that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlv.dql.bind import derivations, queries
from dlv.dql.bind.binder import Binder, Notes, Parse, ReadConfig, Reported
from dlv.dql.bind.bound import Bound, Evaluation
from dlv.dql.bind.faults import Fault, refuse
from dlv.dql.words import ast, parser
from dlv.metadata.known_names import KnownNames
from dlv.metadata.select.relations import Query


def resolve(
    text: str,
    query: ast.Query,
    known: KnownNames,
    parameters: Mapping[str, Any] | None = None,
    *,
    defining: str | None = None,
    parse: Parse = parser.parse,
    config_file: ReadConfig | None = None,
) -> Bound:
    """The query of one statement; Faults with all that is wrong in it.

    `defining`: the name it is to be saved under. Its parameters may have no values then, and
    what comes back is not to be run. `parse` reads saved queries, `config_file` configurations.
    """
    notes = Notes()
    binder = Binder(
        *(text, known, parameters or {}, parse, queries.query, notes),
        defining=defining,
        config_file=config_file,
    )
    asked: Query | Evaluation | None = None
    whole = False
    with binder.collecting():
        asked = _statement(binder, query)
        whole = True
    faults = [*notes.faults]
    if notes.missing and defining is None:
        faults.append(_missing(binder))
    refuse(faults)
    if not whole and not notes.missing:
        raise Reported
    evaluation = asked if isinstance(asked, Evaluation) else None
    selected = None if isinstance(asked, Evaluation) else asked
    return Bound(selected, tuple(notes.derivations), tuple(notes.warnings), evaluation)


def _statement(binder: Binder, query: ast.Query) -> Query | Evaluation | None:
    around: ast.Query | None = None  # what orders or limits, if only one does
    body: ast.Body = query
    while isinstance(body, ast.Query) and (around is None or _bare(body)):
        around = around if _bare(body) else body
        body = body.body
    if isinstance(body, ast.Derived) and around is None:
        derivations.derivation(binder, body, nested=False)
        return None
    if isinstance(body, ast.Evaluate):
        import dlv.dql.bind.evaluations as evaluations

        return evaluations.evaluation(binder, body, around or ast.Query(body, span=body.span))
    return queries.query(binder, query).query


def _bare(query: ast.Query) -> bool:
    return not query.order_by and query.limit is None and query.offset is None


def _missing(binder: Binder) -> Fault:
    """One fault for all parameters without values, where the first of them stands."""
    missing = sorted(binder.notes.missing.values(), key=lambda each: each[1].span.start)
    first, names = missing[0], [part.name for _, part in missing]
    listed = ", ".join(f"${name}" for name in names)
    inside, part = first
    return inside.fault(
        part.span,
        f"{listed} {'has no value' if len(names) == 1 else 'have no values'}",
        hint=" ".join(f"-P {name}=VALUE" for name in names),
    )
