"""Conditions and values as one would write them in a query: for plans and reasons."""

from __future__ import annotations

import datetime
import re

from dlv.metadata.select import relations
from dlv.metadata.select.relations import Condition, Hop, Named, Nodal, Nodes, Pick, Value
from dlv.network.patterns import AttributeTest, Pattern

SHORT = 12  # characters of a hash


def condition(condition: Condition) -> str:
    return _condition(condition, "")


def value(tree: Value) -> str:
    return _value(tree, "")


def nodes(nodes: Nodes) -> str:
    return nodes.variable + nodal(nodes.start) + "".join(map(_step, nodes.steps))


def pattern(pattern: Pattern) -> str:
    words = [] if pattern.variant is None else [f'"{pattern.variant}"']
    words = words if pattern.raw is None else [f'"{pattern.raw.text}"']
    words += [] if pattern.name is None else [f'"{pattern.name.text}"']
    words += [_test(test) for test in pattern.tests]
    return f"{pattern.op}({', '.join(words)})" if words else pattern.op


def _test(test: AttributeTest) -> str:
    return f"{test.name}{test.operator}{constant(test.value)}"


def nodal(start: Nodal) -> str:
    if not isinstance(start, Named):
        return f"[{_either(start.patterns)}]"
    text = start.pattern.pattern if isinstance(start.pattern, re.Pattern) else start.pattern.text
    return f'[re"{text}"]' if isinstance(start.pattern, re.Pattern) else f'["{text}"]'


def _step(step: object) -> str:
    if isinstance(step, Hop):
        word = ".next" if step.forward else ".prev"
        return word + ("_raw" if step.raw else "*" if step.closure else "")
    return f"[{step.place}]" if isinstance(step, Pick) else nodal(step)  # type: ignore[arg-type]


def _either(patterns: tuple[Pattern, ...]) -> str:
    return " | ".join(map(pattern, patterns))


def constant(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(constant, value))}]"
    return str(value)


def _condition(condition: Condition, subject: str) -> str:
    """`subject`: the set of nodes, or the attribute, whose entries a test inside is about."""
    match condition:
        case relations.Truth():
            return constant(condition.value)
        case relations.All() | relations.Either():
            word = " and " if isinstance(condition, relations.All) else " or "
            return word.join(_enclosed(part, subject) for part in condition.parts)
        case relations.Not():
            return f"not {_enclosed(condition.part, subject)}"
        case relations.Compare():
            left, right = (_value(side, subject) for side in (condition.left, condition.right))
            if _is_time(condition.left) and isinstance(condition.right, relations.Constant):
                right = _time(condition.right.value)
            return f"{left} {condition.operator} {right}"
        case relations.Like():
            sign = "ilike" if condition.folded else "like"
            return f"{_value(condition.value, subject)} {sign} {_value(condition.pattern, subject)}"
        case relations.Matches():
            return f'{_value(condition.value, subject)} matches "{condition.selector.text}"'
        case relations.OneOf():
            options = ", ".join(_value(option, subject) for option in condition.options)
            return f"{_value(condition.value, subject)} in [{options}]"
        case relations.Within():
            return f"{_value(condition.value, subject)} in (select ..)"
        case relations.IsNull():
            return f"{_value(condition.value, subject)} is null"
        case relations.IsNan():
            return f"{_value(condition.value, subject)} is nan"
        case relations.Fits():
            return f"{subject} has {_either(condition.patterns)}"
        case relations.Exists():
            return "exists (select ..)"
        case _:
            return _version_condition(condition)


def _is_time(tree: Value) -> bool:
    return isinstance(tree, relations.Column) and relations.COLUMNS[tree.name] == "time"


def _time(microseconds: object) -> str:
    """As it may be written in a query."""
    if not isinstance(microseconds, int):
        return constant(microseconds)
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=microseconds)
    return f'"{moment.isoformat(" ")}"'


