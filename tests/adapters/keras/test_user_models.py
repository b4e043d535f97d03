"""Models as users make them: every engine and every export gives what Keras gives, or refuses."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlv.adapters.checkpoint import Checkpoint
from dlv.adapters.keras.writer import save_network as write_keras
from dlv.errors import DlvError
from dlv.evaluation import engines
from dlv.network.agreement import distance
from dlv.network.program import program
from dlv.weights.arrays import to_array
from tests.adapters.keras.comparing import drawn, filled, imported, off, raw
from tests.adapters.keras.user_models import MODELS

pytestmark = pytest.mark.filterwarnings("ignore")  # of Keras and what it uses

CLOSE = 1e-5
# Kept as they are, and known to every engine: what changes training alone, and given statistics.
RUN = {"RandomFlip", "RandomRotation", "SpatialDropout1D", "Normalization"}
ENGINES = [("numpy", "float64"), ("torch", "float32"), ("onnxruntime", "float32")]


def listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def answers(checkpoint: Checkpoint, name: str, precision: str, given: list[Any]) -> list[Any]:
    """What an engine of `dlv eval` gives for each output."""
    network = checkpoint.network
    assert network is not None
    held = {tensor.name: tensor for tensor in (*checkpoint.constants, *checkpoint.tensors)}

    def tensor(wanted: str) -> Any:
        item = held[network.aliases.get(wanted, wanted)]
        return to_array(item.dtype, item.shape, item.read())

    shapes = {item.name: (item.dtype, item.shape) for item in held.values()}
    inputs = dict(zip((item.name for item in network.inputs), given, strict=True))
    found = []
    for port in network.outputs:
        steps = program(replace(network, outputs=(port,)), shapes, until=[port[0]])
        values = engines.engine(name, steps, tensor, precision).values(
            {key: inputs[key] for key in steps.input_names}
        )
        found.append(values[steps.kept[port[0]]])
    return found


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("name", MODELS)
def test_equal_or_refused(keras: Any, tmp_path: Path, name: str, suffix: str) -> None:
    pytest.importorskip("onnxruntime")
    make, kept = MODELS[name]
    model = filled(make(keras))
    checkpoint = imported(model, tmp_path / f"m{suffix}")
    try:
        if checkpoint.network is None:
            assert checkpoint.notes
            return
        odd = set(raw(checkpoint.network))
        stopping = odd - RUN
        assert kept <= odd if kept else not odd
        ran = 0
        for rows in (1, 3):
            given = drawn(model, rows, seed=rows)
            wanted = [
                each.detach().numpy()
                for each in listed(model(given if len(given) > 1 else given[0], training=False))
            ]
            for engine, precision in ENGINES:
                try:
                    got = answers(checkpoint, engine, precision, given)
                except DlvError as error:
                    # For a layer that is raw, or by numpy, which knows fewer operations.
                    if stopping or engine == "numpy":
                        continue
                    raise AssertionError(f"{engine}: {error.message}: {error.why}") from error
                ran += 1
                for a, b in zip(got, wanted, strict=True):
                    assert distance(a, b) < CLOSE, engine
        if stopping:
            assert ran == 0
        else:
            assert ran >= 4
            assert off(model, checkpoint) < CLOSE
        again = exported(keras, checkpoint, tmp_path / "w.keras")
        if again is not None:
            given = drawn(model, 3, seed=3)
            asked = given if len(given) > 1 else given[0]
            pairs = zip(
                listed(again(asked, training=False)),
                listed(model(asked, training=False)),
                strict=True,
            )
            for a, b in pairs:
                assert distance(a.detach().numpy(), b.detach().numpy()) < CLOSE
    finally:
        checkpoint.close()


def exported(keras: Any, checkpoint: Checkpoint, path: Path) -> Any:
    """What Keras loads of what dlv writes; None where dlv refuses to write it."""
    out = io.BytesIO()
    assert checkpoint.network is not None
    try:
        write_keras(out, checkpoint.network, checkpoint.tensors, checkpoint.constants)
    except DlvError:
        return None
    path.write_bytes(out.getvalue())
    return keras.saving.load_model(path, safe_mode=True)
