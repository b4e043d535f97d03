"""The codec `context-above`: bytes in the order of the plane above them, then zstd.

What stands in a plane depends on the byte above it, above all the last bit of an exponent. The
bytes that stand below equal ones are put side by side, and blocks end where those do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.errors import Damaged
from dlv.kinds import Raw
from dlv.pas.coders.blocks import blocks
from dlv.pas.coders.context import Order, places_of
from dlv.pas.coders.zstd import decompress

MOST = 1 << 20


class AboveCodec:
    """Bytes of one segment whose plane above the reader has."""

    codec_id = "context-above"

    def get_config(self) -> dict[str, Any]:
        return {"id": self.codec_id}

    def encode(self, data: Raw, above: Raw) -> bytes:
        order = Order(_contexts(above), 256)
        return blocks(order.gather(data), order.counts)

    def decode(self, data: Raw, above: Raw) -> Raw:
        """As many bytes as `above` has; Damaged if it holds others."""
        places = places_of(_contexts(above), 256)
        plain = decompress(data, len(above), "a chunk in the order of the plane above")
        if len(plain) != len(above):
            raise Damaged(
                "a chunk in the order of the plane above has the wrong length",
                why=f"{len(plain)} bytes, not {len(above)}",
            )
        return places.scatter(np.frombuffer(plain, np.uint8))


def _contexts(above: Raw) -> NDArray[np.uint8]:
    if len(above) > MOST:
        raise Damaged(f"a segment has {len(above)} bytes, not <= {MOST}")
    return np.frombuffer(above, np.uint8)