def _version_condition(condition: Condition) -> str:
    match condition:
        case relations.Same():
            return f"{condition.left} = {condition.right}"
        case relations.Is():
            ids = [f'"{digest[:SHORT]}"' for digest in condition.ids]
            more = f"in [{', '.join(ids)}]"
            return (
                f"{condition.variable} = {ids[0]}"
                if len(ids) == 1
                else f"{condition.variable} {more}"
            )
        case relations.Related():
            within = "" if condition.within is None else f" within {condition.within}"
            return f"{_side(condition.left)} {condition.relation} {_side(condition.right)}{within}"
        case relations.AnyNode(test=None):
            return f"exists {nodes(condition.nodes)}"
        case relations.AnyNode(test=test) if test is not None:
            return _condition(test, nodes(condition.nodes))
        case relations.EveryNode():
            return f"every {_condition(condition.test, nodes(condition.nodes))}"
        case relations.AnyOf():
            return _condition(condition.test, f"{condition.variable}.{condition.name}")
        case _:
            return "?"


def _enclosed(condition: Condition, subject: str) -> str:
    text = _condition(condition, subject)
    return f"({text})" if isinstance(condition, (relations.All, relations.Either)) else text


def _side(version: str | relations.Fixed) -> str:
    return version if isinstance(version, str) else f'"{version.id[:SHORT]}"'


_FIGURES = {
    "last": "",
    "last_step": ".step",
    "min_step": ".min.step",
    "max_step": ".max.step",
    "n": ".steps",
}


def _value(tree: Value, subject: str) -> str:
    match tree:
        case relations.Constant():
            return constant(tree.value)
        case relations.Column() | relations.OfChange():
            return f"{tree.variable}.{tree.name}"
        case relations.Hyperparameter():
            plain = tree.key.isidentifier()
            return (
                f"{tree.variable}.{tree.key}" if plain else f'{tree.variable}.hparams["{tree.key}"]'
            )
        case relations.Metric():
            figure = _FIGURES.get(tree.figure, f".{tree.figure}")
            return f'{tree.variable}["{tree.name}"]{figure}'
        case relations.MetricAt():
            return f'{tree.variable}["{tree.name}"].at({tree.step})'
        case relations.NodeCount():
            return f"{nodes(tree.nodes)}.count"
        case relations.OfNodes():
            return f"{nodes(tree.nodes)}.{tree.attribute}"
        case relations.NodeValue():
            return f"{subject}.{tree.attribute}"
        case relations.Setting():
            return ".".join(("config", *tree.key))
        case relations.ManyValue():
            return subject
        case relations.Whole():
            return tree.variable
        case relations.Listed():
            return (
                nodes(tree.listed)
                if isinstance(tree.listed, Nodes)
                else f"{tree.variable}.{tree.listed}"
            )
        case relations.Arithmetic():
            return f"{_operand(tree.left, subject)} {tree.operator} {_operand(tree.right, subject)}"
        case relations.Negative():
            return f"-{_operand(tree.value, subject)}"
        case relations.Coalesce():
            return f"coalesce({', '.join(_value(each, subject) for each in tree.values)})"
        case relations.Case():
            whens = [
                f"when {_condition(t, subject)} then {_value(v, subject)}" for t, v in tree.whens
            ]
            otherwise = f"else {_value(tree.otherwise, subject)}"
            return " ".join(["case", *whens, otherwise, "end"])
        case relations.Aggregate():
            inside = "*" if tree.value is None else _value(tree.value, subject)
            by = "" if tree.by is None else f", {_value(tree.by, subject)}"
            return f"{tree.function}({'distinct ' if tree.distinct else ''}{inside}{by})"
        case relations.Applied():
            digits = f", {tree.digits}" if tree.digits else ""
            return f"{tree.function}({_value(tree.value, subject)}{digits})"
        case relations.OneValue():
            return "(select ..)"
        case relations.Output():
            return f"column {tree.place + 1}"


def _operand(tree: Value, subject: str) -> str:
    text = _value(tree, subject)
    return f"({text})" if isinstance(tree, relations.Arithmetic) else text
