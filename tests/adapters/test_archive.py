"""dlv.adapters.archive against zipfile, and what it must refuse."""

from __future__ import annotations

import contextlib
import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.adapters import archive
from dlv.adapters.archive import read_directory
from dlv.adapters.source import Source
from dlv.errors import Damaged, DlvError, UnsafeInput


class _Pipe(io.RawIOBase):
    """Cannot be rewound, so that zipfile writes data descriptors."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += data
        return len(data)


def exchange(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert data.count(old) == 1
    assert len(old) == len(new)
    path.write_bytes(data.replace(old, new))


def renew(path: Path) -> int:
    with Source(str(path)) as file:
        patches = archive.renewed_checksums(file)
    with open(path, "r+b") as out:
        for place, data in patches:
            out.seek(place)
            out.write(data)
    return len(patches)


@pytest.mark.parametrize("force_zip64", [False, True])
@pytest.mark.parametrize("descriptors", [False, True])
def test_every_reader_is_content_again(
    tmp_path: Path, descriptors: bool, force_zip64: bool
) -> None:
    pipe = _Pipe()
    target: Any = pipe if descriptors else io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in (("a", b"first" * 9), ("b", b"second" * 9), ("c", b"third" * 9)):
            with archive.open(name, "w", force_zip64=force_zip64) as entry:
                entry.write(content)
    path = tmp_path / "some.zip"
    path.write_bytes(bytes(pipe.data) if descriptors else target.getvalue())
    exchange(path, b"second" * 9, b"SECOND" * 9)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() == "b"
    assert renew(path) == 2
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.read("b") == b"SECOND" * 9
        assert zlib.crc32(b"first" * 9) == archive.getinfo("a").CRC
    with Source(str(path)) as file:  # compares both headers and the descriptor
        assert [entry.name for entry in read_directory(file)] == ["a", "b", "c"]


def test_right_ones_stay(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", a=np.arange(30), b=np.ones(3))
    np.savez_compressed(tmp_path / "c.npz", a=np.arange(30))
    assert renew(tmp_path / "w.npz") == renew(tmp_path / "c.npz") == 0


def test_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "w.pt"
    weights = torch.arange(500, dtype=torch.float32)
    torch.save({"w": weights, "b": torch.ones(3)}, path)
    exchange(path, weights.numpy().tobytes(), (-weights).numpy().tobytes())
    assert renew(path) > 0
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    with Source(str(path)) as file:
        read_directory(file)
    assert torch.equal(torch.load(path)["w"], -weights)


LIMIT = 1 << 20
Members = list[tuple[str, bytes, int]]


class Pipe(io.RawIOBase):
    """Not seekable, so that zipfile writes data descriptors."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self.data += piece
        return len(piece)


def build(members: Members, *, pipe: bool = False, zip64: bool = False) -> bytes:
    target = Pipe() if pipe else io.BytesIO()
    with zipfile.ZipFile(target, "w") as made:
        for name, data, method in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            with made.open(info, "w", force_zip64=zip64) as member:
                member.write(data)
    return bytes(target.data) if isinstance(target, Pipe) else target.getvalue()


def load(path: Path, data: bytes) -> dict[str, bytes]:
    path.write_bytes(data)
    with Source(str(path)) as file:
        entries = archive.read_directory(file)
        return {entry.name: bytes(archive.read(file, entry, LIMIT)) for entry in entries}


NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="\\:/", min_codepoint=33), min_size=1
)
MEMBERS = st.lists(
    st.tuples(
        NAMES.filter(lambda name: name not in (".", "..") and "\x7f" not in name),
        st.binary(max_size=200) | st.builds(bytes, st.integers(0, 5000)),
        st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
    ),
    max_size=5,
    unique_by=lambda member: member[0],
)


@settings(max_examples=60, deadline=None)
@given(MEMBERS, st.booleans(), st.booleans())
def test_reads_what_zipfile_wrote(
    tmp_path_factory: pytest.TempPathFactory, members: Members, pipe: bool, zip64: bool
) -> None:
    path = tmp_path_factory.mktemp("zip") / "a.zip"
    data = build(members, pipe=pipe, zip64=zip64)
    assert load(path, data) == {name: content for name, content, _ in members}


def test_large_entries_of_both_kinds(tmp_path: Path) -> None:
    big = bytes(range(256)) * 4096 * 3 + b"end"
    path = tmp_path / "a.zip"
    path.write_bytes(build([("s", big, 0), ("d", big, 8)]))
    with Source(str(path)) as file:
        for entry in archive.read_directory(file):
            assert archive.read(file, entry, 1 << 24) == big
            assert b"".join(archive.stream(file, entry, 1 << 24)) == big
            with pytest.raises(UnsafeInput, match="too large"):
                archive.read(file, entry, len(big) - 1)


def test_a_folder_is_an_entry(tmp_path: Path) -> None:
    assert load(tmp_path / "a.zip", build([("d/", b"", 0), ("d/x", b"1", 0)])) == {
        "d/": b"",
        "d/x": b"1",
    }


ONE = build([("name", b"stored content", 0)])
TWO = build([("name", b"stored content" * 9, 8), ("next", b"stored content", 0)])


