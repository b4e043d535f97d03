"""Numbers of derived networks: exact where carried over, the same everywhere where made."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.network.edits.edit as editing
import dlv.versions.copying as copying
from dlv.adapters import safetensors
from dlv.adapters.checkpoint import Tensor
from dlv.canonical import hash_bytes
from dlv.errors import Damaged, UsageError
from dlv.network.edits import reuse
from dlv.network.edits.axes import Run
from dlv.network.edits.edit import Editor
from dlv.network.edits.reuse import Plan, Reuse
from dlv.network.graph import Network
from dlv.network.inference import input_shapes, node_shapes
from dlv.network.json_form import read
from dlv.network.ops.op import op_of
from dlv.network.patterns import template
from dlv.weights.arrays import to_array

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
Action = Callable[[Editor], object]

GOLDEN = [
    "-0x1.952b4e0000000p-3",
    "-0x1.80e5c00000000p-3",
    "-0x1.68b8160000000p-4",
    "0x1.7187ba0000000p-3",
    "-0x1.d4b1880000000p-7",
]
GOLDEN_HASH = "d7e3f837ca568f72"


def item(name: str = "w", shape: tuple[int, ...] = (4, 5), **given: Any) -> Reuse:
    made = Reuse(name, "init", "float32", None, shape, "uniform", 25)
    return replace(made, **given)


def values(of: Reuse, seed: int = 0) -> Any:
    raw = copying.initial_values(of, seed)
    return to_array(of.dtype, of.shape or (), raw)


class TestBeginnings:
    def test_golden(self) -> None:
        """The same on every machine and with every numpy."""
        first = values(item(shape=(5,)), 7)
        assert [float(x).hex() for x in first] == GOLDEN
        assert hash_bytes(copying.initial_values(item(shape=(1000, 3)), 1))[:16] == GOLDEN_HASH

    def test_seed_and_name_decide(self) -> None:
        assert copying.initial_values(item(), 1) == copying.initial_values(item(), 1)
        assert copying.initial_values(item(), 1) != copying.initial_values(item(), 2)
        assert copying.initial_values(item("a"), 1) != copying.initial_values(item("b"), 1)

    def test_kaiming(self) -> None:
        found = values(item(shape=(400, 500)))
        assert found.min() == pytest.approx(-0.2, abs=1e-4)
        assert found.max() == pytest.approx(0.2, abs=1e-4)
        assert found.mean() == pytest.approx(0, abs=1e-3)
        assert found.std() == pytest.approx(0.2 / np.sqrt(3), rel=1e-2)

    def test_as_torch_does_it(self) -> None:
        """The bound of torch's own kaiming_uniform_ with a = sqrt(5)."""
        torch = pytest.importorskip("torch")
        weight = torch.empty(300, 20, 3, 3)
        torch.nn.init.kaiming_uniform_(weight, a=5**0.5)
        found = values(item(shape=(300, 20, 3, 3), fan_in=180))
        assert abs(found).max() == pytest.approx(float(weight.abs().max()), rel=1e-3)

    def test_ones_and_zeros(self) -> None:
        assert (values(item(fill="one")) == 1).all()
        assert (values(item(fill="zero")) == 0).all()
        assert values(item(shape=(), fill="one")) == 1

    @pytest.mark.parametrize(
        "dtype", ["float64", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "float8_e4m3fnuz"]
    )
    def test_rounded_to_the_nearest(self, dtype: str) -> None:
        torch = pytest.importorskip("torch")
        wide = np.random.default_rng(0).normal(0, 0.3, 5000)
        wide[:4] = [0, 1, -1, 1e-9]
        found = to_array(dtype, (5000,), copying.narrowed(wide, dtype))
        names = {"float8_e4m3": "float8_e4m3fn"}
        kind = getattr(torch, names.get(dtype, dtype))
        if dtype.startswith(("float8", "bfloat16")):
            single = torch.from_numpy(wide.astype(np.float32))
            wanted = single.to(kind).to(torch.float32).numpy()
        else:
            wanted = torch.from_numpy(wide).to(kind).numpy()
        # Halfway between two values either is the nearest.
        step = abs(found - wanted)
        assert (step == 0).mean() > 0.999
        assert (abs(found - wide) <= abs(wanted - wide) + 1e-9).all()

    def test_halfway_is_rounded_to_even(self) -> None:
        wide = np.array([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8])
        found = to_array("bfloat16", (3,), copying.narrowed(wide, "bfloat16"))
        assert list(found) == [1, 1 + 2**-6, -1]

    def test_whole_numbers(self) -> None:
        assert (
            copying.initial_values(item(dtype="int64", fill="one"), 0)
            == (1).to_bytes(8, "little") * 20
        )

    def test_a_dtype_without_numbers(self) -> None:
        with pytest.raises(UsageError, match="cannot initialize values of dtype"):
            copying.initial_values(item(dtype="raw:Q4_K"), 0)
        plan = Plan((item(dtype="raw:Q4_K"),), ())
        with pytest.raises(UsageError, match="cannot initialize"):
            copying.derived_tensors(plan, [])


