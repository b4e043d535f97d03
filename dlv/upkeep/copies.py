"""The very same object from elsewhere: quarantine first, then another repository.

A copy counts for nothing until its hash was computed; the bad object is moved to quarantine before
the good one takes its name, and nothing is ever deleted.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import field
from pathlib import Path

import dlv.disk.durable as durable
import dlv.repository.quarantine as quarantine
from dlv.canonical import hasher
from dlv.dataclass import dataclass
from dlv.disk.paths import open_regular
from dlv.errors import DlvError
from dlv.objects.manifest import Manifest
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository
from dlv.repository.quarantine import Place

PIECE = 1 << 20
MOST = 1 << 31  # bytes of a file in files.git


@dataclass
class Copies:
    """Where to look, and what was found there: (object, where it came from)."""

    repository: Repository
    other: Path | None  # the `.dlv` of another repository
    found: list[tuple[str, str]] = field(default_factory=list)
    _place: Place | None = None

    def candidates(self, origin: str) -> Iterator[tuple[str, Path]]:
        for path in quarantine.find(self.repository, origin):
            yield "quarantine", path
        if self.other is not None and (self.other / origin).is_file():
            yield str(self.other.parent), self.other / origin

    def set_aside(self, origins: Iterable[str]) -> None:
        """Out of the way, but not lost: a list of its own for each call."""
        paths = [self.repository.path / origin for origin in origins]
        there = [path for path in paths if path.exists()]
        if there:
            place = quarantine.begin(self.repository, there, "repair")
            quarantine.move_in(self.repository, place, there)

    def hashed(self, root: Path, digest: str, suffix: str) -> bool:
        """A pack, manifest or fact, which is called like its hash."""
        target = durable.path_of(root, digest, suffix)
        origin = quarantine.origin_of(self.repository, target)
        for where, path in self.candidates(origin):
            if _hash(path) != digest:
                continue
            with durable.TemporaryFile(self.repository.tmp, suffix=suffix) as file:
                with open_regular(path) as source:
                    while piece := source.read(PIECE):
                        file.write(piece)
                if file.hexdigest() != digest:
                    continue
                self.set_aside([origin])
                durable.publish(file, root, digest, suffix)
            self.found.append((digest, where))
            return True
        return False

    def git(self, git_id: str) -> bool:
        """A loose object of files.git, as its content's hash says."""
        origin = f"files.git/objects/{git_id[:2]}/{git_id[2:]}"
        for where, path in self.candidates(origin):
            with open_regular(path) as source:
                data = source.read(MOST)
            if _git_hash(data) != git_id:
                continue
            self.set_aside([origin])
            target = self.repository.path / origin
            durable.make_directory(target.parent)
            durable.replace(target, data, tmp_dir=self.repository.tmp)
            self.found.append((git_id, where))
            return True
        return False

    def reference(self, commit: str) -> bool:
        """It holds nothing but the name of its commit."""
        origin = f"files.git/refs/versions/{commit}"
        self.set_aside([origin])
        durable.replace(
            self.repository.path / origin, commit.encode() + b"\n", tmp_dir=self.repository.tmp
        )
        self.found.append((origin, "its name"))
        return True


def _hash(path: Path) -> str | None:
    running = hasher()
    try:
        with open_regular(path) as file:
            while piece := file.read(PIECE):
                running.update(piece)
    except (OSError, DlvError):
        return None
    return running.hexdigest()


def _git_hash(data: bytes) -> str | None:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, MOST)
    except zlib.error:
        return None
    if not stream.eof or stream.unused_data:
        return None
    return hashlib.sha1(plain, usedforsecurity=False).hexdigest()


def mend_files(copies: Copies, manifests: Iterable[Manifest]) -> None:
    """Objects, trees and references of files.git; a tree that is back may lead to others."""
    store = FileStore(copies.repository.files_git)
    held = list(manifests)
    tried: set[str] = set()
    while True:
        wanted: dict[str, None] = {}
        references: dict[str, None] = {}
        for manifest in held:
            wanted |= {entry.git: None for entry, _ in store.check(manifest.files)}
            wanted |= {name: None for name, _ in store.check_tree(manifest.tree)}
        for name, _ in store.check_references():
            (references if "/" in name else wanted)[name.rpartition("/")[2]] = None
        fresh = [name for name in wanted if name not in tried]
        again = [name for name in references if f"ref {name}" not in tried]
        tried |= {*fresh, *(f"ref {name}" for name in again)}
        mended = [copies.git(name) for name in fresh] + [copies.reference(name) for name in again]
        if not any(mended):
            return
