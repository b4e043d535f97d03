"""Deltas as dlv reads them and no command writes them, for the tests of what reads them.

Digits by the range coder, and contexts from a matrix further down than the base.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import hash_bytes
from dlv.pas.coders.context import ContextRans, ContextZstd
from dlv.pas.coders.contexts import Measure, default_lo, numbers
from dlv.pas.deltas.difference import Delta
from dlv.pas.encode import Encoded, Part
from dlv.pas.floats import differences, exponents, format_of, words_in
from dlv.pas.footer import Encoding
from dlv.pas.layouts.segments import SEGMENT, Ieee
from tests.golden.weights.make import encode_ranged, make_table


def encode_in_contexts(
    target: bytes,
    base: bytes,
    dtype: str,
    shape: Sequence[int],
    names: tuple[str, str],
    *,
    scale: tuple[str, bytes] | None = None,
    codec: Literal["context-zstd", "context-rans"] = "context-zstd",
) -> tuple[Encoding, list[Part], list[bytes]]:
    """A difference with every plane in contexts, its parts, and the tables that they name.

    `names`: of the target and its base; `scale`: name and bytes of the matrix whose exponents
    count, by default the base.
    """
    form, layout = format_of(dtype), Ieee()
    scale_name, scale_raw = scale or (names[1], base)
    digits = differences(words_in(target, dtype), words_in(base, dtype), form)
    held = exponents(words_in(scale_raw, dtype), form)
    measure = Measure(shape, form)
    measure.add(digits, held, 0)
    scales = measure.finish()
    parts = [_part("side", None, 0, scales.tobytes(), {"id": "raw"}, scales.tobytes())]
    tables: dict[bytes, None] = {}
    for start in range(0, len(digits), SEGMENT):
        q = scales.q(held[start : start + SEGMENT], start)
        above: NDArray[np.uint8] | None = None
        cutter = layout.cutter(b"", dtype, shape)
        for plane, data in enumerate(cutter.cut(digits[start : start + SEGMENT], start)):
            lo = default_lo(plane, form)
            contexts = numbers(q, above, lo)
            above = np.frombuffer(data, np.uint8)
            if codec == "context-rans":
                counts = np.zeros((128, 256), np.int64)
                np.add.at(counts, (contexts, above), 1)
                table = make_table(counts)
                tables[table] = None
                config = ContextRans(lo, scale_name, hash_bytes(table)).get_config()
                stored = encode_ranged(bytes(data), contexts, table)
            else:
                coder = ContextZstd(lo, scale_name)
                config, stored = coder.get_config(), coder.encode(data, contexts)
            parts.append(_part("plane", plane, start, bytes(data), config, stored))
    delta = Delta("sub", names[1], None).get_config()
    planes = layout.planes(dtype)
    encoding = Encoding(names[0], dtype, tuple(shape), layout.get_config(), delta, planes)
    return encoding, parts, list(tables)


def _part(
    kind: str, plane: int | None, start: int, data: bytes, codec: dict[str, Any], stored: bytes
) -> Part:
    encoded = Encoded(codec, stored, len(data), hash_bytes(stored))
    return Part(kind, plane, start, len(data), encoded)
