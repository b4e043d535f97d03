"""Which objects belong to a change that has not committed: an empty file tells, till it has.

The catalogue may lose rows (a bit of its log is flipped, and SQLite ends the log there). Then
facts lie on the disk that it does not know, and so do those of a change that was killed just
before its commit. Only the latter have such a mark: it is on the disk for sure before the fact is,
and goes right after the commit. A fact without a mark that the catalogue does not know is lost.

A version is marked beside its manifest, whose folder is synced long before its number is written;
so a commit needs no further sync. Other facts are marked in a folder of their own, synced once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Set
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import dlv.disk.durable as durable
from dlv.canonical import hash_bytes
from dlv.errors import DlvError, StorageError

if TYPE_CHECKING:
    from dlv.objects.fact import Fact

SUFFIX = ".open"
FOLDER = "open"  # below `facts`


class Marks:
    """Those of a repository, whose manifests and facts lie there."""

    def __init__(self, manifests: Path, facts: Path) -> None:
        self.manifests, self.facts = manifests, facts

    def begin_version(self, version_id: str) -> None:
        """Before its manifest is there, whose own sync makes the name durable."""
        if not durable.path_of(self.manifests, version_id, ".json").exists():
            path = durable.path_of(self.manifests, version_id, SUFFIX)
            durable.make_directory(path.parent)
            durable.touch(path)

    def begin(self, facts: Iterable[Fact]) -> None:
        """Durably, before any of them is there; a number is marked with its version."""
        names = [fact.hash for fact in facts if fact.kind != "number"]
        if names:
            folder = durable.make_directory(self.facts / FOLDER)
            for name in names:
                durable.touch(folder / name)
            durable.fsync_directory(folder)

    def end(self, facts: Iterable[Fact]) -> None:
        """They have committed. A mark that comes back after a power cut does no harm."""
        for fact in facts:
            path = self.facts / FOLDER / fact.hash
            if fact.kind == "number" and fact.subject is not None:
                path = durable.path_of(self.manifests, fact.subject, SUFFIX)
            with contextlib.suppress(OSError):
                path.unlink()

    def read(self) -> Standing:
        facts = frozenset(_names(self.facts, ".json"))  # first: a mark goes after its fact came
        return Standing(
            self, facts, frozenset(self._open()), frozenset(_names(self.manifests, SUFFIX))
        )

    def sweep(self, known: Set[str]) -> None:
        """Remove marks of committed or deleted objects; the caller
        holds the exclusive lock."""
        found = [(name, self.facts / FOLDER / name, self.facts) for name in self._open()]
        for name in _names(self.manifests, SUFFIX):
            path = durable.path_of(self.manifests, name, SUFFIX)
            found.append((name, path, self.manifests))
        for name, path, root in found:
            if name in known or not durable.path_of(root, name, ".json").exists():
                with contextlib.suppress(OSError):
                    path.unlink()

    def _open(self) -> list[str]:
        try:
            return os.listdir(self.facts / FOLDER)
        except OSError:
            return []

    def whole(self, name: str) -> bool:
        """Whether a file of that name has the content that its name says."""
        return hash_bytes(self._bytes(name)) == name

    def _bytes(self, name: str) -> bytes:
        """The content of a fact; empty if it was deleted. Raises if the disk cannot be read."""
        path = durable.path_of(self.facts, name, ".json")
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise durable.storage_error("read", path, error) from error

    def fact(self, name: str) -> Fact | None:
        """None: it cannot be read."""
        try:
            import dlv.objects.fact as fact_format

            return fact_format.decode_fact(self._bytes(name), f"fact {name[:12]}")
        except StorageError:
            raise
        except DlvError:
            return None


class Standing(NamedTuple):
    """The facts on the disk, and which of them may be of changes that did not commit.

    Read before the moment at which the catalogue is looked at: what has no mark by then has
    committed by then.
    """

    marks: Marks
    facts: frozenset[str]
    open_facts: frozenset[str]
    open_versions: frozenset[str]

    def lost(self, committed: Set[str], numbered: Set[str]) -> set[str]:
        """Those that have committed, and that the catalogue does not know any more.

        A second number of a version that it has was not written by dlv, and hides nothing.
        """
        hidden = self.open_versions | numbered
        found = set()
        for name in self.facts - committed - self.open_facts:
            fact = self.marks.fact(name)
            if fact is None:
                lost = not self.marks.whole(name)  # what is whole and yet no fact never was one
            else:
                lost = fact.kind != "number" or fact.subject not in hidden
            if lost:
                found.add(name)
        return found


def _names(root: Path, suffix: str) -> list[str]:
    return [path.name.removesuffix(suffix) for path in root.glob(f"??/*{suffix}")]
