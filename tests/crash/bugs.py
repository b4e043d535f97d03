"""Faults put into dlv on purpose, in the driver's children only: the harness must see each."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dlv.archiving.reencode as reencode
import dlv.disk.durable as durable
import dlv.disk.user_files as user_files
import dlv.dql.committing as committing
import dlv.metadata.database as database
import dlv.recovery.rebuild as rebuild
import dlv.recovery.superseded as superseded
import dlv.repository.git_files as git_files
import dlv.repository.handle as repositories
import dlv.repository.quarantine as quarantine
import dlv.upkeep.collect as collect
import dlv.weights.writer as weight_writer
from dlv.canonical import hash_bytes
from dlv.errors import Conflict
from dlv.metadata import collected, matrices, usage
from dlv.metadata.database import Database
from dlv.pas.chunks import SUFFIX

BUGS: dict[str, Callable[[], None]] = {}


def bug(function: Callable[[], None]) -> Callable[[], None]:
    BUGS[function.__name__.removeprefix("_")] = function
    return function


def _replace(owner: Any, name: str, other: Any) -> None:
    setattr(owner, name, other)


def _after_change(late: list[Callable[[], Any]]) -> None:
    """Run these when the transaction has committed."""
    change = repositories.Repository.change

    @contextlib.contextmanager
    def changed(*args: Any, **given: Any) -> Iterator[repositories.Change]:
        with change(*args, **given) as it:
            yield it
        for function in late:
            function()

    _replace(repositories.Repository, "change", changed)


@bug
def _row_before_data() -> None:
    """The catalogue names packs that are published after it has committed."""
    publish, late = durable.publish_all, list[Callable[[], Any]]()

    def publish_late(found: Any, root: Any, names: Any, suffix: Any) -> list[Path]:
        late.append(lambda: publish(found, root, names, suffix))
        return [durable.path_of(root, name, suffix) for name in names]

    _replace(weight_writer, "publish_all", publish_late)
    _replace(weight_writer.WeightWriter, "abort", lambda _: None)
    _after_change(late)


@bug
def _manifest_after_commit() -> None:
    write, late = repositories.Repository.write_manifest, list[Callable[[], Any]]()

    def write_late(self: repositories.Repository, manifest: Any) -> str:
        late.append(lambda: write(self, manifest))
        return hash_bytes(manifest.encode())

    _replace(repositories.Repository, "write_manifest", write_late)
    _after_change(late)


@bug
def _fact_after_commit() -> None:
    write, late = repositories.Repository.write_fact, list[Callable[[], Any]]()

    def write_late(self: repositories.Repository, fact: Any) -> str:
        late.append(lambda: write(self, fact))
        return str(fact.hash)

    _replace(repositories.Repository, "write_fact", write_late)
    _after_change(late)


@bug
def _publish_piecemeal() -> None:
    """An object is written under its final name, not beside it."""

    def write_once(tmp_dir: Any, root: Any, data: Any, suffix: str) -> str:
        name = hash_bytes(data)
        path = durable.path_of(root, name, suffix)
        path.parent.mkdir(exist_ok=True)
        with path.open("wb", buffering=0) as file:
            for start in range(0, len(data), 100):
                file.write(data[start : start + 100])
        return name

    _replace(durable, "write_once", write_once)


@bug
def _tmp_not_cleared() -> None:
    _replace(durable, "clear_dead", lambda _: [])


@bug
def _git_leftovers_kept() -> None:
    _replace(git_files.FileStore, "_clear_dead", lambda _: None)


@bug
def _files_after_commit() -> None:
    """The tree is named by a version before its objects are in files.git."""
    put, late = git_files.FileStore._put, list[Callable[[], Any]]()

    def put_late(self: git_files.FileStore, objects: Any, kind: str, data: bytes, done: Any) -> str:
        late.append(lambda: put(self, objects, kind, data, done))
        return git_files._git_hash(kind, data)

    _replace(git_files.FileStore, "_put", put_late)
    _after_change(late)


@bug
def _acknowledged_early() -> None:
    """The id is printed before the transaction has committed."""
    write = repositories.Repository.write_manifest

    def write_and_tell(self: repositories.Repository, manifest: Any) -> str:
        digest = write(self, manifest)
        print(digest, flush=True)
        return digest

    _replace(repositories.Repository, "write_manifest", write_and_tell)


@bug
def _catalogue_swapped_by_copy() -> None:
    """A rebuilt catalogue is written over the old one."""

    def swap(repository: repositories.Repository, fresh: Path) -> None:
        shutil.copyfile(fresh, repository.database_file)
        fresh.unlink()

    _replace(rebuild, "_swap", swap)


@bug
def _archived_before_data() -> None:
    """The index is switched to packs that are published after it has committed."""
    publish, late = durable.publish_all, list[Callable[[], Any]]()

    def publish_late(found: Any, root: Any, names: Any, suffix: Any) -> list[Path]:
        late.append(lambda: publish(found, root, names, suffix))
        return [durable.path_of(root, name, suffix) for name in names]

    _replace(weight_writer, "publish_all", publish_late)
    _replace(reencode.Packing, "abort", lambda _: None)
    _replace(reencode, "verify", lambda *_: None)
    _after_change(late)


@bug
def _old_packs_first() -> None:
    """What new packs make superfluous is removed before the index is switched to them."""
    switch = reencode.switch

    def remove_and_switch(repository: Any, store: Any, made: Any, *rest: Any) -> None:
        new = {row.matrix for pack in made for row in pack.rows.encodings}
        kept = {pack.hash for pack in made}
        for name, _ in matrices.packs(repository.database):
            if name not in kept and new.issuperset(usage.used_in(repository.database, name)[0]):
                durable.remove(durable.path_of(repository.packs, name, SUFFIX))
        switch(repository, store, made, *rest)

    _replace(reencode, "switch", remove_and_switch)


@bug
def _error_swallowed() -> None:
    """A refused fsync is taken for success, and the rest goes on."""

    def call(point: str, doing: str, path: Any, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except OSError:
            if function in (os.fsync, os.write):
                return len(args[-1]) if function is os.write else None
            raise

    _replace(durable, "_call", call)


@bug
def _error_untyped() -> None:
    """What the system says reaches the user as it is."""

    def call(point: str, doing: str, path: Any, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except OSError as error:
            raise RuntimeError(str(error)) from None

    _replace(durable, "_call", call)
    sys.tracebacklimit = 0


@bug
def _fsync_retried() -> None:
    """An fsync that was refused is tried again on the same descriptor, and believed."""

    def fsync_file(descriptor: int, path: Any) -> None:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
            return
        os.fsync(descriptor)

    _replace(durable, "fsync_file", fsync_file)


@bug
def _not_read_back() -> None:
    """What was written is compared with what is still in memory, and so with itself."""
    _replace(durable.TemporaryFile, "_read_back", lambda _: None)


@bug
def _lock_by_file() -> None:
    """A lock is a file that its owner removes, if it lives so long."""

    @contextlib.contextmanager
    def locked(self: repositories.Repository, name: str, kind: int) -> Iterator[None]:
        path = self.path / f"{name}.pid"
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            raise Conflict("another dlv process is using the repository") from None
        try:
            yield
        finally:
            path.unlink()

    _replace(repositories.Repository, "_locked", locked)


@bug
def _winners_forgotten() -> None:
    """Trials that are versions already become versions again."""
    _replace(committing, "_there", lambda *_: {})


@bug
def _packs_before_rows() -> None:
    """gc moves packs and manifests out of the way before the catalogue lets go of them."""
    forget = collect._forget

    def move_and_forget(repository: Any, request: Any, roots: Any, marked: Any) -> None:
        paths = [path for kind in ("packs", "manifests") for path, _ in marked.files.get(kind, [])]
        quarantine.move_in(repository, quarantine.places(repository)[-1], paths)
        forget(repository, request, roots, marked)

    _replace(collect, "_forget", move_and_forget)


@bug
def _bases_not_marked() -> None:
    """gc takes the base of a delta that stays."""
    step = " UNION SELECT owner, base_id FROM need JOIN delta_base USING (matrix_id)"
    assert step in usage._CHUNKS
    _replace(usage, "_CHUNKS", usage._CHUNKS.replace(step, ""))
    needed = collected.matrices_needed

    def direct(db: Any, snapshots: Any, hashes: Any) -> set[str]:
        keys = list(snapshots)
        found = needed(db, keys, hashes)
        held = db.rows(
            "SELECT hash FROM matrix JOIN snapshot_matrix ON matrix_id = matrix.id"
            f" WHERE snapshot_id IN ({','.join(map(str, keys))})"
        )
        return found & ({row[0] for row in held} | set(hashes))

    _replace(collected, "matrices_needed", direct)


@bug
def _gc_without_lock() -> None:
    """gc marks and moves while others write."""

    @contextlib.contextmanager
    def removing(repository: Any, most: float | None = None) -> Iterator[None]:
        repository._alone.add("gc.lock")
        yield
        repository._alone.discard("gc.lock")

    _replace(superseded, "removing", removing)
    _replace(repositories.Repository, "alone", lambda *_: contextlib.nullcontext())


@bug
def _no_recheck() -> None:
    """A commit does not look again at what it found stored already."""
    _replace(weight_writer.WeightWriter, "_recheck", lambda _: None)


# What only a power cut shows


@bug
def _files_not_synced() -> None:
    _replace(durable, "fsync_file", lambda *_: None)
    _replace(durable, "sync_path", lambda *_: None)


@bug
def _folders_not_synced() -> None:
    """Objects are on the disk, and their names may not be."""
    _replace(durable, "fsync_directory", lambda *_: None)


@bug
def _new_folders_not_synced() -> None:
    """The name of a folder that is made is left to itself; what is in it is synced."""

    def settle(directories: Any) -> None:
        for directory in directories:
            with contextlib.suppress(FileExistsError):
                directory.mkdir()

    _replace(durable, "_settle", settle)


@bug
def _git_not_synced() -> None:
    _replace(git_files.FileStore, "_make_durable", lambda *_: None)


@bug
def _catalogue_not_synced() -> None:
    """SQLite may lose the last transactions."""
    execute = Database.execute

    def relaxed(self: Database, sql: str, *rest: Any) -> Any:
        return execute(self, sql.replace("synchronous = FULL", "synchronous = NORMAL"), *rest)

    _replace(Database, "execute", relaxed)


@bug
def _closed_when_refused() -> None:
    """A connection that could not be opened whole is closed, and SQLite deletes what it left."""
    _replace(database, "leave_connection", sqlite3.Connection.close)


@bug
def _put_one_by_one() -> None:
    """What a user's files were is not kept till the catalogue has committed."""
    _replace(user_files.Batch, "_back", lambda _: [])


@bug
def _restored_without_mark() -> None:
    """Nothing says that a folder of quarantine is on its way back."""
    _replace(quarantine, "mark", lambda _, place, found: quarantine.Restoring(place.id, found))
    _replace(quarantine, "unmark", lambda _: None)
