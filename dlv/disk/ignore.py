"""`.dlvignore`: which files of a folder `add` and `status` skip, in git's pattern language."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from dlv.dataclass import dataclass

ALWAYS = (".dlv", ".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules")
PARTS = (".dlv-part", ".tmp", ".swp", ".pyc")
FILE = ".dlvignore"

_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": r"\ \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": r"\ -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\ \t-\r",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}


@dataclass(frozen=True)
class Rule:
    pattern: re.Pattern[str]
    keeps: bool
    folders_only: bool


def parse(text: str) -> list[Rule]:
    """The rules of a `.dlvignore`, in order; the last one that matches a path decides."""
    rules = []
    for line in text.removeprefix("\ufeff").split("\n"):
        line = _without_blanks(line.removesuffix("\r"))
        if not line or line.startswith("#"):
            continue
        keeps = line.startswith("!")
        line = line.removeprefix("!")
        folders_only = line.endswith("/")
        line = line.removesuffix("/")
        anchored = "/" in line
        expression = _translate(line.removeprefix("/"), anchored)
        if line and expression is not None:
            prefix = "" if anchored else "(?:.*/)?"
            rules.append(Rule(re.compile(prefix + expression, re.DOTALL), keeps, folders_only))
    return rules


def _without_blanks(line: str) -> str:
    """Blanks at the end count only behind a backslash."""
    plain = line.rstrip(" ")
    escapes = len(plain) - len(plain.rstrip("\\"))
    return line[: len(plain) + 1] if escapes % 2 and len(line) > len(plain) else plain


def _translate(pattern: str, anchored: bool) -> str | None:
    """The regular expression of a pattern; None if it can never match."""
    result, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            piece, at = _stars(pattern, at, anchored)
        elif char == "?":
            piece, at = "[^/]", at + 1
        elif char == "[":
            found = _bracket(pattern, at + 1)
            if found is None:
                return None
            piece, at = found
        elif char == "\\":
            if at + 1 == len(pattern):
                return None
            piece, at = re.escape(pattern[at + 1]), at + 2
        else:
            piece, at = re.escape(char), at + 1
        result += piece
    return result


def _stars(pattern: str, position: int, anchored: bool) -> tuple[str, int]:
    """`**` as a whole component is any number of folders, elsewhere it is the same as `*`."""
    end = position
    while end < len(pattern) and pattern[end] == "*":
        end += 1
    whole = position == 0 or pattern[position - 1] == "/"
    if anchored and end - position > 1 and whole:
        if end == len(pattern):
            return ".*", end
        if pattern[end] == "/":
            return "(?:.*/)?", end + 1
    return "[^/]*", end


def _bracket(pattern: str, position: int) -> tuple[str, int] | None:
    """The set that begins at `position`, and where it ends; None if it does not."""
    negated = pattern[position : position + 1] in ("!", "^")
    position += negated
    members, last, first = "", "", True
    while first or pattern[position : position + 1] != "]":
        first = False
        if position >= len(pattern):
            return None
        if pattern.startswith("[:", position) and (end := pattern.find(":]", position)) > 0:
            if pattern[position + 2 : end] not in _CLASSES:
                return None
            members += _CLASSES[pattern[position + 2 : end]]
            last, position = "", end + 2
            continue
        ranged = (
            pattern[position] == "-"
            and last
            and pattern[position + 1 : position + 2] not in ("", "]")
        )
        position += bool(ranged)
        position += pattern[position] == "\\"
        if position >= len(pattern):
            return None
        if not ranged:
            last = pattern[position]
            members += re.escape(last)
        else:
            if last <= pattern[position]:
                members += f"{re.escape(last)}-{re.escape(pattern[position])}"
            last = ""
        position += 1
    if negated:
        return f"[^/{members}]", position + 1
    return (f"(?!/)[{members}]" if members else "(?!)"), position + 1


def load(root: Path) -> list[Rule]:
    path = root / FILE
    return parse(path.read_text("utf-8", "surrogateescape")) if path.is_file() else []


def ignored(rules: list[Rule], path: str, *, folder: bool) -> bool:
    name = path.rpartition("/")[2]
    if name in ALWAYS or name.endswith(PARTS):
        return True
    result = False
    for rule in rules:
        if (folder or not rule.folders_only) and rule.pattern.fullmatch(path):
            result = not rule.keeps
    return result


def walk(
    root: Path,
    folder: Path,
    part: Callable[[Path], object] = lambda _: None,
    unreadable: Callable[[Path], object] | None = None,
) -> Iterator[Path]:
    """Yield the files below `folder` in the order of their names.

    Links to folders are not followed, and other dlv repositories are left alone. `part` gets
    files that an interrupted dlv left, `unreadable` folders that cannot be listed; without it,
    these are errors.
    """
    rules = load(root)
    pending = [folder]
    while pending:
        here = pending.pop()
        below = []
        try:
            entries = sorted(here.iterdir(), key=lambda path: path.name)
        except PermissionError:
            if unreadable is None:
                raise
            unreadable(here)
            continue
        if here not in (root, folder) and any(entry.name == ".dlv" for entry in entries):
            continue
        for entry in entries:
            inside = entry.is_relative_to(root)
            path = entry.relative_to(root).as_posix() if inside else entry.name
            is_folder = entry.is_dir() and not entry.is_symlink()
            if ignored(rules, path, folder=is_folder):
                if entry.name.endswith(PARTS[0]) and not is_folder:
                    part(entry)
                continue
            if is_folder:
                below.append(entry)
            elif entry.is_file():
                yield entry
        pending += reversed(below)
