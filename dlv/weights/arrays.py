"""Arrays of numpy and tensors of torch from the bytes of matrices, and back."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.splice import swap
from dlv.dtypes import DTYPES, TORCH_DTYPES
from dlv.errors import UsageError, require
from dlv.kinds import Array, Raw
from dlv.pas.floats import float8_numbers


def to_array(dtype: str, shape: tuple[int, ...], raw: Raw) -> Array:
    """The array of a matrix. What numpy has no type for is widened to float32, exactly."""
    if dtype in DTYPES and DTYPES[dtype].numpy:
        array: Array = np.frombuffer(raw, np.dtype(dtype).newbyteorder("<"))
        return array.astype(np.dtype(dtype), copy=sys.byteorder == "big").reshape(shape)
    if dtype == "bfloat16":
        words = np.frombuffer(raw, "<u2").astype(np.uint32) << np.uint32(16)
        return words.view(np.float32).reshape(shape)
    if dtype in DTYPES:
        return float8_numbers(dtype).astype(np.float32)[np.frombuffer(raw, np.uint8)].reshape(shape)
    raise UsageError(
        f"a tensor of dtype {dtype} has no numbers that dlv understands",
        hint="read its bytes instead",
    )


def to_torch(dtype: str, shape: tuple[int, ...], raw: Raw) -> Any:
    """The torch tensor of a matrix, with its dtype as it is stored.

    A writable `raw` becomes the tensor's memory, so the caller must not use it any more.
    """
    torch: Any = require("torch", "torch")
    kind = getattr(torch, DTYPES[dtype].torch, None) if dtype in DTYPES else None
    if kind is None:
        raise UsageError(
            f"torch {torch.__version__} has no dtype {dtype}",
            hint="read the bytes of the tensor instead",
        )
    if sys.byteorder == "big":
        raw = swap(raw, DTYPES[dtype].word)
    if not math.prod(shape):
        return torch.empty(shape, dtype=kind)
    view = memoryview(raw)
    return torch.frombuffer(bytearray(view) if view.readonly else view, dtype=kind).reshape(shape)


def to_tensors(values: Mapping[str, Any]) -> list[Tensor]:
    """Arrays of numpy, or tensors of torch, by name, in the form in which adapters write them."""
    found = []
    first: dict[tuple[Any, ...], str] = {}
    for name, value in values.items():
        tensor = _tensor(name, value)
        place = _place(value) if tensor.nbytes else None
        kept = name if place is None else first.setdefault(place, name)
        found.append(tensor if kept == name else replace(tensor, tied=kept))
    return found


def _place(value: Any) -> tuple[Any, ...] | None:
    """Equal for tensors of torch that share their elements; None: not known."""
    if not hasattr(value, "untyped_storage"):
        return None
    storage = value.untyped_storage()
    return (
        *(storage.device, storage.data_ptr(), value.storage_offset(), value.dtype),
        *(tuple(value.shape), value.stride(), value.is_conj(), value.is_neg()),
    )


def _tensor(name: str, value: Any) -> Tensor:
    if not isinstance(name, str):
        raise UsageError(f"the name {name!r} of a tensor is not text")
    if type(value).__module__.partition(".")[0] == "torch" or hasattr(value, "detach"):
        return _from_torch(name, value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise UsageError(f"{name} is not an array", why=str(error)) from error
    if array.dtype.name == "bfloat16":  # ml_dtypes, as jax uses it
        return _made(name, "bfloat16", array.shape, array.view(np.uint16))
    dtype = DTYPES.get(array.dtype.name)
    if dtype is None or dtype.numpy is None:
        raise UsageError(f"{name} has the dtype {array.dtype}, which dlv does not store")
    return _made(name, array.dtype.name, array.shape, array)


def _made(name: str, dtype: str, shape: tuple[int, ...], array: Array) -> Tensor:
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    # A copy: training goes on and changes the weights in place.
    raw = little.tobytes()
    return Tensor(name, dtype, tuple(shape), len(raw), lambda: raw)


def _from_torch(name: str, value: Any) -> Tensor:
    torch: Any = require("torch", "torch")
    if not isinstance(value, torch.Tensor):
        raise UsageError(f"{name} is {type(value).__name__}, not a tensor")
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in TORCH_DTYPES or value.layout != torch.strided or value.is_meta:
        raise UsageError(
            f"{name} is a tensor that dlv does not store",
            why=f"{value.layout}, {value.dtype} on {value.device}",
            hint="dense tensors with numbers in them are stored",
        )
    # A conjugate or negative view keeps the operation beside the numbers.
    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    data = plain.view(torch.uint8).numpy() if plain.numel() else np.empty(0, np.uint8)
    return _made(name, TORCH_DTYPES[dtype].name, tuple(value.shape), data)
