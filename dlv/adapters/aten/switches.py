"""Settings of Hugging Face models that torch.export needs; they do not change the outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

_CACHE = (
    "the network is the module with use_cache=False: its outputs are the same, less the past keys"
    " and values"
)
_EXPERTS = (
    "the network is the module with experts_implementation='batched_mm': its outputs are the same,"
    " and each token gathers the weights of its experts"
)
_IMPLEMENTATION = "_experts_implementation_internal"


@contextlib.contextmanager
def exportable(module: Any, named: Mapping[str, Any]) -> Iterator[list[str]]:
    """Within the block, the module runs tensor operations only; yields notes for the user.

    Language models return a cache object by default, which torch.export cannot flatten. Callers
    who pass a cache, or `use_cache` itself, keep what they chose. Mixtures of experts call a
    kernel that exists in transformers alone.
    """
    configs = {id(c): c for each in module.modules() if (c := vars(each).get("config")) is not None}
    cache_chosen = "use_cache" in named or named.get("past_key_values") is not None
    experts = any(hasattr(type(each), "_apply_gate") for each in module.modules())
    changed_settings: list[tuple[Any, str, Any]] = []
    notes: dict[str, None] = {}
    for config in configs.values():
        if not cache_chosen and getattr(config, "use_cache", None) is True:
            changed_settings.append((config, "use_cache", True))
            config.use_cache = False
            notes[_CACHE] = None
        kernel = getattr(config, _IMPLEMENTATION, None)
        if experts and isinstance(kernel, str) and kernel not in ("eager", "batched_mm"):
            changed_settings.append((config, _IMPLEMENTATION, kernel))
            setattr(config, _IMPLEMENTATION, "batched_mm")
            notes[_EXPERTS] = None
    try:
        yield list(notes)
    finally:
        for config, name, value in changed_settings:
            setattr(config, name, value)
