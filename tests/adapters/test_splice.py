"""dlv.adapters.splice: skeletons give the file back, lies are found; strides as numpy has them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from dlv import canonical
from dlv.adapters import splice
from dlv.adapters.checkpoint import Tensor
from dlv.adapters.source import Source
from dlv.adapters.splice import (
    Piece,
    Segment,
    extent,
    gather,
    is_contiguous,
    normal_form,
    swap,
    transpose,
)
from dlv.errors import Damaged, DlvError, NewerFormat, UnsafeInput

SHAPES = st.lists(st.integers(0, 4), max_size=5)
TYPES = ["u1", "u2", "u4", "u8", "c16", "S3", "U5", "S7"]


@given(SHAPES, st.sampled_from(TYPES), st.randoms(use_true_random=False))
def test_transpose(shape: list[int], name: str, random: object) -> None:
    dtype = np.dtype(name)
    size = int(np.prod(shape)) * dtype.itemsize
    # Opaque bytes: numpy must not interpret them either (NaN payloads, text).
    data = np.arange(size, dtype=np.uint32).astype(np.uint8).tobytes()
    array = np.frombuffer(data, f"V{dtype.itemsize}").reshape(shape)
    other = bytes(transpose(data, shape, dtype.itemsize))
    assert other == array.tobytes(order="F")
    assert bytes(transpose(other, shape[::-1], dtype.itemsize)) == data


@given(st.binary(max_size=20), st.sampled_from([1, 2, 4, 8, 16]))
def test_swap(seed: bytes, unit: int) -> None:
    data = seed * unit
    expected = b"".join(data[at : at + unit][::-1] for at in range(0, len(data), unit))
    assert bytes(swap(data, unit)) == expected
    assert bytes(swap(memoryview(expected), unit)) == data


AXES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), max_size=5)


@given(AXES, st.sampled_from([1, 2, 4, 8, 16]))
def test_as_numpy(axes: list[tuple[int, int]], item: int) -> None:
    shape = [size for size, _ in axes]
    strides = [step for _, step in axes]
    needed = extent(shape, strides)
    data = bytes(i * 7 % 251 for i in range(needed * item))
    if not needed:
        assert gather(data, item, shape, strides) == b""
        return
    base = np.frombuffer(data, dtype=f"V{item}")
    view = as_strided(base, shape, [step * item for step in strides])
    assert gather(data, item, shape, strides) == view.tobytes()


@given(AXES)
def test_extent_is_the_last_index(axes: list[tuple[int, int]]) -> None:
    shape, strides = [a for a, _ in axes], [b for _, b in axes]
    last = -1
    for index in np.ndindex(*shape):
        last = max(last, sum(i * step for i, step in zip(index, strides, strict=True)))
    assert extent(shape, strides) == last + 1


@given(AXES)
def test_contiguous_means_one_run(axes: list[tuple[int, int]]) -> None:
    shape, strides = [a for a, _ in axes], [b for _, b in axes]
    offsets = [sum(map(int.__mul__, i, strides)) for i in np.ndindex(*shape)]
    assert is_contiguous(shape, strides) == (offsets == list(range(len(offsets))))


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((), (), ((), ())),
        ((1, 1), (5, 9), ((), ())),
        ((2, 3, 4), (12, 4, 1), ((24,), (1,))),
        ((2, 3, 4), (24, 4, 1), ((2, 12), (24, 1))),
        ((4, 3), (1, 4), ((4, 3), (1, 4))),
        ((3, 4), (0, 0), ((12,), (0,))),
    ],
)
def test_axes_are_merged(
    shape: tuple[int, ...], strides: tuple[int, ...], expected: tuple[tuple[int, ...], ...]
) -> None:
    assert normal_form(shape, strides) == expected


def tensor(name: str, data: bytes, dtype: str = "uint8", shape: tuple[int, ...] = ()) -> Tensor:
    return Tensor(name, dtype, shape or (len(data),), len(data), lambda: data)


def written(skeleton: bytes, tensors: list[Tensor]) -> bytes:
    out = io.BytesIO()
    splice.restore(out, skeleton, tensors)
    return out.getvalue()


CONTENT = [bytes(range(40)), b"", b"\xff" * 24]
TENSORS = [tensor(str(index), data) for index, data in enumerate(CONTENT)]
PIECES = st.builds(
    lambda index, a, b: Piece(index, min(a, b), abs(a - b)),
    st.sampled_from([0, 2]),
    st.integers(0, 24),
    st.integers(0, 24),
).filter(lambda piece: piece.size > 0)


@given(st.lists(st.binary(max_size=10) | PIECES))
def test_segments_come_back(segments: list[Segment]) -> None:
    expected = b"".join(
        s if isinstance(s, bytes) else CONTENT[s.tensor][s.start : s.start + s.size]
        for s in segments
    )
    skeleton = splice.make(segments)
    assert written(skeleton, TENSORS) == expected
    assert splice.make(splice.parse(skeleton)) == skeleton


@given(st.lists(st.integers(0, 30), max_size=6), st.binary(max_size=64))
@settings(deadline=None)
def test_cut(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], junk: bytes) -> None:
    path = tmp_path_factory.mktemp("cut") / "file"
    data = bytearray()
    tensors, places = [], []
    for index, size in enumerate(sizes):
        data += junk[:size]
        places.append((len(data), Piece(index, 0, size)))
        tensors.append(tensor(str(index), bytes([index]) * size))
        data += bytes([index]) * size
    data += junk
    path.write_bytes(data)
    with Source(str(path)) as file:
        skeleton = splice.cut(file, reversed(places))
    assert written(skeleton, tensors) == data
    assert len(skeleton) < len(data) - sum(sizes) + 200


def test_cut_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    with Source(str(path)) as file:
        with pytest.raises(UnsafeInput, match="overlap"):
            splice.cut(file, [(0, Piece(0, 0, 10)), (9, Piece(1, 0, 10))])
        with pytest.raises(Damaged, match="truncated"):
            splice.cut(file, [(95, Piece(0, 0, 10))])
        monkeypatch.setattr(splice, "MOST_LITERAL_BYTES", 50)
        with pytest.raises(UnsafeInput, match="too large"):
            splice.cut(file, [])


@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<c16", "<i2", "|u1"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("big", [False, True])
def test_other_orders(dtype: str, shape: tuple[int, ...], order: str, big: bool) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    stored = array.astype(array.dtype.newbyteorder(">")) if big else array
    unit = {"c": array.itemsize // 2}.get(array.dtype.kind, array.itemsize) if big else 1
    piece = Piece(0, 0, array.nbytes, order, unit)
    assert order in ("C", "F")
    expected = b"head" + stored.tobytes(order="F" if order == "F" else "C") + b"tail"
    one = Tensor("t", "any", shape, array.nbytes, array.tobytes)
    assert written(splice.make([b"head", piece, b"tail"]), [one]) == expected


def form(segments: object, literals: bytes = b"", number: int = 1) -> bytes:
    header = canonical.dumps({"splice": number, "segments": segments})
    return len(header).to_bytes(8, "little") + header + literals


WRONG = {
    "empty": b"",
    "short": b"\x02",
    "longer than itself": b"\xff" * 8 + b"{}",
    "not JSON": b"\x01" + bytes(7) + b"{",
    "no object": b"\x02" + bytes(7) + b"[]",
    "not canonical": b"\x1b" + bytes(7) + b'{"splice":1, "segments":[]}',
    "no list": form({}),
    "literal missing": form([5], b"abc"),
    "literal left": form([2], b"abc"),
    "two literals": form([1, 2], b"abc"),
    "empty literal": form([0]),
    "negative": form([-1]),
    "boolean": form([True], b"a"),
    "two numbers": form([[0, 1]]),
    "no bytes": form([[0, 0, 0]]),
    "text": form([["0", 0, 1]]),
    "no such tensor": form([[3, 0, 1]]),
    "behind the end": form([[0, 30, 11]]),
    "far behind the end": form([[0, 2**63, 2**63]]),
    "part in other order": form([[0, 0, 8, "F", 1]]),
    "part swapped": form([[0, 0, 8, "C", 4]]),
    "unit does not divide": form([[2, 0, 24, "C", 16]]),
    "unit zero": form([[0, 0, 40, "C", 0]]),
    "unknown order": form([[0, 0, 40, "K", 2]]),
    "plain in long form": form([[0, 0, 40, "C", 1]]),
}


@pytest.mark.parametrize("case", WRONG)
def test_lying_skeletons(case: str) -> None:
    out = io.BytesIO()
    with pytest.raises(Damaged):
        splice.restore(out, WRONG[case], TENSORS)
    assert out.getvalue() == b""


def test_newer_skeleton() -> None:
    with pytest.raises(NewerFormat):
        splice.parse(form([], number=2))


def test_tensor_of_wrong_length() -> None:
    short = Tensor("t", "uint8", (4,), 4, lambda: b"abc")
    with pytest.raises(Damaged, match="wrong length"):
        written(splice.make([Piece(0, 0, 4)]), [short])


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    with pytest.raises(DlvError):
        written(data, TENSORS)
