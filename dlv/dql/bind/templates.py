"""Templates: `POOL("MAX")` as a pattern of nodes, `RELU("relu$1")` as a node to make.

With the attributes that nodes have, and with captures: in `m["conv*($1)"].next has RELU("relu$1")`
each node stands beside what the capture of its name names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from dlv.dql.bind.binder import Binder
from dlv.dql.bind.bound import Making
from dlv.dql.bind.constants import is_constant, plain
from dlv.dql.bind.things import BOOLEAN, LIST, NUMBER, TEXT
from dlv.dql.words import ast
from dlv.errors import UsageError, nearest
from dlv.metadata.select.relations import All, AnyNode, Condition, Either, Named, Nodes, Not
from dlv.network.fields import Kind
from dlv.network.ops.op import Attribute, Default
from dlv.network.patterns import AttributeTest, Pattern, template
from dlv.network.selector import Selector
from dlv.network.vocabulary import OPS, attributes

# The attributes that queries may ask of nodes, by the operations that have them

# Of every node.
GENERAL: dict[str, frozenset[str]] = {
    "name": frozenset({TEXT}),
    "alias": frozenset({TEXT}),
    "op": frozenset({TEXT}),
    "variant": frozenset({TEXT}),
    "out_shape": frozenset({LIST, NUMBER, TEXT}),
    "n_params": frozenset({NUMBER}),
}
# Kinds of values that may stand beside an attribute: one number stands for a list of them, too.
_KINDS = {
    Kind.INT: (NUMBER,),
    Kind.FLOAT: (NUMBER,),
    Kind.BOOL: (BOOLEAN,),
    Kind.TEXT: (TEXT,),
    Kind.DTYPE: (TEXT,),
    Kind.INTS: (NUMBER, LIST),
    Kind.AXES: (NUMBER, LIST),
    Kind.SHAPE: (NUMBER, TEXT, LIST),
    Kind.PER_AXIS: (NUMBER, LIST),
    Kind.PER_AXIS_OR_NULL: (NUMBER, LIST),
    Kind.PAIRS: (NUMBER, LIST),
}


@cache
def of_operation(op: str, variant: str | None = None) -> dict[str, frozenset[str]]:
    """The attributes of an operation's own, and the kinds of what they may hold."""
    attributes: list[Attribute] = [
        each
        for each in OPS[op].attributes
        if variant is None or not each.variants or variant in each.variants
    ]
    attributes += [each for kind in OPS[op].kinds.values() for each in kind]
    return _by_name(attributes)


@cache
def everywhere() -> dict[str, frozenset[str]]:
    """Those of all operations together, and what every node has."""
    found = dict(GENERAL)
    for op in OPS:
        for name, kinds in of_operation(op).items():
            found[name] = found.get(name, frozenset()) | kinds
    return found


