"""Recorded calls by numpy, each held against torch: the same numbers, the same dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlv.network.aten.calls import FUNCTIONS
from dlv.network.calls import run_call
from dlv.network.graph import Node
from dlv.network.ops.op import NotRunnable, Run

torch: Any = pytest.importorskip("torch", reason="torch is the oracle here")

R = np.random.default_rng(5)
X = R.normal(size=(3, 4, 5))  # floats
P = np.abs(X) + 0.1  # positive
U = np.clip(X / 4, -0.9, 0.9)  # within -1..1
N = R.integers(-9, 9, (3, 4, 5))  # whole numbers
B = N > 0
ROW = R.normal(size=5)
IMAGE = R.normal(size=(2, 3, 6, 8))
PLACES = R.integers(0, 4, (3, 2, 5))
ONE, WHOLE = np.asarray(0.5), np.asarray(3)
FLOAT, LONG = {"dtype": "float32"}, {"dtype": "int64"}

Call = tuple[Any, ...]
ONES = (  # noqa: SIM905
    "abs neg exp exp2 expm1 sin cos tan sinh cosh tanh asinh erf sigmoid silu log_sigmoid"
    " mish hardsigmoid hardswish selu elu celu gelu relu relu6 softplus leaky_relu square"
    " sign sgn floor ceil trunc frac round isnan isinf isfinite reciprocal logical_not"
    " hardtanh nan_to_num atan"
).split()
POSITIVE = ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "acosh"]
WITHIN = ["asin", "acos", "atanh"]
TWO = (  # noqa: SIM905
    "add.Tensor sub.Tensor mul.Tensor div.Tensor multiply.Tensor subtract.Tensor"
    " divide.Tensor true_divide.Tensor minimum maximum fmin fmax atan2 logaddexp hypot"
    " remainder.Tensor fmod.Tensor floor_divide eq.Tensor ne.Tensor lt.Tensor le.Tensor"
    " gt.Tensor ge.Tensor logical_and logical_or logical_xor min.other max.other"
).split()
# floor_divide and remainder of float32 differ where a quotient is next to a whole number.
CALLS: list[Call] = [
    *((name, X) for name in ONES),
    *((name, P + (name == "acosh")) for name in POSITIVE),
    *((name, U) for name in WITHIN),
    *((name, N) for name in ("abs", "exp", "sigmoid", "sign", "relu")),
    *((name, X, P) for name in TWO),
    *((name, X, N) for name in ["add.Tensor", "mul.Tensor", "div.Tensor", "maximum", "lt.Tensor"]),
    *((name, N, WHOLE) for name in ["add.Tensor", "mul.Tensor", "div.Tensor", "floor_divide"]),
    ("add.Tensor", N, ONE),
    ("add.Tensor", N, 0.5),
    ("add.Tensor", X, 2),
    ("add.Tensor", B, 1),
    ("add.Tensor", B, B),
    ("add.Tensor", N.astype(np.int32), N.astype(np.uint8)),
    ("add.Tensor", X, P, {"alpha": 2}),
    ("sub.Tensor", X, P, {"alpha": 2}),
    ("add.Scalar", X, 2, 3),
    ("rsub.Scalar", X, 2),
    ("rsub.Tensor", X, P),
    ("div.Tensor_mode", X, P, {"rounding_mode": "trunc"}),
    ("div.Tensor_mode", N, 3, {"rounding_mode": "floor"}),
    ("div.Tensor_mode", N, 3, {"rounding_mode": "trunc"}),
    ("remainder.Scalar", N, 4),
    ("pow.Tensor_Scalar", X, 2),
    ("pow.Tensor_Scalar", P, 0.5),
    ("pow.Scalar", 10000.0, X),
    ("pow.Tensor_Tensor", P, X),
    *((f"{name}.Scalar", N, 2) for name in ["eq", "ne", "lt", "le", "gt", "ge"]),
    *((f"bitwise_{name}.Tensor", N, N) for name in ["and", "or", "xor"]),
    *((f"__{name}__.Tensor", B, B) for name in ["and", "or", "xor"]),
    ("bitwise_not", B),
    ("bitwise_not", N),
    ("where.self", B, X, P),
    ("where.ScalarOther", B, X, 0.0),
    ("where.ScalarSelf", B, 0.0, X),
    ("where.self", B, X, ONE),
    ("masked_fill.Scalar", X, B, -np.inf),
    ("masked_fill.Tensor", X, B, ONE),
    ("clamp", X, -0.5, 0.5),
    ("clamp", X, None, 0.5),
    ("clamp", N, 0.5),
    ("clamp.Tensor", X, -P, P),
    ("clamp_min", X, 0.1),
    ("clamp_max", X, 0.1),
    ("gelu", X, {"approximate": "tanh"}),
    ("elu", X, 2.0, 1.5, 0.5),
    ("celu", X, 2.0),
    ("glu", R.normal(size=(3, 4)), -1),
    ("prelu", IMAGE, np.asarray([0.1, 0.2, 0.3])),
    ("threshold", X, 0.2, 7.0),
    ("softplus", X, 2.0, 1.0),
    ("logit", np.abs(U)),
    ("logit", np.abs(U), 0.3),
    ("softmax.int", X, -1),
    ("_softmax", X, 1, False),
    ("log_softmax.int", X, 1),
    ("lerp.Scalar", X, P, 0.3),
    ("addcmul", X, P, P, {"value": 2}),
    ("addcdiv", X, P, P, {"value": 2}),
    ("round.decimals", X, {"decimals": 1}),
    # One number of many.
    *((name, X) for name in ["sum", "mean", "prod", "max", "min", "argmax", "argmin"]),
    *((name, X) for name in ["std", "var", "any", "all", "amax"]),
    *((name, N) for name in ["sum", "prod", "max", "any", "argmax"]),
    ("sum", B),
    ("sum.dim_IntList", X, [0, -1], True),
    ("sum.dim_IntList", X, [1], {"dtype": FLOAT}),
    ("mean.dim", X, [-1], True),
    ("var.correction", X, [1], {"correction": 0, "keepdim": True}),
    ("var.dim", X, [1], False),
    ("std.dim", X, [1]),
    ("var_mean.correction", X, [1], {"correction": 1, "keepdim": True}),
    ("max.dim", X, 1),
    ("min.dim", X, -1, True),
    ("amax", X, [0, 1]),
    ("amin", X, [1], True),
    ("argmax", X, 1),
    ("argmin", X, 1, True),
    ("any.dim", B, 1),
    ("all.dim", B, 1, True),
    ("count_nonzero", B),
    ("cumsum", X, 1),
    ("cumsum", B, 0),
    ("cumsum", N, 1, {"dtype": FLOAT}),
    ("cumprod", X, -1),
    ("logsumexp", X, [1], True),
    ("linalg_vector_norm", X, 2, [1], True),
    ("linalg_vector_norm", X, 1),
    ("linalg_vector_norm", X, 3, [0]),
    ("linalg_vector_norm", X, np.inf, [0]),
    ("norm.ScalarOpt_dim", X, 2, [1]),
    ("sort", X, 1),
    ("sort", N, -1, True),
    ("sort.stable", N, {"stable": True, "dim": 1, "descending": True}),
    ("argsort", X, 1),
    ("argsort.stable", N, {"stable": True, "dim": 1}),
    ("topk", X, 2),
    ("topk", X, 3, 1, False),
    ("bucketize.Tensor", X, np.sort(ROW)),
    ("searchsorted.Tensor", np.sort(ROW), X, {"right": True}),
    ("isin.Tensor_Tensor", N, PLACES),
    ("histc", X, 4, -1.0, 1.0),
    # Moved.
    ("view", X, [3, -1]),
    ("reshape", X, [2, 30]),
    ("expand", X[:1], [3, -1, 5]),
    ("expand", ROW, [2, 3, 5]),
    ("squeeze", X[:, :1]),
    ("squeeze.dim", X[:, :1], 1),
    ("squeeze.dims", X[:1, :1], [0, 1]),
    ("unsqueeze", X, -1),
    ("flatten.using_ints", X, 1),
    ("unflatten.int", X, 1, [2, 2]),
    ("transpose.int", X, 0, -1),
    ("t", X[0]),
    ("numpy_T", X),
    ("permute", X, [2, 0, 1]),
    ("movedim.int", X, 0, 2),
    ("select.int", X, 1, -1),
    ("slice.Tensor", X, 1, 1, 9, 2),
    ("narrow", X, 1, 1, 2),
    ("split.Tensor", X, 2, 1),
    ("split_with_sizes", X, [1, 3], 1),
    ("chunk", X, 3, 1),
    ("unbind.int", X, 1),
    ("cat", [X, N], 1),
    ("stack", [X, P], -1),
    ("repeat", X, [2, 1, 1, 3]),
    ("tile", X, [2, 1]),
    ("repeat_interleave.self_int", X, 2, 1),
    ("repeat_interleave.self_int", X, 2),
    ("repeat_interleave.self_Tensor", X, np.asarray([1, 2, 0, 1]), 1),
    ("roll", X, [1, -2], [1, 2]),
    ("roll", X, [3]),
    ("flip", X, [0, 2]),
    ("pad", X, [1, 2]),
    ("pad", IMAGE, [1, 2, -1, 1], "constant", 3.0),
    ("pad", IMAGE, [1, 2, 2, 1], "reflect"),
    ("pad", IMAGE, [1, 2, 2, 1], "replicate"),
    ("pad", IMAGE, [1, 2, 2, 1], "circular"),
    ("constant_pad_nd", N, [1, 1], 4),
    ("reflection_pad2d", IMAGE, [1, 2, 2, 1]),
    ("replication_pad1d", X, [1, 2]),
    ("index.Tensor", X, [None, PLACES[0, :, :2]]),
    ("index.Tensor", X, [np.asarray([0, 2]), None, np.asarray([1, 1])]),
    ("index.Tensor", X, [B]),
    ("index_put", X, [np.asarray([0, 2])], ONE),
    ("index_put", X, [np.asarray([0, 0])], ROW, True),
    ("index_select", X, 1, np.asarray([3, 1])),
    ("index_add", X, 0, np.asarray([0, 0, 1]), P, {"alpha": 2}),
    ("take_along_dim", X, PLACES[:, :, :1] % 4, 1),
    ("gather", X, 1, PLACES),
    ("gather", X, 1, PLACES[:2, :, :3]),
    ("scatter.src", X, 1, np.argsort(X, 1)[:, :2], P),
    ("scatter.value", X, 1, PLACES, 7.0),
    ("scatter_add", X, 1, PLACES, P),
    ("slice_scatter", X, P[:, :2], 1, 1, 3),
    ("select_scatter", X, P[:, 0], 1, -1),
    ("masked_select", X, B),
    ("embedding", X[0], PLACES),
    ("tril", X, -1),
    ("triu", X, 1),
    ("diagonal", X, 1, 1, 2),
    ("unfold", X, 1, 3, 1),
    ("im2col", IMAGE, [2, 3], [1, 2], [1, 0], [2, 1]),
    ("diff", X, 1, 1),
    ("diff", N, 2),
    ("diff", B, 1),
    ("pixel_shuffle", IMAGE.reshape(2, 12, 3, 4), 2),
    ("pixel_unshuffle", IMAGE, 2),
    ("channel_shuffle", IMAGE.reshape(2, 6, 3, 8), 3),
    ("meshgrid.indexing", [ROW, ROW[:3]], {"indexing": "xy"}),
    # Made.
    ("arange", 5),
    ("arange", 2.5),
    ("arange.start", 2, 7, {"dtype": FLOAT}),
    ("arange.start_step", 1.0, 0.0, -0.3),
    ("arange.start_step", 0, 9, 2),
    ("linspace", 0.0, 1.0, 5),
    ("zeros", [2, 3]),
    ("ones", [2], {"dtype": LONG}),
    ("full", [2], 3),
    ("full", [2], 0.5),
    ("full", [2], True),
    ("zeros_like", N),
    ("ones_like", N, {"dtype": FLOAT}),
    ("full_like", X, -np.inf),
    ("new_zeros", N, [2]),
    ("new_ones", X, [2], {"dtype": {"dtype": "bool"}}),
    ("new_full", X, [2], 3),
    ("eye", 3),
    ("eye.m", 3, 4),
    ("scalar_tensor", 3),
    ("one_hot", np.abs(N), 10),
    ("to.dtype", N, FLOAT),
    ("to.dtype", X, LONG),
    ("to.dtype", N, {"dtype": "bool"}),
    ("_to_copy", N, {"dtype": FLOAT}),
    ("type_as", N, X),
    ("clone", X),
    ("dropout", X, 0.5, False),
    # Multiplied, normalised, convolved, scaled.
    ("matmul", X, X.swapaxes(1, 2)),
    ("mm", X[0], X[1].T),
    ("bmm", X, X.swapaxes(1, 2)),
    ("mv", X[0], ROW),
    ("dot", ROW, ROW),
    ("outer", ROW, ROW),
    ("addmm", X[0, :, :4], X[0], X[1].T, {"beta": 2, "alpha": 0.5}),
    ("baddbmm", X[:, :, :4], X, X.swapaxes(1, 2), {"beta": 2}),
    ("linear", X, X[0], ROW[:4]),
    ("linear", X, X[0]),
    ("bilinear", X, X, R.normal(size=(2, 5, 5)), ROW[:2]),
    ("einsum", "bij,bkj->bik", [X, P]),
    ("layer_norm", X, [5], ROW, ROW),
    ("layer_norm", X, [4, 5]),
    ("rms_norm", X, [5], ROW, 1e-6),
    ("rms_norm", X, [5]),
    ("group_norm", IMAGE.reshape(2, 6, 4, 6), 3, None, None, 1e-3),
    ("group_norm", IMAGE, 3, ROW[:3], ROW[:3]),
    ("batch_norm", IMAGE, ROW[:3], ROW[:3], ROW[:3], P[0, 0, :3], False, 0.1, 1e-5, True),
    ("conv1d", X, R.normal(size=(6, 4, 3)), None, [2], [1]),
    ("conv2d", IMAGE, R.normal(size=(3, 1, 2, 3)), ROW[:3], [1, 2], [1, 0], [2, 1], 3),
    ("conv2d.padding", IMAGE, R.normal(size=(2, 3, 2, 3)), None, [1, 1], "same"),
    ("conv2d", IMAGE[0], R.normal(size=(2, 3, 2, 3))),
    ("conv_transpose2d.input", IMAGE, R.normal(size=(3, 2, 3, 3)), None, [2, 1], [1, 0], [1, 0]),
    ("convolution", IMAGE, IMAGE, None, [1, 1], [0, 1], [1, 1], False, [0, 0], 1),
    ("_weight_norm", X, P[:, :1, :1]),
    ("scaled_dot_product_attention", IMAGE, IMAGE, IMAGE, None, 0.0, True),
    ("scaled_dot_product_attention", IMAGE, IMAGE, IMAGE, R.normal(size=(6, 6)) > -1),
    ("scaled_dot_product_attention", IMAGE, IMAGE, IMAGE, R.normal(size=(6, 6)), {"scale": 0.7}),
    ("cosine_similarity", X, P, 1, 1e-8),
    ("upsample_nearest1d", X, [7]),
    ("upsample_nearest2d.vec", IMAGE, None, [2.0, 1.7]),
    ("upsample_nearest2d", IMAGE, [4, 11]),
    ("upsample_bilinear2d.vec", IMAGE, [9, 5], False, None),
    ("upsample_bilinear2d.vec", IMAGE, None, False, [1.6, 2.3]),
    ("upsample_bilinear2d.vec", IMAGE, [9, 5], True, None),
    ("upsample_bicubic2d.vec", IMAGE, [9, 5], False, None),
    ("upsample_bicubic2d.vec", IMAGE, [9, 5], True, None),
    ("upsample_linear1d", X, [8], False),
    ("adaptive_avg_pool2d", IMAGE, [4, 3]),
]  # fmt: skip


def _source(name: str, given: Call, inputs: list[Any]) -> dict[str, Any]:
    def encoded(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            inputs.append(value)
            return {"n": len(inputs) - 1}
        if isinstance(value, list):
            return {"l": [encoded(each) for each in value]}
        return value if isinstance(value, dict) else {"c": value}

    last = given[-1] if given else None
    named = last if isinstance(last, dict) and "dtype" not in (last.keys() & {"dtype"}) else {}
    if isinstance(last, dict) and isinstance(last.get("dtype"), dict):
        named = last
    args = given[:-1] if named else given
    return {
        "dialect": "aten",
        "op": f"aten.{name}" if "." in name else f"aten.{name}.default",
        "args": [encoded(each) for each in args],
        "kwargs": {key: encoded(value) for key, value in named.items()},
    }


def _torch_value(item: Any, inputs: list[Any], at: str) -> Any:
    [(tag, value)] = item.items()
    if tag == "n":
        return torch.from_numpy(np.array(inputs[value]))
    if tag == "l":
        return [_torch_value(each, inputs, at) for each in value]
    if tag == "dtype":
        return getattr(torch, at if value.startswith("float") else value)
    return value


@pytest.mark.parametrize("at", ["float32", "float64"])
@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call[0]))
def test_each_call_is_torchs(call: Call, at: str) -> None:
    name, *given = call
    inputs: list[Any] = []
    source = _source(name, tuple(given), inputs)
    inputs = [x.astype(at) if x.dtype.kind == "f" else x for x in inputs]
    _, word, overload = source["op"].split(".")
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, at))
    try:
        wanted = getattr(getattr(torch.ops.aten, word), overload)(
            *(_torch_value(item, inputs, at) for item in source["args"]),
            **{k: _torch_value(item, inputs, at) for k, item in source["kwargs"].items()},
        )
    finally:
        torch.set_default_dtype(before)
    node = Node("n", "OP", "raw", {}, tuple((f"i{n}", 0) for n in range(len(inputs))), {}, source)
    copies = [x.copy() for x in inputs]
    with np.errstate(all="ignore"):  # as a whole run has it
        found = run_call(node, Run(inputs, {}, {}, dtype=at))
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(inputs, copies, strict=True))
    wanted = wanted if isinstance(wanted, tuple | list) else (wanted,)
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        theirs = theirs.numpy()
        assert ours.dtype == theirs.dtype, name
        assert ours.shape == theirs.shape
        close = 2e-5 if at == "float32" else 1e-12
        assert np.allclose(ours, theirs, rtol=close, atol=close, equal_nan=True)


_OTHERS = (
    "feature_dropout alpha_dropout feature_alpha_dropout _unsafe_view clip fill swapaxes"
    " swapdims mT moveaxis concat unsafe_split unsafe_chunk broadcast_to expand_as view_as"
    " reshape_as native_channel_shuffle detach alias contiguous lift_fresh_copy lift_fresh"
    " resolve_conj resolve_neg positive item _local_scalar_dense _assert_scalar"
    " _assert_tensor_metadata _assert_async sym_constrain_range"
    " sym_constrain_range_for_size empty empty_like new_empty to.device std_mean"
    " view.dtype _log_softmax conv3d conv_transpose1d conv_transpose3d"
    " upsample_trilinear3d upsample_nearest3d adaptive_avg_pool1d adaptive_avg_pool3d"
    " reflection_pad1d reflection_pad3d replication_pad2d replication_pad3d"
)


def test_every_function_is_tried() -> None:
    tried = {str(call[0]) for call in CALLS}
    tried |= {name.partition(".")[0] for name in tried}
    # Names of the same function, or what gives its input back.
    others = set(_OTHERS.split())
    assert sorted(FUNCTIONS.keys() - tried - others) == []


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("aten.rand.default", [{"l": [{"c": 2}]}]),
        ("aten.zeros.default", [{"l": [{"c": 1 << 20}, {"c": 1 << 20}]}]),
        ("aten.gather.default", [{"n": 0}, {"c": 0}, {"c": 1 << 40}]),
        ("aten.add.Tensor", [{"n": 7}, {"c": 1}]),
        ("aten.add.Tensor", [{"n": 0}]),
        ("aten.view.default", [{"n": 0}, {"l": [{"c": 7}]}]),
        ("aten.bernoulli.p", [{"n": 0}, {"c": 0.5}]),
        ("aten.arange.start_step", [{"c": 0}, {"c": 5}, {"c": 0}]),
        ("aten.arange.start_step", [{"c": 0}, {"c": 1e300}, {"c": 1e-300}]),
        ("aten.repeat.default", [{"n": 0}, {"l": [{"c": 1 << 40}]}]),
        ("aten.einsum.default", [{"c": "a->" + "b" * 99}, {"l": [{"n": 0}]}]),
        ("aten.adaptive_avg_pool2d.default", [{"n": 0}, {"l": [{"c": 0}, {"c": 0}]}]),
        ("aten.unfold.default", [{"n": 0}, {"c": 0}, {"c": 9}, {"c": 0}]),
        ("aten.split.Tensor", [{"n": 0}, {"c": 0}]),
        ("aten.sum.dim_IntList", [{"n": 0}, {"l": [{"l": []}]}]),
        ("builtins.eval", [{"c": "1"}]),
        (None, []),
    ],
)
def test_what_it_cannot_run_is_told(op: Any, args: Any) -> None:
    source = {"dialect": "aten", "op": op, "args": args, "kwargs": {}}
    node = Node("n", "OP", "raw", {}, (("x", 0),), {}, source)
    with pytest.raises(NotRunnable):
        run_call(node, Run([np.ones(4)], {}, {}))
