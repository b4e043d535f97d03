"""Faults of names and kinds, one and several."""

from __future__ import annotations

import pytest

from dlv.dql.bind.binder import Fault, Faults, MissingReferences, WrongQuery, refuse
from dlv.dql.words.ast import Span

TEXT = "select m\nwhere m.lr = nope"


def fault(start: int, end: int, message: str = "wrong", *, missing: bool = False) -> Fault:
    return Fault(message, TEXT, Span(start, end), why="because", hint="do", missing=missing)


def test_a_fault_knows_its_place() -> None:
    found = fault(22, 26)
    assert (found.line, found.column, found.length) == (2, 14, 4)
    assert found.caret() == ["where m.lr = nope", " " * 13 + "^^^^"]
    assert [spot.message for spot in found.spots] == ["dql:2:14: wrong: because"]
    named = Fault("wrong", TEXT, Span(0, 6), called='query "good"')
    assert named.message == 'query "good":1:1: wrong'


def test_several_come_in_the_order_of_the_text_and_once() -> None:
    with pytest.raises(WrongQuery) as caught:
        refuse([fault(22, 26), fault(0, 6, missing=True), fault(22, 26)])
    error = caught.value
    assert isinstance(error, Faults)
    assert [each.start for each in error.faults] == [0, 22]
    assert [spot.mark for spot in error.spots] == ["^^^^^^", " " * 13 + "^^^^"]
    assert error.message == "dql:1:1: wrong (and 1 more)"
    assert error.exit_code == 2
    document = error.as_json()["error"]
    assert isinstance(document, dict)
    assert document["code"] == 2
    assert document["kind"] == "query"
    assert [each["code"] for each in document["errors"]] == [4, 2]


def test_what_is_only_missing_has_its_own_code() -> None:
    with pytest.raises(MissingReferences) as caught:
        refuse([fault(0, 6, missing=True)])
    assert caught.value.exit_code == 4
    refuse([])
