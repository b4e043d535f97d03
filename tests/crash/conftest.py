"""A repository with one version and a second one staged, and the driver that kills its commit."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import dlv.archiving.speeds as speeds
from tests import released
from tests.crash import shim
from tests.crash.verbs import FILES

ROOT = Path(__file__).resolve().parents[2]
NETWORK = {
    "dlv_network": 1,
    "inputs": [{"name": "x", "shape": ["B", 16], "dtype": "float32"}],
    "nodes": [
        {
            "name": "fc",
            "op": "FULL",
            "attrs": {"out": 10},
            "inputs": ["x"],
            "params": {"weight": "fc.weight", "bias": "fc.bias"},
        }
    ],
    "outputs": ["fc"],
}

Drive = Callable[..., list[dict[str, Any]]]
Prepare = Callable[..., Path]


def bad(results: list[dict[str, Any]]) -> list[str]:
    """What was wrong, once for each thing, with the first point that showed it."""
    seen: dict[str, str] = {}
    for result in results:
        for problem in result["problems"]:
            how = result.get("model") or f"error {result['error']}"
            where = f"{shim.NAMES[result['mode']]} {result['at']} ({how})"
            seen.setdefault(problem[:200], f"{where}: {problem}")
    return list(seen.values())


@pytest.fixture(scope="session")
def preload(pytestconfig: pytest.Config) -> Path:
    """The compiled shim."""
    if sys.platform != "linux" or shim.compiler() is None:
        pytest.skip("no C compiler: dlv, git and SQLite are not killed between system calls")
    assert pytestconfig.cache is not None
    return shim.library(Path(pytestconfig.cache.mkdir("crash")))


@pytest.fixture(scope="session")
def fast() -> Iterator[Path]:
    """A folder in memory where there is one: fsync costs nothing there, and kill -9 sees no
    difference."""
    memory = Path("/dev/shm")
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 1 << 30
    with tempfile.TemporaryDirectory(dir=memory if roomy else None, prefix="dlv-crash-") as name:
        yield Path(name).resolve()


def environment(home: Path) -> dict[str, str]:
    """Of a user without any configuration."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DLV_", "XDG_", "GIT_", "_DLV", "SHIM_"))
    }
    return kept | {
        "HOME": str(home),
        "USER": "ada",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "DLV_JOBS": "1",
    }


def _weights(seed: int) -> dict[str, Any]:
    """One matrix large enough for chunks of its own, and small ones that share; of two seeds
    they are near enough for the difference to be worth storing."""
    common, own = np.random.default_rng(0), np.random.default_rng(seed)
    shapes = {"fc.weight": (10, 16), "fc.bias": (10,), "embedding": (200, 100)}
    return {
        name: (common.normal(0, 0.05, shape) + own.normal(0, 1e-5, shape)).astype(np.float32)
        for name, shape in shapes.items()
    }


@pytest.fixture(scope="session")
def prepare(fast: Path) -> Prepare:
    """prepare(name, *commands): a template where the commands have been run, made once.

    A number among them stands for new files, of this seed, a text for those of verbs.FILES.
    """

    def make(
        name: str,
        *commands: Sequence[str] | int | str,
        git: bool = False,
        release: str | None = None,
    ) -> Path:
        folder = fast / f"template-{name}"
        if folder.exists():
            return folder
        if release is not None:
            return _released(release, folder)
        home = fast / "home"
        home.mkdir(exist_ok=True)
        speeds.keep(home / ".cache" / "dlv", speeds.ORDINARY)
        making = fast / "making" / folder.name / "work"
        making.mkdir(parents=True)
        if git:
            subprocess.run(["git", "init", "-q"], cwd=making, check=True, env=environment(home))
        (making / "network.json").write_text(json.dumps(NETWORK))
        _write(making, 1)
        _run(making, home, ["init"])
        # Somebody looks on, so that the log of the catalogue stays, as after a kill.
        with closing(sqlite3.connect(making / ".dlv" / "dlv.db")) as watching:
            watching.execute("BEGIN")
            watching.execute("SELECT 1 FROM sqlite_schema").fetchone()
            for first in (["add", "."], ["commit", "-m", "first", "--name", "lenet"]):
                _run(making, home, first)
            _write(making, 2)
            for command in commands:
                _prepared(making, home, command)
            shutil.copytree(making, folder, symlinks=True)
        return folder

    return make


