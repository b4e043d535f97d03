"""dlv.adapters.onnx.files: what every weight adapter must do, and what is special to ONNX files."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from dlv.adapters.checkpoint import Adapter, Tensor
from dlv.adapters.onnx import files as onnx_files
from dlv.canonical import matrix_hash
from dlv.errors import Damaged, NewerFormat, NotFound, UnsafeInput, UsageError
from tests.conformance.adapter import AdapterSuite
from tests.onnx_models import MODELS, array, constant, model, op
from tests.onnx_reading import in_onnxruntime, opened, random_input, restored, sound, words

onnx = pytest.importorskip("onnx")
T = onnx.TensorProto

TYPES = {
    "bool": T.BOOL,
    "int8": T.INT8,
    "int16": T.INT16,
    "int32": T.INT32,
    "int64": T.INT64,
    "uint8": T.UINT8,
    "uint16": T.UINT16,
    "uint32": T.UINT32,
    "uint64": T.UINT64,
    "float16": T.FLOAT16,
    "float64": T.DOUBLE,
    "bfloat16": T.BFLOAT16,
    "float8_e4m3": T.FLOAT8E4M3FN,
    "float8_e5m2": T.FLOAT8E5M2,
    "float8_e4m3fnuz": T.FLOAT8E4M3FNUZ,
    "float8_e5m2fnuz": T.FLOAT8E5M2FNUZ,
    "float8_e8m0": T.FLOAT8E8M0,
    "complex64": T.COMPLEX64,
    "complex128": T.COMPLEX128,
    "float32": T.FLOAT,
}


def holding(*tensors: Any, nodes: Sequence[Any] = (), **more: Any) -> Any:
    """A model with these initializers, which need not be used."""
    made = model([op("Relu", "0in", "0out"), *nodes], {"0in": ["B", 2]}, {}, {"0out": None}, **more)
    made.graph.initializer.extend(tensors)
    return made


def proto(tensor: Tensor) -> Any:
    return T(
        name=tensor.name,
        dims=tensor.shape,
        data_type=TYPES[tensor.dtype],
        raw_data=bytes(tensor.read()),
    )


class TestConformance(AdapterSuite):
    adapter = cast(Adapter, onnx_files)
    dtypes: ClassVar[tuple[str, ...]] = tuple(TYPES)

    def save(
        self,
        tensors: Sequence[Tensor],
        metadata: dict[str, str] | None = None,  # noqa: ARG002
    ) -> Path:
        """dlv writes networks, not tensors; the onnx package writes these."""
        path = self.folder / "saved.onnx"
        path.write_bytes(holding(*map(proto, tensors)).SerializeToString())
        return path

    def test_unknown_dtype(self) -> None:
        path = self.folder / "odd.onnx"
        path.write_bytes(holding(T(name="odd.one", dims=[1], data_type=99)).SerializeToString())
        with pytest.raises(NewerFormat, match=r"odd\.one"):
            onnx_files.open(str(path))

    def test_two_tensors_of_one_name(self) -> None:
        one = T(name="a", dims=[1], data_type=T.FLOAT, raw_data=bytes(4))
        path = self.folder / "twice.onnx"
        path.write_bytes(holding(one, one).SerializeToString())
        with pytest.raises(UnsafeInput, match="'a'"):
            onnx_files.open(str(path))

    def test_wrong_length_is_never_written_silently(self) -> None:
        path = self.folder / "short.onnx"
        path.write_bytes(
            holding(
                T(name="a", dims=[4], data_type=T.FLOAT, raw_data=bytes(15))
            ).SerializeToString()
        )
        with pytest.raises(Damaged, match="'a'"):
            onnx_files.open(str(path))


def test_saving_tensors_alone(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as out, pytest.raises(UsageError) as caught:
        onnx_files.save(out, [], {})
    assert caught.value.hint


@pytest.mark.parametrize("name", MODELS)
def test_models_come_back(tmp_path: Path, name: str) -> None:
    made = MODELS[name]()
    with opened(made, tmp_path) as checkpoint:
        sound(checkpoint)
        assert checkpoint.exact
        assert restored(checkpoint) == made.SerializeToString()
        assert checkpoint.notes == []
        stored = {item.name: item for item in made.graph.initializer}
        for tensor in checkpoint.tensors:
            wanted = onnx.numpy_helper.to_array(stored[tensor.name])
            assert (tensor.dtype, tensor.shape) == (wanted.dtype.name, wanted.shape)
            assert bytes(tensor.read()) == wanted.tobytes()


# The forms that elements are written in

TYPED: list[tuple[Any, list[Any], str, bytes]] = [
    (T.FLOAT, [1.5, -2.0], "float32", np.array([1.5, -2], "<f4").tobytes()),
    (T.DOUBLE, [1.5, -2.0], "float64", np.array([1.5, -2], "<f8").tobytes()),
    (T.INT32, [-1, 2**31 - 1], "int32", np.array([-1, 2**31 - 1], "<i4").tobytes()),
    (T.INT64, [-(2**63), 5], "int64", np.array([-(2**63), 5], "<i8").tobytes()),
    (T.UINT64, [2**64 - 1, 0], "uint64", np.array([2**64 - 1, 0], "<u8").tobytes()),
    (T.UINT32, [2**32 - 1, 7], "uint32", np.array([2**32 - 1, 7], "<u4").tobytes()),
    (T.INT8, [-128, 127], "int8", b"\x80\x7f"),
    (T.UINT8, [255, 0], "uint8", b"\xff\x00"),
    (T.INT16, [-2, 3], "int16", b"\xfe\xff\x03\x00"),
    (T.UINT16, [65535, 3], "uint16", b"\xff\xff\x03\x00"),
    (T.BOOL, [True, False], "bool", b"\x01\x00"),
    (T.FLOAT16, [1.5, -2.0], "float16", np.array([1.5, -2], "<f2").tobytes()),
    (T.COMPLEX64, [1 + 2j, 3j], "complex64", np.array([1 + 2j, 3j], "<c8").tobytes()),
    (T.COMPLEX128, [1 + 2j, 3j], "complex128", np.array([1 + 2j, 3j], "<c16").tobytes()),
]


@pytest.mark.parametrize("case", TYPED, ids=[case[2] for case in TYPED])
def test_elements_in_fields_of_their_own(
    tmp_path: Path, case: tuple[Any, list[Any], str, bytes]
) -> None:
    code, values, dtype, wanted = case
    stored = onnx.helper.make_tensor("a", code, [len(values)], values)
    assert not stored.HasField("raw_data")
    made = holding(stored)
    with opened(made, tmp_path) as checkpoint:
        [tensor] = checkpoint.tensors
        assert (tensor.dtype, bytes(tensor.read())) == (dtype, wanted)
        assert tensor.nbytes == len(wanted)
        assert checkpoint.exact
        assert restored(checkpoint) == made.SerializeToString()


@pytest.mark.parametrize(
    ("code", "dtype"),
    [(T.INT4, "raw:INT4"), (T.UINT4, "raw:UINT4"), (T.FLOAT4E2M1, "raw:FLOAT4E2M1")],
)
def test_narrow_elements(tmp_path: Path, code: int, dtype: str) -> None:
    stored = [
        T(name="packed", dims=[3], data_type=code, raw_data=b"\x21\x03"),
        T(name="listed", dims=[3], data_type=code, int32_data=[0x21, 3]),
    ]
    made = holding(*stored)
    with opened(made, tmp_path) as checkpoint:
        for tensor in checkpoint.tensors:
            assert (tensor.dtype, tensor.shape, tensor.nbytes) == (dtype, (3,), 2)
            assert bytes(tensor.read()) == b"\x21\x03"
        assert restored(checkpoint) == made.SerializeToString()


def test_numbers_that_are_not_packed(tmp_path: Path) -> None:
    """As writers of other languages may do; the bytes come back nevertheless."""
    floats = np.array([1.5, 2.5], "<f4").tobytes()
    tensor = b"\x08\x02\x10\x01\x25" + floats[:4] + b"\x25" + floats[4:] + b"\x42\x01a"
    graph = b"\x2a" + bytes([len(tensor)]) + tensor
    file = b"\x08\x08\x3a" + bytes([len(graph)]) + graph + b"\x42\x02\x10\x11"
    with opened(file, tmp_path) as checkpoint:
        assert [bytes(t.read()) for t in checkpoint.tensors] == [floats]
        assert restored(checkpoint) == file


def test_numbers_packed_in_two_pieces(tmp_path: Path) -> None:
    floats = np.array([1.5, 2.5, 3.5], "<f4").tobytes()
    tensor = b"\x08\x03\x10\x01\x22\x04" + floats[:4] + b"\x42\x01a\x22\x08" + floats[4:]
    graph = b"\x2a" + bytes([len(tensor)]) + tensor
    file = b"\x08\x08\x3a" + bytes([len(graph)]) + graph + b"\x42\x02\x10\x11"
    with opened(file, tmp_path) as checkpoint:
        assert [bytes(t.read()) for t in checkpoint.tensors] == [floats]
        assert checkpoint.skeleton is not None
        assert floats[:4] not in checkpoint.skeleton
        assert restored(checkpoint) == file


def test_texts_stay_in_the_file(tmp_path: Path) -> None:
    made = holding(onnx.helper.make_tensor("words", T.STRING, [2], [b"a", b"b"]))
    with opened(made, tmp_path) as checkpoint:
        assert checkpoint.tensors == []
        assert any("'words'" in note for note in checkpoint.notes)
        assert restored(checkpoint) == made.SerializeToString()


# Files beside the model


def beside(folder: Path, made: Any, location: str = "w.bin", **more: Any) -> Any:
    """The model with its initializers in another file, as `onnx.save` would write it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(made)
    onnx.external_data_helper.convert_model_to_external_data(
        copy, all_tensors_to_one_file=True, location=location, size_threshold=0, **more
    )
    return onnx.external_data_helper.write_external_data_tensors(copy, str(folder))


