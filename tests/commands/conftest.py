"""The harness of the command tests: run dlv, compare all it printed with a committed file.

`dlv("list", tty=True)` runs the real program in this process and gives a Result; `json=True`
also checks the document against its schema. `dlv_pty` does it in a process of its own on a
pseudo-terminal. `snapshot(result)` compares with snapshots/<file>/<test>.txt, which
`pytest --update-snapshots` writes.
"""

from __future__ import annotations

import datetime
import fcntl
import io
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from safetensors.numpy import save_file

import dlv.archiving.speeds as speeds
import dlv.canonical as canonical
import dlv.cli as cli
import dlv.versions.add as adding
import dlv.versions.commit as committing
from dlv.repository.handle import Repository
from dlv.versions.add import Request as AddRequest
from dlv.versions.commit import Committed
from dlv.versions.commit import Request as CommitRequest

SNAPSHOTS = Path(__file__).parent / "snapshots"
SCHEMAS = Path(cli.__file__).parent / "schemas"
NOW = "2026-06-15T12:00:00Z"
WIDTH = 80


@dataclass
class Result:
    """What one call of dlv left behind."""

    args: tuple[str, ...]
    code: int
    stdout: str
    stderr: str
    data: bytes = b""

    @property
    def document(self) -> Any:
        return json.loads(self.stdout)


class _Stream(io.TextIOWrapper):
    def __init__(self, terminal: bool, content: bytes = b"", encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(content), encoding=encoding, write_through=True)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def content(self) -> bytes:
        self.flush()
        bytes_below = self.buffer
        assert isinstance(bytes_below, io.BytesIO)
        return bytes_below.getvalue()


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory, an empty home, no settings from outside, a fixed clock."""
    for name in list(os.environ):
        if name.startswith(("DLV_", "XDG_", "GIT_", "_DLV")):
            monkeypatch.delenv(name)
    for name in ("NO_COLOR", "FORCE_COLOR", "PAGER"):
        monkeypatch.delenv(name, raising=False)
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    settings = {"HOME": str(home), "DLV_NOW": NOW, "DLV_PAGER": "cat", "TERM": "xterm-256color"}
    settings |= {"COLUMNS": str(WIDTH), "LINES": "24", "USER": "root"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    # As measured on an ordinary machine, so that plans are the same on all.
    monkeypatch.setattr("dlv.archiving.speeds.measure", lambda: speeds.ORDINARY)
    # Part of every manifest, and so of every id: what is installed here is not to count.
    monkeypatch.setattr("dlv.repository.environment.packages", lambda: {"numpy": "2.0.0"})
    monkeypatch.setattr("dlv.repository.environment.platform.python_version", lambda: "3.11.0")
    monkeypatch.chdir(work)
    yield work
    canonical.fix_clock(None)


@pytest.fixture
def dlv(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """dlv(*args, tty=False, json=False, stdin="", encoding="utf-8") -> Result."""

    def call(
        *args: str | Path,
        tty: bool = False,
        json: bool = False,
        stdin: str = "",
        encoding: str = "utf-8",
    ) -> Result:
        words = [*map(str, args), *(["--json"] if json else [])]
        out, err = _Stream(tty, encoding=encoding), _Stream(tty, encoding=encoding)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", _Stream(tty, stdin.encode()))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = cli.run(words)
        data = out.content()
        text = data.decode(encoding, "replace")
        result = Result(tuple(words), code, text, err.content().decode(encoding), data)
        if "--json" in words:
            check_json(result)
        return result

    return call


@pytest.fixture
def bounded_demo(
    tmp_path: Path, dlv: Callable[..., Result], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The models of the demo with bounds in `made`: a copy, since making them takes seconds."""
    repository, template = tmp_path / "made", tmp_path_factory.getbasetemp() / "bounded-demo"
    if not template.exists():
        assert dlv("demo", repository).code == 0
        assert dlv("-C", repository, "archive", "--bounds").code == 0
        shutil.copytree(repository, template, symlinks=True)
    else:
        shutil.copytree(template, repository, symlinks=True)
    return repository


