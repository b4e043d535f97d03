"""Code of the user's own: modules that are imported because the user named them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from dlv.errors import DlvError, NotFound, UsageError


@contextmanager
def importing(directory: Path) -> Iterator[str]:
    """Modules are looked for in this directory first."""
    here = str(directory.absolute())
    sys.path.insert(0, here)
    try:
        yield here
    finally:
        with suppress(ValueError):  # the code may have put it in order itself
            sys.path.remove(here)


def module(name: str, directory: Path, *, about: str = "", called: str = "") -> ModuleType:
    """The module, imported from this directory first. `called` and `about` go round its name in
    messages: the trainer `train`, of which ..
    """
    if name in sys.modules:
        return sys.modules[name]
    try:
        with importing(directory) as here:
            spec = importlib.util.find_spec(name)
            if spec is None or spec.loader is None:
                raise NotFound(f"no module `{name}`{about}", why=f"looked for in {here} and beyond")
            made = importlib.util.module_from_spec(spec)
            sys.modules[name] = made
            try:
                spec.loader.exec_module(made)
            except BaseException:
                del sys.modules[name]
                raise
            return made
    except (DlvError, KeyboardInterrupt):
        raise
    except ModuleNotFoundError as error:
        raise NotFound(f"{called}`{name}` cannot be imported", why=str(error)) from error
    except Exception as error:
        said = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UsageError(f"{called}`{name}` cannot be imported", why=said) from error
