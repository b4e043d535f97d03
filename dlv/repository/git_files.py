"""Associated files in `files.git`: one bare git repository, through GitPython's object database."""

from __future__ import annotations

import io
import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dlv.disk.durable as durable
from dlv.canonical import hash_bytes
from dlv.dataclass import dataclass
from dlv.disk.paths import open_regular
from dlv.errors import Conflict, Damaged
from dlv.objects.manifest import FileEntry

_CONFIG = (
    "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"
    "\tfsmonitor = false\n\thooksPath = /dev/null\n[gc]\n\tauto = 0\n"
)
_TREE_MODE = 0o040000


@dataclass(frozen=True)
class Source:
    """A file to be stored, as it was when it was added; `hash` None = whatever it is now."""

    path: str
    source: Path
    role: str
    hash: str | None


class FileStore:
    """The files of all versions. `lock` holds `files.lock` while something is written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _create(self) -> None:
        """By hand: `git init` would run templates, and is a process."""
        if (self.path / "HEAD").is_file():
            return
        for folder in ("objects", "objects/info", "objects/pack", "refs", "refs/versions"):
            durable.make_directory(self.path / folder)
        tmp = self.path.parent / "tmp"
        durable.replace(self.path / "config", _CONFIG.encode(), tmp_dir=tmp)
        durable.replace(self.path / "HEAD", b"ref: refs/heads/none\n", tmp_dir=tmp)

    def _objects(self) -> Any:
        import gitdb

        return gitdb.GitDB(str(self.path / "objects"))

    def _clear_dead(self) -> None:
        """Whoever holds the lock knows that what a killed writer left behind is dead."""
        # "obj" is how gitdb calls what it has not finished, "tmp_obj" git itself.
        for pattern in ("objects/obj*", "objects/tmp_obj*", "objects/??/tmp*"):
            for path in self.path.glob(pattern):
                path.unlink(missing_ok=True)
        for path in [*self.path.glob("*.lock"), *self.path.glob("refs/**/*.lock")]:
            path.unlink(missing_ok=True)

    def store(
        self, sources: Sequence[Source], inherited: Sequence[FileEntry], message: str
    ) -> tuple[str, list[FileEntry]]:
        """Write new files, then the tree of these and the `inherited` ones; (tree, its entries).

        The caller holds `files.lock`. Everything the tree needs is durable when this returns.
        """
        self._create()
        self._clear_dead()
        objects = self._objects()
        written: set[str] = set()
        entries = [*inherited, *(self._blob(objects, source, written) for source in sources)]
        entries.sort(key=lambda entry: entry.path)
        for entry in inherited:
            self._settle(objects, entry.git, written)
        return self._finish(objects, entries, message, written), entries

    def store_contents(
        self, entries: Sequence[FileEntry], contents: Mapping[str, bytes], message: str
    ) -> str:
        """Write files that were pulled (`contents`: by git id), and return the tree of all entries.

        The caller holds `files.lock`, has verified the contents, and compares the tree.
        """
        self._create()
        self._clear_dead()
        objects = self._objects()
        written: set[str] = set()
        for data in contents.values():
            self._put(objects, "blob", data, written)
        return self._finish(objects, entries, message, written)

    def _finish(
        self, objects: Any, entries: Sequence[FileEntry], message: str, written: set[str]
    ) -> str:
        """Write the tree, and a commit and a reference that protect it; return the tree."""
        tree = self._tree(objects, entries, written)
        commit = self._commit(objects, tree, message, written)
        self._make_durable(written)
        ref = self.path / "refs" / "versions" / commit
        durable.replace(ref, commit.encode() + b"\n", tmp_dir=self.path.parent / "tmp")
        return tree

    def _blob(self, objects: Any, source: Source, written: set[str]) -> FileEntry:
        with open_regular(source.source) as file:
            status = os.fstat(file.fileno())
            data = file.read()
        digest = hash_bytes(data)
        if source.hash is not None and digest != source.hash:
            raise Conflict(
                f"{source.path} changed after it was staged", hint=f"dlv add {source.path}"
            )
        git_id = self._put(objects, "blob", data, written)
        mode = "100755" if status.st_mode & stat.S_IXUSR else "100644"
        return FileEntry(source.path, source.role, mode, len(data), digest, git_id)

    def _put(self, objects: Any, kind: str, data: bytes, written: set[str]) -> str:
        git_id = _git_hash(kind, data)
        if git_id not in written and not self._intact(objects, git_id):
            path = self._object_path(git_id)
            path.unlink(missing_ok=True)  # damaged: git would keep it
            durable.make_directory(path.parent)
            try:
                import gitdb

                stored = objects.store(
                    gitdb.IStream(kind.encode(), len(data), io.BytesIO(data))
                ).hexsha.decode()
            except OSError as error:
                raise durable.storage_error("write", path, error) from error
            if stored != git_id or not self._intact(objects, git_id):
                raise durable.misread(str(path))
        written.add(git_id)
        return git_id

    def _settle(self, objects: Any, git_id: str, written: set[str]) -> None:
        """A file taken over from an earlier version must still be whole."""
        if git_id not in written and not self._intact(objects, git_id):
            raise Damaged(
                f"the file object {git_id} in {self.path} is corrupt or missing", hint="dlv fsck"
            )
        written.add(git_id)

    def _intact(self, objects: Any, git_id: str) -> bool:
        return _read(objects, git_id) is not None

    def _tree(self, objects: Any, entries: Sequence[FileEntry], written: set[str]) -> str:
        """Nested trees, deepest first; git sorts a folder as if its name ended in a slash."""
        levels: dict[str, list[tuple[str, int, str]]] = {"": []}
        for entry in entries:
            folder, _, name = entry.path.rpartition("/")
            levels.setdefault(folder, []).append((name, int(entry.mode, 8), entry.git))
            while folder:
                folder = folder.rpartition("/")[0]
                levels.setdefault(folder, [])
        for folder in sorted(levels, key=lambda path: (-path.count("/"), path)):
            if not folder:
                continue
            tree = self._put(objects, "tree", _tree_bytes(levels[folder]), written)
            above, _, name = folder.rpartition("/")
            levels[above].append((name, _TREE_MODE, tree))
        return self._put(objects, "tree", _tree_bytes(levels[""]), written)

    def _commit(self, objects: Any, tree: str, message: str, written: set[str]) -> str:
        who = "dlv <dlv> 0 +0000"
        text = f"tree {tree}\nauthor {who}\ncommitter {who}\n\n{message}\n"
        return self._put(objects, "commit", text.encode(), written)

    def _object_path(self, git_id: str) -> Path:
        return self.path / "objects" / git_id[:2] / git_id[2:]

    def _make_durable(self, written: Iterable[str]) -> None:
        """git syncs neither the directories nor, in most ways of writing, the objects."""
        folders = set()
        for git_id in sorted(written):
            path = self._object_path(git_id)
            if path.exists():  # else it is in a pack
                durable.sync_path(path)
                folders.add(path.parent)
        for folder in sorted(folders):
            durable.fsync_directory(folder)
        durable.fsync_directory(self.path / "objects")

    def read(self, entry: FileEntry) -> bytes:
        """The bytes of a file, checked against the manifest."""
        data = _read(self._objects(), entry.git) if self.path.exists() else None
        if data is None or hash_bytes(data) != entry.blake3:
            raise Damaged(
                f"the file {entry.path} is {'missing' if data is None else 'corrupt'}",
                why=f"object {entry.git} in {self.path}",
                hint="dlv fsck",
            )
        return data

    def check(self, entries: Iterable[FileEntry]) -> list[tuple[FileEntry, str]]:
        """Every file that is missing or damaged."""
        faults = []
        objects = self._objects() if self.path.exists() else None
        for entry in entries:
            data = None if objects is None else _read(objects, entry.git)
            if data is None or not self._sound(entry.git):
                faults.append((entry, "missing or corrupt"))
            elif hash_bytes(data) != entry.blake3:
                faults.append((entry, "has another content"))
        return faults

    def _sound(self, git_id: str) -> bool:
        """Whether git would read it too: gitdb does not look at what follows the content."""
        path = self._object_path(git_id)
        stream = zlib.decompressobj()
        try:
            stream.decompress(path.read_bytes())
        except FileNotFoundError:
            return True  # in a pack
        except (OSError, zlib.error):
            return False
        return stream.eof and not stream.unused_data

    def check_tree(self, tree: str | None) -> list[tuple[str, str]]:
        """The tree of a version and those in it, where they are missing or damaged."""
        faults = []
        pending = [] if tree is None else [tree]
        objects = self._objects() if self.path.exists() else None
        while pending:
            git_id = pending.pop()
            found = None if objects is None else _read(objects, git_id, "tree")
            if found is None or not self._sound(git_id):
                faults.append((git_id, "missing or corrupt"))
            else:
                pending += [below for mode, below in _tree_rows(found) if mode == _TREE_MODE]
        return faults

    def _references(self) -> list[Path]:
        """But what a killed git has left: the next writer removes it."""
        found = self.path.glob("refs/versions/*")
        return sorted(path for path in found if path.suffix != ".lock")

    def check_references(self) -> list[tuple[str, str]]:
        """Each keeps a commit, and that its tree, from git's own garbage collection."""
        faults = []
        objects = self._objects() if self.path.exists() else None
        for path in self._references():
            found = None if objects is None else _read(objects, path.name, "commit")
            if path.read_bytes() != path.name.encode() + b"\n":
                faults.append((f"refs/versions/{path.name}", "it names another commit"))
            elif found is None or not self._sound(path.name):
                faults.append((path.name, "its commit is missing or corrupt"))
        return faults

    def unneeded(self, trees: Iterable[str]) -> list[Path]:
        """References and loose objects that no version with one of these trees needs.

        A commit counts by its tree; one that cannot be read might be of any version.
        """
        if not self.path.exists():
            return []
        objects = self._objects()
        wanted = set(trees)
        needed, pending = set(wanted), list(wanted)
        while pending:
            found = _read(objects, pending.pop(), "tree")
            if found is None:
                raise Damaged(f"a tree in {self.path} is missing or corrupt", hint="dlv fsck")
            rows = [row for row in _tree_rows(found) if row[1] not in needed]
            needed.update(below for _, below in rows)
            pending += [below for mode, below in rows if mode == _TREE_MODE]
        dead = []
        for path in self._references():
            found = _read(objects, path.name, "commit")
            if found is None or found.partition(b"\n")[0][5:].decode("latin-1") in wanted:
                needed.add(path.name)
            else:
                dead.append(path)
        loose = sorted(self.path.glob("objects/??/*"))
        return dead + [path for path in loose if path.parent.name + path.name not in needed]


