"""The bounds record: written and read strictly, found by matrices, worth nothing once stale."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.canonical import dumps, hash_of
from dlv.errors import Damaged, NewerFormat
from dlv.network.suffix.record import suffix_from_json
from dlv.pas.footer import Encoding
from dlv.weights.bounds import (
    BoundMatrix,
    LevelNorms,
    NodeNorms,
    Record,
    decode,
    encoding_id,
    named,
)

A, B, C = "a" * 64, "b" * 64, "c" * 64

RECORD = Record(
    network=C,
    input=((1, 28, 28),),
    matrices=(BoundMatrix("conv.weight", A, B), BoundMatrix("fc.weight", B, C)),
    nodes=(
        NodeNorms(
            "conv", 2.1, 2.6, 3.0, 0.4, True, None, (LevelNorms(1, 0.01, 0.02, None, 0.0075),)
        ),
        NodeNorms(
            *("fc", 1.5, 1.5, 2.0, 0.25, True, (1.0, 0.5)),
            (LevelNorms(1, 0.5, 0.75, (0.5, 0.25)), LevelNorms(3, 0.125, 0.125, (0.0, 0.1))),
        ),
    ),
    schedule=(
        {"conv.weight": 1, "fc.weight": 4},
        {"conv.weight": 2, "fc.weight": 4},
        {"conv.weight": 4, "fc.weight": 4},
    ),
    helps={"f64": True, "strict": False},
    writer="dlv 0.1.0",
)


def test_round_trip() -> None:
    assert decode(RECORD.encode()) == RECORD
    assert decode(RECORD.encode()).hash == RECORD.hash
    assert decode(RECORD.encode()).hash == replace(decode(RECORD.encode())).hash
    infinite = NodeNorms("x", math.inf, math.inf, math.inf, math.inf, False, (math.inf,), ())
    made = replace(RECORD, nodes=(infinite,), suffix={"lmax": [1.0]})
    assert decode(made.encode()) == made


norms = st.floats(0, 1e300).map(abs)


@given(st.tuples(norms, norms, norms, norms), st.lists(st.tuples(norms, norms), max_size=7))
def test_every_norm_comes_back(
    four: tuple[float, float, float, float], levels: list[tuple[float, float]]
) -> None:
    found = tuple(LevelNorms(planes, *pair) for planes, pair in enumerate(levels, 1))
    made = replace(RECORD, nodes=(NodeNorms("n", *four, True, None, found),))
    assert decode(made.encode()) == made


def test_norms_of_a_level() -> None:
    found = RECORD.norms("fc", 1)
    assert found is not None
    assert (found.opn, found.fro, found.absmax, found.dn, found.dfro) == (1.5, 2.0, 0.25, 0.5, 0.75)
    assert found.rows is not None
    assert found.drows is not None
    np.testing.assert_array_equal(found.rows, [1.0, 0.5])
    np.testing.assert_array_equal(found.drows, [0.5, 0.25])
    whole = RECORD.norms("fc", None)
    assert whole is not None
    assert whole.drows is not None
    assert (whole.dn, whole.dfro, whole.dopn) == (0.0, 0.0, 0.0)
    assert not whole.drows.any()
    assert RECORD.norms("fc", 2) is None  # a level that bounds nothing
    assert RECORD.norms("other", 1) is None
    # The norm of inputs of another size is another one.
    for shapes, opn in (([(1, 28, 28)], 2.1), ([(1, 32, 32)], 2.6), (None, 2.1)):
        known = RECORD.norms("conv", 1, shapes)
        assert known is not None
        assert known.opn == opn
        assert known.rows is None
        assert known.dopn == (0.0075 if opn == 2.1 else math.inf)
    broken = replace(RECORD.nodes[0], finite=False)
    assert replace(RECORD, nodes=(broken,)).norms("conv", 1) is None


def value() -> Any:
    return json.loads(RECORD.encode())


def change(path: str, to: object) -> bytes:
    found = value()
    *way, last = path.split(".")
    inner = found
    for step in way:
        inner = inner[int(step)] if isinstance(inner, list) else inner[step]
    if isinstance(inner, list):
        inner[int(last)] = to
    elif to is ...:
        del inner[last]
    else:
        inner[last] = to
    return dumps(found)


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("nodes", ...),
        ("network", "abc"),
        ("input", [["B", 3]]),
        ("input", 3),
        ("input.0.0", -1),
        ("matrices.0.hash", "A" * 64),
        ("matrices.0.name", "fc.weight"),
        ("nodes.0.name", "fc"),
        ("nodes.0.opn", -1.0),
        ("nodes.0.opn", -0.0),
        ("nodes.0.opn", 1),
        ("nodes.0.opn", None),
        ("nodes.0.opn", "Infinity"),
        ("nodes.0.opn", "NaN"),
        ("nodes.0.finite", 1),
        ("nodes.0.levels.0.dn", -0.5),
        ("nodes.0.levels.0.dopn", "1"),
        ("nodes.0.levels.0.dn", None),
        ("nodes.0.levels.0.planes", 0),
        ("nodes.0.levels.0.planes", 64),
        ("nodes.0.levels.0.planes", True),
        ("nodes.1.levels.1.planes", 1),
        ("nodes.1.rows", [1.0]),
        ("nodes.1.rows", [1.0, "x"]),
        ("nodes.1.levels.0.drows", [1.0, 2.0, 3.0]),
        ("schedule", []),
        ("schedule", {}),
        ("schedule.0", {"conv.weight": 1}),
        ("schedule.0", {"conv.weight": 1, "fc.weight": 4, "x": 1}),
        ("schedule.0.conv.weight", 1.0),
        ("schedule.2", {"conv.weight": 2, "fc.weight": 4}),
        ("schedule.2", {"conv.weight": 4, "fc.weight": 3}),
        ("schedule.0", {"conv.weight": -1, "fc.weight": 4}),
        ("helps", {"f64": True}),
        ("helps.f64", 1),
        ("suffix", []),
        ("format", 1),
    ],
)
def test_disorder_is_damage(path: str, to: object) -> None:
    if path == "schedule.0.conv.weight":
        found = value()
        found["schedule"][0]["conv.weight"] = to
        data = dumps(found)
    else:
        data = change(path, to)
    with pytest.raises(Damaged):
        decode(data)


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("format", "dlv/bounds/3"),
        ("more", 1),
        ("nodes.0.more", 1),
        ("matrices.0.more", 1),
        ("helps", {"f64": True, "strict": True, "f128": True}),
    ],
)
def test_what_is_newer(path: str, to: object) -> None:
    with pytest.raises(NewerFormat):
        decode(change(path, to))


@given(st.data())
def test_cut_or_changed_bytes_are_damage(data: st.DataObject) -> None:
    made = bytearray(RECORD.encode())
    place = data.draw(st.integers(0, len(made) - 1))
    with pytest.raises(Damaged):
        decode(bytes(made[:place]))
    made[place] ^= data.draw(st.integers(1, 255))
    try:
        found = decode(bytes(made))
    except (Damaged, NewerFormat):
        return
    assert found.encode() == bytes(made)  # read as what it says, and as nothing else


# How matrices are stored


def encoding(matrix: str, base: str | None = None, layout: str = "ieee") -> Encoding:
    delta = None if base is None else {"id": "xor", "base": base, "overlap": None}
    return Encoding(matrix, "float32", (2,), {"id": layout}, delta, 4)


def test_the_id_of_an_encoding() -> None:
    known = {A: encoding(A), B: encoding(B, A)}
    own = hash_of({"layout": {"id": "ieee"}, "delta": None, "base": None})
    assert encoding_id(A, known.get) == own
    delta = {"id": "xor", "base": A, "overlap": None}
    assert encoding_id(B, known.get) == hash_of(
        {"layout": {"id": "ieee"}, "delta": delta, "base": own}
    )
    other = {**known, A: encoding(A, layout="fixed")}
    assert encoding_id(B, other.get) != encoding_id(B, known.get)


def test_a_record_is_stale() -> None:
    known = {A: encoding(A), B: encoding(B, A)}
    ids = {name: encoding_id(name, known.get) for name in known}
    made = replace(
        RECORD,
        matrices=(BoundMatrix("conv.weight", A, ids[A]), BoundMatrix("fc.weight", B, ids[B])),
    )
    hashes = {"conv.weight": A, "fc.weight": B, "other": C}
    assert made.stale(C, hashes, known.get) is None
    assert "another network" in (made.stale(A, hashes, known.get) or "")
    assert "has changed" in (made.stale(C, {**hashes, "fc.weight": A}, known.get) or "")
    assert "has changed" in (made.stale(C, {"fc.weight": B}, known.get) or "")
    moved = {**known, A: encoding(A, layout="fixed")}
    assert "`conv.weight` is stored in another way" in (made.stale(C, hashes, moved.get) or "")
    matrices, weights = named({"conv.weight": A, "fc.weight": B}, known.get)
    assert [matrix.hash for matrix in matrices] == ["a" * 8, "b" * 8]
    short = replace(made, matrices=matrices, weights=weights)
    assert decode(short.encode()) == short
    assert len(short.encode()) < len(made.encode())
    assert short.stale(C, hashes, known.get) is None
    assert "`fc.weight` has changed" in (
        short.stale(C, {**hashes, "fc.weight": A}, known.get) or ""
    )
    assert "has changed" in (short.stale(C, {"fc.weight": B}, known.get) or "")
    assert "stored in another way" in (short.stale(C, hashes, moved.get) or "")
    alike = {**hashes, "fc.weight": B[:-1] + "c"}  # begins as the true one
    assert "stored in another way" in (short.stale(C, alike, {**known, **_as(alike)}.get) or "")


def _as(hashes: dict[str, str]) -> dict[str, Encoding]:
    return {each: encoding(each) for each in hashes.values()}


def test_matrices_that_begin_alike() -> None:
    """Their record tells them apart, and a catalogue is filled with the right ones again."""
    first, second = A, A[:-1] + "b"
    known = {each: encoding(each) for each in (first, second, B, C)}
    held = {"conv.weight": first, "fc.weight": second}
    matrices, weights = named(held, known.get)
    assert [matrix.hash for matrix in matrices] == [first, second]  # all digits are needed
    held = {"conv.weight": second, "fc.weight": B}
    matrices, weights = named(held, known.get)
    record = replace(RECORD, matrices=matrices, weights=weights)
    assert [matrix.hash for matrix in record.matrices] == [A[:8], B[:8]]
    assert record.hashes(known, known.get) == held
    assert record.hashes([C, first, second], known.get)["fc.weight"] == B[:8]  # it is gone
    assert record.hashes(held.values(), known.get) == held


# Golden bytes

GOLDEN = Path(__file__).parents[1] / "golden" / "bounds"


@pytest.mark.parametrize("version", ["1", "2"])
def test_golden(version: str) -> None:
    data = (GOLDEN / version / "record.json").read_bytes()
    found = decode(data)
    assert found.encode() == data
    assert found.hash == (GOLDEN / version / "record.id").read_text().strip()
    if version == "2":
        assert found.matrices[2] == BoundMatrix("größe", "e" * 10, None)
        assert found.weights == "9" * 64
        assert found.suffix is not None
        suffix = suffix_from_json(found.suffix)
        assert suffix.pairs[1, 2] == 0.75
        assert suffix.nodes["conv"].a is not None
        assert suffix.nodes["conv"].a.tolist() == [0, 1, -32, 31]
        assert suffix.nodes["conv"].usual.tolist() == [[0, 1 / 32, -1, 31 / 32]]
        assert [level.dn for level in suffix.nodes["conv"].levels] == [0.5, 0.25]
        assert suffix.nodes["conv"].levels[0].correction is not None
        assert suffix.nodes["add"].a is None
        assert suffix.p["relu"].tolist() == [-1, 0]
        assert suffix.theta == {"relu": 128}
    else:
        assert found.matrices[2] == BoundMatrix("größe", "e" * 64, "f" * 64)
        assert found.weights is None
    assert found.input == ((1, 28, 28), (7,))
    assert found.nodes[0].levels == (
        LevelNorms(1, 0.01, 0.02, None, 0.0075),
        LevelNorms(3, 1e-07, 2e-07, None, None),
    )
    assert found.nodes[1].rows == (1.0, 0.5)
    assert found.nodes[2].opn == math.inf
    assert math.isnan(found.nodes[2].fro)
    assert not found.finite
    assert [level["conv.weight"] for level in found.schedule] == [1, 3, 4]
    assert found.helps == {"f64": True, "strict": False}
