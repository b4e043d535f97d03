"""dlv.adapters.keras.files and .h5 against Keras itself: weights bit for bit, forward in torch."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlv.adapters.checkpoint import Checkpoint
from dlv.adapters.keras import files as keras_files
from dlv.adapters.keras import h5 as keras_h5
from dlv.errors import Damaged, UnsafeInput, UsageError
from dlv.network.torch.module import build
from dlv.network.verify import verify

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore")  # of Keras and what it uses

# A layer, its input; `L` is keras.layers.
LAYERS: dict[str, tuple[str, tuple[int | None, ...]]] = {
    **{
        f"{kind} {padding} stride {stride} kernel {kernel}": (
            f"L.{kind}({'4, ' if 'Depth' not in kind and 'Pool' not in kind else ''}{kernel}, "
            f"strides={stride}, padding='{padding}'{more})",
            (9, 8, 3),
        )
        for kind, more in (
            ("Conv2D", ""),
            ("DepthwiseConv2D", ", depth_multiplier=2"),
            ("SeparableConv2D", ", depth_multiplier=2, activation='tanh'"),
            ("Conv2DTranspose", ""),
            ("MaxPooling2D", ""),
        )
        for padding in ("same", "valid")
        for stride, kernel in ((1, 3), (2, 2), (2, 3), (3, 5))
    },
    "Conv1D causal": ("L.Conv1D(4, 3, padding='causal', dilation_rate=2)", (9, 3)),
    "Conv2D dilated": ("L.Conv2D(4, 3, padding='same', dilation_rate=2)", (9, 8, 3)),
    "Conv2D groups": ("L.Conv2D(4, 3, groups=2, use_bias=False)", (8, 8, 6)),
    "Conv2D channels first": (
        "L.Conv2D(4, 3, strides=2, padding='same', data_format='channels_first')",
        (3, 9, 8),
    ),
    "Conv3D": ("L.Conv3D(2, 3, strides=2, padding='same')", (5, 6, 7, 2)),
    "Conv1DTranspose": ("L.Conv1DTranspose(3, 4, strides=2, padding='same')", (9, 4)),
    "Conv2DTranspose more": (
        "L.Conv2DTranspose(4, 3, strides=2, padding='same', output_padding=1)",
        (5, 6, 3),
    ),
    "Conv3DTranspose": ("L.Conv3DTranspose(3, 2, strides=3)", (3, 4, 2, 2)),
    "DepthwiseConv1D": ("L.DepthwiseConv1D(3)", (9, 4)),
    "SeparableConv1D": ("L.SeparableConv1D(3, 3)", (9, 4)),
    "AveragePooling2D": ("L.AveragePooling2D((2, 3))", (9, 8, 3)),
    "AveragePooling2D same": ("L.AveragePooling2D(3, strides=1, padding='same')", (9, 8, 3)),
    "Dense on three axes": ("L.Dense(4, activation='gelu')", (5, 6)),
    "BatchNormalization": ("L.BatchNormalization()", (4, 5, 3)),
    "BatchNormalization of axis 1": ("L.BatchNormalization(axis=1, scale=False)", (4, 5, 3)),
    "LayerNormalization": ("L.LayerNormalization(center=False)", (4, 6)),
    "LayerNormalization of two axes": ("L.LayerNormalization(axis=[1, 2])", (4, 6)),
    "RMSNormalization": ("L.RMSNormalization()", (4, 6)),
    "GroupNormalization": ("L.GroupNormalization(2)", (4, 5, 6)),
    "GroupNormalization of each": ("L.GroupNormalization(-1)", (4, 5, 6)),
    "GlobalAveragePooling2D": ("L.GlobalAveragePooling2D(keepdims=True)", (4, 5, 6)),
    "GlobalMaxPooling2D": ("L.GlobalMaxPooling2D()", (4, 5, 6)),
    "GlobalMaxPooling1D": ("L.GlobalMaxPooling1D(keepdims=True)", (4, 5)),
    "Flatten": ("L.Flatten()", (2, 3, 4)),
    "Flatten channels first": ("L.Flatten(data_format='channels_first')", (2, 3, 4)),
    "Reshape": ("L.Reshape((4, -1))", (2, 6)),
    "Permute": ("L.Permute((2, 3, 1))", (2, 3, 4)),
    "RepeatVector": ("L.RepeatVector(3)", (5,)),
    "ZeroPadding2D": ("L.ZeroPadding2D(((1, 2), (0, 3)))", (4, 5, 2)),
    "ZeroPadding1D": ("L.ZeroPadding1D(2)", (4, 5)),
    "Cropping2D": ("L.Cropping2D(((1, 0), (0, 2)))", (5, 6, 2)),
    "UpSampling2D": ("L.UpSampling2D((2, 3))", (3, 4, 2)),
    "UpSampling1D": ("L.UpSampling1D(3)", (4, 2)),
    "ReLU": ("L.ReLU(6.0)", (4,)),
    "LeakyReLU": ("L.LeakyReLU()", (4,)),
    "ELU": ("L.ELU(0.7)", (4,)),
    "Softmax": ("L.Softmax(axis=1)", (3, 4)),
    "Dropout": ("L.Dropout(0.4)", (4,)),
    "Rescaling": ("L.Rescaling(0.5, -1.0)", (4,)),
    "TimeDistributed": ("L.TimeDistributed(L.Dense(3, activation='relu'))", (4, 5)),
    "EinsumDense": ("L.EinsumDense('abc,cd->abd', (None, 7), bias_axes='d')", (4, 5)),
    **{
        f"activation {name}": (f"L.Activation('{name}')", (5,))
        for name in (
            *("relu", "relu6", "leaky_relu", "sigmoid", "tanh", "silu", "gelu", "softmax"),
            *("log_softmax", "elu", "selu", "softplus", "exponential", "mish", "hard_sigmoid"),
            *("hard_silu", "celu", "log_sigmoid", "linear"),
        )
    },
}


@pytest.fixture
def agrees(
    keras: Any,
    with_weights: Callable[[Any], Any],
    saved: Callable[..., Path],
    arrays_of: Callable[[Checkpoint], dict[str, Any]],
    inputs_for: Callable[..., list[Any]],
    difference: Callable[[Any, Any], float],
) -> Callable[..., Checkpoint]:
    """Save, read, compare weights with Keras' and, where all is sayable, what comes out."""

    def check(model: Any, suffix: str = ".keras", *, raw: tuple[str, ...] = ()) -> Checkpoint:
        path = saved(with_weights(model), suffix)
        opener = keras_files if suffix == ".keras" else keras_h5
        checkpoint: Checkpoint = opener.open(str(path))
        try:
            arrays = arrays_of(checkpoint)
            out = io.BytesIO()
            assert checkpoint.skeleton is not None
            keras_files.restore(out, checkpoint.skeleton, checkpoint.tensors)
        finally:
            checkpoint.close()
        assert out.getvalue() == path.read_bytes()
        theirs = {v.path: held for v, held in zip(model.weights, model.get_weights(), strict=True)}
        ours = sorted((a.shape, a.dtype.name, a.tobytes()) for a in arrays.values())
        assert ours == sorted((a.shape, a.dtype.name, a.tobytes()) for a in theirs.values())
        network = checkpoint.network
        assert network is not None
        stored = {t.name: (t.dtype, t.shape) for t in checkpoint.tensors}
        assert [str(p) for p in verify(network, stored) if p.severity == "error"] == []
        odd = [n for n in network.nodes if n.source and n.source["dialect"] == "keras"]
        assert {node.source["op"] for node in odd if node.source} == set(raw)
        if not raw:
            tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
            module = build(network, tensors, {}).eval()
            for batch in (1, 3):
                xs = inputs_for(network, batch)
                wanted = model(xs if len(xs) > 1 else xs[0], training=False)
                assert difference(module(*xs), wanted) < 1e-5
        return checkpoint

    return check


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer(keras: Any, agrees: Callable[..., Checkpoint], name: str) -> None:
    code, shape = LAYERS[name]
    x = keras.Input(shape)
    made = eval(code, {"L": keras.layers})
    agrees(keras.Model(x, made(x)))