def check_json(result: Result) -> None:
    """One document on stdout that fits its schema, or none and an error object on stderr."""
    # fsck and verify have a document also of what is wrong.
    if result.code in (0, 1) or (result.code in (6, 9) and result.stdout):
        document = json.loads(result.stdout, parse_constant=_no_constant)
        name, _, number = document["schema"].removeprefix("dlv/").partition("/")
        assert document["schema"].startswith("dlv/")
        assert number.isdigit()
        schema = SCHEMAS / f"{name}.json"
    else:
        assert result.stdout == ""
        document = json.loads(result.stderr.splitlines()[-1])
        assert document["error"]["code"] == result.code
        schema = SCHEMAS / "error.json"
    assert schema.exists(), f"no schema {schema.name}"
    jsonschema.Draft202012Validator(json.loads(schema.read_text())).validate(document)


def _no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


@pytest.fixture
def dlv_pty(workspace: Path) -> Callable[..., Result]:
    """dlv_pty(*args, stdin="", timeout=30) -> Result; stdout holds both streams."""

    def call(*args: str | Path, stdin: str = "", timeout: float = 30) -> Result:
        words = tuple(map(str, args))
        parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
        environ = dict(os.environ, PYTHONPATH=str(SCHEMAS.parent.parent))
        process = subprocess.Popen(
            [sys.executable, "-m", "dlv", *words],
            stdin=child,
            stdout=child,
            stderr=child,
            env=environ,
            start_new_session=True,
        )
        os.close(child)
        os.write(parent, stdin.encode())
        seen, ends = b"", time.monotonic() + timeout
        while time.monotonic() < ends:
            if select.select([parent], [], [], 0.1)[0]:
                try:
                    piece = os.read(parent, 65536)
                except OSError:  # Linux says so when the other side is closed
                    break
                if not piece:
                    break
                seen += piece
        else:
            process.kill()
        os.close(parent)
        code = process.wait(timeout)
        return Result(words, code, seen.decode().replace("\r\n", "\n"), "", seen)

    return call


@pytest.fixture
def snapshot(
    request: pytest.FixtureRequest, tmp_path: Path, workspace: Path
) -> Callable[..., None]:
    """snapshot(result, name="", replace={regex: text}): compare with the committed file."""
    folder = SNAPSHOTS / request.path.stem.removeprefix("test_")
    update = bool(request.config.getoption("--update-snapshots"))

    def compare(result: Result, name: str = "", replace: Mapping[str, str] | None = None) -> None:
        test = re.sub(r"[^A-Za-z0-9]+", "_", request.node.name.removeprefix("test_")).strip("_")
        path = folder / f"{'-'.join(filter(None, (test, name)))}.txt"
        actual = render(result)
        for pattern, text in (replace or {}).items():
            actual = re.sub(pattern, text, actual)
        actual = normalise(actual, tmp_path, workspace)
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(actual, encoding="utf-8")
            return
        assert path.exists(), f"no snapshot {path.name}: run pytest --update-snapshots"
        assert actual == path.read_text(encoding="utf-8")

    return compare


def render(result: Result) -> str:
    typed = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in " ".join(result.args))
    text = f"$ dlv {typed}\nexit {result.code}\n"
    for name, content in (("stdout", result.stdout), ("stderr", result.stderr)):
        if content:
            end = "" if content.endswith("\n") else "<no newline>\n"
            text += f"--- {name}\n{content}{end}"
    return text.replace("\x1b", "␛")


def normalise(text: str, tmp_path: Path, workspace: Path) -> str:
    """Put stable words for what differs between runs and machines."""
    text = text.replace(str(tmp_path.resolve()), "<tmp>").replace(str(tmp_path), "<tmp>")
    stored = (p.name for p in workspace.rglob(".dlv/**/*") if p.is_file())
    names = [n.partition(".")[0] for n in stored]
    known = {n for n in names if re.fullmatch("[0-9a-f]{64}", n)}
    known |= set(re.findall(r"\b[0-9a-f]{64}\b", text))
    seen: dict[str, str] = {}

    def replace(match: re.Match[str]) -> str:
        word = match.group()
        whole = sorted(k for k in known if k.startswith(word))
        if not whole:
            return word
        seen.setdefault(whole[0], f"<id:{len(seen) + 1:02}>")  # as wide as a short id
        return seen[whole[0]]

    text = re.sub(r"(?:\b|(?<=\[33m))(?:[0-9a-f]{64}|[0-9a-f]{7,12})\b", replace, text)
    text = re.sub(r'("seconds": )[0-9.e-]+', r"\1<seconds>", text)
    return re.sub(r"\b[0-9]+(\.[0-9]+)? m?s\b", "<duration>", text)