def files_of(checkpoint: Any) -> dict[str, bytes]:
    """The files that a model of several comes back as; its own has no name here."""
    assert checkpoint.apart is not None
    found = {"": (checkpoint.apart.skeleton, checkpoint.tensors)}
    for each in checkpoint.apart.companions:
        found[each.path] = each.skeleton, [checkpoint.tensors[at] for at in each.tensors]
    made = {}
    for name, (skeleton, tensors) in found.items():
        out = io.BytesIO()
        onnx_files.restore(out, skeleton, tensors)
        made[name] = out.getvalue()
    return made


@pytest.mark.parametrize("name", MODELS)
def test_weights_in_another_file(tmp_path: Path, name: str) -> None:
    """They are read from there; both files come back, or one that holds all."""
    made = MODELS[name]()
    split = beside(tmp_path, made)
    assert not any(item.HasField("raw_data") for item in split.graph.initializer)
    with opened(made, tmp_path, "whole.onnx") as whole, opened(split, tmp_path) as checkpoint:
        assert sound(checkpoint).id == sound(whole).id
        for a, b in zip(whole.tensors, checkpoint.tensors, strict=True):
            assert (a.name, bytes(a.read())) == (b.name, bytes(b.read()))
        assert not checkpoint.exact
        assert not any("w.bin" in note for note in checkpoint.notes)
        assert files_of(checkpoint) == {
            "": split.SerializeToString(),
            **(
                {"w.bin": (tmp_path / "w.bin").read_bytes()}
                if (tmp_path / "w.bin").exists()
                else {}
            ),
        }
        joined = restored(checkpoint)
    again = onnx.ModelProto.FromString(joined)
    assert again == made
    inputs = random_input(made)
    for one, other in zip(in_onnxruntime(made, inputs), in_onnxruntime(again, inputs), strict=True):
        np.testing.assert_array_equal(one, other)
    with opened(joined, tmp_path, "joined.onnx") as checkpoint:
        assert checkpoint.exact
        assert restored(checkpoint) == joined


