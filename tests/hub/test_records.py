"""What remotes hold beside packs: golden bytes, and strictness towards everything else."""

from __future__ import annotations

import contextlib
import json
import random
import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.canonical import dumps
from dlv.errors import Damaged, DlvError, NewerFormat
from dlv.hub.locator import Locator, LocatorIndex, decode_locator
from dlv.hub.records import decode_ref, decode_remote
from dlv.pas.coders.zstd import ZstdCodec, decompress

GOLDEN = Path(__file__).parents[1] / "golden" / "remote"
FILES = GOLDEN / "1"


def read(name: str) -> bytes:
    return (FILES / name).read_bytes()


def locator_json() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(decompress(read("locator.zst"), 1 << 20, "locator"))
    return found


def decoded(value: Any) -> Locator:
    return decode_locator(ZstdCodec("text").encode(dumps(value)), "locator")


def test_golden_refs() -> None:
    first, second = (
        decode_ref(read("ref-first.json"), "ref"),
        decode_ref(read("ref-second.json"), "ref"),
    )
    assert (first.seq, first.prev, second.prev) == (1, None, first.hash)
    assert (second.kind, second.sig) == ("retire", "sig")
    assert first.encode() == read("ref-first.json")
    assert second.encode() == read("ref-second.json")


def test_golden_remote_file() -> None:
    found = decode_remote(read("dlv-remote.json"), "remote")
    assert found.encode() == read("dlv-remote.json")
    assert found.probe["races"] == 5


def test_golden_locator(tmp_path: Path) -> None:
    found = decode_locator(read("locator.zst"), "locator")
    assert (found.version, found.packs, found.whole) == ("a" * 64, ["c" * 64, "d" * 64], 2)
    assert decode_locator(found.encode(), "locator") == found
    runpy.run_path(str(GOLDEN / "make.py"))["make"](tmp_path)
    assert decode_locator((tmp_path / "locator.zst").read_bytes(), "locator") == found


def test_an_index_knows_only_what_is_whole() -> None:
    """The third encoding is there because it shares a chunk: its other chunks are elsewhere."""
    index = LocatorIndex([decode_locator(read("locator.zst"), "locator")])
    assert index.encoding("a" * 64) is not None
    assert index.encoding("b" * 64) is None
    assert [(p.at, p.count) for p in index.chunks("c" * 64)] == [(6, 6), (0, 6)]
    assert index.chunks("b" * 64) == []
    (piece,) = index.object_chunks("file", "d" * 64)
    assert (piece.pack, piece.offset, piece.count) == ("d" * 64, 910, 40)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("packs", ["zz"]),
        ("packs", {}),
        ("facts", [1]),
        ("version", "short"),
        ("whole", 4),
        ("whole", -1),
        ("whole", True),
        ("encodings", []),
        ("encodings", None),
        ("chunks", [{}]),
        ("chunks", [1]),
        ("more", 1),
    ],
)
def test_what_is_not_a_locator(key: str, value: Any) -> None:
    with pytest.raises((Damaged, NewerFormat)):
        decoded({**locator_json(), key: value})


@pytest.mark.parametrize("pack", [2, -1, None, "0", True])
def test_chunks_of_packs_that_are_not_named(pack: Any) -> None:
    value = locator_json()
    value["chunks"][0]["pack"] = pack
    with pytest.raises(Damaged):
        decoded(value)


def test_the_same_tensor_twice() -> None:
    value = locator_json()
    value["encodings"][2] = value["encodings"][0]
    with pytest.raises(Damaged):
        decoded(value)


def test_a_bomb_is_not_unpacked() -> None:
    frame = ZstdCodec("text").encode(bytes(65 << 20))
    assert len(frame) < 100_000
    with pytest.raises(DlvError):
        decode_locator(frame, "locator")


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.sampled_from(sorted(p.name for p in FILES.iterdir())))
def test_any_wrong_bytes_give_a_typed_error(seed: int, name: str) -> None:
    source = random.Random(seed)
    data = bytearray(read(name))
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(data))
        if source.random() < 0.5:
            data[at] = source.randrange(256)
        else:
            del data[at : at + source.randint(1, 9)]
        data = data or bytearray(b"x")
    reader = {"r": decode_ref, "d": decode_remote, "l": decode_locator}[name[0]]
    with contextlib.suppress(DlvError):
        reader(bytes(data), name)
