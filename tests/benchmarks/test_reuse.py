from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
reuse = pytest.importorskip("benchmarks.reuse")


@pytest.mark.slow
def test_reused_weights_are_ahead_after_one_epoch() -> None:
    found = reuse.measured(3)
    assert len(found["mutations"]) == 5
    assert found["ahead"] >= 4
    # What is carried over counts before anything is trained.
    kept = found["mutations"]["insert RELU"]
    assert kept["reuse"][0] > found["base"] - 0.15 > kept["scratch"][0] + 0.4
