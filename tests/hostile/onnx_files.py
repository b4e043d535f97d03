"""ONNX files made to attack their reader: `HOSTILE` maps a file name to what builds it.

`FOLDERS` are models that reach for other files: name -> what fills a folder around `model.onnx`.
"""

from __future__ import annotations

import gzip
import os
import struct
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

HOSTILE: dict[str, Callable[[], bytes]] = {}
FOLDERS: dict[str, Callable[[Path], None]] = {}


def add(name: str, data: bytes | Callable[[], bytes]) -> None:
    assert f"{name}.onnx" not in HOSTILE, name
    HOSTILE[f"{name}.onnx"] = data if callable(data) else lambda: data


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, *parts: bytes, length: int | None = None) -> bytes:
    data = b"".join(parts)
    return varint(field << 3 | 2) + varint(len(data) if length is None else length) + data


def node(
    kind: bytes = b"Relu", inputs: tuple[bytes, ...] = (b"x",), output: bytes = b"y", *attrs: bytes
) -> bytes:
    given = b"".join(block(1, name) for name in inputs)
    return block(1, given, block(2, output), block(4, kind), *attrs)


def attribute(name: bytes, kind: int, *fields: bytes) -> bytes:
    return block(5, block(1, name), *fields, number(20, kind))


def dims(*sides: int) -> bytes:
    return b"".join(number(1, side) for side in sides)


def tensor(name: bytes, *fields: bytes, kind: int = 1, field: int = 5) -> bytes:
    """An initializer (field 5 of a graph), of float32 by default."""
    return block(field, *fields, number(2, kind), block(8, name) if name else b"")


def external(*entries: tuple[bytes, bytes], sides: bytes = dims(2)) -> bytes:
    places = b"".join(block(13, block(1, key), block(2, value)) for key, value in entries)
    return tensor(b"w", sides, places, number(14, 1))


def graph(*fields: bytes) -> bytes:
    ends = block(11, block(1, b"x")), block(12, block(1, b"y"))
    return block(7, *fields, *ends)


def model(*fields: bytes, head: bytes = b"", opset: bytes = block(8, number(2, 17))) -> bytes:
    return number(1, 8) + head + graph(*fields) + opset


RAW = block(9, bytes(8))
GOOD = model(node(), tensor(b"w", dims(2), RAW))

