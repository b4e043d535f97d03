"""What is asked by a statement, whoever carries it out and however it is laid out."""

from __future__ import annotations

import re

from dlv.dql.words import ast

# As the grammar has them: texts, and what stands between words.
_GAPS = re.compile(
    r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?:\s|--(?=\s|\Z)[^\n]*|#[^\n]*)+"""
)
_ON = re.compile(r"\bon\Z", re.IGNORECASE)


def question(text: str, query: ast.Query) -> str:
    """The text of a query without `on ..`, in one line: with more workers it is the same."""
    begin, end = query.span.start, query.span.end
    where = query.body.on.span if isinstance(query.body, ast.Evaluate) and query.body.on else None
    if where is None:
        return _one_line(text[begin:end])
    before, behind = _one_line(text[begin : where.start]), _one_line(text[where.end : end])
    return f"{_ON.sub('', before).rstrip()} {behind}".rstrip()


def _one_line(text: str) -> str:
    return _GAPS.sub(lambda found: found[1] or " ", text).strip()
