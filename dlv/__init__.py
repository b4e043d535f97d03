"""dlv: version control for deep-learning models."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlv.api import open as open  # noqa: A004 (dlv.open is the name of the door)

    __version__: str

__all__ = ["__version__", "open"]


def __getattr__(name: str) -> Any:
    if name == "open":
        return importlib.import_module("dlv.api").open
    if name == "__version__":
        return importlib.import_module("dlv.canonical").VERSION
    raise AttributeError(f"module 'dlv' has no attribute {name!r}")
