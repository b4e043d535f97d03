"""Whole stores: what a folder takes after every checkpoint of a line was put under control.

dlv by its commands, `dvc add` by a dvc program, git by real packs after `git gc`. Each gives the
files back, which are compared.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dlv.pas.packs import Pack

ROOT = Path(__file__).resolve().parent.parent.parent
DLV = [sys.executable, "-m", "dlv"]


@dataclass
class Size:
    """Bytes of a store, without what every pack says about its chunks where that is known.

    `archived`: bytes of weights that `dlv archive` stored per second of processor time.
    """

    bytes: int
    without_footers: int | None = None
    seconds: float = 0.0
    archived: float | None = None


def run(folder: Path, *line: str) -> str:
    kept = ("DLV_", "GIT_", "PYTHON")
    environ = {k: v for k, v in os.environ.items() if not k.startswith(kept)}
    environ |= {"PYTHONPATH": str(ROOT), "HOME": str(folder.parent), "DVC_NO_ANALYTICS": "1"}
    ran = subprocess.run(line, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{list(line)} failed:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _same(found: Path, file: Path) -> None:
    if found.read_bytes() != file.read_bytes():
        raise SystemExit(f"{found} came back with other bytes than {file}")


def with_dlv(files: Sequence[Path], archive: Sequence[str] | None, folder: Path) -> Size:
    """One version whose snapshots are the files; archived, unless `archive` is None."""
    run(folder, *DLV, "init")
    begun = time.perf_counter()
    names = [f"step-{number:04}.safetensors" for number in range(1, len(files) + 1)]
    for name, file in zip(names, files, strict=True):
        shutil.copy(file, folder / name)
    run(folder, *DLV, "add", *names)
    run(folder, *DLV, "commit", "-m", "all", "--name", "model")
    archived = None
    if archive is not None:
        before = _processor_time()
        run(folder, *DLV, "archive", *archive)
        archived = sum(file.stat().st_size for file in files) / (_processor_time() - before)
    taken = time.perf_counter() - begun
    run(folder, *DLV, "checkout", "model@1", "--to", "back")
    for name, file in zip(names, files, strict=True):
        _same(folder / "back" / name, file)
    packs = list((folder / ".dlv" / "packs").rglob("*.pack"))
    total = sum(path.stat().st_size for path in packs)
    chunks = 0
    for path in packs:
        pack = Pack(path)
        chunks += sum(chunk.length for chunk in pack.footer.chunks)
        pack.close()
    return Size(total, chunks, taken, archived)


def _processor_time() -> float:
    """Of all commands so far, in all their threads."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def with_dvc(program: str, files: Sequence[Path], folder: Path) -> Size:
    """The cache after `dvc add` of each file in turn, under one name."""
    run(folder, program, "init", "--no-scm")
    begun = time.perf_counter()
    for file in files:
        shutil.copy(file, folder / "model.safetensors")
        run(folder, program, "add", "model.safetensors")
        run(folder, program, "checkout", "model.safetensors.dvc")
        _same(folder / "model.safetensors", file)
    return Size(size_of(folder / ".dvc" / "cache"), None, time.perf_counter() - begun)


def with_git(files: Sequence[Path], folder: Path) -> Size:
    """The packs after a commit of each file in turn, under one name, and `git gc`."""
    run(folder, "git", "init", "-q")
    run(folder, "git", "config", "user.email", "benchmark@example.com")
    run(folder, "git", "config", "user.name", "benchmark")
    begun = time.perf_counter()
    for file in files:
        shutil.copy(file, folder / "model.safetensors")
        run(folder, "git", "add", "model.safetensors")
        run(folder, "git", "commit", "-q", "--allow-empty", "-m", file.stem)
    run(folder, "git", "gc", "-q", "--prune=now")
    taken = time.perf_counter() - begun
    for back, file in enumerate(reversed(files)):
        run(folder, "git", "checkout", "-q", "HEAD~1" if back else "HEAD")
        _same(folder / "model.safetensors", file)
    return Size(size_of(folder / ".git" / "objects" / "pack"), None, taken)


def measure(files: Sequence[Path], *, dvc: str | None, git: bool, high: bool) -> dict[str, Size]:
    """Every program on the same files."""
    sizes: dict[str, Size] = {}
    with tempfile.TemporaryDirectory() as base:

        def fresh() -> Path:
            folder = Path(base) / f"store{len(sizes)}"
            folder.mkdir()
            return folder

        sizes["files"] = Size(sum(file.stat().st_size for file in files))
        if dvc is not None:
            sizes["dvc add"] = with_dvc(dvc, files, fresh())
        if git:
            sizes["git gc"] = with_git(files, fresh())
        sizes["dlv commit"] = with_dlv(files, None, fresh())
        sizes["dlv archive"] = with_dlv(files, (), fresh())
        sizes["dlv archive, mst"] = with_dlv(files, ("--algorithm", "mst"), fresh())
        if high:
            sizes["dlv archive --effort high"] = with_dlv(files, ("--effort", "high"), fresh())
    return sizes
