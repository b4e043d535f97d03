"""The tables that a writer makes, and what a reader tells by them, whatever was not read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import dlv.network.suffix.habits as suffix_habits
from dlv.canonical import dumps
from dlv.errors import Damaged
from dlv.network.bounds.ball import F64, STRICT, Norms, Reference
from dlv.network.bounds.interval import certain
from dlv.network.bounds.norms import level_norms, norms_of
from dlv.network.ops.op import NoRule
from dlv.network.program import params_of
from dlv.network.suffix.errors import head_of
from dlv.network.suffix.habits import Source, habits
from dlv.network.suffix.metric import faults, needed, suffix_of
from dlv.network.suffix.plan import plan, shapes_of
from dlv.network.suffix.radius import Read, SuffixBalls, correction_of, size_of
from dlv.network.suffix.record import Suffix, suffix_from_json
from dlv.network.suffix.tuning import Objective, Samples, start, tuned
from tests.network.suffix_nets import CASES, Case, chain, mlp, odd, residual

Array = NDArray[Any]
Depths = Mapping[str, int | None]


def made(case: Case, steps: int = 2) -> Suffix:
    return suffix_of(case.program, case, case.depths, {"x": case.rows(12, 9)}, steps)[0]


def norms(case: Case, depths: Depths) -> dict[str, Norms]:
    shapes, found = shapes_of(case.program, {"x": case.shape}), {}
    for step in case.program.linear:
        depth = depths.get(step.node.params["weight"])

        def tensor(name: str, step: Any = step, depth: Any = depth) -> Array:
            return case.tensor(name, depth if name == step.node.params["weight"] else None)

        whole = params_of(step, lambda name: case.tensor(name, None))["weight"]
        given = shapes[step.inputs[0]]
        all_of = norms_of(step.node, whole, given)
        part = level_norms(step.node, whole, params_of(step, tensor)["weight"], given)
        known = (all_of.opn, all_of.fro, all_of.absmax, part.dn, part.dfro)
        found[step.node.name] = Norms(*known, all_of.rows, part.drows, part.dopn)
    return found


def balls_of(case: Case, suffix: Suffix, depths: Depths, reference: Reference = F64) -> SuffixBalls:
    def tensor(name: str) -> Array:
        return case.tensor(name, depths.get(name))

    results = {s.result: depths.get(s.node.params["weight"]) for s in case.program.linear}
    read = Read(suffix, results)
    return SuffixBalls(case.program, tensor, norms(case, depths), read, reference)


def worst_ratio(case: Case, balls: SuffixBalls, x: Array, truth: Array) -> float:
    """Of what pairs are off, to what they may be; of the suffix metric alone."""
    known = balls.balls({"x": x})
    centre = known[case.program.scores].centre
    worst = 0.0
    for top in range(centre.shape[1]):
        tops = np.full(len(x), top)
        last = balls._last
        assert last is not None
        e = balls._own_errors(last, known[last.inputs[0]])
        allowed = balls.read.suffix.pairs[tops] * balls._spread(known)[:, None] + e + e[:, [top]]
        off = np.abs((truth[:, [top]] - truth) - (centre[:, [top]] - centre))
        slack = 1e-9 * (1 + np.abs(centre).max(axis=1))[:, None]
        ratio = (off - slack) / np.maximum(allowed, 1e-300)
        ratio[:, top] = 0
        worst = max(worst, float(ratio.max()))
    return worst


@pytest.fixture
def all_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Corrections wherever they shrink an error, whatever they take."""
    monkeypatch.setattr(suffix_habits, "WORTH", -1.0)
    monkeypatch.setattr(suffix_habits, "_ROUGH", 0.0)


@pytest.mark.usefixtures("all_corrected")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_pairs_stay_within_their_allowance(name: str, seed: int) -> None:
    case = CASES[name](seed)
    suffix = made(case)
    rng = np.random.default_rng(seed)
    x = case.rows(20, seed + 50)
    truth = case.scores(x).numpy()
    some = any(each.correction for node in suffix.nodes.values() for each in node.levels)
    assert some
    ratios = []
    for _ in range(6):
        depths = {m: (1, 2, None)[rng.integers(3)] for m in case.program.matrices}
        balls = balls_of(case, suffix, depths)
        ratios.append(worst_ratio(case, balls, x, truth))
        labels, sure = certain(balls, balls.balls({"x": x}))
        assert (labels == truth.argmax(axis=1))[sure].all()
    assert max(ratios) <= 1
    assert max(ratios) > 1e-3


