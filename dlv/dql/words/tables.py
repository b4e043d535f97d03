"""The grammar as tables, and the tree of a query made from what they match.

lark makes the tables, and takes longer to load than a query takes to answer. So they are kept as
JSON in the user's own cache, and read without lark.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dlv.canonical import hash_bytes
from dlv.dataclass import dataclass
from dlv.dql.words import ast
from dlv.dql.words.ast import Span

Built = Any  # a part of the tree, a word of the text, or a list of parts
Make = Callable[[Span, list[Built]], Built]

_DIGITS = 18  # Python refuses to read more than 4300 at once
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}


def text_of(token: str) -> str:
    """What a quoted string says; a backslash before any other character stays."""
    return re.sub(
        r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), token[1:-1], flags=re.DOTALL
    )


def pattern_of(token: str) -> str:
    return token[3:-1]


def number_of(token: str) -> int | float:
    return int(token) if token.isdigit() and len(token) <= _DIGITS else float(token)


def whole_of(token: str) -> int:
    """A count or a place; of more digits than are ever meant, the largest that SQLite knows."""
    return int(token) if len(token) <= _DIGITS else (1 << 63) - 1


def _listed(children: list[Built]) -> tuple[Built, ...]:
    return tuple(child for child in children if child is not None)


def _word(child: Built) -> str | None:
    return None if child is None else str(child)


def _name(child: Built) -> str:
    """A name that may be written as a string."""
    text = str(child)
    return text_of(text) if text[:1] in "\"'" else text


def _call(span: Span, children: list[Built]) -> ast.Call:
    """`on local` is `on local()`."""
    (child,) = children
    if isinstance(child, ast.Call):
        return child
    return ast.Call(child, (), span=Span(span.end - len(child), span.end))


def _argument(span: Span, children: list[Built]) -> ast.Argument:
    value, direction = children
    if isinstance(value, ast.Compare) and value.operator == "=" and direction is None:
        left = value.left
        if isinstance(left, ast.Path) and not left.trailers:
            return ast.Argument(value.right, left.name, span=span)
    return ast.Argument(value, None, direction, span=span)


def _select(span: Span, children: list[Built]) -> ast.Select:
    distinct, items, sources, where, group_by, having = children
    return ast.Select(
        items, distinct is not None, sources or (), where, group_by or (), having, span=span
    )


def _derived(kind: type[ast.Derived]) -> Make:
    def make(span: Span, children: list[Built]) -> ast.Derived:
        name, sources, where, (each, actions), into = children
        return kind(str(name), sources, where, each, actions, into, span=span)

    return make


def _mutate(span: Span, children: list[Built]) -> tuple[bool | None, tuple[ast.Action, ...]]:  # noqa: ARG001
    mode, *actions = children
    return mode, tuple(actions)


def _evaluate(span: Span, children: list[Built]) -> ast.Evaluate:
    name, sources, where, settings, vary, using, keep, budget, on, into = children
    return ast.Evaluate(
        str(name),
        sources,
        where,
        settings or (),
        vary or (),
        using,
        keep or (),
        budget or (),
        on,
        into,
        span=span,
    )


def _query(span: Span, children: list[Built]) -> ast.Query:
    body, order_by, limits = children
    limit, offset = limits or (None, None)
    return ast.Query(body, order_by or (), limit, offset, span=span)


def _order(span: Span, children: list[Built]) -> ast.Order:
    value, direction, nulls = children
    return ast.Order(value, direction == "desc", nulls, span=span)


def _dimension(span: Span, children: list[Built]) -> ast.Dimension:
    target, domain, when = children
    linked = isinstance(target, tuple)
    paths = target if linked else (target,)
    return ast.Dimension(paths, linked, domain, None, when, span=span)


def _automatic(span: Span, children: list[Built]) -> ast.Dimension:
    target, args, when = children
    linked = isinstance(target, tuple)
    paths = target if linked else (target,)
    return ast.Dimension(paths, linked, None, args or (), when, span=span)


def _like(span: Span, children: list[Built]) -> ast.Like:
    left, negated, pattern, escape = children
    kept = None if escape is None else text_of(escape)
    return ast.Like(left, negated is not None, pattern, False, kept, span=span)


def _stretch(span: Span, children: list[Built]) -> ast.Stretch:
    first, last, step = children
    return ast.Stretch(first, last, None if step is None else number_of(step), span=span)


def _lineage(span: Span, children: list[Built]) -> ast.Lineage:
    left, relation, right, within = children
    steps = None if within is None else whole_of(within)
    return ast.Lineage(relation, left, right, steps, span=span)


def _binary(operator: str) -> Make:
    return lambda span, children: ast.Binary(operator, *children, span=span)


def _constant(value: Built) -> Make:
    return lambda _span, _children: value


def _only(_span: Span, children: list[Built]) -> Built:
    return children[0]


def _all(_span: Span, children: list[Built]) -> tuple[Built, ...]:
    return _listed(children)


_SAME = {"==": "=", "<>": "!="}
_LITERALS: Mapping[str, Make] = {
    "number": lambda span, c: ast.Number(number_of(c[0]), span=span),
    "string": lambda span, c: ast.Text(text_of(c[0]), span=span),
    "true": lambda span, _: ast.Boolean(True, span=span),
    "false": lambda span, _: ast.Boolean(False, span=span),
    "null": lambda span, _: ast.Null(span=span),
    "param": lambda span, c: ast.Parameter(str(c[0])[1:], span=span),
    "int": lambda _, c: whole_of(c[0]),
    "bound": lambda _, c: number_of(c[0]),
    "neg_bound": lambda _, c: -number_of(c[0]),
    "span": _stretch,
    "list_": lambda span, c: ast.Listing(_listed(c), span=span),
    "tuple_": lambda span, c: ast.Group(tuple(c), span=span),
    "paren_set": lambda span, c: ast.Group(tuple(c), span=span),
}
_NAMES: Mapping[str, Make] = {
    "path": lambda span, c: ast.Path(str(c[0]), tuple(c[1:]), span=span),
    "attr": lambda span, c: ast.Attribute(str(c[0]), span=span),
    "method": lambda span, c: ast.Method(str(c[0]), c[1], span=span),
    "selector": lambda span, c: ast.Selector(text_of(c[0]), span=span),
    "re_selector": lambda span, c: ast.Selector(pattern_of(c[0]), True, span=span),
    "type_selector": lambda span, c: ast.TypeSelector(c[0], span=span),
    "index": lambda span, c: ast.Index(whole_of(c[0]), span=span),
    "call": lambda span, c: ast.Call(str(c[0]), c[1], span=span),
    "call_args": _all,
    "arg": _argument,
    "distinct_arg": lambda span, c: ast.Argument(c[1], None, None, True, span=span),
    "star": lambda span, _: ast.Argument(ast.Star(span=span), span=span),
    "template": lambda span, c: ast.Template(str(c[0]), c[1] or (), c[1] is not None, span=span),
    "templates": _all,
}
_CONDITIONS: Mapping[str, Make] = {
    "or_": lambda span, c: ast.Or(tuple(c), span=span),
    "and_": lambda span, c: ast.And(tuple(c), span=span),
    "not_": lambda span, c: ast.Unary("not", c[0], span=span),
    "compare": lambda span, c: ast.Compare(_SAME.get(c[1], str(c[1])), c[0], c[2], span=span),
    "eq": lambda span, c: ast.Compare("=", c[0], c[1], span=span),
    "like": _like,
    "ilike": lambda span, c: ast.Like(c[0], c[1] is not None, c[2], True, None, span=span),
    "matches": lambda span, c: ast.Matches(c[0], c[1] is not None, text_of(c[2]), span=span),
    "in_": lambda span, c: ast.In(c[0], c[1] is not None, c[2], span=span),
    "between": lambda span, c: ast.Between(c[0], c[1] is not None, c[2], c[3], span=span),
    "is_null": lambda span, c: ast.IsNull(c[0], c[1] is not None, span=span),
    "is_nan": lambda span, c: ast.IsNan(c[0], c[1] is not None, span=span),
    "has": lambda span, c: ast.Has(c[0], c[1] is not None, c[2], span=span),
    "negated": _constant("not"),
    "quantified": lambda span, c: ast.Quantified(c[0], c[1], span=span),
    **{word: _constant(word) for word in ("any", "every", "no")},
    "lineage": _lineage,
    **{
        word: _constant(word)
        for word in ("derived_from", "ancestor_of", "child_of", "parent_of", "sibling_of")
    },
    "exists_path": lambda span, c: ast.Exists(c[0], span=span),
    "exists_query": lambda span, c: ast.Exists(c[0], span=span),
    "add": _binary("+"),
    "sub": _binary("-"),
    "mul": _binary("*"),
    "div": _binary("/"),
    "mod": _binary("%"),
    "one_value": lambda span, c: ast.OneValue(c[0], span=span),
    "case_": lambda span, c: ast.Case(c[0], c[1], span=span),
    "whens": _all,
    "when_then": lambda _, c: (c[0], c[1]),
    "neg": lambda span, c: ast.Unary("-", c[0], span=span),
}
_CLAUSES: Mapping[str, Make] = {
    "start": _all,
    "define": lambda span, c: ast.Define(_name(c[0]), c[1], span=span),
    "explain": lambda span, c: ast.Explain(c[1], c[0] is not None, span=span),
    "query": _query,
    "set_": lambda span, c: ast.SetOperation(c[1], c[0], c[2], span=span),
    "union": _constant("union"),
    "union_all": _constant("union all"),
    "intersect": _constant("intersect"),
    "except_": _constant("except"),
    "select": _select,
    "select_list": _all,
    "select_item": lambda span, c: ast.Item(c[0], _word(c[1]), span=span),
    "select_all": lambda span, _: ast.Item(ast.Star(span=span), None, span=span),
    "from_": _all,
    "range_all": lambda span, c: ast.Source(str(c[0]), None, span=span),
    "range_sub": lambda span, c: ast.Source(str(c[0]), c[1], span=span),
    "range_call": lambda span, c: ast.Source(str(c[0]), c[1], span=span),
    "range_anon": lambda span, c: ast.Source(_word(c[1]), c[0], span=span),
    "saved_query": lambda span, c: ast.Saved(text_of(c[0]), span=span),
    "inline_query": _only,
    "where": _only,
    "group_by": _all,
    "having": _only,
    "order_by": _all,
    "order_item": _order,
    "asc": _constant("asc"),
    "desc": _constant("desc"),
    "nulls_first": _constant(True),
    "nulls_last": _constant(False),
    "limit": lambda _, c: (c[0], c[1]),
    "into": lambda _, c: text_of(c[0]),
}
_VERBS: Mapping[str, Make] = {
    "slice": _derived(ast.Slice),
    "construct": _derived(ast.Construct),
    "evaluate": _evaluate,
    "mutate": _mutate,
    "each": _constant(True),
    "all": _constant(False),
    "assign": lambda span, c: ast.Action(c[0], c[1], span=span),
    "enumerate_": lambda span, c: ast.Action(c[0], None, c[1], span=span),
    "bare_action": lambda span, c: ast.Action(c[0], span=span),
    "with_": _all,
    "setting": lambda span, c: ast.Action(c[0], c[1], span=span),
    "vary": _all,
    "dim_in": _dimension,
    "dim_auto": _automatic,
    "linked": _all,
    "when": _only,
    "using": _call,
    "keep": _all,
    "rule": _only,
    "budget": _only,
    "on_": _call,
}
MAKERS: Mapping[str, Make] = {**_LITERALS, **_NAMES, **_CONDITIONS, **_CLAUSES, **_VERBS}


END = "$END"
_FORM = 1  # of the tables
_LETTER = re.compile(r"[A-Za-z_]|[^\x00-\x7f]")


@dataclass(frozen=True)
class Rule:
    """`size` symbols become one, `origin`.

    `stay`: the places of those that are parts of it, whether each is a run of parts, and how many
    absent ones stand before it; `after`: and behind the last. `single`: one part alone stands
    for the whole.
    """

    origin: str
    size: int
    stay: tuple[tuple[int, bool, int], ...]
    after: int
    single: bool
    make: Make | None  # None: it is a run of parts

    @property
    def plain(self) -> bool:
        """Whether nothing happens but that it gets another name."""
        return self.single and self.size == 1


class Tables:
    """`actions`: by state and symbol the next state, or ~ the number of a rule."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.actions: list[dict[str, int]] = document["actions"]
        self.start: int = document["start"]
        self.end: int = document["end"]
        self.rules = [_rule(each) for each in document["rules"]]
        self.ignored = frozenset(document["ignored"])
        self.keywords: dict[str, str] = {}
        self.written: dict[str, str] = {}  # a terminal, but for its boundary, as it is defined
        self._patterns: dict[str, str] = {}  # in the order in which they are tried
        for name, pattern, written, keyword in document["terminals"]:
            self._patterns[name] = pattern
            self.written[name] = written.removesuffix(r"\b")
            if keyword is not None:
                self.keywords[keyword] = name
        self._scanners: dict[frozenset[str] | None, re.Pattern[str]] = {}
        self._of_state: dict[tuple[int, bool], re.Pattern[str]] = {}

    def scanner(self, state: int, sign: str) -> re.Pattern[str]:
        """Finds what may stand in a state, its name as the last group; `sign`: it begins so."""
        letter = _LETTER.match(sign) is not None
        found = self._of_state.get((state, letter))
        if found is None:
            found = self._of_state[state, letter] = self._scanner_of(
                self.ignored.union(filter(str.isupper, self.actions[state])), letter
            )
        return found

    @property
    def everything(self) -> re.Pattern[str]:
        """Finds any word, wherever it may stand."""
        return self._scanner_of(frozenset(self._patterns), True)

    def _scanner_of(self, names: frozenset[str], letter: bool) -> re.Pattern[str]:
        if not letter:  # no keyword begins with anything else
            names = names.difference(self.keywords.values())
        if names not in self._scanners:
            parts = [f"(?P<{n}>{self._patterns[n]})" for n in self._patterns if n in names]
            self._scanners[names] = re.compile("|".join(parts))
        return self._scanners[names]


