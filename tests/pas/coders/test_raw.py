"""The codec `raw`."""

from __future__ import annotations

from pathlib import Path

from dlv.pas.coders.codecs import RawCodec
from tests.conformance.codec import CodecSuite

GOLDEN = Path(__file__).parents[2] / "golden" / "codec" / "raw"


class TestRaw(CodecSuite):
    codec = RawCodec()


def test_it_changes_nothing() -> None:
    data = b"\x00\x01\xfe"
    assert RawCodec().encode(data) is data


def test_golden_bytes_decode() -> None:
    stored, plain = (GOLDEN / "stored.bin").read_bytes(), (GOLDEN / "plain.bin").read_bytes()
    assert len(plain) == 260
    assert RawCodec().decode(stored, len(plain)) == plain
