"""Single operations by numpy, held against torch over random shapes, numbers and attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlv.errors import UsageError
from dlv.network.graph import Node
from dlv.network.ops.op import NotRunnable
from dlv.network.ops.shape import SIZE_KINDS
from dlv.network.vocabulary import OPS, slots
from tests.network.ops.oracle import by_numpy, by_torch, node_of

Array = NDArray[Any]
SEEDS = st.integers(0, 2**32 - 1)
DTYPES = {"float64": 1e-13, "float32": 3e-6}


def numbers(seed: int, *shape: int, scale: float = 1.5) -> Array:
    return np.random.default_rng(seed).normal(size=shape) * scale


def agree(
    node: Node, inputs: list[Array], params: dict[str, Array] | None = None, **sizes: int
) -> None:
    """In both precisions, with the numbers in memory in any order."""
    params = params or {}
    for dtype, most in DTYPES.items():
        given_ = [x.astype(dtype) if x.dtype.kind == "f" else x for x in inputs]
        held = {slot: x.astype(dtype) for slot, x in params.items()}
        wanted = by_torch(node, given_, held, **sizes)
        for order in ("C", "F"):
            turned = [np.array(x, order=order) if x.ndim else x for x in given_]
            found = by_numpy(node, turned, held, **sizes)
            assert len(found) == len(wanted)
            for ours, theirs in zip(found, wanted, strict=True):
                theirs = np.asarray(theirs)
                assert ours.shape == theirs.shape
                if ours.dtype.kind == "f":
                    assert ours.dtype == theirs.dtype
                size = np.abs(theirs[np.isfinite(theirs)]).max(initial=1)
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=most * size)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_activations(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    node = data.draw(
        st.sampled_from(
            [
                node_of("RELU"),
                node_of("RELU", slope=0.2),
                node_of("RELU", slope=-0.3),
                *(node_of("ACT", name) for name in ("GELU", "SILU", "SIGMOID", "TANH", "RELU6")),
                node_of("ACT", "GELU", approximate="tanh"),
                node_of("DROPOUT"),
            ]
        )
    )
    scale = data.draw(st.sampled_from([1e-5, 1.0, 50.0]))
    agree(node, [numbers(data.draw(SEEDS), *shape, scale=scale)])


def test_activations_of_what_is_not_finite() -> None:
    x = np.array([[np.inf, -np.inf, np.nan, 1e300, -1e300, 0.0]])
    with np.errstate(all="ignore"):
        for node in (node_of("RELU"), node_of("ACT", "SIGMOID"), node_of("ACT", "TANH")):
            np.testing.assert_array_equal(by_numpy(node, [x])[0], by_torch(node, [x])[0].numpy())


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_softmax(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    node = node_of("SOFTMAX", axis=axis, log=data.draw(st.booleans()))
    agree(node, [numbers(data.draw(SEEDS), *shape, scale=data.draw(st.sampled_from([1.0, 300.0])))])


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_norms(data: st.DataObject) -> None:
    variant = data.draw(st.sampled_from(["BATCH", "LAYER", "RMS", "GROUP", "INSTANCE", "LRN"]))
    rank = data.draw(st.integers(3 if variant == "INSTANCE" else 2, 4))
    shape = [data.draw(st.integers(2, 5)) for _ in range(rank)]
    attrs: dict[str, Any] = {}
    if variant in ("LAYER", "RMS"):
        attrs["axis"] = axis = data.draw(st.integers(-rank + 1, -1))
        wide: tuple[int, ...] = tuple(shape[axis:])
    else:
        attrs["axis"] = axis = data.draw(st.sampled_from([1, -1]))
        if variant == "GROUP":
            attrs["groups"] = data.draw(st.integers(1, 3))
            shape[axis] = attrs["groups"] * data.draw(st.integers(1, 2)) + 0
        wide = (shape[axis],)
    if variant != "LRN":
        # Over a spread of nearly nothing only the rounding of the mean would be seen.
        attrs["eps"] = 0.5
    else:
        attrs |= {"size": data.draw(st.integers(1, 6)), "alpha": 0.3, "beta": 0.6, "k": 1.5}
    named: list[str] = []
    if variant != "LRN" and data.draw(st.booleans()):
        named.append("weight")
        if variant != "RMS":
            named.append("bias")
    if variant in ("BATCH", "INSTANCE") and data.draw(st.booleans()):
        named += ["running_mean", "running_var"]
    node = node_of("NORM", variant, slots=named, **attrs)
    seed = data.draw(SEEDS)
    params = {slot: numbers(seed + place, *wide) for place, slot in enumerate(named)}
    if "running_var" in params:
        params["running_var"] = np.abs(params["running_var"]) + 0.5
    x = numbers(seed, *shape) + np.arange(np.prod(shape)).reshape(shape) % 7
    agree(node, [x], params)


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_sums_and_products(data: st.DataObject) -> None:
    op = data.draw(st.sampled_from(["ADD", "MUL"]))
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    seed = data.draw(SEEDS)

    def side(place: int) -> Array:
        drop = data.draw(st.integers(0, len(shape)))
        kept = [1 if data.draw(st.booleans()) else length for length in shape[drop:]]
        if data.draw(st.integers(0, 4)) == 0:
            return np.random.default_rng(seed).integers(-5, 5, kept or [1])
        return numbers(seed + place, *(kept or [1]))

    first = numbers(seed, *shape)
    how = data.draw(st.sampled_from(["const", "whole", "value", "two", "three"]))
    if how in ("const", "whole"):
        agree(node_of(op, const=0.7 if how == "const" else 3), [first])
    elif how == "value":
        value = numbers(seed + 1, *shape[1:])
        node = node_of(op, slots=("value",), shape=list(value.shape))
        agree(node, [first], {"value": value})
    else:
        count = 1 if how == "two" else 2
        sides = [first, *(side(place) for place in range(1, count + 1))]
        agree(node_of(op, inputs=len(sides)), sides)


def test_whole_numbers_stay_whole() -> None:
    x = np.array([[1, 2]])
    assert by_numpy(node_of("ADD", const=2), [x])[0].dtype.kind == "i"
    assert by_numpy(node_of("MUL", const=0.5), [x])[0].dtype.kind == "f"


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_joined(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    parts = []
    for place in range(data.draw(st.integers(1, 3))):
        own = list(shape)
        own[axis] = data.draw(st.integers(1, 4))
        parts.append(numbers(place, *own))
    agree(node_of("CONCAT", inputs=len(parts), axis=axis), parts)


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_attention(data: st.DataObject) -> None:
    draw = data.draw
    batch, asked, kept, width, wide = (draw(st.integers(1, 4)) for _ in range(5))
    seed, causal = draw(SEEDS), draw(st.booleans())
    scale = draw(st.sampled_from([None, 0.3, 2.0]))
    form = draw(st.sampled_from(["split", "heads", "shared", "three", "two"]))
    heads = draw(st.integers(1, 3))
    if form == "split":
        shapes: list[tuple[int, ...]] = [
            (batch, asked, heads * width),
            (batch, kept, heads * width),
        ]
        shapes.append((batch, kept, heads * wide))
    else:
        first = {
            "heads": (batch, heads),
            "shared": (batch, heads * 2),
            "three": (batch,),
            "two": (),
        }
        second = {**first, "shared": (batch, heads)}
        shapes = [(*first[form], asked, width)]
        shapes += [(*second[form], kept, width), (*second[form], kept, wide)]
    inputs = [numbers(seed + place, *shape) for place, shape in enumerate(shapes)]
    masked = draw(st.sampled_from(["none", "flags", "numbers"]))
    if masked != "none":
        shape = {"two": (asked, kept), "three": (batch, asked, kept), "split": (batch, asked, kept)}
        own = shape.get(form, (batch, 1, asked, kept))
        flags = np.random.default_rng(seed).uniform(size=own) < 0.7
        flags[..., 0] = True
        inputs.append(flags if masked == "flags" else np.where(flags, 0, -1e4) + numbers(3, *own))
    attrs: dict[str, Any] = {"heads": heads} if form == "split" else {}
    node = node_of("ATTENTION", inputs=len(inputs), causal=causal, scale=scale, **attrs)
    agree(node, inputs)


def test_a_query_that_may_look_at_nothing() -> None:
    inputs = [numbers(place, 1, 2, 3, 4) for place in range(3)]
    flags = np.ones((1, 1, 3, 3), bool)
    flags[0, 0, 1] = False
    agree(node_of("ATTENTION", inputs=4), [*inputs, flags])


def test_attention_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of many rows are not all held at once; the result is the same."""
    inputs = [numbers(place, 7, 2, 5, 4) for place in range(3)]
    flags = np.random.default_rng(0).uniform(size=(7, 1, 5, 5)) < 0.7
    flags[..., 0] = True
    node = node_of("ATTENTION", inputs=4)
    wanted = by_numpy(node, [*inputs, flags])[0]
    monkeypatch.setattr("dlv.network.ops.attending._MOST", 120)
    np.testing.assert_array_equal(by_numpy(node, [*inputs, flags])[0], wanted)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_recurrence(data: st.DataObject) -> None:
    draw = data.draw
    variant = draw(st.sampled_from(["LSTM", "GRU"]))
    length, batch, width, hidden, layers = (draw(st.integers(1, 3)) for _ in range(5))
    attrs = {
        "hidden": hidden,
        "layers": layers,
        "bidirectional": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
        "bias": draw(st.booleans()),
    }
    names = [slot.name for slot in slots("RNN", variant, attrs)]
    names = [name for name in names if attrs["bias"] or not name.startswith("bias")]
    ways = 2 if attrs["bidirectional"] else 1
    gates = (4 if variant == "LSTM" else 3) * hidden
    params = {}
    for place, name in enumerate(names):
        below = width if "_l0" in name else ways * hidden
        shape = [gates] if name.startswith("bias") else [gates, hidden if "_hh" in name else below]
        params[name] = numbers(place, *shape, scale=0.7)
    seed = draw(SEEDS)
    x = numbers(seed, *((batch, length) if attrs["batch_first"] else (length, batch)), width)
    states = draw(st.integers(0, 2 if variant == "LSTM" else 1))
    if states == 1 and variant == "LSTM":
        states = 2
    given_ = [numbers(seed + 1 + n, layers * ways, batch, hidden) for n in range(states)]
    node = node_of("RNN", variant, inputs=1 + states, slots=names, **attrs)
    agree(node, [x, *given_], params)


