"""Tables of the grammar, made by lark: which word leads from which state to which.

lark takes longer to load than a query to be answered, and longer still to reckon: what comes of
it is plain enough to be kept as JSON, and is read without it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lark import Lark
from lark.grammar import Rule

_KEYWORD = re.compile(r"([a-z_]+)\\b")


def make_tables(grammar: str) -> dict[str, Any]:
    """What `tables.Tables` is made of."""
    found = Lark(grammar, parser="lalr", maybe_placeholders=True)
    table: Any = found.parser.parser._parse_table  # as in the parsers that lark writes itself
    places = {state: place for place, state in enumerate(table.states)}
    numbers = {rule: number for number, rule in enumerate(found.rules)}

    return {
        "actions": [
            {
                symbol: ~numbers[of] if isinstance(of, Rule) else places[of]
                for symbol, (_, of) in actions.items()
            }
            for actions in table.states.values()
        ],
        "start": places[table.start_states["start"]],
        "end": places[table.end_states["start"]],
        "rules": [_rule(rule) for rule in found.rules],
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


def _rule(rule: Rule) -> tuple[Any, ...]:
    """As `tables.Rule` has it: what it makes, and which of its symbols are parts of that."""
    symbols: Sequence[Any] = rule.expansion
    options: Any = rule.options
    assert symbols, "there is no part without a place"
    absent = "".join("x" if empty else " " for empty in options.empty_indices)
    gaps = list(map(len, absent.split(" "))) if absent else [0] * (len(symbols) + 1)
    stay, before = [], 0
    for place, symbol in enumerate(symbols):
        before += gaps[place]
        if not (symbol.is_term and symbol.filter_out):
            stay.append((place, not symbol.is_term and symbol.name.startswith("_"), before))
            before = 0
    single = bool(options.expand1 and not rule.alias)
    assert not single or len(stay) > 1 or not symbols[stay[0][0]].is_term, "a word is no part"
    name = rule.alias or rule.origin.name
    return name, rule.origin.name, len(symbols), stay, before + gaps[-1], single
