"""What a configuration and `--set` say about an evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dlv.adapters.settings as files
from dlv.adapters.data.settings import Settings
from dlv.errors import UnsafeInput, UsageError, nearest
from dlv.evaluation.engines import ENGINES

# Where data comes from and how it is computed; other keys of a file are a trainer's.
KEYS = ("input_data", "batch_size", "precision", "engine", "top_k", "data")
PRECISIONS = ("float64", "float32")
CODE = "python:"


@dataclass(frozen=True)
class EvalSettings:
    """None: not said."""

    data: Settings = field(default_factory=Settings)
    input_data: str | None = None
    batch: int | None = None
    precision: str | None = None
    engine: str | None = None
    top_k: int | None = None


def read_settings(path: str | None, settings: Sequence[str]) -> EvalSettings:
    """A file, and what `K=V` change of it; later ones win."""
    found: dict[str, Any] = {}
    if path is not None:
        found = {key: value for key, value in files.read(path).items() if key in KEYS}
        if str(found.get("input_data", "")).startswith(CODE):
            raise UnsafeInput(
                f"{path} names code to run",
                why=f"input_data = {found['input_data']}; a file may come from somebody else",
                hint=f"give {found['input_data']} as DATA if you want it to run",
            )
        found = _tables(found, path)
    for item in settings:
        key, equals, text = item.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"`{item}` is not of the form K=V", hint="--set data.scale=1/255")
        _set(found, key.strip(), value(text.strip()))
    return EvalSettings(
        data=Settings.of(found.get("data", {})),
        input_data=_text(found, "input_data"),
        batch=_count(found, "batch_size"),
        precision=_one_of(found, "precision", PRECISIONS),
        engine=_one_of(found, "engine", ENGINES),
        top_k=_count(found, "top_k"),
    )


def value(text: str) -> Any:
    """A value of the command line: JSON, several with commas between them, or a text."""
    for written in (text, *([f"[{text}]"] if "," in text else [])):
        try:
            return json.loads(written)
        except (ValueError, RecursionError):
            continue
    return text.split(",") if "," in text else text


def _tables(found: dict[str, Any], path: str) -> dict[str, Any]:
    data = found.get("data", {})
    if not isinstance(data, Mapping):
        raise UsageError(f"data in {path} is no table", why=f"it is {data!r}"[:200])
    return {**found, "data": dict(data)}


def _set(found: dict[str, Any], key: str, given: Any) -> None:
    if key.startswith("data."):
        name, _, rest = key.removeprefix("data.").partition(".")
        data = found.setdefault("data", {})
        if rest:
            table = data.get(name)
            data[name] = {**(table if isinstance(table, dict) else {}), rest: given}
        else:
            data[name] = given
        return
    known = [name for name in KEYS if name != "data"]
    if key not in known:
        raise UsageError(
            f"an evaluation has no setting `{key}`",
            why=f"there are {', '.join(known)} and data.*",
            did_you_mean=nearest(key, [*known, "data.shape", "data.labels", "data.scale"]),
        )
    found[key] = given


def _text(found: Mapping[str, Any], key: str) -> str | None:
    if key not in found:
        return None
    if not isinstance(found[key], str) or not found[key]:
        raise UsageError(f"{key} is {found[key]!r}"[:200], why="it must be a text")
    return str(found[key])


def _count(found: Mapping[str, Any], key: str) -> int | None:
    given = found.get(key)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or not 0 < given < 1 << 31:
        raise UsageError(f"{key} is {given!r}"[:200], why="it must be a whole number above 0")
    return given


def _one_of(found: Mapping[str, Any], key: str, allowed: Sequence[str]) -> str | None:
    if key in found and found[key] not in allowed:
        raise UsageError(
            f"{key} is {found[key]!r}"[:200], why=f"it must be one of {', '.join(allowed)}"
        )
    return found.get(key)