def test_a_file_for_each_tensor_in_a_folder(tmp_path: Path) -> None:
    made = MODELS["residual"]()
    (tmp_path / "data" / "deep").mkdir(parents=True)
    for item in made.graph.initializer:
        location = f"./data//deep/{item.name}"
        (tmp_path / location).write_bytes(item.raw_data)
        onnx.external_data_helper.set_external_data(item, location)
        item.ClearField("raw_data")
    with opened(made, tmp_path) as checkpoint:
        for tensor in checkpoint.tensors:
            assert bytes(tensor.read()) == (tmp_path / "data/deep" / tensor.name).read_bytes()
            assert tensor.part is not None
            assert bytes(tensor.part(4, 8)) == bytes(tensor.read())[4:12]


def external(**entries: str) -> Any:
    """A model whose one tensor of eight bytes lies where the entries say."""
    stored = T(name="a", dims=[2], data_type=T.FLOAT, data_location=T.EXTERNAL)
    for key, value in entries.items():
        stored.external_data.add(key=key, value=value)
    return holding(stored)


def test_part_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(bytes(range(16)))
    with opened(external(location="w", offset="4"), tmp_path) as checkpoint:
        assert bytes(checkpoint.tensors[0].read()) == bytes(range(4, 12))
    for entries in ({"offset": "9"}, {"offset": "0", "length": "9"}, {"length": "7"}):
        with pytest.raises(Damaged), opened(external(location="w", **entries), tmp_path):
            pass
    for offset in ("-1", "1e3", "0x4", "٣", "9" * 30, ""):
        with pytest.raises(UnsafeInput), opened(external(location="w", offset=offset), tmp_path):
            pass


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"w\.bin"), opened(external(location="w.bin"), tmp_path):
        pass


