"""Every vocabulary operation with random attributes, run by onnxruntime, against torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("onnxruntime", reason="onnxruntime runs the files here")
torch = pytest.importorskip("torch", reason="torch is the oracle here")

from dlv.errors import UsageError  # noqa: E402
from tests.onnx_runs import difference, network, node, run  # noqa: E402

F = torch.nn.functional
CASES = settings(max_examples=40, deadline=None)
SMALL = st.integers(1, 3)
TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    found = np.random.default_rng(seed + math.prod(shape)).standard_normal(shape)
    return found.astype(dtype)


def check(made: Any, tensors: Any, inputs: Any, *wanted: Any) -> None:
    found = run(made, tensors, inputs)
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        theirs = theirs.detach().numpy() if isinstance(theirs, torch.Tensor) else theirs
        assert difference(ours, theirs) <= TOLERANCE


def padded(x: Any, pad: Any, value: float = 0.0) -> Any:
    return F.pad(x, [side for pair in reversed(pad) for side in pair], value=value)


def turned(weight: Any, axes: int) -> Any:
    """Kernel first: (*kernel, in, out)."""
    return np.ascontiguousarray(weight.transpose(*range(2, axes + 2), 1, 0))


def last(x: Any) -> Any:
    return np.ascontiguousarray(np.moveaxis(np.asarray(x), 1, -1))


@CASES
@given(st.data())
def test_convolutions(data: st.DataObject) -> None:
    draw = data.draw
    axes, groups = draw(st.integers(1, 3)), draw(SMALL)
    each = st.tuples(*[SMALL] * axes)
    kernel, stride, dilation = draw(each), draw(each), draw(each)
    pad = draw(st.tuples(*[st.tuples(st.integers(0, 2), st.integers(0, 2))] * axes))
    out, depth = draw(SMALL) * groups, draw(SMALL) * groups
    first, channels = draw(st.booleans()), draw(st.sampled_from(("first", "last")))
    bias, batch = draw(st.booleans()), draw(SMALL)
    lengths = draw(st.tuples(*[st.integers(3, 7)] * axes))
    rows = zip(lengths, kernel, pad, dilation, strict=True)
    assume(all(n + sum(p) >= d * (k - 1) + 1 for n, k, p, d in rows))
    weight = numbers(out, depth // groups, *kernel)
    tensors = {"weight": turned(weight, axes) if first else weight}
    if bias:
        tensors["bias"] = numbers(out, seed=1)
    x = numbers(batch, depth, *lengths, seed=2)
    made = node(
        "CONV",
        ["x"],
        params=list(tensors),
        out=out,
        kernel=kernel,
        stride=stride,
        pad=pad,
        dilation=dilation,
        groups=groups,
        layout="kernel_first" if first else "kernel_last",
        channels=channels,
    )
    function = getattr(F, f"conv{axes}d")
    b = torch.from_numpy(tensors["bias"]) if bias else None
    wanted = function(
        padded(torch.from_numpy(x), pad), torch.from_numpy(weight), b, stride, 0, dilation, groups
    ).numpy()
    if channels == "last":
        x, wanted = last(x), last(wanted)
    check(network([made], {"x": ("B", *x.shape[1:])}), tensors, {"x": x}, wanted)


@CASES
@given(st.data())
def test_transposed_convolutions(data: st.DataObject) -> None:
    draw = data.draw
    axes, groups = draw(st.integers(1, 3)), draw(SMALL)
    each = st.tuples(*[SMALL] * axes)
    kernel, stride, dilation = draw(each), draw(each), draw(each)
    extra = tuple(
        draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)
    )
    pad = draw(st.tuples(*[st.tuples(st.integers(0, 2), st.integers(0, 2))] * axes))
    out, depth = draw(SMALL) * groups, draw(SMALL) * groups
    first, channels = draw(st.booleans()), draw(st.sampled_from(("first", "last")))
    bias, batch = draw(st.booleans()), draw(SMALL)
    lengths = draw(st.tuples(*[st.integers(2, 5)] * axes))
    rows = zip(lengths, kernel, stride, pad, dilation, extra, strict=True)
    assume(all((n - 1) * s + d * (k - 1) + e + 1 - sum(p) > 0 for n, k, s, p, d, e in rows))
    weight = numbers(depth, out // groups, *kernel)
    tensors = {"weight": turned(weight, axes) if first else weight}
    if bias:
        tensors["bias"] = numbers(out, seed=1)
    x = numbers(batch, depth, *lengths, seed=2)
    made = node(
        "DECONV",
        ["x"],
        params=list(tensors),
        out=out,
        kernel=kernel,
        stride=stride,
        pad=pad,
        dilation=dilation,
        groups=groups,
        output_pad=extra,
        layout="kernel_first" if first else "kernel_last",
        channels=channels,
    )
    function = getattr(F, f"conv_transpose{axes}d")
    b = torch.from_numpy(tensors["bias"]) if bias else None
    wide = function(
        torch.from_numpy(x), torch.from_numpy(weight), b, stride, 0, extra, groups, dilation
    )
    for place, (before, after) in enumerate(pad, 2):
        wide = wide.narrow(place, before, wide.shape[place] - before - after)
    wanted = wide.numpy()
    if channels == "last":
        x, wanted = last(x), last(wanted)
    check(network([made], {"x": ("B", *x.shape[1:])}), tensors, {"x": x}, wanted)


@CASES
@given(st.integers(1, 5), st.booleans(), st.booleans(), SMALL)
def test_full(rank: int, bias: bool, turned_: bool, batch: int) -> None:
    weight = numbers(4, 3)
    tensors = {"weight": np.ascontiguousarray(weight.T) if turned_ else weight}
    if bias:
        tensors["bias"] = numbers(4, seed=1)
    shape = (batch, *range(2, rank), 3)[-rank:] if rank > 1 else (3,)
    x = numbers(*shape)
    layout = "in_out" if turned_ else "out_in"
    made = node("FULL", ["x"], params=list(tensors), out=4, layout=layout)
    b = torch.from_numpy(tensors["bias"]) if bias else None
    wanted = F.linear(torch.from_numpy(x), torch.from_numpy(weight), b)
    declared = ("B", *shape[1:]) if rank > 1 else shape
    check(network([made], {"x": declared}), tensors, {"x": x}, wanted)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "float32"])
def test_embedding(dtype: str) -> None:
    rows = np.array([[0, 3, 2], [4, 1, 1]]).astype(dtype)
    tensors = {"weight": numbers(5, 2)}
    made = node("EMBED", ["x"], params=["weight"], out=2, rows=5)
    wanted = F.embedding(
        torch.from_numpy(rows.astype(np.int64)), torch.from_numpy(tensors["weight"])
    )
    check(network([made], {"x": (dtype, ("B", "T"))}), tensors, {"x": rows}, wanted)


def reference_pool(variant: str, x: Any, attrs: Any) -> Any:
    """Windows one by one, as the vocabulary defines them."""
    kernel, stride, pad = attrs["kernel"], attrs["stride"], attrs["pad"]
    dilation, ceil, axes = attrs["dilation"], attrs["ceil"], len(attrs["kernel"])
    counts = []
    for n, k, s, (before, after), d in zip(x.shape[2:], kernel, stride, pad, dilation, strict=True):
        room = n + before + after - d * (k - 1) - 1
        count = (math.ceil if ceil else math.floor)(room / s) + 1
        if ceil and (count - 1) * s >= n + before:
            count -= 1
        counts.append(count)
    made = np.zeros((*x.shape[:2], *counts), x.dtype)
    places = np.zeros(made.shape, np.int64)
    for at in np.ndindex(*counts):
        taps = []  # positions in the map, and whether a position is padding
        sizes = 1
        rows = zip(at, x.shape[2:], kernel, stride, pad, dilation, strict=True)
        for index, n, k, s, (before, after), d in rows:
            reach = [index * s - before + tap * d for tap in range(k)]
            taps.append([place for place in reach if 0 <= place < n])
            sizes *= sum(1 for place in reach if place < n + after)
        cut = x[(slice(None), slice(None), *np.ix_(*taps))].reshape(*x.shape[:2], -1)
        if variant == "AVG":
            divisor = sizes if attrs["count_pad"] else math.prod(map(len, taps))
            with np.errstate(invalid="ignore"):
                made[(slice(None), slice(None), *at)] = cut.sum(-1) / divisor
        else:
            made[(slice(None), slice(None), *at)] = cut.max(-1)
            flat = np.ravel_multi_index(
                [each.ravel() for each in np.meshgrid(*taps, indexing="ij")], x.shape[2:]
            )
            places[(slice(None), slice(None), *at)] = flat[cut.argmax(-1)]
    assert axes == len(counts)
    return made, places


NO_POSITIONS = "positions in a pool padded by a whole window cannot be exported"


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_pools(data: st.DataObject) -> None:
    draw = data.draw
    axes, variant = draw(st.integers(1, 3)), draw(st.sampled_from(("MAX", "AVG")))
    each = st.tuples(*[SMALL] * axes)
    kernel, stride, dilation = draw(each), draw(each), draw(each)
    pad = tuple(
        (draw(st.integers(0, d * (k - 1))), draw(st.integers(0, d * (k - 1))))
        for k, d in zip(kernel, dilation, strict=True)
    )
    lengths = draw(st.tuples(*[st.integers(3, 8)] * axes))
    channels, free = draw(st.sampled_from(("first", "last"))), draw(st.booleans())
    attrs: dict[str, Any] = {
        "kernel": kernel,
        "stride": stride,
        "pad": pad,
        "dilation": dilation,
        "ceil": draw(st.booleans()),
    }
    if variant == "AVG":
        attrs["count_pad"] = draw(st.booleans())
    rows = list(zip(lengths, kernel, pad, dilation, strict=True))
    assume(all(n + sum(p) >= d * (k - 1) + 1 for n, k, p, d in rows))
    x = numbers(draw(SMALL), 2, *lengths)
    wanted, places = reference_pool(variant, x, attrs)
    assume(np.isfinite(wanted).all())
    made = node("POOL", ["x"], variant=variant, channels=channels, **attrs)
    if channels == "last":
        x, wanted, places = last(x), last(wanted), last(places)
    declared: tuple[Any, ...] = ("B", *x.shape[1:])
    padded_whole = any(max(p) >= k for _, k, p, _ in rows)
    dilated = any(each > 1 for each in dilation)
    if free and not (variant == "AVG" and dilated):
        symbols = [f"S{place}" for place in range(axes)]
        declared = ("B", 2, *symbols) if channels == "first" else ("B", *symbols, 2)
    if variant == "MAX" and draw(st.booleans()) and not padded_whole:
        try:
            check(network([made], {"x": declared}, "n", ("n", 1)), {}, {"x": x}, wanted, places)
        except UsageError as refusal:
            # Rounding up may pad by a whole window, where ONNX runtimes tell no positions.
            if not (attrs["ceil"] and refusal.message.endswith(NO_POSITIONS)):
                raise
        else:
            return
    check(network([made], {"x": declared}), {}, {"x": x}, wanted)


def test_a_pool_that_rounds_up_to_a_whole_window_of_padding_is_written_without_positions() -> None:
    attrs: dict[str, Any] = {
        "kernel": (2, 1),
        "stride": (2, 3),
        "pad": ((0, 1), (0, 0)),
        "dilation": (2, 1),
        "ceil": True,
    }
    x = numbers(1, 2, 3, 3)
    made = node("POOL", ["x"], variant="MAX", channels="first", **attrs)
    with pytest.raises(UsageError, match=NO_POSITIONS):
        run(network([made], {"x": x.shape}, "n", ("n", 1)), {}, {"x": x})
    check(network([made], {"x": x.shape}), {}, {"x": x}, reference_pool("MAX", x, attrs)[0])


@CASES
@given(st.data())
def test_plain_pools_are_those_of_torch(data: st.DataObject) -> None:
    draw = data.draw
    kernel, stride = draw(SMALL), draw(SMALL)
    pad, ceil, count = draw(st.integers(0, kernel // 2)), draw(st.booleans()), draw(st.booleans())
    x = numbers(2, 3, draw(st.integers(3, 9)), draw(st.integers(3, 9)))
    t = torch.from_numpy(x)
    shared: dict[str, Any] = {"kernel": [kernel] * 2, "stride": stride, "pad": pad}
    most = node("POOL", ["x"], variant="MAX", ceil=ceil, **shared)
    wanted, places = F.max_pool2d(t, kernel, stride, pad, ceil_mode=ceil, return_indices=True)
    declared = {"x": ("B", *x.shape[1:])}
    check(network([most], declared, "n", ("n", 1)), {}, {"x": x}, wanted, places)
    mean = node("POOL", ["x"], variant="AVG", ceil=ceil, count_pad=count, **shared)
    wanted = F.avg_pool2d(t, kernel, stride, pad, ceil, count)
    check(network([mean], declared), {}, {"x": x}, wanted)


def test_a_window_behind_the_padding_beside_one_that_begins_too_late() -> None:
    x = numbers(2, 3, 3, 4)
    given_: dict[str, Any] = {"kernel": [2, 2], "stride": [2, 3], "pad": [1, 0], "ceil": True}
    made = node("POOL", ["x"], variant="AVG", **given_)
    wanted = F.avg_pool2d(torch.from_numpy(x), 2, (2, 3), (1, 0), True, True)
    check(network([made], {"x": ("B", 3, 3, 4)}), {}, {"x": x}, wanted)


@CASES
@given(st.data())
def test_adaptive_pools(data: st.DataObject) -> None:
    draw = data.draw
    axes, variant = draw(st.integers(1, 3)), draw(st.sampled_from(("MAX", "AVG")))
    lengths = draw(st.tuples(*[st.integers(1, 7)] * axes))
    size = draw(st.tuples(*[st.none() | st.integers(1, 5)] * axes))
    channels = draw(st.sampled_from(("first", "last")))
    x = numbers(2, 3, *lengths)
    name = f"adaptive_{'max' if variant == 'MAX' else 'avg'}_pool{axes}d"
    filled = [n if s is None else s for n, s in zip(lengths, size, strict=True)]
    wanted = getattr(F, name)(torch.from_numpy(x), filled).numpy()
    if channels == "last":
        x, wanted = last(x), last(wanted)
    made = node("POOL", ["x"], variant=variant, size=size, channels=channels)
    check(network([made], {"x": ("B", *x.shape[1:])}), {}, {"x": x}, wanted)


@pytest.mark.parametrize("variant", ["MAX", "AVG"])
def test_global_pools_take_any_length(variant: str) -> None:
    made = node("POOL", ["x"], variant=variant, size=[1, 1])
    x = numbers(2, 3, 4, 5)
    t = torch.from_numpy(x)
    wanted = t.amax((2, 3), True) if variant == "MAX" else t.mean((2, 3), True)
    check(network([made], {"x": ("B", 3, "H", "W")}), {}, {"x": x}, wanted)


def test_positions_in_an_adaptive_pool() -> None:
    x = numbers(2, 3, 4, 6)
    wanted, places = F.adaptive_max_pool2d(torch.from_numpy(x), (2, 3), return_indices=True)
    made = node("POOL", ["x"], variant="MAX", size=[2, 3])
    check(network([made], {"x": ("B", 3, 4, 6)}, "n", ("n", 1)), {}, {"x": x}, wanted, places)


@CASES
@given(st.none() | st.lists(st.integers(-4, 3), min_size=1, max_size=3), st.booleans())
def test_means(axes: list[int] | None, keep: bool) -> None:
    assume(axes is None or len({axis % 4 for axis in axes}) == len(axes))
    x = numbers(2, 3, 4, 5)
    made = node("POOL", ["x"], variant="MEAN", axis=axes, keep=keep)
    given_axes = tuple(range(4)) if axes is None else tuple(axes)
    wanted = torch.from_numpy(x).mean(given_axes, keepdim=keep)
    check(network([made], {"x": ("B", 3, 4, 5)}), {}, {"x": x}, wanted)


@CASES
@given(st.data())
def test_norms_over_channels(data: st.DataObject) -> None:
    draw = data.draw
    variant = draw(st.sampled_from(("BATCH", "INSTANCE", "GROUP", "LRN")))
    rank = draw(st.integers(2 if variant == "BATCH" else 3, 5))
    axis = draw(st.sampled_from((1, -1, rank - 1)))
    shape = [3, 4, 5, 2, 3][:rank]
    shape[1] = 4
    x = numbers(*shape)
    t = torch.from_numpy(x)
    slots: list[str] = []
    attrs: dict[str, Any] = {"axis": axis}
    if variant != "LRN":
        attrs["eps"] = draw(st.sampled_from((1e-5, 1e-3, 0.1)))
        slots += draw(st.lists(st.sampled_from(("weight", "bias")), unique=True))
    kept = variant == "BATCH" and draw(st.booleans())
    kept = kept or (variant == "INSTANCE" and draw(st.booleans()))
    slots += ["running_mean", "running_var"] if kept else []
    tensors = {slot: numbers(4, seed=len(slot)) for slot in slots}
    if kept:
        tensors["running_var"] = np.abs(tensors["running_var"]) + np.float32(0.1)
    p = {slot: torch.from_numpy(item) for slot, item in tensors.items()}
    weight, bias = p.get("weight"), p.get("bias")
    if variant == "BATCH":
        statistics = p.get("running_mean"), p.get("running_var")
        wanted = F.batch_norm(t, *statistics, weight, bias, not kept, 0.1, attrs["eps"])
    elif variant == "INSTANCE":
        statistics = p.get("running_mean"), p.get("running_var")
        wanted = torch.instance_norm(
            t, weight, bias, *statistics, not kept, 0.1, attrs["eps"], False
        )
    elif variant == "GROUP":
        attrs["groups"] = draw(st.sampled_from((1, 2, 4)))
        wanted = F.group_norm(t, attrs["groups"], weight, bias, attrs["eps"])
    else:
        attrs |= {"size": draw(st.integers(1, 6)), "alpha": 0.3, "beta": 0.6, "k": 1.5}
        wanted = F.local_response_norm(t, attrs["size"], 0.3, 0.6, 1.5)
    wanted = wanted.numpy()
    if axis % rank != 1:
        x, wanted = np.moveaxis(x, 1, axis), np.moveaxis(wanted, 1, axis)
    x = np.ascontiguousarray(x)
    made = node("NORM", ["x"], variant=variant, params=slots, **attrs)
    check(network([made], {"x": ("B", *x.shape[1:])}), tensors, {"x": x}, wanted)


@CASES
@given(
    st.sampled_from(("LAYER", "RMS")),
    st.integers(-3, -1),
    st.lists(st.sampled_from(("weight", "bias")), unique=True),
    st.sampled_from((None, 1e-6, 0.01)),
    st.booleans(),
)
def test_norms_over_trailing_axes(
    variant: str, axis: int, slots: list[str], eps: float | None, free: bool
) -> None:
    x = numbers(2, 3, 4, 5)
    shape = x.shape[axis:]
    slots = [slot for slot in slots if variant == "LAYER" or slot == "weight"]
    tensors = {slot: numbers(*shape, seed=len(slot)) for slot in slots}
    p = {slot: torch.from_numpy(item) for slot, item in tensors.items()}
    attrs: dict[str, Any] = {} if eps is None else {"eps": eps}
    t = torch.from_numpy(x)
    if variant == "LAYER":
        wanted = F.layer_norm(t, shape, p.get("weight"), p.get("bias"), eps or 1e-5)
    else:
        wanted = F.rms_norm(t, shape, p.get("weight"), eps)
    made = node("NORM", ["x"], variant=variant, params=slots, axis=axis, **attrs)
    declared = ("B", "S", "T", "U") if free else ("B", 3, 4, 5)
    check(network([made], {"x": declared}), tensors, {"x": x}, wanted)


ACTIVATIONS: list[tuple[str, str | None, dict[str, Any], Any]] = [
    ("RELU", None, {}, F.relu),
    ("RELU", None, {"slope": 0.2}, lambda x: F.leaky_relu(x, 0.2)),
    ("RELU", None, {"slope": -0.5}, lambda x: F.leaky_relu(x, -0.5)),
    ("ACT", "GELU", {}, F.gelu),
    ("ACT", "GELU", {"approximate": "tanh"}, lambda x: F.gelu(x, approximate="tanh")),
    ("ACT", "SILU", {}, F.silu),
    ("ACT", "SIGMOID", {}, torch.sigmoid),
    ("ACT", "TANH", {}, torch.tanh),
    ("ACT", "RELU6", {}, F.relu6),
    ("DROPOUT", None, {"p": 0.3}, lambda x: x),
    ("SOFTMAX", None, {"axis": 1}, lambda x: F.softmax(x, 1)),
    ("SOFTMAX", None, {"axis": 0}, lambda x: F.softmax(x, 0)),
    ("SOFTMAX", None, {"axis": -1, "log": True}, lambda x: F.log_softmax(x, -1)),
]


@pytest.mark.parametrize(("op", "variant", "attrs", "function"), ACTIVATIONS)
def test_activations(op: str, variant: str | None, attrs: dict[str, Any], function: Any) -> None:
    x = numbers(3, 4, 5) * 4
    made = node(op, ["x"], variant=variant, **attrs)
    declared = network([made], {"x": ("B", 4, "T")})
    check(declared, {}, {"x": x}, function(torch.from_numpy(x)))


def test_a_softmax_of_one_number() -> None:
    x = np.array(3.0, np.float32)
    check(network([node("SOFTMAX", ["x"], axis=-1)], {"x": ()}), {}, {"x": x}, np.array(1, "f4"))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_joins(axis: int) -> None:
    a, b = numbers(2, 3, 4), numbers(2, 3, 4, seed=5)
    made = node("CONCAT", ["a", "b", "a"], axis=axis)
    declared = {"a": ("B", 3, 4), "b": ("B", 3, 4)}
    wanted = np.concatenate([a, b, a], axis)
    check(network([made], declared), {}, {"a": a, "b": b}, wanted)


DTYPES = ("float32", "float64", "int64", "int32", "bool")


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(("ADD", "MUL")),
    st.sampled_from(DTYPES),
    st.sampled_from(DTYPES),
    st.sampled_from(((2, 3), (3,), (), (1, 1), (2, 1))),
)
def test_sums_and_products_of_mixed_dtypes(op: str, one: str, two: str, shape: Any) -> None:
    a = (numbers(2, 3) * 3).astype(one)
    b = np.asarray(numbers(*shape, seed=3) * 3).astype(two)
    made = node(op, ["a", "b", "a"])
    declared = {"a": (one, ("B", 3)), "b": (two, shape)}
    function = torch.add if op == "ADD" else torch.mul
    x, y = torch.from_numpy(a), torch.from_numpy(b)
    check(network([made], declared), {}, {"a": a, "b": b}, function(function(x, y), x))


@pytest.mark.parametrize("op", ["ADD", "MUL"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize("const", [2.0, 0.5, -3.0])
def test_sums_and_products_with_a_number(op: str, dtype: str, const: float) -> None:
    x = (numbers(2, 3) * 3).astype(dtype)
    plain = int(const) if const.is_integer() and dtype != "float32" else const
    t = torch.from_numpy(x)
    wanted = t + plain if op == "ADD" else t * plain
    check(network([node(op, ["x"], const=const)], {"x": (dtype, ("B", 3))}), {}, {"x": x}, wanted)


def test_sums_with_a_stored_tensor() -> None:
    x, value = numbers(2, 3, 4), numbers(3, 1)
    made = node("ADD", ["x"], params={"value": "side"}, shape=[3, 1])
    check(network([made], {"x": ("B", 3, 4)}), {"side": value}, {"x": x}, x + value)
