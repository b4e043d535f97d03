"""Why a trial was stopped, in words."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dlv.training.ledger.results import reason
from dlv.training.ledger.verdicts import Mark

TOP = {"rule": "top", "metric": "loss", "direction": "min", "k": 2}
TIED = "tied with a trial of a lower number"


@pytest.mark.parametrize(
    ("rule", "value", "cut", "said"),
    [
        (TOP, 0.5, 0.25, "not in the top 2: loss 0.5 at step 8, cut 0.25"),
        (TOP, 0.0003, 0.0003, f"not in the top 2: loss 0.0003 at step 8, {TIED}"),
        (TOP, 0.30000001, 0.3, "not in the top 2: loss 0.30000001 at step 8, cut 0.3"),
        (TOP, math.nan, 0.3, "not in the top 2: loss nan at step 8, cut 0.3"),
        (TOP, math.nan, math.nan, "not in the top 2: loss nan at step 8, cut nan"),
        (TOP, None, 0.3, "not in the top 2: loss never logged at step 8, cut 0.3"),
        (TOP, 0.5, None, "not in the top 2: loss 0.5 at step 8"),
        ({**TOP, "rule": "asha"}, 1.0, 1.0, f"not in the best 1/3: loss 1 at step 8, {TIED}"),
        ({**TOP, "rule": "median"}, 4, 1, "worse than the median: loss at best 4, cut 1"),
        (
            {**TOP, "rule": "patience", "n": 3},
            *(1.0000001, 1.0),
            "not better for 3 logs: loss 1.0000001 at step 8, best 1",
        ),
        (
            {**TOP, "rule": "threshold:", "op": "<", "value": 0.1},
            *(0.5, 0.1),
            "threshold: loss 0.5 at step 8, expected < 0.1",
        ),
    ],
)
def test_why(rule: dict[str, Any], value: float | None, cut: float | None, said: str) -> None:
    found = reason(rule, Mark("t", 0, 8, value, cut, kept=False))
    assert found == said
