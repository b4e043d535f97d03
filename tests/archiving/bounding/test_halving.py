"""Which weights get planes of 4 bits, and that the record is of what is stored then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dlv.adapters import network_json
from dlv.archiving.bounding import run as bounding
from dlv.archiving.bounding.make import Made, Model, make_record
from dlv.archiving.bounding.run import made_in_halves
from dlv.network.program import program
from tests.archiving.bounding.nets import MLP, digits, trained
from tests.archiving.bounding.test_fixing import Shelf, name_of
from tests.archiving.bounding.test_fixing import shelf as shelf

ROWS = {"x": digits()[0][1200:1232]}
WEIGHTS = ("fc1.weight", "fc2.weight")  # the second is too small for either layout


@pytest.fixture
def model(shelf: Shelf) -> Model:
    image = {"name": "x", "shape": ["B", 1, 8, 8], "dtype": "float32"}
    text = {"dlv_network": 1, "inputs": [image], "nodes": MLP, "outputs": ["fc2"]}
    network = network_json.parse(json.dumps(text).encode())[0]
    weights = trained("mlp")[0]
    hashes = {name: shelf.whole(array) for name, array in weights.items()}
    for name in WEIGHTS:
        shelf.fix(hashes[name])
    tensors = {name: (str(array.dtype), array.shape) for name, array in weights.items()}
    return Model(program(network, tensors), hashes, tensors)


def made_with(
    shelf: Shelf, model: Model, folder: Path, patch: pytest.MonkeyPatch, **changed: Any
) -> Made:
    for name, value in changed.items():
        patch.setattr(bounding, name, value)
    return made_in_halves(model, shelf.view, ROWS, folder, strict=True)


def layouts(shelf: Shelf, model: Model) -> dict[str, str]:
    return {name: shelf.encoding(model.hash(name)).layout["id"] for name in WEIGHTS}


def test_only_where_it_pays(
    shelf: Shelf, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = layouts(shelf, model)
    made = made_with(shelf, model, tmp_path, monkeypatch, WORTH=1.0)
    assert layouts(shelf, model) == before == {"fc1.weight": "fixed", "fc2.weight": "ieee"}
    assert made.record == make_record(model, shelf.view, ROWS).record


def test_the_record_is_of_what_is_stored(
    shelf: Shelf, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Levels end in the new plane, too; numbers stay."""
    made = made_with(shelf, model, tmp_path, monkeypatch, WORTH=-1.0)
    assert layouts(shelf, model) == {"fc1.weight": "halved", "fc2.weight": "ieee"}
    assert any(level["fc1.weight"] == 2 for level in made.schedule.levels)
    assert made.record == make_record(model, shelf.view, ROWS).record
    name = model.hash("fc1.weight")
    assert shelf.encoding(name).planes == 5
    assert bytes(shelf.view.raw(name)) == trained("mlp")[0]["fc1.weight"].tobytes()
    assert name == name_of(trained("mlp")[0]["fc1.weight"])
    node = made.record.node("fc1")
    assert node is not None
    assert [level.planes for level in node.levels] == [1, 2, 3, 4]
    falls = [node.levels[at].dn / node.levels[at + 1].dn for at in range(3)]
    assert [round(fall / by) for fall, by in zip(falls, (16, 16, 256), strict=True)] == [1, 1, 1]


@pytest.mark.parametrize(("dtypes", "smallest"), [(("float64",), 0), (("float32",), 1 << 20)])
def test_not_for_all_matrices(
    shelf: Shelf,
    model: Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dtypes: tuple[str, ...],
    smallest: int,
) -> None:
    made_with(shelf, model, tmp_path, monkeypatch, WORTH=-1.0, DTYPES=dtypes, SMALLEST=smallest)
    assert layouts(shelf, model)["fc1.weight"] == "fixed"
