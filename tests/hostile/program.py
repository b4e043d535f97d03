"""Runs `dlv add` on hostile files: python -m tests.hostile.program REPOSITORY < names, one a line.

Everything is imported once; each file then gets a child with 1.5 GiB of address space, under an
audit hook that ends it (exit 66) if it runs something, opens a socket or writes anywhere but
below `.dlv`. Prints a JSON line per file: exit code, output, the most memory it held.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import resource
import sys
import sysconfig
from pathlib import Path
from typing import Any

import dlv.cli as cli
from dlv.adapters import registry
from tests.hostile.attack import FORBIDDEN

LIMIT = 1536 << 20
CAUGHT = 66
# Whose code may be executed: an import does it.
OURS = (
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("platlib"),
    str(Path(cli.__file__).parent),
    "<frozen",
)


def watch(below: str) -> Any:
    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        wrong = event.startswith(FORBIDDEN)
        if event == "open" and int(arguments[2] or 0) & writes:
            wrong = not str(os.path.realpath(arguments[0])).startswith(below)
        elif event == "exec":
            wrong = not arguments[0].co_filename.startswith(OURS)
        if wrong:
            os.write(2, f"{event} {arguments!r}\n".encode())
            os._exit(CAUGHT)

    return hook


def add(repository: Path, name: str, *, hook: bool) -> int:
    os.chdir(repository)
    if hook:
        resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
        sys.addaudithook(watch(f"{repository}/.dlv/"))
    return cli.run(["add", "--", name])


def one(repository: Path, name: str) -> dict[str, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", 0), write_through=True)
        sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", 0), write_through=True)
        code = add(repository, name, hook=True)
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader, errors="replace") as file:
        said = file.read()
    _, status, used = os.wait4(child, 0)
    return {
        "name": name,
        "code": os.waitstatus_to_exitcode(status),
        "said": said,
        "mebibytes": used.ru_maxrss / 1024,
        "seconds": used.ru_utime + used.ru_stime,
    }


def _warm(repository: Path, name: str) -> None:
    """Import what a run imports, so that no child has to."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        sys.stdout = sys.stderr
        add(repository, name, hook=False)
        os.write(writer, "\n".join(sys.modules).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        found = file.read().splitlines()
    os.waitpid(child, 0)
    adapters = registry.READERS.values()
    for module in [*found, *adapters, "yaml", "difflib"]:
        with contextlib.suppress(Exception):
            importlib.import_module(module)


def main() -> None:
    repository = Path(sys.argv[1]).resolve()
    names = sys.stdin.read().splitlines()
    sys.dont_write_bytecode = True
    _warm(repository, names[0])
    for name in names:
        print(json.dumps(one(repository, name)), flush=True)


if __name__ == "__main__":
    main()
