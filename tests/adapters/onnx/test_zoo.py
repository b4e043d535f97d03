"""Models that torch exported, read again: the same numbers as onnxruntime, few raw operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from tests.onnx_reading import in_onnxruntime, in_torch, opened, restored, sound, words
from tests.zoo.models import build

torch.set_num_threads(1)

# Model -> layers that its graph must hold, and the operators that stay ONNX's own.
MODELS = {
    "lenet": ("CONV POOL.MAX FULL RELU SOFTMAX", ""),
    "resnet16": ("CONV RELU ADD POOL.AVG FULL", ""),
    "unet": ("CONV DECONV CONCAT aten.upsample_nearest2d.vec", ""),
    "densenet": ("CONV NORM.BATCH CONCAT", ""),
    "mobilenet": ("CONV ACT.RELU6 ADD", ""),
    "generator": ("DECONV NORM.BATCH ACT.TANH", ""),
    "bert": ("EMBED NORM.LAYER FULL ACT.GELU SOFTMAX", ""),
    "gpt": ("EMBED NORM.LAYER FULL ACT.GELU split", ""),
    "encoder": ("EMBED NORM.LAYER FULL", ""),
    "masked": ("FULL SOFTMAX fill expand", ""),
    "functional": ("FULL NORM.BATCH", ""),
    "gru": ("FULL", "onnx:GRU"),
}


def exported(name: str, folder: Path) -> tuple[onnx.ModelProto, tuple[Any, ...]]:
    """By the exporter that works without further packages, as files of the last years are."""
    module, inputs = build(name)
    names = [f"i{place}" for place in range(len(inputs))]
    path = folder / "exported.onnx"
    torch.onnx.export(
        module.eval(),
        inputs,
        path,
        dynamo=False,
        input_names=names,
        dynamic_axes={each: {0: "B"} for each in names},
        opset_version=17,
    )
    return onnx.load(path), inputs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_exported_by_torch(tmp_path: Path, name: str) -> None:
    model, inputs = exported(name, tmp_path)
    layers, raw = MODELS[name]
    with opened(model, tmp_path) as checkpoint:
        network = sound(checkpoint)
        found = words(network)
        assert set(layers.split()) <= set(found)
        assert {word for word in found if word.startswith("onnx:")} == set(raw.split())
        assert checkpoint.exact
        assert restored(checkpoint) == model.SerializeToString()
        stored = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer}
        for tensor in checkpoint.tensors:
            if tensor.name in stored:
                assert bytes(tensor.read()) == stored[tensor.name].tobytes()
        if raw:
            return
        for copies in (1, 3):
            given = {
                item.name: torch.cat([one] * copies).numpy()
                for item, one in zip(model.graph.input, inputs, strict=False)
            }
            wanted, got = in_onnxruntime(model, given), in_torch(checkpoint, given)
            for one, other in zip(wanted, got, strict=True):
                assert np.abs(one - other).max() <= 1e-5
