"""Whether data and network go together: what can be said before the first step is trained.

It looks at shapes and dtypes, at the labels, and at the first rows; never at all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import dlv.training.answers as answers
import dlv.training.trainers.rows as rows
from dlv.errors import UsageError
from dlv.network.graph import Input, Network
from dlv.network.inference import node_shapes
from dlv.training.config import Config
from dlv.training.trainers.datasets import Column, Part, Source

LOOKED_AT = 1 << 20  # bytes of rows
MOST_LABELS = 64 << 20  # bytes of labels
_BLOCK = 1 << 16


def check(source: Source, network: Network, called: str, config: Config) -> None:
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
    name, port = answers.scores(network, loss)
    found = node_shapes(network).get(name, ())
    shape = found[port] if port < len(found) else None
    sides = [dim for dim in (shape or ())[1:] if isinstance(dim, int)]
    return tuple(sides) if shape and len(sides) == len(shape) - 1 else None


def _check_inputs(part: Part, taken: Sequence[Input], called: str) -> None:
    for each in taken:
        column, dtype = part.inputs[each.name], rows.kind_of(each)
        rows.check_shape(each, column.shape, column.name, called)
        if column.dtype.kind == "f" and dtype.kind != "f":
            few = column.read(0, min(part.count, max(1, LOOKED_AT // _size(column))))
            rows.fitted(few, dtype, each, column.name, called)


def _check_labels(part: Part, scores: tuple[int, ...] | None, loss: str, called: str) -> None:
    if part.labels is None:
        raise answers.no_labels(part.name, loss)
    if scores is None:
        return
    classes = part.classes
    if classes is not None and len(scores) == 1 and len(classes) > scores[0]:
        raise UsageError(
            f"{part.name} has {len(classes)} classes, {called} tells {scores[0]} apart",
            why=f"{', '.join(classes[:8])}{', ..' if len(classes) > 8 else ''}",
        )
    few = max(1, MOST_LABELS // _size(part.labels))
    for start in range(0, min(part.count, few), _BLOCK):
        labels = part.labels.read(start, min(start + _BLOCK, part.count))
        answers.fitted(labels, (len(labels), *scores), loss, part.name, called)


def _size(column: Column) -> int:
    """Bytes of a row."""
    return max(1, int(np.prod(column.shape, dtype=np.int64)) * column.dtype.itemsize)


def _check_counts(source: Source, taken: Sequence[Input], called: str, share: float) -> None:
    """Some networks take so many rows at a time, and no others."""
    if source.train is None:
        return
    aside = 0 if source.validation else rows.put_aside(source.train.count, share)
    validated = source.validation.count if source.validation else aside
    counts = {"to train on": source.train.count - aside, "to validate on": validated}
    for each in taken:
        batch = each.shape[0] if each.shape else None
        for what, count in counts.items():
            if isinstance(batch, int) and 0 < count < batch:
                raise UsageError(
                    f"{source.name} has {count} rows {what}",
                    why=f"{called} takes {batch} at a time: its batch has a fixed length",
                )
