"""A network that was read from an ONNX file is held against the file, by every engine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dlv.disk.children as children
import dlv.evaluation.imported as imported
import dlv.network.agreement as agreement
from dlv.adapters.onnx import files as onnx_files
from dlv.adapters.onnx import network as onnx_network
from dlv.adapters.onnx import writer as onnx_writer
from dlv.adapters.onnx.call import Call
from dlv.evaluation.engines import engine
from dlv.network.graph import Network
from dlv.network.program import program
from dlv.weights.arrays import to_array
from tests.onnx_models import array, constant, model, op
from tests.onnx_reading import words


def file(folder: Path, made: onnx.ModelProto) -> str:
    path = folder / "m.onnx"
    path.write_bytes(made.SerializeToString())
    return str(path)


def relu() -> onnx.ModelProto:
    return model([op("Gemm", "x w", "h"), op("Relu", "h")], {"x": ["B", 6]}, {"w": array(6, 4)})


def test_a_right_network(tmp_path: Path) -> None:
    path, known = file(tmp_path, relu()), set[str]()
    opened, notes = imported.keep_agreeing_apart(path, onnx_files.open(path), known)
    assert opened.network is not None
    assert (notes, known) == ([], {opened.network.id})
    opened.close()


def test_what_ends_the_other_process_does_not_end_this_one(tmp_path: Path) -> None:
    """onnxruntime divides by the strides before it looks at them."""
    made = model([op("Conv", "x w", strides=[0, 0])], {"x": [1, 1, 4, 4]}, {"w": array(1, 1, 3, 3)})
    path = file(tmp_path, made)
    opened, notes = imported.keep_agreeing_apart(path, onnx_files.open(path), set())
    assert opened.network is not None
    assert len(notes) == 1
    assert notes[0].startswith("the network was not compared with the file")
    opened.close()


@pytest.mark.parametrize(
    ("code", "out", "why"),
    [
        (0, b"hello", "no answer came"),
        (0, b"", "no answer came"),
        (0, b"[1]", "no answer came"),
        (0, b"{}", "no answer came"),
        (1, b"", "no answer came"),
        (-8, b"", "ended by SIGFPE"),
    ],
)
def test_odd_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, out: bytes, why: str
) -> None:
    def ended(command: Any, **_: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(command, code, out)

    monkeypatch.setattr(children, "run", ended)
    path = file(tmp_path, relu())
    opened, [note] = imported.keep_agreeing_apart(path, onnx_files.open(path), set())
    assert opened.network is not None
    assert note.endswith(why)
    opened.close()


def test_what_is_found_there_is_done_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(call: Call) -> None:
        call.emit("RELU", {"slope": 0.3}, (call.port(0),))

    path = file(tmp_path, relu())
    monkeypatch.setitem(onnx_network.READERS, "Relu", wrong)
    found = imported.findings(path)
    assert (found["raw"], found["network"]) == (["y"], True)
    opened, notes = imported.reopened(path, onnx_files.open(path), set(), found)
    assert words(opened.network) == ["FULL", "onnx:Relu"]  # type: ignore[arg-type]
    assert notes == found["notes"]
    opened, _ = imported.reopened(path, opened, set(), {**found, "network": False})
    assert opened.network is None
    assert len(opened.tensors) == 1
    assert np.frombuffer(opened.tensors[0].read(), np.float32).shape == (24,)
    opened.close()


W = {"w": array(6, 6), "b": array(6), "c": array(6, 5)}


def net() -> onnx.ModelProto:
    nodes = [
        op("Gemm", "x w b", "h"),
        op("Sigmoid", "h", "s"),
        op("Relu", "h", "r"),
        op("Add", "s r", "a"),
        op("Gemm", "a c", "y"),
    ]
    return model(nodes, {"x": ["B", 6]}, W)


@pytest.fixture
def check(tmp_path: Path) -> Callable[[onnx.ModelProto], tuple[Network | None, list[str]]]:
    def run(made: onnx.ModelProto) -> tuple[Network | None, list[str]]:
        path = tmp_path / "m.onnx"
        path.write_bytes(made.SerializeToString())
        opened, notes = imported.keep_agreeing(str(path), onnx_files.open(str(path)), set())
        opened.close()
        return opened.network, notes

    return run


def wrong(call: Call) -> None:
    """A rule that overlooks something: negative numbers stay."""
    call.emit("RELU", {"slope": 0.3}, (call.port(0),))


def test_a_right_network_is_kept_without_a_word(check: Any) -> None:
    found, notes = check(net())
    assert words(found) == ["FULL", "ACT.SIGMOID", "RELU", "ADD", "FULL"]
    assert notes == []


def test_an_operator_that_is_read_wrongly_is_kept_as_it_is(
    check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(onnx_network.READERS, "Relu", wrong)
    found, [note] = check(net())
    assert words(found) == ["FULL", "ACT.SIGMOID", "onnx:Relu", "ADD", "FULL"]
    assert note.startswith(
        "Relu is stored as it is in the file: numpy computes something different"
    )
    assert "first 'r' is off by" in note


def test_several_such_operators(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(onnx_network.READERS, "Relu", wrong)
    monkeypatch.setitem(
        onnx_network.READERS, "Sigmoid", lambda call: onnx_network.READERS["Tanh"](call)
    )
    found, notes = check(net())
    assert words(found) == ["FULL", "onnx:Sigmoid", "onnx:Relu", "ADD", "FULL"]
    assert len(notes) == 2


def test_a_layer_that_a_pattern_made(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several operators that were taken for one layer, the last one is kept as it is."""
    made = model([op("Sigmoid", "x", "s"), op("Mul", "x s", "m"), op("Relu", "m")], {"x": ["B", 6]})
    assert words(check(made)[0]) == ["ACT.SILU", "RELU"]

    def gelu(pattern: Any, call: Call) -> None:
        call.emit("ACT", {"approximate": "none"}, (call.port_of(pattern.x),), variant="GELU")

    monkeypatch.setattr(onnx_network, "_whole", gelu)
    found, notes = check(made)
    assert words(found) == ["ACT.SIGMOID", "onnx:Mul", "RELU"]
    assert len(notes) == 1


