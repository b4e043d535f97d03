"""What stood around a commit: read from the user's git without running anything of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dlv.repository.environment import describe, git_environment, packages, run_git, user_git

UNKNOWN = {"head": None, "dirty": "unknown"}


def git(folder: Path, *arguments: str) -> str:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environ |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    names = ["-c", "user.name=x", "-c", "user.email=x@y", "-c", "init.defaultBranch=main"]
    return subprocess.run(
        ["git", *names, *arguments], cwd=folder, env=environ, check=True, capture_output=True
    ).stdout.decode()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q")
    (root / "a.txt").write_text("a")
    git(root, "add", "a.txt")
    git(root, "commit", "-qm", "first")
    return root


def test_outside_git(tmp_path: Path) -> None:
    assert user_git(tmp_path) is None


def test_clean_and_dirty(project: Path) -> None:
    head = git(project, "rev-parse", "HEAD").strip()
    assert user_git(project) == {"head": head, "dirty": False}
    (project / "new.txt").write_text("untracked files say nothing")
    assert user_git(project) == {"head": head, "dirty": False}
    (project / "a.txt").write_text("b")
    assert user_git(project) == {"head": head, "dirty": True}
    (project / "sub").mkdir()
    assert user_git(project / "sub") == {"head": head, "dirty": True}


def test_no_commit_yet(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert user_git(tmp_path) == {"head": None, "dirty": False}


def test_a_broken_repository_is_unknown(project: Path) -> None:
    (project / ".git/HEAD").write_text("nonsense")
    assert user_git(project) == UNKNOWN
    (project / ".git/config").write_text("[core\n")
    assert user_git(project) == UNKNOWN


def test_without_git(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(project))
    assert user_git(project) == UNKNOWN
    assert run_git(["version"], project) is None


# Hostile repositories. Each of these runs the script when plain git is asked.

Arm = Callable[[Path, str], None]


def set_config(project: Path, text: str) -> None:
    with (project / ".git/config").open("a") as out:
        out.write(text)


def fsmonitor(project: Path, script: str) -> None:
    set_config(project, f"[core]\n\tfsmonitor = {script}\n")


def clean_filter(project: Path, script: str) -> None:
    set_config(project, f'[filter "evil"]\n\tclean = {script}\n')
    (project / ".gitattributes").write_text("* filter=evil\n")


def process_filter(project: Path, script: str) -> None:
    set_config(project, f'[FILTER "evil"]\n\tprocess = {script}\n')
    (project / ".gitattributes").write_text("* filter=evil\n")


def included_filter(project: Path, script: str) -> None:
    set_config(project, "[include]\n\tpath = ../evil\n")
    (project / "evil").write_text(f'[filter "evil"]\n\tclean = {script}\n')
    (project / ".gitattributes").write_text("* filter=evil\n")


def conditional_filter(project: Path, script: str) -> None:
    set_config(project, '[includeIf "gitdir:**"]\n\tpath = ../evil\n')
    (project / "evil").write_text(f'[filter "evil"]\n\tclean = {script}\n')
    (project / ".gitattributes").write_text("* filter=evil\n")


def worktree_filter(project: Path, script: str) -> None:
    set_config(project, "[extensions]\n\tworktreeConfig = true\n")
    (project / ".git/config.worktree").write_text(f'[filter "evil"]\n\tclean = {script}\n')
    (project / ".gitattributes").write_text("* filter=evil\n")


def hooks(project: Path, script: str) -> None:
    set_config(project, "[core]\n\thooksPath = hooks\n")
    (project / "hooks").mkdir()
    for name in ("post-index-change", "fsmonitor-watchman", "reference-transaction"):
        (project / "hooks" / name).symlink_to(script)
        (project / ".git/hooks").mkdir(exist_ok=True)
        (project / ".git/hooks" / name).unlink(missing_ok=True)
        (project / ".git/hooks" / name).symlink_to(script)


def embedded_bare(project: Path, script: str) -> None:
    """A folder with the parts of a bare repository, nearer than `.git`."""
    git(project, "init", "-q", "--bare", "inner")
    config = project / "inner/config"
    config.write_text(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n"
        f"\tfsmonitor = {script}\n"
    )


def pagers(project: Path, script: str) -> None:
    text = f"[core]\n\tpager = {script}\n\teditor = {script}\n\tsshCommand = {script}\n"
    set_config(project, text + f"[pager]\n\tstatus = {script}\n[diff]\n\texternal = {script}\n")
    set_config(project, f"[alias]\n\tstatus = !{script}\n\trev-parse = !{script}\n")


ARMS = [fsmonitor, clean_filter, process_filter, included_filter, conditional_filter]
ARMS += [worktree_filter, hooks, embedded_bare, pagers]


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.__name__)
def test_nothing_is_executed(project: Path, arm: Arm, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = project.parent / "executed"
    script = project.parent / "script"
    script.write_text(f"#!/bin/sh\ntouch '{marker}'\ncat\n")
    script.chmod(0o755)
    arm(project, str(script))
    os.utime(project / "a.txt", ns=(1, 1))  # so that git has to look at the content
    monkeypatch.setenv("GIT_PAGER", str(script))
    monkeypatch.setenv("GIT_SSH_COMMAND", str(script))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", f"'core.fsmonitor={script}'")
    place = project / "inner" if arm is embedded_bare else project
    found = user_git(place)
    assert not marker.exists()
    assert found is not None
    if arm in (fsmonitor, hooks, pagers):
        assert found == {"head": git_head(project), "dirty": False}
    else:
        assert found == UNKNOWN


def git_head(project: Path) -> str:
    name = (project / ".git/HEAD").read_text().split()[-1]
    return (project / ".git" / name).read_text().strip()


def test_the_trap_works(project: Path) -> None:
    """The marker of the test above does appear when git is asked in the usual way."""
    marker, script = project.parent / "executed", project.parent / "script"
    script.write_text(f"#!/bin/sh\ntouch '{marker}'\n")
    script.chmod(0o755)
    fsmonitor(project, str(script))
    subprocess.run(["git", "status"], cwd=project, check=False, capture_output=True)
    assert marker.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to give files away")
def test_a_foreign_owner_is_unknown(project: Path) -> None:
    os.chown(project, 12345, 12345)
    os.chown(project / ".git", 12345, 12345)
    assert user_git(project) == UNKNOWN


def test_the_user_s_repository_is_not_touched(project: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in sorted((project / ".git").rglob("*"))}
    os.utime(project / "a.txt", ns=(1, 1))
    user_git(project)
    assert {p: p.stat().st_mtime_ns for p in sorted((project / ".git").rglob("*"))} == before


def test_variables() -> None:
    kept = git_environment({"PATH": "/bin", "GIT_DIR": "/x", "GIT_CONFIG_COUNT": "9", "A": "b"})
    assert (kept["PATH"], kept["A"]) == ("/bin", "b")
    assert "GIT_DIR" not in kept
    count = int(kept["GIT_CONFIG_COUNT"])
    pairs = {kept[f"GIT_CONFIG_KEY_{i}"]: kept[f"GIT_CONFIG_VALUE_{i}"] for i in range(count)}
    assert pairs["core.fsmonitor"] == "false"
    assert pairs["core.hooksPath"] == "/dev/null"
    assert pairs["protocol.allow"] == "never"
    assert f"GIT_CONFIG_KEY_{count}" not in kept


def test_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, names in (
        (first, ["torch-2.13.0.dist-info", "NumPy-2.4.0.dist-info", "click-8.5.dist-info"]),
        (second, ["torch-1.0.dist-info", "pytorch_lightning-2.0.dist-info", "torch-9.egg-info"]),
    ):
        for name in names:
            (folder / name).mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "gone"), str(first), str(second)])
    assert packages() == {"numpy": "2.4.0", "pytorch-lightning": "2.0", "torch": "2.13.0"}


def test_describe(tmp_path: Path) -> None:
    found = describe(tmp_path)
    assert found["git"] is None
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "numpy" in found["packages"]
