"""Values given as K=V on the command line."""

from __future__ import annotations

import json
from typing import Any

from dlv.errors import UsageError


def parameters(items: tuple[str, ...]) -> dict[str, Any]:
    """Return hyperparameters by name; a value is JSON or else a string."""
    found: dict[str, Any] = {}
    if not items:
        return found
    import dlv.adapters.settings as settings_files

    for item in items:
        key, equals, text = item.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"`{item}` is not K=V", hint="dlv commit --param lr=0.1 ...")
        found |= settings_files.flatten({key.strip(): _value(text)})
    return found


def _value(text: str) -> Any:
    """The value as JSON, or the text where it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    outside = isinstance(value, int) and not -(2**63) <= value < 2**64
    return text if outside else value
