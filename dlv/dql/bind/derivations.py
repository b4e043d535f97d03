"""Slices and constructs bound: of which versions, what is done, at which nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dlv.dataclass import dataclass
from dlv.dql.bind import conditions, constants, paths, sources, templates
from dlv.dql.bind.binder import Binder, Reported
from dlv.dql.bind.bound import Change, Chosen, Cut, Delete, Derivation, Insert, Making, Replace, Set
from dlv.dql.bind.sources import groups, paths_in, used
from dlv.dql.bind.templates import GENERAL, everywhere, of_operation
from dlv.dql.bind.things import NodeAttribute, Variable
from dlv.dql.words import ast
from dlv.errors import nearest
from dlv.metadata.select import relations
from dlv.metadata.select.relations import (
    AnyNode,
    Condition,
    Item,
    Named,
    Nodes,
    Query,
    Select,
    Truth,
    conjuncts,
)
from dlv.network.vocabulary import OPS
from dlv.objects.manifest import NAME

_VERBS = ("insert", "insert_before", "replace", "delete")
_ENDS = ("input", "output", "support")
_SUPPORT = ("keep", "inputs")


@dataclass(frozen=True)
class Work:
    """The actions of one statement, on the networks that one of its variables is about."""

    binder: Binder
    source: Variable
    name: str  # of what is made

    # slice

    def cut(self, part: ast.Derived) -> Cut:
        ends: dict[str, Any] = {}
        for action in part.actions:
            with self.binder.collecting():
                word, value = self._end(action)
                if word in ends:
                    raise self.binder.fault(
                        action.span,
                        f"`{word}` is given twice",
                        hint=f'use a list for several: {self.name}.{word} = [m["a"], m["b"]]',
                    )
                ends[word] = value
        for word in ("input", "output"):
            if word not in ends and not any(_word(each) == word for each in part.actions):
                raise self.binder.fault(
                    part.actions[-1].span,
                    f"the slice has no {word}",
                    hint=f'and {self.name}.{word} = {self.source.name}["NODE"]',
                )
        if not {"input", "output"} <= ends.keys():
            raise Reported
        support = ends.get("support", "keep")
        return Cut(ends["input"], ends["output"], support, part.span)

    def _end(self, action: ast.Action) -> tuple[str, Any]:
        binder, path, name = self.binder, action.path, self.name
        word = _word(action)
        if path.name != name or len(path.trailers) != 1 or word not in _ENDS:
            close = nearest(word, _ENDS) if path.name == name else []
            raise binder.fault(
                path.span,
                f"{binder.short(path)} is unknown to slice",
                did_you_mean=[f"{name}.{each}" for each in close],
                hint=f"it takes {name}.input, {name}.output and {name}.support",
            )
        if action.value is None:
            raise binder.fault(action.span, f"`{word}` is given by =", hint=f"{name}.{word} = ..")
        if word == "support":
            return word, self._support(action.value)
        several = action.value.items if isinstance(action.value, ast.Listing) else (action.value,)
        if not several:
            raise binder.fault(action.value.span, f"`{word}` names no node")
        return word, tuple(self._nodes(each) for each in several)

    def _support(self, value: Any) -> str:
        found = constants.plain(self.binder, value) if constants.is_constant(value) else None
        if found not in _SUPPORT:
            raise self.binder.fault(
                value.span,
                f"support is {' or '.join(_SUPPORT)}, and not {self.binder.short(value)}",
                hint='"inputs" makes side branches inputs; "keep" keeps what they need',
            )
        return str(found)

    def _nodes(self, part: Any) -> Nodes:
        """Nodes of the source; a text is a selector."""
        if constants.is_constant(part):
            text = constants.plain(self.binder, part)
            if not isinstance(text, str):
                raise self.binder.fault(
                    part.span, f"{self.binder.short(part)} names no node", hint='"conv1"'
                )
            return Nodes(self.source.unique, Named(self.binder.selector(text, part.span)))
        return self._of_source(part)

    def _of_source(self, part: Any) -> Nodes:
        nodes = conditions.node_set(self.binder, part).nodes
        if nodes.variable != self.source.unique:
            raise self.binder.fault(
                part.span,
                f"all actions are on one variable, which is `{self.source.name}` here",
                hint=f'{self.source.name}["NODE"]',
            )
        return nodes

    # construct

    def changes(self, part: ast.Derived) -> tuple[Change, ...]:
        return tuple(self.binder.all(self._change, part.actions))

    def _change(self, action: ast.Action) -> Change:
        binder, path = self.binder, action.path
        last = path.trailers[-1] if path.trailers else None
        if not isinstance(last, (ast.Attribute, ast.Method)) or len(path.trailers) < 2:
            raise binder.fault(
                path.span,
                f"{binder.short(path)} is not an action",
                hint=f'{self.source.name}["conv*"].insert = RELU(), .delete, .out = 64',
            )
        span = ast.Span(path.span.start, path.trailers[-2].span.end)
        nodes = self._of_source(replace(path, trailers=path.trailers[:-1], span=span))
        word = last.name.lower()
        if isinstance(last, ast.Method) and word not in ("insert", "insert_before"):
            raise binder.fault(
                last.span,
                f"no action {last.name}(..)",
                did_you_mean=nearest(word, ["insert", "insert_before"]),
            )
        if word not in _VERBS:
            assert isinstance(last, ast.Attribute)
            return self._set(action, nodes, last)
        if action.domain is not None:
            raise binder.fault(action.span, f"`{word}` is given by =")
        if word == "delete":
            return self._delete(action, nodes)
        if action.value is None:
            raise binder.fault(
                action.span, f"`{word}` needs a template", hint=f'{word} = RELU("r")'
            )
        makings = self._makings(action.value)
        if word == "replace":
            self._check_captures(makings, nodes)
            return Replace(nodes, makings, action.span)
        other = self._edge(last, word) if isinstance(last, ast.Method) else None
        self._check_captures(makings, nodes, *([] if other is None else [other]))
        before = word == "insert_before"
        ends = {"source": other} if before else {"to": other}
        return Insert(nodes, makings, before=before, span=action.span, **ends)

    def _edge(self, method: ast.Method, word: str) -> Nodes | None:
        """`to=` of insert, `from=` of insert_before."""
        wanted = "from" if word == "insert_before" else "to"
        if not method.args:
            return None
        argument = method.args[0]
        if len(method.args) > 1 or argument.name != wanted:
            raise self.binder.fault(
                method.span,
                f"{word} takes only {wanted}=, the other end of an edge",
                hint=f'.{word}({wanted}={self.source.name}["pool1"])',
            )
        return self._of_source(argument.value)

    def _delete(self, action: ast.Action, nodes: Nodes) -> Delete:
        to = None if action.value is None else self._of_source(action.value)
        return Delete(nodes, to, action.span)

    def _makings(self, value: Any) -> tuple[Making, ...]:
        several = value.items if isinstance(value, ast.Listing) else (value,)
        if not several:
            raise self.binder.fault(
                value.span, "the list makes no node", hint="`.delete` takes a node out"
            )
        return tuple(self.binder.all(partial(templates.making, self.binder), several))

    def _check_captures(self, makings: Sequence[Making], *sets: Nodes) -> None:
        """What a name puts in has to be captured by a selector."""
        known = set().union(*(_captured(nodes) for nodes in sets))
        for making in makings:
            for number in templates.captures(making.name or ""):
                if number not in known:
                    raise self.binder.fault(
                        making.span,
                        f"nothing is captured as ${number}",
                        hint=f'write (${number}) after a wildcard: "conv*(${number})"',
                    )

    def _set(self, action: ast.Action, nodes: Nodes, last: ast.Attribute) -> Set:
        binder = self.binder
        close = nearest(last.name, [*everywhere(), *_VERBS])
        if last.name not in everywhere():
            raise binder.fault(
                last.span,
                f"no action or attribute `{last.name}`",
                why=f"actions are {', '.join(_VERBS)}",
                did_you_mean=close,
            )
        found = paths.walk(binder, nodes, (last,))
        assert isinstance(found, NodeAttribute)
        if found.name in GENERAL and found.name != "variant":
            raise binder.fault(
                last.span,
                f"`{found.name}` cannot be set",
                hint="`.replace` puts another node in the place of one",
            )
        op = paths.operation(nodes)
        if op is not None and found.name not in ("variant", *of_operation(op)):
            raise binder.fault(
                last.span,
                f"{op} has no attribute `{found.name}`",
                why="it has " + (", ".join(of_operation(op)) or "none"),
            )
        if action.value is None and action.domain is None:
            raise binder.fault(
                action.span, f"`{found.name}` needs a value", hint=f"{found.name} = .., or in [..]"
            )
        values = self._values(action)
        part = action.value or action.domain
        assert part is not None
        for value in values:
            self._check(found, value, part)
        if found.name == "variant":
            values = tuple(str(value).upper() for value in values)
        return Set(nodes, found.name, values, action.span)

    def _values(self, action: ast.Action) -> tuple[Any, ...]:
        """One value, or those of a list, of which each gives a network."""
        binder, part = self.binder, action.value or action.domain
        assert part is not None
        if isinstance(part, ast.Stretch):
            return tuple(constants.stretch(binder, part))
        if not constants.is_constant(part):
            what = "value" if action.domain is None else "list of values"
            call = isinstance(part, ast.Call)
            raise binder.fault(
                part.span,
                f"{binder.short(part)} is not a {what}",
                hint="write in 16..128:16, or in [16, 32]" if call or action.domain else None,
            )
        value = constants.plain(binder, part)
        if action.domain is None:
            return (value,)
        values = value if isinstance(value, tuple) else (value,)
        if not values:
            raise binder.fault(part.span, "the list is empty", hint="in [32, 64]")
        numbers = all(type(each) in (int, float) for each in values)
        return tuple(dict.fromkeys(values)) if numbers else values

    def _check(self, attribute: NodeAttribute, value: Any, part: ast.Part) -> None:
        if value is not None:
            self.binder.expect_constant(part, value, f"`{attribute.name}`", attribute.kinds)
        if attribute.name != "variant":
            return
        op = paths.operation(attribute.nodes)
        known = [v for each in OPS.values() if op in (None, each.name) for v in each.variants]
        if not isinstance(value, str) or value.upper() not in known:
            raise self.binder.fault(
                part.span,
                f"no variant {self.binder.short(part)}",
                did_you_mean=nearest(str(value), known),
                hint=f"one of {', '.join(known)}",
            )


def _word(action: ast.Action) -> str:
    last = action.path.trailers[-1] if action.path.trailers else None
    return last.name.lower() if isinstance(last, ast.Attribute) else ""


def _captured(nodes: Nodes) -> set[int]:
    found: set[int] = set()
    for step in (nodes.start, *nodes.steps):
        if isinstance(step, Named):
            pattern = step.pattern
            found |= (
                set(range(1, min(pattern.groups, 9) + 1))
                if isinstance(pattern, re.Pattern)
                else set(pattern.captures)
            )
    return found


def derivation(binder: Binder, part: ast.Derived, *, nested: bool) -> int:
    """Binds it, and tells which of the statement's derivations it is."""
    verb = "slice" if isinstance(part, ast.Slice) else "construct"
    before = len(binder.notes.faults)
    with binder.collecting():
        check_into(binder, part, nested=nested)
    binder, ranges = sources.declared(
        binder, part.sources, [part.where, part.actions], [part.name], alone=True
    )
    where = None
    if part.where is not None:
        where = conditions.noted(binder.within(clause="where"), part.where)
    source = _source(binder, part)
    work = Work(binder, source, part.name)
    with binder.collecting():
        done = work.cut(part) if verb == "slice" else work.changes(part)
    if len(binder.notes.faults) > before or (part.where is not None and where is None):
        raise Reported
    _check_joined(binder, part, source)
    _warn_of_repeated(binder, part)
    whole = Item(source.name, relations.Whole(source.unique))
    select = Select((whole,), ranges, where, distinct=len(ranges) > 1)
    made = Derivation(
        verb,
        part.name,
        source.unique,
        Query(select),
        done,
        bool(part.one_per_match),
        _chosen(where, source.unique),
        part.into,
        part.span,
    )
    if verb == "slice" and part.one_per_match is not None:
        raise binder.fault(part.span, "a slice is one network; `each` and `all` are of construct")
    binder.notes.derivations.append(made)
    return len(binder.notes.derivations) - 1


