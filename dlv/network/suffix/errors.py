"""How much of a weight's unread part the form behind it can feel.

sup ||M^1/2 dW A^-1||, A one number per input channel: with it the layer's share of the error is
that supremum times ||A x||.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dlv.kinds import Array
from dlv.network.ops.op import op_of
from dlv.network.program import Step
from dlv.network.suffix.form import EPS, RAISED, TINY, dagger
from dlv.network.suffix.torus import Torus, Window, transformed

_FLOOR = 0.01  # of the mean eigenvalue


def matrix_of(step: Step, params: Mapping[str, Array]) -> Array:
    """The weight of a step as (out, in, *kernel), groups filled up with zeros."""
    node = step.node
    if node.op == "NORM":
        scale = 1 / np.sqrt(np.asarray(params["running_var"], np.float64) + node.attrs["eps"])
        return np.diag(scale * params["weight"] if "weight" in params else scale)
    weight = np.asarray(params["weight"], np.float64)
    layout = node.attrs["layout"]
    if node.op == "FULL":
        return op_of(node).by_rows(node, weight)
    axes, groups = len(node.attrs["kernel"]), node.attrs["groups"]
    if layout == "depthwise":
        weight = weight.reshape(*weight.shape[:axes], 1, -1)
    if layout != "kernel_last":
        weight = np.moveaxis(weight, (-1, -2), (0, 1))
    if groups == 1:
        return weight
    out, depth = weight.shape[0], weight.shape[1]
    found = np.zeros((out, depth * groups, *weight.shape[2:]))
    each = out // groups
    for group in range(groups):
        rows = slice(group * each, (group + 1) * each)
        found[rows, group * depth : (group + 1) * depth] = weight[rows]
    return found


def over_torus(weight: Array, window: Window | None, torus: Torus) -> Array:
    """(out, in, *kernel) per frequency; a matrix alone is alike at all of them."""
    if window is None:
        return weight[None]
    return transformed(weight, window, torus)


def felt(block: Array, dw: Array, a: Array) -> float:
    """The supremum, rounded up; `dw` per frequency, `a` for each of its inputs' channels."""
    x = dw / np.tile(a, dw.shape[2] // len(a))
    if x.shape[1] <= x.shape[2]:
        half = dagger(np.linalg.cholesky(block)) @ x
        gram = half @ dagger(half)
    else:
        gram = dagger(x) @ (block @ x)
    gram = (gram + dagger(gram)) / 2
    largest = float(np.linalg.eigvalsh(gram)[:, -1].max())
    trace = float(np.einsum("fii->f", block).real.max())
    size = float((np.abs(x) ** 2).sum(axis=(1, 2)).max())
    lost = 32 * EPS * max(block.shape[1], x.shape[2]) * trace * size
    return float(np.sqrt(max(largest, 0.0) * RAISED + lost + TINY)) * RAISED


def head_of(last: Array) -> Array:
    """The form behind the last hidden layer: how far scores move, their common part left out.

    A little is added in all directions, so that every form behind it has an inverse.
    """
    apart = last - last.mean(axis=0)
    found: Array = apart.T @ apart
    more = max(_FLOOR * float(np.trace(found)) / len(found), 2.0**-500)
    found[np.diag_indices(len(found))] += more
    return found


def pairs_of(last: Array, head: Array) -> Array:
    """How far a difference of two scores moves for an error of 1 in that form, rounded up."""
    half = np.linalg.cholesky(head)
    flat = (last[:, None] - last).reshape(-1, last.shape[1])
    found: Array = np.linalg.norm(np.linalg.solve(half, flat.T), axis=0) * RAISED
    pairs: Array = found.reshape(len(last), len(last))
    return pairs


def reach(block: Array) -> float:
    """sqrt(lambda_max(M)), rounded up."""
    largest = float(np.linalg.eigvalsh(block)[:, -1].max())
    return float(np.sqrt(max(largest, 0.0) * RAISED + TINY)) * RAISED
