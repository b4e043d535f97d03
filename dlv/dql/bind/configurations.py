"""`config` in a query: the file it begins with, its keys, what they are set to and tried with."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from decimal import Context, Decimal
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import dlv.repository.revisions as revisions
from dlv.adapters import settings as settings_files
from dlv.dataclass import dataclass
from dlv.dql.bind.binder import Binder, Reported
from dlv.dql.bind.bound import Automatic, ConfigFile, Rows, Varied
from dlv.dql.bind.conditions import condition
from dlv.dql.bind.constants import (
    MOST_VALUES,
    WHOLE,
    Wanted,
    is_constant,
    plain,
    read_arguments,
    stretch,
)
from dlv.dql.bind.things import ANY, BOOLEAN, LIST, NUMBER, TEXT, VERSION, WORDS, Scalar
from dlv.dql.words import ast
from dlv.errors import DlvError, NotFound, UsageError, nearest
from dlv.metadata.select.relations import Setting
from dlv.objects.manifest import FileEntry
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository
from dlv.training import config as configs
from dlv.training.config import CONTRACT, NET, TABLES, TORCH, Field
from dlv.training.ledger.space import Choices, Domain, Key, Row, Uniform, Whole, named

CONFIG = "config"
_OPEN = ("env", "data")  # tables with keys of any name


def read_file(repository: Repository, directory: Path, where: str) -> ConfigFile:
    """`where` is a path from the directory, or REF:FILE."""
    path = directory / where
    if path.is_file():
        return ConfigFile(
            where, _with_optimizer_table(settings_files.read(str(path))), path.resolve().parent
        )
    if ":" in where:
        found = _versioned_file(repository, where)
        if found is not None:
            return ConfigFile(where, _with_optimizer_table(found), stored=True)
    beside = path.parent
    names = [each.name for each in beside.iterdir()] if beside.is_dir() else []
    shown = where[: len(where) - len(PurePosixPath(where).name)]
    raise NotFound(
        f"no configuration file {where}",
        did_you_mean=[shown + name for name in nearest(PurePosixPath(where).name, names)],
        hint="write files of versions as lenet@3:base.toml" if not names else None,
    )


def _with_optimizer_table(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read `[optimizer] name = "sgd", lr = 0.1`, as training scripts write it."""
    optimizer = table.get("optimizer")
    if not isinstance(optimizer, Mapping):
        return table
    words = {"name": "optimizer", "lr": "base_lr", "learning_rate": "base_lr"}
    inner = {words.get(str(key).lower(), str(key)): value for key, value in optimizer.items()}
    return {**{key: value for key, value in table.items() if key != "optimizer"}, **inner}


def _versioned_file(repository: Repository, where: str) -> dict[str, object] | None:
    entry = versioned_entry(repository, where)
    if entry is None:
        return None
    content = FileStore(repository.files_git).read(entry)
    with tempfile.TemporaryDirectory(prefix="dlv-") as folder:
        # Its ending says what it is.
        copy = Path(folder, PurePosixPath(entry.path).name)
        copy.write_bytes(content)
        return settings_files.read(str(copy))


def versioned_entry(repository: Repository, where: str) -> FileEntry | None:
    """The file that REF:FILE names; None if no version is named so."""
    try:
        reference = revisions.resolve(repository.database, where)
    except DlvError:
        return None
    if reference.file is None:
        return None
    entries = {entry.path: entry for entry in repository.manifest(reference.version.id).files}
    if reference.file not in entries:
        label = reference.version.label
        raise NotFound(
            f"{label} has no file `{reference.file}`",
            did_you_mean=[f"{label}:{name}" for name in nearest(reference.file, entries)],
            hint=f"dlv show {label}",
        )
    return entries[reference.file]


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


