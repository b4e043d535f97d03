"""Compares the training graph of a module with its evaluation graph, mode switches aside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dlv.adapters.aten.network import live_calls
from dlv.adapters.aten.record import CONSTANT, STATE, Argument, Call, Graph, Ref, Tagged
from dlv.adapters.aten.views import DROPOUTS
from dlv.adapters.checkpoint import Tensor

# Arguments that a rebuilt network sets by the mode of the module.
_SWITCHES = ("training", "train", "use_input_stats")
_SHARE = "dropout_p"
_STATISTICS = ("running_mean", "running_var")


def first_difference(
    trained: Graph,
    tested: Graph,
    constants: Mapping[str, Tensor],
    tested_constants: Mapping[str, Tensor],
) -> Call | None:
    """The first call of `tested` that `trained` has otherwise; None if a switch tells them apart.

    Both are graphs without writes. Layers that drop something are nothing when tested.
    """
    first, second = _Reading(trained, constants), _Reading(tested, tested_constants)
    for own, other in zip(first.told, second.told, strict=False):
        if own[1] != other[1]:
            return other[0]
    longer = second.told if len(second.told) > len(first.told) else first.told
    if len(second.told) != len(first.told):
        return longer[min(len(first.told), len(second.told))][0]
    if first.outputs != second.outputs:
        return second.told[-1][0] if second.told else Call("output", "output", (), ())
    return None


def always_dropping(tested: Graph) -> Call | None:
    """A call that drops numbers at random though the module is tested."""
    for call in live_calls(tested)[1]:
        share = call.get(_SHARE)
        if isinstance(share, (int, float)) and share > 0:
            return call
        p = call.get("p", call.get("dropout"))
        dropping = call.base in DROPOUTS or call.base in ("native_dropout", "lstm", "gru")
        if dropping and call.get("train") is True and p != 0:
            return call
    return None


def with_own_statistics(tested: Graph) -> Call | None:
    """A norm that is told to take the batch's statistics when tested, too, is given no others.

    The first such call.
    """
    calls = [_without_kept(call) for call in tested.calls]
    changed = (old for old, new in zip(tested.calls, calls, strict=True) if old != new)
    first = next(changed, None)
    tested.calls = calls
    return first


def _without_kept(call: Call) -> Call:
    if not any(call.get(switch) is True for switch in ("training", "use_input_stats")):
        return call
    return replace(
        call,
        arguments=tuple(
            replace(given, value=None) if given.name in _STATISTICS else given
            for given in call.arguments
        ),
    )


def fixed_norm(trained: Graph) -> Call | None:
    """A norm that keeps its statistics in training, too."""
    for call in live_calls(trained)[1]:
        switches = [call.get(switch) for switch in ("training", "use_input_stats")]
        if False in switches and call.get("running_mean") is not None:
            return call
    return None


class _Reading:
    """The calls that count, each with all that makes a difference when the module is tested."""

    def __init__(self, graph: Graph, constants: Mapping[str, Tensor]) -> None:
        self.names: dict[str, Any] = {}
        for placeholder in graph.placeholders:
            meaning: Any = (placeholder.kind, placeholder.target)
            if placeholder.kind == CONSTANT and placeholder.target in constants:
                meaning = _content(constants[placeholder.target])
            elif placeholder.kind not in STATE:
                meaning = placeholder.name
            self.names[placeholder.name] = meaning
        self.told: list[tuple[Call, Any]] = []
        for call in live_calls(graph)[1]:
            self._call(call)
        self.outputs = self._value(graph.outputs)

    def _call(self, call: Call) -> None:
        source = call.arguments[0].value if call.arguments else None
        if call.base in DROPOUTS and call.aten and isinstance(source, Ref):
            for dropped in filter(None, call.outputs):
                self.names[dropped] = self.names.get(source.name)
            return
        given = {
            argument.name or f"{place}": self._value(argument.value)
            for place, argument in enumerate(call.arguments)
            # torch omits defaults, so an argument of None in one mode may be missing in the other.
            if argument.value is not None and argument.name not in (*_SWITCHES, _SHARE)
        }
        for port, name in enumerate(call.outputs):
            if name is not None:
                self.names[name] = (len(self.told), port)
        self.told.append((call, (call.op, call.path, given)))

    def _value(self, value: Argument) -> Any:
        if isinstance(value, Ref):
            return ("value", self.names.get(value.name))
        if isinstance(value, list):
            return [self._value(item) for item in value]
        # 1, 1.0 and True are different arguments; NaN is equal to itself here.
        return value if isinstance(value, Tagged) else (type(value).__name__, repr(value))


def _content(tensor: Tensor) -> Any:
    return tensor.dtype, tensor.shape, b"".join(bytes(part) for part in tensor.parts())
