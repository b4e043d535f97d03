"""Attention, recurrent layers and plumbing of the vocabulary, run by onnxruntime, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("onnxruntime", reason="onnxruntime runs the files here")
torch = pytest.importorskip("torch", reason="torch is the oracle here")

from dlv.errors import UsageError  # noqa: E402
from dlv.network.graph import Node  # noqa: E402
from tests.onnx_runs import difference, hashes, network, node, run, session, written  # noqa: E402

F = torch.nn.functional
TOLERANCE = 1e-5
CASES = settings(max_examples=60, deadline=None)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def numbers(*shape: int, seed: int = 0) -> Any:
    made = np.random.default_rng(seed + sum(shape)).standard_normal(shape)
    return made.astype(np.float32)


def check(made: Any, tensors: Any, inputs: Any, *wanted: Any) -> None:
    found = run(made, tensors, inputs)
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        theirs = theirs.detach().numpy() if isinstance(theirs, torch.Tensor) else theirs
        assert difference(ours, theirs) <= TOLERANCE


@CASES
@given(st.data())
def test_attention(data: st.DataObject) -> None:
    draw = data.draw
    batch, queries, keys, width, values = (draw(st.integers(1, 4)) for _ in range(5))
    leading = draw(st.sampled_from(((), (batch,), (batch, 3))))
    q, k = numbers(*leading, queries, width), numbers(*leading, keys, width, seed=1)
    v = numbers(*leading, keys, values, seed=2)
    causal, scale = draw(st.booleans()), draw(st.none() | st.floats(0.1, 2))
    kind = draw(st.sampled_from(("none", "bool", "float"))) if not causal else "none"
    inputs = {"q": q, "k": k, "v": v}
    mask = None
    if kind != "none":
        shape = draw(st.sampled_from(((queries, keys), (*leading, queries, keys), (1, keys))))
        mask = numbers(*shape, seed=3)
        # Rows that may look at nothing are among them.
        mask = mask > 0.5 if kind == "bool" else np.where(mask > 0.5, mask, -np.inf).astype("f4")
        inputs["m"] = mask
    free = draw(st.booleans())
    shapes = {
        name: (
            str(item.dtype),
            tuple(f"{name}{at}" for at in range(item.ndim)) if free else item.shape,
        )
        for name, item in inputs.items()
    }
    made = node("ATTENTION", list(inputs), causal=causal, scale=scale, p=0.3)
    t = {name: torch.from_numpy(item) for name, item in inputs.items()}
    wanted = F.scaled_dot_product_attention(
        t["q"], t["k"], t["v"], t.get("m"), is_causal=causal, scale=scale
    )
    check(network([made], shapes), {}, inputs, wanted)


@pytest.mark.parametrize("causal", [False, True])
def test_heads_within_the_width(causal: bool) -> None:
    q, k, v = numbers(2, 5, 12), numbers(2, 7, 12, seed=1), numbers(2, 7, 6, seed=2)
    made = node("ATTENTION", ["q", "k", "v"], heads=3, causal=causal)

    def split(x: Any) -> Any:
        return torch.from_numpy(x).unflatten(-1, (3, -1)).transpose(1, 2)

    wanted = F.scaled_dot_product_attention(split(q), split(k), split(v), is_causal=causal)
    shapes = {"q": ("B", "L", 12), "k": ("B", "S", 12), "v": ("B", "S", 6)}
    inputs = {"q": q, "k": k, "v": v}
    check(network([made], shapes), {}, inputs, wanted.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("shared", [1, 2])
def test_heads_that_share_keys(shared: int) -> None:
    q, k, v = numbers(2, 4, 5, 3), numbers(2, shared, 6, 3), numbers(2, shared, 6, 2)
    made = node("ATTENTION", ["q", "k", "v"])
    t = [torch.from_numpy(item) for item in (q, k, v)]
    wanted = F.scaled_dot_product_attention(*t, enable_gqa=True)
    shapes = {"q": ("B", 4, "L", 3), "k": ("B", shared, "S", 3), "v": ("B", shared, "S", 2)}
    check(network([made], shapes), {}, {"q": q, "k": k, "v": v}, wanted)


@CASES
@given(st.data())
def test_recurrent_layers(data: st.DataObject) -> None:
    draw = data.draw
    variant = draw(st.sampled_from(("LSTM", "GRU")))
    layers, both, first = draw(st.integers(1, 3)), draw(st.booleans()), draw(st.booleans())
    bias, width, hidden = draw(st.booleans()), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(layers)
        kind = torch.nn.LSTM if variant == "LSTM" else torch.nn.GRU
        module = kind(
            width, hidden, layers, bias=bias, batch_first=first, bidirectional=both, dropout=0.0
        )
    tensors = {name: item.detach().numpy() for name, item in module.named_parameters()}
    batch, length = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    x = numbers(*((batch, length) if first else (length, batch)), width)
    rows = layers * (2 if both else 1)
    states = [numbers(rows, batch, hidden, seed=place) for place in (1, 2)]
    given_states = states[: (2 if variant == "LSTM" else 1)] if draw(st.booleans()) else []
    inputs = {"x": x, **{f"s{place}": item for place, item in enumerate(given_states)}}
    shapes: dict[str, Any] = {"x": ("B", "T", width) if first else ("T", "B", width)}
    shapes |= {f"s{place}": (rows, "B", hidden) for place in range(len(given_states))}
    made = node(
        "RNN",
        list(inputs),
        variant=variant,
        params=list(tensors),
        hidden=hidden,
        layers=layers,
        bidirectional=both,
        batch_first=first,
        p=0.2,
    )
    t = [torch.from_numpy(item) for item in given_states]
    if variant == "LSTM":
        out, (h, c) = module(torch.from_numpy(x), tuple(t) if t else None)
        wanted = [out, h, c]
    else:
        wanted = list(module(torch.from_numpy(x), t[0] if t else None))
    ports = draw(st.sampled_from(((0,), (0, 1), tuple(range(len(wanted))), (1,))))
    ends = [("n", port) for port in ports]
    check(network([made], shapes, *ends), tensors, inputs, *(wanted[port] for port in ports))


X = numbers(2, 3, 4, 5)
PLUMBING: list[tuple[dict[str, Any], Any]] = [
    ({"kind": "flatten"}, lambda x: x.flatten(1)),
    ({"kind": "flatten", "start": 0}, lambda x: x.flatten()),
    ({"kind": "flatten", "start": 2, "end": 3}, lambda x: x.flatten(2, 3)),
    ({"kind": "flatten", "start": 1, "end": 2}, lambda x: x.flatten(1, 2)),
    ({"kind": "flatten", "start": 1, "end": 1}, lambda x: x),
    ({"kind": "view", "size": ["B", 12, 5]}, lambda x: x.reshape(-1, 12, 5)),
    ({"kind": "view", "size": ["B", -1]}, lambda x: x.flatten(1)),
    ({"kind": "reshape", "size": [None, 60]}, lambda x: x.flatten(1)),
    ({"kind": "reshape", "size": [12, "B", 5]}, lambda x: x.reshape(12, 2, 5)),
    ({"kind": "transpose", "axes": [1, -1]}, lambda x: x.transpose(1, -1)),
    ({"kind": "permute", "axes": [0, 2, -1, 1]}, lambda x: x.permute(0, 2, 3, 1)),
    ({"kind": "unsqueeze", "axis": -1}, lambda x: x.unsqueeze(-1)),
    ({"kind": "squeeze", "axis": [1]}, lambda x: x),
    ({"kind": "select", "axis": 1, "index": -1}, lambda x: x[:, -1]),
    ({"kind": "slice", "axis": 2, "start": 1, "end": -1, "step": 2}, lambda x: x[:, :, 1:-1:2]),
    ({"kind": "slice", "axis": -1}, lambda x: x),
    ({"kind": "contiguous"}, lambda x: x),
    ({"kind": "to", "dtype": "float64"}, lambda x: x.double()),
    ({"kind": "to"}, lambda x: x),
]


@pytest.mark.parametrize(("attrs", "function"), PLUMBING)
def test_plumbing(attrs: dict[str, Any], function: Any) -> None:
    made = network([node("RESHAPE", ["x"], **attrs)], {"x": ("B", 3, 4, 5)})
    check(made, {}, {"x": X}, function(torch.from_numpy(X)))


def test_a_split_is_read_by_its_ports() -> None:
    cut = node("RESHAPE", ["x"], kind="split", axis=3, sizes=[2, 3])
    after = node("RELU", [("n", 1)], name="relu")
    item = node("RESHAPE", ["n"], name="item", kind="getitem", index=0)
    made = network([cut, after, item], {"x": ("B", 3, 4, 5)}, "relu", ("n", 0), "item")
    left = X[..., :2]
    check(made, {}, {"x": X}, np.maximum(X[..., 2:], 0), left, left)


def test_one_axis_of_one_is_squeezed_and_expanded_again() -> None:
    x = numbers(2, 1, 3)
    nodes = [
        node("RESHAPE", ["x"], name="gone", kind="squeeze", axis=None),
        node("RESHAPE", ["gone"], name="back", kind="unsqueeze", axis=1),
        node("RESHAPE", ["back"], name="wide", kind="expand", size=["B", 4, -1]),
    ]
    check(network(nodes, {"x": ("B", 1, 3)}), {}, {"x": x}, np.repeat(x, 4, 1))


def sizes(*more: Node) -> list[Node]:
    return [
        node("RESHAPE", ["x"], name="batch", kind="size", axis=0),
        node("RESHAPE", ["x"], name="length", kind="size", axis=1),
        *more,
    ]


def number(name: str, operator: str, *args: Any, inputs: list[str]) -> Node:
    found = node("RESHAPE", inputs, name=name, kind="arithmetic", operator=operator)
    source = {"dialect": "aten", "op": f"operator.{operator}", "args": list(args), "kwargs": {}}
    return Node(found.name, "RESHAPE", None, found.attrs, found.inputs, {}, source)


@pytest.mark.parametrize(("batch", "length"), [(2, 6), (3, 4), (1, 8)])
def test_arithmetic_on_lengths(batch: int, length: int) -> None:
    x = numbers(batch, length, 2)
    nodes = sizes(
        number("half", "floordiv", {"n": 0}, {"c": 2}, inputs=["length"]),
        number("both", "mul", {"n": 0}, {"n": 1}, inputs=["batch", "half"]),
        number("less", "sub", {"n": 0}, {"c": 1}, inputs=["half"]),
        number("neg", "neg", {"n": 0}, inputs=["less"]),
        number("ceil", "floordiv", {"n": 0}, {"c": 2}, inputs=["neg"]),
        number("rest", "mod", {"n": 0}, {"c": 3}, inputs=["neg"]),
        node("RESHAPE", ["x", "both"], name="view", kind="view", size=[None, -1]),
        node("RESHAPE", ["ceil"], name="out1", kind="to"),
        node("RESHAPE", ["rest"], name="out2", kind="to"),
    )
    made = network(nodes, {"x": ("B", "T", 2)}, "view", "out1", "out2", "batch")
    half = length // 2
    wanted = x.reshape(batch * half, -1)
    numbers_ = [np.array(n) for n in (-(half - 1) // 2, -(half - 1) % 3, batch)]
    check(made, {}, {"x": x}, wanted, *numbers_)


def test_lengths_that_are_known_are_worked_out() -> None:
    nodes = sizes(
        number("half", "floordiv", {"n": 0}, {"c": 2}, inputs=["length"]),
        node("RESHAPE", ["x", "half"], name="view", kind="view", size=[None, -1]),
    )
    data, _ = written(network(nodes, {"x": (2, 6, 2)}), {})
    assert b"Shape" not in data
    assert b"Div" not in data


def test_lengths_come_in_at_ports_by_source_or_by_attributes() -> None:
    x = numbers(2, 6, 2)
    for source in (None, [{"n": 0}, {"l": [{"n": 1}, {"c": -1}]}]):
        view = node("RESHAPE", ["x", "batch"], name="view", kind="view", size=["B", -1])
        call = source and {"dialect": "aten", "op": "aten.view.default", "args": source}
        view = Node("view", "RESHAPE", None, view.attrs, view.inputs, {}, call or None)
        made = network(sizes(view), {"x": ("B", "T", 2)})
        check(made, {}, {"x": x}, x.reshape(2, -1))
        # The axis stays as long as it was: nobody has to ask how long that is.
        assert b"Shape" not in written(made, {})[0]


def test_lengths_come_in_for_what_is_unknown_alone() -> None:
    x = numbers(2, 6, 2)
    nodes = sizes(
        number("half", "floordiv", {"n": 0}, {"c": 2}, inputs=["length"]),
        node("RESHAPE", ["x", "half"], name="view", kind="view", size=["B", None, 4]),
        node("RESHAPE", ["view", "half"], name="odd", kind="view", size=["B", 2, None, 2]),
    )
    made = network(nodes, {"x": ("B", "T", 2)})
    check(made, {}, {"x": x}, x.reshape(2, 2, 3, 2))


def test_start_states_filled_from_lengths() -> None:
    with torch.random.fork_rng(devices=[]):
        module = torch.nn.LSTM(2, 3)
    tensors = {name: item.detach().numpy() for name, item in module.named_parameters()}
    nodes = [
        node("RESHAPE", ["x"], name="batch", kind="size", axis=1),
        node("RESHAPE", ["batch"], name="zeros", kind="fill", size=[1, "B", 3], const=0.5),
        node("RNN", ["x", "zeros", "zeros"], variant="LSTM", params=list(tensors), hidden=3),
    ]
    x = numbers(4, 2, 2)
    state = torch.full((1, 2, 3), 0.5)
    wanted, _ = module(torch.from_numpy(x), (state, state))
    check(network(nodes, {"x": ("T", "B", 2)}), tensors, {"x": x}, wanted)


def test_one_start_state_of_zeros_beside_another() -> None:
    with torch.random.fork_rng(devices=[]):
        module = torch.nn.LSTM(2, 3)
    tensors = {name: item.detach().numpy() for name, item in module.named_parameters()}
    nodes = [
        node("RESHAPE", [], name="zeros", kind="fill", size=[1, "B", 3]),
        node("RNN", ["x", "zeros", "c"], variant="LSTM", params=list(tensors), hidden=3),
    ]
    x, c = numbers(4, 2, 2), numbers(1, 2, 3)
    wanted, _ = module(torch.from_numpy(x), (torch.zeros(1, 2, 3), torch.from_numpy(c)))
    made = network(nodes, {"x": ("T", "B", 2), "c": (1, "B", 3)})
    check(made, tensors, {"x": x, "c": c}, wanted)


def test_slices_between_lengths_of_the_run() -> None:
    cut = node("RESHAPE", ["table", "length"], name="cut", kind="slice", axis=1, start=0, end=None)
    args = [{"n": 0}, {"c": 1}, {"c": 0}, {"n": 1}]
    source = {"dialect": "aten", "op": "aten.slice.Tensor", "args": args, "kwargs": {}}
    cut = Node("cut", "RESHAPE", None, cut.attrs, cut.inputs, {}, source)
    table = np.arange(12, dtype=np.int64)[None]
    made = network(sizes(cut), {"x": ("B", "T", 2)}, "cut", constants=hashes({"table": table}))
    found = run(made, {}, {"x": numbers(2, 5, 2)}, {"table": table})
    assert found[0].tolist() == [list(range(5))]


def test_an_unknown_size_is_refused_by_name() -> None:
    view = node("RESHAPE", ["x"], name="odd", kind="view", size=[None, None])
    with pytest.raises(UsageError, match="odd") as caught:
        written(network([view], {"x": ("B", "T")}), {})
    assert "has unknown lengths" in caught.value.message


def test_the_batch_of_the_file_is_free() -> None:
    made = network([node("RELU", ["x"])], {"x": ("B", 3)})
    ran = session(written(made, {})[0])
    assert ran.get_inputs()[0].shape == ["B", 3]
    assert ran.get_outputs()[0].shape == ["B", 3]
