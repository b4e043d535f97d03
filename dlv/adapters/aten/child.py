"""The process that runs FILE.py:FACTORY for `add --network` and writes down what it gives."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from dlv.adapters import exported
from dlv.adapters.aten.factory import first_line
from dlv.adapters.aten.live import from_factory
from dlv.errors import DlvError, UsageError

# As they are before the user's code runs, which may change any of them.
_open, _exit, _dumps = io.FileIO, os._exit, json.dumps


def main() -> NoReturn:
    """Arguments: the file for the result, FILE.py:FACTORY, the shapes of the inputs.

    The process ends at once: threads and exit handlers of the user's code are not waited for.
    """
    _, result, code, *shapes = sys.argv
    file = code.rpartition(":")[0]
    sys.argv[:] = [file]  # the code may read arguments that it takes for its own
    faulthandler.enable()
    # Also where dlv was started with Ctrl-C ignored, as by nohup: it ends this by a signal then.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = 1
    try:
        found = from_factory(code, shapes)
        # Opened only now, as the user's code may close any descriptor.
        with _open(result, "wb") as raw, io.BufferedWriter(raw) as out:
            exported.write(out, found)
        status = 0
    except KeyboardInterrupt:
        status = 130
    except DlvError as error:
        _tell(result, error)
    except BaseException as error:  # the user's code may raise anything
        _tell(result, _unexpected(error, code, file))
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    _exit(status)


def _tell(result: str, error: DlvError) -> None:
    with contextlib.suppress(BaseException), _open(result, "wb") as out:
        out.write(_dumps(error.as_json()).encode("utf-8"))


def _unexpected(error: BaseException, code: str, file: str) -> DlvError:
    """Methods of the model raise it, as a rule; otherwise the whole traceback is worth a look."""
    folder = Path(file).parent
    lines = [
        f"line {frame.lineno} of {frame.filename}"
        for frame in traceback.extract_tb(error.__traceback__)
        if folder in Path(frame.filename).parents
    ]
    if not lines:
        with contextlib.suppress(BaseException):
            traceback.print_exception(error)
    name = code.rpartition(":")[2]
    return UsageError(
        f"the model that {name} in {Path(file).name} makes cannot be looked at",
        why=first_line(error),
        hint=f"see {lines[-1]}" if lines else "the traceback is above",
    )
