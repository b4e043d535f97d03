"""Back up a hub that is in use, and restore it.

A backup copies the database first, as of one moment, and then the objects that this copy names.
Objects never change, so they can be copied later. Those that were deleted in between are no
longer named by a second copy of the database, which is then made. A folder holds any number of
backups, and each object once:

    backups/<time>.json   written last: a backup without it does not count
    rows/<hash>.gz        the database
    objects/<uuid>/..     as in the store of the hub
"""

from __future__ import annotations

import fcntl
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import IO, cast

import sqlalchemy as sa

import dlv.disk.durable as durable
from dlv.canonical import WRITER, dumps, hasher, timestamp
from dlv.dataclass import dataclass
from dlv.disk.durable import TemporaryFile
from dlv.errors import Conflict, Damaged, NotFound, RemoteError, UsageError
from dlv.hub.records import REMOTE_FILE, object_key
from dlv.hub.server import audit, tables
from dlv.hub.server.access import Caller
from dlv.hub.server.hub import Hub
from dlv.hub.server.upkeep import rows
from dlv.hub.stores.interface import MissingObject, Store
from dlv.objects.record import Natural, Time, as_json, decode, parse

FORMAT = "dlv/hub-backup/1"
PIECE = 16 << 20  # bytes that are copied at once
THREADS = 4
ATTEMPTS = 5  # copies of the database, if objects are deleted while they are copied
_POINT = re.compile(r"[0-9T]+Z\.json\Z")

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Backup:
    """One backup: what was acknowledged before `time` is in it.

    `audit` is the number and the hash of the newest audit line. `damaged` are objects that the hub
    itself did not have intact. Without `has_objects`, only the database was copied.
    """

    time: Time
    rows: str
    has_objects: bool
    objects: Natural
    bytes: Natural
    audit: str
    damaged: list[str]
    writer: str = WRITER

    @property
    def name(self) -> str:
        return re.sub(r"[-:.]", "", self.time)


@dataclass
class Outcome:
    """What a backup or a restore did. `copied` counts objects that were not there before."""

    backup: Backup
    copied: int = 0
    copied_bytes: int = 0
    deleted: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    damaged: list[str] = field(default_factory=list)


# Backup


def back_up(
    hub: Hub,
    folder: Path,
    *,
    database_only: bool = False,
    keep: int | None = None,
    progress: Progress = lambda _: None,
) -> Outcome:
    """Add a backup to a folder; then delete all but the newest `keep` backups in it."""
    if keep is not None and keep < 1:
        raise UsageError("--keep must be at least 1")
    _check_elsewhere(hub, folder)
    _create(folder)
    with _alone(folder):
        for path in (folder / "tmp").iterdir():
            durable.unlink(path)  # of a backup that was interrupted
        copied: list[int] = []
        damaged: list[str] = []
        for _ in range(ATTEMPTS):
            time = timestamp()
            path, audit_line, counts = _copy_rows(hub, folder, time)
            keys = list(_objects(path))
            if database_only:
                keys = []
                break
            damaged, gone = _copy_objects(hub, folder, keys, copied, progress)
            if not gone:
                break
        else:
            raise Conflict("objects are deleted again and again", hint="try again later")
        backup = Backup(
            time=time,
            rows=path.stem,
            has_objects=not database_only,
            objects=len(keys),
            bytes=sum(size for _, _, size in keys),
            audit=audit_line,
            damaged=damaged,
        )
        data = dumps({"format": FORMAT, **as_json(backup)})
        durable.replace(folder / "backups" / f"{backup.name}.json", data, tmp_dir=folder / "tmp")
        deleted = 0 if keep is None else _prune(folder, keep)
    return Outcome(backup, len(copied), sum(copied), deleted, rows=counts, damaged=damaged)


def _check_elsewhere(hub: Hub, folder: Path) -> None:
    """Refuse the folders of the hub: old objects of a backup are deleted."""
    path, settings = folder.resolve(), hub.settings
    objects = None if "://" in settings.store else Path(settings.store).resolve()
    if path == settings.data.resolve() or objects in (path, path / "objects", *path.parents):
        raise UsageError(f"{folder} is a folder of the hub itself", hint="choose another folder")


