"""The states of words and the trees they give, beside what lark does with the same grammar."""

from __future__ import annotations

import itertools
import random
from typing import Any

import lark
import pytest

from dlv.dql.words import tables
from dlv.dql.words.ast import Span
from dlv.dql.words.parser import Stopped, parse, tree, way
from dlv.dql.words.tables import MAKERS
from tests.dql.fuzzing import texts, valid

ODD = [
    *("ſelect m", "select m lımit 3", "select m where m.a liKe 'x'", "selecté m", "select\u00a0m"),
    *("", " ", ";", "select m;", "select m;;", "select m;select n # x", "-- only this"),
    *(
        'select m where m.a like"x"and m.b=1',
        'select m[re"a"]',
        "select m[٣]",
        "select m where 10x",
    ),
    *("((select m))", "select m where (((m.a)) = 1)", "select m where ((m.a), m.b) in [(1, 2)]"),
    *(
        "evaluate m from m using grid on local",
        "select m where 2--3 = 1 -- 3",
        "select m where 1..2",
    ),
    "select m where " + " and ".join(["(not m.a = [1, (2)])"] * 40),
    "select m where " + "(" * 500 + "not " * 400 + "m.a",
]


@pytest.fixture(scope="module")
def grammar() -> lark.Lark:
    text = tables.grammar_text()
    return lark.Lark(text, parser="lalr", propagate_positions=True, maybe_placeholders=True)


def some() -> list[str]:
    queries = [*valid(), *ODD]
    lot = random.Random(3)
    cut = [text[: lot.randrange(len(text) + 1)] for text in queries]
    return [*queries, *cut, *itertools.islice(texts(9), 400)]


def built(whole: Any) -> Any:
    """What the makers make of lark's tree."""
    order, waiting = [], [whole]
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting += [child for child in node.children if isinstance(child, lark.Tree)]
    made: dict[int, Any] = {}
    for node in reversed(order):
        children = [
            made[id(child)] if isinstance(child, lark.Tree) else child and str(child)
            for child in node.children
        ]
        span = Span(node.meta.start_pos, node.meta.end_pos)
        made[id(node)] = MAKERS[node.data](span, children)
    return made[id(whole)]


def depth(node: Any) -> int:
    most, waiting = 0, [(node, 1)]
    while waiting:
        here, level = waiting.pop()
        most = max(most, level)
        waiting += [(child, level + 1) for child in here.children if isinstance(child, lark.Tree)]
    return most


def test_trees_are_those_of_lark(grammar: lark.Lark) -> None:
    known = tables.tables(None)
    good = 0
    for text in some():
        try:
            right = grammar.parse(text)
        except lark.exceptions.UnexpectedInput:
            with pytest.raises(Stopped):
                tree(known, text)
            continue
        good += 1
        found = tree(known, text)
        assert repr(found.tree) == repr(built(right)), text  # with all places
        assert found.depth == depth(right)
    assert good > 150


def test_texts_stop_where_they_do_for_lark(grammar: lark.Lark) -> None:
    """And the same might stand there instead."""
    known = tables.tables(None)
    stopped = 0
    for text in some():
        walk = grammar.parse_interactive(text)
        right: list[tuple[str, int, int]] = []
        fault = None
        before: Any = None
        try:
            for token in walk.lexer_thread.lex(walk.parser_state):  # type: ignore[no-untyped-call]
                before = walk.copy(deepcopy_values=False)  # type: ignore[no-untyped-call]
                walk.feed_token(token)
                right.append((token.type, token.start_pos or 0, token.end_pos or 0))
        except lark.exceptions.UnexpectedToken as error:
            fault = (error.token.start_pos, error.token.end_pos - error.token.start_pos)
            walk = before if error.token is token else walk
        except lark.exceptions.UnexpectedCharacters as error:
            fault = (error.pos_in_stream, 1)
        found = way(known, text)
        assert found.words == right, text
        assert (found.stopped and found.stopped.fault) == fault, text
        assert found.accepted() == walk.accepts(), text  # type: ignore[no-untyped-call]
        stopped += fault is not None
    assert stopped > 150


def test_a_way_without_its_last_word() -> None:
    found = way(tables.tables(None), "select m where")
    assert "_WHERE" in found.without_last().accepted()
    assert "_WHERE" not in found.accepted()
    assert not way(tables.tables(None), "").words


def test_a_bare_name_behind_using_and_on_has_its_place() -> None:
    text = "evaluate m from m using  grid on local"
    (query,) = parse(text)
    body: Any = query.body  # type: ignore[union-attr]
    spans = [each.span for each in (body.using, body.on)]
    assert [text[span.start : span.end] for span in spans] == ["grid", "local"]
