"""Layers and functions of Keras that came in raw: what is written loads and computes the same."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlv.adapters.keras.rules.table import OWN
from dlv.adapters.keras.writer import save_network
from dlv.errors import DlvError
from dlv.network.agreement import distance
from tests.adapters.keras.comparing import drawn, filled, imported
from tests.adapters.keras.every_setting import PLAIN, every, shapes_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of Keras and what it uses

CLOSE = 1e-5
STEPS, IMAGE, VIDEO = (6, 4), (8, 8, 3), (4, 8, 8, 3)
# `L` is keras.layers, `k` keras, `O` keras.ops; x is the input, y a second one of its shape.
WRITTEN: dict[str, tuple[str, tuple[int, ...]]] = {
    "LSTM": ("L.LSTM(3)(x)", STEPS),
    "LSTM backwards": ("L.LSTM(3, return_sequences=True, go_backwards=True)(x)", STEPS),
    "a state": ("L.LSTM(3, return_state=True)(x)[1]", STEPS),
    "all states": ("L.LSTM(3, return_state=True)(x)", STEPS),
    "from states": ("L.GRU(3)(x, initial_state=L.Dense(3)(L.Flatten()(y)))", STEPS),
    "GRU": ("L.GRU(3, reset_after=False, use_bias=False)(x)", STEPS),
    "cell": ("L.RNN(L.LSTMCell(3))(x)", STEPS),
    "sum of both": ("L.Bidirectional(L.GRU(3), merge_mode='sum')(x)", STEPS),
    "in time": ("L.TimeDistributed(L.Conv2D(2, 3))(x)", VIDEO),
    "a model in time": (
        "L.TimeDistributed(k.Sequential([k.Input((8, 8, 3)), L.Flatten(), L.Dense(3)]))(x)",
        VIDEO,
    ),
    "ConvLSTM2D": ("L.ConvLSTM2D(2, 3)(x)", VIDEO),
    "PReLU": ("L.PReLU(shared_axes=[1, 2])(x)", IMAGE),
    "UnitNormalization": ("L.UnitNormalization()(x)", STEPS),
    "SpatialDropout1D": ("L.SpatialDropout1D(0.2)(x)", STEPS),
    "SpatialDropout2D": ("L.SpatialDropout2D(0.2)(x)", IMAGE),
    "AlphaDropout": ("L.AlphaDropout(0.2)(x)", STEPS),
    "Resizing": ("L.Resizing(5, 5)(x)", IMAGE),
    "RandomFlip": ("L.RandomFlip()(x)", IMAGE),
    "RandomZoom": ("L.RandomZoom(0.2)(x)", IMAGE),
    "Adaptive": ("L.AdaptiveAveragePooling2D(3)(x)", IMAGE),
    "an activation layer": ("L.Dense(3, activation=L.LeakyReLU(negative_slope=0.1))(x)", STEPS),
    "float16": ("L.Dense(3, dtype='mixed_bfloat16')(x)", STEPS),
    "attention": ("L.MultiHeadAttention(2, 3)(x, y, use_causal_mask=True)", STEPS),
    "dot attention": ("L.Attention(use_scale=True)([x, y])", STEPS),
    "fixed training": ("L.BatchNormalization()(x, training=True)", STEPS),
    "different axes": ("L.Add()([x, L.GlobalMaxPooling1D(keepdims=True)(y)])", STEPS),
    "matmul": ("O.matmul(x, O.transpose(y, (0, 2, 1)))", STEPS),
    "einsum": ("O.einsum('abc,adc->abd', x, y)", STEPS),
    "mean": ("O.mean(x, axis=1)", STEPS),
    "stack": ("O.stack([x, y], axis=1)", STEPS),
    "split": ("O.split(x, 2, axis=1)[1]", STEPS),
    "where": ("O.where(x > 0, x, y)", STEPS),
    "power": ("x**2.0", STEPS),
    "attention with a mask": (
        "L.MultiHeadAttention(2, 2)((e := L.Embedding(6, 4, mask_zero=True)(x)), e)",
        (9,),
    ),
    "a constant": ("x + np.arange(4, dtype='float32')", STEPS),
    "less a constant": ("O.subtract(np.arange(4.0), x)", STEPS),
    "by a constant": ("x / np.arange(1.0, 5.0)", STEPS),
    "repeated": ("O.repeat(x, 2, axis=1)", STEPS),
    "around": ("O.pad(x, [[0, 0], [1, 2], [0, 0]])", STEPS),
    "root": ("O.rsqrt(x * x + 1.0)", STEPS),
    "flipped": ("O.flip(x, axis=1)", STEPS),
    "reciprocal": ("1.0 / (x * x + 1.0)", STEPS),
    "leaky": ("O.leaky_relu(x, 0.4)", STEPS),
    "masked": ("L.LSTM(3)(L.Embedding(6, 4, mask_zero=True)(x))", (9,)),
    "masked both ways": (
        "L.GlobalAveragePooling1D()(L.Bidirectional(L.LSTM(3, return_sequences=True))("
        "L.Embedding(6, 4, mask_zero=True)(x)))",
        (9,),
    ),
    "masked softmax": (
        "L.Activation('softmax')(L.LSTM(3, return_sequences=True)("
        "L.Embedding(6, 4, mask_zero=True)(x)))",
        (9,),
    ),
}
REFUSED: dict[str, tuple[str, tuple[int, ...]]] = {
    "a mask on its way": ("L.Multiply()([(e := L.Embedding(6, 4, mask_zero=True)(x)), e])", (9,)),
    "turned around": ("x[:, ::-1]", STEPS),
    "stacked cells": ("L.RNN([L.LSTMCell(3), L.GRUCell(2)])(x)", STEPS),
    "table of numbers": ("L.Discretization(bin_boundaries=[0.0, 1.0])(x)", STEPS),
}


def made(keras: Any, code: str, shape: tuple[int, ...]) -> Any:
    dtype = "int32" if shape == (9,) else "float32"
    x, y = keras.Input(shape, dtype=dtype), keras.Input(shape, dtype=dtype)
    names = {"L": keras.layers, "k": keras, "O": keras.ops, "x": x, "y": y, "np": np}
    result = eval(code, names)
    return filled(keras.Model([x, y] if "y" in code.replace("keys", "") else x, result))


def written(model: Any, path: Path) -> bytes:
    checkpoint = imported(model, path)
    try:
        assert checkpoint.network is not None
        out = io.BytesIO()
        save_network(out, checkpoint.network, checkpoint.tensors, checkpoint.constants)
        return out.getvalue()
    finally:
        checkpoint.close()


@pytest.fixture
def comes_back(keras: Any, tmp_path: Path) -> Callable[[Any], None]:
    """Keras loads what dlv writes, and computes the same."""

    def check(model: Any) -> None:
        data = written(model, tmp_path / "m.keras")
        path = tmp_path / "w.keras"
        path.write_bytes(data)
        again = keras.saving.load_model(path, safe_mode=True)
        for rows in (2, 3):
            given = drawn(model, rows, seed=rows)
            asked = given if len(given) > 1 else given[0]
            pairs = zip(
                listed(again(asked, training=False)),
                listed(model(asked, training=False)),
                strict=True,
            )
            for a, b in pairs:
                assert distance(a.detach().float().numpy(), b.detach().float().numpy()) < CLOSE

    return check


def listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_loads(keras: Any, comes_back: Callable[[Any], None], name: str) -> None:
    comes_back(made(keras, *WRITTEN[name]))


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_not_come_back_is_refused(keras: Any, tmp_path: Path, name: str) -> None:
    with pytest.raises(DlvError, match="Keras cannot express") as caught:
        written(made(keras, *REFUSED[name]), tmp_path / "m.keras")
    assert caught.value.why


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLAIN)
def test_every_setting_comes_back(keras: Any, comes_back: Callable[[Any], None], kind: str) -> None:
    layer = getattr(keras.layers, kind)
    takes = inspect.signature(layer.__init__).parameters
    for settings in every(kind):
        if not (settings.keys() - {"dtype", "trainable"}) <= takes.keys():
            continue
        dtype = "int32" if kind == "Embedding" else "float32"
        inputs = [keras.Input(shape, dtype=dtype) for shape in shapes_of(kind, settings)]
        try:
            model = keras.Model(
                inputs, layer(**settings, name="it")(inputs if len(inputs) > 1 else inputs[0])
            )
            given = drawn(model, 2)
            model(given if len(given) > 1 else given[0])
        except (ValueError, TypeError, RuntimeError):
            continue  # not possible in Keras, or not on torch
        if settings.get("renorm"):
            continue  # refused: its variables have no names here
        comes_back(filled(model))


def test_all_of_these_layers_are_keras_own(keras: Any) -> None:
    missing = {"DepthwiseConv3D", "SeparableConv3D"}
    assert {kind for kind in OWN if not hasattr(keras.layers, kind)} <= missing
