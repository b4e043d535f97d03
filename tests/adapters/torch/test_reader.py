"""Files of torch: against files and results of torch itself, and against hostile files.

Which tensors are the model's, what they are called, and files that dlv writes.
"""

from __future__ import annotations

import argparse
import collections
import functools
import importlib
import io
import json
import os
import pathlib
import pickle
import random
import re
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlv.adapters.checkpoint import Adapter, Checkpoint, Tensor
from dlv.adapters.torch import reader as torch_files
from dlv.adapters.torch.pickles import Mapping, Persistent
from dlv.adapters.torch.reader import assign, hyperparameters_of, leaves, scalar, step_of
from dlv.adapters.torch.tensors import _MOST_OTHER_BYTES, DTYPES
from dlv.errors import Damaged, DlvError, UnsafeInput, UsageError
from tests.conformance.adapter import AdapterSuite
from tests.hostile.pickles import (
    HARMLESS,
    HOSTILE,
    MARKER,
    UNSUPPORTED,
    archive,
    state_dict,
    storage,
    tensor,
)


def held(name: str, data: bytes, tied: str | None = None, dtype: str = "uint8") -> Tensor:
    return Tensor(name, dtype, (len(data),), len(data), lambda: data, tied=tied)


def written(*tensors: Tensor, **metadata: str) -> bytes:
    out = io.BytesIO()
    torch_files.save(out, tensors, metadata)
    return out.getvalue()


class Reader(pickle.Unpickler):
    """The standard unpickler with tuples in the place of torch's functions."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        return lambda *arguments: (f"{module}.{name}", *arguments)

    def persistent_load(self, identity: Any) -> Any:
        return identity[2:]


def test_pickle_as_the_standard_library_reads_it() -> None:
    data = written(held("a", b"xyz"), held("ü", b"xyz", tied="a"), held("b", b"\0", dtype="bool"))
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        assert file.testzip() is None
        root = Reader(io.BytesIO(file.read("archive/data.pkl"))).load()
        assert file.read("archive/data/0") == b"xyz"
        assert file.read("archive/data/1") == b"\0"
        assert len(file.read("archive/.data/serialization_id")) == 40
    rebuild = "torch._utils._rebuild_tensor_v2"
    none: collections.OrderedDict[str, Any] = collections.OrderedDict()
    assert list(root.items()) == [
        ("a", (rebuild, ("0", "cpu", 3), 0, (3,), (1,), False, none)),
        ("ü", (rebuild, ("0", "cpu", 3), 0, (3,), (1,), False, none)),
        ("b", (rebuild, ("1", "cpu", 1), 0, (1,), (1,), False, none)),
    ]


def test_integers() -> None:
    values = [0, 255, 256, 65536, (1 << 31) - 1, 1 << 31, (1 << 40) + 5, (1 << 63) - 1]
    for value in values:
        assert pickle.loads(b"\x80\x02" + torch_files._integer(value) + b".") == value


def test_data_are_aligned() -> None:
    dice = random.Random(3)
    tensors = [held(f"n{'x' * i}", dice.randbytes(i * 5)) for i in range(40)]
    data = written(*tensors)
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        for info in file.infolist():
            offset = info.header_offset
            sizes = data[offset + 26 : offset + 30]
            begin = offset + 30 + int.from_bytes(sizes[:2], "little")
            begin += int.from_bytes(sizes[2:], "little")
            assert begin % 64 == 0


def test_deterministic_and_dependent_on_the_content() -> None:
    first = written(held("a", b"xyz"), x="y")
    assert written(held("a", b"xyz"), x="y") == first
    assert written(held("a", b"xyy"), x="y") != first


def test_metadata_is_an_attribute() -> None:
    data = written(held("a", b"xyz"), two="2", one="1")
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        root = Reader(io.BytesIO(file.read("archive/data.pkl"))).load()
    assert list(root) == ["a"]
    assert vars(root) == {"dlv_metadata": {"one": "1", "two": "2"}}


def test_a_tie_that_is_none_is_not_written_as_one(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(written(held("a", b"xyz"), held("b", b"xyzz", tied="a"), held("c", b"q", "d")))
    checkpoint = torch_files.open(str(path))
    assert [(t.name, t.tied, bytes(t.read())) for t in checkpoint.tensors] == [
        ("a", None, b"xyz"),
        ("b", None, b"xyzz"),
        ("c", None, b"q"),
    ]
    checkpoint.close()


def test_size_that_is_not_the_shape() -> None:
    with pytest.raises(UsageError, match="'a'"):
        written(Tensor("a", "float32", (3,), 11, lambda: bytes(11)))


@pytest.mark.slow
def test_beyond_4_gib(tmp_path: Path) -> None:
    """zip64 in sizes, in offsets and in the directory's end."""
    size = (1 << 32) + 10
    path = tmp_path / "big.pt"
    small = held("small", b"xyz")
    with path.open("wb") as out:
        big = Tensor("big", "uint8", (size,), size, lambda: bytes(size))
        torch_files.save(out, [big, small], {})
    with zipfile.ZipFile(path) as file:
        assert file.getinfo("archive/data/0").file_size == size
        assert file.read("archive/data/1") == b"xyz"
    checkpoint = torch_files.open(str(path))
    assert [t.nbytes for t in checkpoint.tensors] == [size, 3]
    assert bytes(checkpoint.tensors[1].read()) == b"xyz"
    checkpoint.close()


