"""ONNX files as a whole: names, ties, dtypes, sizes, memory, what is refused."""

from __future__ import annotations

import io
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx checks the files here")
pytest.importorskip("onnxruntime", reason="onnxruntime runs the files here")

from dlv.adapters.checkpoint import PART, Beside, Tensor  # noqa: E402
from dlv.adapters.onnx.writer import save_network  # noqa: E402
from dlv.errors import NotFound, UsageError  # noqa: E402
from dlv.network.graph import Network, Node  # noqa: E402
from tests.onnx_runs import difference, hashes, network, node, run, session, stored, written  # noqa: E402


def numbers(*shape: int, seed: int = 0) -> Any:
    found = np.random.default_rng(seed + sum(shape)).standard_normal(shape)
    return found.astype(np.float32)


WEIGHTS = {"fc.weight": numbers(4, 3), "fc.bias": numbers(4)}
SLOTS = {"weight": "fc.weight", "bias": "fc.bias"}


def full(**more: Any) -> Node:
    return node("FULL", ["x"], name="fc", params=SLOTS, out=4, **more)


def two_layers() -> Network:
    return network([full(), node("RELU", ["fc"], name="act")], {"x": ("B", 3)})


def test_the_file_speaks_the_networks_names() -> None:
    data, notes = written(two_layers(), WEIGHTS, metadata={"z": "last", "dlv": "v1"})
    model = onnx.load_from_string(data)
    assert [item.name for item in model.graph.node] == ["fc", "act"]
    assert [item.op_type for item in model.graph.node] == ["Gemm", "Relu"]
    assert [item.output[0] for item in model.graph.node] == ["fc", "act"]
    assert [item.name for item in model.graph.initializer] == ["fc.weight", "fc.bias"]
    assert [item.name for item in model.graph.input] == ["x"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "B"
    assert [item.name for item in model.graph.output] == ["act"]
    assert [(item.key, item.value) for item in model.metadata_props] == [
        ("dlv", "v1"),
        ("z", "last"),
    ]
    assert (model.producer_name, model.ir_version) == ("dlv", 10)
    assert [(item.domain, item.version) for item in model.opset_import] == [("", 21)]
    assert notes == []


def test_the_bytes_are_those_of_the_library_and_always_the_same() -> None:
    data, _ = written(two_layers(), WEIGHTS, metadata={"a": "b"})
    assert data == written(two_layers(), WEIGHTS, metadata={"a": "b"})[0]
    assert onnx.load_from_string(data).SerializeToString(deterministic=True) == data


def test_tied_tensors_are_written_once() -> None:
    table = numbers(6, 3)
    nodes = [
        node("EMBED", ["x"], name="wte", params={"weight": "wte.weight"}, out=3, rows=6),
        node("FULL", ["wte"], name="head", params={"weight": "head.weight"}, out=6),
    ]
    made = network(nodes, {"x": ("int64", ("B",))}, aliases={"head.weight": "wte.weight"})
    given = {"wte.weight": table, "head.weight": table}
    data, notes = written(made, given)
    assert [item.name for item in onnx.load_from_string(data).graph.initializer] == ["wte.weight"]
    assert notes == []
    # The same where only the checkpoint knows of the tie.
    tie = replace(stored("head.weight", table), tied="wte.weight")
    again, _ = written(replace(made, aliases={}), {"wte.weight": table, "head.weight": tie})
    assert again == data


def test_a_node_that_bears_the_name_of_a_tensor() -> None:
    twice = replace(full(), name="fc.weight")
    made = network(
        [twice, node("RELU", ["fc.weight"], name="act")], {"x": ("B", 3)}, "fc.weight", "act"
    )
    data, notes = written(made, WEIGHTS)
    model = onnx.load_from_string(data)
    assert [item.name for item in model.graph.initializer] == ["fc.weight", "fc.bias"]
    assert [item.name for item in model.graph.output] == ["fc.weight_1", "act"]
    assert "'fc.weight' is named 'fc.weight_1'" in notes[0]
    x = numbers(2, 3)
    wanted = x @ WEIGHTS["fc.weight"].T + WEIGHTS["fc.bias"]
    assert difference(session(data).run(None, {"x": x})[0], wanted) < 1e-5


def test_outputs_that_are_inputs_constants_or_stand_twice() -> None:
    constant = numbers(2)
    relu = node("RELU", ["x"], name="r")
    made = network([relu], {"x": ("B", 3)}, "x", "r", "r", "k", constants=hashes({"k": constant}))
    x = numbers(2, 3)
    data, _ = written(made, {}, {"k": constant})
    model = onnx.load_from_string(data)
    assert [item.name for item in model.graph.input] == ["x"]
    names = [item.name for item in model.graph.output]
    assert len(set(names)) == 4
    assert names[1] == "r"
    assert "r" in [item.name for item in model.graph.node if item.op_type == "Relu"]
    found = session(data).run(None, {"x": x})
    for ours, theirs in zip(found, [x, x.clip(0), x.clip(0), constant], strict=True):
        assert np.array_equal(ours, theirs)


def test_dead_nodes_and_losses_are_left_out_and_unused_tensors_told() -> None:
    nodes = [full(), node("RELU", ["fc"], name="unread"), node("LOSS", ["fc"], name="loss")]
    made = network(nodes, {"x": ("B", 3), "label": ("B",)}, "fc", "loss")
    spare = {"odd": numbers(2), "bn.num_batches_tracked": np.array(3)}
    data, notes = written(made, {**WEIGHTS, **spare})
    model = onnx.load_from_string(data)
    assert [item.op_type for item in model.graph.node] == ["Gemm"]
    assert [item.name for item in model.graph.output] == ["fc"]
    assert [item.name for item in model.graph.input] == ["x", "label"]
    assert len(notes) == 2
    assert "losses" in notes[0]
    assert "1 tensors" in notes[1]
    assert "odd" in notes[1]


BITS = {"bfloat16": np.uint16, "float8_e4m3": np.uint8, "float8_e5m2": np.uint8}


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3", "float8_e5m2", "float16"])
def test_narrow_weights_stay_narrow_in_the_file(dtype: str) -> None:
    # Small powers of two are exact in all of them.
    values = np.array([[1, -2, 0.5], [4, 1, -1], [2, 2, 0], [0.5, 1, 1]], np.float32)
    if dtype == "float16":
        raw = values.astype(np.float16)
    elif dtype == "bfloat16":
        raw = (values.view(np.uint32) >> 16).astype(np.uint16)
    else:
        codes = {
            "float8_e4m3": {1: 0x38, -2: 0xC0, 0.5: 0x30, 4: 0x48, -1: 0xB8, 2: 0x40, 0: 0},
            "float8_e5m2": {1: 0x3C, -2: 0xC0, 0.5: 0x38, 4: 0x44, -1: 0xBC, 2: 0x40, 0: 0},
        }[dtype]
        raw = np.array([[codes[float(v)] for v in row] for row in values], np.uint8)
    weight = stored("fc.weight", raw, dtype)
    made = network(
        [node("FULL", ["x"], name="fc", params={"weight": "fc.weight"}, out=4)], {"x": ("B", 3)}
    )
    data, notes = written(made, {"fc.weight": weight})
    model = onnx.load_from_string(data)
    [held] = model.graph.initializer
    kinds = {
        "bfloat16": onnx.TensorProto.BFLOAT16,
        "float8_e4m3": onnx.TensorProto.FLOAT8E4M3FN,
        "float8_e5m2": onnx.TensorProto.FLOAT8E5M2,
        "float16": onnx.TensorProto.FLOAT16,
    }
    assert (held.data_type, held.raw_data) == (kinds[dtype], raw.tobytes())
    assert bool(notes) == (dtype != "float16")
    x = numbers(2, 3)
    assert difference(session(data).run(None, {"x": x})[0], x @ values.T) < 1e-5


def test_a_bfloat16_input_is_computed_in_float32() -> None:
    made = network([node("RELU", ["x"])], {"x": ("bfloat16", ("B", 2))})
    data, notes = written(made, {})
    model = onnx.load_from_string(data)
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16
    assert model.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert "computed in float32" in notes[0]


def test_a_dtype_without_a_place_in_onnx_is_refused() -> None:
    weight = stored("fc.weight", np.zeros((4, 3), np.uint8), "float8_e8m0")
    made = network(
        [node("FULL", ["x"], name="fc", params={"weight": "fc.weight"}, out=4)], {"x": ("B", 3)}
    )
    with pytest.raises(UsageError, match=r"fc\.weight"):
        written(made, {"fc.weight": weight})


def save(path: Path, made: Network, given: dict[str, Any], **options: Any) -> list[str]:
    tensors = [stored(name, item) for name, item in given.items()]
    with path.open("wb") as out:
        return save_network(out, made, tensors, [], **options)


def test_large_models_have_their_tensors_beside_them(tmp_path: Path) -> None:
    weight, bias = numbers(400, 300), numbers(400)
    nodes = [node("FULL", ["x"], name="fc", params=SLOTS, out=400)]
    made = network(nodes, {"x": ("B", 300)})
    given = {"fc.weight": weight, "fc.bias": bias}
    path = tmp_path / "model.onnx"
    with (tmp_path / "model.onnx.data").open("wb") as data:
        beside = Beside("model.onnx.data", lambda: data)
        notes = save(path, made, given, beside=beside, most=100_000)
    assert "model.onnx.data" in notes[0]
    assert path.stat().st_size < 2000
    onnx.checker.check_model(str(path), full_check=True)
    for item in onnx.load(str(path), load_external_data=False).graph.initializer:
        where = {entry.key: entry.value for entry in item.external_data}
        assert (where["location"], int(where["offset"]) % 4096) == ("model.onnx.data", 0)
    x = numbers(2, 300)
    assert difference(session(str(path)).run(None, {"x": x})[0], x @ weight.T + bias) < 1e-5
    loaded = onnx.load(str(path))
    held = {item.name: onnx.numpy_helper.to_array(item) for item in loaded.graph.initializer}
    assert np.array_equal(held["fc.weight"], weight)
    assert np.array_equal(held["fc.bias"], bias)


def test_a_model_too_large_for_one_file_is_refused_before_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with pytest.raises(UsageError, match="too large"):
        save(path, two_layers(), WEIGHTS, most=50)
    assert path.read_bytes() == b""


def test_two_gigabytes_are_refused_without_being_read() -> None:
    def read() -> bytes:
        raise AssertionError("read")

    big = Tensor("fc.weight", "float32", (1 << 20, 1 << 9), 1 << 31, read)
    nodes = [node("FULL", ["x"], name="fc", params={"weight": "fc.weight"}, out=1 << 20)]
    with pytest.raises(UsageError, match="too large"):
        save_network(io.BytesIO(), network(nodes, {"x": ("B", 1 << 9)}), [big], [])


def test_a_large_matrix_passes_through_in_parts(tmp_path: Path) -> None:
    rows, columns = 12_500, 4_000  # 200 MB
    size = rows * columns * 4

    def part(start: int, count: int) -> bytes:
        return bytes(count)

    def whole() -> bytes:
        raise AssertionError("read whole")

    big = Tensor("fc.weight", "float32", (rows, columns), size, whole, part=part)
    nodes = [node("FULL", ["x"], name="fc", params={"weight": "fc.weight"}, out=rows)]
    made = network(nodes, {"x": ("B", columns)})
    tracemalloc.start()
    try:
        with (tmp_path / "model.onnx").open("wb") as out:
            save_network(out, made, [big], [])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tmp_path / "model.onnx").stat().st_size > size
    assert peak < 8 * PART