@pytest.mark.usefixtures("all_corrected")
@pytest.mark.parametrize("name", ["mlp", "residual"])
def test_unread_bits_chosen_to_break_it(name: str) -> None:
    """Each weight of the cells' corners pushes one pair of one row as far as it goes."""
    for seed in range(3):
        case = CASES[name](seed)
        rows = case.rows(8, seed)
        weights = {
            step.result: torch.from_numpy(
                params_of(step, partial(case.tensor, planes=None))["weight"].astype(np.float64)
            ).requires_grad_()
            for step in case.program.linear
        }
        scores = case.scores(rows, weights=weights)
        (scores[seed, 0] - scores[seed, 1]).backward()
        for step in case.program.linear:
            matrix = step.node.params["weight"]
            centre, unit = case.tensor(matrix, 1), case.unit(matrix, 1)
            slope = weights[step.result].grad
            assert slope is not None
            push = np.sign(slope.numpy())
            if step.fold is not None:  # its scale is positive, signs stay
                assert (case.tensors[step.fold.params["weight"]] > 0).all()
            case.centres[matrix, 1] = centre
            case.tensors[matrix] = (centre + push * (0.5 - 2**-20) * unit).astype(np.float32)
        suffix = made(case)
        balls = balls_of(case, suffix, dict.fromkeys(case.program.matrices, 1))
        ratio = worst_ratio(case, balls, rows, case.scores(rows).numpy())
        assert 1e-3 < ratio <= 1


@pytest.mark.parametrize("reference", [F64, STRICT])
@pytest.mark.parametrize("make", [mlp, chain])
def test_rounding_is_within_the_allowance(make: Any, reference: Reference) -> None:
    """Whole weights: all that is left is how the two sides round."""
    for seed in range(4):
        case = make(seed)
        for name in case.tensors:
            case.tensors[name] = case.tensors[name] * np.float32(1000)
        suffix = made(case, 0)
        x = case.rows(16, seed)
        balls = balls_of(case, suffix, {}, reference)
        dtype = torch.float32 if reference is STRICT else torch.float64
        truth = case.scores(x, dtype=dtype).double().numpy()
        known = balls.balls({"x": x})
        centre = known[case.program.scores].centre
        off = np.abs((truth[:, [0]] - truth) - (centre[:, [0]] - centre))
        zeros = np.zeros(len(x), int)
        assert (off <= balls.allowances(known, zeros))[:, 1:].all()
        assert (balls.spread(known) > 0).all()
        if reference is STRICT:
            assert off.max() > 0


@pytest.mark.usefixtures("all_corrected")
@pytest.mark.parametrize("name", CASES)
def test_made_again_it_says_no_more(name: str) -> None:
    case = CASES[name](1)
    suffix = made(case)
    levels: list[dict[str, int]] = [dict.fromkeys(case.program.matrices, 1)]
    stored = suffix_from_json(json.loads(dumps(needed(case.program, suffix, levels).to_json())))
    shapes = {"x": case.shape}
    assert list(faults(case.program, case, case.depths, shapes, stored)) == []
    for result, node in stored.nodes.items():
        smaller = [replace(node, reach=node.reach * 0.999)]
        for at, level in enumerate(node.levels):
            others = [each for each in node.levels if each is not level]
            less = sorted([*others, replace(level, dn=level.dn * 0.999)], key=lambda x: x.planes)
            smaller.append(replace(node, levels=tuple(less)))
            if level.rest > 0 and at == 0:
                less = sorted([*others, replace(level, rest=0.0)], key=lambda x: x.planes)
                smaller.append(replace(node, levels=tuple(less)))
        for each in smaller:
            wrong = replace(stored, nodes={**stored.nodes, result: each})
            assert list(faults(case.program, case, case.depths, shapes, wrong))
    wrong = replace(stored, pairs=stored.pairs * 0.999)
    assert list(faults(case.program, case, case.depths, shapes, wrong))


