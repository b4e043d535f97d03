"""The tables of layers, functions and operators: what reads each, and what writes each."""

from __future__ import annotations

from collections.abc import Mapping

from dlv.adapters.keras.build import Write
from dlv.adapters.keras.config import Layer
from dlv.adapters.keras.graph import Convert
from dlv.adapters.keras.rules import activations, arithmetic, dense, raw, windows

LAYERS: Mapping[str, Convert] = {
    **windows.READERS,
    **dense.READERS,
    **activations.READERS,
    **arithmetic.READERS,
}
FUNCTIONS: Mapping[str, Convert] = {**activations.FUNCTION_READERS, **arithmetic.FUNCTION_READERS}
WRITERS: Mapping[str, Write] = {
    **windows.WRITERS,
    **dense.WRITERS,
    **activations.WRITERS,
    **arithmetic.WRITERS,
    **raw.WRITERS,
}


def converter(layer: Layer) -> Convert | None:
    """The reader of a layer; `layer.function` is set, as layers and functions share names."""
    functions = layer.module.startswith(("keras.src.ops", "keras.ops"))
    if not layer.module and layer.kind in FUNCTIONS and layer.calls:
        # The older form says no module: merging layers take one list, functions do not.
        args = layer.calls[0].args
        merges = len(args) == 1 and isinstance(args[0], list)
        functions = layer.kind not in LAYERS or (layer.kind in arithmetic.MERGES and not merges)
    layer.function = functions
    return (FUNCTIONS if functions else LAYERS).get(layer.kind)
