"""Golden bytes of what a remote holds beside packs, manifests and facts."""

from __future__ import annotations

from pathlib import Path

from dlv.hub.locator import Locator
from dlv.hub.records import Ref, RemoteFile
from dlv.pas.footer import Chunk, Encoding

VERSION = 1
WRITER = "dlv 0.1.0"
TIME = "2026-01-31T12:00:00.000000Z"
A, B, C, D = ("a" * 64, "b" * 64, "c" * 64, "d" * 64)


def make(folder: Path) -> None:
    probe = {"create": True, "races": 5, "ranges": True}
    (folder / "dlv-remote.json").write_bytes(RemoteFile(A, TIME, probe, "blake3", WRITER).encode())
    first = Ref(1, "publish", "lenet", 1, A, B, None, "A <a@b.c>", TIME, "0" * 32, None, WRITER)
    second = Ref(2, "retire", "lenet", 1, A, B, first.hash, "B", TIME, "1" * 32, "sig", WRITER)
    (folder / "ref-first.json").write_bytes(first.encode())
    (folder / "ref-second.json").write_bytes(second.encode())
    own = Encoding(A, "float32", (2, 3), {"id": "ieee"}, {"id": "int", "base": C}, 4)
    base = Encoding(C, "float32", (2, 3), {"id": "ieee"}, None, 4)
    other = Encoding(B, "bfloat16", (5,), {"id": "ieee"}, None, 2)
    chunks = [
        (0, Chunk("plane", 0, 8, 10, 12, A, {"id": "zstd"}, ((0, 0, 6), (1, 0, 6)))),
        (1, Chunk("plane", 0, 900, 10, 11, B, {"id": "raw"}, ((1, 0, 6), (2, 0, 5)))),
        (1, Chunk("file", None, 910, 20, 40, C, {"id": "zstd"}, ((D, 0, 40),))),
    ]
    locator = Locator(A, [C, D], [own, base, other], 2, chunks, [B], WRITER)
    (folder / "locator.zst").write_bytes(locator.encode())
