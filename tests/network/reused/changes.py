"""Random changes, made to a sketch by hand and told to dlv in its own words."""

from __future__ import annotations

import random
from collections.abc import Callable

from dlv.network.edits.edit import Editor
from dlv.network.patterns import parse
from tests.network.reused.labels import Labelled
from tests.network.reused.sketch import WEIGHTED, Layer, Sketch

Action = Callable[[Editor], object]
WORDS = {
    "RELU": 'RELU("{}")',
    "DROPOUT": 'DROPOUT("{}")',
    "ACT": 'ACT("TANH", "{}")',
    "NORM": 'NORM("BATCH", "{}")',
}
STILL = ("RELU", "DROPOUT", "ACT", "NORM")  # one input, and it keeps the shape


class Changes:
    """A sketch while it is changed, and the same actions for dlv."""

    def __init__(self, net: Sketch, rng: random.Random) -> None:
        self.net = net.copied()
        self.rng = rng
        self.actions: list[Action] = []
        self.told: list[str] = []
        self._count = 0

    def any(self, kinds: tuple[str, ...]) -> None:
        getattr(self, self.rng.choice(kinds))()

    def _free(self) -> str:
        self._count += 1
        return self.rng.choice(["new", "aa", "zz", "x_"]) + str(self._count)

    def _pick(self, test: Callable[[Layer], bool]) -> Layer | None:
        found = [e for e in self.net.layers.values() if e.ghost is None and test(e)]
        return self.rng.choice(found) if found else None

    def _do(self, text: str, action: Action) -> None:
        self.told.append(text)
        self.actions.append(action)

    def _put(self, layer: Layer) -> None:
        self.net.layers[layer.name] = layer

    def _reroute(self, old: str, new: str, but: str = "") -> None:
        for each in self.net.layers.values():
            if each.name != but:
                each.inputs = [(new if n == old else n, p) for n, p in each.inputs]
        if self.net.output == old:
            self.net.output = new

    def rename(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            layer = self._pick(lambda _: True)
            if layer is None:
                return
            old, new = layer.name, self._free()
            self._do(f"rename {old} {new}", _renamed(old, new))
            del self.net.layers[old]
            layer.name = new
            self._put(layer)
            self._reroute(old, new)

    def swap(self) -> None:
        """Two layers of one kind take each other's names."""
        first = self._pick(lambda e: e.op != "RESHAPE")
        second = self._pick(lambda e: first is not None and e.op == first.op and e is not first)
        if first is None or second is None:
            return
        a, b, free = first.name, second.name, self._free()
        for old, new in ((a, free), (b, a), (free, b)):
            self._do(f"rename {old} {new}", _renamed(old, new))
            layer = self.net.layers.pop(old)
            layer.name = new
            self._put(layer)
            self._reroute(old, new)

    def insert(self) -> None:
        layer = self._pick(lambda e: e.attrs.get("kind") != "split")
        if layer is None:
            return
        op, new = self.rng.choice(STILL[:3]), self._free()
        if layer.op in ("CONV", "DECONV", "NORM") and self.rng.random() < 0.2:
            op = "NORM" if layer.variant != "LAYER" and layer.op != "NORM" else op
        self._do(f"insert {op} {new} behind {layer.name}", _inserted(layer.name, op, new))
        made = self._layer(op, new, layer.name)
        self._put(made)
        self._reroute(layer.name, new, but=new)

    def insert_weights(self) -> None:
        """A convolution of as many channels somewhere behind another one."""
        layer = self._pick(lambda e: e.op in ("CONV", "DECONV"))
        if layer is None:
            return
        new, old, out = self._free(), layer.name, layer.attrs["out"]
        text = f'CONV("{new}", out={out}, kernel=1)'
        self._do(f"insert {text} behind {old}", lambda e: e.insert(old, parse(text)))
        params = {slot: f"{new}.{slot}" for slot in ("weight", "bias")}
        attrs = {"out": out, "kernel": [1, 1], "pad": 0}
        made = Layer(new, "CONV", [(layer.name, 0)], attrs, params, uid=new, kept=True)
        self._put(made)
        self._reroute(layer.name, new, but=new)

    def _layer(self, op: str, name: str, source: str) -> Layer:
        variant = {"ACT": "TANH", "NORM": "BATCH"}.get(op)
        slots = ("weight", "bias", "running_mean", "running_var") if op == "NORM" else ()
        params = {slot: f"{name}.{slot}" for slot in slots}
        return Layer(name, op, [(source, 0)], {}, params, variant, name)

    def delete(self) -> None:
        layer = self._pick(lambda e: e.op in STILL)
        self._delete(layer)

    def delete_weights(self) -> None:
        """A layer whose output has as many features as its input."""
        layer = self._pick(lambda e: e.op in ("CONV", "FULL") and self._square(e))
        self._delete(layer)

    def _square(self, layer: Layer) -> bool:
        source = self.net.layers.get(layer.inputs[0][0])
        return source is not None and source.attrs.get("out") == layer.attrs["out"]

    def _delete(self, layer: Layer | None) -> None:
        if layer is None or layer.name == self.net.output:
            return
        name = layer.name
        self._do(f"delete {name}", lambda e: e.delete(name))
        ghost = Layer(f"(was {name})", "RELU", list(layer.inputs), ghost=layer)
        del self.net.layers[name]
        self._put(ghost)
        self._reroute(name, ghost.name, but=ghost.name)

    def replace(self) -> None:
        layer = self._pick(lambda e: e.op in ("RELU", "DROPOUT", "ACT"))
        if layer is None:
            return
        op = self.rng.choice(["RELU", "DROPOUT", "ACT"])
        new = layer.name if self.rng.random() < 0.3 else self._free()
        text = WORDS[op].format(new)
        old = layer.name
        self._do(f"replace {old} {text}", lambda e: e.replace(old, parse(text)))
        del self.net.layers[old]
        made = self._layer(op, new, "")
        made.inputs = layer.inputs
        self._put(made)
        self._reroute(old, new)

    def replace_weights(self) -> None:
        """A convolution by another one with as many channels."""
        layer = self._pick(lambda e: e.op == "CONV" and not e.kept and "groups" not in e.attrs)
        if layer is None:
            return
        old, new, out = layer.name, self._free(), layer.attrs["out"]
        kernel, pad = layer.attrs["kernel"][0], layer.attrs["pad"]
        text = f'CONV("{new}", out={out}, kernel={kernel}, pad={pad})'
        self._do(f"replace {old} {text}", lambda e: e.replace(old, parse(text)))
        del self.net.layers[old]
        layer.name, layer.params = new, {slot: f"{new}.{slot}" for slot in layer.params}
        self._put(layer)
        self._reroute(old, new)

    def resize(self) -> None:
        layer = self._pick(lambda e: e.op in WEIGHTED and not e.kept)
        if layer is None or layer.name == self.net.output:
            return
        if any(each.ghost is not None for each in self.net.layers.values()):
            return  # what stood in between had as many features as before
        key = "hidden" if layer.op == "RNN" else "out"
        groups = layer.attrs.get("groups", 1)
        new = layer.attrs[key] + groups * self.rng.choice([-1, 1, 2, 3])
        if new < 1:
            return
        name = layer.name
        self._do(f"set {name} {new}", lambda e: e.set_attributes(name, **{key: new}))
        before = Labelled(self.net.copied())
        for each in self.net.layers.values():
            if set(each.params.values()) & set(layer.params.values()):
                each.attrs = {**each.attrs, key: new, "_set": True}
        self._follow(before)

    def _prune(self) -> None:
        """Nobody needs what no way leads from to the output."""
        needed, todo = {self.net.output}, [self.net.output]
        while todo:
            layer = self.net.layers.get(todo.pop())
            names = {name for name, _ in layer.inputs} - needed if layer else set()
            needed |= names
            todo += names
        self.net.layers = {k: v for k, v in self.net.layers.items() if k in needed}

    def _follow(self, before: Labelled) -> None:
        """What only repeats how many features there are."""
        now = Labelled(self.net)
        for each in self.net.layers.values():
            had, has = (len(labels.of(*each.inputs[0])) for labels in (before, now))
            a = each.attrs
            if had == has:
                continue
            if each.op == "CONV" and a.get("groups", 1) == had > 1:
                out = a["out"] if "_set" in a else a["out"] // had * has
                each.attrs = {**a, "groups": has, "out": out}
                if out % has:
                    raise ValueError(f"{out} channels in {has} groups")
            elif a.get("kind") == "split":
                if has % len(a["sizes"]):
                    raise ValueError(f"{has} channels in {len(a['sizes'])} equal parts")
                each.attrs = {**a, "sizes": [has // len(a["sizes"])] * len(a["sizes"])}
            else:
                continue
            now = Labelled(self.net)  # those behind follow in turn

    def delete_edge(self) -> None:
        layer = self._pick(lambda e: e.op == "CONCAT")
        if layer is None:
            return
        gone = self.rng.choice(layer.inputs)
        source = self.net.layers.get(gone[0])
        places = [i for i, port in enumerate(layer.inputs) if port[0] != gone[0]]
        left = [layer.inputs[i] for i in places]
        features = [set(Labelled(self.net).of(*port)) for port in layer.inputs]
        if sum(bool(each & features[layer.inputs.index(gone)]) for each in features) > 1:
            return  # the same features come in twice: which of them stayed, no network tells
        if not left or (source is not None and source.ghost) or gone[0] not in self.net.layers:
            return
        name = layer.name
        self._do(f"delete edge {gone[0]} {name}", lambda e: e.delete_edge(gone[0], name))
        before = Labelled(self.net.copied())
        layer.slots = [layer.slots[i] for i in places]
        layer.inputs = left
        self._prune()
        self._follow(before)


def _inserted(after: str, op: str, new: str) -> Action:
    return lambda e: e.insert(after, parse(WORDS[op].format(new)))


def _renamed(old: str, new: str) -> Action:
    return lambda e: e.rename(old, new)
