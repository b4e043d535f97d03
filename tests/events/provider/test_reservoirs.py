"""Samples of growing lists: uniform, equal for lists that belong together, with the newest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.events.server.legacy_http import reservoir


@given(st.integers(0, 3000), st.integers(0, 200))
def test_at_most_so_many_in_order_with_the_newest(n: int, size: int) -> None:
    places = reservoir(n, size)
    assert len(places) == (min(n, size) if size else n)
    assert places == sorted(set(places))
    assert all(0 <= place < n for place in places)
    if n:
        assert places[-1] == n - 1


@given(st.integers(1, 3000), st.integers(1, 100))
def test_one_more_item_changes_the_newest_and_at_most_one_other(n: int, size: int) -> None:
    before, after = set(reservoir(n, size)), set(reservoir(n + 1, size))
    assert after - before <= {n - 1, n}
    assert len(before - after) <= 2


SEEDS, N, SIZE = 4000, 60, 12


@pytest.mark.parametrize("size", [SIZE, 2, N - 1])
def test_every_item_is_kept_with_the_same_probability(size: int) -> None:
    """Chi-square over all places but the newest, which is always there."""
    seen = [0] * (N - 1)
    for seed in range(SEEDS):
        for place in reservoir(N, size, seed)[:-1]:
            seen[place] += 1
    share = (size - 1) / (N - 1)
    expected = SEEDS * share
    # Draws without replacement vary less than independent ones, by that factor.
    chi_square = sum((count - expected) ** 2 for count in seen) / (expected * (1 - share))
    degrees = N - 2
    assert degrees - 5 * (2 * degrees) ** 0.5 < chi_square < degrees + 5 * (2 * degrees) ** 0.5


def test_pairs_of_items_are_kept_together_as_chance_has_it() -> None:
    """A reservoir that is right item by item may still prefer neighbours."""
    n, size = 12, 5
    pairs: dict[tuple[int, int], int] = {}
    for seed in range(SEEDS):
        kept = reservoir(n, size, seed)[:-1]
        for i, a in enumerate(kept):
            for b in kept[i + 1 :]:
                pairs[a, b] = pairs.get((a, b), 0) + 1
    expected = SEEDS * (size - 1) * (size - 2) / ((n - 1) * (n - 2))
    assert len(pairs) == (n - 1) * (n - 2) // 2
    assert all(abs(count - expected) < 6 * expected**0.5 for count in pairs.values())


def test_long_lists_cost_only_their_changes() -> None:
    places = reservoir(10**12, 1000)
    assert len(set(places)) == 1000
    assert places[-1] == 10**12 - 1
    assert 0.4 < sum(place < 5 * 10**11 for place in places) / 1000 < 0.6


def test_all_or_one() -> None:
    assert reservoir(5, 0) == reservoir(5, 5) == reservoir(5, 9) == [0, 1, 2, 3, 4]
    assert reservoir(5, 1) == [4]
    assert reservoir(0, 0) == reservoir(0, 3) == []
