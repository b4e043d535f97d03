"""dlv.adapters.keras.config, settings and graph without Keras."""

from __future__ import annotations

import contextlib
import copy
import json
import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.adapters.keras import config as keras_config
from dlv.adapters.keras import files as keras_settings
from dlv.adapters.keras.config import Ref, Unsayable, batch_shape, parse, read_model
from dlv.adapters.keras.graph import Graph, source_of
from dlv.adapters.keras.rules.table import converter
from dlv.adapters.keras.weights import Names, leaves, snake
from dlv.canonical import dumps, loads
from dlv.errors import Damaged, DlvError, UnsafeInput
from dlv.network.graph import Network
from dlv.network.verify import verify


def tensor(name: str, call: int = 0, number: int = 0) -> dict[str, Any]:
    return {"class_name": "__keras_tensor__", "config": {"keras_history": [name, call, number]}}


def layer(kind: str, name: str, *feeds: Any, **settings: Any) -> dict[str, Any]:
    calls = [{"args": [feed], "kwargs": {}} for feed in feeds]
    return {
        "module": "keras.layers",
        "class_name": kind,
        "registered_name": None,
        "config": {"name": name, **settings},
        "name": name,
        "inbound_nodes": calls,
    }


INPUT = layer("InputLayer", "x", batch_shape=[None, 4])


def functional(*layers: Any) -> dict[str, Any]:
    config = {
        "name": "m",
        "layers": [INPUT, *layers],
        "input_layers": ["x", 0, 0],
        "output_layers": [[layers[-1]["name"], 0, 0]],
    }
    return {"module": "keras", "class_name": "Functional", "config": config}


def network_of(config: Any) -> Network:
    model = read_model(config, "test")
    assert model is not None
    return Graph(Names({}), converter, "test").top(model)


def test_only_graphs_are_models() -> None:
    configs: list[dict[str, Any]] = [
        {"class_name": "Mine", "config": {"layers": []}},
        {"class_name": "Functional", "config": {}},
        {"class_name": "Functional", "module": "mine", "config": {"layers": []}},
        {"config": {"layers": []}},
        {"class_name": ["Functional"], "config": {"layers": []}},
    ]
    for config in configs:
        assert read_model(config, "test") is None


def test_parse() -> None:
    assert parse(b'{"a": [1, {"b": null}]}', "x") == {"a": [1, {"b": None}]}
    for text, error in (
        (b'{"a": 1, "a": 1}', UnsafeInput),
        (b'{"b": {"a": 1, "a": 1}}', UnsafeInput),
        (b"[]", Damaged),
        (b'{"a": Infinity}', Damaged),
        (b"{" * 101, Damaged),
        (b'{"a": "' + b" " * keras_config.MOST_BYTES + b'"}', Damaged),
    ):
        with pytest.raises(error):
            parse(text, "x")


def test_names_that_are_taken_already() -> None:
    """A repeated call may find its number taken by a layer of that name."""
    made = network_of(
        functional(
            layer("ReLU", "a_1", tensor("x")),
            layer("ReLU", "a", tensor("a_1"), tensor("x"), tensor("a")),
            layer("ReLU", "a_2", tensor("a", 1)),
            layer("Add", "end", [tensor("a_2"), tensor("a", 2), tensor("a", 0)]),
        )
    )
    assert [node.name for node in made.nodes] == ["a_1", "a", "a_2", "a_3", "a_2_1", "end"]
    assert [p for p in verify(made) if p.severity == "error"] == []


def test_layers_in_any_order() -> None:
    made = network_of(
        functional(
            layer("ReLU", "c", tensor("b")),
            layer("ReLU", "b", tensor("a")),
            layer("ReLU", "a", tensor("x")),
            layer("ReLU", "d", tensor("c")),
        )
    )
    assert [node.name for node in made.nodes] == ["a", "b", "c", "d"]


