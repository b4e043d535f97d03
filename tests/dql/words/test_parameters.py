"""Values of parameters as they are typed."""

from __future__ import annotations

import pytest

from dlv.dql.words.parameters import parameters
from dlv.errors import UsageError


def test_json_or_else_a_text() -> None:
    given = ["lr=0.1", "$n=3", "name=lenet", 'quoted="3"', "ids=[1, 2]", "flag=true", "none=null"]
    assert parameters(given) == {
        "lr": 0.1,
        "n": 3,
        "name": "lenet",
        "quoted": "3",
        "ids": [1, 2],
        "flag": True,
        "none": None,
    }


def test_what_looks_like_json_but_is_none() -> None:
    deep = "[" * 100_000
    given = ["a=NaN", "b=Infinity", "c=", "d=x=y", "e={", f"f={deep}", "a=again"]
    found = parameters(given)
    assert found == {"a": "again", "b": "Infinity", "c": "", "d": "x=y", "e": "{", "f": deep}


@pytest.mark.parametrize("text", ["lr", "=1", "two words=1", "1a=1", "", "a=\udcff"])
def test_not_a_parameter(text: str) -> None:
    with pytest.raises(UsageError, match="gives no parameter a value"):
        parameters([text])