BROKEN: list[tuple[Any, str]] = [
    (lambda: network([full()], {"x": ("B", 5)}, "odd"), "odd"),
    (lambda: network([node("RELU", ["nothing"])], {"x": ("B",)}), "nothing"),
    (lambda: network([node("RELU", [("x", 1)])], {"x": ("B",)}), "has no output 1"),
    (lambda: network([replace(full(), params={})], {"x": ("B", 3)}), "slot 'weight'"),
    (lambda: network([node("ADD", ["x"])], {"x": ("B",)}), "wrong number"),
    (lambda: network([node("LOSS", ["x"])], {"x": ("B",)}), "no outputs"),
    (lambda: network([node("RELU", ["k"])], {}, constants={"k": "0" * 64}), "constant 'k'"),
    (lambda: network([node("OP", ["x"], variant="raw")], {"x": ("B",)}), "unknown dialect"),
    (
        lambda: network([node("RESHAPE", ["x"], kind="view", size=[7])], {"x": (2, 3)}),
        "number of elements",
    ),
    (
        lambda: network([node("NORM", ["x"], variant="GROUP", groups=2)], {"x": ("B", 3, 4)}),
        "groups 2",
    ),
]


def test_a_tensor_of_another_shape_is_named() -> None:
    with pytest.raises(UsageError, match=r"node 'fc' \(FULL\): the tensor 'fc\.weight'"):
        written(two_layers(), {**WEIGHTS, "fc.weight": numbers(5, 3)})


