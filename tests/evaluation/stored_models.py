"""Small networks whose weights lie in a real pack, with bounds made by plain linear algebra."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from dlv.adapters import network_json
from dlv.canonical import hash_bytes, matrix_hash
from dlv.disk.durable import path_of
from dlv.evaluation.data import Batch
from dlv.network.graph import Network
from dlv.network.program import Program, Step, params_of, program
from dlv.network.torch.module import build
from dlv.pas.chunks import SUFFIX
from dlv.pas.encode import Part, encode_delta, encode_materialised, encode_object
from dlv.pas.footer import Encoding
from dlv.pas.layouts.fixed import Fixed
from dlv.pas.layouts.registry import default_layout
from dlv.pas.layouts.segments import Layout
from dlv.pas.level import Level, level
from dlv.pas.packs import PackWriter
from dlv.weights.bounds import KIND, BoundMatrix, Record, encoding_id
from dlv.weights.bounds_norms import LevelNorms, NodeNorms
from dlv.weights.store import MatrixStore
from tests.memory_index import MemoryIndex

Array = NDArray[Any]
Floats = NDArray[np.float64]
Tensors = dict[str, Array]

UP = 1 + 1e-7
OVERLAP = 3.0  # of 3x3 kernels, in norm


@dataclass
class StoredModel:
    """What `progressive` is handed, and the numbers that were stored."""

    network: Network
    program: Program
    store: MatrixStore
    hashes: dict[str, str]
    tensors: Tensors
    record: Record

    def scores(self, x: Array, changed: Tensors | None = None, dtype: Any = torch.float64) -> Array:
        """By torch, with other tensors in the place of the stored ones."""
        return torch_scores(self.network, {**self.tensors, **(changed or {})}, x, dtype)


def torch_scores(network: Network, tensors: Tensors, x: Array, dtype: Any = torch.float64) -> Array:
    held = {name: torch.from_numpy(np.array(array)).to(dtype) for name, array in tensors.items()}
    module = build(network, held, {})
    module.eval()
    with torch.no_grad():
        found: Array = module(torch.from_numpy(np.array(x)).to(dtype)).numpy()
    return found


@dataclass
class SmallRows:
    """Rows of one input; counts how often they are gone through."""

    x: Array
    passes: int = 0

    @property
    def count(self) -> int:
        return len(self.x)

    def batches(self, size: int) -> Iterator[Batch]:
        self.passes += 1
        for start in range(0, len(self.x), size):
            yield Batch(start, {"x": self.x[start : start + size]}, None)


# Storing


@dataclass
class _Pack:
    """A pack that is written plane by plane, as archives are."""

    folder: Path
    index: MemoryIndex

    def write(
        self, tensors: Tensors, layouts: Mapping[str, Layout], bases: Mapping[str, Array]
    ) -> MatrixStore:
        (self.folder / "packs").mkdir(parents=True)
        (self.folder / "tmp").mkdir()
        parts: list[tuple[int, Part]] = []
        file = self.folder / "tmp" / "new"
        with file.open("wb") as out:
            pack = PackWriter(out)
            for name, array in tensors.items():
                layout = layouts[name]
                made: list[Part] = []
                encoding = _encoded(array, layout, bases.get(name), made)
                if name in bases:
                    base: list[Part] = []
                    below = _encoded(bases[name], layout, None, base)
                    number = pack.add_encoding(below)
                    parts += [(number, part) for part in base]
                number = pack.add_encoding(encoding)
                parts += [(number, part) for part in made]
            parts.sort(key=lambda each: -1 if each[1].plane is None else each[1].plane)
            for number, part in parts:
                members = [(number, part.start, part.count)]
                done = part.encoded
                pack.add_chunk(part.kind, part.plane, members, done.raw, done.codec, done.data)
            footer = pack.finish()
        return self._publish(file, footer)

    def add_object(self, data: bytes) -> None:
        file = self.folder / "tmp" / "new"
        with file.open("wb") as out:
            pack = PackWriter(out)
            done = encode_object(data)[0]
            owner = [(hash_bytes(data), 0, len(data))]
            pack.add_chunk(KIND, None, owner, done.raw, done.codec, done.data)
            footer = pack.finish()
        self._publish(file, footer)

    def _publish(self, file: Path, footer: Any) -> MatrixStore:
        name = hash_bytes(file.read_bytes())
        there = path_of(self.folder / "packs", name, SUFFIX)
        there.parent.mkdir(parents=True, exist_ok=True)
        file.rename(there)
        self.index.add_footer(footer, name)
        return MatrixStore(self.folder / "packs", self.folder / "tmp", self.index)


def _unread(found: Level) -> float:
    """The norm of dW at most, whatever the unread bits are."""
    return float(np.linalg.norm(np.maximum(found.high - found.centre, found.centre - found.low)))


def any_completion(name: str, depth: int, weight: Array, found: Level) -> float:
    """A `change` whose bounds hold for every matrix with these first planes."""
    return _unread(found) * UP


def _encoded(array: Array, layout: Layout, base: Array | None, into: list[Part]) -> Encoding:
    raw, dtype, shape = array.tobytes(), array.dtype.name, array.shape
    name = matrix_hash(dtype, shape, raw)
    if base is None:
        return encode_materialised(raw, dtype, shape, name, into.append, layout=layout)
    below = matrix_hash(dtype, shape, base.tobytes())
    kind = "sub" if layout.layout_id == "ieee" else "xor"
    return encode_delta(
        kind, raw, base.tobytes(), dtype, shape, name, below, into.append, layout=layout
    )


def stored_model(
    folder: Path,
    network: Network,
    tensors: Tensors,
    *,
    x: Array,
    layout: str = "fixed",
    schedule: Sequence[int] = (1, 2, 3),
    bases: Mapping[str, Array] | None = None,
    change: Callable[[str, int, Array, Level], float] | None = None,
    helps: Mapping[str, bool] | None = None,
) -> StoredModel:
    """Weights in `layout`, the rest in `ieee`; a level for each depth of `schedule`.

    `bases`: matrices that tensors are stored as deltas of. `change`: a norm of dW to record
    instead of the true one.
    """
    bases = bases or {}
    shapes = {name: (each.dtype.name, each.shape) for name, each in tensors.items()}
    steps = program(network, shapes)
    layouts: dict[str, Layout] = dict.fromkeys(tensors, default_layout())
    if layout == "fixed":
        for name in steps.matrices:
            raws = [tensors[name].tobytes()]
            raws += [bases[name].tobytes()] if name in bases else []
            layouts[name] = Fixed.of(raws, tensors[name].dtype.name, tensors[name].shape)
    pack = _Pack(folder, MemoryIndex())
    store = pack.write(tensors, layouts, bases)
    hashes = {
        name: matrix_hash(each.dtype.name, each.shape, each.tobytes())
        for name, each in tensors.items()
    }
    record = record_of(network, steps, store, hashes, tensors, x, schedule, change, helps)
    pack.add_object(record.encode())
    return StoredModel(network, steps, store, hashes, tensors, record)


def record_of(
    network: Network,
    steps: Program,
    store: MatrixStore,
    hashes: Mapping[str, str],
    tensors: Tensors,
    x: Array,
    schedule: Sequence[int],
    change: Callable[[str, int, Array, Level], float] | None,
    helps: Mapping[str, bool] | None,
) -> Record:
    nodes = []
    for step in steps.linear:
        name = network.aliases.get(step.node.params["weight"], step.node.params["weight"])
        found = _norms(step, name, store, hashes[name], tensors, change)
        if change is not None:
            # The completions have other norms themselves.
            more = 2 * found.levels[schedule[0] - 1].dn
            found = replace(
                found,
                opn=found.opn + more * OVERLAP,
                opn_any=found.opn_any + more * OVERLAP,
                fro=found.fro + more,
                absmax=found.absmax + more,
                levels=tuple(replace(each, dfro=each.dfro + more) for each in found.levels),
            )
        nodes.append(found)
    names = [name for name in tensors if name in hashes]
    whole = {name: _planes(store, hashes[name]) for name in names}
    levels = []
    for depth in schedule:
        partial = dict.fromkeys(steps.matrices, depth)
        levels.append({name: min(partial.get(name, 99), whole[name]) for name in names})
    return Record(
        network=network.id,
        input=(tuple(x.shape[1:]),),
        matrices=tuple(
            BoundMatrix(name, hashes[name], encoding_id(hashes[name], store.encoding))
            for name in names
        ),
        nodes=tuple(nodes),
        schedule=(*levels, whole),
        helps={"f64": True, "strict": True} if helps is None else helps,
    )


def _planes(store: MatrixStore, matrix: str) -> int:
    found = store.encoding(matrix)
    assert found is not None
    return found.planes


def _norms(
    step: Step,
    name: str,
    store: MatrixStore,
    matrix: str,
    tensors: Tensors,
    change: Callable[[str, int, Array, Level], float] | None,
) -> NodeNorms:
    def folded(weight: Array) -> Floats:
        held = {**tensors, name: weight.astype(np.float64)}
        found: Floats = np.asarray(params_of(step, held.__getitem__)["weight"], np.float64)
        return found

    exact = folded(tensors[name])
    groups = step.node.attrs.get("groups", 1)
    overlap = 1.0
    for k, s, d in zip(
        step.node.attrs.get("kernel", ()),
        step.node.attrs.get("stride", ()),
        step.node.attrs.get("dilation", ()),
        strict=True,
    ):
        overlap *= math.ceil(k * math.gcd(s, d) / s)
    levels = []
    for depth in range(1, _planes(store, matrix)):
        found = level(matrix, depth, store.encoding, store)
        if not isinstance(found, Level):
            continue
        left = exact - folded(found.centre)
        dn = _spectral(left, groups) * UP
        if change is not None:
            dn = change(name, depth, tensors[name], found)
        rows = tuple(float(each) for each in np.maximum(_row_norms(left) * UP, 0.0))
        if change is not None:
            rows = (dn,) * len(rows)
        fro = max(float(np.linalg.norm(left)) * UP, dn)
        levels.append(LevelNorms(depth, dn, fro, rows))
    finite = bool(np.isfinite(tensors[name]).all())
    any_size = _spectral(exact, groups) * UP * math.sqrt(overlap) if finite else math.inf
    return NodeNorms(
        name=step.node.name,
        opn=any_size,
        opn_any=any_size,
        fro=float(np.linalg.norm(exact)) * UP,
        absmax=float(np.abs(exact).max(initial=0.0)),
        finite=finite,
        rows=tuple(float(each) * UP for each in _row_norms(exact)),
        levels=tuple(levels),
    )


def _spectral(weight: Floats, groups: int) -> float:
    parts = np.split(weight.reshape(len(weight), -1), groups)
    if not np.isfinite(weight).all():
        return math.inf
    return max(float(np.linalg.norm(part, 2)) if part.size else 0.0 for part in parts)


def _row_norms(weight: Floats) -> Floats:
    found: Floats = np.sqrt((weight.reshape(len(weight), -1) ** 2).sum(axis=1))
    return found


# Networks


def network_of(nodes: list[dict[str, Any]], shape: Sequence[int]) -> Network:
    data = {
        "dlv_network": 1,
        "inputs": [{"name": "x", "shape": ["B", *shape], "dtype": "float32"}],
        "nodes": nodes,
        "outputs": [nodes[-1]["name"]],
    }
    return network_json.parse(json.dumps(data).encode())[0]


def full(name: str, source: str, out: int) -> dict[str, Any]:
    params = {"weight": f"{name}.weight", "bias": f"{name}.bias"}
    made = {"name": name, "op": "FULL", "inputs": [source], "attrs": {"out": out}}
    return {**made, "params": params}


def conv(name: str, source: str, out: int, kernel: int = 3, **attrs: Any) -> dict[str, Any]:
    params = {"weight": f"{name}.weight", "bias": f"{name}.bias"}
    given = {"out": out, "kernel": [kernel, kernel], **attrs}
    return {"name": name, "op": "CONV", "inputs": [source], "attrs": given, "params": params}


def plain(name: str, op: str, *sources: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "op": op, "inputs": list(sources), **more}


def batch_norm(name: str, source: str) -> dict[str, Any]:
    slots = ("weight", "bias", "running_mean", "running_var")
    params = {slot: f"{name}.{slot}" for slot in slots}
    return plain(name, "NORM", source, variant="BATCH", params=params)


def mlp(wide: int = 48) -> tuple[Network, dict[str, tuple[int, ...]]]:
    nodes = [full("fc1", "x", wide), plain("r1", "RELU", "fc1")]
    nodes += [full("fc2", "r1", wide), plain("r2", "RELU", "fc2"), full("fc3", "r2", 10)]
    shapes: dict[str, tuple[int, ...]] = {"fc1.weight": (wide, 64), "fc1.bias": (wide,)}
    shapes |= {"fc2.weight": (wide, wide), "fc2.bias": (wide,)}
    return network_of(nodes, (64,)), shapes | {"fc3.weight": (10, wide), "fc3.bias": (10,)}


def cnn(*, norm: bool = False) -> tuple[Network, dict[str, tuple[int, ...]]]:
    """Two convolutions, the second with a way around it, pools, and a classifier."""
    nodes = [conv("c1", "x", 8, pad=1)]
    shapes: dict[str, tuple[int, ...]] = {"c1.weight": (8, 1, 3, 3), "c1.bias": (8,)}
    if norm:
        nodes.append(batch_norm("bn1", "c1"))
        slots = ("weight", "bias", "running_mean", "running_var")
        shapes |= {f"bn1.{slot}": (8,) for slot in slots}
    nodes.append(plain("r1", "RELU", nodes[-1]["name"]))
    window = {"kernel": [2, 2], "stride": [2, 2]}
    nodes.append(plain("p1", "POOL", "r1", variant="MAX", attrs=window))
    nodes += [conv("c2", "p1", 8, pad=1), plain("s", "ADD", "p1", "c2"), plain("r2", "RELU", "s")]
    nodes += [plain("f", "RESHAPE", "r2", attrs={"kind": "flatten"}), full("fc", "f", 10)]
    shapes |= {"c2.weight": (8, 8, 3, 3), "c2.bias": (8,)}
    return network_of(nodes, (1, 8, 8)), shapes | {"fc.weight": (10, 128), "fc.bias": (10,)}


def digits() -> tuple[Array, Array]:
    found = load_digits()
    return (found.data / 16).astype(np.float32), found.target.astype(np.int64)


def fresh(shapes: Mapping[str, tuple[int, ...]], seed: int) -> Tensors:
    rng = np.random.default_rng(seed)
    made: Tensors = {}
    for name, shape in shapes.items():
        if name.endswith("running_var"):
            made[name] = rng.uniform(0.5, 2.0, shape)
        elif len(shape) == 1:
            made[name] = 0.1 * rng.normal(size=shape) + (name == "bn1.weight")
        else:
            made[name] = rng.normal(size=shape) * math.sqrt(2 / math.prod(shape[1:]))
        made[name] = made[name].astype(np.float32)
    return made


@cache
def trained(kind: str, seed: int = 0) -> tuple[Network, Tensors, Array, Array]:
    """A network trained on digits for a moment; inputs and labels that it has not seen."""
    network, shapes = {"mlp": mlp, "cnn": cnn, "bn": lambda: cnn(norm=True)}[kind]()
    tensors = fresh(shapes, seed)
    x, labels = digits()
    if kind != "mlp":
        x = x.reshape(-1, 1, 8, 8)
    held = {name: torch.from_numpy(array.copy()) for name, array in tensors.items()}
    torch.manual_seed(seed)
    module = build(network, held, {})
    module.train()
    optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], 3e-3)
    order = np.random.default_rng(seed)
    for _ in range(160):
        some = order.integers(0, 1200, 64)
        loss = torch.nn.functional.cross_entropy(
            module(torch.from_numpy(x[some])), torch.from_numpy(labels[some])
        )
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    found = {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}
    return network, {name: found[name] for name in tensors}, x[1200:], labels[1200:]
