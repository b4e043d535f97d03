"""Peak memory of reading and encoding large matrices, measured in processes of their own."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dlv.pas.layouts.fixed import Fixed
from dlv.pas.layouts.segments import Layout
from tests.conformance.delta import MemoryStore

ROOT = Path(__file__).parents[2]
needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
SHAPE = (4096, 4096)
SIZE = 4 * SHAPE[0] * SHAPE[1]  # 64 MiB
CONSTANT = 80 << 20

READER = """
import pickle, sys
from dlv.pas.coders import small
from dlv.pas.deltas import predictors
from dlv.pas.encode import encode_delta, encode_materialised
from dlv.pas.level import level
from dlv.pas.read import read_matrix, read_slice
from dlv.pas.layouts.segments import Ieee
from dlv.pas.read import read_together

def peak():
    # ru_maxrss would begin with that of the process that started this one.
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))

with open(sys.argv[2], "rb") as file:
    store, names = pickle.load(file)
lookup = store.encoding
start = peak()
match sys.argv[1]:
    case "read":
        read_matrix(names[-1], lookup, store)
    case "slice":
        assert len(read_slice(names[-1], 5_000_000, 1000, lookup, store)) == 4000
    case "shared":
        for _, raw in read_together(names, lookup, store):
            del raw
    case "encode":
        raw = bytearray(4 << 24)
        raw[::4096] = bytes(len(raw) // 4096)  # so that its pages are there
        start = peak() - len(raw)
        encode_materialised(raw, "float32", (4096, 4096), names[0], lambda part: None,
                            layout=Ieee(), effort="small")
        encode_delta("xor", raw, raw, "float32", (4096, 4096), *names, lambda part: None,
                     layout=Ieee())
print(peak() - start)
"""


def chain_of(links: int, kind: str, *, fixed: bool) -> tuple[MemoryStore, list[str]]:
    """Matrices that compress well, so that what is measured is not the store."""
    store = MemoryStore()
    words = np.zeros(SHAPE, "<f4")
    words[::7] = 0.5
    words[:, ::5] += np.linspace(0, 0.25, SHAPE[0], dtype="<f4")[:, None]
    names: list[str] = []
    layout: Layout | None = Fixed.of([words.tobytes()], "float32", SHAPE) if fixed else None
    for step in range(links + 1):
        raw = words.tobytes()
        base = names[-1] if names else None
        names.append(store.add(raw, "float32", SHAPE, layout=layout, kind=kind, base=base))
        words[step + 1 :: 97] *= np.float32(0.5)
    store.reads.clear()
    return store, names


def measured(what: str, made: tuple[MemoryStore, list[str]], tmp_path: Path) -> int:
    path = tmp_path / "store"
    path.write_bytes(pickle.dumps(made))
    assert path.stat().st_size < 24 << 20
    run = subprocess.run(
        [sys.executable, "-c", READER, what, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return int(run.stdout)


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("kind", ["sub", "xor"])
def test_a_chain_of_twelve(kind: str, tmp_path: Path) -> None:
    made = chain_of(12, kind, fixed=False)
    assert SIZE <= measured("read", made, tmp_path) < 2 * SIZE + CONSTANT
    assert measured("slice", made, tmp_path) < CONSTANT


@pytest.mark.slow
@needs_proc
def test_codes(tmp_path: Path) -> None:
    made = chain_of(1, "sub", fixed=True)
    assert measured("read", made, tmp_path) < 2 * SIZE + 2 * CONSTANT


@pytest.mark.slow
@needs_proc
def test_matrices_that_share_bases(tmp_path: Path) -> None:
    made = chain_of(4, "sub", fixed=False)
    assert measured("shared", made, tmp_path) < 3 * SIZE + CONSTANT


@pytest.mark.slow
@needs_proc
def test_encoding_needs_no_more_than_it_is_given(tmp_path: Path) -> None:
    made = chain_of(1, "sub", fixed=False)
    assert measured("encode", made, tmp_path) < SIZE + CONSTANT
