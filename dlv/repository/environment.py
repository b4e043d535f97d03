"""What stood around a commit: the user's git state, Python, packages. Only ever read."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess


# Whose versions explain a training result; read from their folders' names, nothing is imported.
PACKAGES = (
    *("accelerate", "flax", "jax", "keras", "lightning", "mlx", "numpy", "pytorch-lightning"),
    *("safetensors", "scikit-learn", "tensorflow", "timm", "torch", "torchvision", "transformers"),
)

# A hostile repository's configuration can name programs; none of these may run.
_OVERRIDES = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "protocol.allow": "never",
    "gc.auto": "0",
    "core.pager": "cat",
    "safe.bareRepository": "explicit",
}


def git_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables under which git reads no foreign configuration, runs no hook and asks nothing."""
    kept = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
    kept.update(
        GIT_CONFIG_NOSYSTEM="1",
        GIT_CONFIG_GLOBAL=os.devnull,
        GIT_TERMINAL_PROMPT="0",
        GIT_OPTIONAL_LOCKS="0",
        GIT_NO_LAZY_FETCH="1",
        LC_ALL="C",
        GIT_CONFIG_COUNT=str(len(_OVERRIDES)),
    )
    for index, (key, value) in enumerate(_OVERRIDES.items()):
        kept[f"GIT_CONFIG_KEY_{index}"] = key
        kept[f"GIT_CONFIG_VALUE_{index}"] = value
    return kept


def run_git(arguments: list[str], directory: Path) -> subprocess.CompletedProcess[bytes] | None:
    """One git command, hardened; None where there is no git or it hangs."""
    import subprocess

    try:
        import dlv.disk.children as children

        return children.run(
            ["git", *arguments],
            cwd=directory,
            env=git_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def user_git(root: Path) -> dict[str, Any] | None:
    """HEAD, and whether tracked files differ from it: None outside git, "unknown" if unsafe."""
    if not any((folder / ".git").exists() for folder in (root, *root.parents)):
        return None
    unknown: dict[str, Any] = {"head": None, "dirty": "unknown"}
    filters = run_git(["config", "--get-regexp", r"^(filter\.|include)"], root)
    # Exit 1 = no such key. A filter is a command that `status` would run; a foreign owner is 128.
    if filters is None or filters.returncode != 1:
        return unknown
    head = run_git(["rev-parse", "--verify", "--quiet", "HEAD"], root)
    status = run_git(
        ["status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"], root
    )
    if head is None or status is None or status.returncode != 0:
        return unknown
    return {
        "head": head.stdout.decode("ascii", "replace").strip() or None,
        "dirty": bool(status.stdout),
    }


def packages() -> dict[str, str]:
    """Versions of the packages that matter, from the names of their metadata folders."""
    wanted = {name.replace("-", "_"): name for name in PACKAGES}
    found: dict[str, str] = {}
    for entry in sys.path:
        try:
            names = os.listdir(entry or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith(".dist-info"):
                package, _, version = name.removesuffix(".dist-info").partition("-")
                key = wanted.get(package.lower())
                if key is not None:
                    found.setdefault(key, version)
    return dict(sorted(found.items()))


def describe(root: Path) -> dict[str, Any]:
    """The `environment` of a manifest."""
    return {"git": user_git(root), "python": platform.python_version(), "packages": packages()}
