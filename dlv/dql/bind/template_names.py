"""Templates of a query: `POOL("MAX")` as a pattern of nodes, `RELU("relu$1")` as a node to make."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dlv.dql.bind import captured
from dlv.dql.bind.attribute_names import of_operation
from dlv.dql.bind.binder import Binder
from dlv.dql.bind.bound import Making
from dlv.dql.bind.constants import is_constant, plain
from dlv.dql.words import ast
from dlv.errors import UsageError, nearest
from dlv.network.ops.op import Default
from dlv.network.patterns import AttributeTest, Pattern
from dlv.network.selector import Selector
from dlv.network.templates import template
from dlv.network.vocabulary import OPS, attributes

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


def pattern(
    binder: Binder, written: ast.Template, captures: captured.Captures | None = None
) -> Pattern:
    """What `has` and selectors look for."""

    def selector(part: Any) -> Selector:
        text = _text(binder, part)
        if captures is None:
            captured.refuse(binder, text, part.span)
        return binder.selector(captured.put_in(text, captures or {}), part.span)

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
                hint="say what the attribute is: out = 64",
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
        raise binder.fault(
            written.span,
            error.message,
            why=error.why,
            hint=error.hint or _example(op),
            did_you_mean=error.did_you_mean,
        ) from None
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
        f"{binder.short(written)} is no template",
        hint='write RELU("relu$1"), POOL("MAX", kernel=2) or a list of them',
    )


def _operation(binder: Binder, name: str, span: ast.Span, *, making: bool) -> str:
    known = [op for op in OPS if not making or not (OPS[op].raw or OPS[op].placeholder)]
    if name.upper() in known:
        return name.upper()
    variants = [f'{op}("{name.upper()}")' for op in known if name.upper() in OPS[op].variants]
    raise binder.fault(
        ast.Span(span.start, span.start + len(name)),
        f"there is no operation {name}",
        why="known are " + ", ".join(known),
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
        hint=f'a name stands behind it: {op}("{variants[0]}", "{word}")',
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
        why="only variants and names of nodes stand without one, and they are texts",
        hint="kernel = 3",
    )


def _constant(binder: Binder, part: Any) -> Any:
    if not is_constant(part):
        raise binder.fault(
            part.span,
            f"{binder.short(part)} cannot stand in a template",
            why="attributes are compared with numbers, texts, lists, true and false",
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
        argument.span, "this compares no attribute", hint="an attribute stands alone: out >= 64"
    )


def _test(
    binder: Binder, op: str, argument: ast.Argument, name: str, sign: str, part: Any
) -> AttributeTest:
    own = of_operation(op)
    if name not in own:
        raise binder.fault(
            argument.span,
            f"{op} has no attribute `{name}`",
            why="it has " + (", ".join(of_operation(op)) or "none of its own"),
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
                why="it has " + (", ".join(of_operation(op, variant)) or "none of its own"),
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
