"""Configuration: system < user < repository < DLV_* < flag, each value with its origin.

A configuration file is changed line by line, so that comments stay, and replaced as a whole.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlv.dataclass import dataclass
from dlv.errors import StorageError, UsageError, denied, nearest

MAX_BYTES = 1 << 20


def config_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        found = denied(path) if isinstance(error, PermissionError) else None
        why, hint = found or (error.strerror, _way(path))
        raise StorageError(f"cannot read `{path}`", why=why, hint=hint) from error
    if len(data) > MAX_BYTES:
        why = f"the limit is {MAX_BYTES} bytes"
        raise UsageError(f"{path} is too large", why=why, hint=_way(path))
    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8", why=str(error), hint=_way(path)) from error
    return text.removesuffix("\n").split("\n") if text else []


def toml_document(path: Path, lines: list[str]) -> dict[str, Any]:
    if all(not line.strip() or line.startswith("#") for line in lines):
        return {}
    try:
        import tomllib

        return tomllib.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:  # a number may have too many digits, too
        raise UsageError(f"{path} is not TOML", why=str(error), hint=_way(path)) from error


def _way(path: Path) -> str:
    """How to go on without a file that cannot be read."""
    if path.parent.name == ".dlv":
        return f"edit {path}, or dlv fsck --repair sets it aside and begins a new one"
    return f"edit it, or move it away: mv {path} {path}.old"


_HEADER = re.compile(r"""\s*\[\s*["']?([A-Za-z0-9-]+)["']?\s*\]\s*(?:#.*)?$""")
_ENTRY = re.compile(r"""\s*(?:["']?([A-Za-z0-9-]+)["']?\s*\.\s*)?["']?([A-Za-z0-9-]+)["']?\s*=""")


def find_key(lines: list[str], table: str, name: str) -> tuple[int | None, int | None]:
    """Index of the key's line, and of where a new line of its table would go."""
    inside, at, end = "", None, None
    for i, text in enumerate(lines):
        header = _HEADER.match(text)
        if header or text.lstrip().startswith("["):
            inside = header.group(1) if header else "\0"
            end = i + 1 if inside == table else end
            continue
        entry = _ENTRY.match(text)
        if entry is None:
            continue
        if (entry.group(1) or inside, entry.group(2)) == (table, name):
            at = i
        if inside == table:
            end = i + 1
    return at, end


def line_of_key(lines: list[str], table: str, name: str) -> int | None:
    at = find_key(lines, table, name)[0]
    return None if at is None else at + 1


def key_part(line: str) -> str:
    """The key as it is written in the file, up to its value."""
    found = _ENTRY.match(line)
    return f"{found.group()} " if found else ""


def trailing_comment(line: str) -> str:
    """The comment behind a value that stays, if one can be told from the value."""
    found = re.match(r"""[^#"']*=\s*(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^#"']*?)(\s*#.*)$""", line)
    return found.group(1) if found else ""


def write_config(path: Path, lines: list[str], key: str, expected: object) -> None:
    """Replace the file at once, after reading the new text back."""
    document = toml_document(path, lines)
    table, _, name = key.partition(".")
    if document.get(table, {}).get(name) != expected:
        raise UsageError(
            f"cannot change `{key}` in {path}",
            why="the file is written in a way this does not understand",
            hint=f"edit {path} by hand",
        )
    import dlv.disk.user_files as user_files

    text = "".join(f"{line}\n" for line in lines)
    user_files.write(path, text.encode(), mode=0o644, folders=True)


SYSTEM_FILE = Path("/etc/dlv/config.toml")

Value = str | int | float | bool
WAIT = "core.wait"


@dataclass(frozen=True)
class Key:
    """What a key may hold; `choices` in order of preference, `program` = a command to run.

    A string must match `pattern`, which `form` puts into words.
    """

    help: str
    default: Value
    choices: tuple[str, ...] = ()
    least: int = 0
    program: bool = False
    pattern: str = ""
    form: str = ""


# 14 without a unit could mean days or seconds; 0 is the same in any unit.
DURATION = r"\s*(?:(\d{1,9}(?:\.\d{1,6})?)\s*([smhdw])|0)\s*"
# As `pas.layouts.schemes` reads them.
_SCHEME = r"\s*|\s*(?:fp16|bf16|fixed:(?:[2-9]|1[0-6])|(?:uniform|random|lloyd):[1-8])\s*"
_PERSON = r"[^\n\r<>\0]*"

KEYS: dict[str, Key] = {
    "user.name": Key(
        "name of the author of commits", "", pattern=_PERSON, form="a name without < and >"
    ),
    "user.email": Key(
        "address of the author of commits", "", pattern=_PERSON, form="an address without < and >"
    ),
    "user.signingkey": Key("SSH key with which publish signs", ""),
    "core.allowedsigners": Key("file of the SSH keys whose signatures count", ""),
    "core.pager": Key("program for long output", "", program=True),
    "core.color": Key("when to color output", "auto", ("auto", "always", "never")),
    "core.jobs": Key("threads to use; 0 = one per processor", 0),
    "core.hints": Key("suggest a next command on a terminal", True),
    "core.singlehost": Key("allow a repository on a network disk that one host uses", False),
    WAIT: Key("seconds to wait for other dlv processes", 30.0),
    "commit.recheck": Key("how to verify reused objects", "hash", ("hash", "stat")),
    "commit.quantize": Key(
        "quantization of weights, such as fp16 or uniform:8; empty = exact",
        "",
        pattern=_SCHEME,
        form="fp16, bf16, fixed:2 to fixed:16, or uniform, random or lloyd with :1 to :8",
    ),
    "commit.archive": Key("store a new version and its parents smaller at once", False),
    "commit.bounds": Key("store bounds with a new version, for progressive evaluation", False),
    "commit.optimizer": Key("optimizer state in checkpoints", "keep", ("keep", "drop")),
    "archive.algorithm": Key(
        "which solver plans", "best", ("best", "mt", "pt", "last", "mst", "spt")
    ),
    "archive.hot": Key("more time for latest and tagged versions; 0.1 = 10% over the fastest", 0.1),
    "archive.normal": Key("the same for other versions", 1.0),
    "archive.cold": Key("the same for checkpoints on the way", math.inf),
    "archive.enough": Key("read time in seconds that is fast enough for other versions", 2.0),
    "gc.grace": Key(
        "grace period of gc, such as 14d, 12h or 0",
        "14d",
        pattern=DURATION,
        form="a duration such as 14d, 12h, 90m, 2w or 0",
    ),
    "curves.restarts": Key("points of a restarted run", "marked", ("marked", "preempt", "keep")),
    "curves.cap": Key("most points of one answer about curves", 10_000_000, least=1),
    "ui.port": Key("port of dlv ui; 0 picks a free one", 8712, least=0),
    "eval.precision": Key("of the full evaluation", "float64", ("float64", "float32")),
}


REMOTE_PREFIX = "remote."
REMOTE = re.compile(r"remote\.[A-Za-z0-9][A-Za-z0-9-]*")
_REMOTE = Key("address of a remote", "", pattern=r"[^\n\r\0]+", form="a folder or an address")


@dataclass(frozen=True)
class Origin:
    """Where a value was said; `path` is a file or the name of a variable."""

    level: str
    path: str = ""
    line: int | None = None

    def __str__(self) -> str:
        return ":".join(filter(None, (self.path or self.level, str(self.line or ""))))


@dataclass(frozen=True)
class Setting:
    key: str
    value: Value
    origin: Origin


def repository_file(start: Path, dlv_dir: str | None) -> Path | None:
    """The configuration file of the repository around `start`, whether or not it exists."""
    if dlv_dir:
        return Path(dlv_dir) / "config.toml"
    here = start.resolve()
    for folder in (here, *here.parents):
        if (folder / ".dlv").is_dir():
            return folder / ".dlv" / "config.toml"
    return None


def user_file(environ: Mapping[str, str]) -> Path:
    home = Path(environ.get("HOME") or "~").expanduser()
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "dlv" / "config.toml"


def variable(key: str) -> str:
    return "DLV_" + key.replace(".", "_").upper()


class Config:
    """The values that count, and which files they were read from."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = dict(files)
        self.warnings: list[str] = []
        self._settings = {k: Setting(k, key.default, Origin("default")) for k, key in KEYS.items()}

    @classmethod
    def load(
        cls, repository: Path | None, environ: Mapping[str, str], *, system: Path = SYSTEM_FILE
    ) -> Config:
        files = {"system": system, "user": user_file(environ)}
        if repository is not None:
            files["repository"] = repository
        config = cls(files)
        for level, path in files.items():
            config._read_file(level, path)
        config._read_environ(environ)
        return config

    def get(self, key: str) -> Any:
        return self.setting(key).value

    def given(self, key: str, value: str | None) -> str | None:
        """What a call or else a setting says; None where nobody has said anything."""
        said = self.get(key) if value is None else check(key, value, "")
        return None if value is None and self.origin(key).level == "default" else str(said)

    def author(self, environ: Mapping[str, str]) -> str:
        """Who stands in commits and facts: user.name and user.email, else the login."""
        login = ""
        with contextlib.suppress(OSError, KeyError):
            login = environ.get("USER", "")
            if not login:
                import getpass

                login = getpass.getuser()
        return author_of(str(self.get("user.name")), str(self.get("user.email")), login)

    def origin(self, key: str) -> Origin:
        return self.setting(key).origin

    def setting(self, key: str) -> Setting:
        known(key)
        return self._settings.get(key) or Setting(key, "", Origin("default"))

    def values(self) -> list[Setting]:
        return list(self._settings.values())

    def remotes(self) -> dict[str, str]:
        """Addresses of the configured remotes, by name."""
        return {
            key.removeprefix(REMOTE_PREFIX): str(setting.value)
            for key, setting in self._settings.items()
            if key.startswith(REMOTE_PREFIX)
        }

    def set(self, level: str, key: str, value: str) -> Setting:
        """Write one key, leaving every other line of the file as it is."""
        path = self._path(level)
        if known(key).program and level == "repository":
            raise UsageError(
                f"`{key}` cannot be set for a repository",
                why="it names a program, and repositories can come from others",
                hint=f"dlv config --user {key} ...",
            )
        parsed = parse(key, value)
        lines = config_lines(path)
        table, _, name = key.partition(".")
        line = f"{name} = {_toml(parsed)}"
        at, end = find_key(lines, table, name)
        if at is not None:
            lines[at] = key_part(lines[at]) + _toml(parsed) + trailing_comment(lines[at])
        elif end is not None:
            lines.insert(end, line)
        else:
            lines += ["", f"[{table}]", line] if lines else [f"[{table}]", line]
        write_config(path, lines, key, parsed)
        return Setting(key, parsed, Origin(level, str(path), line_of_key(lines, table, name)))

    def unset(self, level: str, key: str) -> bool:
        """Take a key out of a file; whether it was there."""
        known(key)
        path = self._path(level)
        lines = config_lines(path)
        at, _ = find_key(lines, *key.split(".", 1))
        if at is None:
            return False
        del lines[at]
        write_config(path, lines, key, None)
        return True

    def _path(self, level: str) -> Path:
        if level not in self.files:
            raise UsageError(
                f"no {level} configuration here",
                why="this is not inside a repository",
                hint="dlv init, or use --user",
            )
        return self.files[level]

    def _read_file(self, level: str, path: Path) -> None:
        lines = config_lines(path)
        document = toml_document(path, lines)
        for table, content in document.items():
            if not isinstance(content, dict):
                self._unknown(table, f"{path}:{line_of_key(lines, '', table)}")
                continue
            for name, value in content.items():
                key = f"{table}.{name}"
                origin = Origin(level, str(path), line_of_key(lines, table, name))
                if not is_key(key):
                    self._unknown(key, str(origin))
                elif known(key).program and level == "repository":
                    self.warnings.append(
                        f"{origin}: `{key}` is ignored: a repository must not name programs to run"
                    )
                else:
                    self._settings[key] = Setting(key, check(key, value, str(origin)), origin)

    def _read_environ(self, environ: Mapping[str, str]) -> None:
        names = {variable(key): key for key in KEYS} | {"DLV_WAIT": WAIT}
        tables = tuple({variable(key.split(".")[0]) + "_" for key in KEYS})
        for name in sorted(environ):
            if name in names:
                key = names[name]
                self._settings[key] = Setting(
                    key, parse(key, environ[name], name), Origin("environment", name)
                )
            elif name.startswith(tables):
                close = nearest(name, names)
                self.warnings.append(f"variable `{name}` is not a setting of dlv{_meant(close)}")

    def _unknown(self, key: str, where: str) -> None:
        self.warnings.append(f"{where}: unknown key `{key}`{_meant(nearest(key, KEYS))}")


def _meant(names: list[str]) -> str:
    return f"; did you mean `{names[0]}`?" if names else ""


def is_key(key: str) -> bool:
    """Return whether the key exists; remotes can have any name."""
    return key in KEYS or REMOTE.fullmatch(key) is not None


def known(key: str) -> Key:
    if REMOTE.fullmatch(key):
        return _REMOTE
    if key not in KEYS:
        raise UsageError(
            f"no configuration key `{key}`",
            hint="to list all keys: dlv config",
            did_you_mean=nearest(key, KEYS),
        )
    return KEYS[key]


def parse(key: str, text: str, where: str = "") -> Value:
    """A value given as text, on the command line or in a variable."""
    default = known(key).default
    value: object = text
    if isinstance(default, bool):
        value = {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    elif isinstance(default, int) and re.fullmatch(r"-?[0-9]{1,18}", text):
        value = int(text)
    elif isinstance(default, float):
        try:
            value = float(text)
        except ValueError:
            value = text
    return check(key, value, where)


def check(key: str, value: object, where: str) -> Value:
    """The value if it is of the key's type; `where` stands in the message."""
    spec = known(key)
    wanted: str | None = None
    if isinstance(spec.default, bool):
        wanted = None if isinstance(value, bool) else "true or false"
    elif isinstance(spec.default, int):
        if not isinstance(value, int) or isinstance(value, bool) or value < spec.least:
            wanted = f"a whole number from {spec.least} on"
    elif isinstance(spec.default, float):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not value >= spec.least:  # type: ignore[operator]
            wanted = f"a number from {spec.least} on, or inf"
    elif not isinstance(value, str):
        wanted = "a string"
    elif spec.choices and value not in spec.choices:
        wanted = " or ".join(spec.choices)
    elif spec.pattern and re.fullmatch(spec.pattern, value) is None:
        wanted = spec.form
    if wanted is None and isinstance(value, (str, int, float)):
        return float(value) if isinstance(spec.default, float) else value
    place = f"{where}: " if where else ""
    close = nearest(str(value), spec.choices)
    raise UsageError(
        f"{place}`{key}` must be {wanted}",
        why=f"it is {json.dumps(value, default=str)}",
        did_you_mean=close,
    )


def shown(value: Value) -> str:
    """The value as `parse` reads it."""
    if isinstance(value, float):
        return "inf" if value == math.inf else f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def _toml(value: Value) -> str:
    # A JSON string of ASCII is a TOML basic string, but for characters beyond the first plane.
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return text.replace("\x7f", "\\u007f")
    if isinstance(value, float):
        return "inf" if value == math.inf else repr(value)  # TOML's own words
    return json.dumps(value)


def author_of(name: str, email: str, environ_user: str) -> str:
    """How an author stands in manifests; who has no name configured is known by the login."""
    who = name or environ_user or "unknown"
    if any(c in who + email for c in "\n\r<>\0"):
        raise UsageError(
            "user.name or user.email contains a character that is not allowed",
            hint="dlv config --user user.name 'Your Name'",
        )
    return f"{who} <{email}>" if email else who
