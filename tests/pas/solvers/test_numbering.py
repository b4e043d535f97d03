"""Trees in whole arrays, held against walks over the tree vertex by vertex."""

from __future__ import annotations

import numpy as np
import pytest

from dlv.kinds import Longs
from dlv.pas.solvers.instance import along, links, ranked, spans

TREES = [(1, 0), (2, 1), (12, 2), (60, 3), (60, 4)]


def tree(count: int, seed: int) -> list[int]:
    """Parents; numbers say nothing of depth."""
    rng = np.random.default_rng(seed)
    names = [0, *(rng.permutation(count - 1) + 1).tolist()]
    parent = [0] * count
    for at in range(1, count):
        parent[names[at]] = names[int(rng.integers(max(0, at - 6), at))]
    return parent


def path(parent: list[int], v: int) -> list[int]:
    """v and all that it hangs from, the root left out."""
    return [] if v == 0 else [v, *path(parent, parent[v])]


def longs(values: list[int]) -> Longs:
    return np.array(values, np.int64)


@pytest.mark.parametrize(("count", "seed"), TREES)
def test_sums_along_paths(count: int, seed: int) -> None:
    parent = tree(count, seed)
    step = [0, *np.random.default_rng(seed).integers(0, 9, count - 1).tolist()]
    times, depth = along(longs(parent), longs(step), longs([0] + [1] * (count - 1)))
    paths = [path(parent, v) for v in range(count)]
    assert times.tolist() == [sum(step[x] for x in one) for one in paths]
    assert depth.tolist() == [len(one) for one in paths]


@pytest.mark.parametrize(("count", "seed"), TREES)
def test_a_subtree_is_a_run_of_numbers(count: int, seed: int) -> None:
    parent = tree(count, seed)
    paths = [path(parent, v) for v in range(count)]
    prices = np.random.default_rng(seed).integers(0, 50, count).astype(np.float64)
    start, end, load = spans(longs(parent), longs([len(one) for one in paths]), prices)
    assert sorted(start.tolist()) == list(range(count))
    for v in range(count):
        below = {x for x in range(count) if v == 0 or v in paths[x]}
        assert {x for x in range(count) if start[v] <= start[x] < end[v]} == below
        assert load[v] == sum(prices[x] for x in below)


@pytest.mark.parametrize(("count", "seed"), TREES)
def test_links_lead_to_each_child_once(count: int, seed: int) -> None:
    parent = tree(count, seed)
    first, after, before = (one.tolist() for one in links(longs(parent)))
    for v in range(count):
        found, x, last = [], first[v], -1
        while x >= 0:
            assert before[x] == last
            found.append(x)
            x, last = after[x], x
        assert found == [x for x in range(1, count) if parent[x] == v]


def test_order_where_numbers_take_more_than_16_bits() -> None:
    keys = np.random.default_rng(0).integers(0, 70_000, 70_000)
    for some in (keys, keys[:65_536] % 65_536):
        expected = sorted(range(len(some)), key=lambda v: (some[v], v))
        assert ranked(some).tolist() == expected