def _create(folder: Path) -> None:
    for inside in ("", "backups", "rows", "objects", "tmp"):
        durable.make_directory(folder / inside)
    os.chmod(folder, 0o700)  # it has hashes of tokens, and private models


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other backups away from a folder."""
    descriptor = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise Conflict(f"another backup to {folder} is running") from error
    else:
        yield
    finally:
        os.close(descriptor)


def _copy_rows(hub: Hub, folder: Path, time: str) -> tuple[Path, str, Counter[str]]:
    """Copy the database; return the file, the newest audit line, and the number of rows."""
    with TemporaryFile(folder / "tmp") as file:
        with hub.database.snapshot() as connection:
            columns = tables.audit.c
            newest = sa.select(columns.seq, columns.hash).order_by(columns.seq.desc()).limit(1)
            line = connection.execute(newest).first()
            counts = rows.write_rows(connection, cast(IO[bytes], _Writer(file)), time)
        file.sync()
        path = folder / "rows" / f"{file.hexdigest()}.gz"
        os.rename(file.path, path)
        file.close()
    durable.fsync_directory(path.parent)
    return path, "" if line is None else f"{line.seq} {line.hash}", counts


class _Writer:
    """A temporary file as gzip writes to it."""

    def __init__(self, file: TemporaryFile) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        return self._file.write(data)

    def flush(self) -> None: ...


def _objects(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield (uuid of the repository, key, size) of all objects that a copied database names."""
    uuids: dict[int, str] = {}
    for name, row in rows.read_rows(path):
        if name == tables.repository.name:
            uuids[row["id"]] = row["uuid"]
        elif name == tables.object_.name:
            yield uuids[row["repository_id"]], object_key(row["kind"], row["hash"]), row["size"]


def _hash_in(key: str) -> str:
    return key.rpartition("/")[2].partition(".")[0]


def _copy_objects(
    hub: Hub, folder: Path, keys: list[tuple[str, str, int]], copied: list[int], progress: Progress
) -> tuple[list[str], bool]:
    """Copy what is not in the folder; return what is not intact, and whether some were deleted."""
    stores = {uuid: hub.store_of(uuid) for uuid in {uuid for uuid, _, _ in keys}}
    damaged: list[str] = []
    gone = False

    def copy(task: tuple[str, str, int]) -> int | None:
        """Return how many bytes were copied, None if the hub does not have them intact."""
        uuid, key, size = task
        target = folder / "objects" / uuid / key
        try:
            if target.stat().st_size == size:
                return 0
        except OSError:
            pass
        if stores[uuid].size(key) != size:
            return None
        try:
            _download(stores[uuid], key, size, target, folder / "tmp")
        except (MissingObject, Damaged):
            return None
        progress(size)
        return size

    with ThreadPoolExecutor(THREADS) as pool:
        for (uuid, key, _), size in zip(keys, pool.map(copy, keys), strict=True):
            if size is None and _is_known(hub, uuid, key):
                damaged.append(f"{uuid}/{key}")
            elif size is None:
                gone = True
            elif size:
                copied.append(size)
    return damaged, gone


def _download(store: Store, key: str, size: int, target: Path, tmp: Path) -> None:
    """Copy an object to a file, which gets its name when its bytes are verified and durable."""
    with TemporaryFile(tmp, suffix=".part") as file:
        for start in range(0, size, PIECE):
            file.write(store.get_range(key, start, min(PIECE, size - start)))
        if file.hexdigest() != _hash_in(key):
            raise Damaged(f"{key} at {store.url} has other bytes than its name says")
        durable.make_directory(target.parent)
        durable.put_in_place(file, target)


def _is_known(hub: Hub, uuid: str, key: str) -> bool:
    """Whether the database still has an object, as of now."""
    table, repository = tables.object_, tables.repository
    query = (
        sa.select(table.c.size)
        .join(repository, repository.c.id == table.c.repository_id)
        .where(
            repository.c.uuid == uuid,
            table.c.kind == key.partition("/")[0],
            table.c.hash == _hash_in(key),
            ~table.c.deleting,
        )
    )
    with hub.database.reading() as connection:
        return connection.execute(query).first() is not None


# What a folder has


def backups(folder: Path) -> list[Backup]:
    """Return the backups in a folder, oldest first."""
    found = []
    for path in sorted((folder / "backups").glob("*.json")):
        if _POINT.match(path.name):
            record, place = parse(path.read_bytes(), FORMAT, str(path))
            found.append(decode(Backup, record, place))
    return sorted(found, key=lambda backup: backup.time)


