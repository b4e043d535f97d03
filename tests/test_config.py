"""Configuration: precedence, origins, types, and files that keep their comments."""

from __future__ import annotations

import contextlib
import itertools
import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dlv.pas.layouts.schemes as schemes
from dlv.config import (
    KEYS,
    Config,
    Origin,
    Value,
    parse,
    repository_file,
    shown,
    user_file,
    variable,
)
from dlv.errors import StorageError, UsageError
from dlv.upkeep.mark import duration

SAMPLES: dict[str, tuple[str, str, str, str]] = {
    # four values of each key that differ from the default and, in a row, from each other
    "user.name": ("a", "b", "c", "d"),
    "user.email": ("a@x", "b@x", "c@x", "d@x"),
    "user.signingkey": ("a", "b", "c", "d"),
    "core.allowedsigners": ("a", "b", "c", "d"),
    "core.pager": ("less", "more", "most", "cat"),
    "core.color": ("always", "never", "always", "never"),
    "core.jobs": ("1", "2", "3", "4"),
    "core.hints": ("false", "true", "false", "true"),
    "core.singlehost": ("true", "false", "true", "false"),
    "core.wait": ("3", "0.5", "0", "inf"),
    "ui.port": ("0", "8000", "9000", "1"),
    "gc.grace": ("1d", "12h", "0", "30d"),
    "commit.recheck": ("stat", "hash", "stat", "hash"),
    "commit.optimizer": ("drop", "keep", "drop", "keep"),
    "commit.archive": ("true", "false", "true", "false"),
    "commit.bounds": ("true", "false", "true", "false"),
    "commit.quantize": ("fp16", "bf16", "uniform:8", "lloyd:4"),
    "archive.algorithm": ("mt", "pt", "last", "spt"),
    "archive.hot": ("0.5", "inf", "2", "0"),
    "archive.normal": ("0.5", "3", "inf", "2.25"),
    "archive.cold": ("1", "2", "3", "0.125"),
    "archive.enough": ("1", "60", "0.5", "inf"),
    "curves.restarts": ("keep", "preempt", "marked", "keep"),
    "curves.cap": ("1", "1000", "20000000", "7"),
    "eval.precision": ("float32", "float64", "float32", "float64"),
}


