"""dlv: version control for deep-learning models."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlv.api import open as open

__all__ = ["__version__", "open"]  # noqa: F822 - both come from __getattr__


def __getattr__(name: str) -> Any:
    if name == "open":
        return importlib.import_module("dlv.api").open
    if name == "__version__":
        return importlib.import_module("dlv.canonical").VERSION
    raise AttributeError(f"module 'dlv' has no attribute {name!r}")
