"""Calibrated evaluation: labels that completions do not sway, said to be no promise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlv.evaluation.progressive as calibrated_module
from dlv.evaluation.answers import OPEN, Answers, NoBounds, Settings
from dlv.evaluation.planes import Planes
from dlv.evaluation.progressive import (
    COMPLETIONS,
    LEAST,
    Completions,
    _calibrated_depths,
    calibrated,
    planes_of,
)
from dlv.network.forward import Forward
from tests.evaluation.stored_models import (
    SmallRows,
    StoredModel,
    full,
    network_of,
    plain,
    stored_model,
    trained,
)

Array = NDArray[Any]


def told(model: StoredModel, x: Array, **asked: Any) -> Answers:
    return calibrated(model, SmallRows(x), Settings(**asked))


@pytest.mark.parametrize("kind", ["mlp", "cnn", "bn"])
@pytest.mark.parametrize("layout", ["fixed", "ieee"])
def test_labels_are_right_on_clean_rows(tmp_path: Path, kind: str, layout: str) -> None:
    network, tensors, x, _ = trained(kind)
    model = stored_model(tmp_path, network, tensors, x=x, layout=layout)
    found = told(model, x)
    assert (found.labels == model.scores(x).argmax(1)).all()
    assert found.mode == "calibrated"
    assert found.confidence == {"completions": COMPLETIONS, "z": LEAST, "seed": 0}
    assert found.fallback is None
    early = [level.determined for level in found.levels if level.share < 0.6]
    assert max(early) > 0.9 * len(x)


def test_an_operation_without_bounds(tmp_path: Path) -> None:
    nodes = [full("a", "x", 32), plain("e", "SOFTMAX", "a", attrs={"axis": 1})]
    nodes += [plain("m", "MUL", "a", "e"), full("f", "m", 6)]
    network = network_of(nodes, (20,))
    rng = np.random.default_rng(0)
    shapes = {"a.weight": (32, 20), "a.bias": (32,), "f.weight": (6, 32), "f.bias": (6,)}
    tensors = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    x = rng.normal(size=(80, 20)).astype(np.float32)
    model = stored_model(tmp_path, network, tensors, x=x)
    found = told(model, x)
    assert (found.labels == model.scores(x).argmax(1)).all()
    assert found.levels[0].determined > 40


def test_a_level_is_told_as_by_hand(tmp_path: Path) -> None:
    """z is the smallest margin over the spread of that margin around the centre's."""
    network, tensors, x, _ = trained("mlp")
    model = stored_model(tmp_path, network, tensors, x=x)
    planes = planes_of(model, intervals=True)
    planes.read({**dict.fromkeys(planes.names, 9), "fc1.weight": 1, "fc3.weight": 1})
    judge = Completions(model.program, planes, Settings(seed=5))
    ((at, found),) = judge(iter([(np.arange(len(x)), {"x": x})]))
    assert (at == np.arange(len(x))).all()
    centre = Forward(model.program, planes.tensor)({"x": x})
    top = centre.argmax(1)
    every = np.arange(len(x))
    margin = centre[every, top][:, None] - centre
    moved = np.zeros(margin.shape)
    for number in range(COMPLETIONS):
        tensor = judge._completion(number)
        for name in ("fc1.weight", "fc3.weight"):
            between = planes.between(name)
            assert between is not None
            assert (between[0] <= tensor(name)).all()
            assert (tensor(name) <= between[1]).all()
            assert tensor(name) is tensor(name)
        scores = Forward(model.program, tensor)({"x": x})
        moved += (scores[every, top][:, None] - scores - margin) ** 2
    with np.errstate(all="ignore"):
        z = margin / np.sqrt(moved / COMPLETIONS)
    z[every, top] = np.inf
    assert (found.labels == top).all()
    assert (found.sure == (z.min(1) > LEAST)).all()
    assert 0 < found.sure.sum() < len(x)


def test_the_seed_decides(tmp_path: Path) -> None:
    network, tensors, x, _ = trained("cnn")
    model = stored_model(tmp_path, network, tensors, x=x)
    first, again = told(model, x, seed=1), told(model, x, seed=1)
    assert first.levels == again.levels
    drawn = {told(model, x, seed=seed).levels[0].determined for seed in range(4)}
    assert len(drawn) > 1


def test_blocks_are_drawn_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However rows are put into batches and blocks, the same completions are held against them."""
    network, tensors, x, _ = trained("mlp")
    model = stored_model(tmp_path, network, tensors, x=x)
    whole = told(model, x).levels
    monkeypatch.setattr(calibrated_module, "ROWS", 50)
    assert told(model, x, batch=16).levels == whole


def test_sets(tmp_path: Path) -> None:
    network, tensors, x, _ = trained("mlp")
    model = stored_model(tmp_path, network, tensors, x=x)
    scores = model.scores(x)
    right = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :3], axis=1)
    found = told(model, x, top_k=3)
    assert found.sets is not None
    assert (np.sort(found.sets, axis=1) == right).all()
    assert found.levels[0].determined < told(model, x).levels[0].determined


def test_ties_and_nan_stay_open(tmp_path: Path) -> None:
    network, tensors, x, _ = trained("mlp")
    tensors = {name: each.copy() for name, each in tensors.items()}
    for name in ("fc3.weight", "fc3.bias"):
        tensors[name][1:] = tensors[name][:1]
    x = x[:20].copy()
    x[4, 0] = np.nan
    model = stored_model(tmp_path, network, tensors, x=x)
    found = told(model, x)
    assert all(level.determined == 0 for level in found.levels[:-1])
    assert found.labels[4] == OPEN
    assert found.not_finite == 1
    assert (np.delete(found.labels, 4) == 0).all()


def test_reading_ends_at_the_most_bytes(tmp_path: Path) -> None:
    network, tensors, x, _ = trained("cnn")
    model = stored_model(tmp_path, network, tensors, x=x)
    first = told(model, x).levels[0]
    found = told(model, x, max_bytes=first.bytes_read)
    assert found.levels == [first]
    assert found.open == first.open > 0


def test_depths(tmp_path: Path) -> None:
    network, tensors, x, _ = trained("mlp")
    model = stored_model(tmp_path, network, tensors, x=x)
    planes = planes_of(model)
    found = _calibrated_depths(model.program, planes)
    assert [each["fc1.weight"] for each in found] == [1, 2, 3]
    assert all(each["fc1.bias"] == planes.planes("fc1.bias") for each in found)


def test_why_all_has_to_be_read(tmp_path: Path) -> None:
    network, tensors, x, _ = trained("mlp")
    model = stored_model(tmp_path, network, tensors, x=x)
    with pytest.raises(NoBounds, match=r"no tensor `fc1\.weight`"):
        told(replace(model, hashes={}), x)
    nodes = [full("a", "x", 4)]
    network = network_of(nodes, (3, 5))
    rng = np.random.default_rng(0)
    held = {"a.weight": rng.normal(size=(4, 5)), "a.bias": rng.normal(size=4)}
    tensors = {name: each.astype(np.float32) for name, each in held.items()}
    words = rng.normal(size=(6, 3, 5)).astype(np.float32)
    model = stored_model(tmp_path / "b", network, tensors, x=words)
    with pytest.raises(NoBounds, match="classes"):
        told(model, words)
    assert isinstance(planes_of(model), Planes)
