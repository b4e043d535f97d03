"""What `m.lr`, `m["conv*"].next` and their like stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dlv.dql.bind import changes, templates
from dlv.dql.bind.binder import Binder
from dlv.dql.bind.constants import is_constant, plain
from dlv.dql.bind.sources import variable
from dlv.dql.bind.templates import GENERAL, everywhere, of_operation
from dlv.dql.bind.things import (
    ANY,
    NUMBER,
    NodeAttribute,
    NodeSet,
    Scalar,
    Selected,
    Several,
    Thing,
    Variable,
    Whole,
)
from dlv.dql.words import ast
from dlv.errors import nearest
from dlv.metadata.select.relations import (
    COLUMNS,
    MANY,
    Column,
    Fitting,
    Hop,
    Hyperparameter,
    Metric,
    MetricAt,
    Named,
    Nodal,
    NodeCount,
    Nodes,
    Pick,
)

HOPS = {
    "next": Hop(True),
    "prev": Hop(False),
    "next_raw": Hop(True, True),
    "prev_raw": Hop(False, True),
    "next*": Hop(True, closure=True),
    "prev*": Hop(False, closure=True),
}
FIGURES = {"last": "last", "min": "min", "max": "max", "step": "last_step", "steps": "n"}
_STEPPED = {"last": "last_step", "min": "min_step", "max": "max_step"}
_NAMING = {"nodes", "metrics", "hparams"}


def thing(binder: Binder, path: ast.Path) -> Thing:
    """What a path stands for; `m["x"]` alone is left open."""
    whose = variable(binder, path)
    if whose.changes:
        return changes.attribute(binder, whose, path)
    if not path.trailers:
        return Whole(whose)
    first, rest = path.trailers[0], path.trailers[1:]
    if isinstance(first, ast.Attribute):
        if first.name.lower() in _NAMING and rest and isinstance(rest[0], ast.Selector):
            return _named(binder, whose, first.name.lower(), rest)
        return _attribute(binder, whose, path)
    if isinstance(first, ast.Selector):
        if not rest:
            return Selected(whose, first)
        figure = rest[0].name.lower() if isinstance(rest[0], (ast.Attribute, ast.Method)) else ""
        if figure in FIGURES or (figure == "at" and isinstance(rest[0], ast.Method)):
            return metric(binder, whose, first, rest)
        return walk(binder, start(binder, whose, first), rest)
    if isinstance(first, ast.TypeSelector):
        return walk(binder, start(binder, whose, first), rest)
    if isinstance(first, ast.Index):
        raise binder.fault(
            first.span,
            "a version has no places to count",
            hint=f'{path.name}["conv*"][{first.place}] is one of a set of nodes',
        )
    raise binder.fault(
        first.span,
        f"`{first.name}` cannot be called here",
        hint=f'{path.name}["loss"].at(100) is the value of a metric at a step',
    )


def _named(binder: Binder, whose: Variable, kind: str, trailers: Sequence[ast.Trailer]) -> Thing:
    """`m.nodes["x"]`, `m.metrics["x"]`, `m.hparams["x"]`: said outright."""
    first = trailers[0]
    assert isinstance(first, ast.Selector)
    if kind == "nodes":
        return walk(binder, start(binder, whose, first), trailers[1:])
    if kind == "metrics":
        return metric(binder, whose, first, trailers[1:])
    if trailers[1:]:
        raise binder.fault(trailers[1].span, "a hyperparameter has no attributes")
    key = first.text
    if not binder.known.has_hyperparameter(key):
        raise _unknown(binder, whose, key, first.span)
    return Scalar(Hyperparameter(whose.unique, key), ANY, key)


def _attribute(binder: Binder, whose: Variable, path: ast.Path) -> Thing:
    names = [each.name for each in path.trailers if isinstance(each, ast.Attribute)]
    span = ast.Span(path.trailers[0].span.start + 1, path.trailers[-1].span.end)  # without the dot
    key = ".".join(names)
    if len(names) < len(path.trailers):
        odd = next(each for each in path.trailers if not isinstance(each, ast.Attribute))
        raise binder.fault(
            odd.span,
            f"this cannot follow `{whose.name}.{names[0]}`",
            hint=f'nodes and metrics are {whose.name}["NAME"]',
        )
    plain_name = key.lower()
    if plain_name in MANY:
        return Several(whose, plain_name)
    if plain_name in COLUMNS and (plain_name != "source" or whose.derived):
        return Scalar(Column(whose.unique, plain_name), COLUMNS[plain_name])
    if binder.known.has_hyperparameter(key):
        return Scalar(Hyperparameter(whose.unique, key), ANY, key)
    raise _unknown(binder, whose, key, span)


def _unknown(binder: Binder, whose: Variable, key: str, span: ast.Span) -> Exception:
    always = [name for name in (*COLUMNS, *MANY) if name != "source"]
    known = [*always, *binder.known.hyperparameters]
    hint = None
    if binder.known.has_series(key):
        hint = f'a metric has this name: {whose.name}["{key}"]'
    elif key in ("next", "prev", "count", "next_raw", "prev_raw"):
        hint = f'this is asked of nodes: {whose.name}["conv*"].{key}'
    return binder.fault(
        span,
        f"`{key}` is not an attribute, and no version has such a hyperparameter",
        did_you_mean=[] if hint else nearest(key, known),
        hint=hint or f"always there: {', '.join(always)}",
    )


# Metrics


def metric(
    binder: Binder, whose: Variable, selector: ast.Selector, trailers: Sequence[ast.Trailer] = ()
) -> Scalar:
    """A figure of a series, the last value where nothing is said."""
    name = selector.text
    if selector.regular or not binder.known.has_series(name):
        layers = binder.known.has_layer(name)
        raise binder.fault(
            selector.span,
            f'no version has a metric called "{name}"',
            did_you_mean=[] if selector.regular else nearest(name, binder.known.series),
            hint=f'nodes have this name: {whose.name}.nodes["{name}"]' if layers else None,
        )
    if not trailers:
        return Scalar(Metric(whose.unique, name, "last"), NUMBER)
    first = trailers[0]
    word = first.name.lower() if isinstance(first, (ast.Attribute, ast.Method)) else ""
    if isinstance(first, ast.Method) and word == "at":
        _end(binder, trailers[1:])
        return Scalar(MetricAt(whose.unique, name, _step(binder, first)), NUMBER)
    if not isinstance(first, ast.Attribute) or word not in FIGURES:
        raise binder.fault(
            first.span,
            f"`{binder.short(first)}` is not a figure of a metric",
            why=f"known: {', '.join(FIGURES)} and at(step)",
            did_you_mean=nearest(word, [*FIGURES, "at"]),
        )
    if len(trailers) > 1:
        second = trailers[1]
        _end(binder, trailers[2:])
        if word in _STEPPED and isinstance(second, ast.Attribute) and second.name.lower() == "step":
            return Scalar(Metric(whose.unique, name, _STEPPED[word]), NUMBER)
        raise binder.fault(
            second.span,
            f"`{binder.short(second)}` cannot follow `.{word}`",
            hint=f".{word}.step is the step of that value" if word in _STEPPED else None,
        )
    return Scalar(Metric(whose.unique, name, FIGURES[word]), NUMBER)


def _step(binder: Binder, method: ast.Method) -> int:
    value: Any = None
    argument = method.args[0] if len(method.args) == 1 else None
    if argument is not None and argument.name is None and is_constant(argument.value):
        value = plain(binder, argument.value)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 63:
        raise binder.fault(method.span, "at takes one step, a whole number", hint=".at(100)")
    return value


def _end(binder: Binder, trailers: Sequence[ast.Trailer]) -> None:
    if trailers:
        raise binder.fault(trailers[0].span, "a value has no attributes")


# Nodes


def start(binder: Binder, whose: Variable, first: ast.Selector | ast.TypeSelector) -> Nodes:
    return Nodes(whose.unique, nodal(binder, first, first_of=whose))


def nodal(
    binder: Binder, part: ast.Selector | ast.TypeSelector, *, first_of: Variable | None = None
) -> Nodal:
    if isinstance(part, ast.TypeSelector):
        return Fitting((templates.pattern(binder, part.template),))
    if part.regular:
        return Named(binder.regular(part.text, part.span))
    templates.refuse(binder, part.text, part.span)
    found = binder.selector(part.text, part.span)
    exact = found.literal
    if first_of is not None and not first_of.derived and exact is not None:
        _check_layer(binder, exact)
    return Named(found)


def _check_layer(binder: Binder, name: str) -> None:
    """A name that no network knows is no fault, but rarely what was meant."""
    if binder.known.has_layer(name):
        return
    close = nearest(name, binder.known.layers)
    meant = f"; did you mean {' or '.join(close)}?" if close else ""
    binder.warn(f'no network has a node called "{name}"{meant}')


def walk(binder: Binder, nodes: Nodes, trailers: Sequence[ast.Trailer]) -> Thing:
    """From one set of nodes to the next, up to an attribute or a count of them."""
    for place, trailer in enumerate(trailers):
        if isinstance(trailer, (ast.Selector, ast.TypeSelector)):
            nodes = replace(nodes, steps=(*nodes.steps, nodal(binder, trailer)))
        elif isinstance(trailer, ast.Index):
            nodes = replace(nodes, steps=(*nodes.steps, Pick(trailer.place)))
        elif trailer.name.lower() in HOPS and isinstance(trailer, ast.Attribute):
            nodes = replace(nodes, steps=(*nodes.steps, HOPS[trailer.name.lower()]))
        elif isinstance(trailer, ast.Method):
            raise binder.fault(
                trailer.span,
                f"`{trailer.name}` cannot be asked of nodes",
                did_you_mean=nearest(trailer.name, [*HOPS, "count"]),
            )
        else:
            _end(binder, trailers[place + 1 :])
            if trailer.name.lower() == "count":
                return Scalar(NodeCount(nodes), NUMBER)
            return _of_nodes(binder, nodes, trailer)
    return NodeSet(nodes)


def _of_nodes(binder: Binder, nodes: Nodes, trailer: ast.Attribute) -> NodeAttribute:
    known = everywhere()
    name = trailer.name if trailer.name in known else trailer.name.lower()
    if name not in known:
        raise binder.fault(
            ast.Span(trailer.span.start + 1, trailer.span.end),
            f"nodes have no attribute `{trailer.name}`",
            did_you_mean=nearest(trailer.name, [*known, *HOPS, "count", *FIGURES, "at"]),
        )
    op = operation(nodes)
    if op is not None and name not in GENERAL and name not in of_operation(op):
        own = ", ".join(of_operation(op)) or "none"
        binder.warn(f"{op} has no attribute `{name}`; it has {own}")
    return NodeAttribute(nodes, name, known[name])


def operation(nodes: Nodes) -> str | None:
    """What all of them are, where it is said."""
    last: Fitting | None = nodes.start if isinstance(nodes.start, Fitting) else None
    for step in nodes.steps:
        if isinstance(step, Hop):
            last = None
        elif isinstance(step, Fitting):
            last = step
    return None if last is None else last.patterns[0].op
