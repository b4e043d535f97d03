from __future__ import annotations

import pytest

from dlv.dql.execute import question
from dlv.dql.words import ast, parser

PLAIN = 'evaluate m from m with config = "b on.toml" into "x"'


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        'evaluate m from m with config = "b on.toml" on local(workers = 3) into "x"',
        'evaluate m from m with config = "b on.toml" ON ray("auto", gpus = 1)\n  into "x"',
        'evaluate m -- on purpose\n  from m\n\twith config = "b on.toml" on local into "x"  ',
        '  explain evaluate m from m with config = "b on.toml" on local(workers = 1) into "x"',
        'evaluate  m from m with config = "b on.toml"\n# more\non -- which\nlocal into "x";',
    ],
)
def test_where_and_how_it_is_written_does_not_matter(text: str) -> None:
    statement = parser.parse(text)[0]
    query = statement.query if isinstance(statement, ast.Explain) else statement
    assert isinstance(query, ast.Query)
    assert question(text, query) == PLAIN


@pytest.mark.parametrize(
    "text",
    [
        'evaluate m from m with config = "b  on.toml" into "x"',
        'evaluate m from m with config = "b on.toml" into "y"',
        'evaluate m from m with config = "b on.toml" budget(trials = 3) into "x"',
    ],
)
def test_what_is_asked_does(text: str) -> None:
    (query,) = parser.parse(text)
    assert isinstance(query, ast.Query)
    assert question(text, query) != PLAIN


def test_of_other_queries_all_counts() -> None:
    (query,) = parser.parse('select m  where m.name = "on"')
    assert isinstance(query, ast.Query)
    assert question('select m  where m.name = "on"', query) == 'select m where m.name = "on"'
