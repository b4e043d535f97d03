"""Where a user's programs keep what is theirs: what can be made again, and what is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def cache(environ: Mapping[str, str]) -> Path:
    """What can be made again."""
    return _folder(environ, "XDG_CACHE_HOME", ".cache")


def state(environ: Mapping[str, str]) -> Path:
    """What one would miss, but can do without: a history of what was typed."""
    return _folder(environ, "XDG_STATE_HOME", ".local/state")


def _folder(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    home = Path(environ.get("HOME") or "~").expanduser()
    return Path(environ.get(variable) or home / usual) / "dlv"
