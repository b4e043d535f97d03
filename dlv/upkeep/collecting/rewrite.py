"""Packs that hold mostly what nobody needs: the rest goes into new ones, as an archive does it.

Nothing is encoded anew, so that bounds and deltas hold as before; the old packs are found to be
unused afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

import dlv.archiving.reencode as reencode
import dlv.disk.durable as durable
import dlv.recovery.superseded as superseded
from dlv.archiving.packing import Packing
from dlv.metadata import collected, storage
from dlv.pas.chunks import SUFFIX
from dlv.pas.packs import Pack
from dlv.repository.handle import Repository
from dlv.upkeep.collecting.mark import Marked, Sparse
from dlv.weights.store import MatrixStore

DEAD = 0.5  # a pack of which a larger part is not needed is written again
LEAST = 4096  # bytes that must become free, or it is not worth a new pack


def mostly_dead(marked: Marked) -> list[Sparse]:
    return [pack for pack in marked.sparse if pack.size - pack.live > max(LEAST, DEAD * pack.size)]


def unused(marked: Marked) -> int:
    """Bytes that nobody needs in packs that stay as they are."""
    gone = {pack.name for pack in mostly_dead(marked)}
    found = (pack.size - pack.live for pack in marked.sparse if pack.name not in gone)
    return sum(size for size in found if size > LEAST)  # footers take something, too


def batches(packs: Sequence[Sparse]) -> list[list[Sparse]]:
    """So many at a time as make one or a few new packs."""
    found: list[list[Sparse]] = []
    size = 0
    for pack in packs:
        if not found or size + pack.live > reencode.BATCH:
            found.append([])
            size = 0
        found[-1].append(pack)
        size += pack.live
    return found


def rewrite(
    repository: Repository,
    marked: Marked,
    packs: Sequence[Sparse],
    author: str,
    advance: Callable[[int], None],
) -> int:
    """Write, read back, switch the index: bytes of new packs. The caller holds `writing()`."""
    db = repository.database
    needed = collected.objects_in(db, marked.chunks)
    matrices: dict[str, None] = {}
    objects: dict[tuple[str, str], None] = {}
    for sparse in packs:
        with Pack(durable.path_of(repository.packs, sparse.name, SUFFIX)) as pack:
            empty = [row.matrix for row in pack.encodings if row.empty]
        held, others = storage.used_in(db, sparse.name)
        matrices |= dict.fromkeys(m for m in [*held, *empty] if m in marked.matrices)
        objects |= dict.fromkeys(other for other in others if other in needed)
    with closing(MatrixStore.of(repository)) as store:
        with Packing(store) as packing:
            for name in matrices:
                encoding = store.encoding(name)
                if encoding is not None:
                    packing.carry(encoding)
            for kind, name in objects:
                packing.carry_object(kind, name)
            made = packing.finish(lambda names: superseded.intend(repository, names))
        reencode.verify(repository, store, made, advance)
        what = f"{len(packs)} pack{'s' if len(packs) > 1 else ''} without what gc takes"
        reencode.switch(repository, store, made, author, what)
    return sum(pack.bytes for pack in made)
