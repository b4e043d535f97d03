"""The codec `context-above`: bytes in the order of the plane above them, then zstd.

What stands in a plane depends on the byte above it, above all the last bit of an exponent. The
bytes that stand below equal ones are put side by side, and blocks end where those do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.errors import Damaged
from dlv.pas.coders.blocks import blocks
from dlv.pas.coders.zstd import decompress

Raw = bytes | bytearray | memoryview

MOST = 1 << 20


class AboveCodec:
    """Bytes of one segment whose plane above the reader has."""

    codec_id = "context-above"

    def get_config(self) -> dict[str, Any]:
        return {"id": self.codec_id}

    def encode(self, data: Raw, above: Raw) -> bytes:
        order, counts = _order(above)
        return blocks(np.frombuffer(data, np.uint8)[order], counts)

    def decode(self, data: Raw, above: Raw) -> Raw:
        """As many bytes as `above` has; Damaged if it holds others."""
        order, _ = _order(above)
        plain = decompress(data, len(order), "a chunk in the order of the plane above")
        if len(plain) != len(order):
            raise Damaged(
                "a chunk in the order of the plane above has the wrong length",
                why=f"{len(plain)} bytes, not {len(order)}",
            )
        out = np.empty(len(order), np.uint8)
        out[order] = np.frombuffer(plain, np.uint8)
        return out.data


def _order(above: Raw) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    if len(above) > MOST:
        raise Damaged(f"a segment has {len(above)} bytes, not <= {MOST}")
    contexts = np.frombuffer(above, np.uint8)
    return np.argsort(contexts, kind="stable"), np.bincount(contexts, minlength=256)
