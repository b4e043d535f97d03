"""A bounds record and the encodings that it holds for, brought into the store together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import dlv.archiving.reencode as reencode
import dlv.recovery.superseded as superseded
from dlv.archiving.bounding.view import View
from dlv.archiving.packing import Packing
from dlv.archiving.tryouts import Choice
from dlv.errors import Damaged
from dlv.metadata import bounds
from dlv.metadata.database import Database
from dlv.network.suffix.record import suffix_from_json
from dlv.pas.footer import Encoding
from dlv.repository.handle import Repository
from dlv.weights.bounds import KIND, Record, decode
from dlv.weights.store import MatrixStore
from dlv.weights.writer import PackRecord

Advance = Callable[[int], None]

# Up to this matrices share chunks: of larger ones a level should not read more than it needs.
POOLED = 8 << 10


def write(
    repository: Repository,
    view: View,
    record: Record,
    matrices: Collection[str],
    stale: Sequence[str],
    author: str,
    summary: str,
    advance: Advance = lambda _: None,
) -> int:
    """New packs written, read back and switched to: their bytes. `matrices`: the record's.

    The record counts from the very transaction in which its encodings do, and those that it takes
    the place of go. The caller holds `repository.writing()`.
    """
    data = record.encode()
    if decode(data) != record:
        raise Damaged("the bounds record does not read back", hint="report this fault of dlv")
    if record.suffix is not None:
        suffix_from_json(record.suffix)  # nor may this be refused later
    store = MatrixStore.of(repository)
    fresh = [(Choice(name, None, "materialise"), _known(view, name)) for name in view.made]
    beside = reencode.work(repository, fresh)
    with Packing(store) as packing:
        name = packing.add_object(KIND, data)
        for _, encoding in fresh:
            _encode(packing, view, encoding)
        packing.seal()  # whoever reads this snapshot should not have to read others
        for encoding in beside.carried:
            packing.carry(encoding)
        for kind, other in beside.objects:
            if kind != KIND or (other != name and other not in stale):
                packing.carry_object(kind, other)
        made = packing.finish(lambda names: superseded.intend(repository, names))

    def also(db: Database) -> None:
        bounds.forget(db, [other for other in stale if other != name])
        bounds.insert(db, name, record.network, matrices)

    reencode.verify(repository, store, made, advance)
    reencode.switch(repository, store, made, author, summary, also)
    store.close()
    return _size(made)


def _size(made: Sequence[PackRecord]) -> int:
    return sum(pack.bytes for pack in made)


def _known(view: View, matrix: str) -> Encoding:
    encoding = view.encoding(matrix)
    assert encoding is not None
    return encoding


def _encode(packing: Packing, view: View, encoding: Encoding) -> None:
    """Own chunks for the planes of a large matrix; a small one's share theirs, as side data do."""
    attempt = view.made[encoding.matrix]
    if (encoding.nbytes or 0) > POOLED:
        for part in attempt.parts():
            if part.kind != "side":
                packing.put(encoding, part)
        side = b"".join(
            bytes(view.read(p)) for p in view.chunks(encoding.matrix) if p.plane is None
        )
        if side:
            packing.pool(encoding, None, side)
        return
    planes: dict[int | None, bytes] = {}
    for piece in view.chunks(encoding.matrix):
        planes[piece.plane] = planes.get(piece.plane, b"") + bytes(view.read(piece))
    for plane, data in sorted(planes.items(), key=lambda item: -1 if item[0] is None else item[0]):
        packing.pool(encoding, plane, data)
