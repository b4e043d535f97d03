"""Layers of Keras in ball arithmetic: what Keras computes with whole weights is in every ball."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlv.network.bounds.ball import STRICT, Norms
from dlv.network.bounds.interval import Balls
from dlv.network.bounds.norms import level_norms, norms_of
from dlv.network.program import params_of, program
from dlv.weights.arrays import to_array
from tests.adapters.keras.comparing import drawn, filled, imported

pytestmark = pytest.mark.filterwarnings("ignore")  # of Keras and what it uses


def blocks(k: Any) -> Any:
    layers = k.layers
    x = k.Input((8, 6))
    y = layers.PReLU()(layers.Dense(6)(x))
    y = layers.Add()([y, layers.MultiHeadAttention(2, 3)(y, y, use_causal_mask=True)])
    y = layers.UnitNormalization()(y) * np.arange(1.0, 7.0) + np.ones(6)
    return k.Model(x, layers.Dense(4)(layers.GlobalAveragePooling1D()(y)))


def words(k: Any) -> Any:
    layers = k.layers
    x = k.Input((9,), dtype="int32")
    e = layers.Embedding(6, 4, mask_zero=True)(x)
    y = layers.MultiHeadAttention(2, 3, value_dim=5)(e, e)
    return k.Model(x, layers.Dense(3)(layers.PReLU(shared_axes=[1])(y)))


def image(k: Any) -> Any:
    from keras.src.applications.convnext import LayerScale

    layers = k.layers
    x = k.Input((6, 6, 3))
    y = LayerScale(1.0, 4)(layers.PReLU(shared_axes=[1, 2])(layers.Conv2D(4, 3)(x)))
    return k.Model(x, layers.Dense(3)(layers.GlobalAveragePooling2D()(y)))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("make", [blocks, words, image])
def test_keras_is_in_the_ball(
    keras: Any, tmp_path: Path, make: Callable[[Any], Any], seed: int
) -> None:
    model = filled(make(keras), seed)
    checkpoint = imported(model, tmp_path / "m.keras")
    try:
        network = checkpoint.network
        assert network is not None
        stored = (*checkpoint.constants, *checkpoint.tensors)
        whole = {t.name: to_array(t.dtype, t.shape, t.read()).astype(float) for t in stored}
        shapes = {t.name: (t.dtype, t.shape) for t in stored}
    finally:
        checkpoint.close()
    steps = program(replace(network, outputs=network.outputs[:1]), shapes)
    given = drawn(model, 4, seed=seed)
    wanted = model(given[0], training=False).detach().double().numpy()
    radii = []
    for bits in (8, 16, 24):
        centres, norms = dict(whole), {}
        for step in steps.linear:
            name = step.node.params["weight"]
            cell = 2.0 ** (np.ceil(np.log2(np.abs(whole[name]).max())) - bits)
            centres[name] = (np.floor(whole[name] / cell) + 0.5) * cell
            exact, read = (params_of(step, held.__getitem__)["weight"] for held in (whole, centres))
            shape = (None, *model.input_shape[1:]) if step.node.op == "CONV" else None
            of = norms_of(step.node, exact, shape)
            left = level_norms(step.node, exact, read, shape)
            norms[step.node.name] = Norms(
                *(of.opn, of.fro, of.absmax, left.dn, left.dfro, of.rows, left.drows, left.dopn)
            )
        found = Balls(steps, centres.__getitem__, norms, STRICT)
        ball = found.balls({network.inputs[0].name: given[0]})[steps.scores]
        off = np.sqrt(((wanted - ball.centre) ** 2).reshape(len(wanted), -1).sum(axis=1))
        assert (off <= ball.radius).all()
        if ball.box is not None:
            assert (np.abs(wanted - ball.centre) <= ball.box).all()
        radii.append(float(ball.radius.max()))
    assert radii[0] > radii[1] > radii[2] > 0
    assert radii[2] < 1e-2
