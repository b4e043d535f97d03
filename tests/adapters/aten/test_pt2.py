"""dlv.adapters.aten.pt2: programs as torch saves them, against the live export; hostile ones."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dlv.adapters import registry
from dlv.adapters.aten import pt2
from dlv.adapters.checkpoint import Checkpoint
from dlv.adapters.detect import detect
from dlv.errors import Damaged, DlvError, NewerFormat, NotFound, UnsafeInput, UsageError
from dlv.network.graph import Network
from dlv.network.verify import verify

torch: Any = pytest.importorskip("torch", reason="torch writes these files: dlv[torch]")

from torch import nn  # noqa: E402

from dlv.adapters.aten.live import quiet  # noqa: E402
from tests.zoo.models import ZOO  # noqa: E402
from tests.zoo.traced import trace, traced  # noqa: E402

CONFIG = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"
MODEL = "models/model.json"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A model of the zoo as torch saves it."""
    made: dict[str, Path] = {}

    def one(name: str) -> Path:
        if name not in made:
            made[name] = traced(name).save(tmp_path_factory.mktemp(name))
        return made[name]

    return one


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Checkpoint]:
    checkpoint = pt2.open(str(path))
    try:
        yield checkpoint
    finally:
        checkpoint.close()


def read_all(path: Path) -> None:
    with opened(path) as checkpoint:
        for tensor in checkpoint.tensors:
            tensor.read()


def bits(tensor: Any) -> bytes:
    flat = tensor.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


def restored(checkpoint: Checkpoint) -> bytes:
    out = io.BytesIO()
    assert checkpoint.skeleton is not None
    pt2.restore(out, checkpoint.skeleton, checkpoint.tensors)
    return out.getvalue()


@pytest.mark.parametrize("name", sorted(ZOO))
class TestZoo:
    def test_the_network_is_that_of_the_live_module(
        self, name: str, saved: Callable[[str], Path]
    ) -> None:
        live = traced(name)
        with opened(saved(name)) as checkpoint:
            network = checkpoint.network
            assert network is not None
            assert network.id == live.network.id
            assert network.constant_shapes == live.network.constant_shapes
            origin = dict(network.origin or {})
            assert (origin["importer"], origin["version"]) == ("torch.pt2", torch.__version__)
            named = {t.name: bytes(t.read()) for t in checkpoint.constants}
            assert named == {t.name: bytes(t.read()) for t in live.checkpoint.constants}
            state = {t.name: (t.dtype, t.shape) for t in checkpoint.tensors}
            problems = verify(network, state)
            assert [str(p) for p in problems if p.severity == "error"] == []

    def test_weights_are_bit_exact(self, name: str, saved: Callable[[str], Path]) -> None:
        state = traced(name).module.state_dict()
        parameters = dict(traced(name).module.named_parameters(remove_duplicate=False))
        with opened(saved(name)) as checkpoint:
            assert sorted(state) == sorted(tensor.name for tensor in checkpoint.tensors)
            for tensor in checkpoint.tensors:
                assert bytes(tensor.read()) == bits(state[tensor.name])
                assert tensor.shape == tuple(state[tensor.name].shape)
                assert tensor.role == ("weight" if tensor.name in parameters else "buffer")
            ties = {t.name: t.tied for t in checkpoint.tensors if t.tied}
            assert ties == dict(traced(name).network.aliases)

    def test_it_comes_back_byte_for_byte(self, name: str, saved: Callable[[str], Path]) -> None:
        assert detect(str(saved(name))) == "pt2"
        with opened(saved(name)) as checkpoint:
            assert checkpoint.format == "pt2"
            assert checkpoint.exact
            assert restored(checkpoint) == saved(name).read_bytes()
            # What the skeleton holds is what is no weight.
            assert checkpoint.skeleton is not None
            weights = sum(t.nbytes for t in checkpoint.tensors if not t.tied)
            assert len(checkpoint.skeleton) < saved(name).stat().st_size - weights + 10_000


