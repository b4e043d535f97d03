"""The paper's intervals, and the norms and networks of the benchmark of progressive evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from benchmarks.progressive import nets, norms, paper
from benchmarks.progressive.completions import Cells
from benchmarks.progressive.paper import Layout
from benchmarks.storage.models import matrix

LAYOUTS: tuple[Layout, ...] = ("ieee", "fixed")


def untrained(name: str) -> tuple[nets.Net, dict[str, Any]]:
    """A network with its first weights, and statistics as training would leave them."""
    net = nets.ALL[name]
    rng = np.random.default_rng(5)
    tensors = nets.fresh(net.draw().shapes, 3)
    for each, held in tensors.items():
        if held.dim() == 1:
            values = rng.uniform(0.5, 1.5, held.shape) * rng.choice([-1, 1], held.shape)
            shift = np.abs(values) if each.endswith("running_var") else values
            tensors[each] = torch.from_numpy(shift).float()
    return net, {each: held.numpy() for each, held in tensors.items()}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("planes", [1, 2, 3, 4])
def test_intervals_of_weights_end_where_the_format_says(layout: Layout, planes: int) -> None:
    rng = np.random.default_rng(planes)
    held = (rng.normal(size=(20, 30)) * 10.0 ** rng.integers(-4, 2, (20, 1))).astype(np.float32)
    held[3] = 0
    low, high = paper.bounds_of(held, layout, planes)
    cells = Cells(held, layout, planes)
    ends = np.minimum(cells.near, cells.far), np.maximum(cells.near, cells.far)
    assert (low <= ends[0]).all()
    assert (high >= ends[1]).all()
    # `fixed` counts with the open end of a cell, which no float32 number reaches.
    step = np.spacing(np.abs(cells.far)).astype(np.float64)
    assert (high - low <= ends[1].astype(np.float64) - ends[0] + 2 * step).all()


@pytest.mark.parametrize("name", ["mlp", "lenet", "alexnet", "resnet"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_scores_of_all_completions_lie_in_the_paper_s_intervals(name: str, layout: Layout) -> None:
    net, tensors = untrained(name)
    rng = np.random.default_rng(1)
    shape = net.draw().input_shape
    x = rng.normal(size=(3, *shape)).astype(np.float32)
    for planes in (2, 3):
        low, high = paper.scores(net.network(), tensors, layout, planes, x)
        cells = {
            each: Cells(held, layout, planes) for each, held in tensors.items() if held.ndim > 1
        }
        for _ in range(3):
            other = tensors | {each: cell.random(rng) for each, cell in cells.items()}
            model = {each: matrix(held) for each, held in other.items()}
            module = nets.module_of(net, model).double()
            with torch.no_grad():
                found = module(torch.from_numpy(x).double()).numpy()
            slack = 1e-9 * (1 + np.abs(found))
            assert (low - slack <= found).all()
            assert (found <= high + slack).all()
    low, high = paper.scores(net.network(), tensors, layout, 4, x)
    assert (high - low <= 1e-9 * (1 + np.abs(low))).all()


def test_determined() -> None:
    low = np.array([[1.0, 0.0, 0.2], [1.0, 0.0, 0.9], [1.0, 2.0, 0.0]])
    high = np.array([[2.0, 0.9, 0.9], [2.0, 0.9, 1.0], [1.5, 3.0, 0.5]])
    assert paper.determined(low, high).tolist() == [True, False, True]
    assert paper.determined(low, high, 2).tolist() == [False, False, True]
    assert paper.determined(low, high, 3).all()
    assert paper.labels(low).tolist() == [0, 0, 1]


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_norms_of_convolutions_are_bounds(kernel: int, stride: int) -> None:
    rng = np.random.default_rng(kernel)
    weight = rng.normal(size=(4, 3, kernel, kernel))
    units = torch.eye(3 * 7 * 6, dtype=torch.float64).reshape(-1, 3, 7, 6)
    moved = functional.conv2d(units, torch.from_numpy(weight), padding=kernel // 2, stride=stride)
    exact = float(np.linalg.norm(moved.reshape(len(units), -1).numpy(), 2))
    found = norms.of_torus(weight, (7, 6))
    assert exact <= found
    if stride == 1:
        assert found < 1.3 * exact


def test_norm() -> None:
    rng = np.random.default_rng(0)
    for shape in ((3, 8), (8, 3), (5, 5)):
        held = rng.normal(size=shape)
        exact = np.linalg.norm(held, 2)
        assert exact <= norms.norm(held) <= exact * (1 + 1e-6)


@pytest.mark.parametrize("name", list(nets.ALL))
def test_networks_have_the_sizes_of_their_tensors(name: str) -> None:
    net, tensors = untrained(name)
    data = nets.data_of(net, 7)
    assert len(data.test_x) == nets.TEST
    assert len(data.calibration) == nets.CALIBRATION
    assert data.mixes().shape == data.test_x.shape
    assert data.test_x.shape[1:] == net.draw().input_shape
    model = {each: matrix(held) for each, held in tensors.items()}
    assert 0 <= nets.accuracy(nets.module_of(net, model), data) < 0.5
