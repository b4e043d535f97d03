"""Packs: bytes as the format says, and no changed bit ever gives other weights."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlv.canonical import dumps, hash_bytes
from dlv.errors import Damaged, DlvError, NewerFormat, StorageError
from dlv.pas.chunks import join_pieces, read_exactly, read_stored
from dlv.pas.footer import pieces_of
from dlv.pas.packs import Pack, PackWriter
from dlv.pas.read import read_matrix
from tests.memory_index import MemoryIndex

if TYPE_CHECKING:
    from tests.pas.conftest import SmallPack

GOLDEN = Path(__file__).parents[1] / "golden" / "pack" / "1"


class OnePack(MemoryIndex):
    """Reads the pieces of one pack."""

    def __init__(self, pack: Pack) -> None:
        super().__init__()
        self.pack = pack
        self.add_footer(pack.footer, "p" * 64)

    def read(self, piece: Any) -> Any:
        return self.pack.read_chunk(piece)

    def stored(self, piece: Any) -> bytes:
        return read_stored(self.pack.descriptor, self.pack.size, piece, "the pack")

    def object(self, kind: str, name: str) -> Any:
        return join_pieces(self.object_chunks(kind, name), None, self, f"{kind} {name}")


def contents(path: Path) -> dict[str, bytes]:
    """Everything that a pack holds, by hash."""
    with Pack(path) as pack:
        source = OnePack(pack)
        found = {
            row.matrix: bytes(read_matrix(row.matrix, source.encoding, source))
            for row in pack.encodings
        }
        for row in source.pieces:
            if row.kind == "network":
                found[row.object] = bytes(pack.read_chunk(row))[row.at : row.at + row.count]
        return found


@pytest.fixture
def path(tmp_path: Path, small_pack: SmallPack) -> Path:
    path = tmp_path / "x.pack"
    path.write_bytes(small_pack.data)
    return path


def test_what_went_in_comes_out(path: Path, small_pack: SmallPack) -> None:
    assert contents(path) == {**small_pack.matrices, **small_pack.objects}


def test_the_bytes_are_those_of_the_format(small_pack: SmallPack) -> None:
    data = small_pack.data
    assert data[:8] == b"DLVPACK1"
    offset, length = struct.unpack("<QQ", data[-56:-40])
    assert data[-8:] == b"DLVPEND1"
    frame = data[offset : offset + length]
    assert offset + length == len(data) - 56
    assert data[-40:-8] == blake3(frame).digest()
    assert zstandard.frame_content_size(frame) > 0
    text = zstandard.ZstdDecompressor().decompress(frame)
    footer = json.loads(text)
    assert text == json.dumps(footer, sort_keys=True, separators=(",", ":")).encode()
    assert footer["format"] == "dlv/pack/1"
    at = 8
    for chunk in footer["chunks"]:
        assert chunk["offset"] == at
        stored = data[at : at + chunk["length"]]
        assert blake3(stored).hexdigest() == chunk["blake3"]
        assert sum(member[2] for member in chunk["members"]) == chunk["raw"]
        at += chunk["length"]
    assert at == offset


def test_equal_input_gives_equal_bytes(small_pack: SmallPack) -> None:
    build = sys.modules[type(small_pack).__module__].build
    assert build().data == small_pack.data


def test_golden_pack_still_reads() -> None:
    expected = json.loads((GOLDEN / "contents.json").read_text())
    found = contents(GOLDEN / "small.pack")
    assert {name: data.hex() for name, data in found.items()} == expected
    digest = hashlib.sha256((GOLDEN / "small.pack").read_bytes()).hexdigest()
    assert digest == (GOLDEN / "small.pack.sha256").read_text().strip()


def test_every_flipped_bit_is_damage(tmp_path: Path, small_pack: SmallPack) -> None:
    good = {**small_pack.matrices, **small_pack.objects}
    path = tmp_path / "x.pack"
    data = small_pack.data
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1 << position % 8
        path.write_bytes(broken)
        with pytest.raises((Damaged, NewerFormat)):
            assert contents(path) == good, "read without complaint"


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_random_edits_are_damage(
    tmp_path: Path, small_pack: SmallPack, data: st.DataObject
) -> None:
    whole = small_pack.data
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    edited = whole[:start] + data.draw(st.binary(max_size=80)) + whole[stop:]
    path = tmp_path / "y.pack"
    path.write_bytes(edited)
    if edited != whole:
        with pytest.raises((Damaged, NewerFormat)):
            contents(path)


def resealed(small_pack: SmallPack, footer: dict[str, Any]) -> bytes:
    """The pack with another footer, all checksums right: what an attacker would send."""
    offset = small_pack.footer.chunks[-1].offset + small_pack.footer.chunks[-1].length
    return small_pack.data[:offset] + sealed(offset, zstandard.compress(dumps(footer)))


def sealed(offset: int, frame: bytes) -> bytes:
    return frame + struct.pack("<QQ", offset, len(frame)) + blake3(frame).digest() + b"DLVPEND1"


def lying_packs(small_pack: SmallPack) -> list[bytes]:
    """Packs of some hundred bytes that promise terabytes."""
    shape = small_pack.footer.as_json()
    shape["encodings"][2]["shape"] = [1 << 42]
    raw = small_pack.footer.as_json()
    raw["encodings"][2]["shape"] = [1 << 42]
    for chunk in raw["chunks"][4:6]:
        chunk["raw"] = 1 << 42
        chunk["members"] = [[2, 0, 1 << 42]]
    zeros = zstandard.compress(bytes(1 << 20))
    frame = zeros[:4] + bytes([zeros[4] | 0xC0]) + (1 << 44).to_bytes(8, "little") + zeros[9:]
    bomb = zstandard.compress(bytes(65 << 20))
    return [
        resealed(small_pack, shape),
        resealed(small_pack, raw),
        b"DLVPACK1" + sealed(8, frame),
        b"DLVPACK1" + sealed(8, bomb),
        b"DLVPACK1" + struct.pack("<QQ", 8, 1 << 60) + bytes(32) + b"DLVPEND1",
        b"DLVPACK1" + struct.pack("<QQ", (1 << 64) - 8, 16) + bytes(32) + b"DLVPEND1",
    ]


def test_lies_about_size_are_refused(tmp_path: Path, small_pack: SmallPack) -> None:
    for number, data in enumerate(lying_packs(small_pack)):
        path = tmp_path / f"{number}.pack"
        path.write_bytes(data)
        with pytest.raises(Damaged):
            contents(path)


CHILD = """
import resource, sys
from pathlib import Path
from tests.pas.test_packs import contents
from dlv.errors import Damaged
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    try:
        contents(Path(path))
    except Damaged:
        continue
    sys.exit(f"{path} was read")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_lies_about_size_take_no_memory(tmp_path: Path, small_pack: SmallPack) -> None:
    paths = []
    for number, data in enumerate(lying_packs(small_pack)):
        paths.append(tmp_path / f"{number}.pack")
        paths[-1].write_bytes(data)
    root = Path(__file__).parents[2]
    answer = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, paths)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert int(answer.stdout) < 32 << 10  # KiB


