"""The text of a configuration file: read, changed line by line, replaced as a whole."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from dlv.errors import StorageError, UsageError, denied

MAX_BYTES = 1 << 20


def lines_of(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        found = denied(path) if isinstance(error, PermissionError) else None
        why, hint = found or (error.strerror, _way(path))
        raise StorageError(f"cannot read `{path}`", why=why, hint=hint) from error
    if len(data) > MAX_BYTES:
        why = f"the limit is {MAX_BYTES} bytes"
        raise UsageError(f"{path} is too large", why=why, hint=_way(path))
    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8", why=str(error), hint=_way(path)) from error
    return text.removesuffix("\n").split("\n") if text else []


def parsed(path: Path, lines: list[str]) -> dict[str, Any]:
    if all(not line.strip() or line.startswith("#") for line in lines):
        return {}
    try:
        import tomllib

        return tomllib.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:  # a number may have too many digits, too
        raise UsageError(f"{path} is not TOML", why=str(error), hint=_way(path)) from error


def _way(path: Path) -> str:
    """How to go on without a file that cannot be read."""
    if path.parent.name == ".dlv":
        return f"edit {path}, or dlv fsck --repair sets it aside and begins a new one"
    return f"edit it, or move it away: mv {path} {path}.old"


_HEADER = re.compile(r"""\s*\[\s*["']?([A-Za-z0-9-]+)["']?\s*\]\s*(?:#.*)?$""")
_ENTRY = re.compile(r"""\s*(?:["']?([A-Za-z0-9-]+)["']?\s*\.\s*)?["']?([A-Za-z0-9-]+)["']?\s*=""")


def find(lines: list[str], table: str, name: str) -> tuple[int | None, int | None]:
    """Index of the key's line, and of where a new line of its table would go."""
    inside, at, end = "", None, None
    for i, text in enumerate(lines):
        header = _HEADER.match(text)
        if header or text.lstrip().startswith("["):
            inside = header.group(1) if header else "\0"
            end = i + 1 if inside == table else end
            continue
        entry = _ENTRY.match(text)
        if entry is None:
            continue
        if (entry.group(1) or inside, entry.group(2)) == (table, name):
            at = i
        if inside == table:
            end = i + 1
    return at, end


def line_of(lines: list[str], table: str, name: str) -> int | None:
    at = find(lines, table, name)[0]
    return None if at is None else at + 1


def left(line: str) -> str:
    """The key as it is written in the file, up to its value."""
    found = _ENTRY.match(line)
    return f"{found.group()} " if found else ""


def comment(line: str) -> str:
    """The comment behind a value that stays, if one can be told from the value."""
    found = re.match(r"""[^#"']*=\s*(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^#"']*?)(\s*#.*)$""", line)
    return found.group(1) if found else ""


def write(path: Path, lines: list[str], key: str, expected: object) -> None:
    """Replace the file at once, after reading the new text back."""
    document = parsed(path, lines)
    table, _, name = key.partition(".")
    if document.get(table, {}).get(name) != expected:
        raise UsageError(
            f"cannot change `{key}` in {path}",
            why="the file is written in a way this does not understand",
            hint=f"edit {path} by hand",
        )
    import dlv.disk.user_files as user_files

    text = "".join(f"{line}\n" for line in lines)
    user_files.write(path, text.encode(), mode=0o644, folders=True)
