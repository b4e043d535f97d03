"""Models that keep their weights in files beside their own come back as these files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dlv.repository.revisions as revisions
import dlv.upkeep.check as check
import dlv.versions.add as adding
import dlv.versions.checkout as checkouts
import dlv.versions.commit as committing
import dlv.versions.quantize as quantizing
from dlv.repository.handle import Repository
from tests.onnx_models import MODELS

onnx: Any = pytest.importorskip("onnx")


def write(folder: Path, name: str, model: str, data: str) -> None:
    made = onnx.ModelProto()
    made.CopyFrom(MODELS[model]())
    onnx.save(
        made,
        folder / name,
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=data,
        size_threshold=0,
    )


def committed(folder: Path, *words: str) -> Repository:
    repository, _ = Repository.init(folder)
    adding.add(repository, folder, list(words), adding.Request())
    committing.commit(repository, committing.Request("m", "Ada", "net"))
    return repository


def checked_out(
    repository: Repository, name: str = "net", planes: int | None = None
) -> dict[str, bytes]:
    request = checkouts.Request(
        name,
        "Ada",
        repository.root,
        lambda format_, path: adding.open_weights(path, format_),
        to=Path("back"),
        planes=planes,
    )
    checkouts.checkout(repository, request)
    back = repository.root / "back"
    return {p.relative_to(back).as_posix(): p.read_bytes() for p in back.rglob("*") if p.is_file()}


@pytest.mark.parametrize("words", [["net.onnx"], ["net.onnx", "net.data"], ["net.data", "."]])
def test_both_files_come_back_and_are_stored_once(tmp_path: Path, words: list[str]) -> None:
    write(tmp_path, "net.onnx", "residual", "net.data")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    repository = committed(tmp_path, *words)
    assert checked_out(repository) == before
    manifest = repository.manifest(revisions.version(repository.database, "net").id)
    assert manifest.files == ()
    assert check.check(repository).faults == []


def test_a_file_in_a_folder_comes_back_there(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    write(tmp_path, "net.onnx", "residual", "w/net.data")
    before = (tmp_path / "w" / "net.data").read_bytes()
    assert checked_out(committed(tmp_path, "net.onnx"))["w/net.data"] == before


def test_two_models_over_one_file_each_hold_their_own(tmp_path: Path) -> None:
    write(tmp_path, "a.onnx", "residual", "shared.data")
    write(tmp_path, "b.onnx", "residual", "shared.data")  # goes on behind it
    found = checked_out(committed(tmp_path, "a.onnx", "b.onnx"))
    assert found["shared.data"] == (tmp_path / "shared.data").read_bytes()
    assert found["a.onnx"] == (tmp_path / "a.onnx").read_bytes()
    whole = onnx.ModelProto.FromString(found["b.onnx"])
    loaded = onnx.load(tmp_path / "b.onnx")
    assert [t.raw_data for t in whole.graph.initializer] == [
        t.raw_data for t in loaded.graph.initializer
    ]


def numbers(model: Path) -> list[Any]:
    return [onnx.numpy_helper.to_array(item) for item in onnx.load(model).graph.initializer]


@pytest.mark.parametrize("way", ["quantized", "planes"])
def test_approximate_weights_are_in_the_file_that_the_model_names(tmp_path: Path, way: str) -> None:
    write(tmp_path, "net.onnx", "lenet", "net.data")
    repository = committed(tmp_path, "net.onnx")
    if way == "quantized":
        quantizing.quantize(repository, "net", "uniform:8", author="Ada")
        found = checked_out(repository, "net-uniform8")
    else:
        found = checked_out(repository, planes=2)
    [model] = [name for name in found if name.endswith(".onnx")]
    assert found.keys() == {model, "net.data"}
    rough, exact = numbers(tmp_path / "back" / model), numbers(tmp_path / "net.onnx")
    assert [x.shape for x in rough] == [x.shape for x in exact]
    off = [float(abs(a - b).max()) for a, b in zip(rough, exact, strict=True)]
    assert 0 < max(off) < 0.05
