"""The codec for one segment of a plane, by measured size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dlv.kinds import Raw
from dlv.pas.coders.above import AboveCodec
from dlv.pas.coders.codecs import choose, choose_text, codec_of
from dlv.pas.coders.zstd import ZstdCodec

Config = Mapping[str, Any]
# "fast" is what commit takes; "small" looks for the smallest.
Effort = Literal["fast", "small"]

SAMPLE = 1 << 16
# Of a sample that becomes larger than this part, the dear levels of zstd find no more.
HOPELESS = 0.97

_ABOVE = AboveCodec()
_CHEAP = tuple(ZstdCodec(effort) for effort in ("literals", "matches"))
_DEAR = tuple(ZstdCodec(effort) for effort in ("high", "ultra"))


def choose_plane(
    plane: Raw, above: Raw | None, effort: Effort, *, shared: bool = False
) -> tuple[dict[str, Any], Raw]:
    """A codec's config, and the plane encoded with it; `above` = the plane above, same elements.

    `shared`: the plane will share a chunk with others, so that no context is at hand.
    """
    if not len(plane):
        return choose_text(plane)
    found = choose(plane)
    if effort == "fast":
        return found
    candidates = [found]
    if len(plane) <= SAMPLE:
        candidates += [(codec.get_config(), codec.encode(plane)) for codec in (*_CHEAP, *_DEAR)]
    else:
        candidates += [(codec.get_config(), codec.encode(plane)) for codec in _sampled(plane)]
    if above is not None and len(above) == len(plane) and not shared:
        candidates.append((_ABOVE.get_config(), _ABOVE.encode(plane, above)))
    return min(candidates, key=lambda pair: len(pair[1]))


def _sampled(plane: Raw) -> list[ZstdCodec]:
    """What is worth trying on the whole: the cheap one, and the dear one if it is ahead."""
    view = memoryview(plane)
    middle = (len(view) - SAMPLE) // 2
    sample = view[middle : middle + SAMPLE]
    cheap = {codec: len(codec.encode(sample)) for codec in _CHEAP}
    best = min(cheap, key=lambda codec: cheap[codec])
    dear = _DEAR[0]
    # Noise takes long, and nothing is found in it.
    if len(dear.encode(sample)) < cheap[best] * 0.995:
        return [best, dear]
    return [best] if cheap[best] < SAMPLE * HOPELESS else []


def decode_plane(config: Config, data: Raw, raw: int, above: Raw | None) -> Raw:
    """The inverse, as a reader does it."""
    if config.get("id") == _ABOVE.codec_id and above is not None:
        return _ABOVE.decode(data, above)
    return codec_of(config).decode(data, raw)
