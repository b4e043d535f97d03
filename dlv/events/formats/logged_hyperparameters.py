"""Hyperparameters that a training has logged: the metadata of a tag, and no value."""

from __future__ import annotations

from typing import Any

from dlv.events.formats.wire import BYTES, FIXED64, VARINT, Malformed, double, fields

PLUGIN = "hparams"
SESSION = "_hparams_/session_start_info"  # the tag of a run that has some

_SESSION_START, _VALUES = 3, 1
_NUMBER, _TEXT, _TRUTH = 2, 3, 4


def logged(content: bytes) -> dict[str, str | float | bool]:
    """Name -> value of the plugin content of `SESSION`; what is none of these, or null, is not
    listed."""
    found: dict[str, str | float | bool] = {}
    try:
        for session in _messages(content, _SESSION_START):
            for entry in _messages(session, _VALUES):
                name, value = _entry(entry)
                if value is not None:
                    found[name] = value
    except (Malformed, UnicodeDecodeError):
        return {}
    return found


def _messages(data: bytes, wanted: int) -> list[bytes]:
    return [data[a:b] for number, kind, a, b in fields(data) if (number, kind) == (wanted, BYTES)]


def _entry(data: bytes) -> tuple[str, str | float | bool | None]:
    name, value = "", None
    for number, kind, a, b in fields(data):
        if (number, kind) == (1, BYTES):
            name = data[a:b].decode()
        elif (number, kind) == (2, BYTES):
            value = _value(data[a:b])
    return name, value


def _value(data: bytes) -> Any:
    found: str | float | bool | None = None
    for number, kind, a, b in fields(data):
        if (number, kind) == (_NUMBER, FIXED64):
            found = double(a)
        elif (number, kind) == (_TEXT, BYTES):
            found = data[a:b].decode()
        elif (number, kind) == (_TRUTH, VARINT):
            found = bool(a)
    return found