def _by_name(attributes: Iterable[Attribute]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for each in attributes:
        found[each.name] = found.get(each.name, frozenset()) | frozenset(_KINDS[each.kind])
    return found


# Captures

MOST = 1000  # texts that a capture may stand for
EXAMPLE = 'm["conv*($1)"].next has RELU("relu$1")'

Captures = Mapping[int, str]


_PUT = re.compile(r"\\.|\(\$[0-9]\)|\$([0-9])", re.DOTALL)


def numbers(text: str) -> list[int]:
    """Of the captures that a text puts in: 1 of `relu$1`, none of `relu\\$1` and `relu($1)`."""
    return [int(found[1]) for found in _PUT.finditer(text) if found[1]]


def put_in(text: str, captures: Captures) -> str:
    """The selector with these texts in it, each sign of which stands for itself."""

    def put(match: re.Match[str]) -> str:
        if not match[1]:
            return match[0]
        return re.sub(r"([][\\*?()!,-])", r"\\\1", captures[int(match[1])])

    return _PUT.sub(put, text)


def refuse(binder: Binder, text: str, span: ast.Span) -> None:
    """Where nothing was captured, `$1` would be a text that no name has."""
    if found := numbers(text):
        raise binder.fault(
            span,
            f"`${found[0]}` is undefined here",
            why="captures of a selector can be used in the template after its `has`",
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
        why = "names of networks that a query makes are unknown beforehand" if derived else None
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
            f'"{pattern.text}" captures more than {MOST} strings', hint="narrow it: conv*($1)"
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


# Templates

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


def pattern(binder: Binder, written: ast.Template, captures: Captures | None = None) -> Pattern:
    """What `has` and selectors look for."""

    def selector(part: Any) -> Selector:
        text = _text(binder, part)
        if captures is None:
            refuse(binder, text, part.span)
        return binder.selector(put_in(text, captures or {}), part.span)

    op = _operation(binder, written.name, written.span, making=False)
    variant, name, raw = None, None, None
    tests: list[AttributeTest] = []
    words: list[tuple[str, ast.Part]] = []
    own = of_operation(op)
    for argument in written.args:
        value = argument.value
        if argument.name is not None and argument.name.lower() == "name" and "name" not in own:
            name = selector(value)
        elif argument.name is not None:
            tests.append(_test(binder, op, argument, argument.name, "=", value))
        elif isinstance(value, ast.Compare):
            tests.append(_comparison(binder, op, argument, value))
        else:
            words.append((_text(binder, value), value))
    if OPS[op].variants and words:
        word, part = words.pop(0)
        if OPS[op].raw:
            raw = selector(part)
        else:
            variant = _variant(binder, op, word, part)
    if words:
        name = selector(words.pop(0)[1])
    if words:
        raise binder.fault(words[0][1].span, f"{op} takes one name", hint=_example(op))
    if variant is not None:
        _of_variant(binder, op, variant, written, tests)
    return Pattern(op, variant, name, tuple(tests), raw)


def making(binder: Binder, written: ast.Part) -> Making:
    """A node to be made; `GELU` alone is as good as `GELU()`."""
    name, args = _called(binder, written)
    op = _operation(binder, name, written.span, making=True)
    words: list[str] = []
    attrs: dict[str, Any] = {}
    called = None
    for argument in args:
        value = argument.value
        if isinstance(value, ast.Compare):
            raise binder.fault(
                argument.span,
                f"{binder.short(argument)} is a condition, and {op} is to be made here",
                hint="give the value of the attribute: out = 64",
            )
        if argument.name in ("also", "op"):
            raise binder.fault(argument.span, f"{op} has no attribute `{argument.name}`")
        if argument.name is None:
            words.append(_text(binder, value))
        elif argument.name == "name" and "name" not in of_operation(op):
            called = _text(binder, value)
        else:
            attrs[argument.name] = _constant(binder, value)
    if words and OPS[op].variants and words[0].upper() in OPS[op].variants:
        words[0] = words[0].upper()
    if called is not None:
        words.append(called)
    try:
        made = template(op, *words, **attrs)
    except UsageError as error:
        raise binder.refused(written.span, error, hint=_example(op)) from None
    _complete(binder, written, op, made.variant, attrs)
    return Making(op, made.variant, made.name, tuple(attrs.items()), written.span)


def captures(text: str) -> list[int]:
    """The numbers of the captures that a name puts in."""
    return [int(found[1]) for found in re.finditer(r"\\[\\$]|\$([0-9])", text) if found[1]]


def _called(binder: Binder, written: ast.Part) -> tuple[str, Sequence[ast.Argument]]:
    if isinstance(written, ast.Call):
        return written.name, written.args
    if isinstance(written, ast.Path) and not written.trailers:
        return written.name, ()
    raise binder.fault(
        written.span,
        f"{binder.short(written)} is not a template",
        hint='write RELU("relu$1"), POOL("MAX", kernel=2) or a list of them',
    )


def _operation(binder: Binder, name: str, span: ast.Span, *, making: bool) -> str:
    known = [op for op in OPS if not making or not (OPS[op].raw or OPS[op].placeholder)]
    if name.upper() in known:
        return name.upper()
    variants = [f'{op}("{name.upper()}")' for op in known if name.upper() in OPS[op].variants]
    raise binder.fault(
        ast.Span(span.start, span.start + len(name)),
        f"no operation {name}",
        why="known: " + ", ".join(known),
        did_you_mean=variants or nearest(name, known),
    )


def _variant(binder: Binder, op: str, word: str, part: ast.Part) -> str:
    variants = OPS[op].variants
    if word.upper() in variants:
        return word.upper()
    raise binder.fault(
        part.span,
        f'{op} has no variant "{word}"',
        why="it is one of " + ", ".join(variants),
        did_you_mean=nearest(word, variants),
        hint=f'put the name after it: {op}("{variants[0]}", "{word}")',
    )


def _example(op: str) -> str:
    variants = OPS[op].variants
    return f'{op}("{variants[0]}", "a name")' if variants else f'{op}("a name")'


def _text(binder: Binder, part: Any) -> str:
    value = _constant(binder, part)
    if isinstance(value, str):
        return value
    raise binder.fault(
        part.span,
        f"{binder.short(part)} has no name",
        why="only variants and names of nodes have no keyword, and they are strings",
        hint="kernel = 3",
    )


def _constant(binder: Binder, part: Any) -> Any:
    if not is_constant(part):
        raise binder.fault(
            part.span,
            f"{binder.short(part)} is not allowed in a template",
            why="attributes are compared with numbers, strings, lists, true and false",
        )
    return plain(binder, part)


def _comparison(
    binder: Binder, op: str, argument: ast.Argument, test: ast.Compare
) -> AttributeTest:
    for left, sign, right in (
        (test.left, test.operator, test.right),
        (test.right, _TURNED[test.operator], test.left),
    ):
        if isinstance(left, ast.Path) and not left.trailers:
            return _test(binder, op, argument, left.name, sign, right)
    raise binder.fault(
        argument.span, "this compares no attribute", hint="an attribute is written alone: out >= 64"
    )


def _test(
    binder: Binder, op: str, argument: ast.Argument, name: str, sign: str, part: Any
) -> AttributeTest:
    own = of_operation(op)
    if name not in own:
        raise binder.fault(
            argument.span,
            f"{op} has no attribute `{name}`",
            why="it has " + (", ".join(of_operation(op)) or "none"),
            did_you_mean=nearest(name, own),
        )
    value = _constant(binder, part)
    if value is None:
        raise binder.fault(part.span, "nothing equals null", hint="leave the attribute out")
    binder.expect_constant(part, value, f"`{name}` of {op}", own[name])
    return AttributeTest(name, sign, value)


def _of_variant(
    binder: Binder, op: str, variant: str, written: ast.Template, tests: Sequence[AttributeTest]
) -> None:
    own = of_operation(op, variant)
    for test in tests:
        if test.name not in own:
            raise binder.fault(
                written.span,
                f"{op} {variant} has no attribute `{test.name}`",
                why="it has " + (", ".join(of_operation(op, variant)) or "none"),
                did_you_mean=nearest(test.name, own),
            )


def _complete(
    binder: Binder, written: ast.Part, op: str, variant: str | None, attrs: dict[str, Any]
) -> None:
    """Attributes without which there is no such node."""
    for name, attribute in attributes(op, variant, attrs).items():
        absent = attribute.default is Default.REQUIRED and name not in attrs
        if absent and not (attribute.unless and attribute.unless in attrs):
            raise binder.fault(
                written.span, f"{op} needs the attribute `{name}`", hint=f"{name} = .."
            )
