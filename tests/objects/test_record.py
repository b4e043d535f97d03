"""The strict reader of objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from dlv.errors import Damaged, NewerFormat
from dlv.objects.record import Reader, as_json, check_format, natural, whole


@pytest.mark.parametrize("value", [None, [], 1, "a", True])
def test_not_an_object(value: Any) -> None:
    with pytest.raises(Damaged, match="fact 12 is malformed") as found:
        Reader(value, "fact 12", "a")
    assert found.value.why == "it is not an object"
    assert found.value.hint == "dlv fsck"


def test_a_missing_key_is_damage_and_an_unknown_one_is_from_the_future() -> None:
    with pytest.raises(Damaged) as missing:
        Reader({"a": 1}, "it", "a b c")
    assert missing.value.why == "keys are missing: b, c"
    with pytest.raises(NewerFormat, match="it has the key `z`") as newer:
        Reader({"a": 1, "z": 2, "writer": "dlv 9"}, "it", "a writer")
    assert newer.value.why == "it was written by dlv 9"
    assert newer.value.exit_code == 3
    with pytest.raises(Damaged):
        Reader({"z": 2}, "it", "a")


@pytest.mark.parametrize(
    ("value", "kind"), [(True, int), (1, bool), (1, str), ("1", int), (1.0, int), (None, dict)]
)
def test_wrong_types(value: Any, kind: type) -> None:
    reader = Reader({"a": value}, "it", "a")
    with pytest.raises(Damaged) as found:
        reader.take("a", kind)
    assert found.value.why == f"`a` is not {kind.__name__}"


def test_checks_and_options() -> None:
    reader = Reader({"a": 5, "b": None, "c": "new"}, "it", "a b c")
    assert reader.take("a", int, lambda value: value == 5) == 5
    with pytest.raises(Damaged, match="malformed"):
        reader.take("a", int, lambda value: value == 6)
    assert reader.optional("b", int) is None
    assert reader.optional("a", int) == 5
    assert reader.one_of("c", ("old", "new")) == "new"
    with pytest.raises(NewerFormat, match="it has the c `new`"):
        reader.one_of("c", ("old",))


def test_inner_errors_say_where_and_who() -> None:
    value = {"writer": "dlv 9", "list": [{"x": 1}, {"x": 1, "y": 2}], "inner": {"k": 1}}
    reader = Reader(value, "it", "writer list inner")
    with pytest.raises(NewerFormat, match=r"it: list\[1\] has the key `y`") as found:
        reader.each("list", "x")
    assert found.value.why == "it was written by dlv 9"
    with pytest.raises(Damaged, match="it: inner is malformed"):
        reader.inner("inner", "k l")


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
    assert found.value.why == "this dlv reads `dlv/fact/1`; it was written by dlv 9.0.0"


def test_a_dataclass_as_json() -> None:
    @dataclass(frozen=True)
    class Inner:
        name: str
        sizes: tuple[int, ...]

    @dataclass(frozen=True)
    class Outer:
        inner: tuple[Inner, ...]
        one: Inner | None
        free: dict[str, object]

    inner = {"name": "a", "sizes": [1, 2]}
    free: dict[str, object] = {"left": (1,)}
    told = as_json(Outer((Inner("a", (1, 2)),), None, free))
    assert told == {"inner": [inner], "one": None, "free": free}
