from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.versions.diff import MOST_BYTES, LineCounts, count_lines

lines = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n"]), max_size=12)


@given(lines, lines)
def test_counts_are_those_of_a_diff(old: list[str], new: list[str]) -> None:
    found = count_lines("".join(old).encode(), "".join(new).encode())
    assert found is not None
    assert found.added - found.removed == len(new) - len(old)
    shown = [line[0] for line in difflib.ndiff(old, new) if line[0] in "+-"]
    # ndiff is a valid difference, so the counts cannot be far off; none of both is cheaper by rule.
    assert (found == LineCounts(0, 0)) == (not shown)
    assert found.added <= len(new)
    assert found.removed <= len(old)


def test_examples() -> None:
    assert count_lines(b"one\ntwo\nthree\n", b"one\n2\nthree\nfour\n") == (2, 1)
    assert count_lines(b"", b"x\ny") == (2, 0)
    assert count_lines(b"x\n", b"x") == (1, 1)


@pytest.mark.parametrize("data", [b"a\0b", b"x" * (MOST_BYTES + 1)])
def test_what_is_no_text(data: bytes) -> None:
    assert count_lines(b"", data) is None
    assert count_lines(data, data) == (0, 0)