def _prepared(folder: Path, home: Path, command: Sequence[str] | int | str) -> None:
    if isinstance(command, int):
        _write(folder, command)
    elif isinstance(command, str):
        for path, content in FILES[command].items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            data = content.encode() if isinstance(content, str) else content
            (folder / path).write_bytes(data)
    else:
        _run(folder, home, command)


def _released(name: str, folder: Path) -> Path:
    """What a release wrote, without what was staged in a folder that is no more."""
    found = released.unpack(name, folder.with_suffix(".unpacked"))
    with closing(sqlite3.connect(found.database)) as db:
        db.execute("DELETE FROM staged")
        db.commit()
    found.root.rename(folder)
    return folder


def _write(folder: Path, seed: int) -> None:
    save_file(_weights(seed), folder / f"step-{seed * 100}.safetensors")
    (folder / "train.py").write_text(f"# run {seed}\n")
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / "model.py").write_text(f"SEED = {seed}\n")
    (folder / "config.json").write_text(json.dumps({"lr": 0.1 / seed}))
    rows = "".join(f"{step},{2 / (step + seed):.4f}\n" for step in range(1, 30))
    (folder / "log.csv").write_text(f"step,loss\n{rows}")


def _run(folder: Path, home: Path, command: Sequence[str]) -> None:
    named = [word for word in command if word.startswith("DLV_")]  # variables, as in a shell
    done = subprocess.run(
        [sys.executable, "-m", "dlv", *command[len(named) :]],
        cwd=folder,
        env=environment(home) | dict(word.split("=", 1) for word in named),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def staged(prepare: Prepare) -> Path:
    """lenet@1 is committed; weights, network, log, config and files of lenet@2 are staged."""
    return prepare("staged", ["add", "."])


@pytest.fixture
def drive(preload: Path, fast: Path) -> Iterator[Drive]:
    """drive(template, command, ways, most=0, part=0, of=1, bug=None): a result per point.

    `ways` are pairs of a mode of the shim and the number of an error; points are the calls that
    change something, or with `reads` those that read. `settings` are names in settings.py. With
    `bug` it ends at the first point with a problem; `order` ("forwards", "backwards", "shuffled")
    finds it sooner. With `images` nothing is killed: the command is written down, and so many
    images of what a disk may hold if the power is cut are looked at (`part` is the seed).
    """
    with tempfile.TemporaryDirectory(dir=fast) as name:
        below = Path(name) / "place"
        below.mkdir()
        control = Path(name) / "control"
        shim.Control(control)
        (Path(name) / "home").mkdir()
        speeds.keep(Path(name) / "home" / ".cache" / "dlv", speeds.ORDINARY)

        def run(
            template: Path,
            command: Sequence[str],
            ways: Sequence[tuple[int, int]],
            *,
            most: int = 0,
            part: int = 0,
            of: int = 1,
            bug: str | None = None,
            order: str = "forwards",
            reads: bool = False,
            settings: Sequence[str] = (),
            images: int = 0,
        ) -> list[dict[str, Any]]:
            job: dict[str, Any] = {
                "template": str(template),
                "command": list(command),
                "ways": list(ways),
            }
            job |= {"most": most, "part": part, "of": of, "bug": bug, "order": order}
            job |= {"reads": reads, "settings": list(settings), "images": images}
            done = subprocess.run(
                [sys.executable, "-m", "tests.crash.driver"],
                input=json.dumps(job),
                cwd=ROOT,
                env=environment(Path(name) / "home") | shim.environment(preload, control, below),
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr
            _, *results = [json.loads(line) for line in done.stdout.splitlines()]
            assert results, done.stderr
            return results

        yield run
