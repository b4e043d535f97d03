"""`diff` with the working directory: its tracked and staged files, as if they were committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import dlv.metadata.facts as facts
import dlv.versions.add as adding
import dlv.weights.snapshots as snapshots
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.canonical import hash_bytes, matrix_hash
from dlv.errors import NotFound
from dlv.kinds import Raw
from dlv.metadata import versions
from dlv.metadata.facts import StagedFile
from dlv.metadata.versions import Version
from dlv.objects.manifest import FileEntry, Manifest
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository
from dlv.versions.working import MISSING, SAME, Working, tracked
from dlv.weights.snapshots import MODEL_ROLES, Matrix
from dlv.weights.store import MatrixStore

LABEL = "working directory"
Opened = Callable[[str, Path], Checkpoint]


class WorkingFiles(FileStore):
    """Committed files, and those of the working directory that differ from HEAD."""

    def __init__(self, path: Path, changed: Mapping[str, Path]) -> None:
        super().__init__(path)
        self._changed = changed  # by hash

    def read(self, entry: FileEntry) -> bytes:
        path = self._changed.get(entry.blake3)
        return super().read(entry) if path is None else path.read_bytes()


class WorkingStore(MatrixStore):
    """Committed tensors, and those of weight files that are not committed."""

    tensors: Mapping[str, Tensor] = {}  # by hash

    def matrix(self, matrix: str) -> Raw:
        tensor = self.tensors.get(matrix)
        return super().matrix(matrix) if tensor is None else tensor.read()


class WorkingTree:
    """HEAD with the changes of the working directory; open until `close`.

    Staged weights take the place of HEAD's, as a commit would do it.
    """

    def __init__(self, repository: Repository, opened: Opened) -> None:
        head = repository.head
        version = None if head is None else versions.by_id(repository.database, head)
        if version is None:
            raise NotFound("no commits yet", hint="to commit: dlv add . && dlv commit -m MESSAGE")
        self.version: Version = replace(version, message="")
        self._repository, self._opened = repository, opened
        self._ending = ExitStack()
        self._tensors: dict[str, Tensor] = {}  # by hash
        self._files: dict[str, Path] = {}  # by hash
        head_manifest = repository.manifest(version.id)
        staged = {file.path: file for file in facts.staged_files(repository.database)}
        self.manifest = self._files_of(head_manifest, staged)
        self.matrices = self._weights_of(head_manifest, staged)

    def close(self) -> None:
        self._ending.close()

    def store(self) -> MatrixStore:
        """Committed tensors and those of the working directory."""
        store = WorkingStore.of(self._repository)
        store.tensors = self._tensors
        return store

    def files(self) -> FileStore:
        return WorkingFiles(self._repository.files_git, self._files)

    def _files_of(self, head: Manifest, staged: Mapping[str, StagedFile]) -> Manifest:
        """The manifest with the files and hyperparameters that a commit would record."""
        root, working = self._repository.root, self._working()
        entries: dict[str, FileEntry] = {}
        configs: list[tuple[Path, str]] = []
        items = tracked(head)
        for entry in head.files:
            if staged.get(entry.path) is not None and staged[entry.path].role == "removed":
                continue
            state = working.compare(items[entry.path])
            if state == MISSING:
                continue
            path = root / entry.path
            entries[entry.path] = entry if state == SAME else self._entry(path, entry)
            if state != SAME and entry.role == "config":
                configs.append((path, path.suffix.removeprefix(".")))
        for file in staged.values():
            if file.role in ("file", "config", "log", "data") and file.path not in entries:
                fresh = FileEntry(file.path, file.role, "100644", 0, "", "")
                entries[file.path] = self._entry(Path(file.source), fresh)
                if file.role == "config":
                    configs.append((Path(file.source), file.format))
        parameters = dict(head.hyperparameters)
        for path, format_ in configs:
            parameters |= adding.read_config(path, format_)
        return replace(
            head, files=tuple(entries[path] for path in sorted(entries)), hyperparameters=parameters
        )

    def _entry(self, path: Path, entry: FileEntry) -> FileEntry:
        data = path.read_bytes()
        digest = hash_bytes(data)
        self._files[digest] = path
        return replace(entry, bytes=len(data), blake3=digest)

    def _weights_of(self, head: Manifest, staged: Mapping[str, StagedFile]) -> list[Matrix]:
        """The tensors of the default checkpoint; staged and changed weight files replace it."""
        weights = [file for file in staged.values() if file.role in ("weights", "snapshot")]
        if weights:
            last = max(weights, key=lambda file: (file.role == "weights", file.step or 0))
            return self._read(Path(last.source), last.format)
        matrices = snapshots.matrices(head)
        if head.own is None:
            return matrices
        working = self._working()
        replaced: dict[str, Matrix] = {}
        gone: set[str] = set()
        default = head.snapshots[head.own]
        for container in default.containers:
            item = tracked(head)[container.path]
            state = working.compare(item)
            if state == SAME:
                continue
            gone |= {head.tensors[at].name for at in container.tensors}
            if state != MISSING:
                found = self._read(self._repository.root / item.path, item.format)
                replaced |= {matrix.name: matrix for matrix in found}
        kept = [matrix for matrix in matrices if matrix.name not in gone]
        return kept + list(replaced.values())

    def _read(self, path: Path, format_: str) -> list[Matrix]:
        checkpoint = self._opened(format_, path)
        self._ending.callback(checkpoint.close)
        found = []
        for tensor in checkpoint.tensors:
            if tensor.role not in MODEL_ROLES:
                continue
            digest = matrix_hash(tensor.dtype, tensor.shape, tensor.read())
            self._tensors[digest] = tensor
            found.append(
                Matrix(tensor.name, tensor.dtype, tensor.shape, tensor.role, tensor.tied, digest)
            )
        return found

    def _working(self) -> Working:
        return Working(self._repository.root, self._repository.database, self._opened)