T = object()


def build(value: Any) -> Any:
    """Descriptors of plain data in which T stands for a tensor."""
    if value is T:
        return Persistent(None)
    if isinstance(value, dict):
        mapping = Mapping()
        for key, item in value.items():
            mapping.set(key, build(item))
        return mapping
    if isinstance(value, list | tuple):
        return type(value)(map(build, value))
    return value


def named(value: Any) -> list[str]:
    root = build(value)
    return [f"{row.role} {row.name}" for row in assign(root, leaves(root, "p"))]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (T, ["weight tensor"]),
        ([T, {"a": T}], ["weight 0", "weight 1.a"]),
        (
            {"a.w": T, "bn.running_mean": T, "bn.num_batches_tracked": T},
            ["weight a.w", "buffer bn.running_mean", "buffer bn.num_batches_tracked"],
        ),
        ({"state_dict": {"module.w": T}}, ["weight module.w"]),
        ({"model": {"w": T}, "ema": {"w": T}}, ["weight w", "extra ema.w"]),
        ({"module": {"w": T}, "state_dict": {"v": T}}, ["extra module.w", "weight v"]),
        ({"net": {"w": T}, "lr": T}, ["weight w", "extra lr"]),
        ({"g": {"w": T}, "d": {"w": T}}, ["weight g.w", "weight d.w"]),
        (
            {"g": {"w": T}, "optim_g": {"state": {0: {"m": T}}}, "rng_state": [T]},
            ["weight g.w", "optimizer optim_g.state.0.m", "extra rng_state.0"],
        ),
        (
            {"model": {"w": T}, "optimizer_state_dict": {"state": {0: {"m": T}}}},
            ["weight w", "optimizer optimizer.state.0.m"],
        ),
        (
            {"state": {0: {"exp_avg": T}}, "param_groups": []},
            ["optimizer optimizer.state.0.exp_avg"],
        ),
        ({"optimizer": T, "model": T}, ["weight optimizer", "weight model"]),
        # Names meet: the model's stays, the other one becomes another.
        ({"ema": {"w": T}, "model": {"ema.w": T}}, ["extra ema.w#2", "weight ema.w"]),
        ({"a.b": T, "a": {"b": T}}, ["weight a.b", "weight a.b#2"]),
        (
            {"optimizer": {"x": T}, "optimizer_state_dict": {"x": T}, "model": {"w": T}},
            ["optimizer optimizer.x", "optimizer optimizer_state_dict.x", "weight w"],
        ),
        (
            {"1": T, 1: T, None: T, False: T},
            ["weight 1", "weight 1#2", "weight None", "weight False"],
        ),
        ({(1, 2): T}, ["weight key1"]),
        ({"": T}, ["weight tensor"]),
        ({}, []),
        (5, []),
    ],
)
def test_names_and_roles(value: Any, expected: list[str]) -> None:
    assert named(value) == expected


