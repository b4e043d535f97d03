"""A store of matrices in memory, written by the encoders, and what every delta must do."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlv.canonical import matrix_hash
from dlv.errors import Damaged, DlvError
from dlv.kinds import Piece
from dlv.pas.coders.codecs import codec_of
from dlv.pas.encode import Effort, Part, encode_delta, encode_materialised
from dlv.pas.footer import Encoding
from dlv.pas.layouts.segments import WORDS, Ieee, Layout, element_bytes
from dlv.pas.read import read_matrix, read_slice

Raw = bytes | bytearray | memoryview
LayoutOf = Callable[[Sequence[bytes], str, Sequence[int]], Layout]


class MemoryStore:
    """Encodings and chunks in memory."""

    def __init__(self) -> None:
        self.encodings: dict[str, Encoding] = {}
        self.rows: dict[str, list[Piece]] = {}
        self.data: dict[int, bytes] = {}
        self.reads: list[tuple[str, str, int | None, int]] = []

    def encoding(self, matrix: str) -> Encoding | None:
        return self.encodings.get(matrix)

    def chunks(self, matrix: str) -> list[Piece]:
        return self.rows.get(matrix, [])

    def read(self, piece: Piece) -> Raw:
        return codec_of(piece.codec).decode(self.stored(piece), piece.raw)

    def stored(self, piece: Piece) -> bytes:
        assert isinstance(piece, Piece)
        self.reads.append((piece.object, piece.kind, piece.plane, piece.start))
        return self.data[piece.offset]

    def object(self, kind: str, name: str) -> Raw:
        raise KeyError(f"{kind} {name}")

    def put(self, matrix: str, part: Part) -> None:
        encoded = part.encoded
        offset = 8 + sum(map(len, self.data.values()))
        while offset in self.data:
            offset += 1
        self.data[offset] = bytes(encoded.data)
        row = Piece(
            *(matrix, "pack", part.kind, part.plane, offset, len(encoded.data), encoded.raw),
            *(encoded.blake3, encoded.codec, 0, part.start, part.count),
        )
        self.rows.setdefault(matrix, []).append(row)

    def bytes_of(self, matrix: str) -> int:
        return sum(row.length for row in self.chunks(matrix))

    def add(
        self,
        raw: bytes,
        dtype: str,
        shape: Sequence[int],
        *,
        layout: Layout | None = None,
        kind: str = "materialise",
        base: str | None = None,
        effort: Effort = "fast",
    ) -> str:
        """Store a matrix; one that is there stays as it is."""
        name = matrix_hash(dtype, shape, raw)
        if name in self.encodings:
            return name
        layout = layout or Ieee()

        def put(part: Part) -> None:
            self.put(name, part)

        if base is None or kind == "materialise":
            made = encode_materialised(raw, dtype, shape, name, put, layout=layout, effort=effort)
        else:
            old = self.encodings[base].shape
            under = fitted(self.matrix(base), dtype, old, shape)
            given = raw, under, dtype, shape, name, base, put
            made = encode_delta(kind, *given, layout=layout, effort=effort)
            if tuple(old) != tuple(shape):  # which dlv reads and writes no more
                overlap = list(map(min, old, shape))
                made = replace(made, delta={**(made.delta or {}), "overlap": overlap})
        self.encodings[name] = made
        return name

    def matrix(self, name: str) -> bytes:
        return bytes(read_matrix(name, self.encoding, self))

    def change(self, matrix: str, /, **changes: Any) -> None:
        """Say something else of a matrix's encoding."""
        self.encodings[matrix] = replace(self.encodings[matrix], **changes)


def fitted(raw: bytes, dtype: str, old: Sequence[int], new: Sequence[int]) -> bytes:
    """The elements of a matrix in another shape: all zero bits outside of it."""
    if tuple(old) == tuple(new):
        return raw
    each = element_bytes(dtype)
    grid = np.zeros((*new, each), np.uint8)
    where = tuple(map(slice, map(min, old, new)))
    grid[where] = np.frombuffer(raw, np.uint8).reshape(*old, each)[where]
    return grid.tobytes()


def near(raw: bytes, width: int, seed: int) -> bytes:
    """Words a little off those of `raw`; every third is the same."""
    source = np.random.default_rng(seed)
    words = np.frombuffer(raw, f"<u{width}").copy()
    steps = source.integers(0, 1 << min(8 * width - 1, 12), len(words)).astype(words.dtype)
    steps[::3] = 0
    moved: bytes = (words + steps).tobytes()
    return moved


