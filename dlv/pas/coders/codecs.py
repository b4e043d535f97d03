"""Codecs by config, and the choice of one for a plane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from dlv.canonical import HASH
from dlv.errors import Damaged, NewerFormat
from dlv.kinds import Raw
from dlv.pas.coders.zstd import ZstdCodec

if TYPE_CHECKING:
    from dlv.pas.coders.context import ContextCodec


class RawCodec:
    """Stores bytes unchanged."""

    codec_id = "raw"

    def get_config(self) -> dict[str, object]:
        return {"id": self.codec_id}

    def encode(self, data: Raw) -> Raw:
        return data

    def decode(self, data: Raw, raw_length: int) -> Raw:
        if len(data) != raw_length:
            raise Damaged(
                "a raw chunk has the wrong length", why=f"{len(data)} bytes, not {raw_length}"
            )
        return data


Config = Mapping[str, Any]

# A plane that zstd makes less than this part smaller is kept raw: reading it is then a copy.
WORTH = 256
SAMPLE = 64 << 10
SAMPLE_BLOCKS = 4


class Codec(Protocol):
    """Entropy coding of one chunk; what an id decodes never changes."""

    codec_id: str

    def get_config(self) -> dict[str, Any]: ...

    def encode(self, data: Raw) -> Raw: ...

    def decode(self, data: Raw, raw_length: int) -> Raw:
        """The `raw_length` bytes; Damaged if it is not exactly that many."""
        ...


def _numbers(config: Config) -> Codec:
    from dlv.pas.coders.numbers import UNITS, NumbersCodec

    unit = config["bytes"]
    if type(unit) is not int or unit not in UNITS:
        raise Damaged("the numbers of a chunk have an impossible size", why=f"{unit!r} bytes")
    return NumbersCodec(unit)


# id -> codec made from a config, and the keys that config must have.
CODECS: dict[str, tuple[Callable[[Config], Codec], frozenset[str]]] = {
    "pco": (_numbers, frozenset({"id", "bytes"})),
    "raw": (lambda _: RawCodec(), frozenset({"id"})),
    "zstd": (lambda _: ZstdCodec(), frozenset({"id"})),
}

# Codecs that need contexts to decode; their code needs numpy and is loaded for planes only.
CONTEXT_IDS = {*("context-above", "context-packed", "context-pco", "context-rans", "context-zstd")}
MAX_LO = 127

_RAW = RawCodec()
_LITERALS = ZstdCodec("literals")
_MATCHES = ZstdCodec("matches")
_PROBE = ZstdCodec("probe")
_TEXT = ZstdCodec("text")


def codec_of(config: Config) -> Codec:
    """The codec that a config names."""
    name = str(config.get("id"))
    if name in CONTEXT_IDS:
        raise Damaged(f"a chunk of codec {name!r} where no contexts are")
    made = CODECS.get(name)
    if made is None or set(config) != made[1]:
        raise NewerFormat(
            f"unknown codec {dict(config)!r}", hint="install the version of dlv that wrote it"
        )
    return made[0](config)


@cache
def context_codecs() -> dict[str, tuple[Callable[..., ContextCodec], tuple[str, ...]]]:
    """Codecs for digits in contexts by id, made from checked values; the keys of their config."""
    from dlv.pas.coders.context import ContextPacked, ContextRans, ContextZstd
    from dlv.pas.coders.numbers import ContextNumbers

    return {
        "context-packed": (ContextPacked, ("lo", "scale")),
        "context-pco": (ContextNumbers, ("bytes", "scale")),
        "context-rans": (ContextRans, ("lo", "scale", "table")),
        "context-zstd": (ContextZstd, ("lo", "scale")),
    }


def context_codec_of(config: Config) -> ContextCodec | None:
    """The context codec that a config names; None for an id that needs no contexts."""
    made = context_codecs().get(str(config.get("id")))
    if made is None:
        return None
    make, keys = made
    if set(config) != {"id", *keys}:
        raise NewerFormat(
            f"unknown codec {dict(config)!r}", hint="install the version of dlv that wrote it"
        )
    for key in keys:
        value = config[key]
        if key == "bytes":
            if type(value) is not int or value not in (1, 2, 4, 8):
                raise Damaged("a context codec's `bytes` is not valid", why=f"it is {value!r}")
        elif key == "lo":
            if type(value) is not int or not 0 <= value <= MAX_LO:
                raise Damaged("a context codec's `lo` is not valid", why=f"it is {value!r}")
        elif not isinstance(value, str) or not HASH.match(value):
            raise Damaged(f"a context codec's `{key}` is not a hash", why=f"it is {value!r}")
    return make(*(config[key] for key in keys))


def choose(plane: Raw) -> tuple[dict[str, Any], Raw]:
    """The fast tier: the codec for one plane, and the plane encoded with it."""
    sample = _sample(memoryview(plane))
    sampled = [(len(codec.encode(sample)), codec) for codec in (_LITERALS, _MATCHES)]
    size, best = min(sampled, key=lambda pair: pair[0])
    if not _pays(size, len(sample)):
        # Nothing to gain near by; a repeat from further away shows at little cost.
        if not _pays(len(_PROBE.encode(plane)), len(plane)):
            return _RAW.get_config(), plane
        best = _PROBE
    return _smaller(best, plane)


def choose_text(data: Raw) -> tuple[dict[str, Any], Raw]:
    """The codec for a named object: JSON, headers, columns of points."""
    if not len(data):
        # As a frame even nothing takes some bytes, so that no two chunks begin at one offset.
        return _TEXT.get_config(), _TEXT.encode(data)
    return _smaller(_TEXT, data)


def _smaller(codec: Codec, data: Raw) -> tuple[dict[str, Any], Raw]:
    encoded = codec.encode(data)
    if _pays(len(encoded), len(data)):
        return codec.get_config(), encoded
    return _RAW.get_config(), data


def _pays(encoded: int, raw: int) -> bool:
    return encoded < raw - raw // WORTH


def _sample(plane: memoryview) -> Raw:
    """A few blocks from all over the plane; a small plane whole."""
    size = max(4 << 10, min(SAMPLE, len(plane) // 16))
    if len(plane) <= 2 * size:
        return plane
    block = size // SAMPLE_BLOCKS
    step = (len(plane) - block) // (SAMPLE_BLOCKS - 1)
    return b"".join(plane[index * step : index * step + block] for index in range(SAMPLE_BLOCKS))
