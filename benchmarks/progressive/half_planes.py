"""What planes of 4 bits would take beside those of 8: the first three planes of layout `fixed`.

Both ways every plane is stored whole under zstd, or plain where that is smaller; what is left of
a weight behind these planes is the same for both.
"""

from __future__ import annotations

import sys

import numpy as np
import zstandard
from numpy.typing import NDArray

from benchmarks.progressive import nets
from benchmarks.progressive.measure import is_weight
from benchmarks.storage.corpora import Corpus, default_cache
from benchmarks.storage.models import Model
from dlv.pas.fixed import Fixed

PLANES = 3
Bytes = NDArray[np.uint8]


def stored(data: bytes) -> int:
    return min(len(zstandard.ZstdCompressor(level=9).compress(data)), len(data))


def halves(plane: Bytes) -> tuple[bytes, bytes]:
    """The upper and the lower 4 bits of each number, two numbers to a byte."""
    even = np.append(plane, np.zeros(len(plane) % 2, np.uint8))
    one, other = even[0::2], even[1::2]
    return (one & 240 | other >> 4).tobytes(), (one << 4 | other & 15).tobytes()


def sizes(model: Model) -> tuple[int, int]:
    """Bytes of all weight matrices with planes of 8 bits, and with planes of 4."""
    whole = half = 0
    for name, held in model.items():
        if not is_weight(name, held.shape):
            continue
        layout = Fixed.of([held.raw], held.dtype, held.shape)
        planes, _ = layout.split(held.raw, held.dtype, held.shape)
        for plane in planes[:PLANES]:
            numbers = np.frombuffer(bytes(plane), np.uint8)
            whole += stored(numbers.tobytes())
            half += sum(map(stored, halves(numbers)))
    return whole, half


def main() -> None:
    cache = default_cache()
    corpus = Corpus(f"digits{nets.VERSION}", 7, nets.lines, cache, lambda text: print(text))
    for name in sys.argv[1:] or nets.NETS:
        whole, half = sizes(corpus.end(name))
        print(f"{name:<12} 8 bits {whole:>9}  4 bits {half:>9}  {half / whole:.4f}")


if __name__ == "__main__":
    main()
