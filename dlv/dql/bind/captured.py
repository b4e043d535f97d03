"""`m["conv*($1)"].next has RELU("relu$1")`: each node beside what the capture of its name names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dlv.dql.bind.binder import Binder
from dlv.dql.words import ast
from dlv.errors import UsageError
from dlv.metadata.select.node_sets import Named, Nodes
from dlv.metadata.select.relations import All, AnyNode, Condition, Either, Not
from dlv.network.selector import Selector

MOST = 1000  # texts that a capture may stand for
EXAMPLE = 'm["conv*($1)"].next has RELU("relu$1")'

Captures = Mapping[int, str]


_PUT = re.compile(r"\\.|\(\$[0-9]\)|\$([0-9])", re.DOTALL)


def numbers(text: str) -> list[int]:
    """Of the captures that a text puts in: 1 of `relu$1`, none of `relu\\$1` and `relu($1)`."""
    return [int(found[1]) for found in _PUT.finditer(text) if found[1]]


def put_in(text: str, captures: Captures) -> str:
    """The selector with these texts in it, each sign of which stands for itself."""

    def put(found: re.Match[str]) -> str:
        if not found[1]:
            return found[0]
        return re.sub(r"([][\\*?()!,-])", r"\\\1", captures[int(found[1])])

    return _PUT.sub(put, text)


def refuse(binder: Binder, text: str, span: ast.Span) -> None:
    """Where nothing was captured, `$1` would be a text that no name has."""
    if found := numbers(text):
        raise binder.fault(
            span,
            f"`${found[0]}` stands for nothing here",
            why="what a selector has captured can be named in the template behind its `has`",
            hint=f"{EXAMPLE}; \\${found[0]} is the text itself",
        )


def wanted(templates: Sequence[ast.Template]) -> set[int]:
    """The captures that any of the templates speaks of."""
    texts = (a.value.value for t in templates for a in t.args if isinstance(a.value, ast.Text))
    return {number for text in texts for number in numbers(text)}


def some(
    binder: Binder,
    part: ast.Has,
    nodes: Nodes,
    derived: bool,
    test: Callable[[Captures], Condition],
) -> Callable[[bool], Condition]:
    """Whether a node is so, or (False) one is not, for each text that may have been captured."""
    pattern = nodes.start.pattern if isinstance(nodes.start, Named) else None
    asked = wanted(part.templates)
    if not isinstance(pattern, Selector) or not asked <= set(pattern.captures) or derived:
        missing = min(asked - set(pattern.captures) if isinstance(pattern, Selector) else asked,
                      default=min(asked))  # fmt: skip
        why = "names of networks that a query makes are not known beforehand" if derived else None
        raise binder.fault(
            part.span, f"nothing was captured as `${missing}`", why=why, hint=EXAMPLE
        )
    found = {
        tuple(sorted(caught.items()))
        for name in binder.known.layers
        if (caught := pattern.match(name)) is not None
    }
    if len(found) > MOST:
        raise UsageError(
            f'"{pattern.text}" captures more than {MOST} texts', hint="narrow it: conv*($1)"
        )

    def holds(so: bool) -> Condition:
        parts = []
        for texts in sorted(found):
            one = replace(nodes, start=Named(pattern, texts))
            fits = test(dict(texts))
            parts.append(AnyNode(one, fits if so else Not(fits)))
        return Either(tuple(parts))

    return holds


def of_nodes(quantifier: str | None, nodes: Nodes, holds: Callable[[bool], Condition]) -> Condition:
    if quantifier == "every":
        return All((AnyNode(nodes), Not(holds(False))))
    return Not(holds(True)) if quantifier == "no" else holds(True)
