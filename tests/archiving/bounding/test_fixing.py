"""Which weights go into fixed point, in which form; and norms behind every kind of chain."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dlv.archiving.bounding.fixing import fix, in_fixed_point
from dlv.archiving.bounding.make import Centres, Figures, Model, figures, node_norms_of, usable
from dlv.archiving.bounding.view import View
from dlv.archiving.tryouts import Attempt
from dlv.canonical import matrix_hash
from dlv.kinds import Piece
from dlv.network.graph import Input, Network, Node
from dlv.network.ops.op import op_of
from dlv.network.program import program
from dlv.pas.encode import encode_delta, encode_materialised
from dlv.pas.footer import Encoding
from dlv.pas.layouts.fixed import Fixed
from dlv.pas.layouts.registry import default_layout
from dlv.pas.layouts.segments import Layout
from dlv.pas.level import Level, Unusable
from dlv.weights.store import MatrixStore

Array = NDArray[Any]
SHAPE = (24, 80)


class Nothing:
    """A store without anything in it."""

    def encoding(self, matrix: str) -> Encoding | None:  # noqa: ARG002
        return None

    def chunks(self, matrix: str) -> list[Piece]:  # noqa: ARG002
        return []

    def stored(self, piece: Piece) -> bytes:
        raise AssertionError(piece)

    def read(self, piece: Piece) -> bytes:
        raise AssertionError(piece)

    def object(self, kind: str, name: str) -> bytes:
        raise AssertionError((kind, name))


class Shelf:
    """Matrices encoded as a test wants them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.view = View(cast(MatrixStore, Nothing()))

    def put(self, encode: Callable[..., Encoding], *given: Any, **more: Any) -> None:
        self.view.put(Attempt.of(self.folder, lambda made: encode(*given, made.put, **more)))

    def whole(self, array: Array, layout: Layout | None = None) -> str:
        name = name_of(array)
        self.put(
            encode_materialised,
            *(array.tobytes(), str(array.dtype), array.shape, name),
            layout=layout or default_layout(),
        )
        return name

    def delta(self, kind: str, array: Array, base: Array, layout: Layout) -> str:
        name = name_of(array)
        given = (array.tobytes(), base.tobytes(), str(array.dtype), array.shape)
        self.put(encode_delta, kind, *given, name, name_of(base), layout=layout)
        return name

    def fix(self, name: str, rows: str = "first", *bases: str) -> bool:
        return fix(self.view, name, rows, bases, self.folder)

    def encoding(self, name: str) -> Encoding:
        found = self.view.encoding(name)
        assert found is not None
        return found


def name_of(array: Array) -> str:
    return matrix_hash(str(array.dtype), array.shape, array.tobytes())


def random(seed: int, scale: float = 0.1) -> Array:
    return np.random.default_rng(seed).normal(0, scale, SHAPE).astype(np.float32)


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    made = Shelf(tmp_path)
    yield made
    made.view.close()


def network(layout: str = "out_in") -> Network:
    attrs = {"out": 24, "layout": layout, "bias": False}
    node = Node("fc", "FULL", attrs=attrs, inputs=(("x", 0),), params={"weight": "w"})
    return Network(inputs=(Input("x", ("B", 80), "float32"),), nodes=(node,), outputs=(("fc", 0),))


def check(shelf: Shelf, name: str, array: Array, depths: tuple[int, ...]) -> list[float]:
    """The norms at each depth, held against SVDs of what a reader sees."""
    assert usable(shelf.view, name) == depths
    made = Model(program(network()), {"w": name}, {"w": ("float32", SHAPE)})
    (node,) = node_norms_of(made, Centres(made, shelf.view), {"w": depths}, {"x": (80,)})
    found = []
    for level in node.levels:
        near = shelf.view.level(name, level.planes)
        assert isinstance(near, Level)
        real = float(np.linalg.norm(array - near.centre, 2))
        assert real <= level.dn <= real * (1 + 1.1e-3)  # four digits
        assert np.linalg.norm(array - near.centre) <= level.dfro
        found.append(level.dn)
    assert [level.planes for level in node.levels] == list(depths)
    return found


# Chains


def test_fixed_alone(shelf: Shelf) -> None:
    array = random(1)
    name = shelf.whole(array)
    plain = check(shelf, name, array, (1, 2, 3))
    assert not in_fixed_point(shelf.view, name)
    assert shelf.fix(name)
    assert in_fixed_point(shelf.view, name)
    tight = check(shelf, name, array, (1, 2, 3))
    assert all(new < 0.1 * old for new, old in zip(tight, plain, strict=True))
    assert bytes(shelf.view.raw(name)) == array.tobytes()
    assert not shelf.fix(name)  # once is enough


def test_behind_xor(shelf: Shelf) -> None:
    """Chains of XOR on `fixed` lose nothing."""
    base, target = random(1), random(1) + random(2, 1e-6)
    layout = Fixed.of([base.tobytes(), target.tobytes()], "float32", SHAPE)
    shelf.whole(base, layout)
    name = shelf.delta("xor", target, base, layout)
    behind = check(shelf, name, target, (1, 2, 3))
    shelf.whole(target, layout)
    assert behind == check(shelf, name, target, (1, 2, 3))


