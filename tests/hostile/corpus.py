"""Hostile files by name: each must end in a typed error, in little time and memory.

`CORPUS` maps a file name to the function that builds its bytes. Pickles are beside this file.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
import zlib
from typing import Any

import numpy as np

from tests.hostile.harness import Corpus

CORPUS = Corpus()
hostile, add = CORPUS.hostile, CORPUS.add


# safetensors


def tensors(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


ONE = entry("U8", [1], 0, 1)
ONE_TEXT = json.dumps(ONE).encode()
GOOD = tensors({"a": entry("F32", [2, 2], 0, 16), "__metadata__": {"step": "1"}}, bytes(16))

add("header-1tib.safetensors", (1 << 40).to_bytes(8, "little") + b"{}")
add("header-2pow64.safetensors", b"\xff" * 8 + b"{}" + bytes(100))
add("cut-in-length.safetensors", GOOD[:8] + b"{")
add("cut-in-header.safetensors", GOOD[:40])
add("cut-in-data.safetensors", GOOD[:-1])
add("trailing.safetensors", GOOD + b"\0")
add("zip-behind.safetensors", GOOD + b"PK\x05\x06" + bytes(18))
add("hole.safetensors", tensors({"a": ONE, "b": entry("U8", [1], 2, 3)}, b"abc"))
add(
    "overlap.safetensors",
    tensors({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, b"abc"),
)
add("same-bytes.safetensors", tensors({"a": ONE, "b": ONE}, b"a"))
add("overflow.safetensors", tensors({"a": entry("F32", [1 << 32, 1 << 30], 0, 0)}))
add("overflow-and-zero.safetensors", tensors({"a": entry("F32", [1 << 62, 1 << 62, 0], 0, 0)}))
add("terabyte.safetensors", tensors({"a": entry("F32", [1 << 40], 0, 1 << 42)}))
add("beyond.safetensors", tensors({"a": entry("U8", [1 << 62], 0, 1 << 62)}, b"a"))
add("backwards.safetensors", tensors({"a": entry("U8", [0], 5, 0)}, b"hello"))
add("shape-lies.safetensors", tensors({"a": entry("F64", [3], 0, 8)}, bytes(8)))
add("duplicate.safetensors", tensors(b'{"a":%b,"a":%b}' % (ONE_TEXT, ONE_TEXT), b"a"))
add("duplicate-escaped.safetensors", tensors(b'{"a":%b,"\\u0061":%b}' % (ONE_TEXT, ONE_TEXT), b"a"))
add("invalid-utf8.safetensors", tensors(b'{"\xc3\x28":%b}' % ONE_TEXT, b"a"))
add("nul-name.safetensors", tensors({"a\0b": ONE}, b"a"))
add("surrogate-name.safetensors", tensors({"\ud800": ONE}, b"a"))
add("metadata-number.safetensors", tensors({"__metadata__": {"a": 1}}))
add(
    "nan-shape.safetensors",
    tensors(b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}', b"a"),
)


@hostile("deep.safetensors")
def _() -> bytes:
    return tensors(b'{"a":' * 300_000 + b"1" + b"}" * 300_000)


@hostile("brackets-90mb.safetensors")
def _() -> bytes:
    return tensors(b'{"a":{"shape":' + b"[" * 90_000_000)


@hostile("escapes-50mb.safetensors")
def _() -> bytes:
    return tensors(b'{"' + b"\\n" * 25_000_000 + b'":1}')


@hostile("open-string-50mb.safetensors")
def _() -> bytes:
    return tensors(b'{"' + b"a" * 50_000_000)


@hostile("too-many-tensors.safetensors")
def _() -> bytes:
    members = (b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i for i in range(100_001))
    return tensors(b"{" + b",".join(members) + b"}")


@hostile("metadata-long.safetensors")
def _() -> bytes:
    return tensors(b'{"__metadata__":{"a":"' + b"x" * 20_000_000 + b'"}}')


@hostile("metadata-bomb.safetensors")
def _() -> bytes:
    members = b",".join(b'"%x":""' % i for i in range(2_000_000))
    return tensors(b'{"__metadata__":{' + members + b"}}")


# npy


def npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    raw = header.encode("latin-1")
    width = 2 if version == 1 else 4
    return b"\x93NUMPY" + bytes([version, 0]) + len(raw).to_bytes(width, "little") + raw + data


def header(descr: str = "'<f4'", shape: str = "(2,)", flag: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {flag}, 'shape': {shape}, }}\n"


def pickled() -> bytes:
    out = io.BytesIO()
    np.save(out, np.array([{"a": 1}, None], object), allow_pickle=True)
    return out.getvalue()


add("objects.npy", pickled())
add("structured.npy", npy(header("[('a', '<f4'), ('b', '|O')]"), bytes(8)))
add("terabytes.npy", npy(header(shape="(1000000000000,)"), bytes(8)))
add("terabytes-fortran.npy", npy(header(shape="(1000000, 1000000)", flag="True"), bytes(8)))
add("overflow.npy", npy(header(shape=f"({1 << 62}, {1 << 62}, 4)")))
add("overflow-and-zero.npy", npy(header(shape=f"({1 << 62}, {1 << 62}, 0)")))
add("expression.npy", npy(header(shape="((10**9)**9,)")))
add("call.npy", npy("__import__('os').system('touch hacked')"))
add("comprehension.npy", npy("[x for x in ().__class__.__bases__[0].__subclasses__()]"))
add("parentheses.npy", npy("(" * 60_000))
add("unary.npy", npy("-" * 60_000 + "1"))
add("list-product.npy", npy("[0]*10**10"))
add("dimensions.npy", npy(header(shape=f"({'1,' * 5000})"), bytes(4)))
add("digits.npy", npy(header(shape=f"({'9' * 60_000},)")))
add("header-4gib.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}")
add("header-1mib.npy", npy(" " * (1 << 20) + header(), bytes(8), version=2))
add("version-9.npy", b"\x93NUMPY\x09\x00" + npy(header(), bytes(8))[8:])
add("cut-in-header.npy", npy(header(), bytes(8))[:30])
add("cut-in-data.npy", npy(header(), bytes(8))[:-1])
add("trailing.npy", npy(header(), bytes(9)))
add("not-utf8.npy", npy(header("'<f4\xff'"), bytes(8), version=3))

# npz

ARRAY = npy(header(), bytes(8))


def archive(*members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as target:
        for name, data in members:
            target.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


def patched(data: bytes, *places: tuple[int, bytes]) -> bytes:
    raw = bytearray(data)
    for at, new in places:
        raw[at : at + len(new)] = new
    return bytes(raw)


STORED = archive(("ab.npy", ARRAY))
CENTRAL = STORED.index(b"PK\x01\x02")
END = len(STORED) - 22
TWO = archive(("ab.npy", ARRAY), ("cd.npy", ARRAY))
SECOND = TWO.rindex(b"PK\x01\x02")


def renamed(name: str) -> bytes:
    assert len(name) == 6
    return STORED.replace(b"ab.npy", name.encode())


add("traversal.npz", archive(("../../../tmp/ab.npy", ARRAY)))
add("traversal-inside.npz", archive(("a/../../b.npy", ARRAY)))
add("absolute.npz", renamed("/a.npy"))
add("backslash.npz", renamed("\\a.npy"))
add("drive.npz", archive(("C:evil.npy", ARRAY)))
add("nul-name.npz", renamed("a\0.npy"))
add("duplicate.npz", TWO.replace(b"cd.npy", b"ab.npy"))
add("two-names.npz", patched(STORED, (30, b"zz")))
add("two-sizes.npz", patched(STORED, (18, b"\x01\0\0\0")))
add("two-checksums.npz", patched(STORED, (14, b"\x01\0\0\0")))
add("wrong-checksum.npz", patched(STORED, (14, b"\1\2\3\4"), (CENTRAL + 16, b"\1\2\3\4")))
add("encrypted.npz", patched(STORED, (6, b"\1"), (CENTRAL + 8, b"\1")))
add("method-lzma.npz", patched(STORED, (8, b"\x0e"), (CENTRAL + 10, b"\x0e")))
add("overlap.npz", patched(TWO, (SECOND + 42, bytes(4))))
add("prepended.npz", b"PK\x03\x04" + STORED)
add("appended.npz", STORED + bytes(100))
add("comment.npz", patched(STORED, (END + 20, b"\x05\0")) + b"PK\5\6x")
add("count-65535.npz", patched(STORED, (END + 8, b"\xfe\xff\xfe\xff")))
add("directory-2gib.npz", patched(STORED, (END + 12, b"\0\0\0\x80")))
add("directory-outside.npz", patched(STORED, (END + 16, b"\xff\xff\xff\x7f")))
add("zip64-missing.npz", patched(STORED, (END + 16, b"\xff" * 4)))
add("cut-in-directory.npz", STORED[: CENTRAL + 20])
add("cut-in-data.npz", STORED[:60])
add("cut-in-end.npz", STORED[:-3])
add("objects.npz", archive(("a.npy", pickled())))
add("objects-deflated.npz", archive(("a.npy", pickled()), method=zipfile.ZIP_DEFLATED))
add("terabytes.npz", archive(("a.npy", npy(header(shape="(1000000000000,)"), bytes(8)))))
add("data-missing.npz", archive(("a.npy", npy(header(shape="(9,)"), bytes(35)))))


@hostile("zip64-count.npz")
def _() -> bytes:
    end64 = struct.pack(
        "<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1 << 62, 1 << 62, END - CENTRAL, CENTRAL
    )
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, END, 1)
    return STORED[:END] + end64 + locator + patched(STORED[END:], (8, b"\xff" * 4))


@hostile("zip64-ends-disagree.npz")
def _() -> bytes:
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 0, 0, 0, END)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, END, 1)
    return STORED[:END] + end64 + locator + STORED[END:]


@hostile("bomb-in-array.npz")
def _() -> bytes:
    """300 MB of zeros behind an array of two elements."""
    return archive(("a.npy", ARRAY + bytes(300_000_000)), method=zipfile.ZIP_DEFLATED)


@hostile("bomb-beyond-declared.npz")
def _() -> bytes:
    whole = archive(("a.npy", npy(header(), bytes(300_000_000))), method=zipfile.ZIP_DEFLATED)
    size = struct.pack("<L", len(ARRAY))
    central = whole.rindex(b"PK\x01\x02")
    crc = struct.pack("<L", zlib.crc32(ARRAY))
    return patched(whole, (14, crc), (22, size), (central + 16, crc), (central + 24, size))


@hostile("bomb-ratio.npz")
def _() -> bytes:
    """A few bytes that declare 3 GiB, with a header to match."""
    small = archive(
        ("a.npy", npy(header(shape="(800000000,)"), bytes(9))), method=zipfile.ZIP_DEFLATED
    )
    size = struct.pack("<L", len(npy(header(shape="(800000000,)"))) + 3_200_000_000)
    central = small.rindex(b"PK\x01\x02")
    return patched(small, (22, size), (central + 24, size))


@hostile("quoted-overlap.npz")
def _() -> bytes:
    """Many entries over one kernel of compressed zeros, as in zip bombs of 2019."""
    kernel = archive(("k.npy", bytes(10_000_000)), method=zipfile.ZIP_DEFLATED)
    central = kernel.rindex(b"PK\x01\x02")
    row = kernel[central:-22]
    rows = b"".join(row.replace(b"k.npy", b"%c.npy" % (97 + i)) for i in range(26))
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 26, 26, len(rows), central, 0)
    return kernel[:central] + rows + end


@hostile("unicode-name.npz")
def _() -> bytes:
    """A second name in an extra field, which some readers prefer."""
    info = zipfile.ZipInfo("a.npy")
    info.extra = struct.pack("<2HBL", 0x7075, 14, 1, zlib.crc32(b"a.npy")) + b"../../x.n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as target:
        target.writestr(info, ARRAY)
    return out.getvalue()


# Pickles that pretend nothing


class Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("open('hacked', 'w').close()",)


add("payload.pkl", pickle.dumps(Payload(), protocol=2))
add("payload-text.pt", pickle.dumps(Payload(), protocol=0))
add("payload.bin", pickle.dumps(Payload(), protocol=5))
add("old-torch.pth", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + pickle.dumps(Payload(), 2))

# Settings

LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30)
)
add("laughs.yaml", LAUGHS.encode())
add("merge-laughs.yaml", LAUGHS.replace("[*", "{<<: [*").replace("]\n", "]}\n").encode())
add("cycle.yaml", b"a: &a {b: *a}\n")
add("python-object.yaml", b"a: !!python/object/apply:os.system ['touch hacked']\n")
add("python-name.yaml", b"a: !!python/name:os.system\n")
add("deep.yaml", b"a: " + b"[" * 900_000)
add("deep-blocks.yaml", b"- " * 100_000)
add("nul.yaml", b"a: b\0c\n")
add("hex.yaml", b"a: 0x" + b"f" * 1_000_000)
add("large.yaml", b"a: 1\n" * 1_000_000)
add("invalid-utf8.yaml", b"a: \xc3\x28\n")
add("deep.toml", b"a = " + b"[" * 1_000_000)
add("deep-key.toml", b"a." * 20_000 + b"a = 1\n")
add("deep-quoted-key.toml", b"'a'. " * 20_000 + b"a = 1\n")
add("deep-long-key.toml", (b"'" + b"a" * 250 + b"'.") * 3_900 + b"a = 1\n")
add("deep-table.toml", b"[" + b"a." * 20_000 + b"a]\n")
add("chains.toml", b"a.a " * 250_000)
add("quotes.toml", b'"' * 1_000_000)
add("digits.toml", b"a = " + b"9" * 1_000_000)
add("duplicate.toml", b"a = 1\na = 2\n")
add("deep.json", b'{"a": ' + b"[" * 10_000_000)
add("wide.json", b'{"a": [' + b"[]," * 5_000_000 + b"[]]}")
add("digits.json", b'{"a": ' + b"9" * 10_000_000 + b"}")
add("escapes.json", b'{"a": "' + b"\\n" * 8_000_000)
add("duplicate.json", b'{"a": 1, "a": 2}')
add("surrogate.json", b'{"a": "\\udfff"}')

# Logs

add("long-line.jsonl", b'{"a": "' + b"x" * 20_000_000 + b'"}\n')
add("no-line-end.csv", b"a,b\n" + b"1" * 20_000_000)
add("open-quote.csv", b'a,b\n1,"' + b"x\n" * 5_000_000)
add("wide.csv", b",".join(b"c%d" % i for i in range(100_000)) + b"\n")
add("wide-rows.jsonl", b"".join(b'{"c%d": 1}\n' % i for i in range(20_000)))
add("digits.csv", b"step,a\n1,2\n" + b"9" * 100_000 + b",1\n")
add("huge-cell.csv", b"a,b\n1," + b"9" * 500_000 + b"\n")
add("deep.jsonl", b'{"a": 1}\n' + b"[" * 900_000 + b"\n")
add("nul.jsonl", b'{"a": 1}\n{"a": "\0"}\n')
add("invalid-utf8.jsonl", b'{"a": 1}\n{"\xff": 2}\n')
add("state-wide.json", b'{"log_history": [' + b"{}," * 3_000_000 + b"{}]}")
add("state-rows.json", b'{"log_history": [1, 2, 3]}')