def test_shared_containers_are_walked_again_and_cycles_are_not() -> None:
    inner = build({"w": T})
    root = build({})
    root.set("a", inner)
    root.set("b", inner)
    inner.set("up", root)
    assert [leaf.path for leaf in leaves(root, "p")] == [("a", "w"), ("b", "w")]


def test_a_name_that_comes_up_very_often() -> None:
    """Dots in keys: one name in 2^12 ways, each with its own number."""
    root: Any = T
    for _ in range(12):
        root = {"a": {"b": root}, "a.b": root}
    names = [name.split(" ")[1] for name in named(root)]
    assert len(set(names)) == len(names) == 4096
    assert names[4095].startswith("a.b.a.b")


def test_depth_and_names_are_bounded() -> None:
    deep: Any = T
    for _ in range(60):
        deep = [deep]
    assert len(leaves(build(deep), "p")) == 1
    for _ in range(10):
        deep = [deep]
    with pytest.raises(UnsafeInput, match="deep"):
        leaves(build(deep), "p")
    with pytest.raises(UnsafeInput, match="letters"):
        leaves(build({"x" * 5000: T}), "p")
    with pytest.raises(UnsafeInput, match="letters"):
        leaves(build({"x" * 3000: {"y" * 3000: T}}), "p")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"epoch": 3, "global_step": 70}, 70),
        ({"epoch": 3}, 3),
        ({"iteration": 5.0, "epoch": 1}, 5),
        ({"step": True}, None),
        ({"step": -1}, None),
        ({"step": 1 << 63}, None),
        ({"step": "7"}, None),
        ({"step": 1.5, "epoch": 2}, 2),
        ([3], None),
    ],
)
def test_step(value: Any, expected: int | None) -> None:
    assert step_of(build(value)) == expected


def test_hyperparameters() -> None:
    value = {
        "args": {
            "lr": 0.1,
            "deep": {"a": [1, (2, "x")], "empty": [], "betas": (0.9, None, float("inf"))},
            "big": [0] * 500,
            "none": None,
        },
        "config": {"lr": 0.2, "inf": float("inf"), 3: "three", "huge": 1 << 70, "w": T},
        "other": {"x": 1},
        "cfg": 3,
    }
    assert hyperparameters_of(build(value)) == {
        "lr": 0.1,
        "deep.a.0": 1,
        "deep.a.1": '[2,"x"]',
        "deep.empty": "[]",
        "deep.betas": '[0.9,null,"Infinity"]',
        "none": None,
        "inf": "Infinity",
        "3": "three",
    }


def test_hyperparameters_are_bounded() -> None:
    value = {
        "args": {str(i): i for i in range(9_999)},
        "config": {f"c{i}": i for i in range(9_999)},
    }
    assert len(hyperparameters_of(build(value))) == 10_000


def test_scalars() -> None:
    assert scalar("a\ud800") == "a\\ud800"
    assert scalar(b"raw") is None
    assert scalar("x" * 5000) is None
    assert scalar(float("nan")) == "NaN"
    assert scalar([]) is None


FIXTURES = Path(__file__).parents[2] / "fixtures" / "torch"
EXPECTED: dict[str, dict[str, list[Any]]] = json.loads((FIXTURES / "expected.json").read_text())


class TestConformance(AdapterSuite):
    adapter = cast(Adapter, torch_files)
    dtypes = tuple(here for here, _, _ in DTYPES.values() if not here.startswith("raw:"))


def rows(checkpoint: Checkpoint) -> dict[str, list[Any]]:
    there = {here: name for name, (here, _, _) in DTYPES.items()}
    return {
        t.name: [there[t.dtype], list(t.shape), sha256(bytes(t.read())).hexdigest()]
        for t in checkpoint.tensors
    }


def opened(tmp_path: Path, data: bytes, **options: str) -> Checkpoint:
    path = tmp_path / "x.pt"
    path.write_bytes(data)
    return torch_files.open(str(path), **options)


