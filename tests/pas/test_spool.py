"""The spool: order within packs, one pack or several, the same bytes each time."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator

import pytest

from dlv.canonical import hash_bytes, matrix_hash
from dlv.pas import spool
from dlv.pas.encode import encode_elements, encode_object
from dlv.pas.footer import Encoding, Footer, parse
from dlv.pas.layouts.segments import Ieee
from dlv.pas.spool import Pending, Spool, lane_of


def pending() -> Iterator[tuple[int, Pending]]:
    source = random.Random(6)
    for number in range(12):
        raw = source.randbytes(4000)
        name = matrix_hash("float32", (1000,), raw)
        encoding = Encoding(name, "float32", (1000,), {"id": "ieee"}, None, 4)
        for plane, part in enumerate(encode_elements(Ieee(), "float32", raw)):
            chunk = Pending("plane", plane, ((encoding, 0, 1000),), part)
            yield lane_of("plane", plane, small=number == 5), chunk
        text = f"object {number}".encode()
        for kind in ("series", "bounds", "table"):
            chunk = Pending(kind, None, ((hash_bytes(text), 0, len(text)),), encode_object(text)[0])
            yield lane_of(kind, None), chunk


def packed(buffer: int) -> tuple[list[Footer], list[bytes]]:
    pending_spool = Spool(io.BytesIO, writer="dlv 0.1.0", buffer=buffer)
    for lane, chunk in pending():
        pending_spool.add(lane, chunk)
    packs = pending_spool.finish()
    data = [sink.getvalue() for sink, _ in packs]
    for (_, footer), whole in zip(packs, data, strict=True):
        offset = int.from_bytes(whole[-56:-48], "little")
        assert parse(footer.dumps(), offset, "it") == footer
    return [footer for _, footer in packs], data


def test_little_goes_into_one_pack_in_the_order_of_reading() -> None:
    (footer,), _ = packed(1 << 30)
    order = [(chunk.kind, chunk.plane) for chunk in footer.chunks]
    assert order == [
        *[("table", None)] * 12,
        *[("bounds", None)] * 12,
        *[("plane", plane) for plane in range(4)],
        *[("plane", plane) for plane in range(4) for _ in range(11)],
        *[("series", None)] * 12,
    ]


def test_much_goes_into_a_pack_per_lane() -> None:
    footers, _ = packed(0)
    kinds = [sorted({(chunk.kind, chunk.plane) for chunk in footer.chunks}) for footer in footers]
    assert [("plane", 2)] in kinds
    assert len(footers) == 8
    assert {len(footer.encodings) for footer in footers} == {0, 1, 11}


def test_all_is_there_however_it_is_cut() -> None:
    expected = {chunk.blake3 for chunk in packed(1 << 30)[0][0].chunks}
    for buffer in (0, 3000, 20_000, 60_000):
        footers, _ = packed(buffer)
        assert {chunk.blake3 for footer in footers for chunk in footer.chunks} == expected
        assert sum(len(footer.chunks) for footer in footers) == 12 * 7


def test_equal_input_gives_equal_packs() -> None:
    for buffer in (0, 20_000, 1 << 30):
        assert packed(buffer)[1] == packed(buffer)[1]


def test_memory_is_bounded() -> None:
    pending_spool = Spool(io.BytesIO, buffer=20_000)
    for lane, chunk in pending():
        pending_spool.add(lane, chunk)
        assert pending_spool.waiting <= 20_000


def test_a_full_footer_is_followed_by_another_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "FOOTER_ROOM", 1500)
    footers, _ = packed(0)
    assert len(footers) > 12
    assert sum(len(footer.chunks) for footer in footers) == 12 * 7


def test_a_cut_plane_stays_in_one_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "FOOTER_ROOM", 100)
    out = Spool(io.BytesIO, buffer=0)
    encoding = Encoding("a" * 64, "uint8", (30,), {"id": "ieee"}, None, 1)
    for start in (0, 10, 20):
        part = encode_elements(Ieee(), "uint8", bytes([start] * 10))[0]
        out.add(lane_of("plane", 0), Pending("plane", 0, ((encoding, start, 10),), part))
    assert [len(footer.chunks) for _, footer in out.finish()] == [3]


def test_empty_matrices_have_a_row() -> None:
    encoding = Encoding("b" * 64, "float32", (0, 3), {"id": "ieee"}, None, 4)
    ((_, footer),) = Spool(io.BytesIO).finish([encoding])
    assert footer.encodings == (encoding,)
    assert Spool(io.BytesIO).finish() == []