def tensor(name: str, array: Any, dtype: str | None = None, shape: Any = None) -> Tensor:
    raw = array.tobytes()
    return Tensor(
        name, dtype or array.dtype.name, shape or array.shape, len(raw), lambda: raw, "weight"
    )


class TestCarried:
    @pytest.mark.parametrize("dtype", ["float32", "complex128", "bfloat16", "uint8"])
    def test_bytes_are_moved_not_numbers(self, dtype: str) -> None:
        """NaN with a payload, signed zeros: what lies there is what arrives."""
        size = {"float32": 4, "complex128": 16, "bfloat16": 2, "uint8": 1}[dtype]
        old = np.random.default_rng(1).integers(0, 256, 6 * size, np.uint8)
        made = item("w", (3, 4), dtype=dtype, old_shape=(2, 3), action="overlap", fill="zero")
        made = replace(made, runs=((Run(1, 0, 2),), (Run(0, 0, 1), Run(2, 1, 2))))
        (found,) = copying.derived_tensors(Plan((made,), ()), [tensor("w", old, dtype, (2, 3))])
        raw = bytes(found.read())
        assert found.nbytes == len(raw) == 12 * size

        def cell(row: int, column: int) -> bytes:
            return raw[(row * 4 + column) * size :][:size]

        for row in range(3):
            for column in range(4):
                if row and column != 1:
                    source = (row - 1) * 3 + (0 if column == 0 else column - 1)
                    assert cell(row, column) == old[source * size :][:size].tobytes()
                else:
                    assert cell(row, column) == bytes(size)

    def test_a_scalar(self) -> None:
        made = item("w", (), action="copy")
        (found,) = copying.derived_tensors(Plan((made,), ()), [tensor("w", np.float32(3))])
        assert bytes(found.read()) == np.float32(3).tobytes()

    def test_what_is_stored_is_not_what_it_says(self) -> None:
        made = item("w", (2,), action="overlap", old_shape=(3,), runs=((Run(0, 0, 2),),))
        with pytest.raises(Damaged, match="wrong length"):
            copying.carried_values(made, b"1234", copying.initial_values(made, 0))

    def test_roles_parts_and_ties_come_along(self) -> None:
        held = replace(
            tensor("w", np.zeros(3, "f4")), role="buffer", part=lambda _, size: b"\0" * size
        )
        plan = Plan((item("w", (3,), action="copy"), item("v", (3,), tied="w")), ())
        first, second = copying.derived_tensors(plan, [held])
        assert (first.role, first.part) == ("buffer", held.part)
        assert (second.role, second.tied) == ("weight", "w")

    def test_what_is_put_together_is_read_whole(self) -> None:
        held = replace(tensor("w", np.zeros(3, "f4")), part=lambda _, size: b"\0" * size)
        runs = ((Run(0, 0, 3),),)
        made = item("w", (4,), action="overlap", old_shape=(3,), runs=runs)
        (found,) = copying.derived_tensors(Plan((made,), ()), [held])
        assert found.part is None

    def test_unknown_dtypes_are_copied(self) -> None:
        held = tensor("w", np.zeros(36, "u1"), "raw:Q4", (64,))
        held = replace(held, nbytes=64)
        made = item("w", (64,), dtype="raw:Q4", action="copy")
        (found,) = copying.derived_tensors(Plan((made,), ()), [held])
        assert found.nbytes == 64


