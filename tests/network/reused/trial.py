"""One random change of one network: dlv's weights and numbers against those made by hand."""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import torch

import dlv.network.edits.reuse as reuse
import dlv.network.torch.module as torch_module
import dlv.versions.copying as copying
from dlv.errors import DlvError
from dlv.network.edits.edit import edit
from dlv.network.edits.slicing import slice as cut
from dlv.network.forward import Forward
from dlv.network.graph import Network
from dlv.network.inference import input_shapes, node_shapes
from dlv.network.json_form import read
from dlv.network.ops.op import op_of
from dlv.network.program import program
from tests.network.reused.changes import Changes
from tests.network.reused.labels import expected
from tests.network.reused.sketch import Run, Sketch
from tests.onnx_runs import run as run_onnx
from tests.onnx_runs import stored

WEIGHTLESS = ("rename", "swap", "insert", "delete", "replace")
WEIGHTS = ("insert_weights", "delete_weights", "replace_weights")
SIZES = ("resize", "delete_edge")
Arrays = dict[str, Any]


def tensors_of(net: Network, seed: int) -> Arrays:
    """Weights that have no number twice."""
    rng = np.random.default_rng(seed)
    shapes = node_shapes(net)
    found: Arrays = {}
    for node in net.nodes:
        wanted = op_of(node).parameter_shapes(node, input_shapes(node, shapes))
        for slot, name in node.params.items():
            shape = [dim for dim in wanted[slot] or () if isinstance(dim, int)]
            values = np.asarray(rng.normal(size=shape) * 0.5)
            if slot == "running_var":
                values = np.abs(values) + 0.5
            found.setdefault(name, values.astype(np.float32))
    return found


class Trial:
    """`outcome`: refused, or what kind of change was made and held. AssertionError otherwise."""

    def __init__(self, build: Any, seed: int) -> None:
        self.seed = zlib.crc32(f"{build.__name__} {seed}".encode())
        self.rng = random.Random(self.seed)
        self.before: Sketch = build()
        self.network = read(self.before.json())[0]
        self.tensors = tensors_of(self.network, self.seed)
        self.told: list[str] = [build.__name__]

    def outcome(self, *, engines: bool = True) -> str:
        rng = self.rng
        kind = rng.choice(["same", "same", "weights", "sizes"])
        changes = Changes(self.before, rng)
        first = None
        try:
            kinds = {"same": WEIGHTLESS, "weights": WEIGHTLESS + WEIGHTS, "sizes": SIZES}[kind]
            for _ in range(rng.randint(1, 3)):
                changes.any(kinds)
            if kind == "sizes":
                for _ in range(rng.randint(0, 2)):
                    changes.any(WEIGHTLESS)
            sound = expected(self.before, changes.net, self.tensors)
        except ValueError as error:
            first = error
        self.told += changes.told
        try:
            made = edit(self.network, changes.actions).network
            whole, known = self._derived(made, None)
            ends = self._ends(changes.net, rng) if rng.random() < 0.4 else None
            if ends is not None and first is None:
                self.told.append(f"slice {ends[0]} to {ends[1]}")
                made = cut(made, *ends, support=rng.choice(["keep", "inputs"])).network
                kind = "slice"
        except DlvError as error:
            self.told.append(error.message)
            return "refused"
        assert first is None, (self.told, first)
        if not changes.told and kind != "slice":
            return "refused"
        derived, _ = self._derived(made, known)
        self._weights(made, derived, sound)
        if engines:
            self._numbers(made, derived, {**whole, **derived}, changes.net)
        return kind

    def _ends(self, net: Sketch, rng: random.Random) -> tuple[str, str] | None:
        names = [each.name for each in net.layers.values() if each.ghost is None]
        plain = [name for name in names if net.layers[name].attrs.get("kind") != "split"]
        return rng.choice(names), rng.choice(plain)

    def _derived(self, made: Network, within: reuse.Side | None) -> tuple[Arrays, reuse.Side]:
        shapes = {name: ("float32", each.shape) for name, each in self.tensors.items()}
        plan = reuse.plan(self.network, made, shapes, within=within)
        held = [stored(name, each) for name, each in self.tensors.items()]
        found = {
            each.name: np.frombuffer(each.read(), np.float32).reshape(each.shape)
            for each in copying.derived_tensors(plan, held, 1)
        }
        known = {name: ("float32", each.shape) for name, each in found.items()}
        return found, reuse.Side(made, known, within)

    def _weights(self, made: Network, derived: Arrays, sound: Arrays) -> None:
        """Each element that is still there is where it belongs, and none is anywhere else."""
        assert made.tensor_names() == set(derived), self.told
        for name, values in derived.items():
            wanted = sound.get(name)
            old = self.tensors.get(name, np.empty(0))
            if wanted is None:
                assert not np.isin(values, old).any(), (*self.told, name)
                continue
            assert values.shape == wanted.shape, (*self.told, name, values.shape, wanted.shape)
            new = np.isnan(wanted)
            assert np.array_equal(values[~new], wanted[~new]), (*self.told, name)
            assert not np.isin(values[new], old).any(), (*self.told, name)

    def _numbers(self, made: Network, derived: Arrays, whole: Arrays, net: Sketch) -> None:
        """The derived network with its weights, by three engines, and the sketch by torch."""
        torch.manual_seed(self.seed)
        given = {name: torch.randn(2, *shape) for name, shape in net.inputs.items()}
        held = {name: torch.from_numpy(each.copy()) for name, each in whole.items()}
        with torch.no_grad():
            run = Run(net, held, given)
            wanted = run.value(*made.outputs[0]).numpy()
            inputs = {i.name: run.value(i.name) for i in made.inputs}
            module = torch_module.build(made, {n: held[n] for n in derived}, {}).eval()
            by_torch = module(*inputs.values())
        arrays = {name: each.numpy() for name, each in inputs.items()}
        steps = program(made)
        by_numpy = Forward(steps, lambda name: derived[name])(arrays)
        by_onnx = run_onnx(made, derived, arrays)[0]
        for what, found in (("torch", by_torch), ("numpy", by_numpy), ("onnx", by_onnx)):
            off = np.abs(np.asarray(found) - wanted) / np.maximum(1, np.abs(wanted))
            assert off.shape == wanted.shape, (*self.told, what)
            assert off.max(initial=0) < 1e-3, (*self.told, what, off.max())
