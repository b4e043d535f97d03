"""A Keras configuration of which nothing is left but what dlv knows: safe to hand to Keras.

Keras makes objects by the names that it finds: initializers, policies, functions, whole modules.
Here only layers and functions that dlv reads stay, with numbers, texts and lists in them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dlv.adapters.keras.config import MODELS, is_model
from dlv.adapters.keras.rules.activations import NAMES, name_of
from dlv.adapters.keras.rules.table import FUNCTIONS, LAYERS
from dlv.adapters.keras.understood import MODEL, OF_TRAINING, Unsayable, policy

_OPERATIONS = re.compile(r"keras\.src\.ops\.[a-z]{1,20}")
_IN_CALLS = ("__keras_tensor__", "__slice__")


def bare_configuration(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bare model configuration; raise Unsayable for anything else in it."""
    kind, config = data.get("class_name"), data.get("config")
    if isinstance(config, list):
        config = {"name": "sequential", "layers": config}
    if kind not in MODELS or not isinstance(config, dict):
        raise Unsayable(f"{kind!r:.40} is no model of layers")
    made: dict[str, Any] = {}
    for key, value in config.items():
        if key not in MODEL:
            raise Unsayable(f"it has the setting {key!r:.40}")
        if key == "dtype":
            made[key] = policy(config)
        elif key == "layers":
            made[key] = [_bare_layer(item) for item in value]
        else:
            made[key] = _plain(value)
    functional = kind != "Sequential"
    module = "keras.src.models.functional" if functional else "keras"
    name = "Functional" if functional and "module" in data else str(kind)
    found: dict[str, Any] = {"class_name": name, "config": made}
    if "module" in data:
        found |= {"module": module, "registered_name": name if functional else None}
    return _with_calls(found, data)


def _bare_layer(data: Any) -> dict[str, Any]:
    if not is_model(data):
        raise Unsayable("it has a layer without settings")
    kind = data["class_name"]
    if kind in MODELS:
        return bare_configuration(data)
    config = data["config"]
    if not isinstance(config, dict):
        raise Unsayable(f"{kind!r:.40} has no settings")
    module = data.get("module", "keras.layers")
    function = isinstance(module, str) and _OPERATIONS.fullmatch(module) is not None
    known = {*FUNCTIONS} if function else {*LAYERS, "InputLayer"}
    if "module" not in data:
        known |= {*FUNCTIONS}
    if kind not in known:
        raise Unsayable(f"{kind!r:.40} is not known")
    made: dict[str, Any] = {}
    for key, value in config.items():
        if key.endswith(OF_TRAINING) or key == "activity_regularizer":
            continue
        if key == "dtype" and kind != "InputLayer":
            made[key] = policy(config)
        elif key == "dtype":
            made[key] = policy(config) if isinstance(value, dict) else _plain(value)
        elif key == "activation":
            made[key] = name_of(value) or "linear"
            if made[key] not in (*NAMES, "linear"):
                raise Unsayable(f"the activation {made[key]!r:.40}")
        elif key == "layer":
            made[key] = _bare_layer(value)
        else:
            made[key] = _plain(value)
    found = {"class_name": kind, "config": made}
    if "module" in data:
        found["module"] = module if function else "keras.layers"
        found["registered_name"] = kind if function else None
    return _with_calls(found, data)


def _with_calls(settings: dict[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """With the name and the calls of a layer, where there are any."""
    for key in ("name", "inbound_nodes"):
        if key in data:
            settings[key] = _plain(data[key], calls=True)
    built = data.get("build_config")
    if isinstance(built, dict) and "input_shape" in built:
        settings["build_config"] = {"input_shape": _plain(built["input_shape"])}
    return settings


def _plain(value: Any, *, calls: bool = False) -> Any:
    """Numbers, texts, lists and objects that stand for no object of a program."""
    if isinstance(value, list):
        return [_plain(item, calls=calls) for item in value]
    if not isinstance(value, dict):
        return value
    if "class_name" in value and not (calls and value["class_name"] in _IN_CALLS):
        inner = value.get("config")
        if value["class_name"] == "__numpy__" and isinstance(inner, dict):
            return _plain(inner.get("value"))
        raise Unsayable(f"it holds {value['class_name']!r:.40}")
    odd = value.keys() & {"module", "registered_name"}
    if odd:
        raise Unsayable("it names a module")
    return {key: _plain(item, calls=calls) for key, item in value.items()}