def _rule(written: Sequence[Any]) -> Rule:
    name, origin, size, stay, after, single = written
    make = None if name.startswith("_") else MAKERS.get(name)
    return Rule(origin, size, tuple(map(tuple, stay)), after, single, make)


def grammar_text() -> str:
    return Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")


@cache
def tables(cache_folder: Path | None) -> Tables:
    text = grammar_text()
    path = None if cache_folder is None else cache_folder / _file(text)
    if path is not None and (kept := read(path)) is not None:
        return Tables(kept)

    made = make_tables(text)
    if path is not None:
        _write(path, made)
    return Tables(made)


def _file(grammar: str) -> str:
    return f"dql-{hash_bytes(f'{_FORM} {grammar}'.encode())[:32]}.json"


def read(path: Path) -> dict[str, Any] | None:
    """Tables of an earlier start, if they are whole and nobody but the user could write them."""
    try:
        for place in (path, path.parent):
            found = place.lstat()
            if stat.S_ISLNK(found.st_mode) or not _own(found):
                return None
        data = path.read_bytes()
    except OSError:
        return None
    name, content = data[:64], data[64:]
    if hash_bytes(content).encode() != name:
        return None
    document: dict[str, Any] = json.loads(content)
    return document


def _own(status: os.stat_result) -> bool:
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _write(path: Path, document: Mapping[str, Any]) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = json.dumps(document, separators=(",", ":")).encode()
        fresh.write_bytes(hash_bytes(content).encode() + content)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)


