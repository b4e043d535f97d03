"""Settings files (TOML, JSON, YAML, Caffe's solvers) as plain dicts, and as flat hyperparameters.

Numbers, texts, booleans, null, lists and tables with text keys: whatever else YAML or TOML
can say becomes one of these (dates become texts) or is refused.
"""

from __future__ import annotations

import datetime
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import PurePath
from types import ModuleType
from typing import Any

from dlv.adapters.caffe import prototxt
from dlv.adapters.detect import detect
from dlv.adapters.protobuf import Message, Word, shortest
from dlv.adapters.source import Source
from dlv.canonical import dumps, number
from dlv.errors import Damaged, UnsafeInput, UsageError

Scalar = str | int | float | bool | None

# A megabyte costs the parsers written in Python seconds, and no settings are that long.
MOST_BYTES = {"json": 16 << 20, "toml": 1 << 20, "yaml": 2 << 20, "caffe_solver": 1 << 20}
MOST_DEPTH = 16
MOST_NODES = 200_000

_JSON_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)
_PART_TEXT = r"(?:[A-Za-z0-9_-]++|\"(?:[^\"\\\n]|\\.){0,200}+\"|'[^'\n]{0,200}+')"
_PART = re.compile(_PART_TEXT)
# Never fails once it has begun, so no text is looked at twice.
_CHAIN = re.compile(rf"{_PART_TEXT}(?:[ \t]*+\.[ \t]*+{_PART_TEXT})*+")
_IS_KEY = re.compile(r"[ \t]*+[=\]]")
_BY_SUFFIX = {".toml": "toml", ".json": "json", ".yaml": "yaml", ".yml": "yaml"}
_EXPONENT = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]{1,2}\Z")
_NETS = {"net_param", "train_net_param", "test_net_param"}
_CONVERTED = {"int", "float", "timestamp", "bool", "binary"}


def read(path: str, format_: str | None = None) -> dict[str, Any]:
    """The settings of a file; every error names the file, and the line where there is one."""
    kind = format_ or _BY_SUFFIX.get(PurePath(path).suffix.lower()) or detect(path)
    if kind not in MOST_BYTES:
        raise UsageError(
            f"{path} is not a settings file",
            why=f"it is {kind}, not TOML, JSON, YAML or a solver of Caffe",
        )
    with Source(path) as file:
        label = file.name
        if file.size > MOST_BYTES[kind]:
            raise UnsafeInput(
                f"{label} is too large for settings",
                why=f"{file.size} bytes, the limit is {MOST_BYTES[kind]}",
            )
        data = bytes(file.read(0, file.size))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Damaged(f"{label}, line {line}, is not UTF-8", why=str(error)) from error
    return parse(text, kind, label)


def parse(text: str, kind: str, label: str) -> dict[str, Any]:
    """Return the settings in a text of one of these kinds."""
    value = _READERS[kind](text, label)
    if value is None and kind == "yaml":
        value = {}  # an empty file, or only comments
    if not isinstance(value, dict):
        raise Damaged(f"{label} is not a table of settings", why=f"it is a {type(value).__name__}")
    plain: dict[str, Any] = _plain(value, label, "", 0)
    return plain


def flatten(settings: dict[str, Any]) -> dict[str, Scalar]:
    """`{"a": {"b": 1}}` -> `{"a.b": 1}`; lists become canonical JSON, NaN becomes "NaN"."""
    flat: dict[str, Scalar] = {}
    waiting: list[tuple[str, Any]] = list(reversed(settings.items()))
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict) and value:
            waiting += reversed([(f"{key}.{name}", item) for name, item in value.items()])
            continue
        if key in flat:
            raise UsageError(f"the setting {key} is there twice", why="once as a dotted name")
        if isinstance(value, (dict, list)):
            flat[key] = dumps(_finite(value)).decode("utf-8")
        else:
            flat[key] = number(value) if isinstance(value, float) else value
    return flat


