"""LSTM and GRU over a sequence, layer by layer, one way or both."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dlv.kinds import Array
from dlv.network.ops.op import Run


def values(
    lstm: bool, layers: int, ways: int, batch_first: bool, hidden: int, run: Run
) -> tuple[Array, ...]:
    """The sequence of the last layer, and the last states of all."""
    x, *given = run.inputs
    if batch_first:
        x = x.swapaxes(0, 1)
    count = 2 if lstm else 1
    while len(given) < count:
        given.append(np.zeros((layers * ways, x.shape[1], hidden), x.dtype))
    given = [state.astype(x.dtype, copy=False) for state in given]
    ends: list[list[Array]] = [[] for _ in range(count)]
    for layer in range(layers):
        outputs = []
        for way in range(ways):
            place = layer * ways + way
            suffix = f"_l{layer}" + ("_reverse" if way else "")
            start = [state[place] for state in given]
            made, last = _one(lstm, x[::-1] if way else x, start, run.params, suffix)
            outputs.append(made[::-1] if way else made)
            for end, state in zip(ends, last, strict=True):
                end.append(state)
        x = np.concatenate(outputs, axis=-1) if ways > 1 else outputs[0]
    if batch_first:
        x = x.swapaxes(0, 1)
    return (x, *(np.stack(end) for end in ends))


def _one(
    lstm: bool, x: Array, start: list[Array], params: Mapping[str, Array], suffix: str
) -> tuple[Array, list[Array]]:
    """One layer one way: all its outputs, and its last states."""
    inner, outer = params[f"weight_hh{suffix}"].T, params[f"weight_ih{suffix}"].T
    first = params.get(f"bias_ih{suffix}")
    second = params.get(f"bias_hh{suffix}")
    given = x @ outer if first is None else x @ outer + first
    result = np.empty((*x.shape[:2], inner.shape[0]), x.dtype)
    states = start
    for step in range(len(x)):
        kept = states[0] @ inner if second is None else states[0] @ inner + second
        states = _lstm(given[step] + kept, states) if lstm else _gru(given[step], kept, states)
        result[step] = states[0]
    return result, states


def _lstm(gates: Array, states: list[Array]) -> list[Array]:
    enter, forget, new, show = np.split(gates, 4, axis=-1)
    cell = _sigmoid(forget) * states[1] + _sigmoid(enter) * np.tanh(new)
    return [_sigmoid(show) * np.tanh(cell), cell]


def _gru(given: Array, kept: Array, states: list[Array]) -> list[Array]:
    ours, theirs = np.split(given, 3, axis=-1), np.split(kept, 3, axis=-1)
    reset, update = (_sigmoid(a + b) for a, b in zip(ours[:2], theirs[:2], strict=True))
    new = np.tanh(ours[2] + reset * theirs[2])
    return [(1 - update) * new + update * states[0]]


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)), x.dtype)
