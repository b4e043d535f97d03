"""The binder: the text at work, the names that it may use, and the faults so far."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeVar

from dlv.dataclass import dataclass
from dlv.dql.bind.bound import ConfigFile, Derivation
from dlv.dql.bind.things import (
    ANY,
    BOOLEAN,
    CONDITION,
    EXAMPLES,
    INSTEAD,
    NODES,
    NULL,
    TEXT,
    VERSION,
    WORDS,
    NodeAttribute,
    NodeSet,
    Result,
    Scalar,
    Selected,
    Several,
    Thing,
    Variable,
    Whole,
    kind_of,
)
from dlv.dql.words import ast
from dlv.dql.words.ast import NOWHERE, Span
from dlv.dql.words.diagnosis import SyntaxFault
from dlv.errors import DlvError, NotFound, UsageError, nearest
from dlv.metadata.select.relations import Condition
from dlv.metadata.usage import KnownNames
from dlv.network.selector import Selector, SelectorFault, selector

# What is wrong with a query whose words are in order: names, kinds, references


class Fault(SyntaxFault):
    """One thing that is wrong. `missing`: it speaks of a version or saved query not there."""

    def __init__(
        self,
        message: str,
        text: str,
        span: Span,
        *,
        why: str | None = None,
        hint: str | None = None,
        did_you_mean: Iterable[str] = (),
        missing: bool = False,
        called: str = "dql",
    ) -> None:
        super().__init__(
            *(message, text, span.start, span.end - span.start),
            why=why,
            hint=hint,
            did_you_mean=did_you_mean,
            called=called,
        )
        self.missing = missing
        if why is not None:
            self.spots = [spot._replace(message=f"{spot.message}: {why}") for spot in self.spots]
        if missing:
            self.exit_code = NotFound.exit_code


class Faults(DlvError):
    """All that is wrong with a statement, in the order of its text."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        first, more = self.faults[0], len(self.faults) - 1
        super().__init__(
            first.message + (f" (and {more} more)" if more else ""),
            why=first.why,
            hint=first.hint,
            did_you_mean=first.did_you_mean,
        )
        self.spots = [spot for fault in self.faults for spot in fault.spots]

    def move_into(self, condition: str) -> None:
        """Point into a condition, as `SyntaxFault.move_into` does."""
        for fault in self.faults:
            fault.move_into(condition)
        Faults.__init__(self, self.faults)

    def as_json(self) -> dict[str, object]:
        """Return the first fault in the form of a syntax error, and the list of all faults."""
        every = [fault.as_json()["error"] for fault in self.faults]
        first = self.faults[0].as_json()["error"]
        assert isinstance(first, dict)
        return {"error": {**first, "code": self.exit_code, "kind": self.kind, "errors": every}}


class WrongQuery(Faults, UsageError):
    kind = "query"


class MissingReferences(Faults, NotFound):
    """Nothing is wrong but that versions or saved queries are not there."""


def refuse(faults: Sequence[Fault]) -> None:
    """Raise what was found, if anything was."""
    if not faults:
        return
    once = {(f.start, f.length, f.message): f for f in faults}
    ordered = sorted(once.values(), key=lambda fault: fault.start)
    if all(fault.missing for fault in ordered):
        raise MissingReferences(ordered)
    raise WrongQuery(ordered)


LONGEST_REGULAR = 200

P = TypeVar("P")
R = TypeVar("R")
Parse = Callable[[str], tuple[ast.Statement, ...]]
ReadConfig = Callable[[str], ConfigFile]


# The binder


class Reported(Exception):
    """A part of the query cannot be bound, and why is noted already."""


