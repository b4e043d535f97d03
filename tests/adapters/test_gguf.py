"""dlv.adapters.gguf against the gguf package, and against headers that lie."""

from __future__ import annotations

import contextlib
import io
import random
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import gguf as library
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlv.adapters import gguf
from dlv.adapters.checkpoint import Adapter, Tensor
from dlv.dtypes import ITEM_BYTES, block_of
from dlv.errors import Damaged, DlvError, NewerFormat, UnsafeInput, UsageError
from tests.conformance.adapter import SHAPES, AdapterSuite, in_memory, random_bytes

PLAIN = tuple(kind for kind in gguf.TYPES.values() if kind in ITEM_BYTES)


class TestConformance(AdapterSuite):
    adapter = cast(Adapter, gguf)
    dtypes = (*(dtype for dtype in PLAIN if dtype != "float32"), "float32")

    @property
    def small(self) -> Path:
        """Filled up to the alignment, so that every cut takes a part of a tensor."""
        tensors = [
            in_memory(name, ("float32", shape, random_bytes("float32", shape, 1)))
            for name, shape in {"first": (2, 3), "second": (8,)}.items()
        ]
        return self.save(tensors)

    def test_every_dtype_and_shape(self) -> None:
        tree = {
            f"{dtype}.{index}": (dtype, shape, random_bytes(dtype, shape, index))
            for dtype in self.dtypes
            for index, shape in enumerate(SHAPES)
            if len(shape) <= gguf.MOST_AXES
        }
        self.check_round_trip(tree)

    def test_five_axes(self) -> None:
        with pytest.raises(UsageError, match=r"5 axes.*"):
            self.save([in_memory("a", ("int8", (1,) * 5, b"a"))])


