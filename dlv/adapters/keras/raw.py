"""Layers that the vocabulary cannot say: the call with its arguments, and the settings as a text.

Code in them (Lambda) is left out and never looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dlv.adapters.keras.config import Call, Layer, Ref, found
from dlv.errors import UnsafeInput
from dlv.network.fields import whole

_MOST_TEXT = 1 << 20
_MOST_ARGUMENTS = 3  # levels of lists in a call that are kept apart
_CODE = ("function", "output_shape", "mask")


def source_of(layer: Layer, call: Call) -> dict[str, Any]:
    """What `Node.source` holds; tensors are numbered in the order of `Call.refs`."""
    counter = iter(range(len(call.refs)))
    args = [_tagged(value, counter, 0) for value in call.args]
    kwargs = {_text(key): _tagged(value, counter, 0) for key, value in call.kwargs.items()}
    kwargs["config"] = {"c": settings_text(layer)}
    if layer.function and layer.module:
        kwargs["module"] = {"c": _text(layer.module)}
    name = layer.registered or layer.kind
    return {"dialect": "keras", "op": _text(name), "args": args, "kwargs": kwargs}


def settings_text(layer: Layer) -> str:
    """The settings as canonical JSON, without code."""
    config = layer.config
    if layer.kind == "Lambda":
        config = {key: value for key, value in config.items() if key not in _CODE}
    text = json.dumps(_without_code(config), sort_keys=True, separators=(",", ":"))
    if len(text) > _MOST_TEXT:
        raise UnsafeInput(f"the settings of the layer {layer.name!r} are too large")
    return text


def _without_code(value: Any) -> Any:
    """The depth of what comes in was bounded when it was parsed."""
    if isinstance(value, dict):
        if value.get("class_name") == "__lambda__":
            return {"class_name": "__lambda__"}
        return {key: _without_code(item) for key, item in value.items()}
    return [_without_code(item) for item in value] if isinstance(value, list) else value


def _tagged(value: Any, counter: Iterator[int], depth: int) -> dict[str, Any]:
    if isinstance(value, Ref):
        return {"n": next(counter)}
    if isinstance(value, (list, dict)):
        items = value if isinstance(value, list) else list(value.values())
        if any(True for _ in found(items)) and depth < _MOST_ARGUMENTS:
            return {"l": [_tagged(item, counter, depth + 1) for item in items]}
        for _ in found(items):
            next(counter)
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=lambda _: None)
        return {"c": text[:_MOST_TEXT]}
    if isinstance(value, str):
        return {"c": _text(value)}
    if isinstance(value, int) and not isinstance(value, bool) and not whole(value):
        return {"c": str(value)[:80]}
    return {"c": value}


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode("utf-8")
