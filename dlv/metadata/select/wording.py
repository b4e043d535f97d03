"""Conditions and values as one would write them in a query: for plans and reasons."""

from __future__ import annotations

import re

from dlv.metadata.select import relations
from dlv.metadata.select.relations import Condition, Hop, Named, Nodal, Nodes, Pick, Value
from dlv.network.patterns import AttributeTest, Pattern

SHORT = 12  # characters of a hash


def condition(what: Condition) -> str:
    return _condition(what, "")


def value(what: Value) -> str:
    return _value(what, "")


def nodes(what: Nodes) -> str:
    return what.variable + nodal(what.start) + "".join(map(_step, what.steps))


def pattern(what: Pattern) -> str:
    words = [] if what.variant is None else [f'"{what.variant}"']
    words = words if what.raw is None else [f'"{what.raw.text}"']
    words += [] if what.name is None else [f'"{what.name.text}"']
    words += [_test(test) for test in what.tests]
    return f"{what.op}({', '.join(words)})" if words else what.op


def _test(test: AttributeTest) -> str:
    return f"{test.name}{test.operator}{constant(test.value)}"


def nodal(what: Nodal) -> str:
    if not isinstance(what, Named):
        return f"[{_either(what.patterns)}]"
    text = what.pattern.pattern if isinstance(what.pattern, re.Pattern) else what.pattern.text
    return f'[re"{text}"]' if isinstance(what.pattern, re.Pattern) else f'["{text}"]'


def _step(what: object) -> str:
    if isinstance(what, Hop):
        return (".next" if what.forward else ".prev") + ("_raw" if what.raw else "")
    return f"[{what.place}]" if isinstance(what, Pick) else nodal(what)  # type: ignore[arg-type]


def _either(patterns: tuple[Pattern, ...]) -> str:
    return " | ".join(map(pattern, patterns))


def constant(what: object) -> str:
    if what is None or isinstance(what, bool):
        return {None: "null", True: "true", False: "false"}[what]
    if isinstance(what, str):
        escaped = what.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(what, (list, tuple)):
        return f"[{', '.join(map(constant, what))}]"
    return str(what)


def _condition(what: Condition, at: str) -> str:
    """`at`: the set of nodes, or the attribute, whose entries a test inside is about."""
    match what:
        case relations.Truth():
            return constant(what.value)
        case relations.All() | relations.Either():
            word = " and " if isinstance(what, relations.All) else " or "
            return word.join(_enclosed(part, at) for part in what.parts)
        case relations.Not():
            return f"not {_enclosed(what.part, at)}"
        case relations.Compare():
            return f"{_value(what.left, at)} {what.operator} {_value(what.right, at)}"
        case relations.Like():
            sign = "ilike" if what.folded else "like"
            return f"{_value(what.value, at)} {sign} {_value(what.pattern, at)}"
        case relations.Matches():
            return f'{_value(what.value, at)} matches "{what.selector.text}"'
        case relations.OneOf():
            options = ", ".join(_value(option, at) for option in what.options)
            return f"{_value(what.value, at)} in [{options}]"
        case relations.Within():
            return f"{_value(what.value, at)} in (select ..)"
        case relations.IsNull():
            return f"{_value(what.value, at)} is null"
        case relations.IsNan():
            return f"{_value(what.value, at)} is nan"
        case relations.Fits():
            return f"{at} has {_either(what.patterns)}"
        case relations.Exists():
            return "exists (select ..)"
        case _:
            return _of_versions(what)


def _of_versions(what: Condition) -> str:
    match what:
        case relations.Same():
            return f"{what.left} = {what.right}"
        case relations.Is():
            ids = [f'"{digest[:SHORT]}"' for digest in what.ids]
            more = f"in [{', '.join(ids)}]"
            return f"{what.variable} = {ids[0]}" if len(ids) == 1 else f"{what.variable} {more}"
        case relations.Related():
            within = "" if what.within is None else f" within {what.within}"
            return f"{_side(what.left)} {what.relation} {_side(what.right)}{within}"
        case relations.AnyNode(test=None):
            return f"exists {nodes(what.nodes)}"
        case relations.AnyNode(test=test) if test is not None:
            return _condition(test, nodes(what.nodes))
        case relations.EveryNode():
            return f"every {_condition(what.test, nodes(what.nodes))}"
        case relations.AnyOf():
            return _condition(what.test, f"{what.variable}.{what.name}")
        case _:
            return "?"


def _enclosed(what: Condition, at: str) -> str:
    text = _condition(what, at)
    return f"({text})" if isinstance(what, (relations.All, relations.Either)) else text


def _side(what: str | relations.Fixed) -> str:
    return what if isinstance(what, str) else f'"{what.id[:SHORT]}"'


_FIGURES = {
    "last": "",
    "last_step": ".step",
    "min_step": ".min.step",
    "max_step": ".max.step",
    "n": ".steps",
}


def _value(what: Value, at: str) -> str:
    match what:
        case relations.Constant():
            return constant(what.value)
        case relations.Column():
            return f"{what.variable}.{what.name}"
        case relations.Hyperparameter():
            plain = what.key.isidentifier()
            return (
                f"{what.variable}.{what.key}" if plain else f'{what.variable}.hparams["{what.key}"]'
            )
        case relations.Metric():
            figure = _FIGURES.get(what.figure, f".{what.figure}")
            return f'{what.variable}["{what.name}"]{figure}'
        case relations.MetricAt():
            return f'{what.variable}["{what.name}"].at({what.step})'
        case relations.NodeCount():
            return f"{nodes(what.nodes)}.count"
        case relations.NodeValue():
            return f"{at}.{what.attribute}"
        case relations.Setting():
            return ".".join(("config", *what.key))
        case relations.ManyValue():
            return at
        case relations.Whole():
            return what.variable
        case relations.Listed():
            return (
                nodes(what.what) if isinstance(what.what, Nodes) else f"{what.variable}.{what.what}"
            )
        case relations.Arithmetic():
            return f"{_operand(what.left, at)} {what.operator} {_operand(what.right, at)}"
        case relations.Negative():
            return f"-{_operand(what.value, at)}"
        case relations.Coalesce():
            return f"coalesce({', '.join(_value(each, at) for each in what.values)})"
        case relations.Aggregate():
            return f"{what.function}({'*' if what.value is None else _value(what.value, at)})"
        case relations.Output():
            return f"column {what.place + 1}"


def _operand(what: Value, at: str) -> str:
    text = _value(what, at)
    return f"({text})" if isinstance(what, relations.Arithmetic) else text