class World:
    """A system, user and repository file in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.system = folder / "etc" / "config.toml"
        self.repository = folder / "work" / ".dlv" / "config.toml"
        self.environ = {"XDG_CONFIG_HOME": str(folder / "config"), "HOME": str(folder)}
        self.user = user_file(self.environ)
        for path in (self.system, self.repository, self.user):
            path.parent.mkdir(parents=True)

    def load(self, **environ: str) -> Config:
        return Config.load(self.repository, {**self.environ, **environ}, system=self.system)

    def write(self, level: str, key: str, text: str) -> Path:
        path: Path = getattr(self, level)
        table, _, name = key.partition(".")
        value = parse(key, text)
        literal = f'"{value}"' if isinstance(value, str) else shown(value)
        path.write_text(f"# top\n[{table}]\n{name} = {literal}\n")
        return path


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_samples_cover_every_key() -> None:
    assert set(SAMPLES) == set(KEYS)


SUBSETS = [c for n in range(5) for c in itertools.combinations(range(4), n)]


@pytest.mark.parametrize("key", list(KEYS))
@pytest.mark.parametrize("said", SUBSETS)
def test_precedence_and_origin(world: World, key: str, said: tuple[int, ...]) -> None:
    """Every key, said in every set of places: the last of them counts."""
    levels = ("system", "user", "repository", "environment")
    origins = [Origin("default")]
    value: Value = KEYS[key].default
    environ = {}
    for index in said:
        level, text = levels[index], SAMPLES[key][index]
        if level == "environment":
            environ = {variable(key): text}
            origins.append(Origin(level, variable(key)))
        else:
            path = world.write(level, key, text)
            if level == "repository" and KEYS[key].program:
                continue
            origins.append(Origin(level, str(path), 3))
        value = parse(key, text)
    config = world.load(**environ)
    assert config.get(key) == value
    assert type(config.get(key)) is type(value)
    assert config.origin(key) == origins[-1]
    ignored = KEYS[key].program and 2 in said
    assert len(config.warnings) == (1 if ignored else 0)


def test_variable_names() -> None:
    assert variable("user.name") == "DLV_USER_NAME"
    assert len({variable(key) for key in KEYS}) == len(KEYS)
    assert all(key.count(".") == 1 and "_" not in key for key in KEYS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '[user]\nnmae = "x"\n',
            "config.toml:2: unknown key `user.nmae`; did you mean `user.name`",
        ),
        ("top = 1\n", "config.toml:1: unknown key `top`"),
        ("[zzz]\nq = 1\n", "config.toml:2: unknown key `zzz.q`"),
    ],
)
def test_unknown_keys_are_warnings(world: World, text: str, expected: str) -> None:
    world.user.write_text(text)
    (warning,) = world.load().warnings
    assert expected in warning


def test_unknown_variables(world: World) -> None:
    config = world.load(DLV_USER_NMAE="x", DLV_DIR="y", DLV_NOW="z", DLV_PAGER="p", DLV_TOKEN="t")
    assert config.warnings == [
        "variable `DLV_USER_NMAE` is not a setting of dlv; did you mean `DLV_USER_NAME`?"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[core]\njobs = "4"\n', "config.toml:2: `core.jobs` must be a whole number from 0 on"),
        ("[core]\njobs = true\n", "config.toml:2: `core.jobs` must be a whole number"),
        ("[core]\njobs = -1\n", "config.toml:2: `core.jobs` must be a whole number"),
        ("[core]\n\nsinglehost = 1\n", "config.toml:3: `core.singlehost` must be true or false"),
        ("[user]\nname = 1\n", "config.toml:2: `user.name` must be a string"),
        ('core.color = "blue"\n', "config.toml:1: `core.color` must be auto or always or never"),
        ('[core]\njobs = "\n', "config.toml is not TOML"),
        ("a = " + "[" * 5000, "config.toml is not TOML"),
    ],
)
def test_wrong_values_name_file_and_line(world: World, text: str, message: str) -> None:
    world.user.write_text(text)
    with pytest.raises(UsageError) as caught:
        world.load()
    assert message in caught.value.message


def test_wrong_variable(world: World) -> None:
    with pytest.raises(UsageError, match=r"DLV_CORE_JOBS: .* must be a whole number"):
        world.load(DLV_CORE_JOBS="many")


def test_files_that_are_no_text(world: World) -> None:
    world.user.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not UTF-8"):
        world.load()
    world.user.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(UsageError, match="too large"):
        world.load()
    world.user.unlink()
    world.user.mkdir()
    with pytest.raises(StorageError, match="cannot read"):
        world.load()


KEPT = """\
# my settings

[user]   # me
name = "old"  # the author
email = 'a#b@c' # with a sharp
[core]
jobs = 2