def test_an_uneven_average_is_that_of_the_other_backends(
    keras: Any, saved: Callable[..., Path]
) -> None:
    """Keras on torch counts the padding there; TensorFlow and JAX, and the vocabulary, do not."""
    x = keras.Input((5, 1))
    path = saved(keras.Model(x, keras.layers.AveragePooling1D(2, strides=2, padding="same")(x)))
    checkpoint = keras_files.open(str(path))
    checkpoint.close()
    assert checkpoint.network is not None
    module = build(checkpoint.network, {}, {}).eval()
    found = module(torch.arange(5.0).reshape(1, 5, 1)).flatten().tolist()
    assert found == [0.5, 2.5, 4.0]


def lenet(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(6, 5, padding="same", activation="relu", name="conv2d"),
            layers.MaxPooling2D(name="pool1"),
            layers.Conv2D(16, 5, activation="relu", name="conv2d_1"),
            layers.MaxPooling2D(name="pool2"),
            layers.Flatten(name="flatten"),
            layers.Dense(120, activation="relu", name="dense"),
            layers.Dense(10, name="dense_1"),
        ],
        name="lenet",
    )


def residual(keras: Any) -> Any:
    layers = keras.layers
    x = given = keras.Input((16, 16, 3), name="image")
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same")(x)))
    for depth, stride in ((8, 1), (16, 2), (16, 1)):
        y = layers.Conv2D(depth, 3, strides=stride, padding="same", use_bias=False)(x)
        y = layers.Activation("relu")(layers.BatchNormalization()(y))
        y = layers.BatchNormalization()(layers.Conv2D(depth, 3, padding="same")(y))
        if stride > 1:
            x = layers.Conv2D(depth, 1, strides=stride)(x)
        x = layers.ReLU()(layers.Add()([x, y]))
    x = layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(given, x)


