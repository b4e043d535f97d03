"""The working folder against a version: is a tracked file there, and is it what was committed?"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection
from pathlib import Path

import dlv.disk.paths as paths
import dlv.metadata.facts as facts
from dlv.adapters.checkpoint import Checkpoint
from dlv.canonical import hash_of, matrix_hash
from dlv.dataclass import dataclass
from dlv.errors import DlvError
from dlv.metadata.database import Database
from dlv.objects.manifest import Container, Manifest, Snapshot

# Names under which weights that dlv reads are kept. Other names mean too much else.
WEIGHT_SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".npz", ".npy")
SAME, CHANGED, MISSING, IN_THE_WAY = "same", "changed", "missing", "in the way"
_BESIDE = ("onnx",)  # formats whose weights may lie in files of their own
_CONTENT = "content:"  # before the mark of a weight file that does not come back byte for byte


@dataclass(frozen=True)
class Tracked:
    """A file of a version. `mark` is its hash, or that of its tensors where only they count."""

    path: str
    role: str
    format: str
    bytes: int
    mark: str
    step: int | None = None

    @property
    def exact(self) -> bool:
        return not self.mark.startswith(_CONTENT)


def tracked(manifest: Manifest, without: Collection[int] = ()) -> dict[str, Tracked]:
    """Path -> file, weights included; `without` these snapshots (by position)."""
    found = {
        entry.path: Tracked(entry.path, entry.role, "", entry.bytes, entry.blake3)
        for entry in manifest.files
    }
    for index, snapshot in enumerate(manifest.snapshots):
        if index not in without:
            for container in snapshot.containers:
                found[container.path] = weight_file(snapshot, container)
    return found


def weight_file(snapshot: Snapshot, container: Container) -> Tracked:
    mark = container.blake3 or content_mark(snapshot, container)
    return Tracked(
        container.path, "weights", container.format, container.bytes, mark, snapshot.step
    )


def content_mark(snapshot: Snapshot, container: Container) -> str:
    """What tells weight files of these tensors from others, whoever wrote them."""
    return _content_mark([snapshot.hashes[index] or "" for index in container.tensors])


def _content_mark(hashes: list[str]) -> str:
    """Of the tensors alone: names and order may differ from writer to writer."""
    return _CONTENT + hash_of(sorted(hashes))


class Working:
    """Looks at files; what was hashed once is not hashed again while size and time stay."""

    def __init__(
        self, root: Path, db: Database | None, opened: Callable[[str, Path], Checkpoint]
    ) -> None:
        self.root = root
        self._db = db  # None: another folder than the project's, of which nothing is known
        self._opened = opened
        self._seen = facts.recorded_looks(db) if db is not None else {}
        self._fresh: list[tuple[str, int, int, str]] = []

    def has_seen(self, path: str) -> bool:
        """Whether the file is, by size and time, one that was committed or looked at before."""
        try:
            status = os.stat(self.root / path)
        except OSError:
            return False
        known = self._seen.get(path)
        return known is not None and known[:2] == (status.st_size, status.st_mtime_ns)

    def compare(self, item: Tracked) -> str:
        """SAME, CHANGED, MISSING, or IN_THE_WAY for what is no file."""
        try:
            status = os.stat(self.root / item.path)
        except (FileNotFoundError, NotADirectoryError):
            # A link to nowhere is still in the way of a file.
            return IN_THE_WAY if os.path.islink(self.root / item.path) else MISSING
        if not stat.S_ISREG(status.st_mode):
            return IN_THE_WAY
        if item.exact and status.st_size != item.bytes:
            return CHANGED
        return SAME if self.mark(item, status) == item.mark else CHANGED

    def mark(self, item: Tracked, status: os.stat_result) -> str:
        """What the file is now, comparable with `item.mark`."""
        known = self._seen.get(item.path)
        path = self.root / item.path
        look = status.st_size, status.st_mtime_ns
        if not item.exact and item.format in _BESIDE:
            look = self._beside(item, path, look)
        current = known is not None and known[:2] == look
        if known is not None and current and known[2].startswith(_CONTENT) != item.exact:
            return known[2]
        if item.exact:
            mark, status = paths.hash_file(path)
            look = status.st_size, status.st_mtime_ns
        else:
            mark = self._content(item, path)
        self._fresh.append((item.path, *look, mark))
        return mark

    def _beside(self, item: Tracked, path: Path, look: tuple[int, int]) -> tuple[int, int]:
        """Size and time of a model with those of the files that its weights lie in."""
        try:
            opened = self._opened(item.format, path)
            opened.close()
            statuses = [os.stat(each) for each in opened.beside]
        except (DlvError, OSError):
            return -1, 0  # like no file: it is looked at each time
        if not statuses:
            return look
        times = [look[1], *(each.st_mtime_ns for each in statuses)]
        # Any change of one of them is to give another number, within what a database holds.
        return look[0] + sum(each.st_size for each in statuses), int(hash_of(times)[:15], 16)

    def _content(self, item: Tracked, path: Path) -> str:
        try:
            opened = self._opened(item.format, path)
        except DlvError:
            return _CONTENT  # no weights at all
        try:
            found = [(t.role, matrix_hash(t.dtype, t.shape, t.read())) for t in opened.tensors]
        except DlvError:
            return _CONTENT
        finally:
            opened.close()
        # It may have been added without the optimizer's state.
        weights = _content_mark([digest for role, digest in found if role != "optimizer"])
        whole = _content_mark([digest for _, digest in found])
        return weights if weights == item.mark else whole

    def remember(self) -> None:
        """Keep what was found out for the next time, if the repository can be written."""
        if self._db is None or not self._fresh:
            return
        try:
            with self._db.atomic():
                facts.record_looks(self._db, self._fresh)
        except DlvError:
            return
        self._fresh = []


def tell(root: Path, item: Tracked) -> tuple[str, int, int, str] | None:
    """The row for `staged.see` after `item` was written."""
    try:
        status = os.stat(root / item.path)
    except OSError:
        return None
    return item.path, status.st_size, status.st_mtime_ns, item.mark