def test_behind_differences_of_fixed(shelf: Shelf) -> None:
    """Integer differences: unread digits of base and target add up."""
    steps = [random(1)]
    for seed in range(2, 5):
        steps.append(steps[-1] + random(seed, 1e-4))
    layout = Fixed.of([each.tobytes() for each in steps], "float32", SHAPE)
    shelf.whole(steps[0], layout)
    alone = check(shelf, name_of(steps[0]), steps[0], (1, 2, 3))
    for base, target in itertools.pairwise(steps):
        name = shelf.delta("sub", target, base, layout)
    chained = check(shelf, name, steps[-1], (1, 2, 3))
    assert alone[1] < chained[1] < 8 * alone[1]
    assert chained[2] == pytest.approx(alone[2], rel=0.1)  # codes are exact
    assert not in_fixed_point(shelf.view, name)
    assert shelf.fix(name)
    assert shelf.encoding(name).delta is None


def test_behind_differences_of_words(shelf: Shelf) -> None:
    base, target = random(1), random(1) + random(2, 1e-4)
    shelf.whole(base)
    name = shelf.delta("sub", target, base, default_layout())
    check(shelf, name, target, usable(shelf.view, name))


def test_depths_that_bound_nothing_are_left_out(shelf: Shelf) -> None:
    """XOR of a base whose own first planes are not certain."""
    first, base, target = random(1), random(2), random(3)
    shelf.whole(first)
    shelf.delta("sub", base, first, default_layout())
    name = shelf.delta("xor", target, base, default_layout())
    depths = usable(shelf.view, name)
    assert 1 not in depths
    assert isinstance(shelf.view.level(name, 1), Unusable)
    check(shelf, name, target, depths)


# Which, and how


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_stay(shelf: Shelf, value: float) -> None:
    array = random(1)
    array[3, 4] = value
    name = shelf.whole(array)
    assert not shelf.fix(name)
    made = Model(program(network()), {"w": name}, {"w": ("float32", SHAPE)})
    (node,) = node_norms_of(made, Centres(made, shelf.view), {"w": (1,)}, {"x": (80,)})
    assert not node.finite
    assert node.levels == ()


def test_what_stays_as_it_is(shelf: Shelf) -> None:
    small = random(1)[:12]
    assert small.nbytes < 4096
    assert not shelf.fix(shelf.whole(small))
    whole = np.arange(2000, dtype=np.int32)
    assert not shelf.fix(shelf.whole(whole))


def test_pruned_weights_are_centred_at_zero(shelf: Shelf) -> None:
    dense, pruned = random(1), random(1)
    pruned[np.abs(pruned) < 0.1] = 0
    for array, wanted in ((dense, False), (pruned, True)):
        name = shelf.whole(array)
        assert shelf.fix(name)
        assert shelf.encoding(name).layout["zero_centre"] is wanted
        check(shelf, name, array, (1, 2, 3))
        assert bytes(shelf.view.raw(name)) == array.tobytes()


def test_a_base_that_shares_exponents(shelf: Shelf) -> None:
    base = random(1)
    near, far = base + random(2, 1e-6), random(3)
    larger = near * np.float32(4)
    names = [shelf.whole(each) for each in (base, near, far, larger)]
    assert shelf.fix(names[0])
    for name in names[1:]:
        assert shelf.fix(name, "first", names[0])
    assert shelf.encoding(names[1]).delta == {"id": "xor", "base": names[0], "overlap": None}
    assert shelf.encoding(names[1]).layout == shelf.encoding(names[0]).layout
    assert shelf.encoding(names[2]).delta is None  # no smaller
    assert shelf.encoding(names[3]).delta is None  # beyond the base's exponents
    check(shelf, names[1], near, (1, 2, 3))


def test_a_base_whose_own_planes_are_not_certain(shelf: Shelf) -> None:
    """XOR against an integer difference would bound nothing."""
    first, base = random(1), random(1) + random(2, 1e-4)
    target = base + random(3, 1e-6)
    layout = Fixed.of([x.tobytes() for x in (first, base, target)], "float32", SHAPE)
    shelf.whole(first, layout)
    below = shelf.delta("sub", base, first, layout)
    name = shelf.whole(target)
    assert shelf.fix(name, "first", below)
    assert shelf.encoding(name).delta is None


def test_rows_of_kernels_that_count_them_last(shelf: Shelf) -> None:
    node = network(layout="in_out").nodes[0]
    assert op_of(node).row_axis(node) == "last"
    node = network().nodes[0]
    assert op_of(node).row_axis(node) == "first"
    array = random(1) * np.logspace(-3, 0, 80, dtype=np.float32)
    name = shelf.whole(array)
    assert shelf.fix(name, "last")
    assert shelf.encoding(name).layout["rows"] == "last"
    along = check(shelf, name, array, (1, 2, 3))
    shelf.whole(array)
    assert shelf.fix(name, "first")
    across = check(shelf, name, array, (1, 2, 3))
    assert along[0] < across[0]


# Figures


def test_norms_of_rows_are_short_and_never_below() -> None:
    node = network().nodes[0]
    array = random(5).astype(float)
    near = array + random(6, 1e-3)
    raised = figures(node, array, [(1, near)], Figures((1, 80), rows=True))
    plain = figures(node, array, [(1, near)], Figures((1, 80), rows=True, raised=False))
    for mine, real in ((raised.rows, plain.rows), (raised.levels[0].drows, plain.levels[0].drows)):
        assert mine is not None
        assert real is not None
        for stored, exact in zip(mine, real, strict=True):
            assert exact <= stored <= exact * 1.0011
            assert len(f"{stored:.10g}") <= 10
    assert figures(node, array, [], Figures((1, 80), rows=False)).rows is None
