"""Points of series, read from packs."""

from __future__ import annotations

import math
from pathlib import Path

import dlv.api as api
from dlv.dql.execute import Points


def test_a_point_of_a_series_is_found_by_its_step(tmp_path: Path) -> None:
    with api.open(tmp_path, create=True) as repo:
        made = repo.commit(
            "one", name="a", metrics={"loss": [(0, 3.0), (10, 2.0), (10, 1.5), (20, float("nan"))]}
        )
        points = Points(repo.repository)
        assert points.value_at(made.id, "loss", 0) == 3.0
        assert points.value_at(made.id, "loss", 10) == 1.5
        assert math.isnan(points.value_at(made.id, "loss", 20) or 0)
        assert points.value_at(made.id, "loss", 15) is None
        assert points.value_at(made.id, "accuracy", 0) is None
        assert points.value_at("0" * 64, "loss", 0) is None
