"""The form behind each layer against errors that try to break it, and what is felt of weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlv.network.program import params_of
from dlv.network.suffix.errors import felt, head_of, matrix_of, over_torus, pairs_of, reach
from dlv.network.suffix.form import Parameters, Peaks, walk
from dlv.network.suffix.plan import Through, Told, plan
from dlv.network.suffix.torus import Torus, Window, transformed
from dlv.network.suffix.tuning import start
from tests.network.suffix_nets import CASES, Case, Drawing

Array = NDArray[Any]


def parameters(made: Any, seed: int) -> Parameters:
    """Any feasible ones will do."""
    found, rng = start(made), np.random.default_rng(seed)
    found.p = {key: rng.normal(size=value.shape) * (seed > 0) for key, value in found.p.items()}
    found.theta = {key: float(rng.uniform(0.05, 1.0)) for key in found.theta}
    return found


def blocks(case: Case, seed: int) -> tuple[Any, dict[str, tuple[Told, Array, Torus]], Array]:
    made = plan(case.program, {"x": case.shape})
    chosen = parameters(made, seed)
    found: dict[str, tuple[Told, Array, Torus]] = {}

    def tensor(name: str) -> Array:
        return case.tensor(name, None)

    def tell(move: Told, block: Array, torus: Torus) -> None:
        found[move.step.result] = (move, block.copy(), torus)

    def weights(move: Through | Told, torus: Torus) -> Array:
        return over_torus(matrix_of(move.step, params_of(move.step, tensor)), move.window, torus)

    last = matrix_of(made.last, params_of(made.last, tensor))
    head = head_of(last)
    walk(made, head, chosen, weights, tell, Peaks())
    return made, found, pairs_of(last, head)


def dense(block: Array, torus: Torus, lengths: tuple[int, ...]) -> Array:
    """e^T M e for maps of (channels, *lengths), as one real matrix."""
    width = block.shape[1]
    if not torus.sides or len(block) == 1:
        return np.kron(block[0].real, np.eye(int(np.prod(lengths))))
    places = np.stack(np.meshgrid(*map(np.arange, lengths), indexing="ij"), -1)
    places = places.reshape(-1, len(lengths))
    turns = torus.frequencies @ (places / np.array(torus.sides)).T
    waves = np.exp(-2j * np.pi * turns) / np.sqrt(np.prod(torus.sides))
    opposite = (-torus.frequencies) % np.array(torus.sides)
    weight = np.where((opposite == torus.frequencies).all(axis=1), 1.0, 2.0)
    found = np.einsum("f,fp,fcd,fq->cpdq", weight, waves.conj(), block, waves, optimize=True).real
    form: Array = found.reshape(width * len(places), -1)
    return form


def lengths_of(case: Case, made: Any, move: Told) -> tuple[int, ...]:
    shape = made.shapes[move.step.result, 0][1:]
    if len(shape) < 3:
        return ()
    return tuple(shape[:-1] if case.shape[-1] == 2 else shape[1:])


def turned(case: Case, made: Any, step: Any, e: Any) -> Any:
    """(rows, channels * places) as the step's result has its axes."""
    shape = made.shapes[step.result, 0][1:]
    if step.node.attrs.get("channels") == "last" or step.node.attrs.get("axis") == 3:
        last = e.reshape(-1, shape[-1], *shape[:-1])
        return torch.movedim(last, 1, -1)
    spatial = step.node.op in ("ADD", "POOL") and len(shape) == 3
    if spatial and case.shape[-1] == 2:  # the network whose channels are last
        return torch.movedim(e.reshape(-1, shape[-1], *shape[:-1]), 1, -1)
    return e.reshape(-1, *shape)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_no_error_moves_a_pair_further_than_the_form_says(name: str, seed: int) -> None:
    case = CASES[name](seed)
    made, found, pairs = blocks(case, seed)
    rows = 24
    x = torch.from_numpy(case.rows(rows, seed)).double()
    plain = case.scores(x)
    worst = 0.0
    assert len(found) >= len(case.program.linear) - 1
    for result, (move, block, torus) in found.items():
        form = torch.from_numpy(dense(block, torus, lengths_of(case, made, move)))
        generator = torch.Generator().manual_seed(seed)
        e = torch.randn(rows, len(form), generator=generator, dtype=torch.float64)
        e = (e * torch.logspace(-3, 1.5, rows, dtype=torch.float64)[:, None]).requires_grad_()
        k, j = np.array([(k, (k + 1 + r) % len(pairs)) for r in (0, 1) for k in range(3)]).T
        k, j = np.resize(k, rows), np.resize(j, rows)
        bound = torch.from_numpy(pairs[k, j])
        optimizer = torch.optim.Adam([e], lr=0.1)
        for _ in range(25):
            moved = case.scores(x, errors={result: turned(case, made, move.step, e)}) - plain
            apart = (moved[range(rows), k] - moved[range(rows), j]).abs()
            size = torch.sqrt(torch.clamp((e @ form * e).sum(1), min=1e-30))
            ratio = apart / (bound * size)
            worst = max(worst, float(ratio.max().detach()))
            optimizer.zero_grad()
            (-torch.log(ratio + 1e-9).sum()).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    assert worst <= 1 + 1e-9
    assert worst > 0.3  # a bound far off would make this an empty test


