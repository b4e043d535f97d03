"""The codec `raw`: bytes as they are, for what does not compress."""

from __future__ import annotations

from dlv.errors import Damaged
from dlv.kinds import Raw


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
