from __future__ import annotations

from collections.abc import Callable

import pytest

from dlv.network.graph import Node
from dlv.network.ops.recurrent import Recurrent
from dlv.network.sizes import ShapeError

Make = Callable[..., Node]


def test_sequence_and_states(node: Make) -> None:
    lstm = node("RNN", "LSTM", hidden=32, layers=2, bidirectional=True, batch_first=True)
    state = (4, "B", 32)
    assert Recurrent().shape(lstm, [("B", "T", 20)]) == (("B", "T", 64), state, state)
    gru = node("RNN", "GRU", hidden=32)
    assert Recurrent().shape(gru, [("T", "B", 20)]) == (("T", "B", 32), (1, "B", 32))
    assert Recurrent().shape(gru, [None]) == (None, None)
    assert (Recurrent().arity(lstm), Recurrent().arity(gru)) == ((1, 3), (1, 2))


def test_start_states_must_fit(node: Make) -> None:
    gru = node("RNN", "GRU", hidden=32)
    assert Recurrent().shape(gru, [("T", "B", 20), (1, 5, 32)])
    with pytest.raises(ShapeError):
        Recurrent().shape(gru, [("T", "B", 20), (2, 5, 32)])
    with pytest.raises(ShapeError):
        Recurrent().shape(gru, [("T", 20)])


def test_weights_of_the_upper_layers_see_both_ways(node: Make) -> None:
    gru = node("RNN", "GRU", hidden=3, layers=11, bidirectional=True, bias=False)
    found = Recurrent().parameter_shapes(gru, [(5, 1, 7)])
    assert found["weight_ih_l0_reverse"] == (9, 7)
    assert found["weight_ih_l1"] == (9, 6)
    assert found["weight_ih_l10"] == (9, 6)
    assert found["weight_hh_l10"] == (9, 3)
    assert len(found) == 44
    assert set(found) == Recurrent().required(gru)


def test_the_cost_is_every_gate_at_every_step(node: Make) -> None:
    lstm = node("RNN", "LSTM", hidden=3)
    assert Recurrent().flops(lstm, [(5, 2, 7)], []) == 2 * 5 * 2 * 4 * 3 * (7 + 3)
    assert Recurrent().flops(lstm, [("T", 2, 7)], []) is None
    assert Recurrent().flops(lstm, [None], []) is None