@dataclass
class Notes:
    """What comes of a statement besides its tree."""

    faults: list[Fault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    derivations: list[Derivation] = field(default_factory=list)
    variables: dict[str, int] = field(default_factory=dict)  # how often a name was given
    # Parameters without values, where they are first used.
    missing: dict[str, tuple[Binder, ast.Parameter]] = field(default_factory=dict)
    expanded: int = 0  # saved queries put in


@dataclass(frozen=True)
class Collecting:
    notes: Notes

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> bool:
        if isinstance(error, Fault):
            self.notes.faults.append(error)
        return isinstance(error, (Fault, Reported))


@dataclass
class Scope:
    """The variables of one query, and the scope of the query that it stands in.

    `titles`: columns by the name that `as` gave them, for the clauses that may use it.
    `clause`: where no aggregate may stand, and why. `quantifier`: any, every, no before a test.
    `setting`: what paths stand for in conditions on a configuration, which has no variables.
    """

    variables: dict[str, Variable] = field(default_factory=dict)
    outer: Scope | None = None
    titles: dict[str, Scalar] = field(default_factory=dict)
    clause: str | None = None
    quantifier: str | None = None
    setting: Callable[[Binder, ast.Path], Scalar] | None = None

    def visible(self) -> dict[str, Variable]:
        """The variables by name, those of this query first; an inner one hides an outer one."""
        if self.outer is None:
            return self.variables
        return {**self.variables, **self.outer.visible(), **self.variables}


@dataclass(frozen=True)
class Binder:
    """One text at work, the statement's or that of a saved query in it, and what it may name.

    `nested` binds queries inside of others, `condition` the conditions of `case`. `defining` is the
    name that the statement is to be saved under: its parameters may be missing then.
    """

    text: str
    known: KnownNames
    parameters: Mapping[str, Any]
    parse: Parse
    nested: Callable[[Binder, ast.Query | ast.Saved], Result]
    condition: Callable[[Binder, ast.Expression], Condition]
    notes: Notes
    scope: Scope = field(default_factory=Scope)
    defining: str | None = None
    config_file: ReadConfig | None = None
    called: str = "dql"
    saved: tuple[str, ...] = ()  # the saved queries that this text is within

    def within(self, **changes: Any) -> Binder:
        """The same in another clause of the query, or before a test."""
        return replace(self, scope=replace(self.scope, **changes))

    def inner(self, *, alone: bool = False) -> Binder:
        """For a query inside; `alone`: it sees none of the variables around it."""
        return replace(self, scope=Scope() if alone else Scope(outer=self.scope))

    def query(self, part: ast.Query | ast.Saved, *, alone: bool = False) -> Result:
        """A query inside; `alone`: it sees none of the variables around it."""
        if self.scope.setting is not None:
            raise self.fault(part.span, "a list is required here", hint='in ["sgd", "adam"]')
        return self.nested(self.inner(alone=True) if alone else self, part)

    def fault(
        self,
        span: Span,
        message: str,
        *,
        why: str | None = None,
        hint: str | None = None,
        did_you_mean: Iterable[str] = (),
        missing: bool = False,
    ) -> Fault:
        return Fault(
            *(message, self.text, span),
            why=why,
            hint=hint,
            did_you_mean=did_you_mean,
            missing=missing,
            called=self.called,
        )

    def refused(self, span: Span, error: DlvError, *, hint: str | None = None) -> Fault:
        """The error of another room as a fault of the query; `hint` where that has none."""
        return self.fault(
            span,
            error.message,
            why=error.why,
            hint=error.hint or hint,
            did_you_mean=error.did_you_mean,
            missing=isinstance(error, NotFound),
        )

    def collecting(self) -> Collecting:
        """Notes a fault inside and goes on behind, for there may be more."""
        return Collecting(self.notes)

    def all(self, bind: Callable[[P], R], parts: Iterable[P]) -> list[R]:
        """Every part bound; the faults of all of them are noted before Reported is raised."""
        parts = tuple(parts)
        bound: list[R] = []
        for part in parts:
            with self.collecting():
                bound.append(bind(part))
        if len(bound) < len(parts):
            raise Reported
        return bound

    def note(self, span: Span, message: str, **more: Any) -> None:
        """A fault that keeps nothing else from being bound."""
        self.notes.faults.append(self.fault(span, message, **more))

    def warn(self, message: str) -> None:
        if message not in self.notes.warnings:
            self.notes.warnings.append(message)

    def expect(self, part: ast.Part, thing: Thing, *kinds: str) -> None:
        """A fault unless a part stands for one value, or one of each node, of these kinds."""
        held = [BOOLEAN if kind == CONDITION else kind for kind in kinds]
        match thing:
            case Scalar():
                fits = ANY in held or self.is_kind(thing, *held)
            case NodeAttribute():
                fits = any(kind in thing.kinds for kind in held)
            case _:
                fits = isinstance(thing, Several) and TEXT in held
        if not fits:
            raise self.mismatch(part, thing, *kinds)

    def mismatch(self, part: ast.Part, thing: Thing, *kinds: str) -> Fault:
        """Something of one of these kinds is wanted where a part of another kind stands."""
        said, first = self.short(part), kinds[0]
        words = nearest(said, ["true", "false", "null"]) if isinstance(thing, Whole) else []
        series = isinstance(thing, Selected) and self.known.has_series(thing.selector.text)
        kind = NodeSet if isinstance(thing, Selected) and not series else type(thing)
        hint = INSTEAD.get((kind, first), EXAMPLES.get(first))
        return self.fault(
            part.span,
            f"{f'`{said}`' if isinstance(thing, Whole) else said} is {self.holds(thing, first)},"
            f" and {' or '.join(WORDS[kind] for kind in kinds)} is required here",
            did_you_mean=words,
            hint=None if words or hint is None else hint.format(said=said),
        )

    def expect_constant(
        self, part: ast.Part, value: Any, attribute: str, kinds: frozenset[str]
    ) -> None:
        """A fault unless a constant may stand beside an attribute, which holds these kinds."""
        kind = kind_of(value)
        if kind not in kinds:
            held = " or ".join(sorted(WORDS[each] for each in kinds))
            raise self.fault(
                part.span, f"{attribute} is {held}, and {self.short(part)} is {WORDS[kind]}"
            )

    def is_kind(self, scalar: Scalar, *kinds: str) -> bool:
        """Whether a value can be of one of these kinds, as far as that is known."""
        if scalar.kind != ANY or scalar.key is None:
            return scalar.kind in (*kinds, ANY, NULL)
        return any(self.known.has_kind(scalar.key, kind) for kind in kinds)

    def holds(self, thing: Thing, wanted: str = ANY) -> str:
        """What a thing is, as a message says it."""
        match thing:
            case Scalar(key=None):
                return WORDS[thing.kind]
            case Scalar(key=key):
                assert key is not None
                kinds = [kind for kind in self.known.kinds(key) if kind != NULL] or [NULL]
                return "always " + " or ".join(WORDS[kind] for kind in kinds)
            case NodeAttribute() if wanted != ANY:
                return " or ".join(sorted(WORDS[kind] for kind in thing.kinds))
            case NodeAttribute():
                return "an attribute of each node of a set"
            case Several():
                return "a set of values"
            case Selected() if self.known.has_series(thing.selector.text):
                return "a metric"
        return WORDS[VERSION if isinstance(thing, Whole) else NODES]

    def said(self, part: ast.Part) -> str:
        """A part as it was written, on one line."""
        return " ".join(self.text[part.span.start : part.span.end].split())

    def short(self, part: ast.Part) -> str:
        """The same as it may stand in a message."""
        said = self.said(part)
        return said if len(said) <= 50 else f"{said[:49]}…"

    def parameter(self, part: ast.Parameter) -> Any:
        """Its value; of one that is missing, none: what is wrong is told once, for all."""
        if part.name in self.parameters:
            value = self.parameters[part.name]
            if _half(value):
                raise self.fault(
                    part.span, f"${part.name} has an invalid character", why="strings are Unicode"
                )
            return value
        self.notes.missing.setdefault(part.name, (self, part))
        raise Reported

    def new_variable(self, name: str) -> str:
        """A name that no other variable of the statement has."""
        taken = self.notes.variables
        while True:
            taken[name] = count = taken.get(name, 0) + 1
            fresh = name if count == 1 else f"{name}_{count}"
            if count == 1 or fresh not in taken:
                taken.setdefault(fresh, 1)
                return fresh

    def inside(self, span: Span, place: int) -> Span:
        """The character of a string that `place` counts, as it stands in the text."""
        quote = re.search(r"[\"']", self.text[span.start : span.end])
        if span is NOWHERE or quote is None:
            return span
        at = span.start + quote.end()
        for _ in range(place):
            if at >= span.end - 1:
                break
            at += 2 if self.text[at] == "\\" and self.text[at + 1] in "ntr\\\"'" else 1
        return Span(at, at + 1)

    def selector(self, text: str, span: Span) -> Selector:
        try:
            return selector(text)
        except SelectorFault as fault:
            message = fault.message.replace(f"the selector {text!r}: ", "the selector: ")
            raise self.fault(self.inside(span, fault.place), message, hint=fault.hint) from None

    def regular(self, text: str, span: Span) -> re.Pattern[str]:
        if len(text) > LONGEST_REGULAR:
            raise self.fault(
                span,
                "the regular expression is too long",
                why=f"it may have {LONGEST_REGULAR} characters",
            )
        try:
            return re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            place = getattr(error, "pos", None)
            where = span if place is None else self._in_pattern(span, place)
            raise self.fault(
                where, "the regular expression cannot be read", why=str(error)
            ) from None

    def _in_pattern(self, span: Span, place: int) -> Span:
        quote = re.search(r"[\"']", self.text[span.start : span.end])
        at = min(span.start + (quote.end() if quote else 0) + place, max(span.end - 1, 0))
        return Span(at, at + 1)

    def within_saved(self, name: str, text: str) -> Binder:
        return replace(self, text=text, called=f'query "{name}"', saved=(*self.saved, name))


def _half(value: Any) -> bool:
    """Whether a text in it has no UTF-8, as "\\ud800" of JSON."""
    if isinstance(value, str):
        return any("\ud800" <= sign <= "\udfff" for sign in value)
    if isinstance(value, dict):
        return any(map(_half, value)) or any(map(_half, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_half, value))
