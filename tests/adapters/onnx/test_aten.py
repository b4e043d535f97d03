"""Every aten operation of the writer's table, run by onnxruntime, against torch's own."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("onnxruntime", reason="onnxruntime runs the files here")
torch = pytest.importorskip("torch", reason="torch is the oracle here")

from dlv.adapters.onnx.raw import RULES  # noqa: E402
from dlv.adapters.onnx.writer import save_network  # noqa: E402
from dlv.errors import DlvError, UsageError  # noqa: E402
from dlv.network.graph import Node  # noqa: E402
from tests.onnx_runs import difference, network, node, session, written  # noqa: E402

TOLERANCE = 1e-5
aten = torch.ops.aten
f32, f64, i64, i32, b8 = torch.float32, torch.float64, torch.int64, torch.int32, torch.bool
INF = float("inf")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def x(*shape: int, seed: int = 0, dtype: Any = f32, scale: float = 2.0) -> Any:
    numbers = np.random.default_rng(seed + sum(shape)).standard_normal(shape) * scale
    return torch.from_numpy(np.asarray(numbers)).to(dtype)


def positive(*shape: int, seed: int = 0) -> Any:
    return x(*shape, seed=seed).abs() + 0.1


def encoded(item: Any, tensors: list[Any]) -> Any:
    if isinstance(item, torch.Tensor):
        tensors.append(item)
        return {"n": len(tensors) - 1}
    if isinstance(item, (list, tuple)):
        return {"l": [encoded(each, tensors) for each in item]}
    if isinstance(item, torch.dtype):
        return {"dtype": str(item).removeprefix("torch.")}
    if isinstance(item, float) and not np.isfinite(item):
        return {"c": "NaN" if np.isnan(item) else "Infinity" if item > 0 else "-Infinity"}
    return {"c": item}


def check(op: str, *args: Any, free: bool = False, **kwargs: Any) -> None:
    """The call, recorded and exported, gives what torch gives; `free`: all axes are symbols."""
    tensors: list[Any] = []
    given_args = [encoded(item, tensors) for item in args]
    given = {name: encoded(item, tensors) for name, item in kwargs.items()}
    source = {"dialect": "aten", "op": f"aten.{op}", "args": given_args, "kwargs": given}
    packet, _, overload = op.partition(".")
    found = getattr(getattr(aten, packet), overload)(*args, **kwargs)
    wanted = list(found) if isinstance(found, (tuple, list)) else [found]
    shapes = {
        f"t{place}": (
            str(each.dtype).removeprefix("torch."),
            tuple(f"S{place}_{axis}" for axis in range(each.dim())) if free else tuple(each.shape),
        )
        for place, each in enumerate(tensors)
    }
    call = Node("n", "OP", "raw", {}, tuple((name, 0) for name in shapes), {}, source)
    nodes = [call]
    if isinstance(found, (tuple, list)):
        nodes += [
            node("RESHAPE", ["n"], name=f"n{port}", kind="getitem", index=port)
            for port in range(len(wanted))
        ]
    ends = [each.name for each in nodes[1:]] or ["n"]
    data, _ = written(network(nodes, shapes, *ends), {})
    ran = session(data)
    ours = ran.run(None, {f"t{place}": each.numpy() for place, each in enumerate(tensors)})
    for here, there, told in zip(ours, wanted, ran.get_outputs(), strict=True):
        assert difference(here, there.numpy()) <= TOLERANCE
        assert len(told.shape) == there.dim()
        for said, length in zip(told.shape, there.shape, strict=True):
            assert not isinstance(said, int) or said == length


A, B = x(2, 3, 4), x(2, 3, 4, seed=1)
WHOLE = torch.tensor([[-7, 5, 3], [4, -2, 9]])
BY = torch.tensor([[2, -3, 4], [-5, 3, 2]])
YES, NO = A > 0, B > 0.5
IMAGE = x(2, 4, 5, 6)
ODD = torch.tensor([1.0, float("nan"), INF, -INF, -2.0])

ELEMENTWISE: list[tuple[Any, ...]] = [
    *[
        (f"{name}.default", A)
        for name in (
            "neg",
            "abs",
            "sign",
            "exp",
            "erf",
            "sin",
            "cos",
            "tan",
            "atan",
            "sinh",
            "cosh",
            "asinh",
            "sigmoid",
            "tanh",
            "relu",
            "floor",
            "ceil",
            "round",
            "trunc",
            "reciprocal",
            "square",
            "exp2",
            "expm1",
            "isnan",
            "isinf",
            "logical_not",
            "silu",
            "hardswish",
            "hardsigmoid",
            "selu",
            "mish",
            "relu6",
            "log_sigmoid",
            "clone",
            "alias",
            "detach",
            "contiguous",
            "positive",
            "celu",
            "softshrink",
            "hardshrink",
            "lift_fresh_copy",
            "hardtanh",
        )
    ],
    *[
        (f"{name}.default", positive(3, 4))
        for name in ("sqrt", "rsqrt", "log", "log2", "log10", "log1p")
    ],
    *[(f"{name}.default", torch.tanh(A)) for name in ("asin", "acos", "atanh")],
    ("acosh.default", positive(3, 4) + 1),
    *[
        (f"{name}.default", WHOLE)
        for name in (
            "sqrt",
            "exp",
            "neg",
            "abs",
            "floor",
            "trunc",
            "square",
            "isnan",
            "logical_not",
            "bitwise_not",
            "sign",
            "sigmoid",
        )
    ],
    ("bitwise_not.default", YES),
    ("isfinite.default", ODD),
    ("isnan.default", ODD),
    ("isinf.default", ODD),
    ("nan_to_num.default", ODD),
    ("nan_to_num.default", ODD, 1.0, 2.0, -3.0),
    ("nan_to_num.default", WHOLE),
    ("elu.default", A, 0.7),
    ("elu.default", A, 0.7, 1.5, 0.4),
    ("celu.default", A, 0.4),
    ("leaky_relu.default", A, 0.3),
    ("hardtanh.default", A, -0.5, 0.8),
    ("softplus.default", A * 9),
    ("softplus.default", A, 2, 3),
    ("softshrink.default", A, 0.8),
    ("hardshrink.default", A, 0.8),
    ("threshold.default", A, 0.3, -5.0),
    ("gelu.default", A),
    ("prelu.default", A, x(3).abs()),
    ("prelu.default", A, x(1)),
    ("prelu.default", x(5, 3), x(3)),
    ("_prelu_kernel.default", IMAGE, x(1, 4, 1, 1)),
    ("glu.default", A, 2),
    ("glu.default", x(2, 6), 1),
    ("add.Tensor", A, B),
    ("add.Tensor", WHOLE, BY),
    ("add.Tensor", YES, NO),
    ("add.Scalar", WHOLE, 3),
    ("sub.Tensor", A, B),
    ("sub.Scalar", A, 2),
    ("rsub.Scalar", A, 2),
    ("rsub.Tensor", A, B),
    ("rsub.Scalar", WHOLE, 3, 2),
    ("mul.Tensor", A, WHOLE[:1, :1]),
    ("mul.Tensor", YES, NO),
    ("mul.Scalar", WHOLE, 0.5),
    ("div.Tensor", A, B),
    ("div.Tensor", WHOLE, BY),
    ("div.Scalar", WHOLE, 2),
    ("floor_divide.default", WHOLE, BY),
    ("floor_divide.default", A, B),
    ("remainder.Tensor", WHOLE, BY),
    ("remainder.Tensor", A, B),
    ("remainder.Scalar", A, 0.7),
    ("fmod.Tensor", WHOLE, BY),
    ("fmod.Tensor", A, B),
    ("pow.Tensor_Scalar", A, 2),
    ("pow.Tensor_Scalar", positive(3, 4), 0.3),
    ("pow.Tensor_Scalar", WHOLE, 3),
    ("pow.Scalar", 2.5, A),
    ("pow.Tensor_Tensor", positive(2, 3, 4), B),
    ("maximum.default", A, B),
    ("minimum.default", WHOLE, BY),
    ("max.other", A, B),
    ("min.other", A, B),
    ("clamp.default", A, -0.3, 0.6),
    ("clamp.default", A, None, 0.6),
    ("clamp.default", A, 0.1),
    ("clamp.default", WHOLE, 0, 4),
    ("clamp.Tensor", A, B - 1, B + 1),
    ("clamp_min.default", A, 0.5),
    ("clamp_max.default", WHOLE, 3),
    ("where.self", YES, A, B),
    ("where.self", YES, A, x(1)),
    ("where.ScalarOther", YES, A, 0.5),
    ("where.ScalarSelf", YES, 1.5, A),
    ("where.Scalar", YES, 1.0, 0.0),
    ("where.self", YES, NO, YES),
    ("masked_fill.Scalar", A, YES, -INF),
    ("masked_fill.Scalar", WHOLE, WHOLE > 3, 0),
    ("masked_fill.Tensor", A, YES, torch.tensor(2.0)),
    ("addcmul.default", A, A, B),
    ("addcdiv.default", A, A, B),
    ("lerp.Scalar", A, B, 0.3),
    ("lerp.Tensor", A, B, torch.sigmoid(A)),
    *[(f"{name}.Tensor", A, B) for name in ("eq", "ne", "lt", "le", "gt", "ge")],
    *[(f"{name}.Scalar", WHOLE, 3) for name in ("eq", "ne", "lt", "le", "gt", "ge")],
    ("lt.Tensor", YES, NO),
    ("eq.Tensor", YES, NO),
    *[(f"logical_{name}.default", A > 0, WHOLE[:1, :1] > 0) for name in ("and", "or", "xor")],
    *[(f"bitwise_{name}.Tensor", YES, NO) for name in ("and", "or", "xor")],
    *[(f"bitwise_{name}.Tensor", WHOLE, BY) for name in ("and", "or", "xor")],
    *[(f"__{name}__.Tensor", YES, NO) for name in ("and", "or", "xor")],
    ("to.dtype", A, i64),
    ("to.dtype", WHOLE, f32),
    ("to.dtype", A, b8),
    ("type_as.default", A, WHOLE),
    ("dropout.default", A, 0.5, False),
    ("feature_dropout.default", A, 0.5, False),
    ("alpha_dropout.default", A, 0.5, False),
    ("feature_alpha_dropout.default", A, 0.5, False),
]
WITH_WORDS: list[tuple[Any, ...]] = [
    ("add.Tensor", {"alpha": 3}, A, B),
    ("sub.Tensor", {"alpha": 0.5}, A, B),
    ("div.Tensor_mode", {"rounding_mode": "floor"}, A, B),
    ("div.Tensor_mode", {"rounding_mode": "trunc"}, A, B),
    ("div.Tensor_mode", {"rounding_mode": "floor"}, WHOLE, BY),
    ("div.Tensor_mode", {"rounding_mode": "trunc"}, WHOLE, BY),
    ("div.Tensor_mode", {"rounding_mode": None}, WHOLE, BY),
    ("addcmul.default", {"value": 0.5}, A, A, B),
    ("addcdiv.default", {"value": 0.5}, A, A, B),
    ("meshgrid.indexing", {"indexing": "ij"}, [x(3), x(2), x(4)]),
    ("meshgrid.indexing", {"indexing": "xy"}, [x(3), x(2)]),
    ("gelu.default", {"approximate": "tanh"}, A),
    ("_to_copy.default", {"dtype": f64}, A),
    ("to.dtype_layout", {"dtype": f64}, A),
    ("sum.dim_IntList", {"dtype": f64}, A, [1], True),
    ("var.correction", {"correction": 0}, A, [1, 2]),
    ("var.correction", {"correction": 2, "keepdim": True}, A, [0]),
    ("std.correction", {}, A, [2]),
    ("var_mean.correction", {"correction": 1}, A, [1]),
    ("std_mean.correction", {"correction": 0, "keepdim": True}, A, [1]),
    ("addmm.default", {"beta": 0.5, "alpha": 2}, x(4), x(3, 2), x(2, 4)),
    ("baddbmm.default", {"beta": 2, "alpha": 0.5}, x(2, 3, 5), x(2, 3, 4), x(2, 4, 5)),
    ("scaled_dot_product_attention.default", {"scale": 0.3}, A, A, B),
    ("arange.default", {"dtype": f32}, 5),
    ("full.default", {"dtype": i32}, [2, 3], 4),
    ("zeros.default", {"dtype": i64}, [2]),
    ("ones_like.default", {"dtype": b8}, A),
    ("scalar_tensor.default", {"dtype": f64}, 2.5),
    ("sort.stable", {"stable": True, "dim": 1, "descending": True}, A),
    ("topk.default", {"largest": False}, A, 2, 1),
]
REDUCTIONS: list[tuple[Any, ...]] = [
    ("sum.default", A),
    ("sum.default", WHOLE),
    ("sum.default", YES),
    ("sum.dim_IntList", A, [0, 2]),
    ("sum.dim_IntList", WHOLE, [1], True),
    ("prod.default", A),
    ("prod.dim_int", A, 1, True),
    ("mean.default", A),
    ("mean.dim", A, [-1]),
    ("mean.dim", A, [], True),
    ("amax.default", A, [1]),
    ("amin.default", WHOLE, [0], True),
    ("amax.default", A),
    ("max.default", A),
    ("min.default", WHOLE),
    ("max.dim", A, 1),
    ("min.dim", A, -1, True),
    ("argmax.default", A, 1),
    ("argmax.default", A),
    ("argmin.default", A, -1, True),
    ("argmin.default", A, None, True),
    ("any.default", YES),
    ("any.dim", YES, 1),
    ("all.default", YES),
    ("all.dim", A, 2, True),
    ("logsumexp.default", A, [1, 2]),
    ("logsumexp.default", A, [1], True),
    ("var.default", A),
    ("var.default", A, False),
    ("std.default", A),
    ("var.dim", A, [1]),
    ("std.dim", A, [1, 2], False, True),
    ("var_mean.default", A),
    ("linalg_vector_norm.default", A),
    ("linalg_vector_norm.default", A, 1, [1], True),
    ("linalg_vector_norm.default", A, INF, [2]),
    ("linalg_vector_norm.default", A, -INF, [2]),
    ("linalg_vector_norm.default", A, 3, [0]),
    ("_weight_norm.default", A, positive(1, 1, 4), 2),
    ("_weight_norm.default", A, positive(2, 1, 1)),
    ("norm.ScalarOpt_dim", A, 2, [1], True),
    ("norm.Scalar", A),
    ("cumsum.default", A, 1),
    ("cumsum.default", WHOLE, -1),
    ("cumsum.default", YES, 0),
    ("topk.default", A, 2),
    ("sort.default", A, 1, True),
    ("argsort.default", A, 2),
    ("softmax.int", A, 1),
    ("_softmax.default", A, -1, False),
    ("log_softmax.int", A, 1),
    ("_log_softmax.default", A, 0, False),
    ("_safe_softmax.default", A, -1),
    ("softmax.int", WHOLE, 1, f32),
    ("cosine_similarity.default", A, B),
    ("cosine_similarity.default", A, B, 2, 0.1),
]
SHAPES: list[tuple[Any, ...]] = [
    ("view.default", A, [6, 4]),
    ("reshape.default", A, [-1, 2]),
    ("_unsafe_view.default", A, [24]),
    ("view_as.default", A, x(4, 3, 2)),
    ("reshape_as.default", A, x(6, 4)),
    ("unflatten.int", x(6, 4), 0, [2, -1]),
    ("flatten.using_ints", A),
    ("flatten.using_ints", A, 1, 2),
    ("flatten.using_ints", IMAGE, 1, 2),
    ("transpose.int", A, 0, -1),
    ("t.default", x(3, 4)),
    ("t.default", x(3)),
    ("mT.default", A),
    ("permute.default", A, [2, 0, -2]),
    ("movedim.int", A, 0, 2),
    ("movedim.intlist", IMAGE, [0, 1], [-1, 0]),
    ("squeeze.default", x(2, 1, 3)),
    ("squeeze.dim", x(2, 1, 3), 1),
    ("squeeze.dims", x(1, 2, 1), [0, 1]),
    ("unsqueeze.default", A, -1),
    ("select.int", A, 1, -1),
    ("slice.Tensor", A, 1, 1, None),
    ("slice.Tensor", A, 2, 0, 3, 2),
    ("slice.Tensor", A, 2, -3, -1),
    ("narrow.default", A, 2, 1, 2),
    ("narrow.default", A, 2, -2, 2),
    ("expand.default", x(3, 1), [2, 3, 4]),
    ("expand.default", x(3, 1), [-1, 5]),
    ("expand_as.default", x(3, 1), A),
    ("broadcast_to.default", x(4), [2, 3, 4]),
    ("cat.default", [A, B], 1),
    ("cat.default", [A, WHOLE[:, :, None].expand(2, 3, 4)], -1),
    ("cat.default", [x(0), x(3)]),
    ("stack.default", [A, B], -1),
    ("stack.default", [A, B]),
    ("diff.default", A),
    ("diff.default", A, 2, 1),
    ("diff.default", A, 1, 1, x(2, 1, 4), x(2, 2, 4)),
    ("diff.default", YES, 1, 0),
    ("repeat.default", A, [2, 1, 3, 2]),
    ("tile.default", A, [2]),
    ("repeat_interleave.self_int", A, 2, 1),
    ("repeat_interleave.self_int", A, 3),
    ("flip.default", A, [0, -1]),
    ("roll.default", A, [1], [-1]),
    ("roll.default", A, [2, -1], [0, 1]),
    ("roll.default", A, [5]),
    ("roll.default", A, [-9], [2]),
    ("gather.default", A, 1, torch.tensor([[[0, 1, 2, 0]], [[2, 2, 1, 0]]])),
    ("take_along_dim.default", A, torch.zeros(2, 3, 4, dtype=i64), 1),
    ("index_select.default", A, 1, torch.tensor([2, 0, 2])),
    ("index_select.default", A, -1, torch.tensor([1])),
    ("index.Tensor", A, [torch.tensor([1, 0, 1])]),
    ("index.Tensor", A, [None, torch.tensor([[1, 0], [2, 2]])]),
    ("index.Tensor", A, [torch.tensor([1, 0]), torch.tensor([2, 1])]),
    ("index.Tensor", A, [None, torch.tensor([2, 1]), torch.tensor([[3, 0], [1, 1]])]),
    ("scatter.src", A, 1, torch.tensor([[[0, 1, 2, 0]], [[2, 2, 1, 0]]]), x(2, 1, 4)),
    ("tril.default", A),
    ("triu.default", x(4, 4), 1),
    ("tril.default", YES, -1),
    ("triu.default", WHOLE, -1),
    ("constant_pad_nd.default", A, [1, 2], 0.5),
    ("constant_pad_nd.default", A, [1, 2, 0, 3]),
    ("constant_pad_nd.default", A, [-1, 0, 2, -1], 1.0),
    ("pad.default", A, [1, 1], "constant", 2.0),
    ("pad.default", IMAGE, [1, 2, 2, 1], "reflect"),
    ("pad.default", IMAGE, [1, 2, 2, 1], "replicate"),
    ("pad.default", IMAGE, [1, 2, 2, 1], "circular"),
    ("reflection_pad1d.default", A, [2, 1]),
    ("reflection_pad2d.default", IMAGE, [2, 1, 0, 1]),
    ("replication_pad2d.default", IMAGE, [2, 1, 0, 1]),
    ("zeros_like.default", A),
    ("ones_like.default", WHOLE),
    ("full_like.default", A, 3),
    ("new_zeros.default", WHOLE, [2]),
    ("new_ones.default", A, [2, 2]),
    ("new_full.default", A, [3], 2.5),
    ("outer.default", x(3), x(4)),
]
FIXED: list[tuple[Any, ...]] = [
    ("split.Tensor", A, 2, 1),
    ("split.Tensor", x(7, 2), 3),
    ("split_with_sizes.default", A, [1, 3], 2),
    ("chunk.default", A, 2, 2),
    ("chunk.default", x(7), 3),
    ("unbind.int", A, 1),
    ("unfold.default", A, 1, 2, 1),
    ("unfold.default", A, -1, 3, 2),
    ("im2col.default", IMAGE, [3, 2], [1, 2], [1, 0], [2, 1]),
    ("im2col.default", IMAGE[0], [2, 2], [1, 1], [0, 2], [1, 3]),
    ("pixel_shuffle.default", IMAGE, 2),
    ("meshgrid.default", [x(3), x(2), x(4)]),
    ("one_hot.default", torch.tensor([[0, 3], [2, 1]]), 5),
    ("arange.default", 7),
    ("arange.default", 2.5),
    ("arange.start", 2, 9),
    ("arange.start_step", 1, 10, 3),
    ("arange.start_step", 0.5, 3.0, 0.25),
    ("arange.start_step", 9, 1, -2),
    ("linspace.default", 0, 1, 5),
    ("linspace.default", -2.5, 7, 1),
    ("eye.default", 3),
    ("eye.m", 3, 2),
    ("full.default", [2, 3], 1.5),
    ("full.default", [2], True),
    ("full.default", [], 3),
    ("zeros.default", [2, 3]),
    ("ones.default", [2, 3]),
    ("scalar_tensor.default", 2),
]
LAYERS: list[tuple[Any, ...]] = [
    ("matmul.default", A, x(4, 5)),
    ("matmul.default", A, x(4)),
    ("matmul.default", x(4), x(4)),
    ("matmul.default", x(2, 1, 3, 4), x(5, 4, 2)),
    ("mm.default", x(3, 4), x(4, 2)),
    ("bmm.default", A, x(2, 4, 3)),
    ("mv.default", x(3, 4), x(4)),
    ("dot.default", x(4), x(4, seed=1)),
    ("addmm.default", x(2), x(3, 4), x(4, 2)),
    ("baddbmm.default", x(1, 3, 5), x(2, 3, 4), x(2, 4, 5)),
    ("linear.default", A, x(5, 4), x(5)),
    ("linear.default", A, x(5, 4)),
    ("einsum.default", "bij,bjk->bik", [A, x(2, 4, 5)]),
    ("einsum.default", "bhd,bsd->bhs", [A, x(2, 5, 4)]),
    ("bilinear.default", x(3, 4), x(3, 5), x(2, 4, 5), x(2)),
    ("bilinear.default", x(2, 3, 4), x(2, 3, 5), x(2, 4, 5)),
    ("conv1d.default", A, x(5, 3, 2), x(5), [2], [1], [1]),
    ("conv2d.default", IMAGE, x(6, 2, 3, 3), None, [1, 2], [1, 0], [1, 1], 2),
    ("conv2d.padding", IMAGE, x(6, 4, 3, 3), None, [1, 1], "same", [2, 1]),
    ("conv2d.padding", IMAGE, x(6, 4, 2, 4), None, [1, 1], "same"),
    ("conv2d.padding", IMAGE, x(6, 4, 3, 3), None, [2, 1], "valid"),
    ("conv3d.default", x(1, 2, 4, 4, 4), x(3, 2, 2, 2, 2)),
    ("conv_transpose1d.default", A, x(3, 2, 3), x(2), [2], [1], [1]),
    ("conv_transpose2d.input", IMAGE, x(4, 3, 3, 3), None, [2, 1], [1, 0], [1, 0], 2, [1, 2]),
    ("convolution.default", IMAGE, x(6, 4, 3, 3), x(6), [1], [1], [1], False, [0], 1),
    ("convolution.default", IMAGE, x(4, 6, 3, 3), x(6), [2], [1], [1], True, [1], 1),
    ("embedding.default", x(5, 3), torch.tensor([[0, 4], [2, 2]])),
    ("embedding.default", x(5, 3), torch.tensor([1, 0]), 0),
    ("scaled_dot_product_attention.default", A, A, B),
    ("scaled_dot_product_attention.default", A, B, A, None, 0.0, True),
    ("scaled_dot_product_attention.default", A, B, A, x(3, 3)),
    ("layer_norm.default", A, [4], x(4), x(4)),
    ("layer_norm.default", A, [3, 4], None, None, 0.1),
    ("batch_norm.default", A, x(3), x(3), x(3), positive(3), False, 0.1, 1e-3, False),
    ("batch_norm.default", A, None, None, x(3), positive(3), False, 0.1, 1e-3, False),
    ("batch_norm.default", A, x(3), None, None, None, True, 0.1, 1e-3, False),
    ("upsample_nearest1d.default", A, [7]),
    ("upsample_nearest1d.vec", A, None, [2.0]),
    ("upsample_nearest2d.vec", IMAGE, None, [2.0, 3.0]),
    ("upsample_nearest2d.vec", IMAGE, [7, 9], None),
    ("upsample_nearest2d.default", IMAGE, [10, 12], 2.0, 2.0),
    ("upsample_nearest2d.vec", IMAGE, None, [0.6, 1.7]),
    ("upsample_nearest3d.vec", x(1, 2, 3, 2, 2), None, [2.0, 2.0, 2.0]),
    ("_upsample_nearest_exact2d.vec", IMAGE, [7, 9], None),
    ("upsample_linear1d.vec", A, [7], False, None),
    ("upsample_linear1d.vec", A, [7], True, None),
    ("upsample_bilinear2d.vec", IMAGE, None, False, [2.0, 2.0]),
    ("upsample_bilinear2d.vec", IMAGE, None, True, [2.0, 2.0]),
    ("upsample_bilinear2d.vec", IMAGE, [3, 11], False, None),
    ("upsample_bilinear2d.vec", IMAGE, [3, 11], True, None),
    ("upsample_bilinear2d.default", IMAGE, [10, 12], False, 2.0, 2.0),
    ("upsample_bilinear2d.vec", IMAGE, None, False, [1.7, 0.6]),
    ("upsample_trilinear3d.vec", x(1, 2, 3, 2, 2), [5, 3, 4], False, None),
    ("upsample_bicubic2d.vec", IMAGE, [7, 9], False, None),
    ("upsample_bicubic2d.vec", IMAGE, [7, 9], True, None),
    ("grid_sampler.default", IMAGE, torch.tanh(x(2, 3, 4, 2)), 0, 0, False),
    ("grid_sampler.default", IMAGE, x(2, 3, 4, 2) * 0.7, 1, 1, True),
]
ALL = [*ELEMENTWISE, *REDUCTIONS, *SHAPES, *LAYERS]


def title(case: tuple[Any, ...]) -> str:
    return str(case[0])


@pytest.mark.parametrize("case", [*ALL, *FIXED], ids=title)
def test_calls(case: tuple[Any, ...]) -> None:
    check(*case)


@pytest.mark.parametrize("case", WITH_WORDS, ids=title)
def test_calls_with_named_arguments(case: tuple[Any, ...]) -> None:
    op, words, *args = case
    check(op, *args, **words)


# What needs a length that is not there: how often, how many parts, which axes are 1.
NEEDS = {"squeeze", "glu", "convolution", "conv2d", "conv_transpose2d", "prelu"}


def possible(case: tuple[Any, ...]) -> bool:
    """Whether the rank of the result does not hang on a length."""
    name = case[0].partition(".")[0]
    return name != "cat" and not (name in NEEDS and len(case) < 4)


@pytest.mark.parametrize("case", [case for case in ALL if possible(case)], ids=title)
def test_calls_over_axes_of_any_length(case: tuple[Any, ...]) -> None:
    name = case[0].partition(".")[0]
    # Refused, or right.
    with contextlib.suppress(UsageError) if name in NEEDS else contextlib.nullcontext():
        check(*case, free=True)


def test_every_rule_is_tried() -> None:
    tried = {case[0] for case in [*ALL, *FIXED, *WITH_WORDS]}
    names = {name.partition(".")[0] for name in tried} | tried
    # Other spellings of what is tried, and what torch has under another word here.
    spelled = {
        *("subtract", "multiply", "true_divide", "divide", "fix", "fmax", "fmin", "clip", "sgn"),
        *("concat", "concatenate", "_stack", "swapaxes", "swapdims", "numpy_T", "adjoint", "ger"),
        *("linalg_matmul", "native_layer_norm", "_reshape_alias", "special_softmax", "to_dtype"),
        *("lift_fresh", "detach_", "log_sigmoid_forward", "grid_sampler_2d", "grid_sampler_3d"),
        *("empty", "empty_like", "new_empty", "split_copy", "_unsafe_index.Tensor"),
        *("_native_batch_norm_legit_no_training", "native_dropout", "conv_transpose3d"),
        *("replication_pad1d", "replication_pad3d", "reflection_pad3d"),
        *("_upsample_nearest_exact1d", "_upsample_nearest_exact3d"),
        *("bernoulli", "rand", "randn", "rand_like", "randn_like", "randint", "multinomial"),
    }
    assert set(RULES) - names - spelled == set()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_arithmetic_of_random_shapes_and_dtypes(data: st.DataObject) -> None:
    draw = data.draw
    base = draw(st.lists(st.integers(1, 3), max_size=4))
    shapes = []
    for _ in range(2):
        shape = [draw(st.sampled_from((n, 1))) for n in base]
        shapes.append(shape[draw(st.integers(0, len(shape))) :])
    dtypes = [draw(st.sampled_from((f32, f64, i64, i32, b8))) for _ in range(2)]
    one, two = (
        x(*shape, dtype=dtype, seed=place, scale=4)
        for place, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    )
    names = ["add", "mul", "eq", "lt", "ge"]
    names += ["sub"] if b8 not in dtypes else []
    op = draw(st.sampled_from(names))
    check(f"{op}.Tensor", one, two, free=draw(st.booleans()))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_numbers_beside_tensors(data: st.DataObject) -> None:
    draw = data.draw
    tensor = x(2, 3, dtype=draw(st.sampled_from((f32, f64, i64, i32, b8))), scale=4)
    plain = draw(st.integers(-3, 3) | st.floats(-3, 3, width=16) | st.booleans())
    names = ["add", "mul", "eq", "le"]
    names += [] if tensor.dtype == b8 or isinstance(plain, bool) else ["sub", "rsub"]
    check(f"{draw(st.sampled_from(names))}.Scalar", tensor, plain)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_cuts_and_rolls(data: st.DataObject) -> None:
    draw = data.draw
    tensor, axis = x(3, 5, 4), draw(st.integers(-3, 2))
    bound = st.none() | st.integers(-7, 7)
    free = draw(st.booleans())
    check(
        "slice.Tensor", tensor, axis, draw(bound), draw(bound), draw(st.integers(1, 3)), free=free
    )
    check("roll.default", tensor, [draw(st.integers(-12, 12))], [axis], free=free)


@pytest.mark.parametrize(
    ("op", "why"),
    [
        ("aten.fft_fft.default", "no counterpart"),
        ("aten.relu_.default", "in place"),
        ("aten.rand_like.default", "draws random numbers"),
        ("aten.gelu.default", "with these arguments"),
    ],
)
def test_what_has_no_counterpart_is_named(op: str, why: str) -> None:
    args = [{"n": 0}] * (1 if "gelu" not in op else 5)
    source = {"dialect": "aten", "op": op, "args": args, "kwargs": {}}
    call = Node("block.odd", "OP", "raw", {}, (("x", 0),), {}, source, (2, 3))
    with pytest.raises(UsageError) as caught:
        written(network([call], {"x": (2, 3)}), {})
    assert "'block.odd'" in caught.value.message
    assert why in caught.value.message
    assert caught.value.hint or caught.value.why


def test_a_mask_as_index_is_refused() -> None:
    args = [{"n": 0}, {"l": [{"n": 1}]}]
    source = {"dialect": "aten", "op": "aten.index.Tensor", "args": args, "kwargs": {}}
    call = Node("n", "OP", "raw", {}, (("x", 0), ("m", 0)), {}, source, (None,))
    with pytest.raises(UsageError, match="mask"):
        written(network([call], {"x": (2, 3), "m": ("bool", (2,))}), {})


ARGUMENTS = st.recursive(
    st.sampled_from(
        (
            {"n": 0},
            {"n": 1},
            {"n": 7},
            {"p": "nothing"},
            {"dtype": "float32"},
            {"dtype": "odd"},
            {"device": "cpu"},
            {"odd": 1},
        )
    )
    | st.builds(
        lambda item: {"c": item},
        st.none()
        | st.booleans()
        | st.sampled_from((0, 1, 2, -1, 3, 10**18, 2**63, 0.5, "NaN", "", "mean", "ij,jk->ik")),
    ),
    lambda inner: st.builds(lambda items: {"l": items}, st.lists(inner, max_size=4)),
    max_leaves=6,
)
WORDS = ("dim", "keepdim", "dtype", "alpha", "correction", "rounding_mode", "value", "odd")


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(sorted(RULES)),
    st.lists(ARGUMENTS, max_size=5),
    st.dictionaries(st.sampled_from(WORDS), ARGUMENTS, max_size=2),
    st.sampled_from(((2, 3), ("B", 3), (), ("B", "T", 4), (2, 4, 5, 6))),
)
@example("batch_norm", [{"l": []}, {"l": []}, {"n": 0}, {"l": []}, {"n": 0}], {}, (2, 3))
def test_calls_that_nobody_recorded_end_in_a_word(
    name: str, args: list[Any], kwargs: dict[str, Any], shape: Any
) -> None:
    op = name if "." in name else f"{name}.default"
    source = {"dialect": "aten", "op": f"aten.{op}", "args": args, "kwargs": kwargs}
    call = Node("n", "OP", "raw", {}, (("x", 0), ("i", 0)), {}, source, (2, 3))
    made = network([call], {"x": shape, "i": ("int64", (2,))})
    with contextlib.suppress(DlvError):
        save_network(io.BytesIO(), made, [], [])
