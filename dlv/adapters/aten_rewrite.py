"""Calls put differently, before they are matched: one layer for many calls, or the reverse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dlv.adapters.aten import Call, Given, Graph, Ref

# An operation of ours: the calls of torch.nn.functional.local_response_norm in one.
RESPONSE_NORM = "dlv.local_response_norm"
_ALONG = ("view", "reshape", "squeeze", "unsqueeze")
_POOLS = ("aten.avg_pool2d.default", "aten.avg_pool3d.default")


def rewrite(graph: Graph) -> None:
    """`unbind` becomes one `select` for each piece; the calls of a response norm become one."""
    graph.calls = [piece for call in graph.calls for piece in _pieces(call)]
    _join_response_norms(graph)


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
