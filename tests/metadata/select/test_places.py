"""Places of nodes against networkx."""

from __future__ import annotations

import random

import networkx as nx
import pytest

from dlv.metadata.select.nodes import places_of


@pytest.mark.parametrize("seed", range(20))
def test_as_networkx_orders(seed: int) -> None:
    lot = random.Random(seed)
    count = lot.randint(1, 12)
    turned = lot.sample(range(count), count)
    edges = [
        (turned[a], turned[b])
        for a in range(count)
        for b in range(a + 1, count)
        if lot.random() < 0.3
    ]
    graph = nx.DiGraph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(edges)
    order = [*nx.lexicographical_topological_sort(graph)]
    places = places_of(count, [*edges, *edges[:2]])
    assert [order.index(pos) for pos in range(count)] == places


def test_cycles_stand_at_the_end() -> None:
    assert places_of(4, [(0, 1), (1, 0), (2, 3)]) == [2, 3, 0, 1]