def read_settings(
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
                value = _setting_value(binder, part.value, made.strict)
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


def _file(binder: Binder, part: ast.Action, configuration: Configuration) -> ConfigFile:
    if configuration.file != Configuration().file:
        raise binder.fault(part.span, "two configuration files given")
    value: Any = part.value
    if isinstance(value, ast.Parameter):
        given = binder.parameter(value)
        if isinstance(given, dict):
            return ConfigFile(f"${value.name}", given)
    where = _setting_value(binder, value, strict=True)
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
        raise binder.refused(value.span, error) from None
    except OSError as error:
        raise binder.fault(value.span, f"{where}: {error.strerror or error}") from None


def _check_name(binder: Binder, path: ast.Path) -> None:
    if path.name != CONFIG:
        raise binder.fault(
            ast.Span(path.span.start, path.span.start + len(path.name)),
            f"`{path.name}` is not part of the configuration",
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
            path.span, "missing configuration key", hint="config.base_lr, config.steps"
        )
    if found[0] == "net":
        _check_net(binder, path, found)
    return tuple(found)


def _check_net(binder: Binder, path: ast.Path, found: Sequence[str]) -> None:
    if len(found) != 3:
        raise binder.fault(path.span, "missing nodes and setting", hint='config.net["conv*"].lr')
    if found[2] not in NET:
        span = path.trailers[2].span
        raise binder.fault(
            span,
            f"nodes have no setting `{found[2]}`",
            why=f"known: {', '.join(NET)}",
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
        f"no setting config.{said}",
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


def _setting_value(binder: Binder, part: Any, strict: bool) -> Any:
    if isinstance(part, ast.Parameter) and not strict:
        return binder.parameter(part)
    if not is_constant(part):
        hint = None
        if isinstance(part, ast.Path):
            said = binder.short(part)
            hint = f'write strings in quotes: "{said}"'
        raise binder.fault(part.span, f"{binder.short(part)} is not a value", hint=hint)
    return plain(binder, part)


# `vary`: what each key is tried with


_EXACT = Context(prec=40)
_ENDS = {"low": Wanted(NUMBER, required=True), "high": Wanted(NUMBER, required=True)}
_SPREAD = {**_ENDS, "n": Wanted(WHOLE, required=True, least=1, most=MOST_VALUES)}
_WHOLE = Wanted(WHOLE, required=True, least=-(2**53))
CALLS: dict[str, tuple[dict[str, Wanted], str]] = {
    "range": ({**_ENDS, "step": Wanted(NUMBER, above=0)}, "range(16, 129, 16)"),
    "linspace": (_SPREAD, "linspace(0, 0.1, 3)"),
    "logspace": (_SPREAD, "logspace(-4, -1, 4)"),
    "uniform": (_ENDS, "uniform(0.5, 0.99)"),
    "loguniform": (_ENDS, "loguniform(1e-4, 1e-1)"),
    "int": ({"low": _WHOLE, "high": _WHOLE}, "int(16, 256)"),
}
_AUTO = {"levels": Wanted(WHOLE, named=True, least=1), "each": Wanted(BOOLEAN, named=True)}


def varied(binder: Binder, part: ast.Dimension, config: Configuration) -> Varied:
    """One dimension; what is wrong with it is noted, Reported then."""
    before = len(binder.notes.faults)
    keys: list[Key] = []
    known: list[Field | None] = []
    for path in part.paths:
        with binder.collecting():
            key = key_of(binder, path)
            if key in keys:
                raise binder.fault(path.span, f"{binder.short(path)} is there twice")
            keys.append(key)
            known.append(check_known(binder, path, key, strict=config.strict))
    when = None
    if part.when is not None:
        with binder.collecting():
            settings = partial(setting, strict=config.strict)
            when = condition(binder.within(clause="when", setting=settings), part.when)
    if len(known) < len(part.paths):
        raise Reported
    domain: Domain | Rows | Automatic
    if part.auto is not None:
        domain = _automatic(binder, part, keys[0])
    else:
        domain = _Values(binder, part, keys, known).domain()
    if len(binder.notes.faults) > before:
        raise Reported
    return Varied(tuple(keys), domain, when, binder.said(part))


def _automatic(binder: Binder, part: ast.Dimension, key: Key) -> Automatic:
    if part.linked:
        raise binder.fault(
            part.span, "auto is of one key", why="keys in one list need lists of values"
        )
    found = read_arguments(binder, "auto", part.auto or (), _AUTO, part.span, "auto(levels = 2)")
    usual = configs.auto(key)
    said = ".".join(key) if key[0] != "net" else f'net["{key[1]}"].{key[2]}'
    if usual is None:
        names = [name.replace("net.", 'net["*"].') for name in configs.AUTO]
        raise binder.fault(
            part.paths[0].span,
            f"config.{said} has no default values",
            why=f"known for {', '.join(names)}",
            hint=f"config.{said} in [..]",
        )
    levels = found.get("levels")
    if levels is not None and levels > len(usual):
        raise binder.fault(part.span, f"config.{said} has {len(usual)} default values")
    if found.get("each") and key[0] != "net":
        raise binder.fault(
            part.span, "`each` requires nodes", hint='config.net["conv*"].lr auto(each = true)'
        )
    return Automatic(levels, bool(found.get("each")))


class _Values:
    """What stands behind `in`, held against what its keys may be."""

    def __init__(
        self,
        binder: Binder,
        part: ast.Dimension,
        keys: Sequence[Key],
        known: Sequence[Field | None],
    ) -> None:
        self.binder = binder
        self.part = part
        self.keys = keys
        self.known = known
        self.rows: list[Row] = []

    def domain(self) -> Domain | Rows:
        found: Any = self.part.domain
        if isinstance(found, ast.Call):
            return self._call(found)
        if isinstance(found, (ast.Query, ast.Saved)):
            return self._query(found)
        if isinstance(found, ast.Parameter):
            self._parameter(found)
        elif isinstance(found, ast.Stretch):
            self._single(found)
            for value in stretch(self.binder, found):
                self._add(found, (value,))
        else:
            assert isinstance(found, ast.Listing)
            for item in found.items:
                with self.binder.collecting():
                    self._item(item)
            if not found.items:
                raise self._empty(found)
        return self._choices()

    def _choices(self) -> Choices:
        different = {named((row,)): row for row in self.rows}
        return Choices(tuple(different.values()))

    def _empty(self, part: ast.Part) -> Exception:
        return self.binder.fault(
            part.span, "no value to try", hint=f"{self._said()} in [0.1, 0.01]"
        )

    def _said(self) -> str:
        return self.binder.short(self.part.paths[0])

    def _single(self, part: ast.Part) -> None:
        """Only values for one key can be written so."""
        if len(self.keys) > 1:
            raise self.binder.fault(
                part.span,
                f"{self.binder.short(part)} has no values for {len(self.keys)} keys",
                hint=f"in [({', '.join('1' * len(self.keys))}), ..]",
            )

    def _add(self, part: ast.Part, values: Sequence[Any]) -> None:
        """One row, each value as the trainer gets it."""
        self.rows.append(
            tuple(
                fitting(self.binder, part, key, known, value)
                for key, known, value in zip(self.keys, self.known, values, strict=True)
            )
        )

    def _item(self, item: Any) -> None:
        binder = self.binder
        if len(self.keys) == 1:
            if isinstance(item, ast.Stretch):
                for value in stretch(binder, item):
                    self._add(item, (value,))
                return
            self._add(item, (self._constant(item),))
            return
        parts = item.items if isinstance(item, (ast.Group, ast.Listing)) else ()
        if len(parts) != len(self.keys):
            raise binder.fault(
                item.span,
                f"{binder.short(item)} is not {len(self.keys)} values",
                why=f"{len(self.keys)} keys are varied together",
                hint=f"({', '.join('1' * len(self.keys))})",
            )
        values = [self._constant(each) for each in parts]
        row = []
        for part, key, known, value in zip(parts, self.keys, self.known, values, strict=True):
            row.append(fitting(binder, part, key, known, value))
        self.rows.append(tuple(row))

    def _constant(self, part: Any) -> Any:
        if not is_constant(part):
            said = self.binder.short(part)
            path = isinstance(part, ast.Path) and not part.trailers
            raise self.binder.fault(
                part.span,
                f"{said} is not a value to try",
                hint=f'write strings in quotes: "{said}"' if path else None,
            )
        return plain(self.binder, part)

    def _parameter(self, part: ast.Parameter) -> None:
        given = self.binder.parameter(part)
        if not isinstance(given, (list, tuple)):
            raise self.binder.fault(
                part.span,
                f"${part.name} is not a list of values",
                hint=f"-P '{part.name}=[0.1, 0.01]'",
            )
        if not given:
            raise self._empty(part)
        for each in given:
            row = each if len(self.keys) > 1 else [each]
            if not isinstance(row, (list, tuple)) or len(row) != len(self.keys):
                raise self.binder.fault(
                    part.span,
                    f"${part.name} holds {each!r}"[:200],
                    why=f"{len(self.keys)} keys are varied together",
                )
            self._add(part, row)

    def _query(self, part: ast.Query | ast.Saved) -> Rows:
        binder = self.binder
        found = binder.query(part, alone=True)
        if len(found.kinds) != len(self.keys):
            raise binder.fault(
                part.span,
                f"{len(self.keys)} column{'s' * (len(self.keys) > 1)} of values required here",
                why=f"this query gives {', '.join(found.titles)}",
            )
        for kind, title in zip(found.kinds, found.titles, strict=True):
            if kind in (VERSION, LIST):
                raise binder.fault(
                    part.span,
                    f"{title} is {WORDS[kind]}, and a value is required here",
                    hint=f"{title}.lr" if kind == VERSION else None,
                )
        return Rows(found.query, binder.said(part), part.span)

    def _call(self, call: ast.Call) -> Domain:
        binder, name = self.binder, call.name.lower()
        if name not in CALLS:
            raise binder.fault(
                ast.Span(call.span.start, call.span.start + len(call.name)),
                f"no values {call.name}(..)",
                why=f"known: {', '.join(CALLS)}",
                did_you_mean=nearest(name, CALLS),
            )
        self._single(call)
        wanted, example = CALLS[name]
        given = read_arguments(binder, name, call.args, wanted, call.span, example)
        low, high = given["low"], given["high"]
        if name in ("uniform", "loguniform"):
            return self._uniform(call, low, high, log=name == "loguniform")
        if name == "int":
            if high < low:
                raise self._backwards(call, low, high)
            for end in (low, high):
                fitting(binder, call, self.keys[0], self.known[0], end)
            return Whole(low, high)
        values = _SERIES[name](given)
        if not values:
            raise self._empty(call)
        if len(values) > MOST_VALUES or not all(map(math.isfinite, values)):
            raise binder.fault(
                call.span, f"{binder.short(call)} are not at most {MOST_VALUES} numbers"
            )
        whole = name == "range" and all(float(value).is_integer() for value in values)
        for value in values:
            self._add(call, (int(value) if whole else value,))
        return self._choices()

    def _uniform(self, call: ast.Call, low: float, high: float, *, log: bool) -> Uniform:
        binder, known = self.binder, self.known[0]
        if high <= low:
            raise self._backwards(call, low, high)
        if log and low <= 0:
            raise binder.fault(
                call.span, "only numbers above 0 have a logarithm", hint="loguniform(1e-4, 1e-1)"
            )
        if known is not None and known.kind != "float":
            wide = known.kind == "int"
            raise binder.fault(
                call.span,
                f"{self._said()} is {known.wanted}",
                hint=f"int({math.ceil(low)}, {math.floor(high)})" if wide else None,
            )
        for end in (low, high):
            fitting(binder, call, self.keys[0], known, end)
        return Uniform(low, high, log)

    def _backwards(self, call: ast.Call, low: float, high: float) -> Exception:
        return self.binder.fault(
            call.span,
            f"nothing between {low:g} and {high:g}",
            hint=f"put the smaller end first: {call.name}({high:g}, {low:g})"
            if high < low
            else None,
        )


def _range(arguments: dict[str, Any]) -> list[float]:
    """As in Python: without the end."""
    low, high, step = (
        Decimal(repr(each))
        for each in (arguments["low"], arguments["high"], arguments.get("step") or 1.0)
    )
    count = max(0, math.ceil((high - low) / step))
    return [float(low + place * step) for place in range(min(count, MOST_VALUES + 1))]


def _linspace(arguments: dict[str, Any]) -> list[float]:
    return [float(each) for each in _spread(arguments)]


def _logspace(arguments: dict[str, Any]) -> list[float]:
    if max(abs(arguments["low"]), abs(arguments["high"])) > 308:
        return [math.inf]
    return [float(_EXACT.power(Decimal(10), each)) for each in _spread(arguments)]


def _spread(arguments: dict[str, Any]) -> list[Decimal]:
    low, high = Decimal(repr(arguments["low"])), Decimal(repr(arguments["high"]))
    n = arguments["n"]
    if n == 1:
        return [low]
    return [_EXACT.divide(low * (n - 1 - at) + high * at, Decimal(n - 1)) for at in range(n)]


_SERIES: dict[str, Callable[[dict[str, Any]], list[float]]] = {
    "range": _range,
    "linspace": _linspace,
    "logspace": _logspace,
}
