"""Derived networks with the weights that they begin with compute what they should.

Each of fifteen networks is changed at random, by dlv and by hand in a sketch that torch runs.
Every element that is carried over must be where the features that it joins are now, none may be
anywhere else, and three engines must compute what the changed sketch does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="torch runs the sketches here")
pytest.importorskip("onnxruntime", reason="onnxruntime runs what is exported")

from tests.network.reused.sketches import SKETCHES  # noqa: E402
from tests.network.reused.trial import Trial  # noqa: E402

OUTCOMES = {"same", "weights", "sizes", "slice"}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _all(seeds: range) -> Counter[str]:
    return Counter(Trial(build, seed).outcome() for seed in seeds for build in SKETCHES)


@pytest.mark.parametrize("build", SKETCHES, ids=lambda build: build.__name__)
def test_a_few_changes_of_each(build: object) -> None:
    found = Counter(Trial(build, seed).outcome() for seed in range(6))
    assert found.keys() & OUTCOMES


@pytest.mark.slow
def test_two_thousand_changes() -> None:
    """Refused ones do not count."""
    found = _all(range(190))
    assert sum(found[each] for each in OUTCOMES) >= 2_000
    assert min(found[each] for each in OUTCOMES) >= 200
