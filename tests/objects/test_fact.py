"""Facts: golden bytes stay readable, and whatever is not a fact gives a typed error."""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.canonical import dumps, hash_bytes
from dlv.errors import Damaged, DlvError, NewerFormat
from dlv.objects.fact import KINDS, Fact, decode_fact

GOLDEN = Path(__file__).parents[1] / "golden" / "fact" / "1"
FILES = sorted(GOLDEN.glob("*.json"))
VALUES: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text("utf-8")) for path in FILES
}
ODD: list[Any] = [None, True, -1, 3, 2**63, 1.5, "", "zz", "a" * 64, [], [[]], [2**63], {}, {"": 0}]
KEYS = ("format", "writer", "kind", "subject", "author", "created", "replaces", "data")


def readable(value: Any) -> bool:
    data = dumps(value)
    try:
        fact = decode_fact(data)
    except (Damaged, NewerFormat):
        return False
    assert fact.encode() == data
    return True


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    data = path.read_bytes()
    fact = decode_fact(data)
    assert fact.encode() == data
    assert fact.hash == hash_bytes(data) == path.with_suffix(".id").read_text().strip()


def test_every_kind_has_a_golden_file() -> None:
    assert {value["kind"] for value in VALUES.values()} == set(KINDS)


def test_golden_values() -> None:
    assert decode_fact((GOLDEN / "tag.json").read_bytes()) == Fact(
        kind="tag",
        subject="paper-final",
        author="A <a@b.c>",
        created="2026-01-31T12:00:00.000000Z",
        data={"version": "1" * 64},
        replaces="2" * 64,
        writer="dlv 0.1.0",
    )


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_checked(name: str, key: str) -> None:
    value = VALUES[name]
    refused = [new for new in ODD if not readable({**value, key: new})]
    assert len(refused) >= (0 if (name, key) == ("card", "data") else 5)
    assert not readable({k: v for k, v in value.items() if k != key})
    assert not readable({**value, "later": 1})


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("number", {"name": "lenet"}),
        ("number", {"number": 3}),
        ("number", {"name": "a/b", "number": 3}),
        ("number", {"name": "lenet", "number": -1}),
        ("number", {"name": "lenet", "number": True}),
        ("number", {"name": "lenet", "number": 2**63}),
        ("tag", {}),
        ("tag", {"version": "1" * 63}),
        ("removal", {}),
        ("removal", {"steps": 5}),
        ("removal", {"steps": [[]]}),
        ("removal", {"steps": [2**63]}),
        ("removal", {"steps": ["1"]}),
        ("undo", {"why": "x"}),
        ("evaluation", {"metrics": {}}),
        ("evaluation", {"step": 1, "metrics": []}),
        ("query", {"text": 1}),
        ("query", {}),
        ("archive", {"packs": ["x"]}),
        ("archive", {"packs": None}),
        ("remote-head", {"seq": -1, "hash": "1" * 64}),
        ("remote-head", {"seq": 1, "hash": "x"}),
        ("promise", {"remote": "origin", "uuid": "1" * 64, "locator": "x"}),
        ("promise", {"remote": 1, "uuid": "1" * 64, "locator": "1" * 64}),
    ],
)
def test_data_of_the_kinds(name: str, data: dict[str, Any]) -> None:
    with pytest.raises(Damaged):
        decode_fact(dumps({**VALUES[name], "data": data}), "fact 12")


@pytest.mark.parametrize("name", ["number", "removal", "undo", "evaluation", "promise", "card"])
def test_subjects_that_are_ids(name: str) -> None:
    for subject in (None, "lenet", "1" * 63):
        with pytest.raises(Damaged, match="fact 12 is malformed"):
            decode_fact(dumps({**VALUES[name], "subject": subject}), "fact 12")


def test_subjects_of_the_others() -> None:
    for name in ("tag", "query", "remote-head"):
        assert not readable({**VALUES[name], "subject": None})
    assert not readable({**VALUES["archive"], "subject": "x"})


def test_what_a_newer_dlv_wrote() -> None:
    tag = {**VALUES["tag"], "writer": "dlv 9.0.0"}
    for value, said in (
        ({**tag, "format": "dlv/fact/2"}, "dlv/fact/2"),
        ({**tag, "kind": "blessing"}, "`blessing`"),
        ({**tag, "mood": 1}, "`mood`"),
    ):
        with pytest.raises(NewerFormat, match=said) as found:
            decode_fact(dumps(value), "fact 12")
        assert found.value.exit_code == 3
        assert "dlv 9.0.0" in (found.value.why or "")


@given(
    st.sampled_from(sorted(VALUES)),
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(ODD), min_size=1, max_size=3),
    st.dictionaries(
        st.sampled_from(["name", "number", "version", "steps", "packs", "text", "seq"]),
        st.sampled_from(ODD),
        max_size=3,
    ),
)
@settings(max_examples=300)
def test_random_mutations(name: str, edits: dict[str, Any], data: dict[str, Any]) -> None:
    value = copy.deepcopy(VALUES[name])
    value["data"].update(data)
    readable({**value, **edits})


@given(st.sampled_from(FILES), st.data())
@settings(max_examples=200)
def test_flipped_bytes(path: Path, draw: st.DataObject) -> None:
    data = bytearray(path.read_bytes())
    data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    with contextlib.suppress(DlvError):
        assert decode_fact(bytes(data)).encode() == data
