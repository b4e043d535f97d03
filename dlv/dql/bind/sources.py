"""Where the variables of a query come from: its `from`, or that it speaks of them at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlv.dql.bind.binder import Binder, Reported
from dlv.dql.bind.scopes import bare, column, groups, used
from dlv.dql.bind.things import VERSION, Result, Variable
from dlv.dql.words import ast
from dlv.metadata.select.relations import COLUMNS, MANY, Source

IMPLICIT = "m"  # of `select count(*)`, which names nothing


def declared(
    binder: Binder,
    sources: Sequence[ast.Source],
    parts: Sequence[Any],
    but: Sequence[str] = (),
    *,
    alone: bool = False,
) -> tuple[Binder, tuple[Source, ...]]:
    """What sees the variables of a `from`, and what they range over.

    `parts` use them; `but`: names in these that are no variables.
    """
    inside = binder.inner(alone=alone)
    made: list[Source] = []
    named = [source.name for source in sources if source.name is not None]
    open_name = _open_name(inside, parts, [*named, *but])
    given = [source.name or open_name for source in sources]
    # Names of this query come first, so that those inside are the ones that get numbers.
    uniques = [None if name is None else binder.new_variable(name) for name in given]
    for source, name, unique in zip(sources, given, uniques, strict=True):
        with binder.collecting():
            result = _result(binder, source)
            name = name or (None if result is None else result.name) or IMPLICIT
            unique = unique or binder.new_variable(name)
            if name in inside.scope.variables:
                raise binder.fault(
                    source.span,
                    f"`{name}` is declared twice",
                    hint=f"another name for one of them: {name}2",
                )
            derived = result is not None and result.derived
            inside.scope.variables[name] = Variable(name, unique, derived)
            made.append(Source(unique, None if result is None else result.query))
    if len(made) < len(sources):
        raise Reported
    return inside, tuple(made)


def _result(binder: Binder, source: ast.Source) -> Result | None:
    if source.query is None:
        return None
    result = binder.query(source.query, alone=True)
    if result.kinds != (VERSION,):
        shown = ", ".join(result.titles)
        raise binder.fault(
            source.query.span,
            "a source gives versions, one in each row",
            why=f"this one gives {shown}",
            hint="select a variable alone: (select m where ..)",
        )
    return result


def _open_name(binder: Binder, parts: Sequence[Any], named: Sequence[str]) -> str | None:
    """What a source without a name is called where the query speaks of just one thing besides."""
    known = {*named, *binder.scope.visible()}
    names = [name for name in used(*parts) if name not in known]
    return names[0] if len(names) == 1 else None


def free(
    binder: Binder, items: Sequence[Any], others: Sequence[Any]
) -> tuple[Binder, tuple[Source, ...]]:
    """Variables without a `from`: what is selected, and what no query around it has."""
    titles = {item.name for item in items if item.name is not None}
    around = binder.scope.visible()
    names = list(used(*items))
    for name in used(*others):
        word = name in titles and bare(name, *others)
        if name not in names and name not in around and not word:
            names.append(name)
    _check_columns(binder, names, items, others)
    inside = binder.inner()
    for name in names or [IMPLICIT]:
        inside.scope.variables[name] = Variable(name, binder.new_variable(name))
    return inside, tuple(Source(each.unique) for each in inside.scope.variables.values())


def _check_columns(
    binder: Binder, names: Sequence[str], items: Sequence[Any], others: Sequence[Any]
) -> None:
    """`select name, loss` would be all versions beside all versions."""
    where, _, having, _ = others
    found = False
    for name in names:
        known = name.lower() in (*COLUMNS, *MANY)
        # A version may well be called `n`, as some hyperparameter is.
        known = known or ((len(names) > 1 or len(name) > 1) and column(binder, name) is not None)
        if not known or name in used(where, having) or not bare(name, *items, *others):
            continue
        found = True
        path = used(*items, *others)[name]
        whose = next((each for each in names if column(binder, each) is None), "m")
        meant = column(binder, name, whose) or ""
        binder.note(
            path.span,
            f"`{name}` alone is a variable, which stands for versions",
            did_you_mean=[meant],
            hint=f"select {meant} from {whose}",
        )
    if found:
        raise Reported


def check_joined(binder: Binder, part: ast.Select) -> None:
    """A free variable that nothing ties to what is selected is a typing error at best."""
    names = list(binder.scope.variables)
    if len(names) == 1:
        return
    chosen = [name for name in used(*part.items, *part.group_by) if name in binder.scope.variables]
    group = groups(names, [part.where, part.having])
    tied = {group[name] for name in chosen or names[:1]}
    paths = used(part.where, part.having, *part.items)
    for name in names:
        if group[name] not in tied:
            path = paths.get(name)
            span = part.span if path is None else path.span
            start = ast.Span(span.start, span.start + len(name))
            binder.note(
                start,
                f"`{name}` is neither selected nor joined to what is",
                why=f"each row would come once for every {name}",
                hint=f"select it, or say how {name} and {(chosen or names)[0]} belong together",
            )
