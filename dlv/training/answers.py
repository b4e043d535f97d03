"""What a network answers, and which labels fit that: known without a step of training."""

from __future__ import annotations

import numpy as np

from dlv.errors import UsageError
from dlv.kinds import Array
from dlv.network.graph import Network, Port
from dlv.network.ops.op import op_of
from dlv.network.sizes import text


def scores(network: Network, loss: str) -> Port:
    """Where the scores are: before a final softmax, or sigmoid, which the loss computes itself."""
    if not network.outputs:
        raise UsageError("the network has no output")
    port = network.outputs[0]
    while port[0] in network:
        node = network.node(port[0])
        op = op_of(node)
        passing = (op.passes(node) and not op.dropout) or op.within_loss(node) == loss
        if not node.inputs or not passing:
            break
        port = node.inputs[0]
    return port


def no_labels(data: str, loss: str) -> UsageError:
    return UsageError(
        f"{data} has no labels",
        why=f"the loss {loss} needs them",
        hint="an array y beside x, or config.data.labels = its name",
    )


def fitted(
    labels: Array, shape: tuple[int, ...], loss: str, data: str, called: str = "the network"
) -> Array:
    """Labels as the loss takes them: numbers of classes (int64) for scores of this shape, or what
    is to come out (float32). UsageError where they do not fit; `called`: the network, in it."""
    if loss == "cross_entropy" and labels.dtype.kind in "biu":
        return _classes(np.asarray(labels, np.int64), shape, data, called)
    if loss == "cross_entropy":
        whole = labels.astype(np.int64)
        if labels.shape != shape and np.array_equal(whole, labels):
            return _classes(whole, shape, data, called)
    elif labels.shape != shape and int(np.prod(labels.shape)) == int(np.prod(shape)):
        labels = labels.reshape(shape)  # (rows,) for scores of (rows, 1)
    if labels.shape != shape:
        raise _misfit(labels, shape, loss, data, called)
    if loss == "bce" and not ((labels >= 0) & (labels <= 1)).all():
        raise UsageError(f"labels of {data} are not between 0 and 1", why="config.loss is bce")
    return np.asarray(labels, np.float32)


def _classes(labels: Array, shape: tuple[int, ...], data: str, called: str) -> Array:
    if len(shape) < 2 or not _are_classes(labels.shape, shape):
        raise _misfit(labels, shape, "cross_entropy", data, called)
    by_last = labels.shape == shape[:-1] and labels.shape != (shape[0], *shape[2:])
    classes = shape[-1] if by_last else shape[1]
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        raise UsageError(
            f"{data} has the label {labels[wrong].flat[0]}",
            why=f"{called} tells {classes} classes apart, 0 to {classes - 1}",
        )
    return np.ascontiguousarray(labels)


def _misfit(labels: Array, shape: tuple[int, ...], loss: str, data: str, called: str) -> UsageError:
    fractions = labels.dtype.kind == "f" and not labels.shape[1:]
    return UsageError(
        f"the labels of {data} do not fit what {called} computes",
        why=f"of a row the label is {'a fraction' if fractions else text(labels.shape[1:])},"
        f" and the scores are {text(shape[1:])}; config.loss is {loss}",
    )


def _are_classes(labels: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    by_second, by_last = (shape[0], *shape[2:]), shape[:-1]
    return labels in (by_second, by_last) or (
        labels == shape[:1] and all(side == 1 for side in shape[2:])
    )
