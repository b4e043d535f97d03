"""Numbers worked out while a graph is read, against the reference implementation of ONNX."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from dlv.adapters.onnx.values import Formula, Known, Length, Literal, Sizes, fold, lengths
from tests.onnx_models import Array, model, op

SMALL = st.integers(-5, 9)


def literal(values: Any, dtype: str = "int64") -> Literal:
    data = np.asarray(values, dtype)
    return Literal(dtype, data.shape, tuple(data.ravel().tolist()))


def reference(kind: str, inputs: list[Array], **attrs: Any) -> Array:
    names = [f"i{place}" for place in range(len(inputs))]
    specs: dict[str, Any] = {
        name: (data.dtype.name, data.shape) for name, data in zip(names, inputs, strict=True)
    }
    made = model([op(kind, " ".join(names), **attrs)], specs, opset=17)
    found: Array = ReferenceEvaluator(made).run(None, dict(zip(names, inputs, strict=True)))[0]
    return found


def check(kind: str, inputs: list[Array], **attrs: Any) -> None:
    """What is worked out is right; where nothing is, nothing is claimed."""
    given_ = [literal(data, data.dtype.name) for data in inputs]
    found = fold(kind, given_, {"kind": kind, **attrs})
    if found is None:
        return
    assert isinstance(found, Literal)
    with np.errstate(all="ignore"):
        wanted = reference(kind, inputs, **attrs)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype.name
    np.testing.assert_array_equal(
        np.asarray(found.values, wanted.dtype).reshape(wanted.shape), wanted
    )


ARRAYS = st.one_of(SMALL.map(np.array), st.lists(SMALL, min_size=1, max_size=4).map(np.array))
PAIRS = st.tuples(ARRAYS, ARRAYS).filter(
    lambda pair: pair[0].shape == pair[1].shape or 1 in (pair[0].size, pair[1].size)
)
BINARY = (
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Equal",
    "Less",
    "Greater",
    "LessOrEqual",
    "Min",
    "Max",
    "Mod",
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(BINARY), PAIRS, st.sampled_from(["int64", "float32"]))
def test_of_two(kind: str, pair: tuple[Array, Array], dtype: str) -> None:
    assume(not (kind in ("Div", "Mod") and (dtype == "float32" or not pair[1].all())))
    # Division of whole numbers is towards zero in ONNX, downwards in its reference.
    assume(kind != "Div" or ((pair[0] >= 0).all() and (pair[1] > 0).all()))
    check(kind, [each.astype(dtype) for each in pair])


def test_division_is_towards_zero() -> None:
    assert fold("Div", [literal([-7, 7]), literal([2, -2])], {}) == literal([-3, -3])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.0078125, 100, width=32), min_size=1, max_size=3))
def test_fractions_are_rounded(values: list[float]) -> None:
    data = np.array(values, np.float32)
    for kind in ("Sqrt", "Reciprocal", "Neg", "Floor", "Ceil"):
        check(kind, [data])
    check("Div", [data, data[::-1].copy()])
    check("Pow", [data, np.array(2, np.float32)])


@settings(max_examples=40, deadline=None)
@given(st.lists(SMALL, min_size=1, max_size=6), st.data())
def test_cutting(values: list[int], data: st.DataObject) -> None:
    array = np.array(values)
    index = data.draw(st.integers(-len(values), len(values) - 1))
    check("Gather", [array, np.array(index)], axis=0)
    check("Gather", [array, np.array([index, 0])], axis=0)
    ends = data.draw(st.tuples(st.integers(-8, 8), st.integers(-8, 8), st.sampled_from([1, 2, -1])))
    start, end, step = (np.array([number]) for number in ends)
    check("Slice", [array, start, end, np.array([0]), step])
    check("Slice", [array, start, end])
    check("Concat", [array, array[:1]], axis=0)
    check("Unsqueeze", [array[0], np.array([0])])
    check("Squeeze", [array[:1], np.array([0])])
    check("Reshape", [array[:1], np.array([1])])
    check("ReduceProd", [array], keepdims=0)
    check("ReduceProd", [array])
    check("Where", [array > 2, array, -array])


@pytest.mark.parametrize("dtype", ["int32", "float32", "bool", "float64", "uint8"])
def test_casts(dtype: str) -> None:
    found = fold("Cast", [literal([0, 3, 255])], {"kind": "Cast", "dtype": dtype})
    assert found == literal([0, 3, 255], dtype)


def test_what_does_not_fit_is_not_worked_out() -> None:
    big = literal([2**62])
    for kind, inputs in {
        "Mul": [big, literal([4])],
        "Add": [big, big],
        "Pow": [big, big],
        "Div": [big, literal([0])],
        "Mod": [big, literal([0])],
        "Sqrt": [literal([-1.0], "float32")],
        "Gather": [literal([1, 2]), literal(7)],
        "Concat": [literal(1), literal(2)],
        "Range": [literal(0), literal(2**62), literal(1)],
        "NotThere": [big],
    }.items():
        assert fold(kind, inputs, {"kind": kind, "axis": 0}) is None
    assert fold("Cast", [literal([300])], {"kind": "Cast", "dtype": "uint8"}) is None
    assert fold("Cast", [big], {"kind": "Cast", "dtype": "raw:INT4"}) is None
    filler = {"kind": "ConstantOfShape", "filler": ("int64", 1)}
    assert fold("ConstantOfShape", [literal([1 << 20, 1 << 20])], filler) is None
    assert fold("ConstantOfShape", [literal([2])], filler) == literal([1, 1])
    assert fold("Add", [big, None], {}) is None
    assert fold("Add", [], {}) is None


N, M = Length("x", 0, "B"), Length("x", 1, None)


def sizes(*entries: Any) -> Known:
    return lengths(entries)


def test_lengths() -> None:
    both = sizes(N, 4, M)
    assert isinstance(both, Sizes)
    assert fold("Gather", [both, literal(1)], {"kind": "Gather"}) == literal(4)
    one = fold("Gather", [both, literal(0)], {"kind": "Gather"})
    assert one == Sizes((N,), scalar=True)
    assert fold("Unsqueeze", [one, literal([0])], {"kind": "Unsqueeze"}) == Sizes((N,))
    joined = fold("Concat", [sizes(N), literal([-1])], {"kind": "Concat", "axis": 0})
    assert joined == Sizes((N, -1))
    assert fold("Mul", [one, literal(1)], {}) == one
    product = fold("Mul", [one, literal(6)], {})
    assert isinstance(product, Sizes)
    [formula] = product.entries
    assert isinstance(formula, Formula)
    assert (formula.operator, formula.left, formula.right) == ("mul", N, 6)
    assert fold("Equal", [both, literal([-1])], {}) == literal([False] * 3, "bool")
    assert fold("Equal", [both, literal([4])], {}) is None
    mask = literal([True, False, False], "bool")
    assert fold("Where", [mask, literal([1, 1, 1]), both], {}) == Sizes((1, 4, M))
    assert fold("Cast", [one], {"kind": "Cast", "dtype": "float32"}) is None
    assert fold("ReduceProd", [both], {"kind": "ReduceProd"}) is not None


def test_formulas_are_not_nested_without_end() -> None:
    item: Known | None = Sizes((N,), scalar=True)
    count = 0
    while item is not None:
        item = fold("Add", [item, literal(1)], {})
        count += 1
        assert count < 1000
    assert count > 10
    assert math.isfinite(count)