KINDS = [each for each in OPS["RESHAPE"].kinds if each not in SIZE_KINDS]


def move(data: st.DataObject, shape: list[int]) -> tuple[Node, list[Array]]:
    """A RESHAPE node that fits the shape, and lengths that come in beside it."""
    draw, rank = data.draw, len(shape)
    axes = st.integers(-rank, rank - 1)
    kind = draw(st.sampled_from(KINDS))
    attrs: dict[str, Any] = {}
    extra: list[Array] = []
    if kind == "flatten":
        start = draw(st.integers(0, rank - 1))
        attrs = {"start": start, "end": draw(st.integers(start, rank - 1))}
    elif kind in ("view", "reshape"):
        total = int(np.prod(shape))
        size: list[Any] = draw(
            st.sampled_from([[total], [1, total], [-1], [*shape[:-1], 1, shape[-1]], shape[::-1]])
        )
        size = list(size)
        opened = draw(st.sampled_from(["", "port", "symbol", "inferred"]))
        place = draw(st.integers(0, len(size) - 1))
        if opened == "port" and size[place] != -1:
            extra = [np.array(size[place])]
            size[place] = None
        elif opened == "symbol" and size[0] == shape[0]:
            size[0] = "B"
        elif opened == "inferred" and -1 not in size:
            size[place] = None
        attrs = {"size": size}
    elif kind == "transpose":
        attrs = {"axes": [draw(axes), draw(axes)]}
    elif kind == "permute":
        attrs = {"axes": draw(st.permutations(range(rank)))}
    elif kind == "squeeze":
        attrs = {"axis": draw(st.sampled_from([None, [0], [-1], [0, rank - 1] if rank > 1 else 0]))}
    elif kind == "unsqueeze":
        attrs = {"axis": draw(st.integers(-rank - 1, rank))}
    elif kind == "select":
        axis = draw(axes)
        attrs = {"axis": axis, "index": draw(st.integers(-shape[axis], shape[axis] - 1))}
    elif kind == "slice":
        numbers_ = st.one_of(st.none(), st.integers(-6, 6), st.just(2**63 - 1))
        attrs = {"axis": draw(axes), "start": draw(numbers_), "end": draw(numbers_)}
        attrs["step"] = draw(st.integers(1, 3))
    elif kind == "expand":
        wanted = [
            -1 if draw(st.booleans()) else (draw(st.integers(1, 3)) if n == 1 else n) for n in shape
        ]
        attrs = {"size": [*draw(st.lists(st.integers(1, 3), max_size=2)), *wanted]}
    elif kind == "split":
        axis = draw(axes)
        first = draw(st.integers(0, shape[axis]))
        attrs = {"axis": axis, "sizes": [first, shape[axis] - first]}
    elif kind == "getitem":
        attrs = {"index": 0}
    return node_of("RESHAPE", inputs=1 + len(extra), kind=kind, **attrs), extra


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_plumbing(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    node, extra = move(data, shape)
    x = np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape)
    if node.attrs["kind"] == "getitem":
        np.testing.assert_array_equal(by_numpy(node, [x])[0], x)
        return
    agree(node, [x, *extra], B=shape[0])


