"""Caffe files made to attack their reader: `HOSTILE` maps a file name to what builds it."""

from __future__ import annotations

import struct
from collections.abc import Callable

HOSTILE: dict[str, Callable[[], bytes]] = {}
Content = str | bytes | Callable[[], bytes]


def add(name: str, content: Content) -> None:
    assert name not in HOSTILE, name
    if isinstance(content, str):
        content = content.encode()
    HOSTILE[name] = content if callable(content) else lambda: content


def net(name: str, content: Content) -> None:
    add(f"{name}.prototxt", content)


# Texts. All begin like networks, so that they are read as such.

A = 'input: "a" input_shape { dim: 2 dim: 6 dim: 8 dim: 10 }\n'
RELU = 'layer { name: "r" type: "ReLU" bottom: "a" top: "b" }\n'
HEAD = A + RELU


def layer(kind: str, rest: str = "", bottoms: str = "a", tops: str = "c", name: str = "l") -> str:
    blobs = " ".join(f'bottom: "{item}"' for item in bottoms.split())
    blobs += " ".join(f' top: "{item}"' for item in tops.split())
    return f'layer {{ name: "{name}" type: "{kind}" {blobs} {rest} }}\n'


net("deep", HEAD + "m {" * 300_000)
net("deep-angles", HEAD + "m <" * 300_000)
net("deep-lists", HEAD + "m: [{" * 300_000)
net("deep-closed", HEAD + "m {" * 100 + "}" * 100)
net("closers", HEAD + "}" * 300_000)
net("open-text", HEAD + 'x: "' + "a" * 3_000_000)
net("open-text-escapes", HEAD + 'x: "' + "\\n" * 1_500_000)
net("quotes", HEAD + "x: '" + "'" * 3_000_000)
net("long-text", HEAD + 'x: "' + "a" * 3_000_000 + '"')
net("many-values", HEAD + "x:1 " * 900_000)
net("many-fields", HEAD + "".join(f"x{i}: 1 " for i in range(300_000)))
net("many-messages", HEAD + "x{}" * 900_000)
net("long-number", HEAD + "x: " + "9" * 3_000_000)
net("long-exponent", HEAD + "x: 1e" + "9" * 1000)
net("long-hex", HEAD + "x: 0x" + "f" * 3_000_000)
net("long-name", HEAD + "x" * 3_000_000)
net("extension", HEAD + "[" + "a." * 1_500_000)
net("minus", HEAD + "x: " + "-" * 3_000_000)
net("five-mebibytes", HEAD + "# comment\n" * 500_000)
net("surrogate", HEAD + r"x: '\ud800'")
net("nul-name", HEAD + r'layer { name: "a\0b" type: "ReLU" bottom: "b" top: "c" }')
net("no-type", HEAD + 'layer { name: "x" bottom: "b" top: "c" }')
net("missing-bottom", HEAD + layer("ReLU", bottoms="nowhere"))
net("cycle", A + layer("ReLU", "", "y", "x") + layer("ReLU", "", "x", "y", "m"))
net("own-cycle", A + layer("ReLU", "", "x", "x"))
net("two-writers", HEAD + layer("TanH", "", "a", "b"))
net("giant-input", HEAD.replace("dim: 8", "dim: 2000000000"))
net("overflowing-input", HEAD.replace("dim: 8", "dim: 9223372036854775807"))
net("negative-input", HEAD.replace("dim: 8", "dim: -8"))
net("axes-of-input", HEAD.replace("dim: 8", "dim: 1 " * 40))
net("input-dims", 'input: "a" input_dim: 1 input_dim: 2\n' + RELU)
net(
    "zero-kernel", HEAD + layer("Convolution", "convolution_param { num_output: 2 kernel_size: 0 }")
)
net(
    "negative-kernel",
    HEAD + layer("Convolution", "convolution_param { num_output: 2 kernel_size: -3 }"),
)
net("no-outputs", HEAD + layer("Convolution", "convolution_param { kernel_size: 3 }"))
net(
    "giant-outputs",
    HEAD + layer("Convolution", "convolution_param { num_output: 4294967295 kernel_size: 1 }"),
)
net("giant-kernel", HEAD + layer("Pooling", "pooling_param { kernel_size: 4294967296 }"))
net("zero-stride", HEAD + layer("Pooling", "pooling_param { kernel_size: 2 stride: 0 }"))
net("pad-beyond-kernel", HEAD + layer("Pooling", "pooling_param { kernel_size: 2 pad: 9 }"))
net(
    "groups",
    HEAD + layer("Convolution", "convolution_param { num_output: 5 kernel_size: 1 group: 3 }"),
)
net(
    "kernels",
    HEAD
    + layer("Convolution", f"convolution_param {{ num_output: 5 {'kernel_size: 1 ' * 1000} }}"),
)
net("giant-tile", HEAD + layer("Slice", "slice_param { slice_point: 4294967295 }", tops="c d"))
net("tops", HEAD + layer("Slice", "", tops=" ".join(f"t{i}" for i in range(20_000))))
net("bottoms", HEAD + layer("Concat", "", bottoms="a " * 100_000))
net("coefficients", HEAD + layer("Eltwise", "eltwise_param { coeff: [1, 2, 3] }", "a b"))
net("reshape", HEAD + layer("Reshape", "reshape_param { shape { dim: -1 dim: -1 } }"))
net("reshape-axes", HEAD + layer("Reshape", "reshape_param { axis: -2147483648 }"))
FLAT = layer("Flatten", tops="f", name="flat")
net("pool-flat", HEAD + FLAT + layer("Pooling", "pooling_param { kernel_size: 2 }", "f"))
net("enum", HEAD + layer("Pooling", "pooling_param { pool: NOTHING kernel_size: 2 }"))
net("two-params", HEAD + layer("ReLU", "relu_param { } relu_param { }"))
net("text-for-number", HEAD + layer("ReLU", "relu_param { negative_slope: 'x' }"))
net("both-dialects", HEAD + 'layers { type: TANH bottom: "a" top: "z" }')
net("oldest-dialect", A + 'layers { layer { type: "conv" } bottom: "a" top: "b" }\n# type: "x"')
net("both-rules", HEAD + layer("ReLU", "include { } exclude { }"))
net("nothing-included", A + RELU.replace("}", "include { phase: TRAIN } }"))
net("layers-30000", lambda: (A + 'layer{type:"ReLU" bottom:"a" top:"a"}\n' * 30_000).encode())