def _shapes(network: Network) -> dict[str, tuple[str, tuple[int, ...]]]:
    found = {}
    shapes = node_shapes(network)
    for node in network.nodes:
        wanted = op_of(node).parameter_shapes(node, input_shapes(node, shapes))
        for slot, name in node.params.items():
            found[name] = "float32", tuple(d for d in wanted[slot] or () if isinstance(d, int))
    return found


def _output(network: Network, tensors: list[Tensor], *given: Any) -> Any:
    torch = pytest.importorskip("torch")
    module: Any = pytest.importorskip("dlv.network.torch.module")
    torch.set_num_threads(1)
    held = {
        t.name: torch.from_numpy(np.array(to_array(t.dtype, t.shape, t.read()))) for t in tensors
    }
    built = module.build(network, held, {}).eval()
    with torch.no_grad():
        return built(*(torch.from_numpy(each) for each in given))


def _node(name: str, op: str, source: Any, variant: str | None = None, **attrs: Any) -> Any:
    slots = {
        "CONV": ("weight", "bias"),
        "FULL": ("weight", "bias"),
        "NORM": ("weight", "bias", "running_mean", "running_var"),
        "RNN": ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"),
    }
    inputs = [source] if isinstance(source, str) else source
    params = {slot: f"{name}.{slot}" for slot in slots.get(op, ())}
    made = {"name": name, "op": op, "inputs": inputs, "attrs": attrs, "params": params}
    return made if variant is None else {**made, "variant": variant}


def _mixed(channels: str) -> Network:
    """Two branches joined, a depthwise convolution, a norm, and a flatten: all that indexes."""
    last = channels == "last"
    where = {"channels": channels, **({"layout": "kernel_first"} if last else {})}
    axis = 3 if last else 1
    nodes = [
        _node("a", "CONV", "x", out=4, kernel=[3, 3], pad=1, **where),
        _node("b", "CONV", "x", out=3, kernel=[1, 1], **where),
        _node("cat", "CONCAT", ["a", "b"], axis=axis),
        _node("bn", "NORM", "cat", "BATCH", axis=axis),
        _node("each", "CONV", "bn", out=7, kernel=[1, 1], groups=7, **where),
        _node("deep", "CONV", "each", out=14, kernel=[3, 3], groups=7, **where),
        _node("relu", "RELU", "deep"),
        _node("c", "CONV", "relu", out=6, kernel=[1, 1], **where),
        _node("flat", "RESHAPE", "c", kind="flatten"),
        _node("fc", "FULL", "flat", out=5),
        _node("act", "RELU", "fc"),
        _node("head", "FULL", "act", out=3),
    ]
    shape = ["B", 6, 6, 2] if last else ["B", 2, 6, 6]
    form = {"dlv_network": 1, "inputs": [{"name": "x", "shape": shape}], "nodes": nodes}
    return read({**form, "outputs": ["head"]})[0]


def _lstm() -> Network:
    nodes = [
        _node("rnn", "RNN", "x", "LSTM", hidden=4, batch_first=True),
        _node("last", "RESHAPE", "rnn", kind="select", axis=1, index=-1),
        _node("head", "FULL", "last", out=3),
    ]
    form = {"dlv_network": 1, "inputs": [{"name": "x", "shape": ["B", 5, 2]}], "nodes": nodes}
    return read({**form, "outputs": ["head"]})[0]


