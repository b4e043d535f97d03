"""dlv's commands run on files of weights: seconds of the clock and the processor, peak memory."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DLV = (sys.executable, "-m", "dlv")
MODEL = "model.safetensors"


@dataclass(frozen=True)
class Ran:
    """What one command took."""

    wall: float
    processor: float
    peak: float  # megabytes, of the whole process
    output: str


def run(folder: Path, *arguments: str, limit: int | None = None) -> Ran:
    """`dlv` with these arguments; `limit`: bytes of address space that it may take."""
    kept = ("DLV_", "PYTHON")
    environ = {k: v for k, v in os.environ.items() if not k.startswith(kept)}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environ |= {"PYTHONPATH": path, "HOME": str(folder.parent)}

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    begun = time.perf_counter()
    child = subprocess.Popen(
        [*DLV, *arguments],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=limited,
    )
    assert child.stdout is not None
    output = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - begun
    if child.returncode:
        raise SystemExit(f"dlv {' '.join(arguments)} failed:\n{output}")
    return Ran(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3, output)


def packs(folder: Path) -> int:
    """Bytes of all packs."""
    return sum(path.stat().st_size for path in (folder / ".dlv" / "packs").rglob("*.pack"))


def commit(folder: Path, files: Sequence[Path]) -> None:
    """A repository with a version per file, all under one name."""
    folder.mkdir(parents=True)
    run(folder, "init")
    for file in files:
        name = f"model{file.suffix}"
        shutil.copy(file, folder / name)
        run(folder, "add", name)
        run(folder, "commit", "-m", file.stem, "--name", "model")


def same(folder: Path, files: Sequence[Path]) -> None:
    """Every version checked out and compared with its file."""
    for number, file in enumerate(files, 1):
        run(folder, "checkout", f"model@{number}", "--to", "back")
        restored = folder / "back" / f"model{file.suffix}"
        compared = subprocess.run(["cmp", "-s", restored, file], check=False)
        if compared.returncode:
            raise SystemExit(f"{restored} came back with other bytes than {file}")
        shutil.rmtree(folder / "back")