def test_a_thousand_layers_are_quick() -> None:
    chain = [layer("Dense", "d0", tensor("x"), units=4)]
    for place in range(1, 1000):
        chain.append(
            layer("Dense", f"d{place}", tensor(f"d{place - 1}"), units=4, activation="relu")
        )
    text = json.dumps(functional(*chain)).encode()
    start = time.process_time()
    made = network_of(parse(text, "x"))
    assert verify(made) == []
    assert len(made.nodes) == 1999
    assert time.process_time() - start < 8


def test_sequences_need_a_shape() -> None:
    dense = {"class_name": "Dense", "config": {"name": "d", "units": 2}}
    plain: dict[str, Any] = {"class_name": "Sequential", "config": {"name": "s", "layers": [dense]}}
    with pytest.raises(Exception, match="never built"):
        network_of(plain)
    plain["config"]["build_input_shape"] = [None, 5]
    assert network_of(plain).inputs[0].shape == ("B", 5)
    del plain["config"]["build_input_shape"]
    dense["build_config"] = {"input_shape": [3, 5]}
    assert network_of(plain).inputs[0].shape == (3, 5)
    old = {"class_name": "Sequential", "config": [{**dense, "build_config": {}}]}
    old["config"][0]["config"]["batch_input_shape"] = [None, 6]  # type: ignore[index]
    assert network_of(old).inputs[0].shape == ("B", 6)
    assert batch_shape({"batch_shape": [None, "x"]}) is None


def test_arguments_of_raw_layers() -> None:
    data = layer("Odd", "odd")
    data["inbound_nodes"] = [
        {
            "args": [[tensor("x"), tensor("y", 1, 2)], 5, "\udfff", 1 << 70, [1, [2]]],
            "kwargs": {"mask": tensor("z"), "deep": [[[[tensor("w")]]]], "none": None},
        }
    ]
    model = read_model(functional(data), "test")
    assert model is not None
    call = model.layers[1].calls[0]
    assert [ref.layer for ref in call.refs] == ["x", "y", "z", "w"]
    assert call.refs[1] == Ref("y", 1, 2, listed=False)
    source = source_of(model.layers[1], call)
    assert source["args"] == [
        {"l": [{"n": 0}, {"n": 1}]},
        {"c": 5},
        {"c": "\\udfff"},
        {"c": str(1 << 70)},
        {"c": "[1,[2]]"},
    ]
    assert source["kwargs"]["mask"] == {"n": 2}
    assert source["kwargs"]["none"] == {"c": None}