def separable(keras: Any) -> Any:
    layers = keras.layers
    x = given = keras.Input((16, 16, 3))
    x = layers.ZeroPadding2D(((0, 1), (0, 1)))(x)
    x = layers.Conv2D(8, 3, strides=2)(x)
    for depth, stride in ((8, 1), (12, 2)):
        x = layers.DepthwiseConv2D(3, strides=stride, padding="same", use_bias=False)(x)
        x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
        x = layers.Conv2D(depth, 1, use_bias=False)(x)
    x = layers.SeparableConv2D(6, 3, activation="relu")(x)
    return keras.Model(given, layers.GlobalMaxPooling2D()(x))


def shared(keras: Any) -> Any:
    """Layers called again, the later calls behind those of others."""
    layers = keras.layers
    x = keras.Input((4,))
    first, second = layers.Dense(4, name="d"), layers.Dense(4, name="e", activation="tanh")
    return keras.Model(x, second(first(second(first(x)))))


def nested(keras: Any) -> Any:
    """Models within a model, called twice, one of them an output as well."""
    layers = keras.layers
    inside = keras.Input((6,))
    encode = keras.Model(inside, layers.Dense(4, activation="relu", name="d")(inside), name="enc")
    decode = keras.Sequential(
        [keras.Input((4,)), layers.Dense(5, name="s1"), layers.BatchNormalization(name="b")],
        name="dec",
    )
    x, y = keras.Input((6,), name="x"), keras.Input((6,), name="y")
    p, q = encode(x), encode(y)
    joined = [decode(p), decode(q), layers.Average()([p, q]), layers.Subtract()([p, q])]
    joined += [layers.Maximum()([p, q]), layers.Multiply()([p, q])]
    return keras.Model([x, y], [layers.Dense(2)(layers.Concatenate()(joined)), p])


def functions(keras: Any) -> Any:
    ops = keras.ops
    x = keras.Input((6,))
    y = 1 - (ops.relu(x) * 2 - 1)
    y = ops.sigmoid(y / 4) + x
    return keras.Model(x, ops.softmax(ops.gelu(y[:, 2:])))


