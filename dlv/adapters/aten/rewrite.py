"""Calls put differently, before they are matched: one layer for many calls, or the reverse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dlv.adapters.aten.record import STATE, Argument, Call, Given, Graph, Ref, Tagged, Value

# An operation of ours: the calls of torch.nn.functional.local_response_norm in one.
RESPONSE_NORM = "dlv.local_response_norm"
# Calls of an inner graph under a mode: how many arguments come before the graph.
_WRAPPERS = {"higher_order.wrap_with_set_grad_enabled": 1, "higher_order.wrap_with_autocast": 4}
_ALONG = ("view", "reshape", "squeeze", "unsqueeze")
_POOLS = ("aten.avg_pool2d.default", "aten.avg_pool3d.default")


def unfold(graph: Graph) -> None:
    """Inner graphs are unfolded; `unbind` becomes one `select` for each piece."""
    if any(call.op in _WRAPPERS for call in graph.calls):
        unfolded = _Unfolded(graph.values)
        unfolded.add(graph.calls, {}, "")
        graph.calls = unfolded.calls
    graph.calls = [piece for call in graph.calls for piece in _pieces(call)]


def join(graph: Graph) -> None:
    """A product with a transposed weight is a linear layer; the calls of a response norm are one.

    Call this on a graph without writes: calls are matched by their inputs alone.
    """
    _join_linear(graph)
    _join_response_norms(graph)


class _Unfolded:
    """Calls one after the other, those of inner graphs under names of their own."""

    def __init__(self, values: dict[str, Value]) -> None:
        self.calls: list[Call] = []
        self.values = values

    def add(self, calls: list[Call], known: dict[str, Argument], prefix: str) -> None:
        """`known`: what stands for the values of the inner graph that the calls are from."""
        for call in calls:
            arguments = tuple(
                replace(given, value=_replaced(given.value, known, prefix))
                for given in call.arguments
            )
            outputs = tuple(name and prefix + name for name in call.outputs)
            moved = replace(call, arguments=arguments, outputs=outputs)
            inner = _wrapped(moved)
            if inner is None:
                self.calls.append(moved)
            else:
                self._unfold(moved, *inner)

    def _unfold(self, call: Call, inner: Graph, given: list[Argument], detached: bool) -> None:
        prefix = f"{next(iter(call.outputs), None) or call.name}/"
        names = [placeholder.name for placeholder in inner.placeholders]
        known = dict(zip(names, given, strict=True))
        for name, value in inner.values.items():
            if name not in known:
                self.values[prefix + name] = value
        self.add(inner.calls, known, prefix)
        for port, output in zip(call.outputs, inner.outputs, strict=True):
            if port is None:
                continue
            source = (Given("self", _replaced(output, known, prefix)),)
            held = self.values.get(port)
            stops = detached and held is not None and held.dtype is not None
            op = "aten.detach.default" if stops else "aten.alias.default"
            self.calls.append(Call(port, op, source, (port,), False, call.path, call.visit))


def _replaced(value: Argument, known: dict[str, Argument], prefix: str) -> Argument:
    if isinstance(value, Ref):
        return known[value.name] if value.name in known else Ref(prefix + value.name)
    if isinstance(value, list):
        return [_replaced(item, known, prefix) for item in value]
    return value


def _wrapped(call: Call) -> tuple[Graph, list[Argument], bool] | None:
    """The inner graph that only runs under a mode, what goes in, and whether gradients end."""
    skipped = _WRAPPERS.get(call.op)
    if skipped is None or len(call.arguments) <= skipped:
        return None
    values = [given.value for given in call.arguments]
    mode, held = values[0 if skipped == 1 else 2], values[skipped]
    if not isinstance(held, Tagged) or not isinstance(held.value, Graph):
        return None
    inner, given = held.value, values[skipped + 1 :]
    # An autocast that is on casts what the calls themselves do not tell.
    if not isinstance(mode, bool) or (skipped > 1 and mode):
        return None
    outputs = inner.outputs
    if len(given) != len(inner.placeholders) or len(outputs) != len(call.outputs):
        return None
    if not all(isinstance(output, Ref) for output in outputs):
        return None
    return inner, given, skipped == 1 and not mode


def _pieces(call: Call) -> list[Call]:
    axis = call.get("dim", 0)
    if call.op != "aten.unbind.int" or type(axis) is not int or not call.arguments:
        return [call]
    return [
        replace(
            call,
            name=f"{call.name}:{index}",
            op="aten.select.int",
            arguments=(call.arguments[0], Given("dim", axis), Given("index", index)),
            outputs=(name,),
            several=False,
        )
        for index, name in enumerate(call.outputs)
        if name is not None
    ]


def _join_linear(graph: Graph) -> None:
    """addmm(bias, x, weight.t()), which decomposed graphs have, is linear(x, weight, bias)."""
    state = {item.name for item in graph.placeholders if item.kind in STATE}
    turned = {}
    for call in graph.calls:
        weight = call.get("self")
        if isinstance(weight, Ref) and weight.name in state and _transposes(call):
            turned[call.outputs[0]] = weight
    for place, call in enumerate(graph.calls if turned else ()):
        last = call.get("mat2")
        if not isinstance(last, Ref) or last.name not in turned:
            continue
        given = [call.get("self"), turned[last.name]]
        if call.op == "aten.addmm.default" and len(call.arguments) == 3:
            given = [call.get("mat1"), turned[last.name], given[0]]
        elif call.op != "aten.mm.default":
            continue
        names = ("input", "weight", "bias")
        arguments = tuple(Given(name, value) for name, value in zip(names, given, strict=False))
        graph.calls[place] = replace(call, op="aten.linear.default", arguments=arguments)


def _transposes(call: Call) -> bool:
    """Whether it swaps the two axes of a matrix."""
    if call.op == "aten.transpose.int":
        return sorted((call.get("dim0") or 0, call.get("dim1") or 0)) in ([0, 1], [-2, -1])
    if call.op == "aten.permute.default":
        return bool(call.get("dims") == [1, 0])
    return call.op == "aten.t.default"


def _join_response_norms(graph: Graph) -> None:
    """div(x, pow(k + alpha * mean of x * x over channels, beta)) is one layer."""
    if not any(call.op == "aten.pow.Tensor_Scalar" for call in graph.calls):
        return
    makers = {call.outputs[0]: call for call in graph.calls if len(call.outputs) == 1}
    for place, call in enumerate(graph.calls):
        if call.op == "aten.div.Tensor":
            found = _response_norm(call, makers)
            if found is not None:
                graph.calls[place] = found


def _response_norm(call: Call, makers: dict[str | None, Call]) -> Call | None:
    x = call.get("self")

    def behind(ref: Any, op: str) -> Call | None:
        made = makers.get(ref.name) if isinstance(ref, Ref) else None
        return made if made is not None and made.op == op and made.visit == call.visit else None

    power = behind(call.get("other"), "aten.pow.Tensor_Scalar")
    plus = power and behind(power.get("self"), "aten.add.Tensor")
    times = plus and behind(plus.get("self"), "aten.mul.Tensor")
    if not (power and plus and times) or len(plus.arguments) != 2:
        return None
    size, pad, ref = 0, None, times.get("self")
    for _ in range(8):
        made = makers.get(ref.name) if isinstance(ref, Ref) else None
        if made is None or made.visit != call.visit:
            return None
        if made.op in _POOLS and not size:
            kernel = made.get("kernel_size")
            if not isinstance(kernel, list) or set(kernel[1:]) != {1}:
                return None
            size = kernel[0]
        elif made.op == "aten.pad.default" and pad is None:
            pad = made.get("pad")
        elif made.op == "aten.mul.Tensor":
            break
        elif made.base not in _ALONG:
            return None
        ref = made.get("self")
    numbers = (times.get("other"), power.get("exponent"), plus.get("other"))
    squared = makers.get(ref.name) if isinstance(ref, Ref) else None
    if (
        squared is None
        or squared.op != "aten.mul.Tensor"
        or (squared.get("self"), squared.get("other")) != (x, x)
        or type(size) is not int
        or size < 1
        or not isinstance(pad, list)
        or pad[-2:] != [size // 2, (size - 1) // 2]
        or any(pad[:-2])
        or not all(type(number) in (int, float) for number in numbers)
    ):
        return None
    alpha, beta, k = numbers
    given = {"self": x, "size": size, "alpha": alpha, "beta": beta, "k": k}
    arguments = tuple(Given(name, value) for name, value in given.items())
    return replace(call, op=RESPONSE_NORM, arguments=arguments)
