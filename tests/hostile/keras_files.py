"""HDF5 and Keras files made to attack their reader: `CORPUS` maps a name to what builds it."""

from __future__ import annotations

import base64
import io
import json
import marshal
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import h5py
import numpy as np

from tests.hostile.harness import Builder, Corpus

CORPUS = Corpus()
hostile, add = CORPUS.hostile, CORPUS.add

EXTERNAL = "/etc/passwd"


def h5(build: Callable[[Any], Any], **options: Any) -> bytes:
    out = io.BytesIO()
    with h5py.File(out, "w", **options) as file:
        build(file)
    return out.getvalue()


def patched(data: bytes, *places: tuple[bytes, bytes]) -> bytes:
    for old, new in places:
        assert old in data, old
        assert len(old) == len(new)
        data = data.replace(old, new, 1)
    return data


def number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def dense(file: Any) -> None:
    group = file.create_group("layers/dense/vars")
    group.attrs["name"] = "dense"
    group["0"] = np.arange(12, dtype="f4").reshape(3, 4)
    group["1"] = np.arange(4, dtype="f4")


GOOD = h5(dense)
NEW = h5(dense, libver=("v108", "latest"))
PACKED = h5(lambda f: f.create_dataset("a", data=np.zeros((64, 64)), chunks=(8, 8), compression=9))

# Ways out of the file


@hostile("external-link.h5")
def _() -> bytes:
    return h5(lambda f: f.__setitem__("a", h5py.ExternalLink(EXTERNAL, "/")))


@hostile("external-link-relative.h5")
def _() -> bytes:
    return h5(lambda f: f.__setitem__("a", h5py.ExternalLink("../../secret.h5", "/x")))


@hostile("soft-link.h5")
def _() -> bytes:
    return h5(lambda f: f.__setitem__("a", h5py.SoftLink("/nowhere")))


@hostile("soft-loop.h5")
def _() -> bytes:
    return h5(lambda f: f.create_group("a").__setitem__("a", h5py.SoftLink("/a")))


@hostile("soft-link-new.h5")
def _() -> bytes:
    return h5(lambda f: f.__setitem__("a", h5py.SoftLink("/b")), libver="latest")


@hostile("external-storage.h5")
def _() -> bytes:
    return h5(lambda f: f.create_dataset("a", (4,), "f4", external=[(EXTERNAL, 0, 16)]))


@hostile("external-storage-absolute-late.h5")
def _() -> bytes:
    def build(file: Any) -> None:
        dense(file)
        file.create_dataset("z", (4,), "f4", external=[("../../x", 0, 8), (EXTERNAL, 0, 8)])

    return h5(build)


@hostile("virtual.h5")
def _() -> bytes:
    def build(file: Any) -> None:
        layout = h5py.VirtualLayout((4,), "f4")
        layout[:] = h5py.VirtualSource(EXTERNAL, "a", (4,))
        file.create_virtual_dataset("a", layout)

    return h5(build)


# Kinds that are no tensors

for name, made in {
    "objects": {"dtype": h5py.ref_dtype, "shape": (2,)},
    "regions": {"dtype": h5py.regionref_dtype, "shape": (2,)},
    "lists": {"dtype": h5py.vlen_dtype("f4"), "shape": (2,)},
    "texts": {"data": ["x" * 100]},
    "compound": {"data": np.zeros(2, "i4,f4,S8")},
    "nested-compound": {"data": np.zeros(2, np.dtype([("a", [("b", "i4"), ("c", "f4")])]))},
    "opaque": {"data": np.zeros(2, "V9")},
    "arrays": {"data": np.zeros(2, np.dtype(("i4", (3,))).newbyteorder("<"))},
    "lzf": {"data": np.zeros(99), "compression": "lzf"},
    "scale-offset": {"data": np.arange(99), "scaleoffset": True},
    "nbit-enum": {"data": np.zeros(3, h5py.enum_dtype({"A": 0, "B": 7}, "i4"))},
    "null": {"data": h5py.Empty("f4")},
}.items():
    if name != "arrays":  # h5py writes it as a plain field
        hostile(f"type-{name}.h5")(
            lambda made=made: h5(lambda f: f.create_dataset("a", **made))  # type: ignore[misc]
        )


# Structures that lead back, or nowhere


@hostile("cycle.h5")
def _() -> bytes:
    def build(file: Any) -> None:
        group = file.create_group("a/b")
        group["c"] = file["a"]

    return h5(build)


