"""A small pack written by hand with the pack writer."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pytest

from dlv.canonical import hash_bytes, matrix_hash
from dlv.pas.coders.codecs import choose_text
from dlv.pas.encode import encode_elements
from dlv.pas.footer import Encoding, Footer
from dlv.pas.layouts.segments import Ieee
from dlv.pas.packs import PackWriter


@dataclass
class SmallPack:
    data: bytes
    footer: Footer
    matrices: dict[str, bytes]
    objects: dict[str, bytes]


def build() -> SmallPack:
    """Two matrices that share chunks, one alone, an empty one and a named object."""
    out = io.BytesIO()
    pack = PackWriter(out, writer="dlv 0.1.0")
    layout = Ieee()
    together = [("float32", (3, 5), bytes(range(60))), ("float32", (), b"\x00\x00\xc0\x7f")]
    alone = ("int16", (200,), bytes(400))
    empty = ("float64", (0, 4), b"")
    matrices: dict[str, bytes] = {}
    indices = []
    for dtype, shape, raw in (*together, alone, empty):
        name = matrix_hash(dtype, shape, raw)
        matrices[name] = raw
        planes = layout.planes(dtype)
        encoding = Encoding(name, dtype, shape, layout.get_config(), None, planes)
        indices.append(pack.add_encoding(encoding))
    shared = encode_elements(layout, "float32", b"".join(raw for _, _, raw in together))
    for plane, part in enumerate(shared):
        members = [(indices[0], 0, 15), (indices[1], 0, 1)]
        pack.add_chunk("plane", plane, members, part.raw, part.codec, part.data)
    for plane, part in enumerate(encode_elements(layout, "int16", alone[2])):
        pack.add_chunk("plane", plane, [(indices[2], 0, 200)], part.raw, part.codec, part.data)
    text = b'{"dlv_network":1}' * 10
    codec, stored = choose_text(text)
    pack.add_chunk("network", None, [(hash_bytes(text), 0, len(text))], len(text), codec, stored)
    footer = pack.finish()
    return SmallPack(out.getvalue(), footer, matrices, {hash_bytes(text): text})


@pytest.fixture(scope="session")
def small_pack() -> SmallPack:
    return build()
