"""The calls of a model: how many, in which order, and what its inputs are."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dlv.adapters.keras.config import Call, Layer, Model, Ref, found
from dlv.adapters.keras.understood import INPUT, MODEL, Unsayable, asks_nothing
from dlv.errors import Damaged
from dlv.network.fields import DTYPES
from dlv.network.sizes import Dim, Shape


def ordered(
    model: Model, known: Iterable[tuple[str, int, int]], what: str
) -> list[tuple[Layer, int]]:
    """All calls, each behind those that it needs, otherwise as written."""
    fed = {key[:2] for key in known}
    calls = [
        (layer, number)
        for layer in model.layers
        for number in range(len(layer.calls))
        if (layer.name, number) not in fed
    ]
    place = {(layer.name, number): at for at, (layer, number) in enumerate(calls)}
    waits = [0] * len(calls)
    users: list[list[int]] = [[] for _ in calls]
    for at, (layer, number) in enumerate(calls):
        for key in {ref.key[:2] for ref in layer.calls[number].refs}:
            if key in place:
                users[place[key]].append(at)
                waits[at] += 1
    ready = [at for at, count in enumerate(waits) if not count]
    order: list[tuple[Layer, int]] = []
    while ready:
        at = heapq.heappop(ready)
        order.append(calls[at])
        for user in users[at]:
            waits[user] -= 1
            if not waits[user]:
                heapq.heappush(ready, user)
    if len(order) < len(calls):
        names = [calls[at][0].name for at, count in enumerate(waits) if count]
        raise Damaged(f"the model {model.name!r} in {what} has a cycle", why=", ".join(names[:5]))
    return order


def symbolic(shape: Sequence[int | None] | None) -> Shape | None:
    """A shape of Keras: the first axis is the batch, free ones have no length."""
    if shape is None:
        return None
    dims: list[Dim] = list(shape)
    if dims and dims[0] is None:
        dims[0] = "B"
    return tuple(dims)


def dtype_of(told: Any) -> str:
    """By its name or by that of a policy; what is not known counts as float32."""
    if isinstance(told, dict):
        inner = told.get("config")
        told = inner.get("name") if isinstance(inner, dict) else None
    return told if isinstance(told, str) and told in DTYPES else "float32"


def check_input(layer: Layer) -> None:
    """Unsayable where an input is more than numbers of a shape."""
    for key, value in layer.config.items():
        off = key in INPUT and (key not in ("sparse", "ragged", "optional") or not value)
        if not off:
            raise Unsayable(f"the input {layer.name!r} has {key[:40]} {value!r:.40}")


def check_model(model: Model) -> None:
    odd = sorted(model.settings - MODEL)
    if odd:
        raise Unsayable(f"the model {model.name!r} has the setting {odd[0]!r:.40}")


def refs_of(call: Call, model: Model) -> list[Ref]:
    """The tensors that a model is called with, in the order of its inputs."""
    odd = [
        key
        for key, value in call.kwargs.items()
        if not asks_nothing(key, value) and not (key == "mask" and isinstance(value, Ref))
    ]
    if odd:
        raise Unsayable(f"the model {model.name!r} is called with {odd[0]!r:.40}")
    [first, *more] = call.args or [None]
    if isinstance(first, dict):
        keys = model.keys or [ref.layer for ref in model.inputs]
        if more or sorted(first) != sorted(keys):
            raise Unsayable(f"the model {model.name!r} is called with other keys than its own")
        return list(found([first[key] for key in keys]))
    if model.keys:
        raise Unsayable(f"the model {model.name!r} has keys, it is called without")
    refs = list(found(call.args))
    if any(not isinstance(item, Ref) for item in _flat(call.args)):
        raise Unsayable(f"the model {model.name!r} is called with more than tensors")
    return refs


def _flat(value: Any) -> Iterator[Any]:
    for item in value:
        if isinstance(item, list):
            yield from _flat(item)
        else:
            yield item


def count(model: Model) -> int:
    """How often layers are called in it, those of models in it as often as these are.

    A model without layers counts as one: to call it takes time too.
    """
    total = 0
    for layer in model.layers:
        inside = 1 if layer.model is None else count(layer.model)
        total += max(1, len(layer.calls)) * inside
    return max(1, total)


def given(model: Model) -> list[Layer]:
    """The layers of a model through which its inputs come, in the order of its inputs."""
    by_name = {layer.name: layer for layer in model.layers if layer.kind == "InputLayer"}
    if model.sequential or not model.inputs:
        return list(by_name.values())[: 1 if model.sequential else None]
    missing = [ref.layer for ref in model.inputs if ref.layer not in by_name]
    if missing:
        raise Unsayable(f"the input {missing[0]!r} has no layer")
    return [by_name[ref.layer] for ref in model.inputs]