def patch(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def central(data: bytes) -> int:
    return data.index(b"PK\x01\x02")


def both(data: bytes, local: int, form: str, value: int) -> bytes:
    """Patch a field that stands 2 bytes later in the directory than in the local header."""
    packed = struct.pack(form, value)
    return patch(patch(data, local, packed), central(data) + local + 2, packed)


def named(name: str) -> bytes:
    return ONE.replace(b"name", name.encode())


REFUSED: dict[str, tuple[Callable[[], bytes], type[DlvError], str]] = {
    "empty": (lambda: b"", Damaged, "complete"),
    "cut": (lambda: ONE[:-1], Damaged, "complete"),
    "appended": (lambda: ONE + b"x", Damaged, "complete"),
    "prepended": (lambda: b"x" + ONE, UnsafeInput, "not where"),
    "comment promised": (lambda: patch(ONE, len(ONE) - 2, b"\1\0"), Damaged, "truncated"),
    "encrypted": (lambda: both(ONE, 6, "<H", 1), UnsafeInput, "encrypted"),
    "unknown flag": (lambda: both(ONE, 6, "<H", 0x20), UnsafeInput, "flags"),
    "lzma": (lambda: both(ONE, 8, "<H", 14), UnsafeInput, "method 14|unusual"),
    "another part": (lambda: patch(ONE, central(ONE) + 34, b"\1\0"), UnsafeInput, "another part"),
    "split archive": (lambda: patch(ONE, len(ONE) - 18, b"\1\0"), UnsafeInput, "several"),
    "count too small": (
        lambda: patch(TWO, len(TWO) - 14, b"\1\0\1\0"),
        UnsafeInput,
        "longer than its entries",
    ),
    "count too large": (lambda: patch(ONE, len(ONE) - 14, b"\2\0\2\0"), Damaged, "truncated"),
    "zip64 promised": (lambda: patch(ONE, len(ONE) - 14, b"\xff\xff" * 2), Damaged, "lacks"),
    "two names": (lambda: patch(ONE, 30, b"game"), UnsafeInput, "disagree"),
    "two sizes": (lambda: patch(ONE, 22, b"\x0d\0\0\0"), UnsafeInput, "disagree"),
    "two methods": (lambda: patch(TWO, 8, b"\0\0"), UnsafeInput, "disagree"),
    "stored with two sizes": (lambda: both(ONE, 22, "<L", 13), UnsafeInput, "two different sizes"),
    "wrong crc": (lambda: both(ONE, 14, "<L", 1), Damaged, "is corrupt"),
    "wrong crc, deflated": (lambda: both(TWO, 14, "<L", 1), Damaged, "is corrupt"),
    "declares less": (lambda: both(TWO, 22, "<L", 20), UnsafeInput, "beyond"),
    "declares more": (lambda: both(TWO, 22, "<L", 127), Damaged, "truncated"),
    "declares far more": (lambda: both(TWO, 22, "<L", 1 << 30), UnsafeInput, "deflate can hold"),
    "outside": (lambda: both(both(ONE, 18, "<L", 99), 22, "<L", 99), Damaged, "inside"),
    "same bytes twice": (
        lambda: patch(TWO, TWO.rindex(b"PK\x01\x02") + 42, bytes(4)),
        UnsafeInput,
        "overlap",
    ),
    "duplicate": (lambda: TWO.replace(b"next", b"name"), UnsafeInput, "twice"),
    "parent folder": (lambda: named("../x"), UnsafeInput, "unsafe name"),
    "parent inside": (lambda: build([("a/../b", b"", 0)]), UnsafeInput, "unsafe name"),
    "absolute": (lambda: named("/abc"), UnsafeInput, "unsafe name"),
    "drive": (lambda: named("C:ab"), UnsafeInput, "unsafe name"),
    "backslash": (lambda: named("a\\bc"), UnsafeInput, "unsafe name"),
    "NUL": (lambda: named("a\0bc"), UnsafeInput, "unsafe name"),
    "folder with content": (lambda: named("abc/"), UnsafeInput, "folder"),
    "not UTF-8": (
        lambda: both(ONE, 6, "<H", 0x800).replace(b"name", b"\xff\xfe\xfd\xfc"),
        UnsafeInput,
        "UTF-8",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(tmp_path: Path, case: str) -> None:
    make, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words):
        load(tmp_path / "a.zip", make())


def test_gap_between_entries(tmp_path: Path) -> None:
    first = build([("name", b"stored content", 0)])
    rest = central(first)
    gap = first[:rest] + b"hidden" + first[rest:]
    at = len(gap) - 6
    data = patch(gap, at, struct.pack("<L", rest + 6))
    with pytest.raises(UnsafeInput, match=r"a\.zip contains bytes outside its"):
        load(tmp_path / "a.zip", data)


def test_gap_inside(tmp_path: Path) -> None:
    second = TWO.rindex(b"PK\x03\x04")
    data = bytearray(TWO[:second] + b"hidden" + TWO[second:])
    for at in (data.rindex(b"PK\x01\x02") + 42, len(data) - 6):
        moved = int.from_bytes(data[at : at + 4], "little") + 6
        data[at : at + 4] = moved.to_bytes(4, "little")
    with zipfile.ZipFile(io.BytesIO(data)) as lenient:
        assert lenient.testzip() is None
    with pytest.raises(UnsafeInput, match="gap"):
        load(tmp_path / "a.zip", bytes(data))


def test_descriptor_must_agree(tmp_path: Path) -> None:
    data = build([("name", b"stored content", 0)], pipe=True)
    assert load(tmp_path / "a.zip", data) == {"name": b"stored content"}
    at = data.index(b"PK\x07\x08") + 8
    with pytest.raises(UnsafeInput, match="disagree"):
        load(tmp_path / "a.zip", patch(data, at, b"\1"))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_changed_bytes_never_give_other_errors(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    raw = bytearray(build([("name", b"stored content" * 9, 8), ("b", b"x" * 50, 0)], zip64=True))
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=4)):
        raw[at] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("zip") / "a.zip"
    with contextlib.suppress(DlvError):
        load(path, bytes(raw))
