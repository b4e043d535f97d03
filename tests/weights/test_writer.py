"""What one commit writes: once each, checked, in the right order, or not at all."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlv.canonical import hash_bytes, matrix_hash
from dlv.disk import durable
from dlv.disk.durable import Failpoints, path_of
from dlv.errors import Conflict, Damaged, DlvError, StorageError
from dlv.pas.layouts.segments import WORDS
from dlv.pas.packs import Pack
from dlv.weights import writer as weight_writer
from dlv.weights.store import MatrixStore
from dlv.weights.writer import PackRecord, WeightWriter
from tests.conformance.layout import random_matrix
from tests.memory_index import MemoryIndex

Place = tuple[MatrixStore, MemoryIndex]


def place(folder: Path) -> Place:
    (folder / "packs").mkdir(parents=True)
    (folder / "tmp").mkdir()
    index = MemoryIndex()
    return MatrixStore(folder / "packs", folder / "tmp", index), index


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return place(tmp_path)


def model(seed: int = 0) -> list[tuple[str, tuple[int, ...], bytes]]:
    """Matrices like a small network's, some below and some above the limit for sharing."""
    source = np.random.default_rng(seed)
    shapes = [(300, 200), (300,), (200, 100), (100,), (5, 5, 3, 3), (), (0, 7), (130, 300)]
    return [
        ("float32", shape, source.normal(0, 0.05, shape).astype("<f4").tobytes())
        for shape in shapes
    ]


def fill(writer: WeightWriter, seed: int = 0) -> list[str]:
    return [writer.add(dtype, shape, raw) for dtype, shape, raw in model(seed)]


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_packs_are_named_by_their_bytes_and_described(here: Place) -> None:
    store, index = here
    writer = WeightWriter(store)
    names = fill(writer)
    (pack,) = writer.finish()
    assert isinstance(pack, PackRecord)
    data = pack.path.read_bytes()
    assert pack.path == path_of(store.packs_dir, pack.hash, ".pack")
    assert pack.hash == blake3(data).hexdigest()
    assert pack.bytes == len(data)
    with Pack(pack.path) as opened:
        assert opened.footer.as_json() == pack.footer
    index.add([pack])
    for name, (dtype, shape, raw) in zip(names, model(), strict=True):
        assert name == matrix_hash(dtype, shape, raw)
        assert bytes(store.matrix(name)) == raw
    assert files_in(store.tmp_dir) == []


def test_small_matrices_first_then_plane_by_plane(here: Place) -> None:
    writer = WeightWriter(here[0])
    fill(writer)
    writer.add_object("network", b"{}")
    (pack,) = writer.finish()
    order = [(row.kind, row.plane, len(row.members)) for row in pack.rows.chunks]
    assert order == [
        *[("plane", plane, 4) for plane in range(4)],
        *[("plane", plane, 1) for plane in range(4) for _ in range(3)],
        ("network", None, 1),
    ]


def test_the_same_packs_for_any_number_of_jobs(tmp_path: Path) -> None:
    found: list[list[tuple[str, int]]] = []
    for jobs in (1, 2, 5, 2):
        store, _ = place(tmp_path / str(len(found)))
        writer = WeightWriter(store, jobs=jobs, buffer=100_000)
        fill(writer, 1)
        fill(writer, 2)
        found.append([(pack.hash, pack.bytes) for pack in writer.finish()])
    assert len(found[0]) > 1
    assert found[0] == found[1] == found[2] == found[3]


def test_equal_matrices_are_stored_once(here: Place) -> None:
    writer = WeightWriter(here[0])
    assert fill(writer) == fill(writer)
    (pack,) = writer.finish()
    assert len(pack.rows.encodings) == len(model())


def test_equal_bytes_of_other_type_or_shape_are_other_matrices(here: Place) -> None:
    store, index = here
    writer = WeightWriter(store)
    raw = random_matrix("float32", (6,), 1)
    kinds = [("float32", (6,)), ("float32", (2, 3)), ("int32", (6,)), ("complex64", (3,))]
    names = [writer.add(dtype, shape, raw) for dtype, shape in kinds]
    index.add(writer.finish())
    assert len(set(names)) == 4
    for name in names:
        assert bytes(store.matrix(name)) == raw


