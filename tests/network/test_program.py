"""Programs: which nodes are run, in what order, and batch normalisation folded into weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlv.errors import NotFound, UsageError
from dlv.network.graph import Network
from dlv.network.json_form import read
from dlv.network.ops.op import NotRunnable
from dlv.network.program import Program, params_of, program

Json = dict[str, Any]
Array = NDArray[Any]


def net(nodes: list[Json], outputs: list[Any], shape: list[Any] | None = None) -> Network:
    image = {"name": "x", "shape": shape or ["B", 3, 8, 8]}
    found, _ = read({"dlv_network": 1, "inputs": [image], "nodes": nodes, "outputs": outputs})
    return found


def conv(name: str, source: str, **attrs: Any) -> Json:
    params = {"weight": f"{name}.weight", "bias": f"{name}.bias"}
    given = {"out": 4, "kernel": 3, "pad": 1, **attrs}
    return {"name": name, "op": "CONV", "attrs": given, "inputs": [source], "params": params}


def batch(name: str, source: str, axis: int = 1, affine: bool = True) -> Json:
    slots = ["running_mean", "running_var", *(["weight", "bias"] if affine else [])]
    params = {slot: f"{name}.{slot}" for slot in slots}
    attrs = {"axis": axis, "eps": 1e-3}
    return {
        "name": name,
        "op": "NORM",
        "variant": "BATCH",
        "attrs": attrs,
        "inputs": [source],
        "params": params,
    }


def node(name: str, op: str, *inputs: Any, variant: str | None = None, **attrs: Any) -> Json:
    return {"name": name, "op": op, "variant": variant, "attrs": attrs, "inputs": list(inputs)}


def names(found: Program) -> list[str]:
    return [step.result for step in found.steps]


def values(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        name: rng.uniform(0.5, 2, shape) if name.endswith("var") else rng.normal(size=shape)
        for name, shape in shapes.items()
    }


def test_batch_norm_right_behind_a_convolution_is_folded() -> None:
    found = program(net([conv("c", "x"), batch("bn", "c"), node("r", "RELU", "bn")], ["r"]))
    assert names(found) == ["bn", "r"]
    assert found.steps[0].node.name == "c"
    assert found.steps[0].fold is not None
    assert found.steps[1].inputs == (("bn", 0),)
    assert found.matrices == ("c.weight",)


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([conv("c", "x"), batch("bn", "c"), node("s", "ADD", "bn", "c")], ["s"]),
        ([conv("c", "x"), node("r", "RELU", "c"), batch("bn", "r")], ["bn"]),
        ([conv("c", "x"), batch("bn", "c", axis=2)], ["bn"]),
        ([conv("c", "x", channels="last"), batch("bn", "c")], ["bn"]),
    ],
    ids=["read twice", "behind an activation", "another axis", "channels last"],
)
def test_what_is_not_folded(nodes: list[Json], outputs: list[Any]) -> None:
    found = program(net(nodes, outputs, ["B", 3, 3, 3]))
    assert "c" in names(found)
    assert all(step.fold is None for step in found.steps)


def test_what_is_asked_for_is_not_folded_away() -> None:
    network = net([conv("c", "x"), batch("bn", "c"), node("r", "RELU", "bn")], ["r"])
    found = program(network, until=["c"])
    assert names(found) == ["c", "bn", "r"]
    assert found.kept == {"c": ("c", 0)}
    assert names(program(network, until=["bn"])) == ["bn", "r"]
    assert names(program(network, fold=False)) == ["c", "bn", "r"]
    with pytest.raises(NotFound, match="no layer"):
        program(network, until=["cc"])


def test_a_batch_norm_without_statistics_is_not_folded() -> None:
    bare = {**batch("bn", "c"), "params": {}}
    assert names(program(net([conv("c", "x"), bare], ["bn"]))) == ["c", "bn"]


LAYOUTS: list[tuple[str, Json, tuple[int, ...]]] = [
    ("CONV", {"layout": "kernel_last", "groups": 1}, (4, 3, 3, 3)),
    ("CONV", {"layout": "kernel_first", "groups": 1}, (3, 3, 3, 4)),
    ("CONV", {"layout": "depthwise", "groups": 3, "out": 6}, (3, 3, 3, 2)),
    ("DECONV", {"layout": "kernel_last", "groups": 1}, (3, 4, 3, 3)),
    ("DECONV", {"layout": "kernel_first", "groups": 1}, (3, 3, 4, 3)),
]


@pytest.mark.parametrize(("op", "attrs", "shape"), LAYOUTS)
@pytest.mark.parametrize("affine", [True, False])
def test_folded_weights_are_those_of_torch(
    op: str, attrs: Json, shape: tuple[int, ...], affine: bool
) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    layer = {**conv("c", "x", **attrs), "op": op}
    found = program(net([layer, batch("bn", "c", affine=affine)], ["bn"]))
    out = found.steps[0].node.attrs["out"]
    sizes = {f"bn.{slot}": (out,) for slot in ("running_mean", "running_var", "weight", "bias")}
    tensors = values({"c.weight": shape, "c.bias": (out,), **sizes})
    folded = params_of(found.steps[0], tensors.__getitem__)
    x = torch.from_numpy(np.random.default_rng(1).normal(size=(2, 3, 8, 8)))

    def run(weight: Array, bias: Array) -> Any:
        w = torch.from_numpy(np.ascontiguousarray(weight))
        axes = {
            "kernel_last": (0, 1, 2, 3),
            "kernel_first": (3, 2, 0, 1),
            "depthwise": (2, 3, 0, 1),
        }[attrs["layout"]]
        w = w.permute(*axes)
        if attrs["layout"] == "depthwise":
            w = w.reshape(-1, 1, 3, 3)
        function = functional.conv2d if op == "CONV" else functional.conv_transpose2d
        return function(x, w, torch.from_numpy(bias), padding=1, groups=attrs["groups"])

    t = {name: torch.from_numpy(value) for name, value in tensors.items()}
    given = (t["bn.weight"], t["bn.bias"]) if affine else (None, None)
    plain = run(tensors["c.weight"], tensors["c.bias"])
    wanted = functional.batch_norm(
        plain, t["bn.running_mean"], t["bn.running_var"], *given, eps=1e-3
    )
    got = run(folded["weight"], folded["bias"])
    assert (got - wanted).abs().max() <= 1e-12 * wanted.abs().max()


@pytest.mark.parametrize(("layout", "shape"), [("out_in", (4, 5)), ("in_out", (5, 4))])
def test_a_full_layer_takes_it_in_too(layout: str, shape: tuple[int, ...]) -> None:
    full: Json = {
        "name": "c",
        "op": "FULL",
        "attrs": {"out": 4, "layout": layout},
        "inputs": ["x"],
        "params": {"weight": "c.weight"},
    }
    found = program(net([full, batch("bn", "c")], ["bn"], ["B", 5]))
    tensors = values(
        {"c.weight": shape}
        | {f"bn.{slot}": (4,) for slot in ("running_mean", "running_var", "weight", "bias")}
    )
    folded = params_of(found.steps[0], tensors.__getitem__)
    x = np.random.default_rng(2).normal(size=(3, 5))
    w = tensors["c.weight"] if layout == "in_out" else tensors["c.weight"].T
    apart = (x @ w - tensors["bn.running_mean"]) / np.sqrt(tensors["bn.running_var"] + 1e-3)
    wanted = apart * tensors["bn.weight"] + tensors["bn.bias"]
    got = x @ (folded["weight"] if layout == "in_out" else folded["weight"].T) + folded["bias"]
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def test_scores_stand_before_a_final_softmax() -> None:
    nodes = [
        node("m", "POOL", "x", variant="MEAN", axis=[2, 3]),
        node("s", "SOFTMAX", "m", axis=-1),
    ]
    assert program(net(nodes, ["s"])).scores == ("m", 0)
    looks_alike = [node("m", "RELU", "x"), node("s", "SOFTMAX", "m", axis=2)]
    assert program(net(looks_alike, ["s"])).scores == ("s", 0)
    assert program(net([node("d", "DROPOUT", "x"), node("s", "SOFTMAX", "d")], ["s"])).scores == (
        "x",
        0,
    )


def test_only_what_leads_to_the_scores_is_run() -> None:
    nodes = [node("a", "RELU", "x"), node("dead", "RELU", "x"), node("b", "RELU", "a")]
    found = program(net(nodes, ["b"]))
    assert names(found) == ["a", "b"]
    assert found.input_names == ("x",)
    assert names(program(net(nodes, ["b"]), until=["dead"])) == ["a", "dead", "b"]


def test_values_are_kept_until_their_last_use() -> None:
    nodes = [
        *(node("a", "RELU", "x"), node("b", "RELU", "a"), node("c", "RELU", "b")),
        node("d", "ADD", "c", "a"),
    ]
    found = program(net(nodes, ["d"]), until=["b"])
    known = {"x"}
    for step in found.steps:
        assert {name for name, _ in step.inputs} <= known
        known.add(step.result)
        known -= set(step.last)
    assert known == {"b", "d"}


def test_what_is_picked_is_known_where_it_is_made() -> None:
    split = node("s", "RESHAPE", "x", kind="split", axis=1, sizes=[1, 2])
    picked = node("g", "RESHAPE", "s", kind="getitem", index=1)
    found = program(net([split, picked, node("r", "RELU", "g")], ["r"]), until=["g"])
    assert names(found) == ["s", "r"]
    assert found.steps[1].inputs == (("s", 1),)
    assert found.kept == {"g": ("s", 1)}


def test_faults_are_said_by_node() -> None:
    with pytest.raises(UsageError, match="has no output"):
        program(net([node("r", "RELU", "x")], []))
    with pytest.raises(NotRunnable, match="`c`"):
        program(net([{**conv("c", "x"), "params": {}}], ["c"]))
