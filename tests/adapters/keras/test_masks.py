"""Masks of Keras: what dlv computes with them is what Keras computes, on padded rows too.

Where dlv does not compute a mask, the layer that uses it is kept raw, and no engine runs it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlv.adapters.keras import graph
from tests.adapters.keras.comparing import filled, imported, off, raw
from tests.adapters.keras.every_setting import PLAIN

pytestmark = pytest.mark.filterwarnings("ignore")  # of Keras and what it uses

CLOSE = 1e-5
Body = Callable[[Any, Any], Any]


def embedding(layers: Any, x: Any, **more: Any) -> Any:
    return layers.Embedding(6, 4, mask_zero=True, **more)(x)


def both(layers: Any, x: Any) -> Any:
    held = embedding(layers, x)
    return layers.GlobalAveragePooling1D()(
        layers.Add()([layers.Dense(4)(held), layers.Dropout(0.3)(held)])
    )


def joined(layers: Any, x: Any) -> Any:
    held = layers.Concatenate()([embedding(layers, x), layers.Embedding(6, 4)(x)])
    return layers.GlobalAveragePooling1D()(held)


def attention(layers: Any, x: Any) -> Any:
    held = embedding(layers, x)
    return layers.GlobalAveragePooling1D()(layers.MultiHeadAttention(2, 2)(held, held))


def inside(layers: Any, x: Any) -> Any:
    import keras

    y = keras.Input((9, 4))
    inner = keras.Model(y, layers.GlobalAveragePooling1D()(layers.Dense(3)(y)))
    return inner(embedding(layers, x))


def outside(layers: Any, x: Any) -> Any:
    import keras

    y = keras.Input((9,), dtype="int32")
    inner = keras.Model(y, embedding(layers, y))
    return layers.GlobalAveragePooling1D()(inner(x))


def chain(*names: str) -> Body:
    """An Embedding with a mask, then layers one behind the other."""

    def build(layers: Any, x: Any) -> Any:
        held = embedding(layers, x)
        for name in names:
            held = eval(f"L.{name}", {"L": layers})(held)
        return held

    return build


EXACT: dict[str, Body] = {
    "mean": chain("GlobalAveragePooling1D()"),
    "mean kept": chain("GlobalAveragePooling1D(keepdims=True)"),
    "behind layers": chain(
        "Dense(5, activation='relu')",
        "LayerNormalization()",
        "Dropout(0.3)",
        "BatchNormalization()",
        "Activation('tanh')",
        "GlobalAveragePooling1D()",
    ),
    "behind what drops it": chain("Conv1D(3, 2)", "GlobalAveragePooling1D()"),
    "behind a norm that drops it": chain("RMSNormalization()", "GlobalAveragePooling1D()"),
    "flat": chain("Flatten()", "Dense(3)"),
    "the largest": chain("GlobalMaxPooling1D()"),
    "an activation": chain("Activation('softmax')", "GlobalAveragePooling1D()"),
    "at every step": chain("TimeDistributed(L.Dense(3))", "GlobalAveragePooling1D()"),
    "added": both,
    "LSTM": chain("LSTM(3)"),
    "a mean behind a GRU": chain(
        "Bidirectional(L.GRU(3, return_sequences=True))", "GlobalAveragePooling1D()"
    ),
    "attention": attention,
    "joined": joined,
    "slopes": chain("PReLU()", "GlobalAveragePooling1D()"),
    "of length one": chain("UnitNormalization()", "GlobalAveragePooling1D()"),
    "in a model": inside,
    "from a model": outside,
}
REFUSED: dict[str, tuple[Body, set[str]]] = {
    "SimpleRNN": (chain("SimpleRNN(3)"), {"SimpleRNN"}),
    "a mean behind a GRU": (
        chain(
            "Bidirectional(L.GRU(3, return_sequences=True, reset_after=False))",
            "GlobalAveragePooling1D()",
        ),
        {"Bidirectional"},
    ),
    "softmax": (chain("Softmax()"), {"Softmax"}),
    "a product": (lambda layers, x: layers.Multiply()([embedding(layers, x)] * 2), {"Multiply"}),
}


def functional(keras: Any, body: Body) -> Any:
    x = keras.Input((9,), dtype="int32")
    return keras.Model(x, body(keras.layers, x))


def sequential(keras: Any, *layers: Any) -> Any:
    return keras.Sequential([keras.Input((9,), dtype="int32"), *layers])


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("name", EXACT)
def test_masks_are_computed(keras: Any, tmp_path: Path, name: str, suffix: str) -> None:
    model = filled(functional(keras, EXACT[name]))
    checkpoint = imported(model, tmp_path / f"m{suffix}")
    try:
        assert raw(checkpoint.network) == []
        assert off(model, checkpoint) < CLOSE
    finally:
        checkpoint.close()


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("name", REFUSED)
def test_masks_that_are_not_computed_keep_their_layer_raw(
    keras: Any, tmp_path: Path, name: str, suffix: str
) -> None:
    body, kept = REFUSED[name]
    checkpoint = imported(functional(keras, body), tmp_path / f"m{suffix}")
    checkpoint.close()
    assert kept <= set(raw(checkpoint.network))


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_masks_in_a_chain_of_layers(keras: Any, tmp_path: Path, suffix: str) -> None:
    """Here the file says nothing about the mask but `mask_zero`."""
    layers = keras.layers
    inner = keras.Sequential([layers.Embedding(6, 4, mask_zero=True), layers.Dense(3)])
    for model in (
        sequential(keras, layers.Embedding(6, 4, mask_zero=True), layers.GlobalAveragePooling1D()),
        sequential(keras, inner, layers.GlobalAveragePooling1D()),
        keras.Sequential(
            [
                keras.Input((9,)),  # numbers, as Keras takes them when nothing is said
                layers.Embedding(6, 4, mask_zero=True),
                layers.GlobalAveragePooling1D(),
            ]
        ),
        keras.Sequential(
            [keras.Input((6, 4)), layers.Masking(0.5), layers.GlobalAveragePooling1D()]
        ),
    ):
        checkpoint = imported(filled(model), tmp_path / f"m{suffix}")
        try:
            assert raw(checkpoint.network) == []
            assert off(model, checkpoint) < CLOSE
        finally:
            checkpoint.close()
    model = sequential(keras, layers.Embedding(6, 4, mask_zero=True), layers.Softmax())
    checkpoint = imported(model, tmp_path / f"m{suffix}")
    checkpoint.close()
    assert raw(checkpoint.network) == ["Softmax"]


def test_a_custom_layer_may_hand_on_any_mask(keras: Any, tmp_path: Path) -> None:
    class Mine(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x

    model = keras.Sequential([keras.Input((9, 4)), Mine(), keras.layers.GlobalAveragePooling1D()])
    checkpoint = imported(model, tmp_path / "m.keras")
    checkpoint.close()
    assert len(raw(checkpoint.network)) == 2


def test_the_tables_say_what_keras_does(keras: Any) -> None:
    layers = keras.layers
    more: dict[str, Any] = {
        **{key: {"rate": 0.1} for key in ("AlphaDropout", "GaussianDropout")},
        **{f"SpatialDropout{axes}D": {"rate": 0.1} for axes in (1, 2, 3)},
        "GaussianNoise": {"stddev": 0.1},
        "TimeDistributed": {"layer": layers.Dense(3)},
    }
    tables = ((graph.PASSES_MASK, True), (graph.MERGES_MASKS, True), (graph.DROPS_MASK, False))
    for table, passes in tables:
        for kind in table:
            if hasattr(layers, kind) and kind != "GlobalAveragePooling1D":
                layer = getattr(layers, kind)(**PLAIN.get(kind, more.get(kind, {})))
                assert layer.supports_masking is passes, kind
    for kind, made in inspect.getmembers(layers, inspect.isclass):
        call = getattr(made, "call", None)
        if call is None or "mask" not in inspect.signature(call).parameters:
            continue
        # What takes a mask is never among those that compute the same without it.
        assert not graph.ignores_mask(kind) or kind == "BatchNormalization", kind
