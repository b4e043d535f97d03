"""`export`: one file of weights, or of a network, out of a version."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import dlv.versions.add as adding
import dlv.versions.commit as committing
import dlv.versions.transfer as transfer
import dlv.weights.snapshots as snapshots
from dlv.adapters.checkpoint import Tensor
from dlv.adapters.onnx import files as onnx_files
from dlv.adapters.onnx import writer as onnx_writer
from dlv.adapters.torch import reader as torch_files
from dlv.canonical import hash_bytes
from dlv.errors import Conflict, Damaged, NotFound, UsageError
from dlv.repository.handle import Repository
from dlv.versions.transfer import Exported, Request

NETWORK = {
    "dlv_network": 1,
    "inputs": [{"name": "x", "shape": ["B", 12], "dtype": "float32"}],
    "nodes": [
        {
            "name": "head",
            "op": "FULL",
            "attrs": {"out": 3},
            "inputs": ["x"],
            "params": {"weight": "fc.weight", "bias": "fc.bias"},
        }
    ],
    "outputs": ["head"],
}


CAFFE = """
name: "net"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 4 } } }
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc"
        inner_product_param { num_output: 3 } }
"""


def arrays(seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"fc.weight": rng.normal(size=(3, 12)).astype("f4"), "fc.bias": np.ones(3, "f4")}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    root = tmp_path / "project"
    repository, _ = Repository.init(root)
    save_file(arrays(), root / "w.safetensors", metadata={"by": "a trainer"})
    (root / "network.json").write_text(json.dumps(NETWORK))
    (root / "train.py").write_text("pass")
    commit(repository, "lenet", ".")
    return repository


def commit(repository: Repository, name: str, *files: str) -> None:
    adding.add(repository, repository.root, files, adding.Request())
    committing.commit(repository, committing.Request("m", "Ada", name))


def export(repository: Repository, out: str, reference: str = "HEAD", **given: Any) -> Exported:
    return transfer.export(repository, Request(reference, repository.root / out, **given))


@pytest.fixture
def trained(repository: Repository) -> Repository:
    """opt@1: a torch checkpoint with the state of an optimizer."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}
    torch.save(state, repository.root / "ckpt.pt")
    commit(repository, "opt", "ckpt.pt")
    return repository


