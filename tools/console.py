"""Run the console sessions in README.md and docs/ and put what is printed under the commands.

    python tools/console.py [PAGE..]

A page is one session: its blocks run one after the other, in a fresh copy of the repository that
`dlv demo` makes; a block that says `empty` behind ```console or ```python begins a new, empty
folder, one that says `made` goes to what `make demo` builds. Lines of a command whose quotes are
still open go on behind `> `. A Python block whose first line is `# NAME.py` becomes that file, any
other is run.
`lines=N` keeps the first N lines of each command's output.
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import dlv.archiving.speeds as speeds

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GENERATED = {"commands.md", "query-reference.md"}
WIDTH = 88
NOW, AN_HOUR_AGO = "2026-06-15T12:00:00Z", "2026-06-15T11:00:00Z"
BLOCK = re.compile(r"^```(console|python)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class SessionError(Exception):
    """A command or a block of a page did not run."""


class Session:
    """A folder in which the commands of a page run as if they had been typed."""

    def __init__(self, base: Path, demo: Path) -> None:
        self.base = base
        self.here = base / "demo"
        shutil.copytree(demo, self.here, symlinks=True)
        tools = base / "bin"
        tools.mkdir()
        for name, arguments in (("dlv", "-m dlv "), ("python", "")):
            program = tools / name
            program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments}"$@"\n')
            program.chmod(0o755)
        self.environ = environment(base) | {"PATH": f"{tools}:{os.environ['PATH']}"}

    def begin(self) -> None:
        """Go to an empty folder."""
        self.here = Path(tempfile.mkdtemp(dir=self.base)) / "models"
        self.here.mkdir()

    def go_to_made(self) -> None:
        """Go to a repository as `make demo` builds it."""
        folder = Path(tempfile.mkdtemp(dir=self.base)) / "demo-repository"
        done = subprocess.run(
            [sys.executable, ROOT / "examples" / "demo.py", folder],
            env=self.environ | {"DLV_NOW": AN_HOUR_AGO},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SessionError(done.stdout + done.stderr)
        self.here = folder

    def type(self, line: str) -> str:
        """What a terminal shows after `line`."""
        if line.startswith("cd "):
            self.here = (self.here / line[3:].strip()).resolve()
            return ""
        parent, child = pty.openpty()
        process = subprocess.Popen(
            line,
            shell=True,
            cwd=self.here,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=child,
            stderr=subprocess.PIPE,
        )
        os.close(child)
        printed = b"".join(iter(lambda: _read(parent), b""))
        os.close(parent)
        _, told = process.communicate()
        text = (told + printed).decode().replace("\r\n", "\n")
        if process.returncode:
            raise SessionError(f"$ {line}\n{text}")
        return re.sub(rf"{re.escape(str(self.base))}(/tmp\w+)?", "~", text)

    def python(self, code: str) -> None:
        named = re.match(r"# ([\w-]+\.py)\n", code)
        if named:
            (self.here / named[1]).write_text(code)
            return
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self.here,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SessionError(f"{code}\n{done.stderr}")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the other side is closed
        return b""


def environment(home: Path) -> dict[str, str]:
    # The plans of an ordinary machine, wherever the pages are made.
    speeds.keep(home / ".cache" / "dlv", speeds.ORDINARY)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DLV_", "XDG_", "GIT_"))}
    return kept | {
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "TERM": "xterm",
        "NO_COLOR": "1",
        "COLUMNS": str(WIDTH),
        "DLV_PAGER": "cat",
        "DLV_USER_NAME": "Ada Lovelace",
        "DLV_CORE_HINTS": "false",
        "DLV_NOW": NOW,  # the same ids again
    }


def make_demo(folder: Path) -> Path:
    """The repository that most pages work in."""
    subprocess.run(
        [sys.executable, "-m", "dlv", "demo", "demo"],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return folder / "demo"


def replay(text: str, demo: Path) -> str:
    """The page with what its commands print now."""
    blocks = list(BLOCK.finditer(text))
    if not blocks:
        return text
    with tempfile.TemporaryDirectory() as base:
        session = Session(Path(base).resolve(), demo)
        parts, at = [], 0
        for block in blocks:
            parts.append(text[at : block.start(3)])
            if "empty" in block[2].split():
                session.begin()
            if "made" in block[2].split():
                session.go_to_made()
            parts.append(_block(session, block[1], block[2], block[3]))
            at = block.end(3)
    return "".join([*parts, text[at:]])


def _block(session: Session, kind: str, options: str, content: str) -> str:
    if kind == "python":
        session.python(content)
        return content
    most = re.search(r"lines=(\d+)", options)
    shown = []
    for typed in _typed(content.splitlines()):
        command = "\n".join(line[2:] for line in typed)
        printed = session.type(command).rstrip("\n").split("\n")
        if most and len(printed) > int(most[1]):
            printed = [*printed[: int(most[1])], "..."]
        shown += [*typed, *(each.rstrip() for each in printed if printed != [""])]
    return "\n".join(shown) + "\n"


def _typed(lines: Sequence[str]) -> Iterator[list[str]]:
    """The lines of each command: more than one if its quotes are open at the end of the first."""
    waiting: list[str] = []
    for line in lines:
        if line.startswith("$ "):
            if waiting:
                yield waiting
            waiting = [line]
        elif waiting and line.startswith(">") and _open("\n".join(waiting)):
            waiting.append(line)
    if waiting:
        yield waiting


def _open(text: str) -> bool:
    try:
        shlex.split(text[2:])
    except ValueError:
        return True
    return False


def main(pages: list[Path]) -> None:
    with tempfile.TemporaryDirectory() as base:
        demo = make_demo(Path(base))
        for page in pages:
            text = page.read_text(encoding="utf-8")
            page.write_text(replay(text, demo), encoding="utf-8")


if __name__ == "__main__":
    given = [Path(name).resolve() for name in sys.argv[1:]]
    main(given or [page for page in PAGES if page.name not in GENERATED])