def test_torch_is_not_needed(saved: Callable[[str], Path]) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from dlv.adapters.aten import pt2\n"
        f"found = pt2.open({str(saved('gpt'))!r})\n"
        "print(found.network.id, len(found.tensors))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [traced("gpt").network.id, "29"]


def test_in_the_registry(saved: Callable[[str], Path]) -> None:
    with contextlib.closing(registry.adapter("pt2").open(str(saved("shared")))) as found:
        assert found.format == "pt2"
    with pytest.raises(UsageError, match=r"no \.pt2"):
        pt2.save(io.BytesIO(), [], {})
    with pytest.raises(NotFound):
        pt2.open("/no/such/file.pt2")


class Various(nn.Module):
    """Dtypes, views, an empty tensor, and arguments of every kind."""

    def __init__(self) -> None:
        super().__init__()
        base = torch.arange(24, dtype=torch.float32)
        self.view = nn.Parameter(base[6:18].reshape(3, 4).t())
        self.whole = nn.Parameter(base)
        for name in ("bfloat16", "float16", "float64", "int8", "uint8", "bool", "complex64"):
            self.register_buffer(f"of_{name}", torch.arange(3).to(getattr(torch, name)))
        self.register_buffer("empty", torch.zeros(0, 3))
        self.register_buffer("of_float8", torch.ones(4).to(torch.float8_e4m3fn))

    def forward(self, x: Any) -> Any:
        y = x @ self.view + self.whole.sum()
        with torch.no_grad():
            y = y * torch.complex(x, x).abs().sum()
        y = torch.cond(y.sum() > 0, lambda a: a + 1, lambda a: a - 1, (y,))
        y = torch.clamp(y, min=None, max=float("inf"))
        y = y.to(memory_format=torch.contiguous_format, dtype=torch.float64)
        left, right = torch.split(y, [1, 2], -1)
        scaled = torch.nn.functional.interpolate(y[None], scale_factor=2.0)
        quantiles = torch.full((x.shape[0], 2), 1.5) + torch.ones(2, dtype=torch.bfloat16)
        return left, right, scaled, quantiles, torch.var_mean(y, dim=0), 3, None


def test_arguments_of_every_kind(tmp_path: Path) -> None:
    with quiet():
        found = trace(Various(), torch.randn(2, 4))
        path = found.save(tmp_path)
    with opened(path) as checkpoint:
        assert checkpoint.network is not None
        for ours, theirs in zip(checkpoint.network.nodes, found.network.nodes, strict=True):
            assert ours == theirs
        assert checkpoint.network.id == found.network.id
        state = found.module.state_dict()
        for tensor in checkpoint.tensors:
            assert bytes(tensor.read()) == bits(state[tensor.name]), tensor.name
            for start in range(0, tensor.nbytes if tensor.part else 0, 7):
                assert tensor.part is not None
                size = min(7, tensor.nbytes - start)
                assert bytes(tensor.part(start, size)) == bits(state[tensor.name])[start:][:size]
        assert checkpoint.exact
        assert restored(checkpoint) == path.read_bytes()


class TestDecomposed:
    """Programs that were taken down to the core operations before they were saved."""

    @pytest.mark.parametrize("training", [False, True])
    def test_residual_network(self, tmp_path: Path, training: bool) -> None:
        live = traced("resnet16")
        module = copy.deepcopy(live.module).train(training)
        with decomposed(module, live.inputs, tmp_path) as checkpoint:
            network = checkpoint.network
            assert network is not None
            words = [(node.name, node.op, node.variant) for node in network.nodes]
            wanted = [(node.name, node.op, node.variant) for node in live.network.nodes]
            plain = {"avgpool", "flatten"}
            assert [w for w in words if w[1] != "RESHAPE" and w[0] not in plain] == [
                w for w in wanted if w[1] != "RESHAPE" and w[0] not in plain
            ]
            assert network.node("fc").params == {"weight": "fc.weight", "bias": "fc.bias"}
            assert network.node("bn1").params["running_var"] == "bn1.running_var"

    @pytest.mark.parametrize("name", ["lenet", "bert", "functional"])
    def test_it_computes_the_same(self, tmp_path: Path, name: str) -> None:
        torch_module = pytest.importorskip("dlv.network.torch.module")
        live = traced(name)
        module = copy.deepcopy(live.module).eval()
        with decomposed(module, live.inputs, tmp_path) as checkpoint:
            assert checkpoint.network is not None
            state = {tensor.name: tensor for tensor in checkpoint.tensors}
            found = verify(checkpoint.network, {n: (t.dtype, t.shape) for n, t in state.items()})
            assert [str(p) for p in found if p.severity == "error"] == []
            tensors = {n: each.clone() for n, each in module.state_dict().items()}
            rebuilt = torch_module.build(checkpoint.network, tensors, live.constants).eval()
        wanted, got = module(*live.inputs), rebuilt(*live.inputs)
        if not isinstance(wanted, tuple):
            wanted, got = (wanted,), (got,)
        for theirs, ours in zip(wanted, got, strict=True):
            assert torch.allclose(theirs, ours, rtol=1e-5, atol=1e-5)


