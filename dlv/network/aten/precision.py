"""The dtypes of a run: all floats have one, whole numbers their own; operands meet as in torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlv.dataclass import dataclass
from dlv.kinds import Array

Number = int | float | bool
Operand = Array | Number
# A function gets the precision, then the arguments of torch's schema; several outputs are a tuple.
Function = Callable[..., Any]

_CATEGORIES = "biuf"
_MOST = 1 << 28  # elements that a call may ask for


class Unknown(Exception):
    """A call, or a way of calling, that has no numpy form here."""


@dataclass(frozen=True)
class Precision:
    """`float`: the dtype of all floats of the run, and of those that a call makes.

    `opset`, `outputs`: of an operator of ONNX, its version and how many outputs it is asked for.
    """

    float: np.dtype[Any]
    opset: int = 0
    outputs: int = 1

    def named(self, name: str) -> np.dtype[Any]:
        """The dtype that a call names; every float is that of the run."""
        if name.startswith(("float", "bfloat")):
            return self.float
        if not name.startswith(("int", "uint", "bool")):
            raise Unknown(f"numpy has no dtype {name}")
        return np.dtype(name)

    def of(self, x: Array, dtype: str | None) -> Array:
        """The same numbers in the dtype that a call names, if it names one."""
        return x if dtype is None else x.astype(self.named(dtype), copy=False)

    def floating(self, x: Operand) -> Array:
        """As floats: whole numbers become those of the run."""
        array = np.asarray(x)
        return array if array.dtype.kind == "f" else array.astype(self.float)

    def common(self, operands: Sequence[Operand]) -> np.dtype[Any]:
        """The dtype in which operands meet.

        A tensor without axes widens one with axes only from whole numbers to floats, or from
        flags; a plain number does so to neither.
        """
        levels: list[list[np.dtype[Any]]] = [[], [], []]
        for operand in operands:
            if isinstance(operand, (np.ndarray, np.generic)):
                levels[0 if operand.ndim else 1].append(operand.dtype)
            elif isinstance(operand, bool):
                levels[2].append(np.dtype(bool))
            else:
                levels[2].append(self.float if isinstance(operand, float) else np.dtype(np.int64))
        best: np.dtype[Any] | None = None
        for level in levels:
            if not level:
                continue
            result = _widest(level)
            if best is None or _category(result) > _category(best):
                best = result
        if best is None:
            raise Unknown("nothing to compute with")
        return best

    def together(self, *operands: Operand) -> list[Array]:
        """The operands in the dtype in which they meet."""
        dtype = self.common(operands)
        return [np.asarray(operand).astype(dtype, copy=False) for operand in operands]


def _category(dtype: np.dtype[Any]) -> int:
    if dtype.kind not in _CATEGORIES:
        raise Unknown(f"numpy cannot combine {dtype} with other dtypes")
    return {"b": 0, "i": 1, "u": 1, "f": 2}[dtype.kind]


def _widest(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    most = max(map(_category, dtypes))
    return np.result_type(*(dtype for dtype in dtypes if _category(dtype) == most))


def axes(dim: Any, rank: int) -> tuple[int, ...]:
    """The axes that an argument names: one, some, or all where it names none."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return tuple(range(rank))
    named = dim if isinstance(dim, (list, tuple)) else [dim]
    return tuple(int(each) % rank if rank else 0 for each in named)


def whole(values: Any) -> list[int]:
    """Lengths and numbers of axes, of which some may have come in as arrays."""
    if isinstance(values, (list, tuple)):
        return [int(each) for each in values]
    return [int(values)]


def sized(size: Any) -> tuple[int, ...]:
    """The lengths of a tensor that is not too large to be made."""
    result = tuple(whole(size))
    if any(length < 0 for length in result) or math.prod(result) > _MOST:
        raise ValueError(f"a tensor of size {list(result)} is too large")
    return result