def _random(shapes: dict[str, tuple[str, tuple[int, ...]]]) -> list[Tensor]:
    source = np.random.default_rng(3)
    found = []
    for name, (_, shape) in shapes.items():
        array = source.normal(0, 0.5, shape).astype(np.float32)
        found.append(tensor(name, abs(array) + 0.5 if name.endswith("var") else array))
    return found


@pytest.mark.parametrize("channels", ["first", "last"])
@pytest.mark.parametrize(
    "grown", [{"a": 7}, {"b": 5}, {"a": 6, "b": 4, "c": 9}, {"fc": 11}, {"c": 8, "fc": 6}], ids=str
)
def test_what_grows_with_zeros_computes_the_same(channels: str, grown: dict[str, int]) -> None:
    """If new entries are zero nothing changes: the old ones must all be in their places."""
    network = _mixed(channels)
    shapes = _shapes(network)
    held = _random(shapes)
    x = np.random.default_rng(4).normal(size=(2, 2, 6, 6)).astype(np.float32)
    x = x.transpose(0, 2, 3, 1).copy() if channels == "last" else x
    _compare(network, held, x, [lambda e: [e.set_attributes(n, out=o) for n, o in grown.items()]])


def test_a_recurrent_layer_that_grows_with_zeros() -> None:
    network = _lstm()
    x = np.random.default_rng(4).normal(size=(2, 5, 2)).astype(np.float32)
    held = _random(_shapes(network))
    _compare(network, held, x, [lambda e: e.set_attributes("rnn", hidden=7)])


def _compare(network: Network, held: list[Tensor], x: Any, actions: list[Action]) -> None:
    made = editing.edit(network, actions).network
    plan = reuse.plan(network, made, {t.name: (t.dtype, t.shape) for t in held})
    assert plan.count("overlap") >= 2
    assert not plan.count("init")
    quiet = [replace(item, fill="zero") if item.fill != "one" else item for item in plan.tensors]
    found = copying.derived_tensors(Plan(tuple(quiet), plan.dropped), held)
    before, after = _output(network, held, x), _output(made, found, x)
    assert before.shape == after.shape
    assert float((before - after).abs().max()) < 1e-5


class TestDigits:
    """A trained network: what is carried over is far better than chance before any training."""

    CASES: dict[str, tuple[Action, float]] = {  # noqa: RUF012
        "insert RELU": (lambda e: e.insert("conv2", template("RELU")), 0.97),
        "insert BN": (lambda e: e.insert("conv1", template("NORM", "BATCH")), 0.97),
        "conv1 16 -> 24": (lambda e: e.set_attributes("conv1", out=24), 0.8),
        "conv2 32 -> 48": (lambda e: e.set_attributes("conv2", out=48), 0.8),
        "conv2 32 -> 24": (lambda e: e.set_attributes("conv2", out=24), 0.8),
        "fc1 64 -> 96": (lambda e: e.set_attributes("fc1", out=96), 0.8),
    }

    @pytest.mark.parametrize("name", CASES)
    def test_before_any_training(self, name: str) -> None:
        action, least = self.CASES[name]
        network = read(json.loads((DIGITS / "base" / "network.json").read_text()))[0]
        held = safetensors.open(str(DIGITS / "base" / "step-600.safetensors")).tensors
        made = editing.edit(network, [action]).network
        plan = reuse.plan(network, made, {t.name: (t.dtype, t.shape) for t in held})
        with np.load(DIGITS / "test.npz") as test:
            x, y = test["x"], test["y"]

        def accuracy(tensors: list[Tensor]) -> float:
            return float((_output(made, tensors, x).argmax(1).numpy() == y).mean())

        assert accuracy(copying.derived_tensors(plan, held)) >= least
        scratch = Plan(tuple(replace(i, action="init") for i in plan.tensors), ())
        assert accuracy(copying.derived_tensors(scratch, held)) < 0.3
