"""Rules of single operations, held against errors in their balls: torch computes both sides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlv.network.bounds.ball import F64, STRICT, Ball, Reference, point
from dlv.network.graph import Node
from dlv.network.ops.op import NoRule
from tests.network.ops.oracle import ball, bounded, by_torch, check, node_of, torch

Array = NDArray[Any]
REFERENCES = [F64, STRICT]


def numbers(shape: tuple[int, ...], seed: int, scale: float = 1.0) -> Array:
    """Numbers that float32 holds, so that both precisions begin with the same."""
    found = np.random.default_rng(seed).normal(size=shape) * scale
    return found.astype(np.float32).astype(np.float64)


def radii(rows: int, reference: Reference, size: float) -> Array:
    # Above what float32 can tell apart there.
    return np.linspace(1, 2, rows) * size


CURVES = [
    node_of("RELU"),
    node_of("RELU", slope=0.1),
    node_of("RELU", slope=-0.5),
    node_of("RELU", slope=3.0),
    node_of("ACT", "GELU"),
    node_of("ACT", "GELU", approximate="tanh"),
    node_of("ACT", "SILU"),
    node_of("ACT", "SIGMOID"),
    node_of("ACT", "TANH"),
    node_of("ACT", "RELU6"),
]
NORMS: list[tuple[Node, dict[str, Array], tuple[int, ...]]] = [
    (node_of("NORM", "LAYER", slots=("weight", "bias")), {"weight": numbers((12,), 5),
     "bias": numbers((12,), 6)}, (3, 5, 12)),
    (node_of("NORM", "LAYER", axis=-2), {}, (3, 4, 6)),
    (node_of("NORM", "LAYER", eps=0.5), {}, (2, 1, 3)),
    (node_of("NORM", "RMS", slots=("weight",)), {"weight": numbers((12,), 7)}, (3, 5, 12)),
    (node_of("NORM", "GROUP", groups=2, slots=("weight", "bias")), {"weight": numbers((6,), 8),
     "bias": numbers((6,), 9)}, (3, 6, 2, 3)),
    (node_of("NORM", "GROUP", groups=2, axis=-1), {}, (3, 5, 6)),
    (node_of("NORM", "INSTANCE"), {}, (3, 4, 9)),
    (node_of("NORM", "LRN", alpha=0.3, k=2.0), {}, (2, 7, 2, 2)),
    (node_of("NORM", "LRN", alpha=1e-4), {}, (2, 9)),
]  # fmt: skip
ONE = [
    *((node, {}, (4, 3, 5)) for node in CURVES),
    *NORMS,
    (node_of("SOFTMAX"), {}, (3, 2, 7)),
    (node_of("SOFTMAX", axis=1), {}, (3, 5, 4)),
    (node_of("SOFTMAX", log=True), {}, (3, 2, 7)),
    (node_of("ADD", const=0.3), {}, (3, 2, 7)),
    (node_of("MUL", const=-1.7), {}, (3, 2, 7)),
    (node_of("MUL", slots=("value",), shape=[7]), {"value": numbers((7,), 4)}, (3, 2, 7)),
]


def kinds(centre: Array, reference: Reference, size: float) -> list[Ball]:
    """Balls of every grain."""
    rows = radii(len(centre), reference, size)
    found = [ball(centre, rows)]
    if centre.ndim > 2:
        found.append(ball(centre, rows, tokens=True))
    box = np.random.default_rng(1).uniform(0.1, 1, centre.shape) * size
    found.append(ball(centre, np.full(len(centre), size * 1e3), box=box))
    return found


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda each: each.name)
@pytest.mark.parametrize("place", range(len(ONE)))
def test_a_rule_of_one_input(place: int, reference: Reference) -> None:
    node, params, shape = ONE[place]
    for size in (1e-3, 0.1, 3.0):
        for scale in (0.3, 4.0):
            centre = numbers(shape, place, scale)
            for given in kinds(centre, reference, size):
                assert check(node, [given], reference, params, seed=place) <= 1


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda each: each.name)
@pytest.mark.parametrize("place", range(len(ONE)))
def test_rounding_alone(place: int, reference: Reference) -> None:
    """Without any error in what comes in, what torch computes is in the ball; it is small."""
    node, params, shape = ONE[place]
    for scale in (1e-3, 1.0, 30.0):
        centre = numbers(shape, place, scale)
        given = Ball(centre, np.zeros(len(centre)))
        assert check(node, [given], reference, params, trials=1) <= 1
        [found] = bounded(node, [given], reference, params)
        size = 1 + np.abs(found.centre).max() + np.abs(centre).max()
        assert found.radius.max() <= 2e5 * reference.unit * size


@pytest.mark.parametrize("place", range(len(ONE)))
def test_rules_are_not_vacuous(place: int) -> None:
    """Small errors: ascent comes near the bound."""
    node, params, shape = ONE[place]
    centre = numbers(shape, place, 2.0)
    given = ball(centre, radii(len(centre), F64, 1e-4))
    # Slopes differ along a row: only the steepest place reaches its bound.
    assert check(node, [given], F64, params, steps=60, trials=4) > 0.1


PAIRS = [(), (1,), (5,), (2, 1), (1, 5), (3, 1, 1), (1, 2, 5), (3, 2, 1), (3, 2, 5)]


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda each: each.name)
@pytest.mark.parametrize("other", PAIRS)
@pytest.mark.parametrize("op", ["ADD", "MUL"])
def test_two_inputs_of_any_shapes(op: str, other: tuple[int, ...], reference: Reference) -> None:
    node, centre = node_of(op, inputs=2), numbers((3, 2, 5), 3)
    small = numbers(other, 4)
    for given in kinds(centre, reference, 0.2):
        seconds = [Ball(small, np.zeros(1))]
        if small.ndim:
            seconds.append(ball(small, radii(len(small), reference, 0.1)))
            seconds.append(ball(small, radii(len(small), reference, 0.1), tokens=small.ndim > 2))
        for second in seconds:
            assert check(node, [given, second], reference) <= 1
            assert check(node, [second, given], reference) <= 1


def test_more_than_two() -> None:
    for op in ("ADD", "MUL", "CONCAT"):
        node = node_of(op, inputs=3)
        for reference in REFERENCES:
            centres = [numbers((3, 2, 5), seed, 2.0) for seed in range(3)]
            for tokens in (False, True):
                given = [ball(c, radii(3, reference, 0.3), tokens=tokens) for c in centres]
                assert check(node, given, reference) <= 1


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_joined(axis: int) -> None:
    node = node_of("CONCAT", inputs=2, axis=axis)
    first, second = numbers((3, 2, 5), 1), numbers((3, 2, 5), 2)
    for a in kinds(first, F64, 0.4):
        for b in kinds(second, F64, 0.7):
            assert check(node, [a, b], F64) <= 1
    [found] = bounded(node, [ball(first, np.ones(3)), ball(second, np.full(3, 2.0))], F64)
    wanted = [1, 1, 1, 2, 2, 2] if axis == 0 else [5**0.5] * 3
    np.testing.assert_allclose(found.radius, wanted, rtol=1e-6)


def test_whole_numbers_stay_exact() -> None:
    places = Ball(np.arange(6.0).reshape(2, 3), np.zeros(2))
    for op, const in (("ADD", 7), ("MUL", 3)):
        [found] = bounded(node_of(op, const=const), [places], STRICT)
        assert found.exact
        [found] = bounded(node_of(op, const=0.5), [places], STRICT)
        assert not found.exact


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda each: each.name)
def test_a_mask_made_of_flags_stays_exact(reference: Reference) -> None:
    """As networks write it: one less the flags, times the lowest number."""
    flags = Ball(np.array([[0.0, 1.0, 1.0]]), np.zeros(1))
    lowest = float(np.finfo(np.float32).min)
    [turned] = bounded(node_of("MUL", const=-1), [flags], reference)
    [rest] = bounded(node_of("ADD", const=1), [turned], reference)
    [mask] = bounded(node_of("MUL", const=lowest), [rest], reference)
    assert mask.exact
    np.testing.assert_array_equal(mask.centre, [[lowest, 0, 0]])
    # A number that float32 does not have is another one there.
    [mask] = bounded(node_of("MUL", const=-1e9 / 3), [rest], reference)
    assert mask.exact == (reference is F64)


def test_what_may_overflow_in_the_reference_is_open() -> None:
    layer = node_of("NORM", "LAYER")
    for node, size, shapes in (
        (node_of("MUL", inputs=2), 1e30, 2),
        (node_of("ACT", "GELU", approximate="tanh"), 1e30, 1),
        (layer, 1e25, 1),
    ):
        balls = [ball(numbers((2, 1, 4), 1, size), np.ones(2)) for _ in range(shapes)]
        [found] = bounded(node, balls, STRICT)
        assert np.isinf(found.radius).all() or node is layer
        if node is layer:  # its numbers are bounded, whatever comes in
            assert (found.radius >= 2).all()
        [found] = bounded(node, balls, F64)
        assert np.isfinite(found.radius).all()


def attention(
    seed: int, size: float, *, tokens: bool, heads: int = 2, keys: int = 2, scale: float = 1.0
) -> list[Ball]:
    shapes = [(2, heads, 5, 4), (2, keys, 6, 4), (2, keys, 6, 3)]
    found = []
    for place, shape in enumerate(shapes):
        centre = numbers(shape, seed + place, scale)
        found.append(ball(centre, radii(2, F64, size), tokens=tokens))
    return found


def masks() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    flags = rng.uniform(size=(2, 1, 5, 6)) < 0.6
    flags[..., 0] = True
    sums = np.where(flags, 0, -1e9) + rng.normal(size=flags.shape).round(3).astype(np.float32)
    lowest = np.where(flags, 0.0, float(np.finfo(np.float32).min))
    return {
        "none": None,
        "flags": point(flags),
        "numbers": Ball(sums.astype(np.float32).astype(np.float64), np.zeros(2)),
        "lowest": Ball(lowest, np.zeros(2)),
        "infinite": Ball(np.where(flags, 0, -np.inf), np.zeros(2)),
        "open": ball(rng.normal(size=(2, 1, 5, 6)), np.full(2, 0.3)),
    }


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda each: each.name)
@pytest.mark.parametrize("mask", list(masks()))
@pytest.mark.parametrize("causal", [False, True])
def test_attention(mask: str, causal: bool, reference: Reference) -> None:
    held = masks()[mask]
    if causal and held is not None and held.centre.dtype.kind == "f":
        return  # torch takes one of both there
    for size in (1e-3, 0.3, 4.0):
        for tokens in (False, True):
            for scale in (0.5, 4.0):
                balls = attention(11, size, tokens=tokens, scale=scale)
                balls += [] if held is None else [held]
                node = node_of("ATTENTION", inputs=len(balls), causal=causal)
                assert check(node, balls, reference, trials=4, steps=3) <= 1


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda each: each.name)
def test_attention_of_shared_keys_and_of_heads_in_one_axis(reference: Reference) -> None:
    for scale in (None, 0.2, 2.0):
        node = node_of("ATTENTION", inputs=3, scale=scale)
        for tokens in (False, True):
            balls = attention(3, 0.2, tokens=tokens, heads=4, keys=2)
            assert check(node, balls, reference) <= 1
    node = node_of("ATTENTION", inputs=3, heads=3)
    for tokens in (False, True):
        balls = [
            ball(numbers((2, 5, 12), seed), np.full(2, 0.3), tokens=tokens) for seed in (1, 2, 3)
        ]
        assert check(node, balls, reference) <= 1


def heads_of(given: Ball, heads: int) -> Ball:
    """Cut as networks do it, which keeps what bounds all heads together."""
    shape = given.centre.shape
    cut = node_of("RESHAPE", kind="view", size=[*shape[:2], heads, shape[2] // heads])
    [made] = bounded(cut, [given], F64)
    [made] = bounded(node_of("RESHAPE", kind="transpose", axes=[1, 2]), [made], F64)
    assert made.groups
    return made


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda each: each.name)
def test_attention_bounds_all_heads_together(reference: Reference) -> None:
    node = node_of("ATTENTION", inputs=3)
    gained = []
    for seed in range(4):
        for size in (1e-3, 0.05, 0.5):
            whole = [
                ball(numbers((2, 5, 12), seed + place, 1.5), np.full(2, size), tokens=True)
                for place in range(3)
            ]
            balls = [heads_of(each, 3) for each in whole]
            assert check(node, balls, reference, trials=4, steps=6) <= 1
            [found] = bounded(node, balls, reference)
            [together] = found.groups
            assert found.tokens is not None
            apart = np.sqrt((found.tokens**2).sum(axis=1))
            gained.append(np.median(apart / together[:, 0, :, 0]))
    assert min(gained) > 1 - 1e-6
    assert max(gained) > 1.1


@pytest.mark.parametrize("moving", [0, 1, 2])
def test_one_head_may_count_for_all(moving: int) -> None:
    """Only queries, or keys, or values are off, and one head alone has large values."""
    node = node_of("ATTENTION", inputs=3)
    most = 0.0
    for seed in range(3):
        whole = []
        for place in range(3):
            centre = numbers((2, 4, 12), seed + place, 0.5)
            centre[..., :4] *= (1, 1, 30)[place]
            size = 1e-4 if place == moving else 0.0
            whole.append(ball(centre, np.full(2, size), tokens=True))
        balls = [heads_of(each, 3) for each in whole]
        most = max(most, check(node, balls, F64, steps=40, trials=4))
    assert 0.34 < most <= 1


def test_attention_without_a_batch() -> None:
    node = node_of("ATTENTION", inputs=3)
    balls = [ball(numbers((5, 4), seed), np.full(5, 0.2)) for seed in (1, 2, 3)]
    assert check(node, balls, F64) <= 1


def test_attention_is_not_vacuous() -> None:
    node = node_of("ATTENTION", inputs=3)
    balls = attention(5, 1e-4, tokens=True)
    assert check(node, balls, F64, steps=40, trials=4) > 0.15
    exact = [Ball(each.centre, np.zeros(2)) for each in balls]
    [found] = bounded(node, exact, F64)
    assert 0 < found.radius.max() < 1e-12
    assert check(node, exact, F64, trials=1) <= 1


def test_a_query_that_may_look_at_nothing_is_open() -> None:
    balls = attention(5, 1e-4, tokens=True)
    flags = np.ones((2, 1, 5, 6), bool)
    flags[0, 0, 2] = False
    [found] = bounded(node_of("ATTENTION", inputs=4), [*balls, point(flags)], F64)
    assert found.radius[0] == np.inf
    assert np.isfinite(found.radius[1])


def test_what_is_not_finite_stays_open() -> None:
    for node, params, shape in ONE:
        centre = numbers(shape, 1)
        [found] = bounded(node, [Ball(centre, np.full(len(centre), np.inf))], F64, params)
        # Bounded functions say something all the same.
        flat = node.op == "SOFTMAX" or node.variant in ("LAYER", "RMS", "GROUP", "INSTANCE")
        assert flat or not np.isfinite(found.radius).any()
        centre[0, 0] = np.nan
        [found] = bounded(node, [Ball(centre, np.ones(len(centre)))], F64, params)
        assert np.isnan(found.centre[0]).any()


@pytest.mark.parametrize("place", range(len(CURVES)))
def test_the_range_over_an_interval(place: int) -> None:
    """Boxes hold every value between their ends, those at a turning point too."""
    node = CURVES[place]
    rng = np.random.default_rng(place)
    centre = rng.uniform(-4, 4, (200, 3))
    box = rng.choice([1e-3, 0.1, 0.7, 3.0], centre.shape)
    [found] = bounded(node, [Ball(centre, np.full(200, 100.0), box)], F64)
    assert found.box is not None
    shares = np.linspace(-1, 1, 401).reshape(-1, 1, 1)
    values = by_torch(node, [centre + shares * box])[0].numpy()
    error = np.abs(values - found.centre).max(axis=0)
    assert (error <= found.box).all()
    # And not much more than that.
    assert np.median(found.box[error > 1e-6] / error[error > 1e-6]) < 1.01


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda each: each.name)
@pytest.mark.parametrize("variant", ["LAYER", "GROUP", "INSTANCE"])
def test_rounding_where_the_mean_is_large(variant: str, reference: Reference) -> None:
    attrs: dict[str, Any] = {"groups": 1} if variant == "GROUP" else {}
    node = node_of("NORM", variant, **attrs)
    for away in (30.0, 1000.0):
        centre = (numbers((4, 3, 200), 2) + away).astype(np.float32).astype(np.float64)
        given = Ball(centre, np.zeros(4))
        assert check(node, [given], reference, trials=1) <= 1
        [found] = bounded(node, [given], reference)
        value = by_torch(node, [torch.from_numpy(centre).to(torch.float32)])[0].double().numpy()
        if reference is STRICT:
            assert np.abs(value - found.centre).max() > 1e-7
            # By how much a mean of 200 can be off at worst.
            assert found.radius.max() > away * 2.0**-24 * 200


def test_neighbours_count_in_local_response() -> None:
    """Where all channels are alike and large, what they do to each other is most of it."""
    node = node_of("NORM", "LRN", size=3, alpha=3.0, beta=4.0, k=1.0)
    most = 0.0
    for scale in (0.3, 0.5, 0.8):
        centre = np.full((2, 40), scale) + numbers((2, 40), 1, 0.01)
        given = ball(centre, np.full(2, 1e-3))
        most = max(most, check(node, [given], F64, steps=60, trials=4))
    assert 0.2 < most <= 1


def test_kept_statistics_that_no_layer_took_in() -> None:
    for variant in ("BATCH", "INSTANCE"):
        slots = ("weight", "bias", "running_mean", "running_var")
        node = node_of("NORM", variant, slots=slots)
        params = {slot: numbers((4,), place, 2.0) for place, slot in enumerate(slots)}
        params["running_var"] = np.abs(params["running_var"]) + 0.1
        for given in kinds(numbers((3, 4, 5), 8, 2.0), F64, 0.3):
            assert 0.2 < check(node, [given], F64, params, steps=20) <= 1
        with pytest.raises(NoRule, match="may be folded"):
            bounded(node, kinds(numbers((3, 4, 5), 8), F64, 0.3)[:1], STRICT, params)


def test_what_has_no_rule_says_so() -> None:
    given = ball(numbers((3, 4, 5), 1), np.ones(3))
    for node, why in (
        (node_of("NORM", "BATCH"), "statistics from the batch"),
        (node_of("NORM", "LAYER", axis=0), "statistics from the batch"),
        (node_of("NORM", "LRN", k=0.0), "division by zero"),
        (node_of("SOFTMAX", axis=0), "uses the batch"),
        (node_of("RNN", "GRU", hidden=3), "no bound is known"),
        (node_of("RESHAPE", kind="to", dtype="int64"), "has steps"),
        (Node("n", "OP", "raw"), "outside the vocabulary"),
    ):
        with pytest.raises(NoRule, match=why):
            bounded(node, [given], F64)
