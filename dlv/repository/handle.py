"""A repository: its format, where its parts lie, its locks, catalogue, manifests and facts."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import dlv.disk.durable as durable
import dlv.disk.locks as locks
from dlv.canonical import VERSION, WRITER, dumps, hash_bytes, read_json
from dlv.disk.locks import network_disk
from dlv.errors import (
    Conflict,
    Damaged,
    DlvError,
    NewerFormat,
    NotARepository,
    StorageError,
    UnsafeInput,
    UsageError,
)
from dlv.metadata import facts
from dlv.metadata.database import Database, is_outdated
from dlv.metadata.facts import StagedFile
from dlv.repository.change_marks import Marks

if TYPE_CHECKING:
    from dlv.kinds import Promised
    from dlv.objects.fact import Fact
    from dlv.objects.manifest import Manifest

FORMAT = 1
FOLDER, NAME = ".dlv", "format.json"
_MEND = "dlv fsck --repair"
_WRITER = re.compile(r"dlv ([0-9]+(?:\.[0-9]+)*)[0-9A-Za-z.+-]*")
_ONE_BIT_OFF = {FORMAT ^ 1 << bit for bit in range(4)}


def repository_above(start: Path) -> Path:
    """The `.dlv` of the repository around `start`, whatever has become of its format."""
    here = start.resolve()
    for folder in (here, *here.parents):
        if _is_one(folder / FOLDER):
            return folder / FOLDER
    raise NotARepository(
        f"not a dlv repository (or any parent): {os.path.abspath(start)}",
        hint="to create one: dlv init",
    )


def repository_at(dlv_dir: str) -> Path:
    """The one that DLV_DIR names."""
    # Files are named from the real folder, but `.dlv` itself may be a link.
    path = Path(dlv_dir).absolute()
    path = path.parent.resolve() / path.name
    if not _is_one(path):
        raise NotARepository(
            f"DLV_DIR names no repository: {dlv_dir}", hint="unset DLV_DIR, or dlv init"
        )
    return path


def _is_one(path: Path) -> bool:
    """Also where the file that says so is lost."""
    if (path / NAME).is_file():
        return True
    return (path / "packs").is_dir() or (path / "manifests").is_dir()


def check_format(path: Path) -> None:
    """Whether this dlv can read the repository in `path`: errors say what else it is."""
    file = path / NAME
    if not file.is_file():
        how = "is no longer a file" if file.exists() else "is lost"
        raise Damaged(f"{file} {how}", why=f"it tells the format of {path}", hint=_MEND)
    try:
        data = read_json(file.read_bytes(), str(file))
    except OSError as error:
        raise durable.storage_error("read", file, error) from error
    except DlvError as error:
        raise Damaged(
            f"{file} cannot be read", why=error.why or error.message, hint=_MEND
        ) from None
    number = data.get("format") if isinstance(data, dict) else None
    if type(number) is not int or number < 1:
        raise Damaged(f"{file} is invalid", hint=_MEND)
    if number != FORMAT:
        raise NewerFormat(
            f"{path} has the repository format {number}",
            why=f"this dlv knows format {FORMAT}; it was made by {data.get('writer')}",
            hint="pip install --upgrade dlv",
        )


def format_fault(path: Path) -> str | None:
    """What is wrong with the file, where another may be written: never where it tells of a newer
    format, but for a number that is one bit away from that of the dlv which wrote it."""
    try:
        check_format(path)
    except NewerFormat as error:
        if not _flipped(path):
            raise
        return f"{error.message}, which the dlv that wrote it did not know: a bit is wrong"
    except (Damaged, StorageError) as error:
        return error.why or error.message
    data = (path / NAME).read_bytes()
    writer = read_json(data)["writer"] if b'"writer"' in data else ""
    plain = isinstance(writer, str) and _WRITER.fullmatch(writer)
    right = plain and data == dumps({"format": FORMAT, "writer": writer})
    return None if right else "it is not as dlv writes it"


def _flipped(path: Path) -> bool:
    data = (path / NAME).read_bytes()
    found = read_json(data)
    number, writer = found["format"], str(found.get("writer"))
    known = _WRITER.fullmatch(writer)
    if known is None or number not in _ONE_BIT_OFF:
        return False
    if data != dumps({"format": number, "writer": writer}):
        return False
    return _parts(known[1]) <= _parts(VERSION)


def _parts(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", version)]


def write_format(path: Path) -> None:
    data = dumps({"format": FORMAT, "writer": WRITER})
    durable.replace(path / NAME, data, tmp_dir=path / "tmp")


GC_LOCK = "gc.lock"
NO_SETTINGS = "# dlv config --repo KEY VALUE writes here\n"
HEAD, NEXT = "HEAD", "next"
_STATE_KEYS = (HEAD, NEXT)
_FOLDERS = ("packs", "manifests", "facts", "tmp", "cache")


class _CancelledError(Exception):
    pass


class Change:
    """One change of state inside its transaction: facts are on disk before it commits."""

    def __init__(self, repository: Repository, author: str) -> None:
        self.repository = repository
        self.db = repository.database
        self.author = author
        self.facts: list[Fact] = []
        self.summary = ""
        self.undoes: int | None = None
        self.consumed: Sequence[StagedFile] = ()  # staged files that are part of it now
        self.cancelled = False

    def record(self, kind: str, subject: str | None, data: dict[str, object]) -> Fact:
        import dlv.objects.fact as fact_format

        found = facts.newest(self.db, kind, subject)
        fact = fact_format.Fact(
            kind=kind,
            subject=subject,
            author=self.author,
            created=facts.moment_after(self.db, kind, subject),
            data=data,
            replaces=None if found is None else found[0],
        )
        fact_format.decode_fact(fact.encode())
        facts.record(self.db, fact)
        self.facts.append(fact)
        return fact

    def adopt(self, fact: Fact) -> None:
        """Record a fact of another repository, unless it is recorded already."""
        if facts.fact(self.db, fact.hash) is None:
            facts.record(self.db, fact)
            self.facts.append(fact)

    def cancel(self) -> None:
        """Nothing is to change after all: at the end of the block all is as it was."""
        self.cancelled = True

    def set_head(self, version_id: str | None) -> None:
        facts.set_state(self.db, HEAD, version_id)

    def set_next(self, name: str | None, kind: str = "commit") -> None:
        """Under which name, and as what kind of child of HEAD, the next commit goes."""
        value = None if name is None else dumps({"name": name, "kind": kind}).decode()
        facts.set_state(self.db, NEXT, value)


class Repository:
    """Opened once per command. `root` is the project's folder, `path` its `.dlv`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path.parent
        self.packs = path / "packs"
        self.manifests = path / "manifests"
        self.facts = path / "facts"
        self.marks = Marks(self.manifests, self.facts)
        self.tmp, self.cache = path / "tmp", path / "cache"
        self.files_git = path / "files.git"
        self.config_file = path / "config.toml"
        self.database_file = path / "dlv.db"
        self.trials_path, self.trials_folder = path / "trials.db", path / "trials"
        # Whether the user vouches that no other host writes; asked only on a network disk.
        self.single_host: Callable[[], bool] = lambda: False
        self.patience = locks.Patience()  # with others that are at work on it
        self.frozen = False  # a mirror of a remote, in which only a pull changes anything
        # Finds what versions need and only a remote has; set from above, like those before.
        self.find_promised: Callable[[Repository], Promised | None] = lambda _: None
        self._decoded: dict[str, Manifest] = {}
        self._opened: tuple[int, int] | None = None  # which file the catalogue was when opened
        self._outdated: list[Database] = []
        self._alone: set[str] = set()  # locks held exclusively

    @classmethod
    def find(cls, start: Path, dlv_dir: str | None = None, *, mending: bool = False) -> Repository:
        """The repository around `start`, or the one that DLV_DIR names; for `mending`, also one
        whose format.json is broken."""
        path = repository_at(dlv_dir) if dlv_dir else repository_above(start)
        if mending:
            format_fault(path)
        else:
            check_format(path)
        return cls(path)

    @classmethod
    def init(cls, directory: Path, *, shared: str | None = None) -> tuple[Repository, bool]:
        """Make a repository, or complete one that is there: (it, whether it is new). `shared` with
        a `group` or with `all`: so are all files then, and those to come."""
        found, new = cls._made(directory)
        if shared is not None:
            durable.share_rights(found.path, others=shared == "all")
        return found, new

    @classmethod
    def _made(cls, directory: Path) -> tuple[Repository, bool]:
        path = directory.resolve() / FOLDER
        for place in (path, *path.parents):
            if place.exists():
                if not place.is_dir():
                    raise Conflict(
                        f"{place} is a file", why="the repository is created there", hint="move it"
                    )
                break
        if (path / NAME).exists():
            check_format(path)
            repository = cls(path)
            if not repository.database_file.exists():
                raise Damaged(
                    f"the database {repository.database_file} is missing",
                    hint="to recreate it: dlv fsck --rebuild",
                )
            return repository, False
        repository = cls(path)
        new = not path.exists()
        durable.make_directory(path)
        if new:
            durable.limit_rights(path)
        for name in _FOLDERS:
            durable.make_directory(path / name)
        for name in (GC_LOCK, "files.lock"):
            (path / name).touch()
        # The user's git must not see it, and `git clean` must ask before it takes it.
        durable.replace(path / ".gitignore", b"*\n", tmp_dir=repository.tmp)
        if not repository.config_file.exists():
            durable.replace(repository.config_file, NO_SETTINGS.encode(), tmp_dir=repository.tmp)
        # An `init` that was interrupted may have left an empty catalogue, and nothing else.
        filled = any(repository.manifests.glob("*/*.json"))
        if filled and not repository.database_file.exists():
            raise Damaged(
                f"the database {repository.database_file} is missing",
                hint="to recreate it: dlv fsck --rebuild",
            )
        wal = not network_disk(path)
        Database(repository.database_file, wal=wal, create=not filled).close()
        durable.inherit_rights(repository.database_file)
        # Last: only now is it a repository.
        write_format(path)
        return repository, new

    @cached_property
    def database(self) -> Database:
        if not self.database_file.exists():
            raise Damaged(
                f"the database {self.database_file} is missing",
                why="manifests and packs are still there",
                hint="dlv fsck --rebuild",
            )
        # Before it is opened: if it is replaced in between, that is noticed once too often.
        self._opened = _identity(self.database_file)
        return Database(
            self.database_file,
            wal=not network_disk(self.path),
            create=False,
            patience=self.patience,
        )

    @cached_property
    def promised(self) -> Promised | None:
        """What versions need and only a remote has."""
        if not facts.subjects(self.database, "promise"):
            return None
        return self.find_promised(self)

    def look_for_promised(self) -> None:
        """Take new promises into account."""
        self.__dict__.pop("promised", None)

    @property
    def outdated(self) -> bool:
        """Whether an older dlv made the catalogue: it is made again before it is opened."""
        return is_outdated(self.database_file)

    def close(self) -> None:
        if "database" in self.__dict__:
            self._outdated.append(self.__dict__.pop("database"))
        while self._outdated:
            self._outdated.pop().close()

    def __enter__(self) -> Repository:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Locks

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold off gc, and sweep away what killed writers left in tmp."""
        if GC_LOCK in self._alone:  # by gc itself
            yield
            return
        if network_disk(self.path) and not self.single_host():
            raise UnsafeInput(
                f"{self.path} is on a network file system",
                why="its locks do not reach other hosts: two that write at once would lose data",
                hint="if only this host writes there: dlv config --user core.singlehost true",
            )
        with self._locked(GC_LOCK, fcntl.LOCK_SH):
            self.check_current()
            durable.clear_dead(self.tmp)
            yield

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Let no pack go meanwhile; where the lock cannot be had, nobody could remove one."""
        try:
            descriptor = os.open(self.path / GC_LOCK, os.O_RDONLY)
        except OSError:
            yield
            return
        try:
            with self._taken(descriptor, GC_LOCK, fcntl.LOCK_SH):
                yield
        finally:
            os.close(descriptor)

    def check_current(self) -> None:
        """A rebuild puts another file in the catalogue's place: what went to the old one is lost.
        The old one is closed later, since a transaction may be open in it."""
        if "database" in self.__dict__ and _identity(self.database_file) != self._opened:
            self._outdated.append(self.__dict__.pop("database"))
            raise Conflict(
                "the database was rebuilt by another dlv process",
                why=f"{self.database_file} is another file now",
                hint="repeat the command",
            )

    @contextmanager
    def _locked(self, name: str, kind: int) -> Iterator[None]:
        try:
            try:
                descriptor = os.open(self.path / name, os.O_RDWR | os.O_CREAT, 0o666)
                durable.inherit_rights(self.path / name)
            except PermissionError:  # of another user; to lock it, it need not be written
                descriptor = os.open(self.path / name, os.O_RDONLY)
        except OSError as error:
            raise durable.storage_error("lock", self.path / name, error) from error
        try:
            with self._taken(descriptor, name, kind):
                self._alone |= {name} if kind == fcntl.LOCK_EX else set()
                yield
        finally:
            self._alone.discard(name)
            os.close(descriptor)

    @contextmanager
    def _taken(self, descriptor: int, name: str, kind: int) -> Iterator[None]:
        wait = self.patience.for_lock(self.path / name)
        if name == GC_LOCK:
            with locks.fairly(descriptor, kind, wait, self.path / locks.GATE):
                yield
        else:
            locks.take(descriptor, kind, wait)
            yield

    def alone(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Hold an exclusive lock until the block ends or the process dies."""
        return self._locked(name, fcntl.LOCK_EX)

    @contextmanager
    def change(self, verb: str, author: str = "", *, rehearsal: bool = False) -> Iterator[Change]:
        """A transaction that ends with an entry in the operation log; give it a `summary`.
        A rehearsal leaves no files; the caller must end it inside a transaction that fails."""
        db = self.database
        if self.frozen and verb not in ("pull", "fetch"):
            raise UsageError(
                "versions of a remote cannot be changed from here", hint="dlv pull, then repeat it"
            )
        with contextlib.suppress(_CancelledError), self.writing(), db.atomic():
            change = Change(self, author)
            before = self._state()
            yield change
            if change.cancelled:
                raise _CancelledError
            # Not before the block has ended well: a rebuild believes every fact that it finds.
            if not rehearsal:
                self.write_facts(change.facts)
            made, consumed = (
                [fact.hash for fact in change.facts],
                facts.staged_to_json(change.consumed),
            )
            facts.log_operation(
                db, verb, change.summary, made, before, self._state(), change.undoes, consumed
            )

    def _state(self) -> dict[str, str | None]:
        return {key: facts.state(self.database, key) for key in _STATE_KEYS}

    # HEAD

    @property
    def head(self) -> str | None:
        """Id of the version that the working directory comes from."""
        return facts.state(self.database, HEAD)

    @property
    def next(self) -> tuple[str, str] | None:
        """(name, parent kind) that `copy` has set for the next commit."""
        value = facts.state(self.database, NEXT)
        if value is None:
            return None
        data = json.loads(value)
        return str(data["name"]), str(data["kind"])

    # Manifests and facts

    def manifest(self, version_id: str) -> Manifest:
        """The manifest of that id, its hash checked at every first reading."""
        if version_id not in self._decoded:
            import dlv.objects.manifest as manifest_format

            data = read_object(self.manifests, version_id, "manifest")
            self._decoded[version_id] = manifest_format.decode(data, f"manifest {version_id[:12]}")
        return self._decoded[version_id]

    def write_manifest(self, manifest: Manifest) -> str:
        import dlv.objects.manifest as manifest_format

        data = manifest.encode()
        if manifest_format.decode(data) != manifest:
            raise Damaged("the manifest does not read back as it was meant", hint="report this bug")
        self.marks.begin_version(hash_bytes(data))
        return durable.write_once(self.tmp, self.manifests, data, suffix=".json")

    def write_facts(self, facts: Sequence[Fact]) -> None:
        """Within the transaction that they are part of."""
        self.marks.begin(facts)
        for fact in facts:
            self.write_fact(fact)
        self.database.afterwards(lambda: self.marks.end(facts))

    def write_fact(self, fact: Fact) -> str:
        import dlv.objects.fact as fact_format

        data = fact.encode()
        fact_format.decode_fact(data)
        return durable.write_once(self.tmp, self.facts, data, suffix=".json")


def read_object(root: Path, digest: str, noun: str) -> bytes:
    """The bytes of a hashed JSON file, or Damaged if they are gone or not those."""
    path = durable.path_of(root, digest, ".json")
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise Damaged(
            f"{noun} {digest[:12]} is missing", why="no such file", hint="dlv fsck"
        ) from error
    except OSError as error:
        raise durable.storage_error("read", path, error) from error
    if hash_bytes(data) != digest:
        raise Damaged(
            f"{noun} {digest[:12]} is corrupt",
            why="content does not match its hash",
            hint="dlv fsck",
        )
    return data


def stored(root: Path, suffix: str) -> Iterator[tuple[str, Path]]:
    """(hash in its name, path) of every object below `root`, in order; no link to nothing."""
    for path in sorted(filter(Path.exists, root.glob(f"??/*{suffix}"))):
        yield path.name.removesuffix(suffix), path


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from one that has taken its name."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
