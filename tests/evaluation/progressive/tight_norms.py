"""Norms as small as they can be, worked out without what the writer of bounds uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from dlv.network.bounds.ball import Norms
from dlv.network.graph import Node
from dlv.network.program import Program, Step, params_of

Array = NDArray[Any]

# For the rounding of the decompositions.
UP = 1 + 1e-7


def norms_of(
    program: Program, whole: Mapping[str, Array], centre: Mapping[str, Array], shapes: Any
) -> dict[str, Norms]:
    """Of every linear node; `shapes`: those of the inputs of its convolutions, no batch."""
    found = {}
    for step in program.linear:
        weight = params_of(step, lambda name: whole[name].astype(np.float64))["weight"]
        near = params_of(step, lambda name: centre[name].astype(np.float64))["weight"]
        found[step.node.name] = _norms(step, weight, weight - near, shapes.get(step.node.name))
    return found


def _norms(step: Step, weight: Array, unread: Array, shape: Any) -> Norms:
    rows, unread_rows = (each.reshape(len(each), -1) for each in (weight, unread))
    groups = step.node.attrs.get("groups", 1)
    if step.node.op == "CONV":
        opn, dopn = (_norm(_operator(step.node, each, shape)) for each in (weight, unread))
        dn = max(_norm(part) for part in np.split(unread_rows, groups))
    else:
        opn, dn, dopn = _norm(rows), _norm(unread_rows), float("inf")
    return Norms(
        opn,
        float(np.linalg.norm(rows)) * UP,
        float(np.abs(rows).max()),
        dn,
        float(np.linalg.norm(unread_rows)) * UP,
        np.linalg.norm(rows, axis=1) * UP,
        np.linalg.norm(unread_rows, axis=1) * UP,
        dopn,
    )


def _norm(matrix: Array) -> float:
    scale = float(np.abs(matrix).max(initial=0.0))
    if scale == 0:
        return 0.0
    return float(np.linalg.svd(matrix / scale, compute_uv=False)[0]) * scale * UP


def _operator(node: Node, weight: Array, shape: tuple[int, ...]) -> Array:
    """The matrix of a convolution: what it makes of each unit vector."""
    attrs = node.attrs
    units = torch.eye(int(np.prod(shape)), dtype=torch.float64).reshape(-1, *shape)
    (top, bottom), (left, right) = attrs["pad"]
    units = functional.pad(units, (left, right, top, bottom))
    made = functional.conv2d(
        *(units, torch.from_numpy(weight)),
        stride=tuple(attrs["stride"]),
        dilation=tuple(attrs["dilation"]),
        groups=attrs["groups"],
    )
    return np.asarray(made.reshape(len(units), -1).numpy().T)