def check_into(binder: Binder, part: ast.Derived | ast.Evaluate, *, nested: bool = False) -> None:
    """`into` names a model, and stands in the statement itself."""
    if part.into is None:
        return
    end = part.span.end
    start = binder.text.rfind(binder.text[end - 1], part.span.start, end - 1)  # of the quotes
    span = ast.Span(start, end)
    if nested:
        raise binder.fault(
            span,
            f"a {type(part).__name__.lower()} inside another query cannot commit",
            hint="`into` belongs to the outer statement",
        )
    if NAME.match(part.into) is None:
        raise binder.fault(
            span,
            f'"{part.into}" cannot be the name of a model',
            why="a name has letters, digits and ._+- and begins with a letter or digit",
        )


def _source(binder: Binder, part: ast.Derived) -> Variable:
    """The variable whose networks are worked on: the one that the actions name."""
    names = [name for name in used(part.actions) if name in binder.scope.variables]
    if len(binder.scope.variables) == 1:
        return next(iter(binder.scope.variables.values()))
    if not names:
        raise binder.fault(
            part.actions[0].span,
            "missing variable of these nodes",
            why=f"variables: {', '.join(binder.scope.variables)}",
            hint=f'{next(iter(binder.scope.variables))}["NODE"]',
        )
    return binder.scope.variables[names[0]]