def _read(objects: Any, git_id: str, wanted: str | None = None) -> bytes | None:
    """The content of an object, or None if it is missing or not what its name says."""
    try:
        stream = objects.stream(bytes.fromhex(git_id))
        data = bytes(stream.read())
        kind = stream.type.decode()
    # GitPython answers damage with whatever its zlib, struct and assert run into.
    except Exception:
        return None
    if wanted not in (None, kind):
        return None
    return data if _git_hash(kind, data) == git_id else None


def _git_hash(kind: str, data: bytes) -> str:
    import hashlib

    return hashlib.sha1(
        b"%s %d\0" % (kind.encode(), len(data)) + data, usedforsecurity=False
    ).hexdigest()


def _tree_rows(data: bytes) -> Iterator[tuple[int, str]]:
    """(mode, id) of the entries of a tree whose hash was right."""
    while data:
        head, _, rest = data.partition(b"\0")
        yield int(head.partition(b" ")[0], 8), rest[:20].hex()
        data = rest[20:]


def _tree_bytes(entries: Iterable[tuple[str, int, str]]) -> bytes:
    def key(entry: tuple[str, int, str]) -> bytes:
        return entry[0].encode() + (b"/" if entry[1] == _TREE_MODE else b"")

    return b"".join(
        b"%o %s\0%s" % (mode, name.encode(), bytes.fromhex(git_id))
        for name, mode, git_id in sorted(entries, key=key)
    )
