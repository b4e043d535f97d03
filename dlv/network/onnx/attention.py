"""Attention and rotary positions, as opset 23 has them in one operator each."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dlv.kinds import Array
from dlv.network.aten.precision import Function, Precision, Unknown
from dlv.network.ops.activation import softmax


def _heads(x: Array, count: int | None) -> Array:
    """(batch, length, heads * width) as (batch, heads, length, width)."""
    if x.ndim == 4:
        return x
    if not count:
        raise Unknown("heads that are not counted")
    return x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)


def _attention(
    at: Precision,
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    qk_matmul_output_mode: int = 0,
) -> tuple[Array, Array, Array]:
    """What it gives, and the keys and values with those of the past."""
    del softmax_precision
    masked = mask is not None or is_causal
    if at.outputs > 3 or qk_matmul_output_mode or (softcap and masked):
        raise Unknown("products of attention, or a limit of them with a mask")
    q, k, v = _heads(query, q_num_heads), _heads(key, kv_num_heads), _heads(value, kv_num_heads)
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
    times = q.shape[1] // k.shape[1]
    keys, values = (np.repeat(x, times, 1) if times > 1 else x for x in (k, v))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = (q * q.dtype.type(factor)) @ keys.swapaxes(-1, -2)
    if softcap:
        scores = np.tanh(scores / softcap) * softcap
    length = scores.shape[-1]
    if mask is not None:
        seen = mask.dtype == bool
        missing = [(0, 0)] * (mask.ndim - 1) + [(0, length - mask.shape[-1])]
        whole = np.pad(mask, missing, constant_values=False if seen else -np.inf)
        scores = np.where(whole, scores, -np.inf) if seen else scores + whole
    if is_causal:
        scores = np.where(np.tri(scores.shape[-2], length, past, bool), scores, -np.inf)
    if masked and np.isneginf(scores.max(axis=-1, initial=-np.inf)).any():
        raise Unknown("a query that may attend to nothing")
    result = softmax(scores.astype(q.dtype), -1) @ values
    if query.ndim == 3:
        result = result.swapaxes(1, 2).reshape(*query.shape[:2], -1)
    return result, k, v


def _rotated(
    _: Precision,
    x: Array,
    cos: Array,
    sin: Array,
    position_ids: Array | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Array:
    """Pairs of numbers turned by angles that depend on the position."""
    heads = x.reshape(*x.shape[:2], num_heads, -1) if x.ndim == 3 else x.swapaxes(1, 2)
    width = rotary_embedding_dim or heads.shape[-1]
    if position_ids is not None:
        cos, sin = cos[position_ids], sin[position_ids]
    cos, sin = (each[:, :, None, : width // 2] for each in (cos, sin))
    turning, rest = heads[..., :width], heads[..., width:]
    first, second = (
        (turning[..., 0::2], turning[..., 1::2]) if interleaved else np.split(turning, 2, axis=-1)
    )
    real, imaginary = cos * first - sin * second, sin * first + cos * second
    turned = (
        np.stack([real, imaginary], -1).reshape(turning.shape)
        if interleaved
        else np.concatenate([real, imaginary], -1)
    )
    result = np.concatenate([turned, rest], -1)
    return result.reshape(x.shape) if x.ndim == 3 else result.swapaxes(1, 2)


ATTENTION: Mapping[str, Function] = {"Attention": _attention, "RotaryEmbedding": _rotated}