@pytest.mark.parametrize(
    "settings",
    [
        {"filters": 0, "kernel_size": [3, 3]},
        {"filters": 4, "kernel_size": [3]},
        {"filters": 4, "kernel_size": [3, 3], "strides": [0, 1], "padding": "same"},
        {"filters": 4, "kernel_size": [3, 3], "padding": "odd"},
        {"filters": 4, "kernel_size": [3, 3], "data_format": 5},
        {"filters": 4, "kernel_size": [True, 3]},
        {"filters": "4", "kernel_size": [3, 3]},
        {"filters": 4, "kernel_size": [3, 3], "groups": "x"},
        {"filters": 4, "kernel_size": [3, 3], "activation": {"class_name": "mine>f"}},
        {"filters": 4, "kernel_size": [3, 3], "activation": [1]},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_kept_raw(settings: dict[str, Any]) -> None:
    config = functional(layer("Conv2D", "c", tensor("x"), **settings))
    config["config"]["layers"][0] = layer("InputLayer", "x", batch_shape=[None, 8, 8, 3])
    [node] = network_of(config).nodes
    assert (node.op, node.name) == ("OP", "c")


def test_optimizers_that_wrap_others() -> None:
    inner = {"class_name": "SGD", "config": {"learning_rate": 0.1, "name": "sgd"}}
    outer = {"class_name": "LossScaleOptimizer", "config": {"inner_optimizer": inner, "scale": 2}}
    found = keras_settings.settings({"optimizer": outer, "loss": {"a": "mse", "b": None}})
    assert found == {"optimizer": "SGD", "learning_rate": 0.1, "loss": ["a=mse"]}
    assert keras_settings.settings({"optimizer": "adam"}) == {"optimizer": "adam"}
    assert keras_settings.settings(None) == {}
    assert keras_settings.settings({"optimizer": {"class_name": "A", "config": 3}}) == {
        "optimizer": "A"
    }


def test_groups_are_named_as_keras_names_them() -> None:
    names = ("Conv2D", "LSTM", "MultiHeadAttention", "LeakyReLU", "DepthwiseConv2D")
    assert [snake(name) for name in names] == [
        *("conv2d", "lstm", "multi_head_attention", "leaky_re_lu", "depthwise_conv2d")
    ]
    config = functional(
        layer("Dense", "one", tensor("x"), units=1),
        layer("Dense", "two", tensor("one"), units=1, use_bias=False),
    )
    model = read_model(config, "test")
    assert model is not None
    found = [(leaf.path, leaf.group, leaf.variables) for leaf in leaves(model)]
    assert found == [
        (("x",), "layers/input_layer", ()),
        (("one",), "layers/dense", ("kernel", "bias")),
        (("two",), "layers/dense_1", ("kernel",)),
    ]


def test_nodes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlv.adapters.keras.graph.MOST_NODES", 3)
    config = functional(layer("ReLU", "a", *[tensor("x")] * 4))
    with pytest.raises(DlvError, match="too many nodes"):
        network_of(config)


def mangled(value: Any, dice: random.Random) -> Any:
    """The same with one place of it replaced by something else."""
    places: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        keys = list(item) if isinstance(item, dict) else range(len(item))
        for key in keys:
            places.append((item, key))
            if isinstance(item[key], (dict, list)):
                waiting.append(item[key])
    for _ in range(dice.choice([1, 1, 2, 4])):
        holder, key = dice.choice(places)
        with contextlib.suppress(KeyError, IndexError):
            holder[key] = copy.deepcopy(dice.choice([*ODD, dice.choice(places)[0]]))
    return value


ODD: list[Any] = [
    *(None, True, -1, 0, 1, 7, 1 << 40, 1 << 80, -0.5, 1e308, "", "x", "linear", "softmax", "same"),
    *([], {}, [None], [1, 2], [[1, 2], [3]], ["x", 0, 0], {"class_name": "Dense"}),
    {"class_name": "Functional", "config": {"name": "f", "layers": []}},
    {"class_name": "function", "config": [], "registered_name": None},
    {"class_name": "__numpy__", "config": {"value": []}},
    tensor("x"),
    tensor("x", 3),
]
KINDS: dict[str, dict[str, Any]] = {
    "Conv2D": {"filters": 4, "kernel_size": [3, 3], "padding": "same", "activation": "relu"},
    "DepthwiseConv2D": {"kernel_size": [3, 3], "depth_multiplier": 2},
    "SeparableConv2D": {"filters": 4, "kernel_size": [3, 3], "depth_multiplier": 1},
    "Conv2DTranspose": {"filters": 4, "kernel_size": [3, 3], "strides": [2, 2], "padding": "same"},
    "MaxPooling2D": {"pool_size": [2, 2], "strides": None},
    "BatchNormalization": {"axis": [-1], "momentum": 0.9, "epsilon": 1e-3},
    "LayerNormalization": {"axis": [2, 3]},
    "GroupNormalization": {"groups": 2, "axis": -1},
    "ReLU": {"max_value": 6.0, "negative_slope": 0.0, "threshold": 0.0},
    "LeakyReLU": {"alpha": {"class_name": "__numpy__", "config": {"value": 0.3}}},
    "ZeroPadding2D": {"padding": [[1, 1], [0, 2]]},
    "Cropping2D": {"cropping": [[1, 1], [0, 2]]},
    "UpSampling2D": {"size": [2, 2], "interpolation": "nearest"},
    "Reshape": {"target_shape": [4, -1]},
    "Permute": {"dims": [2, 1, 3]},
    "Softmax": {"axis": [1]},
    "Rescaling": {"scale": 2.0, "offset": 1.0},
    "Dropout": {"rate": 0.5},
    "Embedding": {"input_dim": 5, "output_dim": 3},
    "EinsumDense": {"equation": "abcd,de->abce", "output_shape": [None, 5], "bias_axes": "e"},
    "TimeDistributed": {"layer": layer("Dense", "inner", units=4)},
    "Bidirectional": {"layer": layer("LSTM", "inner", units=4), "merge_mode": "concat"},
    "Concatenate": {"axis": 1},
    "Average": {},
    "Lambda": {"function": {"class_name": "__lambda__", "config": {}}},
}
FUNCTIONS = ("Add", "Multiply", "Subtract", "TrueDivide", "GetItem", "Relu", "Gelu", "Softmax")


def everything() -> dict[str, Any]:
    layers = [layer("InputLayer", "x", batch_shape=[None, 8, 8, 4])]
    for place, (kind, settings) in enumerate(KINDS.items()):
        feed: Any = tensor("x") if kind not in ("Concatenate", "Average") else [tensor("x")] * 2
        layers.append(layer(kind, f"l{place}", feed, **settings))
    for kind in FUNCTIONS:
        made = layer(kind, f"f{kind}", tensor("x"))
        made["module"] = "keras.src.ops.numpy"
        cut = {"class_name": "__slice__", "config": {"start": 1, "stop": None, "step": 2}}
        made["inbound_nodes"][0]["args"].append([cut, 1] if kind == "GetItem" else 2.0)
        layers.append(made)
    config = {**functional(*layers[1:])}
    config["config"]["layers"] = layers
    config["config"]["output_layers"] = [[item["name"], 0, 0] for item in layers[1:]]
    config["compile_config"] = {"optimizer": layer("Adam", "o", learning_rate=0.1), "loss": "mse"}
    return config


@pytest.mark.parametrize("times", [800, pytest.param(3000, marks=pytest.mark.slow)])
def test_configurations_changed_at_random_end_in_typed_errors(times: int) -> None:
    fine = json.dumps(everything())
    dice, read_well = random.Random(11), 0
    for _ in range(times):
        config = mangled(json.loads(fine), dice)
        with contextlib.suppress(DlvError, Unsayable):
            keras_settings.settings(config.get("compile_config"))
            made = read_model(config, "test")
            if made is not None:
                known = {
                    leaf.path: {name: name for name in leaf.variables} for leaf in leaves(made)
                }
                network = Graph(Names(known), converter, "test").top(made)
                stored = json.loads(dumps(network.canonical()))
                assert Network.from_canonical(stored).id == network.id
                verify(network)
                read_well += 1
    assert 0.1 * times < read_well < 0.9 * times


KEYS = ["class_name", "config", "optimizer", "optimizer_config", "inner_optimizer", "loss"]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["Adam", "\ud800", "function", "a>b", ""])
    | st.integers(min_value=2**70),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*KEYS, "metrics", "loss_weights", "lr", "\udfff"]), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(VALUES, VALUES, VALUES)
