"""dlv.adapters.detect on files written by the programs that own the formats, and on names."""

from __future__ import annotations

import io
import json
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save as save_safetensors

from dlv.adapters.detect import HEAD_BYTES, ROLES, detect, is_data_set, role_of, shard_of, step_of
from dlv.errors import NotFound, UsageError

STEPS = {
    "ckpt-500.pt": 500,
    "step_1000": 1000,
    "step-1000.pt": 1000,
    "step1000.safetensors": 1000,
    "steps=12.pth": 12,
    "epoch=3-step=1200.ckpt": 1200,
    "epoch=3-step=1200-v1.ckpt": 1200,
    "step=1200-epoch=3.ckpt": 1200,
    "epoch=09-val_loss=0.12.ckpt": 9,
    "best_epoch_5.pt": 5,
    "checkpoint-2000/model.safetensors": 2000,
    "runs/a/checkpoint-2000/model-00001-of-00003.safetensors": 2000,
    "runs/checkpoint-2000/step_5.pt": 5,
    "global_step1000/mp_rank_00_model_states.pt": 1000,
    "iter_0005000": 5000,
    "iter_0005000/model.pt": 5000,
    "ITER-7.PT": 7,
    "model_00010.npz": 10,
    "weights.12.h5": 12,
    "resnet18-step-100.pt": 100,
    "my_model_12.pt": 12,
    "00010.pt": 10,
    "step_10k.pt": 10_000,
    "iter_2M.pt": 2_000_000,
    "model_20000000.pt": 20_000_000,
    "step_0.pt": 0,
    "a\\checkpoint-3\\x.bin": 3,
    "ckpt-500.tar.gz": 500,
}
NONE = [
    "resnet18.safetensors",
    "resnet18-5.safetensors",
    "llama-7b",
    "llama-7b.safetensors",
    "model-7b.safetensors",
    "model-70B.gguf",
    "model_v2.pt",
    "v2",
    "fp16",
    "model-fp16.safetensors",
    "2024-01-31",
    "model-2024-01-31.pt",
    "model_20240131.pt",
    "20240131.pt",
    "20240131123000.pt",
    "model-00001-of-00003.safetensors",
    "pytorch_model-00001-of-00002.bin",
    "timestep3.pt",
    "footstep-3.pt",
    "stepfun-3.pt",
    "model.pt",
    "model.safetensors.index.json",
    "bert-base-512.pt",
    "1000/model.pt",
    "model_1e5.pt",
    "step_" + "9" * 19,
    "",
    "/",
]


@pytest.mark.parametrize(("name", "step"), STEPS.items())
def test_steps(name: str, step: int) -> None:
    assert step_of(name) == step


@pytest.mark.parametrize("name", NONE)
def test_no_steps(name: str) -> None:
    assert step_of(name) is None


@pytest.mark.parametrize(
    ("name", "shard"),
    [
        ("model-00001-of-00003.safetensors", ("model.safetensors", 1, 3)),
        ("a/b/model-00003-of-00003.safetensors", ("a/b/model.safetensors", 3, 3)),
        ("pytorch_model_1_of_2.bin", ("pytorch_model.bin", 1, 2)),
        ("data-00000-of-00001", ("data", 0, 1)),
        ("w.fp16-00001-of-00002.safetensors", ("w.fp16.safetensors", 1, 2)),
        ("model-00004-of-00003.safetensors", None),
        ("model-0-of-0.safetensors", None),
        ("model-00001-of-00003/x.pt", None),
        ("1-of-3", None),
        ("best-of-3.pt", None),
        ("model.safetensors", None),
    ],
)
def test_shards(name: str, shard: tuple[str, int, int] | None) -> None:
    assert shard_of(name) == shard


@given(st.integers(0, 10**12), st.sampled_from(["step_{}.pt", "a/iter-{}/x.npz", "epoch={}.ckpt"]))
def test_any_number(step: int, form: str) -> None:
    assert step_of(form.format(step)) == step


@given(st.text(max_size=80))
def test_any_name(name: str) -> None:
    step = step_of(name)
    assert step is None or step >= 0


def archive(*names: str, method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name in names:
            file.writestr(name, b"some content")
    return out.getvalue()


def npy() -> bytes:
    out = io.BytesIO()
    np.save(out, np.arange(3))
    return out.getvalue()


def npz() -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, a=np.arange(3))
    return out.getvalue()


