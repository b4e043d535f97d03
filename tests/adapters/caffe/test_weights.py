"""dlv.adapters.caffe.files on .caffemodel files written by protobuf's own library."""

from __future__ import annotations

import contextlib
import io
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

from dlv.adapters.caffe import files as caffe
from dlv.adapters.checkpoint import Checkpoint
from dlv.adapters.detect import detect
from dlv.errors import Damaged, DlvError, NewerFormat, UnsafeInput, UsageError
from dlv.network.verify import verify
from tests.fixtures.caffe import nets
from tests.fixtures.caffe.proto import BlobProto, LooseBlob, NetParameter

Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]
DICE = np.random.default_rng(3)


def parsed(text: str) -> Any:
    return text_format.Parse(text, NetParameter())


def put(
    layer: Any, *arrays: np.ndarray[Any, np.dtype[Any]], legacy: bool = False, diff: bool = False
) -> None:
    for array in arrays:
        blob = layer.blobs.add()
        if legacy:
            sides = (1, 1, 1, 1, *array.shape)[-4:]
            blob.num, blob.channels, blob.height, blob.width = sides
        else:
            blob.shape.dim.extend(array.shape)
        double = array.dtype == np.float64
        (blob.double_data if double else blob.data).extend(array.ravel().tolist())
        if diff:
            (blob.double_diff if double else blob.diff).extend((array * 2).ravel().tolist())


def random_array(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, np.dtype[Any]]:
    """Any bits: NaNs and denormals too; the library keeps those of floats that are no NaN."""
    found = DICE.standard_normal(shape).astype(dtype)
    flat = found.reshape(-1)
    flat[:3] = [-0.0, np.inf, 1e-42][: len(flat)]
    return found


LENET_SHAPES = {
    "conv1": ((20, 1, 5, 5), (20,)),
    "conv2": ((50, 20, 5, 5), (50,)),
    "ip1": ((500, 800), (500,)),
    "ip2": ((10, 500), (10,)),
}


def lenet(text: str, legacy: bool = False) -> tuple[Any, Arrays]:
    net, arrays = parsed(text), {}
    for layer in net.layer or net.layers:
        if layer.name in LENET_SHAPES:
            made = [random_array(*shape) for shape in LENET_SHAPES[layer.name]]
            put(layer, *made, legacy=legacy)
            arrays.update(
                {f"{layer.name}.{s}": a for s, a in zip(("weight", "bias"), made, strict=True)}
            )
    return net, arrays


class Files:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "net.caffemodel"

    def open(self, net: Any) -> tuple[Checkpoint, Arrays]:
        """Opened, read, and written again byte for byte where that is promised."""
        data = net if isinstance(net, bytes) else net.SerializeToString()
        self.path.write_bytes(data)
        opened = caffe.open(str(self.path))
        arrays: Arrays = {}
        for tensor in opened.tensors:
            raw = bytes(tensor.read())
            assert len(raw) == tensor.nbytes
            if tensor.part is not None:
                step = tensor.nbytes // 3 + 1
                parts = [
                    bytes(tensor.part(start, min(step, tensor.nbytes - start)))
                    for start in range(0, tensor.nbytes, step)
                ]
                assert b"".join(parts) == raw
            arrays[tensor.name] = np.frombuffer(raw, tensor.dtype).reshape(tensor.shape)
        if opened.exact:
            out = io.BytesIO()
            assert opened.skeleton is not None
            assert len(opened.skeleton) < 100_000
            caffe.restore(out, opened.skeleton, opened.tensors)
            assert out.getvalue() == data
        opened.close()
        return opened, arrays

    def text(self, text: str) -> Checkpoint:
        path = self.path.with_suffix(".prototxt")
        path.write_text(text, encoding="utf-8")
        return caffe.open(str(path))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def same(found: Arrays, wanted: Arrays) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        assert found[name].tobytes() == array.tobytes(), name