def any_length(keras: Any) -> Any:
    layers = keras.layers
    x = keras.Input((None, 5))
    y = layers.LayerNormalization()(layers.Conv1D(4, 3, padding="same")(x))
    return keras.Model(x, layers.GlobalAveragePooling1D()(y))


def tokens(keras: Any) -> Any:
    x = keras.Input((6,), dtype="int32")
    return keras.Model(x, keras.layers.Dense(3)(keras.layers.Embedding(9, 4)(x)))


MODELS = [lenet, residual, separable, shared, nested, functions, any_length, tokens]


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("make", MODELS)
def test_models(
    keras: Any, agrees: Callable[..., Checkpoint], make: Callable[[Any], Any], suffix: str
) -> None:
    assert agrees(make(keras), suffix).notes == []


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_lenet(keras: Any, agrees: Callable[..., Checkpoint], suffix: str) -> None:
    model = lenet(keras)
    model.compile(
        optimizer=keras.optimizers.Adam(2e-3),
        loss="sparse_categorical_crossentropy",
        metrics=["acc"],
    )
    model.train_on_batch(np.ones((2, 28, 28, 1), "f4"), np.array([1, 2]))
    checkpoint = agrees(model, suffix)
    weights = [t.name for t in checkpoint.tensors if t.role == "weight"]
    layers = ("conv2d", "conv2d_1", "dense", "dense_1")
    assert weights == [f"{layer}.{name}" for layer in layers for name in ("kernel", "bias")]
    states = [t.name for t in checkpoint.tensors if t.role == "optimizer"]
    assert len(states) == 2 + 2 * 8
    if suffix == ".keras":
        assert states == [f"optimizer.{number}" for number in range(18)]
    network = checkpoint.network
    assert network is not None
    assert [(node.name, node.op) for node in network.nodes] == [
        ("conv2d", "CONV"),
        ("conv2d.relu", "RELU"),
        ("pool1", "POOL"),
        ("conv2d_1", "CONV"),
        ("conv2d_1.relu", "RELU"),
        ("pool2", "POOL"),
        ("flatten", "RESHAPE"),
        ("dense", "FULL"),
        ("dense.relu", "RELU"),
        ("dense_1", "FULL"),
    ]
    node = network.node("conv2d")
    assert node.params == {"weight": "conv2d.kernel", "bias": "conv2d.bias"}
    assert (node.attrs["layout"], node.attrs["channels"]) == ("kernel_first", "last")
    assert node.attrs["pad"] == ((2, 2), (2, 2))
    assert network.node("dense").attrs["layout"] == "in_out"
    assert network.inputs[0].shape == ("B", 28, 28, 1)
    parameters = checkpoint.hyperparameters
    assert parameters["optimizer"] == "Adam"
    assert parameters["learning_rate"] == pytest.approx(2e-3)
    assert parameters["loss"] == "sparse_categorical_crossentropy"
    assert parameters["metrics"] == ["acc"]


def test_norms(keras: Any, agrees: Callable[..., Checkpoint]) -> None:
    x = keras.Input((4, 4, 3))
    norm = keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-4, name="norm")
    network = agrees(keras.Model(x, norm(x))).network
    assert network is not None
    assert network.node("norm").attrs == {"eps": 1e-4, "axis": 3, "momentum": 0.1}
    assert network.node("norm").params == {
        "weight": "norm.gamma",
        "bias": "norm.beta",
        "running_mean": "norm.moving_mean",
        "running_var": "norm.moving_variance",
    }


def test_shared_layers_are_several_nodes_over_one_matrix(
    keras: Any, agrees: Callable[..., Checkpoint]
) -> None:
    network = agrees(shared(keras)).network
    assert network is not None
    assert [node.name for node in network.nodes] == [
        *("d", "e", "e.tanh", "d_1", "e_1", "e.tanh_1")
    ]
    assert network.node("d").params == network.node("d_1").params