def test_numbers_about_shapes() -> None:
    x = np.zeros((2, 3, 4))
    assert by_numpy(node_of("RESHAPE", kind="size", axis=-1), [x])[0] == 4
    filled = node_of("RESHAPE", inputs=1, kind="fill", size=[2, "B", None], const=1.5)
    for made in (
        by_numpy(filled, [np.array(5), np.array(3)])[0],
        by_numpy(filled, [np.array(3)], B=5)[0],
    ):
        assert made.shape == (2, 5, 3)
        assert made.dtype == np.float32
        assert made.min() == made.max() == 1.5
    words: list[tuple[str, list[Any], Any]] = [
        ("mul", [3, 4], 12),
        ("operator.floordiv", [7, 2], 3),
        ("truediv", [7, 2], 3.5),
        ("sym_max", [7, 2], 7),
        ("torch.sym_min", [7, 2], 2),
        ("ite", [True, 1, 2], 1),
        ("sum", [1, 2, 3], 6),
        ("neg", [3], -3),
        ("math.ceil", [2.5], 3),
        ("eq", [2, 2], True),
    ]
    for word, given_, wanted in words:
        node = node_of("RESHAPE", inputs=len(given_), kind="arithmetic", operator=word)
        found = by_numpy(node, [np.asarray(each) for each in given_])[0]
        assert found == wanted
        assert by_torch(node, [np.asarray(each) for each in given_])[0] == wanted


