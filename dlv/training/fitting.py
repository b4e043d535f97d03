"""Whether data and network go together: what can be said before the first step is trained.

It looks at shapes and dtypes, at the labels, and at the first rows; never at all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import dlv.training.trainers.rows as rows
from dlv.errors import UsageError
from dlv.kinds import Array
from dlv.network.graph import Input, Network, Port
from dlv.network.inference import node_shapes
from dlv.network.ops.op import op_of
from dlv.network.sizes import text
from dlv.training.config import Config
from dlv.training.trainers.datasets import Column, Part, Source


def scores_port(network: Network, loss: str) -> Port:
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


def no_labels_error(data: str, loss: str) -> UsageError:
    return UsageError(
        f"{data} has no labels",
        why=f"the loss {loss} needs them",
        hint="add an array y, or set config.data.labels to its name",
    )


def fitted_labels(
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
            why=f"{called} has {classes} classes, 0 to {classes - 1}",
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


LOOKED_AT = 1 << 20  # bytes of rows
MOST_LABELS = 64 << 20  # bytes of labels
_BLOCK = 1 << 16


def check_fit(source: Source, network: Network, called: str, config: Config) -> None:
    """What the trainer torch would fail of; UsageError names the data, and the network so."""
    taken = rows.inputs_of(network)
    scores = _scores(network, config["loss"])
    for part in (source.train, source.validation):
        if part is not None:
            _check_inputs(part, taken, called)
            _check_labels(part, scores, config["loss"], called)
    _check_counts(source, taken, called, config["val"])


def _scores(network: Network, loss: str) -> tuple[int, ...] | None:
    """The shape of the scores of a row, if it is known."""
    name, port = scores_port(network, loss)
    found = node_shapes(network).get(name, ())
    shape = found[port] if port < len(found) else None
    sides = [dim for dim in (shape or ())[1:] if isinstance(dim, int)]
    return tuple(sides) if shape and len(sides) == len(shape) - 1 else None


def _check_inputs(part: Part, inputs: Sequence[Input], called: str) -> None:
    for each in inputs:
        column, dtype = part.inputs[each.name], rows.kind_of(each)
        rows.check_shape(each, column.shape, column.name, called)
        if column.dtype.kind == "f" and dtype.kind != "f":
            few = column.read(0, min(part.count, max(1, LOOKED_AT // _size(column))))
            rows.fitted(few, dtype, each, column.name, called)


def _check_labels(part: Part, scores: tuple[int, ...] | None, loss: str, called: str) -> None:
    if part.labels is None:
        raise no_labels_error(part.name, loss)
    if scores is None:
        return
    classes = part.classes
    if classes is not None and len(scores) == 1 and len(classes) > scores[0]:
        raise UsageError(
            f"{part.name} has {len(classes)} classes, {called} has {scores[0]}",
            why=f"{', '.join(classes[:8])}{', ..' if len(classes) > 8 else ''}",
        )
    few = max(1, MOST_LABELS // _size(part.labels))
    for start in range(0, min(part.count, few), _BLOCK):
        labels = part.labels.read(start, min(start + _BLOCK, part.count))
        fitted_labels(labels, (len(labels), *scores), loss, part.name, called)


def _size(column: Column) -> int:
    """Bytes of a row."""
    return max(1, int(np.prod(column.shape, dtype=np.int64)) * column.dtype.itemsize)


def _check_counts(source: Source, inputs: Sequence[Input], called: str, share: float) -> None:
    """Some networks take so many rows at a time, and no others."""
    if source.train is None:
        return
    aside = 0 if source.validation else rows.validation_count(source.train.count, share)
    validated = source.validation.count if source.validation else aside
    counts = {"to train on": source.train.count - aside, "to validate on": validated}
    for each in inputs:
        batch = each.shape[0] if each.shape else None
        for what, count in counts.items():
            if isinstance(batch, int) and 0 < count < batch:
                raise UsageError(
                    f"{source.name} has {count} rows {what}",
                    why=f"{called} takes {batch} at a time: its batch has a fixed length",
                )