@hostile("cycle-root-new.h5")
def _() -> bytes:
    return h5(lambda f: f.create_group("a").__setitem__("up", f["/"]), libver="latest")


@hostile("two-names.h5")
def _() -> bytes:
    def build(file: Any) -> None:
        file["a"] = np.zeros(9)
        for index in range(1000):
            file[f"b{index}"] = file["a"]

    return h5(build)


@hostile("deep.h5")
def _() -> bytes:
    def build(file: Any) -> None:
        for _ in range(2000):
            file = file.create_group("a")

    return h5(build)


@hostile("many-groups.h5")
def _() -> bytes:
    """More objects than any model has: a small tree pointed to again and again is refused."""

    def build(file: Any) -> None:
        for index in range(61_000):
            file.create_group(f"g{index}")

    return h5(build, libver="latest")


def attributes(count: int) -> bytes:
    """A root group with so many attributes of one name."""
    texts = struct.pack("<BBHHHB2sBBBBI", 3, 0, 2, 8, 4, 0, b"a\0", 0x13, 0, 0, 0, 1)
    one = texts + struct.pack("<BBBB", 2, 0, 0, 0) + b"x"
    message = struct.pack("<BHB", 12, len(one), 0) + one
    body = struct.pack("<BHBBBQQ", 2, 18, 0, 0, 0, (1 << 64) - 1, (1 << 64) - 1) + message * count
    raw = b"OHDR" + struct.pack("<BBI", 2, 2, len(body)) + body
    return whole(raw)


def whole(header: bytes) -> bytes:
    """A file whose root is that object; checksums right."""
    header += struct.pack("<I", lookup3(header))
    start = struct.pack("<8sBBBBQQQQ", b"\x89HDF\r\n\x1a\n", 2, 8, 8, 0, 0, (1 << 64) - 1, 0, 48)
    start = start[:28] + number(48 + len(header)) + start[36:]
    return start + struct.pack("<I", lookup3(start)) + header


def lookup3(data: bytes) -> int:
    """Bob Jenkins' hash, written out once more so that the files do not rest on dlv's."""

    def turn(x: int, k: int) -> int:
        return (x << k | x >> 32 - k) & 0xFFFFFFFF

    a = b = c = 0xDEADBEEF + len(data) & 0xFFFFFFFF
    last = (len(data) - 1) // 12 * 12
    for at in range(0, last, 12):
        x, y, z = struct.unpack_from("<3I", data, at)
        a, b, c = a + x & 0xFFFFFFFF, b + y & 0xFFFFFFFF, c + z & 0xFFFFFFFF
        for shift in (4, 6, 8, 16, 19, 4):
            a = (a - c & 0xFFFFFFFF) ^ turn(c, shift)
            c = c + b & 0xFFFFFFFF
            a, b, c = b, c, a
    x, y, z = struct.unpack("<3I", data[last:] + bytes(12 - len(data) + last))
    a, b, c = a + x & 0xFFFFFFFF, b + y & 0xFFFFFFFF, c + z & 0xFFFFFFFF
    for shift in (14, 11, 25, 16, 4, 14, 24):
        c = (c ^ b) - turn(b, shift) & 0xFFFFFFFF
        a, b, c = b, c, a
    return int(b)


hostile("attributes-many.h5")(lambda: attributes(25_000))
hostile("attributes-long.h5")(lambda: attributes(90_000))
hostile("attributes-same-name.h5")(lambda: attributes(2))


@hostile("header-4gib.h5")
def _() -> bytes:
    return whole(b"OHDR" + struct.pack("<BBI", 2, 2, 0xFFFFFFFF) + bytes(100))


@hostile("continued-within-itself.h5")
def _() -> bytes:
    message = struct.pack("<BHBQQ", 16, 16, 0, 48, 34)
    return whole(b"OHDR" + struct.pack("<BBI", 2, 2, len(message)) + message)


@hostile("continued-many-times.h5")
def _() -> bytes:
    """Old headers: continuations that overlap and name each other."""
    data = bytearray(GOOD)
    root = int.from_bytes(data[64:72], "little")
    at = len(data)
    block = b"".join(
        struct.pack("<HHB3xQQ", 16, 16, 0, at + 24 * index, 24 * (4000 - index))
        for index in range(4000)
    )
    data[root + 2 : root + 4] = struct.pack("<H", 65535)
    data[root + 16 : root + 40] = struct.pack("<HHB3xQQ", 16, 16, 0, at, len(block))
    data += block
    data[40:48] = number(len(data))
    return bytes(data)


