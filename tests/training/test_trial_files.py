from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.disk.durable as durable
from dlv.adapters.checkpoint import Tensor
from dlv.canonical import hash_bytes
from dlv.errors import Conflict, Damaged, NotFound, StorageError, UsageError
from dlv.training.checkpoints import Checkpoint
from dlv.training.config import resolve
from dlv.training.trial_files import Held, TrialFiles, start_hash, words_of
from tests.training import small

NET = small.mlp()
CONFIG = resolve({"steps": 10}, [], NET)
START = small.held(small.mlp_weights())


def files(folder: Path) -> TrialFiles:
    made = TrialFiles(folder / "trials" / hash_bytes(b"a trial"))
    made.create(NET, CONFIG, START, {"directory": "/here", "fingerprints": {"input_data": "f"}})
    return made


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    made = files(tmp_path)
    trial = made.load()
    assert trial.network == NET
    assert trial.config == CONFIG
    assert trial.id == made.id
    assert trial.names == list(START)
    assert trial.fingerprints == {"input_data": "f"}
    assert trial.directory == Path("/here")
    for name, array in small.mlp_weights().items():
        assert trial.weights(name).tobytes() == array.tobytes()
        assert trial.weights(name).flags.writeable
    assert sorted(path.name for path in made.folder.iterdir()) == ["start.npz", "trial.json"]
    assert [path.name for path in made.folder.parent.iterdir()] == [made.id]


def test_made_again_it_stays_as_it_is(tmp_path: Path) -> None:
    made = files(tmp_path)
    before = (made.folder / "trial.json").stat().st_mtime_ns
    again = resolve({"steps": 99}, [], NET)
    made.create(NET, again, START, {})
    assert made.load().config.steps == 10
    assert (made.folder / "trial.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("name", ["start.npz", "trial.json"])
@pytest.mark.parametrize("part", [0, 0.02, 0.3, 0.6, 0.9, 0.95, 0.99])
def test_what_the_disk_has_otherwise_is_no_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, part: float
) -> None:
    """A bit is another one by the time that the file is read back."""
    plain = durable.read_back

    def spoiled(descriptor: int, digest: str, path: Path) -> None:
        if path.name == name:
            data = bytearray(path.read_bytes())
            data[int(part * len(data))] ^= 4
            path.write_bytes(data)
        plain(descriptor, digest, path)

    monkeypatch.setattr(durable, "read_back", spoiled)
    with pytest.raises(StorageError, match="did not read back"):
        files(tmp_path)
    assert not list((tmp_path / "trials").iterdir())
    monkeypatch.undo()
    files(tmp_path).load()


def test_equal_trials_are_equal_bytes(tmp_path: Path) -> None:
    one, two = files(tmp_path / "one"), files(tmp_path / "two")
    for name in ("trial.json", "start.npz"):
        assert (one.folder / name).read_bytes() == (two.folder / name).read_bytes()


def test_two_queries_at_once(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def make() -> None:
        try:
            files(tmp_path)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    files(tmp_path).load()
    assert len(list((tmp_path / "trials").iterdir())) == 1


def test_dtypes_that_numpy_lacks_are_words(tmp_path: Path) -> None:
    start = {
        "fc1.weight": Held("bfloat16", (2, 2), bytes(range(8))),
        "fc1.bias": Held("float8_e4m3", (3,), b"abc"),
        "none": Held("float32", (0, 4), b""),
        "one": Held("int64", (), (5).to_bytes(8, "little")),
        "odd/na\nme\0": Held("float32", (1,), bytes(4)),
    }
    made = TrialFiles(tmp_path / "t")
    made.create(NET, CONFIG, start, {})
    trial = made.load()
    assert trial.weights("fc1.weight").dtype == np.uint16
    assert trial.weights("fc1.bias").dtype == np.uint8
    for name, tensor in start.items():
        found = trial.tensor_of(name, trial.weights(name))
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        assert bytes(found.raw) == bytes(tensor.raw)
    with np.load(made.folder / "start.npz") as held:
        assert {"fc1.weight", "fc1.bias", "none", "one"} < set(held)
    assert words_of("float32") == "float32"


def test_tied_tensors_and_constants(tmp_path: Path) -> None:
    raw = np.arange(4, dtype=np.float32).tobytes()
    start = {
        "a": Tensor("a", "float32", (4,), 16, lambda: raw),
        "b": Tensor("b", "float32", (4,), 16, lambda: raw, "buffer", "a"),
    }
    made = TrialFiles(tmp_path / "t")
    made.create(NET, CONFIG, start, {}, constants={"a": Held("int64", (1,), bytes(8))})
    trial = made.load()
    assert trial.tensors["b"].tied == "a"
    assert trial.tensors["b"].role == "buffer"
    assert trial.weights("b").tolist() == [0, 1, 2, 3]
    assert trial.names == ["a", "b"]
    assert trial.constant("a").tolist() == [0]


def test_the_hash_of_a_start() -> None:
    assert start_hash(START) == start_hash(dict(reversed(START.items())))
    other = {**START, "fc1.bias": Held("float32", (8,), bytes(31) + b"\1")}
    assert start_hash(START) != start_hash(other)
    renamed = {f"x{name}": tensor for name, tensor in START.items()}
    assert start_hash(START) != start_hash(renamed)


def test_names_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="has no trial"):
        TrialFiles(tmp_path / "nothing").load()
    with pytest.raises(NotFound, match="no tensor 'fc1") as caught:
        files(tmp_path).load().weights("fc1.wieght")
    assert "fc1.weight" in caught.value.did_you_mean
    with pytest.raises(UsageError, match="has no data"):
        _ = files(tmp_path).load().data


