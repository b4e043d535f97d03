"""Conditions of `list --where`: `accuracy>0.9 and lr=0.1`, on metrics and hyperparameters."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from dlv.canonical import NON_FINITE
from dlv.dataclass import dataclass
from dlv.errors import NotFound, UsageError, nearest
from dlv.metadata.evaluations import metric_named
from dlv.metadata.metrics import Summary

_WORD = r"\"[^\"]*\"|'[^']*'"
_TERM = re.compile(rf"\s*(?P<key>{_WORD}|[^\s<>=!\"']+)?\s*(?P<op><=|>=|!=|==|=|<|>)?\s*")
_VALUE = re.compile(rf"(?P<value>{_WORD}|[^\s<>=!\"']+)?\s*(?:(?P<and>and)\b|(?P<rest>\S.*)|\Z)")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None}
_WORDS |= {name.lower(): value for name, value in NON_FINITE.items()}
_WORDS |= {"inf": math.inf, "-inf": -math.inf}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FIGURES = ("last", "min", "max")

Metrics = Mapping[str, Summary]
Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Key:
    """What is compared: a hyperparameter, or one figure of a metric."""

    name: str
    figure: str | None = None

    def of(self, metrics: Metrics, parameters: Parameters) -> Any:
        """The value of one version; None where it has none."""
        if self.figure is None:
            value = parameters.get(self.name)
            return NON_FINITE.get(value, value) if isinstance(value, str) else value
        summary = metrics.get(self.name)
        return None if summary is None else getattr(summary, self.figure)

    def known(self, metrics: Metrics, parameters: Parameters) -> bool:
        return self.name in (parameters if self.figure is None else metrics)


@dataclass(frozen=True)
class Condition:
    key: Key
    op: str
    value: Any
    word: str  # as it was written

    def holds(self, metrics: Metrics, parameters: Parameters) -> bool:
        """Whether a version fulfils it; one that has no such value does not."""
        if not self.key.known(metrics, parameters):
            return False
        found = self.key.of(metrics, parameters)
        wanted = self.word if isinstance(found, str) else self.value
        numbers = _is_number(found) and _is_number(wanted)
        if numbers and wanted != wanted and self.op in ("=", "==", "!="):
            return math.isnan(found) == (self.op != "!=")  # asked for, as null is
        texts = isinstance(found, str) and isinstance(wanted, str)
        if self.op in ("<", "<=", ">", ">=") and not (numbers or texts):
            return False
        if not (numbers or texts or type(found) is type(wanted)):
            return self.op == "!=" and found is not None
        return _COMPARE[self.op](found, wanted)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def parse(text: str, metrics: Collection[str], parameters: Collection[str]) -> list[Condition]:
    """The conditions that `and` joins; names must be among those of the repository."""
    found = []
    at = 0
    while True:
        term = _TERM.match(text, at)
        assert term is not None  # every part of it may be missing
        written, op = term["key"], term["op"]
        if written is None:
            raise _wrong(text, at, "a metric or hyperparameter is missing")
        if op is None:
            raise _wrong(text, term.end(), f"`{written}` has no comparison")
        value = _VALUE.match(text, term.end())
        assert value is not None
        if value["value"] is None:
            raise _wrong(text, term.end(), f"a value is missing after `{written}{op}`")
        if value["rest"] is not None:
            word = value["rest"].split()[0]
            if word in ("or", "not", "&&", "||"):
                why = f"unexpected `{word}`: conditions can only be joined by `and`"
            else:
                why = f"unexpected `{word}`; quote values with spaces"
            raise _wrong(text, value.start("rest"), why)
        key = find(_unquoted(written), metrics, parameters)
        word = _unquoted(value["value"])
        found.append(Condition(key, op, _read(value["value"]), word))
        at = value.end()
        if value["and"] is None:
            return found


def _wrong(text: str, position: int, why: str) -> UsageError:
    mark = f" (at `{text[position:].strip()[:20]}`)" if text[position:].strip() else ""
    return UsageError(
        f"invalid condition `{text}`",
        why=why + mark,
        hint="dlv list --where 'accuracy>0.9 and lr=0.1'",
    )


def _unquoted(word: str) -> str:
    return word[1:-1] if word[0] in "\"'" else word


def _read(word: str) -> Any:
    if word[0] in "\"'":
        return word[1:-1]
    if _NUMBER.match(word):
        return float(word) if re.search("[.eE]", word) else int(word)
    return _WORDS.get(word.lower(), word)


def find(text: str, metrics: Collection[str], parameters: Collection[str]) -> Key:
    """The hyperparameter or metric of that name, if any version has it."""
    if text in parameters:
        return Key(text)
    if text in metrics:
        return Key(text, "last")
    name, _, figure = text.rpartition(".")
    if name in metrics and figure in FIGURES:
        return Key(name, figure)
    if name in metrics:
        raise NotFound(
            f"unknown statistic `{figure}` of a metric",
            why="use last, min or max",
            did_you_mean=[f"{name}.{near}" for near in nearest(figure, FIGURES)],
        )
    known = sorted({*metrics, *parameters})
    last_parts = [name for name in known if name.endswith((f".{text}", f"/{text}"))]
    if any(part in metrics for part in last_parts):
        return Key(metric_named(text, metrics), "last")
    raise NotFound(
        f"no version has a metric or hyperparameter `{text}`",
        why=_listed(known),
        did_you_mean=last_parts[:3] or nearest(text, known),
    )


def _listed(known: list[str]) -> str:
    if not known:
        return "no version has metrics or hyperparameters"
    more = f" and {len(known) - 8} more" if len(known) > 8 else ""
    return f"known: {', '.join(known[:8])}{more}"
