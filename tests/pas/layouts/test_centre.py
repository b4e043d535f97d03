"""Centres alone: bit for bit those of `level`."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.canonical import matrix_hash
from dlv.pas.encode import encode_delta, encode_materialised
from dlv.pas.layouts.fixed import Fixed
from dlv.pas.layouts.registry import default_layout
from dlv.pas.layouts.segments import SEGMENT, Layout
from dlv.pas.level import Level, centre, level
from tests.conformance.delta import MemoryStore

SHAPES = ((5, 7), (3, 2, 2, 4), (9,), (), (1, 6), (6, 1), (0, 3))


def stored(array: Any, layout: Layout, base: Any = None) -> tuple[MemoryStore, str]:
    store = MemoryStore()
    raw, dtype, shape = array.tobytes(), array.dtype.name, array.shape
    name = matrix_hash(dtype, shape, raw)

    def put(matrix: str) -> Any:
        return lambda part: store.put(matrix, part)

    if base is None:
        store.encodings[name] = encode_materialised(
            raw, dtype, shape, name, put(name), layout=layout
        )
        return store, name
    under = matrix_hash(dtype, shape, base.tobytes())
    store.encodings[under] = encode_materialised(
        base.tobytes(), dtype, shape, under, put(under), layout=layout
    )
    store.encodings[name] = encode_delta(
        "xor", raw, base.tobytes(), dtype, shape, name, under, put(name), layout=layout
    )
    return store, name


def numbers(seed: int, shape: tuple[int, ...], dtype: str) -> Any:
    """Rows of all sizes, some of zeros; zeros of both signs."""
    rng = np.random.default_rng(seed)
    made = rng.normal(size=shape) * 10.0 ** rng.integers(-30, 30, shape[:1] + (1,) * len(shape[1:]))
    made = np.where(rng.random(shape) < 0.2, 0.0, made) * rng.choice([1, 1, 1e-44, 0.0])
    return np.copysign(made, rng.normal(size=shape)).astype(dtype)


@settings(max_examples=120, deadline=None)
@given(
    st.integers(0, 1 << 32),
    st.sampled_from(SHAPES),
    st.sampled_from(["float32", "float64", "float16"]),
    st.sampled_from(["first", "last"]),
    st.booleans(),
    st.integers(1, 5),
)
def test_it_is_the_centre_of_the_level(
    seed: int, shape: tuple[int, ...], dtype: str, rows: str, zero_centre: bool, k: int
) -> None:
    with np.errstate(over="ignore"):
        array = numbers(seed, shape, dtype)
    array = np.where(np.isfinite(array), array, 0).astype(dtype)
    layout = Fixed.of([array.tobytes()], dtype, shape, rows=rows, zero_centre=zero_centre)
    store, name = stored(array, layout)
    found = centre(name, k, store.encoding, store)
    expected = level(name, k, store.encoding, store)
    assert isinstance(expected, Level)
    if found is None:
        assert expected.exact or not array.size
        return
    assert not expected.exact
    assert found.shape == expected.centre.shape
    assert (found == expected.centre).all()


def test_several_segments() -> None:
    array = np.random.default_rng(0).normal(size=(3, 1 << 19)).astype("f4")
    store, name = stored(array, Fixed.of([array.tobytes()], "float32", array.shape))
    found = centre(name, 2, store.encoding, store)
    expected = level(name, 2, store.encoding, store)
    assert isinstance(expected, Level)
    assert found is not None
    assert (found == expected.centre).all()
    assert array.size > SEGMENT


def test_what_only_the_level_tells() -> None:
    array = np.random.default_rng(0).normal(size=(4, 6)).astype("f4")
    store, name = stored(array, default_layout())
    assert centre(name, 1, store.encoding, store) is None
    layout = Fixed.of([array.tobytes(), (array * 2).tobytes()], "float32", array.shape)
    store, name = stored(array, layout, array * 2)
    assert centre(name, 1, store.encoding, store) is None
    store, name = stored(array, layout)
    assert centre(name, 4, store.encoding, store) is None
    assert centre(name, 3, store.encoding, store) is not None


def test_it_reads_no_more_than_the_level() -> None:
    array = np.random.default_rng(0).normal(size=(4, 6)).astype("f4")
    store, name = stored(array, Fixed.of([array.tobytes()], "float32", array.shape))
    centre(name, 2, store.encoding, store)
    assert {(kind, plane) for _, kind, plane, _ in store.reads} == {
        ("side", None), ("plane", 0), ("plane", 1),
    }  # fmt: skip
