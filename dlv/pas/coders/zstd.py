"""The codec `zstd`: one frame that records its content size."""

from __future__ import annotations

import threading

import zstandard

from dlv.errors import Damaged
from dlv.kinds import Raw

# An RLE block gives 128 KiB for 4 bytes: no frame can hold more than this per byte.
MAX_RATIO = 1 << 15


def _fast(hash_log: int, target_length: int) -> zstandard.ZstdCompressionParameters:
    return zstandard.ZstdCompressionParameters.from_level(
        1,
        strategy=zstandard.STRATEGY_FAST,
        min_match=7,
        hash_log=hash_log,
        target_length=target_length,
        write_content_size=True,
    )


def _level(level: int) -> zstandard.ZstdCompressionParameters:
    return zstandard.ZstdCompressionParameters.from_level(level, write_content_size=True)


# What the encoder may try; a decoder needs to know nothing of it. On the exponents of weights
# every match costs more than the literals it replaces, so `literals` hardly looks for any: it
# is smaller and twice as fast as level 1. `probe` skips ahead fast and finds long repeats only.
EFFORTS = {
    "literals": _fast(6, 0),
    "probe": _fast(17, 32),
    "matches": _level(1),
    "text": _level(6),
    "high": _level(9),
    "ultra": _level(19),
}

_contexts = threading.local()


class ZstdCodec:
    """Zstandard, with parameters fitted to byte planes or to text."""

    codec_id = "zstd"

    def __init__(self, effort: str = "matches") -> None:
        self.effort = effort

    def get_config(self) -> dict[str, object]:
        return {"id": self.codec_id}

    def encode(self, data: Raw) -> bytes:
        name = "encode-" + self.effort
        # A context must not be used by two threads at once and is dear to make.
        context = getattr(_contexts, name, None)
        if context is None:
            context = zstandard.ZstdCompressor(compression_params=EFFORTS[self.effort])
            setattr(_contexts, name, context)
        encoded: bytes = context.compress(data)
        return encoded

    def decode(self, data: Raw, raw_length: int) -> bytes:
        if declared_size(data) != raw_length:
            raise Damaged(
                "a zstd chunk does not hold what its pack says",
                why=f"it declares {declared_size(data)} bytes, the pack {raw_length}",
            )
        return _decompress(data, raw_length)


def declared_size(data: Raw) -> int | None:
    """The content size in a frame's header; None where there is none or no frame."""
    try:
        size = zstandard.frame_content_size(data)
    except zstandard.ZstdError:
        return None
    return size if 0 <= size < 1 << 62 else None


def decompress(data: Raw, limit: int, label: str) -> bytes:
    """A frame of at most `limit` bytes of content; the size is checked before allocation."""
    size = declared_size(data)
    if size is None:
        raise Damaged(f"{label} is not a zstd frame with a content size")
    if size > limit:
        raise Damaged(f"{label} is too large", why=f"it declares {size} bytes, not <= {limit}")
    return _decompress(data, size)


def _decompress(data: Raw, size: int) -> bytes:
    if size > len(data) * MAX_RATIO:
        raise Damaged("a zstd frame declares more than it can hold", why=f"{size} bytes")
    context = getattr(_contexts, "decode", None)
    if context is None:
        context = _contexts.decode = zstandard.ZstdDecompressor()
    try:
        if size == 0:
            # zstandard answers b"" to this without a look at the rest of the frame.
            stream = context.decompressobj()
            if stream.decompress(data) or not stream.eof or stream.unused_data:
                raise Damaged("a zstd frame declares 0 bytes but has data")
            return b""
        decoded: bytes = context.decompress(data, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Damaged("a zstd frame does not decode", why=str(error)) from error
    if len(decoded) != size:
        raise Damaged("a zstd frame is truncated", why=f"{len(decoded)} bytes, not {size}")
    return decoded
