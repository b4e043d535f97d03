from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

import dlv.disk.durable as durable
import dlv.training.checkpoints as checkpoints
from dlv.canonical import hash_bytes
from dlv.errors import Damaged, StorageError, UsageError
from dlv.training.checkpoints import Checkpoint, newest, read, save

FULL = Checkpoint(
    40,
    {
        "weight/fc": np.arange(6, dtype=np.float32).reshape(2, 3),
        "odd": np.array([np.nan, -0.0, np.inf, 5e-324]),
        "none": np.zeros((0, 3), np.int64),
        "one": np.array(7, np.uint8),
        "turned": np.arange(6).reshape(2, 3).T,
        "half": np.array([1.5], np.float16),
        "complex": np.array([1 + 2j], np.complex64),
    },
    {"best": math.inf, "nothing": math.nan, "rng": {"state": 1 << 100}, "list": [1, "ä", None]},
    {20: {"loss": 0.5}, 40: {"loss": math.nan, "acc": -math.inf}},
)


def same(one: Checkpoint, other: Checkpoint) -> bool:
    def bits(found: Checkpoint) -> Any:
        arrays = {}
        for name, held in found.arrays.items():
            array = np.asarray(held)
            array = array.astype(array.dtype.newbyteorder("="))
            arrays[name] = (array.dtype, array.shape, array.tobytes())
        return (found.step, arrays, repr(found.values), repr(found.metrics), found.files)

    return bool(bits(one) == bits(other))


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint", FULL, 3)
    found = newest(tmp_path / "checkpoint")
    assert found is not None
    assert same(found, FULL)
    assert list(found.weights) == ["fc"]
    assert set(found.state) == {*FULL.arrays, *FULL.values}
    assert found.arrays["turned"].flags.writeable


ARRAYS = arrays_of.arrays(
    st.one_of(arrays_of.floating_dtypes(), arrays_of.integer_dtypes(), arrays_of.boolean_dtypes()),
    arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**9),
    st.dictionaries(st.text(max_size=5), ARRAYS, max_size=4),
    st.dictionaries(st.text(max_size=4), JSON, max_size=3),
    st.dictionaries(
        st.integers(0, 1000), st.dictionaries(st.text(max_size=4), st.floats()), max_size=4
    ),
    st.integers(0, 10**9),
)
def test_any_arrays_and_values(
    tmp_path_factory: pytest.TempPathFactory,
    step: int,
    arrays: Mapping[str, Any],
    values: Mapping[str, Any],
    metrics: Mapping[int, Mapping[str, float]],
    token: int,
) -> None:
    given = Checkpoint(step, arrays, values, {s: metrics[s] for s in sorted(metrics)})
    assert same(read(save(tmp_path_factory.mktemp("c"), given, token)), given)


def test_the_newest_is_of_the_highest_step_and_token(tmp_path: Path) -> None:
    for step, token in ((20, 1), (20, 2), (10, 9)):
        save(tmp_path, Checkpoint(step, {}, {"by": token}), token)
    found = newest(tmp_path)
    assert found is not None
    assert (found.step, found.values) == (20, {"by": 2})
    assert newest(tmp_path, most_step=15) is None  # only two are kept
    save(tmp_path, Checkpoint(30), 2)
    limited = newest(tmp_path, most_step=25)
    assert limited is not None
    assert limited.step == 20