@contextlib.contextmanager
def decomposed(module: Any, inputs: Any, folder: Path) -> Iterator[Checkpoint]:
    with quiet():
        program = torch.export.export(module, inputs).run_decompositions()
        torch.export.save(program, folder / "m.pt2")
    with opened(folder / "m.pt2") as checkpoint:
        yield checkpoint


def parts(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@contextlib.contextmanager
def refused(kind: type[DlvError], text: str) -> Iterator[None]:
    """An error of that kind, with that in what it says."""
    with pytest.raises(kind) as caught:
        yield
    assert type(caught.value) is kind
    assert text in f"{caught.value.message}: {caught.value.why}"


def pack(path: Path, entries: dict[str, bytes], *, deflated: str = "") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            how = zipfile.ZIP_DEFLATED if deflated and name.endswith(deflated) else None
            archive.writestr(zipfile.ZipInfo(name), data, how or zipfile.ZIP_STORED)
    return path


class Attack:
    """A small saved program that can be changed and opened again."""

    def __init__(self, original: Path, folder: Path) -> None:
        self.folder = folder
        self.original = original
        self.entries = parts(original)
        self.root = next(iter(self.entries)).partition("/")[0]

    def name(self, part: str) -> str:
        return f"{self.root}/{part}"

    def json(self, part: str) -> Any:
        return json.loads(self.entries[self.name(part)])

    def open(self, changes: dict[str, Any] | None = None, **options: str) -> Checkpoint:
        """With other JSON or bytes in some parts; None removes one."""
        entries = dict(self.entries)
        for part, value in (changes or {}).items():
            if value is None:
                del entries[self.name(part)]
            else:
                data = value if isinstance(value, bytes) else json.dumps(value).encode()
                entries[self.name(part)] = data
        path = pack(self.folder / "attack.pt2", entries, **options)
        checkpoint = pt2.open(str(path))
        checkpoint.close()
        return checkpoint


@pytest.fixture
def attack(saved: Callable[[str], Path], tmp_path: Path) -> Attack:
    return Attack(saved("functional"), tmp_path)


class TestHostile:
    def test_unchanged(self, attack: Attack) -> None:
        network = attack.open().network
        assert network is not None
        assert network.id == traced("functional").network.id

    def test_every_kind_of_cut(self, attack: Attack) -> None:
        whole = attack.original.read_bytes()
        path = attack.folder / "cut.pt2"
        for end in [*range(0, len(whole), 211), len(whole) - 1]:
            path.write_bytes(whole[:end])
            with pytest.raises(DlvError):
                read_all(path)
        path.write_bytes(whole + b"\0")
        with pytest.raises(DlvError):
            pt2.open(str(path))

    def test_flipped_bits(self, attack: Attack) -> None:
        whole = attack.original.read_bytes()
        path = attack.folder / "flipped.pt2"
        dice = random.Random(5)
        for _ in range(200):
            changed = bytearray(whole)
            for _ in range(dice.choice([1, 1, 2, 5])):
                changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
            path.write_bytes(changed)
            with contextlib.suppress(DlvError), opened(path) as checkpoint:
                for tensor in checkpoint.tensors:
                    tensor.read()
                assert restored(checkpoint) == changed

    @pytest.mark.parametrize("part", [MODEL, CONFIG, CONSTANTS])
    def test_lying_json(self, attack: Attack, part: str) -> None:
        """One value replaced by another: an error that says so, or a network that can be stored."""
        original = attack.json(part)
        places: list[tuple[Any, Any]] = []
        todo = [original]
        while todo:
            held = todo.pop()
            keys = list(held) if isinstance(held, dict) else range(len(held))
            for key in keys:
                if key not in ("stack_trace", "torch_fn", "module_call_graph", "guards_code"):
                    places.append((held, key))
                    if isinstance(held[key], (dict, list)):
                        todo.append(held[key])
        dice = random.Random(11)
        others: list[Any] = [
            *([], {}, None, True, "", "x", "\ud800", -1, 0, 3, 10**30, 1.5, [[]], {"as_int": -5}),
            *({"as_none": True}, {"as_tensor": {"name": "nowhere"}}, ["a"], {"as_ints": [10**20]}),
            *({"as_tensor": {"name": "add"}}, {"as_int": 1 << 40}, 999, {"as_graph": {}}),
        ]
        for held, key in dice.sample(places, min(len(places), 350)):
            kept = held[key]
            held[key] = dice.choice(others)
            with contextlib.suppress(DlvError):
                network = attack.open({part: original}).network
                assert network is not None
                assert Network.from_canonical(network.canonical()).id == network.id
                verify(network)
            held[key] = kept

    def test_entries_that_lead_out(self, attack: Attack) -> None:
        config = attack.json(CONFIG)
        for name in ("../../../etc/passwd", "/etc/passwd", "..", "", "weight_99"):
            config["config"]["first.weight"]["path_name"] = name
            with refused(Damaged, "missing"):
                attack.open({CONFIG: config})
        attack.entries["../evil"] = b""
        with pytest.raises(UnsafeInput):
            attack.open()

    def test_impossible_sizes(self, attack: Attack) -> None:
        def changed(**meta: Any) -> dict[str, Any]:
            config = attack.json(CONFIG)
            what = config["config"]["first.weight"]["tensor_meta"]
            for key, numbers in meta.items():
                lengths = [{"as_int": number} for number in numbers]
                what[key] = lengths if key != "storage_offset" else lengths[0]
            return {CONFIG: config}

        huge = 1 << 40
        for wrong in (
            changed(sizes=[huge, huge]),
            changed(sizes=[huge, 6]),
            changed(sizes=[8, 7]),
            changed(strides=[7, 1]),
            changed(storage_offset=[1]),
            changed(sizes=[8]),
            changed(sizes=[-8, 6]),
            changed(sizes=[1] * 70, strides=[1] * 70),
        ):
            with refused(UnsafeInput, "first.weight"):
                attack.open(wrong)
        # Far more elements than bytes: every one of them the same four bytes.
        with refused(UnsafeInput, "far larger"):
            attack.open(changed(sizes=[1 << 20, 1 << 20], strides=[0, 0]))

    def test_deep_and_large(self, attack: Attack) -> None:
        with refused(Damaged, "nested too deeply"):
            attack.open({MODEL: b"[" * 100_000})
        with refused(Damaged, "not JSON"):
            attack.open({MODEL: b"{"})
        start = time.monotonic()
        with refused(UnsafeInput, "too large"):
            attack.open({MODEL: bytes(pt2.MOST_JSON_BYTES + 1)}, deflated=".json")
        assert time.monotonic() - start < 15

    def test_graphs_in_graphs(self, attack: Attack) -> None:
        program = attack.json(MODEL)
        nodes = program["graph_module"]["graph"]["nodes"]
        call = {
            "target": "torch.ops.higher_order.wrap_with_set_grad_enabled",
            "outputs": [{"as_tensor": {"name": "y"}}],
            "metadata": {},
            "name": "w",
        }
        inner: dict[str, Any] = {
            "inputs": [],
            "outputs": [{"as_tensor": {"name": "y"}}],
            "nodes": [],
            "tensor_values": {},
            "sym_int_values": {},
        }
        for _ in range(8):
            given = [
                {"name": "", "arg": {"as_bool": False}, "kind": 1},
                {"name": "", "arg": {"as_graph": {"name": "g", "graph": inner}}, "kind": 1},
            ]
            inner = {**inner, "nodes": [{**call, "inputs": given}]}
        nodes.extend(inner["nodes"])
        with pytest.raises(Damaged):
            attack.open({MODEL: program})

    def test_what_is_refused(self, attack: Attack) -> None:
        config, program = attack.json(CONFIG), attack.json(MODEL)
        config["config"]["gain"]["use_pickle"] = True
        with refused(UsageError, "pickle"):
            attack.open({CONFIG: config})
        with refused(UnsafeInput, "compressed"):
            attack.open(deflated="weight_0")
        newer = {**program, "schema_version": {"major": 9, "minor": 0}}
        with refused(NewerFormat, "9"):
            attack.open({MODEL: newer})
        with refused(UsageError, "several"):
            attack.open({"models/other.json": program})
        with refused(UsageError, "no exported program"):
            attack.open({MODEL: None})
        with refused(Damaged, "archive_format"):
            attack.open({"archive_format": None})
        with refused(Damaged, "byte order"):
            attack.open({"byteorder": b"middle"})
        with refused(Damaged, "no data/weights"):
            attack.open({CONFIG: None})
        del config["config"]["gain"]
        with refused(Damaged, "lacks the tensor gain:"):
            attack.open({CONFIG: config})
        with refused(Damaged, "lacks the constant"):
            attack.open({CONSTANTS: {"config": {}}})

    def test_older_and_mixed_archives(self, attack: Attack) -> None:
        path = pack(
            attack.folder / "old.pt2", {"serialized_exported_program.json": b"{}", "version": b"5"}
        )
        with pytest.raises(UsageError, match=r"before 2\.8") as caught:
            pt2.open(str(path))
        assert "save it again" in (caught.value.hint or "")
        attack.entries["other/data"] = b""
        with refused(UnsafeInput, "more than one folder"):
            attack.open()

    def test_wrong_order(self, attack: Attack) -> None:
        program = attack.json(MODEL)
        program["graph_module"]["graph"]["nodes"].reverse()
        with refused(Damaged, "nothing makes"):
            attack.open({MODEL: program})
        program = attack.json(MODEL)
        nodes = program["graph_module"]["graph"]["nodes"]
        nodes.append(nodes[0])
        with refused(Damaged, "made twice"):
            attack.open({MODEL: program})

    def test_big_endian(self, attack: Attack) -> None:
        entries = {}
        for name, data in attack.entries.items():
            if "/weight_" in name or "/tensor_" in name:
                item = 8 if len(data) == 8 else 4
                data = b"".join(data[at : at + item][::-1] for at in range(0, len(data), item))
            entries[name] = b"big" if name.endswith("/byteorder") else data
        path = pack(attack.folder / "big.pt2", entries)
        state = traced("functional").module.state_dict()
        with opened(path) as checkpoint:
            assert checkpoint.network is not None
            assert checkpoint.network.id == traced("functional").network.id
            for tensor in checkpoint.tensors:
                assert bytes(tensor.read()) == bits(state[tensor.name])
            assert restored(checkpoint) == path.read_bytes()


def test_many_layers_are_fast(tmp_path: Path) -> None:
    """A chain of 200 saved once, then told five times over: 1,000 layers."""
    layers = [each for _ in range(100) for each in (nn.Linear(4, 4), nn.ReLU())]
    path = trace(nn.Sequential(*layers), torch.randn(2, 4)).save(tmp_path)
    start = time.process_time()
    for _ in range(5):
        with opened(path) as checkpoint:
            assert checkpoint.network is not None
            state = {t.name: (t.dtype, t.shape) for t in checkpoint.tensors}
            assert verify(checkpoint.network, state) == []
    assert time.process_time() - start < 10
