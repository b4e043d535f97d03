"""Small packs cut out of large ones: all that one matrix needs, its chunks byte for byte.

Whatever reads packs takes as long as they are large, and a change somewhere in a large one meets
mostly the same few fields.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from dlv.pas.chunks import read_stored
from dlv.pas.deltas.difference import base_of
from dlv.pas.footer import Chunk, Footer
from dlv.pas.packs import Pack, PackWriter

_MOST = 1 << 18  # bytes that a pack decodes to: else one input takes as long as hundreds


@cache
def cut(paths: tuple[Path, ...]) -> list[bytes]:
    """The smallest packs that hold between them all kinds of things which those files hold."""
    found: list[tuple[bytes, frozenset[str]]] = []
    for path in paths:
        with Pack(path) as pack:
            for matrices in _groups(pack.footer):
                chunks = _chunks(pack.footer, matrices)
                if sum(chunk.raw for chunk in chunks) <= _MOST:
                    found.append(_pack(pack, matrices, chunks))
    chosen, seen = [], set[str]()
    for data, kinds in sorted(found, key=lambda pair: len(pair[0])):
        if kinds - seen:
            chosen.append(data)
            seen |= kinds
    return chosen


def _groups(footer: Footer) -> Iterator[frozenset[str]]:
    """Each matrix with its bases, those whose exponents count and those in the same chunks."""
    bases = {row.matrix: base_of(row.delta) for row in footer.encodings}
    for matrix in bases:
        group, waiting = set[str](), {matrix}
        while waiting:
            one = waiting.pop()
            group.add(one)
            more = {str(bases[one])} | {
                name
                for chunk in footer.chunks
                if one in _owners(footer, chunk)
                for name in (*_owners(footer, chunk), str(chunk.codec.get("scale")))
            }
            waiting |= (more & bases.keys()) - group
        yield frozenset(group)


def _owners(footer: Footer, chunk: Chunk) -> list[str]:
    return [
        owner if isinstance(owner, str) else footer.encodings[owner].matrix
        for owner, _, _ in chunk.members
    ]


def _chunks(footer: Footer, matrices: frozenset[str]) -> list[Chunk]:
    """Those of the matrices, and the tables that they name."""
    own = (chunk for chunk in footer.chunks if matrices & set(_owners(footer, chunk)))
    tables = {str(chunk.codec.get("table")) for chunk in own}
    wanted = matrices | tables
    return [chunk for chunk in footer.chunks if wanted & set(_owners(footer, chunk))]


def _pack(
    pack: Pack, matrices: frozenset[str], chunks: list[Chunk]
) -> tuple[bytes, frozenset[str]]:
    footer = pack.footer
    file = io.BytesIO()
    writer = PackWriter(file, writer=footer.writer)
    rows = [row for row in footer.encodings if row.matrix in matrices]
    places = {row.matrix: writer.add_encoding(row) for row in rows}
    kinds = set(_kinds(chunks))
    for row in rows:
        kinds |= {f"{row.dtype} {row.layout}", f"{row.dtype} {(row.delta or {}).get('id')}"}
        kinds |= {f"{one['id']}" for one in (row.delta or {}).get("predictor", ())}
    for chunk in chunks:
        members = [
            (
                owner if isinstance(owner, str) else places[footer.encodings[owner].matrix],
                start,
                count,
            )
            for owner, start, count in chunk.members
        ]
        stored = read_stored(pack.descriptor, pack.size, chunk, "a pack")
        writer.add_chunk(chunk.kind, chunk.plane, members, chunk.raw, chunk.codec, stored)
    writer.finish()
    return file.getvalue(), frozenset(kinds)


def _kinds(chunks: Iterable[Chunk]) -> Iterator[str]:
    for chunk in chunks:
        yield f"{chunk.kind} {chunk.plane} {chunk.codec['id']}"
        yield f"later {any(start for _, start, _ in chunk.members)}"
        yield f"shared {len(chunk.members) > 1}"
