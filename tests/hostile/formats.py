"""Hostile bytes for what dlv itself writes, and for texts: python -m tests.hostile.formats

Prints a JSON line for each: the parser, the name, what it ended in, seconds, growth in MiB.
Whatever would run, connect or unpickle something ends the process.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import sys
import traceback
from typing import Any

from dlv.errors import DlvError
from tests import event_bytes
from tests.fuzz.targets import TARGETS

FORBIDDEN = (
    "subprocess.",
    "socket.",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "pickle.",
    "ctypes.",
)
JSON = {
    "nothing": b"",
    "cut": b'{"format":',
    "a list": b"[]",
    "null": b"null",
    "deep": b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "twice": b'{"a":1,"a":2}',
    "no number": b'{"a":NaN}',
    "infinite": b'{"a":1e999}',
    "digits": b'{"a":' + b"9" * 1_000_000 + b"}",
    "no text": b'{"a":"\xc3\x28"}',
    "a mark in front": b"\xef\xbb\xbf{}",
    "half a pair": b'{"a":"\\ud800"}',
    "long": b'{"a":"' + b"a" * (40 << 20) + b'"}',
    "behind it": b"{} {}",
    "pickle": b"\x80\x04cposix\nsystem\n(S'true'\ntR.",
}
PACK = next(iter(TARGETS["pack"].seeds()))


def _ended(offset: int, length: int) -> bytes:
    """A pack of which the end tells another place of its footer."""
    return PACK[: -struct.calcsize("<QQ32s8s")] + struct.pack(
        "<QQ32s8s", offset, length, bytes(32), b"DLVPEND1"
    )


def _framed(body: bytes) -> bytes:
    return event_bytes.version() + event_bytes.record(body)


def _length(length: int) -> bytes:
    head = struct.pack("<Q", length)
    return head + struct.pack("<I", event_bytes.masked(head)) + b"x" * 100


HOSTILE: dict[str, dict[str, bytes]] = {
    "manifest": JSON,
    "fact": JSON,
    "bounds": JSON,
    "network": JSON,
    "pack": {
        "nothing": b"",
        "the beginning": PACK[:8],
        "the beginning and the end": b"DLVPACK1" + PACK[-56:],
        "zeros": bytes(100_000),
        "cut": PACK[:-1],
        "more": PACK + b"x",
        "footer of 2^63": _ended(8, 1 << 63),
        "footer beyond": _ended(1 << 62, 100),
        "footer overlapping": _ended(0, len(PACK)),
        "footer of nothing": _ended(len(PACK) - 56, 0),
        "offset and length wrap": _ended((1 << 64) - 1, 2),
        "text": b"hello world" * 1000,
    },
    "query": {
        name: text.encode()
        for name, text in {
            "parentheses": "select m where " + "(" * 50_000,
            "not": "select m where " + "not " * 50_000,
            "open text": 'select m where m.name = "' + "a" * 150_000,
            "open text of escapes": 'select m where m.name = "' + "\\a" * 75_000,
            "too long": 'select m where m.name = "' + "a" * 1_000_000,
            "digits": "select m where m.number = " + "9" * 100_000 + "x",
            "brackets": "select m where m" + '["' * 20_000,
            "semicolons": ";" * 100_000,
            "code": "__import__('os').system('true')",
            "sql": "select m where m.name = ''; drop table version; --",
            "zero": "select \0 m",
            "nested": "select m from (" * 2_000,
            "comments": "/*" * 100_000,
            "words": "select " * 20_000,
        }.items()
    },
    "config": {
        "arrays": b"a = " + b"[" * 100_000,
        "tables": b"a = " + b"{a=" * 50_000,
        "twice": b"[user]\nname = 'a'\n[user]\nname = 'b'\n",
        "digits": b"a = " + b"9" * 100_000,
        "zero": b"a\0b = 1",
        "no text": b"[user]\nname = '\xff'",
        "cut": b"[user",
        "no key": b"= 5\n",
        "open text": b'a = """' + b"a" * 1_000_000,
    },
    "name": {
        f"name {place}": text.encode()
        for place, text in enumerate(
            [
                *("", ".", "..", "../a", "a/b", "/a", "a\0b", "-rf", " ", "a b", "a@1", "a:b"),
                *("a\\b", "\u202ea", "a\n", "\u200b", ".git", "HEAD", "a*", "$(true)", "`true`"),
            ]
        )
    },
    "events": {
        "length of 2^63": _length(1 << 63),
        "length of 2^40": event_bytes.version() + _length(1 << 40),
        "field of 2^60": _framed(b"\x2a" + event_bytes.varint(1 << 60) + b"x"),
        "endless number": _framed(b"\x10" + b"\xff" * 100),
        "groups": _framed(b"\x0b" * 100_000),
        "summaries within": _framed(event_bytes.part(5, b"\x0a" * 100_000)),
        "tag of a megabyte": event_bytes.scalar("t" * 1_000_000, 1, 1.0),
        "garbage": b"garbage" * 10_000,
        "zeros": bytes(100_000),
        "a pickle": b"\x80\x04cposix\nsystem\n(S'true'\ntR.",
    },
}
# An event file that is damaged is read up to there: its reader raises nothing.
QUIET = {"events"}


def watch(event: str, _: tuple[Any, ...]) -> None:
    if event.startswith(FORBIDDEN):
        os.write(2, f"{event}\n".encode())
        os._exit(66)


def attack(target: str, data: bytes) -> dict[str, Any]:
    before = resource.getrusage(resource.RUSAGE_SELF)
    kind, text = None, ""
    try:
        TARGETS[target].run(data)
    except DlvError as error:
        kind = error.kind
    except BaseException:
        kind, text = "crash", traceback.format_exc()[-2000:]
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "kind": kind,
        "text": text,
        "seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "mebibytes": (after.ru_maxrss - before.ru_maxrss) / 1024,
    }


def main() -> None:
    for target, files in HOSTILE.items():
        attack(target, next(iter(TARGETS[target].seeds())))  # imports what it needs
        for name, data in files.items():
            sys.stdout.flush()
            child = os.fork()
            if not child:
                sys.addaudithook(watch)
                print(json.dumps({"target": target, "name": name, **attack(target, data)}))
                sys.stdout.flush()
                os._exit(0)
            _, status = os.waitpid(child, 0)
            if status:
                gone = {"kind": "crash", "text": f"exit {status}", "seconds": 0, "mebibytes": 0}
                print(json.dumps({"target": target, "name": name, **gone}))


if __name__ == "__main__":
    main()