TENSORS = save_safetensors({"a": np.zeros(3, np.float32)})
EVENT = b"\x09" + struct.pack("<d", 1.7e9) + b"\x1a\x0dbrain.Event:2"
OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03." + bytes(50)
LONG = json.dumps({"loss": [0.5] * (HEAD_BYTES // 4)})

CAFFE = b"""name: "n"
layer {
  name: "r"
  type: "ReLU"
  bottom: "a"
  top: "a"
}
"""

FILES: list[tuple[str, bytes, str]] = [
    ("w.safetensors", TENSORS, "safetensors"),
    ("misnamed.pt", TENSORS, "safetensors"),
    ("w.safetensors", (1 << 40).to_bytes(8, "little") + b"{}", "safetensors"),
    ("notes", b"eight by{tes}", "text"),
    ("w.npy", npy(), "npy"),
    ("w.npz", npz(), "npz"),
    ("w", npz(), "npz"),
    ("w.npz", npz()[:-30], "npz"),
    ("empty.npz", archive(), "npz"),
    ("w.bin", archive("m/data.pkl", "m/version"), "pt"),
    ("w.pt", archive("m/data.pkl", "m/version")[:-5], "pt"),
    ("m.pt2", archive("m/archive_format", "m/models/model.json"), "pt2"),
    ("m", archive("m/data/weights/weight_0", "m/archive_format"), "pt2"),
    ("m.pt2", archive("m/archive_format", "m/models/model.json")[:-5], "pt2"),
    ("old.zip", archive("serialized_exported_program.json", "version"), "pt2"),
    ("w.keras", archive("metadata.json", "config.json", "model.weights.h5"), "keras"),
    ("network.keras", archive("metadata.json", "config.json"), "keras"),
    ("cut.keras", archive("metadata.json", "config.json")[:-5], "keras"),
    ("w.zip", archive("readme.txt"), "zip"),
    ("old.pth", OLD_TORCH, "pickle"),
    ("w.dat", pickle.dumps({"a": 1}, protocol=2), "pickle"),
    ("w.dat", pickle.dumps({"a": 1}, protocol=5), "pickle"),
    ("w.pkl", pickle.dumps({"a": 1}, protocol=0), "pickle"),
    ("w.pkl", b"cposix\nsystem\n(S'id'\ntR.", "pickle"),
    ("animals.txt", b"cat\ndog\n", "text"),
    ("tensors.pt", b"sys_info\0" + bytes(248) + b"ustar" + bytes(300), "pickle"),
    ("noise", b"\x80\x02" + bytes(range(128, 200)), "binary"),
    ("w.h5", b"\x89HDF\r\n\x1a\n" + bytes(100), "hdf5"),
    ("w.h5", bytes(512) + b"\x89HDF\r\n\x1a\n" + bytes(100), "hdf5"),
    ("w.gguf", b"GGUF\x03" + bytes(50), "gguf"),
    ("w.onnx", b"\x08\x0a\x12\x07pytorch\x1a\x052.1.0:" + bytes(20), "onnx"),
    ("w", b"\x08\x0a\x12\x07pytorch\x1a\x052.1.0:" + bytes(20), "onnx"),
    ("w.onnx", b"\x08\x0a:\x10" + bytes(20), "onnx"),
    ("cut.onnx", b"\x08", "onnx"),
    ("odd.onnx", b":\x10\x0a\x00" + bytes(20), "onnx"),
    ("notes.onnx", b": a text\n", "text"),
    ("events.out.tfevents.1700000000.host", b"", "tfevents"),
    ("log", struct.pack("<QI", len(EVENT), 5) + EVENT + bytes(4), "tfevents"),
    ("network.json", b'{\n "dlv_network": 1, "nodes": []}', "network_json"),
    ("any.txt", b'{"aliases":{},"constants":{},"dlv_network":1}', "network_json"),
    ("config.json", b'{"lr": 0.1,\n "layers": [1, 2]}\n', "json"),
    ("list.json", b"[1, 2]", "json"),
    ("config", b'{"lr": 0.1}', "json"),
    ("bom.json", b'\xef\xbb\xbf{"lr": 0.1}', "json"),
    ("broken.json", b'{"lr": 0.1', "json"),
    ("long.json", LONG.encode(), "json"),
    ("trainer_state.json", b'{"log_history": [{"step": 1}]}', "trainer_state"),
    ("log.jsonl", b'{"step": 1}\n', "jsonl"),
    ("log.txt", b'{"step": 1}\n{"step": 2}\n{"st', "jsonl"),
    ("log.jsonl", LONG.encode() + b"\n{}\n", "jsonl"),
    ("code", b"{ int x; }", "text"),
    ("lenet.prototxt", CAFFE, "prototxt"),
    ("lenet", CAFFE, "prototxt"),
    ("v1.prototxt", b"layers {\n  type: RELU bottom: 'a' top: 'a'\n}", "prototxt"),
    ("lines.txt", b"# a net\nname: 'n'\nlayer{type:'ReLU' top:'b' bottom:'a'}", "prototxt"),
    ("readme.md", b"# Caffe\n```\n" + CAFFE + b"```\n", "text"),
    ("notes.txt", b"Caffe's layers:\n" + CAFFE, "text"),
    ("graph.pbtxt", b'node {\n  name: "x"\n  op: "Placeholder"\n}\n', "text"),
    ("labels.prototxt", b'item {\n  name: "cat"\n  label: 1\n}\n', "text"),
    ("solver.prototxt", b'net: "a"\nbase_lr: 0.01\n', "caffe_solver"),
    ("solver", b'# lr\nlr_policy: "step"\n  max_iter: 5\n', "caffe_solver"),
    ("solver.yaml", b"base_lr: 0.1\nmax_iter: 5\n", "yaml"),
    ("a.txt", b"base_lr: 0.1\n", "text"),
    ("w.caffemodel", b"\x0a\x05LeNet\x12\x04abcd", "caffemodel"),
    ("w.caffemodel", b"\xa2\x06\x02\x0a\x00", "caffemodel"),
    ("w", b"\x0a\x05LeNet\xa2\x06\x02\x0a\x00", "caffemodel"),
    ("w", b"\x0a\x05LeN\x01t\xa2\x06\x02\x0a\x00", "binary"),
    ("w", b"\x0a\x05LeNet\x12\x04abcd\x01", "binary"),
    ("a.toml", b"lr = 0.1\n", "toml"),
    ("a.toml", b"lr = = 0.1\n", "toml"),
    ("conf", b"[train]\nlr = 0.1\n", "toml"),
    ("train.py", b"lr = 0.1\n", "text"),
    ("a.yaml", b"lr: 0.1\n", "yaml"),
    ("a", b"---\nlr: 0.1\n", "yaml"),
    ("log.csv", b"epoch,loss\n", "csv"),
    ("log", b"epoch,loss\n0,0.5\n", "csv"),
    ("log", b"\xef\xbb\xbfepoch;train loss\r\n0;\r\n", "csv"),
    ("log.txt", b"epoch\tloss\n1\tnan\n", "csv"),
    ("poem.txt", b"one, two\nthree, four\n", "text"),
    ("data.csv", "α,β\n1,2\n".encode(), "csv"),
    ("readme.md", b"# Title\n\nText\n", "text"),
    ("empty", b"", "text"),
    ("utf16.csv", "a,b\n1,2\n".encode("utf-16"), "binary"),
    ("latin.txt", b"caf\xe9\n", "binary"),
    ("cut.txt", b"x" * (HEAD_BYTES - 1) + "ä".encode() + b"y", "text"),
    ("words", b"some text\0and more\n", "binary"),
    ("image.png", b"\x89PNG\r\n\x1a\n" + bytes(30), "binary"),
]


@pytest.mark.parametrize("index", range(len(FILES)))
def test_detects(tmp_path: Path, index: int) -> None:
    name, data, expected = FILES[index]
    path = tmp_path / name
    path.write_bytes(data)
    assert detect(str(path)) == expected


def test_tables_fit_together() -> None:
    assert {expected for _, _, expected in FILES} == set(ROLES)
    assert role_of("pt") == "weights"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["x", "y"], True),
        (["x_train", "y_train", "x_test", "y_test"], True),  # Keras' mnist.npz
        (["train_images", "train_labels", "val_images", "val_labels"], True),
        (["X", "Y"], True),
        (["conv1.weight", "conv1.bias"], False),
        (["x", "fc.weight"], False),
        (["arr_0"], False),
        (["test"], False),
        ([], False),
    ],
)
def test_data_sets_by_the_names_of_their_arrays(
    tmp_path: Path, names: list[str], expected: bool
) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(archive(*(f"{name}.npy" for name in names)))
    assert is_data_set(str(path)) is expected


def test_a_broken_archive_is_no_data_set(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 and no more")
    assert is_data_set(str(tmp_path / "a.npz")) is False


def test_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        detect(str(tmp_path / "none"))
    with pytest.raises(UsageError):
        detect(str(tmp_path))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | st.sampled_from(FILES).map(lambda file: file[1][:500]), st.data())
def test_any_content(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, data: st.DataObject
) -> None:
    raw = bytearray(content)
    for _ in range(data.draw(st.integers(0, 3)) if raw else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("any") / data.draw(st.sampled_from(["f", "f.pt", "f.json"]))
    path.write_bytes(raw)
    assert detect(str(path)) in ROLES


def test_loads_no_numpy() -> None:
    code = "import sys, dlv.adapters.detect; print({'numpy', 'torch', 'yaml'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_part_of_a_distributed_checkpoint_is_named(tmp_path: Path) -> None:
    path = tmp_path / "step-100" / "__0_0.distcp"
    path.parent.mkdir()
    path.write_bytes(b"PK\x03\x04" + bytes(60))
    with pytest.raises(UsageError, match=r"torch\.distributed\.checkpoint") as caught:
        detect(str(path))
    assert "dcp_to_torch step-100 step-100.pt" in (caught.value.hint or "")
