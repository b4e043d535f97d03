"""Every setting of every layer that dlv reads, and calls: as in Keras, or kept raw by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlv.adapters.keras import files as keras_files
from dlv.adapters.keras.config import Unsayable, read_model
from dlv.adapters.keras.graph import Graph
from dlv.adapters.keras.rules.table import converter
from dlv.adapters.keras.weights import Names
from dlv.network.graph import Network
from dlv.network.verify import verify
from tests.adapters.keras.comparing import filled, imported, off, raw
from tests.adapters.keras.every_setting import PLAIN, every, shapes_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of Keras and what it uses

CLOSE = 1e-5
# The others differ from these in the number of axes alone.
_SLOW = [kind for kind in PLAIN if kind.endswith(("1D", "3D", "1DTranspose", "3DTranspose"))]


def listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def network_of(layer: dict[str, Any], shapes: list[Any], dtype: str = "float32") -> Graph:
    """The graph of one layer behind inputs; `layer` is what a file says about it."""
    names = [f"x{place}" for place in range(len(shapes))]
    inputs = [
        {
            "class_name": "InputLayer",
            "name": name,
            "config": {"name": name, "batch_shape": [None, *shape], "dtype": dtype},
            "inbound_nodes": [],
        }
        for name, shape in zip(names, shapes, strict=True)
    ]
    tensors = [tensor(name, [None, *shape]) for name, shape in zip(names, shapes, strict=True)]
    calls: list[Any] = [{"args": tensors if len(tensors) == 1 else [tensors], "kwargs": {}}]
    made = {"module": "keras.layers", "name": "it", "inbound_nodes": calls, **layer}
    config = {
        "name": "m",
        "layers": [*inputs, made],
        "input_layers": [[name, 0, 0] for name in names],
        "output_layers": [["it", 0, 0]],
    }
    model = read_model({"class_name": "Functional", "config": config}, "a test")
    assert model is not None
    graph = Graph(Names({}), converter, "a test", "3.0")
    graph.top(model)
    return graph


def tensor(name: str, shape: Any) -> dict[str, Any]:
    config = {"shape": shape, "dtype": "float32", "keras_history": [name, 0, 0]}
    return {"class_name": "__keras_tensor__", "config": config}


def is_raw(graph: Graph) -> bool:
    sources = [node.source for node in graph.nodes if node.source]
    return any(source["dialect"] == "keras" for source in sources)


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_behind_an_unknown_layer_all_is_read(keras: Any, tmp_path: Path, suffix: str) -> None:
    layers = keras.layers

    class Theirs(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x * 2

    def model(shape: tuple[int, ...], *behind: Any) -> Any:
        first = layers.Dense(4)
        return keras.Sequential([keras.Input(shape), first, Theirs(name="theirs"), *behind])

    def norms() -> list[Any]:
        return [layers.BatchNormalization(), layers.Activation("relu")]

    def end() -> list[Any]:
        return [layers.Flatten(), layers.Dense(3), layers.ReLU(), layers.LayerNormalization()]

    x = keras.Input((6, 4))
    functional = keras.Model(x, layers.LSTM(3)(Theirs(name="theirs")(layers.Dense(4)(x))))
    for built in (
        functional,
        model((8, 8, 3), layers.Conv2D(4, 3), layers.MaxPooling2D(), *norms(), *end()),
        model((8, 8, 3), layers.DepthwiseConv2D(3), *end()),
        model((6, 6, 3), layers.Conv2DTranspose(2, 3), layers.UpSampling2D(), *end()),
        model((5,), *norms(), layers.Dense(2, activation="softmax")),
    ):
        checkpoint = imported(filled(built), tmp_path / f"m{suffix}")
        checkpoint.close()
        network = checkpoint.network
        assert network is not None
        assert raw(network) == ["Theirs"]
        stored = {t.name: (t.dtype, t.shape) for t in checkpoint.tensors}
        assert [str(p) for p in verify(network, stored) if p.severity == "error"] == []


@pytest.mark.parametrize("kind", PLAIN)
def test_what_is_not_known_keeps_a_layer_raw(kind: str) -> None:
    plain = {key: listed(value) for key, value in PLAIN[kind].items()}
    dtype = "int32" if kind == "Embedding" else "float32"
    shapes = shapes_of(kind, {})

    def graph(**more: Any) -> Graph:
        layer = {"class_name": kind, "config": {"name": "it", **plain, **more}}
        return network_of(layer, shapes, dtype)

    assert not is_raw(graph(kernel_initializer="ones", bias_constraint=None))
    for value in (None, False, 0, 1, True, "text", {"class_name": "x", "config": {}}):
        odd = graph(twist=value)
        assert is_raw(odd)
        [note] = [name for names in odd.notes.values() for name in names]
        assert "twist" in note
    for policy in ("mixed_float16", "int8", {"class_name": "QuantizedDTypePolicy", "config": {}}):
        assert is_raw(graph(dtype=policy))
    for key in plain:
        assert is_raw(graph(**{key: {"class_name": "Tensor"}})), key


def test_calls_that_are_not_known_keep_a_layer_raw() -> None:
    dense = {"class_name": "Dense", "config": {"name": "it", "units": 3}}
    drop = {"class_name": "Dropout", "config": {"name": "it", "rate": 0.5}}
    x = tensor("x0", [None, 4])
    cases: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
        (dense, {}, False),
        (dense, {"training": True}, False),
        (dense, {"mask": None}, False),
        (dense, {"mask": x}, True),
        (dense, {"scale": 2}, True),
        (drop, {"training": False}, False),
        (drop, {"training": None}, False),
        (drop, {"training": True}, True),
        (drop, {"training": 1}, True),
        (drop, {"seed": 1}, True),
    ]
    for layer, kwargs, kept in cases:
        calls = [{"args": [x], "kwargs": kwargs}]
        assert is_raw(network_of({**layer, "inbound_nodes": calls}, [(4,)])) is kept, kwargs
    odd: list[list[Any]] = [[x, 1], [x, True], [[x, 1]], [x, x], [{"a": x}]]
    for args in odd:
        calls = [{"args": args, "kwargs": {}}]
        assert is_raw(network_of({**dense, "inbound_nodes": calls}, [(4,)])), args


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("Concatenate", lambda x: [[x, {"class_name": "__numpy__", "config": {}}]]),
        ("Concatenate", lambda x: [[x, 1.0]]),
        ("Add", lambda x: [x, {"class_name": "__numpy__", "config": {}}]),
        ("NotEqual", lambda x: [1, x]),
        ("GetItem", lambda x: [x]),
        ("Relu", lambda x: [x, 1]),
    ],
)
def test_functions_with_other_arguments_stay_raw(
    kind: str, args: Callable[[Any], list[Any]]
) -> None:
    calls = [{"args": args(tensor("x0", [None, 4])), "kwargs": {}}]
    layer = {"class_name": kind, "config": {"name": "it"}, "inbound_nodes": calls}
    assert is_raw(network_of({**layer, "module": "keras.src.ops.numpy"}, [(4,)]))


def test_sides_by_name_are_not_exchanged() -> None:
    pair = {"x2": tensor("x0", [None, 4]), "x1": tensor("x1", [None, 4])}
    layer = {"class_name": "Subtract", "module": "keras.src.ops.numpy", "config": {"name": "it"}}
    calls = [{"args": [], "kwargs": pair}]
    graph = network_of({**layer, "inbound_nodes": calls}, [(4,), (4,)])
    assert graph.nodes[-1].inputs == (("x1", 0), ("x0", 0))


def test_inputs_and_models_with_more_settings_have_no_network() -> None:
    layer = {"class_name": "Dense", "config": {"name": "it", "units": 3}}
    for more in ({"sparse": True}, {"ragged": True}, {"optional": True}, {"twist": 1}):
        model = read_model(
            {
                "class_name": "Sequential",
                "config": {
                    "name": "m",
                    "layers": [
                        {"class_name": "InputLayer", "config": {"batch_shape": [None, 4], **more}},
                        layer,
                    ],
                },
            },
            "a test",
        )
        assert model is not None
        with pytest.raises(Unsayable):
            Graph(Names({}), converter, "a test").top(model)
    given = {"name": "m", "layers": [layer], "build_input_shape": [None, 4], "twist": 1}
    model = read_model({"class_name": "Sequential", "config": given}, "a test")
    assert model is not None
    with pytest.raises(Unsayable, match="twist"):
        Graph(Names({}), converter, "a test").top(model)


def test_the_hard_sigmoid_of_older_files_is_another_function() -> None:
    layer = {"class_name": "Activation", "config": {"name": "it", "activation": "hard_sigmoid"}}
    assert not is_raw(network_of(layer, [(4,)]))
    model = read_model(
        {"class_name": "Sequential", "config": {"layers": [layer], "build_input_shape": [None, 4]}},
        "a test",
    )
    assert model is not None
    for version in (None, "2.11.0"):
        graph = Graph(Names({}), converter, "a test", version)
        graph.top(model)
        assert is_raw(graph)


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] if k in _SLOW else []) for k in PLAIN]
)
def test_every_setting_is_as_in_keras_or_keeps_the_layer_raw(
    keras: Any, tmp_path: Path, kind: str
) -> None:
    made = getattr(keras.layers, kind)
    takes = inspect.signature(made.__init__).parameters
    count = 0
    for settings in every(kind):
        if not (settings.keys() - {"dtype", "trainable"}) <= takes.keys():
            continue
        shapes = shapes_of(kind, settings)
        dtype = "int32" if kind == "Embedding" else "float32"
        inputs = [keras.Input(shape, dtype=dtype) for shape in shapes]
        try:
            layer = made(**settings, name="it")
            model = keras.Model(inputs, layer(inputs if len(inputs) > 1 else inputs[0]))
        except (ValueError, TypeError, RuntimeError):
            continue  # not possible in Keras
        checkpoint = imported(filled(model), tmp_path / "m.keras")
        try:
            if not raw(checkpoint.network):
                count += 1
                assert off(model, checkpoint) < CLOSE, settings
        finally:
            checkpoint.close()
    assert count > (0 if kind == "EinsumDense" else 1)


def test_a_model_called_as_in_training(keras: Any, tmp_path: Path) -> None:
    """What is inside computes as in training, too; a fixed False is what use means anyway."""
    layers = keras.layers
    for training, kept in ((True, ["Dropout", "BatchNormalization"]), (False, []), (None, [])):
        x = keras.Input((4,))
        inside = [layers.Dense(4), layers.Dropout(0.5), layers.BatchNormalization()]
        inner = keras.Sequential([keras.Input((4,)), *inside])
        deeper = keras.Sequential([keras.Input((4,)), inner])
        model = filled(keras.Model(x, deeper(x, training=training)))
        checkpoint = imported(model, tmp_path / "m.keras")
        try:
            assert raw(checkpoint.network) == kept
            network = checkpoint.network
            assert isinstance(network, Network)
            for node in network.nodes:
                if node.source:
                    assert node.source["kwargs"]["training"] == {"c": True}
            if not kept:
                assert off(model, checkpoint) < CLOSE
        finally:
            checkpoint.close()


def test_models_with_names_for_inputs_and_outputs(keras: Any, tmp_path: Path) -> None:
    """They are handed over by name and counted in the order of the names, as in Keras."""
    layers = keras.layers
    b, a = keras.Input((4,), name="q"), keras.Input((4,), name="p")
    ends = {"z": layers.Dense(2)(b), "y": layers.Dense(3)(a)}
    inner = keras.Model({"q": b, "p": a}, ends, name="inner")
    x = keras.Input((4,), name="x")
    out = inner({"q": x, "p": layers.ReLU()(x)})
    model = filled(keras.Model(x, layers.Concatenate()([out["z"], out["y"]])))
    for suffix in (".keras", ".h5"):
        checkpoint = imported(model, tmp_path / f"m{suffix}")
        try:
            assert raw(checkpoint.network) == []
            assert off(model, checkpoint) < CLOSE
        finally:
            checkpoint.close()


def test_files_say_which_setting_was_not_understood(keras: Any, tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4, 3)), keras.layers.Rescaling([1.0, 2.0, 3.0])])
    model.save(tmp_path / "m.keras")
    checkpoint = keras_files.open(str(tmp_path / "m.keras"))
    checkpoint.close()
    [note] = checkpoint.notes
    assert "rescaling" in note
    assert "scale is [1.0, 2.0, 3.0]" in note
