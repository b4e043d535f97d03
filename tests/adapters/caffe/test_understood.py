"""Caffe layers with fields that dlv does not know, or that nobody reads: kept raw, by name."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from dlv.adapters.caffe import files as caffe

HEAD = 'input: "data" input_shape { dim: 1 dim: 4 dim: 6 dim: 6 }\n'
# A layer that dlv reads, with its own parameters.
LAYERS = {
    "Convolution": "convolution_param { num_output: 2 kernel_size: 3 %s }",
    "Deconvolution": "convolution_param { num_output: 2 kernel_size: 3 %s }",
    "InnerProduct": "inner_product_param { num_output: 2 %s }",
    "Pooling": "pooling_param { kernel_size: 2 stride: 2 %s }",
    "BatchNorm": "batch_norm_param { eps: 0.01 %s }",
    "ReLU": "relu_param { negative_slope: 0.1 %s }",
    "Softmax": "softmax_param { axis: 1 %s }",
    "Dropout": "dropout_param { dropout_ratio: 0.3 %s }",
    "LRN": "lrn_param { local_size: 3 %s }",
    "Power": "power_param { scale: 2 %s }",
    "Concat": "concat_param { axis: 1 %s }",
    "Eltwise": "eltwise_param { operation: SUM %s }",
    "Flatten": "flatten_param { axis: 1 %s }",
}


def opened(tmp_path: Path, text: str) -> tuple[list[str], list[str]]:
    """The types of raw nodes, and the notes."""
    path = tmp_path / "net.prototxt"
    path.write_text(HEAD + text)
    found = caffe.open(str(path))
    found.close()
    assert found.network is not None
    odd = [node.source["op"] for node in found.network.nodes if node.source]
    return odd, found.notes


def layer(kind: str, param: str, more: str = "") -> str:
    bottoms = 'bottom: "data" ' * (2 if kind in ("Concat", "Eltwise") else 1)
    return f'layer {{ name: "it" type: "{kind}" {bottoms} top: "it" {param} {more} }}\n'


@pytest.mark.parametrize("kind", LAYERS)
def test_a_field_that_is_not_known_keeps_the_layer_raw(tmp_path: Path, kind: str) -> None:
    plain = LAYERS[kind]
    assert opened(tmp_path, layer(kind, plain % ""))[0] == []
    for harmless in ("engine: CAFFE", 'weight_filler { type: "xavier" }'):
        assert opened(tmp_path, layer(kind, plain % harmless))[0] == []
    for odd in ("twist: 1", "twist: false", 'twist: "x"', "twist { turn: 2 }"):
        raw, notes = opened(tmp_path, layer(kind, plain % odd))
        assert raw == [kind]
        assert any("'it'" in note and "twist" in note for note in notes)
    raw, notes = opened(tmp_path, layer(kind, plain % "", "twist: 2"))
    assert raw == [kind]
    raw, notes = opened(tmp_path, layer(kind, plain % "", "twist_param { turn: 2 }"))
    assert raw == [kind]
    for harmless in ("loss_weight: 0", "propagate_down: false", "transform_param { scale: 2 }"):
        assert opened(tmp_path, layer(kind, plain % "", harmless))[0] == []


def test_statistics_of_the_batch_are_not_those_that_are_stored(tmp_path: Path) -> None:
    scale = 'layer { name: "s" type: "Scale" bottom: "it" top: "s" %s }\n'
    for norm, rest, raw in (
        ("use_global_stats: true", "", []),
        ("use_global_stats: false", "", ["BatchNorm", "Scale"]),
        ("twist: 1", "", ["BatchNorm", "Scale"]),
        ("", "scale_param { twist: 1 }", ["Scale"]),
        ("", "scale_param { bias_term: true }", []),
    ):
        text = layer("BatchNorm", f"batch_norm_param {{ {norm} }}") + scale % rest
        found, _ = opened(tmp_path, text)
        assert [kind for kind in found if kind in ("BatchNorm", "Scale")] == raw, norm or rest


def test_fields_of_the_binary_form(tmp_path: Path) -> None:
    """There they are numbers: fillers and engines are passed over, others are not."""
    for number, raw in ((7, []), (15, []), (99, ["Convolution"])):
        path = tmp_path / "net.caffemodel"
        path.write_bytes(_model(number))
        found = caffe.open(str(path))
        found.close()
        assert found.network is not None
        kept = [node.source["op"] for node in found.network.nodes if node.source]
        assert kept == raw, number


def _field(number: int, value: Any) -> bytes:
    if isinstance(value, int):
        return _number(number << 3) + _number(value)
    data = value.encode() if isinstance(value, str) else value
    return _number(number << 3 | 2) + _number(len(data)) + data


def _number(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _model(number: int) -> bytes:
    """One convolution of 1x1, with a field of that number in its parameters."""
    blob = _field(7, _field(1, _number(2) + _number(4) + _number(1) + _number(1)))
    blob += _field(5, struct.pack("<8f", *range(8)))
    extra = _field(number, b"") if number == 7 else _field(number, 1)
    param = _field(1, 2) + _field(2, 0) + _field(4, 1) + extra
    head = _field(1, "it") + _field(2, "Convolution") + _field(3, "data") + _field(4, "it")
    shape = _field(1, _number(1) + _number(4) + _number(6) + _number(6))
    given = _field(1, "data") + _field(2, "Input") + _field(4, "data")
    given += _field(143, _field(1, shape))
    made = head + _field(7, blob) + _field(106, param)
    return _field(1, "net") + _field(100, given) + _field(100, made)
