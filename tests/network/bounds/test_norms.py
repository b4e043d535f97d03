"""Stored norms against singular values of the layer written out as one matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import dlv.network.bounds.norms as norms_module
import dlv.network.bounds.norms as torus_module
from dlv.network.bounds.norms import TooLarge, level_norms, norms_of, torus_norm
from dlv.network.graph import Node
from dlv.network.ops.op import Run, op_of
from dlv.network.sizes import ShapeError
from dlv.network.vocabulary import complete

Array = NDArray[Any]


def made(op: str, axes: int, **attrs: Any) -> Node:
    params = {"weight": "n.weight"}
    return Node("n", op, None, complete(op, None, attrs, axes=axes, params=params), (), params)


def written_out(node: Node, weight: Array, shape: tuple[int, ...]) -> Array:
    """The layer as a matrix: what it makes of each unit vector."""
    size = int(np.prod(shape))
    units = np.eye(size).reshape(size, *shape)
    found = op_of(node).forward(node, Run([units], {"weight": weight}, {}))[0]
    matrix: Array = found.reshape(size, -1).T
    return matrix


def near(ours: Array | None, wanted: Array | None) -> bool:
    return ours is not None and wanted is not None and np.allclose(ours, wanted, rtol=1e-8, atol=0)


def sigma(matrix: Array) -> float:
    return float(np.linalg.svd(matrix, compute_uv=False).max(initial=0.0))


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Node, Array, tuple[int, ...], np.random.Generator]:
    op = draw(st.sampled_from(["CONV", "CONV", "DECONV"]))
    axes = draw(st.integers(1, 2))

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(axes)]

    groups = draw(st.integers(1, 3))
    attrs: dict[str, Any] = {
        "kernel": each(1, 4),
        "stride": each(1, 3),
        "dilation": each(1, 2),
        "pad": [[a, b] for a, b in zip(each(0, 2), each(0, 2), strict=True)],
        "channels": draw(st.sampled_from(["first", "last"])),
        "groups": groups,
        "out": groups * draw(st.integers(1, 3)),
    }
    layouts = ["kernel_last", "kernel_first", *(["depthwise"] if op == "CONV" else [])]
    attrs["layout"] = draw(st.sampled_from(layouts))
    depth = groups * (1 if attrs["layout"] == "depthwise" else draw(st.integers(1, 3)))
    lengths = each(1, 7 if axes == 1 else 5)
    last = attrs["channels"] == "last"
    shape = (1, *lengths, depth) if last else (1, depth, *lengths)
    node = made(op, axes, **attrs)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    wanted = op_of(node).parameter_shapes(node, [shape])["weight"]
    weight = rng.normal(size=tuple(n for n in wanted or () if isinstance(n, int)))
    if draw(st.booleans()):  # with a mean, the largest frequency is the lowest
        weight += 1
    return node, weight, shape, rng


@settings(max_examples=120, deadline=None)
@given(convolutions())
def test_norms_of_convolutions_are_no_less_than_the_largest_singular_value(
    case: tuple[Node, Array, tuple[int, ...], np.random.Generator],
) -> None:
    node, weight, shape, rng = case
    try:
        op_of(node).shape(node, [shape])
    except ShapeError:
        return
    found = norms_of(node, weight, ("B", *shape[1:]))
    truth = sigma(written_out(node, weight, shape[1:]))
    assert found.finite
    assert truth <= found.opn <= found.opn_any
    assert found.fro >= np.linalg.norm(weight)
    assert found.fro == pytest.approx(np.linalg.norm(weight))
    assert found.absmax == np.abs(weight).max()
    assert norms_of(node, weight, None).opn == found.opn_any
    centre = weight + rng.normal(size=weight.shape) * 0.1
    level = level_norms(node, weight, centre, shape)
    assert sigma(written_out(node, weight - centre, shape[1:])) <= level.dopn
    assert level.dfro == pytest.approx(np.linalg.norm(weight - centre))
    plain = level_norms(node, weight, centre, shape, raised=False)
    for ours, raised in zip((plain.dn, plain.dfro, plain.dopn),
                            (level.dn, level.dfro, level.dopn), strict=True):  # fmt: skip
        assert ours < raised <= ours * (1 + 2e-7)


def test_what_windows_take_in_is_the_matrix() -> None:
    """`dn` and the row norms are of [out, in * kernel], whatever the layout."""
    rng = np.random.default_rng(0)
    for groups in (1, 2):
        node = made("CONV", 2, kernel=[3, 2], out=6, groups=groups)
        weight, centre = rng.normal(size=(2, 6, 4 // groups, 3, 2))
        blocks = (weight - centre).reshape(groups, 6 // groups, -1)
        level = level_norms(node, weight, centre, None)
        assert level.dn == pytest.approx(max(sigma(block) for block in blocks), rel=1e-6)
        assert level.dn >= max(sigma(block) for block in blocks)
        assert level.dopn == np.inf
        wanted = np.linalg.norm(blocks.reshape(6, -1), axis=1)
        assert level.drows is not None
        assert near(level.drows, wanted)
        assert (level.drows >= wanted).all()
        first = made("CONV", 2, kernel=[3, 2], out=6, groups=groups, layout="kernel_first")
        turned = [np.moveaxis(each, (0, 1), (-1, -2)) for each in (weight, centre)]
        same = level_norms(first, turned[0], turned[1], None)
        assert same.dn == pytest.approx(level.dn)
        assert near(same.drows, level.drows)


def test_full_layers() -> None:
    rng = np.random.default_rng(1)
    for shape in ((5, 9), (9, 5), (1, 7), (7, 1)):
        weight, centre = rng.normal(size=(2, *shape))
        node = made("FULL", 0, out=shape[0])
        found, level = (
            norms_of(node, weight, ("B", shape[1])),
            level_norms(node, weight, centre, None),
        )
        assert found.opn == found.opn_any == pytest.approx(sigma(weight), rel=1e-6)
        assert found.opn >= sigma(weight)
        assert level.dn == level.dopn == pytest.approx(sigma(weight - centre), rel=1e-6)
        assert near(found.rows, np.linalg.norm(weight, axis=1))
        turned = made("FULL", 0, out=shape[0], layout="in_out")
        assert norms_of(turned, weight.T, None).opn == pytest.approx(found.opn)
        assert near(level_norms(turned, weight.T, centre.T, None).drows, level.drows)


def test_rows_of_embeddings() -> None:
    rng = np.random.default_rng(2)
    weight, centre = rng.normal(size=(2, 11, 4))
    node = made("EMBED", 0, out=4, rows=11)
    level = level_norms(node, weight, centre, None)
    each = np.linalg.norm(weight - centre, axis=1)
    assert level.dn == pytest.approx(each.max())
    assert level.dn >= each.max()
    assert near(level.drows, each)
    assert norms_of(node, weight, ("B", "T")).opn == pytest.approx(
        np.linalg.norm(weight, axis=1).max()
    )


def test_white_remainders_of_convolutions_are_less_as_operators() -> None:
    node = made("CONV", 2, kernel=[3, 3], out=32, pad=1)
    rng = np.random.default_rng(3)
    weight = rng.normal(size=(32, 32, 3, 3))
    level = level_norms(node, weight, weight + rng.uniform(-1, 1, weight.shape), (1, 32, 8, 8))
    assert level.dopn < 0.65 * 3 * level.dn


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(*(st.integers(1, high) for high in (3, 6, 3, 2))), min_size=1, max_size=2),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 2**32),
)
def test_the_torus_itself(
    axes: list[tuple[int, ...]], groups: int, out: int, depth: int, seed: int
) -> None:
    """Against the circular convolution written out, its rows taken at the stride."""
    kernel, lengths, stride, dilation = (list(each) for each in zip(*axes, strict=True))
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(groups, out, depth, int(np.prod(kernel))))
    found = torus_norm(weight, kernel, lengths, stride, dilation)
    grid, steps = torus_module._grid(kernel, lengths, stride, dilation)
    assert all(
        g % s == 0 and (k == 1 or g >= n + d * (k - 1))
        for g, s, k, n, d in zip(grid, steps, kernel, lengths, dilation, strict=True)
    )
    truth = 0.0
    for group in weight:
        places = list(np.ndindex(*grid))
        kept = [p for p in places if all(i % s == 0 for i, s in zip(p, steps, strict=True))]
        matrix = np.zeros((len(kept), out, len(places), depth))
        index = {place: number for number, place in enumerate(places)}
        for row, p in enumerate(kept):
            for number, t in enumerate(np.ndindex(*kernel)):
                moved = tuple(
                    (i + j * d) % n for i, j, d, n in zip(p, t, dilation, grid, strict=True)
                )
                matrix[row, :, index[moved], :] += group[:, :, number]
        truth = max(truth, sigma(matrix.reshape(len(kept) * out, -1)))
    assert found == pytest.approx(truth, rel=1e-9)


def test_many_channels_are_compared_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    weight = rng.normal(size=(1, 40, 30, 9))
    found = torus_norm(weight, [3, 3], [5, 6], [1, 1], [1, 1])
    calls: list[int] = []
    plain = np.linalg.eigvalsh

    def counted(matrix: Array) -> Any:
        calls.append(1)
        return plain(matrix)

    monkeypatch.setattr(torus_module, "_SMALL", 1)
    monkeypatch.setattr(np.linalg, "eigvalsh", counted)
    assert torus_norm(weight, [3, 3], [5, 6], [1, 1], [1, 1]) == found
    assert 0 < len(calls) < 15
    monkeypatch.setattr(torus_module, "_SMALL", 100)
    assert torus_norm(weight, [3, 3], [5, 6], [1, 1], [1, 1]) == pytest.approx(found, rel=1e-12)


def test_what_is_too_large_has_a_looser_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    weight, centre = rng.normal(size=(2, 8, 4, 3, 3))
    node = made("CONV", 2, kernel=[3, 3], out=8)
    monkeypatch.setattr(torus_module, "MOST_TORUS_PRODUCTS", 10)
    with pytest.raises(TooLarge):
        torus_norm(weight.reshape(1, 8, 4, 9), [3, 3], [5, 5], [1, 1], [1, 1])
    found, level = norms_of(node, weight, (1, 4, 5, 5)), level_norms(node, weight, centre, None)
    assert found.opn == found.opn_any == pytest.approx(3 * sigma(weight.reshape(8, -1)))
    assert level.dopn == np.inf
    assert not found.frobenius
    monkeypatch.setattr(norms_module, "MOST_ROWS", 7)
    found, level = norms_of(node, weight, (1, 4, 5, 5)), level_norms(node, weight, centre, None)
    assert found.frobenius
    assert level.frobenius
    assert level.dn == level.dfro
    assert found.opn_any == pytest.approx(3 * found.fro)


@pytest.mark.parametrize("piece", [1, 7, 64])
def test_pieces_change_nothing(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    weight, centre = rng.normal(size=(2, 6, 4, 3, 3))
    node = made("CONV", 2, kernel=[3, 3], out=6, groups=2)
    whole, level = norms_of(node, weight, None), level_norms(node, weight, centre, None)
    monkeypatch.setattr(norms_module, "_PIECE", piece)
    cut, again = norms_of(node, weight, None), level_norms(node, weight, centre, None)
    assert cut.opn == pytest.approx(whole.opn)
    assert near(cut.rows, whole.rows)
    assert (again.dn, again.dfro) == pytest.approx((level.dn, level.dfro))


@pytest.mark.parametrize("size", [1e-200, 5e-324, 1e200])
def test_squares_neither_vanish_nor_overflow(size: float) -> None:
    rng = np.random.default_rng(7)
    weight = rng.uniform(1, 2, size=(4, 5)) * size
    node = made("FULL", 0, out=4)
    level = level_norms(node, weight, np.zeros((4, 5)), None)
    assert level.dn >= weight.max()
    assert level.dfro >= weight.max()
    assert np.isfinite(level.dn)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_has_no_norm(bad: float) -> None:
    weight = np.ones((4, 5))
    weight[2, 3] = bad
    node = made("FULL", 0, out=4)
    assert not norms_of(node, weight, None).finite
    assert norms_of(node, weight, None).opn == np.inf
    assert level_norms(node, np.ones((4, 5)), weight, None).dn == np.inf


def test_nothing_is_open_of_a_weight_that_is_its_centre() -> None:
    weight = np.random.default_rng(8).normal(size=(3, 2, 3, 3))
    node = made("CONV", 2, kernel=[3, 3], out=3)
    level = level_norms(node, weight, weight, (1, 2, 6, 6))
    assert (level.dn, level.dfro, level.dopn) == (0, 0, 0)