# Numbers that lie

SHAPE = number(3) + number(4)
ROOT = int.from_bytes(GOOD[64:72], "little")
hostile("shape-2pow50.h5")(lambda: patched(GOOD, (SHAPE, number(1 << 48) + number(4))))
hostile("shape-overflow.h5")(lambda: patched(GOOD, (SHAPE, number(1 << 62) + number(1 << 62))))
hostile("shape-overflow-and-zero.h5")(lambda: patched(GOOD, (SHAPE, number(0) + number(1 << 62))))
hostile("shape-too-long.h5")(lambda: patched(GOOD, (SHAPE, number(3) + number(5))))
hostile("end-beyond.h5")(lambda: GOOD[:40] + number(1 << 40) + GOOD[48:])
hostile("end-early.h5")(lambda: GOOD[:40] + number(500) + GOOD[48:])
hostile("root-beyond.h5")(lambda: GOOD[:64] + number(1 << 62) + GOOD[72:])
hostile("root-into-data.h5")(lambda: GOOD[:64] + number(len(GOOD) - 40) + GOOD[72:])
hostile("base-elsewhere.h5")(lambda: GOOD[:24] + number(512) + GOOD[32:])
hostile("driver.h5")(lambda: GOOD[:48] + number(96) + GOOD[56:])
hostile("wide-addresses.h5")(lambda: GOOD[:13] + b"\xff\xff" + GOOD[15:])
hostile("version-9.h5")(lambda: GOOD[:8] + b"\x09" + GOOD[9:])
hostile("user-block.h5")(lambda: h5(dense, userblock_size=1024))
hostile("appended.h5")(lambda: GOOD + bytes(100))
hostile("cut-in-half.h5")(lambda: GOOD[: len(GOOD) // 2])
hostile("cut-in-start.h5")(lambda: GOOD[:60])
hostile("cut-new.h5")(lambda: NEW[:-1])
hostile("checksum.h5")(lambda: NEW[:-4] + b"abcd" if NEW[-4:] != b"abcd" else NEW)
hostile("heap-2pow62.h5")(
    lambda: GOOD[: GOOD.index(b"HEAP") + 8] + number(1 << 62) + GOOD[GOOD.index(b"HEAP") + 16 :]
)
hostile("tree-children.h5")(
    lambda: GOOD[: GOOD.index(b"TREE") + 6] + b"\xff\xff" + GOOD[GOOD.index(b"TREE") + 8 :]
)
hostile("node-entries.h5")(
    lambda: GOOD[: GOOD.index(b"SNOD") + 6] + b"\xff\xff" + GOOD[GOOD.index(b"SNOD") + 8 :]
)


@hostile("tree-of-itself.h5")
def _() -> bytes:
    at = GOOD.index(b"TREE")
    data = bytearray(GOOD)
    data[at + 5] = 1  # a level above the leaves
    data[at + 32 : at + 40] = number(at)
    return bytes(data)


@hostile("overlap.h5")
def _() -> bytes:
    with h5py.File(io.BytesIO(GOOD)) as file:
        first, second = (file[f"layers/dense/vars/{i}"].id.get_offset() for i in (0, 1))
    return patched(GOOD, (number(second), number(first + 8)))


@hostile("texts-2gib.h5")
def _() -> bytes:
    at = GOOD.index(b"GCOL")
    return GOOD[: at + 8] + number(1 << 31) + GOOD[at + 16 :]


@hostile("text-lost.h5")
def _() -> bytes:
    at = GOOD.index(b"GCOL")
    return GOOD[: at + 16] + b"\x77" + GOOD[at + 17 :]


# Bombs


@hostile("sparse-2pow50.h5")
def _() -> bytes:
    return h5(lambda f: f.create_dataset("a", (1 << 50,), "u1", chunks=(1 << 20,)))


@hostile("sparse-2pow50-packed.h5")
def _() -> bytes:
    return h5(
        lambda f: f.create_dataset(
            "a", (1 << 50,), "u1", chunks=(1 << 20,), compression=9, shuffle=True
        )
    )


@hostile("unwritten-2pow50.h5")
def _() -> bytes:
    return h5(lambda f: f.create_dataset("a", (1 << 50,), "u1"))


@hostile("zeros-1gib.h5")
def _() -> bytes:
    def build(file: Any) -> None:
        made = file.create_dataset("a", (1 << 30,), "u1", chunks=(1 << 26,), compression=9)
        packed = zlib.compress(bytes(1 << 26), 9)
        for start in range(0, 1 << 30, 1 << 26):
            made.id.write_direct_chunk((start,), packed)

    return h5(build)


@hostile("zeros-in-many.h5")
def _() -> bytes:
    """Each of them small enough; together 4 GiB."""

    def build(file: Any) -> None:
        packed = zlib.compress(bytes(1 << 26), 9)
        for index in range(64):
            made = file.create_dataset(
                f"a{index}", (1 << 26,), "u1", chunks=(1 << 26,), compression=9
            )
            made.id.write_direct_chunk((0,), packed)

    return h5(build)


@hostile("huge-chunk.h5")
def _() -> bytes:
    return h5(
        lambda f: f.create_dataset(
            "a", (1 << 20,), "f4", chunks=(1 << 20,), maxshape=(None,)
        ).resize((1 << 30,))
    )


@hostile("chunk-inflates.h5")
def _() -> bytes:
    def build(file: Any) -> None:
        made = file.create_dataset("a", (16,), "u1", chunks=(16,), compression=9)
        made.id.write_direct_chunk((0,), zlib.compress(bytes(300_000_000), 9))

    return h5(build)


@hostile("chunk-of-chains.h5")
def _() -> bytes:
    """Deflate within deflate is two filters, and each has its limit."""
    packed = PACKED
    at = packed.index(struct.pack("<HH", 1, 8))
    return packed[: at - 8] + b"\x01\xff" + packed[at - 6 :]


@hostile("chunk-no-deflate.h5")
def _() -> bytes:
    def build(file: Any) -> None:
        made = file.create_dataset("a", (64,), "u1", chunks=(64,), compression=9)
        made.id.write_direct_chunk((0,), random.Random(0).randbytes(64))

    return h5(build)


@hostile("chunk-short.h5")
def _() -> bytes:
    def build(file: Any) -> None:
        made = file.create_dataset("a", (64,), "u1", chunks=(64,), compression=9, fletcher32=True)
        made.id.write_direct_chunk((0,), zlib.compress(b"abc"))

    return h5(build)


@hostile("chunk-tree-of-itself.h5")
def _() -> bytes:
    at = PACKED.rindex(b"TREE")
    data = bytearray(PACKED)
    data[at + 5] = 1
    used = int.from_bytes(data[at + 6 : at + 8], "little")
    last = at + 24 + 40 * (used - 1) + 32
    data[last : last + 8] = number(at)
    return bytes(data)


# Keras


def layer(kind: str, name: str, feeds: Sequence[Any] = (), **settings: Any) -> dict[str, Any]:
    config = {"name": name, **settings}
    tensors = [
        {"class_name": "__keras_tensor__", "config": {"shape": [None, 4], "keras_history": feed}}
        for feed in feeds
    ]
    calls = [{"args": tensors, "kwargs": {}}] if feeds else []
    return {"module": "keras.layers", "class_name": kind, "config": config, "name": name,
            "registered_name": None, "inbound_nodes": calls}  # fmt: skip


INPUT = layer("InputLayer", "x", batch_shape=[None, 4])
DENSE = layer("Dense", "dense", [["x", 0, 0]], units=4)


def model(layers: Sequence[Any], outputs: Any = None, inputs: Any = None) -> dict[str, Any]:
    config = {
        "name": "m",
        "layers": list(layers),
        "input_layers": [["x", 0, 0]] if inputs is None else inputs,
        "output_layers": [[layers[-1]["name"], 0, 0]] if outputs is None else outputs,
    }
    return {"module": "keras.models", "class_name": "Functional", "config": config}


def keras(
    config: Any, weights: bytes = GOOD, *extra: tuple[str, bytes], method: int = zipfile.ZIP_STORED
) -> bytes:
    text = config if isinstance(config, bytes) else json.dumps(config).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as target:
        target.writestr("metadata.json", "{}")
        target.writestr("config.json", text)
        target.writestr("model.weights.h5", weights)
        for name, data in extra:
            target.writestr(name, data)
    return out.getvalue()


FINE = model([INPUT, DENSE])
add("traversal.keras", keras(FINE, GOOD, ("../../hacked", b"x")))
add("absolute.keras", keras(FINE, GOOD, ("/tmp/hacked", b"x")))
add("asset-link.keras", keras(FINE, GOOD, ("assets/..\\hacked", b"x")))
hostile("duplicate-member.keras")(
    lambda: keras(FINE, GOOD, ("confiG.json", b"x")).replace(b"confiG.json", b"config.json")
)
hostile("two-names.keras")(lambda: patched(keras(FINE), (b"config.json", b"comfig.json")))
add("cut.keras", keras(FINE)[:-40])
add("appended.keras", keras(FINE) + b"x")
add("no-config.keras", keras(FINE).replace(b"config.json", b"c0nfig.json"))
add("weights-are-none.keras", keras(FINE, b"not an HDF5 file"))
add("weights-external.keras", keras(FINE, CORPUS["external-link.h5"]()))
add("weights-cut.keras", keras(FINE, GOOD[:-100]))
hostile("weights-sparse.keras")(lambda: keras(FINE, CORPUS["sparse-2pow50.h5"]()))
hostile("weights-bomb.keras")(lambda: keras(FINE, bytes(300_000_000), method=zipfile.ZIP_DEFLATED))


@hostile("weights-damaged.keras")
def _() -> bytes:
    """One bit of a tensor: the archive's checksum sees it."""
    data = bytearray(keras(FINE))
    data[data.index(np.arange(12, dtype="f4").tobytes()) + 9] ^= 4
    return bytes(data)


add("config-bomb.keras", keras(b'{"a": [' + b"[]," * 5_000_000 + b"[]]}"))
hostile("config-inflates.keras")(
    lambda: keras(b'{"a": "' + b" " * 300_000_000 + b'"}', method=zipfile.ZIP_DEFLATED)
)
add("config-deep.keras", keras(b'{"a": ' + b"[" * 1_000_000))
add("config-objects.keras", keras(b'{"a":' * 100_000 + b"1" + b"}" * 100_000))
for name, units in {
    "nan": "NaN",
    "infinite": "1e999",
    "twice": '4, "units": 5',
    "digits": "9" * 9999,
}.items():
    add(
        f"config-{name}.keras",
        keras(json.dumps(FINE).replace('"units": 4', f'"units": {units}').encode()),
    )
add("config-list.keras", keras([1, 2]))
add("config-no-utf8.keras", keras(b'{"a": "\xff"}'))
add("config-text.keras", keras(b"import os; os.system('touch hacked')"))
add("config-pickle.keras", keras(b"\x80\x04\x95"))
add("layers-none.keras", keras({"class_name": "Functional", "config": {"layers": {}}}))
add("layers-odd.keras", keras(model([INPUT, {"class_name": 5, "name": "y"}])))
add("layers-one-name.keras", keras(model([INPUT, DENSE, DENSE])))
add("layers-no-name.keras", keras(model([INPUT, {**DENSE, "name": ""}])))
add("layers-long-name.keras", keras(model([INPUT, {**DENSE, "name": "x" * 100_000}])))
add("layers-surrogate.keras", keras(json.dumps(FINE).replace('"dense"', '"\\ud800"').encode()))
add("calls-cycle.keras", keras(model([
    INPUT,
    layer("Add", "a", [["x", 0, 0], ["b", 0, 0]]),
    layer("ReLU", "b", [["a", 0, 0]]),
])))  # fmt: skip
add("calls-itself.keras", keras(model([INPUT, layer("ReLU", "a", [["a", 0, 0]])])))
add("calls-missing.keras", keras(model([INPUT, layer("ReLU", "a", [["ghost", 0, 0]])])))
add("calls-beyond.keras", keras(model([INPUT, layer("ReLU", "a", [["x", 7, 0]])])))
add("calls-negative.keras", keras(model([INPUT, layer("ReLU", "a", [["x", -1, 0]])])))
add("calls-huge.keras", keras(model([INPUT, layer("ReLU", "a", [["x", 1 << 70, 0]])])))
add("calls-output.keras", keras(model([INPUT, layer("ReLU", "a", [["x", 0, 9]])])))
add("calls-text.keras", keras(model([INPUT, {**DENSE, "inbound_nodes": "x"}])))
add("calls-numbers.keras", keras(model([INPUT, {**DENSE, "inbound_nodes": [1, 2]}])))
add("calls-no-history.keras", keras(model([INPUT, {**DENSE, "inbound_nodes": [
    {"args": [{"class_name": "__keras_tensor__", "config": {}}], "kwargs": {}}]}])))  # fmt: skip
add("outputs-missing.keras", keras(model([INPUT, DENSE], [["ghost", 0, 0]])))
add("outputs-odd.keras", keras(model([INPUT, DENSE], 5)))
SECOND = {**layer("InputLayer", "y", batch_shape=[None, 4]), "inbound_nodes": [{"args": []}]}
add("input-unlisted.keras", keras(model([INPUT, SECOND, DENSE])))


@hostile("nested-deep.keras")
def _() -> bytes:
    inner: dict[str, Any] = {"name": "d", **DENSE}
    for depth in range(30):
        made = model([INPUT, inner])
        inner = {**made, "name": f"m{depth}", "inbound_nodes": DENSE["inbound_nodes"]}
    return keras(model([INPUT, inner]))


@hostile("nested-laughs.keras")
def _() -> bytes:
    """Models that call the one below ten times: ten to the power of ten nodes."""
    inner: dict[str, Any] = DENSE
    for depth in range(10):
        made = model([INPUT, inner])
        calls = DENSE["inbound_nodes"] * 10
        inner = {**made, "name": f"m{depth}", "inbound_nodes": calls}
    return keras(model([INPUT, inner]))


@hostile("nested-nothing.keras")
def _() -> bytes:
    """The same with no layer at the bottom, and so not one node."""
    nothing = {"name": "e", "layers": []}
    inner: dict[str, Any] = {"module": "keras.models", "class_name": "Sequential"}
    inner |= {"config": nothing, "name": "e", "inbound_nodes": DENSE["inbound_nodes"] * 10}
    for depth in range(10):
        made = model([inner], outputs=[["x", 0, 0]])
        calls = DENSE["inbound_nodes"] * 10
        inner = {**made, "name": f"m{depth}", "inbound_nodes": calls}
    return keras(model([INPUT, inner]))


@hostile("nested-wrong-call.keras")
def _() -> bytes:
    inner = model([INPUT, {**INPUT, "name": "y"}, DENSE], inputs=[["x", 0, 0], ["y", 0, 0]])
    called = {**inner, "name": "m", "inbound_nodes": DENSE["inbound_nodes"]}
    return keras(model([INPUT, called]))


# Accepted, but nothing of it is run: these must be read, or refused, without a trace.

HARMLESS: dict[str, Builder] = {}


def payload() -> str:
    code = compile("open('hacked', 'w').close()", "<lambda>", "eval")
    return base64.b64encode(marshal.dumps(code)).decode()


CODE = {"code": payload(), "defaults": None, "closure": None}
SHUT = {"class_name": "__lambda__", "config": CODE}
OLD = layer("Lambda", "code", [["x", 0, 0]], function=[payload(), None, None])
HARMLESS["lambda.keras"] = lambda: keras(
    model([INPUT, layer("Lambda", "code", [["x", 0, 0]], function=SHUT)])
)
HARMLESS["lambda-old.h5"] = lambda: h5(
    lambda f: (
        f.attrs.__setitem__("model_config", json.dumps(model([INPUT, OLD]))),
        f.create_group("model_weights"),
    )
)
HARMLESS["custom-object.keras"] = lambda: keras(
    model([INPUT, {**layer("system", "own", [["x", 0, 0]], command="touch hacked"),
                   "module": "os", "registered_name": "os>system"}])
)  # fmt: skip
HARMLESS["custom-activation.keras"] = lambda: keras(
    model([INPUT, layer("Dense", "dense", [["x", 0, 0]], units=4, activation={
        "module": "subprocess", "class_name": "function", "config": "Popen",
        "registered_name": "Popen"})])
)  # fmt: skip
HARMLESS["module-of-ours.keras"] = lambda: keras(
    model([INPUT, {**DENSE, "module": "dlv.repository.git_files", "class_name": "FileStore"}])
)
HARMLESS["settings-odd.keras"] = lambda: keras(
    model([INPUT, layer("Conv2D", "c", [["x", 0, 0]], filters=-1, kernel_size="x", strides=[{}])])
)
HARMLESS["compiled-odd.keras"] = lambda: keras(
    {**FINE, "compile_config": {"optimizer": {"class_name": "os>system", "config": [1]}, "loss": 5}}
)
HARMLESS["good.keras"] = lambda: keras(FINE)
HARMLESS["good.h5"] = lambda: GOOD
HARMLESS["good-packed.h5"] = lambda: PACKED