def number(value: int, size: int = 8) -> bytes:
    return value.to_bytes(size, "little")


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def scalar(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + number(kind, 4) + value


def array(kind: int, count: int, data: bytes) -> bytes:
    return number(kind, 4) + number(count) + data


def entry(name: bytes, sides: Sequence[int], kind: int = 0, offset: int = 0) -> bytes:
    dims = b"".join(map(number, sides))
    return text(name) + number(len(sides), 4) + dims + number(kind, 4) + number(offset)


def build(
    keys: Sequence[bytes] = (),
    entries: Sequence[bytes] = (),
    data: bytes = b"",
    alignment: int = 32,
    version: int = 3,
) -> bytes:
    head = b"GGUF" + number(version, 4) + number(len(entries)) + number(len(keys))
    head += b"".join(keys) + b"".join(entries)
    return head + bytes(-len(head) % alignment) + data if entries else head


def write(folder: Path, data: bytes) -> str:
    path = folder / "w.gguf"
    path.write_bytes(data)
    return str(path)


def opened(folder: Path, data: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Everything in the file, which must come back byte for byte."""
    checkpoint = gguf.open(write(folder, data))
    try:
        found = {t.name: (t.dtype, t.shape, bytes(t.read())) for t in checkpoint.tensors}
        for tensor in checkpoint.tensors:
            assert tensor.part is not None
            step = max(1, tensor.nbytes // 3 + 1)
            parts = [
                bytes(tensor.part(start, min(step, tensor.nbytes - start)))
                for start in range(0, tensor.nbytes, step)
            ]
            assert b"".join(parts) == found[tensor.name][2]
        out = io.BytesIO()
        assert checkpoint.exact
        assert checkpoint.skeleton is not None
        gguf.restore(out, checkpoint.skeleton, checkpoint.tensors)
        assert out.getvalue() == data
    finally:
        checkpoint.close()
    return found


def test_the_types_are_those_of_the_library() -> None:
    assert {number: block_of(kind) for number, kind in gguf.TYPES.items()} == {
        int(kind): GGML_QUANT_SIZES[kind] for kind in GGMLQuantizationType
    }
    for number_, kind in gguf.TYPES.items():
        name = GGMLQuantizationType(number_).name
        if kind.startswith("raw:"):
            assert kind == "raw:" + name
        else:
            assert block_of(kind) == (1, ITEM_BYTES[kind])


DICE = random.Random(1)


def library_file(path: Path, order: library.GGUFEndian, tensors: bool = True) -> dict[str, Any]:
    """A file of the library with every type of value and of tensor; what went into it."""
    writer = library.GGUFWriter(path, "llama", endianess=order)
    writer.add_block_count(32)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(500000.0)
    writer.add_string("general.name", "Lämmchen")
    writer.add_bool("llama.flag", True)
    writer.add_uint8("llama.u8", 255)
    writer.add_int8("llama.i8", -128)
    writer.add_uint16("llama.u16", 65535)
    writer.add_int16("llama.i16", -2)
    writer.add_int32("llama.i32", -3)
    writer.add_uint64("llama.u64", 2**64 - 1)
    writer.add_int64("llama.i64", -(2**63))
    writer.add_float64("llama.f64", 0.1)
    writer.add_float64("llama.nan", float("nan"))
    writer.add_array("llama.heads", [8, 8, 4])
    writer.add_array("general.tags", ["a", "ä"])
    writer.add_array("llama.long", list(range(1000)))
    writer.add_string("general.license", "x" * 5000)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token {i}" for i in range(3000)])
    writer.add_token_scores([0.5] * 3000)
    writer.add_bos_token_id(1)
    found: dict[str, Any] = {}
    dice = np.random.default_rng(0)
    for kind in GGMLQuantizationType if tensors else ():
        block, size = GGML_QUANT_SIZES[kind]
        raw = dice.integers(0, 256, (3, 2 * size), np.uint8)  # three rows of two blocks
        writer.add_tensor(f"blk.{kind.name}.weight", raw, raw_dtype=kind)
        found[f"blk.{kind.name}.weight"] = (kind, (3, 2 * block), raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return found


def test_files_of_the_library(tmp_path: Path) -> None:
    path = tmp_path / "lib.gguf"
    wanted = library_file(path, library.GGUFEndian.LITTLE)
    found = opened(tmp_path, path.read_bytes())
    assert {name: (shape, data) for name, (_, shape, data) in found.items()} == {
        name: (shape, raw.tobytes()) for name, (_, shape, raw) in wanted.items()
    }
    # And what the library reads in the same file.
    read = {tensor.name: tensor for tensor in library.GGUFReader(path).tensors}
    assert list(read) == list(found)
    for name, (dtype, shape, data) in found.items():
        assert shape == tuple(int(side) for side in reversed(read[name].shape))
        assert data == read[name].data.tobytes()
        assert dtype == gguf.TYPES[int(read[name].tensor_type)]


def test_big_endian_files_of_the_library(tmp_path: Path) -> None:
    path = tmp_path / "lib.gguf"
    wanted = library_file(path, library.GGUFEndian.BIG)
    found = opened(tmp_path, path.read_bytes())
    read = {tensor.name: tensor for tensor in library.GGUFReader(path).tensors}
    assert found.keys() == wanted.keys()
    for name, (dtype, shape, data) in found.items():
        assert shape == wanted[name][1]
        if dtype.startswith("raw:"):
            assert dtype == f"raw:{wanted[name][0].name}_BE"
            assert data == read[name].data.tobytes()
        elif dtype != "bfloat16":  # which the library gives as bytes
            there = read[name].data
            assert data == there.astype(there.dtype.newbyteorder("<")).tobytes()
    checkpoint = gguf.open(str(path))
    checkpoint.close()
    assert checkpoint.hyperparameters["llama.u64"] == 2**64 - 1


def test_values_become_hyperparameters(tmp_path: Path) -> None:
    path = tmp_path / "lib.gguf"
    library_file(path, library.GGUFEndian.LITTLE, tensors=False)
    checkpoint = gguf.open(str(path))
    checkpoint.close()
    assert checkpoint.tensors == []
    assert checkpoint.network is None
    assert checkpoint.hyperparameters == {
        "general.architecture": "llama",
        "llama.block_count": 32,
        "llama.attention.layer_norm_rms_epsilon": 1e-6,
        "llama.rope.freq_base": 500000.0,
        "general.name": "Lämmchen",
        "llama.flag": True,
        "llama.u8": 255,
        "llama.i8": -128,
        "llama.u16": 65535,
        "llama.i16": -2,
        "llama.i32": -3,
        "llama.u64": 2**64 - 1,
        "llama.i64": -(2**63),
        "llama.f64": 0.1,
        "llama.nan": "NaN",
        "llama.heads": "[8,8,4]",
        "general.tags": '["a","ä"]',
    }


@pytest.mark.parametrize("order", list(library.GGUFEndian))
def test_long_vocabularies_and_large_tensors(tmp_path: Path, order: library.GGUFEndian) -> None:
    """A header of several windows, texts across their edges, tensors of several parts."""
    path = tmp_path / "lib.gguf"
    writer = library.GGUFWriter(path, "llama", endianess=order)
    writer.add_token_list([f"token {i:05} " + "x" * (i % 50) for i in range(60_000)])
    writer.add_token_merges(["a b", "ä ö"] * 60_000)
    writer.add_token_scores([0.5] * 300_000)
    writer.add_block_count(7)
    floats = np.random.default_rng(0).standard_normal((700, 401)).astype(np.float32)
    writer.add_tensor("first.weight", floats)
    writer.add_tensor("second.weight", floats[:3])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert path.stat().st_size > 5 << 20
    start = time.process_time()
    checkpoint = gguf.open(str(path))
    checkpoint.close()
    assert time.process_time() - start < 8
    assert checkpoint.hyperparameters["llama.block_count"] == 7
    found = opened(tmp_path, path.read_bytes())
    assert found["first.weight"][2] == floats.astype("<f4").tobytes()
    assert found["second.weight"][2] == floats[:3].astype("<f4").tobytes()


def test_the_library_reads_what_is_saved(tmp_path: Path) -> None:
    tensors = []
    for index, dtype in enumerate(PLAIN):
        shape = (2, index + 1, 3)
        tensors.append(in_memory(dtype, (dtype, shape, random_bytes(dtype, shape, index))))
    tensors.append(Tensor("q", "raw:Q4_K", (2, 512), 4 * 144, lambda: bytes(range(144)) * 4))
    path = tmp_path / "saved.gguf"
    with path.open("wb") as out:
        gguf.save(out, tensors, {"general.architecture": "ä"})
    reader = library.GGUFReader(path)
    assert reader.get_field("general.architecture").contents() == "ä"
    for tensor, found in zip(tensors, reader.tensors, strict=True):
        assert found.name == tensor.name
        assert tuple(reversed(found.shape.tolist())) == tensor.shape
        assert found.data.tobytes() == bytes(tensor.read())
    assert opened(tmp_path, path.read_bytes())["q"][0] == "raw:Q4_K"


@pytest.mark.parametrize(
    ("tensor", "error"),
    [
        (in_memory("a", ("complex64", (), bytes(8))), UsageError),
        (in_memory("n" * 1025, ("int8", (1,), b"a")), UsageError),
        (Tensor("a", "raw:Q4_0", (1, 31), 18, lambda: bytes(18)), Damaged),
        (Tensor("a", "raw:Q4_0", (1, 32), 17, lambda: bytes(17)), Damaged),
    ],
)
def test_what_cannot_be_saved(tensor: Tensor, error: type[DlvError]) -> None:
    with pytest.raises(error):
        gguf.save(io.BytesIO(), [tensor], {})


def test_splits_have_a_file_each(tmp_path: Path) -> None:
    writer = library.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=2)
    for index in range(4):
        writer.add_tensor(f"blk.{index}.weight", np.full((2, 3), index, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    names = []
    for path in sorted(tmp_path.glob("*-of-*.gguf")):
        checkpoint = gguf.open(str(path))
        checkpoint.close()
        names += [tensor.name for tensor in checkpoint.tensors]
        assert not any(key.startswith("split.") for key in checkpoint.hyperparameters)
    assert names == [f"blk.{index}.weight" for index in range(4)]


def test_other_alignments_versions_and_a_missing_end(tmp_path: Path) -> None:
    eight = scalar(b"general.alignment", 4, number(8, 4))
    entries = [entry(b"late", [2], 0, 8), entry(b"early", [3], 24, 0), entry(b"none", [0, 4], 0, 8)]
    data = b"abc" + bytes(5) + b"12345678"
    for version in (2, 3):
        found = opened(tmp_path, build([eight], entries, data, 8, version))
        assert list(found) == ["late", "early", "none"]
        assert found["late"] == ("float32", (2,), b"12345678")
        assert found["none"] == ("float32", (4, 0), b"")
    # Some writers leave out what would fill up the last tensor.
    short = build([], [entry(b"a", [1], 24)], b"x")
    assert opened(tmp_path, short)["a"][2] == b"x"
    assert opened(tmp_path, short + bytes(31))["a"][2] == b"x"
    with pytest.raises(Damaged):
        opened(tmp_path, short + bytes(32))


def test_odd_values_that_are_allowed(tmp_path: Path) -> None:
    nested = array(9, 2, array(4, 1, number(7, 4)) + array(8, 2, text(b"a") + text(b"\xff")))
    keys = [
        scalar(b"a", 8, text(b"\xff\xfe")),
        scalar(b"b", 9, nested),
        scalar(b"c", 9, array(8, 1, text(b"\xff"))),
        scalar(b"d", 9, array(6, 2, struct.pack("<2f", 0.1, float("inf")))),
        scalar(b"e", 9, array(9, 0, b"")),
        scalar(b"f", 6, struct.pack("<f", -0.0)),
    ]
    data = build(keys)
    opened(tmp_path, data)
    checkpoint = gguf.open(write(tmp_path, data))
    checkpoint.close()
    assert checkpoint.hyperparameters == {"d": '[0.1,"Infinity"]', "f": -0.0}


GOOD_KEYS = [
    scalar(b"general.architecture", 8, text(b"llama")),
    scalar(b"x", 4, number(1, 4)),
    scalar(b"y", 9, array(8, 2, text(b"a") + text(b"bc"))),
]
GOOD = build(GOOD_KEYS, [entry(b"a", [8, 2]), entry(b"b", [256], 12, 64)], bytes(64 + 144 + 16))


def test_every_cut_is_refused_and_every_flip_typed(tmp_path: Path) -> None:
    opened(tmp_path, GOOD)
    path = tmp_path / "w.gguf"
    for end in range(len(GOOD) - 16):
        path.write_bytes(GOOD[:end])
        with pytest.raises(DlvError):
            gguf.open(str(path))
    dice = random.Random(3)
    for _ in range(1500):
        changed = bytearray(GOOD)
        for _ in range(dice.choice([1, 1, 2, 4])):
            changed[dice.randrange(300)] ^= 1 << dice.randrange(8)
        with contextlib.suppress(DlvError):
            opened(tmp_path, bytes(changed))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=120), st.integers(0, 3), st.integers(0, 3))
def test_noise_behind_the_head(tmp_path: Path, noise: bytes, tensors: int, keys: int) -> None:
    data = b"GGUF\x03\0\0\0" + number(tensors) + number(keys) + noise
    path = write(tmp_path, data)
    try:
        gguf.open(path).close()
    except (Damaged, UnsafeInput, NewerFormat, UsageError):
        return


def test_nothing_twice(tmp_path: Path) -> None:
    with pytest.raises(UnsafeInput, match="key 'x' twice"):
        opened(tmp_path, build([scalar(b"x", 0, b"a"), scalar(b"x", 0, b"a")]))
    with pytest.raises(UnsafeInput, match="two tensors named 'a'"):
        opened(tmp_path, build([], [entry(b"a", [1]), entry(b"a", [1], 0, 32)], bytes(64)))


def test_old_and_new_versions(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="version 1") as caught:
        opened(tmp_path, build(version=1))
    assert "--as file" in (caught.value.hint or "")
    with pytest.raises(NewerFormat, match="version 4"):
        opened(tmp_path, build(version=4))
    with pytest.raises(NewerFormat, match=r"tensor .a."):
        opened(tmp_path, build([], [entry(b"a", [1], 99)], bytes(32)))
    with pytest.raises(UsageError) as removed:
        opened(tmp_path, build([], [entry(b"a", [32], 31)], bytes(32)))
    assert "removed" in (removed.value.why or "")