# A filled repository: lenet@1 (two snapshots), lenet@2 (a better one), lenet-wide@1 (a copy).

_NODES: list[dict[str, Any]] = [
    {"name": "conv1", "op": "CONV", "attrs": {"out": 4, "kernel": [3, 3]}, "inputs": ["x"]},
    {"name": "relu1", "op": "RELU", "attrs": {}, "inputs": ["conv1"]},
    {"name": "flatten", "op": "RESHAPE", "attrs": {"kind": "flatten"}, "inputs": ["relu1"]},
    {"name": "fc", "op": "FULL", "attrs": {"out": 10}, "inputs": ["flatten"]},
    {"name": "prob", "op": "SOFTMAX", "attrs": {}, "inputs": ["fc"]},
]
_NETWORK = {
    "dlv_network": 1,
    "inputs": [{"name": "x", "shape": ["B", 1, 8, 8], "dtype": "float32"}],
    "nodes": [
        {**node, "params": {slot: f"{node['name']}.{slot}" for slot in ("weight", "bias")}}
        if node["op"] in ("CONV", "FULL")
        else node
        for node in _NODES
    ],
    "outputs": ["prob"],
}


def _weights(seed: int) -> dict[str, Any]:
    """The same on every machine; `seed` moves the numbers a little, as training does."""
    start, step = np.random.default_rng(0), np.random.default_rng(seed)
    shapes = {"conv1.weight": (4, 1, 3, 3), "conv1.bias": (4,), "fc.weight": (10, 144)}
    shapes["fc.bias"] = (10,)
    return {
        name: (start.normal(0, 0.05, shape) + step.normal(0, 1e-3, shape)).astype(np.float32)
        for name, shape in shapes.items()
    }


def _log(steps: int, best: float) -> str:
    rows = [
        f"{step},{2.3 / (1 + step / 10):.4f},{best * step / (step + 5):.4f}"
        for step in range(1, steps + 1)
    ]
    return "\n".join(["step,loss,accuracy", *rows]) + "\n"


def _committed(repository: Repository, message: str, name: str | None, days: float) -> Committed:
    canonical.fix_clock(
        datetime.datetime.fromisoformat(NOW).astimezone(datetime.UTC) - datetime.timedelta(days)
    )
    here = repository.root
    files = sorted(
        str(path.relative_to(here)) for path in here.rglob("*") if ".dlv" not in str(path)
    )
    adding.add(repository, here, [f for f in files if (here / f).is_file()], AddRequest())
    author = "Ada Lovelace <ada@example.org>"
    return committing.commit(repository, CommitRequest(message, author, name))


@pytest.fixture(scope="session")
def filled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once; `filled` copies it."""
    folder = tmp_path_factory.mktemp("filled")
    repository, _ = Repository.init(folder)
    (folder / "network.json").write_text(json.dumps(_NETWORK))
    (folder / "train.py").write_text("import torch\n\n# trains LeNet\n")
    (folder / "config.json").write_text('{"lr": 0.1, "optimizer": {"name": "sgd"}}')
    (folder / "log.csv").write_text(_log(20, 0.9))
    save_file(_weights(1), folder / "ckpt-100.safetensors")
    save_file(_weights(2), folder / "ckpt-200.safetensors")
    _committed(repository, "First training\n\nPlain SGD, 20 epochs.", "lenet", 12)
    (folder / "config.json").write_text('{"lr": 0.01, "optimizer": {"name": "sgd"}}')
    (folder / "log.csv").write_text(_log(40, 0.98))
    save_file(_weights(3), folder / "ckpt-200.safetensors")
    _committed(repository, "Smaller learning rate", None, 3)
    (folder / "ckpt-100.safetensors").unlink()
    save_file(_weights(4), folder / "ckpt-200.safetensors")
    with repository.change("copy") as change:
        change.set_next("lenet-wide", "copy")
        change.summary = "lenet-wide from lenet@2"
    _committed(repository, "Fine-tuned on wide digits", None, 0.1)
    repository.close()
    canonical.fix_clock(None)
    return folder


@pytest.fixture
def filled(filled_once: Path, workspace: Path) -> Path:
    """The working directory is a repository with three versions, their files beside it."""
    shutil.copytree(filled_once, workspace, dirs_exist_ok=True, symlinks=True)
    return workspace
