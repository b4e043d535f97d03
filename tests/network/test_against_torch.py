"""Shapes, parameter shapes and costs against torch's meta device, which computes none of ours."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dlv.network.graph import Node
from dlv.network.inference import attribute_faults
from dlv.network.ops.op import op_of
from dlv.network.sizes import ShapeError
from dlv.network.vocabulary import complete

torch = pytest.importorskip("torch", reason="torch is the oracle here: pip install 'dlv[torch]'")
flop_counter = pytest.importorskip("torch.utils.flop_counter")

CASES = settings(max_examples=80, deadline=None)
SMALL = st.integers(1, 4)


def empty(*shape: int, dtype: Any = None) -> Any:
    return torch.empty(shape, device="meta", dtype=dtype)


def make(op: str, attrs: dict[str, Any], variant: str | None = None, params: Any = ()) -> Node:
    names = {slot: slot for slot in params}
    return Node("n", op, variant, complete(op, variant, attrs, params=names), (), names)


def parameters(module: Any) -> dict[str, tuple[int, ...]]:
    state = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    state.pop("num_batches_tracked", None)
    return state


def ours(node: Node, *inputs: Any) -> Any:
    """Our output shapes; None where we refuse."""
    if attribute_faults(node):
        return None
    try:
        return op_of(node).shape(node, [tuple(each.shape) for each in inputs])
    except ShapeError:
        return None


def check(node: Node, run: Any, *inputs: Any, module: Any = None) -> None:
    """Torch and we agree: on refusing, or on shapes, parameters and multiply-adds."""
    counter = flop_counter.FlopCounterMode(display=False)
    try:
        with counter:
            result = run(*inputs)
    except (RuntimeError, IndexError, ValueError):
        assert ours(node, *inputs) is None
        return
    results = result if isinstance(result, tuple | list) else (result,)
    wanted = tuple(tuple(each.shape) for each in results)
    found = ours(node, *inputs)
    assert found is not None, attribute_faults(node)
    assert found[: len(wanted)] == wanted
    shapes = [tuple(each.shape) for each in inputs]
    if module is not None:
        assert dict(op_of(node).parameter_shapes(node, shapes)) == parameters(module)
    if node.op in ("CONV", "DECONV", "FULL", "ATTENTION"):
        assert op_of(node).flops(node, shapes, found) == counter.get_total_flops()


@CASES
@given(st.data())
def test_convolutions(data: st.DataObject) -> None:
    draw = data.draw
    axes, groups, back = draw(st.integers(1, 3)), draw(SMALL), draw(st.booleans())
    each = st.tuples(*[SMALL] * axes)
    kernel, stride, dilation = draw(each), draw(each), draw(each)
    pad = tuple(p - 1 for p in draw(each))
    out, depth = draw(SMALL) * groups, draw(SMALL) * groups
    lengths = draw(st.tuples(*[st.integers(1, 9)] * axes))
    bias, wrong = draw(st.booleans()), draw(st.sampled_from((0, 0, 0, 1)))
    attrs: dict[str, Any] = {
        "out": out,
        "kernel": kernel,
        "stride": stride,
        "pad": pad,
        "dilation": dilation,
        "groups": groups,
        "bias": bias,
    }
    extra: tuple[tuple[int, ...], ...] = ()
    if back:
        extra = (tuple(p - 1 for p in draw(each)),)
        attrs["output_pad"] = extra[0]
    kind = getattr(torch.nn, f"Conv{'Transpose' if back else ''}{axes}d")
    module = kind(
        depth,
        out,
        kernel,
        stride,
        pad,
        *extra,
        dilation=dilation,
        groups=groups,
        bias=bias,
        device="meta",
    )
    node = make("DECONV" if back else "CONV", attrs, params=parameters(module))
    # The meta device lets pass what every other device refuses.
    limits = zip(extra[0] if extra else (), stride, dilation, strict=False)
    assume(all(e < max(s, d) for e, s, d in limits))
    if back:
        # Where the padding takes everything, torch gives an empty map; we call it a fault.
        sizes = zip(lengths, stride, pad, kernel, dilation, extra[0], strict=True)
        assume(all((n - 1) * s - 2 * p + d * (k - 1) + e >= 0 for n, s, p, k, d, e in sizes))
    # A wrong number of channels is refused by torch for the weights' sake, by us for groups.
    assume(not wrong or (not back and (depth + wrong) % groups))
    check(node, module, empty(2, depth + wrong, *lengths), module=module)


@CASES
@given(st.data())
def test_pools(data: st.DataObject) -> None:
    draw = data.draw
    axes, most = draw(st.integers(1, 3)), draw(st.booleans())
    each = st.tuples(*[SMALL] * axes)
    kernel, stride = draw(each), draw(each)
    pad = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    dilation = draw(each) if most else (1,) * axes
    ceil, lengths = draw(st.booleans()), draw(st.tuples(*[st.integers(1, 12)] * axes))
    # Averages over three axes are refused by torch alone if only the padding makes room.
    assume(most or axes < 3 or all(n >= k for n, k in zip(lengths, kernel, strict=True)))
    attrs = {"kernel": kernel, "stride": stride, "pad": pad, "dilation": dilation, "ceil": ceil}
    node = make("POOL", attrs, "MAX" if most else "AVG")
    if most:
        kind = getattr(torch.nn, f"MaxPool{axes}d")
        module = kind(kernel, stride, pad, dilation, return_indices=True, ceil_mode=ceil)
    else:
        module = getattr(torch.nn, f"AvgPool{axes}d")(kernel, stride, pad, ceil_mode=ceil)
    check(node, module, empty(2, 3, *lengths))


@CASES
@given(st.data())
def test_adaptive_pools(data: st.DataObject) -> None:
    axes = data.draw(st.integers(1, 3))
    size = data.draw(st.tuples(*[st.none() | SMALL] * axes)) if axes > 1 else (data.draw(SMALL),)
    variant = data.draw(st.sampled_from(("MAX", "AVG")))
    kind = getattr(torch.nn, f"Adaptive{variant.title()}Pool{axes}d")
    lengths = data.draw(st.tuples(*[st.integers(1, 9)] * axes))
    check(make("POOL", {"size": size}, variant), kind(size), empty(2, 3, *lengths))


@CASES
@given(st.lists(SMALL, min_size=1, max_size=4), st.data())
def test_means(shape: list[int], data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.integers(-5, 4), min_size=1, max_size=3))
    keep = data.draw(st.booleans())
    assume(len({axis % len(shape) for axis in axes}) == len(axes))
    node = make("POOL", {"axis": axes, "keep": keep}, "MEAN")
    check(node, lambda x: x.mean(axes, keepdim=keep), empty(*shape))
    check(make("POOL", {}, "MEAN"), lambda x: x.mean(), empty(*shape))


@CASES
@given(st.lists(SMALL, max_size=3), SMALL, SMALL, st.booleans())
def test_dense(leading: list[int], depth: int, out: int, bias: bool) -> None:
    module = torch.nn.Linear(depth, out, bias=bias, device="meta")
    node = make("FULL", {"out": out, "bias": bias}, params=parameters(module))
    check(node, module, empty(*leading, depth), module=module)
    table = torch.nn.Embedding(depth, out, device="meta")
    look_up = make("EMBED", {"out": out, "rows": depth}, params=("weight",))
    check(look_up, table, empty(*leading, dtype=torch.int64), module=table)


@CASES
@given(st.data())
def test_norms(data: st.DataObject) -> None:
    draw = data.draw
    depth, groups, axes = draw(SMALL), draw(SMALL), draw(st.integers(1, 3))
    x = empty(2, depth * groups, *draw(st.tuples(*[st.integers(2, 5)] * axes)))
    affine = draw(st.booleans())
    nn, options = torch.nn, {"affine": affine, "device": "meta"}
    tail = tuple(x.shape[draw(st.integers(1, axes + 1)) :])
    modules: dict[str, Any] = {
        "BATCH": getattr(nn, f"BatchNorm{axes}d")(depth * groups, **options),
        "INSTANCE": getattr(nn, f"InstanceNorm{axes}d")(depth * groups, **options),
        "GROUP": nn.GroupNorm(groups, depth * groups, **options),
        "LAYER": nn.LayerNorm(tail, elementwise_affine=affine, device="meta"),
        "RMS": nn.RMSNorm(tail, elementwise_affine=affine, device="meta"),
        "LRN": nn.LocalResponseNorm(3),
    }
    variant = draw(st.sampled_from(sorted(modules)))
    module = modules[variant]
    attrs: dict[str, Any] = {"groups": groups} if variant == "GROUP" else {}
    if variant in ("LAYER", "RMS"):
        attrs = {"axis": -len(tail)}
    node = make("NORM", attrs, variant, parameters(module))
    check(node, module, x, module=module)


@CASES
@given(st.lists(SMALL, max_size=4), st.integers(-5, 4))
def test_activations(shape: list[int], axis: int) -> None:
    f, x = torch.nn.functional, torch.zeros(shape)  # meta lets softmax have axes that are not there
    check(make("RELU", {}), f.relu, x)
    for variant, function in {
        "GELU": f.gelu,
        "SILU": f.silu,
        "SIGMOID": f.sigmoid,
        "TANH": f.tanh,
        "RELU6": f.relu6,
    }.items():
        check(make("ACT", {}, variant), function, x)
    check(make("DROPOUT", {}), f.dropout, x)
    if shape:
        check(make("SOFTMAX", {"axis": axis}), lambda x: f.softmax(x, axis), x)
        check(make("SOFTMAX", {"axis": axis, "log": True}), lambda x: f.log_softmax(x, axis), x)


@CASES
@given(st.data())
def test_add_mul_and_concat(data: st.DataObject) -> None:
    dims = st.lists(st.integers(1, 3), max_size=4)
    a, b = empty(*data.draw(dims)), empty(*data.draw(dims))
    check(make("ADD", {}), torch.add, a, b)
    check(make("MUL", {}), torch.mul, a, b)
    stored = make("ADD", {"shape": tuple(b.shape)}, params=("value",))
    check(stored, lambda x: x + b, a)
    check(make("MUL", {"const": 2}), lambda x: x * 2, a)
    shape = data.draw(st.lists(SMALL, min_size=1, max_size=4))
    axis = data.draw(st.integers(-5, 4))
    other = data.draw(st.permutations(shape))
    # Joining with a tensor of one empty axis is allowed by torch alone, an old exception.
    inputs = [empty(*shape), empty(*other), empty(*shape)]
    check(make("CONCAT", {"axis": axis}), lambda *x: torch.cat(x, axis), *inputs)


@CASES
@given(st.data())
def test_attention(data: st.DataObject) -> None:
    draw = data.draw
    leading = draw(st.lists(SMALL, min_size=1, max_size=2))
    asked, kept, width, out = draw(SMALL), draw(SMALL), draw(SMALL), draw(SMALL)
    wrong = draw(st.sampled_from((0, 0, 1)))
    query = empty(*leading, asked, width)
    key, value = empty(*leading, kept, width + wrong), empty(*leading, kept, out)
    node = make("ATTENTION", {})
    found = ours(node, query, key, value)
    if wrong:
        assert found is None
        return
    run = torch.nn.functional.scaled_dot_product_attention
    # The two products that attention consists of, which the counter knows on every device.
    check(node, lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v, query, key, value)
    assert found == (tuple(run(query, key, value).shape),)


def test_grouped_queries() -> None:
    query, key = empty(2, 8, 5, 16), empty(2, 2, 7, 16)
    run = torch.nn.functional.scaled_dot_product_attention
    wanted = tuple(run(query, key, key, enable_gqa=True).shape)
    assert ours(make("ATTENTION", {}), query, key, key) == (wanted,)


@CASES
@given(st.data())
def test_recurrent(data: st.DataObject) -> None:
    draw = data.draw
    width, hidden, layers, bias = (
        draw(SMALL),
        draw(SMALL),
        draw(st.integers(1, 3)),
        draw(st.booleans()),
    )
    ways, first, variant = (
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from(("LSTM", "GRU"))),
    )
    module = getattr(torch.nn, variant)(
        width, hidden, layers, bias=bias, batch_first=first, bidirectional=ways, device="meta"
    )
    attrs = {
        "hidden": hidden,
        "layers": layers,
        "bidirectional": ways,
        "batch_first": first,
        "bias": bias,
    }
    node = make("RNN", attrs, variant, parameters(module))

    def run(x: Any) -> Any:
        result, state = module(x)
        return (result, *state) if variant == "LSTM" else (result, state)

    x = empty(draw(SMALL), draw(SMALL), width)
    check(node, run, x, module=module)
    slots = {slot.name for slot in op_of(node).node_slots(node) or ()}
    assert slots >= set(parameters(module))
    assert op_of(node).required(node) == set(parameters(module))


@CASES
@given(st.data())
def test_reshapes(data: st.DataObject) -> None:
    draw = data.draw
    shape = draw(st.lists(SMALL, max_size=4))
    x, axis = empty(*shape), st.integers(-5, 4)
    a, b = draw(axis), draw(axis)
    start, end = draw(st.none() | st.integers(-6, 6)), draw(st.none() | st.integers(-6, 6))
    step, size = draw(st.integers(1, 3)), draw(st.lists(st.integers(-1, 6), max_size=4))
    order = draw(st.permutations(range(len(shape))))
    sizes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    cases: dict[str, tuple[dict[str, Any], Any]] = {
        "flatten": ({"start": a, "end": b}, lambda x: x.flatten(a, b)),
        "view": ({"size": size}, lambda x: x.view(size)),
        "reshape": ({"size": size}, lambda x: x.reshape(size)),
        "transpose": ({"axes": [a, b]}, lambda x: x.transpose(a, b)),
        "permute": ({"axes": order}, lambda x: torch.permute(x, order)),
        "squeeze": ({"axis": a}, lambda x: x.squeeze(a)),
        "unsqueeze": ({"axis": a}, lambda x: x.unsqueeze(a)),
        "select": ({"axis": a, "index": b}, lambda x: x.select(a, b)),
        "slice": (
            {"axis": a, "start": start, "end": end, "step": step},
            lambda x: torch.ops.aten.slice.Tensor(x, a, start, end, step),
        ),
        "expand": ({"size": size}, lambda x: x.expand(size)),
        "split": ({"axis": a, "sizes": sizes}, lambda x: x.split(sizes, a)),
        "contiguous": ({}, lambda x: x.contiguous()),
        "to": ({"dtype": "float64"}, lambda x: x.to(torch.float64)),
    }
    kind = draw(st.sampled_from(sorted(cases)))
    attrs, run = cases[kind]
    # Axes of a scalar: torch takes 0 and -1 for it, and networks have none.
    assume(shape or kind not in ("transpose", "squeeze", "flatten", "slice"))
    # Empty tensors may be seen in any shape, -1 included where it is ambiguous.
    assume(not (kind in ("view", "reshape", "expand") and 0 in size))
    check(make("RESHAPE", {"kind": kind, **attrs}), run, x)


def test_squeeze_of_all_axes() -> None:
    check(make("RESHAPE", {"kind": "squeeze"}), lambda x: x.squeeze(), empty(1, 3, 1, 2))