@pytest.mark.usefixtures("all_corrected")
def test_what_no_reader_asks_for_is_left_out() -> None:
    case = mlp()
    suffix = made(case)
    kept = needed(case.program, suffix, [dict.fromkeys(case.program.matrices, 2)])
    for result, node in kept.nodes.items():
        assert [level.planes for level in node.levels] == [1, 2]
        assert node.levels[0].correction is None
        assert node.levels[1] == suffix.nodes[result].levels[1]


@pytest.mark.usefixtures("all_corrected")
@pytest.mark.parametrize("name", CASES)
def test_how_large_a_correction_is(name: str) -> None:
    """Told by its factors, it is never less than its norm, and hardly more."""
    case = CASES[name](1)
    suffix, seen = made(case), 0
    for step in case.program.linear:
        node = suffix.nodes.get(step.result)
        for level in () if node is None else node.levels:
            if node is None or level.correction is None:
                continue
            seen += 1
            for values in (level.correction.values, level.correction.values * 0):
                correction = replace(level.correction, values=values)
                size = np.linalg.norm(correction_of(step, node, correction))
                assert size <= size_of(node, correction) <= size * (1 + 1e-5)
    assert seen


def test_records_that_are_malformed_are_damage() -> None:
    good = json.loads(dumps(made(residual(), 0).to_json()))
    assert suffix_from_json(good).to_json() == good
    changes: list[dict[str, Any]] = [
        {"classes": 4},
        {"classes": True},
        {"pairs": good["pairs"][:-1]},
        {"pairs": [-1.0, *good["pairs"][1:]]},
        {"pairs": ["NaN", *good["pairs"][1:]]},
        {"nodes": {}},
        {"nodes": {"fc": {"reach": 1.0, "a": "!"}}},
        {"nodes": {"fc": {"reach": float("inf")}}},
        {"theta": {"x": 0}},
        {"p": {"x": 3}},
        {"more": 1},
    ]
    for change in changes:
        with pytest.raises(Damaged):
            suffix_from_json({**good, **change})
    for key in good:
        with pytest.raises(Damaged):
            suffix_from_json({name: value for name, value in good.items() if name != key})


def test_weights_that_are_not_finite_have_no_metric() -> None:
    case = chain()
    case.tensors["c2.weight"][0, 0, 0, 0] = np.inf
    with pytest.raises(NoRule):
        made(case)


@pytest.mark.parametrize("make", [mlp, chain, residual])
def test_the_derivatives_are_those_of_the_objective(make: Any) -> None:
    case = make(2)
    found = plan(case.program, {"x": case.shape})
    source = Source(case.program, case, case.depths)
    samples = Samples.of(found, source, habits(case.program, case, {"x": case.rows(12, 1)}))
    objective = Objective(found, samples, head_of(source.whole(found.last)))
    objective._peaks._rounds = 400
    rng = np.random.default_rng(0)
    parameters = start(found)
    for key, value in parameters.p.items():
        parameters.p[key] = value + 0.5 * rng.normal(size=value.shape)
    a = {result: samples.habits[result].start for result in samples.unread}
    objective(parameters, a)
    _, gradients = objective(parameters, a)
    step, off = 1e-5, []
    for kind, values in (("", parameters.p), ("a ", a)):
        for key, value in values.items():
            way = rng.normal(size=value.shape)
            values[key] = value + step * way
            above = objective(parameters, a)[0]
            values[key] = value - step * way
            below = objective(parameters, a)[0]
            values[key] = value
            slope = float((gradients.p[kind + key] * way).sum())
            off.append(abs((above - below) / (2 * step) - slope) / (0.01 + abs(slope)))
    # A maximum over frequencies has kinks, and one of many directions may meet one.
    assert np.median(off) < 1e-3
    assert (np.array(off) > 0.02).sum() <= 1
    before = objective(parameters, a)[0]
    objective._peaks._rounds = 4
    better = tuned(objective, parameters, a, 25)
    assert better is not None
    assert objective(*better)[0] < before - 0.05


def test_an_operation_without_a_rule_has_no_metric() -> None:
    case = odd()
    steps = tuple(
        replace(step, node=replace(step.node, variant="TANH")) if step.node.op == "ACT" else step
        for step in case.program.steps
    )
    with pytest.raises(NoRule, match="no bound is known"):
        plan(replace(case.program, steps=steps), {"x": case.shape})
