"""Recurrent layers and attention of Keras, with and without masks: every engine, and back."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlv.adapters.checkpoint import Checkpoint
from dlv.adapters.keras.writer import save_network
from dlv.network.agreement import distance
from tests.adapters.keras.comparing import drawn, filled, imported, off, raw
from tests.adapters.keras.test_user_models import ENGINES, answers, listed

pytestmark = pytest.mark.filterwarnings("ignore")  # of Keras and what it uses

CLOSE = 1e-5
SEEDS = (1, 2, 3)
STEPS, WORDS = (6, 4), (9,)
# `L` is keras.layers, `O` keras.ops; x is the input, e an embedding of words with a mask.
COMPUTED: dict[str, tuple[str, tuple[int, ...]]] = {
    "LSTM": ("L.LSTM(3)(x)", STEPS),
    "its sequence": ("L.LSTM(3, return_sequences=True, use_bias=False)(x)", STEPS),
    "GRU": ("L.GRU(3)(x)", STEPS),
    "backwards": ("L.GRU(3, return_sequences=True, go_backwards=True)(x)", STEPS),
    "states": ("L.LSTM(3, return_state=True)(x)", STEPS),
    "from states": ("decoder(x)", STEPS),
    **{
        f"{merge} of {what}": (f"L.Bidirectional({layer}, merge_mode={merge!r})(x)", STEPS)
        for merge in ("concat", "sum", "mul", "ave", None)
        for what, layer in (("last", "L.GRU(3)"), ("all", "L.LSTM(3, return_sequences=True)"))
    },
    "states both ways": ("L.Bidirectional(L.LSTM(3, return_state=True))(x)", STEPS),
    "masked LSTM": ("L.LSTM(3)(e)", WORDS),
    "masked sequence": ("L.LSTM(3, return_sequences=True)(e)", WORDS),
    "masked states": ("L.LSTM(3, return_sequences=True, return_state=True)(e)", WORDS),
    "masked GRU": ("L.GRU(3, return_sequences=True, return_state=True)(e)", WORDS),
    "masked backwards": ("L.LSTM(3, return_sequences=True, go_backwards=True)(e)", WORDS),
    "masked both ways": ("L.Bidirectional(L.LSTM(3, return_sequences=True))(e)", WORDS),
    "masked last both ways": ("L.Bidirectional(L.GRU(3))(e)", WORDS),
    "one behind the other": ("L.GRU(2)(L.LSTM(3, return_sequences=True)(e))", WORDS),
    "masked from states": ("decoder(e)", WORDS),
    "numbers that do not count": ("L.LSTM(3)(L.Masking(0.0)(x))", STEPS),
    "attention": ("L.MultiHeadAttention(2, 3)(x, x)", STEPS),
    "causal attention": (
        "L.MultiHeadAttention(2, 3, value_dim=5, use_bias=False)(x, x, use_causal_mask=True)",
        STEPS,
    ),
    "narrow values": ("L.MultiHeadAttention(2, 5, value_dim=3)(x, x)", STEPS),
    "masked attention": ("L.MultiHeadAttention(2, 3)(e, e)", WORDS),
    "masked with dropout": ("L.MultiHeadAttention(2, 3, dropout=0.1)(e, e)", WORDS),
    "masked and causal": ("L.MultiHeadAttention(2, 3)(e, e, use_causal_mask=True)", WORDS),
    "masked, causal, with dropout": (
        "L.MultiHeadAttention(2, 3, dropout=0.1)(e, e, use_causal_mask=True)",
        WORDS,
    ),
    "to another sequence": ("L.MultiHeadAttention(2, 3, output_shape=5)(L.Dense(4)(e), e)", WORDS),
    "a mask of its own": (
        "L.MultiHeadAttention(2, 3)(x, x, attention_mask=L.Dense(6)(x) > 0)",
        STEPS,
    ),
}
REFUSED: dict[str, tuple[str, tuple[int, ...], str]] = {
    "another activation": ("L.LSTM(3, activation='relu')(x)", STEPS, "LSTM"),
    "reset before": ("L.GRU(3, reset_after=False)(x)", STEPS, "GRU"),
    "unlike ways": (
        "L.Bidirectional(L.LSTM(3), backward_layer=L.LSTM(3, activation='relu', go_backwards=True))"
        "(x)",
        STEPS,
        "Bidirectional",
    ),
    "scores": (
        "L.MultiHeadAttention(2, 3)(x, x, return_attention_scores=True)",
        STEPS,
        "MultiHeadAttention",
    ),
    "other axes": (
        "L.MultiHeadAttention(2, 3, attention_axes=2)(y, y)",
        (4, 5, 3),
        "MultiHeadAttention",
    ),
}


def model_of(keras: Any, code: str, shape: tuple[int, ...]) -> Any:
    layers = keras.layers
    x = keras.Input(shape, dtype="int32" if shape == WORDS else "float32")
    names = {"L": layers, "O": keras.ops, "x": x, "y": x}
    if shape == WORDS:
        names["e"] = layers.Embedding(6, 4, mask_zero=True)(x)

    def decoder(sequence: Any) -> Any:
        _, *states = layers.LSTM(3, return_state=True)(sequence)
        return layers.LSTM(3, return_sequences=True)(sequence, initial_state=states)

    return filled(keras.Model(x, eval(code, {**names, "decoder": decoder})))


def given_of(model: Any, seed: int) -> list[Any]:
    """Words of which some in the middle do not count either; one row has none that does."""
    given = drawn(model, seed + 1, seed=seed)
    for numbers in given:
        if numbers.dtype.kind == "i":
            numbers[np.random.default_rng(seed).random(numbers.shape) < 0.3] = 0
            numbers[-1] = 0
    return given


def wanted_of(model: Any, given: list[Any]) -> list[Any]:
    return [each.detach().numpy() for each in listed(model(given[0], training=False))]


@pytest.fixture(params=[".keras", ".h5"])
def opened(
    request: Any, keras: Any, tmp_path: Path
) -> Iterator[Callable[[str, tuple[int, ...]], tuple[Any, Checkpoint]]]:
    checkpoints = []

    def open_(code: str, shape: tuple[int, ...]) -> tuple[Any, Checkpoint]:
        model = model_of(keras, code, shape)
        checkpoints.append(imported(model, tmp_path / f"m{request.param}"))
        return model, checkpoints[-1]

    yield open_
    for checkpoint in checkpoints:
        checkpoint.close()


Opened = Callable[[str, tuple[int, ...]], tuple[Any, Checkpoint]]


@pytest.mark.parametrize("name", COMPUTED)
def test_sequences_are_computed_and_come_back(
    keras: Any, opened: Opened, tmp_path: Path, name: str
) -> None:
    pytest.importorskip("onnxruntime")
    model, checkpoint = opened(*COMPUTED[name])
    network = checkpoint.network
    assert network is not None
    if name == "a mask of its own":  # its mask is made by functions that dlv keeps as they are
        assert "MultiHeadAttention" not in raw(network)
        return
    assert raw(network) == []
    out = io.BytesIO()
    save_network(out, network, checkpoint.tensors, checkpoint.constants)
    path = tmp_path / "w.keras"
    path.write_bytes(out.getvalue())
    again = keras.saving.load_model(path, safe_mode=True)
    for seed in SEEDS:
        given = given_of(model, seed)
        wanted = wanted_of(model, given)
        for engine, precision in ENGINES:
            got = answers(checkpoint, engine, precision, given)
            for a, b in zip(got, wanted, strict=True):
                assert a.shape == b.shape
                assert distance(a, b) < CLOSE, engine
        for a, b in zip(wanted_of(again, given), wanted, strict=True):
            assert distance(a, b) < CLOSE
    assert off(model, checkpoint) < CLOSE


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_another_function_keeps_its_layer(opened: Opened, name: str) -> None:
    code, shape, kind = REFUSED[name]
    _, checkpoint = opened(code, shape)
    assert kind in raw(checkpoint.network)
    assert any(kind in note for note in checkpoint.notes)