def test_one_engine_alone_may_be_wrong(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime is handed a file that dlv writes: what that says wrongly is found, too."""
    monkeypatch.setitem(
        onnx_writer.WRITERS, "RELU", lambda g, _, inputs: g.op("Tanh", [g.value(inputs[0])])
    )
    found, [note] = check(net())
    assert "onnx:Relu" in words(found)
    assert "onnxruntime computes something different" in note


def test_without_onnx_nothing_says_which_layer(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(onnx_network.READERS, "Relu", wrong)
    monkeypatch.setattr(imported, "runners", lambda: ["onnxruntime"])
    found, [note] = check(net())
    assert found is None
    assert note.startswith("stored without a network: numpy computes something different")
    assert "the output 'y'" in note


def test_by_onnx_alone(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(onnx_network.READERS, "Relu", wrong)
    monkeypatch.setattr(imported, "runners", lambda: ["onnx"])
    found, [_] = check(net())
    assert "onnx:Relu" in words(found)


def test_with_neither_the_rules_alone_count(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(onnx_network.READERS, "Relu", wrong)
    monkeypatch.setattr(imported, "runners", list)
    found, notes = check(net())
    assert "RELU" in words(found)
    assert notes == []


def test_what_takes_too_long_is_not_compared(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "MOST_FLOPS", 100)
    found, [note] = check(net())
    assert found is not None
    assert note.startswith("the network was not compared with the file: a batch takes")


def test_a_file_that_is_slow(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imported, "_MOST_SECONDS", -1.0)
    found, [note] = check(net())
    assert found is not None
    assert "the file takes more than" in note


def test_a_file_that_does_not_run(check: Any) -> None:
    made = model([op("Thing", "x", domain="com.example")], {"x": ["B", 6]})
    made.opset_import.add(domain="com.example", version=1)
    found, [note] = check(made)
    assert found is not None
    assert "which did not run" in note


def test_tokens_fit_the_table(check: Any) -> None:
    made = model(
        [op("Gather", "t x", "e"), op("ReduceMean", "e", "y", axes=[1], keepdims=0)],
        {"x": ("int64", ["B", "T"])},
        {"t": array(3, 4)},
    )
    found, notes = check(made)
    assert words(found) == ["EMBED", "POOL.MEAN"]
    assert notes == []


def test_networks_that_agreed_are_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(net().SerializeToString())
    known: set[str] = set()
    imported.keep_agreeing(str(path), onnx_files.open(str(path)), known)
    monkeypatch.setattr(imported, "_compared", None)
    opened, notes = imported.keep_agreeing(str(path), onnx_files.open(str(path)), known)
    assert opened.network is not None
    assert notes == []


def test_padding_before_a_pool_is_zero(tmp_path: Path) -> None:
    """onnxruntime fuses the two, and takes what is padded for -infinity."""
    made = model(
        [
            constant("p", [0, 0, 1, 1, 0, 0, 1, 1]),
            op("Pad", "x p", "padded"),
            op("MaxPool", "padded", kernel_shape=[3, 3], strides=[2, 2]),
        ],
        {"x": [1, 2, 7, 7]},
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    opened = onnx_files.open(str(path))
    assert opened.network is not None
    held = {t.name: t for t in [*opened.tensors, *opened.constants]}
    steps = program(opened.network, {n: (t.dtype, t.shape) for n, t in held.items()})
    x = -np.abs(array(1, 2, 7, 7)) - 1

    def tensor(name: str) -> Any:
        return to_array(held[name].dtype, held[name].shape, held[name].read())

    scores = engine("onnxruntime", steps, tensor, "float32").scores({"x": x})
    assert scores.max() == 0
    opened.close()
