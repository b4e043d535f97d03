"""PNG by matplotlib, where it is there."""

from __future__ import annotations

import builtins
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.report.curve_charts as curve_charts
from dlv.errors import DlvError
from dlv.report.courses import Chart, course


def test_a_picture_has_its_curves(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    curve = course("a$b$", range(50), [math.sin(i / 5) for i in range(50)], smooth=0.5)
    many = [Chart(f"s{i}", (curve, course("one", [3], [0.1])), log=i == 2) for i in range(3)]
    with (tmp_path / "a.png").open("wb") as out:
        curve_charts.png(many, "costs $5", out)
    with image.open(tmp_path / "a.png") as found:
        assert found.size[0] > 1000
        pixels = np.asarray(found.convert("RGB")).reshape(-1, 3)
    assert len(np.unique(pixels, axis=0)) > 20


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.setattr("importlib.import_module", lambda name, *_: refuse(name))
    with pytest.raises(DlvError) as told:
        curve_charts.check_matplotlib()
    assert "dlv[plots]" in str(told.value.hint)
