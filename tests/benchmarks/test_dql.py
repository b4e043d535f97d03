"""Synthetic catalogues of the benchmark are as dlv makes them, and all ways count alike."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.dql import catalogues, ours, plans, queries, rivals
from dlv.metadata.database import Database


@pytest.mark.parametrize("shared", [True, False])
def test_every_way_finds_the_same(tmp_path: Path, shared: bool) -> None:
    recipe = catalogues.Recipe(200, shared)
    path = catalogues.build(recipe, tmp_path)
    held = catalogues.figures(path)
    assert held["versions"] == 200
    assert held["networks"] == (20 if shared else 200)
    db = Database(path, wal=False)
    assert db.as_made()
    with (
        closing(db),
        closing(sqlite3.connect(path)) as plain,
        closing(rivals.paper(path, tmp_path / "paper.sqlite")) as paper,
    ):
        found = []
        for timed in queries.TIMED:
            text = timed.text.replace("{root}", queries.root(plain, 10))
            hits = ours.ask(db, text)
            found.append(hits)
            if timed.hop:
                assert rivals.ask_paper(paper, timed) == hits
            if timed.title in rivals.HOPS:
                assert rivals.ask_networkx(plain, timed.title) == hits
        assert sum(found) > 200
    chosen = plans.each(path, queries.TIMED[0].text, 1)
    assert chosen["chosen"] in chosen["ms"]
