"""How fast this machine decodes weights: what recreation costs are counted in.

Measured once per machine, in about a second, and kept in the user's cache.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import numpy as np

from dlv.canonical import dumps, matrix_hash
from dlv.dataclass import dataclass
from dlv.errors import Damaged, DlvError
from dlv.kinds import Piece, Raw
from dlv.pas.coders import small
from dlv.pas.coders.codecs import codec_of
from dlv.pas.encode import Part, encode_delta, encode_materialised
from dlv.pas.footer import Encoding
from dlv.pas.layouts.fixed import Fixed
from dlv.pas.layouts.registry import default_layout
from dlv.pas.layouts.segments import Layout
from dlv.pas.read import read_matrix

FILE = "speeds.json"
FORMAT = 2  # raised when decoders become faster or slower
SHAPE = (1000, 500)
LEAST = 5.0  # megabytes per second; a clock that stood still must not make a plan absurd


@dataclass(frozen=True)
class Speeds:
    """Megabytes per second, which is bytes per microsecond."""

    read: float  # stored bytes out of the packs
    decode: Mapping[str, float]  # bytes of the matrix, by manner
    chunk: float = 30.0  # microseconds for every chunk, whatever it holds

    def microseconds(self, manner: str, raw: int, stored: float, chunks: int) -> int:
        """What one step of a chain takes."""
        return max(1, round(chunks * self.chunk + stored / self.read + raw / self.decode[manner]))


# Of an ordinary machine; for plans that must be the same everywhere.
ORDINARY = Speeds(
    1000.0,
    {"raw": 2000.0, "zstd": 900.0, "fixed": 200.0, "xor": 500.0, "sub": 600.0, "context": 150.0},
)


def of_machine(cache: Path) -> Speeds:
    """Those measured before, or measured now; without a place to keep them, the ordinary ones."""
    path = cache / FILE
    try:
        kept = json.loads(path.read_bytes())
        if kept["format"] == FORMAT and set(kept["decode"]) == set(ORDINARY.decode):
            decode = {manner: max(LEAST, float(v)) for manner, v in kept["decode"].items()}
            return Speeds(ORDINARY.read, decode)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    try:
        found = measure()
        keep(cache, found)
    except (OSError, DlvError):
        return ORDINARY
    return found


def keep(cache: Path, speeds: Speeds) -> None:
    """Note them for the next time."""
    cache.mkdir(parents=True, exist_ok=True)
    fresh = cache / f"{FILE}.{time.monotonic_ns()}"
    fresh.write_bytes(dumps({"format": FORMAT, "decode": dict(speeds.decode)}))
    fresh.replace(cache / FILE)


def folder(environ: Mapping[str, str]) -> Path:
    """Where programs of this user keep what can be made again."""
    home = Path(environ.get("HOME") or "~").expanduser()
    return Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "dlv"


def measure() -> Speeds:
    """Decode a matrix that looks like weights, stored in every manner."""
    random = np.random.default_rng(0)
    base = random.normal(0, 0.05, SHAPE).astype("<f4")
    near = (base + random.normal(0, 1e-4, SHAPE)).astype("<f4")
    noise = random.integers(0, 1 << 32, SHAPE, np.uint32).view("<f4")
    decode = {}
    for manner, target in (("raw", noise), ("zstd", base), ("fixed", base)):
        store = _Store()
        store.materialise(target.tobytes(), manner)
        decode[manner] = store.speed()
    for manner in ("xor", "sub", "context"):
        store = _Store()
        name = store.materialise(base.tobytes(), "zstd")
        alone = store.seconds()
        store.difference(near.tobytes(), base.tobytes(), name, manner)
        decode[manner] = max(LEAST, base.nbytes / 1e6 / max(1e-6, store.seconds() - alone))
    return Speeds(ORDINARY.read, decode)


@dataclass
class _Store:
    """Packs in memory; the last matrix is the one that is read."""

    encodings: dict[str, Encoding] = field(default_factory=dict)
    pieces: dict[str, list[Piece]] = field(default_factory=dict)
    data: list[Raw] = field(default_factory=list)

    def materialise(self, raw: bytes, manner: str) -> str:
        layout: Layout = default_layout()
        if manner == "fixed":
            layout = Fixed.of([raw], "float32", SHAPE)
        return self._add(
            raw,
            lambda name, put: encode_materialised(
                raw, "float32", SHAPE, name, put, layout=layout, effort="small"
            ),
        )

    def difference(self, raw: bytes, base: bytes, base_name: str, manner: str) -> str:
        def encode(name: str, put: Callable[[Part], None]) -> Encoding:
            given = (raw, base, "float32", SHAPE, name, base_name, put)
            if manner == "xor":
                return encode_delta(manner, *given, layout=default_layout())
            if manner == "sub":
                return small.encode_plain(*given)
            return small.encode_small(*given)

        return self._add(raw, encode)

    def _add(self, raw: bytes, encode: Callable[[str, Callable[[Part], None]], Encoding]) -> str:
        name = matrix_hash("float32", SHAPE, raw)
        pieces = self.pieces.setdefault(name, [])

        def put(part: Part) -> None:
            encoded = part.encoded
            pieces.append(
                Piece(
                    *(name, "", part.kind, part.plane, len(self.data), len(encoded.data)),
                    *(encoded.raw, encoded.blake3, encoded.codec, 0, part.start, part.count),
                )
            )
            self.data.append(encoded.data)

        self.encodings[name] = encode(name, put)
        self.last = name
        return name

    def seconds(self) -> float:
        """The faster of three readings."""
        took = []
        for _ in range(3):
            started = time.thread_time()  # another program at work must not count
            read_matrix(self.last, self.encodings.get, self)
            took.append(time.thread_time() - started)
        return min(took)

    def speed(self) -> float:
        size = np.prod(SHAPE) * 4 / 1e6
        return max(LEAST, float(size) / max(1e-6, self.seconds()))

    # What `read_matrix` asks of a source of chunks.

    def chunks(self, matrix: str) -> Sequence[Piece]:
        return self.pieces[matrix]

    def stored(self, piece: Piece) -> Raw:
        return self.data[piece.offset]

    def read(self, piece: Piece) -> Raw:
        return codec_of(piece.codec).decode(self.data[piece.offset], piece.raw)

    def object(self, kind: str, name: str) -> Raw:
        raise Damaged(f"no {kind} {name} here")  # no codec of these has a table
