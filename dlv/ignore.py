"""`.dlvignore`: which files of a folder `add` and `status` pass over, in git's pattern language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ALWAYS = (".dlv", ".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules")
PARTS = (".dlv-part", ".tmp", ".swp", ".pyc")
FILE = ".dlvignore"


@dataclass(frozen=True)
class Rule:
    pattern: re.Pattern[str]
    keeps: bool
    folders_only: bool


def parse(text: str) -> list[Rule]:
    """The rules of a `.dlvignore`, in order; the last one that matches a path decides."""
    rules = []
    for line in text.splitlines():
        line = line.rstrip()
        if not line or line.startswith("#"):
            continue
        keeps = line.startswith("!")
        line = line.removeprefix("!").removeprefix("\\")
        folders_only = line.endswith("/")
        line = line.rstrip("/")
        anchored = "/" in line
        expression = _translate(line.lstrip("/"))
        rules.append(
            Rule(
                re.compile(expression if anchored else f"(?:.*/)?{expression}"), keeps, folders_only
            )
        )
    return rules


def _translate(pattern: str) -> str:
    result, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            result, at = result + "(?:.*/)?", at + 3
        elif pattern.startswith("**", at):
            result, at = result + ".*", at + 2
        elif pattern[at] == "*":
            result, at = result + "[^/]*", at + 1
        elif pattern[at] == "?":
            result, at = result + "[^/]", at + 1
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            inside = pattern[at + 1 : end].replace("\\", "\\\\")
            inside = "^" + inside[1:] if inside.startswith("!") else inside
            result, at = f"{result}[{inside}]", end + 1
        else:
            result, at = result + re.escape(pattern[at]), at + 1
    return result


def load(root: Path) -> list[Rule]:
    path = root / FILE
    try:
        return parse(path.read_text("utf-8", "replace")) if path.is_file() else []
    except re.error:
        return []


def ignored(rules: list[Rule], path: str, *, folder: bool) -> bool:
    name = path.rpartition("/")[2]
    if name in ALWAYS or name.endswith(PARTS):
        return True
    result = False
    for rule in rules:
        if (folder or not rule.folders_only) and rule.pattern.fullmatch(path):
            result = not rule.keeps
    return result


def walk(root: Path, folder: Path) -> Iterator[Path]:
    """The files below `folder` in the order of their names; links to folders are not followed."""
    rules = load(root)
    pending = [folder]
    while pending:
        here = pending.pop()
        below = []
        for entry in sorted(here.iterdir(), key=lambda path: path.name):
            inside = entry.is_relative_to(root)
            path = entry.relative_to(root).as_posix() if inside else entry.name
            is_folder = entry.is_dir() and not entry.is_symlink()
            if ignored(rules, path, folder=is_folder):
                continue
            if is_folder:
                below.append(entry)
            elif entry.is_file():
                yield entry
        pending += reversed(below)