def test_numbers_of_a_recorded_call() -> None:
    """What stood in the call is in its source alone."""
    source = {"dialect": "aten", "op": "operator.mul", "args": [{"c": 5}, {"n": 0}], "kwargs": {}}
    node = Node("n", "RESHAPE", None, {"kind": "arithmetic", "operator": "sub"}, (), {}, source)
    assert by_numpy(node, [np.array(3)])[0] == 2
    args = [{"n": 0}, {"c": 1}, {"n": 1}, {"n": 2}]
    cut = node_of("RESHAPE", inputs=3, kind="slice", axis=1)
    told = Node("n", "RESHAPE", None, cut.attrs, cut.inputs, {}, {**source, "args": args})
    x = np.arange(10).reshape(2, 5)
    np.testing.assert_array_equal(by_numpy(told, [x, np.array(1), np.array(3)])[0], x[:, 1:3])
    with pytest.raises(NotRunnable, match="cannot be run"):
        by_numpy(cut, [x, np.array(1), np.array(3)])


@pytest.mark.parametrize(
    ("attrs", "extra"),
    [
        ({"kind": "view", "size": [7]}, []),
        ({"kind": "view", "size": [-1, -1]}, []),
        ({"kind": "view", "size": [None, None]}, []),
        ({"kind": "view", "size": ["T", 3]}, []),
        ({"kind": "view", "size": [2, 3]}, [1, 2]),
        ({"kind": "expand", "size": [3]}, []),
        ({"kind": "expand", "size": [-1, 2, 3]}, []),
        ({"kind": "select", "axis": 1, "index": 3}, []),
        ({"kind": "split", "axis": 1, "sizes": [1, 1]}, []),
        ({"kind": "arithmetic", "operator": "shift"}, []),
    ],
)
def test_what_does_not_fit_is_no_traceback(attrs: dict[str, Any], extra: list[int]) -> None:
    node = node_of("RESHAPE", inputs=1 + len(extra), **attrs)
    x = np.zeros((2, 3)) if attrs["kind"] != "arithmetic" else np.array(2)
    with pytest.raises(UsageError):
        by_numpy(node, [x, *map(np.array, extra)])


def test_conversions_keep_the_precision_of_the_run() -> None:
    for dtype in (np.float32, np.float64):
        x = np.array([[0.1, -1.7]], dtype)
        for name in ("float16", "float32", "float64", "bfloat16", None):
            found = by_numpy(node_of("RESHAPE", kind="to", dtype=name), [x])[0]
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, x)
        found = by_numpy(node_of("RESHAPE", kind="to", dtype="int64"), [x])[0]
        assert found.dtype == np.int64
        assert found.tolist() == [[0, -1]]
        assert by_numpy(node_of("RESHAPE", kind="to", dtype="bool"), [x])[0].all()


def test_operations_that_numpy_does_not_run() -> None:
    source = {"dialect": "aten", "op": "aten.fft_fft.default", "args": [], "kwargs": {}}
    raw = Node("fft", "OP", "raw", {}, (), {}, source)
    with pytest.raises(NotRunnable, match="`fft`") as caught:
        by_numpy(raw, [np.zeros(2)])
    assert "aten.fft_fft.default" in str(caught.value.why)
    assert caught.value.hint == "pip install 'dlv[torch]', and dlv eval --engine torch"
    with pytest.raises(NotRunnable, match="LOSS"):
        by_numpy(node_of("LOSS", name="mse"), [np.zeros(2)])
