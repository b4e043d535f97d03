"""Engines: the same scores, and errors that say what is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlv.evaluation.engines as engines
from dlv.errors import UsageError
from dlv.network.graph import Input, Network, Node
from dlv.network.ops.op import NotRunnable
from dlv.network.program import Program, program
from dlv.network.vocabulary import complete

torch: Any = pytest.importorskip("torch", reason="one of the engines")
zoo: Any = pytest.importorskip("tests.zoo.models")
traces: Any = pytest.importorskip("tests.zoo.traced")

Array = NDArray[Any]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before
    torch.set_num_threads(before)


def of_zoo(name: str, **options: Any) -> tuple[Program, Any, dict[str, Array]]:
    traced = traces.traced(name)
    network = traced.network
    store = {key: tensor.detach().numpy() for key, tensor in traced.module.state_dict().items()}
    store |= {key: tensor.numpy() for key, tensor in traced.constants.items()}
    given = {item.name: x.numpy() for item, x in zip(network.inputs, traced.inputs, strict=True)}
    steps = program(network, traced.tensors, **options)
    return steps, lambda each: store[network.aliases.get(each, each)], given


@pytest.mark.parametrize("name", list(zoo.ZOO))
def test_all_give_the_same_scores(name: str) -> None:
    pytest.importorskip("onnxruntime")
    steps, tensor, given = of_zoo(name)
    wanted = engines.engine("torch", steps, tensor).scores(given)
    assert wanted.dtype == np.float64
    others = [("torch", "float32", 3e-6), ("onnxruntime", "float32", 3e-6)]
    others += [("numpy", "float64", 1e-12), ("numpy", "float32", 3e-6)]
    for which, precision, most in others:
        found = engines.engine(which, steps, tensor, precision).scores(given)
        assert (found.dtype, found.shape) == (np.dtype(precision), wanted.shape)
        assert np.abs(found - wanted).max() <= most * max(1, np.abs(wanted).max()), which


@pytest.mark.parametrize("which", engines.ENGINES)
def test_what_is_kept_comes_too(which: str) -> None:
    pytest.importorskip("onnxruntime")
    steps, tensor, given = of_zoo("lenet", until=["conv1", "softmax"])
    found = engines.engine(which, steps, tensor, "float32").values(given)
    wanted = engines.engine("numpy", steps, tensor).values(given)
    assert set(steps.kept.values()) | {steps.scores} <= set(found)
    for port in (steps.scores, *steps.kept.values()):
        np.testing.assert_allclose(found[port], wanted[port], atol=1e-6)


def test_only_what_leads_there_is_kept() -> None:
    network = traces.traced("resnet16").network
    first = next(node for node in network.nodes if node.op == "CONV")
    found = network.part([(first.name, 0)])
    assert [node.name for node in found.nodes] == [first.name]
    assert found.outputs == ((first.name, 0),)
    assert len(found.inputs) == 1


def full() -> tuple[Program, Any]:
    node = Node(
        *("full", "FULL", None),
        complete("FULL", None, {"out": 2}, params=["weight"]),
        (("x", 0),),
        {"weight": "w"},
    )
    network = Network((Input("x", ("B", 3)),), (node,), (("full", 0),))
    return program(network), {"w": np.arange(6.0).reshape(2, 3)}.__getitem__


@pytest.mark.parametrize("which", engines.ENGINES)
def test_a_wrong_shape_is_named(which: str) -> None:
    pytest.importorskip("onnxruntime")
    steps, tensor = full()
    made = engines.engine(which, steps, tensor, "float32")
    assert made.scores({"x": np.ones((2, 3))}).tolist() == [[3, 12], [3, 12]]
    with pytest.raises(UsageError, match="another shape"):
        made.scores({"x": np.ones((2, 4))})


def test_a_failing_batch_is_no_traceback() -> None:
    """A shape that only the operation itself finds wrong."""
    steps, tensor = full()
    open_shape = replace(steps.network, inputs=(Input("x", ("B", None)),))
    for which in ("torch", "onnxruntime"):
        pytest.importorskip(which)
        made = engines.engine(which, replace(steps, network=open_shape), tensor, "float32")
        with pytest.raises(UsageError, match=f"{which} cannot run this batch") as caught:
            made.scores({"x": np.ones((2, 4), np.float32)})
        assert caught.value.why


def test_names_and_precisions() -> None:
    steps, tensor = full()
    with pytest.raises(UsageError, match="no engine `trch`") as caught:
        engines.engine("trch", steps, tensor)
    assert "torch" in caught.value.did_you_mean
    with pytest.raises(UsageError, match="no precision `float16`"):
        engines.engine("numpy", steps, tensor, "float16")
    with pytest.raises(UsageError, match="float32, not in float64"):
        engines.engine("onnxruntime", steps, tensor)


@pytest.mark.parametrize("which", ["torch", "onnxruntime"])
def test_a_missing_extra_says_how_to_get_it(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, tensor = full()
    monkeypatch.setitem(sys.modules, which, None)
    for name in [name for name in sys.modules if name.startswith("dlv.network.torch.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UsageError, match=f"needs the package `{which}`") as caught:
        engines.engine(which, steps, tensor, "float32")
    assert caught.value.hint == f"pip install 'dlv[{which}]'"


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert engines.threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    monkeypatch.setattr("dlv.processors.free", lambda: 2)
    assert engines.threads() == 2


def test_a_large_model_lies_beside_its_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    steps, tensor, given = of_zoo("lenet")
    wanted = engines.engine("onnxruntime", steps, tensor, "float32").scores(given)
    monkeypatch.setattr(engines, "_MOST_IN_MEMORY", 20_000)
    found = engines.engine("onnxruntime", steps, tensor, "float32").scores(given)
    np.testing.assert_array_equal(found, wanted)


def no_tensor(name: str) -> Array:
    raise AssertionError(f"nothing holds {name}")


def of_onnx(kind: str, inputs: str, specs: Any, **attrs: Any) -> tuple[Program, Any]:
    """The program of one operator that is kept as it is."""
    names = {name: Input(name, shape, dtype) for name, (dtype, shape) in specs.items()}
    args: list[Any] = [{"n": list(names).index(name)} for name in inputs.split()]
    told = {key: {"c": value} for key, value in attrs.items()}
    source = {"dialect": "onnx", "op": kind, "args": args, "kwargs": told, "opset": 21}
    ports = tuple((name, 0) for name in names)
    node = Node("n", "OP", "raw", {}, ports, source={**source, "outputs": 1}, out_shape=())
    network = Network(tuple(names.values()), (node,), (("n", 0),))
    return program(network), no_tensor


@pytest.mark.parametrize(
    ("kind", "inputs", "attrs", "why"),
    [
        ("RandomNormalLike", "x", {}, "random"),
        ("Bernoulli", "x", {"seed": 1.0}, "random"),
        ("Dropout", "x x t", {}, "in training"),
        ("BatchNormalization", "x x x x x", {"training_mode": 1}, "in training"),
        ("CastLike", "x x", {}, "dtype"),
    ],
)
def test_onnxruntime_is_not_asked_what_has_two_answers(
    kind: str, inputs: str, attrs: Any, why: str
) -> None:
    made = of_onnx(kind, inputs, {"x": ("float32", (3,)), "t": ("bool", ())}, **attrs)
    with pytest.raises(UsageError, match=f"not asked to run {kind} `n`") as caught:
        engines.engine("onnxruntime", *made, "float32")
    assert why in str(caught.value.why)


def test_a_number_stays_a_number_and_not_a_list() -> None:
    made = of_onnx("Identity", "x", {"x": ("float32", ())})
    found = engines.engine("onnxruntime", *made, "float32").scores({"x": np.array(2.0)})
    assert (found.shape, float(found)) == ((), 2.0)


def test_texts_are_no_tensors_of_torch() -> None:
    node = Node("n", "RESHAPE", None, {"kind": "contiguous"}, (("x", 0),))
    network = Network((Input("x", (2,), "raw:STRING"),), (node,), (("n", 0),))
    made = engines.engine("torch", program(network), no_tensor)
    with pytest.raises(UsageError, match="torch has no tensors of"):
        made.scores({"x": np.array(["a", "b"], object)})


def bessel(op: str = "aten.special_i0.default", dialect: str = "aten") -> Program:
    source = {"dialect": dialect, "op": op, "args": [{"n": 0}], "kwargs": {}}
    node = Node("bessel", "OP", "raw", {}, (("x", 0),), {}, source, out_shape=("B", 3))
    return program(Network((Input("x", ("B", 3), "float32"),), (node,), (("bessel", 0),)))


def none(name: str) -> Array:
    raise AssertionError(name)


def test_without_a_name_torch_runs_what_numpy_cannot() -> None:
    engine = engines.engine(None, bessel(), none)
    x = np.linspace(-1, 1, 6).reshape(2, 3)
    found = engine.scores({"x": x})
    assert np.allclose(found, np.i0(x))
    assert engine.name == "torch"
    assert "`bessel`" in str(getattr(engine, "why", ""))


def test_without_a_name_numpy_runs_what_it_can() -> None:
    engine = engines.engine(None, bessel("aten.exp.default"), none)
    x = np.ones((2, 3))
    assert np.allclose(engine.scores({"x": x}), np.exp(x))
    assert (engine.name, getattr(engine, "why", None)) == ("numpy", None)


def test_what_nothing_runs_is_still_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = {"x": np.ones((2, 3))}
    with pytest.raises(NotRunnable, match="`bessel`"):
        engines.engine(None, bessel("Odd", "keras"), none).scores(x)
    monkeypatch.setattr(engines, "find_spec", lambda _: None)
    with pytest.raises(NotRunnable, match="`bessel`"):
        engines.engine(None, bessel(), none).scores(x)
