"""Rows for schedules: those that are given, else the version's own data, else noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import dlv.versions.add as adding
import dlv.versions.commit as committing
from dlv.adapters.data.settings import Settings
from dlv.archiving.bounding.run import ROWS, Asked, rows_for
from dlv.errors import DlvError
from dlv.network.graph import Input, Network, Node
from dlv.network.program import program
from dlv.repository.handle import Repository
from dlv.versions.add import Request as AddRequest
from dlv.versions.commit import Request
from tests.archiving.bounding.nets import MLP, digits, trained
from tests.archiving.bounding.test_run import model, version


@pytest.fixture
def own(tmp_path: Path, commit_model: Callable[..., str]) -> Iterator[Repository]:
    """A version with a data file beside its weights, and one that does not fit."""
    repository, _ = Repository.init(tmp_path)
    commit_model(repository, "mlp", trained("mlp")[0], MLP)
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 5), "f4"))
    np.savez(tmp_path / "rows.npz", x=digits()[0][:500])
    adding.add(repository, tmp_path, ["a.npz", "rows.npz"], AddRequest(role="data"))
    committing.commit(repository, Request("data", "Ada <ada@example.org>"))
    yield repository
    repository.close()


def test_in_this_order(own: Repository, rows: str) -> None:
    made = model(own, "mlp@2").program
    given = rows_for(own, version(own, "mlp@2"), made, Asked(rows))
    assert given.source == rows
    assert given.rows["x"].shape == (ROWS, 1, 8, 8)
    committed = rows_for(own, version(own, "mlp@2"), made, Asked())
    assert committed.source == "rows.npz"  # the other file does not fit
    places = np.unique(np.linspace(0, 499, ROWS).round().astype(int))
    np.testing.assert_array_equal(committed.rows["x"], digits()[0][:500][places])
    noise = [rows_for(own, version(own, "mlp@1"), made, Asked()) for _ in range(2)]
    assert [each.source for each in noise] == ["noise", "noise"]
    np.testing.assert_array_equal(noise[0].rows["x"], noise[1].rows["x"])
    assert noise[0].rows["x"].shape == (ROWS, 1, 8, 8)
    with pytest.raises(DlvError):
        rows_for(own, version(own, "mlp@2"), made, Asked("nowhere.npz"))


def test_as_an_evaluation_reads_them(own: Repository, tmp_path: Path) -> None:
    """Settings count, names are relative to the user's folder, and stored files can be named."""
    made = model(own, "mlp@2").program
    pixels = (digits()[0][:40] * 255).astype("f4")
    np.savez(tmp_path / "raw.npz", pixels=pixels, other=pixels[:1])
    settings = Settings(inputs={"": "pixels"}, scale=1 / 255, rows=20)
    read = rows_for(own, version(own, "mlp@2"), made, Asked("raw.npz", settings, tmp_path))
    assert read.rows["x"].shape == (20, 1, 8, 8)
    np.testing.assert_allclose(read.rows["x"], digits()[0][:20], atol=1e-6)
    with pytest.raises(DlvError):
        rows_for(own, version(own, "mlp@2"), made, Asked("raw.npz", Settings(), tmp_path))
    stored = rows_for(own, version(own, "mlp@1"), made, Asked("mlp@2:rows.npz"))
    assert stored.source == "mlp@2:rows.npz"
    assert stored.rows["x"].shape == (ROWS, 1, 8, 8)
    halved = Asked(None, Settings(scale=0.5))
    own_rows = rows_for(own, version(own, "mlp@2"), made, halved).rows["x"]
    np.testing.assert_allclose(own_rows * 2, stored.rows["x"], atol=1e-6)


def test_noise_for_words(own: Repository) -> None:
    """Indices within the table, along an axis whose length is open."""
    network = Network(
        inputs=(Input("ids", ("B", "T"), "int64"),),
        nodes=(
            Node(
                "words",
                "EMBED",
                attrs={"out": 4, "rows": 30},
                inputs=(("ids", 0),),
                params={"weight": "w"},
            ),
        ),
        outputs=(("words", 0),),
    )
    found = rows_for(own, version(own, "mlp@1"), program(network), Asked()).rows["ids"]
    assert found.shape == (ROWS, 16)
    assert 0 <= found.min() <= found.max() < 30