def test_what_is_known_is_not_written_again(here: Place) -> None:
    store, index = here
    for _ in range(2):
        writer = WeightWriter(store)
        fill(writer)
        writer.add_object("series", b"points" * 20)
        index.add(writer.finish())
    assert len(files_in(store.packs_dir)) == 1
    writer = WeightWriter(store)
    fill(writer, 5)
    (second,) = writer.finish()
    # Only a matrix without elements is the same for any seed.
    assert len(second.rows.encodings) == len(model()) - 1


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("recheck", ["hash", "stat"])
@pytest.mark.parametrize("damage", ["flip", "gone", "cut"])
def test_what_is_reused_is_looked_at_again(
    here: Place, jobs: int, recheck: str, damage: str
) -> None:
    store, index = here
    writer = WeightWriter(store)
    fill(writer)
    (pack,) = writer.finish()
    index.add([pack])
    writer = WeightWriter(store, jobs=jobs, recheck=recheck)
    fill(writer)
    writer.add("float32", (9,), bytes(36))
    data = bytearray(pack.path.read_bytes())
    data[pack.rows.chunks[-1].offset] ^= 1
    if damage == "gone":
        pack.path.unlink()
    else:
        pack.path.write_bytes(data if damage == "flip" else data[:2000])
    if damage == "flip" and recheck == "stat":
        writer.finish()
        return
    with pytest.raises(Damaged, match=pack.hash):
        writer.finish()


def test_nothing_gives_no_pack(here: Place) -> None:
    assert WeightWriter(here[0], jobs=2).finish() == []


def test_an_empty_matrix_alone_is_remembered(here: Place) -> None:
    store, index = here
    writer = WeightWriter(store)
    name = writer.add("int64", (4, 0), b"")
    index.add(writer.finish())
    assert bytes(store.matrix(name)) == b""


def test_a_wrong_length_is_refused(here: Place) -> None:
    with WeightWriter(here[0]) as writer, pytest.raises(DlvError, match="float32"):
        writer.add("float32", (3,), b"12345")


def test_any_view_of_the_bytes_will_do(here: Place) -> None:
    store, index = here
    array = np.arange(60_000, dtype="<f4").reshape(200, 300)
    views: list[Any] = [
        array.tobytes(),
        bytearray(array.tobytes()),
        array.data,
        array.data.cast("B"),
    ]
    writer = WeightWriter(store)
    names = {writer.add("float32", (200, 300), view) for view in views}
    name = writer.add("float32", (0,), np.empty((0,), "<f4").data)
    index.add(writer.finish())
    assert bytes(store.matrix(names.pop())) == array.tobytes()
    assert not names
    assert bytes(store.matrix(name)) == b""


