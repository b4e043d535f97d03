"""Selectors: what fits, what is captured, and where a text is no selector."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.network.selector import SelectorFault, filled, selector


@pytest.mark.parametrize(
    ("text", "fits", "others"),
    [
        ("conv1", ["conv1"], ["conv", "conv11", "Conv1", ""]),
        ("conv*", ["conv", "conv1", "conv1.x"], ["xconv", "con"]),
        ("fc?", ["fc6", "fcx"], ["fc", "fc10"]),
        ("conv[1,3,5]", ["conv1", "conv3", "conv5"], ["conv2", "conv13", "conv"]),
        ("r[18,34]*", ["r18", "r34x"], ["r1", "r3", "r50"]),
        ("l[8-12]", ["l8", "l10", "l12"], ["l7", "l13", "l1", "l010"]),
        ("l[1-3,7]x", ["l1x", "l7x"], ["l4x", "l17x"]),
        ("b[a-f]", ["ba", "bf"], ["bg", "bA", "b"]),
        ("fc[!7]", ["fc6", "fc70", "fcx"], ["fc7", "fc", "fcxy"]),
        ("fc[!6-8]", ["fc5", "fc66"], ["fc6", "fc7", "fc8"]),
        (r"a\*b", ["a*b"], ["aab", "axb"]),
        (r"conv\[1\]", ["conv[1]"], ["conv1"]),
        ("*[ab,a]*b", ["ab", "aab", "abb"], ["b", "a"]),
        ("*[abc,b]*c", ["abc", "bc"], ["ac", "c"]),
        ("*", ["", "x"], []),
        ("", [""], ["x"]),
        ("a.b", ["a.b"], ["axb"]),
    ],
)
def test_what_fits(text: str, fits: list[str], others: list[str]) -> None:
    found = selector(text)
    assert [name for name in fits if name not in found] == []
    assert [name for name in others if name in found] == []


@pytest.mark.parametrize(
    ("text", "name", "captures"),
    [
        ("conv*($1)", "conv12", {1: "12"}),
        ("conv($1)", "conv12", {1: "12"}),
        ("($1)", "any", {1: "any"}),
        ("layer*($1).conv?($2)", "layer3.0.conv2", {1: "3.0", 2: "2"}),
        ("conv[1,3,5]($1)", "conv3", {1: "3"}),
        ("[8-12]($2)x*($1)", "10xyz", {1: "yz", 2: "10"}),
        ("a*($1)($2)", "abc", {1: "bc", 2: ""}),
        ("conv1", "conv1", {}),
    ],
)
def test_captures(text: str, name: str, captures: dict[int, str]) -> None:
    assert selector(text).match(name) == captures
    assert selector(text).match("\0") is None or text == "($1)"


def test_captures_are_put_back() -> None:
    assert filled("relu$1", {1: "3"}) == "relu3"
    assert filled("$2-$1-$1", {1: "a", 2: "$1"}) == "$1-a-a"
    assert filled(r"cost\$1", {}) == "cost$1"
    assert filled("$x", {}) == "$x"
    with pytest.raises(SelectorFault, match=r"nothing was captured as \$2"):
        filled("r$2", {1: "x"})


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("conv(", 4, "unexpected '\\('"),
        ("conv*($0)", 5, "unexpected"),
        ("conv)", 4, "unexpected '\\)'"),
        ("a[]", 1, "the brackets are empty"),
        ("a[1,]", 1, "the brackets are empty"),
        ("a[1", 1, "not closed"),
        ("a[!", 1, "not closed"),
        ("a]", 1, "unexpected"),
        ("a\\", 1, "backslash"),
        ("a[5-1]", 1, "is empty"),
        ("a[x-12]", 1, "not a range"),
        ("a[-3]", 1, "not a range"),
        ("*($1)*($1)", 6, "used twice"),
    ],
)
def test_faults(text: str, place: int, message: str) -> None:
    with pytest.raises(SelectorFault, match=message) as caught:
        selector(text)
    assert caught.value.place == place


def test_prefixes() -> None:
    assert selector("conv[1]*").prefix == "conv"
    assert selector("*x").prefix == ""
    assert selector(r"a\*").literal == "a*"
    assert selector("a*").literal is None
    assert selector("").literal == ""


def test_no_name_takes_long() -> None:
    assert "a" * 200 not in selector("*a" * 40 + "b")
    assert "1" * 200 not in selector("*[1,11,111]" * 30 + "x")


NAMES = st.text("ab1.", max_size=12)


@given(
    st.lists(st.sampled_from(["*", "?", "a", "b", "1", ".", "[a,ab]", "[1-12]"]), max_size=8), NAMES
)
def test_as_regular_expressions_say(parts: list[str], name: str) -> None:
    numbers = "(?:" + "|".join(str(n) for n in range(12, 0, -1)) + ")"
    words = {"*": ".*", "?": ".", ".": r"\.", "[a,ab]": "(?:ab|a)", "[1-12]": numbers}
    wanted = re.fullmatch("".join(words.get(part, part) for part in parts), name, re.DOTALL)
    assert (name in selector("".join(parts))) == (wanted is not None)


@given(st.text(max_size=30), st.text(max_size=10))
def test_whatever_is_typed_is_a_selector_or_a_fault(text: str, name: str) -> None:
    try:
        found = selector(text)
    except SelectorFault as fault:
        assert 0 <= fault.place <= len(text)  # noqa: PT017
        return
    assert found.match(name) is None or isinstance(found.match(name), dict)
    escaped = re.sub(r"([\[\]()*?\\])", r"\\\1", name)
    assert selector(escaped).literal == name
