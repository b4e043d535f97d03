"""One node run by torch, and errors inside balls, random and as bad as ascent makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlv.network.bounds.ball import Ball, BallRun, Reference
from dlv.network.graph import Node
from dlv.network.ops.op import Run, op_of
from dlv.network.vocabulary import complete

torch: Any = pytest.importorskip("torch", reason="torch is the oracle here")
torch_ops: Any = pytest.importorskip("dlv.network.torch.ops")
torch_types: Any = pytest.importorskip("dlv.network.torch.types")

Array = NDArray[Any]
NOTHING: Mapping[str, Array] = {}


def node_of(
    op: str, variant: str | None = None, *, inputs: int = 1, slots: Sequence[str] = (), **attrs: Any
) -> Node:
    params = {slot: slot for slot in slots}
    ports = tuple((f"x{place}", 0) for place in range(inputs))
    return Node("n", op, variant, complete(op, variant, attrs, params=params), ports, params)


def by_numpy(
    node: Node, inputs: Sequence[Array], params: Mapping[str, Array] = NOTHING, **sizes: int
) -> tuple[Array, ...]:
    return op_of(node).forward(node, Run(inputs, params, sizes))


def by_torch(
    node: Node, inputs: Sequence[Any], params: Mapping[str, Any] = NOTHING, **sizes: int
) -> tuple[Any, ...]:
    """What torch gives, tensors for tensors; arrays are taken too."""

    def tensor(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return x
        return x.item() if x.ndim == 0 else torch.from_numpy(np.ascontiguousarray(x))

    call = torch_types.Call(
        [tensor(x) for x in inputs],
        {slot: tensor(x) for slot, x in params.items()},
        False,
        sizes,
        torch.device("cpu"),
    )
    found = torch_ops.run_of(node)(call)
    return found if isinstance(found, tuple) else (found,)


def bounded(
    node: Node,
    inputs: Sequence[Ball],
    reference: Reference,
    params: Mapping[str, Array] = NOTHING,
    **sizes: int,
) -> tuple[Ball, ...]:
    run = BallRun(inputs, params, None, reference, sizes)
    with np.errstate(all="ignore"):
        return op_of(node).bounds(node, run)


def ball(centre: Array, rows: Array, *, tokens: bool = False, box: Array | None = None) -> Ball:
    """A ball of given radii; with `tokens`, each token has its share of the row's."""
    centre = np.asarray(centre, np.float64)
    each = None
    if tokens:
        count = int(np.prod(centre.shape[1:-1]))
        weights = np.random.default_rng(centre.size).uniform(0.2, 1, centre.shape[:-1])
        each = weights * (rows / np.sqrt(count)).reshape(-1, *[1] * (centre.ndim - 2))
    return Ball(centre, np.asarray(rows, np.float64), box, each)


def shrunk(error: Any, inside: Ball) -> Any:
    """An error scaled so that it lies in the ball, as near to its surface as it can."""
    found = error
    if inside.box is not None:
        box = torch.from_numpy(np.ascontiguousarray(inside.box))
        found = found.sign() * torch.minimum(found.abs(), box) if found.any() else found
    if inside.tokens is not None:
        limit = torch.from_numpy(np.ascontiguousarray(inside.tokens))[..., None]
        found = found * (limit / found.norm(dim=-1, keepdim=True).clamp(min=1e-300))
    flat = found.reshape(len(found), -1)
    limit = torch.from_numpy(inside.radius)[:, None]
    norm = flat.norm(dim=1, keepdim=True).clamp(min=1e-300)
    share = limit / norm
    if inside.box is not None or inside.tokens is not None:
        share = share.clamp(max=1)
    return (flat * share).reshape(error.shape) * (1 - 1e-12)


def worst(
    node: Node, balls: Sequence[Ball], params: Mapping[str, Array], rng: Any, steps: int
) -> list[Any]:
    """Errors that move the result far: by ascent on the norm of what it moves, per row."""
    centres = [torch.from_numpy(np.array(b.centre)) for b in balls]
    start = by_torch(node, centres, params)[0].detach()
    errors = [
        shrunk(torch.from_numpy(rng.normal(size=b.centre.shape)), b)
        if not b.exact
        else torch.zeros(c.shape, dtype=torch.float64)
        for b, c in zip(balls, centres, strict=True)
    ]
    for _ in range(steps):
        moving = [error.clone().requires_grad_() for error in errors]
        given = [
            centre + error if centre.is_floating_point() else centre
            for centre, error in zip(centres, moving, strict=True)
        ]
        loss = (by_torch(node, given, params)[0] - start).square().sum()
        gradients = torch.autograd.grad(loss, moving, allow_unused=True)
        errors = [
            error
            if b.exact or gradient is None or not torch.isfinite(gradient).all()
            else shrunk(
                # Of a box, every coordinate to its end.
                gradient.sign() * 1e9 if b.box is not None else gradient + 1e-30 * error,
                b,
            )
            for error, gradient, b in zip(errors, gradients, balls, strict=True)
        ]
    return errors


def outside(found: Ball, value: Array) -> float:
    """How far a value is from the centre as a share of the radius, at the worst place."""
    error = np.asarray(value, np.float64) - found.centre
    with np.errstate(all="ignore"):
        shares = [np.sqrt((error * error).sum(axis=tuple(range(1, error.ndim)))) / found.radius]
        if found.tokens is not None:
            shares.append(np.sqrt((error * error).sum(axis=-1)) / found.tokens)
        if found.box is not None:
            shares.append(np.abs(error) / found.box)
        for grid in found.groups:
            axes = tuple(axis for axis in range(error.ndim) if grid.shape[axis] == 1)
            shares.append(np.sqrt((error * error).sum(axis=axes, keepdims=True)) / grid)
        return max(float(np.nan_to_num(share, nan=0.0).max(initial=0)) for share in shares)


def _held(inside: Ball, error: Any, dtype: Any) -> Any:
    """The centre and an error in it as numbers of that precision, surely in the ball."""
    centre = torch.from_numpy(np.array(inside.centre))
    if not centre.is_floating_point():
        return centre
    for share in (1.0, 1 - 1e-6, 1 - 1e-5, 1 - 1e-4, 0.999, 0.99, 0.9):
        found = (centre + error * share).to(dtype)
        if inside.exact or outside(inside, found.double().numpy()) <= 1:
            return found
    raise AssertionError("the ball is too small for this precision")


def check(
    node: Node,
    balls: Sequence[Ball],
    reference: Reference,
    params: Mapping[str, Array] = NOTHING,
    *,
    seed: int = 0,
    steps: int = 4,
    trials: int = 3,
) -> float:
    """Hold a rule against errors in its balls; the largest share of a radius that was reached."""
    rng = np.random.default_rng(seed)
    [found] = bounded(node, balls, reference, params)
    single = reference.name == "strict"
    dtype = torch.float32 if single else torch.float64
    most = 0.0
    for trial in range(trials):
        errors = worst(node, balls, params, rng, steps if trial else 0)
        given = [_held(b, error, dtype) for b, error in zip(balls, errors, strict=True)]
        held = {slot: torch.from_numpy(np.array(x)).to(dtype) for slot, x in params.items()}
        value = by_torch(node, given, held)[0].double().numpy()
        most = max(most, outside(found, value))
    return most
