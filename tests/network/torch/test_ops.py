"""Every operation of the vocabulary, run in torch from its attributes, against torch.nn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dlv.errors import UsageError
from dlv.network.graph import Input, Network, Node
from dlv.network.vocabulary import OPS, complete

torch: Any = pytest.importorskip("torch", reason="torch runs the networks: dlv[torch]")
torch_module: Any = pytest.importorskip("dlv.network.torch.module")
nn, functional = torch.nn, torch.nn.functional

CASES = settings(max_examples=60, deadline=None)
SMALL = st.integers(1, 3)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def module_of(
    op: str,
    attrs: Mapping[str, Any],
    inputs: Sequence[Any],
    params: Mapping[str, Any] | None = None,
    *,
    variant: str | None = None,
    outputs: int = 1,
) -> Any:
    """The module of a network of one node."""
    slots = {slot: f"n.{slot}" for slot in params or {}}
    names = [f"x{place}" for place in range(len(inputs))]
    attrs = complete(op, variant, attrs, params=slots)
    node = Node("n", op, variant, attrs, tuple((name, 0) for name in names), slots)
    given_inputs = tuple(
        Input(name, ("B", *each.shape[1:]) if each.dim() else ())
        for name, each in zip(names, inputs, strict=True)
    )
    network = Network(given_inputs, (node,), tuple(("n", port) for port in range(outputs)))
    tensors = {f"n.{slot}": value for slot, value in (params or {}).items()}
    return torch_module.build(network, tensors, {}).eval()


def run(
    op: str,
    attrs: Mapping[str, Any],
    inputs: Sequence[Any],
    params: Mapping[str, Any] | None = None,
    *,
    variant: str | None = None,
    outputs: int = 1,
    train: bool = False,
) -> Any:
    module = module_of(op, attrs, inputs, params, variant=variant, outputs=outputs)
    with torch.no_grad():
        return module.train(train)(*inputs)


def same(found: Any, wanted: Any, **limits: float) -> None:
    torch.testing.assert_close(found, wanted, **({"rtol": 0, "atol": 1e-6} | limits))


def state(module: Any) -> dict[str, Any]:
    found = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
    found.pop("num_batches_tracked", None)
    return found


@st.composite
def window(draw: st.DrawFn, *, dilated: bool = True) -> dict[str, Any]:
    axes = draw(st.integers(1, 3))
    each = st.tuples(*[SMALL] * axes)
    kernel, stride = draw(each), draw(each)
    dilation = draw(each) if dilated else (1,) * axes
    reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    pad = tuple(
        (draw(st.integers(0, most)), draw(st.integers(0, most))) if most else (0, 0)
        for most in reach
    )
    if draw(st.booleans()):
        pad = tuple((before, before) for before, _ in pad)
    lengths = tuple(
        draw(st.integers(max(1, most + 1 - sum(sides)), most + 6))
        for most, sides in zip(reach, pad, strict=True)
    )
    return {
        "kernel": kernel,
        "stride": stride,
        "dilation": dilation,
        "pad": pad,
        "lengths": lengths,
    }


def padded(x: Any, pad: Sequence[tuple[int, int]], value: float = 0.0) -> Any:
    for axis, (before, after) in enumerate(pad, 2):
        shape = list(x.shape)
        front, back = [*shape], [*shape]
        front[axis], back[axis] = before, after
        x = torch.cat([torch.full(front, value), x, torch.full(back, value)], axis)
    return x


@CASES
@given(window(), st.data())
def test_conv(form: dict[str, Any], data: st.DataObject) -> None:
    axes, lengths = len(form["kernel"]), form.pop("lengths")
    groups, bias = data.draw(SMALL), data.draw(st.booleans())
    depth, out = groups * data.draw(SMALL), groups * data.draw(SMALL)
    last, turned = data.draw(st.booleans()), data.draw(st.booleans())
    module = getattr(nn, f"Conv{axes}d")(
        depth,
        out,
        form["kernel"],
        form["stride"],
        0,
        dilation=form["dilation"],
        groups=groups,
        bias=bias,
    )
    x = torch.randn(2, depth, *lengths)
    wanted = module(padded(x, form["pad"])).detach()
    params = state(module)
    if turned:  # as Keras keeps it: kernel axes, in, out
        params["weight"] = params["weight"].movedim((0, 1), (-1, -2)).contiguous()
    attrs = form | {
        "out": out,
        "groups": groups,
        "layout": "kernel_first" if turned else "kernel_last",
        "channels": "last" if last else "first",
    }
    found = run("CONV", attrs, [x.movedim(1, -1) if last else x], params)
    same(found, wanted.movedim(1, -1) if last else wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("lengths", "form"),
    [
        ((7, 3), {"kernel": [3, 3], "stride": [1, 2], "pad": [[2, 0], [0, 1]], "dilation": [2, 1]}),
        ((4, 2, 1), {"kernel": [1, 1, 2], "stride": [1, 1, 3], "pad": [[1, 1], [0, 1], [1, 0]]}),
        ((1, 2, 2), {"kernel": [2, 1, 2], "stride": [2, 1, 2], "pad": [[1, 1], [1, 1], [0, 1]]}),
        ((6, 6), {"kernel": [3, 3], "stride": [1, 3], "pad": [[1, 0], [0, 2]]}),
    ],
)
def test_one_channel_that_comes_last(lengths: tuple[int, ...], form: dict[str, Any]) -> None:
    """torch misreads such maps where they are only moved."""
    x = torch.randn(3, *lengths, 1)
    weight = torch.randn(2, 1, *form["kernel"])
    attrs = form | {"out": 2, "channels": "last", "bias": False}
    found = run("CONV", attrs, [x], {"weight": weight})
    wanted = run("CONV", attrs, [x.double()], {"weight": weight.double()})
    same(found, wanted.float(), atol=1e-5)


@CASES
@given(window(), SMALL, SMALL, st.booleans())
def test_depthwise_conv(form: dict[str, Any], depth: int, each: int, last: bool) -> None:
    """As Keras keeps it: (*kernel, channels, multiplier)."""
    axes, lengths = len(form["kernel"]), form.pop("lengths")
    x, kernel = torch.randn(2, depth, *lengths), torch.randn(*form["kernel"], depth, each)
    convolve = getattr(functional, f"conv{axes}d")
    parts = []
    for channel in range(depth):
        weight = torch.stack([kernel[..., channel, n] for n in range(each)]).unsqueeze(1)
        one = padded(x[:, channel : channel + 1], form["pad"])
        parts.append(convolve(one, weight, None, form["stride"], 0, form["dilation"]))
    wanted = torch.cat(parts, 1)
    attrs = form | {"out": depth * each, "groups": depth, "layout": "depthwise", "bias": False}
    attrs["channels"] = "last" if last else "first"
    found = run("CONV", attrs, [x.movedim(1, -1) if last else x], {"weight": kernel})
    same(found.movedim(-1, 1) if last else found, wanted, atol=1e-5)


@CASES
@given(window(), st.data())
def test_deconv(form: dict[str, Any], data: st.DataObject) -> None:
    axes, lengths = len(form["kernel"]), form.pop("lengths")
    groups, bias = data.draw(SMALL), data.draw(st.booleans())
    depth, out = groups * data.draw(SMALL), groups * data.draw(SMALL)
    last, turned = data.draw(st.booleans()), data.draw(st.booleans())
    extra = tuple(
        data.draw(st.integers(0, max(s, d) - 1))
        for s, d in zip(form["stride"], form["dilation"], strict=True)
    )
    module = getattr(nn, f"ConvTranspose{axes}d")(
        depth,
        out,
        form["kernel"],
        form["stride"],
        0,
        extra,
        groups=groups,
        bias=bias,
        dilation=form["dilation"],
    )
    x = torch.randn(2, depth, *lengths)
    wanted = module(x).detach()
    for axis, (before, after) in enumerate(form["pad"], 2):
        length = wanted.shape[axis] - before - after
        assume(length > 0)
        wanted = wanted.index_select(axis, torch.arange(before, before + length))
    params = state(module)
    if turned:
        params["weight"] = params["weight"].movedim((0, 1), (-1, -2)).contiguous()
    attrs = form | {
        "out": out,
        "groups": groups,
        "output_pad": extra,
        "layout": "kernel_first" if turned else "kernel_last",
        "channels": "last" if last else "first",
    }
    found = run("DECONV", attrs, [x.movedim(1, -1) if last else x], params)
    same(found, wanted.movedim(1, -1) if last else wanted, atol=1e-5)


def pooled(x: Any, form: Mapping[str, Any], largest: bool) -> tuple[Any, Any]:
    """By hand, window after window: values, and where in the map the largest ones are."""
    counts, lengths = [], x.shape[2:]
    rows = [
        *zip(lengths, form["kernel"], form["stride"], form["pad"], form["dilation"], strict=True)
    ]
    for n, k, s, (before, after), d in rows:
        places = range(0, n + before + after - d * (k - 1) + (s - 1) * form["ceil"], s)
        counts.append(len([p for p in places if not form["ceil"] or p < n + before or p == 0]))
    values = torch.zeros(*x.shape[:2], *counts)
    where = torch.zeros(values.shape, dtype=torch.int64)
    strides = [1]
    for n in reversed(lengths[1:]):
        strides.insert(0, strides[0] * n)
    for cell in itertools.product(*map(range, values.shape)):
        seen, pads = [], 0
        for step in itertools.product(*map(range, form["kernel"])):
            place = [
                o * s + i * d - before
                for o, i, (_, _, s, (before, _), d) in zip(cell[2:], step, rows, strict=True)
            ]
            if all(0 <= p < n for p, n in zip(place, lengths, strict=True)):
                flat = sum(p * stride for p, stride in zip(place, strides, strict=True))
                seen.append((x[(*cell[:2], *place)].item(), flat))
            elif all(p < n + sides[1] for p, (n, _, _, sides, _) in zip(place, rows, strict=True)):
                pads += 1
        if largest:
            values[cell], where[cell] = max(seen, key=lambda pair: pair[0])
        else:
            total = len(seen) + (pads if form["count_pad"] else 0)
            values[cell] = sum(value for value, _ in seen) / total
    return values, where


@settings(max_examples=60, deadline=None)
@given(window(), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_pool(form: dict[str, Any], largest: bool, ceil: bool, count_pad: bool, last: bool) -> None:
    lengths = form.pop("lengths")
    form["ceil"] = ceil
    if not largest:
        form["count_pad"] = count_pad
    x = torch.randn(1, 2, *lengths)
    # Windows that lie in the padding alone have no largest value, and nothing to divide by.
    rows = zip(lengths, form["kernel"], form["dilation"], strict=True)
    assume(all(n >= d * (k - 1) for n, k, d in rows))
    wanted, where = pooled(x, form, largest)
    attrs = form | {"channels": "last" if last else "first"}
    given_x = x.movedim(1, -1) if last else x
    found = run("POOL", attrs, [given_x], variant="MAX" if largest else "AVG")
    same(found.movedim(-1, 1) if last else found, wanted)
    if largest:
        both = run("POOL", attrs, [given_x], variant="MAX", outputs=2)
        values, places = (each.movedim(-1, 1) if last else each for each in both)
        same(values, wanted)
        assert torch.equal(places, where)


def test_average_of_a_map_smaller_than_its_kernel() -> None:
    form: dict[str, Any] = {"kernel": (1, 1, 2), "stride": (1, 1, 1), "dilation": (1, 1, 1)}
    form |= {"pad": ((0, 0), (0, 0), (1, 1)), "ceil": False, "count_pad": False}
    x = torch.ones(1, 2, 1, 1, 1)
    same(run("POOL", form, [x], variant="AVG"), torch.ones(1, 2, 1, 1, 2))


@CASES
@given(st.data())
def test_adaptive_pool(data: st.DataObject) -> None:
    axes = data.draw(st.integers(1, 3))
    size = data.draw(st.tuples(*[st.none() | SMALL] * axes))
    last, variant = data.draw(st.booleans()), data.draw(st.sampled_from(("MAX", "AVG")))
    x = torch.randn(2, 3, *data.draw(st.tuples(*[st.integers(1, 7)] * axes)))
    full = tuple(x.shape[i] if n is None else n for i, n in enumerate(size, 2))
    wanted = getattr(nn, f"Adaptive{variant.title()}Pool{axes}d")(full)(x)
    attrs = {"size": size, "channels": "last" if last else "first"}
    found = run("POOL", attrs, [x.movedim(1, -1) if last else x], variant=variant)
    same(found, wanted.movedim(1, -1) if last else wanted)


@CASES
@given(st.lists(SMALL, min_size=1, max_size=4), st.booleans(), st.data())
def test_mean(shape: list[int], keep: bool, data: st.DataObject) -> None:
    x = torch.randn(shape)
    axes = data.draw(st.lists(st.sampled_from(range(len(shape))), min_size=1, unique=True))
    same(run("POOL", {"axis": axes, "keep": keep}, [x], variant="MEAN"), x.mean(axes, keep))
    wanted = x.mean()
    same(
        run("POOL", {"keep": keep}, [x], variant="MEAN"),
        wanted.reshape([1] * x.dim()) if keep else wanted,
    )


@CASES
@given(st.lists(SMALL, max_size=3), SMALL, SMALL, st.booleans(), st.booleans())
def test_full(leading: list[int], depth: int, out: int, bias: bool, turned: bool) -> None:
    module, x = nn.Linear(depth, out, bias=bias), torch.randn(*leading, depth)
    params = state(module)
    if turned:
        params["weight"] = params["weight"].t().contiguous()
    attrs = {"out": out, "layout": "in_out" if turned else "out_in"}
    same(run("FULL", attrs, [x], params), module(x).detach())


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "float32"])
def test_embed(dtype: str) -> None:
    module, rows = nn.Embedding(7, 3), torch.randint(0, 7, (2, 5))
    found = run("EMBED", {"out": 3, "rows": 7}, [rows.to(getattr(torch, dtype))], state(module))
    same(found, module(rows).detach())


@CASES
@given(st.data())
def test_statistics_norms(data: st.DataObject) -> None:
    draw = data.draw
    depth, axes, affine, kept = draw(SMALL), draw(SMALL), draw(st.booleans()), draw(st.booleans())
    variant, train = draw(st.sampled_from(("BATCH", "INSTANCE"))), draw(st.booleans())
    axis = draw(st.sampled_from((1, -1, axes + 1)))
    eps, momentum = draw(st.sampled_from((1e-5, 0.1))), draw(st.sampled_from((0.1, 0.7)))
    kind = getattr(nn, f"{variant.title()}Norm{axes}d")
    module = kind(depth, eps, momentum, affine, kept).train(train)
    if affine:
        nn.init.normal_(module.weight)
        nn.init.normal_(module.bias)
    if kept:
        module.running_mean.normal_()
        module.running_var.uniform_(0.5, 2)
    x = torch.randn(3, depth, *draw(st.tuples(*[st.integers(2, 4)] * axes)))
    params = state(module)
    wanted = module(x).detach()
    turned = axis != 1
    attrs = {"axis": axis, "eps": eps, "momentum": momentum}
    ours = module_of("NORM", attrs, [x], params, variant=variant).train(train)
    with torch.no_grad():
        found = ours(x.movedim(1, -1) if turned else x)
    same(found, wanted.movedim(1, -1) if turned else wanted)
    for name, value in state(module).items():
        same(ours.state_dict()[f"n.{name}"], value)


@pytest.mark.parametrize("slot", ["weight", "bias"])
def test_half_affine_batch_norm(slot: str) -> None:
    x, side = torch.randn(2, 3, 4), torch.randn(3)
    mean, var = torch.randn(3), torch.rand(3) + 0.5
    params = {slot: side, "running_mean": mean, "running_var": var}
    found = run("NORM", {}, [x], params, variant="BATCH")
    plain = (x - mean[:, None]) / (var[:, None] + 1e-5).sqrt()
    same(found, plain * side[:, None] if slot == "weight" else plain + side[:, None])


def test_a_cumulative_mean() -> None:
    """Without momentum every batch counts the same; the counter says how many there were."""
    module = nn.BatchNorm1d(3, momentum=None)
    tensors = {f"n.{name}": value.clone() for name, value in module.state_dict().items()}
    slots = {name: f"n.{name}" for name in ("weight", "bias", "running_mean", "running_var")}
    node = Node(
        "n", "NORM", "BATCH", complete("NORM", "BATCH", {"momentum": None}), (("x", 0),), slots
    )
    network = Network((Input("x", ("B", 3)),), (node,), (("n", 0),))
    ours = torch_module.build(network, tensors, {})
    for size in (4, 6, 3):
        x = torch.randn(size, 3)
        same(ours(x).detach(), module(x).detach())
    for name, value in module.state_dict().items():
        same(ours.state_dict()[f"n.{name}"], value)
    assert ours.state_dict()["n.num_batches_tracked"] == 3
    ours.eval()
    ours(torch.randn(2, 3))
    assert ours.state_dict()["n.num_batches_tracked"] == 3


@CASES
@given(st.lists(st.integers(1, 4), min_size=2, max_size=4), st.data())
def test_norms_of_each_example(shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x, affine = torch.randn(shape), data.draw(st.booleans())
    eps = data.draw(st.sampled_from((1e-5, 0.01)))
    normed = tuple(range(axis % len(shape), len(shape)))
    tail = shape[normed[0] :]
    weight, bias = torch.randn(tail), torch.randn(tail)
    params = {"weight": weight, "bias": bias} if affine else {}
    plain = (x - x.mean(normed, True)) / (x.var(normed, correction=0, keepdim=True) + eps).sqrt()
    wanted = plain * weight + bias if affine else plain
    attrs = {"axis": axis, "eps": eps}
    same(run("NORM", attrs, [x], params, variant="LAYER"), wanted, atol=1e-4)
    for small in (eps, None):
        epsilon = torch.finfo(torch.float32).eps if small is None else small
        plain = x / (x.square().mean(normed, True) + epsilon).sqrt()
        found = run(
            "NORM", attrs | {"eps": small}, [x], {"weight": weight} if affine else {}, variant="RMS"
        )
        same(found, plain * weight if affine else plain, atol=1e-4)


@CASES
@given(SMALL, SMALL, st.booleans(), st.sampled_from((1, -1)))
def test_group_norm(groups: int, each: int, affine: bool, axis: int) -> None:
    module = nn.GroupNorm(groups, groups * each, 0.01, affine)
    if affine:
        nn.init.normal_(module.weight)
    x = torch.randn(2, groups * each, 4, 5)
    wanted = module(x).detach()
    attrs = {"groups": groups, "eps": 0.01, "axis": axis}
    found = run(
        "NORM", attrs, [x if axis == 1 else x.movedim(1, -1)], state(module), variant="GROUP"
    )
    same(found, wanted if axis == 1 else wanted.movedim(1, -1))


@CASES
@given(st.integers(1, 5), st.integers(2, 4), st.sampled_from((1, -1)))
def test_local_response(size: int, rank: int, axis: int) -> None:
    x = torch.randn(2, 6, *[3] * (rank - 2))
    alpha, beta, k = 0.5, 0.75, 2.0
    squares = x.square()
    sums = torch.zeros_like(x)
    for channel in range(6):
        low, high = max(0, channel - size // 2), channel + (size - 1) // 2 + 1
        sums[:, channel] = squares[:, low:high].sum(1)
    wanted = x / (k + alpha / size * sums) ** beta
    attrs = {"size": size, "alpha": alpha, "beta": beta, "k": k, "axis": axis}
    found = run("NORM", attrs, [x if axis == 1 else x.movedim(1, -1)], variant="LRN")
    same(found, wanted if axis == 1 else wanted.movedim(1, -1))


def test_activations() -> None:
    x = torch.linspace(-9, 9, 40).reshape(2, 20)
    same(run("RELU", {}, [x]), torch.where(x > 0, x, 0 * x))
    same(run("RELU", {"slope": 0.2}, [x]), torch.where(x > 0, x, 0.2 * x))
    exact = x * (1 + torch.erf(x / 2**0.5)) / 2
    rough = x / 2 * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))
    for variant, attrs, wanted in (
        ("GELU", {}, exact),
        ("GELU", {"approximate": "tanh"}, rough),
        ("SILU", {}, x / (1 + torch.exp(-x))),
        ("SIGMOID", {}, 1 / (1 + torch.exp(-x))),
        ("TANH", {}, 1 - 2 / (torch.exp(2 * x) + 1)),
        ("RELU6", {}, x.clamp(0, 6)),
    ):
        same(run("ACT", attrs, [x], variant=variant), wanted, atol=2e-6)
    shares = x.exp() / x.exp().sum(0, keepdim=True)
    same(run("SOFTMAX", {"axis": 0}, [x]), shares)
    same(run("SOFTMAX", {"axis": 0, "log": True}, [x]), shares.log(), atol=1e-5)


def test_dropout() -> None:
    x = torch.ones(100, 10)
    assert torch.equal(run("DROPOUT", {"p": 0.3}, [x]), x)
    torch.manual_seed(5)
    found = run("DROPOUT", {"p": 0.3}, [x], train=True)
    torch.manual_seed(5)
    assert torch.equal(found, functional.dropout(x, 0.3, True))
    assert not torch.equal(found, x)


def test_add_and_mul() -> None:
    x, y, z = torch.randn(2, 3, 4), torch.randn(3, 1), torch.randn(4)
    same(run("ADD", {}, [x, y, z]), x + y + z)
    same(run("MUL", {}, [x, y, z]), x * y * z)
    same(run("ADD", {"const": -1.5}, [x]), x - 1.5)
    same(run("MUL", {"const": 3}, [x]), x * 3)
    same(run("ADD", {"shape": [3, 1]}, [x], {"value": y}), x + y)
    same(run("MUL", {"shape": [4]}, [x], {"value": z}), x * z)
    whole = torch.arange(6).reshape(2, 3)
    assert torch.equal(run("MUL", {"const": 2}, [whole]), whole * 2)
    assert torch.equal(run("ADD", {"const": 0.5}, [whole]), whole + 0.5)


@CASES
@given(st.lists(SMALL, min_size=1, max_size=4), st.data())
def test_concat(shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    parts = [torch.randn(shape) for _ in range(data.draw(SMALL))]
    assert torch.equal(run("CONCAT", {"axis": axis}, parts), torch.cat(parts, axis))


def attended(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    """Softmax of scaled products, written out."""
    heads = q.shape[-3] // k.shape[-3] if q.dim() > 3 else 1
    if heads > 1:
        k, v = k.repeat_interleave(heads, -3), v.repeat_interleave(heads, -3)
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        )
    if causal:
        later = torch.arange(k.shape[-2])[None] > torch.arange(q.shape[-2])[:, None]
        scores = scores.masked_fill(later, -torch.inf)
    return scores.softmax(-1) @ v


@CASES
@given(st.data())
def test_attention(data: st.DataObject) -> None:
    draw = data.draw
    causal, scale = draw(st.booleans()), draw(st.sampled_from((None, 0.7)))
    heads, shared = draw(SMALL), draw(st.integers(1, 2))
    asked, kept, width, out = draw(SMALL), draw(SMALL), draw(SMALL), draw(SMALL)
    q = torch.randn(2, heads * shared, asked, width)
    k, v = torch.randn(2, heads, kept, width), torch.randn(2, heads, kept, out)
    mask = draw(st.sampled_from((None, "bool", "float")))
    side = None
    if mask == "bool":
        side = torch.rand(2, 1, asked, kept) > 0.4
        side[..., 0] = True  # a row of nothing has no softmax
    elif mask == "float":
        side = torch.randn(asked, kept)
    inputs = [q, k, v] if side is None else [q, k, v, side]
    found = run("ATTENTION", {"causal": causal, "scale": scale}, inputs)
    same(found, attended(q, k, v, side, causal, scale), atol=1e-5)
    if shared == 1:
        # The same with the heads side by side, as one axis.
        flat = [each.transpose(1, 2).flatten(2) for each in (q, k, v)]
        if side is not None:
            side = side[:, 0] if side.dim() == 4 else side
            flat.append(side)
        wanted = attended(q, k, v, inputs[3] if len(inputs) > 3 else None, causal, scale)
        found = run("ATTENTION", {"heads": heads, "causal": causal, "scale": scale}, flat)
        same(found, wanted.transpose(1, 2).flatten(2), atol=1e-5)


def test_attention_dropout() -> None:
    q = torch.randn(2, 2, 3, 4)
    torch.manual_seed(3)
    found = run("ATTENTION", {"p": 0.5}, [q, q, q], train=True)
    torch.manual_seed(3)
    wanted = functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    assert torch.equal(found, wanted)
    plain = functional.scaled_dot_product_attention(q, q, q)
    assert not torch.equal(found, plain)
    assert torch.equal(run("ATTENTION", {"p": 0.5}, [q, q, q]), plain)


@CASES
@given(st.data())
def test_recurrent(data: st.DataObject) -> None:
    draw = data.draw
    variant, width, hidden = draw(st.sampled_from(("LSTM", "GRU"))), draw(SMALL), draw(SMALL)
    attrs = {
        "layers": draw(SMALL),
        "bias": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
        "bidirectional": draw(st.booleans()),
    }
    names = {"layers": "num_layers"}
    options = {names.get(key, key): value for key, value in attrs.items()}
    module = getattr(nn, variant)(width, hidden, **options)
    x = torch.randn(3, 4, width)
    batch = 3 if attrs["batch_first"] else 4
    depth = attrs["layers"] * (2 if attrs["bidirectional"] else 1)
    states = [torch.randn(depth, batch, hidden) for _ in range(2 if variant == "LSTM" else 1)]
    held = draw(st.booleans())
    if held:
        wanted, last = module(x, tuple(states) if variant == "LSTM" else states[0])
    else:
        wanted, last = module(x)
    inputs = [x, *states] if held else [x]
    outputs = 1 + len(states)
    attrs["hidden"] = hidden
    found = run("RNN", attrs, inputs, state(module), variant=variant, outputs=outputs)
    last = last if variant == "LSTM" else (last,)
    for ours, theirs in zip(found, (wanted, *last), strict=True):
        same(ours, theirs.detach())


def test_recurrent_dropout() -> None:
    module, x = nn.GRU(3, 4, 2, dropout=0.5), torch.randn(5, 2, 3)
    attrs = {"hidden": 4, "layers": 2, "p": 0.5}
    for train in (True, False):
        torch.manual_seed(1)
        wanted = module.train(train)(x)[0].detach()
        torch.manual_seed(1)
        assert torch.equal(
            run("RNN", attrs, [x], state(module), variant="GRU", train=train), wanted
        )


X = torch.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("kind", "attrs", "wanted"),
    [
        ("flatten", {}, X.reshape(2, 12)),
        ("flatten", {"start": 0, "end": 1}, X.reshape(6, 4)),
        ("view", {"size": [-1, 2]}, X.reshape(12, 2)),
        ("view", {"size": ["B", 12]}, X.reshape(2, 12)),
        ("view", {"size": ["B", None]}, X.reshape(2, 12)),
        ("reshape", {"size": ["B", 2, -1]}, X.reshape(2, 2, 6)),
        ("transpose", {"axes": [1, -1]}, X.mT),
        ("permute", {"axes": [2, 0, 1]}, X.movedim(2, 0)),
        ("squeeze", {}, X),
        ("squeeze", {"axis": [1]}, X),
        ("unsqueeze", {"axis": 1}, X[:, None]),
        ("select", {"axis": 1, "index": -1}, X[:, 2]),
        ("slice", {"axis": 2, "start": 1, "end": None, "step": 2}, X[:, :, 1::2]),
        ("slice", {"axis": 1, "start": -2, "end": 9}, X[:, 1:]),
        ("expand", {"size": [5, "B", -1, 4]}, X.repeat(5, 1, 1, 1)),
        ("contiguous", {}, X),
        ("to", {"dtype": "float64"}, X.double()),
        ("to", {}, X),
        ("size", {"axis": 1}, 3),
    ],
)
def test_plumbing(kind: str, attrs: dict[str, Any], wanted: Any) -> None:
    found = run("RESHAPE", {"kind": kind, **attrs}, [X])
    if isinstance(wanted, int):
        assert found == wanted
    else:
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)


def test_squeeze_and_split() -> None:
    x = torch.randn(1, 3, 1)
    assert run("RESHAPE", {"kind": "squeeze"}, [x]).shape == (3,)
    assert run("RESHAPE", {"kind": "squeeze", "axis": 0}, [x]).shape == (3, 1)
    parts = run("RESHAPE", {"kind": "split", "axis": 2, "sizes": [1, 3]}, [X], outputs=2)
    assert torch.equal(parts[0], X[..., :1])
    assert torch.equal(parts[1], X[..., 1:])


def chain(*nodes: Node, outputs: Sequence[tuple[str, int]] = ()) -> Any:
    inputs = (Input("x", ("B", "S", 4)),)
    ends = tuple(outputs) or ((nodes[-1].name, 0),)
    return torch_module.build(Network(inputs, nodes, ends), {}, {})


def plumbing(name: str, kind: str, *inputs: str, **attrs: Any) -> Node:
    ports = tuple((each, 0) for each in inputs)
    return Node(name, "RESHAPE", None, complete("RESHAPE", None, {"kind": kind, **attrs}), ports)


def test_sizes_at_run_time() -> None:
    module = chain(
        plumbing("b", "size", "x", axis=0),
        plumbing("s", "size", "x", axis=1),
        plumbing("n", "arithmetic", "b", "s", operator="operator.mul"),
        plumbing("flat", "view", "x", "n", size=[None, 4]),
        plumbing("back", "view", "flat", "b", "s", size=["B", "S", 4]),
        plumbing("zeros", "fill", "s", size=[None, 2], const=1.5),
        plumbing("wide", "expand", "zeros", "b", size=[None, -1, 2]),
        plumbing("half", "view", "x", "s", size=["B", None, 2, 2]),
        outputs=[("flat", 0), ("back", 0), ("zeros", 0), ("wide", 0), ("half", 0)],
    )
    for shape in ((2, 3, 4), (5, 1, 4)):
        x = torch.randn(shape)
        flat, back, ones, wide, half = module(x)
        assert torch.equal(half, x.unflatten(2, (2, 2)))
        assert torch.equal(flat, x.reshape(-1, 4))
        assert torch.equal(back, x)
        assert torch.equal(ones, torch.full((shape[1], 2), 1.5))
        assert wide.shape == (shape[0], shape[1], 2)


@pytest.mark.parametrize(
    ("operator", "values", "wanted"),
    [
        ("add", (7, 2), 9),
        ("operator.sub", (7, 2), 5),
        ("_operator.floordiv", (7, 2), 3),
        ("operator.truediv", (7, 2), 3.5),
        ("operator.mod", (7, 2), 1),
        ("operator.pow", (7, 2), 49),
        ("operator.neg", (7,), -7),
        ("operator.eq", (7, 7), True),
        ("operator.ge", (6, 7), False),
        ("math.ceil", (3.5,), 4),
        ("math.trunc", (3.5,), 3),
        ("math.sqrt", (9,), 3.0),
        ("torch.sym_max", (7, 2), 7),
        ("torch.sym_min", (7, 2), 2),
        ("builtins.round", (3.4,), 3),
        ("max", (2, 7), 7),
        ("float", (2,), 2.0),
        ("sum", (2, 3, 4), 9),
        ("ite", (True, 3, 4), 3),
    ],
)
def test_arithmetic(operator: str, values: Sequence[float], wanted: float) -> None:
    names = [f"v{place}" for place in range(len(values))]
    inputs = tuple(Input(name, (), "int64") for name in names)
    node = plumbing("n", "arithmetic", *names, operator=operator)
    run_of = torch_module.plan(Network(inputs, (node,), (("n", 0),)), ()).steps[0].run
    call = torch_module.Call(values, {}, False, {}, None)
    assert run_of(call) == wanted


@pytest.mark.parametrize(
    "operator",
    ["os.system", "operator.pow.x", "eval", "builtins.eval", "__class__", "operator.", ""],
)
def test_arithmetic_that_is_none(operator: str) -> None:
    with pytest.raises(UsageError, match="layer 'n'"):
        chain(plumbing("n", "arithmetic", "x", operator=operator))


def test_powers_that_are_no_sizes() -> None:
    node = plumbing("n", "arithmetic", "a", "b", operator="pow")
    inputs = (Input("a", ()), Input("b", ()))
    [step] = torch_module.plan(Network(inputs, (node,), (("n", 0),)), ()).steps
    with pytest.raises(OverflowError):
        step.run(torch_module.Call([10**9, 10**9], {}, False, {}, None))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("cross_entropy", lambda x, y: functional.cross_entropy(x, y)),
        ("CrossEntropyLoss", lambda x, y: functional.cross_entropy(x, y)),
        ("SoftmaxWithLoss", lambda x, y: functional.cross_entropy(x, y)),
        ("nll", lambda x, y: -x[torch.arange(4), y].mean()),
    ],
)
def test_losses_of_classes(name: str, wanted: Any) -> None:
    x, y = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    for classes in (y, y.float()):
        same(run("LOSS", {"name": name}, [x, classes]), wanted(x, y))
    if name != "nll":
        for classes in (y[:, None], functional.one_hot(y)):
            same(run("LOSS", {"name": name}, [x, classes]), wanted(x, y))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("mse", lambda x, y: (x - y).square().mean()),
        ("EuclideanLoss", lambda x, y: (x - y).square().sum() / 8),
        ("l1_loss", lambda x, y: (x - y).abs().mean()),
        ("BCEWithLogitsLoss", lambda x, y: functional.binary_cross_entropy(x.sigmoid(), y)),
        ("cross_entropy", lambda x, y: -(y * x.log_softmax(1)).sum(1).mean()),
    ],
)
def test_losses_of_numbers(name: str, wanted: Any) -> None:
    x, y = torch.randn(4, 3), torch.rand(4, 3)
    same(run("LOSS", {"name": name}, [x, y]), wanted(x, y))


def test_every_operation_is_there() -> None:
    """What the vocabulary has, this can run: a new operation or variant fails here."""
    from_attributes = {name for name in OPS if name not in ("INPUT", "OP")}
    ops: Any = pytest.importorskip("dlv.network.torch.ops")
    assert from_attributes == set(ops._MAKERS) | {"POOL"}
    assert set(OPS["NORM"].variants) == set(ops._NORMS)
    assert set(OPS["ACT"].variants) == set(ops._ACTIVATIONS) | {"GELU"}
    shapes: Any = pytest.importorskip("dlv.network.torch.ops_shapes")
    assert set(OPS["RESHAPE"].kinds) == set(shapes._MAKERS)


def foreign(name: str = "n") -> Node:
    source = {"dialect": "onnx", "op": "NonMaxSuppression", "args": [], "kwargs": {}}
    return Node(name, "OP", "raw", {}, (("x", 0),), {}, source)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (foreign(), "NonMaxSuppression"),
        (Node("n", "OP", "raw", {}, (("x", 0),)), "cannot be run"),
        (Node("n", "RELU", None, {}, (("x", 0),)), "slope"),
        (Node("n", "RELU", None, {"slope": 0.0}, ()), "wrong number"),
        (Node("n", "DROPOUT", None, {"p": 2.0}, (("x", 0),)), "'p' is 2.0"),
        (Node("n", "FULL", None, complete("FULL", None, {"out": 3}), (("x", 0),)), "slot 'weight'"),
        (Node("n", "LOSS", None, {"name": "hinge?"}, (("x", 0), ("x", 0))), "hinge"),
        (plumbing("n", "view", "x", size=[None, None]), r"\(RESHAPE\): its size"),
        (plumbing("n", "view", "x", "x", "x", size=[None, 3]), "2 lengths come in"),
        (plumbing("n", "slice", "x", "x", axis=1), r"\(RESHAPE\): inputs other than the"),
        (plumbing("n", "to", "x", dtype="raw:Q4"), "Q4"),
        (
            Node(
                "n",
                "CONV",
                None,
                complete("CONV", None, {"out": 1, "kernel": [1] * 4, "bias": False}),
                (("x", 0),),
                {"weight": "w"},
            ),
            "1 to 3 axes",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_run(node: Node, text: str) -> None:
    network = Network((Input("x", ("B", 4)),), (node,), (("n", 0),))
    with pytest.raises(UsageError, match=text) as found:
        torch_module.build(network, {"w": torch.ones(1)}, {})
    assert "n" in found.value.message


def test_a_symbol_that_nothing_tells() -> None:
    module = chain(plumbing("n", "view", "x", size=["T", -1]))
    with pytest.raises(UsageError, match="'T'"):
        module(torch.ones(2, 3, 4))
