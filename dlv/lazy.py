"""`lazy("dlv.archiving.archive")`: a stand-in for a module that is imported at its first use."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        # Numeric code comes here for each function that it calls, so the usual way is short.
        try:
            return getattr(sys.modules[self.__name__], name)
        except (KeyError, AttributeError):
            return getattr(importlib.import_module(self.__name__), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(importlib.import_module(self.__name__), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(importlib.import_module(self.__name__), name)

    def __dir__(self) -> list[str]:
        return dir(importlib.import_module(self.__name__))

    def __repr__(self) -> str:
        return f"<lazy module {self.__name__!r}>"


def lazy(name: str) -> Any:
    """The module `name`, not imported yet; the layer test counts the text as an import."""
    return _Lazy(name)