def test_codecs_unknown_to_this_version_are_named(tmp_path: Path, small_pack: SmallPack) -> None:
    footer = small_pack.footer.as_json()
    footer["chunks"][4]["codec"] = {"id": "context-warp", "lo": 40, "scale": "x", "table": "y"}
    footer["chunks"][6]["kind"] = "hologram"
    path = tmp_path / "x.pack"
    path.write_bytes(resealed(small_pack, footer))
    with Pack(path) as pack:
        assert len(pack.read_chunk(pack.chunks[0])) == 16
        with pytest.raises(NewerFormat, match="context-warp"):
            pack.read_chunk(pack.chunks[4])
        with pytest.raises(NewerFormat, match="hologram"):
            pack.read_chunk(pack.chunks[6])


@pytest.mark.parametrize("magic", [b"DLVPACK2", b"DLVPACK9"])
def test_a_newer_magic_is_named(tmp_path: Path, small_pack: SmallPack, magic: bytes) -> None:
    path = tmp_path / "x.pack"
    path.write_bytes(magic + small_pack.data[8:])
    with pytest.raises(NewerFormat, match=magic.decode()):
        Pack(path)


def test_a_damaged_chunk_is_named_with_its_pack(tmp_path: Path, small_pack: SmallPack) -> None:
    path = tmp_path / "x.pack"
    data = bytearray(small_pack.data)
    chunk = small_pack.footer.chunks[4]
    data[chunk.offset] ^= 1
    path.write_bytes(data)
    with Pack(path) as pack:
        with pytest.raises(Damaged, match=rf"x\.pack, plane at {chunk.offset}"):
            pack.read_chunk(pack.chunks[4])
        assert pack.read_chunk(pack.chunks[0])


def test_a_row_that_points_outside_the_file(path: Path, small_pack: SmallPack) -> None:
    with Pack(path) as pack:
        row = next(iter(pieces_of(pack.footer, "p")))
        beyond = type(row)(**{**row.__dict__, "length": 1 << 50})
        with pytest.raises(Damaged, match="outside"):
            pack.read_chunk(beyond)


def test_many_threads_read_one_pack(path: Path, small_pack: SmallPack) -> None:
    with Pack(path) as pack:
        expected = [bytes(pack.read_chunk(row)) for row in pack.chunks]

        def read(number: int) -> bool:
            index = number % len(expected)
            return bytes(pack.read_chunk(pack.chunks[index])) == expected[index]

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(read, range(800)))


def test_short_reads_go_on_and_the_end_is_damage(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = path.read_bytes()
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: real(fd, min(n, 7), at))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert read_exactly(descriptor, 100, 3, "it") == whole[3:103]
        with pytest.raises(Damaged, match="truncated"):
            read_exactly(descriptor, 100, len(whole) - 50, "it")
    finally:
        os.close(descriptor)
    with pytest.raises(StorageError):
        read_exactly(descriptor, 1, 0, "it")


def test_files_are_closed_when_they_are_no_packs(tmp_path: Path) -> None:
    path = tmp_path / "x.pack"
    path.write_bytes(b"too short")
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("no list of open files here")
    before = len(list(descriptors.iterdir()))
    for _ in range(20):
        with pytest.raises(DlvError):
            Pack(path)
    assert len(list(descriptors.iterdir())) <= before


def test_a_footer_that_would_be_too_large_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlv.pas.packs.MAX_FOOTER", 300)
    pack = PackWriter(io.BytesIO())
    pack.add_chunk("network", None, [(hash_bytes(b"x"), 0, 1)], 1, {"id": "raw"}, b"x")
    with pytest.raises(ValueError, match="several packs"):
        pack.finish()
