"""The program itself: options before and after, every error in one form, every exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dlv.cli as cli
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import (
    Conflict,
    Damaged,
    DlvError,
    NewerFormat,
    NotARepository,
    NotFound,
    RemoteError,
    StorageError,
    UnsafeInput,
    UsageError,
)
from dlv.terminal.table import Id, Table

Dlv = Callable[..., Any]
ROOT = Path(cli.__file__).resolve().parent.parent


@pytest.fixture
def body(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[Invocation], int | None]]:
    """A command `probe` that calls what the test puts into this list."""
    calls: list[Callable[[Invocation], int | None]] = []

    @command("probe", examples=["dlv probe", "dlv probe x"], exits={5: "the probe is taken"})
    @argument("words", nargs=-1)
    @option("--name", "-n", aliases=["--model_name"], help="A name.")
    def run(call: Invocation, words: tuple[str, ...], name: str | None) -> int | None:
        """Try the machinery."""
        call.output.detail(f"{words} {name}")
        return calls[0](call) if calls else None

    module = ModuleType("dlv.commands.probe")
    module.__dict__["run"] = run
    monkeypatch.setitem(sys.modules, "dlv.commands.probe", module)
    monkeypatch.setitem(cli.COMMANDS, "probe", ("probe", "Try the machinery.", "Upkeep"))
    monkeypatch.setitem(cli.ALIASES, "test", "probe")
    return calls


Body = list[Callable[[Invocation], int | None]]


def raising(error: BaseException) -> Callable[[Invocation], int | None]:
    def call(_: Invocation) -> int | None:
        raise error

    return call


KINDS: list[type[DlvError]] = [
    UsageError, NotARepository, NewerFormat, NotFound, Conflict, Damaged, RemoteError,
    StorageError, UnsafeInput,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("json", [False, True])
def test_each_kind_of_error(dlv: Dlv, body: Body, kind: type[DlvError], json: bool) -> None:
    body.append(raising(kind("what", why="because", hint="dlv next", did_you_mean=["this"])))
    result = dlv("probe", json=json)
    assert result.code == kind.exit_code
    assert result.stdout == ""
    if not json:
        assert result.stderr == (
            "error: what\nnote:  because\nhint:  did you mean `this`? dlv next\n"
        )


def test_exit_codes_are_those_of_the_manual() -> None:
    codes = {kind.kind: kind.exit_code for kind in KINDS}
    assert sorted(codes.values()) == [2, 3, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("where", ["before", "after", "both"])
def test_global_options_on_either_side(dlv: Dlv, body: Body, tmp_path: Path, where: str) -> None:
    seen: list[Invocation] = []
    body.append(lambda call: seen.append(call))
    given = ["-C", str(tmp_path), "-q", "-v", "--debug", "--color=always", "--no-pager", "-j", "3"]
    before = given if where == "before" else ["-C", "/"] if where == "both" else []
    after = given if where != "before" else []
    assert dlv(*before, "probe", *after).code == 0
    (call,) = seen
    assert call.directory == tmp_path
    assert (call.quiet, call.verbose, call.debug, call.colour) == (True, True, True, "always")
    assert (call.pager, call.jobs, call.json) == (False, 3, False)


def test_json_before_the_command(dlv: Dlv) -> None:
    assert dlv("--json", "config").document["schema"] == "dlv/config/1"


def test_defaults(dlv: Dlv, body: Body) -> None:
    seen: list[Invocation] = []
    body.append(lambda call: seen.append(call))
    dlv("probe")
    (call,) = seen
    assert call.jobs == (os.cpu_count() or 1)
    assert (call.quiet, call.verbose, call.debug, call.colour, call.pager) == (
        False, False, False, None, True,
    )  # fmt: skip


@pytest.mark.parametrize("spelling", ["--name", "--model_name", "-n"])
def test_hidden_spellings(dlv: Dlv, body: Body, spelling: str) -> None:
    assert dlv("probe", "-v", spelling, "lenet").stderr == "() lenet\n"
    assert "model_name" not in dlv("probe", "--help").stdout


def test_aliases_of_commands(dlv: Dlv, body: Body) -> None:
    assert dlv("test", "-v", "a").stderr == "('a',) None\n"


def test_double_dash_ends_options(dlv: Dlv, body: Body) -> None:
    assert dlv("probe", "-v", "--", "--name").stderr == "('--name',) None\n"


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("unknown_command", ["confg"]),
        ("unknown_command_far", ["zzzzzz"]),
        ("unknown_option", ["--jsno", "config"]),
        ("abbreviation", ["probe", "--na", "x"]),
        ("typo", ["probe", "--model_nam", "x"]),
        ("missing_value", ["probe", "--name"]),
        ("bad_choice", ["--color", "blue", "probe"]),
        ("bad_number", ["probe", "-j", "0"]),
        ("no_directory", ["-C", "missing", "probe"]),
        ("hostile_name", ["x\x1b[31m\n\u202e"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("mode", ["pipe", "tty", "json"])
def test_usage(dlv: Dlv, snapshot: Dlv, body: Body, name: str, args: list[str], mode: str) -> None:
    result = dlv(*(["--json"] if mode == "json" else []), *args, tty=mode == "tty")
    assert result.code == 2
    assert result.stdout == ""
    snapshot(result)


def test_no_command_is_answered_with_help(dlv: Dlv) -> None:
    result = dlv()
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: dlv ")


def test_help(dlv: Dlv, snapshot: Dlv, body: Body) -> None:
    result = dlv("probe", "-h")
    assert result.code == 0
    snapshot(result)


def test_root_help_has_every_command_in_its_group(dlv: Dlv) -> None:
    text = dlv("--help").stdout
    assert all(f"\n  {name} " in text for name in cli.COMMANDS)
    assert "dlv help TOPIC" in text
    assert max(map(len, text.splitlines())) <= 80


def test_version(dlv: Dlv) -> None:
    assert dlv("--version").stdout.startswith("dlv 0.")


@pytest.mark.parametrize("code", [None, 0, 1])
def test_a_command_gives_its_exit_code(dlv: Dlv, body: Body, code: int | None) -> None:
    body.append(lambda _: code)
    assert dlv("probe").code == (code or 0)


class TestUnexpected:
    def test_io_errors(self, dlv: Dlv, body: Body, snapshot: Dlv) -> None:
        body.append(raising(OSError(28, "No space left on device", "/a/file")))
        result = dlv("probe")
        assert result.code == 8
        snapshot(result)

    def test_memory(self, dlv: Dlv, body: Body) -> None:
        body.append(raising(MemoryError()))
        assert dlv("probe").code == 8

    def test_interrupt(self, dlv: Dlv, body: Body, snapshot: Dlv) -> None:
        body.append(raising(KeyboardInterrupt()))
        result = dlv("probe")
        assert result.code == 130
        snapshot(result)

    @pytest.mark.parametrize("json", [False, True])
    def test_fault(self, dlv: Dlv, body: Body, workspace: Path, json: bool) -> None:
        body.append(raising(ZeroDivisionError("division by zero")))
        result = dlv("probe", json=json)
        assert result.code == 70
        (crash,) = (workspace.parent / "home" / ".cache" / "dlv").iterdir()
        assert crash.stat().st_mode & 0o777 == 0o600
        assert "ZeroDivisionError: division by zero" in crash.read_text()
        assert "arguments: ['probe'" in crash.read_text()
        assert "internal: ZeroDivisionError: division by zero" in result.stderr
        assert str(crash) in result.stderr
        assert "Traceback" not in result.stderr

    def test_fault_without_a_place_for_the_file(
        self, dlv: Dlv, body: Body, workspace: Path
    ) -> None:
        (workspace.parent / "home" / ".cache").write_text("in the way")
        body.append(raising(ZeroDivisionError()))
        result = dlv("probe")
        assert result.code == 70
        assert "--debug" in result.stderr

    def test_debug_shows_the_traceback(self, dlv: Dlv, body: Body) -> None:
        body.append(raising(NotFound("what")))
        result = dlv("probe", "--debug")
        assert result.code == 4
        assert "Traceback" in result.stderr
        assert result.stderr.endswith("error: what\n")


class TestConfirm:
    def ask(self, yes: bool) -> Callable[[Invocation], int | None]:
        return lambda call: call.confirm("Delete?", yes=yes)

    @pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("YES\n", 0), ("n\n", 9), ("", 9)])
    def test_on_a_terminal(self, dlv: Dlv, body: Body, typed: str, code: int) -> None:
        body.append(self.ask(False))
        result = dlv("probe", tty=True, stdin=typed)
        assert result.code == code
        assert result.stderr.startswith("Delete? [y/N] ")

    def test_elsewhere(self, dlv: Dlv, body: Body) -> None:
        body.append(self.ask(False))
        assert dlv("probe", stdin="y\n").code == 9
        assert dlv("probe", json=True, tty=True, stdin="y\n").code == 9

    def test_beforehand(self, dlv: Dlv, body: Body) -> None:
        body.append(self.ask(True))
        result = dlv("probe")
        assert (result.code, result.stderr) == (0, "")


def test_quiet_rows(dlv: Dlv, body: Body) -> None:
    table = Table(["id"], [[Id("a" * 64)]])
    body.append(lambda call: call.output.emit("probe", {}, table))
    assert dlv("probe", "-q").stdout == "a" * 64 + "\n"


@pytest.mark.parametrize("now", ["yesterday", "2026-13-01"])
def test_a_clock_that_is_none(dlv: Dlv, monkeypatch: pytest.MonkeyPatch, now: str) -> None:
    monkeypatch.setenv("DLV_NOW", now)
    result = dlv("config")
    assert result.code == 2
    assert "DLV_NOW is not a time" in result.stderr


def start(*args: str, **options: Any) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-m", "dlv", *args], env=environ, **options)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_closed_pipe_is_no_error(workspace: Path, stream: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    args = ["config"] if stream == "stdout" else ["nonsense"]
    other = "stderr" if stream == "stdout" else "stdout"
    process = start(*args, **{stream: writer, other: subprocess.PIPE})
    os.close(writer)
    out, err = process.communicate()
    assert process.returncode == 0
    assert not out
    assert not err


def test_ctrl_c(workspace: Path) -> None:
    """The signal arrives while dlv waits for a configuration that nobody writes."""
    folder = workspace.parent / "home" / ".config" / "dlv"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "config.toml")
    process = start("config", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        try:  # opens once dlv is reading at the other end
            held = os.open(folder / "config.toml", os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError:
            time.sleep(0.02)
    time.sleep(0.3)  # from opening to reading: between the two the signal may be lost
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
        os.close(held)
    assert process.returncode == 130
    assert out == b""
    assert (
        err.decode()
        .lstrip()
        .startswith("error: interrupted; nothing is half-written, so it is safe to run again\n")
    )


def test_real_terminal(dlv_pty: Dlv) -> None:
    result = dlv_pty("confg")
    assert result.code == 2
    assert result.stdout.startswith("\x1b[1;31merror:\x1b[0m no command `confg`\n")
