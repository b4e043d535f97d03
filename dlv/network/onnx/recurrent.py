"""LSTM, GRU and RNN in ONNX's order of gates, both ways, with states that come in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dlv.kinds import Array
from dlv.network.aten.precision import Function, Precision, Unknown
from dlv.network.ops.activation import sigmoid

_CURVES: Mapping[str, Callable[[Array], Array]] = {
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
}
_USUAL = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
Curves = Sequence[Callable[[Array], Array]]
# Of what comes in, the states, the recurrent weight, both biases, and what else there is.
Step = Callable[[Curves, Array, list[Array], Array, Array, Any], list[Array]]


def _lstm(
    f: Curves, given: Array, states: list[Array], inner: Array, bias: Array, peeping: Any
) -> list[Array]:
    hidden, cell = states
    enter, show, forget, new = np.split(given + hidden @ inner + bias, 4, axis=-1)
    p_enter, p_show, p_forget = (0, 0, 0) if peeping is None else np.split(peeping, 3)
    kept = f[0](forget + p_forget * cell) * cell
    cell = kept + f[0](enter + p_enter * cell) * f[1](new)
    return [f[0](show + p_show * cell) * f[2](cell), cell]


def _gru(
    f: Curves, given: Array, states: list[Array], inner: Array, bias: Array, reset_last: Any
) -> list[Array]:
    [hidden] = states
    width = hidden.shape[-1]
    kept = hidden @ inner[:, : 2 * width] + bias[: 2 * width]
    update, reset = np.split(f[0](given[..., : 2 * width] + kept), 2, axis=-1)
    last, last_bias = inner[:, 2 * width :], bias[2 * width :]
    theirs = (
        reset * (hidden @ last + last_bias) if reset_last else (reset * hidden) @ last + last_bias
    )
    new = f[1](given[..., 2 * width :] + theirs)
    return [(1 - update) * new + update * hidden]


def _rnn(
    f: Curves, given: Array, states: list[Array], inner: Array, bias: Array, _: Any
) -> list[Array]:
    return [f[0](given + states[0] @ inner + bias)]


_STEPS: Mapping[str, Step] = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


def _run(
    kind: str,
    _: Precision,
    x: Array,
    weight: Array,
    inner: Array,
    bias: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    peepholes: Array | None = None,
    *,
    activations: Sequence[str] | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Array, ...]:
    """The states of all steps, (steps, ways, batch, hidden), and the last ones."""
    ways, hidden = inner.shape[0], inner.shape[-1]
    usual = _USUAL[kind]
    names = [name.lower() for name in activations or usual * ways]
    if hidden_size not in (None, hidden) or len(names) != ways * len(usual):
        raise Unknown("another size, or other curves, than its weights")
    if layout:
        x = x.swapaxes(0, 1)
    steps, batch = x.shape[:2]
    if sequence_lens is not None and (sequence_lens != steps).any():
        raise Unknown("sequences of several lengths")
    count = 2 if kind == "LSTM" else 1
    starts = [np.zeros((ways, batch, hidden), x.dtype) for _ in range(count)]
    for place, given in enumerate((initial_h, initial_c)[:count]):
        if given is not None:
            starts[place] = given.swapaxes(0, 1) if layout else given
    biases = np.zeros((ways, 2 * _GATES[kind] * hidden), x.dtype) if bias is None else bias
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    sequence = np.empty((steps, ways, batch, hidden), x.dtype)
    ends = []
    for way, back in zip(range(ways), backwards, strict=True):
        curves = [_CURVES[name] for name in names[way * len(usual) : (way + 1) * len(usual)]]
        outer_bias, inner_bias = np.split(biases[way], 2)
        more = peepholes[way] if peepholes is not None else linear_before_reset or None
        states = [start[way] for start in starts]
        for step in reversed(range(steps)) if back else range(steps):
            given = x[step] @ weight[way].T + outer_bias
            states = _STEPS[kind](curves, given, states, inner[way].T, inner_bias, more)
            sequence[step, way] = states[0]
        ends.append(states)
    last = [np.stack([states[n] for states in ends]) for n in range(count)]
    if layout:
        sequence = sequence.transpose(2, 0, 1, 3)
        last = [each.swapaxes(0, 1) for each in last]
    return (sequence, *last)


RECURRENT: Mapping[str, Function] = {kind: partial(_run, kind) for kind in _STEPS}
