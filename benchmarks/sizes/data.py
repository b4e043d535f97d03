"""Files of weights, made on the spot."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file

if TYPE_CHECKING:
    from gguf import GGMLQuantizationType


def moved(values: Any, spread: float, seed: int) -> Any:
    random = np.random.default_rng(seed + 100_000)  # another stream than that of the weights
    step = random.standard_normal(values.shape, np.float32) * np.float32(spread)
    return (values + step).astype(values.dtype)


def weights(shape: Sequence[int], seed: int) -> Any:
    random = np.random.default_rng(seed)
    return random.standard_normal(shape, np.float32) * np.float32(0.02)


def write_pair(files: Sequence[Path], shape: tuple[int, int], count: int) -> None:
    """Two versions of as many matrices, the second moved by 2e-5."""
    first = {f"w{n:05}": weights(shape, n) for n in range(count)}
    save_file(first, files[0])
    save_file({k: moved(v, 2e-5, n) for n, (k, v) in enumerate(first.items())}, files[1])


def apart(work: Callable[..., None], *given: Any) -> None:
    """In a process of its own: the peak memory of what is run later begins with this one's."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=given)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{work.__name__} failed")


def write_large(
    path: Path, shape: tuple[int, int], count: int, version: int, filled: int | None = None
) -> None:
    """A safetensors file written tensor by tensor; each is zero after `filled` rows."""
    size = 4 * shape[0] * shape[1]
    header = {
        f"w{n}": {"dtype": "F32", "shape": list(shape), "data_offsets": [n * size, (n + 1) * size]}
        for n in range(count)
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        start = file.tell()
        for n in range(count):
            values = weights((filled or shape[0], shape[1]), n)
            file.seek(start + n * size)
            file.write((values if version == 1 else moved(values, 2e-5, n)).tobytes())
        file.truncate(start + count * size)


def write_gguf(path: Path, blocks: Any, level: GGMLQuantizationType) -> None:
    """A GGUF file with one quantized tensor."""
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "llama")
    writer.add_tensor("blk.0.ffn_up.weight", blocks, raw_dtype=level)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def stacked(layers: int, width: int) -> dict[str, Any]:
    """A network that multiplies with one square tensor after the other."""
    nodes = [
        {
            "name": f"full{n}",
            "op": "FULL",
            "inputs": [f"full{n - 1}" if n else "x"],
            "attrs": {"out": width},
            "params": {"weight": f"w{n}"},
        }
        for n in range(layers)
    ]
    x = {"name": "x", "shape": ["B", width], "dtype": "float32"}
    return {"dlv_network": 1, "inputs": [x], "nodes": nodes, "outputs": [f"full{layers - 1}"]}
