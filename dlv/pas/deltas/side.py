"""Side data of an encoding: the layout's, then the predictors', then scales of contexts."""

from __future__ import annotations

from collections.abc import Sequence

from dlv.pas.deltas.difference import Delta
from dlv.pas.deltas.predictors import side_bytes
from dlv.pas.layouts.segments import Layout


def side_length(layout: Layout, delta: Delta | None, dtype: str, shape: Sequence[int]) -> int:
    """Length of side data without scales; an unknown or impossible predictor is named."""
    length = layout.side_bytes(dtype, shape)
    if delta is not None:
        length += sum(side_bytes(config, dtype, shape) for config in delta.predictor)
    return length