# Weights, by hand.


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def field(number: int, data: bytes, length: int | None = None) -> bytes:
    return varint(number << 3 | 2) + varint(len(data) if length is None else length) + data


def number(tag: int, value: int) -> bytes:
    return varint(tag << 3) + varint(value)


def dims(*sides: int) -> bytes:
    return field(7, field(1, b"".join(varint(side % (1 << 64)) for side in sides)))


SIX = struct.pack("<6f", *range(6))
DATA = field(5, SIX)
IN = field(100, field(1, b"data") + field(2, b"Input") + field(4, b"data"))


def one(blob: bytes, *, more: bytes = b"", kind: bytes = b"InnerProduct") -> bytes:
    wires = field(1, b"l") + field(2, kind) + field(3, b"data") + field(4, b"l")
    return field(1, b"net") + IN + field(100, wires + field(7, blob) + more)


GOOD = one(dims(2, 3) + DATA)


def model(name: str, content: bytes | Callable[[], bytes]) -> None:
    add(f"{name}.caffemodel", content)


model("cut-in-blob", GOOD[:-5])
model("cut-in-tag", GOOD + b"\xa2")
model("length-2pow63", field(1, b"net") + varint(100 << 3 | 2) + varint(1 << 63))
model("length-beyond", field(1, b"net") + field(100, b"abc", 1 << 40))
model("length-of-blob", one(dims(2, 3) + field(5, SIX, 1 << 32)))
model("varint-of-11-bytes", field(1, b"net") + b"\x20" + b"\xff" * 11)
model("varint-without-end", field(1, b"net") + b"\x20" + b"\xff" * 5)
model("field-zero", field(1, b"net") + b"\x02\x00" + GOOD)
model("group", field(1, b"net") + b"\x0b" + GOOD + b"\x0c")
model("wire-type-7", field(1, b"net") + b"\x0f\x00")
model("name-as-number", GOOD[5:] + number(1, 5))
model("name-twice", field(1, b"again") + GOOD)
model("name-not-utf8", one(dims(2, 3) + DATA, kind=b"\xff\xfe"))
model("layer-as-number", field(1, b"net") + number(100, 5))
model("type-as-number", field(1, b"net") + field(100, field(1, b"l") + number(2, 4)))
model("blob-as-number", field(1, b"net") + field(100, field(2, b"ReLU") + number(7, 4)))
model("shape-as-number", one(number(7, 3) + DATA))
model("data-as-number", one(dims(2, 3) + number(5, 3)))
model("data-cut", one(dims(2, 3) + field(5, SIX[:-1])))
model("too-few-numbers", one(dims(2, 3) + field(5, SIX[:-4])))
model("too-many-numbers", one(dims(2, 3) + field(5, SIX + bytes(4))))
model("no-numbers", one(dims(2, 3)))
model("floats-as-doubles", one(dims(2, 3) + field(8, SIX)))
model("two-types", one(dims(2, 3) + DATA + field(8, bytes(48))))
model("two-shapes", one(dims(2, 3) + dims(3, 2) + DATA))
model("gradient-too-short", one(dims(2, 3) + DATA + field(6, bytes(4))))
model("overflow", one(dims(1 << 32, 1 << 32) + DATA))
model("overflow-to-zero", one(dims(1 << 62, 4) + DATA))
model("overflow-and-zero", one(dims(1 << 62, 1 << 62, 0)))
model("terabyte", one(dims(1 << 40) + DATA))
model("negative-side", one(dims(-1, 6) + DATA))
model("negative-legacy-side", one(number(1, (1 << 64) - 1) + number(2, 6) + DATA))
model("legacy-overflow", one(b"".join(number(i, (1 << 31) - 1) for i in range(1, 5)) + DATA))
model("axes-33", one(dims(*[1] * 33) + field(5, bytes(4))))
model("axes-1m", lambda: one(dims(*[1] * 1_000_000) + field(5, bytes(4))))
model("tensor-twice", one(dims(2, 3) + DATA, more=field(7, dims(2, 3) + DATA) * 200))
model("packed-cut-varint", one(field(7, field(1, b"\x80")) + DATA))
model("layers-2m", lambda: field(1, b"net") + field(100, b"") * 2_000_000)
model("layers-30000", lambda: field(1, b"net") + field(100, field(2, b"ReLU")) * 30_000)
model("blobs-2m", lambda: one(dims(2, 3) + DATA, more=field(7, b"") * 2_000_000))
model("loose-2m", lambda: one(dims(2_000_000) + (b"\x2d" + bytes(4)) * 2_000_000))
model("texts-100mb", lambda: field(1, b"net") + field(3, b"a" * (1 << 20)) * 100)
model("no-layers", field(1, b"net\x01"))
model("no-type", field(1, b"net") + field(100, field(1, b"l")))
model("oldest-dialect", field(1, b"net") + field(2, field(1, b"\x0a\x01c") + field(2, b"a")))
model("both-dialects", GOOD + field(2, field(4, b"x") + number(5, 18)))
model("v1-type-9999", field(1, b"net") + field(2, field(5, b"abc")))

# Solvers

add("deep-solver.prototxt", "base_lr: 0.1\nmax_iter: 1\n" + "a {" * 300_000)
add("broken-solver.prototxt", "base_lr: 0.1\nlr_policy: 'step\n")
add("large-solver.prototxt", "base_lr: 0.1\nmax_iter: 1\n" + "# more\n" * 300_000)
add("number-solver.prototxt", "base_lr: 0.1\nmax_iter: 99999999999999999999999\n")