# The wire format
add("empty", b"\x08")
add("only-a-version", b"\x08\x08")
add("no-graph", number(1, 8) + block(8, number(2, 17)))
add("two-graphs", GOOD + graph(node()))
add("two-versions", number(1, 8) + GOOD)
add("graph-as-number", number(1, 8) + number(7, 5) + block(8, number(2, 17)))
add("graph-beyond-the-end", number(1, 8) + block(7, b"abc", length=1 << 40))
add("length-2pow63", number(1, 8) + block(7, length=1 << 63))
add("length-of-ten-bytes", b"\x08\x08\x3a" + b"\xff" * 9 + b"\x7f")
add("varint-without-end", b"\x08" + b"\x80" * 100)
add("varints-without-end", b"\x08\x08\x3a" + b"\xff" * 1_000_000)
add("group", number(1, 8) + b"\x3b" + bytes(50) + b"\x3c")
add("field-0", number(1, 8) + b"\x00\x00" + GOOD)
add("appended-zeros", GOOD + bytes(1000))
add("appended-text", GOOD + b"rm -rf /\n" * 100)
add("no-opset", model(node(), opset=b""))
add(
    "opset-negative-and-again",
    model(node(), opset=block(8, number(2, -5)) + block(8, number(2, 9))),
)
for end in (3, 4, len(GOOD) // 3, len(GOOD) // 2, len(GOOD) - 5, len(GOOD) - 1):
    add(f"cut-at-{end}", GOOD[:end])
add("zip", lambda: _zipped())
add("gzip", lambda: b"\x08\x08" + gzip.compress(GOOD))
add("text", b"\x08 this is no model\n")
add("fields-bomb", lambda: number(1, 8) + b"\x28\x01" * 20_000_000)
add("nodes-bomb", lambda: model(block(1) * 500_000))
add("tiny-nodes-bomb", lambda: model(b"".join(node(b"A", (), b"%d" % i) for i in range(150_000))))
add("dims-bomb", lambda: model(node(), tensor(b"w", block(1, b"\x01" * 30_000_000), RAW)))
add(
    "ints-bomb",
    lambda: model(node(b"Relu", (b"x",), b"y", attribute(b"a", 7, block(8, bytes(30_000_000))))),
)
add("names-bomb", lambda: model(*[node(b"R" * 1_000_000, (), b"%d" % i) for i in range(90)]))
add("long-name", model(node(b"R" * 2_000_000)))
add("initializers-bomb", lambda: model(node(), tensor(b"", number(1, 0)) * 300_000))
add("metadata-bomb", lambda: GOOD + block(14, block(1, b"k"), block(2, b"v")) * 700_000)


def _zipped() -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("model.onnx", GOOD)
    return b"\x08\x0a" + out.getvalue()


def nested(levels: int) -> bytes:
    """If within If within If ..."""
    inner = b""
    for _ in range(levels):
        inner = node(b"If", (b"x",), b"y", block(5, block(1, b"t"), block(6, inner), number(20, 5)))
    return model(inner)


add("nested-100", nested(100))
add("nested-2000", lambda: nested(2000))

# Texts
add("name-not-utf8", model(node(b"\xc3\x28")))
add("surrogate", model(node(b"\xed\xa0\x80")))
add("producer-not-utf8", model(node(), head=block(2, b"\xff\xfe")))

# Tensors
add("unknown-dtype", model(node(), tensor(b"w", dims(2), RAW, kind=99)))
add("no-dtype", model(node(), tensor(b"w", dims(2), RAW, kind=0)))
add("dtype-negative", model(node(), tensor(b"w", dims(2), RAW, kind=-1)))
add("negative-dim", model(node(), tensor(b"w", dims(-2), RAW)))
add("dim-2pow62", model(node(), tensor(b"w", dims(1 << 62), RAW)))
add("product-overflows", model(node(), tensor(b"w", dims(1 << 32, 1 << 32), block(9))))
add("product-overflows-with-zero", model(node(), tensor(b"w", dims(1 << 62, 1 << 62, 0), block(9))))
add("terabytes", model(node(), tensor(b"w", dims(1 << 38), RAW)))
add("many-dims", model(node(), tensor(b"w", dims(*[1] * 5000), block(9, bytes(4)))))
add("raw-short", model(node(), tensor(b"w", dims(3), RAW)))
add("raw-long", model(node(), tensor(b"w", dims(1), RAW)))
add("raw-twice", model(node(), tensor(b"w", dims(2), RAW, RAW)))
add("raw-and-floats", model(node(), tensor(b"w", dims(2), RAW, block(4, bytes(8)))))
add("no-elements", model(node(), tensor(b"w", dims(2))))
add("floats-in-ints", model(node(), tensor(b"w", dims(2), block(7, b"\x01\x02"))))
add("floats-cut", model(node(), tensor(b"w", dims(2), block(4, bytes(7)))))
add("floats-as-varints", model(node(), tensor(b"w", dims(2), *[number(4, 0)] * 2)))
add("ints-too-few", model(node(), tensor(b"w", dims(1 << 40), block(7, b"\x01"), kind=7)))
add(
    "ints-too-many",
    model(node(b"Identity", (b"w",)), tensor(b"w", dims(1), block(7, b"\x01\x02"), kind=7)),
)
add("ints-cut", model(node(b"Identity", (b"w",)), tensor(b"w", dims(1), block(7, b"\x80"), kind=7)))
add(
    "ints-too-wide",
    model(node(b"Add", (b"w", b"w")), tensor(b"w", dims(1), block(5, varint(300)), kind=3)),
)
add("segment", model(node(), tensor(b"w", dims(2), block(3, number(1, 0), number(2, 1)), RAW)))
add("texts-as-floats", model(node(), tensor(b"w", dims(1), block(6, b"abc"))))
add("no-name", model(node(), tensor(b"", dims(2), RAW)))
add("same-names", model(node(), tensor(b"w", dims(2), RAW) * 2))
add("location-2", model(node(), tensor(b"w", dims(2), RAW, number(14, 2))))
add("inside-and-outside", model(node(), tensor(b"w", dims(2), RAW, number(14, 1))))

# Graphs
add("cycle", model(node(b"Relu", (b"a",), b"b"), node(b"Relu", (b"b",), b"a"), node()))
add("cycle-of-one", model(node(b"Relu", (b"y",), b"y")))
add(
    "cycle-through-a-body",
    model(
        block(
            1,
            block(1, b"x"),
            block(2, b"y"),
            block(4, b"If"),
            attribute(b"t", 5, block(6, node(b"Relu", (b"z",), b"q"), block(12, block(1, b"q")))),
        ),
        node(b"Relu", (b"y",), b"z"),
    ),
)
add("made-twice", model(node(), node()))
add("input-made-again", model(node(b"Relu", (b"x",), b"x"), node()))
add("missing-input", model(node(b"Relu", (b"nowhere",))))
add("missing-output", model(node(b"Relu", (b"x",), b"z")))
add("no-operation", model(node(b"")))
add("inputs-of-one-name", model(node(), block(11, block(1, b"x"))))
add("nameless-input", model(node(), block(11)))
add("attribute-twice", model(node(b"R", (b"x",), b"y", attribute(b"a", 2, number(3, 1)) * 2)))
add(
    "attribute-of-two-kinds",
    model(node(b"R", (b"x",), b"y", attribute(b"a", 2, number(3, 1), block(4, b"x")))),
)
add("attribute-of-no-kind", model(node(b"R", (b"x",), b"y", block(5, block(1, b"a")))))
add("attribute-of-unknown-kind", model(node(b"R", (b"x",), b"y", attribute(b"a", 77))))
add("graph-attribute-missing", model(node(b"If", (b"x",), b"y", attribute(b"t", 5))))
add(
    "tensor-attribute-damaged",
    model(node(b"Constant", (), b"y", attribute(b"value", 4, tensor(b"", dims(9), RAW, field=5)))),
)
add("unknown-type", model(node(), block(13, block(1, b"v"), block(2, block(1, number(1, 99))))))
add(
    "rank-10000",
    model(
        node(),
        block(13, block(1, b"v"), block(2, block(1, number(1, 1), block(2, block(1) * 10_000)))),
    ),
)

# External data that needs no other file
for label, place in {
    "absolute": b"/etc/passwd",
    "dots": b"../../../../etc/passwd",
    "dots-inside": b"a/../../etc/passwd",
    "dots-only": b"..",
    "nothing": b"",
    "nul": b"w\0.bin",
    "drive": b"C:\\w.bin",
    "backslash": b"..\\w.bin",
    "device": b"/dev/zero",
    "proc": b"/proc/self/environ",
    "long": b"a/" * 5000 + b"w",
    "not-utf8": b"\xff\xfe",
}.items():
    add(f"external-{label}", model(node(), external((b"location", place))))
HERE = (b"location", b"external-negative-offset.onnx")
for label, entries in {
    "negative-offset": ((b"offset", b"-1"),),
    "huge-offset": ((b"offset", b"99999999999999999999999999"),),
    "offset-beyond": ((b"offset", b"4000000000000"),),
    "offset-in-words": ((b"offset", b"0x10"),),
    "huge-length": ((b"length", b"4611686018427387904"),),
    "wrong-length": ((b"length", b"7"),),
    "negative-length": ((b"length", b"-8"),),
    "two-locations": (HERE,),
}.items():
    add(f"external-{label}", model(node(), external(HERE, *entries)))
add("external-terabytes", model(node(), external(HERE, sides=dims(1 << 40))))
add("external-without-location", model(node(), external()))


# Models that reach for other files


Fill = Callable[[Path], None]


def reaching(name: str, location: bytes) -> Callable[[Fill], Fill]:
    def register(fill: Fill) -> Fill:
        def build(folder: Path) -> None:
            (folder / "model.onnx").write_bytes(model(node(), external((b"location", location))))
            fill(folder)

        FOLDERS[name] = build
        return fill

    return register


@reaching("symlink", b"w")
def _(folder: Path) -> None:
    (folder / "w").symlink_to("/etc/passwd")


@reaching("symlink-within", b"w")
def _(folder: Path) -> None:
    (folder / "v").write_bytes(bytes(8))
    (folder / "w").symlink_to("v")


@reaching("linked-folder", b"data/passwd")
def _(folder: Path) -> None:
    (folder / "data").symlink_to("/etc")


@reaching("linked-folder-deep", b"a/data/passwd")
def _(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "a" / "data").symlink_to("/etc")


@reaching("folder", b"w")
def _(folder: Path) -> None:
    (folder / "w").mkdir()


@reaching("fifo", b"w")
def _(folder: Path) -> None:
    os.mkfifo(folder / "w")


@reaching("hard-link", b"w")
def _(folder: Path) -> None:
    (folder / "elsewhere").write_bytes(bytes(8))
    os.link(folder / "elsewhere", folder / "w")


@reaching("short", b"w")
def _(folder: Path) -> None:
    (folder / "w").write_bytes(bytes(7))


@reaching("file-as-folder", b"w/v")
def _(folder: Path) -> None:
    (folder / "w").write_bytes(bytes(8))


@reaching("endless-link", b"w")
def _(folder: Path) -> None:
    (folder / "w").symlink_to("w")


@reaching("sparse-terabyte", b"w")
def _(folder: Path) -> None:
    with (folder / "w").open("wb") as file:
        file.truncate(1 << 40)
    sides = dims(1 << 39)
    (folder / "model.onnx").write_bytes(model(node(), external((b"location", b"w"), sides=sides)))


@reaching("itself-as-folder", b"model.onnx/w")
@reaching("url", b"file:///etc/passwd")
def _(folder: Path) -> None:
    assert folder.is_dir()


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


# Odd, but no attack: these open.
ODD: dict[str, bytes] = {
    "nan-attribute": model(
        node(b"LeakyRelu", (b"x",), b"y", attribute(b"alpha", 1, b"\x15" + floats(float("nan"))))
    ),
    "infinite-attribute": model(
        node(b"Odd", (b"x",), b"y", attribute(b"a", 6, block(7, floats(float("inf"), -1))))
    ),
    "bytes-attribute": model(
        node(b"Odd", (b"x",), b"y", attribute(b"a", 3, block(4, b"\xff\xfe")))
    ),
    "wrong-attribute": model(
        node(b"Conv", (b"x", b"w"), b"y", attribute(b"strides", 2, number(3, 1))),
        tensor(b"w", dims(1, 2, 1, 1), RAW),
    ),
    "zero-stride": model(
        node(b"Conv", (b"x", b"w"), b"y", attribute(b"strides", 7, block(8, b"\0\0"))),
        tensor(b"w", dims(1, 2, 1, 1), RAW),
    ),
    "huge-kernel": model(
        node(
            b"MaxPool",
            (b"x",),
            b"y",
            attribute(b"kernel_shape", 7, block(8, varint(1 << 62), varint(1 << 62))),
        )
    ),
    "division-by-zero": model(
        tensor(b"z", dims(1), block(7, b"\0"), kind=7),
        node(b"Div", (b"z", b"z"), b"q"),
        node(b"Reshape", (b"x", b"q")),
    ),
    "power-of-giants": model(
        tensor(b"z", dims(1), block(7, varint(1 << 62)), kind=7),
        node(b"Pow", (b"z", b"z"), b"q"),
        node(b"Expand", (b"x", b"q")),
    ),
    "huge-range": model(
        *[
            tensor(name, block(7, varint(value)), kind=7)
            for name, value in ((b"a", 0), (b"b", 1 << 62), (b"c", 1))
        ],
        node(b"Range", (b"a", b"b", b"c"), b"r"),
        node(b"Reshape", (b"x", b"r")),
    ),
    "huge-fill": model(
        tensor(b"z", dims(2), block(7, varint(1 << 40), varint(1 << 40)), kind=7),
        node(b"ConstantOfShape", (b"z",)),
    ),
    "axis-of-giants": model(
        node(b"Transpose", (b"x",), b"y", attribute(b"perm", 7, block(8, varint(1 << 62))))
    ),
    "no-inputs": model(node(b"Conv", (), b"y")),
    "empty-inputs": model(node(b"Concat", (b"", b""), b"y")),
    "self-product": model(
        node(b"Mul", (b"x", b"x"), b"a"),
        node(b"ReduceMean", (b"a",), b"b"),
        node(b"Sqrt", (b"b",), b"y"),
    ),
    "erf-alone": model(node(b"Erf", (b"x",), b"y")),
    "body-of-nothing": model(node(b"If", (b"x",), b"y", attribute(b"t", 5, block(6)))),
}
