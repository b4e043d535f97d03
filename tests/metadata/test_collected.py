"""What gc takes out of the catalogue leaves it as if it had never been there."""

from __future__ import annotations

import random

from dlv.metadata import collected, dump
from tests.metadata.made_up import Catalogue, chain, node


def test_networks_that_no_version_has_any_more() -> None:
    """Statistics of layers, pairs of layers and shapes are those of the networks that stay."""
    lot = random.Random(4)
    networks = [
        chain(
            *(node(f"fc{n}", "FULL", out=lot.choice((8, 16, 32))) for n in range(lot.randint(2, 7)))
        )
        for _ in range(12)
    ]
    made, right = Catalogue(), Catalogue()
    for number, network in enumerate(networks):
        parents = [f"v{number - 1}"] if number else []
        made.add(f"v{number}", network=network, parents=parents, day=number)
        if number % 3:
            right.add(f"v{number}", network=network, parents=parents, day=number)
    gone = made.db.rows("SELECT id FROM version WHERE name IN ('v0', 'v3', 'v6', 'v9')")
    before = dump.content(made.db)
    collected.forget_versions(made.db, [row[0] for row in gone])
    found, wanted = dump.content(made.db), dump.content(right.db)
    for name in sorted((dump.OF_NETWORKS - {"raw_edge"}) | {"parent"}):
        assert found[name] == wanted[name], name
        assert found[name] != before[name], name
    shapes = "SELECT text FROM shape ORDER BY text"
    assert made.db.rows(shapes) == right.db.rows(shapes)
    assert dump.integrity(made.db) == []
