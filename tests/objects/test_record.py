"""The strict reader of objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest

from dlv.canonical import dumps
from dlv.errors import Damaged, NewerFormat
from dlv.objects.record import (
    Natural,
    Place,
    Word,
    as_json,
    check_format,
    decode,
    natural,
    parse,
    whole,
)


@dataclass(frozen=True)
class Inner:
    name: str
    sizes: tuple[Natural, ...]


class Typed(TypedDict):
    x: list[str]


@dataclass(frozen=True)
class Outer:
    inner: tuple[Inner, ...]
    one: Inner | None
    word: Annotated[str, Word(("old", "new").__contains__)]
    norm: float
    yes: bool
    free: dict[str, Any]
    counts: Mapping[str, Annotated[int, range(3).__contains__]]
    typed: Typed
    writer: str = "dlv 1"


VALUE: dict[str, Any] = {
    "inner": [{"name": "a", "sizes": [1, 2]}, {"name": "b", "sizes": []}],
    "one": None,
    "word": "new",
    "norm": "Infinity",
    "yes": True,
    "free": {"left": [1]},
    "counts": {"a": 2},
    "typed": {"x": ["y"]},
    "writer": "dlv 9",
}
IT = Place("it", "dlv 9")


def test_there_and_back() -> None:
    outer = decode(Outer, VALUE, IT)
    assert outer.inner == (Inner("a", (1, 2)), Inner("b", ()))
    assert outer.norm == float("inf")
    assert as_json(outer) == VALUE
    assert decode(Outer, {**VALUE, "one": VALUE["inner"][0]}, IT).one == outer.inner[0]
    rest = {key: VALUE[key] for key in VALUE if key != "one"}
    assert decode(Outer, rest, IT, one=outer.inner[1]).one == outer.inner[1]


@pytest.mark.parametrize("value", [None, [], 1, "a", True])
def test_not_an_object(value: Any) -> None:
    with pytest.raises(Damaged, match="it is malformed") as found:
        decode(Inner, value, IT)
    assert found.value.why == "it is not an object"
    assert found.value.hint == "dlv fsck"


def test_a_missing_key_is_damage_and_an_unknown_one_is_from_the_future() -> None:
    with pytest.raises(Damaged) as missing:
        decode(Inner, {}, IT)
    assert missing.value.why == "keys are missing: name, sizes"
    with pytest.raises(NewerFormat, match="it has the key `z`") as newer:
        decode(Inner, {"name": "a", "sizes": [], "z": 2}, IT)
    assert newer.value.why == "it was written by dlv 9"
    assert newer.value.exit_code == 3
    with pytest.raises(Damaged):
        decode(Inner, {"name": "a", "z": 2}, IT)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("yes", 1, "`yes` is not bool"),
        ("word", 1, "`word` is not str"),
        ("norm", 1, "`norm` is not float"),
        ("norm", "infinite", "`norm` is not float"),
        ("norm", None, "`norm` is not float"),
        ("free", None, "`free` is not dict"),
        ("inner", {}, "`inner` is not list"),
        ("inner", [1], "it is not an object"),
        ("one", 5, "it is not an object"),
        ("counts", [], "`counts` is not dict"),
        ("counts", {"a": True}, "`counts: a` is not int"),
        ("counts", {"a": 3}, "`counts: a` has a value that is not allowed"),
        ("typed", {"x": [None]}, "`x` is not str"),
    ],
)
def test_wrong_values(key: str, value: Any, why: str) -> None:
    with pytest.raises(Damaged, match="malformed") as found:
        decode(Outer, {**VALUE, key: value}, IT)
    assert found.value.why == why


@pytest.mark.parametrize("size", [True, 1.0, "1", None, -1, 2**63])
def test_wrong_numbers(size: Any) -> None:
    with pytest.raises(Damaged):
        decode(Inner, {"name": "a", "sizes": [size]}, IT)


def test_an_unknown_word_is_newer() -> None:
    with pytest.raises(NewerFormat, match="it has the word `other`"):
        decode(Outer, {**VALUE, "word": "other"}, IT)


def test_inner_errors_say_where_and_who() -> None:
    inner = [VALUE["inner"][0], {**VALUE["inner"][1], "y": 2}]
    with pytest.raises(NewerFormat, match=r"it: inner\[1\] has the key `y`") as found:
        decode(Outer, {**VALUE, "inner": inner}, IT)
    assert found.value.why == "it was written by dlv 9"
    with pytest.raises(Damaged, match="it: one is malformed"):
        decode(Outer, {**VALUE, "one": {"name": "a"}}, IT)


def test_ranges() -> None:
    limits = [-(2**63) - 1, -(2**63), -1, 0, 2**63 - 1, 2**63]
    assert [whole(value) for value in limits] == [False, True, True, True, True, False]
    assert [natural(value) for value in limits] == [False, False, False, True, True, False]
    assert not any(map(whole, [True, 1.0, "1", None]))


@pytest.mark.parametrize("value", [None, [], {}, {"format": 1}, {"format": None}])
def test_no_format(value: Any) -> None:
    with pytest.raises(Damaged, match="it is malformed"):
        check_format(value, "dlv/fact/1", "it")


def test_another_format() -> None:
    check_format({"format": "dlv/fact/1"}, "dlv/fact/1", "it")
    with pytest.raises(NewerFormat, match="dlv/fact/2") as found:
        check_format({"format": "dlv/fact/2", "writer": "dlv 9.0.0"}, "dlv/fact/1", "it")
    assert found.value.why == "expected `dlv/fact/1`; it was written by dlv 9.0.0"


def test_parse() -> None:
    record, place = parse(dumps({"format": "f/1", "writer": "dlv 9", "a": 1}), "f/1", "it")
    assert record == {"writer": "dlv 9", "a": 1}
    assert place == IT