def check(opened: Checkpoint) -> None:
    """The network and the tensors fit each other."""
    assert opened.network is not None
    tensors = {tensor.name: (tensor.dtype, tensor.shape) for tensor in opened.tensors}
    assert [str(problem) for problem in verify(opened.network, tensors)] == []


def test_lenet(files: Files) -> None:
    net, wanted = lenet(nets.LENET)
    opened, found = files.open(net)
    assert (opened.format, opened.exact, opened.notes) == ("caffemodel", True, [])
    assert {tensor.role for tensor in opened.tensors} == {"weight"}
    same(found, wanted)
    check(opened)
    # The very network that the text alone gives.
    text = files.text(nets.LENET)
    assert opened.network is not None
    assert text.network is not None
    assert opened.network.id == text.network.id
    assert detect(str(files.path)) == "caffemodel"
    assert opened.network.tensor_names() == set(wanted)


def test_what_a_solver_saves(files: Files) -> None:
    """The training phase, with splits; and the text that it was trained from."""
    net, wanted = lenet(nets.LENET_TRAINED)
    opened, found = files.open(net)
    same(found, wanted)
    check(opened)
    text = files.text(nets.LENET_TRAIN_TEST).network
    assert opened.network is not None
    assert text is not None
    assert opened.network.nodes == text.nodes
    assert opened.network.outputs == text.outputs
    # The weights say how many channels the data have.
    assert opened.network.inputs[0].shape == ("B", 1, None, None)
    assert any(note.endswith(": label") for note in opened.notes)


def test_groups_count_for_the_channels(files: Files) -> None:
    text = 'layer { name: "d" type: "Data" top: "data" }\n'
    net = parsed(text + nets._conv("c", "data", 4, 1, "group: 2 bias_term: false"))
    put(net.layer[1], random_array(4, 3, 1, 1))
    opened, _ = files.open(net)
    assert opened.network is not None
    assert opened.network.inputs[0].shape == ("B", 6, None, None)


def upgraded(text: str) -> str:
    """The old form of a text in the new one's words."""
    words = {"CONVOLUTION": "Convolution", "POOLING": "Pooling", "RELU": "ReLU", "LRN": "LRN"}
    words |= {"INNER_PRODUCT": "InnerProduct", "DROPOUT": "Dropout", "SOFTMAX": "Softmax"}
    for old, new in words.items():
        text = text.replace(f"type: {old} ", f'type: "{new}" ')
    return text.replace("layers {", "layer {")


def small_caffenet(text: str) -> tuple[Any, Arrays]:
    """CaffeNet with a hundredth of its weights."""
    for large, small in (("4096", "16"), ("1000", "10"), ("384", "8"), ("256", "4"), ("96", "4")):
        text = text.replace(f"num_output: {large}", f"num_output: {small}")
    net = parsed(text)
    arrays: Arrays = {}
    sizes = {1: (4, 3, 11), 2: (4, 2, 5), 3: (8, 4, 3), 4: (8, 4, 3), 5: (4, 4, 3)}
    rows = {"fc6": (16, 144), "fc7": (16, 16), "fc8": (10, 16)}
    for layer in net.layers:
        if layer.name.startswith("conv"):
            out, depth, side = sizes[int(layer.name[4:])]
            weight = random_array(out, depth, side, side)
        elif layer.name in rows:
            weight = random_array(*rows[layer.name])
        else:
            continue
        bias = random_array(weight.shape[0])
        put(layer, weight, bias, legacy=True)
        arrays |= {f"{layer.name}.weight": weight, f"{layer.name}.bias": bias}
    return net, arrays


def test_old_files_and_their_shapes_of_four_axes(files: Files) -> None:
    net, wanted = small_caffenet(nets.caffenet())
    opened, found = files.open(net)
    assert opened.exact
    same(found, wanted)
    check(opened)
    assert opened.network is not None
    assert opened.network.inputs[0].shape == ("B", 3, 227, 227)


