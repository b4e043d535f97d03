"""How fast this machine reads and decodes weights: what recreation costs are counted in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Manner = Literal["raw", "zstd", "fixed", "xor", "sub", "context"]


@dataclass(frozen=True)
class Speeds:
    """Megabytes per second, which is bytes per microsecond."""

    read: float  # stored bytes out of the packs
    decode: Mapping[str, float]  # bytes of the matrix, by manner
    chunk: float = 30.0  # microseconds for every chunk, whatever it holds

    def microseconds(self, manner: str, raw: int, stored: float, chunks: int) -> int:
        """What one step of a chain takes."""
        return max(1, round(chunks * self.chunk + stored / self.read + raw / self.decode[manner]))


# Of an ordinary machine of 2024; close enough to choose by, and the same plan everywhere.
ORDINARY = Speeds(
    1000.0,
    {
        "raw": 2000.0,
        "zstd": 900.0,
        "fixed": 200.0,
        "xor": 500.0,
        "sub": 400.0,
        "context": 100.0,
    },
)