def _prune(folder: Path, keep: int) -> int:
    """Delete old backups, and what only they have; return the number of objects."""
    known = backups(folder)
    for old in known[:-keep]:
        durable.remove(folder / "backups" / f"{old.name}.json")
    kept = known[-keep:]
    named = {backup.rows for backup in kept}
    for path in (folder / "rows").iterdir():
        if path.stem not in named:
            durable.unlink(path)
    needed = {
        f"{uuid}/{key}"
        for backup in kept
        for uuid, key, _ in _objects(folder / "rows" / f"{backup.rows}.gz")
    }
    deleted = 0
    objects = folder / "objects"
    for path in objects.rglob("*"):
        if path.is_file() and path.relative_to(objects).as_posix() not in needed:
            durable.unlink(path)
            deleted += 1
    return deleted


def _chosen(folder: Path, at: str | None) -> Backup:
    known = backups(folder)
    if not known:
        raise NotFound(f"no backup in {folder}", hint=f"dlv hub backup {folder}")
    if at is None:
        return known[-1]
    for backup in known:
        if at in (backup.name, backup.time):
            return backup
    raise NotFound(f"no backup `{at}` in {folder}", did_you_mean=[known[-1].name])


# Restore


def restore(
    hub: Hub,
    folder: Path,
    *,
    at: str | None = None,
    database_only: bool = False,
    progress: Progress = lambda _: None,
) -> Outcome:
    """Fill an empty hub from a backup: first the objects, then the database in one transaction.

    After an interruption, the same command continues.
    """
    backup = _chosen(folder, at)
    path = folder / "rows" / f"{backup.rows}.gz"
    if _hash_of_file(path) != backup.rows:
        raise Damaged(f"{path} is corrupt", hint="restore another backup: --at TIME")
    rows.read_header(path)
    if not (backup.has_objects or database_only):
        raise UsageError(
            "this backup has no objects",
            hint="if they are in the store of the hub: --database-only",
        )
    with hub.database.reading() as connection:
        _check_empty(connection)
    outcome = Outcome(backup)
    if not database_only:
        _restore_objects(hub, folder, path, outcome, progress)
    with hub.database.writing() as connection:
        _check_empty(connection)
        rows.insert_rows(connection, _counted(path, outcome.rows))
        _count_bytes(connection)
        caller = Caller(origin="restore")
        audit.record(connection, caller, "hub.restore", "-", None, backup.time)
    return outcome


def _check_empty(connection: sa.Connection) -> None:
    for table in (tables.account, tables.repository, tables.audit):
        if connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first():
            raise Conflict(
                "the database of the hub is not empty", hint="restore into an empty database"
            )


def _counted(path: Path, count: Counter[str]) -> Iterator[tuple[str, dict[str, object]]]:
    for name, row in rows.read_rows(path):
        count[name] += 1
        yield name, row


def _count_bytes(connection: sa.Connection) -> None:
    """Uploads in progress are not restored, so nothing is reserved."""
    account, repository, table = tables.account, tables.repository, tables.object_
    total = (
        sa.select(sa.func.coalesce(sa.func.sum(table.c.size), 0))
        .join(repository, repository.c.id == table.c.repository_id)
        .where(repository.c.namespace_id == account.c.id)
        .scalar_subquery()
    )
    connection.execute(sa.update(account).values(used=total, reserved=0))


def _restore_objects(
    hub: Hub, folder: Path, path: Path, outcome: Outcome, progress: Progress
) -> None:
    stores: dict[str, Store] = {}
    for name, row in rows.read_rows(path):
        if name == tables.repository.name:
            stores[row["uuid"]] = hub.store_of(row["uuid"])
            stores[row["uuid"]].put(REMOTE_FILE, row["record"].encode())

    def copy(task: tuple[str, str, int]) -> tuple[str, int] | str | None:
        uuid, key, size = task
        store = stores[uuid]
        if store.size(key) == size:
            return None
        source = folder / "objects" / uuid / key
        try:
            data = source.read_bytes()
        except OSError:
            data = b""
        running = hasher()
        running.update(data)
        if running.hexdigest() != _hash_in(key):
            return f"{uuid}/{key}"
        store.put(key, data)
        if store.size(key) != size:
            raise RemoteError(f"{store.url} does not return what was just written", why=key)
        progress(size)
        return key, size

    with ThreadPoolExecutor(THREADS) as pool:
        for done in pool.map(copy, _objects(path)):
            if isinstance(done, str):
                outcome.damaged.append(done)
            elif done is not None:
                outcome.copied += 1
                outcome.copied_bytes += done[1]


def _hash_of_file(path: Path) -> str:
    running = hasher()
    try:
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                running.update(piece)
    except OSError as error:
        raise Damaged(f"{path} cannot be read", why=error.strerror) from error
    return running.hexdigest()