@pytest.mark.parametrize("jobs", [1, 3])
def test_long_matrices_are_cut(here: Place, monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    monkeypatch.setattr(weight_writer, "SLICE", 100_001)
    monkeypatch.setattr(weight_writer, "WINDOW", 150_000)
    store, index = here
    writer = WeightWriter(store, jobs=jobs, buffer=200_000)
    content = {}
    for dtype, count in (("float32", 90_000), ("complex128", 30_000), ("int8", 200_003)):
        raw = random_matrix(dtype, (count,), count)
        content[writer.add(dtype, (count,), raw)] = raw
    packs = writer.finish()
    index.add(packs)
    assert len(packs) > 2
    for pack in packs:
        Pack(pack.path).close()
        assert pack.rows.encodings
    for name, raw in content.items():
        assert bytes(store.matrix(name)) == raw
        encoding = index.encodings[name]
        assert len(index.chunks(name)) > encoding.planes


def test_long_objects_are_cut(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_writer, "MAX_OBJECT_CHUNK", 70_000)
    store, index = here
    data = random.Random(1).randbytes(200_000)
    writer = WeightWriter(store)
    name = writer.add_object("blob", data)
    small = [writer.add_object("points", b"p%d" % n) for n in range(40)]
    index.add(writer.finish())
    assert [row.raw for row in index.object_chunks("blob", name)] == [70_000, 70_000, 60_000]
    assert store.object("blob", name) == data
    assert len({row.offset for row in index.pieces if row.kind == "points"}) == 1
    assert [bytes(store.object("points", row)) for row in small] == [b"p%d" % n for n in range(40)]
    assert name == hash_bytes(data)


def parts_of(raw: bytearray | bytes) -> Callable[[int, int], bytes]:
    return lambda start, size: bytes(raw[start : start + size])


def test_a_file_that_changes_while_it_is_read_in_parts(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = here
    monkeypatch.setattr(weight_writer, "WHOLE", weight_writer.SMALL)
    buffer = bytearray(random_matrix("float32", (40_000,), 1))
    reads = []

    def read(start: int, size: int) -> bytes:
        reads.append(start)
        if len(reads) == 2:  # named, now it is read again to be encoded
            buffer[7] ^= 1
        return bytes(buffer[start : start + size])

    with WeightWriter(store) as writer, pytest.raises(Conflict, match="changed"):
        writer.add_parts("float32", (40_000,), len(buffer), read)
    assert files_in(store.packs_dir) + files_in(store.tmp_dir) == []


def few_words(count: int, words: int = 200) -> tuple[str, tuple[int], bytes]:
    rng = np.random.default_rng(count)
    values = rng.choice(rng.standard_normal(words).astype("<f4"), count)
    return "float32", (count,), values.tobytes()


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("count", [5_000, 40_000, 90_000])
def test_few_words_are_codes_into_a_table(
    here: Place, monkeypatch: pytest.MonkeyPatch, count: int, parts: bool
) -> None:
    monkeypatch.setattr(weight_writer, "SLICE", 100_001)
    monkeypatch.setattr(weight_writer, "WHOLE", weight_writer.SMALL)
    store, index = here
    dtype, shape, raw = few_words(count)
    with WeightWriter(store, jobs=2) as writer:
        add = writer.add_parts if parts else writer.add
        given: Any = (len(raw), parts_of(raw)) if parts else (raw,)
        name = add(dtype, shape, *given)
        packs = writer.finish()
        index.add(packs)
    encoding = store.encoding(name)
    assert encoding is not None
    assert (encoding.layout["id"], encoding.planes) == ("table", 1)
    words = encoding.layout["words"]
    assert words == len(np.unique(np.frombuffer(raw, "<u4"))) > 150
    sides = [piece.count for piece in store.chunks(name) if piece.kind == "side"]
    assert sides == [4 * words]
    assert bytes(store.matrix(name)) == raw
    assert sum(pack.bytes for pack in packs) < len(raw) // 4 + 4 * words + 2000


@pytest.mark.parametrize("jobs", [1, 2])
def test_parts_give_the_same_packs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    monkeypatch.setattr(weight_writer, "SLICE", 100_001)
    monkeypatch.setattr(weight_writer, "WHOLE", weight_writer.SMALL)
    monkeypatch.setattr(weight_writer, "READ_SIZE", 3001)
    matrices = [(d, s, r) for d, s, r in model() if len(r)]
    matrices += [("float32", (90_000,), random_matrix("float32", (90_000,), 4)), few_words(90_000)]
    store, _ = place(tmp_path / "whole")
    with WeightWriter(store) as writer:
        named = [writer.add(dtype, shape, raw) for dtype, shape, raw in matrices]
        expected = [pack.hash for pack in writer.finish()]
    store, _ = place(tmp_path / "parts")
    with WeightWriter(store, jobs=jobs) as writer:
        for name, (dtype, shape, raw) in zip(named * 2, matrices * 2, strict=True):
            assert writer.add_parts(dtype, shape, len(raw), parts_of(raw)) == name
        assert [pack.hash for pack in writer.finish()] == expected


def test_parts_of_what_is_stored_are_read_once(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_writer, "WHOLE", weight_writer.SMALL)
    store, index = here
    raw = random_matrix("float32", (40_000,), 2)
    with WeightWriter(store) as writer:
        writer.add("float32", (40_000,), raw)
        index.add(writer.finish())
    read = []

    def part(start: int, size: int) -> bytes:
        read.append(size)
        return raw[start : start + size]

    with WeightWriter(store) as writer:
        writer.add_parts("float32", (40_000,), len(raw), part)
        assert writer.finish() == []
    assert sum(read) == len(raw)


def test_small_buffers_may_be_used_again_at_once(here: Place) -> None:
    store, index = here
    writer = WeightWriter(store, jobs=2)
    buffer = bytearray(400)
    names = []
    for number in range(20):
        buffer[:] = bytes([number]) * 400
        names.append(writer.add("float32", (100,), memoryview(buffer)))
    index.add(writer.finish())
    for number, name in enumerate(names):
        assert bytes(store.matrix(name)) == bytes([number]) * 400


class FailAt(Failpoints):
    def __init__(self, position: int) -> None:
        self.left = position

    def hit(self, name: str) -> None:  # noqa: ARG002
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_full_disk_at_any_call_leaves_no_half_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    position = 0
    while True:
        store, _ = place(tmp_path / str(position))
        monkeypatch.setattr(durable, "failpoints", FailAt(position))
        writer = WeightWriter(store, jobs=jobs, buffer=50_000)
        try:
            fill(writer)
            writer.finish()
        except StorageError:
            writer.abort()
        else:
            break
        finally:
            monkeypatch.setattr(durable, "failpoints", Failpoints())
        assert files_in(store.tmp_dir) == []
        for path in files_in(store.packs_dir):
            assert path.stem == blake3(path.read_bytes()).hexdigest()
            Pack(path).close()
        position += 1
    assert position > 20


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_runs_meanwhile_can_still_prevent_it(tmp_path: Path, jobs: int) -> None:
    store, _ = place(tmp_path)
    ran: list[list[Path]] = []

    def look() -> None:
        ran.append(files_in(store.packs_dir))

    def refuse() -> None:
        look()
        raise Conflict("the file has changed")

    writer = WeightWriter(store, jobs=jobs, buffer=50_000)
    fill(writer)
    with pytest.raises(Conflict, match="has changed"):
        writer.finish(refuse)
    assert files_in(store.packs_dir) + files_in(store.tmp_dir) == []
    writer = WeightWriter(store, jobs=jobs, buffer=50_000)
    fill(writer)
    packs = writer.finish(look)
    assert ran == [[], []]
    assert files_in(store.packs_dir) == sorted(pack.path for pack in packs)


def test_abort_leaves_nothing(here: Place) -> None:
    store, _ = here
    with WeightWriter(store, jobs=2, buffer=0) as writer:
        fill(writer)
        writer.add_object("blob", random.Random(2).randbytes(100_000))
    assert files_in(store.packs_dir) + files_in(store.tmp_dir) == []


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_model_comes_back(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    store, index = place(tmp_path_factory.mktemp("model"))
    jobs = data.draw(st.integers(1, 3))
    writer = WeightWriter(store, jobs=jobs, buffer=data.draw(st.sampled_from([0, 5000, 1 << 25])))
    content = {}
    for number in range(data.draw(st.integers(1, 8))):
        dtype = data.draw(st.sampled_from(sorted(WORDS)))
        shape = tuple(data.draw(st.lists(st.sampled_from([0, 1, 2, 5, 60]), max_size=3)))
        seed = data.draw(st.integers(0, 2)) if number else 0
        raw = random_matrix(dtype, shape, seed)
        content[writer.add(dtype, shape, raw)] = raw
    index.add(writer.finish())
    assert set(index.encodings) == set(content)
    for name, raw in content.items():
        assert bytes(store.matrix(name)) == raw
    again = WeightWriter(store)
    for name, raw in content.items():
        encoding = index.encodings[name]
        assert again.add(encoding.dtype, encoding.shape, raw) == name
    assert again.finish() == []


CHILD = """
import resource, sys
from pathlib import Path
import numpy as np
from dlv.weights.writer import WeightWriter
from dlv.weights.store import MatrixStore
from tests.memory_index import MemoryIndex
folder = Path(sys.argv[1])
store = MatrixStore(folder / "packs", folder / "tmp", MemoryIndex())
size = 48 << 20
def raw(seed):
    return np.random.default_rng(seed).integers(0, 1 << 32, size // 4, np.uint32).tobytes()
raw(0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
writer = WeightWriter(store, jobs=2)
for seed in range(4):
    writer.add("float32", (size // 4,), raw(seed))
writer.finish()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    place(tmp_path)
    answer = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    # 192 MiB of weights in matrices of 48 MiB; two of those are held before anything is added.
    assert int(answer.stdout) < 180