def test_both_forms_are_one_network(files: Files) -> None:
    old, new = files.text(nets.caffenet()).network, files.text(upgraded(nets.caffenet())).network
    assert old is not None
    assert new is not None
    assert old.id == new.id


def test_legacy_shapes_that_are_no_padding(files: Files) -> None:
    net = parsed('layer { name: "x" type: "Odd" bottom: "a" top: "b" } input: "a"')
    put(net.layer[0], random_array(2, 1, 3), random_array(5), legacy=True)
    opened, found = files.open(net)
    assert {name: array.shape for name, array in found.items()} == {
        "x.blob0": (2, 1, 3),
        "x.blob1": (5,),
    }
    assert opened.network is not None
    assert opened.network.node("x").params == {"blob0": "x.blob0", "blob1": "x.blob1"}
    assert opened.network.node("x").source is not None


def test_doubles_gradients_and_scalars(files: Files) -> None:
    net = parsed(
        nets._input(1, 6)
        + nets._layer("l", "InnerProduct", "data", "l", "inner_product_param { num_output: 2 }")
    )
    weight, bias = random_array(2, 6, dtype=np.float64), random_array(2, dtype=np.float64)
    put(net.layer[1], weight, bias, diff=True)
    opened, found = files.open(net)
    wanted = {"l.weight": weight, "l.weight.diff": weight * 2, "l.bias": bias}
    same(found, {**wanted, "l.bias.diff": bias * 2})
    assert [tensor.role for tensor in opened.tensors] == ["weight", "extra"] * 2
    scalar = net.layer[1].blobs.add()
    scalar.data.append(7)
    assert files.open(net)[1]["l.blob2"].shape == ()


def statistics(factor: float, text: str = "") -> tuple[Any, Arrays]:
    net = parsed(text or nets.resnet_block())
    arrays: Arrays = {}
    for layer in net.layer:
        if layer.type == "BatchNorm":
            depth = 16 if layer.name in ("bn_a", "bn_b3") else 4
            mean, var = random_array(depth), np.abs(random_array(depth)) + np.float32(0.5)
            mean[:3], var[:3] = 1, 2
            put(layer, mean, var, np.array([factor], np.float32))
            arrays |= {f"{layer.name}.{i}": a for i, a in enumerate((mean, var))}
        elif layer.type == "Scale":
            depth = 16 if layer.name in ("scale_a", "scale_b3") else 4
            put(layer, random_array(depth), random_array(depth))
        elif layer.type == "Convolution":
            shape = {"res_a": (16, 8, 1, 1), "res_b1": (4, 8, 1, 1), "res_b2": (4, 4, 3, 3)}
            put(layer, random_array(*shape.get(layer.name, (16, 4, 1, 1))))
        elif layer.type == "InnerProduct":
            put(layer, random_array(5, 16), random_array(5))
    return net, arrays


def unused(opened: Checkpoint) -> set[str]:
    assert opened.network is not None
    tensors = {tensor.name: (tensor.dtype, tensor.shape) for tensor in opened.tensors}
    problems = verify(opened.network, tensors)
    assert {problem.rule for problem in problems} <= {"extra"}
    return {problem.message.split("'")[1] for problem in problems}


def test_statistics_that_are_not_scaled_are_as_in_the_file(files: Files) -> None:
    net, arrays = statistics(1.0)
    opened, found = files.open(net)
    assert opened.exact
    for name in ("bn_a", "bn_b2"):
        same(
            {k: found[f"{name}.{k}"] for k in ("running_mean", "running_var")},
            {"running_mean": arrays[f"{name}.0"], "running_var": arrays[f"{name}.1"]},
        )
        assert f"{name}.blob0" not in found
    assert unused(opened) == {f"bn_{part}.blob2" for part in ("a", "b1", "b2", "b3")}
    roles = {tensor.name: tensor.role for tensor in opened.tensors}
    assert (roles["bn_a.running_mean"], roles["bn_a.blob2"]) == ("buffer", "extra")


