"""Checkpoints as the benchmark handles them: named matrices of plain bytes, safetensors files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dlv.adapters import safetensors
from dlv.adapters.checkpoint import Tensor


@dataclass(frozen=True)
class Matrix:
    dtype: str
    shape: tuple[int, ...]
    raw: bytes

    def array(self) -> Any:
        """As numpy floats; bfloat16, which numpy has not, as float32."""
        if self.dtype == "bfloat16":
            words = np.frombuffer(self.raw, "<u2").astype("<u4") << 16
            return words.view("<f4").reshape(self.shape)
        return np.frombuffer(self.raw, self.dtype).reshape(self.shape)


Model = Mapping[str, Matrix]


def matrix(array: Any) -> Matrix:
    return Matrix(str(array.dtype), tuple(array.shape), np.ascontiguousarray(array).tobytes())


def size(model: Model) -> int:
    return sum(len(held.raw) for held in model.values())


def load(path: Path) -> Model:
    """The checkpoint in a safetensors file."""
    file = safetensors.open(str(path))
    try:
        return {t.name: Matrix(t.dtype, t.shape, bytes(t.read())) for t in file.tensors}
    finally:
        file.close()


def save(path: Path, model: Model) -> None:
    """Write a safetensors file, whole or not at all."""
    tensors = [
        Tensor(name, held.dtype, held.shape, len(held.raw), lambda held=held: held.raw)  # type: ignore[misc]
        for name, held in model.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + f".{os.getpid()}")
    with partial.open("wb") as out:
        safetensors.save(out, tensors, {})
    partial.replace(path)


def cast(model: Model, dtype: str) -> Model:
    """The float32 model in a 16-bit format, rounded to nearest, ties to even."""
    return {name: _cast(held, dtype) for name, held in model.items()}


def _cast(held: Matrix, dtype: str) -> Matrix:
    if held.dtype != "float32":
        return held
    if dtype == "float16":
        return matrix(held.array().astype(np.float16))
    words = np.frombuffer(held.raw, "<u4").astype(np.uint64)
    rounded = (words + 0x7FFF + ((words >> 16) & 1)) >> 16
    return Matrix("bfloat16", held.shape, rounded.astype("<u2").tobytes())