def _check_joined(binder: Binder, part: ast.Derived, source: Variable) -> None:
    group = groups(binder.scope.variables, [part.where])
    for name in binder.scope.variables:
        if group[name] != group[source.name]:
            binder.warn(f"`{name}` is not joined to `{source.name}`")


# Nodes that `where` asks something of


def _chosen(where: Condition | None, variable: str) -> tuple[Chosen, ...]:
    """What the conditions that all have to hold ask of nodes of the source."""
    return tuple(
        Chosen(each.nodes, Truth(True) if each.test is None else each.test)
        for each in ([] if where is None else conjuncts(where))
        if isinstance(each, AnyNode) and each.nodes.variable == variable
    )


def _warn_of_repeated(binder: Binder, part: ast.Derived) -> None:
    """Under `or` and `not`, `where` picks versions, and does not say which nodes are meant."""
    waiting: list[tuple[ast.Part | None, bool]] = [(part.where, False)]
    loose: list[tuple[str, ast.Trailer]] = []
    while waiting:
        each, under = waiting.pop()
        if isinstance(each, (ast.And, ast.Or)):
            waiting += [(one, under or isinstance(each, ast.Or)) for one in each.parts]
        elif isinstance(each, ast.Unary) and each.operator == "not":
            waiting.append((each.operand, True))
        elif under and each is not None:
            loose += _starts(each)
    for action in part.actions:
        for name, first in _starts(action):
            if (name, first) in loose:
                said = name + binder.said(first)
                binder.warn(
                    f"{said} is under `or` or `not` in where, so all matching nodes are changed"
                )


def _starts(part: ast.Part) -> list[tuple[str, ast.Trailer]]:
    """The sets of nodes that a part speaks of, by what they begin with."""
    return [
        (path.name, path.trailers[0])
        for path in paths_in([part])
        if path.trailers and isinstance(path.trailers[0], (ast.Selector, ast.TypeSelector))
    ]
