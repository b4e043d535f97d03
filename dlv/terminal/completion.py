"""What the shell offers after TAB: one read-only query, never an error, never a lock."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete, split_arg_string

from dlv.config import KEYS, Config, repository_file
from dlv.errors import DlvError

MOST = 50
SHELLS = ("bash", "zsh", "fish")

# What was removed or undone is not offered.
_VISIBLE = "state IN ('live', 'recovered')"
_METRIC = "CASE run WHEN '' THEN metric.tag ELSE run || '/' || metric.tag END"
_MEASURED = f"FROM metric JOIN version ON version.id = version_id WHERE {_VISIBLE}"
_NAMES = f"SELECT DISTINCT name AS word FROM version WHERE {_VISIBLE}"
_TAGS = f"SELECT tag.name AS word FROM tag JOIN version ON version.id = version_id WHERE {_VISIBLE}"
# Of the ledger of trials, which is another file.
_OF_TRIALS = ("run",)
_QUERIES = {
    "run": ("SELECT 'latest' AS word", "SELECT substr(id, 1, 12) AS word FROM run"),
    "name": (_NAMES,),
    "tag": (_TAGS,),
    "layer": (
        "SELECT DISTINCT name AS word FROM layer WHERE EXISTS (SELECT 1 FROM node"
        f" JOIN version USING (net_id) WHERE layer_id = layer.id AND {_VISIBLE})",
    ),
    "node": (
        "SELECT DISTINCT word FROM (SELECT id, name AS word FROM layer"
        " UNION SELECT id, alias FROM layer) AS called WHERE word != '' AND EXISTS"
        f" (SELECT 1 FROM node JOIN version USING (net_id) WHERE layer_id = called.id"
        f" AND {_VISIBLE})",
    ),
    "hyperparameter": (
        "SELECT DISTINCT key AS word FROM hyperparameter JOIN version ON version.id = version_id"
        f" WHERE {_VISIBLE}",
    ),
    "saved": ("SELECT name AS word FROM saved_query",),
    "metric": (f"SELECT DISTINCT {_METRIC} AS word {_MEASURED}",),
    "reference": ("SELECT 'HEAD' AS word", _NAMES, _TAGS),
    "number": (
        "SELECT name || '@' || number AS word FROM version"
        f" WHERE number IS NOT NULL AND {_VISIBLE}",
    ),
    "best": (
        f"SELECT DISTINCT name || '@latest' AS word FROM version WHERE {_VISIBLE}",
        f"SELECT DISTINCT version.name || '@best:' || {_METRIC} AS word {_MEASURED}",
    ),
    "id": (f"SELECT substr(hash, 1, 12) AS word FROM version WHERE {_VISIBLE}",),
}

# bash breaks words at : = and @, and replaces only what follows the last of them.
_BASH = """\
_dlv_completion() {
    local line incomplete head type value
    COMPREPLY=()
    incomplete="${COMP_LINE:0:COMP_POINT}"
    incomplete="${incomplete##*[[:space:]]}"
    head="${incomplete%"${incomplete##*[:=@]}"}"
    while IFS= read -r line; do
        type="${line%%,*}"
        value="${line#*,}"
        if [[ $type == dir ]]; then
            compopt -o dirnames
        elif [[ $type == file ]]; then
            compopt -o default
        else
            COMPREPLY+=("${value#"$head"}")
        fi
    done < <(COMP_LINE="${COMP_LINE:0:COMP_POINT}" _DLV_COMPLETE=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F _dlv_completion dlv
"""


class _Bash(BashComplete):
    """Reads the line itself: COMP_WORDS has `lenet@3` in three pieces."""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        incomplete = "" if line[-1:].isspace() or not words else words.pop()
        return words[1:], incomplete


def script(shell: str) -> str:
    """What the shell must run once to complete `dlv`."""
    if shell == "bash":
        return _BASH
    made = (ZshComplete if shell == "zsh" else FishComplete)(
        click.Command("dlv"), {}, "dlv", "_DLV_COMPLETE"
    )
    return made.source().strip("\n") + "\n"


def install_path(shell: str, environ: Mapping[str, str]) -> Path:
    """Where the shell looks for completions of one user."""
    home = Path(environ.get("HOME") or "~").expanduser()
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    if shell == "bash":
        return data / "bash-completion" / "completions" / "dlv"
    if shell == "zsh":
        return data / "zsh" / "site-functions" / "_dlv"
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "fish/completions/dlv.fish"


def answer(program: click.Command, name: str, variable: str, instruction: str) -> None:
    """Print the completions that the shell asks for."""
    shell, _, action = instruction.partition("_")
    classes = {"bash": _Bash, "zsh": ZshComplete, "fish": FishComplete}
    if shell not in classes or action not in ("source", "complete"):
        return
    if action == "source":
        sys.stdout.write(script(shell))
        return
    asked = classes[shell](program, {"obj": {}}, name, variable)
    sys.stdout.write(asked.complete() + "\n")
    sys.stdout.flush()


def complete(
    kind: str, incomplete: str, directory: str = ".", environ: Mapping[str, str] = os.environ
) -> list[str]:
    """At most 50 words of a kind that begin with `incomplete`; none if anything goes wrong."""
    if kind == "key":
        return [key for key in KEYS if key.startswith(incomplete)]
    if kind == "remote":
        with contextlib.suppress(DlvError):
            path = repository_file(Path(directory), environ.get("DLV_DIR"))
            remotes = Config.load(path, environ).remotes()
            return sorted(name for name in remotes if name.startswith(incomplete))
        return []
    # `lenet@` asks for a number, `lenet@b` for the best by a metric, four hex digits for an id;
    # anything else is a bare word.
    if kind == "reference" and "@" in incomplete:
        kind = "best" if incomplete.partition("@")[2][:1].isalpha() else "number"
    words: list[str] = []
    with contextlib.suppress(sqlite3.Error, OSError, ValueError):
        words = _ask(kind, incomplete, directory, environ)
        if kind == "reference" and not words and len(incomplete) >= 4:
            words = _ask("id", incomplete, directory, environ)
    return words


def _ask(kind: str, incomplete: str, directory: str, environ: Mapping[str, str]) -> list[str]:
    beside = repository_file(Path(directory), environ.get("DLV_DIR"))
    if kind not in _QUERIES or beside is None:
        return []
    name = "trials.db" if kind in _OF_TRIALS else "dlv.db"
    uri = beside.with_name(name).absolute().as_uri() + "?mode=ro"
    union = " UNION ALL ".join(_QUERIES[kind])
    query = f"SELECT word FROM ({union}) WHERE substr(word, 1, ?) = ? LIMIT {MOST}"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=0)) as database:
        rows: list[Any] = database.execute(query, (len(incomplete), incomplete)).fetchall()
    return [str(row[0]) for row in rows]
