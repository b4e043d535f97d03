"""What other programs, or the ideas of other papers, make of a matrix, with and without a base.

Each is given the same bytes on one thread and must give them back. Only payload bytes are
counted, not the framing that a real file would need, which favours them. The ideas of BitX
(ZipLLM) and FM-Delta are re-implemented here, since neither runs as a library.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import blosc2
import numpy as np
import openzl.ext as openzl
import zstandard
from pcodec import ChunkConfig, standalone
from zipnn import ZipNN

from benchmarks.storage.models import Matrix

Blob = list[bytes]
SIGNED = {1: "<i1", 2: "<i2", 4: "<i4", 8: "<i8"}
UNSIGNED = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}
WIDTHS = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2}
BYTES = ("int8", "uint8", "float8_e4m3fn", "float8_e5m2")
WIDTHS |= dict.fromkeys(BYTES, 1)
FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
# blosc2's best on weights is sought on so many elements of a matrix.
TRIED = 1 << 18


@dataclass(frozen=True)
class Peer:
    """`encode(target, base)` and `decode(blob, like, base)`; base None: the matrix itself."""

    name: str
    encode: Callable[[Matrix, Matrix | None], Blob]
    decode: Callable[[Blob, Matrix, Matrix | None], bytes]
    delta: bool = False  # takes a base; otherwise ignores it


def width(held: Matrix) -> int:
    return WIDTHS[held.dtype]


def unsigned(held: Matrix) -> Any:
    return np.frombuffer(held.raw, UNSIGNED[width(held)])


# Differences: from words of target and base to words, and back.


def xor(target: Any, base: Any, _: Matrix) -> Any:
    return target ^ base


def _ordered(words: Any, like: Matrix) -> Any:
    """Floats as unsigned integers of the same order."""
    if like.dtype not in FLOATS:
        return words
    bits = 8 * words.itemsize
    sign = words >> words.dtype.type(bits - 1)
    top = words.dtype.type(1 << (bits - 1))
    return words ^ np.where(sign == 1, ~words.dtype.type(0), top)


def _unordered(words: Any, like: Matrix) -> Any:
    if like.dtype not in FLOATS:
        return words
    bits = 8 * words.itemsize
    sign = words >> words.dtype.type(bits - 1)
    top = words.dtype.type(1 << (bits - 1))
    return words ^ np.where(sign == 1, top, ~words.dtype.type(0))


def subtract(target: Any, base: Any, like: Matrix) -> Any:
    return _ordered(target, like) - _ordered(base, like)


def add(difference: Any, base: Any, like: Matrix) -> Any:
    return _unordered(difference + _ordered(base, like), like)


def zigzag(difference: Any) -> Any:
    signed = difference.view(SIGNED[difference.itemsize])
    folded = (signed << 1) ^ (signed >> (8 * difference.itemsize - 1))
    return folded.view(difference.dtype)


def unzigzag(folded: Any) -> Any:
    one = folded.dtype.type(1)
    return (folded >> one) ^ (~(folded & one) + one)


# Byte planes under zlib or zstd.


def planes(words: Any) -> list[bytes]:
    cut = words.view(np.uint8).reshape(-1, words.itemsize)
    return [cut[:, index].tobytes() for index in range(words.itemsize)]


def joined(parts: list[bytes], itemsize: int) -> Any:
    out = np.empty((len(parts[0]), itemsize), np.uint8)
    for index, part in enumerate(parts):
        out[:, index] = np.frombuffer(part, np.uint8)
    return out.reshape(-1).view(UNSIGNED[itemsize])


def deflate(data: bytes) -> bytes:
    packed = zlib.compress(data, 6)
    return packed if len(packed) < len(data) else data


def inflate(data: bytes, size: int) -> bytes:
    return data if len(data) == size else zlib.decompress(data)


def squeeze(data: bytes) -> bytes:
    packed = zstandard.ZstdCompressor(3).compress(data)
    return packed if len(packed) < len(data) else data


def expand(data: bytes, size: int) -> bytes:
    return data if len(data) == size else zstandard.ZstdDecompressor().decompress(data)


Pack = Callable[[bytes], bytes]
Unpack = Callable[[bytes, int], bytes]
Forth = Callable[[Any, Any, Matrix], Any]


def in_planes(name: str, pack: Pack, unpack: Unpack) -> Peer:
    def encode(target: Matrix, _: Matrix | None) -> Blob:
        return [pack(plane) for plane in planes(unsigned(target))]

    def decode(blob: Blob, like: Matrix, _: Matrix | None) -> bytes:
        size = len(like.raw) // width(like)
        return bytes(joined([unpack(part, size) for part in blob], width(like)).tobytes())

    return Peer(name, encode, decode)


def of_difference(name: str, forth: Forth, back: Forth, inner: Peer) -> Peer:
    """Another peer on the differences to the base."""

    def encode(target: Matrix, base: Matrix | None) -> Blob:
        assert base is not None
        words = forth(unsigned(target), unsigned(base), target)
        return inner.encode(Matrix(target.dtype, target.shape, words.tobytes()), None)

    def decode(blob: Blob, like: Matrix, base: Matrix | None) -> bytes:
        assert base is not None
        words = np.frombuffer(inner.decode(blob, like, None), UNSIGNED[width(like)])
        return bytes(back(words, unsigned(base), like).tobytes())

    return Peer(name, encode, decode, delta=True)


# Whole programs.


def _zstd_encode(target: Matrix, _: Matrix | None) -> Blob:
    return [squeeze(target.raw)]


def _zstd_decode(blob: Blob, like: Matrix, _: Matrix | None) -> bytes:
    return expand(blob[0], len(like.raw))


BLOSC = [
    {"codec": codec, "clevel": level, "filters": filters}
    for codec, level in ((blosc2.Codec.ZSTD, 9), (blosc2.Codec.ZLIB, 9), (blosc2.Codec.LZ4HC, 9))
    for filters in (
        [blosc2.Filter.SHUFFLE],
        [blosc2.Filter.BITSHUFFLE],
        [blosc2.Filter.SHUFFLE, blosc2.Filter.BYTEDELTA],
    )
]


def _blosc_encode(target: Matrix, _: Matrix | None) -> Blob:
    itemsize = width(target)

    def pack(data: bytes, setting: dict[str, Any]) -> bytes:
        return bytes(blosc2.compress2(data, typesize=itemsize, nthreads=1, **setting))

    sample = target.raw[: TRIED * itemsize]
    best = min(BLOSC, key=lambda setting: len(pack(sample, setting)))
    return [pack(target.raw, best)]


def _blosc_decode(blob: Blob, *_: Matrix | None) -> bytes:
    return bytes(blosc2.decompress2(blob[0], nthreads=1))


def _pcodec_words(held: Matrix) -> Any:
    if held.dtype in BYTES:  # it codes no single bytes
        return unsigned(held).astype("<u2")
    return np.frombuffer(held.raw, "<u2" if held.dtype == "bfloat16" else held.dtype)


def _pcodec_encode(target: Matrix, _: Matrix | None) -> Blob:
    return [standalone.simple_compress(_pcodec_words(target), ChunkConfig())]


def _pcodec_decode(blob: Blob, like: Matrix, _: Matrix | None) -> bytes:
    words = standalone.simple_decompress(blob[0])
    return bytes((words.astype("<u1") if like.dtype in BYTES else words).tobytes())


def _pcodec_delta_encode(target: Matrix, base: Matrix | None) -> Blob:
    assert base is not None
    words = subtract(unsigned(target), unsigned(base), target)
    signed = words.view(SIGNED[words.itemsize])
    if words.itemsize == 1:  # it codes no single bytes
        signed = signed.astype("<i2")
    return [standalone.simple_compress(signed, ChunkConfig())]


def _pcodec_delta_decode(blob: Blob, like: Matrix, base: Matrix | None) -> bytes:
    assert base is not None
    signed = standalone.simple_decompress(blob[0])
    words = signed.astype(SIGNED[width(like)]).view(UNSIGNED[width(like)])
    return bytes(add(words, unsigned(base), like).tobytes())


def _zipnn(like: Matrix) -> ZipNN:
    dtype = like.dtype if like.dtype in ("float32", "bfloat16", "float16") else "float32"
    return ZipNN(input_format="byte", bytearray_dtype=dtype, threads=1)


def _zipnn_encode(target: Matrix, _: Matrix | None) -> Blob:
    # It reorders bits in place, even in `bytes`: it gets a copy of its own.
    packed = bytes(_zipnn(target).compress(bytearray(target.raw)))
    return [packed if len(packed) < len(target.raw) else target.raw]


def _zipnn_decode(blob: Blob, like: Matrix, _: Matrix | None) -> bytes:
    if len(blob[0]) == len(like.raw):
        return blob[0]
    return bytes(_zipnn(like).decompress(blob[0]))


_ENTROPY = openzl.graphs.Entropy()
_PARTS = {
    "float32": openzl.nodes.Float32Deconstruct,
    "float16": openzl.nodes.Float16Deconstruct,
    "bfloat16": openzl.nodes.BFloat16Deconstruct,
}


def _openzl(numbers: Any, graph: Callable[[Any], Any]) -> Blob:
    """Each byte of a number is coded on its own, which was smaller than openzl's own choice."""
    compressor, coder = openzl.Compressor(), openzl.CCtx()
    compressor.set_parameter(openzl.CParam.FormatVersion, openzl.MAX_FORMAT_VERSION)
    compressor.select_starting_graph(graph(compressor))
    coder.ref_compressor(compressor)
    coder.set_parameter(openzl.CParam.FormatVersion, openzl.MAX_FORMAT_VERSION)
    return [coder.compress([openzl.Input(openzl.Type.Numeric, numbers)])]


