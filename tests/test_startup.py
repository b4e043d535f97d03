"""What a command loads before it does anything: heavy modules cost more than the work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dlv.cli as cli

HEAVY = {"numpy", "torch", "git", "networkx", "rich", "lark", "scipy", "difflib", "asyncio"}
ROOT = Path(cli.__file__).resolve().parent.parent

# Runs dlv and reports the modules that it loaded; what an editable install brings is not its.
PROBE = """\
import sys
before = set(sys.modules)
from dlv.cli import run
code = run(sys.argv[1:])
sys.stdout.flush()
print(code, *sorted(set(sys.modules) - before), file=sys.stderr)
"""


def loaded(folder: Path, *args: str, **environ: str) -> tuple[int, set[str], str]:
    """Exit code, top-level modules and command files loaded, output."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DLV_", "XDG_"))}
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *args],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), "HOME": str(folder), **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    code, *names = done.stderr.splitlines()[-1].split()
    commands = {n for n in names if n.startswith("dlv.commands.")}
    return int(code), {n.partition(".")[0] for n in names} | commands, done.stdout


def test_help_loads_no_command(tmp_path: Path) -> None:
    code, names, text = loaded(tmp_path, "--help")
    assert code == 0
    assert not names & HEAVY
    assert "config" in text
    assert {n for n in names if n.startswith("dlv.commands.")} == {
        "dlv.commands.shared",
        "dlv.commands.shared.options",
        "dlv.commands.shared.topics",
    }
    assert not names & {"pathlib", "json", "subprocess", "traceback", "dataclasses"}


@pytest.mark.parametrize("name", [name for name, _, _ in cli.all_commands()])
def test_help_of_a_command_loads_no_verb(tmp_path: Path, name: str) -> None:
    code, names, _ = loaded(tmp_path, *name.split(), "--help")
    assert code == 0
    assert not names & (HEAVY | {"sqlite3", "sqlalchemy", "starlette"})


@pytest.mark.parametrize("name", ["status", "list", "log", "config"])
def test_quick_commands_stay_light(tmp_path: Path, name: str) -> None:
    if name not in cli.COMMANDS:
        pytest.skip(f"dlv {name} does not exist yet")
    if "init" in cli.COMMANDS:
        assert loaded(tmp_path, "init")[0] == 0
    code, names, _ = loaded(tmp_path, name)
    assert code in (0, 4)
    assert not names & HEAVY


def test_queries_for_rows_load_no_numbers(tmp_path: Path) -> None:
    assert loaded(tmp_path, "init")[0] == 0
    words = 'select m where m[CONV].next has RELU and m.name like "a%" order by m.number'
    code, names, _ = loaded(tmp_path, "query", words)
    assert code == 0
    assert "lark" in names, "the first query of all makes the tables of the grammar"
    assert not names & ((HEAVY - {"lark"}) | {"prompt_toolkit", "pandas"})
    _, again, _ = loaded(tmp_path, "query", words)
    assert not again & HEAVY


# Of the standard library, what costs milliseconds and is not needed to look at a repository.
SLOW = {"tempfile", "random", "secrets", "shutil", "subprocess", "_strptime", "tomllib", "hashlib"}


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a version, a tag, a removed version and something staged."""
    folder = tmp_path_factory.mktemp("used")
    (folder / "train.py").write_text("print(1)\n")
    for words in (
        "init",
        "add train.py",
        "commit -m first --name net --param lr=0.1",
        "tag good",
        "commit -m second --allow-empty",
        "rm net@2",
        "add train.py",
    ):
        assert loaded(folder, *words.split())[0] == 0
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "status",
        "list",
        "list --json",
        "list --where lr=0.1 --since 2w --sort lr",
        "list --names",
        "log",
        "log --graph --all",
        "log --json",
    ],
)
def test_looking_at_a_repository_loads_nothing_slow(used: Path, words: str) -> None:
    code, names, text = loaded(used, *words.split())
    assert code == 0
    assert "net" in text
    assert not names & (HEAVY | SLOW)


@pytest.mark.parametrize("section", ["--params", "--metrics", "--files", "--network"])
def test_a_diff_without_weights_loads_no_numbers(used: Path, section: str) -> None:
    code, names, text = loaded(used, "diff", "net@1", "HEAD", section)
    assert code == 0
    assert "net" in text
    assert not names & (HEAVY - {"difflib"})


def test_a_commit_of_weights_loads_only_what_it_uses(tmp_path: Path) -> None:
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    model = len(header).to_bytes(8, "little") + header + bytes(8)
    (tmp_path / "net.safetensors").write_bytes(model)
    for words in ("init", "add net.safetensors"):
        assert loaded(tmp_path, *words.split())[0] == 0
    code, names, _ = loaded(tmp_path, "commit", "-m", "first", "--name", "net")
    assert code == 0
    assert "numpy" in names
    # difflib is click's, for every short option.
    assert names & (HEAVY | SLOW) <= {"numpy", "difflib"}


PROCESS = """\
import atexit, gc, os, sys
atexit.register(lambda: print(gc.get_freeze_count() > 1000, gc.isenabled(), file=sys.stderr))
from dlv.cli import main
main()
"""


@pytest.mark.parametrize("words", ["list", "no-such-command"])
def test_the_end_of_a_process_looks_for_no_garbage(tmp_path: Path, words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (2, 3)
    assert done.stderr.splitlines()[-1] == "True True"


@pytest.mark.parametrize("words", ["dlv ", "dlv conf", "dlv config ", "dlv config --", "dlv list "])
def test_completion_stays_light(tmp_path: Path, words: str) -> None:
    code, names, _ = loaded(
        tmp_path, _DLV_COMPLETE="bash_complete", COMP_LINE=words, COMP_POINT=str(len(words))
    )
    assert code == 0
    assert not names & HEAVY


def test_the_probe_sees_what_is_loaded(tmp_path: Path) -> None:
    _, names, _ = loaded(tmp_path, "config", "no.such")  # did-you-mean needs difflib
    assert "difflib" in names