def changed(path: Path, **changes: Any) -> None:
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, **changes}, sort_keys=True))


def test_what_was_changed_is_damaged(tmp_path: Path) -> None:
    made = files(tmp_path)
    path = made.folder / "trial.json"
    whole = path.read_bytes()
    changed(path, config={})
    with pytest.raises(Damaged, match="is corrupt"):
        made.load()
    for text in (b"", b"{", b"[]", b"{}", b"5", b'{"dlv_trial": 2}', b"[" * 10_000, whole[:-40]):
        path.write_bytes(text)
        with pytest.raises(Damaged):
            made.load()
    path.write_bytes(whole)
    start = made.folder / "start.npz"
    data = bytearray(start.read_bytes())
    data[len(data) // 2] ^= 1
    start.write_bytes(data)
    with pytest.raises(Damaged, match=r"start\.npz"):
        made.load()
    start.unlink()
    with pytest.raises(StorageError):
        made.load()


def test_a_trial_in_the_folder_of_another(tmp_path: Path) -> None:
    made = files(tmp_path)
    other = made.folder.rename(made.folder.parent / hash_bytes(b"another"))
    with pytest.raises(Conflict, match="belongs to another trial"):
        TrialFiles(other).load()


def test_a_start_of_a_wrong_length(tmp_path: Path) -> None:
    made = TrialFiles(tmp_path / "trials" / "t")
    with pytest.raises(Damaged, match="wrong length"):
        made.create(NET, CONFIG, {"a": Held("float32", (3,), bytes(8))}, {})
    assert not made.folder.exists()
    assert list((tmp_path / "trials").iterdir()) == []


def test_weights_of_a_checkpoint(tmp_path: Path) -> None:
    made = files(tmp_path)
    arrays = {f"weight/{name}": array + 1 for name, array in small.mlp_weights().items()}
    found = made.weights(Checkpoint(5, {**arrays, "other": np.zeros(2)}))
    assert list(found) == list(START)
    assert np.frombuffer(found["fc2.bias"].raw, np.float32).tolist() == [1, 1, 1]
    assert made.weights(Checkpoint(5, {"other": np.zeros(2)})) == {}
    wrong = Checkpoint(5, {"weight/fc2.bias": np.zeros(3)})
    with pytest.raises(UsageError, match=r"fc2\.bias of a checkpoint does not"):
        made.weights(wrong)


def test_weights_in_a_programs_own_archive(tmp_path: Path) -> None:
    made = files(tmp_path)
    path = made.folder / "own.npz"
    np.savez(path, **{"fc2.bias": np.full(3, 2, np.float32), "step": 5})  # type: ignore[arg-type]
    found = made.weights(Checkpoint(5, files={"own.npz": "-"}))
    assert list(found) == ["fc2.bias"]
    for content in (b"", b"PK\3\4", b"\0" * 100, path.read_bytes()[:200]):
        path.write_bytes(content)
        with pytest.raises(Damaged, match=r"own\.npz cannot be read"):
            made.weights(Checkpoint(5, files={"own.npz": "-"}))
    np.savez(path, **{"fc2.bias": np.array([object()])})  # type: ignore[arg-type]
    with pytest.raises(Damaged):
        made.weights(Checkpoint(5, files={"own.npz": "-"}))


def test_a_slice_may_log_otherwise(tmp_path: Path) -> None:
    trial = files(tmp_path).load()
    assert trial.with_(log_every=3).config.log_every == 3
    assert trial.config.log_every == 20
