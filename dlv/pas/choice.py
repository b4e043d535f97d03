"""The codec for one segment of a plane, by measured size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dlv.pas.codecs import choose, choose_text, codec_of

Raw = bytes | bytearray | memoryview
Config = Mapping[str, Any]
# "fast" is what commit takes; "small" looks for the smallest.
Effort = Literal["fast", "small"]


def choose_plane(
    plane: Raw,
    above: Raw | None,  # noqa: ARG001
    effort: Effort,  # noqa: ARG001
) -> tuple[dict[str, Any], Raw]:
    """A codec's config, and the plane encoded with it; `above` = the same elements' plane above."""
    if not len(plane):
        return choose_text(plane)
    return choose(plane)


def decode_plane(config: Config, data: Raw, raw: int, above: Raw | None) -> Raw:  # noqa: ARG001
    """The inverse, as a reader does it."""
    return codec_of(config).decode(data, raw)
