"""The zoo's models: torch module -> network -> ONNX -> onnxruntime, against the module itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx checks the files here")
pytest.importorskip("onnxruntime", reason="onnxruntime runs the files here")
torch = pytest.importorskip("torch", reason="torch is the oracle here")

from dlv.adapters.aten.live import trace  # noqa: E402
from dlv.adapters.checkpoint import Tensor  # noqa: E402
from tests.onnx_runs import difference, session, stored, written  # noqa: E402
from tests.zoo.models import STATIC, ZOO, build, state  # noqa: E402

TOLERANCE = 1e-5


def flat(found: Any) -> list[Any]:
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, (tuple, list)):
        return [array for item in found for array in flat(item)]
    return [found.detach().numpy()]


def other_batch(inputs: Any) -> Any:
    """Five of each: more than were there, an odd number."""
    return tuple(torch.cat([item, item.flip(0), item])[:5].contiguous() for item in inputs)


@pytest.mark.quick(
    *("bert", "gpt", "gru_state", "resnet16", "unet", "masked", "functional", "pools", "rolled"),
    *("norms", "shared", "fixed_batch"),
)
@pytest.mark.parametrize("name", sorted(ZOO))
def test_the_file_computes_what_the_module_computes(name: str) -> None:
    torch.set_num_threads(1)
    module, inputs = build(name)
    found = trace(module, inputs)
    network = found.network
    assert network is not None
    tensors: dict[str, Any] = {
        key: stored(key, item.numpy()) for key, item in state(module).items()
    }
    given: dict[str, Tensor] = {item.name: item for item in found.constants}
    data, notes = written(network, {**tensors, **given})
    assert data == written(network, {**tensors, **given})[0]
    assert notes == []
    ran = session(data)
    module.eval()
    batches = [inputs] if name in STATIC else [inputs, other_batch(inputs)]
    worst = 0.0
    for batch in batches:
        with torch.no_grad():
            wanted = flat(module(*batch))
        names = [item.name for item in ran.get_inputs()]
        ours = ran.run(None, {n: t.numpy() for n, t in zip(names, batch, strict=True)})
        assert len(ours) == len(wanted)
        worst = max(worst, *(difference(a, b) for a, b in zip(ours, wanted, strict=True)))
    print(f"{name}: {worst:.1e}, {len(data)} bytes")
    assert worst <= TOLERANCE
    # Every tensor that is used has its own name, and tied ones stand there once.
    held = {item.name: item for item in onnx.load_from_string(data).graph.initializer}
    kept = {network.aliases.get(key, key) for node in network.nodes for key in node.params.values()}
    assert kept <= held.keys()
    for key in kept:
        assert np.array_equal(onnx.numpy_helper.to_array(held[key]), state(module)[key].numpy())
    assert held.keys() & network.aliases.keys() == set()
    assert [item.name for item in network.inputs] == [item.name for item in ran.get_inputs()]