@pytest.mark.parametrize("factor", [999.982361, 3.0, 0.0])
def test_statistics_that_are_scaled_are_there_both_ways(files: Files, factor: float) -> None:
    """The sums bit for bit, and the statistics as Caffe works them out."""
    net, arrays = statistics(factor)
    opened, found = files.open(net)
    assert opened.exact
    for name in ("bn_a", "bn_b1"):
        inverse = np.float32(1) / np.float32(factor) if factor else np.float32(0)
        for index, slot in enumerate(("running_mean", "running_var")):
            sums = arrays[f"{name}.{index}"]
            same({"x": found[f"{name}.blob{index}"]}, {"x": sums})
            same({"x": found[f"{name}.{slot}"]}, {"x": sums * inverse})
    assert "bn_a.blob2" in unused(opened)
    # The network is the same, whatever the factor is.
    text = files.text(nets.resnet_block()).network
    assert opened.network is not None
    assert text is not None
    assert opened.network.id == text.id


def test_statistics_of_doubles_and_of_other_forms(files: Files) -> None:
    text = nets._input(1, 3) + nets._layer("bn", "BatchNorm", "data", "bn")
    net = parsed(text)
    mean = random_array(3, dtype=np.float64)
    put(net.layer[1], mean, mean * mean, np.array([3.0]))
    found = files.open(net)[1]
    same({"x": found["bn.running_mean"]}, {"x": mean * (1 / np.float64(3))})
    net = parsed(text)
    put(net.layer[1], random_array(3), random_array(3))
    assert list(files.open(net)[1]) == ["bn.blob0", "bn.blob1"]


SIAMESE = nets._input(1, 4, name="a") + nets._input(1, 4, name="b").replace('"in"', '"in2"')
for part, source in (("one", "a"), ("two", "b")):
    SIAMESE += nets._layer(
        part,
        "InnerProduct",
        source,
        part,
        'param { name: "w" } param { name: "b" } inner_product_param { num_output: 3 }',
    )


def test_shared_weights_are_one(files: Files) -> None:
    net = parsed(SIAMESE)
    weight, bias = random_array(3, 4), random_array(3)
    for place in (2, 3):
        put(net.layer[place], weight, bias)
    opened, _ = files.open(net)
    assert {tensor.name: tensor.tied for tensor in opened.tensors} == {
        "one.weight": None,
        "one.bias": None,
        "two.weight": "one.weight",
        "two.bias": "one.bias",
    }
    assert opened.network is not None
    assert opened.network.aliases == {"two.weight": "one.weight", "two.bias": "one.bias"}
    check(opened)


def test_shared_weights_that_differ_are_not(files: Files) -> None:
    net = parsed(SIAMESE)
    bias = random_array(3)
    for place in (2, 3):
        put(net.layer[place], random_array(3, 4) + np.float32(place), bias)
    opened, _ = files.open(net)
    assert opened.network is not None
    assert opened.network.aliases == {"two.bias": "one.bias"}
    assert opened.notes == ["two.weight is shared with one.weight, but holds other numbers"]


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def model(blob: bytes, kind: bytes = b"InnerProduct") -> bytes:
    """A network of one layer, with one blob, by hand."""
    layer = field(1, b"l") + field(2, kind) + field(3, b"data") + field(4, b"l") + field(7, blob)
    data = field(1, b"data") + field(2, b"Input") + field(4, b"data")
    return field(1, b"net") + field(100, data) + field(100, layer)


SHAPE = field(7, field(1, bytes([2, 3])))
SIX = struct.pack("<6f", *range(6))


def test_numbers_in_several_pieces(files: Files) -> None:
    blob = field(5, SIX[:8]) + SHAPE + field(5, b"") + field(5, SIX[8:])
    opened, found = files.open(model(blob))
    assert opened.exact
    assert found["l.weight"].tobytes() == SIX
    assert opened.tensors[0].part is None


