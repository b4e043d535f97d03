"""Footers: everything in them is checked before it is used."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.canonical import dumps
from dlv.errors import Damaged, NewerFormat
from dlv.pas.chunks import covered
from dlv.pas.footer import parse, pieces_of

if TYPE_CHECKING:
    from tests.pas.conftest import SmallPack

Change = Callable[[dict[str, Any]], None]


def end_of(footer: dict[str, Any]) -> int:
    last = footer["chunks"][-1]
    return int(last["offset"] + last["length"])


def read(value: dict[str, Any], end: int) -> object:
    return parse(dumps(value), end, "the footer")


def test_it_says_what_was_written(small_pack: SmallPack) -> None:
    value = small_pack.footer.as_json()
    assert parse(dumps(value), end_of(value), "the footer") == small_pack.footer
    assert sorted(value) == ["chunks", "encodings", "format", "writer"]


def put(path: str, value: Any) -> Change:
    """Set what stands at `a.0.b` to `value`."""
    keys = [int(key) if key.isdigit() else key for key in path.split(".")]

    def change(footer: dict[str, Any]) -> None:
        here: Any = footer
        for key in keys[:-1]:
            here = here[key]
        here[keys[-1]] = value

    return change


def drop(footer: dict[str, Any]) -> None:
    del footer["chunks"][2]


def double(footer: dict[str, Any]) -> None:
    footer["encodings"].append(footer["encodings"][0])


def twice(footer: dict[str, Any]) -> None:
    again = copy.deepcopy(footer["chunks"][0])
    again["offset"] = end_of(footer)
    footer["chunks"].append(again)


HUGE = (1 << 62) - 1
DAMAGED: dict[str, Change] = {
    "no list": put("chunks", {}),
    "encodings missing": lambda footer: footer.pop("encodings"),
    "row no object": put("chunks.0", 5),
    "gap": put("chunks.1.offset", 9_999),
    "first offset": put("chunks.0.offset", 0),
    "length": put("chunks.0.length", 1 << 40),
    "empty": put("chunks.0.length", 0),
    "negative": put("chunks.0.length", -1),
    "float": put("chunks.0.offset", 8.0),
    "true": put("chunks.0.members.0.1", True),
    "raw": put("chunks.0.raw", HUGE),
    "hash": put("chunks.0.blake3", "ab"),
    "upper case": put("chunks.0.blake3", "A" * 64),
    "codec": put("chunks.0.codec", "zstd"),
    "codec without id": put("chunks.0.codec", {}),
    "member short": put("chunks.0.members.0", [0, 0]),
    "member index": put("chunks.0.members.0.0", 99),
    "member index negative": put("chunks.0.members.0.0", -1),
    "member named": put("chunks.0.members.0.0", "a" * 64),
    "members none": put("chunks.0.members", []),
    "network by index": put("chunks.6.members.0.0", 0),
    "network begins late": put("chunks.6.members.0.1", 1),
    "plane of a network": put("chunks.6.plane", 0),
    "no plane": put("chunks.0.plane", None),
    "plane too high": put("chunks.0.plane", 4),
    "plane twice": put("chunks.0.plane", 1),
    "chunk twice": twice,
    "chunk lost": drop,
    "side that is none": put("chunks.0.kind", "side"),
    "shape smaller": put("encodings.2.shape", [199]),
    "shape larger": put("encodings.2.shape", [HUGE]),
    "shape overflow": put("encodings.2.shape", [HUGE, HUGE, HUGE]),
    "shape negative": put("encodings.2.shape", [-200]),
    "shape text": put("encodings.2.shape", "200"),
    "empty with bytes": put("encodings.2.shape", [0]),
    "rank": put("encodings.2.shape", [1] * 65),
    "planes": put("encodings.2.planes", 3),
    "planes many": put("encodings.2.planes", 1 << 40),
    "delta": put("encodings.2.delta", 0),
    "contexts for two": put("chunks.0.codec", {"id": "context-above"}),
    "matrix": put("encodings.2.matrix", None),
    "matrix twice": double,
}
NEWER: dict[str, Change] = {
    "format": put("format", "dlv/pack/2"),
    "key": put("generation", 4),
    "key of a chunk": put("chunks.0.nonce", "x"),
    "key of an encoding": put("encodings.0.axis", 1),
}


@pytest.mark.parametrize("name", sorted(DAMAGED))
def test_damage_is_found(small_pack: SmallPack, name: str) -> None:
    value = small_pack.footer.as_json()
    end = end_of(value)
    DAMAGED[name](value)
    with pytest.raises(Damaged, match="the footer"):
        read(value, end)


@pytest.mark.parametrize("name", sorted(NEWER))
def test_what_is_newer_is_said_to_be(small_pack: SmallPack, name: str) -> None:
    value = small_pack.footer.as_json()
    NEWER[name](value)
    with pytest.raises(NewerFormat):
        read(value, end_of(value))


@pytest.mark.parametrize(
    ("path", "new"),
    [
        ("encodings.2.layout", {"id": "spiral"}),
        ("encodings.2.dtype", "float4"),
        ("encodings.2.delta", {"id": "warp", "base": "x"}),
        ("chunks.6.kind", "hologram"),
        ("chunks.6.codec", {"id": "zip9"}),
    ],
)
def test_unknown_ids_and_kinds_leave_the_rest_readable(
    small_pack: SmallPack, path: str, new: Any
) -> None:
    value = small_pack.footer.as_json()
    put(path, new)(value)
    footer = parse(dumps(value), end_of(value), "the footer")
    assert len(footer.encodings) == 4
    hologram = path.endswith("kind")
    assert len(list(pieces_of(footer, "p" * 64))) == (10 if hologram else 11)


def test_not_canonical_is_damage(small_pack: SmallPack) -> None:
    value = small_pack.footer.as_json()
    for text in (json.dumps(value), "[]", "nonsense", '{"format":1,"format":1}'):
        with pytest.raises(Damaged):
            parse(text.encode(), end_of(value), "the footer")


def test_pieces_name_their_place_in_the_chunk(small_pack: SmallPack) -> None:
    rows = list(pieces_of(small_pack.footer, "p" * 64))
    assert [(row.plane, row.at, row.start, row.count) for row in rows[:4]] == [
        (0, 0, 0, 15),
        (0, 15, 0, 1),
        (1, 0, 0, 15),
        (1, 15, 0, 1),
    ]


def test_covered() -> None:
    assert covered([]) == 0
    assert covered([(4, 2), (0, 4)]) == 6
    assert covered([(0, 4), (3, 2)]) is None
    assert covered([(1, 4)]) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1 << 63) | st.text(max_size=3) | st.floats(0, 1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_value_anywhere_gives_a_typed_error_or_a_footer(data: st.DataObject) -> None:
    value: Any = copy.deepcopy(BASE)
    here = value
    while True:
        keys = sorted(here) if isinstance(here, dict) else list(range(len(here)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(here[key], (dict, list)) and here[key] and data.draw(st.booleans()):
            here = here[key]
            continue
        here[key] = data.draw(JSON)
        break
    with contextlib.suppress(Damaged, NewerFormat):
        parse(dumps(value), 8 + 9, "the footer")


BASE = {
    "format": "dlv/pack/1",
    "writer": "dlv 0.1.0",
    "encodings": [
        {
            "matrix": "0" * 64,
            "dtype": "uint8",
            "shape": [3, 3],
            "layout": {"id": "ieee"},
            "delta": None,
            "planes": 1,
        }
    ],
    "chunks": [
        {
            "kind": "plane",
            "plane": 0,
            "offset": 8,
            "length": 9,
            "raw": 9,
            "blake3": "1" * 64,
            "codec": {"id": "raw"},
            "members": [[0, 0, 9]],
        }
    ],
}


def test_that_base_is_good() -> None:
    assert parse(dumps(BASE), 17, "the footer").chunks[0].raw == 9


def with_side(small_pack: SmallPack, length: int, **changes: Any) -> tuple[dict[str, Any], int]:
    """The footer with a matrix of 200 int16 as a delta, and side data for it."""
    value = small_pack.footer.as_json()
    end = end_of(value)
    delta: dict[str, Any] = {"id": "sub", "base": "ab" * 32, "overlap": None, "predictor": []}
    value["encodings"][2]["delta"] = {**delta, **changes}
    side = copy.deepcopy(value["chunks"][-1])
    side.update(kind="side", plane=None, offset=end, length=5, raw=length)
    side.update(codec={"id": "raw"}, members=[[2, 0, length]])
    value["chunks"].append(side)
    return value, end + 5


def test_side_data_of_a_delta_has_one_of_two_lengths(small_pack: SmallPack) -> None:
    """Scales of contexts are there or not; the chunks that use them may be in another pack."""
    read(*with_side(small_pack, 2 * (1 + 200)))
    for length in (1, 2 * 200, 2 * 202):
        with pytest.raises(Damaged, match="by its shape"):
            read(*with_side(small_pack, length))
    read(*with_side(small_pack, 7, predictor=[{"id": "of a newer dlv"}]))
    with pytest.raises(Damaged):
        read(*with_side(small_pack, 402, predictor=[{"id": "drift", "data": "ab" * 32}]))
