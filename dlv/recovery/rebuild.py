"""A catalogue made again from what is true: facts, packs and manifests."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from pathlib import Path

import dlv.disk.durable as durable
import dlv.metadata.matrices as matrices
import dlv.recovery.superseded as superseded
import dlv.repository.quarantine as quarantine
import dlv.weights.bounds as bounds
from dlv.dataclass import dataclass
from dlv.disk.locks import network_disk
from dlv.errors import Damaged, DlvError
from dlv.kinds import Piece, Raw
from dlv.metadata import collected, dump, facts, versions
from dlv.metadata.database import Database
from dlv.objects.fact import Fact, decode_fact
from dlv.objects.manifest import Manifest, decode
from dlv.pas.chunks import SUFFIX
from dlv.pas.deltas.links import link_of
from dlv.pas.footer import Encoding, Footer, pieces_of
from dlv.pas.packs import Pack
from dlv.repository.change_marks import Standing
from dlv.repository.handle import HEAD, NEXT, Repository, read_object, stored
from dlv.weights.store import MatrixStore, insert_version, stored_network, stored_summary

# What only the old catalogue knows; kept where it can still be read.
_KEPT = ("state", "staged", "seen", "operation")


@dataclass
class Filled:
    """A catalogue filled from files, and what stood in the way."""

    faults: list[tuple[str, str, str]] = field(default_factory=list)  # kind, object, why
    dangling: list[tuple[str, str]] = field(default_factory=list)  # kind, object
    versions: int = 0
    recovered: list[str] = field(default_factory=list)
    head_moved: tuple[str | None, str | None] | None = None  # labels, before and after


def fill(repository: Repository, db: Database, committed: Set[str] | None = None) -> Filled:
    """Fill an empty catalogue; damaged objects are listed and left out.

    Of the facts only the `committed` ones count, where these are given: the others may be of
    changes that never came to their commit.
    """
    filled = Filled()
    found = list(_facts(repository, filled))
    # Of a restore from quarantine they count when it has come to its end.
    waiting = quarantine.restoring(repository)
    pending = {fact.hash for fact in waiting.facts} - (committed or set()) if waiting else set()
    filled.dangling += [("fact", fact.hash) for fact in found if fact.hash in pending]
    found = [fact for fact in found if fact.hash not in pending]
    if committed is not None:
        seen = {fact.hash for fact in found} | {name for _, name, _ in filled.faults}
        filled.faults += [("fact", name, "missing") for name in sorted(committed - seen)]
        filled.dangling += [("fact", fact.hash) for fact in found if fact.hash not in committed]
        found = [fact for fact in found if fact.hash in committed]
    with db.atomic():
        facts.load(db, found)
        _fill_packs(repository, db, found, filled)
        store = MatrixStore(repository.packs, repository.tmp, matrices.PackIndex(db))
        _insert_bounds(db, store, filled)
        taken = {subject for subject, steps in facts.collected(db).items() if steps is None}
        numbers = _numbers(found)
        made = dict(_manifests(repository, filled))
        # gc was killed before it moved them; that it took the version is a fact already.
        filled.dangling += [("manifest", name) for name in made if name in taken]
        numbers = {name: fact for name, fact in numbers.items() if name not in taken}
        for version_id, fact in sorted(numbers.items(), key=lambda item: item[1].created):
            if version_id in made:
                _insert(db, store, made[version_id], fact, filled)
            else:
                known = any(
                    kind == "manifest" and name == version_id for kind, name, _ in filled.faults
                )
                if not known:
                    filled.faults.append(("manifest", version_id, "missing"))
        loose = [name for name in made if name not in numbers and name not in taken]
        filled.dangling += [("manifest", name) for name in loose]
        for fact in found:
            facts.settle(db, fact)
        store.close()
    return filled


def _facts(repository: Repository, filled: Filled) -> Iterator[Fact]:
    for digest, _ in stored(repository.facts, ".json"):
        try:
            yield decode_fact(read_object(repository.facts, digest, "fact"), f"fact {digest[:12]}")
        except DlvError as error:
            filled.faults.append(("fact", digest, _why(error)))


def _manifests(repository: Repository, filled: Filled) -> Iterator[tuple[str, Manifest]]:
    for digest, _ in stored(repository.manifests, ".json"):
        try:
            data = read_object(repository.manifests, digest, "manifest")
            yield digest, decode(data, f"manifest {digest[:12]}")
        except DlvError as error:
            filled.faults.append(("manifest", digest, _why(error)))


def _why(error: DlvError) -> str:
    return error.why or error.message


def _fill_packs(repository: Repository, db: Database, facts: list[Fact], filled: Filled) -> None:
    """Packs of the newest archive first: of a matrix stored twice its encoding counts."""
    archives = sorted(
        (fact for fact in facts if fact.kind == "archive"), key=lambda fact: fact.created
    )
    # What an archive that never came to its end has left counts last, or its differences could
    # go round in a circle with those that count.
    rank = dict.fromkeys(superseded.intended(repository), -1)
    rank |= {pack: age for age, fact in enumerate(archives, 1) for pack in fact.data["packs"]}
    packs: dict[int, list[Found]] = {}
    torn: set[int] = set()
    for name, path in stored(repository.packs, SUFFIX):
        try:
            with Pack(path) as pack:
                found_pack = Found(name, pack.size, pack.footer)
        except DlvError as error:
            filled.faults.append(("pack", name, _why(error)))
            torn.add(rank.get(name, 0))
        else:
            packs.setdefault(rank.get(name, 0), []).append(found_pack)
    order = sorted(packs, reverse=True)
    ages = [packs[age] for age in order]
    without = superseded_matrices(ages, {at for at, age in enumerate(order) if age in torn})
    for age, left_out in zip(ages, without, strict=True):
        rows = [(pack.name, pack.size, pack.footer.as_json()) for pack in age]
        matrices.insert_packs(db, rows, left_out)


def _insert_bounds(db: Database, store: MatrixStore, filled: Filled) -> None:
    """Which matrices the bounds records in the packs are about; only they themselves tell."""
    names = matrices.stored_bounds(db)
    known = matrices.named_bounds(db) if names else []
    for name in names:
        try:
            record = bounds.decode(bytes(store.object(bounds.KIND, name)), f"bounds {name[:12]}")
        except DlvError as error:
            filled.faults.append(("bounds", name, _why(error)))
        else:
            hashes = record.hashes(known, store.encoding)
            matrices.insert_bounds(db, name, record.network, hashes.values())


def _numbers(facts: list[Fact]) -> dict[str, Fact]:
    """The fact that numbers each version: the newest of its kind."""
    newest: dict[str, Fact] = {}
    for fact in sorted(facts, key=lambda fact: (fact.created, fact.hash)):
        if fact.kind == "number" and fact.subject is not None:
            newest[fact.subject] = fact
    return newest


def _insert(
    db: Database, store: MatrixStore, manifest: Manifest, fact: Fact, filled: Filled
) -> None:
    standing = facts.newest(db, "number", manifest.id)  # a renaming may have been undone
    name, number = (fact.data if standing is None else standing[1])["name"], fact.data["number"]
    # A number is used twice only when its first holder was never acknowledged.
    earlier = versions.by_number(db, name, number)
    if earlier is not None:
        versions.recover(db, earlier.key)
        filled.recovered.append(earlier.id)
    network = None
    summaries = []
    try:
        if manifest.network is not None:
            network = stored_network(store, manifest.network.id)
    except DlvError as error:
        filled.faults.append(
            ("network", manifest.network.id if manifest.network else "", _why(error))
        )
    for reference in manifest.series:
        try:
            summary = stored_summary(store, reference.hash)
            summaries += [] if summary is None else [summary]
        except DlvError as error:
            filled.faults.append(("series", reference.hash, _why(error)))
    insert_version(db, manifest, network, summaries, number=number, name=name)
    filled.versions += 1


def rebuild(repository: Repository, *, if_outdated: bool = False) -> Filled:
    """Make the catalogue again beside the old one, and put it in its place; with `if_outdated`
    only that of an older dlv."""
    with repository.alone("gc.lock"):
        if if_outdated and not repository.outdated:
            return Filled()  # another process was faster
        known = _known(repository)

        def follow(db: Database) -> None:
            if known is not None:
                _follow(repository, db, known.lost)

        believed, waiting = _believed(known), quarantine.restoring(repository)
        if believed is not None and waiting is not None:
            believed -= {fact.hash for fact in waiting.facts}
        return remake(repository, believed, follow)


def remake(
    repository: Repository,
    committed: Set[str] | None = None,
    last: Callable[[Database], None] = lambda _: None,
) -> Filled:
    """As `rebuild`, for a caller that holds the lock; `last` adds rows to the new catalogue."""
    fresh = repository.path / "dlv.db.new"
    for leftover in (fresh, *_journals(fresh)):
        leftover.unlink(missing_ok=True)
    db = Database(fresh, wal=not network_disk(repository.path))
    try:
        filled = fill(repository, db, committed)
        _keep(repository, db)
        with db.atomic():
            last(db)
        filled.head_moved = _head_moved(repository, db)
        told = dump.committed_facts(db) | collected.numbered(db)
        db.checkpoint()
    finally:
        db.close()
    repository.close()
    _swap(repository, fresh)
    repository.marks.sweep(told)
    return filled


@dataclass(frozen=True)
class _Known:
    """What the old catalogue says has committed, and what lies there that it has lost."""

    facts: set[str]
    lost: set[str]
    standing: Standing


def lost_facts(
    repository: Repository, standing: Standing, db: Database, committed: Set[str]
) -> set[str]:
    """Facts that have committed and that the catalogue does not know any more."""
    waiting = quarantine.restoring(repository)
    # Of a restore from quarantine they count when it has come to its end.
    pending = {fact.hash for fact in waiting.facts} if waiting else set()
    return standing.lost(committed, collected.numbered(db)) - pending


def _known(repository: Repository) -> _Known | None:
    """None: it cannot be asked."""
    standing = repository.marks.read()
    try:
        db = repository.database
        known = dump.committed_facts(db)
        return _Known(known, lost_facts(repository, standing, db, known), standing)
    except DlvError:
        return None


def _believed(known: _Known | None) -> set[str] | None:
    """All facts but tags, removals and the like of changes that never came to their commit; where
    there is no old catalogue to tell, those as well. A version may reappear: it hides nothing."""
    if known is None or known.standing.open_facts <= known.facts:
        return None
    return set(known.standing.facts - (known.standing.open_facts - known.facts))


def _follow(repository: Repository, db: Database, lost: Set[str]) -> None:
    """Move HEAD to a version committed on top of it that the old catalogue had lost."""
    made = [fact for fact in map(repository.marks.fact, lost) if fact is not None]
    for fact in sorted(made, key=lambda fact: fact.created):
        version = None if fact.kind != "number" else versions.by_id(db, str(fact.subject))
        if version is not None and version.state == "live":
            parents = repository.manifest(version.id).parents
            if facts.state(db, HEAD) == (parents[0].id if parents else None):
                facts.set_state(db, HEAD, version.id)
                facts.set_state(db, NEXT, None)


def _head_moved(repository: Repository, db: Database) -> tuple[str | None, str | None] | None:
    """Return HEAD before and after, as labels, if it is not the same version."""
    try:
        before = repository.head if repository.database_file.exists() else None
    except DlvError:
        before = None
    after = facts.state(db, HEAD)
    if before == after:
        return None
    return _label(db, before), _label(db, after)


def _label(db: Database, version: str | None) -> str | None:
    found = None if version is None else versions.by_id(db, version)
    return version and version[:7] if found is None else found.label


def _journals(path: Path) -> list[Path]:
    return [path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal")]


def _keep(repository: Repository, db: Database) -> None:
    """HEAD, staging and the operation log, if the old catalogue still gives them."""
    try:
        there = repository.database_file.exists()
        old = Database(repository.database_file, lenient=True) if there else None
        foreign = [] if old is None else old.foreign()
        kept = [name for name in _KEPT if f"table {name}" not in foreign]
        rows = {} if old is None else {name: old.table(name) for name in kept}
        if old is not None:
            old.close()
    except DlvError:
        rows = {}
    with db.atomic():
        for name, found in rows.items():
            with contextlib.suppress(DlvError), db.atomic():
                db.fill_table(name, found)
                if problems := dump.local_problems(db):
                    raise Damaged(problems[0])
        head = facts.state(db, HEAD)
        if head is None or versions.by_id(db, head) is None:
            newest = versions.all_versions(db)
            facts.set_state(db, HEAD, newest[0].id if newest else None)
            facts.set_state(db, NEXT, None)


def _swap(repository: Repository, fresh: Path) -> None:
    """The old catalogue stays beside as `dlv.db.old`: it may be wanted, and is small."""
    old = repository.database_file
    durable.inherit_rights(fresh)
    durable.sync_path(fresh)
    if old.exists():
        shutil.copyfile(old, old.with_name("dlv.db.old"))
    # A journal of the old file must not be applied to the new one.
    for journal in _journals(old):
        journal.unlink(missing_ok=True)
    fresh.rename(old)
    durable.fsync_directory(repository.path)


@dataclass(frozen=True)
class Found:
    """A pack that was read."""

    name: str
    size: int
    footer: Footer


def superseded_matrices(
    generations: Sequence[Sequence[Found]], torn: Set[int] = frozenset()
) -> list[set[str]]:
    """For each generation, newest first, the matrices that count elsewhere.

    Of those that are torn some pack cannot be read.
    """
    ways: dict[str, list[tuple[int, str | None]]] = {}
    for age, packs in enumerate(generations):
        for matrix, base in _held(packs).items():
            ways.setdefault(matrix, []).append((age, base))
    doubtful = {matrix for matrix, found in ways.items() if len(found) > 1}
    held = {matrix: list(found) for matrix, found in ways.items()}
    for age, packs in enumerate(generations):
        for matrix in _broken(packs, doubtful, torn=age in torn):
            whole = [way for way in ways[matrix] if way[0] != age]
            ways[matrix] = whole or ways[matrix]
    chosen = _chosen(ways)
    left: list[set[str]] = [set() for _ in generations]
    for matrix, found in held.items():
        for age in {age for age, _ in found} - {chosen[matrix]}:
            left[age].add(matrix)
    return left


def _held(packs: Iterable[Found]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for pack in packs:
        for encoding in pack.footer.encodings:
            found.setdefault(encoding.matrix, _base(encoding))
    return found


def _base(encoding: Encoding) -> str | None:
    return None if encoding.delta is None else str(encoding.delta.get("base"))


def _broken(packs: Sequence[Found], wanted: set[str], *, torn: bool) -> Iterator[str]:
    """Of the matrices asked for, those that these packs do not hold whole."""
    encodings: dict[str, Encoding] = {}
    pieces: dict[str, dict[tuple[object, ...], Piece]] = {}
    for pack in packs:
        mine = {
            encoding.matrix
            for encoding in pack.footer.encodings
            if encoding.matrix in wanted
            and encodings.setdefault(encoding.matrix, encoding) == encoding
        }
        for piece in pieces_of(pack.footer, pack.name) if mine else ():
            if piece.object in mine and piece.kind in ("plane", "side"):
                # Two commits at one time may both have brought it.
                place = (piece.kind, piece.plane, piece.start)
                pieces.setdefault(piece.object, {}).setdefault(place, piece)
    for matrix, encoding in encodings.items():
        try:
            link = link_of(encoding, _Rows(pieces.get(matrix, {}).values()), encoding.planes)
        except DlvError:
            yield matrix
        else:
            # A plane may have nothing in it; but was it so?
            if torn and not encoding.empty and not all(link.planes):
                yield matrix


class _Rows:
    """The chunks of one matrix as far as footers tell of them."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._pieces = list(pieces)

    def chunks(self, _: str, /) -> Sequence[Piece]:
        return self._pieces

    def read(self, piece: Piece) -> Raw:
        raise Damaged(f"pack {piece.pack} is not open")

    stored = read

    def object(self, kind: str, name: str) -> Raw:
        raise Damaged(f"{kind} {name} is not open")


def _chosen(ways: Mapping[str, Sequence[tuple[int, str | None]]]) -> dict[str, int]:
    """The newest way of each, and an older one where that leads in a circle or nowhere."""
    chosen = {matrix: found[0] for matrix, found in ways.items()}
    ends = _ending(chosen)
    while True:
        others = {
            matrix: way
            for matrix in chosen.keys() - ends
            for way in [w for w in ways[matrix] if w[1] is None or w[1] in ends][:1]
        }
        if not others:
            return {matrix: age for matrix, (age, _) in chosen.items()}
        chosen |= others
        ends = _ending(chosen)


def _ending(chosen: Mapping[str, tuple[int, str | None]]) -> set[str]:
    """Those whose chain of bases comes to a matrix that stands on its own."""
    ends: dict[str, bool] = {}
    for matrix in chosen:
        path: list[str] = []
        name: str | None = matrix
        on_path: set[str] = set()
        while name is not None and name in chosen and name not in ends and name not in on_path:
            path.append(name)
            on_path.add(name)
            name = chosen[name][1]
        well = name is None or ends.get(name, False)
        ends.update(dict.fromkeys(path, well))
    return {matrix for matrix, well in ends.items() if well}