@pytest.mark.parametrize(
    "odd",
    [
        node("POOL", ["x"], variant="AVG", size=[10**9]),
        node("POOL", ["x"], variant="MAX", size=[10**9]),
        node("NORM", ["x"], variant="INSTANCE"),
        node("RESHAPE", ["x"], kind="split", axis=1, sizes=[0] * 20_000 + [10**12]),
    ],
)
def test_what_would_be_written_out_has_a_limit(odd: Node) -> None:
    with pytest.raises(UsageError, match="node 'n'"):
        written(network([odd], {"x": ("B", 10**12, 7)}), {})


@pytest.mark.parametrize(("make", "text"), BROKEN)
def test_broken_networks_are_refused_by_name(make: Any, text: str) -> None:
    with pytest.raises((UsageError, NotFound)) as caught:
        written(make(), WEIGHTS)
    assert text in caught.value.message + (caught.value.why or "")


def test_a_missing_tensor_is_named() -> None:
    with pytest.raises(UsageError, match=r"node 'fc' \(FULL\): the tensor 'fc\.bias'"):
        written(two_layers(), {"fc.weight": WEIGHTS["fc.weight"]})


def test_a_cut_network_has_its_placeholder_as_input() -> None:
    nodes = [
        node("INPUT", [], name="features", shape=["B", 3]),
        node("FULL", ["features"], name="fc", params=SLOTS, out=4),
    ]
    x = numbers(2, 3)
    found = run(network(nodes, {}), WEIGHTS, {"features": x})
    assert difference(found[0], x @ WEIGHTS["fc.weight"].T + WEIGHTS["fc.bias"]) < 1e-5


def test_a_thousand_layers() -> None:
    nodes = [
        node(
            "RELU" if at % 2 else "ACT",
            [f"n{at - 1}" if at else "x"],
            name=f"n{at}",
            variant=None if at % 2 else "TANH",
        )
        for at in range(1000)
    ]
    data, _ = written(network(nodes, {"x": ("B", 3)}), {})
    assert len(onnx.load_from_string(data).graph.node) == 1000