# the end
"""


def test_set_keeps_everything_else(world: World) -> None:
    world.user.write_text(KEPT)
    config = world.load()
    config.set("user", "user.name", 'Ada "L" \\ \x7f 𝔸 #')
    config.set("user", "user.email", "x")
    config.set("user", "core.singlehost", "true")
    config.set("user", "commit.recheck", "stat")
    lines = world.user.read_text().split("\n")
    assert lines[:3] == KEPT.split("\n")[:3]
    assert lines[3].endswith('#"  # the author')
    assert lines[4:] == [
        'email = "x" # with a sharp', "[core]", "jobs = 2", "singlehost = true", "", "# the end",
        "", "[commit]", 'recheck = "stat"', "",
    ]  # fmt: skip
    again = world.load()
    assert again.get("user.name") == 'Ada "L" \\ \x7f 𝔸 #'
    assert again.get("core.singlehost") is True
    assert again.warnings == []


@pytest.mark.parametrize(
    "text",
    [
        'user.name = "old"\n',
        '[user]\n"name" = "old"\n',
        "[ 'user' ]\nname='old'",
        '[core]\njobs = 1\n[user]\n\nname = "old"\r\n',
        '[[list]]\nname = "other"\n[user]\nname = "old"\n',
    ],
)
def test_set_finds_the_key_however_it_is_written(world: World, text: str) -> None:
    world.user.write_text(text)
    config = world.load()
    setting = config.set("user", "user.name", "new")
    assert tomllib.loads(world.user.read_text())["user"] == {"name": "new"}
    assert setting.value == "new"
    assert world.load().get("user.name") == "new"
    assert config.unset("user", "user.name")
    assert world.load().get("user.name") == ""
    assert not config.unset("user", "user.name")


@pytest.mark.parametrize(
    "text",
    [
        'user = { name = "old" }\n',
        '[user]\nname = """\nold"""\n',
        "x = '''\n[user]\nname = 1\n'''\n",
    ],
)
def test_a_file_that_is_not_understood_is_left_alone(world: World, text: str) -> None:
    world.user.write_text(text)
    config = world.load()
    with pytest.raises(UsageError):
        config.set("user", "user.name", "new")
    assert world.user.read_text() == text
    assert [p.name for p in world.user.parent.iterdir()] == ["config.toml"]


@given(value=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_can_be_stored(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    world = World(tmp_path_factory.mktemp("any"))
    world.load().set("user", "core.pager", value)
    assert world.load().get("core.pager") == value


def test_write_is_atomic_and_keeps_mode_and_link(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text('[user]\nname = "old"\n')
    real.chmod(0o600)
    world.user.symlink_to(real)
    config = world.load()
    config.set("user", "user.name", "new")
    assert world.user.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600
    before = real.read_text()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="cannot make durable"):
        config.set("user", "user.name", "newer")
    assert real.read_text() == before
    assert not list(tmp_path.glob(".*-part"))


def test_a_repository_cannot_be_given_a_program(world: World) -> None:
    with pytest.raises(UsageError, match="cannot be set for a repository"):
        world.load().set("repository", "core.pager", "evil")
    world.load().set("user", "core.pager", "less")
    assert world.load().get("core.pager") == "less"


def test_unknown_key_on_write_and_outside_a_repository(world: World) -> None:
    with pytest.raises(UsageError) as caught:
        world.load().set("user", "user.nmae", "x")
    assert caught.value.did_you_mean[0] == "user.name"
    config = Config.load(None, world.environ, system=world.system)
    with pytest.raises(UsageError, match="no repository configuration here"):
        config.set("repository", "user.name", "x")


def test_where_the_files_are(tmp_path: Path) -> None:
    (tmp_path / "a" / ".dlv").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    assert repository_file(tmp_path / "a" / "b" / "c", None) == tmp_path / "a/.dlv/config.toml"
    assert repository_file(tmp_path, None) is None
    assert repository_file(tmp_path, str(tmp_path / "else")) == tmp_path / "else/config.toml"
    assert user_file({"HOME": "/h"}) == Path("/h/.config/dlv/config.toml")
    assert user_file({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}) == Path("/x/dlv/config.toml")


@pytest.mark.parametrize("text", ["-1", "nan", "fast", "true", ""])
def test_a_number_that_is_none(world: World, text: str) -> None:
    with pytest.raises(UsageError, match="must be a number from 0 on"):
        world.load().set("user", "archive.hot", text)
    assert world.load().get("archive.hot") == 0.1


NONSENSE = [
    "",
    " ",
    "3",
    "-1",
    "0.5x",
    "14 days",
    "fp17",
    "uniform:9",
    "maybe",
    "<>",
    "\0",
    "1e999",
]


@pytest.mark.parametrize("key", list(KEYS))
@pytest.mark.parametrize("text", NONSENSE)
def test_nonsense_is_refused_when_it_is_set_or_does_no_harm(
    world: World, key: str, text: str
) -> None:
    """What can be set is what every command takes: nothing fails later because of it."""
    with contextlib.suppress(UsageError):
        parse(key, text)
        world.load().set("user", key, text)
    value = world.load().get(key)
    if text in ("3", "14 days", "maybe") and key in ("gc.grace", "commit.quantize"):
        assert value == KEYS[key].default
    if key == "gc.grace":
        duration(value)
    elif key == "commit.quantize":
        assert not value.strip() or schemes.parse(value)
    elif key.startswith("user."):
        world.load().author({})


@pytest.mark.parametrize("key", list(KEYS))
def test_a_wrong_value_in_a_file_names_key_and_place(world: World, key: str) -> None:
    table, _, name = key.partition(".")
    world.user.write_text(f"[{table}]\n{name} = [1]\n")
    with pytest.raises(UsageError, match=rf"config\.toml:2: `{key}` must be"):
        world.load()


@pytest.mark.parametrize("text", ["3", "14 days", "1.5y"])
def test_a_wrong_duration_in_a_file(world: World, text: str) -> None:
    world.user.write_text(f'[gc]\ngrace = "{text}"\n')
    with pytest.raises(UsageError, match=r"config\.toml:2: `gc\.grace` must be a duration"):
        world.load()


def test_schemes_are_those_of_the_parser() -> None:
    for name in ("fp16", "bf16", "fixed", "uniform", "random", "lloyd"):
        for text in (name, *(f"{name}:{bits}" for bits in range(20))):
            try:
                schemes.parse(text)
            except UsageError:
                with pytest.raises(UsageError):
                    parse("commit.quantize", text)
            else:
                assert parse("commit.quantize", text) == text
