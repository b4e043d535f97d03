"""What is called guaranteed holds for every evaluation; what one alone said is counted apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dlv.evaluation.answers import Answers, Settings
from dlv.evaluation.progressive import calibrated, progressive
from tests.evaluation.stored_models import (
    SmallRows,
    StoredModel,
    fresh,
    mlp,
    stored_model,
    torch_scores,
    trained,
)

Array = NDArray[Any]


def near_classes(seed: int) -> tuple[Any, dict[str, Array], Array]:
    """Two classes that hardly differ, and are the first ones for most rows."""
    network, shapes = mlp(24)
    tensors = fresh(shapes, seed)
    rng = np.random.default_rng(seed)
    weight = tensors["fc3.weight"]
    weight[4] = weight[1] * np.float32(1 + rng.normal(size=weight.shape[1]) * 2e-7)
    tensors["fc3.bias"][[1, 4]] = 2.5
    x = np.abs(rng.normal(size=(300, 64))).astype(np.float32)
    return network, tensors, x


def in_other_orders(model: StoredModel, x: Array) -> list[Array]:
    """Labels of float32 evaluations with sums in other orders, and of a nearly exact one."""
    found = [model.scores(x).argmax(1), model.scores(x, dtype=torch.float32).argmax(1)]
    for seed in range(6):
        rng = np.random.default_rng(seed)
        turned = dict(model.tensors)
        order = rng.permutation(x.shape[1])
        given = x[:, order]
        for name in ("fc1", "fc2", "fc3"):
            weight = turned[f"{name}.weight"][:, order]
            order = rng.permutation(len(weight))
            if name == "fc3":
                order = np.arange(len(weight))
            turned[f"{name}.weight"] = np.ascontiguousarray(weight[order])
            turned[f"{name}.bias"] = turned[f"{name}.bias"][order]
        found.append(torch_scores(model.network, turned, given, torch.float32).argmax(1))
    return found


def whole(found: Answers) -> None:
    """Each row is counted once."""
    counted = int(found.proved.sum()) + found.evaluated + found.open + found.not_finite
    assert counted == len(found.labels)


@pytest.mark.parametrize("tighten", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_near_classes_are_not_called_guaranteed(tmp_path: Path, seed: int, tighten: bool) -> None:
    network, tensors, x = near_classes(seed)
    model = stored_model(tmp_path, network, tensors, x=x)
    found = progressive(
        model, SmallRows(x), Settings(reference="strict", tighten=tighten), model.record
    )
    whole(found)
    others = in_other_orders(model, x)
    differ = np.any([each != found.labels for each in others], axis=0)
    assert differ.any()  # there is something to be wrong about
    assert not (found.proved & differ).any()
    assert found.evaluated >= differ.sum()
    assert found.open == 0


def test_the_whole_weights_prove_what_the_first_planes_did_not(tmp_path: Path) -> None:
    network, tensors, x, _ = trained("mlp")
    model = stored_model(tmp_path, network, tensors, x=x)
    for reference in ("f64", "strict"):
        found = progressive(model, SmallRows(x), Settings(reference=reference), model.record)
        whole(found)
        early = max(level.determined for level in found.levels if level.share < 1)
        assert found.proved.sum() >= early
        assert found.proved.mean() > 0.98


def test_what_a_limit_leaves_open_is_neither(tmp_path: Path) -> None:
    network, tensors, x = near_classes(1)
    model = stored_model(tmp_path, network, tensors, x=x)
    full = progressive(model, SmallRows(x), Settings(), model.record)
    most = full.levels[-1].bytes_read - 1
    found = progressive(model, SmallRows(x), Settings(max_bytes=most), model.record)
    whole(found)
    assert found.evaluated == 0
    assert found.open > 0


def test_scores_that_are_no_numbers_are_neither(tmp_path: Path) -> None:
    network, tensors, x = near_classes(2)
    x[3] = np.nan
    x[4] = np.inf
    model = stored_model(tmp_path, network, tensors, x=x)
    found = progressive(model, SmallRows(x), Settings(reference="strict"), model.record)
    whole(found)
    assert found.not_finite
    assert not found.proved[[3, 4]].any()


def test_sets_of_near_classes(tmp_path: Path) -> None:
    """Which two are first is certain where which one is not."""
    network, tensors, x = near_classes(0)
    model = stored_model(tmp_path, network, tensors, x=x)
    asked = Settings(reference="strict", top_k=2)
    found = progressive(model, SmallRows(x), asked, model.record)
    whole(found)
    one = progressive(model, SmallRows(x), Settings(reference="strict"), model.record)
    assert found.proved.sum() > one.proved.sum()
    assert found.sets is not None
    for dtype in (torch.float32, torch.float64):
        order = np.argsort(-model.scores(x, dtype=dtype), axis=1, kind="stable")[:, :2]
        same = (np.sort(order, axis=1) == np.sort(found.sets, axis=1)).all(1)
        assert same[found.proved].all()


def test_calibrated_answers_are_never_guaranteed(tmp_path: Path) -> None:
    network, tensors, x, _ = trained("mlp")
    model = stored_model(tmp_path / "mlp", network, tensors, x=x)
    found = calibrated(model, SmallRows(x), Settings())
    assert not found.proved.any()
    assert found.levels[0].determined
    near_network, near_tensors, near = near_classes(0)
    model = stored_model(tmp_path / "near", near_network, near_tensors, x=near)
    found = calibrated(model, SmallRows(near), Settings())
    assert found.levels[-1].share == 1
    assert found.evaluated == found.levels[-2].open


def test_weights_of_sixteen_bits(tmp_path: Path) -> None:
    """Classes that are equal in bfloat16 are a tie, which nothing proves."""
    network, tensors, x = near_classes(0)
    for name in ("fc3.weight", "fc3.bias"):
        each = tensors[name]
        tensors[name] = torch.from_numpy(each).to(torch.bfloat16).float().numpy()
    model = stored_model(tmp_path, network, tensors, x=x)
    found = progressive(model, SmallRows(x), Settings(), model.record)
    whole(found)
    scores = model.scores(x)
    tied = (scores[:, 1] == scores[:, 4]) & np.isin(scores.argmax(1), [1, 4])
    assert tied.any()
    assert not found.proved[tied].any()
