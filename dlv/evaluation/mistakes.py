"""Examples whose prediction is not their label, with what they look like where they are images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlv.evaluation.answers import OPEN, Evaluation, Mistake
from dlv.evaluation.data import Rows
from dlv.kinds import Array

MOST_SIDE = 256  # pixels of an image that is kept


def mistakes(evaluation: Evaluation, rows: Rows, most: int) -> list[Mistake]:
    """The first ones, up to `most`."""
    if evaluation.class_count is None:
        return []
    column = rows.data.inputs[next(iter(rows.data.inputs))]
    wrong: list[Mistake] = []
    for start, labels in rows.labels():
        predictions = evaluation.labels[start : start + len(labels)]
        truth = np.asarray(labels).astype(np.int64)
        for at in np.flatnonzero((predictions != truth) & (predictions != OPEN))[
            : most - len(wrong)
        ]:
            example = start + int(at)
            image = image_of(np.asarray(column.read(example, example + 1))[0])
            label = _named(evaluation.classes, int(truth[at]))
            wrong.append(
                Mistake(example, label, _named(evaluation.classes, int(predictions[at])), image)
            )
        if len(wrong) >= most:
            break
    return wrong


def _named(classes: Sequence[str] | None, label: int) -> str:
    return str(label) if classes is None or label >= len(classes) else classes[label]


def image_of(values: Array) -> Array | None:
    """An example as an image, if it has the shape of one; its values fill the range of a byte."""
    values = np.asarray(values, np.float64)
    if values.ndim == 3 and values.shape[0] in (1, 3):  # channels first
        values = np.moveaxis(values, 0, -1)
    if values.ndim == 3 and values.shape[-1] == 1:
        values = values[..., 0]
    if not (values.ndim == 2 or (values.ndim == 3 and values.shape[-1] == 3)):
        return None
    if min(values.shape[:2]) < 4 or max(values.shape[:2]) > MOST_SIDE:
        return None
    if not np.isfinite(values).all():
        return None
    low, high = float(values.min()), float(values.max())
    scaled = (values - low) * (255 / (high - low)) if high > low else np.zeros_like(values)
    return np.asarray(np.round(scaled), np.uint8)
