"""dlv.adapters.hdf5.file against h5py: what it writes, and files that must not be believed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlv.adapters.hdf5 import file as hdf5
from dlv.adapters.hdf5 import objects as hdf5_bytes
from dlv.adapters.hdf5.file import Contents, fletcher32, unshuffle
from dlv.adapters.hdf5.objects import Cursor, Limits, Memory, checksum
from dlv.errors import Damaged, DlvError, NewerFormat, UnsafeInput, UsageError

h5py = pytest.importorskip("h5py")

Build = Callable[[Any], None]

DTYPES = (
    *("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "?", "c8", "c16"),
    *(">i2", ">u4", ">i8", ">f2", ">f4", ">f8", ">c8"),
)
NAMES = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}


def written(path: Path, build: Build, **options: Any) -> bytes:
    with h5py.File(path, "w", **options) as file:
        build(file)
    return path.read_bytes()


def read(data: bytes) -> Contents:
    return hdf5.read(Memory(data, "file.h5"))


def compare(data: bytes, path: Path) -> None:
    """Everything that h5py finds is found, with the same bytes in the same place."""
    contents = read(data)
    with h5py.File(path) as file:
        names: list[str] = []
        file.visit(names.append)
        groups = {name for name in names if isinstance(file[name], h5py.Group)}
        assert set(contents.groups) == groups | {""}
        assert set(contents.datasets) == set(names) - groups
        for name, dataset in contents.datasets.items():
            theirs = file[name]
            array = np.asarray(theirs[()])
            kind = array.dtype.kind
            expected = NAMES[kind] + ("" if kind == "b" else str(8 * array.dtype.itemsize))
            little = array.astype(array.dtype.newbyteorder("<")).tobytes()
            assert (dataset.dtype, dataset.shape) == (expected, theirs.shape), name
            assert bytes(dataset.read(contents.region)) == little, name
            assert (dataset.chunked is None) == (theirs.chunks is None)
            if theirs.chunks is None and theirs.size:
                assert dataset.offset == theirs.id.get_offset()


def fill(file: Any, many: int = 3, **options: Any) -> None:
    dice = np.random.default_rng(0)
    group = file.create_group("layers/conv")
    group.attrs["name"] = "ünï"
    group.attrs["number"] = 3.5
    group.attrs["fixed"] = np.array([b"ab", b"cde"])
    group.attrs["lists"] = ["q", "a longer text"]
    for dtype in DTYPES:
        array = dice.integers(0, 2 if dtype == "?" else 100, (3, 5)).astype(dtype)
        group.create_dataset(dtype.replace(">", "big-"), data=array, **options)
    group.create_dataset("map", data=dice.normal(size=(13, 7, 9)).astype("f4"), **options)
    if not options:
        group["scalar"] = np.float32(3)
        group["empty"] = np.zeros((0, 3), "f4")
    for number in range(many):
        file[f"many/n{number:05}"] = np.arange(number % 7 + 1.0)


@pytest.mark.parametrize("oldest", ["earliest", "v108", "v110", "latest"])
@pytest.mark.parametrize("many", [3, 20, 1500])
@pytest.mark.quick("3-*", "20-*", "1500-earliest", "1500-latest")
def test_groups_of_every_kind(tmp_path: Path, oldest: str, many: int) -> None:
    """Tables and heaps, names in the header, and trees over fractal heaps."""
    path = tmp_path / "file.h5"
    data = written(path, lambda file: fill(file, many), libver=(oldest, "latest"))
    compare(data, path)
    found = read(data).groups["layers/conv"]
    assert found == {"name": ["ünï"], "fixed": ["ab", "cde"], "lists": ["q", "a longer text"]}


@pytest.mark.parametrize("oldest", ["earliest", "v108"])
@pytest.mark.parametrize(
    "options",
    [
        {"chunks": (2, 2)},
        {"compression": "gzip"},
        {"compression": "gzip", "shuffle": True, "fletcher32": True},
        {"fletcher32": True},
        {"shuffle": True, "compression": "gzip", "compression_opts": 9},
    ],
    ids=lambda options: "+".join(map(str, options)),
)
def test_chunks_and_filters(tmp_path: Path, oldest: str, options: dict[str, Any]) -> None:
    path = tmp_path / "file.h5"

    def build(file: Any) -> None:
        if "chunks" not in options:
            fill(file, 3, **options)
        array = np.random.default_rng(1).normal(size=(60, 33)).astype("f4")
        file.create_dataset("uneven", data=array, **{**options, "chunks": (7, 10)})
        file.create_dataset("one", data=array[:5], **{**options, "chunks": (5, 33)})

    compare(written(path, build, libver=(oldest, "latest")), path)


def test_bfloat16_as_keras_writes_it(tmp_path: Path) -> None:
    def build(file: Any) -> None:
        made = file.create_dataset("w", data=np.arange(3, dtype="u2").view("V2"))
        made.attrs["dtype"] = "bfloat16"

    [dataset] = read(written(tmp_path / "a.h5", build)).datasets.values()
    assert (dataset.dtype, dataset.shape, dataset.nbytes) == ("bfloat16", (3,), 6)


def soft(file: Any) -> None:
    file["a"] = h5py.SoftLink("/b")


def loop(file: Any) -> None:
    file.create_group("a")["a"] = h5py.SoftLink("/a")


def external(file: Any) -> None:
    file["a"] = h5py.ExternalLink("/etc/passwd", "/")


def outside(file: Any) -> None:
    file.create_dataset("a", (4,), "f4", external=[("/etc/passwd", 0, 16)])


def virtual(file: Any) -> None:
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource("other.h5", "a", (4,))
    file.create_virtual_dataset("a", layout)


def cycle(file: Any) -> None:
    group = file.create_group("a")
    group["b"] = group


def twice(file: Any) -> None:
    file["a"] = np.arange(3.0)
    file["b"] = file["a"]


def named_type(file: Any) -> None:
    file["t"] = np.dtype("f4")


def shared_type(file: Any) -> None:
    file["t"] = np.dtype("f4")
    file.create_dataset("a", (2,), file["t"], data=[1, 2])


def sparse(file: Any) -> None:
    file.create_dataset("a", (1 << 50,), "u1", chunks=(1 << 20,), compression="gzip")


def some_chunks(file: Any) -> None:
    file.create_dataset("a", (100,), "f4", chunks=(10,))[:10] = 1


def never(file: Any) -> None:
    file.create_dataset("a", (10,), "f4")


REFUSED: dict[str, tuple[Build, str]] = {
    "soft link": (soft, "soft link"),
    "soft loop": (loop, "soft link"),
    "external link": (external, "external link"),
    "external storage": (outside, "another file"),
    "virtual": (virtual, "virtual"),
    "cycle": (cycle, "two names"),
    "one object twice": (twice, "two names"),
    "named type": (named_type, "neither a group nor a tensor"),
    "shared type": (shared_type, "shares|neither"),
    "sparse": (sparse, "unpacks to too much"),
    "some chunks": (some_chunks, "never written in full"),
    "never": (never, "never written"),
    "references": (lambda file: file.create_dataset("a", (2,), h5py.ref_dtype), "reference"),
    "regions": (lambda file: file.create_dataset("a", (2,), h5py.regionref_dtype), "reference"),
    "texts": (lambda file: file.create_dataset("a", data=["x"]), "variable length"),
    "fixed texts": (lambda file: file.create_dataset("a", data=np.array([b"x"])), "text"),
    "compound": (lambda file: file.create_dataset("a", data=np.zeros(2, "i4,f4")), "compound"),
    "opaque": (lambda file: file.create_dataset("a", data=np.zeros(2, "V3")), "opaque"),
    "lists": (
        lambda file: file.create_dataset("a", (2,), h5py.vlen_dtype("f4")),
        "variable length",
    ),
    "lzf": (lambda file: file.create_dataset("a", data=np.zeros(9), compression="lzf"), "filter"),
    "scale and offset": (
        lambda file: file.create_dataset("a", data=np.arange(9), scaleoffset=True),
        "filter",
    ),
    "no shape": (lambda file: file.create_dataset("a", data=h5py.Empty("f4")), "no shape"),
    "deep": (lambda file: file.create_group("/".join("a" * 80)), "too deeply"),
}


@pytest.mark.parametrize("oldest", ["earliest", "v108"])
@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path: Path, oldest: str, name: str) -> None:
    build, message = REFUSED[name]
    data = written(tmp_path / "a.h5", build, libver=(oldest, "latest"))
    with pytest.raises((UnsafeInput, UsageError)) as caught:
        read(data)
    assert any(word in f"{caught.value.message} {caught.value.why}" for word in message.split("|"))


def test_newer_chunks_and_attributes(tmp_path: Path) -> None:
    def chunks(file: Any) -> None:
        file.create_dataset("a", data=np.zeros(9), chunks=(2,))

    def attributes(file: Any) -> None:
        for number in range(30):
            file.attrs[f"a{number}"] = "text"

    for build in (chunks, attributes):
        with pytest.raises(NewerFormat) as caught:
            read(written(tmp_path / "a.h5", build, libver="latest"))
        assert "earliest" in str(caught.value.hint)


def test_a_block_for_the_user(tmp_path: Path) -> None:
    data = written(tmp_path / "a.h5", lambda file: fill(file), userblock_size=512)
    with pytest.raises(UnsafeInput, match="512 bytes"):
        read(data)


def small(tmp_path: Path, **options: Any) -> bytes:
    def build(file: Any) -> None:
        group = file.create_group("layers/conv/vars")
        group.attrs["name"] = "conv"
        group.create_dataset("0", data=np.arange(12, dtype="f4").reshape(3, 4), **options)
        group["1"] = np.arange(4, dtype="f4")

    return written(tmp_path / "small.h5", build)


def test_cuts_and_additions(tmp_path: Path) -> None:
    data = small(tmp_path)
    for end in range(0, len(data), 7):
        with pytest.raises(DlvError):
            read(data[:end])
    with pytest.raises(Damaged, match="length"):
        read(data + b"\0")


@pytest.mark.parametrize("options", [{}, {"chunks": (2, 2), "compression": "gzip"}], ids=str)
def test_changed_bytes_give_typed_errors_only(tmp_path: Path, options: dict[str, Any]) -> None:
    data, dice = small(tmp_path, **options), random.Random(3)
    numbers = [b"\xff" * 8, bytes(8), (1 << 62).to_bytes(8, "little"), b"\x60" + bytes(7)]
    read_well = 0
    for _ in range(2500):
        changed = bytearray(data)
        for _ in range(dice.choice([1, 1, 2, 5])):
            at = dice.randrange(len(data))
            if dice.random() < 0.5:
                changed[at] ^= 1 << dice.randrange(8)
            else:
                changed[at : at + 8] = dice.choice(numbers)[: len(data) - at]
        try:
            contents = read(bytes(changed))
            for dataset in contents.datasets.values():
                dataset.read(contents.region)
            read_well += 1
        except DlvError:
            pass
    assert 100 < read_well < 2400  # the changes reach the structure, and leave some files whole


def test_overlapping_tensors(tmp_path: Path) -> None:
    data = bytearray(small(tmp_path))
    with h5py.File(tmp_path / "small.h5") as file:
        first, second = (file[f"layers/conv/vars/{i}"].id.get_offset() for i in (0, 1))
    at = data.index(second.to_bytes(8, "little"))
    data[at : at + 8] = (first + 4).to_bytes(8, "little")
    with pytest.raises(UnsafeInput, match="overlap"):
        read(bytes(data))


def test_shapes_that_lie(tmp_path: Path) -> None:
    data = small(tmp_path)
    shape = (3).to_bytes(8, "little") + (4).to_bytes(8, "little")
    for lie in ((3, 5), (1 << 40, 4), (1 << 62, 4), (0, 1 << 62)):
        changed = data.replace(shape, b"".join(n.to_bytes(8, "little") for n in lie))
        assert changed != data
        with pytest.raises(UnsafeInput):
            read(changed)


def test_limits() -> None:
    limits = Limits(Memory(bytes(100), "x"))
    with pytest.raises(Damaged):
        limits.read(50, 51)
    limits.bytes = hdf5_bytes.MOST_METADATA_BYTES
    with pytest.raises(UnsafeInput, match="too large"):
        limits.read(0, 1)
    limits.objects = hdf5_bytes.MOST_OBJECTS
    with pytest.raises(UnsafeInput, match="too many objects"):
        limits.object()
    limits.messages = hdf5_bytes.MOST_MESSAGES
    with pytest.raises(UnsafeInput, match="too many"):
        limits.message()
    cursor = Cursor(b"ab\0c", "x")
    assert (cursor.text(), cursor.left) == (b"ab", 1)
    with pytest.raises(Damaged):
        cursor.text()
    with pytest.raises(Damaged):
        cursor.number(2)


def test_sums_that_others_published() -> None:
    # lookup3.c: hashlittle("", 0) and "Four score and seven years ago" with 0.
    assert checksum(b"") == 0xDEADBEEF
    assert checksum(b"Four score and seven years ago") == 0x17770551
    assert fletcher32(b"\1\0\2\0") == 0x0400_0300  # sums of 0x100 and 0x200, and of the sums
    assert unshuffle(b"abcABC123x", 3) == b"aA1bB2cC3x"
