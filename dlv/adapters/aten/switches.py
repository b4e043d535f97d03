"""Hugging Face's models set so that torch.export can take them apart; what they answer stays."""

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
    """Switch off what is no tensor operation, for a while; gives what to tell of it.

    Models of text return an object that a next call could go on from, unless told not to. Whoever
    hands such an object in, or names that switch, gets what they ask for. Experts are multiplied
    by a kernel of the library's own, which nothing else runs.
    """
    configs = {id(c): c for each in module.modules() if (c := vars(each).get("config")) is not None}
    asked = "use_cache" in named or named.get("past_key_values") is not None
    experts = any(hasattr(type(each), "_apply_gate") for each in module.modules())
    before: list[tuple[Any, str, Any]] = []
    notes: dict[str, None] = {}
    for config in configs.values():
        if not asked and getattr(config, "use_cache", None) is True:
            before.append((config, "use_cache", True))
            config.use_cache = False
            notes[_CACHE] = None
        kept = getattr(config, _IMPLEMENTATION, None)
        if experts and isinstance(kept, str) and kept not in ("eager", "batched_mm"):
            before.append((config, _IMPLEMENTATION, kept))
            setattr(config, _IMPLEMENTATION, "batched_mm")
            notes[_EXPERTS] = None
    try:
        yield list(notes)
    finally:
        for config, name, value in before:
            setattr(config, name, value)