def straight(seed: int) -> Case:
    """No activations: what a border cuts off makes more of some errors."""
    d = Drawing((1, 1, 4), seed)
    d.conv("a", 1, 1, 1)
    for name in "bc":
        d.weight(name, 1, 1, 1, 3, fan=3)
        d.add(name, "CONV", out=1, kernel=[1, 3], pad=[0, 1])
    d.add("flat", "RESHAPE", kind="flatten")
    d.full("f", 4, 2)
    return d.case()


def around(seed: int) -> Case:
    d = Drawing((2, 4, 4), seed)
    below = d.conv("a", 2, 2, 1)
    d.conv("b", 2, 2, 3, pad=1)
    d.add("add", "ADD", d.last, below)
    d.add("mean", "POOL", variant="MEAN", axis=[2, 3])
    d.full("f", 2, 3)
    return d.case()


def pooled(seed: int) -> Case:
    """One pixel that is the largest of four windows, all of which count alike."""
    d = Drawing((1, 5, 5), seed)
    d.conv("a", 1, 1, 1)
    d.tensors["a.weight"][:] = 1
    d.add("p", "POOL", variant="MAX", kernel=[3, 3], stride=[2, 2])
    d.add("flat", "RESHAPE", kind="flatten")
    d.full("f", 4, 2)
    d.tensors["f.weight"][:] = [[1], [-1]]
    return d.case()


@pytest.mark.parametrize(
    ("make", "least"),
    [(straight, 0.5), (around, 0.8), (pooled, 1 - 1e-6), *((each, 0.3) for each in CASES.values())],
)
def test_no_slope_is_steeper_than_the_form_says(make: Callable[[int], Case], least: float) -> None:
    """With g the slope of a pair by a result, |g e| <= s sqrt(e M e) for all e, exactly."""
    worst = 0.0
    for seed in range(6):
        case = make(seed)
        made, found, pairs = blocks(case, seed)
        x = torch.from_numpy(case.rows(8, seed)).double()
        if make is pooled:
            x[:, 0, 2, 2] += 9
        for result, (move, block, torus) in found.items():
            form = dense(block, torus, lengths_of(case, made, move))
            e = torch.zeros(len(x), len(form), dtype=torch.float64, requires_grad=True)
            scores = case.scores(x, errors={result: turned(case, made, move.step, e)})
            (g,) = torch.autograd.grad((scores[:, 0] - scores[:, 1]).sum(), e)
            values, vectors = np.linalg.eigh(form)
            along = g.numpy() @ vectors
            squares = (along**2 / np.maximum(values, 1e-9 * values[-1])).sum(axis=1)
            worst = max(worst, float(np.sqrt(squares).max()) / pairs[0, 1])
    assert least < worst <= 1 + 1e-9


def test_a_form_that_is_too_small_is_found() -> None:
    """The same with half of what the last hidden layer's form must be."""
    case = CASES["mlp"](3)
    _, found, pairs = blocks(case, 0)
    weight = case.tensor("c.weight", None)
    # All of the hidden layer's relus open: the difference of two rows is felt in full.
    _, block, _ = found["b"]
    g = weight[0] - weight[1]
    e = np.linalg.solve(block[0], g)
    assert abs(g @ e) <= pairs[0, 1] * np.sqrt(e @ block[0] @ e) * (1 + 1e-9)
    assert abs(g @ e) > pairs[0, 1] * np.sqrt(e @ (0.2 * block[0]) @ e)