def test_any_settings_can_be_stored(optimizer: Any, loss: Any, config: Any) -> None:
    """Whatever stands there: texts that are none, numbers beyond 64 bits, things in odd places."""
    for compiled in (
        config,
        {"optimizer": optimizer, "loss": loss, "metrics": config},
        {"optimizer_config": {"class_name": "Adam\ud800", "config": config}},
        {"optimizer": {"class_name": "Adam", "config": {"\ud800": loss, "lr": config}}},
    ):
        found = keras_settings.settings(compiled)
        assert loads(dumps(found)) == found


@pytest.mark.parametrize(
    ("told", "dtype"),
    [
        *(("int32", "int32"), (None, "float32"), ("", "float32"), (7, "float32")),
        *(([], "float32"), (["int32"], "float32"), ({}, "float32"), ({"config": 1}, "float32")),
        ({"class_name": "DTypePolicy", "config": {"name": "float16"}}, "float16"),
        ({"class_name": "DTypePolicy", "config": {"name": ["float16"]}}, "float32"),
    ],
)
def test_dtypes_of_inputs(told: Any, dtype: str) -> None:
    config = copy.deepcopy(functional(layer("ReLU", "a", tensor("x"))))
    config["config"]["layers"][0]["config"]["dtype"] = told
    assert network_of(config).inputs[0].dtype == dtype