def restored(checkpoint: Checkpoint) -> bytes:
    out = io.BytesIO()
    assert checkpoint.skeleton is not None
    torch_files.restore(out, checkpoint.skeleton, checkpoint.tensors)
    return out.getvalue()


def by_name(checkpoint: Checkpoint) -> dict[str, Tensor]:
    return {tensor.name: tensor for tensor in checkpoint.tensors}


class TestFixtures:
    @pytest.mark.parametrize("name", sorted(EXPECTED))
    def test_as_torch_wrote_them(self, name: str) -> None:
        checkpoint = torch_files.open(str(FIXTURES / name))
        assert rows(checkpoint) == EXPECTED[name]
        assert checkpoint.exact
        assert restored(checkpoint) == (FIXTURES / name).read_bytes()
        checkpoint.close()

    def test_checkpoint(self) -> None:
        checkpoint = torch_files.open(str(FIXTURES / "checkpoint.pt"))
        assert checkpoint.step == 7
        assert checkpoint.hyperparameters == {"lr": 0.01, "name": "small", "sizes": "[4,3]"}
        roles = {tensor.name: tensor.role for tensor in checkpoint.tensors}
        assert roles["0.weight"] == "weight"
        assert roles["1.running_mean"] == roles["1.num_batches_tracked"] == "buffer"
        assert roles["optimizer.state.0.exp_avg"] == "optimizer"
        checkpoint.close()

    def test_optimizer_dropped(self) -> None:
        checkpoint = torch_files.open(str(FIXTURES / "checkpoint.pt"), optimizer="drop")
        assert rows(checkpoint) == EXPECTED["plain.pt"]
        assert checkpoint.skeleton is None
        assert not checkpoint.exact
        assert "12 optimizer tensors skipped" in checkpoint.notes
        checkpoint.close()
        with pytest.raises(UsageError):
            torch_files.open(str(FIXTURES / "checkpoint.pt"), optimizer="maybe")

    def test_tied(self) -> None:
        checkpoint = torch_files.open(str(FIXTURES / "views.pt"))
        assert {t.name: t.tied for t in checkpoint.tensors if t.tied} == {"again": "base"}
        checkpoint.close()

    def test_damaged_storage(self, tmp_path: Path) -> None:
        data = bytearray((FIXTURES / "views.pt").read_bytes())
        data[data.index(np.float32(23).tobytes())] ^= 1
        checkpoint = opened(tmp_path, bytes(data))
        for tensor_ in checkpoint.tensors[:-1]:  # views of a part notice it too
            with pytest.raises(Damaged, match="data/0"):
                tensor_.read()
        checkpoint.close()

    def test_damaged_pickle(self, tmp_path: Path) -> None:
        data = (FIXTURES / "plain.pt").read_bytes().replace(b"running_mean", b"running_moan")
        with pytest.raises(Damaged, match="pickle"):
            opened(tmp_path, data)


def test_big_endian(tmp_path: Path) -> None:
    values = np.arange(16, dtype=">f4")
    data = archive(
        state_dict(tensor(), tensor((4, 4), (1, 4)), tensor((3,), (2,))),
        {"0": values.tobytes()},
        byteorder=b"big",
    )
    checkpoint = opened(tmp_path, data)
    square = values.astype("<f4").reshape(4, 4)
    first, second, third = (bytes(t.read()) for t in checkpoint.tensors)
    assert first == square.tobytes()
    assert second == square.T.tobytes()
    assert third == square.reshape(-1)[:5:2].tobytes()
    assert restored(checkpoint) == data
    checkpoint.close()


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("ComplexFloat", "c8"), ("ComplexDouble", "c16"), ("Half", "f2"), ("Char", "i1")],
)
def test_big_endian_of_other_widths(tmp_path: Path, kind: str, dtype: str) -> None:
    values = np.arange(16).astype(f">{dtype}")
    held = storage("0", 16, f"torch {kind}Storage")
    data = archive(state_dict(tensor(held=held)), {"0": values.tobytes()}, byteorder=b"big")
    checkpoint = opened(tmp_path, data)
    assert bytes(checkpoint.tensors[0].read()) == values.astype(f"<{dtype}").tobytes()
    assert restored(checkpoint) == data
    checkpoint.close()


