"""Where the variables of a query come from: its `from`, or that it speaks of them at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dlv.dataclass import FIELD_NAMES
from dlv.dql.bind.binder import Binder, Reported
from dlv.dql.bind.changes import changes
from dlv.dql.bind.things import VERSION, Result, Variable
from dlv.dql.words import ast
from dlv.errors import nearest
from dlv.metadata.select.relations import COLUMNS, MANY, Changes, Query, Source


def variable(binder: Binder, path: ast.Path) -> Variable:
    """What a path begins with."""
    visible = binder.scope.visible()
    if path.name in visible:
        return visible[path.name]
    known = list(visible)
    start = ast.Span(path.span.start, path.span.start + len(path.name))
    words = nearest(path.name, ["true", "false", "null"]) if not path.trailers else []
    meant = None if path.trailers else column(binder, path.name, next(iter(known), "m"))
    words = words if meant is None else [meant]
    if path.name.lower() == "nan" and not path.trailers:
        words = ["is nan"]
    raise binder.fault(
        start,
        f"`{path.name}` is not a variable of this query",
        why=f"it has {', '.join(f'`{each}`' for each in known)}" if known else "it has none",
        did_you_mean=words or nearest(path.name, known),
        hint=None if words else _hint(path, known),
    )


def column(binder: Binder, name: str, whose: str = "m") -> str | None:
    """How an attribute, a hyperparameter or a metric of that name is asked for; None: no such."""
    if name.lower() in (*COLUMNS, *MANY) or binder.known.has_hyperparameter(name):
        return f"{whose}.{name}"
    return f'{whose}["{name}"]' if binder.known.has_series(name) else None


def _hint(path: ast.Path, known: Sequence[str]) -> str:
    declared = f"from {', '.join([*known, path.name])}" if known else f"from {path.name}"
    return declared if path.trailers else f'{declared}; write strings in quotes: "{path.name}"'


def used(*parts: Any) -> dict[str, ast.Path]:
    """The names with which paths begin, where each comes first; without queries inside."""
    found: dict[str, ast.Path] = {}
    for path in paths_in(parts):
        found.setdefault(path.name, path)
    return found


def bare(name: str, *parts: Any) -> bool:
    """Whether nothing is ever asked of a variable: it may be a word that was meant otherwise."""
    return not any(path.trailers for path in paths_in(parts) if path.name == name)


def paths_in(parts: Iterable[Any], *, inner: bool = False) -> Iterator[ast.Path]:
    waiting = list(parts)[::-1]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += part[::-1]
        elif isinstance(part, ast.Path):
            yield part
            waiting += [t.args for t in part.trailers if isinstance(t, ast.Method)]
        elif isinstance(part, ast.Query) and not inner:
            continue
        elif isinstance(part, ast.Part) and not isinstance(part, ast.Template):
            waiting += [getattr(part, name) for name in (FIELD_NAMES[type(part)] or ())[::-1]]


def groups(names: Iterable[str], conditions: Iterable[Any]) -> dict[str, str]:
    """Which variables one condition or another joins: each name, and one that stands for all."""
    group = {name: name for name in names}

    def root(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    for condition in _single(conditions):
        met = list(dict.fromkeys(p.name for p in paths_in([condition], inner=True)))
        met = [name for name in met if name in group]
        for name in met[1:]:
            group[root(name)] = root(met[0])
    return {name: root(name) for name in group}


def _single(conditions: Iterable[Any]) -> Iterator[Any]:
    """Conditions that `and`, `or` and `not` put together, one by one."""
    waiting = [condition for condition in conditions if condition is not None]
    while waiting:
        part = waiting.pop()
        if isinstance(part, (ast.And, ast.Or)):
            waiting += part.parts
        elif isinstance(part, ast.Unary) and part.operator == "not":
            waiting.append(part.operand)
        else:
            yield part


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
    unread = len(sources)
    named = [source.name for source in sources if source.name is not None]
    open_name = _open_name(inside, parts, [*named, *but])
    given = [source.name or open_name for source in sources]
    # Names of this query come first, so that those inside are the ones that get numbers.
    uniques = [None if name is None else binder.new_variable(name) for name in given]
    for source, name, unique in zip(sources, given, uniques, strict=True):
        with binder.collecting():
            rows_from: Query | Changes | None = None
            derived = False
            if isinstance(source.query, ast.Call):
                hidden, rows_from = changes(inside, source.query, alone=alone)
                made += hidden
            elif (result := _result(binder, source)) is not None:
                name, rows_from, derived = name or result.name, result.query, result.derived
            name = name or IMPLICIT
            unique = unique or binder.new_variable(name)
            if name in inside.scope.variables:
                raise binder.fault(
                    source.span,
                    f"`{name}` is declared twice",
                    hint=f"another name for one of them: {name}2",
                )
            of_changes = isinstance(rows_from, Changes)
            inside.scope.variables[name] = Variable(name, unique, derived, of_changes)
            made.append(Source(unique, rows_from))
            unread -= 1
    if unread:
        raise Reported
    return inside, tuple(made)


def _result(binder: Binder, source: ast.Source) -> Result | None:
    if source.query is None:
        return None
    assert not isinstance(source.query, ast.Call)
    result = binder.query(source.query, alone=True)
    if result.kinds != (VERSION,):
        shown = ", ".join(result.titles)
        raise binder.fault(
            source.query.span,
            "a source gives versions, one in each row",
            why=f"this one gives {shown}",
            hint="select only a variable: (select m where ..)",
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
            f"`{name}` alone is a variable for versions",
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
                f"`{name}` is neither selected nor joined",
                why=f"each row would be repeated for every {name}",
                hint=f"select it, or join {name} with {(chosen or names)[0]}",
            )
