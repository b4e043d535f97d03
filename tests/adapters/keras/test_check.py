"""Networks of Keras files held against Keras itself; what Keras is given runs no foreign code."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dlv.adapters.keras import check, weights
from dlv.adapters.keras import files as keras_files
from dlv.adapters.keras import h5 as keras_h5
from dlv.adapters.keras.check import bare_configuration, compared
from dlv.adapters.keras.config import Unsayable
from dlv.adapters.keras.rules import table
from tests.adapters.keras.comparing import filled, imported
from tests.adapters.keras.user_models import MODELS

pytestmark = pytest.mark.filterwarnings("ignore")  # of Keras and what it uses


def permuted(keras: Any, path: Path) -> None:
    """A file whose layers stand in another order than Keras numbers their weights in."""
    layers = keras.layers
    x = keras.Input((4,), name="x")
    y = layers.Dense(4, name="second")(layers.ReLU(name="r")(layers.Dense(4, name="first")(x)))
    filled(keras.Model(x, y)).save(path)
    with zipfile.ZipFile(path) as file:
        held = {name: file.read(name) for name in file.namelist()}
    config = json.loads(held["config.json"])
    config["config"]["layers"][1:] = config["config"]["layers"][:0:-1]
    held["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, data in held.items():
            file.writestr(name, data)


@pytest.mark.parametrize("name", [name for name, (_, odd) in MODELS.items() if not odd])
def test_models_that_are_computed_agree(keras: Any, tmp_path: Path, name: str) -> None:
    make, _ = MODELS[name]
    path = tmp_path / "m.keras"
    imported(filled(make(keras)), path).close()
    assert compared(path, keras_files.FORMAT) == {"compared": True}


def test_the_older_form_agrees(keras: Any, tmp_path: Path) -> None:
    for name in ("residual", "fine tuned", "siamese"):
        path = tmp_path / "m.h5"
        imported(filled(MODELS[name][0](keras)), path).close()
        assert compared(path, keras_h5.FORMAT) == {"compared": True}, name


def test_the_first_layer_that_differs_is_named(
    keras: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(use: Any) -> Any:
        assert dict(use.config)  # all of them are understood
        return use.add("RELU", None, {"slope": 0.01})

    path = tmp_path / "m.keras"
    layers = keras.layers
    x = keras.Input((4,))
    y = layers.Dense(4)(layers.ReLU(name="here")(layers.Dense(4, name="before")(x)))
    imported(filled(keras.Model(x, y)), path).close()
    monkeypatch.setitem(table.LAYERS, "ReLU", wrong)
    found = compared(path, keras_files.FORMAT)
    assert (found["way"], found["first"]) == ("torch", "here")


def test_weights_in_another_order_are_found(
    keras: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the names that Keras writes beside them; were there none, by what they compute."""
    path = tmp_path / "m.keras"
    permuted(keras, path)
    checkpoint = keras_files.open(str(path))
    checkpoint.close()
    assert checkpoint.network is None
    assert any("those of another layer" in note for note in checkpoint.notes)
    monkeypatch.setattr(weights, "_is_of", lambda *_: True)
    assert compared(path, keras_files.FORMAT)["first"] == "first"


@pytest.mark.slow  # Keras takes seconds to start
def test_in_a_process_of_its_own(keras: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    checkpoint = imported(filled(MODELS["siamese"][0](keras)), path)
    checkpoint.close()
    assert check.held_against(checkpoint, path, keras_files.FORMAT) == check.Verdict()


def dense(**more: Any) -> dict[str, Any]:
    config = {"name": "d", "units": 3, "activation": "relu", **more.pop("config", {})}
    return {"module": "keras.layers", "class_name": "Dense", "config": config, **more}


def model(*layers: Any, **more: Any) -> dict[str, Any]:
    config = {"name": "m", "layers": list(layers), "build_input_shape": [None, 4], **more}
    return {"module": "keras", "class_name": "Sequential", "config": config}


BAD = {"module": "os", "class_name": "system", "config": {"command": "true"}}


def names(value: Any) -> set[str]:
    """Every module and class that is named anywhere."""
    found = set()
    if isinstance(value, dict):
        found = {str(value[key]) for key in ("module", "class_name") if key in value}
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return found.union(*map(names, items))


def test_keras_gets_nothing_but_what_is_known() -> None:
    """Objects of initializers and the like are left out, those anywhere else are refused."""
    given = model(
        dense(
            config={
                "kernel_initializer": BAD,
                "bias_regularizer": BAD,
                "kernel_constraint": BAD,
                "activity_regularizer": BAD,
                "dtype": {
                    "module": "os",
                    "class_name": "DTypePolicy",
                    "config": {"name": "float32"},
                },
            },
            build_config={"input_shape": [None, 4], "more": BAD},
            compile_config=BAD,
        )
    )
    made = bare_configuration({**given, "compile_config": BAD})
    assert names(made) == {"keras", "Sequential", "keras.layers", "Dense"}
    [layer] = made["config"]["layers"]
    assert layer["config"]["dtype"] == "float32"
    odds: tuple[dict[str, Any], ...] = (
        BAD,
        model(BAD),
        model(dense(config={"activation": BAD})),
        model(dense(config={"activation": {"class_name": "__lambda__", "config": {}}})),
        model(dense(config={"units": BAD})),
        model(dense(config={"dtype": BAD})),
        model(dense(), twist=BAD),
        model(dense(), build_input_shape=BAD),
        model({**dense(), "class_name": "Lambda"}),
        model({**dense(), "class_name": "TFSMLayer"}),
        model({**dense(), "class_name": "TorchModuleWrapper"}),
        model({"class_name": "TimeDistributed", "config": {"layer": BAD}, "module": "keras"}),
        model(model(BAD)),
        model(dense(inbound_nodes=[{"args": [BAD], "kwargs": {}}])),
        model(dense(inbound_nodes=[{"args": [], "kwargs": {"x": {"module": "os"}}}])),
        {**model(dense()), "class_name": "Theirs"},
    )
    for odd in odds:
        with pytest.raises(Unsayable):
            bare_configuration(odd)
    assert names(bare_configuration(model({**dense(), "module": "os"}))) == names(
        bare_configuration(model(dense()))
    )
