"""The codec `zstd`, and that no frame can make it allocate more than it holds."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from dlv.errors import Damaged
from dlv.pas.coders.zstd import EFFORTS, ZstdCodec, declared_size, decompress
from tests.conformance.codec import CodecSuite

GOLDEN = Path(__file__).parents[2] / "golden" / "codec" / "zstd"


class TestMatches(CodecSuite):
    codec = ZstdCodec()


class TestLiterals(CodecSuite):
    codec = ZstdCodec("literals")


class TestProbe(CodecSuite):
    codec = ZstdCodec("probe")


class TestText(CodecSuite):
    codec = ZstdCodec("text")


@pytest.mark.parametrize("effort", sorted(EFFORTS))
def test_a_plain_zstd_reader_reads_it(effort: str) -> None:
    data = b"exponents " * 1000 + random.Random(3).randbytes(1000)
    encoded = ZstdCodec(effort).encode(data)
    assert zstandard.ZstdDecompressor().decompress(encoded) == data
    assert declared_size(encoded) == len(data)


def test_golden_bytes_decode() -> None:
    plain = (GOLDEN / "plain.bin").read_bytes()
    stored = sorted(GOLDEN.glob("stored-*.bin"))
    assert len(stored) >= 2
    for path in stored:
        assert ZstdCodec().decode(path.read_bytes(), len(plain)) == plain


def frame_declaring(size: int) -> bytes:
    """A valid frame of a few bytes whose header is changed to promise `size` bytes."""
    frame = zstandard.ZstdCompressor().compress(bytes(1 << 17))
    descriptor = frame[4] & ~0xC0 | 0xC0  # an eight byte content size
    assert frame[4] >> 6 == 2  # it had four
    return frame[:4] + bytes([descriptor]) + size.to_bytes(8, "little") + frame[9:]


@pytest.mark.parametrize("size", [(1 << 17) + 1, 1 << 33, 1 << 50, (1 << 62) - 1, (1 << 64) - 3])
def test_a_lying_frame_is_refused_before_memory_is_taken(size: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Damaged):
            ZstdCodec().decode(frame_declaring(size), size)
        with pytest.raises(Damaged):
            decompress(frame_declaring(size), 1 << 63, "a footer")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_frames_are_bounded() -> None:
    frame = zstandard.ZstdCompressor().compress(bytes(1 << 20))
    assert decompress(frame, 1 << 20, "a footer") == bytes(1 << 20)
    with pytest.raises(Damaged, match="too large"):
        decompress(frame, (1 << 20) - 1, "a footer")


def test_frames_without_a_size_or_with_company_are_refused() -> None:
    sizeless = zstandard.ZstdCompressor(write_content_size=False).compress(b"abc" * 50)
    good = zstandard.ZstdCompressor().compress(b"abc" * 50)
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    for bad in (sizeless, good + good, good + skippable, skippable + good, b"not zstd at all"):
        with pytest.raises(Damaged):
            ZstdCodec().decode(bad, 150)


def test_every_flipped_bit_is_noticed_or_harmless() -> None:
    # The checksum of the pack comes before this; here: never a wrong length, never a crash.
    data = bytes(random.Random(5).choices(b"abcdefgh", k=400))
    encoded = ZstdCodec().encode(data)
    for bit in range(len(encoded) * 8):
        broken = bytearray(encoded)
        broken[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(Damaged):
            assert len(ZstdCodec().decode(broken, len(data))) == len(data)