def test_transposed_storage_is_no_literal(tmp_path: Path) -> None:
    data = archive(
        state_dict(tensor((64, 32), (1, 64), held=storage("0", 2048))), {"0": bytes(8192)}
    )
    checkpoint = opened(tmp_path, data)
    assert checkpoint.skeleton is not None
    assert len(checkpoint.skeleton) < 2000
    assert restored(checkpoint) == data
    checkpoint.close()


def test_too_many_literal_bytes(tmp_path: Path) -> None:
    size = _MOST_OTHER_BYTES
    data = archive(state_dict(tensor(held=storage("0", size // 4))), {"0": bytes(size)})
    checkpoint = opened(tmp_path, data)
    assert checkpoint.skeleton is None
    assert not checkpoint.exact
    assert "fresh file" in checkpoint.notes[0]
    checkpoint.close()


class TestHostile:
    @pytest.mark.parametrize("name", sorted(HOSTILE))
    def test_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises((UnsafeInput, Damaged)) as caught:
            opened(tmp_path, HOSTILE[name]())
        message = " ".join([caught.value.message, caught.value.why or "", caught.value.hint or ""])
        assert message.isprintable()
        assert len(message) < 1000

    @pytest.mark.parametrize("name", sorted(UNSUPPORTED))
    def test_unsupported(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(UsageError):
            opened(tmp_path, UNSUPPORTED[name]())

    @pytest.mark.parametrize("name", sorted(HARMLESS))
    def test_harmless(self, tmp_path: Path, name: str) -> None:
        data = HARMLESS[name]()
        checkpoint = opened(tmp_path, data)
        assert restored(checkpoint) == data
        checkpoint.close()

    def test_the_global_and_the_way_out_are_named(self, tmp_path: Path) -> None:
        with pytest.raises(UnsafeInput) as caught:
            opened(tmp_path, HOSTILE["posix.system"]())
        assert "`posix.system`" in caught.value.message
        assert "--as file" in (caught.value.hint or "")
        with pytest.raises(UnsafeInput) as caught:
            opened(tmp_path, HOSTILE["old file"]())
        assert "torch.save of 1.6" in (caught.value.hint or "")
        with pytest.raises(UnsafeInput) as caught:
            opened(tmp_path, HOSTILE["saved module"]())
        assert "state_dict()" in (caught.value.hint or "")

    def test_nothing_is_executed_and_memory_is_bounded(self, tmp_path: Path) -> None:
        """In a child: an audit hook sees what Python does, a limit what it allocates."""
        everything = {**HOSTILE, **UNSUPPORTED, **HARMLESS}
        for index, build in enumerate(everything.values()):
            (tmp_path / f"{index}.pt").write_bytes(build())
        (tmp_path / "good").write_bytes((FIXTURES / "plain.pt").read_bytes())
        child = subprocess.run(
            [sys.executable, "-c", _CHILD, str(len(everything))],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(FIXTURES.parent.parent.parent)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert child.stderr == ""
        seen, control = json.loads(child.stdout)
        assert seen == []
        assert "pickle.find_class" in control  # the hook does see an unpickler
        assert not (tmp_path / MARKER).exists()

    def test_every_cut_of_the_pickle(self, tmp_path: Path) -> None:
        whole = state_dict(tensor(), tensor((2, 8), (8, 1)))
        for end in range(len(whole)):
            with pytest.raises((Damaged, UnsafeInput)):
                opened(tmp_path, archive(whole[:end]))

    def test_mutations_give_typed_errors_only(self, tmp_path: Path) -> None:
        whole = state_dict(tensor(), tensor((2, 2), (4, 2), 3))
        path = tmp_path / "x.pt"
        edits = st.lists(
            st.tuples(st.integers(0, len(whole) - 1), st.binary(min_size=0, max_size=3)),
            min_size=1,
            max_size=4,
        )

        @settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
        @given(edits)
        def run(edits: list[tuple[int, bytes]]) -> None:
            changed = bytearray(whole)
            for position, new in edits:
                changed[position : position + max(1, len(new))] = new
            path.write_bytes(archive(bytes(changed)))
            try:
                checkpoint = torch_files.open(str(path))
            except DlvError:
                return
            for found in checkpoint.tensors:
                assert len(memoryview(found.read()).cast("B")) == found.nbytes
            assert restored(checkpoint) == path.read_bytes()
            checkpoint.close()

        run()


_CHILD = """
import json, pickle, resource, sys
from dlv.adapters.torch import reader as torch
from dlv.errors import DlvError
torch.open("good").close()
limit = 700 << 20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
seen = []
def hook(event, arguments):
    if event == "open" and arguments[1] in (None, "r", "rb"):
        written = arguments[2] & 3 if isinstance(arguments[2], int) else 0
        if not written:
            return
    if event == "builtins.id" or not watching:
        return
    seen.append([event, repr(arguments)[:200]])
watching = True
sys.addaudithook(hook)
for index in range(int(sys.argv[1])):
    try:
        checkpoint = torch.open(f"{index}.pt")
    except DlvError:
        continue
    for tensor in checkpoint.tensors:
        tensor.read()
    checkpoint.close()
found = list(seen)
try:
    pickle.loads(b"cbuiltins\\nlen\\n.")
finally:
    watching = False
print(json.dumps([found, [event for event, _ in seen[len(found):]]]))
"""


@pytest.fixture(scope="module")
def torch() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield pytest.importorskip("torch", reason="the oracle needs torch")


def raw_of(torch: Any, value: Any) -> bytes:
    flat = value.detach().contiguous().clone().reshape(-1)
    return cast(bytes, flat.view(torch.uint8).numpy().tobytes())


class Doing:
    """Pickled as a call of what `name` says, if it says something."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> Any:
        calls = {"os.system": (os.system, ("true",)), "eval": (eval, ("1",))}
        if self.name.startswith("torch."):
            return importlib.import_module("torch.hub").load, ("a", "b")
        return calls.get(self.name) or (Doing, (self.name,))


def _module(torch: Any) -> Any:
    """With a table of each kind, a tied layer, and what no state dict holds."""
    nn = torch.nn
    module = nn.Module()
    module.conv = nn.Conv2d(1, 2, 3)
    module.act = functools.partial(nn.functional.leaky_relu, negative_slope=0.1)
    module.seq = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3))
    module.head = module.seq[1]
    module.register_buffer("passing", torch.zeros(2), persistent=False)
    module.register_buffer("kept", torch.ones(2))
    module.register_parameter("none", None)
    return module


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch: TypedStorage, ComplexHalf
class TestAgainstTorch:
    """Files that torch.save writes here and now, and torch.load as the reader of ours."""

    def saved(self, torch: Any, tmp_path: Path, value: Any) -> Checkpoint:
        path = tmp_path / "t.pt"
        torch.save(value, path)
        checkpoint = torch_files.open(str(path))
        assert restored(checkpoint) == path.read_bytes()
        return checkpoint

    def test_views(self, torch: Any, tmp_path: Path) -> None:
        base = torch.randn(6, 5, 4, 3)
        values = {
            "channels_last": base.contiguous(memory_format=torch.channels_last),
            "permuted": base.permute(3, 1, 0, 2),
            "sliced": base[1:5:2, :, 1:, ::2],
            "expanded": base[:, :1].expand(6, 5, 4, 3),
            "unfolded": base.reshape(-1).unfold(0, 7, 3),
            "strided": torch.as_strided(base, (3, 4, 2), (1, 2, 1), 5),
            "complex": torch.randn(4, 5, dtype=torch.complex128).t()[1:],
            "real part": torch.randn(4, 5, dtype=torch.complex64).real,
            "halves": base.half().transpose(0, 1),
            "bytes": base.to(torch.int8)[..., 0],
            "one": base[2, 3, 1, 2],
        }
        checkpoint = self.saved(torch, tmp_path, values)
        assert {t.name: bytes(t.read()) for t in checkpoint.tensors} == {
            name: raw_of(torch, value) for name, value in values.items()
        }
        checkpoint.close()

    def test_parameters_ties_and_optimizers(self, torch: Any, tmp_path: Path) -> None:
        class Tied(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.embed = torch.nn.Embedding(5, 4)
                self.head = torch.nn.Linear(4, 5)
                self.head.weight = self.embed.weight

        model = torch.nn.DataParallel(Tied())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model.module.head(model.module.embed(torch.arange(5))).sum().backward()
        optimizer.step()
        value = {
            "pytorch-lightning_version": "2.5.0",
            "epoch": 2,
            "global_step": 150,
            "state_dict": model.state_dict(),
            "loops": {"fit_loop": {"state_dict": {}, "epoch": {"current": {"ready": 2}}}},
            "callbacks": {"ModelCheckpoint{'monitor': 'loss'}": {"best": torch.tensor(0.25)}},
            "optimizer_states": [optimizer.state_dict()],
            "lr_schedulers": [{"_step_count": 1, "last": np.float64(0.1)}],
            "hparams_name": "kwargs",
            "hyper_parameters": collections.OrderedDict(
                lr=0.1,
                deep={"wide": True, "none": None, "nan": float("nan")},
                folder=pathlib.PurePosixPath("/data/x"),
                namespace=argparse.Namespace(seed=np.int64(3), device=torch.device("cpu", 0)),
                betas=(0.9, 0.5),
                dtype=torch.float32,
                tags={"a"},
            ),
            "rng": {"torch": torch.get_rng_state(), "numpy": np.random.get_state()},
        }
        checkpoint = self.saved(torch, tmp_path, value)
        assert checkpoint.step == 150
        found = by_name(checkpoint)
        assert [(t.name, t.role, t.tied) for t in checkpoint.tensors] == [
            ("module.embed.weight", "weight", None),
            ("module.head.weight", "weight", "module.embed.weight"),
            ("module.head.bias", "weight", None),
            ("callbacks.ModelCheckpoint{'monitor': 'loss'}.best", "extra", None),
            ("optimizer.0.state.0.momentum_buffer", "optimizer", None),
            ("optimizer.0.state.1.momentum_buffer", "optimizer", None),
            ("rng.torch", "extra", None),
        ]
        assert bytes(found["module.head.weight"].read()) == raw_of(torch, model.module.embed.weight)
        assert checkpoint.hyperparameters == {
            "lr": 0.1,
            "deep.wide": True,
            "deep.none": None,
            "deep.nan": "NaN",
            "folder": "/data/x",
            "namespace.seed": 3,
            "namespace.device": "cpu:0",
            "betas": "[0.9,0.5]",
            "dtype": "torch.float32",
            "tags": '["a"]',
        }
        checkpoint.close()

    def test_bare_values(self, torch: Any, tmp_path: Path) -> None:
        for value, names in [
            (torch.ones(3), ["tensor"]),
            ([torch.ones(3), (torch.zeros(2), torch.zeros(0))], ["0", "1.0", "1.1"]),
            (torch.nn.Parameter(torch.ones(2)), ["tensor"]),
            ({}, []),
            (torch.ones(3).untyped_storage(), ["tensor"]),
        ]:
            checkpoint = self.saved(torch, tmp_path, value)
            assert [t.name for t in checkpoint.tensors] == names
            checkpoint.close()

    @pytest.mark.parametrize("kind", ["quantised", "sparse", "meta", "nested", "lazy"])
    def test_what_is_refused(self, torch: Any, tmp_path: Path, kind: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = {
                "quantised": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
                "sparse": lambda: torch.eye(3).to_sparse(),
                "meta": lambda: torch.empty(3, device="meta"),
                "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
                "lazy": lambda: torch.ones(3, dtype=torch.complex64).conj(),
            }[kind]()
            torch.save({"layer.x": value}, tmp_path / "t.pt")
        with pytest.raises(UsageError, match=r"layer\.x"):
            torch_files.open(str(tmp_path / "t.pt"))

    @pytest.mark.parametrize("pickler", ["pickle", "cloudpickle"])
    @pytest.mark.parametrize("wrapped", [False, True])
    def test_a_saved_module_gives_its_state_dict(
        self, torch: Any, tmp_path: Path, pickler: str, wrapped: bool
    ) -> None:
        module = _module(torch)
        value = {"model": module, "epoch": 3, "train_args": {"lr": 0.1}} if wrapped else module
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.save(value, tmp_path / "t.pt", pickle_module=pytest.importorskip(pickler))
        checkpoint = torch_files.open(str(tmp_path / "t.pt"))
        state = module.state_dict()
        assert [each.name for each in checkpoint.tensors] == list(state)
        for each in checkpoint.tensors:
            whole = b"".join(bytes(part) for part in each.parts())
            assert whole == state[each.name].numpy().tobytes()
        assert {t.name for t in checkpoint.tensors if t.tied} == {"head.weight", "head.bias"}
        assert (checkpoint.step, checkpoint.hyperparameters) == (
            (3, {"lr": 0.1}) if wrapped else (None, {})
        )
        assert restored(checkpoint) == (tmp_path / "t.pt").read_bytes()
        checkpoint.close()

    @pytest.mark.parametrize(
        ("holding", "said"),
        [("os.system", "posix.system"), ("torch.hub.load", "torch.hub.load"), ("eval", "eval")],
    )
    def test_a_module_that_would_do_something_is_refused(
        self, torch: Any, tmp_path: Path, holding: str, said: str
    ) -> None:
        module = torch.nn.Linear(2, 2)
        module.extra = Doing(holding)
        torch.save(module, tmp_path / "t.pt")
        with pytest.raises(UnsafeInput, match=re.escape(said)):
            torch_files.open(str(tmp_path / "t.pt"))

    def test_an_object_that_is_no_module_is_refused(self, torch: Any, tmp_path: Path) -> None:
        torch.save({"w": torch.ones(2), "by": Doing("")}, tmp_path / "t.pt")
        with pytest.raises(UnsafeInput, match="Doing"):
            torch_files.open(str(tmp_path / "t.pt"))

    def test_without_checksums(self, torch: Any, tmp_path: Path) -> None:
        torch.serialization.set_crc32_options(False)
        try:
            checkpoint = self.saved(torch, tmp_path, {"a": torch.ones(3)})
        finally:
            torch.serialization.set_crc32_options(True)
        assert "checksums" in checkpoint.notes[0]
        checkpoint.close()

    def test_torch_reads_what_save_writes(self, torch: Any, tmp_path: Path) -> None:
        names = list(EXPECTED["dtypes.pt"])
        source = torch_files.open(str(FIXTURES / "dtypes.pt"))
        tensors = [*source.tensors]
        first = tensors[0]
        tensors.append(
            Tensor("tied", first.dtype, first.shape, first.nbytes, first.read, tied=first.name)
        )
        tensors.append(Tensor("empty", "float32", (0, 3), 0, lambda: b""))
        tensors.append(Tensor("one", "bfloat16", (), 2, lambda: b"\x80\x3f"))
        tensors += [
            Tensor(f"many.{i}", "int64", (1,), 8, lambda i=i: i.to_bytes(8, "little"))  # type: ignore[misc]
            for i in range(2500)
        ]
        path = tmp_path / "out.pt"
        with path.open("wb") as out:
            torch_files.save(out, tensors, {"from": "dlv"})
        source.close()
        for options in ({}, {"mmap": True}, {"weights_only": False}):
            loaded = torch.load(path, **{"weights_only": True, **options})
            assert type(loaded) is collections.OrderedDict
            assert list(loaded) == [t.name for t in tensors]
            original = torch.load(FIXTURES / "dtypes.pt", weights_only=True)
            for name in names:
                assert loaded[name].dtype == original[name].dtype
                assert raw_of(torch, loaded[name]) == raw_of(torch, original[name])
            assert loaded["tied"].data_ptr() == loaded[first.name].data_ptr()
            assert loaded["empty"].shape == (0, 3)
            assert loaded["one"].item() == 1.0
            assert loaded["many.2499"].tolist() == [2499]
            assert vars(loaded) == {"dlv_metadata": {"from": "dlv"}}
