"""Running a module without leaving a trace: random numbers, modes and attributes are put back."""

from __future__ import annotations

import contextlib
import logging
import random
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any, TextIO

import numpy as np


@contextlib.contextmanager
def undisturbed(torch: Any, module: Any) -> Iterator[None]:
    """Whatever the code inside does to `module` and to random numbers is undone."""
    before = [(each, _attributes(each)) for each in module.modules()]
    try:
        with same_numbers(torch):
            yield
    finally:
        for each, kept in before:
            _put_back(each, kept)


@contextlib.contextmanager
def same_numbers(torch: Any) -> Iterator[None]:
    """Random numbers afterwards are those that would have come now."""
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    numbers = random.getstate(), np.random.get_state(), torch.random.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if cuda else None
    try:
        yield
    finally:
        random.setstate(numbers[0])
        np.random.set_state(numbers[1])
        torch.random.set_rng_state(numbers[2])
        if devices is not None:
            torch.cuda.set_rng_state_all(devices)


def _attributes(module: Any) -> list[tuple[str, Any, Any]]:
    """Every attribute; of a list, dict or set its content too."""
    return [
        (name, value, value.copy() if type(value) in (list, dict, set) else None)
        for name, value in vars(module).items()
    ]


def _put_back(module: Any, kept: list[tuple[str, Any, Any]]) -> None:
    attributes = vars(module)
    for name in attributes.keys() - {name for name, _, _ in kept}:
        del attributes[name]
    for name, value, content in kept:
        attributes[name] = value
        if isinstance(content, list):
            value[:] = content
        elif content is not None:
            value.clear()
            value.update(content)


class _OtherThreads:
    """A stream on which this thread says nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._silent = threading.get_ident()

    def write(self, text: str) -> int:
        if threading.get_ident() == self._silent:
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What torch prints, logs and warns of is not shown: failures are told in our words."""
    silent = threading.get_ident()

    def others(record: logging.LogRecord) -> bool:
        return record.thread != silent

    known = list(logging.root.manager.loggerDict.values())
    loggers = [each for each in known if isinstance(each, logging.Logger)]
    mine = [each for each in loggers if each.name.split(".")[0] == "torch"]
    handlers = [handler for logger in (logging.root, *mine) for handler in logger.handlers]
    stream: Any = _OtherThreads(sys.stderr)
    for handler in handlers:
        handler.addFilter(others)
    try:
        with contextlib.redirect_stderr(stream), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(others)