def sequences(keras: Any) -> Any:
    layers = keras.layers
    x = keras.Input((6, 5))
    inner = layers.LSTM(3, return_sequences=True, activation="relu", name="lstm")
    y = layers.Bidirectional(inner, name="both")(x)
    y = layers.GRU(4, return_sequences=True, reset_after=False, name="gru")(y)
    y = layers.MultiHeadAttention(2, 3, name="attend")(y, y)
    return keras.Model(x, layers.PReLU(name="prelu")(layers.SimpleRNN(3, name="rnn")(y)))


RAW = ("Bidirectional", "GRU", "SimpleRNN")


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_what_the_vocabulary_cannot_say(
    keras: Any, agrees: Callable[..., Checkpoint], suffix: str
) -> None:
    checkpoint = agrees(sequences(keras), suffix, raw=RAW)
    network = checkpoint.network
    assert network is not None
    node = network.node("both")
    assert node.params["forward_lstm.lstm_cell.kernel"] == "both.forward_lstm.lstm_cell.kernel"
    assert network.node("attend.query").params["weight"] == "attend.query.kernel"
    assert network.node("prelu").params == {"slope": "prelu.alpha"}
    assert network.node("gru").out_shape == ("B", 6, 4)
    source = network.node("gru").source
    assert source is not None
    assert json.loads(source["kwargs"]["config"]["c"])["units"] == 4
    assert "both (Bidirectional: its activations are relu and sigmoid)" in checkpoint.notes[0]


def test_code_is_kept_shut(keras: Any, saved: Callable[..., Path]) -> None:
    layers = keras.layers

    @keras.saving.register_keras_serializable("theirs")
    class Own(keras.layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(shape[-1],), name="scale")
            self.inner = layers.Dense(2)
            self.inner.build(shape)

        def call(self, x: Any) -> Any:
            return x * self.scale

    x = keras.Input((4,))
    path = saved(keras.Model(x, Own(name="own")(layers.Lambda(lambda t: t * 2, name="code")(x))))
    checkpoint = keras_files.open(str(path))
    checkpoint.close()
    network = checkpoint.network
    assert network is not None
    code, own = network.nodes
    assert code.source is not None
    assert (code.op, code.variant, code.source["op"]) == ("OP", "raw", "Lambda")
    assert "code" not in json.loads(code.source["kwargs"]["config"]["c"])
    assert '"function"' not in code.source["kwargs"]["config"]["c"]
    assert own.source is not None
    assert own.source["op"] == "theirs>Own"
    assert own.params == {"0": "own.0", "inner.0": "own.inner.0", "inner.1": "own.inner.1"}
    assert checkpoint.exact


def test_a_model_made_by_code_has_no_network(keras: Any, saved: Callable[..., Path]) -> None:
    @keras.saving.register_keras_serializable("theirs")
    class Coded(keras.Model):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.first = keras.layers.Dense(3)
            self.blocks = [keras.layers.Dense(2), keras.layers.Dense(3)]

        def call(self, x: Any) -> Any:
            return self.blocks[1](self.blocks[0](self.first(x)))

    model = Coded()
    model(np.ones((1, 4), "f4"))
    checkpoint = keras_files.open(str(saved(model)))
    checkpoint.close()
    assert checkpoint.network is None
    assert "made by code" in checkpoint.notes[0]
    names = {tensor.name: tensor.shape for tensor in checkpoint.tensors}
    assert names["first.0"] == (4, 3)
    assert {"blocks.dense.0", "blocks.dense_1.1"} <= set(names)


def test_weights_without_the_model(keras: Any, tmp_path: Path) -> None:
    model = lenet(keras)
    model.save_weights(tmp_path / "a.weights.h5")
    checkpoint = keras_h5.open(str(tmp_path / "a.weights.h5"))
    found = {t.name: bytes(t.read()) for t in checkpoint.tensors}
    checkpoint.close()
    assert found["conv2d_1.0"] == model.get_layer("conv2d_1").get_weights()[0].tobytes()
    assert (checkpoint.network, checkpoint.exact) == (None, True)


