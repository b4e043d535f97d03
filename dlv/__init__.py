"""dlv: version control for deep-learning models."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlv.api import log_model as log_model
    from dlv.api import open as open  # noqa: A004 (dlv.open is the name of the door)

    __version__: str

__all__ = ["__version__", "log_model", "open"]


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__file__", "__name__", "__path__"]


def __getattr__(name: str) -> Any:
    if name in ("log_model", "open"):
        return getattr(importlib.import_module("dlv.api"), name)
    if name == "__version__":
        return importlib.import_module("dlv.canonical").VERSION
    raise AttributeError(f"module 'dlv' has no attribute {name!r}")
