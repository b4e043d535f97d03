"""Calls that make tensors of numbers and sizes, or of another's size or dtype."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlv.kinds import Array
from dlv.network.aten.precision import Function, Operand, Precision, sized


def _usual(at: Precision, value: Operand, dtype: str | None) -> np.dtype[Any]:
    return at.common([value]) if dtype is None else at.named(dtype)


def _full(
    at: Precision, size: Any, fill_value: Operand, *, dtype: str | None = None, **_: Any
) -> Array:
    return np.full(sized(size), fill_value, _usual(at, fill_value, dtype))


def _filled(value: float) -> Function:
    """`zeros`, `ones`: of the run's floats where no dtype is named."""

    def call(at: Precision, size: Any, *, dtype: str | None = None, **_: Any) -> Array:
        return np.full(sized(size), value, at.named(dtype or "float"))

    return call


def _alike(value: float) -> Function:
    def call(at: Precision, self: Array, *, dtype: str | None = None, **_: Any) -> Array:
        return np.full(self.shape, value, self.dtype if dtype is None else at.named(dtype))

    return call


def _full_like(
    at: Precision, self: Array, fill_value: Operand, *, dtype: str | None = None, **_: Any
) -> Array:
    return np.full(self.shape, fill_value, self.dtype if dtype is None else at.named(dtype))


def _new(value: float) -> Function:
    def call(at: Precision, self: Array, size: Any, *, dtype: str | None = None, **_: Any) -> Array:
        return np.full(sized(size), value, self.dtype if dtype is None else at.named(dtype))

    return call


def _new_full(
    at: Precision,
    self: Array,
    size: Any,
    fill_value: Operand,
    *,
    dtype: str | None = None,
    **_: Any,
) -> Array:
    return np.full(sized(size), fill_value, self.dtype if dtype is None else at.named(dtype))


def _arange(at: Precision, *bounds: Operand, dtype: str | None = None, **named: Any) -> Array:
    numbers = [*bounds, *(named[name] for name in ("start", "end", "step") if name in named)]
    plain = [each.item() if isinstance(each, np.ndarray) else each for each in numbers]
    start, end, step = {1: (0, *plain, 1), 2: (*plain, 1)}.get(len(plain), tuple(plain))
    kind = at.common(plain) if dtype is None else at.named(dtype)
    count = max(int(np.ceil((end - start) / step)), 0)
    sized([count])
    whole_numbers = all(isinstance(each, int) for each in (start, step))
    steps = np.arange(count) if whole_numbers else np.arange(count, dtype=np.float64)
    return np.asarray(start + step * steps).astype(kind)


def _linspace(
    at: Precision, start: Operand, end: Operand, steps: int, *, dtype: str | None = None, **_: Any
) -> Array:
    sized([steps])
    return np.linspace(float(start), float(end), int(steps)).astype(at.named(dtype or "float"))


def _eye(
    at: Precision, n: int, m: int | None = None, *, dtype: str | None = None, **_: Any
) -> Array:
    sized([n, n if m is None else m])
    return np.eye(int(n), None if m is None else int(m), dtype=at.named(dtype or "float"))


def _scalar(at: Precision, s: Operand, *, dtype: str | None = None, **_: Any) -> Array:
    return np.asarray(s, at.named(dtype or "float"))


def _to(at: Precision, self: Array, dtype: Any = None, *_: Any, **__: Any) -> Array:
    """`to.dtype`, `to.device` and their kin: a dtype may stand first, second, or nowhere."""
    return at.of(self, dtype) if isinstance(dtype, str) else self


def _to_device(at: Precision, self: Array, device: Any, dtype: str | None = None, *_: Any) -> Array:
    del device
    return at.of(self, dtype)


def _one_hot(_: Precision, self: Array, num_classes: int = -1) -> Array:
    count = int(self.max()) + 1 if num_classes == -1 else int(num_classes)
    sized([*self.shape, count])
    return np.asarray(self[..., None] == np.arange(count)).astype(np.int64)


def _same(_: Precision, self: Array, *__: Any, **___: Any) -> Array:
    return self


def _checked(_: Precision, *__: Any, **___: Any) -> tuple[Array, ...]:
    """What was certain of the example's sizes; the network's own are checked as inputs come in."""
    return ()


def _tensors(_: Precision, tensors: Sequence[Array], indexing: str = "ij") -> tuple[Array, ...]:
    return tuple(np.meshgrid(*tensors, indexing="xy" if indexing == "xy" else "ij"))


_GIVEN_BACK = (
    "clone detach alias contiguous lift_fresh_copy lift_fresh resolve_conj resolve_neg positive"
    " item _local_scalar_dense"
)
# Recorded as in training, where they depend on the mode.
_DROPPING = "dropout feature_dropout alpha_dropout feature_alpha_dropout"
_CHECKS = (
    "_assert_scalar _assert_tensor_metadata _assert_async sym_constrain_range"
    " sym_constrain_range_for_size"
)

MAKING: Mapping[str, Function] = {
    "full": _full,
    "zeros": _filled(0),
    "ones": _filled(1),
    "empty": _filled(0),
    "zeros_like": _alike(0),
    "ones_like": _alike(1),
    "empty_like": _alike(0),
    "full_like": _full_like,
    "new_zeros": _new(0),
    "new_ones": _new(1),
    "new_empty": _new(0),
    "new_full": _new_full,
    "fill": lambda _, self, value: np.full(self.shape, value, self.dtype),
    "arange": _arange,
    "linspace": _linspace,
    "eye": _eye,
    "scalar_tensor": _scalar,
    "one_hot": _one_hot,
    "meshgrid": _tensors,
    "to": _to,
    "to.device": _to_device,
    "_to_copy": lambda at, self, *, dtype=None, **_: at.of(self, dtype),
    "type_as": lambda _, self, other: self.astype(other.dtype, copy=False),
    **dict.fromkeys((*_GIVEN_BACK.split(), *_DROPPING.split()), _same),
    **dict.fromkeys(_CHECKS.split(), _checked),
}
