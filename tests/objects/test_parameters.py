"""True numbers of parameters of quantized models: the same as before they were quantized."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import dlv.api as api
import dlv.versions.add as adding
import dlv.versions.commit as committing
import dlv.versions.stats as storage
from dlv.objects.manifest import TensorEntry
from dlv.objects.parameters import count_parameters, parameters_of
from dlv.repository.handle import Repository
from dlv.versions.card import card_of
from dlv.versions.describe import describe
from dlv.versions.show import find, show

INPUTS, OUTPUTS, GROUP = 128, 96, 32
GROUPS = INPUTS // GROUP
Arrays = dict[str, np.ndarray[Any, Any]]


def zeros(dtype: str, *shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, dtype)


def gptq(bits: int, order: bool, word: int = 32) -> Arrays:
    """A layer as gptqmodel 7.7.0 packs it: words along the inputs, `g_idx` with act-order."""
    packed = f"i{word // 8}"
    layer = {
        "qweight": zeros(packed, INPUTS * bits // word, OUTPUTS),
        "qzeros": zeros(packed, GROUPS, OUTPUTS * bits // word),
        "scales": zeros("f2", GROUPS, OUTPUTS),
    }
    return {**layer, "g_idx": zeros("i4", INPUTS)} if order else layer


def awq() -> Arrays:
    """A layer as gptqmodel 7.7.0 packs it in AWQ's GEMM form: words along the outputs."""
    return {
        "qweight": zeros("i4", INPUTS, OUTPUTS // 8),
        "qzeros": zeros("i4", GROUPS, OUTPUTS // 8),
        "scales": zeros("f2", GROUPS, OUTPUTS),
    }


def four_bits(kind: str, *, nested: bool) -> Arrays:
    """A layer as bitsandbytes 0.50.2 and transformers 5.23.0 save it."""
    blocks = INPUTS * OUTPUTS // 64
    layer = {
        "weight": zeros("u1", INPUTS * OUTPUTS // 2, 1),
        "weight.absmax": zeros("u1" if nested else "f4", blocks),
        "weight.quant_map": zeros("f4", 16),
        f"weight.quant_state.bitsandbytes__{kind}": zeros("u1", 168),
    }
    if nested:
        layer["weight.nested_absmax"] = zeros("f4", 1)
        layer["weight.nested_quant_map"] = zeros("f4", 256)
    return layer


def eight_bits() -> Arrays:
    """A layer as bitsandbytes 0.50.2 and transformers 5.23.0 save it."""
    return {
        "weight": zeros("i1", OUTPUTS, INPUTS),
        "SCB": zeros("f4", OUTPUTS),
        "weight_format": zeros("u1"),
    }


LAYERS = {
    "plain": {"weight": zeros("f4", OUTPUTS, INPUTS)},
    **{
        f"gptq of {bits} bits{', act-order' * order}": gptq(bits, order)
        for bits in (2, 3, 4, 8)
        for order in (False, True)
    },
    "gptq in bytes": gptq(4, order=False, word=8),
    "awq": awq(),
    "nf4": four_bits("nf4", nested=True),
    "fp4": four_bits("fp4", nested=False),
    "int8": eight_bits(),
}


def model(layer: Mapping[str, np.ndarray[Any, Any]]) -> Arrays:
    """Two quantized layers between an embedding and a norm, which stay as they are."""
    tensors = {"embed.weight": zeros("f4", 50, INPUTS), "norm.weight": zeros("f4", OUTPUTS)}
    for name in ("a", "b.proj"):
        tensors |= {f"layers.{name}.{key}": value for key, value in layer.items()}
        tensors[f"layers.{name}.bias"] = zeros("f2", OUTPUTS)
    rng = np.random.default_rng(1)  # each one different: equal tensors are stored once
    return {
        name: np.frombuffer(rng.bytes(a.nbytes), a.dtype).reshape(a.shape)
        for name, a in tensors.items()
    }


EXPECTED = 50 * INPUTS + OUTPUTS + 2 * (INPUTS * OUTPUTS + OUTPUTS)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.init(tmp_path)[0]


def committed(repository: Repository, file: str) -> None:
    adding.add(repository, repository.root, [file], adding.Request())
    committing.commit(repository, committing.Request("made", "Ada", "net"))


def said(repository: Repository) -> set[int | None]:
    """The number of parameters wherever dlv says it."""
    with api.open(repository.root) as repo:
        ((_, queried),) = repo.query("select m, m.n_params where m.n_params > 1")
    version = find(repository, "net@1").version
    return {
        queried,
        describe(repository, "net@1").parameters,
        show(repository, find(repository, "net@1")).parameters,
        card_of(repository, version).parameters,
    }


@pytest.mark.parametrize("kind", list(LAYERS))
def test_quantized_layers(repository: Repository, kind: str) -> None:
    tensors = model(LAYERS[kind])
    save_file(tensors, repository.root / "model.safetensors")
    committed(repository, "model.safetensors")
    assert said(repository) == {EXPECTED}
    totals = storage.stats(repository, []).totals
    assert totals.raw == sum(values.nbytes for values in tensors.values())


def test_blocks_of_gguf(repository: Repository) -> None:
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    path = repository.root / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    kinds = gguf.GGMLQuantizationType
    rng = np.random.default_rng(0)
    for name, shape, kind in (
        ("token_embd.weight", (40, 256), kinds.Q4_0),
        ("blk.0.attn_q.weight", (64, 256), kinds.Q8_0),
        ("blk.0.ffn_up.weight", (48, 512), kinds.Q5_1),
        ("output_norm.weight", (256,), kinds.F32),
    ):
        values = rng.standard_normal(shape).astype("f4")
        if kind is kinds.F32:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    blocks = rng.integers(0, 255, (32, 2 * 144), dtype=np.uint8)
    writer.add_tensor("blk.0.attn_k.weight", blocks, raw_dtype=kinds.Q4_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensors = gguf.GGUFReader(path).tensors
    committed(repository, "model.gguf")
    assert said(repository) == {sum(int(tensor.n_elements) for tensor in tensors)}
    size = sum(int(tensor.n_bytes) for tensor in tensors)
    found = storage.stats(repository, [])
    assert (found.totals.raw, found.rows[0].raw) == (size, size)
    by_tensor = {row.name: row.raw for row in storage.stats(repository, [], "tensor").rows}
    assert by_tensor == {tensor.name: int(tensor.n_bytes) for tensor in tensors}
    assert describe(repository, "net@1").storage.raw == size


def entry(name: str, dtype: str, *shape: int, role: str = "weight") -> TensorEntry:
    return TensorEntry(name, dtype, shape, role)


def test_what_is_not_trained_is_no_parameter() -> None:
    tensors = [
        entry("bn.weight", "float32", 7),
        entry("bn.running_mean", "float32", 7),  # safetensors cannot say that it is a buffer
        entry("bn.num_batches_tracked", "int64"),
        entry("optimizer.state.0.exp_avg", "float32", 7, role="optimizer"),
        entry("rng", "uint8", 5056, role="extra"),
        TensorEntry("head.weight", "float32", (7,), "weight", "bn.weight"),
    ]
    assert parameters_of(tensors) == {"bn.weight": 7}


def test_scales_of_8_and_4_bit_floats() -> None:
    tensors = [
        entry("q.weight", "float8_e4m3", 8, 16),
        entry("q.weight_scale_inv", "float32", 1, 1),
        entry("experts.gate_up_proj_blocks", "uint8", 2, 6, 3, 16),
        entry("experts.gate_up_proj_scales", "uint8", 2, 6, 3),
        entry("experts.gate_up_proj_bias", "bfloat16", 2, 6),
    ]
    assert count_parameters(tensors) == 8 * 16 + 2 * 6 * 3 * 32 + 12


@pytest.mark.parametrize(
    "tensors",
    [
        [entry("a.qweight", "int32", 0, 0), entry("a.scales", "float16")],
        [entry("a.qweight", "int32"), entry("a.qzeros", "int32"), entry("a.scales", "float16", 0)],
        [entry("a.qweight", "int32", 3, 5), entry("a.qzeros", "int32", 1, 0)],
        [entry("a.qweight", "int32", 3, 5), entry("a.scales", "float16", 1, 5)],
        [entry("a.qweight", "float32", 3, 5), entry("a.scales", "float16", 5)],
        [entry("w", "uint8", 4), entry("w.quant_state.bitsandbytes__nf4", "uint8", 0)],
    ],
)
def test_odd_names_give_some_number(tensors: list[TensorEntry]) -> None:
    assert count_parameters(tensors) >= 0
