from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.errors import NotFound
from dlv.objects.manifest import Manifest, Snapshot, TensorEntry
from dlv.weights.snapshots import Matrix, find, matrices, pair


def _matrix(name: str, digest: str = "") -> Matrix:
    return Matrix(name, "float32", (2, 3), "weight", None, digest or name)


def _names(pairs: list[tuple[Matrix | None, Matrix | None]]) -> list[tuple[str | None, str | None]]:
    return [(a.name if a else None, b.name if b else None) for a, b in pairs]


def test_matrices_of_a_snapshot() -> None:
    entries = (TensorEntry("a", "float16", (3,)), TensorEntry("b", "raw:x", ()))
    one, two = "1" * 64, "2" * 64
    manifest = Manifest(
        *("m", "", "", ""),
        tensors=entries,
        snapshots=(Snapshot(1, (one, None)), Snapshot(2, (one, two))),
        own=1,
    )
    assert [matrix.name for matrix in matrices(manifest)] == ["a", "b"]
    assert [matrix.hash for matrix in matrices(manifest, 0)] == [one]
    assert [matrix.nbytes for matrix in matrices(manifest)] == [6, None]
    assert matrices(Manifest("m", "", "", "")) == []


def test_by_name_then_by_content() -> None:
    old = [_matrix("a"), _matrix("b", "same"), _matrix("c"), _matrix("d", "twin")]
    new = [_matrix("a", "x"), _matrix("bb", "same"), _matrix("e"), _matrix("f", "twin")]
    new.append(_matrix("g", "twin"))
    assert _names(pair(old, new)) == [
        ("a", "a"),
        ("b", "bb"),
        ("c", None),
        ("d", None),
        (None, "e"),
        (None, "f"),
        (None, "g"),
    ]


def test_tied_matrices_under_a_prefix() -> None:
    old = [_matrix(name, "tied") for name in ("embed.weight", "head.weight", "w")]
    new = [_matrix(name, "tied") for name in ("m.head.weight", "m.embed.weight", "xw")]
    expected = [("embed.weight", "m.embed.weight"), ("head.weight", "m.head.weight")]
    assert _names(pair(old, new)) == [*expected, ("w", None), (None, "xw")]
    assert _names(pair(new, old))[:2] == [(b, a) for a, b in reversed(expected)]
    # Two that could be meant are not guessed at.
    twice = [_matrix("m.w", "tied"), _matrix("n.w", "tied")]
    assert _names(pair([_matrix("w", "tied")], twice)) == [
        ("w", None),
        (None, "m.w"),
        (None, "n.w"),
    ]


def test_slots_come_first() -> None:
    """A layer put in before shifts the names: 2.weight is now 3.weight."""
    old = [_matrix("0.weight", "a"), _matrix("2.weight", "b")]
    new = [_matrix("0.weight", "a"), _matrix("2.weight", "c"), _matrix("3.weight", "d")]
    slots = [("0.weight", "0.weight"), ("2.weight", "3.weight")]
    assert _names(pair(old, new, slots)) == [
        ("0.weight", "0.weight"),
        ("2.weight", "3.weight"),
        (None, "2.weight"),
    ]


def test_names_of_layers_that_are_not_the_same() -> None:
    old, new = [_matrix("2.weight", "b")], [_matrix("2.weight", "c")]
    assert _names(pair(old, new, apart={"2.weight"})) == [("2.weight", None), (None, "2.weight")]


names = st.lists(st.sampled_from("abcdef"), unique=True)


@given(names, names, st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef"))))
def test_each_matrix_stands_once(
    old: list[str], new: list[str], slots: list[tuple[str, str]]
) -> None:
    found = _names(pair([*map(_matrix, old)], [*map(_matrix, new)], slots))
    assert [a for a, _ in found if a] == old
    assert sorted(b for _, b in found if b) == sorted(new)
    back = _names(pair([*map(_matrix, new)], [*map(_matrix, old)], [(b, a) for a, b in slots]))
    assert {(a, b) for a, b in found} == {(a, b) for b, a in back}


def test_find_says_what_was_meant() -> None:
    held = [_matrix("conv1.weight"), _matrix("conv1.bias")]
    assert find(held, "conv1.bias", "m@1", {}) is held[1]
    with pytest.raises(NotFound) as caught:
        find(held, "conv1.weigth", "m@1", {})
    assert caught.value.did_you_mean[0] == "conv1.weight"
    with pytest.raises(NotFound, match="is a layer") as caught:
        find(held, "conv1", "m@1", {"conv1": ["conv1.weight"]})
    assert caught.value.did_you_mean == ["conv1.weight"]
    with pytest.raises(NotFound) as caught:
        find([], "x", "m@1", {})
    assert caught.value.why == "it has no weights"