def test_schedules_and_their_losses(keras: Any, saved: Callable[..., Path]) -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    model.compile(
        optimizer=keras.optimizers.SGD(schedule, momentum=0.9, nesterov=True),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
    )
    checkpoint = keras_files.open(str(saved(model)))
    checkpoint.close()
    found = checkpoint.hyperparameters
    assert found["optimizer"] == "SGD"
    assert found["learning_rate.schedule"] == "ExponentialDecay"
    assert found["learning_rate.decay_rate"] == 0.9
    assert (found["momentum"], found["nesterov"]) == (0.9, True)
    assert found["loss"] == "SparseCategoricalCrossentropy"
    assert found["metrics"] == ["SparseCategoricalAccuracy"]


def test_bfloat16(keras: Any, saved: Callable[..., Path]) -> None:
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(3, dtype="bfloat16", name="dense")]
    )
    kernel = torch.arange(12.0).reshape(4, 3).to(torch.bfloat16)
    model.layers[0].kernel.assign(kernel)
    checkpoint = keras_files.open(str(saved(model)))
    found = {t.name: (t.dtype, bytes(t.read())) for t in checkpoint.tensors}
    checkpoint.close()
    assert found["dense.kernel"][0] == "bfloat16"
    assert found["dense.kernel"][1] == kernel.view(torch.int16).numpy().tobytes()


def repacked(path: Path, method: int, **members: bytes) -> None:
    with zipfile.ZipFile(path) as source:
        content = {name: source.read(name) for name in source.namelist()} | members
    with zipfile.ZipFile(path, "w", method) as target:
        for name, data in content.items():
            target.writestr(name, data)


def test_a_packed_archive_and_a_wrong_checksum(keras: Any, saved: Callable[..., Path]) -> None:
    model = keras.Sequential([keras.Input((40,)), keras.layers.Dense(30, name="dense")])
    path = saved(model)
    whole = path.read_bytes()
    repacked(path, zipfile.ZIP_DEFLATED)
    checkpoint = keras_files.open(str(path))
    kernel = next(tensor for tensor in checkpoint.tensors if tensor.name == "dense.kernel")
    assert bytes(kernel.read()) == model.get_weights()[0].tobytes()
    checkpoint.close()
    assert (checkpoint.exact, checkpoint.skeleton) == (False, None)
    changed = bytearray(whole)
    changed[whole.index(model.get_weights()[0].tobytes()) + 5] ^= 1
    path.write_bytes(changed)
    checkpoint = keras_files.open(str(path))
    try:
        for tensor in checkpoint.tensors:
            with pytest.raises(Damaged, match="corrupt"):
                tensor.read()
            assert tensor.part is not None
            with pytest.raises(Damaged, match="corrupt"):
                tensor.part(0, 4)
    finally:
        checkpoint.close()


def test_parts_of_an_archive(keras: Any, saved: Callable[..., Path]) -> None:
    model = keras.Sequential([keras.Input((40,)), keras.layers.Dense(30, name="dense")])
    checkpoint = keras_files.open(str(saved(model)))
    whole = b""
    for tensor in checkpoint.tensors:
        assert tensor.part is not None
        whole += b"".join(
            tensor.part(start, min(7, tensor.nbytes - start))
            for start in range(0, tensor.nbytes, 7)
        )
    checkpoint.close()
    assert whole == b"".join(array.tobytes() for array in model.get_weights())


def test_other_archives(tmp_path: Path) -> None:
    path = tmp_path / "a.keras"
    config = {"class_name": "Sequential", "config": {"name": "s", "layers": []}}
    for members, error in (
        ({"metadata.json": "{}"}, Damaged),
        ({"config.json": "[]"}, Damaged),
        ({"config.json": json.dumps(config), "model.weights.h5": "no"}, Damaged),
        ({"config.json": json.dumps(config), "../x": ""}, UnsafeInput),
    ):
        with zipfile.ZipFile(path, "w") as file:
            for name, text in members.items():
                file.writestr(name, text)
        with pytest.raises(error):
            keras_files.open(str(path))
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", json.dumps(config))
    checkpoint = keras_files.open(str(path))
    checkpoint.close()
    assert "without weights" in " ".join(checkpoint.notes)
    with pytest.raises(UsageError, match="a network and its weights"):
        keras_files.save(io.BytesIO(), [], {})
