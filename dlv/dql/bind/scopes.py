"""Variables: which a query has, which it sees of the query around it, which go together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dlv.dql.bind.binder import Binder
from dlv.dql.bind.things import Variable
from dlv.dql.words import ast
from dlv.errors import nearest
from dlv.metadata.select.field_names import FIELD_NAMES
from dlv.metadata.select.relations import COLUMNS, MANY


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
        f"`{path.name}` is no variable of this query",
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
    return declared if path.trailers else f'{declared}; a text stands in quotes: "{path.name}"'


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
