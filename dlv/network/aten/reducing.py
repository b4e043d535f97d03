"""Calls that make one number of many along some axes: sums, extremes, ranks, running sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dlv.kinds import Array
from dlv.network.aten.precision import Function, Precision, Unknown, axes


def _sum(function: Any) -> Function:
    def call(
        at: Precision, self: Array, dim: Any = None, keepdim: bool = False, dtype: str | None = None
    ) -> Array:
        x = at.of(self, dtype)
        if dtype is None and x.dtype.kind != "f":
            x = x.astype(np.int64)
        return np.asarray(function(x, axis=axes(dim, x.ndim), keepdims=keepdim))

    return call


def _mean(
    at: Precision, self: Array, dim: Any = None, keepdim: bool = False, dtype: str | None = None
) -> Array:
    x = at.floating(at.of(self, dtype))
    return np.asarray(x.mean(axis=axes(dim, x.ndim), keepdims=keepdim))


def _spread(function: Any) -> Function:
    def call(
        _: Precision,
        self: Array,
        dim: Any = None,
        unbiased: bool = True,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> Array:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        less = correction if correction is not None else int(unbiased)
        return np.asarray(
            function(self, axis=axes(dim, self.ndim), ddof=less, keepdims=keepdim), dtype=self.dtype
        )

    return call


_variance, _deviation = _spread(np.var), _spread(np.std)


def _with_mean(function: Function) -> Function:
    def call(at: Precision, self: Array, *args: Any, **kwargs: Any) -> tuple[Array, Array]:
        keep = kwargs.get("keepdim", args[2] if len(args) > 2 else False)
        dim = kwargs.get("dim", args[0] if args and not isinstance(args[0], bool) else None)
        return function(at, self, *args, **kwargs), _mean(at, self, dim, keep)

    return call


def _extreme(function: Any, place: Any) -> Function:
    """All of a tensor, or along one axis with the places."""

    def call(
        _: Precision, self: Array, dim: int | None = None, keepdim: bool = False
    ) -> Array | tuple[Array, Array]:
        if dim is None:
            return np.asarray(function(self))
        if not self.ndim:
            return self, np.zeros((), np.int64)
        places = np.asarray(place(self, axis=dim))
        kept = np.expand_dims(places, dim)
        values = np.take_along_axis(self, kept, dim)
        return (values, kept) if keepdim else (values.squeeze(dim), places)

    return call


def _over(function: Any) -> Function:
    def call(_: Precision, self: Array, dim: Any = (), keepdim: bool = False) -> Array:
        return np.asarray(function(self, axis=axes(dim, self.ndim), keepdims=keepdim))

    return call


def _place(function: Any) -> Function:
    def call(_: Precision, self: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        if dim is None:
            result = np.asarray(function(self.reshape(-1)))
            return result.reshape((1,) * self.ndim) if keepdim else result
        return np.asarray(function(self, axis=dim, keepdims=keepdim))

    return call


def _flags(function: Any) -> Function:
    def call(_: Precision, self: Array, dim: Any = None, keepdim: bool = False) -> Array:
        return np.asarray(function(self != 0, axis=axes(dim, self.ndim), keepdims=keepdim))

    return call


def _running(function: Callable[..., Any]) -> Function:
    def call(at: Precision, self: Array, dim: int, dtype: str | None = None) -> Array:
        x = at.of(self, dtype)
        if dtype is None and x.dtype.kind != "f":
            x = x.astype(np.int64)
        return np.asarray(function(x, axis=dim)) if x.ndim else x

    return call


def _logsumexp(at: Precision, self: Array, dim: Any, keepdim: bool = False) -> Array:
    x = at.floating(self)
    along = axes(dim, x.ndim)
    most = x.max(axis=along, keepdims=True)
    most = np.where(np.isfinite(most), most, 0).astype(x.dtype)
    result = np.log(np.exp(x - most).sum(axis=along, keepdims=True)) + most
    return np.asarray(result if keepdim else result.squeeze(along))


def _norm(
    at: Precision,
    self: Array,
    ord: Any = 2,  # noqa: A002
    dim: Any = None,
    keepdim: bool = False,
    dtype: str | None = None,
) -> Array:
    x = at.floating(at.of(self, dtype))
    size, along = np.abs(x), axes(dim, x.ndim)
    if ord in (float("inf"), float("-inf")):
        result = (size.max if ord > 0 else size.min)(axis=along, keepdims=keepdim)
    elif ord == 0:
        result = (size != 0).sum(axis=along, keepdims=keepdim)
    elif ord == 1:
        result = size.sum(axis=along, keepdims=keepdim)
    elif ord == 2:
        result = np.sqrt(np.square(x).sum(axis=along, keepdims=keepdim))
    else:
        result = (size ** x.dtype.type(ord)).sum(axis=along, keepdims=keepdim) ** x.dtype.type(
            1 / ord
        )
    return np.asarray(result).astype(x.dtype, copy=False)


def _order(x: Array, dim: int, descending: bool) -> Array:
    """Places in order; equal elements keep theirs, and NaN counts as the largest."""
    if not descending:
        return np.argsort(x, axis=dim, kind="stable")
    turned = np.argsort(np.flip(x, dim), axis=dim, kind="stable")
    return np.asarray(x.shape[dim] - 1 - np.flip(turned, dim))


def _sort(
    _: Precision, self: Array, dim: int = -1, descending: bool = False, *, stable: Any = None
) -> tuple[Array, Array]:
    del stable  # always
    if not self.ndim:
        return self, np.zeros((), np.int64)
    places = _order(self, dim, descending)
    return np.take_along_axis(self, places, dim), places


def _topk(
    at: Precision,
    self: Array,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002, ARG001
) -> tuple[Array, Array]:
    values, places = _sort(at, self, dim, largest)
    first_k = (*(slice(None),) * (dim % max(self.ndim, 1)), slice(int(k)))
    return (values[first_k], places[first_k]) if self.ndim else (values, places)


def _searchsorted(
    _: Precision,
    sorted_sequence: Array,
    self: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Array:
    if sorted_sequence.ndim != 1 or sorter is not None:
        raise Unknown("a search in several rows")
    result = np.searchsorted(sorted_sequence, self, "right" if right or side == "right" else "left")
    return np.asarray(result).astype(np.int32 if out_int32 else np.int64)


def _bucketize(at: Precision, self: Any, boundaries: Array, **options: Any) -> Array:
    return np.asarray(_searchsorted(at, boundaries, self, **options))


def _histc(_: Precision, self: Array, bins: int = 100, min: float = 0, max: float = 0) -> Array:  # noqa: A002
    ends = (min, max) if min != max else (self.min(), self.max())
    return np.histogram(self, int(bins), ends)[0].astype(self.dtype)


def _isin(
    _: Precision,
    elements: Any,
    test_elements: Any,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> Array:
    del assume_unique
    return np.isin(elements, test_elements, invert=invert)


_ORDERED: dict[str, Function] = {
    "sort": _sort,
    "argsort": lambda at, self, dim=-1, descending=False, *, stable=None: _sort(
        at, self, dim, descending, stable=stable
    )[1],
    # Where the flag for a stable order comes first.
    "argsort.stable": lambda at, self, *, stable=None, dim=-1, descending=False: _sort(
        at, self, dim, descending, stable=stable
    )[1],
    "topk": _topk,
}

REDUCING: Mapping[str, Function] = {
    "sum": _sum(np.sum),
    "prod": _sum(np.prod),
    "mean": _mean,
    "var": _variance,
    "std": _deviation,
    "var_mean": _with_mean(_variance),
    "std_mean": _with_mean(_deviation),
    "max": _extreme(np.max, np.argmax),
    "min": _extreme(np.min, np.argmin),
    "amax": _over(np.max),
    "amin": _over(np.min),
    "argmax": _place(np.argmax),
    "argmin": _place(np.argmin),
    "any": _flags(np.any),
    "all": _flags(np.all),
    "count_nonzero": _flags(np.sum),
    "cumsum": _running(np.cumsum),
    "cumprod": _running(np.cumprod),
    "logsumexp": _logsumexp,
    "linalg_vector_norm": _norm,
    "norm": _norm,
    "searchsorted": _searchsorted,
    "bucketize": _bucketize,
    "isin": _isin,
    "histc": _histc,
    **_ORDERED,
}
