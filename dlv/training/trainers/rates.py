"""The learning rate of a step: what a schedule makes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def factor(schedule: Mapping[str, Any], steps: int, step: int) -> float:
    """By what the rates of step `step` (from 1 on) are multiplied; `steps` is config.steps.

    Beyond `steps`, a cosine stays where it ended.
    """
    done, warmup = step - 1, schedule["warmup"]
    if done < warmup:
        return float(step / (warmup + 1))
    kind = schedule["kind"]
    if kind == "step":
        every = schedule["every"] or max(1, math.ceil(steps / 3))
        return float(schedule["gamma"] ** (done // every))
    if kind == "cosine":
        share = min(1.0, (done - warmup) / max(1, steps - warmup))
        floor = schedule["floor"]
        return float(floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * share)))
    return 1.0
