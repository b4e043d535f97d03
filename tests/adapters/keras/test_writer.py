"""dlv.adapters.keras.writer: Keras loads what it writes, and computes the same."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.adapters.keras import files as keras_files
from dlv.adapters.keras import writer as keras_writer
from dlv.errors import UsageError
from dlv.network.graph import Input, Network, Node
from dlv.network.vocabulary import complete

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore")  # of Keras and what it uses

Write = Callable[..., Any]


def tensor(name: str, array: Any, dtype: str = "") -> Tensor:
    data = np.ascontiguousarray(array).tobytes()
    return Tensor(name, dtype or str(array.dtype), tuple(array.shape), len(data), lambda: data)


def numbers(name: str, *shape: int) -> Tensor:
    dice = np.random.default_rng(len(name) + sum(shape))
    return tensor(name, dice.normal(size=shape).astype("f4"))


def node(name: str, op: str, inputs: Sequence[Any], params: Any = (), **attrs: Any) -> Node:
    variant = attrs.pop("variant", None)
    source, shape = attrs.pop("source", None), attrs.pop("out_shape", None)
    slots = {slot: f"{name}.{slot}" for slot in params}
    ports = tuple(port if isinstance(port, tuple) else (port, 0) for port in inputs)
    made = complete(op, variant, attrs, axes=2, params=slots)
    return Node(name, op, variant, made, ports, slots, source, shape)


def network(*nodes: Node, shape: Sequence[Any] = ("B", 4)) -> Network:
    return Network((Input("x", tuple(shape)),), nodes, ((nodes[-1].name, 0),))


@pytest.fixture
def loaded(keras: Any, tmp_path: Path) -> Write:
    """Write it twice, alike; Keras loads it in safe mode."""

    def load(made: Network, tensors: Sequence[Tensor], constants: Sequence[Tensor] = ()) -> Any:
        first, second = io.BytesIO(), io.BytesIO()
        for out in (first, second):
            keras_writer.save_network(out, made, tensors, constants, metadata={"version": "a@1"})
        assert first.getvalue() == second.getvalue()
        path = tmp_path / "written.keras"
        path.write_bytes(first.getvalue())
        with zipfile.ZipFile(path) as file:
            assert file.testzip() is None
            assert json.loads(file.read("metadata.json"))["dlv.version"] == "a@1"
        checkpoint = keras_files.open(str(path))  # dlv reads it, too, strict as it is
        checkpoint.close()
        assert checkpoint.network is not None
        return keras.saving.load_model(path, safe_mode=True)

    return load


@pytest.fixture
def zoo_agrees(loaded: Write, difference: Callable[[Any, Any], float]) -> Callable[[str], None]:
    exporting = pytest.importorskip("dlv.adapters.aten.live")
    models = pytest.importorskip("tests.zoo.models")

    def check(name: str) -> None:
        module, inputs = models.build(name)
        checkpoint = exporting.trace(module, inputs)
        tensors = [tensor(key, value.numpy()) for key, value in module.state_dict().items()]
        model = loaded(checkpoint.network, tensors, checkpoint.constants)
        module.eval()
        with torch.no_grad():
            found = model(list(inputs) if len(inputs) > 1 else inputs[0], training=False)
            assert difference(found, module(*inputs)) < 1e-5

    return check


@pytest.mark.quick("unet", "densenet", "generator", "lstm", "gru", "shared", "fixed_batch")
@pytest.mark.parametrize(
    "name",
    [
        *("lenet", "resnet16", "unet", "densenet", "inception", "mobilenet", "generator"),
        *("lstm", "gru", "shared", "fixed_batch"),
    ],
)
def test_networks_from_torch(zoo_agrees: Callable[[str], None], name: str) -> None:
    zoo_agrees(name)


LAYERS = {
    "same": "L.Conv2D(4, 3, strides=2, padding='same')",
    "causal": "L.Conv1D(4, 3, padding='causal')",
    "groups": "L.Conv2D(4, 3, groups=2)",
    "depthwise": "L.DepthwiseConv2D(3, depth_multiplier=2, strides=2, padding='same')",
    "separable": "L.SeparableConv2D(5, 3, activation='relu')",
    "transposed": "L.Conv2DTranspose(4, 3, strides=2, padding='same')",
    "transposed more": "L.Conv2DTranspose(4, 5, strides=3, padding='same', output_padding=1)",
    "transposed small": "L.Conv2DTranspose(4, 1, strides=3)",
    "max": "L.MaxPooling2D(3, strides=2, padding='same')",
    "average": "L.AveragePooling2D(2)",
    "global max": "L.GlobalMaxPooling2D()",
    "padding": "L.ZeroPadding2D(((1, 2), (0, 3)))",
    "cropping": "L.Cropping2D(((1, 0), (0, 2)))",
    "upsampling": "L.UpSampling2D((2, 3))",
    "norm of axis 1": "L.BatchNormalization(axis=1)",
    "group norm": "L.GroupNormalization(2)",
    "layer norm": "L.LayerNormalization(axis=[2, 3])",
    "embedding": "L.Embedding(9, 4)",
    "dense": "L.Dense(4, activation='softmax')",
    "repeat": "L.RepeatVector(3)",
    "permute": "L.Permute((2, 1))",
    "elu": "L.ELU(0.7)",
    "leaky": "L.LeakyReLU(0.3)",
    "time": "L.TimeDistributed(L.Conv1D(2, 2))",
    "both ways": "L.Bidirectional(L.LSTM(3, return_sequences=True))",
    "gru": "L.GRU(4, reset_after=False, go_backwards=True)",
    "attention": "L.MultiHeadAttention(2, 3)",
    "prelu": "L.PReLU()",
}
SHAPES = {
    "causal": (8, 4),
    "embedding": (6,),
    "repeat": (5,),
    "permute": (4, 5),
    "both ways": (4, 5),
    "gru": (4, 5),
    "attention": (4, 5),
    "time": (3, 4, 5),
}


@pytest.mark.parametrize("name", LAYERS)
def test_keras_layers_go_out_as_they_came(
    keras: Any,
    with_weights: Callable[[Any], Any],
    saved: Callable[..., Path],
    loaded: Write,
    inputs_for: Callable[..., list[Any]],
    difference: Callable[[Any, Any], float],
    name: str,
) -> None:
    x = keras.Input(SHAPES.get(name, (8, 9, 6)), dtype="int32" if name == "embedding" else None)
    layer = eval(LAYERS[name], {"L": keras.layers})
    model = with_weights(keras.Model(x, layer(x, x) if name == "attention" else layer(x)))
    checkpoint = keras_files.open(str(saved(model)))
    try:
        assert checkpoint.network is not None
        again = loaded(checkpoint.network, checkpoint.tensors)
        [given] = inputs_for(checkpoint.network, 2)
    finally:
        checkpoint.close()
    assert difference(again(given, training=False), model(given, training=False)) < 1e-5


def reopened(made: Network, tensors: Sequence[Tensor]) -> Checkpoint:
    out = io.BytesIO()
    keras_writer.save_network(out, made, tensors, [])
    with zipfile.ZipFile(out) as file:
        assert set(file.namelist()) == {"metadata.json", "config.json", "model.weights.h5"}
        config = json.loads(file.read("config.json"))
    assert config["class_name"] == "Functional"
    return Checkpoint("keras", [], hyperparameters=config["config"])


def test_what_is_turned_is_turned_back_once() -> None:
    """Between layers that keep channels last nothing is turned."""
    made = network(
        node("a", "CONV", ["x"], ["weight", "bias"], out=3, kernel=[3, 3]),
        node("b", "RELU", ["a"]),
        node("n", "NORM", ["b"], ["running_mean", "running_var"], variant="BATCH"),
        node("p", "POOL", ["n"], variant="MAX", kernel=[2, 2], stride=[2, 2]),
        node("c", "CONV", ["p"], ["weight"], out=2, kernel=[1, 1]),
        node("s", "ADD", ["c", "c"]),
        node("f", "RESHAPE", ["s"], kind="flatten"),
        node("d", "FULL", ["f"], ["weight"], out=2),
        shape=("B", 2, 8, 8),
    )
    tensors = [
        numbers("a.weight", 3, 2, 3, 3),
        numbers("a.bias", 3),
        numbers("c.weight", 2, 3, 1, 1),
    ]
    tensors += [
        numbers("n.running_mean", 3),
        numbers("n.running_var", 3),
        numbers("d.weight", 2, 18),
    ]
    layers = reopened(made, tensors).hyperparameters["layers"]
    assert [layer["class_name"] for layer in layers].count("Permute") == 2


def test_torch_and_keras_forms_give_one_function(
    loaded: Write, difference: Callable[[Any, Any], float]
) -> None:
    """Odd pads, largest values under padding, ceil, averages that count padding."""
    cases = [
        node("p", "POOL", ["x"], variant="MAX", kernel=[3, 3], stride=[2, 2], pad=[[1, 1], [1, 1]]),
        node("p", "POOL", ["x"], variant="MAX", kernel=[3, 3], stride=[2, 2], ceil=True),
        node("p", "POOL", ["x"], variant="AVG", kernel=[3, 3], stride=[2, 2], pad=[[1, 0], [0, 2]]),
        node("p", "POOL", ["x"], variant="MAX", kernel=[1, 1], stride=[3, 3], ceil=True),
        node("p", "POOL", ["x"], variant="AVG", size=[4, 2]),
        node("p", "POOL", ["x"], variant="MEAN", axis=[2, 3]),
        node("p", "POOL", ["x"], variant="MEAN", axis=[1], keep=True),
        node("p", "CONV", ["x"], ["weight"], out=4, kernel=[3, 2], pad=[[2, 0], [1, 1]]),
        node("p", "CONV", ["x"], ["weight"], out=6, kernel=[3, 2], groups=3, stride=[2, 1]),
        node("p", "DECONV", ["x"], ["weight"], out=2, kernel=[3, 3], stride=[2, 2],
             pad=[[1, 1], [0, 1]], output_pad=[1, 0]),
        node("p", "NORM", ["x"], ["weight", "bias"], variant="GROUP", groups=3),
        node("p", "NORM", ["x"], variant="INSTANCE"),
        node("p", "ADD", ["x"], const=1.5),
        node("p", "MUL", ["x"], ["value"], shape=[3, 1, 8]),
        node("p", "SOFTMAX", ["x"], axis=1, log=True),
        node("p", "ACT", ["x"], variant="GELU", approximate="tanh"),
        node("p", "RESHAPE", ["x"], kind="transpose", axes=[1, 3]),
        node("p", "RESHAPE", ["x"], kind="select", axis=2, index=-1),
        node("p", "RESHAPE", ["x"], kind="slice", axis=1, start=1, end=9223372036854775807),
        node("p", "RESHAPE", ["x"], kind="view", size=["B", 12, 16]),
        node("p", "RESHAPE", ["x"], kind="unsqueeze", axis=0),
    ]  # fmt: skip
    sizes = {"CONV": {6: (6, 1, 3, 2), 4: (4, 3, 3, 2)}, "DECONV": {2: (3, 2, 3, 3)}}
    building = pytest.importorskip("dlv.network.torch.module")
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    for case in cases:
        made = network(case, shape=("B", 3, 8, 8))
        tensors = []
        for slot, name in case.params.items():
            shape = sizes.get(case.op, {}).get(case.attrs.get("out", 0), (3,))
            tensors.append(numbers(name, *(case.attrs["shape"] if slot == "value" else shape)))
        arrays = {
            t.name: torch.from_numpy(np.frombuffer(t.read(), "f4").reshape(t.shape).copy())
            for t in tensors
        }
        wanted = building.build(made, arrays, {}).eval()(x)
        assert difference(loaded(made, tensors)(x, training=False), wanted) < 1e-5, case


def test_attention(loaded: Write, difference: Callable[[Any, Any], float]) -> None:
    building = pytest.importorskip("dlv.network.torch.module")
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))
    for attrs in ({"heads": 2}, {"heads": 4, "causal": True, "scale": 0.7}):
        made = network(node("a", "ATTENTION", ["x", "x", "x"], **attrs), shape=("B", 5, 8))
        wanted = building.build(made, {}, {}).eval()(x)
        assert difference(loaded(made, [])(x), wanted) < 1e-5


def test_bfloat16(loaded: Write) -> None:
    kernel = torch.arange(12.0).reshape(3, 4).to(torch.bfloat16)
    made = network(node("d", "FULL", ["x"], ["weight"], out=3))
    stored = tensor("d.weight", kernel.view(torch.int16).numpy(), "bfloat16")
    model = loaded(made, [stored])
    [layer] = [layer for layer in model.layers if layer.weights]
    assert layer.dtype_policy.name == "bfloat16"
    assert torch.equal(layer.kernel.value.detach(), kernel.T)


REFUSED: dict[str, tuple[Node, str]] = {
    "lrn": (node("n", "NORM", ["x"], variant="LRN"), "no such norm"),
    "batch statistics": (node("n", "NORM", ["x"], variant="BATCH"), "no such norm"),
    "foreign": (
        node("n", "OP", ["x"], variant="raw", source={"dialect": "onnx", "op": "Foo"}),
        "operation of onnx",
    ),
    "code": (
        node("n", "OP", ["x"], variant="raw", source={
            "dialect": "keras", "op": "theirs>Own", "args": [{"n": 0}],
            "kwargs": {"config": {"c": "{}"}}}),
        "code of its author",
    ),
    "lambda": (
        node("n", "OP", ["x"], variant="raw", source={
            "dialect": "keras", "op": "Lambda", "args": [{"n": 0}],
            "kwargs": {"config": {"c": "{}"}}}),
        "code of its author",
    ),
    "groups": (
        node("n", "DECONV", ["x"], ["weight"], out=4, kernel=[1, 1], groups=2),
        "in groups",
    ),
    "rolled": (
        node("n", "OP", ["x"], variant="raw", source={
            "dialect": "aten", "op": "aten.roll.default", "args": [{"n": 0}], "kwargs": {}}),
        "roll.default",
    ),
    "not stored": (node("n", "FULL", ["x"], ["weight"], out=4), "not stored"),
    "second output": (
        node("n", "RELU", [("x", 1)]),
        "output 1 of 'x'",
    ),
    "batch joined": (node("n", "CONCAT", ["x", "x"], axis=0), "joins batches"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_keras_cannot_say(name: str) -> None:
    odd, why = REFUSED[name]
    made = network(odd, shape=("B", 4, 6, 6))
    out = io.BytesIO()
    with pytest.raises(UsageError, match="Keras cannot express the node 'n'") as caught:
        keras_writer.save_network(out, made, [], [])
    assert why in str(caught.value.why)
    assert out.getvalue() == b""


def test_notes() -> None:
    made = network(
        node("a.b", "FULL", ["x"], ["weight"], out=4),
        node("odd/name", "RELU", ["a.b"]),
        node("dead", "RELU", ["a.b"]),
        node("end", "RELU", ["odd/name"]),
    )
    tensors = [numbers("a.b.weight", 4, 4), numbers("spare", 2)]
    tensors.append(tensor("n.num_batches_tracked", np.array(3)))
    notes = keras_writer.save_network(io.BytesIO(), made, tensors, [])
    assert notes == [
        "what no output needs is skipped: dead",
        "dots in the names of layers became underscores",
        "names that Keras does not take were changed: odd/name",
        "tensors that no layer has are skipped: spare",
    ]


def test_many_layers_are_written_in_the_order_of_keras(
    keras: Any, loaded: Write, difference: Callable[[Any, Any], float]
) -> None:
    """Weights are found by their place: branches that join late and early, crossing each other."""
    nodes, tensors = [], []
    ends = ["x"]
    dice = np.random.default_rng(5)
    for place in range(60):
        below = [ends[at] for at in dice.integers(0, len(ends), 2)]
        if place % 3 == 2:
            nodes.append(node(f"n{place}", "ADD", below))
        else:
            nodes.append(node(f"n{place}", "FULL", below[:1], ["weight", "bias"], out=4))
            weight = dice.normal(size=(4, 4)).astype("f4") * 0.5
            tensors.append(tensor(f"n{place}.weight", weight))
            tensors.append(tensor(f"n{place}.bias", dice.normal(size=4).astype("f4")))
        ends.append(f"n{place}")
    used = {name for item in nodes for name, _ in item.inputs}
    outputs = tuple((item.name, 0) for item in nodes if item.name not in used)
    made = Network((Input("x", ("B", 4)),), tuple(nodes), outputs)
    building = pytest.importorskip("dlv.network.torch.module")
    arrays = {
        t.name: torch.from_numpy(np.frombuffer(t.read(), "f4").reshape(t.shape).copy())
        for t in tensors
    }
    x = torch.randn(3, 4)
    assert difference(loaded(made, tensors)(x), building.build(made, arrays, {})(x)) < 1e-5
