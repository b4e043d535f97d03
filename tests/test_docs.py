"""The documentation says what the program does, and its examples run."""

from __future__ import annotations

import ast
import contextlib
import inspect
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

import dlv.cli as cli
from dlv.commands.shared.options import Command, Group
from tests.hub.running import running_hub

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE_HUB = "https://hub.example.com"
SERVERS = {"tensorboard", "ui", "hub serve"}  # they run until they are told to end
WITHOUT_REPOSITORY = {"config", "completion.", "init", "demo", "doctor"}


ALL = {name: (command, summary) for name, command, summary in cli.all_commands()}
# Those that do something, such as `hub user add`; not `hub` and `hub user`.
VERBS = [name for name, (command, _) in ALL.items() if not isinstance(command, Group)]


def command_of(name: str) -> Command | Group:
    command = ALL[name][0]
    assert isinstance(command, (Command, Group)), f"{name} was not made with @command"
    return command


def advice() -> list[tuple[str, str]]:
    """(where, text) of each hint and reason that the program can give."""
    found = []
    for path in sorted((ROOT / "dlv").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg in ("hint", "why"):
                place = f"{node.arg} in {path.relative_to(ROOT)}:{node.lineno}"
                texts = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
                found += [(place, text) for text in texts if isinstance(text, str)]
    return found


def test_hints_name_options_and_commands_that_exist() -> None:
    commands = [command_of(name) for name in ALL]
    parameters = [p for made in (cli.program, *commands) for p in made.params]
    options = {name for p in parameters for name in p.opts} | {"--help", "--upgrade"}
    texts = advice()
    assert len(texts) > 200
    for place, text in texts:
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text):
            assert option in options, f"{place}: {text}"
        for name in re.findall(r"^dlv ([a-z]+)", text) if place.startswith("hint") else ():
            assert name in cli.COMMANDS, f"{place}: {text}"


@pytest.mark.parametrize(
    ("tool", "page"), [("reference", "commands"), ("query_reference", "query-reference")]
)
def test_reference_is_up_to_date(tool: str, page: str) -> None:
    made = subprocess.run(
        [sys.executable, f"tools/{tool}.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout == (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"), "make docs"


def test_table_is_in_order() -> None:
    groups = [row[2] for row in cli.COMMANDS.values()]
    assert set(groups) <= set(cli.GROUPS)
    assert not set(cli.ALIASES) & set(cli.COMMANDS)


def test_every_command_file_is_in_the_table() -> None:
    files = {path.stem for path in (ROOT / "dlv" / "commands").glob("*.py")}
    shared = {"__init__", "options", "invocation", "planning", "asking", "watching"}
    shared |= {"evaluating", "query_text"}
    commands = {r[0] for r in cli.COMMANDS.values()} | set(cli.HIDDEN.values())
    assert files - shared == commands


@pytest.mark.parametrize("name", list(ALL))
class TestCommand:
    def test_table_holds_the_first_line_of_the_docstring(self, name: str) -> None:
        command = command_of(name)
        assert command.name == name.rpartition(" ")[2]
        first = inspect.cleandoc(command.help or "").partition("\n")[0]
        assert first == f"{ALL[name][1]}."
        assert len(first) <= 51, "the list of commands must fit a terminal"

    def test_examples_call_it(self, name: str) -> None:
        examples = command_of(name).examples
        assert examples
        words = {name, *(a for a, target in cli.ALIASES.items() if target == name)}
        for line in examples:
            assert any(f"dlv {word}" in line for word in words), line

    def test_every_option_has_help(self, name: str) -> None:
        for parameter in command_of(name).params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.help, parameter.opts

    def test_options_do_not_clash(self, name: str) -> None:
        spellings = [
            o
            for p in command_of(name).params
            if isinstance(p, click.Option)
            for o in (*p.opts, *getattr(p, "aliases", []))
        ]
        assert sorted(spellings) == sorted(set(spellings))

    def test_json_has_a_schema(self, name: str) -> None:
        if name in VERBS:  # `hub user add` and its siblings share one
            file = "-".join(name.split()[:2])
            assert (ROOT / "dlv" / "schemas" / f"{file}.json").exists()

    def test_examples_run(self, name: str, prepared: Path, tmp_path: Path) -> None:
        if name not in VERBS:
            pytest.skip("the commands below it have examples of their own")
        if name not in WITHOUT_REPOSITORY and "demo" not in cli.COMMANDS:
            pytest.skip("no `dlv demo` yet to make a repository with")
        work = tmp_path / "work"
        shutil.copytree(prepared, work, symlinks=True)
        (work / "runs").mkdir()
        with contextlib.ExitStack() as stack:
            hub = None
            for example in command_of(name).examples:
                line = example
                if EXAMPLE_HUB in line:
                    if name == "login" and "--token-stdin" not in line:
                        continue  # it waits for a person
                    hub = hub or stack.enter_context(running_hub(tmp_path / "hub"))
                    (work / "token.txt").write_text(hub.token)
                    line = line.replace(EXAMPLE_HUB, hub.url)
                    if name != "login":
                        line = f"dlv login {hub.url} --token-stdin < token.txt && {line}"
                done = served(line, work) if name in SERVERS else shell(line, work)
                assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository in which the examples run: what `dlv demo` makes, and a home beside it."""
    folder = tmp_path_factory.mktemp("examples") / "demo"
    if "demo" in cli.COMMANDS:
        done = shell(f"dlv demo {folder}", folder.parent)
        assert done.returncode == 0, done.stderr
    else:
        (folder / ".dlv").mkdir(parents=True)
    return folder


def served(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one example until it prints an address, and end it."""
    pipe = subprocess.PIPE
    line = re.sub(r"--port \d+", "--port 0", line)  # other tests may run on this machine
    # What would open a browser opens none.
    environ = {**environment(folder), "BROWSER": "true"}
    process = subprocess.Popen(
        ["sh", "-c", f"exec {line}"], cwd=folder, env=environ, stdout=pipe, stderr=pipe, text=True
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    code = process.returncode if first.startswith("http://") else 1
    return subprocess.CompletedProcess(line, code, first + out, err)


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one example as a user would type it."""
    return subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def environment(folder: Path) -> dict[str, str]:
    """A home of its own, and the program on the path."""
    tools = folder.parent / "bin"
    tools.mkdir(exist_ok=True)
    program = tools / "dlv"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dlv "$@"\n')
    program.chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DLV_", "XDG_"))}
    return {
        **kept,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder.parent),
    }


def test_the_walks_name_what_is_there() -> None:
    """Each row of the walks through the house: files, and the functions in them."""
    text = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
    walks = text[text.index("### Three walks") : text.index("## Working on it")]
    rows = [line.split("|")[2] for line in walks.splitlines() if line.startswith("| ")]
    named = 0
    for row in rows:
        source = ""
        for word in re.findall(r"`([^`]+)`", row):
            if word.endswith(".py"):
                source = (ROOT / "dlv" / word).read_text(encoding="utf-8")
            elif not word.endswith("/"):
                name = word.rpartition(".")[2]
                assert re.search(rf"^\s*(def|class) {name}\b", source, re.MULTILINE), row
                named += 1
    assert named >= 15
