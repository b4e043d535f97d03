"""The `table` layout: what comes back, what is refused, and when it is worth it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.canonical import hash_bytes
from dlv.errors import Damaged, NewerFormat
from dlv.pas.layouts.registry import layout_of
from dlv.pas.layouts.segments import WORDS, join_matrix, split_matrix
from dlv.pas.layouts.table import MOST_WORDS, Distinct, Finder, Table

WIDE = sorted(dtype for dtype, (width, _) in WORDS.items() if width > 1)


def fitting(raw: bytes, dtype: str) -> Table | None:
    """The table of a matrix that has few distinct words, if it is worth one."""
    finder = Finder(dtype)
    finder.add(raw)
    found = finder.coding()
    return None if found is None else found.layout


def made(dtype: str, words: list[int]) -> tuple[Table, bytes, tuple[int]]:
    width, per_element = WORDS[dtype]
    words = words[: len(words) // per_element * per_element]
    array = np.array(words, f"<u{width}")
    table = Table.of_words(np.unique(array))
    return table, array.tobytes(), (len(words) // per_element,)


@st.composite
def matrices(draw: st.DrawFn) -> tuple[str, list[int]]:
    dtype = draw(st.sampled_from(WIDE))
    top = 256 ** WORDS[dtype][0] - 1
    words = draw(st.lists(st.integers(0, top), min_size=1, max_size=MOST_WORDS, unique=True))
    return dtype, draw(st.lists(st.sampled_from(words), min_size=2, max_size=400))


class TestRoundTrip:
    @settings(max_examples=150, deadline=None)
    @given(matrices())
    def test_every_bit_comes_back(self, matrix: tuple[str, list[int]]) -> None:
        dtype, words = matrix
        table, raw, shape = made(dtype, words)
        planes, side = split_matrix(table, raw, dtype, shape)
        again = layout_of(table.get_config())
        assert len(planes) == again.planes(dtype) == 1
        assert len(planes[0]) == again.plane_bytes(0, dtype, shape)
        assert len(side) == again.side_bytes(dtype, shape)
        assert bytes(join_matrix(again, planes, side, dtype, shape)) == raw
        # The format says: ascending, little-endian, codes point into them.
        width = WORDS[dtype][0]
        listed = [side[i : i + width] for i in range(0, len(side), width)]
        assert listed == sorted(set(listed), key=lambda word: word[::-1])
        assert b"".join(listed[code] for code in bytes(planes[0])) == raw

    @settings(max_examples=60, deadline=None)
    @given(matrices(), st.integers(0, 400), st.integers(0, 400))
    def test_any_run_of_elements(self, matrix: tuple[str, list[int]], a: int, b: int) -> None:
        dtype, words = matrix
        table, raw, shape = made(dtype, words)
        cutter = table.cutter(table.side_of(raw, dtype, shape), dtype, shape)
        every = np.frombuffer(raw, f"<u{WORDS[dtype][0]}")
        run = every[min(a, b) : max(a, b)]
        planes = cutter.cut(run, min(a, b))
        assert np.array_equal(cutter.paste(planes, min(a, b), len(run)), run)

    def test_256_words(self) -> None:
        words = np.arange(256, dtype="<u4") * 1_000_003
        raw = np.tile(words, 20).tobytes()
        table = fitting(raw, "float32")
        assert table is not None
        planes, side = split_matrix(table, raw, "float32", (5120,))
        assert bytes(join_matrix(table, planes, side, "float32", (5120,))) == raw


class TestRefused:
    raw = np.array([1.0, -0.0, 0.0, 1.0], "<f4").tobytes()

    def table(self) -> tuple[Table, list[bytes], bytes]:
        table = Table.of_words(np.unique(np.frombuffer(self.raw, "<u4")))
        planes, side = split_matrix(table, self.raw, "float32", (4,))
        return table, [bytes(plane) for plane in planes], side

    def test_words_that_were_changed(self) -> None:
        table, planes, side = self.table()
        with pytest.raises(Damaged, match="promises"):
            join_matrix(table, planes, side[::-1], "float32", (4,))
        with pytest.raises(Damaged, match="promises"):
            join_matrix(table, planes, side[:-4], "float32", (4,))

    def test_words_that_do_not_ascend(self) -> None:
        side = np.array([3, 2], "<u4").tobytes()
        with pytest.raises(Damaged, match="ascend"):
            join_matrix(Table(2, hash_bytes(side)), [b"\0\1\0\0"], side, "float32", (4,))
        twice = np.array([3, 3], "<u4").tobytes()
        with pytest.raises(Damaged, match="ascend"):
            join_matrix(Table(2, hash_bytes(twice)), [b"\0\1\0\0"], twice, "float32", (4,))

    def test_codes_beyond_the_table(self) -> None:
        table, _, side = self.table()
        with pytest.raises(Damaged, match="beyond"):
            join_matrix(table, [b"\0\1\2\3"], side, "float32", (4,))

    def test_planes_of_another_length(self) -> None:
        table, planes, side = self.table()
        for wrong in ([planes[0][:-1]], [], [planes[0], planes[0]]):
            with pytest.raises(Damaged, match="one plane"):
                join_matrix(table, wrong, side, "float32", (4,))

    def test_a_matrix_of_other_words(self) -> None:
        table, _, side = self.table()
        other = np.array([1.0, -0.0, 0.0, 2.0], "<f4").tobytes()
        with pytest.raises(ValueError, match="other words"):
            split_matrix(table, other, "float32", (4,))
        for words in ([7], [2**32 - 1]):
            with pytest.raises(ValueError, match="not in the table"):
                table.cutter(side, "float32", (1,)).cut(np.array(words, "<u4"), 0)

    @pytest.mark.parametrize(
        "config",
        [
            {"words": 0, "data": "0" * 64},
            {"words": 257, "data": "0" * 64},
            {"words": True, "data": "0" * 64},
            {"words": 2.0, "data": "0" * 64},
            {"words": 2, "data": "0" * 63},
            {"words": 2, "data": None},
        ],
    )
    def test_impossible_configs(self, config: dict[str, object]) -> None:
        with pytest.raises(Damaged, match="impossible"):
            layout_of({"id": "table", **config})

    def test_unknown_keys_are_of_a_newer_dlv(self) -> None:
        with pytest.raises(NewerFormat):
            layout_of({"id": "table", "words": 2, "data": "0" * 64, "order": "value"})
        with pytest.raises(NewerFormat):
            layout_of({"id": "table", "words": 2})


class TestDistinct:
    @given(st.lists(st.integers(0, 300), max_size=700), st.integers(1, 50))
    def test_as_a_set_tells(self, values: list[int], step: int) -> None:
        found = Distinct()
        words = np.array(values, "<u2")
        fits = True
        for start in range(0, len(words), step):
            fits = found.add(words[start : start + step])
        expected = sorted(set(values))
        assert fits == (len(expected) <= MOST_WORDS)
        assert found.words is None if not fits else found.words is not None
        if found.words is not None:
            assert found.words.tolist() == expected


class TestFitting:
    def test_ordinary_weights_have_none(self) -> None:
        raw = np.random.default_rng(0).standard_normal(5000).astype("<f4").tobytes()
        assert fitting(raw, "float32") is None

    def test_few_words_have_one(self) -> None:
        raw = np.random.default_rng(0).integers(0, 16, 5000).astype("<f4").tobytes()
        table = fitting(raw, "float32")
        assert table is not None
        assert table.get_config()["words"] == 16

    def test_not_where_the_words_outweigh_the_codes(self) -> None:
        raw = np.arange(200, dtype="<f4").tobytes()
        assert fitting(raw, "float32") is None
        assert fitting(raw * 20, "float32") is not None

    @pytest.mark.parametrize("dtype", ["int8", "bool", "float8_e4m3", "raw:F6"])
    def test_bytes_are_codes_already(self, dtype: str) -> None:
        assert fitting(bytes(1000), dtype) is None

    def test_nothing(self) -> None:
        assert fitting(b"", "float32") is None


class TestCoding:
    def test_part_by_part(self) -> None:
        words = np.random.default_rng(0).choice(np.arange(9, dtype="<u4") << 20, 3000)
        finder = Finder("float32")
        for start in range(0, 3000, 700):
            finder.add(words[start : start + 700].tobytes())
        found = finder.coding()
        assert found is not None
        assert found.layout.get_config()["words"] == 9
        parts = [found.codes(words[s : s + 700].tobytes(), "float32") for s in range(0, 3000, 700)]
        joined = join_matrix(found.layout, [b"".join(parts)], found.side, "float32", (3000,))
        assert joined == words.tobytes()

    def test_words_that_were_not_there(self) -> None:
        finder = Finder("float32")
        finder.add(bytes(4000))
        found = finder.coding()
        assert found is not None
        with pytest.raises(ValueError, match="not in the table"):
            found.codes(b"\1\0\0\0", "float32")
