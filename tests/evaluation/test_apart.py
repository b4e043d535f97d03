"""The comparison with an ONNX file in a process of its own, which may end as it likes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dlv.disk.children as children
import dlv.evaluation.apart as apart
from dlv.adapters.onnx import files, network
from dlv.adapters.onnx.call import Call
from tests.onnx_models import array, model, op
from tests.onnx_reading import words


def file(folder: Path, made: onnx.ModelProto) -> str:
    path = folder / "m.onnx"
    path.write_bytes(made.SerializeToString())
    return str(path)


def relu() -> onnx.ModelProto:
    return model([op("Gemm", "x w", "h"), op("Relu", "h")], {"x": ["B", 6]}, {"w": array(6, 4)})


def test_a_right_network(tmp_path: Path) -> None:
    path, known = file(tmp_path, relu()), set[str]()
    opened, notes = apart.keep_agreeing_apart(path, files.open(path), known)
    assert opened.network is not None
    assert (notes, known) == ([], {opened.network.id})
    opened.close()


def test_what_ends_the_other_process_does_not_end_this_one(tmp_path: Path) -> None:
    """onnxruntime divides by the strides before it looks at them."""
    made = model([op("Conv", "x w", strides=[0, 0])], {"x": [1, 1, 4, 4]}, {"w": array(1, 1, 3, 3)})
    path = file(tmp_path, made)
    opened, notes = apart.keep_agreeing_apart(path, files.open(path), set())
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
    opened, [note] = apart.keep_agreeing_apart(path, files.open(path), set())
    assert opened.network is not None
    assert note.endswith(why)
    opened.close()


def test_what_is_found_there_is_done_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(call: Call) -> None:
        call.put("RELU", {"slope": 0.3}, (call.port(0),))

    path = file(tmp_path, relu())
    monkeypatch.setitem(network.RULES, "Relu", wrong)
    found = apart.findings(path)
    assert (found["raw"], found["network"]) == (["y"], True)
    opened, notes = apart.reopened(path, files.open(path), set(), found)
    assert words(opened.network) == ["FULL", "onnx:Relu"]  # type: ignore[arg-type]
    assert notes == found["notes"]
    opened, _ = apart.reopened(path, opened, set(), {**found, "network": False})
    assert opened.network is None
    assert len(opened.tensors) == 1
    assert np.frombuffer(opened.tensors[0].read(), np.float32).shape == (24,)
    opened.close()
