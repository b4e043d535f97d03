"""Which element of a weight is which after a change: every feature is given a label of its own.

A label says who made a feature, however often layers were renamed, put in or taken out since. An
element of a weight stays with the labels of its row and column.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from tests.network.reused.sketch import Layer, Sketch

Labels = list[Hashable]


class Labelled:
    """The labels of all features of a sketch."""

    def __init__(self, net: Sketch) -> None:
        self.net = net
        self._known: dict[tuple[str, int], Labels] = {}
        self._sizes: dict[tuple[str, int], int] = {}  # places of a map

    def of(self, name: str, port: int = 0) -> Labels:
        if (name, port) not in self._known:
            self._known[name, port] = self._made(name, port)
        return self._known[name, port]

    def _made(self, name: str, port: int) -> Labels:
        if name in self.net.inputs:
            shape = self.net.inputs[name]
            return [(name, i) for i in range(shape[-1] if len(shape) == 2 else shape[0])]
        layer = self.net.layers[name]
        given = [self.of(*each) for each in layer.inputs]
        if layer.ghost is not None:
            return self.made(layer.ghost, given[0])
        return self.made(layer, given[0], given, port)

    def made(self, layer: Layer, first: Labels, given: Any = (), port: int = 0) -> Labels:
        a, op = layer.attrs, layer.op
        if layer.kept:
            return first
        if op == "CONV" and a.get("groups", 1) == len(first) > 1:
            return [(each, m) for each in first for m in range(a["out"] // len(first))]
        if op in ("CONV", "DECONV", "FULL", "RNN"):
            out, groups = int(a.get("out") or a["hidden"]), a.get("groups", 1)
            return [(layer.uid, *divmod(i, out // groups)) for i in range(out)]
        if op == "CONCAT":
            pairs = zip(layer.slots, given, strict=True)
            return [(layer.uid, slot, each) for slot, labels in pairs for each in labels]
        if op == "ADD":
            return list(zip(*given, strict=True))
        if op == "ATTENTION":
            return list(given[2])
        if op == "RESHAPE" and a["kind"] == "flatten":
            return [(each, place) for each in first for place in range(a["_places"])]
        if op == "RESHAPE" and a["kind"] == "split":
            start = sum(a["sizes"][:port])
            return first[start : start + a["sizes"][port]]
        if op == "RESHAPE" and a["kind"] == "slice":
            return first[a.get("start") : a.get("end")]
        return first

    def slots(self, layer: Layer) -> dict[str, list[Any]]:
        """Of each tensor, the labels of the elements; nested like the tensor's first axes."""
        first = self.of(*layer.inputs[0])
        own = self.made(layer, first)
        a, op = layer.attrs, layer.op
        if op == "NORM":
            return dict.fromkeys(layer.params, first)
        if op == "RNN":
            rows: list[Any] = [(gate, each) for gate in range(4) for each in own]
            return {
                slot: rows
                if slot.startswith("bias")
                else _table(rows, first if "_ih_" in slot else own)
                for slot in layer.params
            }
        groups = a.get("groups", 1)
        size, width = len(first) // groups, len(own) // groups
        if op == "DECONV":
            table = [
                [(i, o) for o in own[width * (k // size) : width * (k // size + 1)]]
                for k, i in enumerate(first)
            ]
        else:
            table = [
                [(o, i) for i in first[size * (k // width) : size * (k // width + 1)]]
                for k, o in enumerate(own)
            ]
        if a.get("layout") == "in_out":
            table = [list(column) for column in zip(*table, strict=True)]
        return {"weight": table, "bias": own}


def _table(rows: Sequence[Any], columns: Sequence[Any]) -> list[Any]:
    return [[(row, column) for column in columns] for row in rows]


def expected(before: Sketch, after: Sketch, tensors: dict[str, Any]) -> dict[str, Any]:
    """What each tensor that is still there must be; NaN where an element is new."""
    old, new = Labelled(before), Labelled(after)
    uses: dict[tuple[str, str], Layer] = {
        (each.uid, slot): each for each in before.layers.values() for slot in each.params
    }
    found: dict[str, Any] = {}
    for layer in after.layers.values():
        if layer.ghost is not None:
            continue
        told = new.slots(layer) if layer.params else {}
        for slot, name in layer.params.items():
            source = uses.get((layer.uid, slot))
            if source is None or source.params[slot] != name or name in found:
                continue
            had = old.slots(source)[slot]
            found[name] = _moved(tensors[name], had, told[slot])
    return found


def _moved(tensor: Any, had: list[Any], has: list[Any]) -> Any:
    """The elements of a tensor where their labels are; the same label again in its order."""
    flat_had, flat_has = _flat(had), _flat(has)
    axes = 2 if isinstance(had[0], list) else 1
    rest = tensor.shape[axes:]
    values = tensor.reshape(-1, int(np.prod(rest, dtype=int)))
    places = _numbered(flat_had)
    made = np.full((len(flat_has), values.shape[1]), np.nan, values.dtype)
    for at, label in enumerate(_occurrences(flat_has)):
        if label in places:
            made[at] = values[places[label]]
    lead = (len(has), len(has[0])) if axes == 2 else (len(has),)
    return made.reshape(*lead, *rest)


def _flat(labels: list[Any]) -> list[Any]:
    return [each for row in labels for each in row] if isinstance(labels[0], list) else labels


def _occurrences(labels: list[Any]) -> list[Any]:
    seen: dict[Any, int] = defaultdict(int)
    found = []
    for label in labels:
        found.append((label, seen[label]))
        seen[label] += 1
    return found


def _numbered(labels: list[Any]) -> dict[Any, int]:
    return {label: place for place, label in enumerate(_occurrences(labels))}
