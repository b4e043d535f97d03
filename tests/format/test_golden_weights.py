"""What has once been written of weights reads for ever: every layout, delta, predictor, codec."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlv.canonical import matrix_hash
from dlv.pas.chunks import join_pieces, read_stored
from dlv.pas.coders import compiled
from dlv.pas.coders.contexts import SEGMENT
from dlv.pas.layouts.segments import WORDS, element_bytes
from dlv.pas.packs import Pack
from dlv.pas.read import read_matrix, read_slice, read_together
from tests.memory_index import MemoryIndex

ROOT = Path(__file__).resolve().parents[2]
Golden = dict[Path, dict[str, Any]]


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


def read_all(path: Path) -> dict[str, bytes]:
    """Every matrix of a pack whose bytes have the hash that its name is."""
    with Pack(path) as pack:
        source = OnePack(pack)
        found = {}
        for row in pack.encodings:
            raw = bytes(read_matrix(row.matrix, source.encoding, source))
            assert matrix_hash(row.dtype, row.shape, raw) == row.matrix
            found[row.matrix] = raw
        return found


def test_bytes_are_those_of_then(golden: Golden) -> None:
    for path, rows in golden.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == rows["sha256"], path.name


def test_every_matrix_reads(golden: Golden) -> None:
    for path, rows in golden.items():
        assert sorted(read_all(path)) == rows["matrices"], path.name


@pytest.fixture
def forced() -> Iterator[None]:
    """Compiled loops from the first digit on."""
    pytest.importorskip("numba")
    compiled.force[:] = [True]
    yield
    compiled.force.clear()


@pytest.mark.usefixtures("forced")
def test_every_matrix_reads_by_compiled_loops(golden: Golden) -> None:
    for path, rows in golden.items():
        assert sorted(read_all(path)) == rows["matrices"], path.name


def test_every_matrix_reads_without_numba(golden: Golden) -> None:
    """In a process of its own, so that nothing has been compiled or imported before."""
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "from pathlib import Path\n"
        "from tests.format.test_golden_weights import read_all\n"
        "assert sys.modules['numba'] is None\n"
        "print(sum(len(read_all(Path(name))) for name in sys.argv[1:]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *map(str, golden)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == sum(len(rows["matrices"]) for rows in golden.values())


def test_parts_of_matrices_read(golden: Golden) -> None:
    """Slices, and all matrices in one walk, come out of the same bytes by other ways."""
    for path in golden:
        whole = read_all(path)
        with Pack(path) as pack:
            source = OnePack(pack)
            walk = read_together(whole, source.encoding, source)
            assert {name: bytes(raw) for name, raw in walk} == whole
            for row in pack.encodings:
                raw = whole[row.matrix]
                size = element_bytes(row.dtype)
                count = len(raw) // size
                start, stop = count // 3, count - count // 4
                part = read_slice(row.matrix, start, stop - start, source.encoding, source)
                assert bytes(part) == raw[start * size : stop * size]


def test_nothing_is_missing(golden: Golden) -> None:
    """Each feature is there, with each dtype that it is for."""
    found: Counter[tuple[str, ...]] = Counter()
    for path in golden:
        with Pack(path) as pack:
            rows = pack.footer.encodings
            for row in rows:
                found["dtype", row.dtype] += 1
                delta = "none" if row.delta is None else str(row.delta["id"])
                found["layout", str(row.layout["id"]), delta, row.dtype] += 1
                if row.delta is not None and row.delta["overlap"] is not None:
                    found["overlap", str(row.layout["id"]), delta] += 1
                chain = [str(one["id"]) for one in (row.delta or {}).get("predictor", [])]
                if chain:
                    found["predictor", "+".join(chain), row.dtype] += 1
                for one in (row.delta or {}).get("predictor", []):
                    if one["id"] == "lowrank":
                        found["width", str(one["width"])] += 1
                    if one["id"] == "shrink":
                        found["rows", str(one["rows"])] += 1
                if (kind := str(row.layout["id"])) in ("fixed", "halved"):
                    found[kind, row.layout["rows"], str(row.layout["zero_centre"])] += 1
            for chunk in pack.footer.chunks:
                codec = str(chunk.codec["id"])
                if chunk.kind == "plane":
                    row = rows[int(chunk.members[0][0])]
                    found["codec", codec, str(row.layout["id"]), row.dtype] += 1
                    found["segments", codec] += chunk.members[0][1] >= SEGMENT
                else:
                    found["kind", chunk.kind] += 1
    reals = ("float64", "float32", "float16", "bfloat16")
    expected: list[tuple[str, ...]] = [("dtype", dtype) for dtype in WORDS]
    expected += [("layout", "ieee", delta, d) for delta in ("none", "xor", "sub") for d in WORDS]
    expected += [("layout", "fixed", delta, d) for delta in ("none", "xor", "sub") for d in reals]
    expected += [("layout", "table", "none", d) for d in ("float32", "int64", "complex64")]
    expected += [("overlap", layout, d) for layout in ("ieee", "fixed") for d in ("xor", "sub")]
    joint = ("shrink", "lowrank", "shrink+lowrank", "lowrank+shrink")
    expected += [("predictor", name, dtype) for name in joint for dtype in reals]
    expected += [("predictor", name, "float32") for name in ("drift", "drift+lowrank")]
    expected += [("width", str(width)) for width in range(1, 5)]
    expected += [("rows", "True"), ("rows", "False")]
    expected += [("fixed", "first", "False"), ("fixed", "last", "True")]
    expected += [("halved", "first", "False"), ("halved", "last", "True")]
    expected += [("layout", "halved", "none", dtype) for dtype in reals]
    ordered = ("context-zstd", "context-packed", "context-rans")
    some = (*reals, "complex64", "int8", "int32", "uint16", "float8_e4m3", "float8_e5m2")
    expected += [("codec", codec, "ieee", dtype) for codec in ordered for dtype in some]
    expected += [("codec", "context-rans", "fixed", dtype) for dtype in reals]
    expected += [("codec", codec, "ieee", "float32") for codec in ("raw", "zstd", "context-above")]
    expected += [("segments", codec) for codec in (*ordered, "zstd")]
    expected += [("kind", "side"), ("kind", "table")]
    assert [feature for feature in expected if not found[feature]] == []


def test_written_bytes_are_never_replaced() -> None:
    done = subprocess.run(
        [sys.executable, "tools/golden.py", "weights"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "never written again" in done.stderr
