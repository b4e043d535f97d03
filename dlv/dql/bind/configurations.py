"""`config` in a query: the file that it begins with, its keys, and what they may be."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import dlv.repository.revisions as revisions
from dlv.adapters import settings
from dlv.dql.bind.binder import Binder
from dlv.dql.bind.bound import ConfigFile
from dlv.dql.bind.constants import is_constant, plain
from dlv.dql.bind.things import ANY, BOOLEAN, NUMBER, TEXT, Scalar
from dlv.dql.words import ast
from dlv.errors import DlvError, NotFound, UsageError, nearest
from dlv.metadata.select.relations import Setting
from dlv.objects.manifest import FileEntry
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository
from dlv.training import config as configs
from dlv.training.config import CONTRACT, NET, TABLES, TORCH, Field
from dlv.training.ledger.space import Key

CONFIG = "config"
_OPEN = ("env", "data")  # tables with keys of any name


def read_file(repository: Repository, directory: Path, where: str) -> ConfigFile:
    """`where` is a path from the directory, or REF:FILE."""
    path = directory / where
    if path.is_file():
        return ConfigFile(where, settings.read(str(path)), path.resolve().parent)
    if ":" in where:
        found = _stored(repository, where)
        if found is not None:
            return ConfigFile(where, found, stored=True)
    beside = path.parent
    names = [each.name for each in beside.iterdir()] if beside.is_dir() else []
    shown = where[: len(where) - len(PurePosixPath(where).name)]
    raise NotFound(
        f"there is no configuration file {where}",
        did_you_mean=[shown + name for name in nearest(PurePosixPath(where).name, names)],
        hint="a file of a version is called lenet@3:base.toml" if not names else None,
    )


def _stored(repository: Repository, where: str) -> dict[str, object] | None:
    try:
        reference = revisions.resolve(repository.database, where)
    except DlvError:
        return None
    if reference.file is None:
        return None
    entries = {entry.path: entry for entry in repository.manifest(reference.version.id).files}
    entry: FileEntry | None = entries.get(reference.file)
    if entry is None:
        label = reference.version.label
        raise NotFound(
            f"{label} has no file `{reference.file}`",
            did_you_mean=[f"{label}:{name}" for name in nearest(reference.file, entries)],
            hint=f"dlv show {label}",
        )
    content = FileStore(repository.files_git).read(entry)
    with tempfile.TemporaryDirectory(prefix="dlv-") as folder:
        # Its ending says what it is.
        copy = Path(folder, PurePosixPath(entry.path).name)
        copy.write_bytes(content)
        return settings.read(str(copy))


@dataclass
class Configuration:
    """What `with` has said so far. `strict`: keys that nobody knows are faults."""

    file: ConfigFile = field(default_factory=lambda: ConfigFile("no file"))
    settings: list[tuple[Key, Any]] = field(default_factory=list)
    strict: bool = True

    def value(self, key: Key) -> Any:
        """As it is set here, in the file, or else by itself."""
        for name, value in reversed(self.settings):
            if name == key:
                return value
        return looked_up(self.file.table, key)


def looked_up(table: Any, key: Key) -> Any:
    """What stands in a table under a key, or what it is without."""
    found = table
    for word in key:
        if not isinstance(found, dict) or word not in found:
            known = configs.field_of(key)
            return "torch" if key == ("trainer",) else None if known is None else known.default
        found = found[word]
    return found


def read(
    binder: Binder, parts: Sequence[ast.Action], varied: Sequence[ast.Dimension]
) -> Configuration:
    """`with`: all faults are noted, and what could be read is there."""
    made = Configuration()
    for part in parts:
        if not part.path.trailers:
            with binder.collecting():
                _check_name(binder, part.path)
                made.file = _file(binder, part, made)
    # What is a key depends on who reads it.
    trainers = [part for part in parts if _plainly(part.path) == ("trainer",)]
    named = {_plainly(path) for dimension in varied for path in dimension.paths}
    own = looked_up(made.file.table, ("trainer",)) != configs.TRAINER
    if trainers:
        value = trainers[-1].value
        own = not (isinstance(value, ast.Text) and value.value == configs.TRAINER)
    made.strict = not own and ("trainer",) not in named
    for part in parts:
        if part.path.trailers:
            with binder.collecting():
                key = key_of(binder, part.path)
                assert part.value is not None
                value = _constant(binder, part.value, made.strict)
                made.settings.append(
                    (key, checked(binder, part.path, part.value, key, value, strict=made.strict))
                )
    return made


def _plainly(path: ast.Path) -> Key:
    """A key without a check of it."""
    if path.name != CONFIG:
        return ()
    return tuple(
        each.name if isinstance(each, ast.Attribute) else each.text
        for each in path.trailers
        if isinstance(each, (ast.Attribute, ast.Selector))
    )


def _file(binder: Binder, part: ast.Action, made: Configuration) -> ConfigFile:
    if made.file != Configuration().file:
        raise binder.fault(part.span, "there are two configuration files")
    value: Any = part.value
    if isinstance(value, ast.Parameter):
        given = binder.parameter(value)
        if isinstance(given, dict):
            return ConfigFile(f"${value.name}", given)
    where = _constant(binder, value, strict=True)
    if not isinstance(where, str) or not where:
        raise binder.fault(
            value.span,
            f"{binder.short(value)} names no file",
            hint='config = "base.toml", or one of a version: config = "lenet@3:base.toml"',
        )
    if binder.config_file is None:
        raise binder.fault(value.span, "no configuration files are read here")
    try:
        return binder.config_file(where)
    except DlvError as error:
        raise binder.fault(
            value.span,
            error.message,
            why=error.why,
            hint=error.hint,
            did_you_mean=error.did_you_mean,
            missing=isinstance(error, NotFound),
        ) from None
    except OSError as error:
        raise binder.fault(value.span, f"{where}: {error.strerror or error}") from None


def _check_name(binder: Binder, path: ast.Path) -> None:
    if path.name != CONFIG:
        raise binder.fault(
            ast.Span(path.span.start, path.span.start + len(path.name)),
            f"`{path.name}` is nothing of the configuration",
            did_you_mean=nearest(path.name, [CONFIG]),
            hint='its keys are written config.steps, config.net["conv*"].lr',
        )


def key_of(binder: Binder, path: ast.Path) -> Key:
    """`config.net["conv*"].lr` as ("net", "conv*", "lr")."""
    _check_name(binder, path)
    found: list[str] = []
    for trailer in path.trailers:
        if isinstance(trailer, ast.Attribute):
            found.append(trailer.name)
        elif isinstance(trailer, ast.Selector) and not trailer.regular:
            found.append(trailer.text)
        else:
            raise binder.fault(
                trailer.span,
                "a key of a configuration is a name",
                hint='config.base_lr, config.net["conv*"].lr',
            )
    if not found:
        raise binder.fault(
            path.span, "which key of the configuration?", hint="config.base_lr, config.steps"
        )
    if found[0] == "net":
        _check_net(binder, path, found)
    return tuple(found)


def _check_net(binder: Binder, path: ast.Path, found: Sequence[str]) -> None:
    if len(found) != 3:
        raise binder.fault(
            path.span, "of which nodes, and which setting?", hint='config.net["conv*"].lr'
        )
    if found[2] not in NET:
        span = path.trailers[2].span
        raise binder.fault(
            span,
            f"nodes have no setting `{found[2]}`",
            why=f"there are {', '.join(NET)}",
            did_you_mean=nearest(found[2], NET),
        )
    second = path.trailers[1]
    binder.selector(found[1], second.span)


def check_known(binder: Binder, path: ast.Path, key: Key, *, strict: bool) -> Field | None:
    """What is known of a key; a fault if nothing is and that is too little."""
    found = configs.field_of(key)
    free = key == ("trainer",) or (len(key) > 1 and key[0] in _OPEN)
    if found is not None or free or not strict:
        return found
    said = ".".join(key)
    if len(key) == 1 and key[0] in (*TABLES, *_OPEN, "net"):
        inside = list(TABLES.get(key[0], ())) or ["NAME"]
        raise binder.fault(
            path.span, f"config.{said} is a table", hint=f"config.{said}.{inside[0]}"
        )
    if len(key) > 1 and key[0] in TABLES:
        meant = [f"config.{key[0]}.{name}" for name in nearest(key[-1], TABLES[key[0]])]
    else:
        places = {name: f"config.{table}.{name}" for table in TABLES for name in TABLES[table]}
        places |= {name: f"config.{name}" for name in (*CONTRACT, *TORCH, "trainer")}
        meant = [places[name] for name in nearest(key[-1], places)]
    raise binder.fault(
        ast.Span(path.trailers[0].span.start, path.span.end),
        f"there is no setting config.{said}",
        why="the trainer is torch, and knows its settings",
        did_you_mean=meant,
        hint=None if meant else "another trainer may take it: config.trainer",
    )


_KINDS = {"float": NUMBER, "int": NUMBER, "text": TEXT, "bool": BOOLEAN}


def setting(binder: Binder, path: ast.Path, *, strict: bool) -> Scalar:
    """A key as the value that a trial has there."""
    key = key_of(binder, path)
    known = check_known(binder, path, key, strict=strict)

    def check(part: ast.Part, value: Any) -> None:
        if value is not None:
            fitting(binder, part, key, known, value)

    kind = ANY if known is None else _KINDS.get(known.kind, ANY)
    return Scalar(Setting(key), kind, check=check)


def checked(
    binder: Binder, path: ast.Path, part: ast.Part, key: Key, value: Any, *, strict: bool
) -> Any:
    """The value as the trainer gets it, or a fault that says what the key may be."""
    known = check_known(binder, path, key, strict=strict)
    return fitting(binder, part, key, known, value)


def fitting(binder: Binder, part: ast.Part, key: Key, known: Field | None, value: Any) -> Any:
    if isinstance(value, tuple):
        value = list(value)
    if known is None:
        return value
    try:
        return known.read(".".join(key), value)
    except UsageError as error:
        raise binder.fault(
            part.span, error.message, why=error.why, did_you_mean=error.did_you_mean
        ) from None


def _constant(binder: Binder, part: Any, strict: bool) -> Any:
    if isinstance(part, ast.Parameter) and not strict:
        return binder.parameter(part)
    if not is_constant(part):
        hint = None
        if isinstance(part, ast.Path):
            said = binder.short(part)
            hint = f'a text stands in quotes: "{said}"'
        raise binder.fault(part.span, f"{binder.short(part)} is no value", hint=hint)
    return plain(binder, part)
