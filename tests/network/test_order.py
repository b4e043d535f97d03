from __future__ import annotations

from collections.abc import Sequence
from graphlib import TopologicalSorter

from hypothesis import given
from hypothesis import strategies as st

from dlv.network.order import FreeNames, reached, topological

_Graph = list[list[int]]


@st.composite
def _graphs(draw: st.DrawFn, most: int = 8) -> _Graph:
    count = draw(st.integers(0, most))
    places = st.lists(st.integers(0, max(count - 1, 0)), max_size=3)
    return [draw(places) if count else [] for _ in range(count)]


def _waiting(producers: Sequence[Sequence[int]]) -> set[int]:
    """What is on a cycle or behind one, the slow way."""
    free: set[int] = set()
    for _ in producers:
        free |= {at for at, read in enumerate(producers) if free.issuperset(read)}
    return {*range(len(producers))} - free


@given(_graphs())
def test_producers_first_and_otherwise_as_they_come(producers: _Graph) -> None:
    order = topological(producers)
    waiting = _waiting(producers)
    assert sorted([*order, *waiting]) == list(range(len(producers)))
    assert topological([[] for _ in producers]) == list(range(len(producers)))
    for place, position in enumerate(order):
        ready = [at for at in order[place:] if set(producers[at]) <= set(order[:place])]
        assert position == min(ready)
    if not waiting:
        assert set(TopologicalSorter(dict(enumerate(producers))).static_order()) == set(order)


@given(_graphs())
def test_all_that_one_comes_to(producers: _Graph) -> None:
    found = reached(["0"], lambda name: map(str, producers[int(name)]) if producers else ())
    assert "0" in found
    for name in found if producers else ():
        assert {str(at) for at in producers[int(name)]} <= found


def test_new_names() -> None:
    names = FreeNames(["a", "b_1"])
    assert [names.take(name) for name in "abaab"] == ["a_1", "b", "a_2", "a_3", "b_2"]
    assert len(names) == 7
    assert all(name in names for name in ("a", "a_1", "a_2", "a_3", "b", "b_1", "b_2"))
    assert FreeNames({"x"}, first=2).take("x") == "x_2"
