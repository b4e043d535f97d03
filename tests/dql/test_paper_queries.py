"""Queries 1 to 3 of the paper, to the letter, on versions that were committed for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from dlv.dql import execute
from dlv.dql.outcome import Networks, Table
from dlv.metadata import versions
from dlv.metadata.rows import VersionCell
from dlv.repository.handle import Repository
from tests.dql import brute_force
from tests.dql.brute_model import Graph, Version
from tests.dql.brute_model import Repository as Model
from tests.dql.brute_networks import alexnet, network

LINES = (Path(__file__).parent / "valid.txt").read_text(encoding="utf-8").splitlines()
QUERY1, QUERY2, QUERY3 = (line.replace("\\n", "\n") for line in LINES[:3])
VERSIONS = {
    # name -> its pools, and whether conv1 is followed by one
    "alexnet_max": ("MAX", True),
    "alexnet_avg": ("AVG", True),
    "alexnet_relu": ("MAX", False),
    "alexnet": ("MAX", True),
    "AlexNet_1": ("MAX", True),
    "alexnet-origin": ("MAX", False),
    "alexnet-origin2": ("AVG", True),
    "alexnet-avgv1": ("AVG", True),
    "alexnet-avgv12": ("AVG", False),
}


def nodes(name: str) -> list[dict[str, Any]]:
    pool, direct = VERSIONS[name]
    return alexnet(pool, relu=not direct)


@pytest.fixture(scope="module")
def repository(
    tmp_path_factory: pytest.TempPathFactory, commit_model: Callable[..., str]
) -> Iterator[Repository]:
    with Repository.init(tmp_path_factory.mktemp("paper"))[0] as made:
        for name in VERSIONS:
            commit_model(made, name, {}, nodes(name), root=True, shape=[4, 8, 8])
        yield made


@pytest.fixture(scope="module")
def model() -> Model:
    found = []
    for place, name in enumerate(VERSIONS):
        graph = Graph(network(nodes(name)), {})
        found.append(Version(f"{place:04x}", name, 1, 2_000_000_000_000_000 + place, graph=graph))
    return Model(found)


def names_of(rows: list[tuple[Any, ...]]) -> list[str]:
    return [row[0].name for row in rows]


def test_query_1(repository: Repository, model: Model) -> None:
    for outcome in execute.run(repository, QUERY1):
        assert isinstance(outcome, Table)
        cells = [row[0] for row in outcome.rows]
    assert all(isinstance(cell, VersionCell) for cell in cells)
    found = [versions.by_id(repository.database, cell.id) for cell in cells]
    assert (
        [version.name for version in found if version]
        == names_of(brute_force.run(model, QUERY1))
        == ["alexnet_max"]
    )


def test_query_2(repository: Repository) -> None:
    (outcome,) = execute.run(repository, QUERY2)
    assert isinstance(outcome, Networks)
    by_origin = {model.origins[0]: model.network for model in outcome.models}
    assert set(by_origin) == {"alexnet-origin@1", "alexnet-origin2@1"}
    for label, found in by_origin.items():
        source = Graph(network(nodes(label.partition("@")[0])), {})
        below = nx.descendants(source.raw, "conv1") | {"conv1"}
        above = nx.ancestors(source.raw, "fc7") | {"fc7"}
        assert {node.name for node in found.nodes} == below & above
        assert "prob" in below - above
        assert [name for name, _ in found.outputs] == ["fc7"]


def test_query_3(repository: Repository) -> None:
    """conv2 and conv4 have no pool behind them; with a relu between, none has."""
    (outcome,) = execute.run(repository, QUERY3)
    assert isinstance(outcome, Networks)
    (model,) = outcome.models
    assert model.origins == ("alexnet-avgv1@1",)
    graph = Graph(model.network, {})
    for number in (1, 3, 5):
        (behind,) = graph.logical.successors(f"conv{number}")
        assert (behind, graph.layers[behind].op) == (f"relu{number}", "RELU")
        assert list(graph.logical.successors(behind)) == [f"pool{number}"]
    plain = Graph(network(nodes("alexnet-avgv1")), {})
    assert len(graph.layers) == len(plain.layers) + 3
    for number in (2, 4):
        assert list(graph.logical.successors(f"conv{number}")) == [f"conv{number + 1}"]
