"""`.dlvignore` against git itself."""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from dlv.disk.ignore import ignored, load, parse, walk

NAMES = [
    "a",
    "b",
    "ab",
    "a.b",
    "x.pt",
    "a-b",
    "[a]",
    "a b",
    "b ",
    "#a",
    "!a",
    "c]",
    "\\a",
    "A",
    "*",
]
PIECES = [
    "a",
    "b",
    "ab",
    "*",
    "?",
    "**",
    "/",
    "/",
    ".pt",
    "[ab]",
    "[!a]",
    "[^b]",
    "[a-c]",
    "-",
    " ",
]
PIECES += [
    "\\",
    "[",
    "]",
    "[]a]",
    "[a\\]]",
    "[[:alpha:]]",
    "[c-a]",
    "!",
    "#",
    "x",
    "**/",
    "/**",
    "\\ ",
]
PIECES += ["[a-]", "[-a]", "[\\a-b]", "[[:digit:]x]", "[[:what:]]", "[!]a]", "a*b", "*.pt", "A"]


def git(folder: Path, *arguments: str) -> bytes:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environ |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    return subprocess.run(
        ["git", *arguments], cwd=folder, env=environ, check=True, capture_output=True
    ).stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every name as a file, and as a folder with every name in it, and one level deeper."""
    root = tmp_path_factory.mktemp("tree")
    git(root, "init", "-q")
    for number, name in enumerate(NAMES):
        if number % 3:
            (root / name).write_text("")
            continue
        for inner in NAMES:
            (root / name).mkdir(exist_ok=True)
            if inner in ("a", "ab", "x.pt"):
                (root / name / inner).mkdir()
                for leaf in ("a", "b", "x.pt", "a.b"):
                    (root / name / inner / leaf).write_text("")
            else:
                (root / name / inner).write_text("")
    return root


def compare(tree: Path, rules: str) -> None:
    (tree / ".dlvignore").write_bytes(rules.encode())
    try:
        found = {path.relative_to(tree).as_posix() for path in walk(tree, tree)}
        listed = git(tree, "ls-files", "-z", "--others", "--exclude-from=.dlvignore")
        wanted = set(listed.decode().split("\0")) - {""}
        assert found == wanted, rules
    finally:
        (tree / ".dlvignore").unlink()


@pytest.mark.parametrize("seed", range(12))
def test_random_patterns_as_git_reads_them(tree: Path, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(15):
        lines = [
            "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 5)))
            for _ in range(rng.randint(1, 3))
        ]
        if rng.random() < 0.4:
            lines.append("!" + rng.choice(["a", "*.pt", "/a/ab", "b", "*/b"]))
        # Older gits compare pointers of two texts there: `a**/b` works or not by chance.
        if not any(re.search(r"[^/]\*\*", line) for line in lines):
            compare(tree, rng.choice(["\n", "\n", "\r\n"]).join(lines) + "\n")


@pytest.mark.parametrize(
    "rules",
    [
        "",
        "*",
        "*\n!a.b",
        "/a",
        "a/",
        "a/b",
        "*/x.pt",
        "**/x.pt",
        "a/**",
        "a/**/b",
        "/**",
        "**",
        "a**b",
        "\\#a",
        "\\!a",
        "# a",
        "b\\ ",
        "b ",
        "a b   ",
        "\\*",
        "\\[a\\]",
        "[[]a]",
        "[z-a]",
        "[a",
        "a\\",
        "/",
        "//",
        "!",
        "a//",
        "\\\\a",
        "\ufeffa",
        "a\r\nb\r\n",
        "[!/]",
        "a[/]b",
        "?.?",
        "[[:upper:]]",
        "[[:nothing:]]",
        "[A-Ca]*",
    ],
)
def test_known_patterns_as_git_reads_them(tree: Path, rules: str) -> None:
    compare(tree, rules)


def test_always_ignored(tmp_path: Path) -> None:
    for name in (".git/x", ".dlv/x", "__pycache__/x", "a/.venv/x", "m.pyc", "w.pt.dlv-part", "k"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert [path.name for path in walk(tmp_path, tmp_path)] == ["k"]
    assert ignored([], "a/.git", folder=True)


def test_links_and_odd_things_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("")
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "file").symlink_to("real/file")
    (tmp_path / "nowhere").symlink_to("gone")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    found = [path.relative_to(tmp_path).as_posix() for path in walk(tmp_path, tmp_path)]
    assert found == ["file", "real/file"]


def test_order_and_a_folder_outside(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    for folder in (root, other / "b", other / "a"):
        folder.mkdir(parents=True)
    (root / ".dlvignore").write_text("*.log\n")
    for name in ("z", "b/1", "a/2", "a/1", "x.log"):
        (other / name).write_text("")
    found = [path.relative_to(other).as_posix() for path in walk(root, other)]
    assert found == ["z", "a/1", "a/2", "b/1"]


def test_no_file_no_rules(tmp_path: Path) -> None:
    assert load(tmp_path) == []
    (tmp_path / ".dlvignore").write_bytes(b"\xff\xfe[\nb\n")
    assert len(load(tmp_path)) == 1  # the first can match nothing
    assert len(parse("a\n\n#b\n \nc")) == 2
