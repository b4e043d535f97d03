"""A model made by the user's own code, FILE.py:FACTORY, in a process of its own.

`network_of` starts that process, whose `main` is in `live`: whatever the user's code does, it does
it there, and what comes back is read as any file from outside.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import stat
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import dlv.disk.children as children
from dlv.adapters import exported
from dlv.adapters.checkpoint import Checkpoint
from dlv.canonical import read_json
from dlv.errors import DlvError, NotFound, StorageError, UnsafeInput, UsageError, nearest

_MODULE = "dlv_user_model"  # no name that the code itself would import


@contextlib.contextmanager
def factory_result(file_and_name: str) -> Iterator[Any]:
    """What the factory returns, while its folder can be imported from.

    What it prints goes to stderr; nothing is written beside the file, and the modules of its
    folder are forgotten afterwards, so that another project may have some of the same name.
    """
    path, name = place(file_and_name)
    process = os.getpid()
    with _importable(path.parent), contextlib.redirect_stdout(sys.stderr):
        found = _call(_attribute(_load(path), name, path.name), name, path.name)
        if os.getpid() != process:
            os._exit(0)  # a copy of this process that the code made and forgot
        yield found


def place(file_and_name: str) -> tuple[Path, str]:
    """The file of FILE.py:FACTORY, which is there, and the name of what is called."""
    file, _, name = file_and_name.rpartition(":")
    if not file or not name:
        raise UsageError(
            f"`{file_and_name}` is not FILE.py:FACTORY",
            hint="FACTORY takes no arguments and returns a torch module",
        )
    path = Path(os.path.abspath(file))
    if not path.is_file():
        hint = f"{file}.py:{name}" if path.with_suffix(".py").is_file() else None
        raise NotFound(f"no such file: {file}", hint=hint)
    return path, name


def _call(factory: Any, name: str, file: str) -> Any:
    if hasattr(factory, "state_dict") and not isinstance(factory, type):
        return factory  # a model that is there already
    try:
        return factory()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UsageError(
            f"{name} in {file} fails", why=first_line(error), hint=_hint(error, file)
        ) from error


def _hint(error: BaseException, file: str) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)[1:]]
    if not lines:  # it was not entered
        return "FACTORY is called without arguments"
    return f"see line {lines[0]} of {file}"


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = path
        sys.dont_write_bytecode = bytecode
        for name in set(sys.modules) - modules:
            if name == _MODULE or _lies_in(sys.modules[name], folder):
                del sys.modules[name]


def _lies_in(module: ModuleType, folder: Path) -> bool:
    """Whether it is the user's own code: an environment may lie below the same folder."""
    origin = getattr(module, "__file__", None)
    if not origin:
        return False
    path = Path(origin)
    return folder in path.parents and not {"site-packages", "dist-packages"} & set(path.parts)


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module  # dataclasses and pickle look a class's module up there
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UsageError(f"{path.name} cannot be imported", why=first_line(error)) from error
    return module


def _attribute(module: ModuleType, name: str, file: str) -> Any:
    found = getattr(module, name, None)
    if found is None:
        raise NotFound(
            f"{file} has no {name}",
            did_you_mean=nearest(name, [each for each in vars(module) if each[0] != "_"]),
        )
    if not callable(found):
        raise UsageError(
            f"{name} in {file} is a {type(found).__name__}",
            why="a function or class that makes the model is needed",
        )
    return found


def first_line(error: BaseException) -> str:
    """The first line of what an error says, with its name."""
    try:
        said = str(error)
    except Exception:  # what user code raises may not even be printable
        said = ""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= 300 else text[:299] + "…"


_INTERRUPTED = 130
_MOST_ERROR = 64 << 10
_MOST_TEXT = 2000
_KINDS = {kind.kind: kind for kind in (UsageError, NotFound, StorageError, UnsafeInput)}


def network_of(file_and_name: str, shapes: Sequence[str], result: Path) -> Checkpoint:
    """The network of the model that the factory makes, which its process leaves in `result`.

    What the process says goes to stderr. Its result is read as any file from outside, and how
    it ends is told in one error. The caller closes what comes back.
    """
    path, name = place(file_and_name)
    arguments = (str(result.absolute()), f"{path}:{name}", *shapes)
    command = children.python("dlv.adapters.aten.live", *arguments)
    try:
        # Ctrl-C reaches both processes; should this one be first, it ends the other.
        done = children.run(command, stdout=_stderr())
    except OSError as error:
        raise StorageError("cannot start Python", why=error.strerror) from error
    if done.returncode in (_INTERRUPTED, -signal.SIGINT):
        raise KeyboardInterrupt
    size = _size(result)
    if done.returncode or not size:
        raise _reported_error(result) or UsageError(
            f"{name} in {path.name} ended its process {_ending(done.returncode)}",
            why="the model was to be handed back, not the process ended",
            hint="its output is above; dlv traces the model that is returned",
        )
    return exported.open(str(result))


def _stderr() -> int:
    """Where the process prints, as stdout is for dlv's own results."""
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2


def _size(result: Path) -> int:
    """Bytes of what the process left, if that is a file."""
    try:
        found = result.lstat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _reported_error(result: Path) -> DlvError | None:
    """The error that the process left instead of a network."""
    if not 0 < _size(result) <= _MOST_ERROR:
        return None
    try:
        found = read_json(result.read_bytes(), "result")
        said: dict[str, Any] = found["error"]
        why, hint, close = said["why"], said["hint"], said["did_you_mean"]
        return _KINDS.get(said["kind"], UsageError)(
            str(said["message"])[:_MOST_TEXT],
            why=None if why is None else str(why)[:_MOST_TEXT],
            hint=None if hint is None else str(hint)[:_MOST_TEXT],
            did_you_mean=[str(each)[:_MOST_TEXT] for each in close[:3]],
        )
    except (DlvError, OSError, LookupError, TypeError):
        return None


def _ending(code: int) -> str:
    if code >= 0:
        return f"with exit status {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
