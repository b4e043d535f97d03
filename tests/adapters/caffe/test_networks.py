"""Caffe's networks from text: structure, names, shapes, and what is told when it is wrong."""

from __future__ import annotations

import io
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dlv.adapters import registry
from dlv.adapters.caffe import files as caffe
from dlv.canonical import dumps
from dlv.errors import Damaged, DlvError, UnsafeInput, UsageError
from dlv.network.graph import Network, Node
from dlv.network.json_form import read, write
from dlv.network.likeness.comparison import compare
from dlv.network.summary import summary
from dlv.network.verify import infer, verify
from tests.fixtures.caffe import nets


class Files:
    """Texts as files, opened."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "net.prototxt"

    def open(self, text: str) -> tuple[Network, list[str]]:
        self.path.write_text(text, encoding="utf-8")
        opened = caffe.open(str(self.path))
        assert (opened.tensors, opened.format) == ([], "prototxt")
        assert opened.network is not None
        # What is stored is what was made.
        assert Network.from_canonical(opened.network.canonical()).id == opened.network.id
        return opened.network, opened.notes

    def net(self, text: str) -> Network:
        return self.open(text)[0]

    def fails(self, text: str) -> DlvError:
        with pytest.raises(DlvError) as caught:
            self.open(text)
        return caught.value


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def layer(kind: str, bottoms: str = "a", tops: str = "b", rest: str = "", name: str = "l") -> str:
    """`in` is a network input `a` of 2 x 6 x 8 x 10 in front of it."""
    blobs = " ".join(f'bottom: "{item}"' for item in bottoms.split())
    blobs += " " + " ".join(f'top: "{item}"' for item in tops.split())
    return f'layer {{ name: "{name}" type: "{kind}" {blobs} {rest} }}\n'


A = 'input: "a" input_shape { dim: 2 dim: 6 dim: 8 dim: 10 }\n'
AB = A + 'input: "b" input_shape { dim: 2 dim: 6 dim: 8 dim: 10 }\n'


def shapes(network: Network) -> dict[str, Any]:
    return {node.name: node.out_shape for node in infer(network).nodes}


def wiring(network: Network) -> list[tuple[str, str, list[str]]]:
    return [
        (node.name, node.op, [name if not port else f"{name}:{port}" for name, port in node.inputs])
        for node in network.nodes
    ]


def only(network: Network) -> Node:
    [node] = network.nodes
    return node


def test_lenet(files: Files) -> None:
    network, notes = files.open(nets.LENET)
    assert notes == []
    assert verify(network) == []
    assert wiring(network) == [
        ("conv1", "CONV", ["data"]),
        ("pool1", "POOL", ["conv1"]),
        ("conv2", "CONV", ["pool1"]),
        ("pool2", "POOL", ["conv2"]),
        ("ip1.flatten", "RESHAPE", ["pool2"]),
        ("ip1", "FULL", ["ip1.flatten"]),
        ("relu1", "RELU", ["ip1"]),
        ("ip2", "FULL", ["relu1"]),
        ("prob", "SOFTMAX", ["ip2"]),
    ]
    assert network.inputs[0].shape == ("B", 1, 28, 28)
    assert network.outputs == (("prob", 0),)
    assert network.node("conv1").params == {"weight": "conv1.weight", "bias": "conv1.bias"}
    assert network.origin == {"importer": "caffe", "version": 1}
    assert summary(network).parameters == 431_080
    assert shapes(network)["ip1.flatten"] == ("B", 800)


def test_lenet_is_the_lenet_of_others(files: Files) -> None:
    """The form that importers agree on; what it rounds up makes no difference here."""
    nodes = [
        ("conv1", "CONV", {"out": 20, "kernel": [5, 5]}, "x", True),
        ("pool1", "POOL", {"kernel": [2, 2], "stride": [2, 2]}, "conv1", False),
        ("conv2", "CONV", {"out": 50, "kernel": [5, 5]}, "pool1", True),
        ("pool2", "POOL", {"kernel": [2, 2], "stride": [2, 2]}, "conv2", False),
        ("flat", "RESHAPE", {"kind": "flatten"}, "pool2", False),
        ("fc1", "FULL", {"out": 500}, "flat", True),
        ("act", "RELU", {}, "fc1", False),
        ("fc2", "FULL", {"out": 10}, "act", True),
        ("out", "SOFTMAX", {"axis": -1}, "fc2", False),
    ]
    other, _ = read(
        {
            "dlv_network": 1,
            "inputs": [{"name": "x", "shape": ["B", 1, 28, 28]}],
            "nodes": [
                {
                    "name": name,
                    "op": op,
                    **({"variant": "MAX"} if op == "POOL" else {}),
                    "attrs": attrs,
                    "inputs": [before],
                    "params": {s: f"{name}.{s}" for s in ("weight", "bias")} if params else {},
                }
                for name, op, attrs, before, params in nodes
            ],
            "outputs": ["out"],
        }
    )
    assert same_but_for_names(files.net(nets.LENET), other)


def same_but_for_names(mine: Network, other: Network) -> bool:
    found = compare(mine, other)
    told = {change.what for pair in found.changed for change in pair.changes} - {"name"}
    return not (found.added or found.removed or told)


def test_a_zoo_of_torch_has_the_same_lenet(files: Files) -> None:
    torch = pytest.importorskip("torch", reason="torch exports networks: dlv[torch]")
    export = pytest.importorskip("dlv.adapters.aten.live")
    vision = pytest.importorskip("tests.zoo.vision")
    other = export.trace(vision.LeNet(), torch.zeros(2, 1, 28, 28)).network
    assert same_but_for_names(files.net(nets.LENET), other)
    # It would be seen if it were not.
    assert not same_but_for_names(files.net(nets.LENET.replace("20", "21")), other)


def test_training_text_gives_the_same_layers(files: Files) -> None:
    network, notes = files.open(nets.LENET_TRAIN_TEST)
    deploy = files.net(nets.LENET)
    assert wiring(network) == wiring(deploy)[:-1]
    assert network.inputs[0].shape == ("B", None, None, None)
    assert network.outputs == (("ip2", 0),)
    assert any("accuracy (Accuracy), loss (SoftmaxWithLoss)" in note for note in notes)
    assert any(note.endswith(": label") for note in notes)


@pytest.mark.parametrize(
    ("text", "parameters"),
    [(nets.caffenet(), 60_965_224), (nets.vgg16(), 138_357_544), (nets.googlenet(), 6_998_552)],
)
def test_published_sizes(files: Files, text: str, parameters: int) -> None:
    network, notes = files.open(text)
    assert notes == []
    assert verify(network) == []
    assert summary(network).parameters == parameters


def test_googlenet_rounds_up(files: Files) -> None:
    network = files.net(nets.googlenet())
    sizes = shapes(network)
    assert sizes["pool1"] == ("B", 64, 56, 56)
    assert sizes["pool2"] == ("B", 192, 28, 28)
    assert sizes["inception_3a/output"] == ("B", 256, 28, 28)
    assert sizes["inception_5b/output"] == ("B", 1024, 7, 7)
    assert network.node("pool1").attrs["ceil"] is True
    assert network.node("inception_3a/pool").attrs["ceil"] is False


def test_residual_block(files: Files) -> None:
    network = files.net(nets.resnet_block())
    assert verify(network) == []
    assert Counter(node.op for node in network.nodes) == {
        "CONV": 4,
        "NORM": 4,
        "RELU": 3,
        "ADD": 1,
        "POOL": 1,
        "RESHAPE": 1,
        "FULL": 1,
    }
    norm = network.node("bn_a")
    assert norm.variant == "BATCH"
    assert norm.attrs == {"eps": 0.0001, "axis": 1, "momentum": 0.001}
    assert norm.params == {
        "weight": "scale_a.weight",
        "bias": "scale_a.bias",
        "running_mean": "bn_a.running_mean",
        "running_var": "bn_a.running_var",
    }
    assert network.node("sum").inputs == (("bn_a", 0), ("bn_b3", 0))
    assert network.node("relu_b1").inputs == (("bn_b1", 0),)
    assert network.node("mean").attrs["size"] == (1, 1)


def test_a_thousand_layers_are_quick(files: Files) -> None:
    text = nets.deep(340)  # 1,360 layers
    start = time.process_time()
    network = files.net(text)
    assert verify(network) == []
    assert time.process_time() - start < 10
    assert len(network.nodes) == 3 * 340


# Inputs


def test_old_inputs(files: Files) -> None:
    text = 'input: "a" input: "z" input_dim: 3 input_dim: 1 input_dim: 5 input_dim: 5 '
    text += "input_dim: 3 input_dim: 2 input_dim: 5 input_dim: 5\n"
    network = files.net(text + layer("Concat", "a z"))
    assert [(i.name, i.shape) for i in network.inputs] == [
        ("a", ("B", 1, 5, 5)),
        ("z", ("B", 2, 5, 5)),
    ]
    assert shapes(network) == {"l": ("B", 3, 5, 5)}


def test_an_input_of_another_batch_is_no_batch(files: Files) -> None:
    text = 'input: "a" input_shape { dim: 8 dim: 3 } input: "i" input_shape { dim: 1 dim: 3 }\n'
    assert [i.shape for i in files.net(text + layer("ReLU", "i", "b")).inputs] == [("B", 3), (1, 3)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('type: "Data" transform_param { crop_size: 7 }', ("B", None, 7, 7)),
        ('type: "Data" transform_param { crop_size: 7 mean_value: [1, 2, 3] }', ("B", 3, 7, 7)),
        ('type: "Data" transform_param { force_gray: true }', ("B", 1, None, None)),
        ('type: "ImageData" image_data_param { new_height: 4 new_width: 5 }', ("B", 3, 4, 5)),
        ('type: "ImageData" image_data_param { is_color: false }', ("B", 1, None, None)),
        (
            'type: "MemoryData" memory_data_param { batch_size: 2 channels: 3 height: 4 width: 5 }',
            ("B", 3, 4, 5),
        ),
        ('type: "DummyData" dummy_data_param { shape { dim: 2 dim: 9 } }', ("B", 9)),
        (
            'type: "DummyData" dummy_data_param { num: 1 channels: 2 height: 3 width: 4 }',
            ("B", 2, 3, 4),
        ),
        ('type: "WindowData" window_data_param { crop_size: 5 }', ("B", 3, 5, 5)),
        ('type: "Input" input_param { shape { dim: 1 dim: 4 } }', ("B", 4)),
    ],
)
def test_data_layers_are_inputs(files: Files, text: str, wanted: Any) -> None:
    tops = 'top: "a" top: "label"' if "Data" in text and "Dummy" not in text else 'top: "a"'
    network, _ = files.open(f'layer {{ name: "d" {text} {tops} }}\n' + layer("ReLU"))
    assert [(i.name, i.shape) for i in network.inputs] == [("a", wanted)]


def test_data_of_unknown_shape(files: Files) -> None:
    for kind, wanted in (("HDF5Data", ("B", None)), ("Python", ("B", None))):
        text = f'layer {{ name: "d" type: "{kind}" top: "a" top: "label" }}\n'
        full = layer("InnerProduct", rest="inner_product_param { num_output: 3 }")
        network, notes = files.open(text + full)
        assert network.inputs[0].shape == wanted
        assert any("does not say what shape the input 'a' has" in note for note in notes)
        pool = layer("Pooling", rest="pooling_param { kernel_size: 2 }")
        assert files.net(text + pool).inputs[0].shape == ("B", None, None, None)


def test_labels_that_a_layer_needs_are_inputs(files: Files) -> None:
    text = 'layer { name: "d" type: "Data" top: "a" top: "label" }\n'
    text += layer("Split", "label", "l0 l1", name="s") + layer(
        "Embed",
        "l1",
        "b",
        name="e",
        rest="embed_param { num_output: 4 input_dim: 9 bias_term: false }",
    )
    text += layer("SoftmaxWithLoss", "b l0", "loss", name="loss")
    network = files.net(text)
    assert [item.name for item in network.inputs] == ["label"]
    assert wiring(network) == [("e", "EMBED", ["label"])]


# Phases


RULED = 'layer {{ name: "l" type: "ReLU" bottom: "a" top: "b" {} }}\n'


@pytest.mark.parametrize(
    ("rules", "there"),
    [
        ("", True),
        ("include { phase: TEST }", True),
        ("include { phase: TRAIN }", False),
        ("include { phase: TRAIN } include { phase: TEST }", True),
        ("exclude { phase: TEST }", False),
        ("exclude { phase: TRAIN }", True),
        ("include { stage: 'x' }", False),
        ("include { not_stage: 'x' }", True),
        ("include { min_level: 1 }", False),
        ("include { max_level: 0 min_level: -1 }", True),
        ("exclude { stage: 'x' phase: TEST }", True),
        ("phase: TRAIN", True),
    ],
)
def test_rules(files: Files, rules: str, there: bool) -> None:
    text = A + RULED.format(rules) + layer("TanH", "a", "c", name="other")
    assert ("l" in files.net(text)) is there


def test_the_state_of_the_file_counts(files: Files) -> None:
    text = 'state { phase: TRAIN level: 2 stage: "x" }\n' + A
    rules = "include { phase: TRAIN min_level: 2 stage: 'x' }"
    assert "l" in files.net(text + RULED.format(rules))
    other = layer("TanH", "a", "c", name="other")
    assert "l" not in files.net(text + RULED.format("include { not_stage: 'x' }") + other)
    assert "l" not in files.net(text + RULED.format("include { max_level: 1 }") + other)
    error = files.fails(A + RULED.format("include { } exclude { }"))
    assert "to include and to exclude" in error.message


def test_a_network_of_the_training_phase_keeps_its_data(files: Files) -> None:
    text = 'layer { name: "d" type: "Data" top: "a" top: "label" include { phase: TRAIN } }\n'
    network = files.net(text + layer("ReLU"))
    assert network.inputs[0].name == "a"


# Layers


def test_in_place_and_branches(files: Files) -> None:
    """A reader of the blob before a layer that works in place sees what was there before."""
    text = A + layer("TanH", "a", "b", name="first") + layer("Sigmoid", "b", "c", name="branch")
    text += layer("ReLU", "b", "b", name="inplace") + layer("Dropout", "b", "d", name="last")
    network = files.net(text)
    assert wiring(network)[1:] == [
        ("branch", "ACT", ["first"]),
        ("inplace", "RELU", ["first"]),
        ("last", "DROPOUT", ["inplace"]),
    ]
    assert network.outputs == (("branch", 0), ("last", 0))


def test_splits_and_silence(files: Files) -> None:
    text = A + layer("ReLU", "a", "b", name="r") + layer("Split", "b", "b0 b1 b2", name="s")
    text += layer("TanH", "b0", "c", name="t") + layer("Silence", "b1", "", name="q")
    network = files.net(text)
    assert wiring(network) == [("r", "RELU", ["a"]), ("t", "ACT", ["r"])]
    assert network.outputs == (("t", 0),)


def test_what_is_only_measured_against_is_left_out(files: Files) -> None:
    """An autoencoder compares with its own input, made flat for that alone."""
    text = A + layer("Flatten", "a", "flat", name="f")
    text += layer("InnerProduct", "flat", "ip", "inner_product_param { num_output: 480 }", "ip")
    text += layer("Flatten", "a", "target", name="g")
    text += layer("EuclideanLoss", "ip target", "loss", name="loss")
    network = files.net(text)
    assert wiring(network) == [("f", "RESHAPE", ["a"]), ("ip", "FULL", ["f"])]
    assert network.outputs == (("ip", 0),)
    # Two branches that are compared with each other are both outputs.
    text = AB + layer("ReLU", "a", "c", name="one") + layer("ReLU", "b", "d", name="two")
    network = files.net(text + layer("ContrastiveLoss", "c d", "loss", name="loss"))
    assert network.outputs == (("one", 0), ("two", 0))


CONVOLUTIONS = [
    ("kernel_size: 3", (3, 3), (1, 1), (0, 0), (1, 1), (6, 8)),
    ("kernel_size: 3 kernel_size: 2", (3, 2), (1, 1), (0, 0), (1, 1), (6, 9)),
    ("kernel_size: [3, 2] stride: [1, 2] pad: [1, 0]", (3, 2), (1, 2), (1, 0), (1, 1), (8, 5)),
    (
        "kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 1 pad_w: 0",
        (3, 2),
        (2, 1),
        (1, 0),
        (1, 1),
        (4, 9),
    ),
    ("kernel_size: 3 dilation: 2", (3, 3), (1, 1), (0, 0), (2, 2), (4, 6)),
    ("kernel_size: 3 pad: 1 stride: 3", (3, 3), (3, 3), (1, 1), (1, 1), (3, 4)),
]


@pytest.mark.parametrize("row", CONVOLUTIONS)
def test_windows_of_convolutions(files: Files, row: Any) -> None:
    text, kernel, stride, pad, dilation, sides = row
    rest = f"convolution_param {{ num_output: 4 {text} }}"
    node = only(files.net(A + layer("Convolution", rest=rest)))
    assert node.op == "CONV"
    assert (node.attrs["kernel"], node.attrs["stride"]) == (kernel, stride)
    assert node.attrs["pad"] == tuple((side, side) for side in pad)
    assert node.attrs["dilation"] == dilation
    assert shapes(files.net(A + layer("Convolution", rest=rest)))["l"] == ("B", 4, *sides)


def test_groups_bias_and_the_other_way(files: Files) -> None:
    rest = "convolution_param { num_output: 4 kernel_size: 4 group: 2 stride: 2 pad: 1 %s }"
    node = only(files.net(A + layer("Convolution", rest=rest % "bias_term: false")))
    assert (node.attrs["groups"], node.attrs["bias"], dict(node.params)) == (
        *(2, False),
        {"weight": "l.weight"},
    )
    network = files.net(A + layer("Deconvolution", rest=rest % ""))
    assert shapes(network) == {"l": ("B", 4, 16, 20)}
    assert summary(network).parameters == 6 * 2 * 16 + 4


def test_one_convolution_over_several_blobs(files: Files) -> None:
    rest = "convolution_param { num_output: 4 kernel_size: 1 }"
    network = files.net(AB + layer("Convolution", "a b", "c d", rest))
    assert wiring(network) == [("l", "CONV", ["a"]), ("l_1", "CONV", ["b"])]
    assert network.nodes[0].params == network.nodes[1].params
    assert summary(network).parameters == 28


def test_three_axes(files: Files) -> None:
    text = 'input: "a" input_shape { dim: 1 dim: 2 dim: 8 dim: 8 dim: 8 }\n'
    rest = "convolution_param { num_output: 4 kernel_size: 3 }"
    assert shapes(files.net(text + layer("Convolution", rest=rest))) == {"l": ("B", 4, 6, 6, 6)}
    rest = "convolution_param { num_output: 4 kernel_size: 3 axis: 2 }"
    assert only(files.net(text + layer("Convolution", rest=rest))).op == "OP"


POOLINGS = [
    # text, ceil, sides of 8 x 10
    ("kernel_size: 2 stride: 2", False, (4, 5)),
    ("kernel_size: 3 stride: 2", True, (4, 5)),
    ("kernel_size: 3 stride: 2 round_mode: FLOOR", False, (3, 4)),
    ("kernel_size: 3 stride: 1 pad: 1", False, (8, 10)),
    ("kernel_h: 8 kernel_w: 4 stride_h: 1 stride_w: 4", True, (1, 3)),
    # The last window would begin in the padding behind: it is dropped.
    ("kernel_size: 2 stride: 2 pad: 1", False, (5, 6)),
    ("kernel_size: 2 stride: 3 pad: 1", True, (3, 4)),
    ("kernel_size: 2 stride: 7 pad: 1", True, (2, 2)),
]


@pytest.mark.parametrize("row", POOLINGS)
@pytest.mark.parametrize(("method", "variant"), [("MAX", "MAX"), ("AVE", "AVG")])
def test_poolings(files: Files, row: Any, method: str, variant: str) -> None:
    text, ceil, sides = row
    network = files.net(A + layer("Pooling", rest=f"pooling_param {{ pool: {method} {text} }}"))
    node = only(network)
    assert (node.variant, node.attrs["ceil"]) == (variant, ceil)
    assert shapes(network)["l"] == ("B", 6, *sides)
    if variant == "AVG":
        assert node.attrs["count_pad"] is True


def test_poolings_that_only_caffe_has(files: Files) -> None:
    """Without padding it keeps a last window that begins behind the input, and is empty."""
    text = 'input: "a" input_shape { dim: 1 dim: 1 dim: 3 dim: 3 }\n'
    rest = "pooling_param { kernel_size: 1 stride: 3 }"
    node = only(files.net(text + layer("Pooling", rest=rest)))
    assert (node.op, node.out_shape) == ("OP", ("B", 1, 2, 2))
    rest = "pooling_param { pool: STOCHASTIC kernel_size: 2 stride: 2 }"
    node = only(files.net(A + layer("Pooling", rest=rest)))
    assert (node.op, node.out_shape) == ("OP", ("B", 6, 4, 5))
    assert dumps(node.source)


def test_global_pooling_and_positions(files: Files) -> None:
    network = files.net(A + layer("Pooling", rest="pooling_param { global_pooling: true }"))
    assert only(network).attrs["size"] == (1, 1)
    text = A + layer("Pooling", "a", "b mask", "pooling_param { kernel_size: 2 stride: 2 }")
    network = files.net(text + layer("ReLU", "mask", "c", name="r"))
    assert wiring(network)[1] == ("r", "RELU", ["l:1"])


def test_unknown_lengths_round_up(files: Files) -> None:
    text = 'layer { name: "d" type: "Data" top: "a" }\n'
    node = only(
        files.net(text + layer("Pooling", rest="pooling_param { kernel_size: 2 stride: 2 }"))
    )
    assert node.attrs["ceil"] is True


def test_inner_products(files: Files) -> None:
    rest = "inner_product_param { num_output: 7 %s }"
    network = files.net(A + layer("InnerProduct", rest=rest % ""))
    assert wiring(network) == [("l.flatten", "RESHAPE", ["a"]), ("l", "FULL", ["l.flatten"])]
    assert shapes(network) == {"l.flatten": ("B", 480), "l": ("B", 7)}
    network = files.net(A + layer("InnerProduct", rest=rest % "axis: 2 transpose: true"))
    assert shapes(network) == {"l.flatten": ("B", 6, 80), "l": ("B", 6, 7)}
    assert network.nodes[1].attrs["layout"] == "in_out"
    network = files.net(A + layer("InnerProduct", rest=rest % "axis: -1 bias_term: false"))
    assert shapes(network) == {"l": ("B", 6, 8, 7)}
    assert "bias" not in only(network).params
    assert (
        "axis 4 does not exist"
        in files.fails(A + layer("InnerProduct", rest=rest % "axis: 4")).message
    )


def test_normalisations(files: Files) -> None:
    node = only(files.net(A + layer("LRN", rest="lrn_param { local_size: 3 alpha: 0.5 k: 2 }")))
    assert (node.variant, node.attrs) == (
        "LRN",
        {"axis": 1, "size": 3, "alpha": 0.5, "beta": 0.75, "k": 2.0},
    )
    within = "lrn_param { norm_region: WITHIN_CHANNEL }"
    node = only(files.net(A + layer("LRN", rest=within)))
    assert (node.op, node.out_shape) == ("OP", ("B", 6, 8, 10))
    assert (
        "local_size is 4"
        in files.fails(A + layer("LRN", rest="lrn_param { local_size: 4 }")).message
    )


def test_batch_norm_alone_and_apart_from_a_scale(files: Files) -> None:
    norm = layer("BatchNorm", "a", "b", "batch_norm_param { moving_average_fraction: 0.95 }", "n")
    node = only(files.net(A + norm))
    assert sorted(node.params) == ["running_mean", "running_var"]
    assert (node.attrs["eps"], node.attrs["momentum"]) == (1e-5, 0.05)
    # What others read too is not joined.
    text = A + norm + layer("Scale", "b", "c", name="s") + layer("ReLU", "b", "d", name="r")
    network = files.net(text)
    assert wiring(network)[1] == ("s", "OP", ["n"])
    assert network.node("s").params == {"weight": "s.weight"}
    assert network.node("s").out_shape == ("B", 6, 8, 10)
    # Nor a Scale over other axes.
    text = A + norm + layer("Scale", "b", "c", "scale_param { axis: 2 }", "s")
    assert files.net(text).node("s").op == "OP"
    text = A + norm + layer("Scale", "b", "c", "scale_param { bias_term: true }", "s")
    network = files.net(text + layer("ReLU", "c", "c", name="r"))
    assert wiring(network) == [("n", "NORM", ["a"]), ("r", "RELU", ["n"])]
    assert network.node("n").params["bias"] == "s.bias"


def test_scales_and_biases(files: Files) -> None:
    rows = 'input: "a" input_shape { dim: 2 dim: 6 }\n'
    network = files.net(rows + layer("Scale", rest="scale_param { bias_term: true }"))
    assert wiring(network) == [("l", "MUL", ["a"]), ("l.bias", "ADD", ["l"])]
    assert summary(network).parameters == 12
    network = files.net(rows + layer("Bias"))
    assert dict(only(network).params) == {"value": "l.bias"}
    gate = 'input: "a" input_shape { dim: 2 dim: 6 dim: 4 dim: 4 }\n'
    gate += 'input: "s" input_shape { dim: 2 dim: 6 }\n'
    network = files.net(gate + layer("Scale", "a s", "b", "scale_param { axis: 0 }"))
    assert shapes(network)["l"] == ("B", 6, 4, 4)
    assert [node.op for node in network.nodes] == ["RESHAPE", "RESHAPE", "MUL"]
    assert verify(network) == []


@pytest.mark.parametrize(
    ("kind", "rest", "op", "variant", "attrs"),
    [
        ("ReLU", "relu_param { negative_slope: 0.1 }", "RELU", None, {"slope": 0.1}),
        ("ReLU6", "", "ACT", "RELU6", {}),
        ("Sigmoid", "", "ACT", "SIGMOID", {}),
        ("TanH", "", "ACT", "TANH", {}),
        ("Swish", "", "ACT", "SILU", {}),
        ("Softmax", "softmax_param { axis: 2 }", "SOFTMAX", None, {"axis": 2, "log": False}),
        ("Dropout", "dropout_param { dropout_ratio: 0.2 }", "DROPOUT", None, {"p": 0.2}),
        ("Power", "power_param { scale: 3 }", "MUL", None, {"const": 3.0, "shape": None}),
        ("Power", "power_param { shift: 3 }", "ADD", None, {"const": 3.0, "shape": None}),
        (
            "Flatten",
            "flatten_param { axis: 2 }",
            "RESHAPE",
            None,
            {"kind": "flatten", "start": 2, "end": -1},
        ),
        (
            "Permute",
            "permute_param { order: [0, 2] }",
            "RESHAPE",
            None,
            {"kind": "permute", "axes": (0, 2, 1, 3)},
        ),
    ],
)
def test_simple_layers(
    files: Files, kind: str, rest: str, op: str, variant: str | None, attrs: Any
) -> None:
    node = only(files.net(A + layer(kind, rest=rest)))
    assert (node.op, node.variant, dict(node.attrs)) == (op, variant, attrs)


@pytest.mark.parametrize(
    ("kind", "rest", "shape"),
    [
        ("PReLU", "prelu_param { channel_shared: true filler { type: 'x' } }", ("B", 6, 8, 10)),
        ("ELU", "elu_param { alpha: 0.5 }", ("B", 6, 8, 10)),
        ("Power", "power_param { power: 2 }", ("B", 6, 8, 10)),
        ("Exp", "", ("B", 6, 8, 10)),
        ("Reduction", "reduction_param { operation: MEAN axis: 2 }", ("B", 6)),
        ("Tile", "tile_param { axis: 1 tiles: 3 }", ("B", 18, 8, 10)),
        ("SPP", "spp_param { pyramid_height: 2 }", None),
        ("ROIPooling", "roi_pooling_param { pooled_w: 7 sub { x: inf } sub { x: 'ä' } }", None),
    ],
)
def test_layers_that_are_kept_as_they_are(files: Files, kind: str, rest: str, shape: Any) -> None:
    network, notes = files.open(A + layer(kind, rest=rest))
    node = only(network)
    assert (node.op, node.out_shape) == ("OP", shape)
    assert node.source is not None
    assert (node.source["dialect"], node.source["op"]) == ("caffe", kind)
    assert node.source["args"][0] == {"n": 0}
    kwargs = node.source["kwargs"]
    if kind == "PReLU":
        assert kwargs == {"prelu_param.channel_shared": {"c": "true"}}
        assert node.params == {"weight": "l.weight"}
        assert node.source["args"][1] == {"p": "weight"}
    if kind == "ROIPooling":
        assert kwargs == {
            "roi_pooling_param.pooled_w": {"c": 7},
            "roi_pooling_param.sub.0.x": {"c": "inf"},
            "roi_pooling_param.sub.1.x": {"c": "ä"},
        }
        assert notes == ["layers of the type 'ROIPooling' are unknown: they are stored as they are"]
    else:
        assert notes == []


def test_several_outputs_of_an_unknown_layer(files: Files) -> None:
    text = A + layer("Python", "a", "b c", name="p") + layer("ReLU", "c", "d", name="r")
    network = files.net(text)
    assert wiring(network) == [
        ("p", "OP", ["a"]),
        ("p.top0", "RESHAPE", ["p"]),
        ("p.top1", "RESHAPE", ["p"]),
        ("r", "RELU", ["p.top1"]),
    ]
    assert network.outputs == (("p.top0", 0), ("r", 0))
    assert network.data_of(("p.top1", 0)) == ("p", 1)


def test_sums_products_and_crops(files: Files) -> None:
    network = files.net(AB + layer("Eltwise", "a b", "c", "eltwise_param { coeff: [1, -1] }"))
    assert wiring(network) == [("l.coeff1", "MUL", ["b"]), ("l", "ADD", ["a", "l.coeff1"])]
    network = files.net(AB + layer("Eltwise", "a b", "c", "eltwise_param { operation: PROD }"))
    assert only(network).op == "MUL"
    network = files.net(AB + layer("Eltwise", "a b", "c", "eltwise_param { operation: MAX }"))
    assert only(network).out_shape == ("B", 6, 8, 10)
    network = files.net(AB + layer("Concat", "a b", "c", "concat_param { concat_dim: 2 }"))
    assert shapes(network) == {"l": ("B", 6, 16, 10)}
    text = A + 'input: "s" input_shape { dim: 2 dim: 1 dim: 3 dim: 4 }\n'
    network = files.net(text + layer("Crop", "a s", "c", "crop_param { offset: 2 }"))
    assert only(network).out_shape == ("B", 6, 3, 4)
    source = only(network).source
    assert source is not None
    assert source["args"] == [{"n": 0}, {"n": 1}]
    gate = A + 'input: "s" input_shape { dim: 2 dim: 6 dim: 1 dim: 1 }\n'
    network = files.net(gate + layer("Axpy", "s a a", "c"))
    assert wiring(network) == [("l.scale", "MUL", ["s", "a"]), ("l", "ADD", ["l.scale", "a"])]


def test_power_in_two_steps(files: Files) -> None:
    network = files.net(A + layer("Power", rest="power_param { scale: 2 shift: 1 }"))
    assert wiring(network) == [("l.scale", "MUL", ["a"]), ("l", "ADD", ["l.scale"])]


def test_slices(files: Files) -> None:
    text = A + layer("Slice", "a", "b c d", "slice_param { slice_point: 1 slice_point: 3 }", "s")
    network = files.net(text + layer("ReLU", "c", "e", name="r"))
    assert network.node("s").attrs["sizes"] == (1, 2, 3)
    assert wiring(network)[1] == ("r", "RELU", ["s:1"])
    assert network.outputs == (("s", 0), ("s", 2), ("r", 0))
    equal = files.net(A + layer("Slice", "a", "b c", "slice_param { axis: 2 }"))
    assert only(equal).attrs["sizes"] == (4, 4)
    unknown = 'layer { name: "d" type: "Data" top: "a" }\n'
    network = files.net(unknown + layer("Slice", "a", "b c", "slice_param { slice_point: 1 }"))
    assert [dict(node.attrs)["end"] for node in network.nodes] == [1, None]
    network = files.net(unknown + layer("Slice", "a", "b c"))
    assert network.nodes[0].op == "OP"


@pytest.mark.parametrize(
    ("text", "size", "shape"),
    [
        ("shape { dim: 0 dim: -1 }", ("B", -1), ("B", 480)),
        ("shape { dim: 2 dim: 3 dim: 160 }", ("B", 3, 160), ("B", 3, 160)),
        ("shape { dim: 3 dim: 2 } axis: 1 num_axes: 1", ("B", 3, 2, 8, 10), ("B", 3, 2, 8, 10)),
        ("shape { dim: 80 } axis: -3", ("B", 6, 80), ("B", 6, 80)),
        ("shape { dim: 0 dim: -1 } axis: 1", ("B", 6, -1), ("B", 6, 80)),
        ("shape { dim: 1 } num_axes: 0", (1, "B", 6, 8, 10), (1, "B", 6, 8, 10)),
    ],
)
def test_reshapes(files: Files, text: str, size: Any, shape: Any) -> None:
    network = files.net(A + layer("Reshape", rest=f"reshape_param {{ {text} }}"))
    assert only(network).attrs["size"] == size
    assert shapes(network) == {"l": shape}
    assert verify(network) == []


def test_embeddings(files: Files) -> None:
    text = 'input: "a" input_shape { dim: 2 dim: 5 }\n'
    rest = "embed_param { num_output: 4 input_dim: 9 }"
    network = files.net(text + layer("Embed", rest=rest))
    assert wiring(network) == [("l", "EMBED", ["a"]), ("l.add", "ADD", ["l"])]
    assert summary(network).parameters == 40
    assert shapes(network)["l.add"] == ("B", 5, 4)


def test_shared_weights(files: Files) -> None:
    rest = 'param { name: "w" } param { name: "b" } inner_product_param { num_output: 3 }'
    text = 'input: "a" input_shape { dim: 2 dim: 6 } input: "z" input_shape { dim: 2 dim: 6 }\n'
    text += layer("InnerProduct", "a", "b", rest, "one")
    network = files.net(text + layer("InnerProduct", "z", "c", rest, "two"))
    assert network.aliases == {"two.weight": "one.weight", "two.bias": "one.bias"}
    assert summary(network).parameters == 21
    assert verify(network) == []
    old = re.sub(r"param \{ name: (\"\w\") \}", r"param: \1", text)
    old = old.replace("layer {", "layers {").replace('"InnerProduct"', "INNER_PRODUCT")
    assert files.net(old).nodes == files.net(text).nodes


def test_names_that_are_taken(files: Files) -> None:
    text = A + layer("ReLU", "a", "b", name="a") + layer("ReLU", "b", "c", name="a")
    text += 'layer { type: "ReLU" bottom: "c" top: "d" }\n'
    network = files.net(text + layer("TanH", "d", "e", name="a_1"))
    assert [node.name for node in network.nodes] == ["a_1", "a_1_1", "relu", "a_1_1_1"]
    assert verify(network) == []


def test_the_plain_form_comes_back(files: Files) -> None:
    network = files.net(nets.googlenet())
    again, warnings = read(write(network))
    assert (again.id, warnings) == (network.id, [])


# What is wrong


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (A + layer("ReLU", "x"), "reads the blob 'x'"),
        (A + layer("ReLU", "b", "c") + layer("ReLU", "c", "b", name="m"), "reads the blob 'b'"),
        (A + layer("ReLU") + layer("TanH", "a", "b", name="m"), "writes the blob 'b'"),
        (A + layer("Split", "a", "b b"), "writes the blob 'b'"),
        (A + 'layer { name: "l" bottom: "a" top: "b" }', "a layer has no type"),
        (A + layer("ReLU", "a a"), "2 bottoms"),
        (A + layer("Convolution"), "'out' is 0"),
        (A + layer("Convolution", rest="convolution_param { num_output: 4 }"), "'kernel'"),
        (
            A + layer("Convolution", rest="convolution_param { num_output: 4 kernel_size: -3 }"),
            "kernel_size is -3",
        ),
        (
            A
            + layer(
                "Convolution", rest="convolution_param { num_output: 5 kernel_size: 1 group: 2 }"
            ),
            "groups 2 does not divide",
        ),
        (
            A
            + layer("Convolution", rest="convolution_param { num_output: 4 kernel_size: [1,1,1] }"),
            "kernel is there 3 times",
        ),
        (
            A
            + layer(
                "Convolution",
                rest="convolution_param { num_output: 4 kernel_h: 1 kernel_w: 1 kernel_size: 1 }",
            ),
            "for two axes",
        ),
        (A + layer("Pooling", rest="pooling_param { kernel_size: 2 pad: 2 }"), "pad (2, 2)"),
        (A + layer("Pooling", rest="pooling_param { pool: MIN }"), "pool is 'MIN'"),
        (A + layer("Pooling", rest="pooling_param { kernel_size: 2 stride: 0 }"), "'stride'"),
        (A + layer("Dropout", rest="dropout_param { dropout_ratio: 2 }"), "'p' is 2.0"),
        (A + layer("Eltwise"), "one bottom"),
        (AB + layer("Eltwise", "a b", "c", "eltwise_param { coeff: 1 }"), "1 of coeff"),
        (A + layer("Slice", "a", "b c", "slice_param { slice_point: 6 }"), "slice_point"),
        (A + layer("Slice", "a", "b c d", "slice_param { slice_point: 6 }"), "slice_point"),
        (A + layer("Slice", "a", "b c d e"), "cannot be cut"),
        (A + layer("Reshape", rest="reshape_param { shape { dim: -1 dim: -1 } }"), "-1"),
        (A + layer("Reshape", rest="reshape_param { shape { dim: -2 } }"), "dim is -2"),
        (A + layer("Reshape", rest="reshape_param { axis: 7 }"), "do not exist"),
        (A + layer("Permute", rest="permute_param { order: [0, 0] }"), "order"),
        ('input: "a" input_dim: 1\n' + layer("ReLU"), "input_dim"),
        ('input: "a" input: "a"\n' + layer("ReLU"), "twice"),
        ('input: "a" input_shape { } input_shape { }\n' + layer("ReLU"), "shapes of inputs"),
        ('input: "a" input_shape { dim: -1 }\n' + layer("ReLU"), "dim is -1"),
        (A + layer("ReLU") + 'layers { type: RELU bottom: "a" top: "c" }', "mixes"),
        (A + layer("ReLU", rest="relu_param { negative_slope: 'x' }"), "negative_slope"),
        (A + layer("ReLU", rest="relu_param { } relu_param { }"), "relu_param is there twice"),
    ],
)
def test_faults_are_told_with_their_place(files: Files, text: str, told: str) -> None:
    error = files.fails(text)
    assert isinstance(error, Damaged)
    assert told in f"{error.message} {error.why}"
    assert "net.prototxt" in error.message or "twice" in told


def test_the_place_is_the_line(files: Files) -> None:
    error = files.fails(A + "\n\n" + layer("ReLU", "aa", name="odd"))
    assert error.message == "net.prototxt, line 4: the layer 'odd' reads the blob 'aa'"
    assert error.hint == "did you mean 'a'?"


def test_too_large(files: Files) -> None:
    assert isinstance(
        files.fails('input: "a" input_shape { dim: 99999 dim: 99999 }\n' + layer("ReLU")),
        UnsafeInput,
    )
    rest = "convolution_param { num_output: 99999999 kernel_size: 1 }"
    assert isinstance(files.fails(A + layer("Convolution", rest=rest)), UnsafeInput)


def test_other_files(files: Files) -> None:
    assert isinstance(files.fails('name: "nothing"'), UsageError)
    assert isinstance(files.fails(A + RULED.format("include { phase: TRAIN }")), UsageError)
    old = 'layers { layer { name: "c" type: "conv" } bottom: "a" top: "b" }'
    assert "2013" in files.fails(A + old).message
    with pytest.raises(UsageError, match="does not write Caffe"):
        caffe.save(io.BytesIO(), [], {})
    assert registry.adapter("prototxt") is registry.adapter("caffemodel")


def test_weights_in_a_text_are_told(files: Files) -> None:
    _, notes = files.open(A + layer("ReLU", rest="blobs { data: 1 }"))
    assert notes == ["weights that are written as text are not read"]
