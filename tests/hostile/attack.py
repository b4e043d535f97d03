"""Reads files as `add` would, each in a child of its own: python -m tests.hostile.attack FILE..

Prints a JSON line per file: error kind (null: none, "crash": not a typed error), text, seconds
of processor time, growth of memory in MiB. Whatever the file tries is stopped by an audit hook.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import sysconfig
import traceback
from typing import Any

from dlv.adapters import logs as metric_logs
from dlv.adapters import registry
from dlv.adapters import settings as settings_files
from dlv.adapters.detect import detect, role_of
from dlv.errors import DlvError, require
from dlv.network.verify import verify

LIBRARY = sysconfig.get_path("stdlib")
FORBIDDEN = (
    "subprocess.",
    "socket.",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.truncate",
    "pickle.find_class",
    "ctypes.",
    "shutil.",
    "webbrowser.",
)


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    writes = event == "open" and int(arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    # Importing a module of the standard library runs its code object; a payload's is a <string>.
    runs = event == "exec" and not arguments[0].co_filename.startswith(LIBRARY)
    if event.startswith(FORBIDDEN) or runs or writes:
        os.write(2, f"{event} {arguments!r}\n".encode())
        os._exit(66)


def consume(path: str) -> None:
    """Everything that dlv would ever read of the file."""
    format_ = detect(path)
    role = role_of(format_)
    if role == "weights" or format_ in registry.READERS:
        checkpoint = registry.adapter(format_).open(path)
        try:
            for tensor in checkpoint.tensors:
                tensor.read()
            if checkpoint.network is not None:
                verify(checkpoint.network)
        finally:
            checkpoint.close()
    elif role == "log":
        metric_logs.read(path)
    else:
        settings_files.flatten(settings_files.read(path))


def attack(path: str) -> dict[str, Any]:
    before = resource.getrusage(resource.RUSAGE_SELF)
    kind, text = None, ""
    try:
        consume(path)
    except DlvError as error:
        kind, text = error.kind, f"{error.message} ({error.why})"
    except BaseException:
        kind, text = "crash", traceback.format_exc()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "format": detect(path),
        "kind": kind,
        "text": text[-2000:],
        "seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "mebibytes": (after.ru_maxrss - before.ru_maxrss) / 1024,
    }


def main() -> None:
    # Importing them later would set the hook off.
    require("yaml", "yaml")
    require("difflib", "")
    assert [registry.adapter(name).FORMAT for name in registry.READERS]
    sys.dont_write_bytecode = True
    for path in sys.argv[1:]:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            sys.addaudithook(watch)
            print(json.dumps(attack(path)), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            code = os.waitstatus_to_exitcode(status)
            print(
                json.dumps({"kind": "crash", "text": f"exit {code}", "seconds": 0, "mebibytes": 0})
            )


if __name__ == "__main__":
    main()