def test_numbers_that_are_not_packed(files: Files) -> None:
    blob = LooseBlob()
    blob.data.extend(range(6))
    blob.shape.dim.extend([2, 3])
    opened, found = files.open(model(blob.SerializeToString()))
    assert not opened.exact
    assert opened.skeleton is None
    assert found["l.weight"].tobytes() == SIX
    assert any("not packed" in note for note in opened.notes)


def test_unknown_fields_stay_in_the_file(files: Files) -> None:
    data = model(SHAPE + field(5, SIX) + field(99, b"abc")) + field(500, b"more")
    opened, _ = files.open(data)
    assert opened.exact


def test_a_network_that_cannot_be_read_does_not_lose_the_weights(files: Files) -> None:
    data = model(SHAPE + field(5, SIX)).replace(b"\x1a\x04data", b"\x1a\x04dada")
    opened, found = files.open(data)
    assert opened.network is None
    assert "its network cannot be read" in opened.notes[0]
    assert found["l.weight"].tobytes() == SIX


@pytest.mark.parametrize(
    "blob",
    [
        SHAPE,
        SHAPE + field(5, SIX[:-4]),
        SHAPE + field(5, SIX[:-1]),
        SHAPE + field(5, SIX + b"abcd"),
        SHAPE + field(5, SIX) + field(8, bytes(48)),
        SHAPE + field(5, SIX) + field(6, bytes(4)),
        SHAPE + field(8, SIX),
        SHAPE + SHAPE + field(5, SIX),
        field(7, field(1, varint((1 << 64) - 2))) + field(5, SIX),
        field(7, field(1, varint(1 << 40))) + field(5, SIX),
        field(7, field(1, bytes([1] * 33))) + field(5, SIX[:4]),
        varint(1 << 3) + varint(2) + field(5, SIX),
        varint(5 << 3) + varint(1) + SHAPE,
        varint(7 << 3) + varint(1) + field(5, SIX),
    ],
)
def test_blobs_that_lie(files: Files, blob: bytes) -> None:
    with pytest.raises((Damaged, UnsafeInput)) as caught:
        files.open(model(blob))
    assert "net.caffemodel" in caught.value.message


def test_a_file_without_layers(files: Files) -> None:
    with pytest.raises(UsageError):
        files.open(field(1, b"n\x01"))


def test_every_cut_is_refused(files: Files, tmp_path: Path) -> None:
    whole = model(SHAPE + field(5, SIX))
    fields = {0, 5, len(whole) - 1 - len(SHAPE + field(5, SIX))}
    path = tmp_path / "cut.caffemodel"
    good = 0
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        try:
            opened = caffe.open(str(path))
        except DlvError:
            continue
        # Protobuf has no end mark: between two layers a file may stop.
        opened.close()
        assert opened.tensors == []
        good += 1
    assert good <= 2 + len(fields)


def test_flips_give_typed_errors_only(files: Files) -> None:
    whole = model(SHAPE + field(5, SIX)) + parsed(nets.resnet_block()).SerializeToString()
    dice = random.Random(11)
    for _ in range(1500):
        changed = bytearray(whole)
        for _ in range(dice.choice([1, 1, 2, 6])):
            changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
        with contextlib.suppress(Damaged, UnsafeInput, NewerFormat, UsageError):
            files.open(bytes(changed))


def test_blobs_beside_the_network_are_left(files: Files) -> None:
    """A mean image is a BlobProto, and no network."""
    blob = BlobProto()
    blob.num, blob.channels, blob.height, blob.width = 1, 3, 2, 2
    blob.data.extend(range(12))
    path = files.path.with_suffix(".binaryproto")
    path.write_bytes(blob.SerializeToString())
    assert detect(str(path)) == "binary"