# Tables made by lark: which word leads from which state to which


_KEYWORD = re.compile(r"([a-z_]+)\\b")


def make_tables(grammar: str) -> dict[str, Any]:
    """What `Tables` is made of."""
    from lark import Lark
    from lark.grammar import Rule as LarkRule

    found = Lark(grammar, parser="lalr", maybe_placeholders=True)
    table: Any = found.parser.parser._parse_table  # as in the parsers that lark writes itself
    places = {state: place for place, state in enumerate(table.states)}
    numbers = {rule: number for number, rule in enumerate(found.rules)}

    return {
        "actions": [
            {
                symbol: ~numbers[of] if isinstance(of, LarkRule) else places[of]
                for symbol, (_, of) in actions.items()
            }
            for actions in table.states.values()
        ],
        "start": places[table.start_states["start"]],
        "end": places[table.end_states["start"]],
        "rules": [_rule_row(rule) for rule in found.rules],
        "terminals": [
            (each.name, each.pattern.to_regexp(), each.pattern.value, _keyword(each.pattern))
            for each in sorted(found.terminals, key=_rank)
        ],
        "ignored": found.ignore_tokens,
    }


def _rank(terminal: Any) -> tuple[Any, ...]:
    """Where several terminals fit, lark takes the first one in this order."""
    pattern = terminal.pattern
    return -terminal.priority, -pattern.max_width, -len(pattern.value), terminal.name


def _keyword(pattern: Any) -> str | None:
    found = _KEYWORD.fullmatch(pattern.value)
    return found[1] if found and pattern.flags == {"i"} else None


def _rule_row(rule: Any) -> tuple[Any, ...]:
    """As `Rule` has it: what it makes, and which of its symbols are parts of that."""
    symbols: Sequence[Any] = rule.expansion
    options: Any = rule.options
    assert symbols, "no part without a place"
    absent = "".join("x" if empty else " " for empty in options.empty_indices)
    gaps = list(map(len, absent.split(" "))) if absent else [0] * (len(symbols) + 1)
    stay, before = [], 0
    for place, symbol in enumerate(symbols):
        before += gaps[place]
        if not (symbol.is_term and symbol.filter_out):
            stay.append((place, not symbol.is_term and symbol.name.startswith("_"), before))
            before = 0
    single = bool(options.expand1 and not rule.alias)
    assert not single or len(stay) > 1 or not symbols[stay[0][0]].is_term, "a word is not a part"
    name = rule.alias or rule.origin.name
    return name, rule.origin.name, len(symbols), stay, before + gaps[-1], single
