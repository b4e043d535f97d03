"""What Caffe's networks compute: their modules against the formulas of Caffe's own layers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

from dlv.adapters.caffe import files as caffe
from tests.fixtures.caffe import nets
from tests.fixtures.caffe.proto import NetParameter

torch: Any = pytest.importorskip("torch", reason="torch runs the networks: dlv[torch]")
torch_module: Any = pytest.importorskip("dlv.network.torch.module")

F = torch.nn.functional


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def saved(text: str, blobs: dict[str, list[Any]]) -> bytes:
    net = text_format.Parse(text, NetParameter())
    for layer in net.layer:
        for array in blobs.get(layer.name, []):
            blob = layer.blobs.add()
            blob.shape.dim.extend(array.shape)
            blob.data.extend(array.ravel().tolist())
    data: bytes = net.SerializeToString()
    return data


def module(folder: Path, text: str, blobs: dict[str, list[Any]]) -> Any:
    """The network of a .caffemodel, runnable, in the mode that computes outputs."""
    path = folder / "net.caffemodel"
    path.write_bytes(saved(text, blobs))
    opened = caffe.open(str(path))
    try:
        tensors = {
            tensor.name: torch.from_numpy(
                np.frombuffer(bytes(tensor.read()), tensor.dtype).reshape(tensor.shape).copy()
            )
            for tensor in opened.tensors
        }
        assert opened.network is not None
        return torch_module.build(opened.network, tensors, {}).eval()
    finally:
        opened.close()


def t(*shape: int, scale: float = 0.3) -> Any:
    return torch.randn(shape) * scale


def close(found: Any, wanted: Any) -> None:
    assert found.shape == wanted.shape
    assert (found - wanted).detach().abs().max().item() <= 1e-5


def arrays(blobs: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: [tensor.numpy() for tensor in tensors] for name, tensors in blobs.items()}


def test_lenet(tmp_path: Path) -> None:
    w = {
        "conv1": [t(20, 1, 5, 5), t(20)],
        "conv2": [t(50, 20, 5, 5, scale=0.05), t(50)],
        "ip1": [t(500, 800, scale=0.03), t(500)],
        "ip2": [t(10, 500, scale=0.05), t(10)],
    }
    run = module(tmp_path, nets.LENET, arrays(w))
    for batch in (1, 3):
        x = t(batch, 1, 28, 28)
        y = F.max_pool2d(F.conv2d(x, *w["conv1"]), 2)
        y = F.max_pool2d(F.conv2d(y, *w["conv2"]), 2).reshape(batch, -1)
        y = F.relu(y @ w["ip1"][0].T + w["ip1"][1])
        y = y @ w["ip2"][0].T + w["ip2"][1]
        close(run(x), torch.softmax(y, 1))


def caffe_pool(x: Any, kernel: int, stride: int, pad: int, average: bool) -> Any:
    """The loops of Caffe's pooling layer, one window at a time."""
    height, width = x.shape[2:]

    def count(length: int) -> int:
        number = -(-(length + 2 * pad - kernel) // stride) + 1
        return number - (pad > 0 and (number - 1) * stride >= length + pad)

    result = torch.empty(*x.shape[:2], count(height), count(width))
    for i in range(result.shape[2]):
        for j in range(result.shape[3]):
            top, left = i * stride - pad, j * stride - pad
            bottom = min(top + kernel, height + (pad if average else 0))
            right = min(left + kernel, width + (pad if average else 0))
            size = (bottom - top) * (right - left)
            part = x[:, :, max(top, 0) : min(bottom, height), max(left, 0) : min(right, width)]
            flat = part.flatten(2)
            result[:, :, i, j] = flat.sum(2) / size if average else flat.max(2).values
    return result


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize(
    ("kernel", "stride", "pad"),
    [(2, 2, 0), (3, 2, 0), (3, 2, 1), (3, 1, 1), (2, 2, 1), (2, 3, 1), (3, 3, 2), (4, 3, 1)],
)
@pytest.mark.parametrize("side", [7, 8])
def test_pooling(
    tmp_path: Path, average: bool, kernel: int, stride: int, pad: int, side: int
) -> None:
    param = f"pool: {'AVE' if average else 'MAX'} kernel_size: {kernel} stride: {stride} pad: {pad}"
    text = nets._input(1, 3, side, side)
    text += nets._layer("p", "Pooling", "data", "p", f"pooling_param {{ {param} }}")
    x = t(2, 3, side, side)
    close(module(tmp_path, text, {})(x), caffe_pool(x, kernel, stride, pad, average))


def test_lrn(tmp_path: Path) -> None:
    """Caffe: (k + alpha / n * sum of squares over n channels) ** -beta."""
    text = nets._input(1, 9, 2, 2)
    param = "lrn_param { local_size: 5 alpha: 0.5 beta: 0.6 k: 1.5 }"
    text += nets._layer("n", "LRN", "data", "n", param)
    x = t(2, 9, 2, 2, scale=2)
    wanted = torch.empty_like(x)
    for channel in range(9):
        near = x[:, max(channel - 2, 0) : channel + 3]
        wanted[:, channel] = x[:, channel] * (1.5 + 0.5 / 5 * (near**2).sum(1)) ** -0.6
    close(module(tmp_path, text, {})(x), wanted)


@pytest.mark.parametrize("factor", [1.0, 999.98])
def test_residual_block(tmp_path: Path, factor: float) -> None:
    blobs: dict[str, list[Any]] = {}
    for part, depth in {"a": 16, "b1": 4, "b2": 4, "b3": 16}.items():
        sums = [t(depth) * factor, (t(depth).abs() + 0.5) * factor]
        blobs[f"bn_{part}"] = [*sums, torch.tensor([factor])]
        blobs[f"scale_{part}"] = [t(depth), t(depth)]
    sizes = {"a": (16, 8, 1, 1), "b1": (4, 8, 1, 1), "b2": (4, 4, 3, 3), "b3": (16, 4, 1, 1)}
    for part, size in sizes.items():
        blobs[f"res_{part}"] = [t(*size)]
    blobs["fc"] = [t(5, 16), t(5)]

    def norm(x: Any, part: str) -> Any:
        mean, var, by = blobs[f"bn_{part}"]
        weight, bias = (item[:, None, None] for item in blobs[f"scale_{part}"])
        x = (x - (mean / by)[:, None, None]) / torch.sqrt((var / by)[:, None, None] + 1e-4)
        return x * weight + bias

    x = t(3, 8, 9, 9, scale=1)
    a = norm(F.conv2d(x, *blobs["res_a"], stride=2), "a")
    b = F.relu(norm(F.conv2d(x, *blobs["res_b1"], stride=2), "b1"))
    b = F.relu(norm(F.conv2d(b, *blobs["res_b2"], padding=1), "b2"))
    b = norm(F.conv2d(b, *blobs["res_b3"]), "b3")
    wanted = F.relu(a + b).mean((2, 3)) @ blobs["fc"][0].T + blobs["fc"][1]
    close(module(tmp_path, nets.resnet_block(), arrays(blobs))(x), wanted)


MIXED = nets._input(2, 6, 8, 8) + "".join(
    nets._layer(*row)
    for row in (
        ("up", "Deconvolution", "data", "up",
         "convolution_param { num_output: 4 kernel_size: 4 stride: 2 pad: 1 group: 2 }"),
        ("wide", "Convolution", "up", "wide",
         "convolution_param { num_output: 4 kernel_size: 3 dilation: 2 pad: 2 bias_term: false }"),
        ("leaky", "ReLU", "wide", "wide", "relu_param { negative_slope: 0.2 }"),
        ("line", "Power", "wide", "line", "power_param { scale: 2 shift: -0.5 }"),
        ("diff", "Eltwise", "up line", "diff", "eltwise_param { coeff: 1 coeff: -0.5 }"),
        ("turn", "Reshape", "diff", "turn", "reshape_param { shape { dim: 0 dim: 2 dim: -1 } }"),
        ("rows", "InnerProduct", "turn", "rows",
         "inner_product_param { num_output: 3 axis: 2 transpose: true }"),
        ("tanh", "TanH", "rows", "rows", ""),
    )
)  # fmt: skip
MIXED += """
layer { name: "cut" type: "Slice" bottom: "rows" top: "c0" top: "c1"
  slice_param { axis: 2 slice_point: 1 } }
layer { name: "prod" type: "Eltwise" bottom: "c0" bottom: "c0" top: "prod"
  eltwise_param { operation: PROD } }
layer { name: "join" type: "Concat" bottom: "prod" bottom: "c1" top: "join"
  concat_param { axis: -1 } }
layer { name: "flat" type: "Flatten" bottom: "join" top: "flat" }
"""


def test_many_layers(tmp_path: Path) -> None:
    blobs = {
        "up": [t(6, 2, 4, 4), t(4)],
        "wide": [t(4, 4, 3, 3)],
        "rows": [t(512, 3, scale=0.05), t(3)],
    }
    x = t(3, 6, 8, 8, scale=1)
    up = F.conv_transpose2d(x, *blobs["up"], stride=2, padding=1, groups=2)
    wide = F.leaky_relu(F.conv2d(up, *blobs["wide"], dilation=2, padding=2), 0.2)
    diff = up - 0.5 * (2 * wide - 0.5)
    rows = torch.tanh(diff.reshape(3, 2, 512) @ blobs["rows"][0] + blobs["rows"][1])
    wanted = torch.cat([rows[..., :1] ** 2, rows[..., 1:]], -1).flatten(1)
    close(module(tmp_path, MIXED, arrays(blobs))(x), wanted)


def test_shared_weights_are_one_parameter(tmp_path: Path) -> None:
    text = nets._input(1, 4, name="a") + nets._input(1, 4, name="b").replace('"in"', '"in2"')
    for part, source in (("one", "a"), ("two", "b")):
        rest = 'param { name: "w" } param { name: "b" } inner_product_param { num_output: 3 }'
        text += nets._layer(part, "InnerProduct", source, part, rest)
    both = [t(3, 4), t(3)]
    run = module(tmp_path, text, arrays({"one": both, "two": both}))
    assert len(list(run.parameters())) == 2
    x, y = t(2, 4), t(2, 4)
    one, two = run(x, y)
    close(one, x @ both[0].T + both[1])
    close(two, y @ both[0].T + both[1])


def test_googlenet_runs(tmp_path: Path) -> None:
    """A module of it, with the pools that keep the size."""
    text = nets._input(1, 8, 7, 7) + nets.inception("i", "data", 4, 3, 6, 2, 4, 5)
    sizes = {
        "1x1": (4, 8, 1),
        "3x3_reduce": (3, 8, 1),
        "3x3": (6, 3, 3),
        "5x5_reduce": (2, 8, 1),
        "5x5": (4, 2, 5),
        "pool_proj": (5, 8, 1),
    }
    w = {f"i/{part}": [t(o, i, k, k), t(o)] for part, (o, i, k) in sizes.items()}
    x = t(2, 8, 7, 7)

    def conv(y: Any, part: str, pad: int = 0) -> Any:
        return F.relu(F.conv2d(y, *w[f"i/{part}"], padding=pad))

    parts = [conv(x, "1x1"), conv(conv(x, "3x3_reduce"), "3x3", 1)]
    parts += [conv(conv(x, "5x5_reduce"), "5x5", 2)]
    parts += [conv(F.max_pool2d(x, 3, 1, 1), "pool_proj")]
    close(module(tmp_path, text, arrays(w))(x), torch.cat(parts, 1))
