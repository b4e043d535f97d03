from __future__ import annotations

import math
from typing import Any

import pytest

from dlv.network.fields import FieldError, Kind, dtype, label, labels, normal, shape, shown, whole


@pytest.mark.parametrize(
    ("kind", "value", "axes", "wanted"),
    [
        (Kind.INT, 3, None, 3),
        (Kind.FLOAT, 1, None, 1.0),
        (Kind.FLOAT, "-Infinity", None, -math.inf),
        (Kind.FLOAT, -0.0, None, -0.0),
        (Kind.BOOL, True, None, True),
        (Kind.TEXT, "a", None, "a"),
        (Kind.DTYPE, "raw:Q4_K", None, "raw:Q4_K"),
        (Kind.INTS, [1, 2], None, (1, 2)),
        (Kind.AXES, -1, None, (-1,)),
        (Kind.AXES, [2, 3], None, (2, 3)),
        (Kind.SHAPE, ["B", -1, None, 4], None, ("B", -1, None, 4)),
        (Kind.PER_AXIS, 3, 2, (3, 3)),
        (Kind.PER_AXIS, [3, 5], None, (3, 5)),
        (Kind.PER_AXIS_OR_NULL, [None, 5], 2, (None, 5)),
        (Kind.PAIRS, 1, 3, ((1, 1),) * 3),
        (Kind.PAIRS, [1, [0, 2]], 2, ((1, 1), (0, 2))),
    ],
)
def test_normal_forms(kind: Kind, value: Any, axes: int | None, wanted: Any) -> None:
    found = normal(kind, "a", value, axes)
    assert found == wanted
    assert type(found) is type(wanted)
    # What is normal stays as it is.
    assert normal(kind, "a", found, axes) == wanted


@pytest.mark.parametrize(
    ("kind", "value", "axes"),
    [
        (Kind.INT, True, None),
        (Kind.INT, 1.0, None),
        (Kind.INT, 2**63, None),
        (Kind.INT, None, None),
        (Kind.FLOAT, "1.5", None),
        (Kind.FLOAT, False, None),
        (Kind.BOOL, 1, None),
        (Kind.TEXT, 1, None),
        (Kind.DTYPE, "float31", None),
        (Kind.DTYPE, 32, None),
        (Kind.INTS, 1, None),
        (Kind.INTS, [1.5], None),
        (Kind.AXES, "1", None),
        (Kind.SHAPE, [""], None),
        (Kind.SHAPE, [-2], None),
        (Kind.SHAPE, [1] * 65, None),
        (Kind.PER_AXIS, 3, None),
        (Kind.PER_AXIS, [], None),
        (Kind.PER_AXIS, [1, None], None),
        (Kind.PER_AXIS, [1, 2, 3], 2),
        (Kind.PER_AXIS, "3", 2),
        (Kind.PAIRS, [[1]], None),
        (Kind.PAIRS, [[1, 2, 3]], None),
        (Kind.PAIRS, [[1, "2"]], None),
    ],
)
def test_values_of_another_kind(kind: Kind, value: Any, axes: int | None) -> None:
    with pytest.raises(FieldError) as caught:
        normal(kind, "stride", value, axes)
    assert "stride" in caught.value.message


def test_names() -> None:
    assert label("features.0", "name") == "features.0"
    for bad in ("", 1, None, "\ud800"):
        with pytest.raises(FieldError):
            label(bad, "name")
    assert labels({"a": "b"}, "params") == {"a": "b"}
    wrong: list[Any] = [[], {"a": 1}, {"": "b"}]
    for each in wrong:
        with pytest.raises(FieldError):
            labels(each, "params")


def test_shapes_and_dtypes() -> None:
    assert shape(["B", None, 0], "shape") == ("B", None, 0)
    with pytest.raises(FieldError):
        shape([-1], "shape")
    with pytest.raises(FieldError) as caught:
        dtype("flaot32", "dtype")
    assert "float32" in caught.value.did_you_mean


def test_whole_numbers_and_what_is_shown() -> None:
    assert whole(-(2**63))
    assert not whole(True)
    assert not whole(2**63)
    assert len(shown("x" * 10_000)) < 70
    assert len(shown([[0] * 1000] * 1000)) < 70
