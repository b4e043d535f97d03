"""How many parameters tensors hold: numbers that were trained, however many of them share a word.

Quantized weights count as the weights that they stand for, as transformers and llama.cpp count
them; scales, zero points and the like are no parameters. Blocks of GGUF and packed elements of
other files have the shape of their elements already. What is packed into whole words is known by
the names that GPTQ, AWQ and bitsandbytes give to the tensors of a layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Protocol

from dlv.dtypes import ITEM_BYTES

# Statistics and counters of normalizations, whichever role a file format could give them.
BUFFER_NAMES = ("running_mean", "running_var", "num_batches_tracked")
# Bits of the words that GPTQ and AWQ pack weights into, almost always 32.
_WORD_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_PACKED = ".qweight"
_OF_PACKED = ("qzeros", "scales", "g_idx")
_STATE4 = ".quant_state.bitsandbytes__"  # then nf4 or fp4; beside a weight of four bits
_OF_WEIGHT4 = ("absmax", "quant_map", "nested_absmax", "nested_quant_map")
_OF_WEIGHT8 = ("SCB", "weight_format")
_BLOCKS, _OF_BLOCKS = "_blocks", "_scales"  # of gpt-oss: two elements of MXFP4 in a byte
_SCALES = ("weight_scale", "weight_scale_inv", "input_scale")  # of layers with 8-bit floats


class _Tensor(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def role(self) -> str: ...
    @property
    def tied(self) -> str | None: ...


def parameters_of(tensors: Iterable[_Tensor]) -> dict[str, int]:
    """Tensor -> number of parameters in it; those without any are left out, tied ones too."""
    named = {tensor.name: tensor for tensor in tensors}
    beside = _beside(named)
    counts = {}
    for tensor in named.values():
        if tensor.role != "weight" or tensor.tied is not None or tensor.name in beside:
            continue
        if tensor.name.rpartition(".")[2] not in BUFFER_NAMES:
            counts[tensor.name] = _count(tensor, named)
    return counts


def count_parameters(tensors: Iterable[_Tensor]) -> int:
    """Return the number of parameters of a model with these tensors."""
    return sum(parameters_of(tensors).values())


def _beside(named: Mapping[str, _Tensor]) -> set[str]:
    """Tensors that only say how the quantized weight beside them is to be read."""
    found: set[str] = set()
    for name, tensor in named.items():
        layer, _, last = name.rpartition(".")
        if last == _PACKED[1:] and tensor.dtype in _WORD_BITS:
            found |= {f"{layer}.{other}" for other in _OF_PACKED}
        elif _STATE4 in name:
            weight = name.partition(_STATE4)[0]
            found |= {name, *(f"{weight}.{other}" for other in _OF_WEIGHT4)}
        elif _blocks(tensor, named):
            found.add(f"{name.removesuffix(_BLOCKS)}{_OF_BLOCKS}")
        elif last == "SCB":
            found |= {f"{layer}.{other}" for other in _OF_WEIGHT8}
        elif tensor.dtype.startswith("float8"):
            found |= {f"{layer}.{other}" for other in _SCALES}
    return found


def _blocks(tensor: _Tensor, named: Mapping[str, _Tensor]) -> bool:
    if not tensor.name.endswith(_BLOCKS) or tensor.dtype != "uint8":
        return False
    scales = named.get(f"{tensor.name.removesuffix(_BLOCKS)}{_OF_BLOCKS}")
    return scales is not None and scales.dtype == "uint8" and scales.shape == tensor.shape[:-1]


def _count(tensor: _Tensor, named: Mapping[str, _Tensor]) -> int:
    elements = math.prod(tensor.shape)
    packed = tensor.name.endswith(_PACKED) and tensor.dtype in _WORD_BITS
    if packed and len(tensor.shape) == 2:
        return _unpacked(tensor, tensor.name.removesuffix(_PACKED), named)
    if _blocks(tensor, named):
        return elements * 2
    if any(f"{tensor.name}{_STATE4}{kind}" in named for kind in ("nf4", "fp4")):
        return elements * ITEM_BYTES.get(tensor.dtype, 1) * 2
    return elements


def _unpacked(tensor: _Tensor, layer: str, named: Mapping[str, _Tensor]) -> int:
    """GPTQ packs inputs, the first axis; AWQ outputs, the second: scales tell which it was."""
    first, second = tensor.shape
    group, scales, zeros = (named.get(f"{layer}.{name}") for name in ("g_idx", "scales", "qzeros"))
    outputs = scales.shape[-1] if scales is not None and scales.shape else 0
    if group is not None and len(group.shape) == 1 and outputs in (0, second):
        return group.shape[0] * second
    if outputs > second:
        return first * outputs
    packed = zeros.shape[-1] if zeros is not None and zeros.shape and outputs == second else 0
    word = _WORD_BITS[tensor.dtype]
    bits = packed * word // outputs if packed else 4
    return first * word // max(bits, 1) * second