def test_one_is_kept_beside_the_newest(tmp_path: Path) -> None:
    for step in (5, 10, 15, 20):
        save(tmp_path, Checkpoint(step), 1)
    assert sorted(p.name for p in tmp_path.glob("*.ckpt")) == ["15-1.ckpt", "20-1.ckpt"]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_all_are_kept_where_that_is_wanted(tmp_path: Path) -> None:
    checkpoints.keep_all(tmp_path)
    for step, token in ((5, 1), (10, 1), (20, 2), (20, 10), (100, 3)):
        save(tmp_path, Checkpoint(step, {}, {"by": token}), token)
    (tmp_path / "10-1.ckpt").write_bytes(b"damaged")
    found = [(each.step, each.values["by"]) for each in checkpoints.steps(tmp_path, 100)]
    assert found == [(5, 1), (20, 10), (100, 3)]
    (tmp_path / "20-10.ckpt").write_bytes(b"damaged")
    found = [(each.step, each.values["by"]) for each in checkpoints.steps(tmp_path, 99)]
    assert found == [(5, 1), (20, 2)]
    checkpoints.thin(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["100-3.ckpt", "20-10.ckpt", "tmp"]
    save(tmp_path, Checkpoint(200), 4)
    assert sorted(p.name for p in tmp_path.glob("*.ckpt")) == ["100-3.ckpt", "200-4.ckpt"]


def test_no_folder_no_checkpoint(tmp_path: Path) -> None:
    assert newest(tmp_path / "nothing") is None
    (tmp_path / "file").write_text("")
    assert newest(tmp_path / "file") is None


def test_every_damaged_byte_is_found_and_the_one_before_is_used(tmp_path: Path) -> None:
    save(tmp_path, Checkpoint(10, {}, {"old": True}), 1)
    path = save(tmp_path, FULL, 1)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 0x40
        path.write_bytes(damaged)
        with pytest.raises(Damaged):
            read(path)
    for length in (0, 5, 16, 40, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        found = newest(tmp_path)
        assert found is not None
        assert found.step == 10
    path.write_bytes(whole + b"\0")
    with pytest.raises(Damaged):
        read(path)


def forged(path: Path, header: Any, payload: bytes = b"", *, length: int | None = None) -> Path:
    """A file whose checksum is right, whatever it says."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    data = checkpoints.MAGIC + (len(text) if length is None else length).to_bytes(8, "little")
    data += text + payload
    path.write_bytes(data + bytes.fromhex(hash_bytes(data)))
    return path


def row(**changes: Any) -> dict[str, Any]:
    return {"name": "a", "dtype": "<f4", "shape": [1], "at": 0, **changes}


def header(**changes: Any) -> dict[str, Any]:
    plain = {"dlv_checkpoint": 1, "step": 5, "token": 1, "arrays": [], "values": {}}
    return {**plain, "metrics": [], "files": {}, **changes}


HOSTILE: Mapping[str, Any] = {
    "no object": [1],
    "no JSON": b"\xff{",
    "deep": b"[" * 100_000,
    "another format": header(dlv_checkpoint=2),
    "another step": header(step=6),
    "another token": header(token=2),
    "no arrays": {k: v for k, v in header().items() if k != "arrays"},
    "arrays of text": header(arrays="abc"),
    "object dtype": header(arrays=[row(dtype="|O")]),
    "text dtype": header(arrays=[row(dtype="<U4")]),
    "void dtype": header(arrays=[row(dtype="|V4")]),
    "fields": header(arrays=[row(dtype=[["a", "<f4"]])]),
    "no dtype": header(arrays=[row(dtype="nonsense")]),
    "negative": header(arrays=[row(shape=[-1])]),
    "huge": header(arrays=[row(shape=[1 << 40])]),
    "huge product": header(arrays=[row(shape=[1 << 40, 1 << 40])]),
    "before": header(arrays=[row(at=-8)]),
    "behind": header(arrays=[row(at=1 << 20)]),
    "fraction": header(arrays=[row(at=0.5)]),
    "shape of text": header(arrays=[row(shape="ab")]),
    "values are a list": header(values=[1]),
    "metrics are text": header(metrics="ab"),
    "metric is text": header(metrics=[[5, {"loss": "high"}]]),
    "files are a list": header(files=["a"]),
    "a file that is not there": header(files={"nothing": "00"}),
    "a file elsewhere": header(files={"../../../../../../../etc/passwd": "00"}),
}


@pytest.mark.hostile
@pytest.mark.parametrize("fault", HOSTILE)
def test_hostile_headers(tmp_path: Path, fault: str) -> None:
    path = forged(tmp_path / "5-1.ckpt", HOSTILE[fault], bytes(64))
    with pytest.raises(Damaged):
        read(path)
    assert newest(tmp_path) is None


@pytest.mark.hostile
def test_a_length_that_is_too_large(tmp_path: Path) -> None:
    for length in (1 << 63, 10_000, (1 << 64) - 1):
        with pytest.raises(Damaged):
            read(forged(tmp_path / "5-1.ckpt", header(), length=length))


def test_names_that_are_none_are_left_alone(tmp_path: Path) -> None:
    save(tmp_path, Checkpoint(5), 1)
    for name in (
        "x.ckpt",
        "5.ckpt",
        "-1-1.ckpt",
        "5-1.ckpt.tmp",
        "9" * 30 + "-1.ckpt",
        "5-1-1.ckpt",
    ):
        (tmp_path / name).write_text("")
    (tmp_path / "7-1.ckpt").mkdir()
    found = newest(tmp_path)
    assert found is not None
    assert found.step == 5


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (Checkpoint(1, {"a": np.array(["text"])}), "array 'a' of a checkpoint is of <U4"),
        (Checkpoint(1, {"a": np.array([object()])}), "is of object"),
        (Checkpoint(1, {}, {"a": {1, 2}}), "values of a checkpoint are not JSON"),
        (Checkpoint(1, {}, {"a": object()}), "values of a checkpoint are not JSON"),
    ],
)
def test_what_cannot_be_kept_is_said(tmp_path: Path, state: Checkpoint, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        save(tmp_path, state, 1)
    assert newest(tmp_path) is None


def test_only_the_last_metrics_go_with_it(tmp_path: Path) -> None:
    many = {step: {"loss": 1.0} for step in range(1, 1001)}
    found = read(save(tmp_path, Checkpoint(1000, {}, {}, many), 1))
    assert sorted(found.metrics) == list(range(745, 1001))


class Stops(durable.Failpoints):
    """The disk refuses, or the process dies, at the n-th durable call."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.left, self.error = at, error

    def hit(self, name: str) -> None:  # noqa: ARG002
        self.left -= 1
        if self.left == 0:
            raise self.error


@pytest.fixture
def _whole_disk() -> Iterator[None]:
    before = durable.failpoints
    yield
    durable.failpoints = before


class Died(BaseException):
    pass


@pytest.mark.usefixtures("_whole_disk")
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Died()])
def test_cut_short_anywhere_the_old_or_the_new_one_is_there(
    tmp_path: Path, error: BaseException
) -> None:
    save(tmp_path, Checkpoint(10), 1)
    for at in range(1, 40):
        durable.failpoints = Stops(at, error)
        try:
            save(tmp_path, FULL, 1)
            done = True
        except (Died, StorageError):
            done = False
        durable.failpoints = durable.Failpoints()
        found = newest(tmp_path)
        assert found is not None
        assert found.step in (10, 40)
        if done:
            assert same(found, FULL)
            break
        (tmp_path / "40-1.ckpt").unlink(missing_ok=True)
    else:
        raise AssertionError("it never came to its end")
    assert at > 5
    save(tmp_path, Checkpoint(50), 1)
    assert os.listdir(tmp_path / "tmp") == []


def test_files_of_the_trainer_are_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "run-1").mkdir()
    own = tmp_path / "run-1" / "20.npz"
    own.write_bytes(b"state")
    folder = tmp_path / "checkpoint"
    digest = checkpoints.file_digest(own)
    save(folder, Checkpoint(10), 1)
    save(folder, Checkpoint(20, files={"run-1/20.npz": digest}), 1)
    found = newest(folder)
    assert found is not None
    assert found.step == 20
    own.write_bytes(b"other")
    found = newest(folder)
    assert found is not None
    assert found.step == 10


def test_the_digest_of_a_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "x").write_text("1")
    assert checkpoints.file_digest(tmp_path / "a") == checkpoints.file_digest(tmp_path / "b")
    (tmp_path / "b" / "deep" / "x").rename(tmp_path / "b" / "deep" / "y")
    assert checkpoints.file_digest(tmp_path / "a") != checkpoints.file_digest(tmp_path / "b")
