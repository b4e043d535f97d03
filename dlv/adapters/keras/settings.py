"""Hyperparameters that a Keras model was compiled with: optimizer, loss, metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dlv.adapters.keras.config import is_model
from dlv.network.fields import whole

MOST_SETTINGS = 200
_MOST_TEXT = 1000
_INNER = ("optimizer", "inner_optimizer")


def settings(compiled: Any) -> dict[str, Any]:
    """Of `compile_config` (Keras 3) or `training_config` (the older form)."""
    if not isinstance(compiled, Mapping):
        return {}
    found: dict[str, Any] = {}
    given = compiled.get("optimizer", compiled.get("optimizer_config"))
    for _ in range(4):  # an optimizer may wrap another one
        config = given.get("config") if isinstance(given, Mapping) else None
        if not isinstance(config, Mapping):
            break
        inner = next((config[key] for key in _INNER if key in config), None)
        if not is_model(inner):
            break
        given = inner
    if isinstance(given, str):
        found["optimizer"] = _text(given)
    elif isinstance(given, Mapping) and isinstance(given.get("class_name"), str):
        found["optimizer"] = _text(given["class_name"].rpartition(">")[2])
        _flatten(given.get("config"), "", found)
    for key in ("loss", "metrics", "weighted_metrics", "loss_weights"):
        value = _named(compiled.get(key))
        if value not in (None, [], ""):
            found[key] = value
    return dict(list(found.items())[:MOST_SETTINGS])


def _flatten(config: Any, prefix: str, found: dict[str, Any]) -> None:
    for key, value in config.items() if isinstance(config, Mapping) else ():
        if key in ("name", "jit_compile", "is_legacy_optimizer") or not isinstance(key, str):
            continue
        name = prefix + _text(key)
        if is_model(value) and not prefix:  # a schedule of the learning rate
            found[f"{name}.schedule"] = _text(str(value["class_name"]).rpartition(">")[2])
            _flatten(value["config"], f"{name}.", found)
        elif (plain := _plain(value)) is not None:
            found[name] = plain
        elif isinstance(value, list) and 0 < len(value) <= 64:
            items = [_plain(item) for item in value]
            if None not in items:
                found[name] = items


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or whole(value):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return _text(value) if isinstance(value, str) else None


def _text(value: str) -> str:
    return value[:_MOST_TEXT].encode("utf-8", "replace").decode("utf-8")


def _named(value: Any) -> Any:
    """Losses and metrics by name, alone or in lists."""
    if isinstance(value, Mapping):
        if is_model(value):
            name = value["config"] if value["class_name"] == "function" else value["class_name"]
            return _text(str(name).rpartition(">")[2])
        items = {_text(str(key)): _named(item) for key, item in list(value.items())[:64]}
        return [f"{key}={item}" for key, item in items.items() if item is not None]
    if isinstance(value, list):
        found = [_named(item) for item in value[:64]]
        return [item if isinstance(item, str) else str(item) for item in found if item is not None]
    return _plain(value)