def test_pairs_are_the_least_numbers_that_hold() -> None:
    rng = np.random.default_rng(0)
    last = rng.normal(size=(5, 9))
    head = head_of(last)
    found = pairs_of(last, head)
    for k in range(5):
        for j in range(5):
            g = last[k] - last[j]
            d = np.linalg.solve(head, g)  # where the bound is met
            size = np.sqrt(d @ head @ d)
            assert found[k, j] * size >= abs(g @ d)
            assert found[k, j] * size <= abs(g @ d) * (1 + 1e-6)


WINDOWS = st.builds(
    Window,
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(
        st.tuples(st.integers(0, 2), st.integers(0, 2)),
        st.tuples(st.integers(0, 2), st.integers(0, 2)),
    ),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
)


@given(WINDOWS, st.tuples(st.integers(5, 8), st.integers(5, 8)), st.integers(0, 1 << 30))
@settings(max_examples=40, deadline=None)
def test_a_convolution_is_one_matrix_per_frequency(
    window: Window, given: tuple[int, int], seed: int
) -> None:
    """Sums over the whole torus, cut off at the result's support, are torch's."""
    rng = np.random.default_rng(seed)
    kernel = rng.normal(size=(2, 3, *window.kernel))
    x = rng.normal(size=(3, *given))
    (top, bottom), (left, right) = window.pad
    padded = torch.nn.functional.pad(torch.from_numpy(x)[None], (left, right, top, bottom))
    made = torch.nn.functional.conv2d(
        padded, torch.from_numpy(kernel), stride=window.stride, dilation=window.dilation
    )[0].numpy()
    sides = window.least(given, made.shape[1:])
    torus = Torus(sides)
    fine = tuple(n * s for n, s in zip(sides, window.stride, strict=True))
    spectrum = np.fft.fftn(x, fine, axes=(1, 2)) / np.sqrt(np.prod(fine))
    found = np.zeros((2, *sides), complex)
    matrices = transformed(kernel, window, torus)
    for matrix, f in zip(matrices, torus.frequencies, strict=True):
        stacked = [
            spectrum[:, (f[0] + a * sides[0]), (f[1] + b * sides[1])]
            for a in range(window.stride[0])
            for b in range(window.stride[1])
        ]
        value = matrix @ np.concatenate(stacked)
        found[:, f[0], f[1]] = value
        found[:, -f[0] % sides[0], -f[1] % sides[1]] = value.conj()
    back = (np.fft.ifftn(found, axes=(1, 2)) * np.sqrt(np.prod(sides))).real
    assert np.allclose(back[:, : made.shape[1], : made.shape[2]], made, atol=1e-9)


@pytest.mark.parametrize("name", ["mlp", "chain", "residual"])
def test_what_is_felt_of_a_weight_bounds_every_input(name: str) -> None:
    case = CASES[name](5)
    made, found, _ = blocks(case, 1)
    rng = np.random.default_rng(0)
    best = {}
    for result, (move, block, torus) in found.items():
        if move.step.node.op not in ("CONV", "FULL"):
            continue
        whole = matrix_of(move.step, params_of(move.step, lambda n: case.tensor(n, None)))
        dw = rng.normal(size=whole.shape)
        a = np.exp2(rng.normal(size=whole.shape[1]))
        bound = felt(block, over_torus(dw, move.window, torus), a)
        given, shape = made.shapes[move.step.inputs[0]], made.shapes[result, 0]
        # The weight as a matrix from whole inputs to whole outputs.
        units = torch.eye(int(np.prod(given[1:])), dtype=torch.float64).reshape(-1, *given[1:])
        if move.window is None:
            columns = units.numpy() @ dw.T
        else:
            attrs = move.step.node.attrs
            maps = torch.nn.functional.conv2d(
                units, torch.from_numpy(dw), stride=attrs["stride"], padding=attrs["pad"][0][0]
            )
            columns = maps.reshape(len(units), -1).numpy()
        scale = np.repeat(a, int(np.prod(given[2:]))) if len(given) > 2 else a
        matrix = columns.T / scale
        form = dense(block, torus, tuple(shape[2:]))
        real = float(np.sqrt(np.linalg.eigvalsh(matrix.T @ form @ matrix)[-1]))
        assert real <= bound
        assert float(np.sqrt(np.linalg.eigvalsh(form)[-1])) <= reach(block)
        best[result] = real / bound
    assert max(best.values()) > 0.999 if name == "mlp" else max(best.values()) > 0.5
