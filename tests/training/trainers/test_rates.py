from __future__ import annotations

import math
from typing import Any

import pytest

from dlv.training.trainers.torch_trainer import rate_factor

PLAIN = {"kind": "constant", "warmup": 0, "every": None, "gamma": 0.1, "floor": 0.0}


def factors(steps: int, last: int, **said: Any) -> list[float]:
    return [rate_factor({**PLAIN, **said}, steps, step) for step in range(1, last + 1)]


def test_constant() -> None:
    assert factors(3, 5) == [1.0] * 5
    assert factors(3, 5, warmup=3) == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_step() -> None:
    assert factors(6, 5, kind="step", every=2, gamma=0.5) == [1, 1, 0.5, 0.5, 0.25]
    # By thirds where nothing is said.
    assert factors(6, 6, kind="step", gamma=0.5) == [1, 1, 0.5, 0.5, 0.25, 0.25]
    assert factors(1, 2, kind="step", gamma=0.5) == [1, 0.5]


def test_cosine() -> None:
    found = factors(4, 6, kind="cosine")
    expected = [0.5 * (1 + math.cos(math.pi * done / 4)) for done in range(4)] + [0, 0]
    assert found == pytest.approx(expected)
    assert factors(4, 6, kind="cosine", floor=0.5)[4:] == [0.5, 0.5]
    with_warmup = factors(6, 6, kind="cosine", warmup=2)
    assert with_warmup[:3] == pytest.approx([1 / 3, 2 / 3, 1])
    assert with_warmup == sorted(with_warmup[:3]) + sorted(with_warmup[3:], reverse=True)


@pytest.mark.parametrize("kind", ["constant", "step", "cosine"])
def test_a_warmup_longer_than_the_training(kind: str) -> None:
    found = factors(3, 12, kind=kind, warmup=8)
    assert found[:8] == [step / 9 for step in range(1, 9)]
    assert all(0 <= each <= 1 for each in found)
