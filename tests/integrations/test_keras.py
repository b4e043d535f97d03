"""The callback under the real Keras 3, on torch."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.api as api

pytest.importorskip("torch", reason="torch is not installed")
os.environ.setdefault("KERAS_BACKEND", "torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    keras: Any = pytest.importorskip("keras", reason="keras is not installed")
    from dlv.integrations.keras import DlvCallback

pytestmark = pytest.mark.filterwarnings("ignore")  # of Keras and what it uses
Said = Callable[[], list[str]]


class Stop(keras.callbacks.Callback):  # type: ignore[misc, name-defined, unused-ignore]
    def on_epoch_end(self, *_: Any) -> None:
        raise KeyError("here")


def small(dtype: str = "float32") -> Any:
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(8, activation="relu"), keras.layers.BatchNormalization()]
    layers += [keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((4,)), *layers], name="small")
    if dtype != "float32":
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(1, dtype=dtype)], name="low"
        )
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    return model


def fit(model: Any, *callbacks: Any, epochs: int = 3, **given: Any) -> Any:
    """Five batches an epoch."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 4)).astype("f4"), rng.normal(size=(20, 1)).astype("f4")
    return model.fit(
        x,
        y,
        batch_size=4,
        epochs=epochs,
        verbose=0,
        validation_split=0.0,
        callbacks=callbacks,
        **given,
    ).history


def state_of(model: Any) -> list[bytes]:
    return [keras.ops.convert_to_numpy(value).tobytes() for value in model.weights]


def test_a_training(project: Path, said: Said) -> None:
    model = small()
    callback = DlvCallback("net", every_epochs=2, every_steps=4, parameters={"note": "x"})
    history = fit(model, callback)
    assert said() == []
    with api.open() as repo:
        version = repo["net@1"]
        assert version.id == callback.version.id
        assert version.steps == [4, 8, 10, 12, 15]
        loss = version.metric("loss")
        assert (list(loss.steps), list(loss.values)) == ([5, 10, 15], history["loss"])
        assert set(version.tensors) == {variable.path for variable in model.weights}
        for variable in model.weights:
            expected = keras.ops.convert_to_numpy(variable)
            assert version.tensor(variable.path).tobytes() == expected.tobytes()
        settings = version.hyperparameters
        assert settings["optimizer.name"] == "SGD"
        assert settings["optimizer.learning_rate"] == pytest.approx(0.1)
        assert (settings["fit.epochs"], settings["note"]) == (3, "x")


def test_training_is_the_same_without_it(project: Path) -> None:
    plain = small()
    history = fit(plain)
    after = np.random.get_state()[1].tolist()  # type: ignore[index]
    model = small()
    callback = DlvCallback(every_steps=1, monitor="loss")
    assert fit(model, callback) == history
    assert callback.version.name == "small"
    assert state_of(model) == state_of(plain)
    assert np.random.get_state()[1].tolist() == after  # type: ignore[index]


def test_the_best_is_kept(project: Path) -> None:
    callback = DlvCallback("net", every_epochs=None, monitor="loss")
    history = fit(small(), callback, epochs=4)
    best = int(np.argmin(history["loss"])) + 1
    assert callback.version.hyperparameters["best.loss"] == min(history["loss"])
    assert callback.version.hyperparameters["best.step"] == 5 * best
    assert callback.version.steps == sorted({5 * best, 20})


def test_bfloat16_is_kept_to_the_bit(project: Path) -> None:
    model, callback = small("bfloat16"), DlvCallback()
    fit(model, callback, epochs=1)
    dtypes = {dtype for dtype, _ in callback.version.tensors.values()}
    assert dtypes == {"bfloat16"}


def test_once_more_goes_on(project: Path) -> None:
    model, callback = small(), DlvCallback("net")
    fit(model, callback, epochs=1)
    fit(model, callback, epochs=1)
    with api.open() as repo:
        second = repo["net@2"]
        assert second.parents == [repo["net@1"].id]
        assert second.steps == [10]


def test_a_training_that_fails(project: Path, said: Said) -> None:
    model, callback = small(), DlvCallback("net", every_epochs=None)
    with pytest.raises(KeyError, match="here"):
        fit(model, callback, Stop())
    # Keras tells nobody: it is committed when the program ends, or the next one begins.
    assert not callback.version
    callback.recorder._at_exit()
    assert callback.version.steps == [5]
    assert " (stopped " in callback.version.message  # and that is said
    assert any("training was stopped" in text for text in said())


def test_a_failure_does_not_stop_it(failing: str, said: Said) -> None:
    plain = small()
    history = fit(plain)
    model = small()
    assert fit(model, DlvCallback("net", every_steps=2, monitor="loss")) == history
    assert state_of(model) == state_of(plain)
    assert 1 <= len(said()) <= 2
    assert any(failing in text for text in said())


def test_other_processes_record_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    fit(small(), DlvCallback("net", every_steps=1), epochs=1)
    with api.open() as repo:
        assert len(repo) == 0