@pytest.mark.parametrize(
    "location",
    [
        "/etc/passwd",
        "../secret",
        "a/../../secret",
        "",
        ".",
        "..",
        "a/..",
        "C:secret",
        "\\secret",
        "a\0b",
        "folder",
        "fifo",
        "link",
        "linked/secret",
        "hard",
    ],
)
def test_only_plain_files_below_the_model(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(8))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "secret").write_bytes(bytes(8))
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path / "other")
    os.link(tmp_path / "secret", folder / "hard")
    with pytest.raises(UnsafeInput), opened(external(location=location), folder):
        pass


def test_a_link_within_the_folder_is_no_plain_file_either(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(bytes(8))
    (tmp_path / "v").symlink_to("w")
    with pytest.raises(UnsafeInput) as caught, opened(external(location="v"), tmp_path):
        pass
    assert "link" in str(caught.value.why)


def test_a_file_exchanged_while_open(tmp_path: Path) -> None:
    """More files than are kept open: each is opened again with the same care."""
    stored = []
    for number in range(40):
        (tmp_path / f"w{number}").write_bytes(bytes([number] * 8))
        item = T(name=f"a{number}", dims=[2], data_type=T.FLOAT, data_location=T.EXTERNAL)
        item.external_data.add(key="location", value=f"w{number}")
        stored.append(item)
    with opened(holding(*stored), tmp_path) as checkpoint:
        assert [bytes(t.read())[0] for t in checkpoint.tensors] == list(range(40))
        (tmp_path / "w0").unlink()
        (tmp_path / "w0").symlink_to("w1")
        with pytest.raises(UnsafeInput):
            checkpoint.tensors[0].read()
        (tmp_path / "w1").write_bytes(b"")
        with pytest.raises(Damaged):
            checkpoint.tensors[1].read()


# What else is in the file


def test_metadata(tmp_path: Path) -> None:
    made = MODELS["lenet"]()
    onnx.helper.set_model_props(
        made, {"stride": "32", "names": "x" * 300, "a\nb": "1", "empty": "", "task": "detect"}
    )
    made.producer_name, made.producer_version = "pytorch", "2.5"
    with opened(made, tmp_path) as checkpoint:
        assert checkpoint.hyperparameters == {"stride": "32", "task": "detect"}
        assert checkpoint.network is not None
        assert checkpoint.network.origin == {
            "importer": "onnx",
            "version": 1,
            "opset": 17,
            "producer": "pytorch 2.5",
        }


def test_inputs(tmp_path: Path) -> None:
    """Symbols, free batches, dtypes; initializers among the inputs, as old files have them."""
    made = model(
        [op("Gemm", "x w", "y")],
        {"x": ["N", 6], "w": [6, 3], "i": ("int64", [None, 4, None]), "s": []},
        {"w": array(6, 3)},
    )
    made.ir_version = 3
    with opened(made, tmp_path) as checkpoint:
        network = sound(checkpoint)
        assert [(item.name, item.shape, item.dtype) for item in network.inputs] == [
            ("x", ("N", 6), "float32"),
            ("i", ("B", 4, None), "int64"),
            ("s", (), "float32"),
        ]


def test_inputs_without_a_shape(tmp_path: Path) -> None:
    """Their first reader tells how many axes they have; nothing is worked out from the guess."""
    made = model(
        [op("Conv", "x w", "a"), op("MaxPool", "z", "b", kernel_shape=[2]), op("Relu", "i", "c")],
        {"x": None, "z": None, "i": None},
        {"w": array(2, 3, 1, 1)},
        {"a": None, "b": None, "c": None},
    )
    with opened(made, tmp_path) as checkpoint:
        network = sound(checkpoint)
        assert [item.shape for item in network.inputs] == [
            ("B", None, None, None),
            ("B", None, None),
            ("B", None),
        ]
        assert len(checkpoint.notes) == 3


def test_settings_are_no_tensors(tmp_path: Path) -> None:
    """Initializers that only said how; and those that nobody uses, which are weights."""
    weights = {
        "shape": np.array([0, -1]),
        "axes": np.array([1]),
        "zero": np.array(0, np.float32),
        "six": np.array(6, np.float32),
        "w": array(24, 3),
        "unused": array(5),
        "positions": np.arange(9),
    }
    nodes = [
        op("Unsqueeze", "x axes", "a"),
        op("Clip", "a zero six", "b"),
        op("Reshape", "b shape", "c"),
        op("MatMul", "c w"),
    ]
    with opened(model(nodes, {"x": ["B", 4, 6]}, weights), tmp_path) as checkpoint:
        assert [t.name for t in checkpoint.tensors] == ["w", "unused", "positions"]
        assert checkpoint.constants == []
        assert restored(checkpoint)


def test_a_weight_beside_a_setting_stays_a_weight(tmp_path: Path) -> None:
    """A scale of one element is trained; that it is small makes it no setting."""
    made = model(
        [op("Mul", "x scale", "a"), op("MatMul", "a w")],
        {"x": ["B", 6]},
        {"scale": array(1), "w": array(6, 2)},
    )
    with opened(made, tmp_path) as checkpoint:
        network = sound(checkpoint)
        assert [t.name for t in checkpoint.tensors] == ["scale", "w"]
        assert words(network) == ["MUL", "FULL"]
        assert network.nodes[0].params == {"value": "scale"}


def test_constants(tmp_path: Path) -> None:
    """What flows in from the file itself; large ones are weights, whatever they were called."""
    values = np.arange(6, dtype=np.float32)
    made = model(
        [
            constant("c", values, "float32"),
            constant("large", array(6, 20_000), "float32"),
            op("Concat", "x c", "a", axis=0),
            constant("two", [2, 6]),
            op("Reshape", "a two", "d"),
            op("Identity", "c", "c2"),
            op("Add", "d c2", "e"),
            op("MatMul", "e large"),
        ],
        {"x": [6]},
    )
    with opened(made, tmp_path) as checkpoint:
        network = sound(checkpoint)
        [held] = checkpoint.constants
        digest = matrix_hash("float32", (6,), values.tobytes())
        assert network.constants == {held.name: digest}
        assert bytes(held.read()) == values.tobytes()
        assert [(t.name, t.shape) for t in checkpoint.tensors] == [("large", (6, 20_000))]
        assert checkpoint.exact
        assert restored(checkpoint) == made.SerializeToString()


def test_too_much_beside_the_tensors(tmp_path: Path) -> None:
    """What cannot be kept in a skeleton is said; the weights are read all the same."""
    made = holding(T(name="a", dims=[2], data_type=T.FLOAT, raw_data=bytes(8)))
    made.doc_string = "x" * (65 << 20)
    with opened(made, tmp_path) as checkpoint:
        assert not checkpoint.exact
        assert checkpoint.skeleton is None
        assert any("byte for byte" in note for note in checkpoint.notes)
        assert bytes(checkpoint.tensors[0].read()) == bytes(8)


def test_versions(tmp_path: Path) -> None:
    made = MODELS["lenet"]()
    made.opset_import[0].version = 99
    with opened(made, tmp_path) as checkpoint:
        assert any("99" in note for note in checkpoint.notes)
    del made.opset_import[:]
    with pytest.raises(Damaged, match="version"), opened(made, tmp_path):
        pass
    made.ir_version = 2
    with opened(made, tmp_path) as checkpoint:
        assert checkpoint.network is not None
    made.opset_import.add(domain="", version=9)
    made.opset_import.add(domain="ai.onnx", version=10)
    with pytest.raises(UnsafeInput, match="two versions"), opened(made, tmp_path):
        pass


def test_many_operators_are_quick(tmp_path: Path) -> None:
    """A thousand layers with names and weights, in well under a second."""
    nodes, weights = [], {}
    for number in range(500):
        weights[f"w{number}"] = array(8, 8)
        nodes.append(
            op("MatMul", f"v{2 * number} w{number}", f"v{2 * number + 1}", name=f"/m{number}")
        )
        nodes.append(op("Relu", f"v{2 * number + 1}", f"v{2 * number + 2}", name=f"/r{number}"))
    made = model(nodes, {"v0": ["B", 8]}, weights, {"v1000": ["B", 8]})
    path = tmp_path / "long.onnx"
    path.write_bytes(made.SerializeToString())
    start = os.times()
    checkpoint = onnx_files.open(str(path))
    end = os.times()
    assert checkpoint.network is not None
    assert len(checkpoint.network.nodes) == 1000
    assert end.user + end.system - start.user - start.system < 1
    checkpoint.close()


def test_a_graph_beyond_what_is_stored(tmp_path: Path) -> None:
    """So large that its JSON could not be read again: the weights come alone."""
    count = 3000
    name = "n" * 6000
    nodes = [op("Relu", f"v{i}", f"v{i + 1}", name=f"{name}{i}") for i in range(count)]
    made = model(nodes, {"v0": ["B", 8]}, {"w": array(2)}, {f"v{count}": ["B", 8]})
    with opened(made, tmp_path) as checkpoint:
        assert checkpoint.network is None
        assert any("too large" in note for note in checkpoint.notes)
        assert [t.name for t in checkpoint.tensors] == ["w"]
        assert math.prod(checkpoint.tensors[0].shape) == 2
