"""Selectors that few names fit are looked up by those names: just those that fit."""

from __future__ import annotations

import itertools

import pytest

from dlv.metadata.select.layers import spellings
from dlv.network.selector import selector

SIGNS = "ab019[]*"
NAMES = {"".join(signs) for n in range(1, 5) for signs in itertools.product(SIGNS, repeat=n)}


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a[0,9]",
        "a[0-19]b",
        "[a-b][0,1,10]",
        "[ab,a]",
        "[10-11]9",
        r"a\*",
        "[a,a,aa]a",
        "b[0-9]",
    ],
)
def test_all_that_fits_is_listed(text: str) -> None:
    wanted = selector(text)
    found = spellings(wanted)
    assert found is not None
    assert len(set(found)) == len(found)
    assert {name for name in found if name in NAMES} == {name for name in NAMES if name in wanted}
    assert all(name in wanted for name in found)


@pytest.mark.parametrize(
    "text", ["a*", "?", "a[!0]", "a[0-99]", "[a-b][0-9][0-9]", "[0-9]*", "a[\u0400-\u04ff]"]
)
def test_what_is_not_listed(text: str) -> None:
    assert spellings(selector(text)) is None