class TestOriginal:
    def test_the_same_file(self, repository: Repository) -> None:
        made = export(repository, "out.safetensors")
        assert made.original
        added = (repository.root / "w.safetensors").read_bytes()
        assert (repository.root / "out.safetensors").read_bytes() == added
        assert (made.hash, made.bytes) == (hash_bytes(added), len(added))

    def test_torch_with_everything(self, trained: Repository) -> None:
        made = export(trained, "out.pt", everything=True)
        assert made.original
        assert (trained.root / "out.pt").read_bytes() == (trained.root / "ckpt.pt").read_bytes()

    def test_not_when_something_is_left_out(self, trained: Repository) -> None:
        made = export(trained, "out.pt")
        assert not made.original
        assert made.left_out == 6
        opened = torch_files.open(str(trained.root / "out.pt"))
        assert sorted(t.name for t in opened.tensors) == ["0.bias", "0.weight"]
        opened.close()

    def test_not_when_filtered_to_some(self, repository: Repository) -> None:
        made = export(repository, "out.safetensors", matrices=["*.bias"])
        assert not made.original
        assert list(load_file(repository.root / "out.safetensors")) == ["fc.bias"]

    def test_one_of_two_formats(self, repository: Repository) -> None:
        np.savez(repository.root / "w.npz", **arrays())
        commit(repository, "both", "w.safetensors", "w.npz")
        assert export(repository, "out.npz").original
        added = (repository.root / "w.npz").read_bytes()
        assert (repository.root / "out.npz").read_bytes() == added

    def test_a_part_of_the_snapshot_is_not_the_whole(self, repository: Repository) -> None:
        root = repository.root
        for index, (name, value) in enumerate(arrays().items(), 1):
            save_file({name: value}, root / f"m-0000{index}-of-00002.safetensors")
        commit(repository, "shards", *(p.name for p in root.glob("m-*")))
        made = export(repository, "out.safetensors")
        assert not made.original
        found = load_file(root / "out.safetensors")
        assert {k: v.tobytes() for k, v in found.items()} == {
            k: v.tobytes() for k, v in arrays().items()
        }

    def test_weights_beside_an_optimizer(self, repository: Repository) -> None:
        torch = pytest.importorskip("torch")
        state = {"optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}}}
        torch.save(state, repository.root / "optimizer.pt")
        commit(repository, "two", "w.safetensors", "optimizer.pt")
        made = export(repository, "out.safetensors")
        assert (made.original, made.left_out) == (True, 1)


class TestFormats:
    def test_npz(self, repository: Repository) -> None:
        assert export(repository, "out.npz").tensors == 2
        with np.load(repository.root / "out.npz") as found:
            assert {k: v.tobytes() for k, v in found.items()} == {
                k: v.tobytes() for k, v in arrays().items()
            }

    def test_torch_loads_it(self, repository: Repository) -> None:
        torch = pytest.importorskip("torch")
        export(repository, "out.pth")
        found = torch.load(repository.root / "out.pth", weights_only=True)
        assert {k: v.numpy().tobytes() for k, v in found.items()} == {
            k: v.tobytes() for k, v in arrays().items()
        }

    def test_safetensors_for_torch_libraries(self, trained: Repository) -> None:
        export(trained, "out.safetensors")
        with safe_open(trained.root / "out.safetensors", "np") as found:
            assert found.metadata()["format"] == "pt"
            assert found.metadata()["step"] == "7"
            assert len(found.metadata()["dlv"]) == 64

    def test_json_is_the_network(self, repository: Repository) -> None:
        made = export(repository, "net.json")
        document = json.loads((repository.root / "net.json").read_text())
        assert [node["name"] for node in document["nodes"]] == ["head"]
        assert made.format == "json"
        assert not document["origin"]  # nothing imported it: a person wrote it
        commit(repository, "again", "net.json")
        first, second = (
            repository.manifest(v).network
            for v in (
                repository.head or "",
                repository.manifest(repository.head or "").parents[0].id,
            )
        )
        assert first is not None
        assert second is not None
        assert first.id == second.id

    def test_by_ending_and_by_name(self, repository: Repository) -> None:
        assert export(repository, "out.bin").format == "pt"
        assert export(repository, "weights", format="npz").format == "npz"
        with pytest.raises(UsageError):
            export(repository, "out.mat")

    def test_a_dtype_that_the_format_lacks(self, repository: Repository) -> None:
        tensor = Tensor("half", "bfloat16", (2,), 4, lambda: b"\0" * 4)
        with (repository.root / "bf.safetensors").open("wb") as out:
            snapshots.save(out, "safetensors", [tensor], {})
        commit(repository, "bf", "bf.safetensors")
        with pytest.raises(UsageError) as caught:
            export(repository, "out.npz")
        assert "half" in f"{caught.value.message} {caught.value.why}"
        assert list(repository.root.glob("out*")) == []
        assert list(repository.root.glob(".*dlv-part")) == []


class TestChoice:
    def test_layers_of_the_network(self, repository: Repository) -> None:
        assert export(repository, "out.npz", layers=["head"]).tensors == 2

    def test_layers_by_name_without_a_network(self, trained: Repository) -> None:
        assert export(trained, "out.npz", layers=["0"]).tensors == 2

    def test_an_optimizer_by_name(self, trained: Repository) -> None:
        assert export(trained, "out.npz", matrices=["optimizer*exp_avg"]).tensors == 2

    @pytest.mark.parametrize(
        ("given", "meant"),
        [({"layers": ["haed"]}, "head"), ({"matrices": ["fc.wieght"]}, "fc.weight")],
    )
    def test_nothing_fits(self, repository: Repository, given: dict[str, Any], meant: str) -> None:
        with pytest.raises(NotFound) as caught:
            export(repository, "out.npz", **given)
        assert caught.value.did_you_mean == [meant]

    def test_a_snapshot(self, repository: Repository) -> None:
        for step in (1, 2):
            save_file(arrays(step), repository.root / f"ckpt-{step}.safetensors")
        commit(repository, "steps", "ckpt-1.safetensors", "ckpt-2.safetensors")
        export(repository, "own.safetensors")
        export(repository, "one.safetensors", "steps/1")
        for name, step in (("own", 2), ("one", 1)):
            found = load_file(repository.root / f"{name}.safetensors")
            assert found["fc.weight"].tobytes() == arrays(step)["fc.weight"].tobytes()

    def test_a_tie_to_what_stays_behind(self, repository: Repository) -> None:
        torch = pytest.importorskip("torch")
        shared = torch.ones(3)
        torch.save({"a": shared, "b": shared}, repository.root / "tied.pt")
        commit(repository, "tied", "tied.pt")
        export(repository, "b.pt", matrices=["b"])
        found = torch.load(repository.root / "b.pt", weights_only=True)
        assert found["b"].tolist() == [1, 1, 1]


class TestRefused:
    def test_out_exists(self, repository: Repository) -> None:
        (repository.root / "out.npz").write_text("mine")
        with pytest.raises(Conflict):
            export(repository, "out.npz")
        with pytest.raises(Conflict):
            export(repository, "network.json")
        assert (repository.root / "out.npz").read_text() == "mine"
        export(repository, "out.npz", force=True)
        assert (repository.root / "out.npz").read_bytes()[:2] == b"PK"

    def test_folders(self, repository: Repository) -> None:
        (repository.root / "folder.npz").mkdir()
        with pytest.raises(Conflict):
            export(repository, "folder.npz", force=True)
        with pytest.raises(NotFound):
            export(repository, "no/such/out.npz")

    def test_no_weights_no_network(self, repository: Repository) -> None:
        empty, _ = Repository.init(repository.root / "empty")
        (empty.root / "train.py").write_text("pass")
        commit(empty, "plain", "train.py")
        with pytest.raises(NotFound, match="no weights"):
            export(empty, "out.npz")
        with pytest.raises(NotFound, match="no network"):
            export(empty, "out.json")

    def test_a_network_in_parts(self, repository: Repository) -> None:
        with pytest.raises(UsageError):
            export(repository, "out.json", layers=["head"])

    def test_a_file_reference(self, repository: Repository) -> None:
        with pytest.raises(UsageError):
            export(repository, "out.npz", "HEAD:train.py")

    def test_damage_leaves_the_old_file(self, repository: Repository) -> None:
        (repository.root / "out.npz").write_text("mine")
        for pack in repository.packs.rglob("*.pack"):
            data = bytearray(pack.read_bytes())
            data[8:60] = bytes(52)
            pack.write_bytes(data)
        with pytest.raises(Damaged):
            export(repository, "out.npz", force=True)
        assert (repository.root / "out.npz").read_text() == "mine"


class TestModels:
    def test_one_too_large_for_a_file_has_its_tensors_beside_it(
        self, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save_file({"fc.weight": np.ones((300, 12), "f4")}, repository.root / "w.safetensors")
        big = json.loads(json.dumps(NETWORK).replace('"out": 3', '"out": 300, "bias": false'))
        del big["nodes"][0]["params"]["bias"]
        (repository.root / "network.json").write_text(json.dumps(big))
        commit(repository, "lenet", ".")
        out = tmp_path / "big.onnx"
        assert transfer.export(repository, Request("HEAD", out)).notes == ()
        monkeypatch.setattr(onnx_writer, "MOST_BYTES", 5000)
        with pytest.raises(Conflict, match=r"big\.onnx exists"):
            transfer.export(repository, Request("HEAD", out))
        made = transfer.export(repository, Request("HEAD", out, force=True))
        assert made.notes == ("the tensors are in big.onnx.data: keep it next to the model",)
        assert out.stat().st_size < 5000
        assert out.with_name("big.onnx.data").read_bytes() == np.ones((300, 12), "<f4").tobytes()
        opened = onnx_files.open(str(out))
        with contextlib.closing(opened):
            [tensor] = [each for each in opened.tensors if each.name == "fc.weight"]
            assert bytes(tensor.read()) == np.ones((300, 12), "<f4").tobytes()
            assert opened.hyperparameters == {}  # what dlv noted is no setting of the model
        out.unlink()
        with pytest.raises(Conflict, match=r"big\.onnx\.data exists"):
            transfer.export(repository, Request("HEAD", out))
        assert not out.exists()
        assert not [path for path in tmp_path.iterdir() if "dlv-part" in path.name]

    def test_a_network_without_weights(self, tmp_path: Path) -> None:
        repository, _ = Repository.init(tmp_path / "caffe")
        (repository.root / "net.prototxt").write_text(CAFFE)
        commit(repository, "net", "net.prototxt")
        with pytest.raises(NotFound, match="net@1 has no weights") as caught:
            transfer.export(repository, Request("net", tmp_path / "net.onnx"))
        assert "without its .caffemodel" in str(caught.value.why)
        assert "dlv export net net.json" in str(caught.value.hint)


def test_progress_counts_what_was_announced(repository: Repository) -> None:
    totals: list[int] = []
    counts: list[int] = []
    export(repository, "out.npz", total=totals.append, progress=counts.append)
    assert totals == [sum(v.nbytes for v in arrays().values())]
    assert sum(counts) == totals[0]