class DeltaSuite:
    """`kind` is what a subclass sets; `layout_of` makes a layout that holds all given."""

    kind: str
    dtypes: Sequence[str] = tuple(WORDS)

    def layout_of(
        self,
        raws: Sequence[bytes],  # noqa: ARG002
        dtype: str,  # noqa: ARG002
        shape: Sequence[int],  # noqa: ARG002
    ) -> Layout:
        return Ieee()

    def bytes_for(self, dtype: str, shape: Sequence[int], seed: int) -> bytes:
        return random.Random(seed).randbytes(element_bytes(dtype) * math.prod(shape))

    def changed(
        self,
        raw: bytes,
        dtype: str,
        shape: Sequence[int],  # noqa: ARG002
        seed: int,
    ) -> bytes:
        return near(raw, WORDS[dtype][0], seed)

    def check(self, raws: Sequence[bytes], dtype: str, shape: Sequence[int]) -> None:
        store = MemoryStore()
        layout = self.layout_of(raws, dtype, shape)
        base = store.add(raws[0], dtype, shape, layout=layout)
        for raw in raws[1:]:
            base = store.add(raw, dtype, shape, layout=layout, kind=self.kind, base=base)
        for raw in raws:
            name = matrix_hash(dtype, shape, raw)
            assert store.matrix(name) == raw

    def test_every_dtype_and_shape(self) -> None:
        for seed, dtype in enumerate(self.dtypes):
            for shape in ((), (1,), (7,), (0,), (0, 3), (3, 5), (2, 3, 4)):
                first = self.bytes_for(dtype, shape, seed)
                second = self.bytes_for(dtype, shape, seed + 100)
                third = self.changed(second, dtype, shape, seed)
                self.check([first, second, third], dtype, shape)

    @settings(
        max_examples=40, deadline=None, suppress_health_check=[HealthCheck.differing_executors]
    )
    @given(st.data())
    def test_chains(self, data: st.DataObject) -> None:
        dtype = data.draw(st.sampled_from(list(self.dtypes)))
        shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=0, max_size=3)))
        seed = data.draw(st.integers(0, 1 << 16))
        raws = [self.bytes_for(dtype, shape, seed)]
        for step in range(data.draw(st.integers(1, 6))):
            if data.draw(st.booleans()):
                raws.append(self.changed(raws[-1], dtype, shape, seed + step))
            else:
                raws.append(self.bytes_for(dtype, shape, seed + step + 1))
        self.check(raws, dtype, shape)

    def test_other_shapes_overlap(self) -> None:
        for seed, dtype in enumerate(self.dtypes):
            for old, new in (
                ((4, 6), (5, 3)),
                ((3,), (8,)),
                ((2, 3, 4), (1, 5, 4)),
                ((0, 2), (3, 2)),
            ):
                store = MemoryStore()
                first = self.bytes_for(dtype, old, seed)
                second = self.bytes_for(dtype, new, seed + 1)
                base = store.add(first, dtype, old)
                per = element_bytes(dtype)
                layout = self.layout_of([second, fitted(first, dtype, old, new)], dtype, new)
                name = store.add(second, dtype, new, layout=layout, kind=self.kind, base=base)
                if name != base:
                    delta = store.encodings[name].delta
                    assert delta is not None
                    assert delta["overlap"] == list(map(min, old, new))
                assert store.matrix(name) == second
                for start in range(0, math.prod(new), 5):
                    count = min(7, math.prod(new) - start)
                    part = read_slice(name, start, count, store.encoding, store)
                    assert bytes(part) == second[start * per : (start + count) * per]

    def test_another_base_than_named_is_found_out(self) -> None:
        dtype = self.dtypes[0]
        store = MemoryStore()
        raws = [self.bytes_for(dtype, (4, 5), seed) for seed in range(3)]
        layout = self.layout_of(raws, dtype, (4, 5))
        names = [store.add(raw, dtype, (4, 5), layout=layout) for raw in raws[:2]]
        name = store.add(raws[2], dtype, (4, 5), layout=layout, kind=self.kind, base=names[0])
        delta = store.encodings[name].delta
        assert delta is not None
        store.change(name, delta={**delta, "base": names[1]})
        with pytest.raises(Damaged):
            store.matrix(name)

    def test_shapes_that_do_not_fit_are_damage(self) -> None:
        dtype = self.dtypes[0]
        store = MemoryStore()
        raws = [self.bytes_for(dtype, (4, 5), seed) for seed in range(2)]
        layout = self.layout_of(raws, dtype, (4, 5))
        base = store.add(raws[0], dtype, (4, 5), layout=layout)
        name = store.add(raws[1], dtype, (4, 5), layout=layout, kind=self.kind, base=base)
        delta = store.encodings[name].delta
        assert delta is not None
        good = store.encodings[base]
        for changes in (
            {"shape": (5, 4)},
            {"shape": (20,)},
            {"shape": (1 << 40, 1 << 20)},
            {"dtype": "uint16" if WORDS[dtype][0] == 4 else "float32"},
        ):
            store.change(base, **changes)
            with pytest.raises(DlvError):
                store.matrix(name)
            store.encodings[base] = good
        for overlap in ([4, 5], [4], [1 << 60, 5]):
            store.change(name, delta={**delta, "overlap": overlap})
            with pytest.raises(Damaged):
                store.matrix(name)