def _finite(value: Any) -> Any:
    """Recursive, as deep as `_plain` allowed it to be."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return number(value) if isinstance(value, float) else value


def _plain(value: Any, label: str, key: str, depth: int) -> Any:
    where = f"{label}, at {key}" if key else label
    if depth > MOST_DEPTH:
        raise UnsafeInput(f"{label} is nested too deeply", why=f"the limit is {MOST_DEPTH} levels")
    if isinstance(value, dict):
        plain = {}
        for name, item in value.items():
            text = str(name).lower() if isinstance(name, bool) else str(name)
            if text in plain:
                raise Damaged(f"{where}, names {text!r} twice")
            if not isinstance(name, (str, int, float, datetime.date)):
                raise Damaged(f"{where}, has a key that is not a string", why=repr(name)[:100])
            _check_text(text, where)
            below = f"{key}.{text}" if key else text
            plain[text] = _plain(item, label, below[-200:], depth + 1)
        return plain
    if isinstance(value, list):
        return [_plain(item, label, key, depth + 1) for item in value]
    if isinstance(value, str):
        return _check_text(value, where)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise Damaged(f"{where}: an integer is out of range", why="64 bits are kept")
    if value is None or isinstance(value, (bool, int, float)):
        return value
    raise Damaged(f"{where}: a value of an unusual type", why=type(value).__name__)


def _check_text(text: str, where: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Damaged(f"{where}: half a character", why=str(error)) from error
    return text


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _read_json(text: str, label: str) -> Any:
    depth = nodes = 0
    for token in _JSON_TOKEN.finditer(text):
        sign = token[0]
        if len(sign) > 1:
            continue
        nodes += 1
        depth += (sign in "[{") - (sign in "]}")
        if depth > MOST_DEPTH or nodes > MOST_NODES:
            kind = "nested too deeply" if depth > MOST_DEPTH else "too large for settings"
            raise UnsafeInput(f"{label}, line {_line(text, token.start())}, is {kind}")

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(members)
        if len(table) != len(members):
            names = [name for name, _ in members]
            twice = next(name for name in names if names.count(name) > 1)
            raise Damaged(f"{label} names {twice!r} twice in one object")
        return table

    try:
        return json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise Damaged(f"{label}, line {error.lineno}, is not JSON", why=str(error)) from error
    except ValueError as error:  # an integer of thousands of digits
        raise Damaged(f"{label} is not JSON", why=str(error)) from error


def _read_toml(text: str, label: str) -> Any:
    # tomllib keeps every prefix of a dotted key: a key of n parts costs n * n.
    for chain in _CHAIN.finditer(text):
        if len(chain[0]) <= 2 * MOST_DEPTH or len(_PART.findall(chain[0])) <= MOST_DEPTH:
            continue
        if _IS_KEY.match(text, chain.end()):
            line = _line(text, chain.start())
            raise UnsafeInput(f"{label}, line {line}, is nested too deeply", why="a dotted key")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at line ([0-9]+)", str(error))
        line = int(place[1]) if place else _line(text, len(text))
        raise Damaged(f"{label}, line {line}, is not TOML", why=str(error)) from error
    except RecursionError as error:
        raise UnsafeInput(f"{label} is nested too deeply") from error
    except ValueError as error:  # a date that is none, an integer of thousands of digits
        raise Damaged(f"{label} is not TOML", why=str(error)) from error


def dump_yaml(settings: dict[str, Any]) -> str:
    """Return settings as YAML, in their order."""
    import yaml

    return str(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))


def _read_yaml(text: str, label: str) -> Any:
    import yaml

    # The library follows YAML 1.1, to which 1e-3 and 1.0e5 are text.
    loader_type: Any = type("Loader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
    loader_type.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789."))
    try:
        _check_events(yaml, yaml.parse(text, Loader=loader_type), label)
        loader = loader_type(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check_nodes(yaml, loader, node, label)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.constructor.ConstructorError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UnsafeInput(
            f"{label}, line {line}, asks for more than plain values", why=error.problem
        ) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = mark.line + 1 if mark else _line(text, getattr(error, "position", 0) or 0)
        raise Damaged(f"{label}, line {line}, is not YAML", why=str(error)) from error
    except RecursionError as error:
        raise UnsafeInput(f"{label} is nested too deeply") from error


def _read_solver(text: str, label: str) -> dict[str, Any]:
    """Without the networks that may be in it: those are no settings."""
    message = prototxt.parse(text.encode("utf-8"), label)
    return {name: item for name, item in _fields(message).items() if name not in _NETS}


def _fields(message: Message) -> dict[str, Any]:
    """As deep as the text, which `prototxt` limits."""
    found: dict[str, Any] = {}
    for name, values in message.fields.items():
        items = [_field(value) for value in values]
        found[name] = items[0] if len(items) == 1 else items
    return found


def _field(value: Any) -> Any:
    if isinstance(value, Message):
        return _fields(value)
    if isinstance(value, Word):
        return {"true": True, "false": False}.get(value, str(value))
    return shortest(value) if isinstance(value, float) else value


def _check_events(yaml: ModuleType, events: Any, label: str) -> None:
    """Count what aliases would expand to before anything is built; refuse cycles and depth."""
    sizes: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = []  # anchor, nodes before it
    nodes = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            if any(event.anchor == anchor for anchor, _ in open_):
                raise UnsafeInput(f"{label}, line {line}: {event.anchor} contains itself")
            nodes += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            open_.append((event.anchor, nodes))
            nodes += 1
            if len(open_) > MOST_DEPTH:
                raise UnsafeInput(f"{label}, line {line}, is nested too deeply")
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            anchor, before = open_.pop()
            if anchor:
                sizes[anchor] = nodes - before
        if nodes > MOST_NODES:
            raise UnsafeInput(
                f"{label}, line {line}, is too large for settings",
                why=f"more than {MOST_NODES} values when its aliases are followed",
            )


def _check_nodes(yaml: ModuleType, loader: Any, root: Any, label: str) -> None:
    """Duplicate keys, and values that YAML takes for numbers or dates but that are none."""
    waiting = [root]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            names = set()
            for key, value in node.value:
                waiting += [key, value]
                name = _key_of(yaml, loader, key, label)
                if name in names:
                    raise Damaged(f"{label}, line {key.start_mark.line + 1}: a key is there twice")
                names.add(name)
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
        else:
            _scalar(loader, node, label)


def _key_of(yaml: ModuleType, loader: Any, key: Any, label: str) -> Any:
    """What makes a key the same as another in a Python dict: 1, 1.0 and true are."""
    if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
        return (key.tag, id(key) if key.value != "<<" else 0)
    return _scalar(loader, key, label)


def _scalar(loader: Any, node: Any, label: str) -> Any:
    if node.tag.rpartition(":")[2] not in _CONVERTED:
        return node.value
    try:
        return loader.construct_object(node)
    except (ValueError, OverflowError, KeyError) as error:
        line = node.start_mark.line + 1
        raise Damaged(f"{label}, line {line}, is not YAML", why=str(error)) from error


_READERS: dict[str, Callable[[str, str], Any]] = {
    "json": _read_json,
    "toml": _read_toml,
    "yaml": _read_yaml,
    "caffe_solver": _read_solver,
}