def _bytes_of(compressor: Any) -> Any:
    return openzl.nodes.TransposeSplit()(compressor, _ENTROPY)


def _openzl_encode(target: Matrix, _: Matrix | None) -> Blob:
    parts = _PARTS.get(target.dtype)
    if parts is None:
        return _openzl(unsigned(target), _bytes_of)
    return _openzl(unsigned(target), lambda c: parts()(c, _bytes_of(c), _ENTROPY))


def _openzl_delta_encode(target: Matrix, base: Matrix | None) -> Blob:
    assert base is not None
    words = subtract(unsigned(target), unsigned(base), target)
    signed = words.view(SIGNED[words.itemsize])
    return _openzl(signed, lambda c: openzl.nodes.Zigzag()(c, _bytes_of(c)))


def _openzl_decode(blob: Blob, *_: Matrix | None) -> bytes:
    return bytes(openzl.DCtx().decompress(blob[0])[0].content.as_nparray().tobytes())


def _openzl_delta_decode(blob: Blob, like: Matrix, base: Matrix | None) -> bytes:
    assert base is not None
    words = np.frombuffer(_openzl_decode(blob), UNSIGNED[width(like)])
    return bytes(add(words, unsigned(base), like).tobytes())


ZLIB_PLANES = in_planes("zlib-6 planes (the paper)", deflate, inflate)
ZSTD_PLANES = in_planes("zstd-3 planes", squeeze, expand)
ZIPNN = Peer("ZipNN", _zipnn_encode, _zipnn_decode)

ALONE = [
    Peer("zstd-3", _zstd_encode, _zstd_decode),
    ZLIB_PLANES,
    ZSTD_PLANES,
    Peer("blosc2 best", _blosc_encode, _blosc_decode),
    Peer("pcodec", _pcodec_encode, _pcodec_decode),
    ZIPNN,
    Peer("openzl", _openzl_encode, _openzl_decode),
]
AGAINST = [
    of_difference("XOR + zlib-6 planes (the paper)", xor, xor, ZLIB_PLANES),
    of_difference("XOR + zstd-3 planes (idea of BitX)", xor, xor, ZSTD_PLANES),
    of_difference(
        "difference, zigzag, zstd-3 planes (idea of FM-Delta)",
        lambda target, base, like: zigzag(subtract(target, base, like)),
        lambda words, base, like: add(unzigzag(words), base, like),
        ZSTD_PLANES,
    ),
    Peer("difference + pcodec", _pcodec_delta_encode, _pcodec_delta_decode, delta=True),
    of_difference("XOR + ZipNN", xor, xor, ZIPNN),
    Peer("difference + openzl", _openzl_delta_encode, _openzl_delta_decode, delta=True),
]
