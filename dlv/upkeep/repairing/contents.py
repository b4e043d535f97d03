"""What lay in a damaged pack, stored anew from wherever its content can still be had.

Own chunks that are whole, another encoding in another pack, another repository: in this order.
Every matrix is held against its name, which is the hash of its content, so that it does not
matter who had it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import dlv.archiving.reencode as reencode
import dlv.recovery.superseded as superseded
import dlv.repository.handle as repositories
from dlv.archiving.reencode import Overlay
from dlv.errors import DlvError
from dlv.kinds import Piece, Raw
from dlv.metadata import bounds, collected, matrices, storage
from dlv.metadata.matrices import PackIndex
from dlv.pas.chunks import SUFFIX
from dlv.pas.footer import Encoding
from dlv.pas.packs import Pack
from dlv.repository.handle import Repository
from dlv.weights.store import MatrixStore
from dlv.weights.writer import PackRecord, WeightWriter


@dataclass
class Lost:
    """What is asked for: matrices, and objects by kind."""

    packs: list[str]
    matrices: dict[str, None] = field(default_factory=dict)
    objects: dict[tuple[str, str], None] = field(default_factory=dict)


class _Blind:
    """A store that knows nothing yet, so that everything is written again."""

    def __init__(self, store: MatrixStore) -> None:
        self.packs_dir, self.tmp_dir, self.writer = store.packs_dir, store.tmp_dir, store.writer

    def encoding(self, matrix: str) -> Encoding | None:  # noqa: ARG002
        return None

    def object_chunks(self, kind: str, name: str) -> Sequence[Piece]:  # noqa: ARG002
        return ()

    def pieces_behind(self, matrix: str) -> Sequence[Piece]:  # noqa: ARG002
        return ()

    def verify(self, piece: Piece, *, content: bool) -> None: ...


def lost(repository: Repository, packs: Iterable[str], matrices_: Iterable[str]) -> Lost:
    """All that the catalogue finds in damaged packs, and matrices that cannot be decoded."""
    found = Lost(list(packs), dict.fromkeys(matrices_))
    for pack in found.packs:
        held, others = storage.used_in(repository.database, pack)
        found.matrices |= dict.fromkeys(held)
        found.objects |= dict.fromkeys(others)
    return found


def store_anew(
    repository: Repository, wanted: Lost, other: Repository | None, author: str
) -> list[tuple[str, str]]:
    """(object, where its content was) of all that came back; the index finds them anew."""
    db = repository.database
    back: list[tuple[str, str]] = []
    with ExitStack() as held:
        store = held.enter_context(closing(MatrixStore.of(repository)))
        stores = [("its own chunks", store), *_others(repository, wanted, held)]
        if other is not None:
            theirs = held.enter_context(closing(MatrixStore.of(other)))
            stores.append((str(other.root), theirs))
        with WeightWriter(_Blind(store)) as writer:
            for name in wanted.matrices:
                row = PackIndex(db).encoding(name)
                for where, source in stores if row is not None else ():
                    raw = _matrix(source, name)
                    if raw is not None and row is not None:
                        writer.add(row.dtype, row.shape, raw)
                        back.append((name, where))
                        break
            for kind, name in wanted.objects:
                if kind in ("table", "bounds"):
                    continue  # of a coding that is given up; bounds hold for it alone
                for where, source in stores:
                    data = _object(source, kind, name)
                    if data is not None:
                        writer.add_object(kind, data)
                        back.append((name, where))
                        break
            made = writer.finish()
        if made:
            _switch(repository, store, made, author)
    return back


def _matrix(source: MatrixStore, name: str) -> Raw | None:
    try:
        return bytes(source.matrix(name)) if source.encoding(name) is not None else None
    except (DlvError, OSError):
        return None


def _object(source: MatrixStore, kind: str, name: str) -> bytes | None:
    try:
        return bytes(source.object(kind, name)) if source.object_chunks(kind, name) else None
    except (DlvError, OSError):
        return None


def _others(
    repository: Repository, wanted: Lost, held: ExitStack
) -> Iterator[tuple[str, MatrixStore]]:
    """Every pack with an encoding of its own of something lost: the index knows but one."""
    for name, path in repositories.stored(repository.packs, SUFFIX):
        if name in wanted.packs:
            continue
        try:
            with Pack(path) as pack:
                footer, size = pack.footer, pack.size
        except DlvError:
            continue
        if any(row.matrix in wanted.matrices for row in footer.encodings):
            index = Overlay(PackIndex(repository.database), [PackRecord(name, path, size, footer)])
            view = MatrixStore(repository.packs, repository.tmp, index)  # type: ignore[arg-type]
            yield f"pack {name[:12]}", held.enter_context(closing(view))


def _switch(
    repository: Repository,
    store: MatrixStore,
    made: Sequence[PackRecord],
    author: str,
) -> None:
    """Read back by name, then the index finds all of it in the new packs."""
    superseded.intend(repository, [pack.hash for pack in made])
    reencode.verify(repository, store, made, lambda _: None)
    what = f"{sum(len(pack.rows.encodings) for pack in made)} matrices repaired"
    reencode.switch(repository, store, made, author, what)


def forget(repository: Repository, packs: Sequence[str]) -> list[Path]:
    """Damaged packs that hold nothing any more but derived things: their rows go."""
    db = repository.database
    gone = []
    for name in packs:
        held, others = storage.used_in(db, name)
        records = [other for kind, other in others if kind == "bounds"]
        tables = {other for kind, other in others if kind == "table"}
        needed = tables & storage.tables_named(db)
        if held or needed or any(kind not in ("bounds", "table") for kind, _ in others):
            continue
        with db.atomic():
            bounds.forget(db, records)
            if name in dict(matrices.packs(db)):
                collected.forget_packs(db, [name], [])
        gone.append(repository.packs / name[:2] / (name + SUFFIX))
    return gone
