"""dlv.adapters.safetensors against the library, and against headers that lie."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save as library_save

from dlv.adapters import safetensors
from dlv.adapters.checkpoint import Adapter, Tensor
from dlv.dtypes import tensor_bytes
from dlv.errors import Damaged, DlvError, NewerFormat, UnsafeInput, UsageError
from tests.conformance.adapter import AdapterSuite, in_memory


def library_load(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = deserialize(data)  # type: ignore[no-untyped-call]
    return found


class TestConformance(AdapterSuite):
    adapter = cast(Adapter, safetensors)
    dtypes = tuple(here for here in safetensors.DTYPES.values() if not here.startswith("raw:"))


def entry(dtype: str, shape: Any, begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def build(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def write(folder: Path, data: bytes) -> str:
    path = folder / "w.safetensors"
    path.write_bytes(data)
    return str(path)


def everything(path: str) -> list[tuple[str, str, list[int], bytes]]:
    checkpoint = safetensors.open(path)
    try:
        return [(t.name, t.dtype, list(t.shape), bytes(t.read())) for t in checkpoint.tensors]
    finally:
        checkpoint.close()


@pytest.mark.parametrize("dtype", safetensors.DTYPES)
def test_every_dtype_as_the_library_reads_it(tmp_path: Path, dtype: str) -> None:
    here = safetensors.DTYPES[dtype]
    size = tensor_bytes(here, [2, 4])
    data = build({"a.b": entry(dtype, [2, 4], 0, size)}, bytes(range(size)))
    [(name, found)] = library_load(data)
    assert (found["dtype"], found["shape"]) == (dtype, [2, 4])
    assert everything(write(tmp_path, data)) == [(name, here, [2, 4], bytes(found["data"]))]


def test_the_library_knows_no_other_dtype() -> None:
    with pytest.raises(SafetensorError) as caught:
        library_load(build({"a": entry("NOPE", [], 0, 1)}, b"a"))
    listed = str(caught.value).split("expected one of ")[1].split(" at line")[0]
    assert {name.strip("`") for name in listed.split(", ")} == set(safetensors.DTYPES)


NUMPY = ["bool", "int8", "uint8", "int16", "uint16", "float16", "int32", "uint32", "float32"]
NUMPY += ["complex64", "float64", "int64", "uint64"]
TREES = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9).filter(
        lambda name: name != "__metadata__"
    ),
    st.tuples(st.sampled_from(NUMPY), st.lists(st.integers(0, 3), max_size=3)),
    max_size=6,
)


@settings(max_examples=80, deadline=None)
@given(TREES, st.dictionaries(st.sampled_from(["step", "ä\n"]), st.text(max_size=5), max_size=1))
def test_saves_the_bytes_of_the_library(
    tree: dict[str, tuple[str, list[int]]], metadata: dict[str, str]
) -> None:
    dice = np.random.default_rng(0)
    arrays = {
        name: np.asarray(dice.integers(0, 2, shape)).astype(dtype)
        for name, (dtype, shape) in tree.items()
    }
    tensors = [
        Tensor(name, array.dtype.name, array.shape, array.nbytes, array.tobytes)
        for name, array in arrays.items()
    ]
    out = io.BytesIO()
    safetensors.save(out, tensors, metadata)
    assert out.getvalue() == library_save(arrays, metadata or None)


def test_file_order_is_kept_and_restored(tmp_path: Path) -> None:
    header = {
        "late": entry("U8", [3], 4, 7),
        "empty": entry("F32", [0, 2], 4, 4),
        "__metadata__": {"format": "pt", "lr": "0.1"},
        "early": entry("F32", [], 0, 4),
    }
    text = b" \n".join(json.dumps(header, indent=1).encode().split(b"\n")) + b"  \n "
    path = write(tmp_path, build(text, b"floaabc"))
    checkpoint = safetensors.open(path)
    assert [t.name for t in checkpoint.tensors] == ["early", "empty", "late"]
    assert checkpoint.exact
    assert checkpoint.hyperparameters == {}
    assert checkpoint.step is None
    out = io.BytesIO()
    assert checkpoint.skeleton is not None
    safetensors.restore(out, checkpoint.skeleton, checkpoint.tensors)
    checkpoint.close()
    assert out.getvalue() == Path(path).read_bytes()


@pytest.mark.parametrize(
    ("metadata", "step"),
    [
        ({"step": "1200"}, 1200),
        ({"global_step": "7"}, 7),
        ({"global_step": "7", "step": "9"}, 9),
        ({"step": "last", "global_step": "3"}, 3),
        ({"step": "1e3"}, None),
        ({"steps": "5", "epoch": "2"}, None),
        ({"step": "9" * 30}, None),
    ],
)
def test_step(tmp_path: Path, metadata: dict[str, str], step: int | None) -> None:
    checkpoint = safetensors.open(write(tmp_path, build({"__metadata__": metadata})))
    checkpoint.close()
    assert checkpoint.step == step


ONE = entry("U8", [1], 0, 1)
WRONG: dict[str, tuple[bytes, type[DlvError]]] = {
    "nothing": (b"", Damaged),
    "no header": (b"\x01" + bytes(7), Damaged),
    "header of 1 TiB": ((1 << 40).to_bytes(8, "little") + b"{}", UnsafeInput),
    "header of 2^64-1": (b"\xff" * 8 + b"{}", UnsafeInput),
    "not an object": (build([]), Damaged),
    "empty text": (build(b""), Damaged),
    "NUL padding": (build(b"{}\0\0"), Damaged),
    "blank before": (build(b" {}"), Damaged),
    "two objects": (build(b"{}{}"), Damaged),
    "trailing comma": (build(b'{"__metadata__":{},}'), Damaged),
    "comment": (build(b"{/**/}"), Damaged),
    "not UTF-8": (build(b'{"\xff":' + json.dumps(ONE).encode() + b"}", b"a"), Damaged),
    "surrogate": (build({"\ud800": ONE}, b"a"), Damaged),
    "raw control": (build(b'{"a\n":' + json.dumps(ONE).encode() + b"}", b"a"), Damaged),
    "NUL in name": (build({"a\0b": ONE}, b"a"), UnsafeInput),
    "duplicate name": (
        build(b'{"a":%b,"\\u0061":%b}' % ((json.dumps(ONE).encode(),) * 2), b"a"),
        UnsafeInput,
    ),
    "duplicate field": (
        build(b'{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', b"a"),
        Damaged,
    ),
    "field missing": (build({"a": {"dtype": "U8", "shape": [1]}}, b"a"), Damaged),
    "unknown field": (build({"a": {**ONE, "x": 1}}, b"a"), Damaged),
    "list entry": (build({"a": ["U8", [1], [0, 1]]}, b"a"), Damaged),
    "null entry": (build({"a": None}, b"a"), Damaged),
    "deep": (build(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), Damaged),
    "deep inside": (build(b'{"a":{"shape":' + b"[" * 2000 + b"]" * 2000 + b"}}"), Damaged),
    "deep objects": (build(b'{"a":' * 50_000 + b"1" + b"}" * 50_000), Damaged),
    "long entry": (build(b'{"a":{%b}}' % (b" " * 5000)), UnsafeInput),
    "float shape": (build({"a": entry("U8", [1.0], 0, 1)}, b"a"), Damaged),
    "boolean shape": (build({"a": entry("U8", [True], 0, 1)}, b"a"), Damaged),
    "negative shape": (build({"a": entry("U8", [-1, -1], 0, 1)}, b"a"), Damaged),
    "huge integer": (build({"a": entry("U8", [10**4000], 0, 1)}, b"a"), Damaged),
    "overflow": (build({"a": entry("F32", [1 << 32, 1 << 32], 0, 0)}), UnsafeInput),
    "overflow and zero": (build({"a": entry("U8", [1 << 62, 1 << 62, 0], 0, 0)}), UnsafeInput),
    "zero and overflow": (build({"a": entry("U8", [0, 1 << 62, 1 << 62], 0, 0)}), UnsafeInput),
    "range too small": (build({"a": entry("F32", [2], 0, 4)}, bytes(4)), UnsafeInput),
    "range too large": (build({"a": entry("U8", [2], 0, 4)}, bytes(4)), UnsafeInput),
    "half a byte": (build({"a": entry("F4", [3], 0, 1)}, b"a"), UnsafeInput),
    "backwards": (build({"a": entry("U8", [1], 1, 0)}, b"a"), UnsafeInput),
    "three offsets": (build({"a": {**ONE, "data_offsets": [0, 1, 1]}}, b"a"), UnsafeInput),
    "outside": (build({"a": entry("U8", [9], 0, 9)}, bytes(8)), Damaged),
    "data left": (build({"a": ONE}, b"ab"), Damaged),
    "only data": (build({}, b"ab"), Damaged),
    "hole at the start": (build({"a": entry("U8", [1], 1, 2)}, b"ab"), UnsafeInput),
    "hole": (build({"a": ONE, "b": entry("U8", [1], 2, 3)}, b"abc"), UnsafeInput),
    "overlap": (
        build({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, b"abc"),
        UnsafeInput,
    ),
    "same bytes": (build({"a": ONE, "b": ONE}, b"a"), UnsafeInput),
    "empty inside another": (
        build({"a": entry("U8", [2], 0, 2), "b": entry("U8", [0], 1, 1)}, b"ab"),
        UnsafeInput,
    ),
    "unknown dtype": (build({"a": entry("F2", [1], 0, 1)}, b"a"), NewerFormat),
    "metadata number": (build({"__metadata__": {"a": 1}}), Damaged),
    "metadata list": (build({"__metadata__": []}), Damaged),
    "metadata null": (build({"__metadata__": None}), Damaged),
    "metadata nested": (build({"__metadata__": {"a": {}}}), Damaged),
    "metadata twice": (build(b'{"__metadata__":{},"__metadata__":{}}'), UnsafeInput),
    "metadata key twice": (build(b'{"__metadata__":{"a":"","a":""}}'), UnsafeInput),
}
# The library takes these; dlv does not, since other readers differ on them.
STRICTER = {
    "blank before",
    "NUL in name",
    "unknown field",
    "list entry",
    "duplicate field",
    "metadata null",
    "metadata twice",
    "metadata key twice",
    "duplicate name",
    "long entry",
    "overflow and zero",
    "zero and overflow",
}


@pytest.mark.parametrize("case", WRONG)
def test_refuses(tmp_path: Path, case: str) -> None:
    data, kind = WRONG[case]
    with pytest.raises(kind) as caught:
        safetensors.open(write(tmp_path, data))
    assert type(caught.value) is kind


@pytest.mark.parametrize("case", sorted(set(WRONG) - STRICTER))
def test_the_library_refuses_it_too(case: str) -> None:
    with pytest.raises(SafetensorError):
        library_load(WRONG[case][0])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_never_laxer_than_the_library(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    header = {
        "a": entry("F32", [2, 1], 0, 8),
        "b": entry("U8", [3], 8, 11),
        "__metadata__": {"k": "v"},
    }
    raw = bytearray(build(header, bytes(11)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.sampled_from(b'0123456789,:[]{}" \\nabFUI\xff'))
    path = write(tmp_path_factory.mktemp("st"), bytes(raw))
    try:
        found = {name: data for name, _, _, data in everything(path)}
    except DlvError:
        return
    assert {name: bytes(t["data"]) for name, t in library_load(bytes(raw))} == found


def test_most_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, build({str(i): entry("U8", [1], i, i + 1) for i in range(5)}, b"abcde"))
    assert len(everything(path)) == 5
    monkeypatch.setattr(safetensors, "MOST_TENSORS", 4)
    with pytest.raises(UnsafeInput, match="too many"):
        everything(path)


def test_save_refuses_the_name_of_the_metadata() -> None:
    with pytest.raises(UsageError, match="__metadata__"):
        safetensors.save(io.BytesIO(), [in_memory("__metadata__", ("uint8", (), b"a"))], {})
